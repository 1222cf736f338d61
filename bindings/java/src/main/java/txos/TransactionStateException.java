package txos;

/**
 * The program used a transaction in a way that it can't be used: ended one that was not begun, in another
 * thread than it was begun in, or in a virtual thread. What transactions there are is as it was.
 */
public final class TransactionStateException extends IllegalStateException {
    private static final long serialVersionUID = 1L;

    TransactionStateException(String message) {
        super(message);
    }
}
