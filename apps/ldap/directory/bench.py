"""Flat files in transactions beside back-mdb with its default durability, and beside flat files as they are.

    python3 -m directory.bench DIRECTORY [--quick]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

from . import load
from .server import KINDS, Server

#: The paper's figures: queries in a second with Berkeley DB, flat files, and flat files in transactions.
PAPER = {
    "single": "3229, 3171, 3124 (0.97×)",
    "subtree": "2076, 2107, 2042 (0.98×)",
    "add": "203, 1032, 413 (2.0×)",
    "delete": "172, 2458, 714 (4.2×)",
}
#: Operations in a round, over all clients.
COUNTS = {"single": 4000, "subtree": 400, "add": 800, "delete": 800}
PEOPLE = 100


def measure(directory: Path, *, rounds: int, scale: float, clients: tuple[int, ...]) -> None:
    servers = {kind: Server(directory / kind, kind).start() for kind in KINDS}
    try:
        for server in servers.values():
            server.fill(PEOPLE)
        told = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(
            f"slapd 2.5, {PEOPLE} people in the subtree, 16 threads, {rounds} rounds, load {told} at the start. Operations in "
            "a second; in brackets the server's processor time for each in ms; ratio: median of the rounds\n"
        )
        print("| operation | clients | mdb | files in transactions | files, no guarantee | transactions : mdb | paper: BDB, LDIF, LDIF-TxOS |")
        print("|---|---|---|---|---|---|---|")
        for count in clients:
            rows = {kind: {name: [] for name in KINDS} for kind in COUNTS}
            for number in range(rounds):
                for name in list(KINDS)[:: -1 if number % 2 else 1]:
                    # What is added is deleted again.
                    for kind, all_ in COUNTS.items():
                        each = max(1, int(all_ * scale) // count)
                        rows[kind][name].append(
                            load.run(servers[name], kind, clients=count, count=each, people=PEOPLE)
                        )
            for kind, row in rows.items():
                cells = [f"{median(r for r, _ in row[name]):.0f} ({median(c for _, c in row[name]):.2f})" for name in ("mdb", "txos", "ldif")]
                ratios = [ours[0] / theirs[0] for ours, theirs in zip(row["txos"], row["mdb"])]
                ratio = f"{median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})"
                print(f"| {kind} | {count} | {cells[0]} | {cells[1]} | {cells[2]} | {ratio} | {PAPER[kind]} |", flush=True)
    finally:
        for server in servers.values():
            server.stop()


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    measure(Path(sys.argv[1]), rounds=2 if quick else 5, scale=0.25 if quick else 1, clients=(1, 8))
