"""Blocks and functions: commit, abort, nesting, pauses, retries, errors."""

import asyncio
import errno
import os
import pickle
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import txos
from tests.place import InPlace


class Blocks(InPlace):
    def test_a_block_is_published_at_its_end(self):
        with txos.transaction():
            self.assertTrue(txos.in_transaction())
            self.file.write_text("new\n")
            (self.dir / "other").mkdir()
            with txos.paused():
                self.assertEqual(self.outsider("ls"), "")
        self.assertFalse(txos.in_transaction())
        self.assertEqual(self.outsider("cat file; ls -d other"), "new\nother\n")

    def test_without_durability(self):
        with txos.transaction(durable=False):
            self.file.write_text("new\n")
        self.assertEqual(self.outsider("cat file"), "new\n")

    def test_an_exception_aborts_and_goes_on(self):
        self.file.write_text("old\n")
        with self.assertRaisesRegex(ValueError, "no good"):
            with txos.transaction():
                self.file.write_text("new\n")
                (self.dir / "other").write_text("")
                os.chdir(self.dir)
                raise ValueError("no good")
        self.assertFalse(txos.in_transaction())
        self.assertEqual(self.outsider("cat file; ls"), "old\nfile\n")
        self.assertNotEqual(Path.cwd(), self.dir)

    def test_the_end_of_the_program_is_not_held_up(self):
        for kind in (SystemExit, KeyboardInterrupt):
            with self.assertRaises(kind):
                with txos.transaction():
                    self.file.write_text("new\n")
                    raise kind()
            self.assertFalse(self.file.exists())

    def test_participants_decide(self):
        told = []

        class Ledger:
            def __init__(self, name, refuses=None):
                self.name, self.refuses = name, refuses

            def prepare(self):
                told.append(f"p{self.name}{int(txos.in_transaction())}")
                if self.refuses is not None:
                    raise self.refuses

            def commit(self):
                told.append(f"c{self.name}")

            def abort(self):
                told.append(f"a{self.name}")

        def change(*ledgers, fails=None):
            with txos.transaction() as tx:
                with txos.transaction() as inner:
                    for ledger in ledgers:
                        inner.enlist(ledger)
                self.file.write_text("new\n")
                if fails is not None:
                    raise fails

        def heard():
            all_, told[:] = " ".join(told), []
            return all_

        change(Ledger(1), Ledger(2))
        self.assertEqual(heard(), "p10 p20 c1 c2")
        self.assertEqual(self.outsider("cat file"), "new\n")
        self.file.unlink()
        with self.assertRaisesRegex(ValueError, "no room"):
            change(Ledger(1), Ledger(2, ValueError("no room")), Ledger(3))
        self.assertEqual(heard(), "p10 p20 a3 a2 a1")
        with self.assertRaisesRegex(KeyError, "mind"):
            change(Ledger(1), Ledger(2), fails=KeyError("mind"))
        self.assertEqual(heard(), "a2 a1")
        self.assertFalse(self.file.exists())
        self.assertFalse(txos.in_transaction())
        # A conflict, of the transaction's own and of a participant's: the function is called again.
        self.file.write_text("old\n")
        attempts = []

        def again():
            with txos.transaction() as tx:
                self.file.read_text()
                attempts.append(1)
                if len(attempts) == 1:
                    self.outsider("echo other > file")
                tx.enlist(Ledger(1, txos.Conflict("busy") if len(attempts) == 2 else None))
                (self.dir / "other").write_text("new")

        txos.run(again)
        self.assertEqual((heard(), len(attempts)), ("a1 p10 a1 p10 c1", 3))
        # What fails in its commit is told; the transaction is committed.
        late = Ledger(1)
        late.commit = lambda: 1 / 0
        with self.assertRaises(ZeroDivisionError):
            change(late, Ledger(2))
        self.assertEqual((heard(), self.file.read_text()), ("p10 p20 c2", "new\n"))
        with self.assertRaises(RuntimeError):
            txos.transaction().enlist(late)

    def test_an_abort_on_purpose(self):
        with self.assertRaises(txos.Aborted):
            with txos.transaction() as tx:
                self.file.write_text("new\n")
                tx.abort()
        self.assertFalse(self.file.exists())

    def test_returning_from_a_block_commits(self):
        def write():
            with txos.transaction():
                self.file.write_text("new\n")
                return "returned"

        self.assertEqual(write(), "returned")
        self.assertEqual(self.file.read_text(), "new\n")

    def test_one_object_several_times_in_turn(self):
        tx = txos.transaction()
        for text in ("one", "two"):
            with tx:
                self.file.write_text(text)
        self.assertEqual(self.file.read_text(), "two")
        with self.assertRaises(RuntimeError):
            with tx:
                with tx:
                    pass
        self.assertFalse(txos.in_transaction())

    def test_descriptors_of_the_block_live_on(self):
        with txos.transaction():
            file = self.file.open("w+")
            file.write("in\n")
            file.flush()
        with file:
            file.write("after\n")
            file.flush()
            self.assertEqual(self.outsider("cat file"), "in\nafter\n")


