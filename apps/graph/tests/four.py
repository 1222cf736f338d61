"""Replicas on this machine, and clients of theirs."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from urllib.error import URLError

#: How long a replica is waited for, in seconds; and one request, which has to be in a block.
PATIENCE = 120


def free_ports(count: int) -> int:
    """The first of so many ports of localhost that nobody has."""
    for first in range(21000 + os.getpid() % 4000, 60000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                taken = socket.socket()
                sockets.append(taken)
                taken.bind(("127.0.0.1", port))
            return first
        except OSError:
            pass
        finally:
            for taken in sockets:
                taken.close()
    raise RuntimeError("no free ports")


class Replicas:
    """So many replicas, in a directory."""

    def __init__(self, built: Path, directory: Path, count: int, kind: str, threads: str = "2"):
        self.built, self.directory, self.count, self.threads = built, directory, count, threads
        self.port = free_ports(2 * count)
        self.running: dict[int, subprocess.Popen] = {}
        subprocess.run(
            [built / "replica", "init", directory, str(count), str(self.port), kind, "1"], check=True, capture_output=True
        )

    def start(self, *numbers: int) -> None:
        for number in numbers:
            with open(self.directory / f"{number}.log", "ab") as log:
                self.running[number] = subprocess.Popen(
                    [self.built / "replica", "run", self.directory / str(number), self.built / "graph", self.threads],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )
        for number in numbers:
            self.wait(lambda: self.info(number), f"replica {number} does not answer")

    def wait(self, condition, what: str):
        """Waits until something is so."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                found = condition()
                if found:
                    return found
            except (URLError, OSError, KeyError, ValueError):
                pass
            time.sleep(0.05)
        logs = "".join(f"\n{log}:\n{log.read_text()[-2000:]}" for log in sorted(self.directory.glob("*.log")))
        raise AssertionError(what + logs)

    def call(self, number: int, method: str, timeout: float = 5, **parameters: str):
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port + 2 * number + 1}/{method}?{query}"
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return json.load(answer)["result"]

    def info(self, number: int) -> tuple[int, str]:
        """The height and the app hash, as the application has them."""
        response = self.call(number, "abci_info")["response"]
        return int(response.get("last_block_height", 0)), response.get("last_block_app_hash", "-")

    def request(self, number: int, word: str, text: str) -> tuple[int, str, int]:
        """Sends a request and waits for its block: a code, the answer, the height."""
        result = self.call(number, "broadcast_tx_commit", timeout=PATIENCE, tx=f'"{word} {text}"')
        if result["check_tx"].get("code", 0):
            return int(result["check_tx"]["code"]), result["check_tx"].get("log", ""), 0
        done = result["tx_result"]
        return int(done.get("code", 0)), base64.b64decode(done.get("data") or "").decode(), int(result["height"])

    def processes(self, number: int) -> list[int]:
        """A replica and its executor."""
        pid = self.running[number].pid
        children = Path(f"/proc/{pid}/task/{pid}/children").parent.parent.glob("*/children")
        return [pid] + [int(child) for file in children for child in file.read_text().split()]

    def signal(self, number: int, what: signal.Signals) -> None:
        for pid in self.processes(number):
            os.kill(pid, what)

    def kill(self, number: int) -> None:
        self.signal(number, signal.SIGKILL)
        self.running.pop(number).wait()

    def forget(self, number: int) -> None:
        """Has a replica that is not running begin anew, but for its keys and for what it has voted for."""
        home = self.directory / str(number)
        shutil.rmtree(home / "graph")
        for path in (home / "data").iterdir():
            if path.name != "priv_validator_state.json":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def stop(self, *numbers: int) -> None:
        for number in numbers or list(self.running):
            process = self.running.pop(number)
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def agree(self, *numbers: int) -> tuple[int, str]:
        """Waits until replicas are at one height; they have one hash there."""

        def same():
            found = {self.info(number) for number in numbers}
            heights = {height for height, _ in found}
            if len(heights) == 1 and heights != {0}:
                assert len(found) == 1, f"replicas do not agree: {found}"
                return found.pop()
            return None

        return self.wait(same, f"replicas {numbers} do not come to one height")

    def files(self, number: int) -> str:
        """The hash of a replica's files."""
        done = subprocess.run(
            [self.built / "graph", "hash", self.directory / str(number) / "graph"], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()


class Load:
    """Clients that send requests, each to one of the replicas."""

    def __init__(self, replicas: Replicas, to: list[int], requests: list[str], clients: int, word: str):
        self.latencies: list[float] = []
        self.answers: dict[str, tuple[int, str, int]] = {}
        self.errors: list[str] = []
        self.seconds = 0.0
        self._next = iter(list(enumerate(requests)))
        self._lock = threading.Lock()
        began = time.monotonic()
        threads = [threading.Thread(target=self._client, args=(replicas, to[n % len(to)], word)) for n in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.monotonic() - began

    def _client(self, replicas: Replicas, number: int, word: str) -> None:
        while True:
            with self._lock:
                index, text = next(self._next, (None, None))
            if text is None:
                return
            began = time.monotonic()
            try:
                answer = replicas.request(number, f"{word}{index}", text)
            except (URLError, OSError, KeyError, ValueError) as error:
                with self._lock:
                    self.errors.append(f"{text}: {error!r}")
                return
            with self._lock:
                self.latencies.append(time.monotonic() - began)
                self.answers[f"{word}{index}"] = answer
