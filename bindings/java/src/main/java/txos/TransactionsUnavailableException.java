package txos;

/**
 * There are no transactions here: the native library is missing or too old, the virtual machine does not
 * permit it, or the kernel or the machine has none. The message says what to do. Nothing has been begun.
 */
public final class TransactionsUnavailableException extends TransactionException {
    private static final long serialVersionUID = 1L;

    TransactionsUnavailableException(String message, Throwable cause) {
        super(message, cause, null, 0, 0);
    }
}
