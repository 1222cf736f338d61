package txos;

/**
 * A strict transaction ({@link Options#strict(boolean)}) met a call that can't be part of it: a new thread or
 * process, traffic on a socket. Nothing of it has happened. Make that call before or after the transaction, or
 * while it is {@linkplain SysTransaction#pause() paused}.
 */
public final class UnsupportedCallException extends TransactionException {
    private static final long serialVersionUID = 1L;

    UnsupportedCallException(String message, Throwable cause, String path, int errno) {
        super(message, cause, path, 0, errno);
    }
}
