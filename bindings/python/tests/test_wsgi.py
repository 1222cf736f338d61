"""Requests as transactions, called as a server would call."""

import errno
import io
import os
import threading
import unittest
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import txos
import txos.wsgi
from tests.place import InPlace


def text(start_response, status, words):
    start_response(status, [("Content-Type", "text/plain")])
    return [words.encode()]


class Requests(InPlace):
    def ask(self, application, *, body=b"", method="POST", check=True, **environ):
        """Status and body of an answer."""
        told = []
        asked = {"REQUEST_METHOD": method, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)), "QUERY_STRING": ""}
        asked.update(environ)
        setup_testing_defaults(asked)

        def start_response(status, headers, exc_info=None):
            told.append((status, headers))
            return lambda _: None

        answer = (validator(application) if check else application)(asked, start_response)
        parts = list(answer)
        if hasattr(answer, "close"):
            answer.close()
        self.assertEqual(len(told), 1)
        self.headers = dict(told[0][1])
        return told[0][0], b"".join(parts)

    def test_a_request_is_published_with_its_answer(self):
        def application(environ, start_response):
            self.assertTrue(txos.in_transaction())
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            self.file.write_bytes(body)
            with txos.paused():
                self.assertFalse(self.file.exists())
            return text(start_response, "201 Created", "done")

        status, body = self.ask(txos.wsgi.Transactions(application), body=b"new")
        self.assertEqual((status, body), ("201 Created", b"done"))
        self.assertEqual(self.file.read_bytes(), b"new")

    def test_generators_are_part_of_it(self):
        def application(environ, start_response):
            start_response("200 OK", [("Content-Type", "text/plain")])
            yield b"one "
            self.file.write_text("new")
            yield str(txos.in_transaction()).encode()

        status, body = self.ask(txos.wsgi.Transactions(application))
        self.assertEqual((status, body), ("200 OK", b"one True"))
        self.assertEqual(self.file.read_text(), "new")

    def test_errors_of_the_server_abort(self):
        def application(environ, start_response):
            self.file.write_text("new")
            return text(start_response, "500 Internal Server Error", "sorry")

        status, body = self.ask(txos.wsgi.Transactions(application))
        self.assertEqual((status, body), ("500 Internal Server Error", b"sorry"))
        self.assertFalse(self.file.exists())

    def test_errors_of_the_client_do_not(self):
        def application(environ, start_response):
            self.file.write_text("a visit")
            return text(start_response, "404 Not Found", "no")

        self.assertEqual(self.ask(txos.wsgi.Transactions(application))[0], "404 Not Found")
        self.assertEqual(self.file.read_text(), "a visit")

    def test_exceptions_abort_and_go_to_the_server(self):
        def application(environ, start_response):
            start_response("200 OK", [("Content-Type", "text/plain")])
            self.file.write_text("new")
            raise ValueError("no good")

        with self.assertRaisesRegex(ValueError, "no good"):
            txos.wsgi.Transactions(application)({"wsgi.input": io.BytesIO()}, None)
        self.assertFalse(self.file.exists())

    def test_a_conflict_is_answered_again(self):
        self.file.write_text("0")
        seen = []

        def application(environ, start_response):
            seen.append((environ["txos.attempt"], environ["wsgi.input"].read(3), environ.get("mark")))
            environ["mark"] = "left over"
            value = self.file.read_text()
            if len(seen) == 1:
                self.outsider("echo 1 > file")
            (self.dir / "copy").write_text(value)
            return text(start_response, "200 OK", value)

        status, body = self.ask(txos.wsgi.Transactions(application), body=b"abc")
        self.assertEqual((status, body), ("200 OK", b"1\n"))
        self.assertEqual(seen, [(0, b"abc", None), (1, b"abc", None)])

    def test_an_answer_made_of_a_lost_transaction_is_not_sent(self):
        """An application may make a 404 of the ECANCELED that calls give after a conflict."""
        self.file.write_text("0")
        other = self.dir / "other"
        attempts = []

        def application(environ, start_response):
            attempts.append(environ["txos.attempt"])
            self.file.read_text()
            if len(attempts) == 1:
                self.outsider("echo 1 > file")
            try:
                self.file.read_text()
                other.write_text("new")
                return text(start_response, "200 OK", "fine")
            except OSError:
                return text(start_response, "404 Not Found" if attempts == [0] else "500 x", "no")

        self.assertEqual(self.ask(txos.wsgi.Transactions(application)), ("200 OK", b"fine"))
        self.assertEqual(attempts, [0, 1])

    def test_who_always_loses_is_refused(self):
        self.file.write_text("0")

        def application(environ, start_response):
            self.file.read_text()
            self.outsider("echo 1 >> file")
            (self.dir / "copy").write_text("new")
            return text(start_response, "200 OK", "fine")

        status, body = self.ask(txos.wsgi.Transactions(application, retry=2))
        self.assertEqual(status, "503 Service Unavailable")
        self.assertEqual(self.headers["Retry-After"], "1")
        self.assertEqual(self.file.read_text(), "01\n1\n1\n")
        self.assertFalse((self.dir / "copy").exists())
        own = txos.wsgi.Transactions(
            application,
            retry=0,
            refusal=lambda environ, error: (
                "503 Busy",
                [("Content-Type", "text/plain")],
                str(isinstance(error, txos.Conflict)).encode(),
            ),
        )
        self.assertEqual(self.ask(own), ("503 Busy", b"True"))

    def test_refusals(self):
        for error, status in (
            (txos.Conflict("met"), "503"),
            (txos.Failed("no room", errno=errno.ENOSPC), "507"),
            (txos.Failed("no", errno=errno.EIO), "500"),
            (txos.TimedOut("over"), "500"),
        ):
            told, headers, body = txos.wsgi.refuse({}, error)
            self.assertEqual(told[:3], status)
            self.assertEqual(dict(headers)["Content-Length"], str(len(body)))

    def test_bodies(self):
        def application(environ, start_response):
            words = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or -1))
            return text(start_response, "200 OK", words.decode())

        wrapped = txos.wsgi.Transactions(application, max_body=10)
        self.assertEqual(self.ask(wrapped, body=b"0123456789"), ("200 OK", b"0123456789"))
        unread = io.BytesIO(b"0123456789a")
        status, _ = self.ask(wrapped, CONTENT_LENGTH="11", **{"wsgi.input": unread})
        self.assertEqual((status[:3], unread.tell()), ("413", 0))
        self.assertEqual(self.ask(wrapped, CONTENT_LENGTH="9" * 5000, check=False)[0][:3], "413")
        self.assertEqual(self.ask(wrapped, body=b"01", CONTENT_LENGTH="0002")[1], b"01")
        for length in ("-1", "1x", "٣"):
            self.assertEqual(self.ask(wrapped, CONTENT_LENGTH=length, check=False)[0][:3], "400")
        self.assertEqual(self.ask(wrapped, body=b"012", CONTENT_LENGTH="4")[0][:3], "400")
        end = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
        self.assertEqual(self.ask(wrapped, body=b"0123456789", **end)[1], b"0123456789")
        self.assertEqual(self.ask(wrapped, body=b"0123456789a", **end)[0][:3], "413")
        chunked = {"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "chunked"}
        self.assertEqual(self.ask(wrapped, body=b"1", **chunked)[0][:3], "411")
        self.assertEqual(self.ask(wrapped, body=b"1", CONTENT_LENGTH=""), ("200 OK", b""))

        class Late(io.RawIOBase):
            def read(self, size=-1):
                raise TimeoutError

        self.assertEqual(
            self.ask(wrapped, CONTENT_LENGTH="4", check=False, **{"wsgi.input": Late()})[0][:3], "408"
        )

    def test_write_and_errors_after_the_start(self):
        def application(environ, start_response):
            write = start_response("200 OK", [("Content-Type", "text/plain")])
            write(b"old ")
            try:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            except OSError:
                import sys

                start_response("404 Not Found", [("Content-Type", "text/plain")], sys.exc_info())
            return [b"new"]

        self.assertEqual(
            self.ask(txos.wsgi.Transactions(application), check=False), ("404 Not Found", b"new")
        )

    def test_a_file_is_read_within(self):
        self.file.write_text("content")

        def application(environ, start_response):
            self.assertNotIn("wsgi.file_wrapper", environ)
            start_response("200 OK", [("Content-Type", "text/plain")])
            return open(self.file, "rb")

        self.assertEqual(self.ask(txos.wsgi.Transactions(application))[1], b"content")

    def test_requests_of_threads_lose_nothing(self):
        self.file.write_text("0")

        def application(environ, start_response):
            self.file.write_text(str(int(self.file.read_text()) + 1))
            return text(start_response, "200 OK", "fine")

        wrapped = txos.wsgi.Transactions(application, durable=False, retry=None)
        statuses = []

        def ask():
            for _ in range(20):
                wrapped({"wsgi.input": io.BytesIO()}, lambda status, _: statuses.append(status))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(statuses), set(statuses)), (80, {"200 OK"}))
        self.assertEqual(self.file.read_text(), "80")


if __name__ == "__main__":
    unittest.main()
