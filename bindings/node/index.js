'use strict';

const errors = require('./lib/errors.js');
const guard = require('./lib/guard.js');
const library = require('./lib/library.js');

const { AbortedError, AsynchronousError, ConflictError, FailedError, NotInTransactionError, TimedOutError } = errors;

// Flags of sys_xbegin().
const DURABLE = 0x02;
const STRICT = 0x04;
const NONBLOCK = 0x10;
const ORDERED = 0x20;
const ORDER_RESET = 0x40;
// A descriptor that an abort closes keeps its number until the program closes it.
const MANAGED = 0x100;

// Pauses between attempts, in milliseconds: random, so that those who met don't meet again, and longer
// each time.
const BACKOFF = 1;
const BACKOFF_MAX = 64;

// What end() says.
const COMMITTED = 0;
const GONE = 2;
const STARTED_SOMETHING = 3;
const LATE = 4;

/** The transaction that this thread is in, unless it is paused. */
let here = null;

guard((name) => {
  if (here === null) return;
  here.refused ??= new AsynchronousError(
    `${name} is asynchronous: it would run on another thread, outside of the transaction. ` +
      'Call its synchronous twin, or call it before or after the transaction',
  );
  throw here.refused;
});

const DEFAULTS = { flags: MANAGED | DURABLE, retries: 10, timeout: 0, sequence: undefined };

function settingsOf(options) {
  if (options === undefined) return DEFAULTS;
  const known = ['durable', 'strict', 'nonblock', 'retries', 'timeout', 'sequence', 'resetSequence'];
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new TypeError(`txos: there is no option ${JSON.stringify(name)}`);
  }
  const { durable = true, strict = false, nonblock = false, retries = 10, timeout = 0, sequence, resetSequence = false } = options;
  if (!(retries >= 0)) throw new RangeError('txos: retries is to be a number from 0 on, or Infinity');
  if (!(timeout >= 0 && timeout <= 2 ** 31)) throw new RangeError('txos: timeout is to be milliseconds, 0 for none');
  if (resetSequence && sequence === undefined) throw new TypeError('txos: resetSequence needs a sequence');
  const flags =
    MANAGED | (durable ? DURABLE : 0) | (strict ? STRICT : 0) | (nonblock ? NONBLOCK : 0) |
    (sequence === undefined ? 0 : ORDERED) | (resetSequence ? ORDER_RESET : 0);
  return { flags, retries, timeout, sequence: sequence === undefined ? undefined : BigInt(sequence) };
}

// Their bodies run when somebody awaits or iterates: after the transaction.
const LATER = [async function () {}, function* () {}, async function* () {}].map((f) => Object.getPrototypeOf(f));

function transaction(work, options) {
  if (typeof work !== 'function') throw new TypeError('txos: a transaction is a function');
  if (LATER.includes(Object.getPrototypeOf(work))) {
    throw new AsynchronousError(
      "an asynchronous or generator function can't be a transaction: it goes on after the transaction has ended",
    );
  }
  if (here !== null) return within(work);
  const lib = library();
  const settings = settingsOf(options);
  for (let attempt = 0; ; attempt++) {
    try {
      return once(lib, work, settings);
    } catch (error) {
      if (!(error instanceof ConflictError) || !error.lost || attempt >= settings.retries) throw error;
    }
    const limit = Math.min(BACKOFF * 2 ** Math.min(attempt, 16), BACKOFF_MAX);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Math.random() * limit);
  }
}

/** A conflict of this transaction: another one, which the function has thrown, is not retried. */
function lost(error) {
  if (error instanceof ConflictError) Object.defineProperty(error, 'lost', { value: true });
  return error;
}

function once(lib, work, { flags, timeout, sequence }) {
  const begun = sequence === undefined ? lib.begin(flags, timeout) : lib.begin(flags, timeout, sequence);
  if (begun !== 0) throw lost(errors.ofBegin(-begun, lib.words()));
  const own = { spoiled: false, refused: null };
  here = own;
  let result;
  try {
    result = work();
    if (isThenable(result)) own.refused ??= promised();
  } catch (error) {
    here = null;
    const became = lib.end(false);
    throw became === GONE ? error : (reasonOf(lib, own, became, error) ?? error);
  }
  here = null;
  const commit = !own.spoiled && own.refused === null;
  const became = lib.end(commit);
  if (became === COMMITTED) return result;
  if (became === GONE) {
    throw new FailedError('nothing was committed: at the end of the function there was no transaction any more: other code has ended it');
  }
  throw reasonOf(lib, own, became) ?? new AbortedError('a transaction within this one failed, and its exception was caught');
}

function isThenable(value) {
  return value !== null && (typeof value === 'object' || typeof value === 'function') && typeof value.then === 'function';
}

function promised() {
  return new AsynchronousError(
    'the function returned a promise: what it does later would not be part of the transaction. ' +
      'Use synchronous functions in it, and await before or after it',
  );
}

/** Why it was aborted, if the program did not ask for it. */
function reasonOf(lib, own, became, cause) {
  if (own.refused !== null) return own.refused;
  if (became === STARTED_SOMETHING) {
    return new AsynchronousError(
      'something asynchronous was started in the transaction, and has run, or will run, outside of it (a file handle, a ' +
        'stream, zlib, crypto, dns, …). Use synchronous functions',
      { cause },
    );
  }
  if (became === LATE) return new TimedOutError('the time of the transaction was over', { cause });
  const why = errors.ofAbort(lib.why(), cause);
  // It had failed before: the exception is only what the function made of that.
  return why instanceof AbortedError ? null : lost(why);
}

/** A transaction within one is part of it. */
function within(work) {
  const outer = here;
  try {
    const result = work();
    if (isThenable(result)) throw (outer.refused ??= promised());
    return result;
  } catch (error) {
    outer.spoiled = true;
    throw error;
  }
}

function pause(work) {
  const own = here;
  if (own === null) {
    throw new NotInTransactionError('not in a transaction: call pause() in the function that transaction() was given, on the same thread');
  }
  const lib = library();
  const id = lib.pause();
  if (id < 0) throw new FailedError(lib.words(), { errno: -id });
  here = null;
  try {
    return work();
  } finally {
    here = own;
    const error = lib.resume(id);
    if (error !== 0) throw new FailedError(`the transaction can't go on: ${lib.words()}`, { errno: -error });
  }
}

function abort(why = 'the program aborted the transaction') {
  if (here === null) throw new NotInTransactionError('not in a transaction: there is nothing to abort');
  here.spoiled = true;
  throw new AbortedError(why);
}

function inTransaction() {
  return library().inTransaction();
}

function stats() {
  const [begun, committed, aborted, , calls, trapped, unsupported, shortCuts] = library().stats();
  return { begun, committed, aborted, calls, trapped, unsupported, shortCuts };
}

function libraryVersion() {
  return library().version();
}

const { TransactionError, UnsupportedError, LibraryError } = errors;
module.exports = {
  transaction, pause, abort, inTransaction, stats, libraryVersion,
  TransactionError, ConflictError, UnsupportedError, FailedError, AbortedError, TimedOutError,
  AsynchronousError, NotInTransactionError, LibraryError,
};
