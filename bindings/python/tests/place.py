"""A directory for each test, and processes that do something in it."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import txos

PACKAGE = Path(txos.__file__).resolve().parent.parent


class InPlace(unittest.TestCase):
    """A test with a directory of its own; realm and store are those of the test run."""

    def setUp(self):
        where = os.environ.get("TXOS_TEST_DIR")
        holder = tempfile.TemporaryDirectory(prefix="txos-test-", dir=where)
        self.addCleanup(holder.cleanup)
        self.dir = Path(holder.name)
        self.file = self.dir / "file"

    def outsider(self, script, *args, expect=0):
        """Runs shell code in another process, and gives what it wrote."""
        done = subprocess.run(
            ["sh", "-c", script, "sh", *map(str, args)],
            cwd=self.dir,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stdout

    def python(self, code, *args):
        """Starts another interpreter with the same package."""
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            cwd=self.dir,
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for pipe in (process.stdin, process.stdout, process.stderr):
            self.addCleanup(pipe.close)
        return process

    def finish(self, process):
        """Waits for it; it must have succeeded. Gives what it wrote."""
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        return out
