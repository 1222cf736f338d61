"""Reads a file only if it is a regular file of the user who asks: check and use are one operation.

    python3 safe_open.py FILE

Without a transaction, somebody could put a link to another file in its place between lstat() and
open(). Here the read that follows such an exchange can't commit: it is done again.
"""

import os
import stat
import sys

import txos


@txos.atomic(durable=False, retry=None)
def read_own(path):
    """What is in the file; None: refused."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
        return None
    with open(path, "rb") as file:
        return file.read()


data = read_own(sys.argv[1])
if data is None:
    sys.exit(f"{sys.argv[1]}: refused")
sys.stdout.buffer.write(data)
