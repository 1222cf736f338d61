"""Changes two configuration files that must agree: nobody sees one without the other.

    python3 two_files.py PORT

Writes the port to app.conf and proxy.conf in the current directory, and the one of before to port.old.
The second file may fail (try `chattr +i proxy.conf`): then the first has not changed.
"""

import sys
from pathlib import Path

import txos


@txos.atomic(retry=10)
def change(port):
    app = Path("app.conf")
    old = app.read_text().split()[-1] if app.exists() else ""
    Path("port.old").write_text(f"{old}\n")
    app.write_text(f"port = {port}\n")
    Path("proxy.conf").write_text(f"backend = localhost:{port}\n")


try:
    change(int(sys.argv[1]))
except (OSError, txos.TransactionError) as error:
    sys.exit(f"nothing has changed: {error}")
