package txos;

/**
 * A system transaction of the calling thread: what the thread does to files between {@link #begin()} and
 * {@link #end()} is published as a whole at the end, or has never happened.
 *
 * <pre>{@code
 * try (var tx = SysTransaction.begin()) {
 *     Files.writeString(Path.of("app.conf"), "port = 8080\n");
 *     Files.writeString(Path.of("proxy.conf"), "backend = localhost:8080\n");
 *     SysTransaction.end();
 * }
 * }</pre>
 *
 * <p>A block that is left without {@code end()}, by an exception for example, aborts. {@link Transactions} runs
 * a function as a transaction, and again after a conflict.
 *
 * <p>Objects are not put back by an abort, only files: what was computed is still in its variables. It is the
 * thread's system calls that are transactional, so any library takes part; other threads do not, unless they run
 * tasks of {@link Transactions#takingPart(java.util.concurrent.Callable)}, nor does a process that the transaction
 * starts. A transaction within another is part of it: one commit at the outermost
 * end.
 *
 * @see <a href="https://doi.org/10.1145/2168836.2168840">Improving Server Applications with System
 *     Transactions, EuroSys 2012, section 5</a>, where these functions are from
 */
public final class SysTransaction implements AutoCloseable {
    /** The innermost transaction of a thread that is not paused. */
    private static final ThreadLocal<SysTransaction> INNERMOST = new ThreadLocal<>();

    private final SysTransaction outer;
    /** Changes when a paused transaction goes on in another thread. */
    private volatile Thread thread = Thread.currentThread();
    private boolean ended;
    /** One within it was closed without its end. */
    private boolean spoiled;
    /** Of the one that was innermost when it was paused. */
    private Paused paused;
    /** Other threads that take part; of the outermost one. */
    private Members members;
    /** It stands for a task of another thread that takes part. */
    private final boolean isMember;

    private SysTransaction(SysTransaction outer, Members members) {
        this.outer = outer;
        this.members = members;
        this.isMember = members != null;
    }

    /** The calling thread has just begun to take part. */
    static SysTransaction member(Members members) {
        SysTransaction member = new SysTransaction(null, members);
        INNERMOST.set(member);
        return member;
    }

    /**
     * Begins a transaction in the calling thread, with {@link Options#DEFAULT}.
     *
     * @return to close; it aborts if it has not been ended by then
     * @throws TransactionException as {@link #begin(Options)}
     */
    public static SysTransaction begin() {
        return begin(Options.DEFAULT);
    }

    /**
     * Begins a transaction in the calling thread. Within another one it is part of that, whose options hold; it can't have
     * a name, or come after others, of its own.
     *
     * @param options how it is to be; retries and timeout are for {@link Transactions}
     * @return to close; it aborts if it has not been ended by then
     * @throws TransactionsUnavailableException there are no transactions here; the message says why
     * @throws TransactionException it could not be begun
     * @throws NotProducedException what it is to come after is not there, or has failed
     * @throws TransactionStateException in a virtual thread; within another one, if it has a name or comes after others
     */
    public static SysTransaction begin(Options options) {
        return begin(options, 0, 0);
    }

    /** With more flags, for an attempt: 0, 1, … */
    static SysTransaction begin(Options options, int flags, int attempt) {
        Native.load();
        SysTransaction outer = INNERMOST.get();
        if (outer == null) {
            refuseVirtualThread();
            // A further attempt has its name already.
            int errno = options.isKnown() && attempt == 0 ? Native.name(options.nameBytes()) : 0;
            if (errno == 0) {
                errno = Native.begin(options.flags() | flags, options.sequence(), options.afterBytes());
            }
            if (errno != 0) {
                TransactionException failure = TransactionException.ofBegin(errno, options.afterBytes() != null);
                if (options.isKnown() && flags == 0) {
                    // The next transaction is not to have it.
                    Native.name(null);
                }
                throw failure;
            }
        } else if (options.isKnown()) {
            throw new TransactionStateException("a transaction within another one is part of that: it has no name, and"
                    + " comes after nothing, of its own");
        }
        SysTransaction begun = new SysTransaction(outer, null);
        INNERMOST.set(begun);
        return begun;
    }

