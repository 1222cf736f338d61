"""A load whose every step is told, and the question what of it is there after a power cut.

``python3 -m tests.power load DIRECTORY`` has several sessions; before a request and after its answer it writes a line, and goes on when
one has come back. ``python3 -m tests.power check DIRECTORY`` reads such lines, as many as there were before the cut, and asks a new session
on what is left."""

from __future__ import annotations

import functools
import os
import random
import sys
import tempfile
from pathlib import Path

from acknowledged import at_once, may_be_there, tell, told
from maildir.server import USER, Mail, message

CLIENTS, STEPS = 3, 10


class Client:
    """One session; its messages are its own."""

    def __init__(self, mail: Mail, number: int) -> None:
        self.number = number
        self.chance = random.Random(number)
        self.session = mail.session()
        self.session.ask("select", "INBOX")
        #: UID and flags, by name.
        self.there: dict[str, tuple[int, list[str]]] = {}

    def ask(self, name: str, flags: list[str] | None, request):
        tell({"client": self.number, "asks": {name: flags}})
        answer = request()
        tell({"client": self.number, "name": name, "uid": answer if isinstance(answer, int) else None})
        return answer

    def step(self, number: int) -> None:
        session = self.session
        kind = self.chance.choice(["create", "create", "mark", "take"]) if self.there else "create"
        if kind == "create":
            name = f"{self.number} {number}"
            self.there[name] = self.ask(name, [], lambda: session.put(name)), []
            return
        name = self.chance.choice(sorted(self.there))
        uid, flags = self.there[name]
        flag = "\\Flagged" if kind == "mark" else "\\Deleted"
        flags = sorted({*flags, flag})
        self.ask(name, flags, lambda: session.mark(uid, flag))
        self.there[name] = uid, flags
        if kind == "take":
            self.ask(name, None, lambda: session.ask("uid", "EXPUNGE", str(uid)))
            del self.there[name]


def load(mail: Mail) -> None:
    def work(client: Client) -> None:
        for number in range(STEPS):
            client.step(number)
        client.session.logout()

    at_once([functools.partial(work, Client(mail, number)) for number in range(CLIENTS)])


def check(mail: Mail, lines: list[dict]) -> None:
    uids = {line["name"]: line["uid"] for line in lines if line.get("uid") is not None}
    session = mail.session()
    found = session.messages()
    if len(found) != len({name for name, _ in found.values()}):
        raise AssertionError(f"a message is there twice: {found}")
    for number, states in enumerate(may_be_there(lines, CLIENTS)):
        own = {name: sorted(flags) for name, flags in found.values() if name.startswith(f"{number} ")}
        if own not in states:
            raise AssertionError(f"client {number}: {own} is there, and not one of {states}")
    for uid, (name, _) in found.items():
        if uids.get(name, uid) != uid:
            raise AssertionError(f"{name} had UID {uids[name]}, and has {uid}")
    # It goes on, and no UID comes again.
    if session.put("after") in uids.values():
        raise AssertionError("a UID comes again")
    contents = sorted(path.read_bytes().replace(b"\r\n", b"\n") for part in ("cur", "new") for path in (mail.maildir / part).iterdir())
    names = [name for name, _ in session.messages().values()]
    if contents != sorted(message(name).replace(b"\r\n", b"\n") for name in names):
        raise AssertionError("a message's file is not what it was")
    session.logout()
    if mail.errors():
        raise AssertionError(f"Dovecot complains: {mail.errors()}")


def main() -> None:
    action, directory = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="txos-test-") as files, tempfile.TemporaryDirectory(prefix="txos-test-", dir="/dev/shm") as realm:
        os.chmod(files, 0o755)
        os.chown(realm, USER, USER)
        mail = Mail(Path(directory), durable=True)
        mail.log = Path(files) / "log"
        # As on a machine that has just started.
        mail.environment["TXOS_REALM"] = realm
        if "TXOS_BOOT_ID" in os.environ:
            mail.environment["TXOS_BOOT_ID"] = os.environ["TXOS_BOOT_ID"]
        try:
            if action == "fill":
                mail.fill(10)
                session = mail.session()
                session.put("first")
                session.logout()
            elif action == "load":
                load(mail)
            else:
                check(mail, told())
        except BaseException:
            sys.stderr.write(mail.log.read_text() if mail.log.exists() else "")
            raise


if __name__ == "__main__":
    main()
