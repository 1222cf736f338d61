"""A load generator: so many connections, each with one request after the other, for so long.

Reads look at a page, and every tenth searches. Writes save a page with a few other words, from the revision
that this program saw last; where another client was faster, the answer is 409, and the next write begins with
the revision that the answer names.
"""

from __future__ import annotations

import hashlib
import random
import resource
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

#: How long an answer may take, in seconds.
ANSWER_WAIT_S = 60
VOCABULARY = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "nu", "so") for b in ("ran", "del", "tiv", "mop") for c in "aeiouy"]


@dataclass
class Result:
    """What came of it."""

    seconds: float = 0.0
    #: Answers by status; 0: a connection that was cut.
    statuses: Counter = field(default_factory=Counter)
    #: Milliseconds of each answered request, by kind.
    reads_ms: list[float] = field(default_factory=list)
    writes_ms: list[float] = field(default_factory=list)
    #: Processor time of this program, in seconds.
    own_cpu_s: float = 0.0

    def summary(self) -> dict:
        answered = sum(count for status, count in self.statuses.items() if status in (200, 303))
        return {
            "per_s": round(answered / self.seconds, 1),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "read_ms_median": _median(self.reads_ms),
            "write_ms_median": _median(self.writes_ms),
            "client_cpu_s": round(self.own_cpu_s, 2),
        }


class Load:
    """``writes``: the share of writes, in percent. ``pages`` are `Page-0`, `Page-1`, …

    ``journal``: a file that gets a line for each edit that was acknowledged: page, revision, digest of the
    text. ``stop``: ends it before its time.
    """

    def __init__(self, url: str, *, connections: int, writes: int, pages: int, seed: int, journal: Path | None = None) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname, parts.port)
        self.connections, self.writes, self.pages, self.seed = connections, writes, pages, seed
        self.stop = threading.Event()
        self._journal = open(journal, "a", buffering=1) if journal else None
        self._lock = threading.Lock()

    def close(self) -> None:
        if self._journal:
            self._journal.close()

    def fill(self) -> None:
        """Makes the pages."""
        chance = random.Random(self.seed)
        for number in range(self.pages):
            name = f"Page-{number}"
            status, revision = self._look(name)
            if status == 404 and self._save(name, revision, _text(chance))[0] != 303:
                raise RuntimeError(f"{name} could not be made")

    def run(self, seconds: float) -> Result:
        result = Result()
        before, begun = _cpu(), time.monotonic()
        until = begun + seconds
        threads = [
            threading.Thread(target=self._one, args=(random.Random(f"{self.seed} {n}"), until, result))
            for n in range(self.connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        result.seconds = time.monotonic() - begun
        result.own_cpu_s = _cpu() - before
        return result

    def _one(self, chance: random.Random, until: float, result: Result) -> None:
        known: dict[str, int] = {}
        while time.monotonic() < until and not self.stop.is_set():
            name = f"Page-{chance.randrange(self.pages)}"
            begun = time.monotonic()
            write = chance.randrange(100) < self.writes
            try:
                if write:
                    if name not in known:
                        known[name] = self._look(name)[1]
                        begun = time.monotonic()
                    status, known[name] = self._save(name, known[name], _text(chance))
                elif chance.randrange(10) == 0:
                    status = self.ask("GET", f"/search?q={chance.choice(VOCABULARY)}")[0]
                else:
                    status, known[name] = self._look(name)
            except (OSError, ValueError):
                # Whether it was saved is not known.
                known.pop(name, None)
                status = 0
            took_ms = (time.monotonic() - begun) * 1000
            with self._lock:
                result.statuses[status] += 1
                if status in (200, 303):
                    (result.writes_ms if write else result.reads_ms).append(took_ms)

    def _look(self, name: str) -> tuple[int, int]:
        status, headers, _ = self.ask("GET", f"/page/{quote(name, safe='')}")
        return status, _revision(headers)

    def _save(self, name: str, base: int, text: str) -> tuple[int, int]:
        form = urlencode({"base": base, "text": text, "author": "load", "comment": "more words"})
        status, headers, _ = self.ask("POST", f"/edit/{quote(name, safe='')}", form.encode())
        if status == 303 and self._journal:
            self._journal.write(f"{name} {_revision(headers)} {digest(text)}\n")
        return status, _revision(headers) if status in (303, 409) else base

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        """One request: status, headers in small letters, body."""
        with socket.create_connection(self.address, timeout=ANSWER_WAIT_S) as connection:
            head = f"{method} {path} HTTP/1.0\r\nHost: {self.address[0]}\r\n"
            if body:
                head += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n"
            connection.sendall(f"{head}\r\n".encode() + body)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
        head, end, content = b"".join(parts).partition(b"\r\n\r\n")
        if not end:
            raise ValueError("the answer was cut")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if method != "HEAD" and len(content) != int(headers.get("content-length", len(content))):
            raise ValueError("the answer was cut")
        return int(first.split(" ")[1]), headers, content


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def acknowledged(journal: Path) -> list[tuple[str, int, str]]:
    """The whole lines of a journal."""
    whole = journal.read_text().rpartition("\n")[0].splitlines() if journal.exists() else []
    return [(name, int(number), digest) for name, number, digest in map(str.split, whole)]


def _revision(headers: dict[str, str]) -> int:
    return int(headers.get("etag", '"0"').strip('"'))


def _text(chance: random.Random) -> str:
    """Two kilobytes, of which most are the same each time."""
    words = " ".join(chance.sample(VOCABULARY, 4))
    lines = [f"Line {number} of a page as long as pages are, about nothing." for number in range(36)]
    return f"= About {words} =\n\n" + "\n".join(lines) + f"\n\n* {chance.getrandbits(64):x}\n"


def _median(values: list[float]) -> float | None:
    return round(sorted(values)[len(values) // 2], 2) if values else None


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
