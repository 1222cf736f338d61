"""Several clients on one maildir, imap processes that are killed, a program that knows nothing of Dovecot."""

import imaplib
import os
import random
import shutil
import threading
import time
import unittest

from acknowledged import at_once
from maildir.server import USER, message
from tests.place import InPlace


class Client:
    """One that knows what has to be there of its own messages. It creates, marks, deletes and moves these, and reads and marks those of others."""

    def __init__(self, begin_session, number, chance):
        self.begin_session, self.number, self.chance = begin_session, number, chance
        self.session = None
        #: UID, name and flags of what is in INBOX, name and flags of what was moved to Other; names that are gone.
        self.here, self.moved, self.gone = {}, {}, set()
        #: Names of which an unanswered request may have made one thing or another.
        self.unsure = set()
        self.made = 0

    def begin(self):
        self.session = self.begin_session()

    def step(self):
        kind = self.chance.choice(["create", "create", "mark", "delete", "move", "read", "answer"])
        if kind == "create" or not self.here:
            name = f"{self.number} {self.made}"
            self.made += 1
            self.unsure.add(name)
            self.here[self.session.put(name)] = (name, set())
            self.unsure.discard(name)
        elif kind in ("read", "answer"):
            uid = self.chance.choice(self.session.ask("uid", "SEARCH", "ALL")[0].split() or [b"1"]).decode()
            # Somebody may have taken it away, which is a NO.
            if kind == "read":
                self.session.uid("FETCH", uid, "(FLAGS BODY.PEEK[])")
            else:
                self.session.uid("STORE", uid, "+FLAGS.SILENT", "(\\Answered)")
        else:
            uid = self.chance.choice(list(self.here))
            name, flags = self.here.pop(uid)
            self.unsure.add(name)
            if kind == "mark":
                self.session.mark(uid, "\\Flagged")
                self.here[uid] = (name, flags | {"\\Flagged"})
            elif kind == "delete":
                self.session.take(uid)
                self.gone.add(name)
            else:
                self.session.move(uid, "Other")
                self.moved[name] = flags
            self.unsure.discard(name)


