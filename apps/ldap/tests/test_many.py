"""Many clients at once, two servers on one database, servers that are killed."""

import functools
import os
import random
import re
import shutil
import threading
import time
import unittest
from pathlib import Path

from acknowledged import at_once
from directory.client import (
    ADD,
    BUSY,
    DELETE,
    ENTRY_EXISTS,
    NO_SUCH_ATTRIBUTE,
    NO_SUCH_OBJECT,
    REPLACE,
    SUBTREE,
    SUCCESS,
    add,
    delete,
    modify,
    rename,
    search,
)
from directory.server import PEOPLE, SUFFIX, Server, attributes, person
from tests.place import LONG, InPlace

#: How long subtrees are moved while searches run, in seconds.
SUBTREES_MOVE_S = 4

class Many(InPlace):
    def test_of_those_who_add_the_same_one_wins(self):
        server = self.server()
        codes = []

        def add_all():
            with server.client() as client:
                codes.extend(client.insist(add(person(n), attributes(n))) for n in range(20))

        at_once([add_all] * 6)
        self.assertEqual((codes.count(SUCCESS), codes.count(ENTRY_EXISTS)), (20, 100))
        self.expect_whole(server)

    def test_no_change_is_lost(self):
        """Each change takes a value away that it has seen, and adds the next."""
        server = self.server(people=1)
        with server.client() as client:
            client.ask(modify(person(0), [(REPLACE, "description", ["0"])]))

        def count():
            done = 0
            with server.client() as client:
                while done < 15:
                    seen = client.entries(person(0))[person(0)]["description"][0]
                    changes = [(DELETE, "description", [seen]), (ADD, "description", [str(int(seen) + 1)])]
                    code = client.insist(modify(person(0), changes))
                    self.assertIn(code, (SUCCESS, NO_SUCH_ATTRIBUTE))
                    done += code == SUCCESS

        at_once([count] * 4)
        with server.client() as client:
            self.assertEqual(client.entries(person(0))[person(0)]["description"], ["60"])

    def test_a_subtree_that_moves_takes_everything_along(self):
        """Searches see it at one place, whole; what is added to it is added where it is."""
        server = self.server(people=10)
        places = [PEOPLE, f"ou=folk,{SUFFIX}"]
        stop, added = threading.Event(), []

        def move():
            try:
                with server.client() as client:
                    for number in range(30):
                        source, target = places[number % 2], places[1 - number % 2]
                        self.assertEqual(client.insist(rename(source, target.split(",")[0])), SUCCESS)
            finally:
                stop.set()

        def look():
            with server.client() as client:
                while not stop.is_set():
                    found = client.entries(SUFFIX)
                    there = [place for place in places if place in found]
                    self.assertEqual(len(there), 1)
                    for n in range(10):
                        self.assertIn(person(n, there[0]), found)

        def put():
            number = 0
            with server.client() as client:
                while not stop.is_set():
                    for place in places:
                        name = f"new {number}"
                        code = client.insist(add(person(name, place), attributes(name)))
                        self.assertIn(code, (SUCCESS, NO_SUCH_OBJECT))
                        if code == SUCCESS:
                            added.append(name)
                            number += 1

        at_once([move, look, put])
        with server.client() as client:
            found = client.entries(SUFFIX)
        there = next(place for place in places if place in found)
        for name in added:
            self.assertIn(person(name, there), found)
        self.assertEqual(len(found), 2 + 10 + len(added))
        self.expect_whole(server)

    def test_a_search_finds_all_of_the_subtrees_that_move(self):
        """Between three parents, so that each is a leaf now and then. They only move: none is ever missing, nor what is below it."""
        server = self.server()
        parents = [f"ou={name},{SUFFIX}" for name in "xyz"]
        units, below = [f"g{n}" for n in range(3)], [f"k{n}" for n in range(5)]
        at = {unit: parents[0] for unit in units}

        def unit_entry(name):
            return {"objectClass": ["organizationalUnit"], "ou": [name]}

        with server.client() as client:
            for parent in parents:
                self.assertEqual(client.ask(add(parent, unit_entry(parent[3]))), SUCCESS)
            for unit in units:
                self.assertEqual(client.ask(add(f"ou={unit},{parents[0]}", unit_entry(unit))), SUCCESS)
                for name in below:
                    self.assertEqual(client.ask(add(person(name, f"ou={unit},{parents[0]}"), attributes(name))), SUCCESS)
        wanted = sorted([*units, *(f"person {name}" for unit in units for name in below)])
        until, moves, found = time.monotonic() + SUBTREES_MOVE_S, [], []

        def move(seed):
            chance, unit = random.Random(seed), units[seed]
            with server.client() as client:
                while time.monotonic() < until:
                    target = chance.choice([parent for parent in parents if parent != at[unit]])
                    self.assertEqual(client.insist(rename(f"ou={unit},{at[unit]}", f"ou={unit}", target)), SUCCESS)
                    at[unit] = target
                    moves.append(unit)
                    # A search may get in between two.
                    time.sleep(chance.random() / 50)

        def look():
            with server.client() as client:
                while time.monotonic() < until:
                    code, entries = client.result(search(SUFFIX, SUBTREE))
                    self.assertIn(code, (SUCCESS, BUSY))
                    if code == SUCCESS:
                        found.append(sorted(dn.split(",")[0].partition("=")[2] for dn, _ in entries))

        at_once([*(functools.partial(move, seed) for seed in range(3)), *[look] * 3])
        self.assertTrue(moves and found)
        others = ["example", "people", "x", "y", "z"]
        missed = [names for names in found if names != sorted(wanted + others)]
        self.assertEqual(missed, [], f"of {len(found)} searches while there were {len(moves)} moves")
        self.expect_whole(server)

    def test_two_servers_on_one_database(self):
        """Each sees at once what the other one has changed, though it had it in its cache."""
        first = self.server(people=5)
        second = self.server(name="second", data=first.data)
        with first.client() as one, second.client() as two:
            for number in range(40):
                # (What has just changed is not cached; what was read meanwhile is.)
                for client in (one, two) * 3:
                    client.entries(SUFFIX)
                if number % 10 == 0:
                    time.sleep(0.05)
                writer, reader = (one, two) if number % 2 else (two, one)
                code = writer.ask(modify(person(number % 5), [(REPLACE, "description", [f"note {number}"])]))
                self.assertEqual(code, SUCCESS)
                seen = reader.entries(person(number % 5))[person(number % 5)]
                self.assertEqual(seen["description"], [f"note {number}"])
            self.assertEqual(one.ask(delete(person(4))), SUCCESS)
            self.assertEqual(two.ask(search(person(4))), NO_SUCH_OBJECT)

    def test_what_others_change_is_found_at_once(self):
        """By plain calls, in each way that there is, though searches have found the same again and again."""
        server = self.server(people=3)
        people = server.data / "dc=example" / "ou=people"
        file = people / "cn=person 1.ldif"
        whole = {PEOPLE, *(person(n) for n in range(3))}

        def found(client):
            return client.entries(PEOPLE)

        def with_note(note):
            return re.sub("description: .*", f"description: {note}", file.read_text())

        def in_place():
            file.write_text(with_note("in place"))

        def replaced():
            (server.directory / "new").write_text(with_note("replaced"))
            (server.directory / "new").rename(file)

        def by_another_name():
            (server.directory / "other").hardlink_to(file)
            # What was found before is kept for a second; then that it has two names is seen.
            time.sleep(1.1)
            with server.client() as client:
                for _ in range(4):
                    found(client)
            (server.directory / "other").write_text(with_note("by another name"))

        def its_directory():
            shutil.copytree(people, server.directory / "copy")
            people.rename(server.directory / "away")
            (server.directory / "copy").rename(people)
            file.write_text(with_note("its directory"))

        def the_database():
            shutil.copytree(server.data, server.directory / "copied")
            server.data.rename(server.directory / "before")
            (server.directory / "copied").rename(server.data)
            file.write_text(with_note("the database"))

        with server.client() as client:
            for change in (in_place, replaced, by_another_name, its_directory, the_database):
                # (What has just changed is not cached.)
                time.sleep(0.05)
                for _ in range(4):
                    self.assertEqual(set(found(client)), whole)
                change()
                for _ in range(4):
                    self.assertEqual(found(client)[person(1)]["description"], [change.__name__.replace("_", " ")])
                    time.sleep(0.02)
                for path, without in ((file, {person(1)}), (people, whole - {PEOPLE})):
                    path.rename(server.directory / "aside")
                    self.assertEqual(set(found(client)), whole - without)
                    (server.directory / "aside").rename(path)
                    self.assertEqual(set(found(client)), whole)
            people.with_suffix(".ldif").unlink()
            self.assertEqual(client.ask(search(PEOPLE, SUBTREE)), NO_SUCH_OBJECT)

    def test_no_search_finds_what_was_before_its_beginning(self):
        """Others replace an entry's file and write into another one; clients search meanwhile, more often than they change."""
        server = self.server(people=3)
        people = server.data / "dc=example" / "ou=people"
        changed, stop, seen = [0, 0], threading.Event(), set()

        def change():
            try:
                for number in range(1, 301):
                    for which in range(2):
                        file = people / f"cn=person {which}.ldif"
                        text = re.sub("description: .*", f"description: {number:06}", file.read_text())
                        if which == 0:
                            (server.directory / "new").write_text(text)
                            (server.directory / "new").rename(file)
                        else:
                            with open(file, "r+") as opened:
                                opened.write(text)
                        changed[which] = number
                    # Now and then it is old enough to be cached.
                    time.sleep(0.03 if number % 10 == 0 else 0.001)
            finally:
                stop.set()

        def look(base):
            with server.client() as client:
                while not stop.is_set():
                    before = list(changed)
                    found = client.entries(base)
                    for which in range(2):
                        if person(which) in found:
                            number = int(found[person(which)]["description"][0])
                            self.assertGreaterEqual(number, before[which])
                            seen.add(number)

        with server.client() as client:
            for number in range(2):
                code = client.ask(modify(person(number), [(REPLACE, "description", ["000000"])]))
                self.assertEqual(code, SUCCESS)
        at_once([change, *(functools.partial(look, base) for base in (PEOPLE, person(0), person(1)))])
        self.assertGreater(len(seen), 30)

    def test_killed(self):
        """What was acknowledged is there, and nothing is half there."""
        rounds = 25 if LONG else 6
        chance = random.Random(int(os.environ.get("TXOS_TEST_SEED", "1")))
        server = self.server()
        there = {}
        for turn in range(rounds):
            wanted = 3 + chance.randrange(25)
            lists = [self.hammer(server, f"{turn} {who}", there) for who in range(4)]
            threads, changes = [thread for thread, _ in lists], [done for _, done in lists]
            until = time.monotonic() + 60
            while sum(map(len, changes)) < wanted and time.monotonic() < until:
                time.sleep(chance.random() / 1000)
            server.kill()
            for thread in threads:
                thread.join()
            for done in changes:
                there.update(done)
            server.start()
            with server.client() as client:
                found = client.entries(PEOPLE)
            for name, note in there.items():
                if note is None:
                    self.assertNotIn(person(name), found)
                else:
                    self.assertEqual(found.get(person(name), {}).get("description"), [note], name)
            # At most the one change that each client was waiting for.
            unknown = len(found) - 1 - sum(note is not None for note in there.values())
            self.assertLessEqual(abs(unknown), 4 * (turn + 1))
            self.expect_whole(server)

    def hammer(self, server, prefix, there):
        """Adds, changes and deletes until the server is gone; gives what was acknowledged."""
        done = {}

        def work():
            try:
                with server.client() as client:
                    for number in range(10_000):
                        name = f"{prefix} {number}"
                        for request, note in (
                            (add(person(name), attributes(name, "first")), "first"),
                            (modify(person(name), [(REPLACE, "description", ["second"])]), "second"),
                            (delete(person(name)), None),
                        )[: 1 + number % 3]:
                            # Until the answer comes it may be there or not.
                            before = done.pop(name, None)
                            code = client.insist(request)
                            if code != SUCCESS:
                                raise AssertionError(f"{name}: {code} after {before}")
                            done[name] = note
            except OSError:
                pass  # it was killed

        thread = threading.Thread(target=work)
        thread.start()
        return thread, done

    @unittest.skipUnless("TXOS_TEST_SMALL" in os.environ, "no small file system")
    def test_a_full_disk(self):
        small = Path(os.environ["TXOS_TEST_SMALL"])
        server = Server(self.dir / "full", data=small / "data")
        self.addCleanup(server.kill)
        server.start()
        server.fill(2)
        kept, code = [], SUCCESS
        with server.client() as client:
            while code == SUCCESS and len(kept) < 1000:
                name = f"big {len(kept)}"
                code = client.ask(add(person(name), attributes(name, "x" * 200_000)))
                if code == SUCCESS:
                    kept.append(person(name))
            self.assertEqual(code, 80)
            self.assertGreater(len(kept), 3)
            found = client.entries(PEOPLE)
            self.assertEqual(set(found), {PEOPLE, person(0), person(1), *kept})
            self.expect_whole(server)
            (small / "ballast").unlink()
            self.assertEqual(client.ask(add(person("small"), attributes("small"))), SUCCESS)
        self.expect_whole(server)
