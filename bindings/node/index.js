'use strict';

const { resolve } = require('path');
const { getSystemErrorName } = require('util');

const errors = require('./lib/errors.js');
const guard = require('./lib/guard.js');
const library = require('./lib/library.js');

const {
  AbortedError, AsynchronousError, ConflictError, FailedError, NotInTransactionError, NotProducedError, TimedOutError,
} = errors;

// Flags of sys_xbegin().
const DURABLE = 0x02;
const STRICT = 0x04;
const NONBLOCK = 0x10;
const ORDERED = 0x20;
const ORDER_RESET = 0x40;
const AFTER = 0x400;
// A transaction that is not committed keeps its name, and what it comes after, for the next attempt.
const RETRY = 0x1000;
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

const { EBUSY, ECANCELED, EINVAL } = require('os').constants.errno;

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

const DEFAULTS = { flags: MANAGED | DURABLE, retries: 10, timeout: 0, second: undefined, name: null, known: false };

/** As the library does. */
function checkName(name) {
  if (typeof name === 'string' && /^[^\u0000-\u001f\u007f-\u009f]+$/.test(name) && Buffer.byteLength(name) <= 255) return;
  throw new TypeError(`txos: a name is text of 1 to 255 bytes without control characters, and not ${JSON.stringify(name)}`);
}

function settingsOf(options) {
  if (options === undefined) return DEFAULTS;
  const all = ['durable', 'strict', 'nonblock', 'retries', 'timeout', 'sequence', 'resetSequence', 'name', 'after'];
  for (const option of Object.keys(options)) {
    if (!all.includes(option)) throw new TypeError(`txos: there is no option ${JSON.stringify(option)}`);
  }
  const { durable = true, strict = false, nonblock = false, retries = 10, timeout = 0, sequence, resetSequence = false } = options;
  const { name, after = [] } = options;
  const producers = typeof after === 'string' ? [after] : [...after];
  for (const word of name === undefined ? producers : [name, ...producers]) checkName(word);
  if (producers.length > 0 && sequence !== undefined) throw new TypeError('txos: a transaction comes after others, or has a sequence');
  if (!(retries >= 0)) throw new RangeError('txos: retries is to be a number from 0 on, or Infinity');
  if (!(timeout >= 0 && timeout <= 2 ** 31)) throw new RangeError('txos: timeout is to be milliseconds, 0 for none');
  if (resetSequence && sequence === undefined) throw new TypeError('txos: resetSequence needs a sequence');
  const flags =
    MANAGED | (durable ? DURABLE : 0) | (strict ? STRICT : 0) | (nonblock ? NONBLOCK : 0) |
    (sequence === undefined ? 0 : ORDERED) | (resetSequence ? ORDER_RESET : 0);
  const place = (producers.length > 0 ? AFTER : 0) | (name !== undefined || producers.length > 0 ? RETRY : 0);
  const second = producers.length > 0 ? producers.join('\n') : sequence === undefined ? undefined : BigInt(sequence);
  return { flags: flags | place, retries, timeout, second, name: name ?? null, known: place !== 0 };
}

// Their bodies run when somebody awaits or iterates: after the transaction.
const LATER = [async function () {}, function* () {}, async function* () {}].map((f) => Object.getPrototypeOf(f));

function check(work) {
  if (typeof work !== 'function') throw new TypeError('txos: a transaction is a function');
  if (LATER.includes(Object.getPrototypeOf(work))) {
    throw new AsynchronousError(
      "an asynchronous or generator function can't be a transaction: it goes on after the transaction has ended",
    );
  }
}

function transaction(work, options) {
  check(work);
  if (here !== null) return within(work, options);
  const lib = library();
  const settings = settingsOf(options);
  if (!settings.known) return attempts(lib, work, settings);
  const error = lib.name(settings.name);
  if (error !== 0) throw new FailedError(`a transaction could not be given its name: ${getSystemErrorName(error)}`, { errno: -error });
  try {
    return attempts(lib, work, settings);
  } finally {
    // There is no further attempt: if it has not committed, it has failed for what comes after it.
    lib.name(null);
  }
}

