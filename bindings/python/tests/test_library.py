"""The standard library within a transaction: all of it is published, and none of it."""

import json
import os
import pathlib
import shutil
import sqlite3
import tempfile
import unittest
import zipfile

import txos
from tests.place import InPlace


class Rollback(Exception):
    """Raised to abort."""


class Library(InPlace):
    def setUp(self):
        super().setUp()
        self.before = self.dir / "before"
        self.before.mkdir()
        (self.before / "one").write_text("1\n")
        (self.before / "two").write_text("2\n")
        (self.before / "link").symlink_to("one")
        # Both sides of each comparison are looked at in another process.
        self.state = "find . -printf '%p %y %m %l\\n' | sort; cat before/* 2>/dev/null; true"

    def check(self, work):
        """Does it in a transaction that aborts, then in one that commits; then natively elsewhere."""
        untouched = self.outsider(self.state)
        with self.assertRaises(Rollback):
            with txos.transaction():
                work(self.dir)
                raise Rollback
        self.assertEqual(self.outsider(self.state), untouched)
        self.assertEqual(os.listdir(self.dir), ["before"])
        native = pathlib.Path(tempfile.mkdtemp(prefix="txos-test-", dir=self.dir.parent))
        try:
            shutil.copytree(self.before, native / "before", symlinks=True)
            shutil.copymode(self.dir, native)
            work(native)
            expected = self.outsider(f"cd {native}; {self.state}")
        finally:
            shutil.rmtree(native)
        with txos.transaction(durable=False):
            work(self.dir)
        self.assertEqual(self.outsider(self.state), expected)
        self.assertNotEqual(expected, untouched)

    def test_open(self):
        def work(top):
            with open(top / "new", "w") as file:
                file.write("a\n" * 10_000)
            with open(top / "before/one", "r+b") as file:
                file.seek(1)
                file.write(b"x\n")
                file.truncate()
            with open(top / "before/two", "a") as file:
                file.write("more\n")
            with open(top / "new") as file:
                assert sum(1 for _ in file) == 10_000

        self.check(work)

    def test_os(self):
        def work(top):
            os.makedirs(top / "a/b/c")
            os.rename(top / "before/one", top / "a/b/c/uno")
            os.replace(top / "before/two", top / "a/two")
            os.link(top / "a/two", top / "a/deux")
            os.symlink("nowhere", top / "dangling")
            os.chmod(top / "a/two", 0o600)
            os.utime(top / "a/two", (1, 2))
            os.mkfifo(top / "fifo")
            names = [name for _, dirs, files in os.walk(top) for name in dirs + files]
            assert sorted(names) == sorted(
                ["a", "b", "before", "c", "dangling", "deux", "fifo", "link", "two", "uno"]
            ), names
            assert os.stat(top / "a/two").st_mtime == 2
            assert os.stat(top / "a/two").st_nlink == 2

        self.check(work)

    def test_pathlib(self):
        def work(top):
            (top / "tree" / "deep").mkdir(parents=True)
            (top / "tree" / "deep" / "leaf.txt").write_bytes(b"leaf")
            (top / "tree" / "other.txt").touch()
            (top / "before" / "link").unlink()
            (top / "before" / "two").rename(top / "moved")
            assert sorted(p.name for p in top.rglob("*.txt")) == ["leaf.txt", "other.txt"]
            assert (top / "moved").resolve().is_file()
            assert not (top / "before" / "two").exists()

        self.check(work)

    def test_shutil(self):
        def work(top):
            shutil.copytree(top / "before", top / "copy", symlinks=True)
            shutil.move(top / "copy", top / "moved")
            shutil.rmtree(top / "before")
            shutil.copy2(top / "moved/one", top / "again")
            with zipfile.ZipFile(top / "zip", "w") as archive:
                archive.write(top / "moved/two", "two")
            shutil.unpack_archive(top / "zip", top / "unpacked", "zip")
            (top / "zip").unlink()

        self.check(work)

    def test_json(self):
        def work(top):
            for name, value in (("a", 1), ("b", [1, {"c": None}])):
                with open(top / f"{name}.json", "w") as file:
                    json.dump(value, file)
            with open(top / "b.json") as file:
                assert json.load(file) == [1, {"c": None}]

        self.check(work)

    def test_tempfile(self):
        def work(top):
            with tempfile.TemporaryDirectory(dir=top) as scratch:
                pathlib.Path(scratch, "gone").write_text("gone")
            with tempfile.TemporaryFile(dir=top) as file:
                file.write(b"gone")
            with tempfile.NamedTemporaryFile("w", dir=top, delete=False) as file:
                file.write("kept\n")
            os.replace(file.name, top / "kept")

        self.check(work)

    def test_sqlite(self):
        path = self.dir / "db"

        def connect():
            connection = sqlite3.connect(path)
            self.addCleanup(connection.close)
            return connection

        def rows():
            connection = connect()
            found = connection.execute("SELECT name FROM people ORDER BY name").fetchall()
            connection.close()
            return [name for (name,) in found]

        def insert(name):
            connection = connect()
            with connection:
                connection.execute("INSERT INTO people VALUES (?)", (name,))
            connection.close()

        with txos.transaction():
            connection = connect()
            with connection:
                connection.execute("CREATE TABLE people (name TEXT)")
            connection.close()
            insert("Ada")
        self.assertEqual(rows(), ["Ada"])
        # A database and a file, together or not at all.
        with self.assertRaises(Rollback):
            with txos.transaction():
                insert("Bob")
                self.file.write_text("Bob\n")
                self.assertEqual(rows(), ["Ada", "Bob"])
                raise Rollback
        self.assertEqual((rows(), self.file.exists()), (["Ada"], False))
        with txos.transaction():
            insert("Bob")
            self.file.write_text("Bob\n")
        self.assertEqual((rows(), self.file.exists()), (["Ada", "Bob"], True))
        self.assertEqual(sorted(os.listdir(self.dir)), ["before", "db", "file"])


if __name__ == "__main__":
    unittest.main()
