"""Why a transaction did not happen."""

from __future__ import annotations

import os


class TransactionError(Exception):
    """A transaction could not be begun, or did not happen; nothing of it has.

    ``what`` says it in words, ``path`` where (``None`` if it has no place), ``errno`` is the error
    number that the library gave.
    """

    def __init__(self, what: str, *, path: str | None = None, errno: int = 0) -> None:
        super().__init__(what, path, errno)
        self.what = what
        self.path = path
        self.errno = errno

    def __str__(self) -> str:
        # Most of the library's messages name the path themselves.
        if self.path is None or self.path in self.what:
            return self.what
        return f"{self.path}: {self.what}"

    def __reduce__(self):  # keyword arguments are lost otherwise, between processes
        return (_again, (type(self), self.__dict__.copy()))


class Conflict(TransactionError):
    """Somebody else changed what the transaction depends on, or won where two met.

    Trying again may help; see :func:`txos.run`. ``pid`` is the process that won, 0 if it is not
    known.
    """

    def __init__(
        self, what: str, *, path: str | None = None, errno: int = 0, pid: int = 0
    ) -> None:
        super().__init__(what, path=path, errno=errno)
        self.pid = pid


class Unsupported(TransactionError):
    """A call that can't be part of a transaction (``strict=True``), or no transactions here."""


class Failed(TransactionError):
    """Publishing failed (no space, an I/O error) and was undone, or the block was left oddly."""


class Aborted(TransactionError):
    """The program itself aborted it."""


class TimedOut(Aborted):
    """The ``timeout`` of the transaction was over."""


class NotProduced(TransactionError):
    """What it was to come after (``after``) did not commit; or, with ``ESRCH``, there is nothing of that name."""


def _again(kind: type[TransactionError], state: dict[str, object]) -> TransactionError:
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = (error.what, error.path, error.errno)
    return error


# Reasons of an abort, as in txos.h.
ASKED = 1
CONFLICT = 2
UNSUPPORTED = 3
PRODUCER = 8


def of_abort(reason: int, errno: int, pid: int, what: str, path: str | None) -> TransactionError:
    """The exception for an abort."""
    if reason == CONFLICT:
        return Conflict(what, path=path, errno=errno, pid=pid)
    if reason == UNSUPPORTED:
        return Unsupported(what, path=path, errno=errno)
    if reason == ASKED:
        return Aborted(what, path=path, errno=errno)
    if reason == PRODUCER:
        return NotProduced(what, path=path, errno=errno)
    return Failed(what, path=path, errno=errno)


def of_begin(errno: int, what: str, *, is_after: bool = False) -> TransactionError:
    """The exception for a transaction that could not be begun. ``is_after``: it was to come after others."""
    import errno as numbers

    if what == "no error":
        what = f"a transaction could not be begun: {os.strerror(errno)}"
    if errno == numbers.EAGAIN:
        return Conflict(what, errno=errno)
    if errno in (numbers.ENOSYS, numbers.ENOTSUP):
        return Unsupported(what, errno=errno)
    if is_after and errno in (numbers.ESRCH, numbers.ECANCELED):
        return NotProduced(what, errno=errno)
    return Failed(what, errno=errno)
