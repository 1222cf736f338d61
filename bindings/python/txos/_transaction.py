"""Transactions as blocks and functions.

The library can begin a transaction again by returning from ``sys_xbegin()`` once more. The
interpreter's stack can't be entered twice, so ``TX_RESTART`` is never used here: what is retried is
a function, called again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import inspect
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Protocol, TypeVar, overload

from . import _library
from ._errors import ASKED, Aborted, Conflict, Failed, TimedOut, TransactionError, of_begin
from ._library import library

_A_PART_FAILED = "a block within this one, or a call that took part, failed, and its exception was caught"

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

# Pauses between attempts: random, so that those who met don't meet again, and longer each time.
BACKOFF_MS = 1.0
BACKOFF_MAX_MS = 64.0


class Participant(Protocol):
    """What can commit with a transaction, or not at all: see :meth:`transaction.enlist`."""

    def prepare(self) -> None:
        """It can commit, whatever comes; or raises an exception, which refuses."""

    def commit(self) -> None:
        """The transaction is committed."""

    def abort(self) -> None:
        """The transaction is aborted."""


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a name is text, and not {name!r}")
    # As the library does.
    has_control = any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name)
    if has_control or not 1 <= len(name.encode()) <= 255:
        raise ValueError(f"a name has 1 to 255 bytes, and no control characters: {name!r}")


def _call_all(functions: Iterable[Callable[[], object]]) -> None:
    """Calls each; the first exception goes on when all were called."""
    first: BaseException | None = None
    for function in functions:
        try:
            function()
        except BaseException as error:
            first = first or error
    if first is not None:
        raise first


class _State(threading.local):
    #: The outermost block that this thread is in, unless it is paused.
    block: transaction | None = None


_here = _State()
# A child is in no transaction, whatever block of its parent's it goes on in.
os.register_at_fork(after_in_child=lambda: setattr(_here, "block", None))


class transaction:
    """A block of which everything is published when it ends, or nothing.

    ::

        with txos.transaction():
            os.rename("new", "current")
            log.write_text("switched")

    An exception that leaves the block aborts the transaction, and goes on. If somebody else changed
    what the block depends on, :class:`Conflict` is raised at its end, or in place of an exception
    that a call in the block raised. A block can't be run again by itself: for that there are
    :func:`run` and :func:`atomic`.

    A block within another is part of it. If an exception leaves the inner block and is caught in
    the outer one, the outer one can't commit any more: it raises :class:`Aborted`.

    ``durable``: when the block has ended, its changes survive a power cut.
    ``strict``: a call that can't be part of a transaction aborts it; else it is made, with one
    warning on standard error.
    ``nonblock``: where another transaction is in the way, :class:`Conflict` at once instead of
    waiting.
    ``timeout``: seconds after which the next call for a file, or a wait for another transaction, fails, and the
    block raises :class:`TimedOut`. Code that makes no such call is not interrupted.
    ``sequence``: commits in the order of this number, within the process group; with ``reset_sequence`` the
    group's sequence begins at it.
    ``name``: by which others can come after it, programs with ``after`` and commands with ``txos run --after``.
    ``after``: the name, or names, of what it comes after, which goes on already: other transactions, and commands (also by
    id). The block begins at once, waits where it looks at what they have changed, and commits after them. If
    one does not commit, :class:`NotProduced` is raised at the end; if there is none of a name, at the beginning, with
    ``ESRCH``. If the block has looked at something before they changed it, that is a conflict.
    ``keep_credentials``: what the block gives up for good, such as root's privileges by :func:`os.setuid`, it gives up by the
    commit; an abort has it back. Needs a process of one thread, so it can't be had with ``timeout``.

    Of a nested block the outer one's settings hold. It can't have a name, come after others, or keep credentials
    where the outer one does not.
    """

    def __init__(
        self,
        *,
        durable: bool = True,
        strict: bool = False,
        nonblock: bool = False,
        timeout: float | None = None,
        sequence: int | None = None,
        reset_sequence: bool = False,
        name: str | None = None,
        after: str | Iterable[str] = (),
        keep_credentials: bool = False,
    ) -> None:
        if reset_sequence and sequence is None:
            raise TypeError("reset_sequence needs a sequence")
        if sequence is not None and not 0 <= sequence < 2**64:
            raise ValueError("a sequence number has 64 bits")
        if timeout is not None and not timeout >= 0:
            raise ValueError("a timeout is a number of seconds")
        if keep_credentials and timeout is not None:
            raise ValueError("a timeout needs a thread, and credentials are kept in a process of one thread")
        producers = (after,) if isinstance(after, str) else tuple(after)
        if producers and sequence is not None:
            raise ValueError("a transaction comes after others, or in the order of a number")
        for word in producers if name is None else (name, *producers):
            _check_name(word)
        self._flags = (
            _library.MANAGED
            | (_library.DURABLE if durable else 0)
            | (_library.STRICT if strict else 0)
            | (_library.NONBLOCK if nonblock else 0)
            | (_library.ORDERED if sequence is not None else 0)
            | (_library.ORDER_RESET if reset_sequence else 0)
            | (_library.AFTER if producers else 0)
            | (_library.KEEP_CREDENTIALS if keep_credentials else 0)
        )
        self._sequence = sequence or 0
        self._name = name
        self._producers = producers
        self._timeout = timeout
        self._timer: _Timer | None = None
        self._outer: transaction | None = None
        self._thread = 0
        self._process = 0
        #: A nested block has failed.
        self._spoiled = False
        #: By which other threads join.
        self._shown = -1
        #: What commits with it, or not at all.
        self._enlisted: list[Participant] = []
        #: How often it was begun before, by a function.
        self._attempt = 0

    def __enter__(self) -> transaction:
        if self._thread:
            raise RuntimeError("this transaction has been entered already")
        lib = library()
        self._outer = _here.block
        self._spoiled = False
        self._shown = -1
        self._enlisted = []
        if self._outer is not None:
            self._check_nested(self._outer)
        else:
            process = os.getpid()
            self._timer = None if self._timeout is None else _Timer(self._timeout)
            if not self._begin(lib):
                error = of_begin(ctypes.get_errno(), lib.words(), is_after=bool(self._producers))
                if self._timer is not None:
                    self._timer.cancel()
                raise error
            if self._timer is not None:
                lib.abort_if(ctypes.byref(self._timer.over))
            self._process = process
            _here.block = self
        self._thread = threading.get_ident()
        return self

    def _is_known(self) -> bool:
        """Whether it has a place among those that come after each other."""
        return self._name is not None or bool(self._producers)

    def _begin(self, lib: _library.Library) -> bool:
        if not self._is_known():
            return lib.begin(self._flags, self._sequence) >= 0
        # A further attempt has its name already.
        is_first = not self._flags & _library.RETRY or self._attempt == 0
        name = None if self._name is None else self._name.encode()
        if is_first and lib.name(name) != 0:
            return False
        names = ctypes.create_string_buffer("\n".join(self._producers).encode())
        second = ctypes.addressof(names) if self._producers else self._sequence
        if lib.begin(self._flags, second) >= 0:
            return True
        if not self._flags & _library.RETRY:
            number = ctypes.get_errno()
            # The next transaction is not to have it.
            lib.name(None)
            ctypes.set_errno(number)
        return False

    def _give_up(self) -> None:
        """It is not begun again: if it has not committed, it has failed for what comes after it."""
        if self._is_known():
            library().name(None)

    def _check_nested(self, outer: transaction) -> None:
        while outer._outer is not None:
            outer = outer._outer
        if self._is_known():
            raise ValueError("a block within another one is part of that: it has no name, and comes after nothing, of its own")
        if self._flags & ~outer._flags & _library.KEEP_CREDENTIALS:
            raise ValueError("the outer block was begun without keep_credentials")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread != threading.get_ident():
            raise RuntimeError("a transaction ends in the thread in which it began")
        self._thread = 0
        if self._outer is not None:
            if kind is not None:
                self._outer._spoiled = True
            return
        _here.block = None
        try:
            self._end(kind, error)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        lib = library()
        if os.getpid() != self._process or not lib.in_transaction():
            if os.getpid() == self._process:
                self._tell_aborted()
            if kind is None:
                raise Failed(
                    "nothing was committed: at the end of the block there was no transaction any "
                    "more (the process was forked in it, or other code has ended it)"
                )
            return
        if kind is None and not self._spoiled:
            ended = self._end_with_participants(lib) if self._enlisted else lib.end() == 0
            self._hide()
            if ended:
                return
            reason, why = self._why(lib)
            raise Aborted(_A_PART_FAILED) if reason == ASKED and self._spoiled else why
        lib.abort(1)
        self._hide()
        reason, why = self._why(lib)
        self._tell_aborted()
        if reason != ASKED:
            # It had failed before: the exception is only what the program made of that. One that
            # asks for the end of the program goes first.
            if kind is None or issubclass(kind, Exception):
                raise why from error
        elif kind is None:
            raise Aborted(_A_PART_FAILED)

    def _end_with_participants(self, lib: _library.Library) -> bool:
        """Whether it is committed. An exception of one that refuses goes on."""
        if lib.prepare() != 0:
            error = ctypes.get_errno()
            if lib.in_transaction():
                words = lib.words()
                lib.abort(1)
                self._hide()
                self._tell_aborted()
                raise Failed(words, errno=error)
            if error == errno.EINPROGRESS:
                # It is not decided.
                self._enlisted = []
            self._tell_aborted()
            return False
        try:
            for participant in self._enlisted:
                participant.prepare()
        except BaseException:
            lib.finish(0)
            self._hide()
            self._tell_aborted()
            raise
        if lib.finish(1) != 0:
            if ctypes.get_errno() == errno.EINPROGRESS:
                self._enlisted = []
            self._tell_aborted()
            return False
        enlisted, self._enlisted = self._enlisted, []
        _call_all(participant.commit for participant in enlisted)
        return True

    def _tell_aborted(self) -> None:
        enlisted, self._enlisted = self._enlisted, []
        _call_all(participant.abort for participant in reversed(enlisted))

    def enlist(self, participant: Participant) -> None:
        """Has something else commit with the transaction, or not at all: a two-phase commit.

        At the end of the block, when everything is published and nothing but a participant can stop the transaction,
        ``prepare()`` of each is called, in the order in which they enlisted. An exception refuses: it aborts the transaction,
        and goes on to the caller; after :class:`Conflict` :func:`run` calls its function again. Then
        ``commit()`` of each is called; an exception of it goes on when all were called, and the transaction stays
        committed. If the transaction is aborted, ``abort()`` is called instead, in the opposite order, also of one that
        has refused.

        What they do is no part of the transaction. ``prepare()`` does not wait for another transaction: other commits of the
        same user wait meanwhile. Only the thread that entered the block can enlist them.
        """
        outermost = self
        while outermost._outer is not None:
            outermost = outermost._outer
        if outermost._thread != threading.get_ident() or _here.block is None:
            raise RuntimeError("the thread is not in this transaction")
        outermost._enlisted.append(participant)

    def _hide(self) -> None:
        if self._shown >= 0:
            os.close(self._shown)
            self._shown = -1

    def _why(self, lib: _library.Library) -> tuple[int, TransactionError]:
        reason, why = lib.last_abort()
        if reason == ASKED and self._timer is not None and self._timer.over.value:
            return 0, TimedOut(f"the {self._timeout} s of the transaction were over", errno=why.errno)
        return reason, why

    def abort(self, why: str = "the program aborted the transaction") -> NoReturn:
        """Leaves the block with :class:`Aborted`; nothing of it has happened."""
        raise Aborted(why)

    def taking_part(self, function: F) -> F:
        """Makes a function that other threads can call as part of this transaction.

        ::

            with txos.transaction() as t, ThreadPoolExecutor() as pool:
                list(pool.map(t.taking_part(convert), files))

        Such a call sees and makes the transaction's changes. The block's end waits for calls that are not over. If
        one raises an exception, the transaction is aborted for all. Threads make their system calls for files one
        at a time. Only the thread that entered the block can ask for this, and the calls must begin before its end:
        later ones raise :class:`Failed`.
        """
        outermost = self
        while outermost._outer is not None:
            outermost = outermost._outer
        return outermost._taking_part(function)

    def _taking_part(self, function: F) -> F:
        if self._thread != threading.get_ident() or _here.block is None:
            raise RuntimeError("the thread is not in this transaction")
        lib = library()
        if self._shown < 0:
            self._shown = lib.share()
            if self._shown < 0:
                reason, why = lib.last_abort()
                raise why if ctypes.get_errno() == errno.ECANCELED else Failed(lib.words())
        shown = self._shown

        @functools.wraps(function)
        def call(*args, **kwargs):
            if _here.block is self:
                return function(*args, **kwargs)
            if lib.join(shown) != 0:
                raise Failed(lib.words(), errno=ctypes.get_errno())
            _here.block = self
            good = False
            try:
                result = function(*args, **kwargs)
                good = True
                return result
            finally:
                _here.block = None
                if good:
                    lib.end()
                else:
                    # The block may be at its end already, which waits for this.
                    self._spoiled = True
                    lib.abort(1)

        return call

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """As the function :func:`paused`."""
        return paused()


class _Timer:
    """Calls a transaction off when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.over = ctypes.c_int(0)
        self._timer = threading.Timer(seconds, self._set)
        self._timer.daemon = True
        self._timer.start()

    def _set(self) -> None:
        self.over.value = 1

    def cancel(self) -> None:
        self._timer.cancel()


