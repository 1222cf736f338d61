//! What a durable commit of names builds on: the entries of its directories, as they were before.
//!
//! Recovery redoes a name only where it finds what a record of the log found or left there. So what a durable
//! record finds must be on the disk, or in the log, before the commit is acknowledged: an outsider may have
//! removed or made a file just now, without a flush. The directory is flushed then.
//!
//! # Invariants
//!
//! - A directory is known by the time of its last change, if every change up to that time is on the disk, or was
//!   made by a durable record that the log still holds or has flushed. Somebody else's change
//!   gives it another time. While a durable commit is in flight, light commits that are not durable change no name in its directories
//!   ([`super::ORDER`]), and what one takes back is flushed before another can build on it. Where it may not ([`crate::version::Version::tells_names`]) no directory is known, and
//!   each is flushed.
//! - Only where a file system carries out changes of names and of times in order, also when they reach the disk,
//!   do the [marks](super::marks) say what a power cut took away ([`keeps_order`]).

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::names::NameTarget;
use crate::error::{Error, Result};
use crate::object::FileId;
use crate::path;
use crate::sys;
use crate::version::{Stamp, stat_at};

/// How many directories a process knows.
const KNOWN_MAX: usize = 1024;

/// The directories that a process knows.
#[derive(Debug, Default)]
pub(super) struct Settled {
    known: Mutex<HashMap<FileId, Stamp>>,
    /// Number of directories that were flushed.
    #[cfg(test)]
    pub flushes: std::sync::atomic::AtomicU64,
}

/// Publishes of names by this process wait while somebody has this: what he sees of a directory is the doing of
/// durable records, or of others.
pub(super) struct Following<'a> {
    known: MutexGuard<'a, HashMap<FileId, Stamp>>,
    /// Directories that were as they are known.
    as_known: Vec<FileId>,
}

impl Settled {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, Stamp>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all directories are as they are known.
    pub fn are_known(&self, names: &[NameTarget]) -> bool {
        let known = self.lock();
        directories(names).all(|target| is_known(&known, target))
    }

    /// Flushes the directories that are not known, and knows them.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing may be acknowledged then.
    pub fn flush(&self, names: &[NameTarget]) -> Result<()> {
        for target in directories(names) {
            if is_known(&self.lock(), target) {
                continue;
            }
            let io = |e: Errno| {
                let (parent, _) = path::split(&target.end.path).unwrap_or((b"/", b""));
                Error::io("flushing", path::from_bytes(parent), e)
            };
            let changed = changed(target.end.dir()).map_err(io)?;
            if !sys::mistake("directory-not-flushed") {
                match readable(target.end.dir()) {
                    Ok(dir) => sys::fsync(dir.as_fd()).map_err(io)?,
                    Err(Errno::ACCESS | Errno::PERM) => rustix::fs::sync(),
                    Err(e) => return Err(io(e)),
                }
            }
            #[cfg(test)]
            self.flushes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut known = self.lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(target.end.dir_id, changed);
        }
        Ok(())
    }

    /// Before the renames of a durable record.
    pub fn follow(&self, names: &[NameTarget]) -> Following<'_> {
        let known = self.lock();
        let as_known = directories(names).filter(|target| is_known(&known, target));
        let as_known = as_known.map(|target| target.end.dir_id).collect();
        Following { known, as_known }
    }
}

impl Following<'_> {
    /// After them, if all were made.
    pub fn note(mut self, names: &[NameTarget]) {
        for target in directories(names).filter(|t| self.as_known.contains(&t.end.dir_id)) {
            match changed(target.end.dir()) {
                Ok(now) => drop(self.known.insert(target.end.dir_id, now)),
                Err(_) => drop(self.known.remove(&target.end.dir_id)),
            }
        }
    }
}

fn is_known(known: &HashMap<FileId, Stamp>, target: &NameTarget) -> bool {
    let Some(then) = known.get(&target.end.dir_id) else { return false };
    let Ok(now) = stat_at(target.end.dir().as_fd(), b"", AtFlags::EMPTY_PATH) else { return false };
    now.ctime == *then && now.tells_names(|| crate::mounts::mount_of(target.end.dir()))
}

/// One name of each directory.
fn directories(names: &[NameTarget]) -> impl Iterator<Item = &NameTarget> {
    let first = |at: usize, id: FileId| names.iter().take(at).all(|t| t.end.dir_id != id);
    names.iter().enumerate().filter(move |(at, t)| first(*at, t.end.dir_id)).map(|(_, t)| t)
}

fn changed(dir: &OwnedFd) -> std::result::Result<Stamp, Errno> {
    Ok(stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH)?.ctime)
}

/// A directory opened so that it can be flushed.
pub(super) fn readable(dir: &OwnedFd) -> std::result::Result<OwnedFd, Errno> {
    sys::open_at(dir.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Flushes the directories of names that were published and taken back. Their record counts no more, so a power cut may not leave
/// one of them as it was in between. Others may have looked at the directories, and know them, before the slot is free.
pub(super) fn flush_taken_back<'n>(
    names: impl Iterator<Item = &'n [u8]>,
) -> std::result::Result<(), Errno> {
    let mut last = None;
    for name in names {
        let dir = path::split(name).map_or(&b"/"[..], |(dir, _)| dir);
        if last == Some(dir) {
            continue;
        }
        last = Some(dir);
        match sys::open_dir_canonical(dir).and_then(|dir| readable(&dir)) {
            Ok(dir) => sys::fsync(dir.as_fd())?,
            // Not by that path any more, or not readable.
            Err(_) => rustix::fs::sync(),
        }
    }
    Ok(())
}

/// Whether the file system of a directory carries out changes of names and times in order, also when they reach
/// the disk: ext4 with a journal, and xfs. btrfs does not once somebody flushes a single file.
pub(super) fn keeps_order(dir: &OwnedFd, id: FileId) -> bool {
    const XFS: u64 = 0x5846_5342;
    const EXT4: u64 = 0xef53;
    let Ok(found) = rustix::fs::fstatfs(dir) else { return false };
    match u64::try_from(found.f_type) {
        Ok(XFS) => true,
        Ok(EXT4) => has_journal(id.dev),
        _ => false,
    }
}

/// Whether an ext4 has a journal; `false` where that can't be found out.
fn has_journal(dev: u64) -> bool {
    static FOUND: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, has)) = found.iter().find(|(of, _)| *of == dev) {
        return *has;
    }
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
    let name = device.as_deref().and_then(|path| path.file_name());
    let task = name.and_then(|name| {
        let of = std::path::Path::new("/sys/fs/ext4").join(name).join("journal_task");
        std::fs::read_to_string(of).ok()
    });
    let has = task.is_some_and(|task| task.trim().parse::<u32>().is_ok());
    found.push((dev, has));
    has
}
