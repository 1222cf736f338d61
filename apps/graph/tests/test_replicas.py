"""Four replicas: they agree, and go on when one is killed, paused or corrupted."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import unittest
from pathlib import Path

from .four import Load, Replicas

BUILT = Path(os.environ["TXOS_GRAPH"])
VERTICES = 300


class Four(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(tempfile.mkdtemp(dir=os.environ["TXOS_TEST_DIR"]))
        self.addCleanup(shutil.rmtree, self.directory)
        # What a recording of the executor has, for the same graph.
        made = self.directory / "made"
        subprocess.run([BUILT / "graph", "make", made, str(VERTICES), "1"], check=True)
        recorded = subprocess.run(
            [BUILT / "graph", "record", made, "1", "400", "50", "20", "5"], check=True, capture_output=True, text=True
        ).stdout
        self.requests = iter([line for line in recorded.splitlines() if line])
        self.four = Replicas(BUILT, self.directory / "four", 4, str(VERTICES))
        self.addCleanup(self.end)
        self.four.start(0, 1, 2, 3)

    def end(self) -> None:
        for number in list(self.four.running):
            try:
                self.four.signal(number, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.four.stop()

    def load(self, word: str, to: list[int], count: int = 40) -> Load:
        load = Load(self.four, to, [next(self.requests) for _ in range(count)], 8, word)
        self.assertEqual(load.errors, [])
        self.assertEqual(len(load.answers), count)
        return load

    def test_they_agree(self) -> None:
        load = self.load("a", [0, 1, 2, 3], 120)
        self.assertEqual({code for code, _, _ in load.answers.values()}, {0})
        print(
            f"four replicas: {120 / load.seconds:.0f} requests in a second, latency {statistics.median(load.latencies) * 1000:.0f} ms"
            f" (at most {max(load.latencies) * 1000:.0f}), {len({height for _, _, height in load.answers.values()})} blocks"
        )
        # What is no request is refused by the replica that it is sent to.
        self.assertEqual(self.four.request(0, "b", "path 1 300")[:2], (1, "there is no such vertex"))
        for number, text in enumerate(("", "add 1", "add 1 1", "add 1 -2", "find 1 2", "path 1 99999999999999999999", "add 1 2 " + "x" * 300)):
            self.assertEqual(self.four.request(number % 4, f"c{number}", text)[0], 1, text)
        for number, tx in enumerate((b"\0", b"\xff" * 150, b"d add 1\n2", b"e path 1 2\ncommit", b"x" * 100_000)):
            refused = self.four.call(number % 4, "broadcast_tx_commit", tx="0x" + tx.hex())
            self.assertEqual(refused["check_tx"]["code"], 1)
        _, first = self.four.agree(0, 1, 2, 3)
        self.four.stop()
        files = {self.four.files(number) for number in range(4)}
        self.assertEqual(files, {first_hash(first)})

    def test_one_is_killed(self) -> None:
        self.load("a", [0, 1, 2, 3])
        self.four.kill(3)
        self.load("b", [0, 1, 2])
        self.four.agree(0, 1, 2)
        self.four.start(3)
        self.load("c", [0, 1, 2, 3])
        self.four.agree(0, 1, 2, 3)

    def test_one_is_paused(self) -> None:
        self.load("a", [0, 1, 2, 3])
        self.four.signal(2, signal.SIGSTOP)
        self.load("b", [0, 1, 3])
        self.four.agree(0, 1, 3)
        self.four.signal(2, signal.SIGCONT)
        self.load("c", [0, 1, 2, 3])
        self.four.agree(0, 1, 2, 3)

    def test_one_is_corrupted(self) -> None:
        self.load("a", [0, 1, 2, 3])
        self.four.agree(0, 1, 2, 3)
        # A vertex loses its edges on one replica, by a write that is no request.
        vertex = self.directory / "four/1/graph/v/00001"
        content = vertex.read_bytes()
        neighbour = int.from_bytes(content[8:12], "little")
        vertex.write_bytes(bytes(8) + content[8:])
        self.assertEqual(self.four.request(0, "b", f"exists 1 {neighbour}")[:2], (0, "yes"))
        self.load("c", [0, 2, 3])
        height, _ = self.four.agree(0, 2, 3)
        try:
            stopped, _ = self.four.info(1)
            self.assertLess(stopped, height)
        except OSError:
            self.assertIsNotNone(self.four.running[1].wait(10))
        # It begins anew, from the others' blocks.
        self.four.stop(1)
        self.four.forget(1)
        self.four.start(1)
        self.load("d", [0, 1, 2, 3])
        self.four.agree(0, 1, 2, 3)


def first_hash(text: str) -> str:
    """A hash as CometBFT prints it, in hexadecimal."""
    import base64

    return base64.b64decode(text).hex()


if __name__ == "__main__":
    unittest.main()
