//! Bytes behind the end of a file, in commits that are not durable.
//!
//! They are appended, wherever the end is by then, so that nothing is overwritten that an outsider appends in the same
//! moment. That it did is a conflict, and what was appended is taken out again, from exactly where it came to be.
//!
//! Of a dead process it is known which append it was about to make ([`super::control::TAILS`]). Those before it are
//! where their records say. Of those behind it there is nothing. A log of another boot says nothing of any of them: what
//! was not flushed is there as far as the file system had written it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::control::TAILS;
use super::log::GrownRecord;
use super::replay;
use crate::commit::inplace::{self, Alone, not_ours};
use crate::error::{Error, Result};
use crate::path;
use crate::sys;

/// Whether this process may make a file so long: the kernel would end it (`SIGXFSZ`).
pub(super) fn may_reach(length: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current.is_none_or(|limit| length <= limit)
}

/// Reserves room for what [`append`] will append, so that a full disk is found out before anything is.
///
/// # Errors
/// The kernel's.
pub(super) fn reserve(file: &OwnedFd, record: &GrownRecord) -> std::result::Result<(), Errno> {
    sys::reserve(file.as_fd(), record.length, record.tail.len() as u64)
}

/// Where appended bytes came to be, and how many.
pub(super) type Piece = (u64, u64);

/// Appends what a record says, and notes where that came to be, also of a part of it. Gives whether nobody else has appended
/// something by the end: what comes behind it came later.
///
/// # Errors
/// `EBUSY` if it did not come to be where the record says, all of it: somebody else has changed the length of the file.
pub(super) fn append(
    file: &OwnedFd,
    record: &GrownRecord,
    pieces: &mut Vec<Piece>,
) -> std::result::Result<bool, Errno> {
    if sys::size(file)? != record.length {
        return Err(Errno::BUSY);
    }
    let mut rest = &record.tail[..];
    let mut place = record.length;
    while !rest.is_empty() {
        let (end, count) = sys::append_some(file.as_fd(), rest)?;
        pieces.push((end.saturating_sub(count), count));
        if end != place + count {
            return Err(Errno::BUSY);
        }
        place = end;
        rest = rest.get(usize::try_from(count).unwrap_or(usize::MAX)..).unwrap_or_default();
    }
    Ok(sys::size(file)? == place)
}

/// Takes out what [`append`] has appended, while nobody else can open the file if nobody has.
///
/// # Errors
/// The kernel's.
pub(super) fn take_out(file: &OwnedFd, pieces: &[Piece]) -> std::result::Result<(), Errno> {
    if pieces.is_empty() {
        return Ok(());
    }
    let _alone = Alone::with(file);
    pieces.iter().rev().try_for_each(|&(at, count)| inplace::take_out(file, at, count))
}

/// What a dead process has left of an append.
pub(super) enum Left {
    /// All of it, where the record says.
    Whole,
    /// So many bytes of it, at the end of the file: the rest can be appended.
    Part(usize),
    /// Somebody else has changed the file since: the rest can't be appended. What there is of it, if something is.
    Lost(Option<(OwnedFd, Piece)>),
}

/// Looks at each append of a process that died at some [progress](super::control::Slot::progress).
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn look(records: &[GrownRecord], progress: u64) -> Result<Vec<Left>> {
    let begun = progress.checked_sub(TAILS).and_then(|n| usize::try_from(n).ok());
    let mut all = Vec::with_capacity(records.len());
    for (at, record) in records.iter().enumerate() {
        let io = |e: Errno| Error::io("looking at", path::from_bytes(&record.path), e);
        let file = match replay::open(&record.path, record.id, OFlags::RDWR) {
            Ok(Some((_, file))) => file,
            // What was appended before somebody moved it is with it. Else nothing can be done for it.
            Ok(None) | Err(Errno::ACCESS | Errno::PERM) => {
                let whole = begun.is_some_and(|begun| at < begun);
                all.push(if whole { Left::Whole } else { Left::Lost(None) });
                continue;
            }
            // What runs now, or is mounted to be read only, may be written to later.
            Err(e) => return Err(io(e)),
        };
        all.push(match begun {
            Some(begun) if at < begun => Left::Whole,
            Some(begun) if at == begun => in_the_middle(file, record).map_err(io)?,
            _ if sys::size(&file).map_err(io)? == record.length => Left::Part(0),
            _ => Left::Lost(None),
        });
    }
    Ok(all)
}

