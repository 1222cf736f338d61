//! Validation: is what the transaction saw still so?
//!
//! | facet | compared |
//! |---|---|
//! | ENTRY | identity and type, or the same errno |
//! | ATTRS, WRITE | of a directory: owner, group, mode; of anything else: the whole version |
//! | DATA | the whole version |
//! | LISTING | the set of names, unless the directory's version is untouched |
//! | XATTRS | of a directory: a digest of them; of anything else: the whole version |
//! | pages | the version; if it is another: owner, mode, size, and the pages' digests |
//! | APPEND | owner, group and mode; the data may have grown (merged at commit) |
//!
//! A directory's times and size are deliberately not compared for ATTRS: they change with every
//! unrelated name that comes or goes in it.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use super::{Alias, NameSet, Observation, Outcome, ReadSet, SeenDir, join};
use crate::error::Conflict;
use crate::object::{Facets, FileId, FileKind};
use crate::sys;
use crate::version::{Version, stat_at};

/// How many conflicts a validation collects before it stops looking for more.
const CONFLICTS_MAX: usize = 32;

/// Which observations must still hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All of them.
    #[default]
    Serializable,
    /// Only those of objects the transaction changes (first committer wins).
    Snapshot,
}

/// On which terms a read set is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Which observations must hold.
    pub isolation: Isolation,
    /// Let files pass that the transaction only appended to: the commit merges them or fails.
    pub merge_append: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { isolation: Isolation::Serializable, merge_append: true }
    }
}

/// What the transaction itself has published by the time of a second validation.
#[derive(Debug, Default)]
pub struct Published {
    /// Paths whose object this transaction has replaced, removed, created or changed.
    pub exact: HashSet<Vec<u8>>,
    /// Inodes with several names that this transaction has changed, linked or taken a name from:
    /// their other names show it. They were verified where that was done.
    pub inodes: HashSet<FileId>,
    /// Directories that were taken away or moved, and where they are now.
    pub subtrees: HashMap<Vec<u8>, Vec<u8>>,
    /// For each directory: what was done to its names.
    pub names: HashMap<Vec<u8>, NameChanges>,
}

/// Names that a transaction added to a directory and took from it.
#[derive(Debug, Default)]
pub struct NameChanges {
    /// New names.
    pub added: Vec<Vec<u8>>,
    /// Names that are gone.
    pub removed: Vec<Vec<u8>>,
}

impl Published {
    /// Where a directory that was at `path` is now, if this transaction moved it or took it away.
    pub(super) fn moved(&self, path: &[u8]) -> Option<Vec<u8>> {
        if self.subtrees.is_empty() {
            return None;
        }
        let mut rest = path;
        loop {
            if let Some(now) = self.subtrees.get(rest) {
                return Some([now, path.get(rest.len()..).unwrap_or_default()].concat());
            }
            rest = super::split(rest)?.0;
        }
    }

    /// Whether a path, as it was written, passes a name that this transaction changed: a link that
    /// it set elsewhere, a directory that it moved.
    pub(super) fn covers_on_the_way(&self, written: &[u8]) -> bool {
        let mut rest = written;
        loop {
            let here = match super::split(rest) {
                Some((parent, name)) => join(&place(parent), name),
                None => return false,
            };
            if self.exact.contains(&here) {
                return true;
            }
            match super::split(rest) {
                Some((parent, _)) => rest = parent,
                None => return false,
            }
        }
    }

    /// Whether a path, as it was written, is at or below something this transaction put there.
    pub(super) fn covers_written(&self, written: &[u8]) -> bool {
        self.covers(written) || self.covers(&place(written)) || self.covers_on_the_way(written)
    }

    /// Whether the path is at or below something this transaction put there.
    fn covers(&self, path: &[u8]) -> bool {
        let mut rest = path;
        loop {
            if self.exact.contains(rest) {
                return true;
            }
            match super::split(rest) {
                Some((parent, _)) => rest = parent,
                None => return false,
            }
        }
    }
}

