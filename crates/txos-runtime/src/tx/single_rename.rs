//! Several calls that come to one in the end: an object that has lost one name and gained another was
//! moved, and `renameat2(2)` moves it atomically. There is nothing to recover then, and no journal.
//!
//! Only a transaction that has looked at nothing but the names that it changes ends like that.
//! Whatever an outsider does to them at the last moment comes before it or after it, as with a program
//! that calls rename: there is no third thing that it could have seen of him, and so nothing that had
//! to be taken back if it is killed right after. Who looked at more (or was told of an error) needs a
//! second look after the publish, and a journal by which it can be undone.

use std::os::fd::RawFd;

use txos_engine::changeset::{Delta, What};
use txos_engine::object::{FileId, FileKind};
use txos_engine::txn::{Outcome, Route};

use super::kernel::{self, Errno, OwnedFd, Sys};
use super::node::{Id, Name};
use super::single_call::is_others;
use super::tree::ShadowTree;
use super::{Committed, Failure, Tx, reason};

/// An object that has one name instead of another.
#[derive(Debug)]
pub struct Move {
    file: FileId,
    from: (Id, Name),
    to: (Id, Name),
}

impl Tx {
    /// The move that the transaction comes to, if that is all.
    pub fn only_move(&mut self) -> Option<Move> {
        if !self.start.only_names || Route::of(Outcome::Rename, self.promises()) != Route::Rename {
            return None;
        }
        let change = self.tree.changed_to_move()?;
        // Content and attributes are as they were.
        let deltas = self.deltas().ok()?;
        matches!(&deltas[..], [Delta { what: What::Move { base: None, .. }, .. }]).then_some(change)
    }

    /// Makes it, as a publish among those of others.
    pub fn publish_move(&mut self, change: &Move) -> Result<Committed, Failure> {
        let opened =
            |id| self.tree.directory(id).map_err(|errno| self.tree.not_moved(change, errno));
        let dirs = (opened(change.from.0)?, opened(change.to.0)?);
        let (from, to) = (dirs.0.number(), dirs.1.number());
        let acquired = self.acquire_for_publish();
        let done = self.publish_alone(acquired, is_others, || {
            is_there(from, &change.from.1, change.file)?;
            rename_onto_nothing(from, &change.from.1, to, &change.to.1)?;
            if is_directory(to, &change.to.1) {
                // Somebody's, put there at this moment: link(2) would have refused it.
                rename_onto_nothing(to, &change.to.1, from, &change.from.1)?;
                return Err(Errno::STALE);
            }
            Ok(())
        });
        done.map(|()| Committed::short())
    }
}

impl ShadowTree {
    fn changed_to_move(&self) -> Option<Move> {
        if self.changed_names().nth(2).is_some() {
            return None;
        }
        let [one, two] = <[_; 2]>::try_from(self.changed_spots()).ok()?;
        let (lost, gained) = if one.2.is_none() { (one, two) } else { (two, one) };
        let ((from, old, None, Some(was)), (to, new, Some(now), None)) = (lost, gained) else {
            return None;
        };
        let file = self.nodes[was].stable.as_ref()?.stat;
        let stable = |dir: Id| self.nodes[dir].stable.is_some() && !self.nodes[dir].live;
        let plain = was == now && file.kind() != FileKind::Dir && stable(from) && stable(to);
        plain.then_some(Move { file: file.id, from: (from, old), to: (to, new) })
    }

    /// A directory by its path, if it is still the one that was walked through.
    fn directory(&self, id: Id) -> Sys<OwnedFd> {
        let stable = self.nodes[id].stable.as_ref().ok_or(Errno::IO)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let fd = OwnedFd::of(kernel::open_exact(&stable.path, flags)?);
        match kernel::identify_fd(fd.number()) {
            Ok(stat) if stat.id == stable.stat.id => Ok(fd),
            _ => Err(Errno::STALE),
        }
    }

    fn not_moved(&self, change: &Move, errno: Errno) -> Failure {
        let path = self.below(change.from.0, &change.from.1).unwrap_or_default();
        Failure {
            reason: reason::CONFLICT,
            errno: libc::ECANCELED,
            what: format!(
                "{}: a directory on the way was moved: {}",
                String::from_utf8_lossy(&path),
                std::io::Error::from(errno)
            ),
            path,
            ..Failure::default()
        }
    }
}

/// Whether a name still leads to the file.
fn is_there(dir: RawFd, name: &[u8], file: FileId) -> Sys<()> {
    match kernel::look_at(dir, name) {
        Ok(stat) if stat.id == file => Ok(()),
        Ok(_) => Err(Errno::STALE),
        Err(errno) => Err(errno),
    }
}

fn is_directory(dir: RawFd, name: &[u8]) -> bool {
    kernel::look_at(dir, name).is_ok_and(|stat| stat.kind() == FileKind::Dir)
}

/// `renameat2(2)` onto nothing.
fn rename_onto_nothing(from: RawFd, old: &[u8], to: RawFd, new: &[u8]) -> Sys<()> {
    kernel::step("move", || {
        kernel::rename_at((from, old), (to, new), libc::RENAME_NOREPLACE).map(drop)
    })
}
