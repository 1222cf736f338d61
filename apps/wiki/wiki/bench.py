"""Measures the wiki on files beside the wiki on SQLite: the same application, server, load and durability.

Both serve at once; each round loads one and then the other, so what else happens on the machine meets both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from .load import Load

STORAGES = ("files", "sqlite")
HERE = Path(__file__).resolve().parent.parent
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def measure(
    directory: Path, *, connections: list[int], writes: list[int], rounds: int, seconds: float, workers: int
) -> None:
    """Prints a table in Markdown, row by row."""
    servers, urls = {}, {}
    try:
        for storage in STORAGES:
            command = [HERE / "start", directory / storage, "--storage", storage]
            command += ["--port", "0", "--workers", str(workers)]
            urls[storage] = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
            servers[storage] = int((directory / storage / "server.lock").read_text().split()[0])
        for url in urls.values():
            Load(url, connections=1, writes=0, pages=100, seed=1).fill()
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(
            f"Wiki, {workers} workers, 100 pages of 2 KB, {rounds} rounds of {seconds:g} s, load {load} at the "
            "start. Answers (200, 303) in a second; in brackets server processor time for each in ms; ratio: "
            "median of the rounds\n"
        )
        print("| writes | connections | files | SQLite | files : SQLite | 409 files, SQLite | write ms files, SQLite |")
        print("|---|---|---|---|---|---|---|")
        for share in writes:
            for count in connections:
                _row(servers, urls, share, count, rounds, seconds)
    finally:
        for storage in STORAGES:
            if (directory / storage / "server.lock").exists():
                subprocess.run([HERE / "stop", directory / storage], check=True)


def _row(servers, urls, share: int, count: int, rounds: int, seconds: float) -> None:
    rates, costs, conflicts, waits = ({storage: [] for storage in STORAGES} for _ in range(4))
    for number in range(rounds):
        # Who is first changes.
        for storage in STORAGES[:: -1 if number % 2 else 1]:
            load = Load(urls[storage], connections=count, writes=share, pages=100, seed=number)
            before = _cpu_s(servers[storage])
            result = load.run(seconds)
            used = _cpu_s(servers[storage]) - before
            odd = set(result.statuses) - {200, 303, 409}
            if odd:
                print(f"bench: {storage}: answers {sorted(odd)}: {result.statuses}", file=sys.stderr)
            answers = result.statuses[200] + result.statuses[303]
            rates[storage].append(answers / result.seconds)
            costs[storage].append(used * 1000 / max(1, answers + result.statuses[409]))
            conflicts[storage].append(result.statuses[409])
            waits[storage].append(median(result.writes_ms) if result.writes_ms else 0)
    shown = [f"{median(rates[storage]):.0f} ({median(costs[storage]):.2f})" for storage in STORAGES]
    ratios = [ours / theirs for ours, theirs in zip(rates["files"], rates["sqlite"])]
    lost = ", ".join(str(sum(conflicts[storage])) for storage in STORAGES)
    waited = ", ".join(f"{median(waits[storage]):.1f}" for storage in STORAGES) if share else "–"
    spread = f"{median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})"
    print(f"| {share} % | {count} | {shown[0]} | {shown[1]} | {spread} | {lost} | {waited} |", flush=True)


def _cpu_s(master: int) -> float:
    """Processor time of the workers of a server."""
    ticks = 0
    for worker in Path(f"/proc/{master}/task/{master}/children").read_text().split():
        fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S