class Many(InPlace):
    def clients(self, mail, count):
        seed = os.environ.get("TXOS_TEST_SEED", "1")
        session = self.session(mail, box=None)
        session.ask("create", "Other")
        session.logout()
        return [Client(lambda: self.session(mail), number, random.Random(f"{seed} {number}")) for number in range(count)]

    def expect_all(self, mail, clients, others=frozenset()):
        """Nothing that was acknowledged is lost, doubled or there again."""
        found = self.expect_whole(mail, ("INBOX", "Other"))
        here, other = found["INBOX"], found["Other"]
        self.assertEqual(here.keys() & other.keys(), set(), "half of a move")
        ignored = {"\\Answered"}
        for client in clients:
            for name, flags in client.here.values():
                self.assertEqual(here.get(name, {"lost"}) - ignored, flags, name)
                self.assertNotIn(name, other)
            for name, flags in client.moved.items():
                self.assertEqual(other.get(name, {"lost"}) - ignored, flags, name)
                self.assertNotIn(name, here)
            for name in client.gone:
                self.assertFalse(name in here or name in other, f"{name} is there again")
        known = {name for client in clients for name in (*client.moved, *client.unsure)}
        known |= {name for client in clients for name, _ in client.here.values()}
        self.assertLessEqual({name for name in (*here, *other) if not name.startswith("old ")}, known | others)
        return found

    def storm(self, count, steps, *, kind="txos", durable=False):
        """So many clients, each with so many steps."""
        mail = self.mail(kind, messages=50, durable=durable)
        clients = self.clients(mail, count)

        def body(client):
            client.begin()
            for _ in range(steps):
                client.step()
            client.session.logout()

        at_once([lambda client=client: body(client) for client in clients])
        found = self.expect_all(mail, clients)
        self.assertEqual(len([name for name in found["INBOX"] if name.startswith("old ")]), 50)
        for client in clients:
            self.assertEqual(client.unsure, set())

    def test_one_client(self):
        self.storm(1, 60)

    def test_two_clients_durably(self):
        self.storm(2, 40, durable=True)

    def test_four_clients(self):
        self.storm(4, 60)

    def test_two_sessions_move_the_same_messages(self):
        """At once, each to a mailbox of its own, one by one and several together. Each message is in one mailbox afterwards, and a session whose
        move was not the first is told that it has moved nothing."""
        count = 40
        mail = self.mail(messages=count)
        session = self.session(mail, box=None)
        boxes = ["A", "B"]
        for box in boxes:
            session.ask("create", box)
        session.logout()
        sets = [str(uid) for uid in range(1, count // 2 + 1)] + [f"{uid}:{uid + 3}" for uid in range(count // 2 + 1, count, 4)]
        together, moved, refused = threading.Barrier(2), {box: 0 for box in boxes}, []

        def body(box):
            session = self.session(mail)
            for uids in sets:
                together.wait(60)
                kind, data = session.uid("MOVE", uids, box)
                if kind != "OK":
                    refused.append(data)
                # (What says how many they were comes without a tag.)
                told = session.response("OK")[1]
                moved[box] += sum(4 if b":" in part.split()[3] else 1 for part in told if part and part.startswith(b"[COPYUID"))
            session.logout()

        at_once([lambda box=box: body(box) for box in boxes])
        for data in refused:
            self.assertIn(b"[EXPUNGEISSUED]", data[0])
        found = self.expect_whole(mail, ("INBOX", *boxes))
        names = [name for box in found.values() for name in box]
        self.assertEqual(sorted(names), sorted(f"old {n}" for n in range(count)))
        self.assertEqual({box: len(found[box]) for box in boxes}, moved)
        self.assertEqual(os.listdir(mail.maildir / ".A" / "tmp") + os.listdir(mail.maildir / ".B" / "tmp"), [])

    def test_without_protection_there_is_damage(self):
        """Which shows that the other tests would find it."""
        with self.assertRaises((AssertionError, RuntimeError, imaplib.IMAP4.error)):
            for _ in range(5):
                self.storm(4, 60, kind="unprotected")
                shutil.rmtree(self.dir / "unprotected")

    def test_with_lock_files(self):
        self.storm(4, 60, kind="locks")

    def test_killed(self):
        """Sessions are killed under load. What was acknowledged stays; what was not has happened as a whole or not at all."""
        mail = self.mail(messages=20)
        clients = self.clients(mail, 4)
        chance = random.Random(int(os.environ.get("TXOS_TEST_SEED", "1")))
        for _ in range(25):
            for client in clients:
                client.begin()
            steps = [threading.Event() for _ in clients]

            def body(client, done):
                try:
                    while True:
                        client.step()
                        done.set()
                except (client.session.abort, OSError, ValueError):
                    pass  # it was killed
                finally:
                    done.set()

            threads = [threading.Thread(target=body, args=pair) for pair in zip(clients, steps)]
            for thread in threads:
                thread.start()
            for done in steps:
                done.wait()
            time.sleep(chance.random() * 0.1)  # chance, not synchronisation
            for client in clients:
                os.kill(client.session.pid, 9)
            for thread in threads:
                thread.join()
            for client in clients:
                client.session.kill()
        # (Its first transaction completes what was half published, or takes it back.)
        self.session(mail).logout()
        self.expect_all(mail, clients)

    def test_a_program_that_knows_nothing_of_dovecot(self):
        """It delivers, marks and removes messages of its own by plain calls, as maildir's rules have it."""
        mail = self.mail(messages=20)
        clients = self.clients(mail, 3)
        turns, kept = threading.Semaphore(0), {}

        def plain():
            for number in range(120):
                turns.acquire()  # one for each step of a client
                unique = f"1700000001.P{number}.plain"
                temporary = mail.maildir / "tmp" / unique
                temporary.write_bytes(message(f"plain {number}"))
                os.chown(temporary, *(2 * [USER] if os.geteuid() == 0 else [-1, -1]))
                path = temporary.rename(mail.maildir / "new" / unique)
                # Three of four are found wherever Dovecot has moved them meanwhile, and are marked or removed.
                if number % 4:
                    while True:
                        base = path.name.partition(":")[0]
                        path = next((p for part in ("new", "cur") for p in (mail.maildir / part).glob(base + "*")), path)
                        try:
                            if number % 4 == 1:
                                path.unlink()
                            else:
                                flags = "".join(sorted(set(path.name.partition(":2,")[2]) | {"F"}))
                                path = path.rename(mail.maildir / "cur" / f"{base}:2,{flags}")
                            break
                        except FileNotFoundError:
                            pass
                if number % 4 != 1:
                    kept[f"plain {number}"] = {"\\Flagged"} if number % 4 else set()

        def body(client):
            client.begin()
            for _ in range(40):
                turns.release()
                client.step()
            client.session.logout()

        outsider = threading.Thread(target=plain)
        outsider.start()
        try:
            at_once([lambda client=client: body(client) for client in clients])
        finally:
            turns.release(120)
            outsider.join()
        here = self.expect_all(mail, clients, set(kept))["INBOX"]
        for name, flags in kept.items():
            self.assertEqual(here.get(name, {"lost"}) - {"\\Answered"}, flags, name)


if __name__ == "__main__":
    unittest.main()
