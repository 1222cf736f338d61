#!/usr/bin/env python3
"""A consumer that starts with its producer, and commits after it.

    PYTHONPATH=bindings/python python3 after.py & PYTHONPATH=bindings/python python3 after.py NUMBER

The producer writes numbers into a file; the consumer adds them up. Where it looks at them, it waits for the commit.
"""

import errno
import sys
import time
from pathlib import Path

import txos


def produce(last):
    with txos.transaction(name="producer"):
        Path("numbers").write_text("".join(f"{number}\n" for number in range(1, last + 1)))
        time.sleep(1)


def consume():
    if not Path("numbers").exists():
        txos.again()  # it came too early: once more, after the producer
    text = Path("numbers").read_text()
    Path("sum").write_text(f"{sum(map(int, text.split()))}\n")


if len(sys.argv) > 1:
    produce(int(sys.argv[1]))
    sys.exit()
while True:
    try:
        txos.run(consume, after="producer", retry=None)
        break
    except txos.NotProduced as error:
        if error.errno != errno.ESRCH:
            sys.exit(f"{error}")
        time.sleep(0.001)  # it has not begun
