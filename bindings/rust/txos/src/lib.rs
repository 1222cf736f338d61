//! System transactions: what a closure does to files is published as a whole when it returns `Ok`,
//! or has never happened.
//!
//! ```no_run
//! use std::fs;
//!
//! fn switch() -> std::io::Result<()> {
//!     txos::transaction(|_| {
//!         fs::write("app.conf", "port = 8080\n")?;
//!         fs::write("proxy.conf", "backend = localhost:8080\n")
//!     })
//! }
//! ```
//!
//! The closure may use anything: it is the system calls of the thread that are transactional, not a
//! set of functions. What it does to variables is not put back by an abort; it is called again
//! after a conflict. Other threads work outside of the transaction, unless they are started in [`Tx::scope`]; so do
//! programs that it starts.
//!
//! A file that was opened in a closure that did not commit is closed by that. A `File` of it that is
//! left over answers `EBADF`; its number stays taken until it is dropped.
//!
//! The closure's error type is anything that can be made [`From`] an [`Error`]: that itself, an
//! [`std::io::Error`], a `Box<dyn std::error::Error>`.
//!
//! Linux 5.11 or later on x86-64, with libtxos.so; see README.md for how it is found.

mod error;
mod library;
mod participant;
mod timer;
mod transaction;

pub use error::{Cause, Error};
pub use participant::Participant;
pub use transaction::{
    Scope, Stats, Transaction, Tx, in_transaction, leave_out, library_version, stats, transaction,
};
