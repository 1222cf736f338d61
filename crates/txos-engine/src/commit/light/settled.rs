//! What a durable commit builds on: the entries of the directories whose names it changes, and the content of the
//! files to which it appends, as they were before.
//!
//! Recovery redoes a name only where it finds what a record of the log found or left there, and what was appended only
//! behind what was there. So what a durable record finds must be on the disk, or in the log, before the commit is
//! acknowledged: an outsider may have removed, made or extended a file just now, without a flush. The directory or file
//! is flushed then.
//!
//! # Invariants
//!
//! - A directory or file is known by the time of its last change, if every change up to that time is on the disk, or
//!   was made by a durable record of this process that the log still holds or has flushed. Somebody else's change
//!   gives it another time (Linux 6.13 and later; before, nothing is known, and each is flushed).
//! - Only where a file system carries out changes of names and of times in order, also when they reach the disk,
//!   do the [marks](super::marks) say what a power cut took away ([`keeps_order`]).

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::object::FileId;
use crate::path;
use crate::sys;
use crate::version::{Stamp, Version, multigrain, stat_at};

/// How many directories and files a process knows.
const KNOWN_MAX: usize = 1024;

/// A directory or file that a commit builds on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base<'a> {
    id: FileId,
    fd: BorrowedFd<'a>,
    /// To tell of.
    path: &'a [u8],
    /// Of a file: how long it is with what the commit appends. None: it is a directory.
    length: Option<u64>,
}

impl<'a> Base<'a> {
    /// The directory of a path.
    pub fn directory(id: FileId, fd: BorrowedFd<'a>, path: &'a [u8]) -> Base<'a> {
        let (path, _) = path::split(path).unwrap_or((b"/", b""));
        Base { id, fd, path, length: None }
    }

    /// A file that is as long as this afterwards.
    pub fn file(id: FileId, fd: BorrowedFd<'a>, path: &'a [u8], length: u64) -> Base<'a> {
        Base { id, fd, path, length: Some(length) }
    }

    /// Whether it is the same directory or file.
    pub fn is_same(&self, other: &Base<'_>) -> bool {
        self.id == other.id
    }

    /// Whether the path still leads to the directory.
    pub fn is_reached(&self) -> std::result::Result<bool, Errno> {
        match stat_at(rustix::fs::CWD, self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => Ok(now.id == self.id),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// To tell of.
    pub fn path(&self) -> &'a [u8] {
        self.path
    }

    fn is_directory(&self) -> bool {
        self.length.is_none()
    }

    fn look(&self) -> std::result::Result<Version, Errno> {
        stat_at(self.fd, b"", AtFlags::EMPTY_PATH)
    }

    fn is_known(&self, known: &HashMap<FileId, Stamp>) -> bool {
        let Some(then) = known.get(&self.id).filter(|_| multigrain()) else { return false };
        self.look().is_ok_and(|now| now.ctime == *then)
    }

    fn flush(&self) -> std::result::Result<(), Errno> {
        if !self.is_directory() {
            return sys::fsync(self.fd);
        }
        match readable(self.fd) {
            Ok(dir) => sys::fsync(dir.as_fd()),
            Err(Errno::ACCESS | Errno::PERM) => {
                rustix::fs::sync();
                Ok(())
            }
            Err(e) => Err(e),
        }
    }
}

/// The directories and files that a process knows.
#[derive(Debug, Default)]
pub(super) struct Settled {
    known: Mutex<HashMap<FileId, Stamp>>,
    /// Number of those that were flushed.
    #[cfg(test)]
    pub flushes: std::sync::atomic::AtomicU64,
}

/// Publishes by this process wait while somebody has this: what he sees of a directory or file is the doing of
/// durable records, or of others.
pub(super) struct Following<'a> {
    known: MutexGuard<'a, HashMap<FileId, Stamp>>,
    /// Those that were as they are known.
    as_known: Vec<FileId>,
}

