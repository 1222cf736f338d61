//! Validation: is what the transaction saw still so?
//!
//! | facet | compared |
//! |---|---|
//! | ENTRY | identity and type, or the same errno |
//! | ATTRS, WRITE | of a directory: owner, group, mode; of anything else: the whole version |
//! | DATA | the whole version |
//! | LISTING | the set of names, unless the directory's version is untouched and tells its names ([`Version::tells_names`]) |
//! | XATTRS | of a directory: a digest of them; of anything else: the whole version |
//! | pages | the version; if it is another: owner, mode, size, and the pages' digests |
//! | APPEND | owner, group and mode; the data may have grown (merged at commit) |
//!
//! A directory's times and size are deliberately not compared for ATTRS: they change with every
//! unrelated name that comes or goes in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use super::{ListingDigest, Observation, Outcome, PathBinding, ReadSet, SeenDir};
use crate::error::{Conflict, ConflictKind};
use crate::hash::{Map, Set};
use crate::object::{Facets, FileId, FileKind};
use crate::path::join;
use crate::places::{Place, Places};
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
pub struct ValidationRules {
    /// Which observations must hold.
    pub isolation: Isolation,
    /// Let files pass that the transaction only appended to: the commit merges them or fails.
    pub merge_append: bool,
}

impl Default for ValidationRules {
    fn default() -> Self {
        ValidationRules { isolation: Isolation::Serializable, merge_append: true }
    }
}

/// What the transaction itself has published by the time of a second validation.
///
/// What was observed is named by where it was then. `places` says where it is now: a directory that was
/// moved, taken away or replaced is looked at there, with everything in it, and a path as a program wrote it is
/// walked through the tree as it was.
#[derive(Debug, Default)]
pub struct OwnWrites {
    /// Where everything is now.
    pub(crate) places: Places,
    /// Entries of which this transaction has replaced, removed, created or changed the object: the publish
    /// itself compared what was there with what was observed.
    pub(crate) verified: Set<Place>,
    /// Inodes with several names that this transaction has changed, linked or taken a name from:
    /// their other names show it. They were verified where that was done.
    pub(crate) inodes: Set<FileId>,
    /// For each directory: what was done to its names. Made when one was listed.
    names: OnceLock<Map<Place, NameChanges>>,
}

/// Names that a transaction added to a directory and took from it.
#[derive(Debug, Default)]
struct NameChanges {
    added: Vec<Vec<u8>>,
    removed: Vec<Vec<u8>>,
}

impl OwnWrites {
    /// Takes over where everything is when the publish is done.
    pub(crate) fn names_from(&mut self, places: Places) {
        self.places = places;
        self.names = OnceLock::new();
    }

    /// What was done to the names in each directory.
    fn name_changes(&self) -> Map<Place, NameChanges> {
        let mut all: Map<Place, NameChanges> = Map::default();
        for (dir, name, exists) in self.places.changed_names() {
            let names = all.entry(dir.to_vec()).or_default();
            if exists { &mut names.added } else { &mut names.removed }.push(name.to_vec());
        }
        all
    }

    /// The names that a directory should have now, if it had `listing` at the beginning; and whether
    /// anything was done to them.
    pub(super) fn listed(&self, dir: &[u8], listing: &ListingDigest) -> (ListingDigest, bool) {
        let mut listing = *listing;
        let names = self.names.get_or_init(|| self.name_changes());
        let Some(changed) = names.get(dir) else { return (listing, false) };
        changed.added.iter().for_each(|n| listing.add(n));
        changed.removed.iter().for_each(|n| listing.remove(n));
        (listing, true)
    }

    /// Whether a directory is elsewhere than it was.
    pub(super) fn moved(&self, dir: &[u8]) -> bool {
        self.places.anything_moved() && self.places.now(dir) != dir
    }

    /// Whether this transaction changed a directory, or one above it.
    pub(super) fn changed_on_the_way(&self, dir: &[u8]) -> bool {
        let mut rest = dir;
        while let Some((parent, _)) = crate::path::split(rest) {
            if self.verified.contains(rest) {
                return true;
            }
            rest = parent;
        }
        false
    }

    /// Where a path, as it was written, led in the tree as it was: to which directory, by its path then, or to
    /// which error. What nothing was done to is looked at where it is now.
    pub(super) fn led_to(&self, written: &[u8], walks: &mut Walks) -> Led {
        self.follow(written, &[Errno::ACCESS], walks)
    }

