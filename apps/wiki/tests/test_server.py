"""The server with several workers: many clients, killed workers, bad requests, a full disk."""

import os
import random
import signal
import socket
import subprocess
import threading
import time
import unittest
from pathlib import Path

from tests.place import APP, Client, InPlace
from wiki.application import BODY_BYTES_MAX
from wiki.load import acknowledged, digest
from wiki.files import Files
from wiki.storage import TEXT_BYTES_MAX

LONG = "apps" in os.environ.get("TXOS_TEST_LONG", "").split(",")


def workers(master):
    return [int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()]


def lives(process):
    """Whether a process still runs; what nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends(process):
    """Whether a process ends soon: it has let go of its lock by then, and may be about to end."""
    deadline = time.monotonic() + 10
    while lives(process) and time.monotonic() < deadline:
        time.sleep(0.001)
    return not lives(process)


class Serving(InPlace):
    def test_start_and_stop(self):
        client = self.start()
        self.assertEqual(client.get("/")[0], 200)
        master = self.master()
        children = workers(master)
        self.assertEqual(len(children), 4)
        second = self.command("start", self.dir, "--port", "0")
        self.assertEqual(second.returncode, 1)
        self.assertIn("a server works here already", second.stderr)
        taken = self.command("start", self.dir.parent / "other", "--port", client.address[1])
        self.assertEqual(taken.returncode, 1)
        self.assertIn("Address already in use", taken.stderr)
        self.stop()
        for process in [master, *children]:
            self.assertTrue(ends(process))
        with self.assertRaises(ConnectionRefusedError):
            client.get("/")
        self.stop()
        self.assertEqual(self.log(), "")
        # The same directory again.
        self.assertEqual(self.start().get("/")[0], 200)

    def test_workers_end_with_the_server(self):
        self.start()
        os.kill(self.master(), signal.SIGKILL)
        # Returns when no process of the server is left.
        self.stop()
        self.assertEqual(self.start().get("/")[0], 200)

    def test_a_storm_on_one_page(self):
        """Every edit that was acknowledged is in the history, in order; no client sees but 303 and 409."""
        self.storm()

    def test_a_storm_on_sqlite(self):
        self.storm("--storage", "sqlite")

    def storm(self, *options):
        client = self.start(*options)
        saved, others = [], []

        def write(who):
            base = number = 0
            while number < 15:
                text = f"words of {who} number{number}"
                status, headers, _ = client.save("Page", base, text)
                if status == 303:
                    saved.append((int(headers["etag"].strip('"')), text))
                    number += 1
                elif status != 409:
                    others.append(status)
                    return
                base = int(headers["etag"].strip('"'))

        threads = [threading.Thread(target=write, args=(f"writer{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(others, [])
        self.assertEqual([number for number, _ in sorted(saved)], list(range(1, 121)))
        for number, text in saved:
            self.assertIn(text, client.get(f"/page/Page?revision={number}")[2])
        self.expect_sound(*options)
        self.assertEqual(self.log(), "")

    def test_a_look_is_at_one_moment(self):
        """Pages, index and history agree in every answer while others write."""
        client = self.start()
        client.save("Even", 0, "kiwi0 side")
        stop, wrong = threading.Event(), []

        def look():
            while not stop.is_set():
                # The list of pages and their texts, from one request.
                status, _, body = client.get("/history/Even")
                numbers = [int(part.split('"')[0]) for part in body.split('<li value="')[1:]]
                if status != 200 or numbers != list(range(len(numbers), 0, -1)):
                    wrong.append((status, numbers))

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(1, 41):
            self.assertEqual(client.save("Even", number, f"kiwi{number} side")[0], 303)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.expect_sound()

    def test_workers_are_killed(self):
        """Whatever request a worker is killed in: what was acknowledged is there, nothing is half there."""
        rounds = 100 if LONG else 12
        journal = self.dir.parent / "journal"
        client = self.start("--workers", "3")
        load = Client(client.url, connections=8, writes=80, pages=5, journal=journal)
        self.addCleanup(load.close)
        load.fill()
        result = []
        thread = threading.Thread(target=lambda: result.append(load.run(600)))
        thread.start()
        chance = random.Random(int(os.environ.get("TXOS_TEST_SEED", "1")))
        master, killed = self.master(), 0
        while killed < rounds and thread.is_alive():
            # After some more edits.
            wanted = len(acknowledged(journal)) + 1 + chance.randrange(5)
            while len(acknowledged(journal)) < wanted and thread.is_alive():
                time.sleep(chance.random() / 500)
            children = workers(master)
            if children:
                os.kill(chance.choice(children), signal.SIGKILL)
                killed += 1
        load.stop.set()
        thread.join()
        self.assertEqual(killed, rounds)
        statuses = result[0].statuses
        self.assertLessEqual(set(statuses), {0, 200, 303, 409})
        # It is the kills that cut connections, and they have cut some.
        self.assertTrue(0 < statuses[0] <= 3 * rounds, statuses)
        # The next one works, without anybody's help.
        self.assertEqual(client.get("/")[0], 200)
        self.expect_sound("--acknowledged", journal)
        self.stop()
        self.expect_sound("--acknowledged", journal)

    def test_bad_requests(self):
        client = self.start("--workers", "2")
        client.save("Page", 0, "text")
        answers = {
            b"": "",
            b"\r\n\r\n": "",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": "400",
            b"nonsense\r\n\r\n": "400",
            b"GET / HTTP/9.9.9\r\n\r\n": "400",
            b"GET /" + b"x" * 70_000 + b" HTTP/1.0\r\n\r\n": "414",
            b"GET / HTTP/1.0\r\nX: " + b"x" * 70_000 + b"\r\n\r\n": "431",
            b"GET / HTTP/1.0\r\n" + b"X: y\r\n" * 200 + b"\r\n": "431",
            b"GET /page/%00 HTTP/1.0\r\n\r\n": "400",
            b"GET /page/%ff HTTP/1.0\r\n\r\n": "400",
            b"GET /page/..%2f..%2f..%2fetc%2fpasswd HTTP/1.0\r\n\r\n": "400",
            b"BREW / HTTP/1.0\r\n\r\n": "405",
            b"POST /edit/Page HTTP/1.0\r\nContent-Length: many\r\n\r\n": "400",
            b"POST /edit/Page HTTP/1.0\r\nContent-Length: -5\r\n\r\n": "400",
            b"POST /edit/Page HTTP/1.0\r\nContent-Length: 100\r\n\r\nbase=1&text=cut": "400",
            b"POST /edit/Page HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1): "413",
            b"POST /edit/Page HTTP/1.0\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n": "413",
            b"POST /edit/Page HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "411",
        }
        for request, status in answers.items():
            answer = client.raw(request)
            told = (answer.split(" ") + ["", ""])[1] if answer.startswith("HTTP/") else ""
            if status == "400" and "Error code: 400" in answer:
                told = "400"  # HTTP/0.9, as the server takes a line without a version
            self.assertEqual(told, status, (request[:80], answer[:200]))
        # Clients that leave in the middle keep no worker.
        for _ in range(4):
            with socket.create_connection(client.address) as connection:
                connection.sendall(b"POST /edit/Page HTTP/1.0\r\nContent-Length: 100\r\n\r\nbase=")
        self.assertEqual(client.get("/page/Page")[0], 200)
        self.assertEqual(Files(self.dir).latest("Page").number, 1)
        self.expect_sound()
        self.assertEqual(self.log(), "")

    @unittest.skipUnless("TXOS_TEST_SMALL" in os.environ, "no small file system")
    def test_a_full_disk(self):
        """The answer is 507, nothing is lost, and there is room again after a page was deleted from the disk."""
        small = Path(os.environ["TXOS_TEST_SMALL"])
        self.dir = small / "wiki"
        client = self.start("--workers", "2")
        self.assertEqual(client.save("Small", 0, "tiny text")[0], 303)
        chance, kept, refused = random.Random(1), {}, 0
        for number in range(400):
            text = chance.randbytes(TEXT_BYTES_MAX // 2).hex()
            status, _, body = client.save(f"Big-{number}", 0, text)
            if status == 303:
                kept[f"Big-{number}"] = digest(text)
                continue
            self.assertEqual(status, 507, body)
            self.assertIn("no space left", body)
            refused += 1
            if refused == 3:
                break
        self.assertEqual(refused, 3)
        self.assertGreater(len(kept), 3)
        self.assertEqual(client.get("/page/Small")[0], 200)
        storage = Files(self.dir)
        self.assertEqual({r.name: digest(r.text) for r in storage.pages() if r.name != "Small"}, kept)
        self.expect_sound()
        # What was not saved has not taken the space for good.
        (small / "ballast").unlink()
        self.assertEqual(client.save("Small", 1, "more text")[0], 303)
        self.assertEqual(client.save("Big-again", 0, "x" * 1000)[0], 303)
        self.expect_sound()

    def test_the_load_generator(self):
        client = self.start()
        journal = self.dir.parent / "journal"
        load = Client(client.url, connections=3, writes=40, pages=3, journal=journal)
        self.addCleanup(load.close)
        load.fill()
        result = load.run(2)
        told = result.summary()
        self.assertLessEqual(set(told["statuses"]), {"200", "303", "409"})
        self.assertGreater(told["statuses"]["303"], 0)
        self.assertEqual(len(acknowledged(journal)), told["statuses"]["303"] + 3)
        self.expect_sound("--acknowledged", journal)
        # It finds what is missing.
        journal.write_text("Page-0 999999 0123456789abcdef\n")
        done = subprocess.run(
            ["python3", "-m", "wiki", "check", self.dir, "--acknowledged", journal],
            cwd=APP, capture_output=True, text=True, check=False,
        )
        self.assertEqual((done.returncode, done.stdout), (1, "Page-0: revision 999999 was acknowledged and is not there\n"))
