//! Redoing what the log says, by value.
//!
//! Byte for byte: where the file holds what some record found there or put there, it gets what the
//! last record put there; anything else was written later by somebody who is no participant, and
//! stays. So redoing can be repeated, and interrupted anywhere.
//!
//! Name by name, the same: where a name leads to what some record found or put there, it is made to lead to
//! what the last record put there, or to nothing. A file that a record put there and that is not there any
//! more, or lacks bytes that were never flushed, is made again from the records, aside, and renamed into place:
//! whatever a crash of recovery leaves under the name, the next one knows it, by its inode number and its time,
//! or because it is in all respects what the records say.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use super::log::{FileRecord, NewFile, Record};
use super::marks;
use super::settled::readable;
use crate::commit::inplace::not_ours;
use crate::error::{Error, Result};
use crate::id::TxId;
use crate::object::{FileId, FileKind};
use crate::path;
use crate::readset::PAGE;
use crate::sys;
use crate::version::{Stamp, Version, stat_at};

/// What redoing did.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// Transactions of which something was not in place.
    pub finished: Vec<TxId>,
    /// What a person should know.
    pub notes: Vec<String>,
}

const SIZE: usize = PAGE as usize;

/// One page of a file.
struct Page {
    now: Vec<u8>,
    last: [u8; SIZE],
    touched: [bool; SIZE],
    known: [bool; SIZE],
    writers: Vec<TxId>,
}

/// A file that records speak of.
struct Target {
    file: OwnedFd,
    dir: OwnedFd,
    /// Why the file is not open for writing, if it is not.
    unwritable: Option<Errno>,
    mtime: Option<Stamp>,
    pages: BTreeMap<u64, Page>,
}

/// Opens the file of a record for writing; `None` if it is not there any more, or another.
pub(super) fn open(
    path: &[u8],
    id: FileId,
    flags: OFlags,
) -> std::result::Result<Option<(OwnedFd, OwnedFd)>, Errno> {
    let Some((dir, name)) = crate::path::split(path) else { return Ok(None) };
    let gone = |e| match e {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Ok(None),
        e => Err(e),
    };
    let dir = match sys::open_dir_canonical(dir) {
        Ok(dir) => dir,
        Err(e) => return gone(e),
    };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match sys::open_at(dir.as_fd(), name, flags) {
        Ok(file) => file,
        Err(e) => return gone(e),
    };
    let version = stat_at(file.as_fd(), b"", AtFlags::EMPTY_PATH)?;
    let same = version.id == id && version.kind() == FileKind::File;
    Ok(same.then_some((dir, file)))
}