function attempts(lib, work, settings) {
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

function once(lib, work, { flags, timeout, second }) {
  const begun = second === undefined ? lib.begin(flags, timeout) : lib.begin(flags, timeout, second);
  if (begun !== 0) throw lost(errors.ofBegin(-begun, lib.words(), (flags & AFTER) !== 0));
  const own = { spoiled: false, refused: null, ticket: null };
  here = own;
  let result;
  try {
    result = work();
    if (isThenable(result)) own.refused ??= promised();
  } catch (error) {
    here = null;
    const became = lib.end(false);
    hide(lib, own);
    throw became === GONE ? error : (reasonOf(lib, own, became, error) ?? error);
  }
  here = null;
  const commit = !own.spoiled && own.refused === null;
  const became = lib.end(commit);
  hide(lib, own);
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
  if (!(why instanceof AbortedError)) return lost(why);
  const workerFailed = own.ticket !== null && Atomics.load(own.ticket.state, FAILED) === 1 && (cause === undefined || cause.code === 'ECANCELED');
  return workerFailed ? new AbortedError('a worker that took part in the transaction failed', { cause }) : null;
}

/** A transaction within one is part of it. */
function within(work, options) {
  const outer = here;
  if (options !== undefined && settingsOf(options).known) {
    throw new FailedError('a transaction within another one is part of that: it has no name, and comes after nothing, of its own', {
      errno: EINVAL,
    });
  }
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

/** What share() gives counts, for threads that only have its numbers. */
const OVER = 0;
const JOINING = 1;
const FAILED = 2;

function share() {
  const own = here;
  if (own === null) {
    throw new NotInTransactionError('not in a transaction: call share() in the function that transaction() was given, on the same thread');
  }
  if (own.ticket === null) {
    const lib = library();
    const descriptor = lib.share();
    if (descriptor < 0) {
      const why = errors.ofAbort(lib.why());
      throw -descriptor === ECANCELED ? why : new FailedError(lib.words(), { errno: -descriptor });
    }
    own.ticket = { descriptor, state: new Int32Array(new SharedArrayBuffer(12)) };
  }
  return own.ticket;
}

/** Nobody can join any more: only then may the number be another descriptor's. */
function hide(lib, { ticket }) {
  if (ticket === null) return;
  const { descriptor, state } = ticket;
  Atomics.store(state, OVER, 1);
  for (let joining; (joining = Atomics.load(state, JOINING)) !== 0; ) Atomics.wait(state, JOINING, joining);
  lib.hide(descriptor);
}

function join(lib, { descriptor, state }) {
  Atomics.add(state, JOINING, 1);
  try {
    if (Atomics.load(state, OVER)) throw new NotInTransactionError('the transaction that this thread was to take part in is over');
    const joined = lib.join(descriptor);
    if (joined !== 0) throw new FailedError(`this thread can't take part in the transaction: ${lib.words()}`, { errno: -joined });
  } finally {
    Atomics.sub(state, JOINING, 1);
    Atomics.notify(state, JOINING);
  }
}

function takePart(ticket, work) {
  if (!(ticket?.state instanceof Int32Array)) throw new TypeError('txos: takePart needs what share() gave');
  check(work);
  if (here !== null) throw new FailedError('this thread is in a transaction already: call the function itself, or end that first');
  const lib = library();
  join(lib, ticket);
  const own = { spoiled: false, refused: null, ticket };
  here = own;
  let result;
  let failed = true;
  let failure;
  try {
    result = work();
    if (isThenable(result)) own.refused ??= promised();
    failed = own.spoiled || own.refused !== null;
    failure = own.refused ?? new AbortedError('a transaction within this one failed, and its exception was caught');
  } catch (error) {
    failure = error;
  }
  here = null;
  if (failed) Atomics.store(ticket.state, FAILED, 1);
  const became = lib.end(!failed);
  if (became === COMMITTED) return result;
  Atomics.store(ticket.state, FAILED, 1);
  if (became === GONE) throw failed ? failure : new FailedError('other code has left the transaction');
  throw reasonOf(lib, own, became, failed ? failure : undefined) ?? (failed ? failure : new AbortedError('the transaction was aborted'));
}

function leaveOut(path, suffix = '') {
  const lib = library();
  if (`${path}${suffix}`.includes('\0')) throw new TypeError('txos: a path has no zero in it');
  const count = lib.exclude(resolve(String(path)), String(suffix));
  if (count < 0) {
    const why = -count === EBUSY ? 'this thread is in one' : `it can't be read (${getSystemErrorName(count)})`;
    throw new FailedError(`can't be left out of transactions: ${why}`, { path: String(path), errno: -count });
  }
  return count;
}

function abort(why = 'the program aborted the transaction') {
  if (here === null) throw new NotInTransactionError('not in a transaction: there is nothing to abort');
  here.spoiled = true;
  throw new AbortedError(why);
}

function again(why = 'what the transaction needs is not there yet') {
  if (here === null) throw new NotInTransactionError('not in a transaction: there is nothing to begin again');
  here.spoiled = true;
  throw lost(new ConflictError(why));
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
  transaction, pause, abort, again, share, takePart, leaveOut, inTransaction, stats, libraryVersion,
  TransactionError, ConflictError, UnsupportedError, FailedError, AbortedError, TimedOutError, NotProducedError,
  AsynchronousError, NotInTransactionError, LibraryError,
};
