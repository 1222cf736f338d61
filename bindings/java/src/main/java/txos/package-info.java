/**
 * System transactions: what a thread does to files is published as a whole, or has never happened.
 *
 * <p>{@link txos.Transactions} runs functions, {@link txos.SysTransaction} has begin and end.
 */
package txos;