impl ReadSet {
    /// Looks at everything again and says what is no longer as it was seen.
    ///
    /// `published` is empty before the publish; afterwards it says what this transaction did.
    #[must_use]
    pub fn validate(&self, terms: Terms, published: &Published) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        if terms.isolation == Isolation::Serializable {
            self.validate_aliases(published, &mut conflicts);
        }
        for dir in &self.dirs {
            if conflicts.len() >= CONFLICTS_MAX {
                break;
            }
            if !dir.entries.is_empty() {
                validate_dir(dir, terms, published, &mut conflicts);
            }
        }
        conflicts
    }

    /// Directory paths as programs wrote them must lead where they led.
    fn validate_aliases(&self, published: &Published, conflicts: &mut Vec<Conflict>) {
        for (written, alias) in &self.aliases {
            let conflict = match *alias {
                Alias::Elsewhere => None,
                Alias::Nowhere(errno) => match super::observe::open_path(CWD, written) {
                    Err(e) if e.raw_os_error() == errno => None,
                    _ if published.covers_written(written) => None,
                    Err(e) => Some(format!("looking it up now fails otherwise ({e})")),
                    Ok(_) => Some("it did not exist and was created".to_owned()),
                },
                Alias::Dir(index) => {
                    let Some(dir) = self.dirs.get(index as usize) else { continue };
                    // A path written canonically is checked with the directory itself.
                    if dir.path == written[..] || published.moved(&dir.path).is_some() {
                        continue;
                    }
                    match leads_to(written) {
                        Some(path) if path == dir.path => None,
                        _ if published.covers_on_the_way(written) => None,
                        Some(_) => Some("it leads to another directory now".to_owned()),
                        None => Some("it no longer leads to a directory".to_owned()),
                    }
                }
            };
            if let Some(what) = conflict {
                conflicts.push(Conflict { path: path_buf(written), what, when: None });
            }
        }
    }
}

/// The canonical path that a path means now, as far as it exists; where a link leads to nothing, the
/// path of that nothing.
fn place(written: &[u8]) -> Vec<u8> {
    place_within(written, 40)
}

fn place_within(written: &[u8], links_left: u32) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    if let Ok(path) =
        sys::look("readlink", || std::fs::canonicalize(std::ffi::OsStr::from_bytes(written)))
    {
        return path.as_os_str().as_bytes().to_vec();
    }
    let Some((parent, name)) = super::split(written) else { return written.to_vec() };
    let parent = place_within(parent, links_left);
    let here = join(&parent, name);
    match sys::look("readlink", || rustix::fs::readlinkat(CWD, &here[..], Vec::with_capacity(256)))
    {
        Ok(target) if links_left > 0 => {
            let target = target.into_bytes();
            let next = if target.starts_with(b"/") { target } else { join(&parent, &target) };
            place_within(&next, links_left - 1)
        }
        _ => here,
    }
}

/// The canonical path of a directory, as it is now.
fn leads_to(written: &[u8]) -> Option<Vec<u8>> {
    let fd = super::observe::open_path(CWD, written).ok()?;
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    Some(rustix::fs::readlinkat(CWD, link, Vec::with_capacity(256)).ok()?.into_bytes())
}

fn path_buf(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}

fn validate_dir(dir: &SeenDir, terms: Terms, published: &Published, conflicts: &mut Vec<Conflict>) {
    // No link may be followed: the path was canonical, so a link in it is a change.
    let moved = published.moved(&dir.path);
    let now_at = moved.as_deref().unwrap_or(&dir.path);
    let opened = crate::sys::open_dir_canonical(now_at);
    for (name, seen) in &dir.entries {
        let facets = seen.facets();
        if terms.isolation == Isolation::Snapshot && !facets.intersects(Facets::WRITE) {
            continue;
        }
        let path = join(&dir.path, name);
        let linked = |seen: &Observation| match seen.outcome {
            Outcome::Present(v) => published.inodes.contains(&v.id),
            Outcome::Absent(_) => false,
        };
        let exact = published.exact.contains(&path);
        let ours = exact || linked(seen);
        if exact && !facets.contains(Facets::LISTING) {
            continue;
        }
        let now = match &opened {
            Ok(fd) => stat_at(fd.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW),
            Err(Errno::LOOP) => Err(Errno::NOTDIR),
            Err(e) => Err(*e),
        };
        let found = if ours && !exact {
            // Another name of an inode that was changed: it must still be a name of it.
            match (seen.outcome, &now) {
                (Outcome::Present(before), Ok(now)) if before.same_entry(now) => None,
                (_, Ok(_)) => Some("it was replaced".to_owned()),
                (_, Err(_)) => Some("it was removed".to_owned()),
            }
        } else if ours {
            check_listing(seen, now.ok().as_ref(), opened.as_ref().ok(), &path, name, published)
        } else {
            check(seen, now, opened.as_ref().ok(), &path, name, (terms, published))
        };
        if let Some(what) = found {
            conflicts.push(Conflict {
                path: path_buf(&path),
                what,
                when: now.ok().map(|v| v.ctime),
            });
            if conflicts.len() >= CONFLICTS_MAX {
                return;
            }
        }
    }
}

