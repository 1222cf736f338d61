"""Pages in flat files, as an author would write it who had the machine alone: no lock, no temporary file, no
rename, no flush.

| file | what |
|---|---|
| `pages/NAME` | the latest revision |
| `history/NAME.NUMBER` | each revision, also the latest |
| `words/XX` | for each word that begins with these two letters, a line: the word and the pages that have it |

A request must be one transaction, or it leaves pages half saved and an index that lies: :meth:`Files.wrap`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .storage import EditConflict, Revision, check_history, check_name, words_of

FIELDS = ("number", "time", "author", "comment")


class Files:
    """A storage in a directory, which is made if it is not there."""

    def __init__(self, directory: str | os.PathLike[str], *, transactions: bool = True) -> None:
        self._transactions = transactions
        self._pages, self._history, self._words = (
            Path(directory) / name for name in ("pages", "history", "words")
        )
        for path in (self._pages, self._history, self._words):
            path.mkdir(parents=True, exist_ok=True)

    def latest(self, name: str) -> Revision | None:
        return _read(self._pages / check_name(name), name)

    def revision(self, name: str, number: int) -> Revision | None:
        return _read(self._history / f"{check_name(name)}.{number}", name)

    def history(self, name: str) -> list[Revision]:
        latest = self.latest(name)
        numbers = range(latest.number, 0, -1) if latest else ()
        found = (self.revision(name, number) for number in numbers)
        return [revision for revision in found if revision]

    def save(self, name: str, base: int, text: str, author: str, comment: str, time: int) -> Revision:
        current = self.latest(name)
        if base != (current.number if current else 0):
            raise EditConflict(current)
        new = Revision(name, base + 1, author, comment, time, text)
        _write(self._history / f"{name}.{new.number}", new)
        _write(self._pages / name, new)
        before = words_of(name, current.text) if current and current.text else set()
        after = words_of(name, text) if text else set()
        self._index(name, before - after, after - before)
        return new

    def pages(self) -> list[Revision]:
        found = (self.latest(name) for name in os.listdir(self._pages))
        return sorted((r for r in found if r and r.text), key=lambda r: (-r.time, r.name))

    def search(self, words: Iterable[str]) -> list[str]:
        sets = [set(self._bucket(word[:2]).get(word, ())) for word in words]
        return sorted(set.intersection(*sets)) if sets else []

    def check(self) -> list[str]:
        if not self._transactions:
            return self._check()
        import txos

        return txos.run(self._check, retry=None, durable=False)

    def _check(self) -> list[str]:
        problems, indexed, histories = [], {}, set()
        for name in sorted(os.listdir(self._pages)):
            try:
                latest = self.latest(name)
                problems += check_history(latest, self.history(name))
            except ValueError as error:
                problems.append(f"{name}: {error}")
                continue
            histories |= {f"{name}.{number}" for number in range(1, latest.number + 1)}
            for word in words_of(name, latest.text) if latest.text else ():
                indexed.setdefault(word, set()).add(name)
        for left in sorted(set(os.listdir(self._history)) - histories):
            problems.append(f"{left}: a revision that no page has")
        found = {}
        for bucket in os.listdir(self._words):
            found.update({word: set(names) for word, names in self._bucket(bucket).items()})
        for word in sorted(set(found) | set(indexed)):
            if found.get(word) != indexed.get(word):
                problems.append(
                    f"{word}: the index has {sorted(found.get(word, ()))}, not {sorted(indexed.get(word, ()))}"
                )
        return problems

    def wrap(self, application, **settings):
        if not self._transactions:
            return application
        # What makes a request a transaction:
        import txos.wsgi

        return txos.wsgi.Transactions(application, **settings)

    def _bucket(self, start: str) -> dict[str, list[str]]:
        try:
            lines = (self._words / start).read_bytes().decode().splitlines()
        except FileNotFoundError:
            return {}
        return {word: names for word, *names in (line.split("/") for line in lines)}

    def _index(self, name: str, gone: set[str], new: set[str]) -> None:
        for start in sorted({word[:2] for word in gone | new}):
            bucket = self._bucket(start)
            for word in gone:
                if word[:2] == start and name in bucket.get(word, ()):
                    bucket[word].remove(name)
            for word in new:
                if word[:2] == start and name not in bucket.setdefault(word, []):
                    bucket[word].append(name)
            lines = ("/".join([word, *names]) + "\n" for word, names in sorted(bucket.items()) if names)
            (self._words / start).write_bytes("".join(lines).encode())


def _read(path: Path, name: str) -> Revision | None:
    try:
        head, _, text = path.read_bytes().decode().partition("\n\n")
    except FileNotFoundError:
        return None
    fields = dict(line.partition(": ")[::2] for line in head.split("\n"))
    try:
        number, time = int(fields["number"]), int(fields["time"])
        return Revision(name, number, fields["author"], fields["comment"], time, text)
    except (KeyError, ValueError):
        raise ValueError(f"{path} is no revision of a page") from None


def _write(path: Path, revision: Revision) -> None:
    head = "".join(f"{field}: {getattr(revision, field)}\n" for field in FIELDS)
    path.write_bytes(f"{head}\n{revision.text}".encode())