impl Settled {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, Stamp>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all are as they are known.
    pub fn are_known(&self, bases: &[Base<'_>]) -> bool {
        let known = self.lock();
        bases.iter().all(|base| base.is_known(&known))
    }

    /// Flushes those that are not known, and knows them.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing may be acknowledged then.
    pub fn flush(&self, bases: &[Base<'_>]) -> Result<()> {
        for base in bases {
            if base.is_known(&self.lock()) {
                continue;
            }
            let io = |e: Errno| Error::io("flushing", path::from_bytes(base.path), e);
            let changed = base.look().map_err(io)?.ctime;
            let mistake = match base.is_directory() {
                true => "directory-not-flushed",
                false => "base-not-flushed",
            };
            if !sys::mistake(mistake) {
                base.flush().map_err(io)?;
            }
            #[cfg(test)]
            self.flushes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut known = self.lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(base.id, changed);
        }
        Ok(())
    }

    /// Before a durable record is published.
    pub fn follow(&self, bases: &[Base<'_>]) -> Following<'_> {
        let known = self.lock();
        let as_known = bases.iter().filter(|base| base.is_known(&known));
        let as_known = as_known.map(|base| base.id).collect();
        Following { known, as_known }
    }
}

impl Following<'_> {
    /// After it, if all is in place.
    pub fn note(mut self, bases: &[Base<'_>]) {
        for base in bases.iter().filter(|base| self.as_known.contains(&base.id)) {
            // Longer than the commit has made it, a file has got something from somebody else.
            let as_made = |now: &Version| base.length.is_none_or(|length| now.size == length);
            match base.look().ok().filter(as_made) {
                Some(now) => drop(self.known.insert(base.id, now.ctime)),
                None => drop(self.known.remove(&base.id)),
            }
        }
    }
}

/// A directory opened so that it can be flushed.
pub(super) fn readable(dir: BorrowedFd<'_>) -> std::result::Result<OwnedFd, Errno> {
    sys::open_at(dir, b".", OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Whether the file system of a directory carries out changes of names and times in order, also when they reach
/// the disk: ext4 with a journal, and xfs. btrfs does not once somebody flushes a single file.
pub(super) fn keeps_order(dir: BorrowedFd<'_>, id: FileId) -> bool {
    const XFS: u64 = 0x5846_5342;
    const EXT4: u64 = 0xef53;
    let Ok(found) = rustix::fs::fstatfs(dir) else { return false };
    match u64::try_from(found.f_type) {
        Ok(XFS) => true,
        Ok(EXT4) => has_journal(id.dev),
        _ => false,
    }
}

/// Whether a file that a power cut has left longer than it was has nothing but zeros and what was written behind the
/// old end: xfs, and ext4 with a journal unless it is mounted with `data=writeback`.
pub(super) fn keeps_content(file: BorrowedFd<'_>, id: FileId) -> bool {
    keeps_order(file, id) && !writes_data_late(id.dev)
}

/// Whether an ext4 may let a file grow before its bytes are written.
fn writes_data_late(dev: u64) -> bool {
    static FOUND: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, late)) = found.iter().find(|(of, _)| *of == dev) {
        return *late;
    }
    // Where the name is not known, neither is the mode.
    let late = match device(dev) {
        Some(name) => {
            std::path::Path::new("/sys/fs/ext4").join(&name).exists() && {
                let options = std::path::Path::new("/proc/fs/ext4").join(&name).join("options");
                let safe = |line: &str| line == "data=ordered" || line == "data=journal";
                !std::fs::read_to_string(options).is_ok_and(|all| all.lines().any(safe))
            }
        }
        None => true,
    };
    found.push((dev, late));
    late
}

/// The name of a block device.
fn device(dev: u64) -> Option<std::ffi::OsString> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    link.file_name().map(ToOwned::to_owned)
}

/// Whether an ext4 has a journal; `false` where that can't be found out.
fn has_journal(dev: u64) -> bool {
    static FOUND: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, has)) = found.iter().find(|(of, _)| *of == dev) {
        return *has;
    }
    let task = device(dev).and_then(|name| {
        let of = std::path::Path::new("/sys/fs/ext4").join(name).join("journal_task");
        std::fs::read_to_string(of).ok()
    });
    let has = task.is_some_and(|task| task.trim().parse::<u32>().is_ok());
    found.push((dev, has));
    has
}
