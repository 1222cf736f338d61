package txos;

import java.util.concurrent.Callable;

/** Threads that take part in a transaction besides the one that began it. */
final class Members {
    private static final int ECANCELED = 125;

    /** By which they join. */
    private final int shown;
    /** The thread that began has ended it; late tasks are refused. */
    private boolean over;
    /** What the first task that failed threw. */
    private Throwable failure;

    private Members(int shown) {
        this.shown = shown;
    }

    /** Shows the transaction of the calling thread to others. */
    static Members show() {
        int shown = Native.share();
        if (shown >= 0) {
            return new Members(shown);
        }
        if (shown == -ECANCELED) {
            throw TransactionException.ofAbort(null);
        }
        throw new TransactionStateException(
                "no thread can take part in the transaction: " + Native.string(Native.words()));
    }

    /** Calls a task as part of the transaction. */
    <T> T call(Callable<T> task) throws Exception {
        if (SysTransaction.isIn(this)) {
            return task.call();
        }
        SysTransaction member = enter();
        boolean good = false;
        try {
            T value = task.call();
            good = member.isWhole();
            return value;
        } catch (Throwable thrown) {
            failed(thrown);
            throw thrown;
        } finally {
            member.leaveMembers(good);
        }
    }

    /** The lock is held, so that the number is not another transaction's by then. */
    private synchronized SysTransaction enter() {
        if (over) {
            throw new TransactionStateException("the transaction that the task was to take part in is over");
        }
        SysTransaction.refuseVirtualThread();
        if (SysTransaction.isActive()) {
            throw new TransactionStateException("the thread is in another transaction: end it first");
        }
        int errno = Native.join(shown);
        if (errno != 0) {
            throw new TransactionStateException("the thread can't take part in the transaction (errno " + errno + "): "
                    + Native.string(Native.words()));
        }
        return SysTransaction.member(this);
    }

    private synchronized void failed(Throwable thrown) {
        if (failure == null) {
            failure = thrown;
        }
    }

    synchronized Throwable failure() {
        return failure;
    }

    /** The transaction has ended. */
    synchronized void close() {
        if (!over) {
            over = true;
            Native.hide(shown);
        }
    }
}
