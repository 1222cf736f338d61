//! Keeping a transaction pending: its changes are neither published nor discarded.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::OFlags;

use crate::changeset::Counts;
use crate::commit::{Phase, Progress};
use crate::error::{Context, Result};
use crate::readset::ReadSet;
use crate::stamp::Stamp;
use crate::store::Transaction;
use crate::sys;

/// Makes a transaction pending, with what it read and the numbers of paths that it changed. Of a durable
/// one the private copies are stable before its record says that it is pending: those that a command has left
/// as they were have been since they were kept.
///
/// # Errors
/// [`crate::Error::Io`] with the step. Unless the step is the flush of the transaction's directory, the
/// record on disk still says what it said before; after that one it says that the transaction is pending,
/// which a power cut may take back.
pub fn keep(
    tx: &mut Transaction,
    reads: &ReadSet,
    counts: &Counts,
    progress: &dyn Progress,
) -> Result<()> {
    let flush = tx.meta.durable;
    tx.save_reads(reads, flush)?;
    tx.meta.ended = Some(Stamp::now());
    tx.meta.changes = counts.total();
    tx.stay();
    let here = tx.meta.stack.here_mut();
    let is_same = here.as_ref().is_some_and(|layer| layer.is_same);
    if let Some(layer) = here {
        layer.kinds = Some(counts.by_kind());
    }
    if flush && !is_same {
        progress.phase(Phase::Flushing, None);
        flush_layers(tx)?;
    }
    tx.save(flush)?;
    if flush {
        // A rename put the record in place; it is stable with its directory.
        let dir = open_dir(tx.dir())?;
        sys::fsync(dir.as_fd()).at("flushing", tx.dir())?;
    }
    Ok(())
}

fn flush_layers(tx: &Transaction) -> Result<()> {
    let _rights = crate::sys_owner::rights();
    for layer in tx.layers() {
        // Somebody unmounted it; the changes say that it is not concerned.
        if !layer.upper.try_exists().at("looking at", &layer.upper)? {
            continue;
        }
        let upper = open_dir(&layer.upper)?;
        sys::syncfs(upper.as_fd()).at("flushing", &layer.upper)?;
    }
    Ok(())
}

fn open_dir(path: &Path) -> Result<std::os::fd::OwnedFd> {
    sys::open(path.as_os_str().as_encoded_bytes(), OFlags::RDONLY | OFlags::DIRECTORY, 0)
        .at("opening", path)
}
