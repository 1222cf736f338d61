"""A small wiki with history and search, on flat files in system transactions, or on SQLite.

| module | what is there |
|---|---|
| `storage` | what a storage does, and what both storages share |
| `files` | pages, history and search index in flat files, without a lock |
| `database` | the same in SQLite |
| `application` | the pages in HTML, as a WSGI application |
| `markup` | text to HTML |
| `server` | several worker processes on one socket |
| `load` | a load generator |
| `bench` | files beside SQLite |
| `__main__` | the command line |
"""
