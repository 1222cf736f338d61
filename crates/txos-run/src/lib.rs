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
//! | [`library`] | a command in the library's view instead |
//! | [`inside`] | a transaction inside another one |
//! | [`question`] | looks at the store that a program in the view asks for |
//! | [`limits`], [`memory`] | how much a command may write, for how long it may run, how much memory it may have |
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
pub mod inside;
pub mod library;
pub mod limits;
mod memory;
mod options;
mod orphans;
pub mod participant;
pub mod question;
mod report;
pub mod session;
pub mod supervisor;
pub mod sys;
pub mod view;
mod warning;

use txos_engine::readset::ReadSet;
use txos_engine::store::{Begin, Home, Transaction};

pub use doctor::{Check, doctor, is_on_overlay, refuses_views};
pub use error::Error;
use error::Result;
pub use limits::{Limit, Limits};
pub use memory::remove_group;
pub use options::{Leftover, RunOptions};
pub use orphans::end_orphans;
pub use report::{CommandStatus, Ran};
pub use session::brief::can_be_held;
pub use session::output::Hold;
pub use view::nesting::inside;
pub use view::plan::scope_of;
pub use warning::{Live, Warning, WarningKind};

/// What is said of an `--exclude` that nothing matches.
#[must_use]
pub fn unmatched(pattern: &str) -> String {
    format!(
        "warning: --exclude {}: nothing that is there now matches; what is made later under such a \
         name is versioned",
        txos_engine::show::quoted(pattern.as_ref())
    )
}

/// Begins a transaction for a command: decides what is versioned, makes the stores.
///
/// # Errors
/// If what is asked for can't be versioned here, with what to do about it.
pub fn begin(home: &Home, options: &RunOptions) -> Result<Transaction> {
    let directory = options.working_directory()?;
    if options.directory.is_some() {
        check_directory(&directory)?;
    }
    let layers = view::plan::layers(home, options)?;
    let tx = home.begin(Begin { layers, directory, ..labelled(options) })?;
    tx.prepare_upper()?;
    Ok(tx)
}

/// What a transaction begins with, but for where.
fn labelled(options: &RunOptions) -> Begin {
    Begin {
        name: options.name.clone(),
        message: options.message.clone(),
        command: options
            .recorded()
            .iter()
            .map(|w| txos_engine::show::quoted(std::path::Path::new(w)))
            .collect(),
        arguments_hidden: options.recorded().len() < options.command.len(),
        durable: options.durable,
        ..Begin::default()
    }
}

/// That a command can start in a directory.
///
/// # Errors
/// [`Error::View`] with why it can't.
pub fn check_directory(dir: &std::path::Path) -> Result<()> {
    let looked = std::fs::metadata(dir).and_then(|found| match found.is_dir() {
        true => Ok(rustix::fs::access(dir, rustix::fs::Access::EXEC_OK)?),
        false => Err(rustix::io::Errno::NOTDIR.into()),
    });
    looked.map_err(|source| Error::View {
        step: "entering the working directory".into(),
        path: dir.to_owned(),
        source,
        detail: "; nothing was run".into(),
    })
}

/// An empty read set for a transaction: it knows what is versioned.
///
/// # Errors
/// If the mount table can't be read.
pub fn new_reads(home: &Home, tx: &Transaction, options: &RunOptions) -> Result<ReadSet> {
    Ok(ReadSet::new(view::plan::view(home, tx, options, true)?.coverage))
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
    if options.hide.is_empty() {
        let mut ran = session::monitor::run(home, tx, reads, options, handle, &[])?;
        ran.take_over_from_inside(tx)?;
        return Ok(ran);
    }
    let hidden = view::hide::place(tx, &options.hide)?;
    let paths: Vec<Vec<u8>> = hidden.paths().collect();
    // If it fails, a pending transaction is put back to what it was before, and a new one is discarded.
    let mut ran = session::monitor::run(home, tx, reads, options, handle, &paths)?;
    ran.take_over_from_inside(tx)?;
    // A mounted overlay must not be changed behind its back.
    ran.await_end_of_view();
    ran.reads.leave_out_no_more(&paths);
    if let Some(text) = hidden.take_out()?
        && matches!(ran.status, CommandStatus::Exited(_) | CommandStatus::Signaled(_))
    {
        ran.status = CommandStatus::Refused { text };
    }
    Ok(ran)
}
