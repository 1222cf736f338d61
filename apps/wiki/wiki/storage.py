"""What a storage does. The application knows no more of it than this."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

#: The longest name of a page, in bytes of UTF-8: it is a name of a file, with a number behind it.
NAME_BYTES_MAX = 100
#: The longest text of a page, in bytes of UTF-8.
TEXT_BYTES_MAX = 256 * 1024
#: Words of fewer letters are not searched for.
WORD_LETTERS_MIN = 3
#: Longer words are cut.
WORD_LETTERS_MAX = 40


@dataclass(frozen=True)
class Revision:
    """A page as one edit left it. Revisions of a page count from 1; an empty text means a deleted page."""

    name: str
    number: int
    author: str
    comment: str
    #: Seconds since 1970.
    time: int
    text: str


class EditConflict(Exception):
    """An edit was made from a revision that is not the page's latest any more."""

    def __init__(self, current: Revision | None) -> None:
        super().__init__("the page was changed meanwhile")
        self.current = current


class BadName(ValueError):
    """No page can have this name."""


class Storage(Protocol):
    """Pages with their revisions, and a search index.

    A storage answers for one request at a time. What makes the calls of a request one operation, also among
    several processes, is what :meth:`wrap` puts around the application.
    """

    def latest(self, name: str) -> Revision | None:
        """The page as it is now; ``None`` if it never was."""

    def revision(self, name: str, number: int) -> Revision | None: ...

    def history(self, name: str) -> list[Revision]:
        """All revisions, the newest first."""

    def save(self, name: str, base: int, text: str, author: str, comment: str, time: int) -> Revision:
        """Adds a revision to the one with the number ``base`` (0: there is none), or raises
        :class:`EditConflict`."""

    def pages(self) -> list[Revision]:
        """The latest revision of every page that is not deleted, the newest edit first."""

    def search(self, words: Iterable[str]) -> list[str]:
        """Names of the pages that have all of these words."""

    def check(self) -> list[str]:
        """Everything that is half done or does not agree: none, if the storage keeps its promise."""

    def wrap(self, application: Callable, **settings) -> Callable:
        """The application with each request as one operation. ``refusal(environ, error)`` makes the answer
        to a request that could not be carried out."""


def number_up_to(digits: str, most: int) -> int | None:
    """The number that digits say, if it is at most that. Thousands of digits are no number to Python."""
    digits = digits.lstrip("0") or "0"
    is_short = len(digits) <= len(str(most))
    return int(digits) if is_short and int(digits) <= most else None


def check_name(name: str) -> str:
    """Gives the name, or raises :class:`BadName`."""
    if not name or name.startswith(".") or name != name.strip():
        raise BadName("a page's name does not begin with a dot or a space, nor end with a space")
    if any(c == "/" or not c.isprintable() for c in name):
        raise BadName("a page's name has printable characters only, and no slash")
    try:
        long = len(name.encode()) > NAME_BYTES_MAX
    except UnicodeEncodeError:
        raise BadName("a page's name is UTF-8") from None
    if long:
        raise BadName(f"a page's name has {NAME_BYTES_MAX} bytes at most")
    return name


def words_of(name: str, text: str) -> set[str]:
    """What a page is found by."""
    found = re.findall(r"\w+", f"{name} {text}".lower())
    return {word[:WORD_LETTERS_MAX] for word in found if len(word) >= WORD_LETTERS_MIN}


def one_line(text: str, letters_max: int = 200) -> str:
    """An author or comment, as it is kept."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:letters_max]


def check_history(latest: Revision, history: list[Revision]) -> list[str]:
    """What does not agree between a page and its history, the newest first."""
    numbers = [revision.number for revision in history]
    if numbers != list(range(latest.number, 0, -1)):
        return [f"{latest.name}: the latest revision is {latest.number}, the history has {numbers}"]
    if history[0] != latest:
        return [f"{latest.name}: revision {latest.number} is not what the history has of it"]
    return []