/// What is no longer so about one observation, in words.
fn check(
    seen: &Observation,
    now: Result<Version, Errno>,
    dir: Option<&std::os::fd::OwnedFd>,
    path: &[u8],
    name: &[u8],
    (terms, published): (Terms, &Published),
) -> Option<String> {
    let facets = seen.facets();
    let (before, now) = match (seen.outcome, now) {
        (Outcome::Absent(before), Err(e)) => {
            // Out of descriptors, or of memory, is no answer to whether it is there.
            let absent = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG]
                .contains(&e)
                || e.raw_os_error() == before;
            return (!absent).then(|| format!("it can't be looked at now ({e})"));
        }
        (Outcome::Absent(_), Ok(v)) => {
            return Some(format!("it did not exist and was created ({})", v.kind()));
        }
        (Outcome::Present(_), Err(Errno::NOENT | Errno::NOTDIR)) => {
            return Some("it was removed".to_owned());
        }
        (Outcome::Present(_), Err(e)) => return Some(format!("it can't be looked at now ({e})")),
        (Outcome::Present(before), Ok(now)) => (before, now),
    };
    if seen.ambiguous {
        return Some("it kept changing while it was read".to_owned());
    }
    let whole = Facets::ATTRS | Facets::DATA | Facets::XATTRS;
    let append_only =
        terms.merge_append && facets.contains(Facets::APPEND) && !facets.intersects(whole);
    if append_only && before.kind() == FileKind::File && now.kind() == FileKind::File {
        // Merged at commit, which compares the content; an appender that publishes by rename
        // leaves another inode.
        let same = (before.mode, before.uid, before.gid) == (now.mode, now.uid, now.gid);
        return (!same).then(|| "its owner or mode was changed".to_owned());
    }
    if !before.same_entry(&now) {
        return Some(if before.kind() == now.kind() {
            "it was replaced".to_owned()
        } else {
            format!("the {} was replaced by a {}", before.kind(), now.kind())
        });
    }
    let versions = Facets::ATTRS | Facets::DATA | Facets::XATTRS | Facets::WRITE | Facets::APPEND;
    if facets.intersects(versions) && !before.same_owner_and_mode(&now) {
        return Some("its owner or mode was changed".to_owned());
    }
    if now.kind() == FileKind::Dir {
        if let Some(digest) = seen.xattrs
            && before.ctime != now.ctime
            && crate::sys::xattr_digest(path).ok() != Some(digest)
        {
            return Some("its extended attributes were changed".to_owned());
        }
        return check_listing(seen, Some(&now), dir, path, name, published);
    }
    if !matches!(now.kind(), FileKind::File | FileKind::Symlink) {
        return check_passage(seen, &before, &now, path);
    }
    let content = facets.intersects(whole | Facets::WRITE | Facets::APPEND) || seen.pages.is_some();
    if !content || before == now {
        return None;
    }
    if let (true, Some(pages)) = (seen.is_by_pages(), &seen.pages) {
        return match super::pages::unchanged(dir.map(AsFd::as_fd), name, &before, &now, pages) {
            Ok(true) => None,
            Ok(false) => Some("its content was changed".to_owned()),
            Err(e) => Some(format!("it can't be read now ({e})")),
        };
    }
    Some(if before.mtime != now.mtime || before.size != now.size {
        "its content was changed".to_owned()
    } else if before.nlink != now.nlink {
        "its number of links was changed".to_owned()
    } else {
        "its attributes were changed".to_owned()
    })
}

/// A FIFO, a socket, a device: who passes something through it changes its times, and has not changed
/// it.
fn check_passage(
    seen: &Observation,
    before: &Version,
    now: &Version,
    path: &[u8],
) -> Option<String> {
    if before.nlink != now.nlink {
        return Some("its number of links was changed".to_owned());
    }
    let same_attributes = !seen.facets().contains(Facets::XATTRS)
        || before.ctime == now.ctime
        || seen.xattrs.is_some_and(|digest| crate::sys::xattr_digest(path).ok() == Some(digest));
    (!same_attributes).then(|| "its extended attributes were changed".to_owned())
}

/// Whether the names in a listed directory are those that were seen, but for our own.
fn check_listing(
    seen: &Observation,
    now: Option<&Version>,
    dir: Option<&std::os::fd::OwnedFd>,
    path: &[u8],
    name: &[u8],
    published: &Published,
) -> Option<String> {
    let listing = seen.listing.as_deref()?;
    let (Some(now), Some(dir)) = (now, dir) else { return None };
    let Outcome::Present(before) = seen.outcome else { return None };
    if now.kind() != FileKind::Dir || before.id != now.id {
        return None; // Ours: replaced or removed as a whole, and verified there.
    }
    let own = published.names.get(path);
    if own.is_none() && before.mtime == now.mtime && before.ctime == now.ctime {
        return None;
    }
    let mut expected = *listing;
    if let Some(own) = own {
        own.added.iter().for_each(|n| expected.add(n));
        own.removed.iter().for_each(|n| expected.remove(n));
    }
    match read_names(dir.as_fd(), name) {
        Ok(names) if names == expected => None,
        Ok(_) => Some("names in it were added or removed".to_owned()),
        Err(e) => Some(format!("it can't be listed now ({e})")),
    }
}

fn read_names(dir: BorrowedFd<'_>, name: &[u8]) -> Result<NameSet, Errno> {
    let fd = sys::open_at(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    NameSet::read(fd.as_fd(), |_| false)
}
