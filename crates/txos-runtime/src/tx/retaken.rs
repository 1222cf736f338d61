//! Locks that keep a program and others apart: held for the publish.
//!
//! A program locks a file, changes it, and unlocks it, or closes it, within its transaction. The change is there only when that is
//! published: somebody outside who takes the same lock meanwhile, as natively, would read what was there before, and
//! overwrite what was published, or the other way round. So the commit takes each lock to write that the transaction has had once more, from
//! before its validation until all is published. If another process has it, the transaction has lost against it.
//!
//! Locks to read need none of that: what was read is validated.

use std::time::{Duration, Instant};

use txos_engine::object::FileKind;

use super::kernel::{self, Errno, OwnedFd};
use super::node::Id;
use super::{Failure, Tx, flags, reason};

/// How long a lock is waited for that is another transaction's while it commits, or an outsider's; and what is between two tries.
pub const PATIENCE: Duration = Duration::from_millis(200);
const NAP: Duration = Duration::from_millis(1);
/// How many different locks are kept in mind.
const KEPT_MAX: usize = 1024;

/// A lock to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lock {
    /// Of bytes (fcntl(2)): from, and how many; 0: all to the end.
    Bytes(u64, u64),
    /// Of the file (flock(2)).
    File,
}

impl Tx {
    /// The transaction has got a lock to write.
    pub fn has_locked(&mut self, id: Id, lock: Lock) {
        let wanted = (id, lock);
        let taken = &mut self.locks.taken;
        if self.how.flags & flags::COMMAND == 0
            && taken.len() < KEPT_MAX
            && !taken.contains(&wanted)
        {
            taken.push(wanted);
        }
    }

    /// The same, as a record lock says it.
    pub fn has_locked_bytes(&mut self, number: i32, id: Id, lock: libc::flock) {
        let from_start = match i32::from(lock.l_whence) {
            libc::SEEK_SET => Ok(lock),
            _ => self.lockable(number).and_then(|file| file.from_start(lock)),
        };
        let Ok(lock) = from_start else { return };
        // A length below zero is of what comes before.
        let (from, len) = match lock.l_len {
            0.. => (lock.l_start, lock.l_len),
            len => (lock.l_start.saturating_add(len), len.saturating_neg()),
        };
        if let (Ok(from), Ok(len)) = (u64::try_from(from), u64::try_from(len)) {
            self.has_locked(id, Lock::Bytes(from, len));
        }
    }

    /// Takes the locks to write that the transaction has had, of files that have a counterpart in the stable tree: they are held as long
    /// as what is given back.
    ///
    /// # Errors
    /// A conflict: another process has one.
    pub fn retake_locks(&self) -> Result<Vec<OwnedFd>, Failure> {
        // All take theirs in the same order: two commits don't wait for each other.
        let file = |id: Id| self.tree.nodes[id].stable.as_ref().map(|stable| stable.stat.id);
        let mut wanted = self.locks.taken.clone();
        wanted.sort_by_key(|&(id, lock)| (file(id).map(|id| (id.dev, id.ino)), lock));
        // One open file for each: its own locks are in nobody's way.
        let mut held: Vec<(Id, OwnedFd, i32)> = Vec::new();
        for (id, lock) in wanted {
            let node = &self.tree.nodes[id];
            if node.kind() != FileKind::File || lock == Lock::File && self.has_file_locked(id) {
                continue;
            }
            if held.last().is_none_or(|(known, ..)| *known != id) {
                let open = |access| self.tree.open_counterpart(id, access);
                // If neither can be, the validation says what has become of it.
                let opened = open(libc::O_RDWR)
                    .map(|fd| (fd, libc::F_WRLCK))
                    .or_else(|| open(libc::O_RDONLY).map(|fd| (fd, libc::F_RDLCK)));
                let Some((fd, kind)) = opened else { continue };
                held.push((id, fd, kind));
            }
            if let Some((_, fd, kind)) = held.last()
                && take(fd, lock, *kind).is_err()
            {
                let path = node.stable.as_ref().map(|stable| stable.path.clone());
                let path = path.unwrap_or_default();
                return Err(Failure {
                    reason: reason::CONFLICT,
                    errno: libc::ECANCELED,
                    what: format!(
                        "{}: another process has taken the lock under which the transaction has changed it",
                        String::from_utf8_lossy(&path)
                    ),
                    path,
                    ..Failure::default()
                });
            }
        }
        Ok(held.into_iter().map(|(_, fd, _)| fd).collect())
    }

    /// Whether the program still has a file locked by flock(2): others can't write under a lock of theirs.
    fn has_file_locked(&self, id: Id) -> bool {
        self.fds.on(id).into_iter().any(|file| self.fds.get(file).lock != 0)
    }
}

/// Takes a lock, unless this process has it by another descriptor.
fn take(fd: &OwnedFd, lock: Lock, kind: i32) -> Result<(), Errno> {
    let at_once = || match lock {
        Lock::Bytes(from, len) => kernel::lock_bytes_at_once(fd.number(), kind, from, len),
        Lock::File => kernel::flock(fd.number(), libc::LOCK_EX | libc::LOCK_NB).map(drop),
    };
    let is_refused = || matches!(at_once(), Err(Errno::AGAIN | Errno::ACCESS));
    let since = Instant::now();
    // (A file system without such locks refuses otherwise.)
    while is_refused() {
        // Between two looks another one's may have gone: it is in the way still.
        if is_own(fd, lock, kind) && is_refused() && is_own(fd, lock, kind) {
            return Ok(());
        }
        if since.elapsed() >= PATIENCE {
            return Err(Errno::AGAIN);
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}

/// Whether a lock that is in the way is this process's, from before.
fn is_own(fd: &OwnedFd, lock: Lock, kind: i32) -> bool {
    match lock {
        // For its own process a record lock is in nobody's way; one of an open file is of no process.
        Lock::Bytes(from, len) => {
            let mut probe = libc::flock {
                l_type: kind as libc::c_short,
                l_whence: libc::SEEK_SET as libc::c_short,
                l_start: from as i64,
                l_len: len as i64,
                l_pid: 0,
            };
            kernel::lock_in_the_way(fd.number(), &mut probe).is_ok()
                && (i32::from(probe.l_type) == libc::F_UNLCK
                    || probe.l_pid == -1 && has_open(fd, "OFDLCK"))
        }
        Lock::File => has_open(fd, "FLOCK"),
    }
}

/// Whether another descriptor of this process has a lock of this kind on the same file.
fn has_open(fd: &OwnedFd, kind: &str) -> bool {
    let Ok(wanted) = kernel::identify_fd(fd.number()) else { return false };
    let numbers = kernel::open_numbers().unwrap_or_default();
    numbers.into_iter().filter(|number| *number != fd.number()).any(|number| {
        kernel::identify_fd(number).is_ok_and(|found| found.id == wanted.id)
            && std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))
                .is_ok_and(|info| info.contains(kind))
    })
}
