//! What can go wrong in the engine, told so that a person can act on it.

use std::path::{Path, PathBuf};

pub use crate::conflict::{Conflict, ConflictKind, Party};
use crate::id::TxId;

/// A result of the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A step on a path failed with an errno.
    #[error("{step} {path}: {source}", path = crate::show::quoted(.path))]
    Io {
        /// What was being done, in words that read well before the path: "creating".
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something that the transaction depends on was changed by somebody else. Nothing is published.
    #[error("conflict: {}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Conflict(Vec<Conflict>),
    /// A store, journal or file of ours is damaged, foreign or of a newer format. It is left alone.
    #[error("{path} {problem}; it is left as it is. {advice}", path = crate::show::quoted(.path))]
    Format {
        /// The file in question.
        path: PathBuf,
        /// What is wrong with it, as a predicate: "is of format 2, newer than this txos knows (1)".
        problem: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// No transaction of that name.
    #[error(
        "no transaction {0:?}: `txos list` shows the pending ones, `txos log` the committed ones"
    )]
    NoSuchTransaction(String),
    /// More than one transaction starts like that.
    #[error("{0:?} is ambiguous: {list}", list = .1.iter().map(TxId::as_str).collect::<Vec<_>>().join(", "))]
    AmbiguousId(String, Vec<TxId>),
    /// The transaction exists, but not in a state that allows this.
    #[error("transaction {id} is {state}: {advice}")]
    WrongState {
        /// Which transaction.
        id: TxId,
        /// Its state.
        state: String,
        /// What would be possible instead.
        advice: String,
    },
    /// A publish failed and could not be undone, or its journal could not be closed. Until recovery
    /// succeeds the tree may hold a part of it; nothing may be discarded.
    #[error(
        "publishing {id} failed ({cause}), and undoing it failed as well ({undoing}). Until `txos recover` succeeds the tree may hold a part of it"
    )]
    Unfinished {
        /// Which transaction.
        id: TxId,
        /// Why the publish failed.
        cause: Box<Error>,
        /// Why undoing failed.
        undoing: Box<Error>,
    },
    /// The environment can't do what is needed (kernel too old, file system unsuitable…).
    #[error("{what}. {advice}")]
    Unsupported {
        /// What is missing and where.
        what: String,
        /// What to do about it.
        advice: String,
    },
}

impl Error {
    /// An I/O error with its step and path.
    pub fn io(
        step: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Error::Io { step, path: path.as_ref().to_owned(), source: source.into() }
    }
}

/// Adds step and path to an I/O result.
pub trait Context<T> {
    /// What was being done, and on what, when it failed.
    ///
    /// # Errors
    /// The same error, as [`Error::Io`].
    fn at(self, step: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn at(self, step: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|e| Error::io(step, path, e))
    }
}