    /// Whether a path, as it was written, may pass anything that this transaction changed. A directory that
    /// may not be searched now does not hide that.
    pub(super) fn may_pass(&self, written: &[u8]) -> bool {
        self.follow(written, &[], &mut Walks::default()).passed
    }

    /// [`OwnWrites::led_to`]; these errors are an answer as well.
    fn follow(&self, written: &[u8], answers: &[Errno], walks: &mut Walks) -> Led {
        let mut led = Led { to: Err(Errno::NOENT), passed: false };
        let mut at: Place = b"/".to_vec();
        let mut rest = names_of(written);
        let whole = plain(&rest);
        // How much of it was walked, as long as it leads through nothing but directories.
        let mut walked = whole.as_ref().map(|_| 0);
        if let Some((length, walk)) = whole.as_ref().and_then(|whole| walks.longest(whole)) {
            (at, led.passed) = walk.clone();
            let names = whole.iter().flat_map(|whole| whole.get(length..)).flatten();
            rest.truncate(names.filter(|&&b| b == b'/').count());
            walked = Some(length);
        }
        let mut links_left = 40;
        // What can't be looked at is passed as a directory: then it is still known which names of the path this
        // transaction changed.
        let mut failed = None;
        let is_answer = |e: Errno| {
            [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG].contains(&e)
                || answers.contains(&e)
        };
        while let Some(name) = rest.pop() {
            if name == b".." {
                at = crate::path::split(&at).map_or_else(|| b"/".to_vec(), |(dir, _)| dir.to_vec());
                continue;
            }
            let entry = join(&at, &name);
            let existed = self.places.existed(&entry);
            led.passed |= existed.is_some() || self.verified.contains(&entry);
            if existed == Some(false) {
                return Led { to: Err(failed.unwrap_or(Errno::NOENT)), ..led };
            }
            let now = self.places.now(&entry);
            let kind = match stat_at(CWD, &now, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(version) => version.kind(),
                Err(e) if is_answer(e) => return Led { to: Err(failed.unwrap_or(e)), ..led },
                Err(e) => {
                    failed.get_or_insert(e);
                    FileKind::Dir
                }
            };
            walked = walked.map(|length| length + 1 + name.len());
            match kind {
                FileKind::Dir => {
                    at = entry;
                    let path = whole.as_ref().zip(walked).filter(|_| failed.is_none());
                    if let Some(path) = path.and_then(|(whole, length)| whole.get(..length)) {
                        walks.0.insert(path.to_vec(), (at.clone(), led.passed));
                    }
                }
                FileKind::Symlink => {
                    walked = None;
                    links_left -= 1;
                    if links_left == 0 {
                        return Led { to: Err(Errno::LOOP), ..led };
                    }
                    let read = || rustix::fs::readlinkat(CWD, &now[..], Vec::with_capacity(256));
                    let target = match sys::look("readlink", read) {
                        Ok(target) => target.into_bytes(),
                        Err(e) => return Led { to: Err(e), ..led },
                    };
                    if target.starts_with(b"/") {
                        at = b"/".to_vec();
                    }
                    rest.extend(names_of(&target));
                }
                _ => return Led { to: Err(Errno::NOTDIR), ..led },
            }
        }
        Led { to: failed.map_or(Ok(at), Err), ..led }
    }
}

/// Where paths through nothing but directories led, and whether they passed anything that this transaction changed: of
/// many paths below one another each directory is looked at once.
#[derive(Debug, Default)]
pub(super) struct Walks(Map<Place, (Place, bool)>);

impl Walks {
    /// The longest part of a path that was walked, and its length.
    fn longest(&self, path: &[u8]) -> Option<(usize, &(Place, bool))> {
        let mut part = path;
        loop {
            if let Some(walk) = self.0.get(part) {
                return Some((part.len(), walk));
            }
            let end = part.iter().rposition(|&b| b == b'/').filter(|&end| end > 0)?;
            part = part.get(..end)?;
        }
    }
}

/// The path of these names, last first, if all of them lead downwards.
fn plain(names: &[Vec<u8>]) -> Option<Place> {
    let mut path = Place::new();
    for name in names.iter().rev() {
        if name == b".." {
            return None;
        }
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Some(path)
}

/// Where a path led, and whether it passed anything that this transaction changed.
pub(super) struct Led {
    pub to: Result<Place, Errno>,
    pub passed: bool,
}

/// The names of a path, last first.
fn names_of(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b"."));
    names.rev().map(<[u8]>::to_vec).collect()
}