class Nesting(InPlace):
    def test_an_inner_block_is_part_of_the_outer_one(self):
        with txos.transaction():
            with txos.transaction():
                self.file.write_text("new\n")
            with txos.paused():
                self.assertFalse(self.file.exists())
        self.assertEqual(self.file.read_text(), "new\n")

    def test_an_inner_failure_takes_the_outer_one_along(self):
        with self.assertRaises(txos.Aborted):
            with txos.transaction():
                (self.dir / "outer").write_text("")
                try:
                    with txos.transaction():
                        self.file.write_text("new\n")
                        raise ValueError
                except ValueError:
                    pass
        self.assertEqual(os.listdir(self.dir), [])
        with txos.transaction():  # nothing of it is left over
            self.file.write_text("new\n")
        self.assertEqual(os.listdir(self.dir), ["file"])

    def test_functions_within_blocks_are_not_retried(self):
        calls = []

        @txos.atomic
        def inner():
            calls.append(1)
            raise txos.Conflict("as if")

        with self.assertRaises(txos.Conflict):
            with txos.transaction():
                inner()
        self.assertEqual(calls, [1])


class Pauses(InPlace):
    def test_what_a_pause_does_stays(self):
        with self.assertRaises(ValueError):
            with txos.transaction() as tx:
                self.file.write_text("in\n")
                with tx.paused():
                    self.assertFalse(txos.in_transaction())
                    (self.dir / "log").write_text("tried\n")
                self.assertEqual(self.file.read_text(), "in\n")
                raise ValueError
        self.assertEqual(os.listdir(self.dir), ["log"])

    def test_a_transaction_within_a_pause_is_one_of_its_own(self):
        with self.assertRaises(ValueError):
            with txos.transaction() as tx:
                self.file.write_text("in\n")
                with tx.paused():
                    with txos.transaction():
                        (self.dir / "log").write_text("tried\n")
                raise ValueError
        self.assertEqual(os.listdir(self.dir), ["log"])

    def test_an_exception_in_a_pause_aborts(self):
        with self.assertRaises(ValueError):
            with txos.transaction() as tx:
                self.file.write_text("in\n")
                with tx.paused():
                    raise ValueError
        self.assertFalse(txos.in_transaction())
        self.assertEqual(os.listdir(self.dir), [])

    def test_outside_there_is_nothing_to_pause(self):
        with self.assertRaises(RuntimeError):
            with txos.paused():
                pass


