package txos;

/**
 * The transaction was aborted by the program: by {@link SysTransaction#abort()}, or because one within it was
 * closed without its end. Nothing of it has happened.
 */
public final class AbortedException extends TransactionException {
    private static final long serialVersionUID = 1L;

    AbortedException(String message, Throwable cause) {
        super(message, cause, null, 0, 0);
    }
}
