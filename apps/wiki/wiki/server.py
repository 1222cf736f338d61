"""Several worker processes that accept on one socket. A worker that dies is replaced.

Each worker answers one request at a time. It ends when it is told to (SIGTERM), after the request that it is
at, and when the process that started it is gone.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

#: How long a client may leave the server waiting for bytes, in seconds.
CLIENT_WAIT_S = 10
#: The longest first line of a request.
LINE_BYTES_MAX = 65536
#: So many workers may end by themselves, one after the other, before the server gives up.
FAILURES_MAX = 10


class Running(Exception):
    """A server works in this directory already."""


class Server:
    """The process that starts workers and waits for their ends.

    ``lock`` is a file that is locked as long as any process of the server lives; it has the number of this
    process and the address.
    """

    def __init__(self, lock: Path, host: str, port: int) -> None:
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Running(f"a server works here already; see {lock}") from None
        self.socket = socket.create_server((host, port), backlog=128)
        self.socket.setblocking(False)
        self.host, self.port = self.socket.getsockname()[:2]
        self.url = f"http://{self.host}:{self.port}/"
        self._workers: set[int] = set()
        self._stopping = False
        self._failures = 0

    def announce(self) -> None:
        """Writes down which process this is."""
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()} {self.url}\n".encode(), 0)

    def serve(self, make: Callable[[], Callable], workers: int) -> bool:
        """Serves until SIGTERM or SIGINT; gives ``False`` if its workers can't work. ``make`` gives each worker
        its application."""
        # Its end closes `parent`, which its workers notice.
        gone, parent = os.pipe()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        while not self._stopping:
            for _ in range(workers - len(self._workers)):
                self._start(make, gone, parent)
            self._reap()
        while self._workers:
            self._stop()
            self._reap()
        os.ftruncate(self._lock, 0)
        return self._failures < FAILURES_MAX

    def _start(self, make, gone: int, parent: int) -> None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        if self._stopping:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            return
        worker = os.fork()
        if worker == 0:
            status = 1
            try:
                os.close(parent)
                Worker(self, gone, make()).serve(blocked)
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        self._workers.add(worker)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _reap(self) -> None:
        if not self._workers:
            return
        worker, status = os.wait()
        self._workers.discard(worker)
        # One that was killed may have answered many requests; one that failed will fail again.
        self._failures = self._failures + 1 if os.WIFEXITED(status) and status else 0
        if self._failures == FAILURES_MAX:
            self._stop()

    def _stop(self, *_) -> None:
        self._stopping = True
        for worker in self._workers:
            os.kill(worker, signal.SIGTERM)


class Worker(WSGIServer):
    """One process that answers requests. It is given the socket: it neither binds nor closes it."""

    def __init__(self, server: Server, gone: int, application: Callable) -> None:
        super().__init__((server.host, server.port), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = server.socket
        self.server_name, self.server_port = server.host, server.port
        self.setup_environ()
        self.set_app(application)
        self._gone = gone
        self._stopping = False
        self._idle = False

    def serve(self, signals) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        while not self._stopping:
            try:
                self._idle = True
                ready, _, _ = select.select([self.socket, self._gone], [], [])
                self._idle = False
            except InterruptedError:
                return
            if self._gone in ready:
                return
            # Another worker may have been faster: then there is nothing to accept.
            self._handle_request_noblock()

    def get_request(self):
        connection, address = super().get_request()
        connection.settimeout(CLIENT_WAIT_S)
        return connection, address

    def handle_error(self, request, client_address) -> None:
        """A client that is gone, or too slow, is no error of the server's."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    def _stop(self, *_) -> None:
        self._stopping = True
        if self._idle:
            # select() would go on after the signal.
            raise InterruptedError


class Handler(WSGIRequestHandler):
    """One connection, one request. What is written is sent when it is whole."""

    wbufsize = -1

    def handle(self) -> None:
        self.raw_requestline = self.rfile.readline(LINE_BYTES_MAX + 1)
        if len(self.raw_requestline) > LINE_BYTES_MAX:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return
        if not self.raw_requestline or not self.parse_request():
            return
        handler = ServerHandler(
            self.rfile, self.wfile, sys.stderr, self.get_environ(), multithread=False, multiprocess=True
        )
        handler.request_handler = self
        handler.run(self.server.get_app())

    def log_message(self, format, *args) -> None:
        """Requests are not logged."""