    static void refuseVirtualThread() {
        if (Native.inVirtualThread()) {
            throw new TransactionStateException(
                    "a transaction is a thread's of the system, and a virtual thread changes from one to"
                            + " another: run it in a platform thread (Thread.ofPlatform(), or an"
                            + " ExecutorService of such threads)");
        }
    }

    /**
     * Ends the innermost transaction of the calling thread. If it is the outermost one as well, it is
     * committed: all that it did is published now.
     *
     * @throws ConflictException another process or transaction was in the way; nothing has happened
     * @throws TransactionException nothing has happened, for another reason
     * @throws TransactionStateException the calling thread is in no transaction
     */
    public static void end() {
        SysTransaction now = innermost("ended");
        if (now.isMember) {
            throw new TransactionStateException(
                    "the thread takes part in a transaction that another one began, and leaves it when the task returns");
        }
        now.leave();
        if (now.outer != null) {
            return;
        }
        if (now.spoiled) {
            Native.abort();
            TransactionException why = now.whyOf(null);
            throw why != null
                    ? why
                    : new AbortedException("a transaction within this one was closed without its end", null);
        }
        boolean committed = Native.end() == 0;
        TransactionException why = committed ? null : now.whyOf(null);
        now.hide();
        if (!committed) {
            throw why != null ? why : TransactionException.ofAbort(null);
        }
    }

    /** Why it failed, if that was not what the program asked for; after its end. */
    private TransactionException whyOf(Throwable cause) {
        if (!TransactionException.lastWasAsked()) {
            hide();
            return TransactionException.ofAbort(cause);
        }
        Throwable failure = members == null ? null : members.failure();
        hide();
        for (Throwable each = cause; each != null; each = each.getCause()) {
            if (each == failure) {
                return null;
            }
        }
        if (failure == null) {
            return null;
        }
        AbortedException why = new AbortedException("a task that took part in the transaction failed: " + failure, failure);
        if (cause != null) {
            why.addSuppressed(cause);
        }
        return why;
    }

    private void hide() {
        if (members != null) {
            members.close();
        }
    }

    /**
     * Aborts the transaction of the calling thread, with all those that it is part of, and for all threads that
     * take part: nothing of them has happened. Descriptors that they opened are dead: to read from a stream that is left over fails, and to
     * close it is right.
     *
     * @throws TransactionStateException the calling thread is in no transaction
     */
    public static void abort() {
        SysTransaction now = innermost("aborted");
        SysTransaction outermost = now;
        for (SysTransaction each = now; each != null; each = each.outer) {
            each.ended = true;
            outermost = each;
        }
        INNERMOST.remove();
        Native.abort();
        if (!outermost.isMember) {
            outermost.hide();
        }
    }

    /**
     * Leaves the transaction for a while: what follows is not part of it, happens at once, and does not see
     * what the transaction has changed.
     *
     * @return to close, which goes on with the transaction
     * @throws TransactionStateException the calling thread is in no transaction
     */
    public static Paused pause() {
        SysTransaction now = innermost("paused");
        long id = Native.pause();
        if (id < 0) {
            throw new TransactionStateException("the transaction can't be paused: " + Native.string(Native.words()));
        }
        INNERMOST.remove();
        Paused paused = new Paused(now, id);
        for (SysTransaction each = now; each != null; each = each.outer) {
            each.paused = paused;
        }
        return paused;
    }

    /**
     * Goes on with a transaction that was paused, in the calling thread, as {@link Paused#close()} does.
     *
     * @param paused what {@link #pause()} gave
     * @throws TransactionStateException it goes on already, or the calling thread is in another transaction
     */
    public static void resume(Paused paused) {
        paused.close();
    }

    /**
     * Whether the calling thread is in a transaction, and has not paused it.
     *
     * @return false also where there are no transactions
     */
    public static boolean isActive() {
        return INNERMOST.get() != null;
    }

