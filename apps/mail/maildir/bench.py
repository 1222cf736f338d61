"""The maildir in transactions beside the same with lock files, with the index in memory and (Dovecot's default) on the disk.

    python3 -m maildir.bench DIRECTORY [--quick]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

from . import load
from .server import Mail

#: What is compared: kind, and whether the index is on the disk.
RIVALS = {"transactions": ("txos", False), "locks": ("locks", False), "locks, index on disk": ("locks", True)}
#: The paper's ratios (Table 4: Linux by TxOS+), by clients and share of writes.
PAPER = {
    (1, 0): 1.07, (1, 0.1): 1.04, (1, 0.25): 1.02, (1, 0.5): 1.25, (1, 1): 1.11,
    (2, 0): 1.20, (2, 0.1): 1.24, (2, 0.25): 1.28, (2, 0.5): 1.07, (2, 1): 1.47,
    (4, 0): 1.08, (4, 0.1): 1.58, (4, 0.25): 1.71, (4, 0.5): 1.75, (4, 1): 1.80,
}  # fmt: skip
MESSAGES = 1500


def measure(directory: Path, *, rounds: int, operations: int, writes: tuple[float, ...], clients: tuple[int, ...]) -> None:
    told = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"Dovecot 2.3, {MESSAGES} messages, {operations} operations for each client, {rounds} rounds in turn, load {told} at the "
        "start. Seconds; in brackets the servers' processor time for each operation in ms; ratio above 1: transactions are faster\n"
    )
    print(f"| durable | writes | clients | {' | '.join(RIVALS)} | locks : transactions | index on disk : transactions | paper |")
    print("|---|---|---|" + "---|" * (len(RIVALS) + 3))
    for durable in (False, True):
        for share in writes:
            for count in clients:
                took = {name: [] for name in RIVALS}
                for number in range(rounds):
                    for name in list(RIVALS)[:: -1 if number % 2 else 1]:
                        kind, index_on_disk = RIVALS[name]
                        mail = Mail(directory / "mail", kind, durable=durable, index_on_disk=index_on_disk)
                        mail.fill(MESSAGES)
                        took[name].append(load.run(mail, clients=count, operations=operations, writes=share, seed=number))
                        if errors := mail.errors():
                            raise RuntimeError(f"{name}: {errors[0]}")
                        mail.remove()
                each = 1000 / (count * operations)
                cells = [f"{median(s for s, _ in t):.2f} ({median(c for _, c in t) * each:.1f})" for t in took.values()]
                ours = [s for s, _ in took["transactions"]]
                ratios = []
                for name in list(RIVALS)[1:]:
                    all_ = [theirs / mine for (theirs, _), mine in zip(took[name], ours)]
                    ratios.append(f"{median(all_):.2f}× ({min(all_):.2f}–{max(all_):.2f})")
                paper = PAPER.get((count, share))
                row = ["yes" if durable else "no", f"{share:.0%}", str(count), *cells, *ratios, f"{paper:.2f}×" if paper else ""]
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    measure(
        Path(sys.argv[1]),
        rounds=2 if quick else 5,
        operations=25 if quick else 100,
        writes=(0, 1) if quick else (0, 0.1, 0.25, 0.5, 1),
        clients=(1, 4) if quick else (1, 2, 4),
    )
