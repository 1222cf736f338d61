package txos;

/**
 * The body of a transaction took longer than {@link Options#timeout(java.time.Duration)} allows. Its thread was
 * interrupted, and the transaction aborted when the body ended; nothing of it has happened.
 */
public final class TransactionTimeoutException extends TransactionException {
    private static final long serialVersionUID = 1L;

    TransactionTimeoutException(String message, Throwable cause) {
        super(message, cause, null, 0, 0);
    }
}
