"""What the package offers says what it does, and of which types it is."""

import inspect
import unittest

import txos
import txos.wsgi


class Documentation(unittest.TestCase):
    def test_everything_public_is_documented_and_typed(self):
        offered = [getattr(txos, name) for name in txos.__all__] + [txos.wsgi.Transactions]
        for thing in offered:
            with self.subTest(thing.__qualname__):
                self.assertGreater(len(inspect.getdoc(thing) or ""), 20)
                functions = [thing] if inspect.isfunction(thing) else [
                    member
                    for name, member in vars(thing).items()
                    if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_"))
                    # A protocol is given an `__init__` that nobody wrote.
                    and member.__name__ == name
                ]
                for function in functions:
                    self.assertTrue(function.__name__ == "__init__" or inspect.getdoc(function), function)
                    typed = inspect.signature(function)
                    # Its types are those of its overloads.
                    if function is txos.atomic:
                        continue
                    self.assertIsNot(typed.return_annotation, inspect.Signature.empty, function)
                    for name, parameter in typed.parameters.items():
                        if name != "self":
                            self.assertIsNot(parameter.annotation, inspect.Parameter.empty, (function, name))
