"""System transactions: the file operations of a block of Python are one operation.

::

    import txos

    with txos.transaction():
        ...                      # any code: open(), os, pathlib, shutil, sqlite3, ...

    @txos.atomic(retry=10)       # called again after a conflict
    def add(name): ...

    txos.run(lambda: ..., retry=10)

What is inside is what *this thread* does meanwhile to files, directories, links, attributes, its
descriptors, working directory and umask. Variables are not put back by an abort. What other
threads, and programs that are started in the block, do is not part of it
(unless a thread calls a function of :meth:`transaction.taking_part`).

Linux 5.11 or later on x86-64.
"""

from ._errors import (
    Aborted,
    Conflict,
    Failed,
    NotProduced,
    TimedOut,
    TransactionError,
    Unsupported,
)
from ._transaction import (
    Participant,
    Stats,
    again,
    atomic,
    in_transaction,
    leave_out,
    library_version,
    paused,
    run,
    stats,
    transaction,
)

__version__ = "0.1.0"

# What a traceback shows is what a program catches.
for _error in (Aborted, Conflict, Failed, NotProduced, TimedOut, TransactionError, Unsupported):
    _error.__module__ = __name__
del _error

__all__ = [
    "Aborted",
    "Conflict",
    "Failed",
    "NotProduced",
    "Participant",
    "Stats",
    "TimedOut",
    "TransactionError",
    "Unsupported",
    "again",
    "atomic",
    "in_transaction",
    "leave_out",
    "library_version",
    "paused",
    "run",
    "stats",
    "transaction",
]
