"""Several clients at once on one mailbox, each a process with an imap process of its own."""

from __future__ import annotations

import os
import random
import struct
import sys
import time

from .server import Mail


def work(session, client: int, operations: int, writes: float, chance: random.Random) -> None:
    """Operations on messages at random, as in the paper: so many of them reads, the others half new messages, half deletions."""
    number = 0
    for _ in range(operations):
        uids = session.ask("uid", "SEARCH", "UNDELETED")[0].split()
        if uids and chance.random() >= writes:
            session.uid("FETCH", chance.choice(uids).decode(), "(FLAGS BODY.PEEK[])")
        elif uids and chance.random() < 0.5:
            # (Another client may have deleted it meanwhile.)
            session.uid("STORE", chance.choice(uids).decode(), "+FLAGS.SILENT", "(\\Deleted)")
            session.ask("expunge")
        else:
            session.put(f"new {client} {number}")
            number += 1


def run(mail: Mail, *, clients: int, operations: int, writes: float, seed: int = 1) -> tuple[float, float]:
    """Seconds until all are done, and the servers' processor time in seconds."""
    begin_read, begin_write = os.pipe()
    done_read, done_write = os.pipe()
    children = []
    for number in range(clients):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(begin_write)
                session = mail.session()
                session.ask("select", "INBOX")
                before = session.cpu_s()
                os.write(done_write, struct.pack("d", 0))
                os.read(begin_read, 1)  # its end
                work(session, number, operations, writes, random.Random(seed * 100 + number))
                os.write(done_write, struct.pack("d", session.cpu_s() - before))
                session.logout()
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        children.append(child)
    os.close(begin_read)
    os.close(done_write)
    with os.fdopen(done_read, "rb") as done:
        for _ in children:
            done.read(8)
        begun = time.monotonic()
        os.close(begin_write)
        used = [struct.unpack("d", part)[0] for part in iter(lambda: done.read(8), b"") if len(part) == 8]
        took = time.monotonic() - begun
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    if failed:
        raise RuntimeError(f"{len(failed)} of {clients} clients failed")
    return took, sum(used)