impl ReadSet {
    /// Looks at everything again and says what is no longer as it was seen.
    ///
    /// `published` is empty before the publish; afterwards it says what this transaction did.
    #[must_use]
    pub fn validate(&self, terms: ValidationRules, published: &OwnWrites) -> Vec<Conflict> {
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
    fn validate_aliases(&self, published: &OwnWrites, conflicts: &mut Vec<Conflict>) {
        let mut walks = Walks::default();
        for (written, alias) in &self.aliases {
            let conflict = match *alias {
                PathBinding::Elsewhere => None,
                PathBinding::Nowhere(errno) => nowhere(written, errno, published, &mut walks),
                PathBinding::Dir(index) => {
                    let Some(dir) = self.dirs.get(index as usize) else { continue };
                    // A path written canonically is checked with the directory itself.
                    if dir.path == written[..] {
                        continue;
                    }
                    let now = leads_to(written);
                    if now.as_ref().is_some_and(|now| *now == published.places.now(&dir.path)) {
                        continue;
                    }
                    match published.led_to(written, &mut walks) {
                        Led { to: Ok(path), .. } if path == dir.path => None,
                        Led { to: Err(Errno::ACCESS), passed: true } => None,
                        Led { to: Ok(_), .. } => Some(ConflictKind::LeadsElsewhere),
                        Led { to: Err(e @ Errno::ACCESS), .. } => Some(out_of_sight(e)),
                        Led { .. } => Some(ConflictKind::LeadsNowhere),
                    }
                }
            };
            if let Some(what) = conflict {
                conflicts.push(Conflict { path: path_buf(written), what, when: None });
            }
        }
    }
}

/// What is no longer so about a directory path that led to an error.
fn nowhere(
    written: &[u8],
    errno: i32,
    published: &OwnWrites,
    walks: &mut Walks,
) -> Option<ConflictKind> {
    let seen = Errno::from_raw_os_error(errno);
    if !super::observe::is_answer(seen) {
        return Some(ConflictKind::NotSeen(seen));
    }
    let is_same = |e: &Errno| e.raw_os_error() == errno;
    // What answers in the same way now may do so because this transaction moved what was on the way: the
    // tree as it was decides.
    let led = match published.verified.is_empty() {
        true => Led { to: Ok(Place::default()), passed: false },
        false => published.led_to(written, walks),
    };
    let led_errno = led.to.as_ref().err().copied();
    let now = match led.to {
        Err(e) if is_same(&e) => return None,
        // A mode that this transaction changed decides what may be passed.
        Err(Errno::ACCESS) if led.passed => return None,
        Ok(_) if led.passed && errno == ACCESS => return None,
        was if led.passed => was.map(drop),
        _ => super::observe::open_path(CWD, written).map(drop),
    };
    match now {
        Err(e) if is_same(&e) => None,
        // Whether this transaction has made it is not known then.
        Ok(()) if !led.passed && led_errno == Some(Errno::ACCESS) => {
            Some(out_of_sight(Errno::ACCESS))
        }
        Err(e) => Some(ConflictKind::FailsOtherwise(e)),
        Ok(()) => Some(ConflictKind::Created(None)),
    }
}

/// What a look-up answers that may not pass a directory.
const ACCESS: i32 = Errno::ACCESS.raw_os_error();

/// The canonical path of a directory, as it is now.
fn leads_to(written: &[u8]) -> Option<Vec<u8>> {
    let fd = super::observe::open_path(CWD, written).ok()?;
    let link = format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    Some(rustix::fs::readlinkat(CWD, link, Vec::with_capacity(256)).ok()?.into_bytes())
}

fn path_buf(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}

fn validate_dir(
    dir: &SeenDir,
    terms: ValidationRules,
    published: &OwnWrites,
    conflicts: &mut Vec<Conflict>,
) {
    // No link may be followed: the path was canonical, so a link in it is a change.
    let now_at = published.places.now(&dir.path);
    let opened = crate::sys::open_dir_canonical(&now_at);
    for (name, seen) in &dir.entries {
        let facets = seen.facets();
        if terms.isolation == Isolation::Snapshot && !facets.intersects(Facets::WRITE) {
            continue;
        }
        // Before the publish nothing is verified, and few paths are asked for.
        let verified =
            !published.verified.is_empty() && published.verified.contains(&join(&dir.path, name));
        if verified && !facets.contains(Facets::LISTING) {
            continue;
        }
        let mut object = Object { seen: (&dir.path, name), above: &now_at, dir: None, name };
        // A directory that was moved, or taken away, is another entry's now.
        let elsewhere;
        let moved_to = verified.then(|| published.places.now(&object.path()));
        let at = match moved_to.as_deref().and_then(crate::path::split) {
            Some((parent, name)) => {
                elsewhere = crate::sys::open_dir_canonical(parent);
                (object.above, object.name) = (parent, name);
                &elsewhere
            }
            None => &opened,
        };
        object.dir = at.as_ref().ok();
        let now = match at {
            Ok(fd) => stat_at(fd.as_fd(), object.name, AtFlags::SYMLINK_NOFOLLOW),
            Err(Errno::LOOP) => Err(Errno::NOTDIR),
            Err(e) => Err(*e),
        };
        // A mode that this transaction changed decides what may be passed.
        if matches!(now, Err(Errno::ACCESS)) && published.changed_on_the_way(&dir.path) {
            continue;
        }
        let linked = match seen.outcome {
            Outcome::Present(v) => published.inodes.contains(&v.id),
            Outcome::Absent(_) => false,
        };
        let found = if verified {
            check_listing(seen, now.ok().as_ref(), &object, published)
        } else if linked {
            // Another name of an inode that was changed: it must still be a name of it.
            match (seen.outcome, &now) {
                (Outcome::Present(before), Ok(now)) if before.same_entry(now) => None,
                (_, Ok(_)) => Some(ConflictKind::Replaced),
                (_, Err(e)) => Some(out_of_sight(*e)),
            }
        } else {
            check(seen, now, &object, (terms, published))
        };
        if let Some(what) = found {
            conflicts.push(Conflict {
                path: path_buf(&object.path()),
                what,
                when: now.ok().map(|v| v.ctime),
            });
            if conflicts.len() >= CONFLICTS_MAX {
                return;
            }
        }
    }
}

/// What an observation is compared with.
struct Object<'a> {
    /// The directory in which it was observed, and its name there.
    seen: (&'a [u8], &'a [u8]),
    /// The directory in which it is.
    above: &'a [u8],
    /// The directory in which it is, open; `None` where that can't be.
    dir: Option<&'a OwnedFd>,
    /// Its name there.
    name: &'a [u8],
}