class Threads(InPlace):
    def test_threads_take_part(self):
        self.file.write_text("old")

        def work(number):
            self.assertTrue(txos.in_transaction())
            self.assertEqual((self.dir / "begun").read_text(), "x")
            if number == 3:
                self.file.unlink()
            if number == 4:
                with txos.transaction():
                    (self.dir / "inner").write_text("x")
            if number == 5:
                with txos.paused():
                    (self.dir / "paused").write_text("x")
            (self.dir / f"made{number}").write_text(str(number))
            return number

        with txos.transaction() as t, ThreadPoolExecutor(4) as pool:
            (self.dir / "begun").write_text("x")
            self.assertEqual(list(pool.map(t.taking_part(work), range(8))), list(range(8)))
            self.assertFalse(pool.submit(txos.in_transaction).result())
            self.assertEqual(self.outsider("ls"), "file\npaused\n")
            self.assertEqual(t.taking_part(work)(9), 9)
        made = "".join(f"made{number}\n" for number in [*range(8), 9])
        self.assertEqual(self.outsider("ls"), f"begun\ninner\n{made}paused\n")

    def test_an_exception_in_a_thread_aborts(self):
        def work():
            self.file.write_text("x")
            raise KeyError("gone")

        with ThreadPoolExecutor(1) as pool:
            with self.assertRaises(KeyError), txos.transaction() as t:
                pool.submit(t.taking_part(work)).result()
            with self.assertRaises(txos.Aborted), txos.transaction() as t:
                self.assertIsInstance(pool.submit(t.taking_part(work)).exception(), KeyError)
            self.assertFalse(self.file.exists())
            # One that fails while the block's end waits for it.
            begun = threading.Event()

            def late():
                begun.set()
                while t._thread:
                    os.sched_yield()
                raise KeyError("gone")

            with self.assertRaises(txos.Aborted), txos.transaction() as t:
                self.file.write_text("x")
                failed = pool.submit(t.taking_part(late))
                begun.wait()
            self.assertIsInstance(failed.exception(), KeyError)
            self.assertFalse(self.file.exists())
            # One that comes too late.
            with txos.transaction() as t:
                call = t.taking_part(work)
            with self.assertRaises(txos.Failed):
                pool.submit(call).result()
        self.assertFalse(self.file.exists())

    def test_a_conflict_is_told_to_all(self):
        self.file.write_text("1")
        started = []

        def count():
            with self.file.open("r+") as file:
                number = int(file.read())
                if not started:
                    started.append(True)
                    self.outsider("echo 10 > file")
                file.seek(0)
                file.write(str(number + 1))
                file.truncate()

        with ThreadPoolExecutor(1) as pool:

            def work():
                pool.submit(t.taking_part(count)).result()

            def block():
                nonlocal t
                with txos.transaction() as t:
                    work()

            t = None
            with self.assertRaises(txos.Conflict):
                block()
            block()
        self.assertEqual(self.file.read_text().strip(), "11")


class Conflicts(InPlace):
    def lose(self):
        """Reads the file, lets an outsider change it, and depends on what was read."""
        text = self.file.read_text()
        with txos.paused():
            self.outsider("echo outsider >> file")
        (self.dir / "copy").write_text(text)

    def test_a_change_by_somebody_else_is_a_conflict(self):
        self.file.write_text("old\n")
        with self.assertRaises(txos.Conflict) as caught:
            with txos.transaction():
                self.lose()
        self.assertEqual(os.fspath(self.file), caught.exception.path)
        self.assertIn(os.fspath(self.file), str(caught.exception))
        self.assertEqual(self.outsider("cat file; ls"), "old\noutsider\nfile\n")

    def test_a_conflict_takes_the_place_of_what_the_program_made_of_it(self):
        self.file.write_text("old\n")
        with self.assertRaises(txos.Conflict) as caught:
            with txos.transaction():
                self.file.stat()
                with txos.paused():
                    self.outsider("echo outsider >> file")
                try:
                    self.file.read_text()
                except OSError as error:
                    self.assertEqual(error.errno, errno.ECANCELED)
                    raise ValueError("a consequence") from error
        self.assertIsInstance(caught.exception.__cause__, ValueError)
        self.assertEqual(self.file.read_text(), "old\noutsider\n")

    def test_functions_are_called_again(self):
        self.file.write_text("old\n")
        tries = []

        @txos.atomic(retry=5)
        def work(suffix):
            tries.append(suffix)
            if len(tries) < 3:
                self.lose()
            return self.file.read_text() + suffix

        self.assertEqual(work("end"), "old\noutsider\noutsider\nend")
        self.assertEqual(len(tries), 3)

    def test_but_not_for_ever(self):
        self.file.write_text("old\n")
        before = txos.stats().aborted
        with self.assertRaises(txos.Conflict):
            txos.run(self.lose, retry=2)
        self.assertEqual(txos.stats().aborted - before, 3)
        self.assertEqual(os.listdir(self.dir), ["file"])

    def test_other_errors_are_not_retried(self):
        calls = []

        def fail():
            calls.append(1)
            self.file.write_text("new\n")
            raise OSError("no good")

        with self.assertRaisesRegex(OSError, "no good"):
            txos.run(fail)
        self.assertEqual((len(calls), self.file.exists()), (1, False))

    def test_nonblock_does_not_wait(self):
        """Two transactions of one thread: one that waited for the other would wait for ever."""
        self.file.write_text("old\n")
        with txos.transaction() as tx:
            self.file.write_text("mine\n")
            with tx.paused(), self.assertRaises(txos.Conflict):
                with txos.transaction(nonblock=True):
                    self.file.write_text("other\n")
        self.assertEqual(self.file.read_text(), "mine\n")


