//! Keeping a transaction pending: its changes are neither published nor discarded.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::OFlags;

use crate::changeset::{Counts, RunningLayer};
use crate::commit::{Phase, Progress};
use crate::error::{Context, Result};
use crate::object::FileKind;
use crate::path::from_bytes;
use crate::path::layer::split;
use crate::readset::ReadSet;
use crate::stamp::Stamp;
use crate::store::{DELTAS, Transaction};
use crate::sys;

/// Makes a transaction pending, with what it read, the numbers of paths that it changes, if they were counted, and
/// `layer`: what its last command changed, if it was pending before and that is known. Of a durable
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
    counts: Option<&Counts>,
    layer: Option<RunningLayer>,
    progress: &dyn Progress,
) -> Result<()> {
    let flush = tx.meta.durable;
    tx.keep_reads(reads, flush)?;
    tx.meta.ended = Some(Stamp::now());
    let is_same = layer.as_ref().is_some_and(|layer| layer.is_same);
    let before = tx.meta.before.as_mut();
    let known = before.as_ref().and_then(|before| before.changes).filter(|_| is_same);
    if let Some(command) = before.and_then(|before| before.command.as_mut()) {
        command.changes = layer.as_ref().and_then(|l| u64::try_from(l.entries.len()).ok());
        command.is_same = is_same;
    }
    tx.meta.changes = counts.map(Counts::total).or(known);
    if flush && !is_same {
        progress.phase(Phase::Flushing, None);
        let flushed = match layer.as_ref().and_then(RunningLayer::few) {
            Some(few) => flush_few(tx, &few)?,
            None => false,
        };
        if !flushed {
            flush_layers(tx)?;
        }
    }
    if flush && tx.meta.recorded {
        // The command's process has written them, and left it to the record to say that they are there.
        for name in [DELTAS, "reads"] {
            let path = tx.dir().join(name);
            let file = sys::open(path.as_os_str().as_encoded_bytes(), OFlags::RDONLY, 0);
            let flushed = file.and_then(|file| sys::fdatasync(file.as_fd()));
            flushed.at("flushing", &path)?;
        }
    }
    if let Some(layer) = layer {
        layer.note(tx);
    }
    tx.stay();
    tx.save(flush)?;
    if flush {
        // A rename put the record in place; it is stable with its directory.
        let dir = open_dir(tx.dir())?;
        sys::fsync(dir.as_fd()).at("flushing", tx.dir())?;
    }
    Ok(())
}

/// Flushes some entries of the private copies, by number of the layer and path below its directory: files first, so
/// that no directory names what is not there. `false` if one can't be opened, which flushing needs.
fn flush_few(tx: &Transaction, few: &[(usize, &[u8], FileKind)]) -> Result<bool> {
    let _rights = crate::sys_owner::rights();
    let layers = tx.layers();
    for wanted in [FileKind::File, FileKind::Dir] {
        for (index, path, _) in few.iter().filter(|(.., kind)| *kind == wanted) {
            let Some(layer) = layers.get(*index) else { continue };
            let top = layer.upper.parent().unwrap_or(&layer.upper);
            let open = || {
                let (dir, name) = split(path);
                let top = sys::open(top.as_os_str().as_encoded_bytes(), OFlags::PATH, 0)?;
                let dir = sys::open_dir_beneath(top.as_fd(), dir)?;
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                sys::open_at(dir.as_fd(), name, flags)
            };
            let Ok(entry) = open() else { return Ok(false) };
            sys::fsync(entry.as_fd()).at("flushing", top.join(from_bytes(path)))?;
        }
    }
    Ok(true)
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
