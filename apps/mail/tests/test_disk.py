"""A maildir on a small file system, which `TXOS_TEST_SMALL` names; a file `ballast` there is removed when it is full."""

import os
import unittest
from pathlib import Path

from maildir.server import Mail, message
from tests.place import InPlace


class Disk(InPlace):
    def test_a_full_disk(self):
        """The client is told so, what was acknowledged stays, and with space again it goes on."""
        small = Path(os.environ["TXOS_TEST_SMALL"])
        mail = Mail(small / "mail")
        mail.log = self.dir / "log"
        mail.fill(3)
        session = self.session(mail)
        kept, kind = {"old 0", "old 1", "old 2"}, "OK"
        while kind == "OK" and len(kept) < 1000:
            name = f"big {len(kept)}"
            kind, data = session.append("INBOX", "", "", message(name) + b"x" * 200_000)
            if kind == "OK":
                kept.add(name)
        self.assertEqual(kind, "NO", data)
        self.assertGreater(len(kept), 6)
        self.assertEqual({name for name, _ in session.messages().values()}, kept)
        (small / "ballast").unlink()
        session.put("small")
        self.assertEqual({name for name, _ in session.messages().values()}, kept | {"small"})
        session.logout()
        stock = self.session(Mail(mail.directory, "locks"), box=None)
        self.assertEqual(sorted(name for name, _ in stock.messages().values()), sorted(kept | {"small"}))
        stock.logout()
        mail.remove()


if __name__ == "__main__":
    unittest.main()
