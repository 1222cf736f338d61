//! Taking observations: what the recorder calls for every path a program looks up.

use indexmap::map::Entry;
use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{ListingDigest, Observation, Outcome, PathBinding, ReadSet, SeenDir, Touch};
use crate::object::{Facets, FileKind};
use crate::path::join;
use crate::version::observe;

/// Where a directory path leads.
pub(super) fn real_path(written: &[u8]) -> Option<Vec<u8>> {
    let fd = open_path(CWD, written).ok()?;
    let link = format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    Some(rustix::fs::readlinkat(CWD, link, Vec::with_capacity(256)).ok()?.into_bytes())
}

/// How many symbolic links a look-up may pass, as in the kernel.
const LINKS_MAX: u32 = 40;

impl ReadSet {
    /// Records that the transaction looks at `path` (absolute, as a program wrote it) for `facets`.
    ///
    /// With `follow`, a symbolic link at the end is read and what it leads to is what is observed.
    /// Cheap when the same was observed before. Failures of the look-up are observations too.
    pub fn note(&mut self, path: &[u8], follow: bool, facets: Facets) {
        self.led_outside = false;
        if let Some(round) = &mut self.round {
            round.notes.push((path.into(), follow, facets));
        }
        self.note_through(path, follow, facets, LINKS_MAX);
    }

    fn note_through(&mut self, path: &[u8], follow: bool, facets: Facets, links_left: u32) {
        let (parent, name) = split_as_written(path);
        let Some(index) = self.directory(parent) else {
            // That it leads nowhere is part of the read set.
            let known = self.aliases.get(&*plain_slashes(parent));
            self.led_outside |= !matches!(known, Some(PathBinding::Nowhere(_)));
            return self.note_link_from_outside(path, follow, facets, links_left);
        };
        let trailing_slash = path.len() > 1 && path.ends_with(b"/");
        match name {
            b"" | b"." | b".." => self.note_directory_itself(path, facets),
            name => {
                let link = self.note_entry(index, name, facets, follow || trailing_slash);
                if let Some(target) = link
                    && links_left > 0
                {
                    let base = self.dirs.get(index as usize).map(|d| d.path.clone());
                    let next = if target.starts_with(b"/") {
                        target
                    } else {
                        join(&base.unwrap_or_default(), &target)
                    };
                    self.note_through(&next, true, facets, links_left - 1);
                }
            }
        }
    }

    /// Whether the last look led through a directory that is not versioned. Links there are not part of the read
    /// set: the same look may lead elsewhere the next time, and must be noted again.
    #[must_use]
    pub fn led_outside(&self) -> bool {
        self.led_outside
    }

    /// A name in a directory that is not versioned may be a link to something that is.
    fn note_link_from_outside(&mut self, path: &[u8], follow: bool, facets: Facets, left: u32) {
        let live = |p: &Vec<u8>| crate::path::is_at_or_below(path, p);
        // Links in /proc and the like mean something else to each process that reads them.
        if !follow || left == 0 || self.coverage.never_under.iter().any(live) {
            return;
        }
        if let Ok(Some(target)) = crate::patience::read_link(path) {
            let (parent, _) = split_as_written(path);
            let next = if target.starts_with(b"/") { target } else { join(parent, &target) };
            self.note_through(&next, true, facets, left - 1);
        }
    }

    /// A path that ends in `/`, `.` or `..`: observed under the canonical name of what it is.
    fn note_directory_itself(&mut self, path: &[u8], facets: Facets) {
        let Some(index) = self.directory(path) else { return };
        let Some(dir) = self.dirs.get(index as usize) else { return };
        let canonical = dir.path.clone();
        match crate::path::split(&canonical) {
            Some((parent, name)) => {
                let (parent, name) = (parent.to_vec(), name.to_vec());
                if let Some(index) = self.directory(&parent) {
                    self.note_entry(index, &name, facets, false);
                }
            }
            // The root has no name; it is kept as the entry "." of itself.
            None => {
                self.note_entry(index, b".", facets, false);
            }
        }
    }