impl Object<'_> {
    /// Where it was observed.
    fn path(&self) -> Vec<u8> {
        join(self.seen.0, self.seen.1)
    }

    /// Where it is.
    fn now_at(&self) -> Vec<u8> {
        join(self.above, self.name)
    }
}

/// Why an object that was there is not found, in words. Out of descriptors, or of memory, is no answer to whether it
/// is there.
fn out_of_sight(e: Errno) -> ConflictKind {
    match e {
        Errno::NOENT | Errno::NOTDIR => ConflictKind::Removed,
        e => ConflictKind::NotKnown("it can't be looked at now", e),
    }
}

/// What is no longer so about one observation, in words. That an object kept changing while it was observed matters
/// only where its version decides.
fn check(
    seen: &Observation,
    now: Result<Version, Errno>,
    object: &Object<'_>,
    (terms, published): (ValidationRules, &OwnWrites),
) -> Option<ConflictKind> {
    let name = object.name;
    let facets = seen.facets();
    let (before, now) = match (seen.outcome, now) {
        (Outcome::Absent(before), Err(e)) => {
            // Out of descriptors, or of memory, is no answer to whether it is there.
            let absent = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG]
                .contains(&e)
                || e.raw_os_error() == before;
            return (!absent).then_some(ConflictKind::NotKnown("it can't be looked at now", e));
        }
        (Outcome::Absent(_), Ok(v)) => {
            return Some(ConflictKind::Created(Some(v.kind())));
        }
        (Outcome::Present(_), Err(e)) => return Some(out_of_sight(e)),
        (Outcome::Present(before), Ok(now)) => (before, now),
    };
    let whole = Facets::ATTRS | Facets::DATA | Facets::XATTRS;
    let append_only =
        terms.merge_append && facets.contains(Facets::APPEND) && !facets.intersects(whole);
    if append_only && before.kind() == FileKind::File && now.kind() == FileKind::File {
        // Merged at commit, which compares the content; an appender that publishes by rename
        // leaves another inode.
        let same = (before.mode, before.uid, before.gid) == (now.mode, now.uid, now.gid);
        return (!same).then_some(ConflictKind::OwnerOrMode);
    }
    if !before.same_entry(&now) {
        return Some(if before.kind() == now.kind() {
            ConflictKind::Replaced
        } else {
            ConflictKind::ReplacedBy(before.kind(), now.kind())
        });
    }
    let versions = Facets::ATTRS | Facets::DATA | Facets::XATTRS | Facets::WRITE | Facets::APPEND;
    if facets.intersects(versions) && !before.same_owner_and_mode(&now) {
        return Some(ConflictKind::OwnerOrMode);
    }
    if now.kind() == FileKind::Dir {
        if let Some(digest) = seen.xattrs
            && !(before.ctime == now.ctime && tells_names(&now, object))
            && crate::sys::xattr_digest(&object.now_at()).ok() != Some(digest)
        {
            return Some(ConflictKind::ExtendedAttributes);
        }
        return check_listing(seen, Some(&now), object, published);
    }
    if now.is_passage() {
        return check_passage(seen, &before, &now, &object.now_at());
    }
    let content = facets.intersects(whole | Facets::WRITE | Facets::APPEND) || seen.pages.is_some();
    if !content {
        return None;
    }
    if seen.ambiguous {
        return Some(ConflictKind::KeptChanging);
    }
    if before == now {
        return None;
    }
    if let (true, Some(pages)) = (seen.is_by_pages(), &seen.pages) {
        return match super::pages::unchanged(
            object.dir.map(AsFd::as_fd),
            name,
            &before,
            &now,
            pages,
        ) {
            Ok(true) => None,
            Ok(false) => Some(ConflictKind::Content),
            Err(e) => Some(ConflictKind::NotKnown("it can't be read now", e)),
        };
    }
    Some(if before.mtime != now.mtime || before.size != now.size {
        ConflictKind::Content
    } else if before.nlink != now.nlink {
        ConflictKind::Links
    } else {
        ConflictKind::Attributes
    })
}