class Options(InPlace):
    def test_a_timeout_ends_a_block_that_goes_on(self):
        self.file.write_text("old\n")
        with self.assertRaises(txos.TimedOut):
            with txos.transaction(timeout=0.05):
                while True:
                    self.file.write_text("new\n")
        self.assertEqual(self.file.read_text(), "old\n")
        txos.run(lambda: self.file.write_text("new\n"), timeout=600)
        self.assertEqual(self.file.read_text(), "new\n")
        for wrong in (-1, float("nan")):
            with self.assertRaises(ValueError):
                txos.transaction(timeout=wrong)

    def test_a_timeout_ends_a_wait(self):
        self.file.write_text("old\n")
        with txos.transaction() as tx:
            self.file.write_text("mine\n")
            with tx.paused(), self.assertRaises(txos.TimedOut):
                with txos.transaction(timeout=0.05):
                    self.file.write_text("other\n")
        self.assertEqual(self.file.read_text(), "mine\n")

    def test_sequences(self):
        with txos.transaction(sequence=7000, reset_sequence=True):
            self.file.write_text("1")
        with txos.transaction(sequence=7001), self.file.open("a") as file:
            file.write("2")
        self.assertEqual(self.file.read_text(), "12")
        with self.assertRaises(TypeError):
            txos.transaction(reset_sequence=True)
        for wrong in (-1, 2**64):
            with self.assertRaises(ValueError):
                txos.transaction(sequence=wrong)

    def test_names_are_checked(self):
        for wrong in ({"name": ""}, {"name": "a\nb"}, {"after": "é" * 128}, {"after": ["a", ""]}, {"after": "a", "sequence": 1}):
            with self.assertRaises(ValueError):
                txos.transaction(**wrong)
        with self.assertRaises(TypeError):
            txos.transaction(after=[1])
        with self.assertRaises(ValueError):
            txos.transaction(keep_credentials=True, timeout=1)
        with txos.transaction():
            for inner in ({"name": "a"}, {"after": "a"}, {"keep_credentials": True}):
                with self.assertRaises(ValueError), txos.transaction(**inner):
                    self.fail("it was begun")
            self.file.write_text("outer")
        self.assertEqual(self.file.read_text(), "outer")

    def test_a_name_is_of_one_transaction(self):
        with txos.transaction(name="p"):
            self.file.write_text("1")
        for begin in ({"after": "p"}, {"after": "p", "name": "p"}):
            with self.assertRaises(txos.NotProduced) as caught, txos.transaction(**begin):
                self.fail("it was begun")
            self.assertEqual(caught.exception.errno, errno.ESRCH)
        # One whose beginning has failed has used up its name.
        with txos.transaction():
            with txos.paused(), self.assertRaises(txos.NotProduced), txos.transaction(after="p"):
                self.fail("it was begun")
        with txos.transaction(name="p"), txos.paused():
            with self.assertRaises(txos.Failed) as caught, txos.transaction(after="p"):
                self.fail("it was begun")
            self.assertEqual(caught.exception.errno, errno.EDEADLK)

    def test_a_function_asks_to_be_called_again(self):
        calls = []

        def early():
            calls.append(1)
            self.file.write_text(str(len(calls)))
            if len(calls) < 3:
                txos.again("too early")

        txos.run(early)
        self.assertEqual(self.file.read_text(), "3")
        with self.assertRaisesRegex(txos.Conflict, "too early"):
            txos.run(lambda: txos.again("too early"), retry=1)

    def test_a_file_that_is_left_over_leads_nowhere(self):
        with self.assertRaises(ValueError):
            with txos.transaction():
                left = self.file.open("w")
                raise ValueError
        other = (self.dir / "other").open("w")
        self.assertNotEqual(left.fileno(), other.fileno())
        left.close()
        with other:
            other.write("text")
        self.assertEqual(os.listdir(self.dir), ["other"])


