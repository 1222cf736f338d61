//! Process-tree transactions: runs any unmodified command, with all that it starts, in a private
//! view of the file tree, and records what it reads.
//!
//! [`begin`] decides what is versioned and where private copies go; [`run`] runs a command in the
//! view. What comes out ([`Ran`]) and what lies in the transaction's layers is what the engine
//! commits or discards; nothing here changes the stable tree.
//!
//! | folder | what lives there |
//! |---|---|
//! | [`view`] | the private mount namespace |
//! | [`session`] | the processes: monitor, reaper, command |
//! | [`participant`] | the transaction among the others that run |
//! | [`supervisor`] | seccomp: recording, and what leads out of the transaction |
//! | [`sys`] | every unsafe call |
//!
//! # Boundaries
//!
//! This isolates programs from the rest of the machine for consistency, not for security: a
//! hostile program can get out (a 32-bit one is not recorded, memory can be changed while a call
//! is looked at). Shared memory that was mapped before the transaction, and inherited descriptors
//! of files, lead to the stable objects.

pub mod doctor;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod options;
mod orphans;
pub mod participant;
mod report;
pub mod session;
pub mod supervisor;
pub mod sys;
pub mod view;
mod warning;

use txos_engine::readset::ReadSet;
use txos_engine::store::{Begin, Home, Transaction};

pub use doctor::{Check, doctor};
pub use error::Error;
use error::{Result, Step};
pub use options::{Leftover, RunOptions};
pub use orphans::end_orphans;
pub use report::{CommandStatus, Ran};
pub use view::nesting::inside;
pub use warning::{Live, Warning, WarningKind};

/// Begins a transaction for a command: decides what is versioned, makes the stores.
///
/// # Errors
/// If what is asked for can't be versioned here, with what to do about it.
pub fn begin(home: &Home, options: &RunOptions) -> Result<Transaction> {
    let layers = view::plan::layers(home, options)?;
    let tx = home.begin(Begin {
        layers,
        name: options.name.clone(),
        message: options.message.clone(),
        command: options
            .command
            .iter()
            .map(|w| txos_engine::show::quoted(std::path::Path::new(w)))
            .collect(),
        directory: std::env::current_dir().step("finding the working directory")?,
        durable: options.durable,
    })?;
    view::upper::prepare(&tx)?;
    Ok(tx)
}

/// An empty read set for a transaction: it knows what is versioned.
///
/// # Errors
/// If the mount table can't be read.
pub fn new_reads(home: &Home, tx: &Transaction, options: &RunOptions) -> Result<ReadSet> {
    Ok(ReadSet::new(view::plan::view(home, tx, options)?.coverage))
}

/// Runs a command in a transaction and waits until everything it started has ended.
///
/// `handle` is the transaction's in the realm: what the command looks at is acquired there, and if
/// another transaction wins, the command is stopped ([`CommandStatus::Lost`]).
///
/// # Errors
/// If the view can't be made or the command not be supervised; no process of it is left then.
pub fn run(
    home: &Home,
    tx: &mut Transaction,
    reads: ReadSet,
    options: &RunOptions,
    handle: Option<participant::Handle>,
) -> Result<Ran> {
    session::monitor::run(home, tx, reads, options, handle)
}