/// A FIFO, a socket, a device: who passes something through it changes its times, and has not changed
/// it.
fn check_passage(
    seen: &Observation,
    before: &Version,
    now: &Version,
    path: &[u8],
) -> Option<ConflictKind> {
    if before.nlink != now.nlink {
        return Some(ConflictKind::Links);
    }
    let same_attributes = !seen.facets().contains(Facets::XATTRS)
        || before.ctime == now.ctime && !seen.ambiguous
        || seen.xattrs.is_some_and(|digest| crate::sys::xattr_digest(path).ok() == Some(digest));
    (!same_attributes).then_some(ConflictKind::ExtendedAttributes)
}

/// Whether the names in a listed directory are those that were seen, but for our own.
fn check_listing(
    seen: &Observation,
    now: Option<&Version>,
    object: &Object<'_>,
    published: &OwnWrites,
) -> Option<ConflictKind> {
    let listing = seen.listing.as_deref()?;
    let (Some(now), Some(dir)) = (now, object.dir) else { return None };
    let Outcome::Present(before) = seen.outcome else { return None };
    if now.kind() != FileKind::Dir || before.id != now.id {
        return None; // Ours: replaced or removed as a whole, and verified there.
    }
    let path = object.path();
    let (expected, ours) = published.listed(&path, listing);
    let untouched = before.mtime == now.mtime && before.ctime == now.ctime;
    if !ours && untouched && tells_names(now, object) {
        return None;
    }
    let mut names = read_names(dir.as_fd(), object.name);
    let is_ours = published.verified.contains(&path);
    if names == Err(Errno::ACCESS) && is_ours {
        // This transaction has taken the right to list it away. Its owner has it still.
        names = crate::sys_owner::nevertheless(|| read_names(dir.as_fd(), object.name));
    }
    match names {
        Ok(names) if names == expected => None,
        Ok(_) => Some(ConflictKind::Names),
        // It was compared before the publish, and since then nobody but its owner and root can have changed it.
        Err(Errno::ACCESS) if is_ours => None,
        Err(e) => Some(ConflictKind::NotKnown("it can't be listed now", e)),
    }
}

/// Whether the version of a directory tells its names.
fn tells_names(version: &Version, object: &Object<'_>) -> bool {
    let mount = |dir: &OwnedFd| {
        crate::mounts::mount_in(dir.as_fd(), object.name, AtFlags::SYMLINK_NOFOLLOW)
    };
    version.tells_names(|| object.dir.and_then(mount))
}

fn read_names(dir: BorrowedFd<'_>, name: &[u8]) -> Result<ListingDigest, Errno> {
    let fd = sys::open_at(dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    ListingDigest::read(fd.as_fd(), |_| false)
}
