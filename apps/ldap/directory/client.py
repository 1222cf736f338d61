"""As much of LDAP (RFC 4511) as tests and loads need: requests as bytes, results as numbers."""

from __future__ import annotations

import socket
from pathlib import Path

SUCCESS, NO_SUCH_ATTRIBUTE, NO_SUCH_OBJECT, NOT_ALLOWED_ON_NONLEAF, ENTRY_EXISTS, BUSY = 0, 16, 32, 66, 68, 51
BASE, ONE, SUBTREE = 0, 1, 2
ADD, DELETE, REPLACE = 0, 1, 2
#: Time in which a server must answer, in seconds.
ANSWER_WAIT_S = 90

Attributes = dict[str, list[str]]


def element(tag: int, content: bytes) -> bytes:
    """A BER element with its length."""
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 128 | len(length))) + length + content


def text(value: str, tag: int = 0x04) -> bytes:
    return element(tag, value.encode())


def number(value: int, tag: int = 0x02) -> bytes:
    return element(tag, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _attribute(name: str, values: list[str]) -> bytes:
    return element(0x30, text(name) + element(0x31, b"".join(map(text, values))))


def add(dn: str, attributes: Attributes) -> bytes:
    return element(0x68, text(dn) + element(0x30, b"".join(_attribute(*pair) for pair in attributes.items())))


def delete(dn: str) -> bytes:
    return text(dn, 0x4A)


def modify(dn: str, changes: list[tuple[int, str, list[str]]]) -> bytes:
    """``changes``: what to do (:data:`ADD`, …), attribute, values."""
    parts = (element(0x30, number(how, 0x0A) + _attribute(name, values)) for how, name, values in changes)
    return element(0x66, text(dn) + element(0x30, b"".join(parts)))


def rename(dn: str, rdn: str, superior: str | None = None) -> bytes:
    below = text(superior, 0x80) if superior is not None else b""
    return element(0x6C, text(dn) + text(rdn) + element(0x01, b"\xff") + below)


def search(base: str, scope: int = BASE) -> bytes:
    limits = number(0) + number(0) + element(0x01, b"\0")
    present = text("objectClass", 0x87)
    return element(0x63, text(base) + number(scope, 0x0A) + number(0, 0x0A) + limits + present + element(0x30, b""))


class Client:
    """One connection; requests one after the other."""

    def __init__(self, path: Path, dn: str | None = None, password: str = "") -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_WAIT_S)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._rest = b""
        self._number = 0
        if dn is not None and (code := self.ask(element(0x60, number(3) + text(dn) + text(password, 0x80)))):
            raise RuntimeError(f"bind: {code}")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> int:
        """The result of a request."""
        return self.result(request)[0]

    def insist(self, request: bytes) -> int:
        """As :meth:`ask`, again and again while the server is busy with what others do to the same."""
        while (code := self.ask(request)) == BUSY:
            pass
        return code

    def result(self, request: bytes) -> tuple[int, list[tuple[str, Attributes]]]:
        """The result of a request, and the entries that came with it."""
        self._number += 1
        self._socket.sendall(element(0x30, number(self._number) + request))
        entries = []
        while True:
            _, message = self._element()
            _, _, rest = split(message)
            tag, content, _ = split(rest)
            if tag == 0x64:
                entries.append(_entry(content))
            elif tag == 0x78:
                raise ConnectionError("the server closes the connection")
            elif tag != 0x73:
                return split(content)[1][0], entries

    def count(self, request: bytes) -> tuple[int, int]:
        """As :meth:`result`, but the entries are only counted."""
        self._number += 1
        self._socket.sendall(element(0x30, number(self._number) + request))
        found = -1
        tag = 0x64
        while tag in (0x64, 0x73):
            _, message = self._element()
            tag, content, _ = split(split(message)[2])
            found += 1
        return split(content)[1][0], found

    def entries(self, base: str, scope: int = SUBTREE) -> dict[str, Attributes]:
        code, found = BUSY, []
        while code == BUSY:
            code, found = self.result(search(base, scope))
        if code not in (SUCCESS, NO_SUCH_OBJECT):
            raise RuntimeError(f"search: {code}")
        return dict(found)

    def _element(self) -> tuple[int, bytes]:
        while True:
            try:
                tag, content, self._rest = split(self._rest)
                return tag, content
            except IndexError:
                part = self._socket.recv(65536)
                if not part:
                    raise ConnectionError("the server is gone") from None
                self._rest += part


def split(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag, content, and what follows; IndexError if it is not whole."""
    size, at = data[1], 2
    if size >= 128:
        at += size - 128
        if len(data) < at:
            raise IndexError
        size = int.from_bytes(data[2:at], "big")
    if len(data) < at + size:
        raise IndexError
    return data[0], data[at : at + size], data[at + size :]


def _entry(content: bytes) -> tuple[str, Attributes]:
    _, dn, rest = split(content)
    _, listed, _ = split(rest)
    attributes = {}
    while listed:
        _, pair, listed = split(listed)
        _, name, values = split(pair)
        _, values, _ = split(values)
        found = []
        while values:
            _, value, values = split(values)
            found.append(value.decode())
        attributes[name.decode()] = found
    return dn.decode(), attributes