def again(why: str = "what the transaction needs is not there yet") -> NoReturn:
    """Leaves the transaction with :class:`Conflict`: :func:`run` and :func:`atomic` call their function again.

    With ``after`` they do when what it comes after has ended. It counts as a retry.
    """
    raise Conflict(why)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Leaves the transaction for a while: what the block does is not part of it, and stays.

    It does not see the transaction's changes either, and it may begin a transaction of its own.
    """
    block = _here.block
    if block is None:
        raise RuntimeError("not in a transaction")
    lib = library()
    number = lib.pause()
    if number < 0:
        raise Failed(lib.words(), errno=ctypes.get_errno())
    _here.block = None
    try:
        yield
    finally:
        # (In a child it is the parent's.)
        if block._process == os.getpid():
            if lib.resume(number) != 0:
                raise Failed(f"the transaction can't go on: {lib.words()}")
            _here.block = block


def run(
    function: Callable[[], T],
    *,
    retry: int | None = 10,
    durable: bool = True,
    strict: bool = False,
    nonblock: bool = False,
    timeout: float | None = None,
    sequence: int | None = None,
    reset_sequence: bool = False,
    name: str | None = None,
    after: str | Iterable[str] = (),
    keep_credentials: bool = False,
) -> T:
    """Calls a function as a transaction, and again after a conflict, up to ``retry`` times more.

    ``retry=None``: until there is no conflict. What the function did to variables is not put back
    between two calls. Within a transaction it is part of that, and not retried.
    The other settings are those of :class:`transaction`; ``timeout`` is that of each call.
    """
    def block() -> transaction:
        return transaction(
            durable=durable,
            strict=strict,
            nonblock=nonblock,
            timeout=timeout,
            sequence=sequence,
            reset_sequence=reset_sequence,
            name=name,
            after=after,
            keep_credentials=keep_credentials,
        )

    if _here.block is not None or library().in_transaction():
        with block():
            return function()
    if not isinstance(after, str):
        after = tuple(after)
    for attempt in itertools.count():
        tried = block()
        tried._attempt = attempt
        if tried._is_known():
            tried._flags |= _library.RETRY
        again = False
        try:
            with tried:
                return function()
        except Conflict:
            if retry is not None and attempt >= retry:
                raise
            again = True
        finally:
            if not again:
                tried._give_up()
        limit = min(BACKOFF_MS * 2 ** min(attempt, 16), BACKOFF_MAX_MS)
        try:
            time.sleep(random.uniform(0, limit) / 1000)
        except BaseException:
            tried._give_up()
            raise
    raise AssertionError("not reached")


@overload
def atomic(function: F) -> F: ...
@overload
def atomic(
    *,
    retry: int | None = 10,
    durable: bool = True,
    strict: bool = False,
    nonblock: bool = False,
    timeout: float | None = None,
    sequence: int | None = None,
    reset_sequence: bool = False,
    name: str | None = None,
    after: str | Iterable[str] = (),
    keep_credentials: bool = False,
) -> Callable[[F], F]: ...
def atomic(
    function=None,
    *,
    retry: int | None = 10,
    durable: bool = True,
    strict: bool = False,
    nonblock: bool = False,
    timeout: float | None = None,
    sequence: int | None = None,
    reset_sequence: bool = False,
    name: str | None = None,
    after: str | Iterable[str] = (),
    keep_credentials: bool = False,
):
    """Makes every call of a function a transaction, as :func:`run` does.

    ::

        @txos.atomic(retry=10)
        def transfer(amount): ...
    """

    if not isinstance(after, str):
        after = tuple(after)

    def decorate(function):
        # Their bodies run when somebody iterates or awaits: after the transaction.
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError("a coroutine or generator function can't be a transaction")

        @functools.wraps(function)
        def call(*args, **kwargs):
            return run(
                lambda: function(*args, **kwargs),
                retry=retry,
                durable=durable,
                strict=strict,
                nonblock=nonblock,
                timeout=timeout,
                sequence=sequence,
                reset_sequence=reset_sequence,
                name=name,
                after=after,
                keep_credentials=keep_credentials,
            )

        return call

    return decorate if function is None else decorate(function)


def leave_out(path: str | os.PathLike[str], suffix: str = "") -> int:
    """Leaves a file out of the transactions of this process as long as it is only read; gives how many files that were.

    Of a directory, all files below it whose names end with ``suffix``. Such a file causes no conflict, is not waited
    for, and an abort does not close it. It is for what a program opens late and keeps, such as modules and data of a
    plug-in. A file is known by its identity as it is now: one that takes its place is part of transactions. Raises
    :class:`Failed` in a transaction, or if the path can't be read.
    """
    lib = library()
    names = os.fsencode(os.path.abspath(path)), os.fsencode(suffix)
    if any(b"\0" in name for name in names):
        raise ValueError("embedded null byte")
    count = lib.exclude(*names)
    if count < 0:
        number = ctypes.get_errno()
        why = "the thread is in one" if number == errno.EBUSY else os.strerror(number)
        raise Failed(f"can't be left out of transactions: {why}", path=os.fspath(path), errno=number)
    return count


def in_transaction() -> bool:
    """Whether the calling thread is in a transaction, and has not paused it."""
    return bool(library().in_transaction())


@dataclass(frozen=True)
class Stats:
    """Counters of the calling thread since it started."""

    #: Transactions, those included that were begun again.
    begun: int
    committed: int
    aborted: int
    #: Always 0 here: retries are transactions of their own.
    restarted: int
    #: System calls made within transactions.
    calls: int
    #: Of those, that came by Syscall User Dispatch.
    trapped: int
    #: Of those, that passed through with a warning.
    unsupported: int
    #: Commits of one call, or without changes.
    short_cuts: int


def stats() -> Stats:
    """What the calling thread's transactions came to so far."""
    counters = _library.CStats(size=ctypes.sizeof(_library.CStats))
    library().stats(ctypes.byref(counters))
    names = (name for name, _ in _library.CStats._fields_[2:])
    return Stats(**{name: getattr(counters, name) for name in names})


def library_version() -> str:
    """The version of the library that was found, for example ``"0.1.0"``."""
    return os.fsdecode(library().version())