/// Of an append that may have been made in part.
fn in_the_middle(file: OwnedFd, record: &GrownRecord) -> std::result::Result<Left, Errno> {
    let Some(behind) = sys::size(&file)?.checked_sub(record.length) else {
        return Ok(Left::Lost(None));
    };
    let count = usize::try_from(behind).unwrap_or(usize::MAX).min(record.tail.len());
    let there = super::read_whole(&file, record.length, count)?.unwrap_or_default();
    let ours = there.iter().zip(&record.tail).take_while(|(there, ours)| there == ours).count();
    if ours == record.tail.len() {
        return Ok(Left::Whole);
    }
    if ours as u64 == behind {
        return Ok(Left::Part(ours));
    }
    // Somebody else was faster. It is all behind theirs, or not there.
    let found = inplace::find_appended(&file, record.length, &record.tail)?;
    Ok(Left::Lost(found.map(|at| (file, (at, record.tail.len() as u64)))))
}

/// Whether what is missing could be appended by this process.
pub(super) fn can_finish(records: &[GrownRecord], left: &[Left]) -> bool {
    records.iter().zip(left).all(|(record, left)| match left {
        Left::Whole => true,
        Left::Part(_) => may_reach(record.length + record.tail.len() as u64),
        Left::Lost(_) => false,
    })
}

/// Appends what is missing. Gives whether something was; `None` if there is no room. `note` is told the progress.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn finish(
    records: &[GrownRecord],
    left: &[Left],
    note: impl Fn(u64) -> Result<()>,
) -> Result<Option<bool>> {
    let mut missing = false;
    for ((record, left), progress) in records.iter().zip(left).zip(TAILS..) {
        let Left::Part(count) = left else { continue };
        let io = |e: Errno| Error::io("finishing a commit on", path::from_bytes(&record.path), e);
        let opened = replay::open(&record.path, record.id, OFlags::RDWR).map_err(io)?;
        let Some((_, file)) = opened else { return Ok(None) };
        note(progress)?;
        let rest = record.tail.get(*count..).unwrap_or_default();
        let appended = reserve(&file, record).and_then(|()| sys::append_all(file.as_fd(), rest));
        match appended {
            Ok(()) => missing = true,
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => return Ok(None),
            Err(e) => return Err(io(e)),
        }
        if let Some(mtime) = record.mtime {
            not_ours(sys::set_own_mtime(file.as_fd(), mtime)).map_err(io)?;
        }
    }
    Ok(Some(missing))
}

/// Takes out what is there. `note` is told the progress.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub(super) fn undo(
    records: &[GrownRecord],
    left: &[Left],
    note: impl Fn(u64) -> Result<()>,
) -> Result<()> {
    for (at, (record, left)) in records.iter().zip(left).enumerate().rev() {
        let progress = TAILS + at as u64;
        let io = |e: Errno| Error::io("undoing a commit on", path::from_bytes(&record.path), e);
        let count = match left {
            Left::Lost(None) | Left::Part(0) => continue,
            Left::Lost(Some((file, (at, count)))) => {
                note(progress)?;
                take_out(file, &[(*at, *count)]).map_err(io)?;
                continue;
            }
            Left::Whole => record.tail.len(),
            Left::Part(count) => *count,
        };
        let opened = replay::open(&record.path, record.id, OFlags::RDWR).map_err(io)?;
        let Some((_, file)) = opened else { continue };
        let ours = record.tail.get(..count).unwrap_or_default();
        if super::read_whole(&file, record.length, count).map_err(io)?.is_some_and(|b| b == ours) {
            note(progress)?;
            take_out(&file, &[(record.length, count as u64)]).map_err(io)?;
        }
    }
    Ok(())
}