def set_priority_of_another():
    """A call that is live: it is about another process."""
    parent = os.getppid()
    os.setpriority(os.PRIO_PROCESS, parent, os.getpriority(os.PRIO_PROCESS, parent))


class Strictness(InPlace):
    def test_files_that_are_left_out(self):
        kept = self.dir / "kept.data"
        kept.write_text("1")
        self.file.write_text("1")
        self.assertEqual(txos.leave_out(self.dir, ".data"), 1)
        with self.assertRaises(txos.Aborted), txos.transaction() as t:
            with self.assertRaises(txos.Failed) as caught:
                txos.leave_out(self.dir)
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            left = kept.open()
            with txos.paused():
                self.outsider("echo 2 >> kept.data")
            t.abort()
        # Its descriptor has outlived the abort.
        self.assertEqual(left.read(), "12\n")
        left.close()

        def read_and_write(path):
            with txos.transaction():
                path.read_text()
                self.outsider(f"echo 3 >> {path}")
                (self.dir / "made").write_text("x")

        read_and_write(kept)
        with self.assertRaises(txos.Conflict):
            read_and_write(self.file)
        with self.assertRaises(txos.Failed):
            txos.leave_out(self.dir / "none")

    def test_what_cant_be_isolated_aborts(self):
        with self.assertRaises(txos.Unsupported) as caught:
            with txos.transaction(strict=True):
                self.file.write_text("new\n")
                set_priority_of_another()
        self.assertIn("priority", caught.exception.what)
        self.assertFalse(self.file.exists())

    def test_or_is_counted(self):
        before = txos.stats().unsupported
        with txos.transaction():
            self.file.write_text("new\n")
            set_priority_of_another()
        self.assertEqual(txos.stats().unsupported - before, 1)
        self.assertTrue(self.file.exists())


class Oddities(InPlace):
    def test_generators_and_coroutines_are_refused(self):
        async def coroutine():
            pass

        def generator():
            yield

        for function in (coroutine, generator):
            with self.assertRaises(TypeError):
                txos.atomic(function)
        asyncio.run(coroutine())

    def test_decorated_functions_keep_their_names(self):
        @txos.atomic
        def named():
            """Its words."""

        self.assertEqual((named.__name__, named.__doc__), ("named", "Its words."))

    def test_a_block_ends_where_it_began(self):
        tx = txos.transaction()
        caught = []

        def end():
            try:
                tx.__exit__(None, None, None)
            except RuntimeError as error:
                caught.append(error)

        with tx:
            self.file.write_text("new\n")
            with tx.paused():
                thread = threading.Thread(target=end)
                thread.start()
                thread.join()
        self.assertEqual(len(caught), 1)
        self.assertTrue(self.file.exists())

    def test_a_child_is_in_no_transaction(self):
        with txos.transaction() as tx:
            self.file.write_text("parent's\n")
            with tx.paused():
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        if not txos.in_transaction():
                            with txos.transaction():
                                (self.dir / "child").write_text("")
                            status = 0
                    finally:
                        os._exit(status)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(sorted(os.listdir(self.dir)), ["child", "file"])

    def test_a_child_that_leaves_the_block_commits_nothing(self):
        reader, writer = os.pipe()
        child = None
        try:
            with txos.transaction():
                self.file.write_text("parent's\n")
                child = os.fork()
        except txos.Failed:
            os._exit(7)
        self.assertNotEqual(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        os.close(reader)
        os.close(writer)
        self.assertEqual(self.file.read_text(), "parent's\n")

    def test_errors_survive_being_sent(self):
        error = txos.Conflict("changed", path="/a", errno=125, pid=7)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((copy.what, copy.path, copy.errno, copy.pid), ("changed", "/a", 125, 7))
        self.assertEqual(str(copy), "/a: changed")
        self.assertIs(type(copy), txos.Conflict)

    def test_counters(self):
        before = txos.stats()
        with txos.transaction():
            self.file.write_text("new\n")
        after = txos.stats()
        self.assertEqual(after.begun - before.begun, 1)
        self.assertEqual(after.committed - before.committed, 1)
        self.assertGreater(after.calls, before.calls)
        self.assertRegex(txos.library_version(), r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
