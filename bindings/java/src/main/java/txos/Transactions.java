package txos;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Functions as transactions.
 *
 * <pre>{@code
 * int count = Transactions.run(() -> {
 *     int n = Integer.parseInt(Files.readString(path).trim()) + 1;
 *     Files.writeString(path, n + "\n");
 *     return n;
 * });
 * }</pre>
 *
 * <p>An exception that leaves the function aborts, and goes on. After a conflict the function is called again,
 * with a random pause before. What it did to objects is not put back before that: let it compute from what it
 * reads.
 */
public final class Transactions {
    private static final int EBUSY = 16;
    // Random, so that those that met don't meet again, and longer each time.
    private static final int BACKOFF_MS = 1;
    private static final int BACKOFF_MAX_MS = 64;

    private Transactions() {}

    /**
     * What is run as a transaction.
     *
     * @param <T> what it gives
     * @param <X> what it throws
     */
    @FunctionalInterface
    public interface Body<T, X extends Exception> {
        /**
         * Does it.
         *
         * @return what {@link Transactions#run(Body)} gives
         * @throws X which aborts
         */
        T call() throws X;
    }

    /**
     * What is run as a transaction, and gives nothing.
     *
     * @param <X> what it throws
     */
    @FunctionalInterface
    public interface Action<X extends Exception> {
        /**
         * Does it.
         *
         * @throws X which aborts
         */
        void run() throws X;
    }

    /**
     * How a transaction came to its end.
     *
     * @param <T> what the body gives
     * @param value what the body gave
     * @param conflicts what each attempt before the last one lost, in order
     */
    public record Result<T>(T value, List<ConflictException> conflicts) {
        /**
         * How often the body was called.
         *
         * @return 1 or more
         */
        public int attempts() {
            return conflicts.size() + 1;
        }
    }

    /**
     * What the transactions of a thread came to since it started.
     *
     * @param begun transactions, each retry counted
     * @param committed published
     * @param aborted not published
     * @param calls system calls made within transactions
     * @param trapped of those, that came by Syscall User Dispatch: here nearly all
     * @param unsupported of those, that passed through with a warning
     * @param shortCuts commits of one call, or without changes
     */
    public record Stats(
            long begun, long committed, long aborted, long calls, long trapped, long unsupported, long shortCuts) {}

    /**
     * Calls a function as a transaction, with {@link Options#DEFAULT}.
     *
     * @param <T> what it gives
     * @param <X> what it throws
     * @param body the function
     * @return what it gave
     * @throws X what it threw; nothing has happened
     * @throws ConflictException all retries were used up
     * @throws TransactionException nothing has happened, for another reason
     */
    public static <T, X extends Exception> T run(Body<T, X> body) throws X {
        return result(Options.DEFAULT, body).value();
    }

    /**
     * Calls a function as a transaction, with {@link Options#DEFAULT}.
     *
     * @param <X> what it throws
     * @param action the function
     * @throws X what it threw; nothing has happened
     * @throws ConflictException all retries were used up
     * @throws TransactionException nothing has happened, for another reason
     */
    public static <X extends Exception> void run(Action<X> action) throws X {
        run(Options.DEFAULT, action);
    }

    /**
     * Calls a function as a transaction. Within another one it is part of that, and not retried.
     *
     * @param <T> what it gives
     * @param <X> what it throws
     * @param options how the transaction is to be
     * @param body the function
     * @return what it gave
     * @throws X what it threw; nothing has happened
     * @throws ConflictException all retries were used up
     * @throws TransactionException nothing has happened, for another reason
     */
    public static <T, X extends Exception> T run(Options options, Body<T, X> body) throws X {
        return result(options, body).value();
    }

    /**
     * Calls a function as a transaction. Within another one it is part of that, and not retried.
     *
     * @param <X> what it throws
     * @param options how the transaction is to be
     * @param action the function
     * @throws X what it threw; nothing has happened
     * @throws ConflictException all retries were used up
     * @throws TransactionException nothing has happened, for another reason
     */
    public static <X extends Exception> void run(Options options, Action<X> action) throws X {
        Body<Void, X> body = () -> {
            action.run();
            return null;
        };
        result(options, body);
    }

    /**
     * The same, and how it came to its end.
     *
     * @param <T> what it gives
     * @param <X> what it throws
     * @param options how the transaction is to be
     * @param body the function
     * @return what it gave, and the conflicts before
     * @throws X what it threw; nothing has happened
     * @throws ConflictException all retries were used up; those before are added as suppressed
     * @throws TransactionException nothing has happened, for another reason
     */
    public static <T, X extends Exception> Result<T> result(Options options, Body<T, X> body) throws X {
        boolean nested = SysTransaction.isActive();
        if (nested || !options.isKnown()) {
            return attempts(options, body, nested);
        }
        try {
            return attempts(options, body, false);
        } finally {
            // There is no further attempt: if it has not committed, it has failed for what comes after it.
            if (Native.isLoaded()) {
                Native.name(null);
            }
        }
    }

