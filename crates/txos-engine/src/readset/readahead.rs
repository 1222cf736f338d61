//! Looking ahead: observations that are taken before anybody asks, of what is likely to be asked for.
//!
//! An observation made ahead is not part of the read set. Whoever makes it lets the program look only
//! after it was made, and says in the end whether it did ([`ReadSet::end_look_ahead`]): then it is the
//! observation of that look, taken a little earlier than usual, which is on the safe side. If the
//! same name is noted in the ordinary way before that, what was observed ahead is its first observation,
//! because the program may have seen it already.

use indexmap::map::Entry;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};

use super::{Observation, Outcome, PathBinding, ReadSet};
use crate::object::{Facets, FileKind};
use crate::realm::{Access, Facet};
use crate::version::{Stamp, Version, multigrain, stat};

/// The size of a directory up to which it is small, in bytes: of some ten thousand names on ext4.
const SMALL: u64 = 1 << 20;

/// A directory to look ahead in.
#[derive(Debug)]
pub struct AheadIn {
    index: u32,
    fd: OwnedFd,
}

/// A name with its inode number, as a directory tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// The inode number.
    pub ino: u64,
}

impl AheadIn {
    /// Which directory it is, in this read set.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether it is listed in a moment: it has some ten thousand names at most.
    #[must_use]
    pub fn is_small(&self) -> bool {
        stat(self.fd.as_fd(), b"", AtFlags::EMPTY_PATH).is_ok_and(|dir| dir.size <= SMALL)
    }

    /// What is in it now, in the order in which programs are told.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let mut all = Vec::new();
        // What can't be listed is not looked at ahead.
        let _ = crate::sys::for_each_entry(self.fd.as_fd(), |entry| {
            all.push(Listed { name: entry.name.to_vec(), ino: entry.ino });
        });
        all
    }
}

impl ReadSet {
    /// The directory that a path led to when it was noted; with the path's last name, which is neither `.` nor `..`,
    /// and whether the transaction has listed that directory.
    #[must_use]
    pub fn parent_of<'p>(&self, path: &'p [u8]) -> Option<(u32, &'p [u8], bool)> {
        let (parent, name) = crate::path::split(path)?;
        if matches!(name, b"." | b"..") || !multigrain() {
            return None;
        }
        let PathBinding::Dir(index) = *self.aliases.get(parent)? else { return None };
        let dir = self.dirs.get(index as usize)?;
        let seen = || {
            let (above, own) = crate::path::split(&dir.path)?;
            self.dirs.get(*self.by_path.get(above)? as usize)?.entries.get(own)
        };
        let listed = || seen().is_some_and(|seen| seen.facets().contains(Facets::LISTING));
        dir.versioned.then(|| (index, name, listed()))
    }

    /// Opens a directory to look ahead in. `None` if it is not there any more.
    #[must_use]
    pub fn ahead_in(&self, index: u32) -> Option<AheadIn> {
        let path = &self.dirs.get(index as usize)?.path;
        let dir = crate::sys::open_dir_canonical(path).ok()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // That it was listed nobody needs to see, as far as this user may.
        let open = |flags| rustix::fs::openat(&dir, ".", flags, Mode::empty());
        let fd = open(flags | OFlags::NOATIME).or_else(|_| open(flags)).ok()?;
        Some(AheadIn { index, fd })
    }

    /// Observes a name ahead, if that is the same as what a look would observe: something is there
    /// that was not looked at before, and no link that would be followed.
    pub fn look_ahead(&mut self, at: &AheadIn, name: &[u8], follow: bool) -> bool {
        let Some(dir) = self.dirs.get(at.index as usize) else { return false };
        let known = dir.entries.contains_key(name) || dir.ahead.contains_key(name);
        if known || !self.coverage.covers_entry(dir, name) {
            return false;
        }
        let Ok(version) = stat(at.fd.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else {
            return false;
        };
        if follow && version.kind() == FileKind::Symlink || version.is_racy(Stamp::now_coarse()) {
            return false;
        }
        if let Some(dir) = self.dirs.get_mut(at.index as usize) {
            dir.ahead.insert(name.into(), version);
        }
        true
    }

    /// Every facet of the realm that a look for `facets` at what was observed ahead stands for.
    ///
    /// # Errors
    /// The first of `acquire`.
    pub fn facets_ahead<E>(
        &mut self,
        index: u32,
        name: &[u8],
        facets: Facets,
        acquire: impl FnMut(&Facet<'_>, Access) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(dir) = self.dirs.get(index as usize) else { return Ok(()) };
        let (Some(id), Some(version)) = (dir.id, dir.ahead.get(name)) else { return Ok(()) };
        let object = Some((version.id, version.kind()));
        super::footprint::accesses(id, name, object, facets | Facets::ENTRY, acquire)
    }

    /// What was observed ahead has been looked at for `facets`, or will not be any more.
    pub fn end_look_ahead(&mut self, index: u32, name: &[u8], looked_at: Option<Facets>) {
        let Some(dir) = self.dirs.get_mut(index as usize) else { return };
        let Some(version) = dir.ahead.swap_remove(name) else { return };
        let Some(facets) = looked_at else { return };
        let seen = match dir.entries.entry(name.into()) {
            Entry::Occupied(e) => e.into_mut(),
            Entry::Vacant(e) => e.insert(observation(version)),
        };
        seen.facets |= (facets | Facets::ENTRY).0;
    }
}

/// The observation of what was found.
pub(super) fn observation(version: Version) -> Observation {
    Observation {
        outcome: Outcome::Present(version),
        facets: 0,
        // What is racy is not looked at ahead.
        ambiguous: false,
        listing: None,
        xattrs: None,
        appended_beyond: None,
        pages: None,
    }
}
