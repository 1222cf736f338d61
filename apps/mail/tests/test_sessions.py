"""What a user does, in one session and in several, with and without lock files."""

import contextlib
import os
import select
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

    def test_killed_in_a_move(self):
        """At the moment in which the message comes into the other mailbox. It is in one of them then, and not in both."""
        mail = self.mail(messages=3)
        session = self.session(mail)
        session.ask("create", "Other")
        watches = [Watch(mail.maildir / ".Other" / part) for part in ("new", "cur")]
        for watch in watches:
            self.addCleanup(watch.close)
        for number in range(10):
            uid = session.put(f"moved {number}")
            mover = threading.Thread(target=self.move_until_killed, args=(session, uid))
            mover.start()
            came = select.select(watches, [], [], 60)[0]
            session.kill()
            mover.join()
            self.assertNotEqual(came, [], "it does not come")
            for watch in watches:
                watch.names()
            # (Its first transaction completes what was half published, or takes it back.)
            session = self.session(mail)
            found = self.expect_whole(mail, ("INBOX", "Other"))
            self.assertEqual(found["INBOX"].keys() & found["Other"].keys(), set())
            self.assertEqual(len(found["INBOX"]) + len(found["Other"]), 4 + number)

    def move_until_killed(self, session, uid):
        try:
            session.move(uid, "Other")
        except (session.abort, OSError, ValueError):
            pass

    def test_moves(self):
        """Several at once, one of no message, one of a message that is gone, one into the mailbox itself, and what follows them."""
        mail = self.mail(messages=3)
        one, two = self.session(mail), self.session(mail)
        one.ask("create", "Other")
        uids = [one.put(f"new {n}") for n in range(5)]
        one.ask("uid", "MOVE", f"{uids[0]}:{uids[2]}", "Other")
        one.ask("uid", "MOVE", str(uids[0]), "Other")
        two.ask("uid", "SEARCH", "ALL")
        one.take(uids[3])
        two.uid("MOVE", str(uids[3]), "Other")
        self.assertEqual(one.uid("MOVE", str(uids[4]), "Nowhere")[0], "NO")
        one.ask("uid", "MOVE", str(uids[4]), "INBOX")
        one.ask("uid", "COPY", "1", "Other")
        one.put("last")
        self.assertEqual(one.messages(), two.messages())
        for session in (one, two):
            session.logout()
        found = self.expect_whole(mail, ("INBOX", "Other"))
        self.assertEqual(set(found["INBOX"]), {"old 0", "old 1", "old 2", "new 4", "last"})
        self.assertEqual(set(found["Other"]), {"new 0", "new 1", "new 2", "old 0"})

    def test_what_is_no_request(self):
        """It changes nothing, and leaves nothing behind; neither does a request that ends in its middle."""
        mail = self.mail(messages=3)
        for broken in (
            b"\r\n",
            b"\0\0\0\r\n",
            b"\xff" * 5000 + b"\r\n",
            b"a\r\n",
            b"a NONSENSE\r\n",
            b"a UID STORE 1\r\n",
            b"a STORE 77 +FLAGS (\\Deleted)\r\n",
            b"a UID EXPUNGE 0\r\n",
            b"a UID MOVE 1:* {9}\r\n",
            b"a APPEND INBOX {99999999999999999999}\r\n",
            b"a APPEND INBOX {1000+}\r\nSubject: half\r\n\r\nhalf of it",
            b"a SELECT " + b"x" * 1_000_000 + b"\r\n",
        ):
            session = self.session(mail)
            with contextlib.suppress(BrokenPipeError):
                session.writefile.write(broken)
                session.writefile.close()
            self.assertNotIn(b"a OK", session.readfile.read())
            self.assertEqual(session.process.wait(60), 0)
            session.kill()
        self.assertEqual(os.listdir(mail.maildir / "tmp"), [])
        self.assertFalse((mail.maildir / LOCK).exists())
        self.assertEqual(self.expect_whole(mail)["INBOX"], {f"old {n}": set() for n in range(3)})

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
