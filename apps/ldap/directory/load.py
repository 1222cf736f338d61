"""Several clients at once, each a process with a connection of its own, which sends what was encoded before."""

from __future__ import annotations

import os
import struct
import sys
import time

from .client import BUSY, SUBTREE, SUCCESS, add, delete, search
from .server import PEOPLE, Server, attributes, person


def requests(kind: str, client: int, count: int, *, people: int) -> list[bytes]:
    """What one client sends. ``people`` are there already; those that it adds and deletes are its own."""
    if kind == "single":
        return [search(person((number * 7919 + client * 31) % people)) for number in range(count)]
    if kind == "subtree":
        return [search(PEOPLE, SUBTREE) for _ in range(count)]
    own = [f"{client} {number}" for number in range(count)]
    if kind == "add":
        return [add(person(name), attributes(name)) for name in own]
    return [delete(person(name)) for name in own]


def run(server: Server, kind: str, *, clients: int, count: int, people: int) -> tuple[float, float]:
    """Operations in a second, and milliseconds of the server's processor time for each."""
    begin_read, begin_write = os.pipe()
    done_read, done_write = os.pipe()
    children = []
    for number in range(clients):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(begin_write)
                mine = requests(kind, number, count, people=people)
                with server.client() as client:
                    os.write(done_write, struct.pack("d", 0))
                    os.read(begin_read, 1)  # its end
                    for request in mine:
                        while (code := client.count(request)[0]) == BUSY:
                            pass
                        if code != SUCCESS:
                            raise RuntimeError(f"{kind}: {code}")
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        children.append(child)
    os.close(begin_read)
    os.close(done_write)
    ready = b""
    while len(ready) < 8 * clients:
        part = os.read(done_read, 8 * clients)
        if not part:
            break
        ready += part
    before, begun = server.cpu_s(), time.monotonic()
    os.close(begin_write)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    took, used = time.monotonic() - begun, server.cpu_s() - before
    os.close(done_read)
    if failed:
        raise RuntimeError(f"{kind}: {len(failed)} of {clients} clients failed")
    return clients * count / took, used * 1000 / (clients * count)
