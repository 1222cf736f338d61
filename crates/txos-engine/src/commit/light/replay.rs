//! Redoing what the log says, by value.
//!
//! Byte for byte: where the file holds what some record found there or put there, it gets what the
//! last record put there; anything else was written later by somebody who is no participant, and
//! stays. So redoing can be repeated, and interrupted anywhere.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::log::{FileRecord, Record};
use crate::error::{Error, Result};
use crate::id::TxId;
use crate::object::{FileId, FileKind};
use crate::path;
use crate::readset::PAGE;
use crate::sys;
use crate::version::stat_at;

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
    mtime: Option<crate::version::Stamp>,
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
/// in any case.
pub(super) fn renumber(records: &mut [Record]) {
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
    for record in records {
        for file in &record.files {
            let io = |e: Errno| Error::io("redoing a commit on", path::from_bytes(&file.path), e);
            let key = (&file.path[..], file.id);
            let target = match targets.entry(key) {
                Entry::Occupied(e) => e.into_mut(),
                Entry::Vacant(e) => {
                    let opened = open(&file.path, file.id, OFlags::RDWR).map_err(io)?;
                    if opened.is_none() {
                        done.notes.push(format!(
                            "{} was moved, replaced or removed after a commit had changed it; what \
                             the commit wrote may be missing from it",
                            crate::show::quoted_bytes(&file.path)
                        ));
                    }
                    let pages = BTreeMap::new();
                    e.insert(opened.map(|(dir, file)| Target { file, dir, mtime: None, pages }))
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
            sys::set_mtime(target.dir.as_fd(), name, mtime).map_err(io)?;
        }
        // After a restart the bytes may be there without the inode's time. Later is right as well: who goes
        // by times looks again.
        if flush && !foreign.0 && !foreign.1 {
            let mtime = target.mtime.unwrap_or_else(crate::version::Stamp::now);
            sys::set_own_mtime(target.file.as_fd(), mtime).map_err(io)?;
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

/// Writes what is missing. Gives whether something was, and whether something was foreign.
fn write_back(
    target: &Target,
    finished: &mut Vec<TxId>,
) -> std::result::Result<(bool, bool), Errno> {
    let (mut wrote, mut foreign) = (false, false);
    for (number, page) in &target.pages {
        let missing = |at: usize| {
            page.touched.get(at) == Some(&true)
                && page.known.get(at) == Some(&true)
                && page.now.get(at) != page.last.get(at)
        };
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

/// Flushes the files that records speak of.
///
/// # Errors
/// [`Error::Io`]: nothing may be forgotten then.
pub(super) fn flush_files(records: &[Record]) -> Result<()> {
    /// More files than this are flushed with their file systems.
    const FILES_MAX: usize = 16;
    if sys::mistake("place-not-flushed") {
        return Ok(());
    }
    let mut files: Vec<(&[u8], FileId)> =
        records.iter().flat_map(|r| r.files.iter().map(|f| (&f.path[..], f.id))).collect();
    files.sort_unstable();
    files.dedup();
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
            // It is somewhere else by now; its bytes are flushed all the same.
            Ok(None) | Err(Errno::ACCESS | Errno::PERM) => rustix::fs::sync(),
            Err(e) => return Err(io(e)),
        }
    }
    Ok(())
}