    /// Where a directory path leads; records that it does so. `None`: nothing to record below it.
    fn directory(&mut self, written: &[u8]) -> Option<u32> {
        let written = &*plain_slashes(written);
        if let Some(alias) = self.aliases.get(written) {
            return match alias {
                PathBinding::Dir(index) => Some(*index),
                PathBinding::Nowhere(_) | PathBinding::Elsewhere => None,
            };
        }
        let alias = match open_path(CWD, written).and_then(|fd| self.canonical(fd.as_fd())) {
            Ok(index) => index.map_or(PathBinding::Elsewhere, PathBinding::Dir),
            Err(e) => PathBinding::Nowhere(e.raw_os_error()),
        };
        let alias = match alias {
            // Nobody knows where it leads, so nobody may say that it matters to no one.
            PathBinding::Nowhere(errno) if !is_answer(Errno::from_raw_os_error(errno)) => alias,
            // A scope root is an entry of a directory that is itself out of scope, so directories
            // out of scope are kept only while they have such an entry.
            PathBinding::Dir(index) if !self.is_of_interest(index) => PathBinding::Elsewhere,
            PathBinding::Nowhere(_) if !self.may_become_versioned(written) => {
                PathBinding::Elsewhere
            }
            other => other,
        };
        self.aliases.insert(written.into(), alias);
        if let Some(round) = &mut self.round {
            round.aliases.push(written.into());
        }
        match alias {
            PathBinding::Dir(index) => Some(index),
            PathBinding::Nowhere(_) | PathBinding::Elsewhere => None,
        }
    }

    /// The index of an open directory, made if it is new; `None` for one that has no path here.
    fn canonical(&mut self, fd: BorrowedFd<'_>) -> Result<Option<u32>, Errno> {
        let path = rustix::fs::readlinkat(
            CWD,
            format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd)),
            Vec::with_capacity(256),
        )?
        .into_bytes();
        if !path.starts_with(b"/") {
            return Ok(None);
        }
        if let Some(&index) = self.by_path.get(&path[..]) {
            return Ok(Some(index));
        }
        let version = crate::version::stat_at(fd, b"", AtFlags::EMPTY_PATH)?;
        let index = u32::try_from(self.dirs.len()).map_err(|_| Errno::NOMEM)?;
        let versioned = self.coverage.covers(&path, version.id.dev);
        self.by_path.insert(path.clone().into(), index);
        let id = Some(version.id);
        let (entries, ahead) = Default::default();
        self.dirs.push(SeenDir { path, versioned, entries, id, ahead });
        Ok(Some(index))
    }

    fn is_of_interest(&self, index: u32) -> bool {
        self.dirs.get(index as usize).is_some_and(|dir| {
            dir.versioned
                || self
                    .coverage
                    .only_under
                    .iter()
                    .any(|p| crate::path::split(p).is_some_and(|(parent, _)| parent == dir.path))
        })
    }

    /// Whether a directory that does not exist lies, by its nearest existing ancestor, in coverage.
    fn may_become_versioned(&mut self, written: &[u8]) -> bool {
        let mut rest = written;
        while let Some((parent, _)) = crate::path::split(rest.strip_suffix(b"/").unwrap_or(rest)) {
            match open_path(CWD, parent).and_then(|fd| self.canonical(fd.as_fd())) {
                Ok(index) => {
                    let dir = index.and_then(|i| self.dirs.get(i as usize));
                    return dir.is_some_and(|d| d.versioned);
                }
                Err(e) if !is_answer(e) => return true,
                Err(_) => rest = parent,
            }
        }
        false
    }

    /// Observes one name of one directory. Gives the target if it is a link that is to be followed.
    fn note_entry(
        &mut self,
        index: u32,
        name: &[u8],
        facets: Facets,
        follow: bool,
    ) -> Option<Vec<u8>> {
        let dir = self.dirs.get(index as usize)?;
        if !self.coverage.covers_entry(dir, name) {
            // Not versioned itself, but what a link there leads to may be.
            let outside = join(&dir.path, name);
            let target = || crate::patience::read_link(&outside).ok().flatten();
            return if follow { target() } else { None };
        }
        if let Some(seen) = dir.entries.get(name) {
            let link = matches!(seen.outcome, Outcome::Present(v) if v.kind() == FileKind::Symlink);
            if !(link && follow) && seen.facets().contains(facets) {
                return None;
            }
        }
        let path = join(&dir.path, name);
        let dir = self.dirs.get_mut(index as usize)?;
        let (seen, first) = match dir.entries.entry(name.into()) {
            Entry::Occupied(e) => (e.into_mut(), false),
            Entry::Vacant(e) => {
                let early =
                    dir.ahead.get(name).map(|version| super::readahead::observation(*version));
                (e.insert(early.unwrap_or_else(|| look(&path))), true)
            }
        };
        let link = matches!(seen.outcome, Outcome::Present(v) if v.kind() == FileKind::Symlink);
        let facets = if link && follow { Facets::DATA } else { facets } | Facets::ENTRY;
        let facets = seen.possible(facets);
        let new = Facets(facets.0 & !seen.facets);
        seen.facets |= facets.0;
        seen.alter(facets);
        if let Some(round) = &mut self.round
            && new != Facets::default()
        {
            let facets = Facets(seen.facets);
            round.touches.push(Touch { dir: index, name: name.into(), facets, first });
        }
        if link && follow {
            return read_link(&path);
        }
        let Outcome::Present(_) = seen.outcome else { return None };
        if facets.contains(Facets::LISTING) && seen.listing.is_none() {
            seen.listing = list(&path).map(Box::new);
        }
        if facets.contains(Facets::XATTRS) && seen.xattrs.is_none() {
            seen.xattrs = crate::sys::xattr_digest(&path).ok();
        }
        None
    }
}

