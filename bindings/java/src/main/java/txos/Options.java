package txos;

import java.time.Duration;
import java.util.Objects;

/**
 * How a transaction is to be. Immutable: each method gives a copy with one difference.
 *
 * <pre>{@code
 * Transactions.run(Options.DEFAULT.durable(false).retries(3), () -> Files.delete(path));
 * }</pre>
 */
public final class Options {
    /** Durable, not strict, waiting, up to ten retries, without an order or a limit of time. */
    public static final Options DEFAULT = new Options(Native.DURABLE, 10, 0, null);

    private final int flags;
    private final int retries;
    private final long sequence;
    private final Duration timeout;

    private Options(int flags, int retries, long sequence, Duration timeout) {
        this.flags = flags;
        this.retries = retries;
        this.sequence = sequence;
        this.timeout = timeout;
    }

    private Options with(int flag, boolean on) {
        return new Options(on ? flags | flag : flags & ~flag, retries, sequence, timeout);
    }

    /**
     * Whether the changes survive a power cut once the transaction has ended (a flush: a few milliseconds on
     * most disks).
     *
     * @param on true by default
     * @return the options with that
     */
    public Options durable(boolean on) {
        return with(Native.DURABLE, on);
    }

    /**
     * Whether a call that can't be part of a transaction aborts it, with {@link UnsupportedCallException}. Else
     * it is made at once, with one warning on standard error.
     *
     * @param on false by default
     * @return the options with that
     */
    public Options strict(boolean on) {
        return with(Native.STRICT, on);
    }

    /**
     * Whether the transaction fails at once, with {@link ConflictException}, where another transaction is in
     * the way. Else it waits, up to 60 s.
     *
     * @param on false by default
     * @return the options with that
     */
    public Options nonblock(boolean on) {
        return with(Native.NONBLOCK, on);
    }

    /**
     * How often {@link Transactions#run(Options, Transactions.Body)} calls its body again after conflicts.
     *
     * @param more calls after the first one; negative: without end. 10 by default
     * @return the options with that
     */
    public Options retries(int more) {
        return new Options(flags, more, sequence, timeout);
    }

    /**
     * Commits in the order of a sequence among the threads of this process group: number <i>n</i> waits for
     * <i>n</i> - 1.
     *
     * @param number the place in the sequence
     * @return the options with that
     */
    public Options ordered(long number) {
        return new Options(flags & ~Native.ORDER_RESET | Native.ORDERED, retries, number, timeout);
    }

    /**
     * The same, and the sequence begins at this number.
     *
     * @param number the first number of the sequence
     * @return the options with that
     */
    public Options orderedFrom(long number) {
        return new Options(flags | Native.ORDERED | Native.ORDER_RESET, retries, number, timeout);
    }

    /**
     * How long one attempt may take, the wait for other transactions included. After that its thread is
     * {@linkplain Thread#interrupt() interrupted}, the next system call for a file fails, and so does a wait for another
     * transaction; the transaction is aborted, and {@link TransactionTimeoutException} is thrown when the body has ended.
     * Java has no means to stop a body that goes on nevertheless. Within another transaction the thread is only
     * interrupted.
     * Holds for {@link Transactions} only.
     *
     * @param limit more than nothing; null: none, the default
     * @return the options with that
     */
    public Options timeout(Duration limit) {
        if (limit != null && (limit.isNegative() || limit.isZero())) {
            throw new IllegalArgumentException("a limit of time must be more than nothing: " + limit);
        }
        return new Options(flags, retries, sequence, limit);
    }

    int flags() {
        return flags | Native.MANAGED;
    }

    int retries() {
        return retries;
    }

    long sequence() {
        return sequence;
    }

    Duration timeout() {
        return timeout;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Options
                && ((Options) other).flags == flags
                && ((Options) other).retries == retries
                && ((Options) other).sequence == sequence
                && Objects.equals(((Options) other).timeout, timeout);
    }

    @Override
    public int hashCode() {
        return Objects.hash(flags, retries, sequence, timeout);
    }
}
