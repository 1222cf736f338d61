//! What can go wrong when a command is run in a transaction.

use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate. The command was not run, or its processes are all gone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From the engine.
    #[error(transparent)]
    Engine(#[from] txos_engine::Error),
    /// A step of making the view failed.
    #[error("{step} {path}: {source}{detail}", path = txos_engine::show::quoted(.path))]
    View {
        /// What was being done: "mounting an overlay over".
        step: String,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// What the kernel said besides, and what to do about it.
        detail: String,
    },
    /// The machine can't do what is needed.
    #[error("{what}. {advice}")]
    Unsupported {
        /// What is missing.
        what: String,
        /// What to do about it.
        advice: String,
    },
    /// A system call of ours failed.
    #[error("{step}: {source}")]
    Os {
        /// What was being done.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The process that keeps the transaction's processes together was killed; they were killed too.
    #[error(
        "the process that kept the command's processes together was killed; they were all ended and nothing is published"
    )]
    ReaperLost,
}

/// Adds the step to a result of the operating system.
pub(crate) trait Step<T> {
    /// What was being done when it failed.
    fn step(self, step: &'static str) -> Result<T>;
}

impl<T, E: Into<io::Error>> Step<T> for std::result::Result<T, E> {
    fn step(self, step: &'static str) -> Result<T> {
        self.map_err(|e| Error::Os { step, source: e.into() })
    }
}
