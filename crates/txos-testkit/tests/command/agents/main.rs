//! Agents: `txos mcp` with a small client of its protocol, with clients of others, and `txos agent`.
//!
//! | module | what must hold |
//! |---|---|
//! | [`script`] | a realistic loop, the same with this client and with the official one |
//! | [`rules`] | what the policy says holds, and what it misspells is refused |
//! | [`endings`] | cancelled, timed out, hung up on, killed: nothing runs, and the transaction is as it was |
//! | [`shell`] | the commands of tools that have a shell or hooks run in a transaction of their session |
//! | [`bad_input`] | whatever a client sends and a command does, the server goes on, and says what is wrong |
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bad_input;
mod client;
mod endings;
mod rules;
mod script;
mod shell;
