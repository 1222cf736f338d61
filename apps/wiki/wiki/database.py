"""The same in SQLite: what an author takes today to get isolation and durability."""

from __future__ import annotations

import io
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from .storage import EditConflict, Revision, check_history, check_name, number_up_to, words_of

SCHEMA = """
CREATE TABLE IF NOT EXISTS revision (
    name TEXT NOT NULL, number INTEGER NOT NULL, author TEXT NOT NULL, comment TEXT NOT NULL,
    time INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (name, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS page (name TEXT PRIMARY KEY, latest INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS word (word TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (word, name)) WITHOUT ROWID;
"""
COLUMNS = "r.name, r.number, r.author, r.comment, r.time, r.text"
LATEST = f"SELECT {COLUMNS} FROM page JOIN revision r ON r.name = page.name AND r.number = page.latest"
#: How long a request waits for another one's lock, in seconds.
WAIT_S = 10


class Database:
    """A storage in `wiki.sqlite` in a directory, which is made if it is not there."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        self._path = Path(directory) / "wiki.sqlite"
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._db.executescript(SCHEMA)
        self._connection.close()
        self._connection = None

    @property
    def _db(self) -> sqlite3.Connection:
        """The connection of this process: one must not be taken along into a child."""
        if self._connection is None or self._process != os.getpid():
            self._connection = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)
            self._process = os.getpid()
            # Durable, as the transactions of the other storage are.
            self._connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
        return self._connection

    def latest(self, name: str) -> Revision | None:
        return self._one(f"{LATEST} WHERE page.name = ?", check_name(name))

    def revision(self, name: str, number: int) -> Revision | None:
        query = f"SELECT {COLUMNS} FROM revision r WHERE name = ? AND number = ?"
        return self._one(query, check_name(name), number)

    def history(self, name: str) -> list[Revision]:
        query = f"SELECT {COLUMNS} FROM revision r WHERE name = ? ORDER BY number DESC"
        return [Revision(*row) for row in self._db.execute(query, (check_name(name),))]

    def save(self, name: str, base: int, text: str, author: str, comment: str, time: int) -> Revision:
        current = self.latest(name)
        if base != (current.number if current else 0):
            raise EditConflict(current)
        new = Revision(name, base + 1, author, comment, time, text)
        insert = "INSERT INTO revision (name, number, author, comment, time, text) VALUES (?, ?, ?, ?, ?, ?)"
        self._db.execute(insert, (name, new.number, author, comment, time, text))
        self._db.execute("INSERT OR REPLACE INTO page VALUES (?, ?)", (name, new.number))
        before = words_of(name, current.text) if current and current.text else set()
        after = words_of(name, text) if text else set()
        rows = [(word, name) for word in sorted(before - after)]
        self._db.executemany("DELETE FROM word WHERE word = ? AND name = ?", rows)
        rows = [(word, name) for word in sorted(after - before)]
        self._db.executemany("INSERT INTO word VALUES (?, ?)", rows)
        return new

    def pages(self) -> list[Revision]:
        rows = self._db.execute(f"{LATEST} WHERE r.text != '' ORDER BY r.time DESC, r.name")
        return [Revision(*row) for row in rows]

    def search(self, words: Iterable[str]) -> list[str]:
        query = "SELECT name FROM word WHERE word = ?"
        sets = [{name for (name,) in self._db.execute(query, (word,))} for word in words]
        return sorted(set.intersection(*sets)) if sets else []

    def check(self) -> list[str]:
        problems = [f"sqlite: {row[0]}" for row in self._db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        indexed = set()
        for (name,) in self._db.execute("SELECT name FROM page ORDER BY name").fetchall():
            latest = self.latest(name)
            problems += check_history(latest, self.history(name))
            indexed |= {(word, name) for word in (words_of(name, latest.text) if latest.text else ())}
        found = set(self._db.execute("SELECT word, name FROM word"))
        problems += [f"{word}: the index is wrong about {name}" for word, name in sorted(found ^ indexed)]
        return problems

    def _one(self, query: str, *values) -> Revision | None:
        row = self._db.execute(query, values).fetchone()
        return Revision(*row) if row else None

    def wrap(self, application, **settings):
        return _Requests(application, self, **settings)


class _Requests:
    """Each request is a transaction of the database."""

    def __init__(self, application, storage: Database, *, max_body: int, refusal) -> None:
        self._application, self._storage = application, storage
        self._max_body, self._refusal = max_body, refusal

    def __call__(self, environ, start_response):
        told = environ.get("CONTENT_LENGTH") or "0"
        is_number = told.isascii() and told.isdigit()
        length = number_up_to(told, self._max_body) if is_number else None
        if length is not None:
            # A slow client is not to hold the lock. (What is wrong with a body, the application says.)
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        db = self._storage._db
        reads = environ["REQUEST_METHOD"] in ("GET", "HEAD")
        answer = []
        try:
            db.execute("BEGIN" if reads else "BEGIN IMMEDIATE")
            body = list(self._application(environ, lambda *begun: answer.extend(begun)))
            db.execute("COMMIT" if answer[0] < "5" else "ROLLBACK")
        except sqlite3.OperationalError as error:
            *answer, refused = self._refusal(environ, error)
            body = [refused]
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        start_response(*answer)
        return body
