package txos;

/**
 * Another process or thread changed what the transaction depends on, or another transaction won. Nothing of
 * this one has happened: try again, as {@link Transactions#run(Transactions.Body)} does.
 *
 * <p>What a system call answered in a transaction that had lost already ({@code ECANCELED}), and what the
 * code in between made of it, is the {@linkplain #getCause() cause}.
 */
public final class ConflictException extends TransactionException {
    private static final long serialVersionUID = 1L;

    ConflictException(String message, Throwable cause, String path, int opponent, int errno) {
        super(message, cause, path, opponent, errno);
    }
}
