'use strict';

/** Why a transaction could not be begun, or did not happen; nothing of it has. */
class TransactionError extends Error {
  constructor(what, { path = null, errno = 0, pid = 0, cause } = {}) {
    // Most of the library's messages name the path themselves.
    super(path === null || what.includes(path) ? what : `${path}: ${what}`, cause === undefined ? {} : { cause });
    this.path = path;
    this.errno = errno;
    this.pid = pid;
  }
}

const kinds = {};
for (const [name, code] of [
  ['ConflictError', 'ERR_TXOS_CONFLICT'],
  ['UnsupportedError', 'ERR_TXOS_UNSUPPORTED'],
  ['FailedError', 'ERR_TXOS_FAILED'],
  ['NotProducedError', 'ERR_TXOS_NOT_PRODUCED'],
  ['AbortedError', 'ERR_TXOS_ABORTED'],
  ['TimedOutError', 'ERR_TXOS_TIMED_OUT'],
  ['AsynchronousError', 'ERR_TXOS_ASYNCHRONOUS'],
  ['NotInTransactionError', 'ERR_TXOS_NOT_IN_TRANSACTION'],
  ['LibraryError', 'ERR_TXOS_LIBRARY'],
]) {
  const kind = { [name]: class extends TransactionError {} }[name];
  Object.defineProperty(kind.prototype, 'name', { value: name, configurable: true, writable: true });
  Object.defineProperty(kind.prototype, 'code', { value: code, configurable: true, writable: true });
  kinds[name] = kind;
}
Object.defineProperty(TransactionError.prototype, 'name', { value: 'TransactionError', configurable: true, writable: true });
Object.defineProperty(TransactionError.prototype, 'code', { value: 'ERR_TXOS', configurable: true, writable: true });

// Reasons of an abort, as in txos.h.
const ASKED = 1;
const CONFLICT = 2;
const UNSUPPORTED = 3;
const PRODUCER = 8;

function ofAbort([reason, errno, pid, what, path], cause) {
  const details = { path: path.length === 0 ? null : path.toString(), errno, pid, cause };
  const words = what || 'the transaction was aborted';
  if (reason === CONFLICT) return new kinds.ConflictError(words, details);
  if (reason === UNSUPPORTED) return new kinds.UnsupportedError(words, details);
  if (reason === PRODUCER) return new kinds.NotProducedError(words, details);
  if (reason === ASKED) return new kinds.AbortedError(words, details);
  return new kinds.FailedError(words, details);
}

function ofBegin(errno, words, isAfter) {
  const { EAGAIN, ECANCELED, ENOSYS, ENOTSUP, EOPNOTSUPP, ESRCH } = require('os').constants.errno;
  const what = words === 'no error' ? `a transaction could not be begun: errno ${errno}` : words;
  if (errno === EAGAIN) return new kinds.ConflictError(what, { errno });
  if ([ENOSYS, ENOTSUP, EOPNOTSUPP].includes(errno)) return new kinds.UnsupportedError(what, { errno });
  if (isAfter && [ECANCELED, ESRCH].includes(errno)) return new kinds.NotProducedError(what, { errno });
  return new kinds.FailedError(what, { errno });
}

module.exports = { TransactionError, ...kinds, ofAbort, ofBegin, ASKED };