/// The first look at an object.
fn look(path: &[u8]) -> Observation {
    let (outcome, ambiguous) = match observe(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok((version, ambiguous)) => (Outcome::Present(version), ambiguous),
        Err(e) => (Outcome::Absent(e.raw_os_error()), false),
    };
    Observation::first(outcome, ambiguous)
}

/// The names in a directory now; `None` if they can't be read (validation then compares versions).
fn list(path: &[u8]) -> Option<ListingDigest> {
    let fd = rustix::fs::openat(
        CWD,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )
    .ok()?;
    ListingDigest::read(fd.as_fd(), |_| false).ok()
}

/// Whether a look-up that failed so has told what is there. One for which this process had no descriptor, no
/// memory or no patience has not.
pub(super) fn is_answer(e: Errno) -> bool {
    !matches!(e, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::TIMEDOUT | Errno::AGAIN)
}

/// Opens a directory for nothing but to know where it is.
pub(super) fn open_path(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    crate::patience::find(dir, path, OFlags::DIRECTORY, ResolveFlags::empty())
}

fn read_link(path: &[u8]) -> Option<Vec<u8>> {
    rustix::fs::readlinkat(CWD, path, Vec::with_capacity(256)).ok().map(|t| t.into_bytes())
}

/// A directory's path with one slash between names and none at the end, which means the same: what
/// compares it with paths name by name finds no empty ones.
fn plain_slashes(path: &[u8]) -> Cow<'_, [u8]> {
    let doubled = path.windows(2).any(|pair| pair == b"//");
    if !doubled && (path.len() < 2 || !path.ends_with(b"/")) {
        return Cow::Borrowed(path);
    }
    let mut plain = Vec::with_capacity(path.len());
    for &byte in path {
        if byte != b'/' || plain.last() != Some(&b'/') {
            plain.push(byte);
        }
    }
    if plain.len() > 1 && plain.ends_with(b"/") {
        plain.pop();
    }
    Cow::Owned(plain)
}

/// Splits at the last slash that has a name behind it; the name is empty for `/`.
fn split_as_written(path: &[u8]) -> (&[u8], &[u8]) {
    let trimmed = match path.iter().rposition(|&b| b != b'/') {
        Some(last) => path.get(..=last).unwrap_or(path),
        None => return (b"/", b""),
    };
    match trimmed.iter().rposition(|&b| b == b'/') {
        Some(0) => (b"/", trimmed.get(1..).unwrap_or_default()),
        Some(slash) => {
            (trimmed.get(..slash).unwrap_or_default(), trimmed.get(slash + 1..).unwrap_or_default())
        }
        None => (b".", trimmed),
    }
}