    /**
     * Aborts the transaction if it has not been ended; else does nothing. If it is within another one, that
     * one can't commit any more.
     *
     * @throws ConflictException the transaction had lost a conflict already. (In a block that an exception
     *     leaves, it is added to that one as suppressed.)
     * @throws TransactionException it had failed for another reason
     * @throws TransactionStateException in another thread than the transaction's, or while it is paused; the
     *     transaction is as it was
     */
    @Override
    public void close() {
        if (ended) {
            return;
        }
        if (thread != Thread.currentThread()) {
            throw new TransactionStateException("a transaction ends in the thread in which it runs, which is "
                    + thread.getName() + ", and not " + Thread.currentThread().getName());
        }
        if (INNERMOST.get() != this) {
            throw new TransactionStateException(
                    INNERMOST.get() == null
                            ? "the transaction is paused: resume it before it is closed"
                            : "a transaction within this one has not ended yet: close that one first");
        }
        TransactionException failure = abandon(null);
        if (failure != null) {
            throw failure;
        }
    }

    boolean isInnermost() {
        return INNERMOST.get() == this;
    }

    private SysTransaction outermost() {
        SysTransaction outermost = this;
        while (outermost.outer != null) {
            outermost = outermost.outer;
        }
        return outermost;
    }

    /** Whether the calling thread is in the transaction of these. */
    static boolean isIn(Members members) {
        SysTransaction now = INNERMOST.get();
        return now != null && now.outermost().members == members;
    }

    /** The calling thread's transaction, shown to others. */
    static Members members() {
        SysTransaction outermost = innermost("shown to other threads").outermost();
        if (outermost.members == null) {
            outermost.members = Members.show();
        }
        return outermost.members;
    }

    /** Nothing that a task has begun in it is left, or has failed. */
    boolean isWhole() {
        return isInnermost() && !spoiled;
    }

    /** A task has ended. */
    void leaveMembers(boolean good) {
        if (ended) {
            return;
        }
        if (good) {
            leave();
            Native.end();
            return;
        }
        if (paused != null) {
            paused.close();
        }
        ended = true;
        INNERMOST.remove();
        Native.abort();
    }

    /** Aborts what a function has left behind, in whatever state; gives why it had failed already. */
    TransactionException abandon(Throwable cause) {
        if (ended) {
            return null;
        }
        if (paused != null) {
            paused.close();
        }
        while (INNERMOST.get() != null && INNERMOST.get() != this) {
            INNERMOST.get().leave();
        }
        if (INNERMOST.get() == null) {
            return null; // It went on in another thread, which also hides it.
        }
        leave();
        if (outer != null) {
            outer.spoiled = true;
            return null;
        }
        Native.abort();
        return whyOf(cause);
    }

    private void leave() {
        ended = true;
        if (outer == null) {
            INNERMOST.remove();
        } else {
            INNERMOST.set(outer);
            outer.spoiled |= spoiled;
        }
    }

    private static SysTransaction innermost(String what) {
        SysTransaction now = INNERMOST.get();
        if (now == null) {
            throw new TransactionStateException("there is no transaction in thread "
                    + Thread.currentThread().getName() + " that could be " + what
                    + ": it is the thread's that began it");
        }
        return now;
    }

    /** A transaction that is paused. */
    public static final class Paused implements AutoCloseable {
        private final SysTransaction transaction;
        private final long id;
        private boolean resumed;

        private Paused(SysTransaction transaction, long id) {
            this.transaction = transaction;
            this.id = id;
        }

        /**
         * Goes on with the transaction, in the calling thread, which may be another one than before. Does
         * nothing if it goes on already.
         *
         * @throws TransactionStateException the calling thread is in another transaction; this one stays paused
         */
        @Override
        public synchronized void close() {
            if (resumed) {
                return;
            }
            if (INNERMOST.get() != null) {
                throw new TransactionStateException("the thread is in another transaction: end it first");
            }
            if (Native.inVirtualThread()) {
                throw new TransactionStateException("a transaction can't go on in a virtual thread");
            }
            int errno = Native.resume(id);
            if (errno != 0) {
                throw new TransactionStateException("the transaction can't go on (errno " + errno + "): "
                        + Native.string(Native.words()));
            }
            resumed = true;
            for (SysTransaction each = transaction; each != null; each = each.outer) {
                each.thread = Thread.currentThread();
                each.paused = null;
            }
            INNERMOST.set(transaction);
        }
    }
}
