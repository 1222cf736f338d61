// None of these type-checks: `tsc` complains of a comment that expects an error where there is none.
import { abort, ConflictError, leaveOut, pause, stats, takePart, transaction, type Ticket } from 'txos';

declare const ticket: Ticket;

// What goes on after the end of the transaction.
// @ts-expect-error
transaction(async () => 1);
// @ts-expect-error
transaction(() => Promise.resolve(1));
// @ts-expect-error
transaction(() => (ticket.descriptor > 0 ? 1 : Promise.resolve(2)));
// @ts-expect-error
takePart(ticket, async () => 1);

// Options that there are not, and values that they can't have.
// @ts-expect-error
transaction(() => 1, { durble: true });
// @ts-expect-error
transaction(() => 1, { durable: 1 });
// @ts-expect-error
transaction(() => 1, { sequence: '1' });
// @ts-expect-error
transaction(() => 1, { retries: null });
// @ts-expect-error
transaction(() => 1, { after: 1 });
// @ts-expect-error
transaction(() => 1, { name: ['a'] });

// Other arguments.
// @ts-expect-error
transaction(1);
// @ts-expect-error
transaction((file: string) => file);
// @ts-expect-error
takePart(3, () => 1);
// @ts-expect-error
leaveOut(1);
// @ts-expect-error
abort(1);

// What they give.
// @ts-expect-error
export const words: string = transaction(() => 1);
// @ts-expect-error
export const number: number = pause(() => 'a');
// @ts-expect-error
stats().begun = '1';
// @ts-expect-error
new ConflictError().code = 'ERR_TXOS_CONFLICT';
// @ts-expect-error
ticket.descriptor = 1;
