"""A maildir in a directory for each test. `TXOS_MAIL` is where `apps/mail/build` has built."""

import ctypes
import os
import struct
import tempfile
import unittest
from pathlib import Path

from maildir.server import Mail, message


class Watch:
    """Names that come in a directory while it is watched (`inotify`)."""

    CREATE, MOVED_TO = 0x100, 0x80

    def __init__(self, directory):
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK)
        if self._libc.inotify_add_watch(self._fd, os.fsencode(directory), self.CREATE | self.MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def fileno(self):
        return self._fd

    def names(self):
        found, data = set(), b""
        while True:
            try:
                data = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return found
            while data:
                length = struct.unpack_from("iIII", data)[3]
                found.add(data[16 : 16 + length].rstrip(b"\0").decode())
                data = data[16 + length :]

    def close(self):
        os.close(self._fd)


class InPlace(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="txos-test-", dir=os.environ.get("TXOS_TEST_DIR"))
        self.addCleanup(holder.cleanup)
        os.chmod(holder.name, 0o755)
        self.dir = Path(holder.name)

    def mail(self, kind="txos", messages=0, *, durable=False):
        mail = Mail(self.dir / kind, kind, durable=durable)
        mail.fill(messages)
        return mail

    def session(self, mail, box="INBOX"):
        session = mail.session()
        self.addCleanup(session.kill)
        if box:
            session.ask("select", box)
        return session

    def expect_whole(self, mail, boxes=("INBOX",)):
        """Stock Dovecot finds each file once, with its content, and has nothing to complain of. Gives name: flags for each box."""
        self.assertEqual(mail.errors(), [])
        stock = Mail(mail.directory, "locks")
        found = {}
        session = self.session(stock, box=None)
        for box in boxes:
            place = mail.maildir if box == "INBOX" else mail.maildir / f".{box}"
            messages = session.messages(box)
            names = [name for name, _ in messages.values()]
            self.assertEqual(len(names), len(set(names)), "a message is there twice")
            contents = [path.read_bytes().replace(b"\r\n", b"\n") for part in ("cur", "new") for path in (place / part).iterdir()]
            self.assertEqual(sorted(contents), sorted(message(name).replace(b"\r\n", b"\n") for name in names))
            found[box] = {name: flags for name, flags in messages.values()}
        session.logout()
        self.assertEqual(stock.errors(), [])
        return found
