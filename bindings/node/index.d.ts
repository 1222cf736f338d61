/** System transactions: what a function does to files is published as a whole when it returns, or has never happened. */

/** How a transaction is to be. */
export interface TransactionOptions {
  /** Whether the changes survive a power cut once the transaction has ended: a flush, some milliseconds on most
   * disks. The default: true. */
  durable?: boolean;
  /** Whether a call that can't be part of a transaction aborts it, with {@link UnsupportedError}. The default: false:
   * it is made at once, with one warning on standard error. */
  strict?: boolean;
  /** Whether another transaction in the way is a {@link ConflictError} at once. The default: false: it is waited for,
   * 60 s at most. */
  nonblock?: boolean;
  /** How often the function is called again after a conflict; Infinity: until there is none. The default: 10. */
  retries?: number;
  /** Milliseconds after which the next call for a file, or a wait for another transaction, fails, with
   * {@link TimedOutError}; of each attempt. A function that makes no such call is not interrupted. The default: 0,
   * none. */
  timeout?: number;
  /** Commits in the order of this number, within the process group. */
  sequence?: bigint | number;
  /** Begins the sequence of the process group at `sequence`. */
  resetSequence?: boolean;
  /** A name, by which others can come after the transaction, through all of its attempts: programs with `after`, commands with
   * `txos run --after`. It has 255 bytes at the most, and no control characters. */
  name?: string;
  /** Comes after others that run already: transactions with these names, and commands with these names or ids. The function
   * is called at once. Where it looks at what they have changed, it waits for their end, and it commits after them. If it has
   * looked before, that is a conflict, and it is called again when they have ended; so it is when it calls {@link again}. If
   * one of them does not commit, the transaction fails with {@link NotProducedError}; so it does at its beginning if there is
   * nothing of a name, with the error number ESRCH. */
  after?: string | readonly string[];
}

/** What a function may return that is a transaction: anything but a promise. */
export type Synchronous<T> = T extends PromiseLike<unknown> ? never : T;

/**
 * Calls a function as a transaction of this thread, and gives what it returns. An exception aborts, and goes on.
 * After a conflict the function is called again; what it did to variables is not put back.
 *
 * Only synchronous functions take part. Those of `fs` that are asynchronous throw {@link AsynchronousError} in it,
 * and so does the transaction if the function returns a promise, or has started anything else asynchronous.
 *
 * Within a transaction it is part of that, with that one's options; if it fails, that one can't commit any more. It can't have a
 * name, or come after others, of its own.
 *
 * @throws {TransactionError} why the transaction did not happen; nothing of it has
 */
export function transaction<T>(work: () => Synchronous<T>, options?: TransactionOptions): T;

/**
 * Leaves the transaction while a function runs: what that does is not part of it, stays, and sees nothing of it.
 *
 * @throws {NotInTransactionError} if this thread is in none
 */
export function pause<T>(work: () => T): T;

/**
 * Leaves the transaction with {@link AbortedError}: nothing of it has happened.
 *
 * @throws {AbortedError} always, or {@link NotInTransactionError}
 */
export function abort(why?: string): never;

/**
 * Leaves the function of the transaction, and has it called again, as after a conflict: what it needs is not there yet. One
 * that comes after others is called when these have ended. It counts as a retry.
 *
 * @throws {ConflictError} always, or {@link NotInTransactionError}
 */
export function again(why?: string): never;

/** What shows a transaction to workers: to be sent to one by `postMessage`, and given to {@link takePart} there. */
export interface Ticket {
  /** A number of the process, of no use for anything else. */
  readonly descriptor: number;
  /** What the threads tell each other. */
  readonly state: Int32Array;
}

/**
 * Shows this thread's transaction to workers of the process, which can take part in it until it ends. Its end waits for
 * those that have begun to. This thread's event loop stands still meanwhile: wait for a worker by `Atomics.wait`, or by
 * `receiveMessageOnPort`.
 *
 * @throws {NotInTransactionError} if this thread is in none
 * @throws {FailedError} it can't be shared: within `txos run` the whole command is one transaction already
 */
export function share(): Ticket;

/**
 * Calls a function in this thread as part of the transaction of another one, and gives what it returns: it sees and makes
 * the same changes. Threads make their calls for files one at a time. An exception aborts the transaction for all, and
 * goes on; the transaction itself fails then with {@link AbortedError}. Only synchronous functions, as in
 * {@link transaction}.
 *
 * @throws {NotInTransactionError} the transaction is over
 * @throws {TransactionError} the transaction did not happen, or this thread can't take part
 */
export function takePart<T>(ticket: Ticket, work: () => Synchronous<T>): T;

/**
 * Leaves a file, or all files below a directory whose names end with `suffix` (all of them by default), out of the
 * transactions of this process as long as they are only read: no conflict, no wait, and an abort does not close them. A
 * file is known by its identity as it is now: one that takes its place is part of transactions.
 *
 * @returns how many files
 * @throws {FailedError} in a transaction, or the path can't be read
 */
export function leaveOut(path: string, suffix?: string): number;

/** Whether this thread is in a transaction, and has not paused it. */
export function inTransaction(): boolean;

/** Counters of a thread since it started. */
export interface Stats {
  /** Transactions, retries included. */
  begun: number;
  /** Of those, that were published. */
  committed: number;
  /** Of those, that did not happen. */
  aborted: number;
  /** System calls made within transactions. */
  calls: number;
  /** Of those, that came by Syscall User Dispatch. */
  trapped: number;
  /** Of those, that passed through with a warning. */
  unsupported: number;
  /** Commits of one call, or without changes. */
  shortCuts: number;
}

/** What this thread's transactions came to so far. */
export function stats(): Stats;

/** The version of the libtxos.so that was found, for example "0.1.0". */
export function libraryVersion(): string;

/** Why a transaction could not be begun, or did not happen. */
export class TransactionError extends Error {
  /** `ERR_TXOS_…`; each class has its own. */
  readonly code: string;
  /** Where; null if it has no place or that is not known. */
  readonly path: string | null;
  /** The error number that the library gave, or 0. */
  readonly errno: number;
  /** The process that won a conflict, 0 if it is not known. */
  readonly pid: number;
}
/** Somebody else changed what the transaction depends on, or won where two met; all retries are used up. */
export class ConflictError extends TransactionError {}
/** `strict` met a call it can't allow, or there are no transactions on this system. */
export class UnsupportedError extends TransactionError {}
/** Publishing failed (no space, an I/O error) and was undone, or nothing could be begun. */
export class FailedError extends TransactionError {}
/** `abort()`, or a transaction within this one failed and its exception was caught. */
export class AbortedError extends TransactionError {}
/** What the transaction was to come after did not commit; or, with the error number ESRCH, there is nothing of that name. */
export class NotProducedError extends TransactionError {}
/** `timeout` was over. */
export class TimedOutError extends TransactionError {}
/** Something asynchronous was called or started in the transaction. */
export class AsynchronousError extends TransactionError {}
/** This thread is in no transaction. */
export class NotInTransactionError extends TransactionError {}
/** libtxos.so or the addon is missing, or too old for this package. */
export class LibraryError extends TransactionError {}
