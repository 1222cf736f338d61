//! What a command is to be run with.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use txos_engine::runs::Predecessors;

use crate::error::{Result, Step};
use crate::inside::Given;
use crate::limits::Limits;
use crate::question::Answerer;
use crate::session::output::Hold;

/// What happens to processes that the command leaves in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Leftover {
    /// The transaction ends when they have ended.
    #[default]
    Wait,
    /// They are killed when the command has ended.
    Kill,
}

/// How to run a command in a transaction.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Keep its arguments out of every record.
    pub hide_arguments: bool,
    /// Name for the history.
    pub name: Option<String>,
    /// Message for the history.
    pub message: Option<String>,
    /// Version only these directories; none means everything.
    pub scope: Vec<PathBuf>,
    /// Patterns of paths that stay live.
    pub exclude: Vec<String>,
    /// What is held back of what the command prints, until [`crate::Ran::release`].
    pub hold_output: Hold,
    /// End the command at the first thing that can't be rolled back.
    pub strict: bool,
    /// Preload the recorder into dynamic programs: they tell of each look only once.
    pub recorder: bool,
    /// What to do about background processes.
    pub leftover: Leftover,
    /// Whether the transaction is to be durable.
    pub durable: bool,
    /// Whether what is only read is acquired in the realm.
    pub isolation: txos_engine::commit::Isolation,
    /// How long it waits for another transaction at the most.
    pub patience: std::time::Duration,
    /// Where the command starts, absolute; `None`: where this process is.
    pub directory: Option<PathBuf>,
    /// Paths that are absent inside, absolute.
    pub hide: Vec<PathBuf>,
    /// What it may use.
    pub limits: Limits,
    /// The runs that it comes after. While one goes on, it gives way to all others, and waits for that one as long as
    /// it takes; if one fails, it is ended.
    pub after: Predecessors,
    /// What answers questions from inside; `None`: nobody does.
    pub answerer: Option<Answerer>,
    /// What the command has from a process in another transaction, inside of which this one is.
    pub given: Option<Arc<Given>>,
}

impl RunOptions {
    /// Where the command starts.
    ///
    /// # Errors
    /// If none was named, and the one of this process is gone.
    pub(crate) fn working_directory(&self) -> Result<PathBuf> {
        match &self.directory {
            Some(dir) => Ok(dir.clone()),
            None => std::env::current_dir()
                .step("finding the working directory (has it been removed? --dir names another)"),
        }
    }

    /// The words of the command that may be recorded.
    #[must_use]
    pub fn recorded(&self) -> &[OsString] {
        let words = if self.hide_arguments { self.command.get(..1) } else { None };
        words.unwrap_or(&self.command)
    }
}
