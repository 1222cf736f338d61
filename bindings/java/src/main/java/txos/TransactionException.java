package txos;

import java.util.Optional;
import java.util.OptionalInt;

/**
 * A transaction could not be begun, or did not happen. Nothing of it has: each file is as it was.
 *
 * <p>The message says what happened, where and why; {@link #path()}, {@link #opponent()} and {@link #errno()}
 * say it to a program, as {@code txos_abort_reason} does in C.
 */
public class TransactionException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private static final int ASKED = 1;
    private static final int CONFLICT = 2;
    private static final int UNSUPPORTED = 3;
    private static final int PRODUCER = 8;

    private static final int ESRCH = 3;
    private static final int ECANCELED = 125;
    private static final int ENOSYS = 38;
    private static final int EAGAIN = 11;
    private static final int ENOTSUP = 95;

    /** Where it happened, or null. */
    private final String path;
    /** The process that won, or 0. */
    private final int opponent;
    /** As in errno(3), or 0. */
    private final int errno;

    TransactionException(String message, Throwable cause, String path, int opponent, int errno) {
        super(message, cause);
        this.path = path;
        this.opponent = opponent;
        this.errno = errno;
    }

    /**
     * Where it happened.
     *
     * @return the path of a file, if it has a place
     */
    public final Optional<String> path() {
        return Optional.ofNullable(path);
    }

    /**
     * The process that won a conflict.
     *
     * @return its process number, if it is known
     */
    public final OptionalInt opponent() {
        return opponent > 0 ? OptionalInt.of(opponent) : OptionalInt.empty();
    }

    /**
     * The error number.
     *
     * @return as in {@code errno(3)}; 0 if there is none
     */
    public final int errno() {
        return errno;
    }

    /** Why the last transaction of this thread was aborted. */
    static TransactionException ofAbort(Throwable cause) {
        int[] numbers = new int[3];
        byte[] text = Native.reason(numbers, 0);
        String what = text == null || text.length == 0 ? "the transaction was aborted" : Native.string(text);
        byte[] place = Native.reason(numbers, 1);
        String path = place == null || place.length == 0 ? null : Native.string(place);
        String message = path == null || what.contains(path) ? what : what + ": " + path;
        switch (numbers[0]) {
            case CONFLICT:
                return new ConflictException(message, cause, path, numbers[2], numbers[1]);
            case UNSUPPORTED:
                return new UnsupportedCallException(message, cause, path, numbers[1]);
            case ASKED:
                return new AbortedException(message, cause);
            case PRODUCER:
                return new NotProducedException(message, cause, numbers[1]);
            default:
                return new PublishFailedException(message, cause, path, numbers[1]);
        }
    }

    /** Whether the last abort of this thread was asked for, and not a failure of its own. */
    static boolean lastWasAsked() {
        int[] numbers = new int[3];
        Native.reason(numbers, 0);
        return numbers[0] == ASKED || numbers[0] == 0;
    }

    /** A transaction could not be begun, which was to come after others or not. */
    static TransactionException ofBegin(int errno, boolean isAfter) {
        String words = Native.string(Native.words());
        String what = words.equals("no error") ? "a transaction could not be begun: errno " + errno : words;
        if (isAfter && (errno == ESRCH || errno == ECANCELED)) {
            return new NotProducedException(what, null, errno);
        }
        switch (errno) {
            case EAGAIN:
                return new ConflictException(what, null, null, 0, errno);
            case ENOSYS:
            case ENOTSUP:
                return new TransactionsUnavailableException(what, null);
            default:
                return new PublishFailedException(what, null, null, errno);
        }
    }
}