fn read_page(file: &OwnedFd, number: u64) -> std::result::Result<Vec<u8>, Errno> {
    let mut bytes = vec![0u8; SIZE];
    let mut done = 0;
    while done < SIZE {
        let room = bytes.get_mut(done..).unwrap_or_default();
        match sys::read_at(file, room, number * PAGE + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// After a restart a file system may have another device number than when the records were written. A file
/// that is where a record says, with the inode number that it says, is the one; its bytes are compared
/// in any case. Files under changed names are of the file system of their directory.
pub(super) fn renumber(records: &mut [Record]) {
    for name in records.iter_mut().flat_map(|record| &mut record.names) {
        let Some((dir, _)) = path::split(&name.path) else { continue };
        if let Ok(dir) = stat_at(CWD, dir, AtFlags::SYMLINK_NOFOLLOW) {
            let ids = name.before.iter_mut().chain(name.after.as_mut().map(|new| &mut new.id));
            ids.for_each(|id| id.dev = dir.id.dev);
        }
    }
    for file in records.iter_mut().flat_map(|record| &mut record.files) {
        let now = stat_at(rustix::fs::CWD, &file.path, AtFlags::SYMLINK_NOFOLLOW);
        if let Ok(now) = now
            && now.id.ino == file.id.ino
        {
            file.id = now.id;
        }
    }
}

/// Redoes records, in order. With `flush`, the files are flushed as well.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn replay(records: &[Record], flush: bool) -> Result<Replayed> {
    let mut done = Replayed::default();
    let mut targets: BTreeMap<(&[u8], FileId), Option<Target>> = BTreeMap::new();
    let names = Names::of(records);
    names.redo(&mut done)?;
    for record in records {
        for file in &record.files {
            if file.pieces.is_empty() || names.supersede(file) {
                continue;
            }
            let io = |e: Errno| Error::io("redoing a commit on", path::from_bytes(&file.path), e);
            let key = (&file.path[..], file.id);
            let target = match targets.entry(key) {
                Entry::Occupied(e) => e.into_mut(),
                Entry::Vacant(e) => {
                    let target = Target::open(file);
                    let gone = match &target {
                        Ok(Some(_)) => None,
                        Ok(None) => Some("was moved, replaced or removed"),
                        Err(Errno::ACCESS | Errno::PERM) => Some("was made unreadable"),
                        Err(e) => return Err(io(*e)),
                    };
                    if let Some(gone) = gone {
                        done.notes.push(format!(
                            "{} {gone} after a commit had changed it; what the commit wrote may be \
                             missing from it",
                            crate::show::quoted_bytes(&file.path)
                        ));
                    }
                    e.insert(target.ok().flatten())
                }
            };
            if let Some(target) = target {
                target.mtime = file.mtime;
                note_pieces(target, record.id, file).map_err(io)?;
            }
        }
    }
    for ((path, _), target) in targets {
        let Some(target) = target else { continue };
        let io = |e: Errno| Error::io("redoing a commit on", path::from_bytes(path), e);
        if let Some(why) = target.unwritable.filter(|_| target.lacks_something()) {
            // What runs now, or is mounted to be read only, may be written to later: this is to be repeated.
            if matches!(why, Errno::TXTBSY | Errno::ROFS) {
                return Err(io(why));
            }
            done.notes.push(format!(
                "{} can't be written to any more; what a commit wrote is missing from it",
                crate::show::quoted_bytes(path)
            ));
            continue;
        }
        let foreign = write_back(&target, &mut done.finished).map_err(io)?;
        if foreign.1 {
            done.notes.push(format!(
                "{} was changed by somebody else after a commit; where it was, their bytes stay",
                crate::show::quoted_bytes(path)
            ));
        }
        if foreign.0
            && let (Some(mtime), Some((_, name))) = (target.mtime, crate::path::split(path))
        {
            not_ours(sys::set_mtime(target.dir.as_fd(), name, mtime)).map_err(io)?;
        }
        // After a restart the bytes may be there without the inode's time. Later is right as well: who goes
        // by times looks again.
        if flush && !foreign.0 && !foreign.1 {
            let mtime = target.mtime.unwrap_or_else(Stamp::now);
            not_ours(sys::set_own_mtime(target.file.as_fd(), mtime)).map_err(io)?;
        }
        if flush {
            sys::fsync(target.file.as_fd()).map_err(io)?;
        }
    }
    Ok(done)
}

fn note_pieces(target: &mut Target, id: TxId, file: &FileRecord) -> std::result::Result<(), Errno> {
    for (start, old, new) in &file.pieces {
        for (i, (old, new)) in old.iter().zip(new).enumerate() {
            let offset = start + i as u64;
            let page = match target.pages.entry(offset / PAGE) {
                Entry::Occupied(e) => e.into_mut(),
                Entry::Vacant(e) => {
                    let now = read_page(&target.file, offset / PAGE)?;
                    e.insert(Page {
                        now,
                        last: [0; SIZE],
                        touched: [false; SIZE],
                        known: [false; SIZE],
                        writers: Vec::new(),
                    })
                }
            };
            let at = (offset % PAGE) as usize;
            let now = page.now.get(at);
            if let (Some(last), Some(touched), Some(known)) =
                (page.last.get_mut(at), page.touched.get_mut(at), page.known.get_mut(at))
            {
                *last = *new;
                *touched = true;
                *known |= now == Some(old) || now == Some(new);
            }
            if page.writers.last() != Some(&id) {
                page.writers.push(id);
            }
        }
    }
    Ok(())
}

impl Page {
    /// Whether a byte of it is to be written.
    fn lacks(&self, at: usize) -> bool {
        self.touched.get(at) == Some(&true)
            && self.known.get(at) == Some(&true)
            && self.now.get(at) != self.last.get(at)
    }
}

impl Target {
    /// The file of a record; one that this user may not write to any more is opened to be read.
    fn open(file: &FileRecord) -> std::result::Result<Option<Target>, Errno> {
        let (opened, unwritable) = match open(&file.path, file.id, OFlags::RDWR) {
            Err(why @ (Errno::ACCESS | Errno::PERM | Errno::TXTBSY | Errno::ROFS)) => {
                (open(&file.path, file.id, OFlags::RDONLY)?, Some(why))
            }
            opened => (opened?, None),
        };
        let pages = BTreeMap::new();
        Ok(opened.map(|(dir, file)| Target { file, dir, unwritable, mtime: None, pages }))
    }

    fn lacks_something(&self) -> bool {
        self.pages.values().any(|page| (0..SIZE).any(|at| page.lacks(at)))
    }
}

/// Writes what is missing. Gives whether something was, and whether something was foreign.
fn write_back(
    target: &Target,
    finished: &mut Vec<TxId>,
) -> std::result::Result<(bool, bool), Errno> {
    let (mut wrote, mut foreign) = (false, false);
    for (number, page) in &target.pages {
        let missing = |at: usize| page.lacks(at);
        foreign |= page.touched.iter().zip(&page.known).any(|(touched, known)| *touched && !*known);
        let mut at = 0;
        while at < SIZE {
            if !missing(at) {
                at += 1;
                continue;
            }
            let end = (at..SIZE).find(|&i| !missing(i)).unwrap_or(SIZE);
            let bytes = page.last.get(at..end).unwrap_or_default();
            sys::write_all_at(target.file.as_fd(), bytes, number * PAGE + at as u64)?;
            wrote = true;
            for id in &page.writers {
                if !finished.contains(id) {
                    finished.push(*id);
                }
            }
            at = end;
        }
    }
    Ok((wrote, foreign))
}

/// What became of one name in the log.
struct Chain<'r> {
    /// What was there before the first record and after each but the last.
    earlier: Vec<Option<FileId>>,
    /// What the last one put there.
    last: Option<&'r NewFile>,
    /// Number of the record that did.
    at: usize,
    /// It was there on the disk: what is there now is somebody's doing.
    published: bool,
    store: &'r [u8],
    id: TxId,
}

impl Chain<'_> {
    /// Whether the store is there in which the file was made.
    fn has_store(&self) -> bool {
        stat_at(CWD, self.store, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

/// The names that records changed.
struct Names<'r> {
    chains: BTreeMap<&'r [u8], Chain<'r>>,
    /// Bytes that later records wrote into files that records put there.
    patched: Vec<(usize, &'r FileRecord)>,
}

impl<'r> Names<'r> {
    fn of(records: &'r [Record]) -> Names<'r> {
        let mut chains: BTreeMap<&[u8], Chain<'_>> = BTreeMap::new();
        // Of what is not durable there is what the file systems had written.
        for (at, record) in records.iter().enumerate().filter(|(_, record)| record.durable) {
            for name in &record.names {
                let mut earlier = vec![name.before];
                if let Some(chain) = chains.remove(&name.path[..]) {
                    earlier.push(chain.last.map(|new| new.id));
                    earlier.extend(chain.earlier);
                }
                let published = marks::reached(&name.store, record.slot) >= record.seq;
                let (last, store, id) = (name.after.as_ref(), &name.store[..], record.id);
                chains.insert(&name.path, Chain { earlier, last, at, published, store, id });
            }
        }
        let files =
            records.iter().enumerate().flat_map(|(at, r)| r.files.iter().map(move |f| (at, f)));
        let patched = files.filter(|(_, file)| chains.contains_key(&file.path[..])).collect();
        Names { chains, patched }
    }

    /// Whether the name alone says what becomes of these bytes: the file is not the one that is there at the
    /// end, or was made again with them.
    fn supersede(&self, file: &FileRecord) -> bool {
        self.chains.get(&file.path[..]).is_some_and(|chain| {
            chain.last.is_none_or(|new| new.id != file.id)
                || !matches!(open(&file.path, file.id, OFlags::RDONLY), Ok(Some(_)))
        })
    }

    /// Makes every name lead where its last record says. The bytes of a file that is there can have been lost only
    /// if nobody has written to it since: its time says so.
    fn redo(&self, done: &mut Replayed) -> Result<()> {
        for (path, chain) in &self.chains {
            let io = |e: Errno| Error::io("redoing a commit on", path::from_bytes(path), e);
            let Some((parent, name)) = path::split(path) else { continue };
            let foreign = |done: &mut Replayed, what: &str| {
                done.notes.push(format!(
                    "{} {what} after a commit had changed it; it stays as it is",
                    crate::show::quoted_bytes(path)
                ));
            };
            let dir = match sys::open_dir_canonical(parent) {
                Ok(dir) => dir,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    foreign(done, "was in a directory that was moved or removed");
                    continue;
                }
                Err(e) => return Err(io(e)),
            };
            let there = match stat_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(version) => Some(version),
                Err(Errno::NOENT) => None,
                Err(e) => return Err(io(e)),
            };
            let id = there.map(|version| version.id);
            let wanted = chain.last.map(|new| self.wanted(path, chain, new));
            match &wanted {
                Some(wanted) if id == Some(wanted.new.id) => {
                    let Some(version) = there.filter(|v| wanted.times.contains(&v.mtime)) else {
                        continue;
                    };
                    let lacking = wanted.lacks_bytes(path, &version).map_err(io)?;
                    if lacking && !chain.has_store() {
                        foreign(done, "is on a file system without its store");
                        continue;
                    }
                    if lacking {
                        make(&dir, path, chain, wanted, Some(&version), true).map_err(io)?;
                        done.finished.push(chain.id);
                    }
                }
                None if id.is_none() => {}
                // An interrupted recovery has made it.
                Some(wanted) if wanted.is_at(path, there.as_ref()).map_err(io)? => {}
                _ if chain.published => continue,
                _ if !chain.earlier.contains(&id) => {
                    foreign(done, "was replaced or removed by somebody else");
                    continue;
                }
                None => {
                    sys::unlink(dir.as_fd(), name, AtFlags::empty()).map_err(io)?;
                    done.finished.push(chain.id);
                }
                Some(_) if !chain.has_store() => {
                    foreign(done, "was on a file system that is not there");
                    continue;
                }
                Some(wanted) => {
                    make(&dir, path, chain, wanted, None, id.is_some()).map_err(io)?;
                    done.finished.push(chain.id);
                }
            }
            match readable(&dir) {
                Ok(dir) => sys::fsync(dir.as_fd()).map_err(io)?,
                Err(Errno::ACCESS | Errno::PERM) => rustix::fs::sync(),
                Err(e) => return Err(io(e)),
            }
        }
        Ok(())
    }

    /// What the file is to be.
    fn wanted(&self, path: &[u8], chain: &Chain<'_>, new: &'r NewFile) -> Wanted<'r> {
        let mut wanted =
            Wanted { new, content: new.content.clone(), mtime: new.mtime, times: vec![new.mtime] };
        let later = self
            .patched
            .iter()
            .filter(|(at, file)| *at > chain.at && file.path == path && file.id == new.id);
        for (_, file) in later {
            for (start, _, bytes) in &file.pieces {
                let start = usize::try_from(*start).unwrap_or(usize::MAX);
                let room = wanted.content.get_mut(start..start.saturating_add(bytes.len()));
                if let Some(room) = room {
                    room.copy_from_slice(bytes);
                }
            }
            if let Some(mtime) = file.mtime {
                wanted.mtime = mtime;
                wanted.times.push(mtime);
            }
        }
        wanted
    }
}

/// What the records say of a file that they put under a name.
struct Wanted<'r> {
    new: &'r NewFile,
    /// Its content at the end, and its time.
    content: Vec<u8>,
    mtime: Stamp,
    /// The times that it had meanwhile.
    times: Vec<Stamp>,
}

