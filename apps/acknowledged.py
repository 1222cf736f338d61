"""What a load asks of a server and what is acknowledged, told line by line, so that it can be asked for after a power cut.

A line is a JSON object: ``{"client": N, "asks": {name: value}}`` before a request that makes these values of the client's own, or takes
those that are ``None`` away, and ``{"client": N}``, with whatever else there is to tell, after its answer."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable

_lock = threading.Lock()


def tell(line: dict) -> None:
    """Writes a line, and goes on when one has come back."""
    with _lock:
        print(json.dumps(line), flush=True)
        sys.stdin.readline()


def told() -> list[dict]:
    """The lines there were before the cut."""
    return [json.loads(line) for line in sys.stdin]


def at_once(bodies: list[Callable[[], None]]) -> None:
    """Runs each in a thread; raises what one has raised."""
    failed: list[BaseException] = []

    def run(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def may_be_there(lines: list[dict], clients: int) -> list[list[dict]]:
    """For each client what may be there: what was acknowledged, and that with the request that was not answered yet."""
    all_states: list[list[dict]] = [[{}] for _ in range(clients)]
    for line in lines:
        states = all_states[line["client"]]
        if "asks" not in line:
            del states[0]
            continue
        changed = states[0] | line["asks"]
        states.append({name: value for name, value in changed.items() if value is not None})
    return all_states
