"""Servers in a directory for each test. `TXOS_LDAP` is where `apps/ldap/build` has built."""

import os
import tempfile
import unittest
from pathlib import Path

from directory.server import Server

LONG = "apps" in os.environ.get("TXOS_TEST_LONG", "").split(",")


class InPlace(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="txos-test-", dir=os.environ.get("TXOS_TEST_DIR"))
        self.addCleanup(holder.cleanup)
        self.dir = Path(holder.name)

    def server(self, kind="txos", *, name=None, data=None, people=0):
        """A server that answers, and is ended at the end of the test."""
        server = Server(self.dir / (name or kind), kind, data=data)
        self.addCleanup(server.kill)
        server.start()
        if data is None:
            server.fill(people)
        return server

    def expect_whole(self, server):
        """No half-made file, no directory without its entry, no file that can't be parsed."""
        found = []
        for path in server.data.rglob("*"):
            if path.is_dir():
                if not Path(f"{path}.ldif").exists():
                    found.append(f"{path}: a directory without an entry")
            elif path.suffix != ".ldif" or not path.read_bytes().endswith(b"\n"):
                found.append(f"{path}: half of something")
        self.assertEqual(found, [])
