"""What a user does, in one session and in several, with and without lock files."""

import threading
import time
import unittest

from tests.place import InPlace, Watch

LOCK = "dovecot-uidlist.lock"


class Sessions(InPlace):
    def steps(self, kind):
        """Some of everything. Gives what is there at the end, and the names that came into the maildir."""
        mail = self.mail(kind, messages=5)
        session = self.session(mail)
        session.ask("create", "Other")
        watch = Watch(mail.maildir)
        self.addCleanup(watch.close)
        uids = [session.put(f"new {n}") for n in range(6)]
        session.mark(uids[0], "\\Flagged")
        session.mark(uids[1], "\\Seen $Work")
        session.take(uids[2])
        session.move(uids[3], "Other")
        session.ask("uid", "COPY", f"{uids[4]}:{uids[5]}", "Other")
        session.take(uids[4])
        session.ask("store", "1", "+FLAGS", "(\\Answered)")
        own = session.messages()
        came = watch.names()
        session.logout()
        found = self.expect_whole(mail, ("INBOX", "Other"))
        self.assertEqual({name: flags for name, flags in own.values()}, found["INBOX"])
        return found, came

    def test_the_same_as_with_locks_and_without_a_lock_file(self):
        found, came = zip(*(self.steps(kind) for kind in ("locks", "txos")))
        self.assertEqual(*found)
        old = {f"old {n}": {"\\Answered"} if n == 0 else set() for n in range(5)}
        new = {"new 0": {"\\Flagged"}, "new 1": {"\\Seen", "$Work"}, "new 5": set()}
        self.assertEqual(found[0], {"INBOX": old | new, "Other": {"new 3": set(), "new 4": set(), "new 5": set()}})
        self.assertIn(LOCK, came[0])
        self.assertNotIn(LOCK, came[1])

    def test_what_one_session_does_another_one_sees(self):
        mail = self.mail(messages=3)
        one, two = self.session(mail), self.session(mail)
        for number in range(20):
            writer, reader = (one, two) if number % 2 else (two, one)
            uid = writer.put(f"new {number}")
            reader.ask("noop")
            self.assertEqual(reader.ask("uid", "SEARCH", "UID", str(uid)), [str(uid).encode()])
            reader.mark(uid, "\\Flagged")
            writer.ask("noop")
            self.assertEqual(writer.ask("uid", "SEARCH", "UID", str(uid), "FLAGGED"), [str(uid).encode()])
            reader.take(uid)
            writer.ask("noop")
            self.assertEqual(writer.ask("uid", "SEARCH", "UID", str(uid)), [b""])
        self.assertEqual(len(self.expect_whole(mail)["INBOX"]), 3)

    def test_a_program_with_the_lock_file_is_waited_for(self):
        mail = self.mail(messages=3)
        session = self.session(mail)
        lock = mail.maildir / LOCK
        lock.write_text("")
        released = []

        def release():
            released.append(time.monotonic())
            lock.unlink()

        timer = threading.Timer(0.5, release)
        timer.start()
        session.put("new")
        self.assertLess(released[0], time.monotonic())
        timer.join()
        self.assertEqual(len(self.expect_whole(mail)["INBOX"]), 4)


if __name__ == "__main__":
    unittest.main()
