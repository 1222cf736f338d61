"""What the interpreter and its library open, or make, when they are first used, and keep."""

from tests.place import InPlace

# Each in a process of its own would take too long; none of these is a part of another.
USES = '''
import os, sys, txos
from pathlib import Path

dir, how = Path(sys.argv[1]), sys.argv[2]
file = dir / "file"


def certificates():
    import ssl

    assert ssl.create_default_context() and ssl.RAND_bytes(4)


def dbm():
    import sqlite3

    connection = sqlite3.connect(":memory:")
    assert connection.execute("select 7").fetchone() == (7,)
    connection.close()


def imports():
    import colorsys, xml.dom.minidom

    assert xml.dom.minidom.parseString("<a/>") and colorsys.rgb_to_hsv(0, 0, 0)


def locales():
    import gettext, locale

    locale.setlocale(locale.LC_ALL, "")
    assert gettext.gettext("text") == "text"


def logs():
    import logging

    logging.getLogger("first").addHandler(logging.NullHandler())
    logging.getLogger("first").error("use")


def loop():
    import asyncio

    async def main():
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: 7)

    assert asyncio.run(main()) == 7


def network():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


def numbers():
    import random, secrets, uuid

    assert secrets.token_bytes(4) and random.SystemRandom().random() < 1 and uuid.uuid4()


def pool():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(len, ["a", "bc"])) == [1, 2]


def semaphores():
    import multiprocessing

    lock = multiprocessing.get_context("spawn").Lock()
    with lock:
        pass


def run():
    import subprocess

    assert subprocess.run(["echo", "text"], capture_output=True).stdout == b"text\\n"
    assert subprocess.Popen(["true"], stdin=subprocess.DEVNULL).wait() == 0


def selector():
    import selectors

    reader, writer = os.pipe()
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        os.write(writer, b"x")
        assert len(selector.select(10)) == 1
    os.close(reader)
    os.close(writer)


def temporary():
    import tempfile

    with tempfile.TemporaryFile() as made:
        made.write(b"x")
    assert tempfile.gettempdir()


def times():
    import time, zoneinfo

    time.tzset()
    assert zoneinfo.ZoneInfo("Etc/UTC").key or zoneinfo.available_timezones()


def lose():
    file.read_text()
    with txos.paused():
        (dir / "new").write_text("text")
        (dir / "new").rename(file)
    try:
        file.read_text()
    except OSError:
        return
    raise AssertionError("it has not lost")


file.write_text("text")
uses = [certificates, dbm, imports, locales, logs, loop, network, numbers, pool, semaphores, run, selector, temporary, times]
for use in uses:
    try:
        with txos.transaction(durable=False) as transaction:
            if how == "lost":
                lose()
                try:
                    use()
                except Exception:
                    pass
            else:
                use()
            transaction.abort()
    except (txos.Conflict if how == "lost" else txos.Aborted):
        pass
    use()
print("used", len(uses))
'''


class FirstUses(InPlace):
    def first_uses(self, how):
        process = self.python(USES, self.dir, how)
        self.assertEqual(self.finish(process), "used 14\n")

    def test_first_uses_in_an_aborted_transaction_are_not_for_good(self):
        self.first_uses("aborted")

    def test_first_uses_in_a_lost_transaction_are_not_for_good(self):
        self.first_uses("lost")