impl Wanted<'_> {
    /// Whether it lacks something that was not flushed: what is there is nothing but parts of it, and zeros.
    fn lacks_bytes(&self, path: &[u8], there: &Version) -> std::result::Result<bool, Errno> {
        let Some(now) = read_all(path, there, self.content.len())? else { return Ok(false) };
        let known = now.iter().enumerate().all(|(at, byte)| {
            *byte == 0
                || self.content.get(at) == Some(byte)
                || self.new.content.get(at) == Some(byte)
        });
        Ok(known && now != self.content)
    }

    /// Whether it is there, in all respects but its inode number.
    fn is_at(&self, path: &[u8], there: Option<&Version>) -> std::result::Result<bool, Errno> {
        let same = there.filter(|now| {
            now.kind() == FileKind::File
                && now.nlink == 1
                && now.mode & 0o7777 == self.new.mode
                && (now.uid, now.gid) == (self.new.uid, self.new.gid)
                && now.mtime == self.mtime
                && now.size == self.content.len() as u64
        });
        let Some(there) = same else { return Ok(false) };
        Ok(read_all(path, there, self.content.len())?.is_some_and(|now| now == self.content))
    }
}

/// The content of a file; `None` if it is longer, or not the one any more.
fn read_all(
    path: &[u8],
    there: &Version,
    longest: usize,
) -> std::result::Result<Option<Vec<u8>>, Errno> {
    let length = usize::try_from(there.size).unwrap_or(usize::MAX);
    if length > longest {
        return Ok(None);
    }
    let Some((_, file)) = open(path, there.id, OFlags::RDONLY)? else { return Ok(None) };
    super::read_whole(&file, 0, length)
}

