package txos;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.RandomAccessFile;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.AsynchronousFileChannel;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.StandardWatchEventKinds;
import java.nio.file.WatchKey;
import java.nio.file.WatchService;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import java.util.zip.ZipOutputStream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/**
 * The checks of this package, each a method without arguments: what the class library does in transactions,
 * and how these are begun and ended. A plain program, so that it needs nothing but a JDK; JUnit runs the same
 * methods.
 *
 * <p>Arguments: a directory on a file system that is versioned, and names of checks; none for all.
 */
public final class Checks {
    private static final Options FAST = Options.DEFAULT.durable(false);

    private final Path dir;

    public Checks(Path dir) {
        this.dir = dir;
    }

    public static void main(String[] args) throws Exception {
        List<String> wanted = Arrays.asList(args).subList(1, args.length);
        int failed = 0;
        int passed = 0;
        for (Method method : all()) {
            if (!wanted.isEmpty() && !wanted.contains(method.getName())) {
                continue;
            }
            Path dir = Files.createDirectory(Path.of(args[0]).resolve(method.getName()));
            try {
                method.invoke(new Checks(dir));
                passed++;
            } catch (ReflectiveOperationException e) {
                failed++;
                System.err.println("FAILED: " + method.getName());
                (e.getCause() == null ? e : e.getCause()).printStackTrace();
            }
            if (SysTransaction.isActive()) {
                System.err.println("FAILED: " + method.getName() + " left a transaction");
                failed++;
                SysTransaction.abort();
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 && passed > 0 ? 0 : 1);
    }

    /** Every check, by name. */
    public static List<Method> all() {
        return Arrays.stream(Checks.class.getDeclaredMethods())
                .filter(m -> Modifier.isPublic(m.getModifiers()) && !Modifier.isStatic(m.getModifiers()))
                .sorted(Comparator.comparing(Method::getName))
                .toList();
    }

    // --- The functions ---

    public void aBlockIsPublishedAtItsEnd() throws IOException {
        try (SysTransaction tx = SysTransaction.begin(FAST)) {
            write("a", "1");
            write("b", "2");
            equal(List.of(), outsider(), "what others see");
            SysTransaction.end();
        }
        equal(List.of("a", "b"), outsider(), "what others see");
    }

    public void aBlockThatIsLeftAborts() throws IOException {
        thrown(IllegalArgumentException.class, () -> {
            try (SysTransaction tx = SysTransaction.begin(FAST)) {
                write("a", "1");
                throw new IllegalArgumentException();
            }
        });
        try (SysTransaction tx = SysTransaction.begin(FAST)) {
            write("a", "1");
        }
        try (SysTransaction tx = SysTransaction.begin(FAST)) {
            write("a", "1");
            SysTransaction.abort();
            check(!SysTransaction.isActive(), "still active");
        }
        equal(List.of(), outsider(), "what others see");
    }

    public void functionsGiveWhatTheyGive() throws IOException {
        int number = Transactions.run(() -> {
            write("a", "1");
            return 7;
        });
        equal(7, number, "a result");
        Transactions.run(() -> Files.delete(dir.resolve("a")));
        NoSuchFileException e = thrown(NoSuchFileException.class, () -> Transactions.run(() -> {
            write("b", "1");
            return Files.readString(dir.resolve("a"));
        }));
        check(e.getMessage().endsWith("/a"), e);
        equal(List.of(), outsider(), "what others see");
        Transactions.Result<String> result = Transactions.result(FAST, () -> "x");
        equal("x", result.value(), "a value");
        equal(1, result.attempts(), "attempts");
    }

    public void conflictsSayWhereAndWithWhom() throws IOException {
        write("a", "0");
        List<ConflictException> lost = new ArrayList<>();
        Transactions.Result<String> result = Transactions.result(FAST, () -> {
            String old = Files.readString(dir.resolve("a"));
            if (lost.isEmpty()) {
                lost.add(null);
                shell("echo 5 > a");
            }
            write("b", old);
            return old;
        });
        equal("5\n", result.value(), "what the second attempt read");
        equal(2, result.attempts(), "attempts");
        ConflictException conflict = result.conflicts().get(0);
        equal(dir.resolve("a").toString(), conflict.path().orElse(""), "the place");
        equal(125, conflict.errno(), "ECANCELED");
    }

    public void aTransactionThatLostSaysSoInsteadOfWhatItsCallsMade() throws Exception {
        whileAnotherHolds("a", () -> {
            ConflictException e = thrown(ConflictException.class,
                    () -> Transactions.run(FAST.nonblock(true).retries(0), () -> {
                        write("b", "1");
                        // It loses here, and each call fails from here on.
                        Files.readString(dir.resolve("a"));
                    }));
            check(e.path().orElse("").endsWith("/a"), e);
            check(e.getCause() instanceof IOException, e.getCause());
            // Threads of one program are opponents as well.
            equal(ProcessHandle.current().pid(), (long) e.opponent().orElse(0), "the opponent");
            IOException first = thrown(IOException.class, () -> {
                try (SysTransaction tx = SysTransaction.begin(FAST.nonblock(true))) {
                    write("b", "1");
                    Files.readString(dir.resolve("a"));
                }
            });
            check(first.getSuppressed()[0] instanceof ConflictException, first);
            // A class that is loaded in a transaction that failed is loaded.
            thrown(ConflictException.class, () -> {
                try (SysTransaction tx = SysTransaction.begin(FAST.nonblock(true))) {
                    write("b", "1");
                    thrown(IOException.class, () -> Files.readString(dir.resolve("a")));
                    equal(3, LoadedLate.VALUE, "a class");
                    SysTransaction.end();
                }
            });
        });
        check(!Files.exists(dir.resolve("b")), "b");
    }

    /** While another thread has a transaction that has written to a file. */
    private void whileAnotherHolds(String name, Risky work) throws Exception {
        write(name, "0");
        CountDownLatch holds = new CountDownLatch(1);
        AtomicBoolean done = new AtomicBoolean();
        Thread other = new Thread(() -> unchecked(() -> Transactions.run(FAST.retries(0), () -> {
            write(name, "1");
            Files.readString(dir.resolve(name));
            holds.countDown();
            // One that waited would give way.
            while (!done.get()) {
                Thread.yield();
            }
        })));
        other.start();
        holds.await();
        try {
            work.run();
        } finally {
            done.set(true);
            other.join();
        }
        equal("1", Files.readString(dir.resolve(name)), "what the other one wrote");
    }

    static final class LoadedLate {
        static final Integer VALUE = Integer.valueOf(3);

        private LoadedLate() {}
    }

    public void nestedOnesArePartOfTheOuter() throws IOException {
        Transactions.run(FAST, () -> {
            write("a", "1");
            Transactions.run(() -> write("b", "1"));
            try (SysTransaction tx = SysTransaction.begin()) {
                write("c", "1");
                SysTransaction.end();
            }
            equal(List.of(), outsider(), "what others see");
        });
        equal(List.of("a", "b", "c"), outsider(), "what others see");
        thrown(AbortedException.class, () -> Transactions.run(FAST, () -> {
            write("d", "1");
            try (SysTransaction tx = SysTransaction.begin()) {
                write("e", "1");
            }
        }));
        thrown(AbortedException.class, () -> Transactions.run(FAST, () -> {
            write("d", "1");
            SysTransaction.abort();
        }));
        equal(List.of("a", "b", "c"), outsider(), "what others see");
    }

    public void whatIsNotATransactionsEndIsRefused() throws Exception {
        thrown(TransactionStateException.class, SysTransaction::end);
        thrown(TransactionStateException.class, SysTransaction::abort);
        thrown(TransactionStateException.class, SysTransaction::pause);
        try (SysTransaction outer = SysTransaction.begin(FAST)) {
            SysTransaction inner = SysTransaction.begin(FAST);
            TransactionStateException e = thrown(TransactionStateException.class, outer::close);
            check(e.getMessage().contains("within this one"), e);
            inThread(() -> {
                TransactionStateException other = thrown(TransactionStateException.class, inner::close);
                check(other.getMessage().contains("ends in the thread"), other);
                thrown(TransactionStateException.class, SysTransaction::end);
            });
            // It is as it was.
            write("a", "1");
            inner.close();
            inner.close();
            thrown(AbortedException.class, SysTransaction::end);
        }
        equal(List.of(), outsider(), "what others see");
        // What a function leaves behind goes with it.
        thrown(AbortedException.class, () -> Transactions.run(FAST, () -> {
            SysTransaction.begin();
            write("a", "1");
        }));
        thrown(AbortedException.class, () -> Transactions.run(FAST, () -> {
            write("a", "1");
            SysTransaction.end();
            SysTransaction.begin(FAST);
            SysTransaction.abort();
        }));
        equal(List.of("a"), outsider(), "what others see");
    }

    public void pausedOnesGoOn() throws Exception {
        Transactions.run(FAST, () -> {
            write("a", "1");
            try (SysTransaction.Paused paused = SysTransaction.pause()) {
                check(!Files.exists(dir.resolve("a")), "a");
                write("live", "1");
                check(!SysTransaction.isActive(), "active");
            }
            check(Files.exists(dir.resolve("a")), "a");
            equal(List.of("live"), outsider(), "what others see");
        });
        // In another thread.
        SysTransaction.begin(FAST);
        write("b", "1");
        SysTransaction.Paused paused = SysTransaction.pause();
        inThread(() -> {
            SysTransaction.resume(paused);
            write("c", "1");
            SysTransaction.end();
        });
        paused.close();
        thrown(TransactionStateException.class, SysTransaction::end);
        equal(List.of("a", "b", "c", "live"), outsider(), "what others see");
        // A function that leaves it paused.
        thrown(AbortedException.class, () -> Transactions.run(FAST, () -> {
            write("d", "1");
            SysTransaction.pause();
        }));
        check(!Files.exists(dir.resolve("d")), "d");
    }

    public void strictOnesAbortAtWhatIsNotPartOfThem() throws IOException {
        UnsupportedCallException e = thrown(
                UnsupportedCallException.class, () -> Transactions.run(FAST.strict(true), () -> {
                    write("a", "1");
                    Thread thread = new Thread(() -> {});
                    thread.start();
                    thread.join();
                }));
        check(e.getMessage().contains("thread") || e.getMessage().contains("clone"), e);
        equal(List.of(), outsider(), "what others see");
    }

    public void nonblockingOnesDoNotWait() throws Exception {
        whileAnotherHolds("a", () -> {
            long start = System.nanoTime();
            thrown(ConflictException.class, () -> Transactions.run(FAST.nonblock(true).retries(0), () -> {
                write("b", "1");
                Files.readString(dir.resolve("a"));
            }));
            check(System.nanoTime() - start < 30_000_000_000L, "it waited");
        });
    }

    public void orderedOnesCommitInOrder() throws Exception {
        List<Thread> threads = new ArrayList<>();
        write("order", "");
        for (int i = 2; i >= 0; i--) {
            int number = i;
            Options options = i == 0 ? FAST.orderedFrom(500) : FAST.ordered(500 + i);
            Thread thread = new Thread(() -> unchecked(() -> Transactions.run(options.retries(-1), () -> {
                write("file" + number, "" + System.nanoTime());
            })));
            threads.add(thread);
        }
        // The first one resets the sequence.
        threads.get(2).start();
        threads.get(2).join();
        threads.get(0).start();
        threads.get(1).start();
        for (Thread thread : threads) {
            thread.join();
        }
        equal(List.of("file0", "file1", "file2", "order"), outsider(), "what others see");
    }

    public void aNameIsOfOneTransaction() throws IOException {
        for (String wrong : List.of("", "a\nb", "é".repeat(128))) {
            thrown(IllegalArgumentException.class, () -> FAST.name(wrong));
            thrown(IllegalArgumentException.class, () -> FAST.after("a", wrong));
        }
        thrown(IllegalArgumentException.class, () -> FAST.after("a").ordered(1));
        thrown(IllegalArgumentException.class, () -> FAST.ordered(1).after("a"));
        equal(FAST, FAST.name("a").after("b").after().name(null), "options");
        check(!FAST.after("a").equals(FAST.after("b")), "options");
        Transactions.run(FAST.name("p"), () -> write("a", "1"));
        for (Options options : List.of(FAST.after("p"), FAST.after("p").name("p"))) {
            NotProducedException e = thrown(NotProducedException.class, () -> Transactions.run(options, () -> write("a", "2")));
            check(e.isMissing(), e);
            e = thrown(NotProducedException.class, () -> SysTransaction.begin(options).close());
            check(e.isMissing(), e);
        }
        Transactions.run(FAST, () -> {
            thrown(TransactionStateException.class, () -> Transactions.run(FAST.name("p"), () -> write("a", "2")));
            thrown(TransactionStateException.class, () -> SysTransaction.begin(FAST.after("p")).close());
        });
        // A block has its own.
        try (SysTransaction tx = SysTransaction.begin(FAST.name("p"))) {
            try (SysTransaction.Paused paused = SysTransaction.pause()) {
                PublishFailedException e =
                        thrown(PublishFailedException.class, () -> SysTransaction.begin(FAST.after("p")).close());
                check(e.getMessage().contains("p is a transaction of this thread"), e);
            }
            SysTransaction.end();
        }
    }

    public void aFunctionAsksToBeCalledAgain() throws IOException {
        int[] calls = new int[1];
        Transactions.run(FAST, () -> {
            write("a", "" + ++calls[0]);
            if (calls[0] < 3) {
                throw Transactions.again("too early");
            }
        });
        equal("3", read("a"), "a");
        ConflictException e = thrown(ConflictException.class, () -> Transactions.run(FAST.retries(1), () -> {
            throw Transactions.again("too early");
        }));
        equal("too early", e.getMessage(), "a message");
    }

    public void aBodyThatTakesTooLongIsInterrupted() {
        TransactionTimeoutException e = thrown(TransactionTimeoutException.class, () -> Transactions.run(
                FAST.timeout(Duration.ofSeconds(2)), () -> {
                    write("a", "1");
                    new CountDownLatch(1).await();
                }));
        check(e.getCause() instanceof InterruptedException, e);
        thrown(TransactionTimeoutException.class, () -> Transactions.run(
                FAST.timeout(Duration.ofMillis(20)), () -> {
                    // It makes no call, and returns as if it were in time.
                    long end = System.nanoTime() + 60_000_000_000L;
                    while (!Thread.currentThread().isInterrupted() && System.nanoTime() < end) {
                        Thread.onSpinWait();
                    }
                }));
        check(!Thread.interrupted(), "still interrupted");
        equal(5, Transactions.run(FAST.timeout(Duration.ofMinutes(1)), () -> 5), "in time");
        thrown(IllegalArgumentException.class, () -> FAST.timeout(Duration.ZERO));
        check(!Files.exists(dir.resolve("a")), "a");
    }

    public void aTimeoutEndsAWait() throws Exception {
        whileAnotherHolds("a", () -> {
            TransactionTimeoutException e = thrown(TransactionTimeoutException.class,
                    () -> Transactions.run(FAST.timeout(Duration.ofMillis(50)), () -> write("b", read("a"))));
            check(e.getMessage().contains("PT0.05S"), e);
        });
        check(!Thread.interrupted(), "still interrupted");
        // One that never returns, but makes calls.
        thrown(TransactionTimeoutException.class, () -> Transactions.run(FAST.timeout(Duration.ofMillis(50)), () -> {
            while (true) {
                write("b", "1");
            }
        }));
        check(!Files.exists(dir.resolve("b")), "b");
    }

    // --- Threads that take part ---

    public void threadsTakePart() throws Exception {
        write("old", "1");
        ExecutorService pool = Executors.newFixedThreadPool(4);
        try {
            int sum = Transactions.run(FAST, () -> {
                write("begun", "1");
                List<Callable<Integer>> tasks = new ArrayList<>();
                for (int i = 0; i < 8; i++) {
                    int number = i;
                    tasks.add(Transactions.takingPart(() -> part(number)));
                }
                int found = 0;
                for (Future<Integer> done : pool.invokeAll(tasks)) {
                    found += done.get();
                }
                check(!pool.submit(SysTransaction::isActive).get(), "a thread without a task is in it");
                equal(List.of("old", "paused"), outsider(), "what others see");
                // In its own thread, it is a call as ever.
                return found + Transactions.takingPart(() -> part(9)).call();
            });
            equal(28 + 9, sum, "what the tasks gave");
            List<String> made = new ArrayList<>(List.of("begun", "inner", "paused"));
            for (int i : new int[] {0, 1, 2, 3, 4, 5, 6, 7, 9}) {
                made.add("made" + i);
            }
            made.sort(null);
            equal(made, outsider(), "what others see");
            // Executors, and those of a task itself.
            Transactions.run(FAST, () -> {
                Executor members = Transactions.takingPart(pool);
                CompletableFuture<Void> all = new CompletableFuture<>();
                members.execute(() -> {
                    unchecked(() -> write("first", "1"));
                    Transactions.takingPart(pool).execute(() -> {
                        unchecked(() -> write("second", read("first")));
                        all.complete(null);
                    });
                });
                all.get();
                check(CompletableFuture.supplyAsync(() -> Files.exists(dir.resolve("second")), members).get(), "second");
                check(!outsider().contains("first"), "others see it");
            });
            equal("1", read("second"), "what was published");
        } finally {
            pool.shutdown();
        }
    }

    private int part(int number) throws IOException {
        check(SysTransaction.isActive(), "it is outside");
        equal("1", read("begun"), "what was made before");
        if (number == 3) {
            Files.delete(dir.resolve("old"));
        }
        if (number == 4) {
            Transactions.run(() -> write("inner", "1"));
        }
        if (number == 5) {
            try (SysTransaction.Paused paused = SysTransaction.pause()) {
                write("paused", "1");
            }
        }
        write("made" + number, "1");
        return number;
    }

    public void aFailureInAThreadAborts() throws Exception {
        ExecutorService pool = Executors.newSingleThreadExecutor();
        try {
            IllegalStateException broken = new IllegalStateException("broken");
            Callable<Void> fails = () -> {
                write("made", "1");
                throw broken;
            };
            // Passed on, caught, and after the function has returned.
            ExecutionException passed = thrown(ExecutionException.class,
                    () -> Transactions.run(FAST, () -> pool.submit(Transactions.takingPart(fails)).get()));
            check(passed.getCause() == broken, passed);
            AbortedException caught = thrown(AbortedException.class, () -> Transactions.run(FAST, () -> {
                thrown(ExecutionException.class, () -> pool.submit(Transactions.takingPart(fails)).get());
            }));
            check(caught.getCause() == broken && caught.getMessage().contains("broken"), caught);
            CountDownLatch begun = new CountDownLatch(1);
            CountDownLatch returned = new CountDownLatch(1);
            AbortedException late = thrown(AbortedException.class, () -> Transactions.run(FAST, () -> {
                pool.submit(Transactions.takingPart(() -> {
                    begun.countDown();
                    returned.await();
                    throw broken;
                }));
                begun.await();
                write("made", "1");
                returned.countDown();
            }));
            check(late.getCause() == broken, late);
            // An abort of one is for all.
            thrown(AbortedException.class, () -> Transactions.run(FAST, () -> {
                write("made", "1");
                pool.submit(Transactions.takingPart(() -> {
                    SysTransaction.abort();
                    return null;
                })).get();
            }));
            // Whose end is the business of the thread that began.
            Transactions.run(FAST, () -> pool.submit(Transactions.takingPart(() -> {
                thrown(TransactionStateException.class, SysTransaction::end);
                return null;
            })).get());
            // Too late, and without a transaction.
            AtomicReference<Callable<Void>> kept = new AtomicReference<>();
            Transactions.run(FAST, () -> kept.set(Transactions.takingPart(fails)));
            ExecutionException over = thrown(ExecutionException.class, () -> pool.submit(kept.get()).get());
            check(over.getCause() instanceof TransactionStateException && over.getMessage().contains("is over"), over);
            thrown(TransactionStateException.class, () -> Transactions.takingPart(fails));
            thrown(TransactionStateException.class, () -> Transactions.takingPart(pool));
        } finally {
            pool.shutdown();
        }
        equal(List.of(), outsider(), "what others see");
    }

    public void aConflictIsToldToAllThreads() throws Exception {
        write("a", "1");
        ExecutorService pool = Executors.newSingleThreadExecutor();
        try {
            Transactions.Result<Integer> result = Transactions.result(FAST, () -> pool.submit(Transactions.takingPart(() -> {
                int number = Integer.parseInt(read("a").trim());
                if (number == 1) {
                    shell("echo 10 > a");
                }
                write("a", "" + (number + 1));
                return number + 1;
            })).get());
            equal(11, result.value(), "what the second attempt counted");
            equal(2, result.attempts(), "attempts");
            equal(dir.resolve("a").toString(), result.conflicts().get(0).path().orElse(""), "the place");
        } finally {
            pool.shutdown();
        }
        equal("11", read("a"), "a");
    }

    public void filesThatAreLeftOut() throws Exception {
        write("plug-in.jar", "1");
        write("other", "1");
        equal(1L, Transactions.leaveOut(dir, ".jar"), "files");
        try (SysTransaction tx = SysTransaction.begin(FAST)) {
            FileInputStream kept = new FileInputStream(dir.resolve("plug-in.jar").toFile());
            equal("1", read("plug-in.jar"), "the jar");
            shell("echo 2 >> plug-in.jar");
            thrown(TransactionStateException.class, () -> Transactions.leaveOut(dir, ""));
            SysTransaction.abort();
            // Its descriptor has outlived the abort.
            equal("12\n", new String(kept.readAllBytes()), "the jar");
            kept.close();
        }
        Transactions.run(FAST.retries(0), () -> {
            read("plug-in.jar");
            shell("echo 3 >> plug-in.jar");
            write("b", "1");
        });
        thrown(ConflictException.class, () -> Transactions.run(FAST.retries(0), () -> {
            read("other");
            shell("echo 3 >> other");
            write("b", "1");
        }));
        thrown(TransactionStateException.class, () -> Transactions.leaveOut(dir.resolve("none"), ""));
    }

    public void aThreadThatEndsAborts() throws Exception {
        inThread(() -> {
            SysTransaction.begin(FAST);
            write("a", "1");
        });
        equal(List.of(), outsider(), "what others see");
        write("a", "2");
    }

    public void countersCount() {
        Transactions.Stats before = Transactions.stats();
        Transactions.run(FAST, () -> unchecked(() -> write("a", "1")));
        Transactions.Stats after = Transactions.stats();
        equal(before.begun() + 1, after.begun(), "begun");
        equal(before.committed() + 1, after.committed(), "committed");
        check(after.calls() > before.calls(), "calls");
        check(Transactions.libraryVersion().matches("\\d+\\.\\d+\\.\\d+.*"), Transactions.libraryVersion());
    }

    public void optionsAreValues() {
        equal(FAST.strict(true).strict(false), FAST, "options");
        check(!FAST.equals(Options.DEFAULT), "options");
        equal(FAST.hashCode(), Options.DEFAULT.durable(false).hashCode(), "hash codes");
    }

    // --- The class library: in a transaction that aborts, in one that commits, and without ---

    public void javaIo() throws Exception {
        same(top -> {
            try (FileOutputStream out = new FileOutputStream(top.resolve("new").toFile())) {
                out.write("one\n".getBytes());
            }
            try (FileOutputStream out = new FileOutputStream(top.resolve("before/one").toFile(), true)) {
                out.write("more\n".getBytes());
            }
            try (RandomAccessFile file = new RandomAccessFile(top.resolve("before/two").toFile(), "rw")) {
                file.seek(1);
                file.write('x');
                file.setLength(2);
            }
            File made = top.resolve("dir/deep").toFile();
            check(made.mkdirs() && new File(made, "f").createNewFile(), made);
            check(top.resolve("before/three").toFile().renameTo(new File(made, "three")), made);
            check(top.resolve("before/four").toFile().delete(), "four");
            check(new File(made, "f").setReadOnly() && new File(made, "f").length() == 0, made);
            try (ObjectOutputStream out = new ObjectOutputStream(
                    new FileOutputStream(top.resolve("object").toFile()))) {
                out.writeObject(new ArrayList<>(List.of("a", 1)));
            }
            try (ObjectInputStream in = new ObjectInputStream(
                    new FileInputStream(top.resolve("object").toFile()))) {
                equal(List.of("a", 1), in.readObject(), "an object");
            }
            Properties properties = new Properties();
            properties.setProperty("key", "value");
            try (FileOutputStream out = new FileOutputStream(top.resolve("xml").toFile())) {
                properties.storeToXML(out, null);
            }
            equal(List.of("before", "dir", "new", "object", "xml"),
                    Stream.of(top.toFile().list()).sorted().toList(), "a listing");
            return null;
        });
    }

    public void javaNio() throws Exception {
        same(top -> {
            Files.createDirectories(top.resolve("a/b/c"));
            Files.move(top.resolve("before/one"), top.resolve("a/b/uno"));
            Files.copy(top.resolve("before/two"), top.resolve("a/two"), StandardCopyOption.COPY_ATTRIBUTES);
            Files.createLink(top.resolve("a/hard"), top.resolve("a/two"));
            Files.createSymbolicLink(top.resolve("a/soft"), Path.of("../nowhere"));
            Files.setPosixFilePermissions(top.resolve("a/two"), PosixFilePermissions.fromString("rw-------"));
            Files.setLastModifiedTime(top.resolve("a/two"), FileTime.fromMillis(1000));
            equal(2, Files.getAttribute(top.resolve("a/two"), "unix:nlink"), "links");
            try (BufferedWriter writer = Files.newBufferedWriter(top.resolve("lines"))) {
                for (int i = 0; i < 10_000; i++) {
                    writer.write(i + "\n");
                }
            }
            try (Stream<String> lines = Files.lines(top.resolve("lines"))) {
                equal(10_000L, lines.count(), "lines");
            }
            Path scratch = Files.createTempFile(top, "scratch", ".tmp");
            Files.move(scratch, top.resolve("kept"), StandardCopyOption.ATOMIC_MOVE);
            List<String> seen = new ArrayList<>();
            Files.walkFileTree(top, new SimpleFileVisitor<>() {
                @Override
                public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) {
                    seen.add(file.getFileName().toString());
                    return FileVisitResult.CONTINUE;
                }
            });
            seen.sort(null);
            equal(List.of("four", "hard", "kept", "lines", "soft", "three", "two", "two", "uno"), seen, "a walk");
            try (Stream<Path> all = Files.walk(top.resolve("before"))) {
                for (Path path : all.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(path);
                }
            }
            return null;
        });
    }

