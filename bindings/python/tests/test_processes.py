"""Processes and threads that meet."""

import os
import threading
import unittest

import txos
from tests.place import InPlace

ADD = """
import sys, txos
from pathlib import Path
counter = Path("counter")
print("ready", flush=True)
sys.stdin.readline()
calls = 0
@txos.atomic(durable=False, retry=None)
def add():
    global calls
    calls += 1
    counter.write_text(str(int(counter.read_text()) + 1))
for _ in range(100):
    add()
print(calls)
"""


class Meetings(InPlace):
    def test_no_increment_is_lost(self):
        counter = self.dir / "counter"
        counter.write_text("0")
        processes = [self.python(ADD) for _ in range(2)]
        for process in processes:
            self.assertEqual(process.stdout.readline(), "ready\n")
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        calls = [int(self.finish(process)) for process in processes]
        self.assertEqual(counter.read_text(), "200")
        self.assertGreaterEqual(sum(calls), 200)

    def test_threads_have_their_own_transactions(self):
        counter = self.dir / "counter"
        counter.write_text("0")
        errors = []

        def add():
            try:
                for _ in range(50):
                    txos.run(
                        lambda: counter.write_text(str(int(counter.read_text()) + 1)),
                        retry=None,
                        durable=False,
                    )
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(counter.read_text(), "200")

    def test_other_threads_see_the_stable_state(self):
        inside, looked = threading.Event(), threading.Event()
        seen = []

        def look():
            inside.wait(60)
            seen.append((txos.in_transaction(), os.listdir(self.dir)))
            looked.set()

        thread = threading.Thread(target=look)
        thread.start()
        with txos.transaction():
            self.file.write_text("new\n")
            inside.set()
            looked.wait(60)
        thread.join()
        self.assertEqual(seen, [(False, [])])
        self.assertTrue(self.file.exists())

    def test_a_killed_process_leaves_nothing(self):
        code = """
import os, signal, txos
from pathlib import Path
with txos.transaction():
    Path("file").write_text("half")
    os.mkdir("dir")
    os.kill(os.getpid(), signal.SIGKILL)
"""
        process = self.python(code)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -9)
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_killed_child_leaves_nothing(self):
        """A child that was forked from a process with transactions has a life, and a death, of its own."""
        code = """
import os, signal, txos
from pathlib import Path
with txos.transaction():
    Path("file").write_text("old")
child = os.fork()
if child == 0:
    with txos.transaction():
        Path("file").write_text("half")
        Path("other").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
assert os.waitpid(child, 0)[1] == signal.SIGKILL
with txos.transaction(timeout=60):
    assert not Path("other").exists()
    Path("file").write_text(Path("file").read_text() + " and new")
"""
        self.finish(self.python(code))
        self.assertEqual(self.file.read_text(), "old and new")


if __name__ == "__main__":
    unittest.main()
