//! A transaction that a program hands to the process that has started it, which decides what becomes of it.
//!
//! In `txos run --view library` the command's own process has the transaction, or one that the command has made. If `txos`
//! itself is to decide (`--keep`, `--review`, ...), it begins the transaction in the store and hands on its lock. The
//! command's changes are [recorded](crate::changeset::record) when it has ended, and how that went is left in a file
//! in the transaction's directory. Without a file the process that had the transaction was killed.

use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::realm::RetryHistory;
use crate::store::{self, Transaction};
use crate::{codec, sys};

const NAME: &str = "delivery";
const MAGIC: &[u8; 8] = b"TXOSDLVR";
const FORMAT: u32 = 1;

/// What became of the transaction of a command that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// What it changed and what it read is recorded.
    Recorded,
    /// Another transaction, or a process without one, changed what it depends on.
    Conflict {
        /// What both touched; may be empty.
        path: Vec<u8>,
        /// What happened to it.
        what: String,
        /// The other's process; 0 if it is not known.
        pid: u32,
    },
    /// It did what can't be part of a transaction, or something failed.
    Stopped(String),
}

/// The report of the process that had the transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// What became of it.
    pub ended: Ended,
    /// What was live, by kind, with the paths if it were paths.
    pub live: Vec<(String, Vec<Vec<u8>>)>,
}

/// That the transaction of a command lost a conflict. The process that had it says so to `txos`, which may run the command
/// again; such a command decides by itself about a transaction that does not lose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// What both touched, which may be empty, and what happened to it.
    pub conflicts: Vec<(Vec<u8>, String)>,
    /// The other's process; 0 if it is not known.
    pub pid: u32,
    /// What was live, as in a [`Delivery`].
    pub live: Vec<(String, Vec<Vec<u8>>)>,
    /// What the next attempt goes by.
    pub again: Option<RetryHistory>,
    /// It changed none of this.
    pub only_read: bool,
}

impl Lost {
    /// As it is said.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_stdvec(self).ok()
    }

    /// What was said; `None`: that was something else.
    #[must_use]
    pub fn decode(said: &[u8]) -> Option<Lost> {
        postcard::from_bytes(said).ok()
    }
}

impl Delivery {
    /// Leaves the report in the transaction's directory.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn leave(&self, dir: &Path) -> Result<()> {
        let path = dir.join(NAME);
        let body = postcard::to_stdvec(self)
            .map_err(|e| Error::io("encoding", &path, std::io::Error::other(e)))?;
        store::replace_file(&path, &codec::seal(MAGIC, FORMAT, &body), false)
    }

    /// Takes the report that was left; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Format`] if it is damaged; [`Error::Io`].
    pub fn take(tx: &Transaction) -> Result<Option<Delivery>> {
        let path = tx.dir().join(NAME);
        let bytes = match sys::read_record(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).at("reading", &path),
        };
        let bad = |problem: String| Error::Format {
            path: path.clone(),
            problem,
            advice: "Abort the transaction with `txos abort`.",
        };
        let (_, body) =
            codec::open(&bytes, MAGIC, "the report of a command", FORMAT..=FORMAT).map_err(bad)?;
        let delivery =
            postcard::from_bytes(body).map_err(|_| bad("is damaged (encoding)".to_owned()))?;
        sys::step("store unlink", || std::fs::remove_file(&path)).at("removing", &path)?;
        Ok(Some(delivery))
    }
}
