package txos;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Objects;

/**
 * How a transaction is to be. Immutable: each method gives a copy with one difference.
 *
 * <pre>{@code
 * Transactions.run(Options.DEFAULT.durable(false).retries(3), () -> Files.delete(path));
 * }</pre>
 */
public final class Options {
    /** Durable, not strict, waiting, up to ten retries, without an order, a limit of time or a name. */
    public static final Options DEFAULT = new Options(Native.DURABLE, 10, 0, null, null, List.of());

    private static final int NAME_MAX = 255;

    private final int flags;
    private final int retries;
    private final long sequence;
    private final Duration timeout;
    private final String name;
    private final List<String> after;

    private Options(int flags, int retries, long sequence, Duration timeout, String name, List<String> after) {
        this.flags = flags;
        this.retries = retries;
        this.sequence = sequence;
        this.timeout = timeout;
        this.name = name;
        this.after = after;
    }

    private Options with(int flag, boolean on) {
        return new Options(on ? flags | flag : flags & ~flag, retries, sequence, timeout, name, after);
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
        return new Options(flags, more, sequence, timeout, name, after);
    }

    /**
     * Commits in the order of a sequence among the threads of this process group: number <i>n</i> waits for
     * <i>n</i> - 1.
     *
     * @param number the place in the sequence
     * @return the options with that
     */
    public Options ordered(long number) {
        return inOrder(flags & ~Native.ORDER_RESET | Native.ORDERED, number);
    }

    /**
     * The same, and the sequence begins at this number.
     *
     * @param number the first number of the sequence
     * @return the options with that
     */
    public Options orderedFrom(long number) {
        return inOrder(flags | Native.ORDERED | Native.ORDER_RESET, number);
    }

    private Options inOrder(int flags, long number) {
        if (!after.isEmpty()) {
            throw new IllegalArgumentException(ONE_ORDER);
        }
        return new Options(flags, retries, number, timeout, name, after);
    }

    private static final String ONE_ORDER = "a transaction comes after others, or in the order of a number";

    /**
     * A name, by which others can come after the transaction: programs with {@link #after(String...)}, commands with
     * {@code txos run --after}. One that {@link Transactions} runs has it through all of its attempts.
     *
     * @param name 255 bytes at the most, without control characters; null: none, the default
     * @return the options with that
     */
    public Options name(String name) {
        return new Options(flags, retries, sequence, timeout, name == null ? null : checked(name), after);
    }

    /**
     * Comes after others that run already: transactions with these names, and commands with these names or ids. The
     * transaction begins at once. Where it looks at what they have changed, it waits for their end, and it commits after
     * them. If it has looked before, that is a conflict, after which {@link Transactions} calls its body again when they have
     * ended; so it is when the body finds that it is too early, and calls {@link Transactions#again(String)}. If one of
     * them does not commit, the transaction fails with {@link NotProducedException}; so it does at its beginning if there
     * is nothing of a name.
     *
     * @param names of what it comes after; none: of nothing, the default
     * @return the options with that
     */
    public Options after(String... names) {
        List<String> all = List.of(names);
        all.forEach(Options::checked);
        if (!all.isEmpty() && (flags & Native.ORDERED) != 0) {
            throw new IllegalArgumentException(ONE_ORDER);
        }
        int flags = all.isEmpty() ? this.flags & ~Native.AFTER : this.flags | Native.AFTER;
        return new Options(flags, retries, sequence, timeout, name, all);
    }

    /** As the library does. */
    private static String checked(String name) {
        int length = name.getBytes(StandardCharsets.UTF_8).length;
        if (length == 0 || length > NAME_MAX || name.codePoints().anyMatch(Character::isISOControl)) {
            throw new IllegalArgumentException("a name has 1 to 255 bytes, and no control characters: " + name);
        }
        return name;
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
        return new Options(flags, retries, sequence, limit, name, after);
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

    /** Whether the transaction has a place among those that come after each other. */
    boolean isKnown() {
        return name != null || !after.isEmpty();
    }

    /** Zero-terminated, or null. */
    byte[] nameBytes() {
        return name == null ? null : (name + "\0").getBytes(StandardCharsets.UTF_8);
    }

    /** One a line, zero-terminated; or null. */
    byte[] afterBytes() {
        return after.isEmpty() ? null : (String.join("\n", after) + "\0").getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Options
                && ((Options) other).flags == flags
                && ((Options) other).retries == retries
                && ((Options) other).sequence == sequence
                && Objects.equals(((Options) other).timeout, timeout)
                && Objects.equals(((Options) other).name, name)
                && ((Options) other).after.equals(after);
    }

    @Override
    public int hashCode() {
        return Objects.hash(flags, retries, sequence, timeout, name, after);
    }
}