    private static <T, X extends Exception> Result<T> attempts(Options options, Body<T, X> body, boolean nested) throws X {
        List<ConflictException> lost = new ArrayList<>(0);
        while (true) {
            try {
                return new Result<>(once(options, body, lost.size()), List.copyOf(lost));
            } catch (ConflictException conflict) {
                if (nested || (options.retries() >= 0 && lost.size() >= options.retries())) {
                    lost.forEach(conflict::addSuppressed);
                    throw conflict;
                }
                lost.add(conflict);
            }
            int limit = Math.min(BACKOFF_MS << Math.min(lost.size() - 1, 16), BACKOFF_MAX_MS);
            pause(ThreadLocalRandom.current().nextLong(limit * 1_000_000L + 1));
        }
    }

    /** Interruption is the body's to see: it goes on being interrupted. */
    private static void pause(long nanos) {
        try {
            TimeUnit.NANOSECONDS.sleep(nanos);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static <T, X extends Exception> T once(Options options, Body<T, X> body, int attempt) throws X {
        int flags = options.isKnown() ? Native.RETRY : 0;
        if (options.timeout() == null) {
            return attempt(SysTransaction.begin(options, flags, attempt), body, null);
        }
        boolean nested = SysTransaction.isActive();
        try (Watch watch = Watch.start(options)) {
            SysTransaction transaction = SysTransaction.begin(options, flags, attempt);
            if (!nested) {
                Native.abortIf(watch.flag);
            }
            return attempt(transaction, body, watch);
        }
    }

    private static <T, X extends Exception> T attempt(SysTransaction transaction, Body<T, X> body, Watch watch) throws X {
        T value;
        try {
            value = body.call();
        } catch (Throwable thrown) {
            boolean late = watch != null && watch.stop();
            // It had failed before: this is only what the program, or the class library, made of that.
            TransactionException failure = transaction.abandon(thrown);
            if (late && thrown instanceof Exception && (failure == null || failure instanceof AbortedException)) {
                throw new TransactionTimeoutException(watch.message(), thrown);
            }
            if (failure != null) {
                throw failure;
            }
            throw thrown;
        }
        if (watch != null && watch.isLate()) {
            throw new TransactionTimeoutException(watch.message(), transaction.abandon(null));
        }
        if (!transaction.isInnermost()) {
            TransactionException failure = transaction.abandon(null);
            throw failure != null
                    ? failure
                    : new AbortedException("the function aborted the transaction, or left it otherwise", null);
        }
        try {
            SysTransaction.end();
        } catch (AbortedException e) {
            throw watch != null && watch.stop() ? new TransactionTimeoutException(watch.message(), e) : e;
        }
        return value;
    }

    /**
     * Leaves the body of a transaction, and has it called again, as after a conflict: what it needs is not there yet. One
     * that comes {@linkplain Options#after(String...) after} others is called when these have ended. It counts as a retry.
     *
     * <pre>{@code
     * Transactions.run(Options.DEFAULT.after("parts"), () -> {
     *     if (!Files.exists(Path.of("parts"))) {
     *         throw Transactions.again("there are no parts yet");
     *     }
     *     Files.copy(Path.of("parts"), Path.of("whole"));
     * });
     * }</pre>
     *
     * @param why what the exception says if no retry is left
     * @return never; for the compiler
     * @throws ConflictException always
     */
    public static ConflictException again(String why) {
        throw new ConflictException(why, null, null, 0, 0);
    }

    /**
     * Makes a task that other threads can call as part of the calling thread's transaction.
     *
     * <pre>{@code
     * Transactions.run(() -> {
     *     List<Callable<Void>> tasks = new ArrayList<>();
     *     for (Path file : files) {
     *         tasks.add(Transactions.takingPart(() -> convert(file)));
     *     }
     *     for (Future<Void> done : pool.invokeAll(tasks)) {
     *         done.get();
     *     }
     * });
     * }</pre>
     *
     * <p>Such a call sees and makes the transaction's changes. The transaction's end waits for calls that are not
     * over. One that throws aborts the transaction, and so does a conflict in it. Threads make their system
     * calls for files one at a time, so this does not make them faster. Descriptors, the working directory and the user
     * are to be those of the thread that began. Start the threads before the transaction if it is
     * {@linkplain Options#strict(boolean) strict}: to make one has no part in transactions.
     *
     * @param <T> what it gives
     * @param task what is to be part of the transaction
     * @return to be called by any platform thread before the transaction ends; a call throws
     *     {@link TransactionStateException} after that, in a virtual thread, and in a thread that is in another
     *     transaction, and has not begun then. In a thread of the same transaction it is a call as ever.
     * @throws TransactionStateException the calling thread is in no transaction, or in one that can't be shared: within
     *     {@code txos run}, the whole command is one already
     * @throws TransactionException the transaction has failed already
     */
    public static <T> Callable<T> takingPart(Callable<T> task) {
        Members members = SysTransaction.members();
        return () -> members.call(task);
    }

    /**
     * An executor whose tasks take part in the calling thread's transaction, as
     * {@link #takingPart(Callable)} says; for {@link java.util.concurrent.CompletableFuture} among others.
     *
     * @param pool what runs the tasks; it is used only through what this gives
     * @return to be given tasks before the transaction ends. One that throws aborts the transaction.
     * @throws TransactionStateException the calling thread is in no transaction, or in one that can't be shared
     * @throws TransactionException the transaction has failed already
     */
    public static Executor takingPart(Executor pool) {
        Members members = SysTransaction.members();
        return task -> pool.execute(() -> {
            try {
                members.call(Executors.callable(task));
            } catch (RuntimeException e) {
                throw e;
            } catch (Exception e) {
                throw new AssertionError("a task without a checked exception has thrown one", e);
            }
        });
    }

    /**
     * Leaves a file, or all files below a directory, out of the transactions of this process as long as they are only
     * read: no conflict, no wait, and an abort does not close them. It is for jars and classes that are opened late,
     * such as a plug-in's. A file is known by device and inode as it is now: one that takes its place is part of
     * transactions.
     *
     * @param path a file or a directory
     * @param suffix how the names of files below a directory end, for example {@code .jar}; empty: all
     * @return how many files
     * @throws TransactionStateException in a transaction, or the path can't be read; the message says why
     * @throws TransactionsUnavailableException there are no transactions here
     */
    public static long leaveOut(Path path, String suffix) {
        Native.load();
        long count = Native.leaveOut(path, suffix);
        if (count < 0) {
            String why = count == -EBUSY ? "the thread is in one" : "it can't be read (errno " + -count + ")";
            throw new TransactionStateException("can't be left out of transactions: " + path + ": " + why);
        }
        return count;
    }

    /**
     * The counters of the calling thread.
     *
     * @return as of now
     * @throws TransactionsUnavailableException there are no transactions here
     */
    public static Stats stats() {
        Native.load();
        long[] out = new long[7];
        Native.stats(out);
        return new Stats(out[0], out[1], out[2], out[3], out[4], out[5], out[6]);
    }

    /**
     * The version of the library that was found.
     *
     * @return for example {@code 0.1.0}
     * @throws TransactionsUnavailableException there are no transactions here
     */
    public static String libraryVersion() {
        Native.load();
        return Native.string(Native.version());
    }

    /** Calls a transaction off after a while, and interrupts its thread. */
    private static final class Watch implements AutoCloseable {
        private static final ScheduledExecutorService CLOCK = Executors.newSingleThreadScheduledExecutor(task -> {
            Thread thread = new Thread(task, "txos-timeouts");
            thread.setDaemon(true);
            return thread;
        });

        static {
            // Its thread is not to be made within a transaction.
            CLOCK.submit(() -> {});
        }

        /** Where the library looks. */
        final long flag;
        private final Options options;
        private final Thread thread = Thread.currentThread();
        private final ScheduledFuture<?> alarm;
        private boolean stopped;
        private boolean late;

        static Watch start(Options options) {
            Native.load();
            if (!SysTransaction.isActive()) {
                return new Watch(options);
            }
            try (SysTransaction.Paused paused = SysTransaction.pause()) {
                return new Watch(options);
            }
        }

        private Watch(Options options) {
            this.options = options;
            this.flag = Native.newFlag();
            if (flag == 0) {
                throw new OutOfMemoryError("four bytes for a limit of time");
            }
            this.alarm = CLOCK.schedule(this::ring, options.timeout().toNanos(), TimeUnit.NANOSECONDS);
        }

        private synchronized void ring() {
            if (!stopped) {
                late = true;
                Native.setFlag(flag);
                thread.interrupt();
            }
        }

        synchronized boolean isLate() {
            return late;
        }

        /** Whether it was too late. */
        synchronized boolean stop() {
            if (!stopped) {
                stopped = true;
                alarm.cancel(false);
                if (late) {
                    Thread.interrupted();
                }
            }
            return late;
        }

        /** When the transaction has ended. */
        @Override
        public void close() {
            stop();
            Native.freeFlag(flag);
        }

        String message() {
            return "the transaction took longer than " + options.timeout() + ", and was aborted";
        }
    }
}
