"""Clients of the standard library in a block: requests go out when an answer is waited for, messages with the commit."""

import http.client
import http.server
import socket
import subprocess
import sys
import threading
import unittest
import urllib.request

import txos
from tests.place import InPlace


class Handler(http.server.BaseHTTPRequestHandler):
    """Says how much it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"hello")

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.answer(str(len(self.rfile.read(length))).encode())

    def answer(self, words):
        self.send_response(200)
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)

    def log_message(self, *_):
        pass


class Sockets(InPlace):
    def setUp(self):
        super().setUp()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.port = server.server_address[1]
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(self, connection, size):
        connection.request("POST", "/", body=b"x" * size)
        return connection.getresponse().read()

    def test_requests(self):
        """Each as outside of a block, and the file is changed."""
        before = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.addCleanup(before.close)
        self.assertEqual(self.ask(before, 1), b"1")
        for timeout in (None, 60):
            with txos.transaction():
                self.file.write_text("changed")
                url = f"http://127.0.0.1:{self.port}/"
                with urllib.request.urlopen(url, timeout=timeout) as answer:
                    self.assertEqual(answer.read(), b"hello")
                new = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
                for connection in (new, before):
                    self.assertEqual(self.ask(connection, 1), b"1")
                    self.assertEqual(self.ask(connection, 1000000), b"1000000")
                new.close()
            self.assertEqual(self.file.read_text(), "changed")
            self.file.unlink()
        self.assertEqual(self.ask(before, 2), b"2")

    def test_a_function_that_is_called_again_asks_again(self):
        """The conflict says what had been sent."""
        self.file.write_text("old")
        asked = []

        def change():
            self.file.read_text()
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=60) as answer:
                asked.append(answer.read())
            if len(asked) == 1:
                self.outsider('echo new >"$1"', self.file)
            self.file.write_text("changed")

        with self.assertRaisesRegex(txos.Conflict, "sent before that: [0-9]+ bytes for a socket"):
            txos.run(change, retry=0)
        self.assertEqual((asked, self.file.read_text()), ([b"hello"], "new\n"))
        asked.clear()
        txos.run(change)
        self.assertEqual((asked, self.file.read_text()), ([b"hello"] * 2, "changed"))

    def test_names(self):
        """The addresses of a name are those that it has outside."""
        outside = socket.getaddrinfo("localhost", self.port, type=socket.SOCK_STREAM)
        with txos.transaction():
            self.assertEqual(socket.getaddrinfo("localhost", self.port, type=socket.SOCK_STREAM), outside)

    def test_a_message_comes_with_the_commit(self):
        """And not at all from a block that fails."""
        receiver = subprocess.Popen(
            [sys.executable, "-c", "import socket, sys\n"
             "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
             "s.bind(('127.0.0.1', 0))\n"
             "print(s.getsockname()[1], flush=True)\n"
             "for _ in range(2): print(s.recv(100).decode(), flush=True)"],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(receiver.stdout.close)
        port = int(receiver.stdout.readline())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", port))
            with self.assertRaises(KeyError), txos.transaction():
                sender.send(b"never")
                raise KeyError
            with txos.transaction():
                sender.send(b"second")
                with txos.paused():
                    sender.send(b"first")
        self.assertEqual(receiver.stdout.read(), "first\nsecond\n")
        self.assertEqual(receiver.wait(timeout=60), 0)


if __name__ == "__main__":
    unittest.main()
