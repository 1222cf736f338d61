"""The command line: serve, stop, load, bench, check."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
from pathlib import Path

from . import application, bench, load
from .database import Database
from .files import Files
from .server import Running, Server
from .storage import Storage

LOCK = "server.lock"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m wiki", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function, about: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=about)
        made.set_defaults(function=function)
        return made

    serving = command("serve", serve, "serve the wiki in a directory until SIGTERM")
    serving.add_argument("--host", default="127.0.0.1")
    serving.add_argument("--port", type=int, default=8080, help="0: any free one")
    serving.add_argument("--workers", type=int, default=4, help="processes")
    serving.add_argument("--background", action="store_true", help="print the address and go on in the background")
    checking = command("check", check, "look for pages, histories and index entries that do not agree")
    checking.add_argument("--acknowledged", type=Path, help="what the journal of a load says must be there")
    for made in (serving, checking):
        made.add_argument("directory", type=Path)
        made.add_argument("--storage", choices=("files", "sqlite"), default="files")
        made.add_argument("--no-transactions", action="store_true", help="files as they are: to see what breaks")
    stopping = command("stop", stop, "stop the server of a directory, and wait for the end of all its processes")
    stopping.add_argument("directory", type=Path)
    loading = command("load", make_load, "send requests, and print what came of it as JSON")
    loading.add_argument("url")
    loading.add_argument("--connections", type=int, default=4)
    loading.add_argument("--writes", type=int, default=10, help="share, in percent")
    loading.add_argument("--pages", type=int, default=100)
    loading.add_argument("--seconds", type=float, default=10)
    loading.add_argument("--seed", type=int, default=1)
    loading.add_argument("--journal", type=Path, help="a file for what was acknowledged")
    measuring = command("bench", measure, "measure files beside SQLite, in a directory that is empty")
    measuring.add_argument("directory", type=Path)
    measuring.add_argument("--connections", type=int, nargs="+", default=[1, 4, 16])
    measuring.add_argument("--writes", type=int, nargs="+", default=[0, 10, 50], help="shares, in percent")
    measuring.add_argument("--rounds", type=int, default=5)
    measuring.add_argument("--seconds", type=float, default=4)
    measuring.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    try:
        return arguments.function(arguments)
    except (OSError, Running) as error:
        print(f"wiki: {error}", file=sys.stderr)
        return 1


def storage(arguments: argparse.Namespace) -> Storage:
    if arguments.storage == "sqlite":
        return Database(arguments.directory)
    return Files(arguments.directory, transactions=not arguments.no_transactions)


def serve(arguments: argparse.Namespace) -> int:
    arguments.directory.mkdir(parents=True, exist_ok=True)
    kept = storage(arguments)
    server = Server(arguments.directory / LOCK, arguments.host, arguments.port)
    if arguments.background:
        told, ready = os.pipe()
        if os.fork():
            os.close(ready)
            if not os.read(told, 1):
                raise ChildProcessError("the server has ended; see server.log")
            print(server.url)
            return 0
        os.setsid()
        log = os.open(arguments.directory / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(file, number)
        server.announce()
        os.write(ready, b".")
        os.close(ready)
    else:
        server.announce()
        print(f"wiki: serving {arguments.directory} at {server.url}", file=sys.stderr)
    return 0 if server.serve(lambda: application.make(kept), arguments.workers) else 1


def stop(arguments: argparse.Namespace) -> int:
    with open(arguments.directory / LOCK, "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # It works, so its number is that of no other process. (If it was killed, its workers end by
            # themselves.)
            if told := lock.read().split():
                try:
                    os.kill(int(told[0]), signal.SIGTERM)
                except ProcessLookupError:
                    pass
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
    return 0


def make_load(arguments: argparse.Namespace) -> int:
    made = load.Load(
        arguments.url,
        connections=arguments.connections,
        writes=arguments.writes,
        pages=arguments.pages,
        seed=arguments.seed,
        journal=arguments.journal,
    )
    made.fill()
    print(json.dumps(made.run(arguments.seconds).summary()))
    return 0


def measure(arguments: argparse.Namespace) -> int:
    told = dict(vars(arguments))
    del told["function"]
    bench.measure(**told)
    return 0


def check(arguments: argparse.Namespace) -> int:
    kept = storage(arguments)
    problems = kept.check()
    if arguments.acknowledged:
        for name, number, digest in load.acknowledged(arguments.acknowledged):
            found = kept.revision(name, number)
            if found is None or load.digest(found.text) != digest:
                problems.append(f"{name}: revision {number} was acknowledged and is not there")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
