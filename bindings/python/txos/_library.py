"""libtxos.so: where it is, and its functions.

Looked for in this order; the first that is there is taken:

1. one that the process has loaded already: two in one process would not know of each other
2. the file that ``TXOS_LIB`` names
3. beside this file: in an installed wheel
4. in the target directory of the checkout that this file is in, the newest
5. where the dynamic linker looks
6. where ``txos config --libs`` says
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from ._errors import TransactionError, Unsupported, of_abort

NAME = "libtxos.so"

# Flags of sys_xbegin().
DURABLE = 0x02
STRICT = 0x04
NONBLOCK = 0x10
ORDERED = 0x20
ORDER_RESET = 0x40
AFTER = 0x400
KEEP_CREDENTIALS = 0x800
#: A transaction that loses keeps its name, and what it comes after, for the next attempt.
RETRY = 0x1000
#: The number of a file that an abort closes stays taken until the program closes it.
MANAGED = 0x100


class CAbort(ctypes.Structure):
    """``struct txos_abort``"""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("pid", ctypes.c_int32),
        ("what", ctypes.c_char * 256),
        ("path", ctypes.c_char * 4096),
    ]


class CStats(ctypes.Structure):
    """``struct txos_stats``"""

    _fields_ = [("size", ctypes.c_uint32), ("version", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64)
        for name in (
            "begun",
            "committed",
            "aborted",
            "restarted",
            "calls",
            "trapped",
            "unsupported",
            "short_cuts",
        )
    ]


class Library:
    """The functions, with their types."""

    def __init__(self, handle: ctypes.CDLL) -> None:
        # CDLL gives the interpreter's lock back meanwhile: sys_xend() may wait for another thread.
        self.begin = _function(handle, "sys_xbegin", ctypes.c_int, ctypes.c_int, ctypes.c_uint64)
        self.end = _function(handle, "sys_xend", ctypes.c_int)
        self.abort = _function(handle, "sys_xabort", None, ctypes.c_int)
        self.pause = _function(handle, "sys_xpause", ctypes.c_long)
        self.resume = _function(handle, "sys_xresume", ctypes.c_int, ctypes.c_long)
        self.abort_if = _function(
            handle, "txos_abort_if", ctypes.c_int, ctypes.POINTER(ctypes.c_int)
        )
        self.prepare = _function(handle, "txos_prepare", ctypes.c_int)
        self.finish = _function(handle, "txos_finish", ctypes.c_int, ctypes.c_int)
        self.share = _function(handle, "txos_share", ctypes.c_int)
        self.join = _function(handle, "sys_xjoin", ctypes.c_int, ctypes.c_int)
        self.name = _function(handle, "txos_name", ctypes.c_int, ctypes.c_char_p)
        self.exclude = _function(
            handle, "txos_exclude", ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p
        )
        self.in_transaction = _function(handle, "txos_in_transaction", ctypes.c_int)
        self.strerror = _function(handle, "txos_strerror", ctypes.c_char_p)
        self.version = _function(handle, "txos_version", ctypes.c_char_p)
        self.abort_reason = _function(
            handle, "txos_abort_reason", ctypes.c_int, ctypes.POINTER(CAbort)
        )
        self.stats = _function(handle, "txos_stats", ctypes.c_int, ctypes.POINTER(CStats))

    def words(self) -> str:
        """What the last failure of this thread was."""
        return os.fsdecode(self.strerror() or b"no error")

    def last_abort(self) -> tuple[int, TransactionError]:
        """Why the last transaction of this thread was aborted."""
        abort = CAbort(size=ctypes.sizeof(CAbort))
        self.abort_reason(ctypes.byref(abort))
        path = os.fsdecode(abort.path) or None
        what = os.fsdecode(abort.what) or "the transaction was aborted"
        return abort.reason, of_abort(abort.reason, abort.error, abort.pid, what, path)


def _function(handle, name, result, *arguments):
    try:
        function = getattr(handle, name)
    except AttributeError:
        try:
            version_of = handle.txos_version
            version_of.restype = ctypes.c_char_p
            version = os.fsdecode(version_of())
        except AttributeError:
            version = "unknown"
        raise Unsupported(
            f"{handle._name}, version {version}, lacks {name}: it is older than this package; "
            "install both from the same release"
        ) from None
    function.restype = result
    function.argtypes = arguments
    return function


def candidates() -> Iterator[Path | str]:
    """Where the library may be, besides in this process."""
    named = os.environ.get("TXOS_LIB")
    if named:
        # Whoever names one wants that one, or an error.
        yield named
        return
    beside = Path(__file__).resolve().parent
    yield beside / NAME
    yield from in_checkout(beside.parent)
    yield NAME
    yield from as_configured()


def in_checkout(project: Path) -> list[Path]:
    """What has been built in the checkout of ``bindings/python``, the newest first."""
    root = project.parent.parent
    if not (root / "crates" / "txos-runtime").is_dir():
        return []
    targets = [Path(os.environ.get("CARGO_TARGET_DIR") or "target"), Path("target")]
    built = {root / target / profile / NAME for target in targets for profile in ("release", "debug")}
    there = [path for path in built if path.is_file()]
    return sorted(there, key=lambda path: path.stat().st_mtime, reverse=True)


def as_configured() -> Iterator[str]:
    """Where the installed command says that the library is."""
    command = shutil.which("txos")
    if command is None:
        return
    told = subprocess.run(
        [command, "config", "--libs"], capture_output=True, text=True, check=False
    )
    for word in told.stdout.split():
        if word.startswith("-L"):
            yield os.path.join(word[2:], NAME)


def _load() -> Library:
    try:
        return Library(ctypes.CDLL(NAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW, use_errno=True))
    except OSError:
        pass  # not yet loaded
    tried = []
    for path in candidates():
        try:
            return Library(ctypes.CDLL(os.fspath(path), use_errno=True))
        except OSError as error:
            tried.append(f"{path}: {error}")
    raise Unsupported(
        f"{NAME} was not found; TXOS_LIB may name it. Tried: " + "; ".join(map(str, tried))
    )


_loaded: Library | None = None
_loading = threading.Lock()


def library() -> Library:
    """The library, loaded when it is first needed."""
    global _loaded
    if _loaded is None:
        with _loading:
            if _loaded is None:
                _loaded = _load()
    return _loaded
