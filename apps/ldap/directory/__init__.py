"""slapd with its flat files in transactions: started, asked, loaded and measured.

| module | what is there |
|---|---|
| `client` | as much of LDAP as is needed, over a Unix socket |
| `server` | a slapd with a configuration and a database of its own |
| `load` | several clients at once, each a process |
| `bench` | flat files in transactions beside back-mdb |
"""
