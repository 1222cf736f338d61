"""A load whose every step is told, and the question what of it is there after a power cut.

``python3 -m tests.power load DATA`` asks a server on DATA; before a request and after its answer it writes a line, and goes on when one
has come back. ``python3 -m tests.power check DATA`` reads such lines, as many as there were before the cut, and asks a new server on
what is left of DATA."""

from __future__ import annotations

import functools
import random
import sys
import tempfile
from pathlib import Path

from acknowledged import at_once, may_be_there, tell, told
from directory.client import REPLACE, SUCCESS, add, delete, modify, rename
from directory.server import PEOPLE, Server, attributes, person

CLIENTS, STEPS = 4, 14
Change = dict[str, str | None]


def steps(client: int, chance: random.Random):
    """Requests of one client, about entries of its own: what each makes of them, by name, and the request."""
    there: dict[str, str] = {}
    for step in range(STEPS):
        name = f"{client} {step}"
        kind = chance.choice(["add", "modify", "delete", "rename"]) if there else "add"
        old = chance.choice(sorted(there)) if there else name
        change: Change
        if kind == "add":
            change, request = {name: f"made {step}"}, add(person(name), attributes(name, f"made {step}"))
        elif kind == "modify":
            # (Longer than before, or shorter.)
            note = f"changed {step} " + "x" * chance.choice([0, 30, 9000])
            change, request = {old: note}, modify(person(old), [(REPLACE, "description", [note])])
        elif kind == "delete":
            change, request = {old: None}, delete(person(old))
        else:
            change, request = {old: None, name: there[old]}, rename(person(old), f"cn=person {name}")
        for changed, note in change.items():
            there.pop(changed, None)
            if note is not None:
                there[changed] = note
        yield change, request


def load(server: Server) -> None:
    def work(client: int) -> None:
        with server.client() as connection:
            for change, request in steps(client, random.Random(client)):
                tell({"client": client, "asks": change})
                if (code := connection.ask(request)) != SUCCESS:
                    raise RuntimeError(f"{change}: {code}")
                tell({"client": client})

    at_once([functools.partial(work, client) for client in range(CLIENTS)])


def check(server: Server, lines: list[dict]) -> None:
    with server.client() as connection:
        found = connection.entries(PEOPLE)
        notes = {dn.partition(",")[0].removeprefix("cn=person "): entry["description"][0] for dn, entry in found.items() if dn != PEOPLE}
        for client, states in enumerate(may_be_there(lines, CLIENTS)):
            own = {name: note for name, note in notes.items() if name.startswith(f"{client} ")}
            if own not in states:
                raise AssertionError(f"client {client}: {own} is there, and not one of {states}")
            for name in own:
                if found[person(name)]["cn"] != [f"person {name}"]:
                    raise AssertionError(f"{name}: {found[person(name)]}")
        # It goes on.
        if connection.ask(add(person("after"), attributes("after"))) != SUCCESS or person("after") not in connection.entries(PEOPLE):
            raise AssertionError("nothing can be added")
    halves = [path for path in server.data.rglob("*") if path.is_file() and not path.read_bytes().endswith(b"\n")]
    if halves:
        raise AssertionError(f"half of something: {halves}")


def main() -> None:
    action, data = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="txos-test-") as directory:
        server = Server(Path(directory), data=Path(data))
        server.start()
        try:
            if action == "fill":
                server.fill()
                server.stop()
            elif action == "load":
                load(server)
            else:
                check(server, told())
        except BaseException:
            sys.stderr.write((Path(directory) / "log").read_text())
            raise
        finally:
            server.kill()


if __name__ == "__main__":
    main()