    public void channels() throws Exception {
        same(top -> {
            try (FileChannel channel = FileChannel.open(top.resolve("before/one"),
                    StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                channel.write(ByteBuffer.wrap("head".getBytes()), 0);
                channel.position(channel.size());
                channel.write(new ByteBuffer[] {ByteBuffer.wrap("a".getBytes()), ByteBuffer.wrap("b".getBytes())});
                channel.force(true);
                try (FileLock lock = channel.lock()) {
                    check(lock.isValid(), lock);
                }
                try (FileChannel out = FileChannel.open(top.resolve("copy"),
                        StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                    channel.transferTo(0, channel.size(), out);
                    out.transferFrom(channel.position(0), out.size(), 3);
                }
                channel.truncate(5);
            }
            ByteBuffer direct = ByteBuffer.allocateDirect(16);
            try (FileChannel channel = FileChannel.open(top.resolve("copy"))) {
                check(channel.read(direct) > 0, direct);
            }
            return null;
        });
    }

    public void mappedBuffers() throws Exception {
        same(top -> {
            try (FileChannel channel = FileChannel.open(top.resolve("map"), StandardOpenOption.CREATE_NEW,
                    StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                MappedByteBuffer buffer = channel.map(FileChannel.MapMode.READ_WRITE, 0, 10_000);
                buffer.put(9_999, (byte) 'z');
                buffer.force();
                equal((byte) 'z', channel.map(FileChannel.MapMode.READ_ONLY, 9_000, 1_000).get(999), "a byte");
            }
            try (FileChannel channel = FileChannel.open(top.resolve("before/two"))) {
                equal((byte) '2', channel.map(FileChannel.MapMode.READ_ONLY, 0, 1).get(0), "a byte");
            }
            return null;
        });
    }

    public void zipFiles() throws Exception {
        same(top -> {
            try (ZipOutputStream out = new ZipOutputStream(Files.newOutputStream(top.resolve("zip")))) {
                ZipEntry entry = new ZipEntry("one");
                entry.setTime(1_000_000_000_000L);
                out.putNextEntry(entry);
                out.write(Files.readAllBytes(top.resolve("before/one")));
            }
            try (ZipFile zip = new ZipFile(top.resolve("zip").toFile())) {
                equal("1\n", new String(zip.getInputStream(zip.getEntry("one")).readAllBytes()), "an entry");
            }
            return null;
        });
    }

    public void theCompilerOfJava() throws Exception {
        same(top -> {
            Files.writeString(top.resolve("Made.java"), "class Made { class Inner {} Runnable r = () -> {}; }");
            JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
            int status = compiler.run(null, null, null, "-d", top + "", top.resolve("Made.java").toString());
            equal(0, status, "the compiler's status");
            check(Files.exists(top.resolve("Made$Inner.class")), "a class");
            return null;
        });
    }

    public void watchServicesSeeWhatIsPublished() throws Exception {
        try (WatchService watch = dir.getFileSystem().newWatchService()) {
            dir.register(watch, StandardWatchEventKinds.ENTRY_CREATE);
            thrown(IllegalStateException.class, () -> Transactions.run(FAST, () -> {
                write("aborted", "1");
                throw new IllegalStateException();
            }));
            Transactions.run(FAST, () -> {
                write("committed", "1");
                write("another", "1");
            });
            List<String> seen = new ArrayList<>();
            while (!seen.contains("committed") || !seen.contains("another")) {
                WatchKey key = watch.take();
                key.pollEvents().forEach(event -> seen.add(event.context().toString()));
                key.reset();
            }
            check(!seen.contains("aborted"), seen);
        }
    }

    public void asynchronousChannelsAreOutside() throws Exception {
        write("a", "old");
        Transactions.run(FAST, () -> {
            write("a", "new");
            // Its reads are made by another thread, by the number of a private descriptor.
            try (AsynchronousFileChannel channel = AsynchronousFileChannel.open(
                    dir.resolve("b"), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                channel.write(ByteBuffer.wrap("x".getBytes()), 0).get();
            }
            return null;
        });
        equal("new", Files.readString(dir.resolve("a")), "a");
        check(Files.exists(dir.resolve("b")), "b");
    }

    public void processesAreOutside() throws Exception {
        write("a", "before");
        Transactions.run(FAST, () -> {
            write("a", "after");
            equal("before", shell("cat a; echo 1 > made"), "what a process sees");
        });
        equal(List.of("a", "made"), outsider(), "what others see");
        UnsupportedCallException e = thrown(UnsupportedCallException.class,
                () -> Transactions.run(FAST.strict(true), () -> {
                    write("a", "strict");
                    shell("echo 1 > strict");
                }));
        check(e.getMessage().contains("process") || e.getMessage().contains("thread"), e);
        equal("after", Files.readString(dir.resolve("a")), "a");
        check(!Files.exists(dir.resolve("strict")), "a strict transaction started a process");
    }

    public void standardOutputIsLive() throws Exception {
        // On a pipe or terminal. A file is versioned, and what is written to it is private.
        boolean isFile = Files.isRegularFile(Path.of("/proc/self/fd/1"));
        for (String line : List.of("one", "two")) {
            thrown(IllegalStateException.class, () -> Transactions.run(FAST.strict(true), () -> {
                System.out.println("line " + line + (isFile ? " of a file" : "") + " in a transaction that aborts");
                System.out.flush();
                throw new IllegalStateException();
            }));
        }
        System.out.println("line three after both");
    }

    // --- What the virtual machine does by itself ---

    /** Another virtual machine is asked for its threads, by SIGQUIT and by jcmd, while it is in a transaction. */
    public void signalsOfTheMachineAreAnswered() throws Exception {
        Process process = new ProcessBuilder(
                        ProcessHandle.current().info().command().orElse("java"),
                        "-cp", System.getProperty("java.class.path"), "txos.Checks$Asked", dir.resolve("made").toString())
                .redirectErrorStream(true)
                .start();
        try (BufferedReader lines = process.inputReader()) {
            until(lines, "in a transaction");
            shell("kill -QUIT " + process.pid());
            until(lines, "Full thread dump");
            Path jcmd = Path.of(System.getProperty("java.home"), "bin", "jcmd");
            String told = shell(jcmd + " " + process.pid() + " Thread.print");
            check(told.contains("Full thread dump"), told);
            check(!Files.exists(dir.resolve("made")), "it has ended already");
            process.getOutputStream().write('\n');
            process.getOutputStream().flush();
            until(lines, "done");
        }
        equal(0, process.waitFor(), "an exit status");
        equal("1", read("made"), "what it wrote");
    }

    private static void until(BufferedReader lines, String text) throws IOException {
        List<String> seen = new ArrayList<>();
        String line;
        while ((line = lines.readLine()) != null) {
            seen.add(line);
            if (line.contains(text)) {
                return;
            }
        }
        throw new AssertionError("there is no " + text + " in " + seen);
    }

    /** See {@link #signalsOfTheMachineAreAnswered}. */
    static final class Asked {
        private Asked() {}

        public static void main(String[] args) throws Exception {
            Transactions.run(FAST, () -> {
                Files.writeString(Path.of(args[0]), "1");
                System.out.println("in a transaction");
                System.in.read();
            });
            System.out.println("done");
        }
    }

    public void compiledCodeAndItsTrapsGoOn() {
        Transactions.run(FAST, () -> unchecked(() -> {
            int count = 0;
            for (int i = 0; i < 300_000; i++) {
                // An implicit null check of compiled code is a SIGSEGV.
                try {
                    count += length(i % 1000 == 0 ? null : "abc");
                } catch (NullPointerException e) {
                    count++;
                }
            }
            equal(300 + 3 * 299_700, count, "a count");
            // Stack banging, guard pages and their mprotect.
            for (int i = 0; i < 3; i++) {
                thrown(StackOverflowError.class, () -> deep(0));
            }
            write("a", "1");
        }));
        check(Files.exists(dir.resolve("a")), "a");
    }

    private static int length(String text) {
        return text.length();
    }

    private static long deep(long n) {
        return deep(n + 1) + 1;
    }

    public void collectionsGoOn() throws Exception {
        AtomicReference<Throwable> failed = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 4; t++) {
            int number = t;
            threads.add(new Thread(() -> {
                try {
                    for (int i = 0; i < 20; i++) {
                        Transactions.run(FAST, () -> {
                            write("f" + number, "1");
                            for (int j = 0; j < 20; j++) {
                                SINK.set(new byte[256 << 10]);
                            }
                            System.gc();
                            check(Files.size(dir.resolve("f" + number)) == 1, "size");
                        });
                    }
                } catch (Throwable e) {
                    failed.set(e);
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        check(failed.get() == null, failed.get());
    }

    private static final AtomicReference<Object> SINK = new AtomicReference<>();

    public void aTransactionThatWaitsHoldsUpNoCollection() throws Exception {
        AtomicReference<Throwable> failed = new AtomicReference<>();
        Thread waiting = new Thread(() -> {
            try {
                Transactions.run(FAST, () -> write("b", Files.readString(dir.resolve("a"))));
            } catch (Throwable e) {
                failed.set(e);
            }
        });
        whileAnotherHolds("a", () -> {
            waiting.start();
            // A safepoint needs every thread; one that waits in the library is in native code.
            for (int i = 0; i < 20; i++) {
                System.gc();
            }
            check(!Files.exists(dir.resolve("b")), "it did not wait");
        });
        waiting.join();
        check(failed.get() == null, failed.get());
        equal("1", Files.readString(dir.resolve("b")), "what it read");
    }

    public void theVirtualMachinesFilesOutliveAnAbort() throws Exception {
        // What the class library keeps open once it has been opened.
        for (int i = 0; i < 3; i++) {
            thrown(IllegalStateException.class, () -> Transactions.run(FAST, () -> {
                SecureRandom.getInstance("NativePRNGBlocking").generateSeed(1);
                SecureRandom.getInstance("NativePRNG").nextInt();
                new java.util.Locale("fi").getDisplayLanguage();
                java.time.ZoneId.of("Europe/Helsinki").getRules();
                javax.xml.parsers.DocumentBuilderFactory.newInstance().newDocumentBuilder();
                java.net.InetAddress.getLoopbackAddress().getHostName();
                throw new IllegalStateException();
            }));
        }
        check(SecureRandom.getInstance("NativePRNG").nextLong() != 0, "random");
        // Names that the aborted ones had opened are free again; those of the machine are not.
        Files.writeString(dir.resolve("x"), "x");
        check(SecureRandom.getInstance("NativePRNGBlocking").generateSeed(4).length == 4, "random");
    }

    public void streamsThatAnAbortLeavesOverCloseNoOthers() throws Exception {
        write("a", "a");
        List<FileInputStream> left = new ArrayList<>();
        thrown(IllegalStateException.class, () -> Transactions.run(FAST, () -> {
            Files.readString(dir.resolve("a"));
            for (int i = 0; i < 8; i++) {
                left.add(new FileInputStream(dir.resolve("a").toFile()));
            }
            throw new IllegalStateException();
        }));
        List<FileInputStream> after = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            after.add(new FileInputStream(dir.resolve("a").toFile()));
        }
        for (FileInputStream stream : left) {
            thrown(IOException.class, stream::read);
            stream.close();
        }
        for (FileInputStream stream : after) {
            equal((int) 'a', stream.read(), "a byte");
            stream.close();
        }
        // One that was closed in a transaction that aborts is closed.
        FileInputStream early = new FileInputStream(dir.resolve("a").toFile());
        int before = new File("/proc/self/fd").list().length;
        thrown(IllegalStateException.class, () -> Transactions.run(FAST, () -> {
            early.read();
            early.close();
            throw new IllegalStateException();
        }));
        equal(before - 1, new File("/proc/self/fd").list().length, "descriptors");
    }

    public void virtualThreadsAreRefused() throws Exception {
        Method start;
        try {
            start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        } catch (NoSuchMethodException e) {
            System.out.println("no virtual threads in Java " + Runtime.version().feature());
            return;
        }
        AtomicReference<Throwable> told = new AtomicReference<>();
        Runnable work = () -> {
            try {
                SysTransaction.begin();
            } catch (Throwable e) {
                told.set(e);
            }
        };
        ((Thread) start.invoke(null, work)).join();
        check(told.get() instanceof TransactionStateException, told.get());
        check(told.get().getMessage().contains("virtual"), told.get());
        System.out.println("virtual threads are refused");
    }

    // --- Tools ---

    private interface Work {
        Object in(Path top) throws Exception;
    }

    private interface Risky {
        void run() throws Exception;
    }

    /** Does it in a transaction that aborts, in one that commits, and elsewhere without one: the same. */
    private void same(Work work) throws Exception {
        Path tree = prepared("tree");
        Path native_ = prepared("native");
        Map<String, String> untouched = state(tree);
        thrown(IllegalStateException.class, () -> Transactions.run(FAST, () -> {
            work.in(tree);
            throw new IllegalStateException();
        }));
        equal(untouched, state(tree), "after the abort");
        work.in(native_);
        Transactions.run(FAST.strict(true), () -> work.in(tree));
        equal(state(native_), state(tree), "after the commit");
        check(!untouched.equals(state(tree)), "nothing changed");
    }

    private Path prepared(String name) throws IOException {
        Path before = Files.createDirectories(dir.resolve(name).resolve("before"));
        int number = 1;
        for (String file : List.of("one", "two", "three", "four")) {
            Files.writeString(before.resolve(file), number++ + "\n");
        }
        return before.getParent();
    }

    /** As another process sees it: names, kinds, modes, contents. */
    private Map<String, String> state(Path top) throws Exception {
        String script = "cd '" + top + "' && find . -printf '%p %y %m %l\\n' && find . -type f -exec cksum {} +";
        Map<String, String> state = new TreeMap<>();
        shell(script).lines().forEach(line -> state.put(line, ""));
        return state;
    }

    private List<String> outsider() {
        return unchecked(() -> shell("ls")).lines().toList();
    }

    private String shell(String script) throws IOException {
        Process process = new ProcessBuilder("sh", "-c", script)
                .directory(dir.toFile()).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes());
        try {
            equal(0, process.waitFor(), said);
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
        return said;
    }

    private static void inThread(Risky work) {
        AtomicReference<Throwable> failed = new AtomicReference<>();
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable e) {
                failed.set(e);
            }
        });
        thread.start();
        unchecked(() -> {
            thread.join();
            return null;
        });
        check(failed.get() == null, failed.get());
    }

    private static <T> T unchecked(java.util.concurrent.Callable<T> work) {
        try {
            return work.call();
        } catch (RuntimeException e) {
            throw e;
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    private static void unchecked(Risky work) {
        unchecked(() -> {
            work.run();
            return null;
        });
    }

    private String read(String name) throws IOException {
        return Files.readString(dir.resolve(name));
    }

    private void write(String name, String text) throws IOException {
        Files.writeString(dir.resolve(name), text);
    }

    private static <E extends Throwable> E thrown(Class<E> kind, Risky work) {
        try {
            work.run();
        } catch (Throwable e) {
            if (kind.isInstance(e)) {
                return kind.cast(e);
            }
            throw new AssertionError("expected " + kind.getName(), e);
        }
        throw new AssertionError("expected " + kind.getName());
    }

    private static void equal(Object expected, Object found, String what) {
        check(expected.equals(found), what + ": expected " + expected + ", found " + found);
    }

    private static void check(boolean condition, Object what) {
        if (!condition) {
            throw what instanceof Throwable ? new AssertionError((Throwable) what) : new AssertionError(what);
        }
    }
}
