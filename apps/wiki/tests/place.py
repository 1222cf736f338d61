"""A directory for each test, and a server in it."""

import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from urllib.parse import urlencode

from wiki.load import Load

APP = Path(__file__).resolve().parent.parent


class InPlace(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="txos-test-", dir=os.environ.get("TXOS_TEST_DIR"))
        self.addCleanup(holder.cleanup)
        self.dir = Path(holder.name) / "wiki"

    def start(self, *options, directory=None):
        """Starts a server, which is stopped at the end of the test; gives a client of it."""
        directory = directory or self.dir
        done = self.command("start", directory, "--port", "0", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(self.stop, directory)
        return Client(done.stdout.strip())

    def stop(self, directory=None):
        done = self.command("stop", directory or self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)

    def command(self, name, *arguments):
        return subprocess.run(
            [APP / name, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=100
        )

    def master(self, directory=None):
        return int(((directory or self.dir) / "server.lock").read_text().split()[0])

    def log(self):
        return (self.dir / "server.log").read_text()

    def expect_sound(self, *options):
        """The storage agrees with itself, as a program of its own finds it."""
        done = subprocess.run(
            [sys.executable, "-m", "wiki", "check", str(self.dir), *map(str, options)],
            cwd=APP,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Client(Load):
    """Requests one by one; what is loaded with them, too."""

    def __init__(self, url, **settings):
        given = {"connections": 4, "writes": 50, "pages": 4, "seed": 1}
        super().__init__(url, **{**given, **settings})
        self.url = url

    def get(self, path):
        status, headers, body = self.ask("GET", path)
        return status, headers, body.decode()

    def save(self, name, base, text, author="Ada"):
        form = urlencode({"base": base, "text": text, "author": author, "comment": ""}).encode()
        status, headers, body = self.ask("POST", f"/edit/{name}", form)
        return status, headers, body.decode()

    def raw(self, request, *, end=True):
        """What is answered to these bytes."""
        with socket.create_connection(self.address, timeout=60) as connection:
            try:
                connection.sendall(request)
                if end:
                    connection.shutdown(socket.SHUT_WR)
            except ConnectionError:
                pass  # answered before all was sent
            parts = []
            try:
                while part := connection.recv(65536):
                    parts.append(part)
            except ConnectionError:
                pass
        return b"".join(parts).decode("latin-1")
