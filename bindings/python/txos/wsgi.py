"""Every request of a WSGI application is a transaction.

::

    import txos.wsgi

    application = txos.wsgi.Transactions(application)

The request is read before the transaction begins, and the answer is sent after the commit. So a client never
gets an answer to something that has not happened, and a request that loses a conflict is answered again from
its beginning without the client noticing.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterable
from typing import Any

from ._errors import Conflict, TransactionError
from ._transaction import run

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
#: Makes the answer to a request whose transaction did not happen.
Refusal = Callable[[Environ, TransactionError], "tuple[str, list[tuple[str, str]], bytes]"]

#: How much of a request's body is read at a time, in bytes.
PIECE = 65536


class Transactions:
    """Wraps a WSGI application; each request is a transaction.

    An answer with a status below 500 commits. One of 500 or above aborts, and so does an exception, which goes
    on to the server. After a conflict the application is called again, up to ``retry`` times; from then on the
    answer is 503. ``environ["txos.attempt"]`` counts the calls from 0.

    ``max_body``: how many bytes of body a request may have; more is answered with 413, unread.
    ``durable``: an answer is sent when the request's changes survive a power cut.
    ``retry``: how often a request is answered again after a conflict; ``None``: without end.
    ``timeout``: seconds after which a request's transaction is aborted, at its next call for a file.
    ``refusal``: called with the environ and the :class:`TransactionError` if the transaction did not happen;
    gives status, headers and body of the answer. Without it the answer is a line of text: 503 after a
    conflict, 507 if there was no space, else 500.
    """

    def __init__(
        self,
        application: Application,
        *,
        max_body: int = 1 << 20,
        durable: bool = True,
        retry: int | None = 20,
        timeout: float | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self._application = application
        self._max_body = max_body
        self._durable = durable
        self._retry = retry
        self._timeout = timeout
        self._refusal = refusal or refuse

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            body = read_body(environ, self._max_body)
        except BadBody as bad:
            return _send(start_response, *_text(bad.status, str(bad)))
        attempts = iter(range(1 << 62))

        def attempt() -> _Answer:
            # The application may have changed the dictionary, and has read the body.
            own = {**environ, "wsgi.input": io.BytesIO(body), "txos.attempt": next(attempts)}
            # A file that the server would send by itself, after the end of the transaction.
            own.pop("wsgi.file_wrapper", None)
            answer = _Answer()
            answer.take(self._application(own, answer.start))
            if answer.status[:1] >= "5":
                raise _Refused(answer)
            return answer

        try:
            answer = run(attempt, retry=self._retry, durable=self._durable, timeout=self._timeout)
        except _Refused as refused:
            answer = refused.answer
        except TransactionError as error:
            return _send(start_response, *self._refusal(environ, error))
        return _send(start_response, answer.status, answer.headers, b"".join(answer.parts))


def refuse(environ: Environ, error: TransactionError) -> tuple[str, list[tuple[str, str]], bytes]:
    """The answer to a request whose transaction did not happen, in a line of text."""
    if isinstance(error, Conflict):
        status, headers, body = _text(
            "503 Service Unavailable", "others were changing the same; nothing was changed, try again"
        )
        return status, [*headers, ("Retry-After", "1")], body
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _text("507 Insufficient Storage", "there is no space; nothing was changed")
    return _text("500 Internal Server Error", "the request failed; nothing was changed")


class BadBody(Exception):
    """A body that is too large, or not as long as it says."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


def read_body(environ: Environ, max_body: int) -> bytes:
    """The whole body of a request; raises :class:`BadBody`."""
    stream = environ["wsgi.input"]
    told = environ.get("CONTENT_LENGTH") or ""
    if told:
        if not (told.isascii() and told.isdigit()):
            raise BadBody("400 Bad Request", "Content-Length is not a number")
        digits = told.lstrip("0") or "0"
        # Thousands of digits are no number to Python.
        if len(digits) > len(str(max_body)) or int(digits) > max_body:
            raise BadBody("413 Content Too Large", f"a body has at most {max_body} bytes here")
        wanted = int(digits)
        # Without a length it ends where the server says, or there is none.
    elif environ.get("wsgi.input_terminated"):
        wanted = max_body + 1
    elif environ.get("HTTP_TRANSFER_ENCODING"):
        raise BadBody("411 Length Required", "this server takes bodies with a Content-Length only")
    else:
        return b""
    parts, left = [], wanted
    while left > 0:
        try:
            part = stream.read(min(left, PIECE))
        except TimeoutError:
            raise BadBody("408 Request Timeout", "the body did not come in time") from None
        if not part:
            break
        parts.append(part)
        left -= len(part)
    if told and left > 0:
        raise BadBody("400 Bad Request", "the body is shorter than Content-Length says")
    if not told and left <= 0:
        raise BadBody("413 Content Too Large", f"a body has at most {max_body} bytes here")
    return b"".join(parts)


class _Answer:
    """What an application has answered, kept until the commit."""

    def __init__(self) -> None:
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.parts: list[bytes] = []

    def start(self, status, headers, exc_info=None):
        if self.status and exc_info is None:
            raise AssertionError("start_response was called twice without exc_info")
        # Nothing has been sent: an error takes the place of all that was begun.
        self.parts.clear()
        self.status, self.headers = status, list(headers)
        return self.parts.append

    def take(self, parts: Iterable[bytes]) -> None:
        """Goes through the application's parts; a generator does its work here."""
        try:
            self.parts.extend(parts)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()
        if not self.status:
            raise AssertionError("the application did not call start_response")


class _Refused(Exception):
    """The application itself answered with an error of the server."""

    def __init__(self, answer: _Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def _text(status: str, why: str) -> tuple[str, list[tuple[str, str]], bytes]:
    body = f"{why}\n".encode()
    kind = ("Content-Type", "text/plain; charset=utf-8")
    return status, [kind, ("Content-Length", str(len(body)))], body


def _send(start_response, status, headers, body) -> list[bytes]:
    start_response(status, headers)
    return [body]
