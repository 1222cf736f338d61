// Uses everything that index.d.ts declares, as a program would: it is to type-check.
import {
  abort,
  AbortedError,
  again,
  AsynchronousError,
  ConflictError,
  FailedError,
  inTransaction,
  leaveOut,
  LibraryError,
  libraryVersion,
  NotInTransactionError,
  NotProducedError,
  pause,
  share,
  stats,
  takePart,
  TimedOutError,
  transaction,
  TransactionError,
  UnsupportedError,
  type Stats,
  type Synchronous,
  type Ticket,
  type TransactionOptions,
} from 'txos';

const options: Required<TransactionOptions> = {
  durable: false,
  strict: true,
  nonblock: true,
  retries: Infinity,
  timeout: 1.5,
  sequence: 3n,
  resetSequence: true,
  name: 'a name',
  after: ['one', 'other'],
};

const counted: number = transaction(() => 1, options);
const found: { name: string } | undefined = transaction(() => (counted > 0 ? { name: 'a' } : undefined));
const unknown: unknown = transaction((): unknown => JSON.parse('1'));
const any: number = transaction((): any => JSON.parse('1'));
transaction(() => {
  pause(() => console.log(found, unknown, any));
});
const words: string = transaction((): string => (counted > 0 ? 'words' : abort('no words')), { sequence: 3 });

function logged<T>(work: () => Synchronous<T>): T {
  return transaction(work, { retries: 0 });
}
const early: number = transaction(() => (counted > 0 ? counted : again('too early')), { after: 'one' });
const length: number = logged(() => words.length);

const ticket: Ticket = transaction(() => share());
const descriptor: number = ticket.descriptor;
const state: Int32Array = ticket.state;
const part: string = takePart(ticket, () => `${descriptor} ${state.length} ${length}`);

const left: number = leaveOut('/usr/lib/node_modules') + leaveOut('/usr/lib/node_modules', '.js');
const inside: boolean = inTransaction();
const all: Stats = stats();
const numbers: number[] = [all.begun, all.committed, all.aborted, all.calls, all.trapped, all.unsupported, all.shortCuts];
const version: string = libraryVersion();

const classes: (new () => TransactionError)[] = [
  AbortedError,
  AsynchronousError,
  ConflictError,
  FailedError,
  LibraryError,
  NotInTransactionError,
  NotProducedError,
  TimedOutError,
  UnsupportedError,
];
try {
  transaction(() => part, {});
} catch (error) {
  if (error instanceof ConflictError) {
    const told: [string, string | null, number, number, string] = [error.code, error.path, error.errno, error.pid, error.message];
    console.log(told, error.cause);
  }
}
console.log(left, early, inside, numbers, version, classes.length);

declare const console: { log(...values: unknown[]): void };
