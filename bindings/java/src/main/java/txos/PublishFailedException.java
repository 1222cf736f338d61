package txos;

/**
 * Publishing failed (no space, an I/O error) and was undone, or the transaction ended otherwise than by its
 * end. Nothing of it has happened, except where {@link #errno()} is {@code EINPROGRESS}: then undoing failed
 * as well, and {@code txos recover} decides.
 */
public final class PublishFailedException extends TransactionException {
    private static final long serialVersionUID = 1L;

    PublishFailedException(String message, Throwable cause, String path, int errno) {
        super(message, cause, path, 0, errno);
    }
}
