package txos;

/**
 * What the transaction was to come after, by {@link Options#after(String...)}, did not commit; or there is nothing of that
 * name, which {@link #isMissing()} says. Nothing of the transaction has happened.
 */
public final class NotProducedException extends TransactionException {
    private static final long serialVersionUID = 1L;

    private static final int ESRCH = 3;

    NotProducedException(String message, Throwable cause, int errno) {
        super(message, cause, null, 0, errno);
    }

    /**
     * Whether there was nothing to come after: it has not begun yet, or is over.
     *
     * @return whether to try again later may help
     */
    public boolean isMissing() {
        return errno() == ESRCH;
    }
}