/// Makes a file again, aside, and puts it under its name: over one that lacks bytes, with what that one's owner,
/// mode and extended attributes are by now, or over what an earlier record left there.
fn make(
    dir: &OwnedFd,
    path: &[u8],
    chain: &Chain<'_>,
    wanted: &Wanted<'_>,
    lacking: Option<&Version>,
    replaces: bool,
) -> std::result::Result<(), Errno> {
    let Some((_, name)) = path::split(path) else { return Err(Errno::INVAL) };
    // The store's directory for what is to be deleted is always there.
    let aside = path::join(chain.store, format!("trash/{}-redo", chain.id).as_bytes());
    match sys::unlink(CWD, &aside, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    let file = sys::create(CWD, &aside)?;
    sys::write_all_at(file.as_fd(), &wanted.content, 0)?;
    let made = stat_at(file.as_fd(), b"", AtFlags::EMPTY_PATH)?;
    let (owner, mode) = match lacking {
        Some(there) => ((there.uid, there.gid), there.mode & 0o7777),
        None => ((wanted.new.uid, wanted.new.gid), wanted.new.mode),
    };
    if (made.uid, made.gid) != owner {
        sys::chown(file.as_fd(), owner.0, owner.1)?;
    }
    if lacking.is_some() {
        for (name, value) in sys::xattrs(path)? {
            sys::set_xattr_of(file.as_fd(), &name, &value)?;
        }
    }
    sys::chmod(file.as_fd(), mode)?;
    sys::set_own_mtime(file.as_fd(), wanted.mtime)?;
    sys::fsync(file.as_fd())?;
    let flags = if replaces { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    sys::rename(CWD, &aside, dir.as_fd(), name, flags)
}

/// More files than this are flushed with their file systems.
const FILES_MAX: usize = 16;

/// Flushes the files that records speak of, and the directories of names that they change.
///
/// # Errors
/// [`Error::Io`]: nothing may be forgotten then.
pub(super) fn flush_files(records: &[Record]) -> Result<()> {
    if sys::mistake("place-not-flushed") {
        return Ok(());
    }
    let (mut files, mut dirs) = (BTreeSet::new(), BTreeSet::new());
    // Of a name that was given to one new file after the other, the last.
    let mut named: BTreeMap<&[u8], FileId> = BTreeMap::new();
    for record in records {
        let written = record.files.iter().filter(|file| !file.pieces.is_empty());
        files.extend(written.map(|file| (&file.path[..], file.id)));
        for name in &record.names {
            match &name.after {
                Some(new) => named.insert(&name.path, new.id),
                None => named.remove(&name.path[..]),
            };
            dirs.extend(path::split(&name.path).map(|(dir, _)| dir));
        }
    }
    files.extend(named);
    let whole = files.len() > FILES_MAX;
    let mut flushed = Vec::new();
    for (path, id) in files {
        if whole && flushed.contains(&id.dev) {
            continue;
        }
        let io = |e: Errno| Error::io("flushing", path::from_bytes(path), e);
        match open(path, id, OFlags::RDONLY) {
            Ok(Some((_, file))) if whole => {
                sys::syncfs(file.as_fd()).map_err(io)?;
                flushed.push(id.dev);
            }
            // With its times, which `fdatasync` would leave out.
            Ok(Some((_, file))) => sys::fsync(file.as_fd()).map_err(io)?,
            // It is somewhere else by now; its bytes are flushed all the same, with everything.
            Ok(None) | Err(Errno::ACCESS | Errno::PERM) => {
                rustix::fs::sync();
                return Ok(());
            }
            Err(e) => return Err(io(e)),
        }
    }
    for dir in dirs {
        let io = |e: Errno| Error::io("flushing", path::from_bytes(dir), e);
        match sys::open_dir_canonical(dir).and_then(|dir| readable(&dir)) {
            Ok(dir) => {
                let dev = stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH).map_err(io)?.id.dev;
                if !flushed.contains(&dev) {
                    sys::fsync(dir.as_fd()).map_err(io)?;
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => {
                rustix::fs::sync();
                return Ok(());
            }
            Err(e) => return Err(io(e)),
        }
    }
    Ok(())
}
