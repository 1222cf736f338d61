"""Runs tests of the standard library, each within a transaction that commits, or natively; a line for each that passes.

    python3 -m tests.foreign {native|inside} MODULE...

What waits for a signal is left out: signals wait for the end of a transaction.
"""

import sys
import unittest

import txos

how, modules = sys.argv[1], sys.argv[2:]
plainly = unittest.TestCase.run
passed = []


class Result(unittest.TestResult):
    def addSuccess(self, test):
        super().addSuccess(test)
        passed.append(test.id())


def run(test, result=None):
    if "Signals" in test.id():
        return
    if how == "native":
        plainly(test, result)
        return
    try:
        with txos.transaction(durable=False):
            plainly(test, result)
    except txos.TransactionError:
        if passed and passed[-1] == test.id():
            passed.pop()


unittest.TestCase.run = run
result = Result()
for module in modules:
    unittest.defaultTestLoader.loadTestsFromName(module).run(result)
print("\n".join(sorted(passed)))
