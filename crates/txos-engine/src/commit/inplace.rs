//! What a rename cannot say: content and attributes of an inode that stays.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::roots::EntryRef;
use super::roots::{Roots, at_target};
use crate::changeset::AttrChange;
use crate::changeset::patch::Patch;
use crate::error::{Error, Result};
use crate::object::{FileId, FileKind};
use crate::plan::{Op, Plan};
use crate::sys;
use crate::version::stat_at;

type Sys<T> = std::result::Result<T, Errno>;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// Makes the open file `to` hold what the open file `from` holds.
///
/// Nothing is cut off before everything is written, and room for what is longer is reserved first,
/// so that a full disk is found out while the old bytes are still there.
///
/// # Errors
/// `EBUSY` if the file grew under our hands and what was added would be cut off.
pub(super) fn write_content(from: &OwnedFd, to: &OwnedFd) -> Sys<()> {
    let (new_len, old_len) = (len(from)?, len(to)?);
    if new_len > old_len {
        sys::reserve(to.as_fd(), old_len, new_len - old_len)?;
    }
    let mut buffer = vec![0u8; CHUNK.min(usize::try_from(new_len).unwrap_or(CHUNK)).max(1)];
    let mut at = 0;
    while at < new_len {
        let n = match sys::read_at(from, &mut buffer, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        sys::write_all_at(to.as_fd(), buffer.get(..n).unwrap_or_default(), at)?;
        at += n as u64;
    }
    let now = len(to)?;
    if now > new_len.max(old_len) {
        return Err(Errno::BUSY);
    }
    if now != new_len {
        sys::truncate(to.as_fd(), new_len)?;
    }
    Ok(())
}

/// If `from` is what `old` holds and more behind it: appends only that to the open file `to`, at
/// wherever its end is then, so that two appenders lose nothing. `false` if it is not.
pub(super) fn append_content(from: &OwnedFd, old: &OwnedFd, to: &OwnedFd) -> Sys<bool> {
    let (new_len, old_len) = (len(from)?, len(old)?);
    if new_len <= old_len {
        return Ok(false);
    }
    let [mut a, mut b] = [vec![0u8; 1 << 16], vec![0u8; 1 << 16]];
    let mut at = 0;
    while at < old_len {
        let want = a.len().min(usize::try_from(old_len - at).unwrap_or(usize::MAX));
        let (a, b) = (&mut a[..want], &mut b[..want]);
        if read_full(from, a, at)? != want || read_full(old, b, at)? != want || a != b {
            return Ok(false);
        }
        at += want as u64;
    }
    sys::reserve(to.as_fd(), old_len, new_len - old_len)?;
    while at < new_len {
        let got = read_full(from, &mut a, at)?;
        if got == 0 {
            return Err(Errno::IO);
        }
        sys::append_all(to.as_fd(), a.get(..got).unwrap_or_default())?;
        at += got as u64;
    }
    Ok(true)
}

fn len(fd: &OwnedFd) -> Sys<u64> {
    sys::size(fd)
}

/// What a file holds that is being changed in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// What was there before.
    Old,
    /// At every place what was there before or what is ours.
    Ours,
    /// Something else.
    Foreign,
}

/// Compares what a file holds with what was there before and what was to be there. Behind the shorter
/// one's end a zero is ours as well: a power cut can leave what cutting the file off wrote, and not the
/// new length.
pub(super) fn content(now: &OwnedFd, old: &OwnedFd, new: Option<&OwnedFd>) -> Sys<Content> {
    let (now_len, old_len) = (len(now)?, len(old)?);
    let new_len = new.map_or(Ok(0), len)?;
    if now_len > old_len.max(new_len) || now_len < old_len.min(new_len) {
        return Ok(Content::Foreign);
    }
    let shorter = old_len.min(new_len);
    let mut only_old = now_len == old_len;
    let [mut n, mut o, mut w] = [vec![0u8; 1 << 16], vec![0u8; 1 << 16], vec![0u8; 1 << 16]];
    let mut at = 0;
    while at < now_len {
        let got = read_full(now, &mut n, at)?;
        let old_got = read_full(old, &mut o, at)?;
        let new_got = new.map_or(Ok(0), |new| read_full(new, &mut w, at))?;
        for (i, byte) in n.iter().enumerate().take(got) {
            let is_old = i < old_got && o.get(i) == Some(byte);
            only_old &= is_old;
            let is_new = i < new_got && w.get(i) == Some(byte);
            let is_cut_off = *byte == 0 && at + i as u64 >= shorter;
            if !is_old && !is_new && !is_cut_off {
                return Ok(Content::Foreign);
            }
        }
        if got == 0 {
            break;
        }
        at += got as u64;
    }
    Ok(if only_old { Content::Old } else { Content::Ours })
}

/// Reads a patch file of an operation.
pub(super) fn read_patch(plan: &Plan, roots: &Roots, op: &Op, slot: &[u8]) -> Result<Patch> {
    let io = |e| at_target(plan, op, "reading the patch of", e);
    let file = roots.slot_at(op.layer, slot).and_then(|e| e.open(OFlags::RDONLY)).map_err(io)?;
    let mut bytes = vec![0u8; usize::try_from(len(&file).map_err(io)?).unwrap_or(0)];
    let n = read_full(&file, &mut bytes, 0).map_err(io)?;
    Patch::from_bytes(bytes.get(..n).unwrap_or_default()).ok_or_else(|| Error::Format {
        path: crate::path::from_bytes(&plan.target_path(op)),
        problem: "can't be patched: the patch in the store is damaged".into(),
        advice: "What is in the store has been changed by somebody else, or the medium fails.",
    })
}

/// What a patch overwrites or cuts off, as the patch that undoes it.
pub(super) fn overwritten(file: &OwnedFd, patch: &Patch) -> Sys<Patch> {
    let old_len = len(file)?;
    let new_len = patch.len_after(old_len);
    let mut spans: Vec<(u64, u64)> =
        patch.writes.iter().map(|(at, bytes)| (*at, at + bytes.len() as u64)).collect();
    spans.push((new_len, old_len));
    let (mut writes, mut free) = (Vec::with_capacity(spans.len()), 0);
    for (start, end) in spans {
        let (start, end) = (start.max(free), end.min(old_len));
        if start < end {
            let mut bytes = vec![0; usize::try_from(end - start).map_err(|_| Errno::FBIG)?];
            if read_full(file, &mut bytes, start)? != bytes.len() {
                return Err(Errno::BUSY);
            }
            writes.push((start, bytes));
            free = end;
        }
    }
    Ok(Patch { size: (new_len != old_len).then_some(old_len), writes })
}

/// Writes the pieces of a patch. Room for what is longer is reserved first, so that a full disk is
/// found out while the old bytes are still there.
pub(super) fn write_patch(patch: &Patch, to: &OwnedFd) -> Sys<()> {
    let old_len = len(to)?;
    let new_len = patch.len_after(old_len);
    if new_len > old_len {
        for (at, bytes) in &patch.writes {
            let end = at + bytes.len() as u64;
            if end > old_len {
                sys::reserve(to.as_fd(), (*at).max(old_len), end - (*at).max(old_len))?;
            }
        }
    }
    for (at, bytes) in &patch.writes {
        sys::write_all_at(to.as_fd(), bytes, *at)?;
    }
    match patch.size {
        Some(size) if size != len(to)? => sys::truncate(to.as_fd(), size),
        _ => Ok(()),
    }
}

/// What a patch adds behind the end of a file of `len` bytes, if that is what makes it longer.
pub(super) fn appended(patch: &Patch, len: u64) -> Option<Vec<u8>> {
    let mut tail = Vec::new();
    for (at, bytes) in &patch.writes {
        let end = len + tail.len() as u64;
        if at + bytes.len() as u64 <= len {
            continue;
        }
        // Not a hole.
        if *at > end {
            return None;
        }
        tail.extend_from_slice(bytes.get(usize::try_from(end - at).ok()?..)?);
    }
    (!tail.is_empty() && patch.len_after(len) == len + tail.len() as u64).then_some(tail)
}

/// Writes the pieces of a patch into a file that had `length` bytes a moment ago. What is added behind
/// its end is appended, wherever that is by then: so what somebody else appends in the same moment is
/// not overwritten.
///
/// # Errors
/// `EBUSY` if somebody else did.
pub(super) fn patch_from(patch: &Patch, to: &OwnedFd, length: u64) -> Sys<()> {
    let Some(tail) = appended(patch, length) else { return write_patch(patch, to) };
    let after = length + tail.len() as u64;
    if len(to)? != length {
        return Err(Errno::BUSY);
    }
    sys::reserve(to.as_fd(), length, tail.len() as u64)?;
    for (at, bytes) in &patch.writes {
        let within = usize::try_from(length.saturating_sub(*at)).unwrap_or(usize::MAX);
        sys::write_all_at(to.as_fd(), &bytes[..within.min(bytes.len())], *at)?;
    }
    sys::append_all(to.as_fd(), &tail)?;
    if len(to)? == after { Ok(()) } else { Err(Errno::BUSY) }
}

/// Most bytes of others that are looked through.
const SEARCHED_MAX: usize = 64 << 20;

/// Where in a file what was appended behind the first `length` bytes is now, if all of it is.
pub(super) fn find_appended(file: &OwnedFd, length: u64, tail: &[u8]) -> Sys<Option<u64>> {
    let room = usize::try_from(len(file)?.saturating_sub(length)).map_err(|_| Errno::FBIG)?;
    if room > SEARCHED_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0u8; room];
    let n = read_full(file, &mut bytes, length)?;
    let found = bytes.get(..n).unwrap_or_default().windows(tail.len()).position(|w| w == tail);
    Ok(found.map(|at| length + at as u64))
}

/// Takes a piece out of a file, which is open for both: what is behind it moves up, also what others append meanwhile.
pub(super) fn take_out(file: &OwnedFd, at: u64, length: u64) -> Sys<()> {
    let (mut from, mut to) = (at + length, at);
    let mut buffer = vec![0u8; 1 << 16];
    loop {
        let end = len(file)?;
        if end <= from {
            // Nobody has appended since the last look.
            return if end > to { sys::truncate(file.as_fd(), to) } else { Ok(()) };
        }
        let room = usize::try_from(end - from).unwrap_or(usize::MAX).min(buffer.len());
        let n = read_full(file, buffer.get_mut(..room).unwrap_or_default(), from)?;
        sys::write_all_at(file.as_fd(), buffer.get(..n).unwrap_or_default(), to)?;
        (from, to) = (from + n as u64, to + n as u64);
    }
}

/// Compares what a file holds at the places of a patch with what was there and what was to be there;
/// zeros as in [`content`].
pub(super) fn patched(now: &OwnedFd, old: &Patch, new: &Patch) -> Sys<Content> {
    let now_len = len(now)?;
    if let Some(before) = old.size {
        let after = new.len_after(before);
        if now_len > before.max(after) || now_len < before.min(after) {
            return Ok(Content::Foreign);
        }
        // What was added must be ours.
        for (at, bytes) in &new.writes {
            let (start, end) = ((*at).max(before), (at + bytes.len() as u64).min(now_len));
            let ours = start.checked_sub(*at).and_then(|n| bytes.get(usize::try_from(n).ok()?..));
            let Some(ours) = ours.filter(|_| start < end) else { continue };
            let mut is = vec![0u8; usize::try_from(end - start).unwrap_or(0)];
            let got = read_full(now, &mut is, start)?;
            if is.iter().zip(ours).take(got).any(|(is, ours)| is != ours && *is != 0) {
                return Ok(Content::Foreign);
            }
        }
    }
    let mut only_old = old.size.is_none_or(|size| size == now_len);
    for (at, was) in &old.writes {
        let mut is = vec![0u8; was.len()];
        let got = read_full(now, &mut is, *at)?;
        for (i, (is, was)) in is.iter().zip(was).enumerate().take(got) {
            if is == was {
                continue;
            }
            only_old = false;
            let cut_off_at = old.size.map_or(u64::MAX, |before| new.len_after(before));
            let is_cut_off = *is == 0 && at + i as u64 >= cut_off_at;
            if byte_at(new, at + i as u64) != Some(*is) && !is_cut_off {
                return Ok(Content::Foreign);
            }
        }
    }
    Ok(if only_old { Content::Old } else { Content::Ours })
}

/// The byte that a patch puts at an offset.
fn byte_at(patch: &Patch, offset: u64) -> Option<u8> {
    let index = patch.writes.partition_point(|(at, _)| *at <= offset).checked_sub(1)?;
    let (at, bytes) = patch.writes.get(index)?;
    bytes.get(usize::try_from(offset - at).ok()?).copied()
}

/// Reads until the buffer is full or the file ends.
fn read_full(fd: &OwnedFd, buffer: &mut [u8], at: u64) -> Sys<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match sys::read_at(fd, buffer.get_mut(done..).unwrap_or_default(), at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// What writing to a file takes from it: set-id bits and capabilities.
pub(super) struct Kept {
    mode: u32,
    capability: Option<Vec<u8>>,
}

/// Name of the attribute that holds file capabilities.
pub(super) const CAPABILITY: &[u8] = b"security.capability";

impl Kept {
    /// Looks before the write, at the file that is written to: by its name it may be another one. A
    /// capability that the operation changes is not kept.
    pub fn of(file: &OwnedFd, op: &Op) -> Sys<Kept> {
        let version = stat_at(file.as_fd(), b"", AtFlags::EMPTY_PATH)?;
        let changes = op.attrs().into_iter().flat_map(|a| &a.xattrs).any(|x| x.name == CAPABILITY);
        let capability = if changes { None } else { sys::xattr_of(file.as_fd(), CAPABILITY)? };
        Ok(Kept { mode: version.mode & 0o7777, capability })
    }

    /// Puts back after the write what it took.
    pub fn restore(&self, file: &OwnedFd) -> Sys<()> {
        let now = stat_at(file.as_fd(), b"", AtFlags::EMPTY_PATH)?;
        if now.mode & 0o7777 != self.mode {
            not_ours(sys::chmod(file.as_fd(), self.mode))?;
        }
        match &self.capability {
            Some(value) => not_ours(sys::set_xattr_of(file.as_fd(), CAPABILITY, value)),
            None => Ok(()),
        }
    }
}

/// The change that undoes what of `change` gives no rights, but only where the object still is as the
/// change left it.
pub(super) fn still_ours(end: &EntryRef, change: &AttrChange) -> Sys<AttrChange> {
    let Some(now) = end.look()? else { return Ok(AttrChange::default()) };
    let mut back = super::permissions::without_rights(change).reversed();
    if change.mtime.is_some_and(|(_, new)| new != now.mtime) && now.kind() != FileKind::Dir {
        back.mtime = None;
    }
    let path = sys::entry_path(end.dir.as_fd(), &end.name);
    let mut xattrs = Vec::new();
    for x in back.xattrs {
        if sys::xattr(&path, &x.name)? == x.old {
            xattrs.push(x);
        }
    }
    back.xattrs = xattrs;
    Ok(back)
}

/// Applies a change of attributes to the object at `end` (not followed), if it is still the one that is
/// meant: everything goes to what was opened, whatever has its name by then. `false` if it is another one.
pub(super) fn change_attrs(end: &EntryRef, id: FileId, change: &AttrChange) -> Sys<bool> {
    let fd = end.open_path()?;
    let version = stat_at(fd.as_fd(), b"", AtFlags::EMPTY_PATH)?;
    if version.id != id {
        return Ok(false);
    }
    // chown first: it clears set-id bits and capabilities, which come after.
    if let Some((_, (uid, gid))) = change.owner {
        sys::chown(fd.as_fd(), uid, gid)?;
    }
    let is_link = version.kind() == FileKind::Symlink;
    if let Some((_, mode)) = change.mode
        && !is_link
    {
        // A write has taken the set-id bits already, perhaps of a file that is another's.
        if change.owner.is_some() || version.mode & 0o7777 != mode {
            sys::chmod(fd.as_fd(), mode)?;
        }
    } else if change.owner.is_some() && !is_link {
        sys::chmod(fd.as_fd(), version.mode & 0o7777)?;
    }
    change_xattrs(fd.as_fd(), change)?;
    if let Some((_, mtime)) = change.mtime {
        not_ours(sys::set_mtime_of(fd.as_fd(), mtime))?;
    }
    Ok(true)
}

/// The time of what is another's, in which this user may change names or bytes, can't be set: it is
/// what the kernel makes it.
pub(super) fn not_ours(set: Sys<()>) -> Sys<()> {
    match set {
        Err(Errno::PERM | Errno::ACCESS) => Ok(()),
        other => other,
    }
}

fn change_xattrs(fd: BorrowedFd<'_>, change: &AttrChange) -> Sys<()> {
    for x in &change.xattrs {
        match &x.new {
            Some(value) => sys::set_xattr_of(fd, &x.name, value)?,
            None => match sys::remove_xattr_of(fd, &x.name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(e) => return Err(e),
            },
        }
    }
    Ok(())
}

/// Gives a copy of ours the attributes of the object it is a copy of.
pub(super) fn copy_attrs(from: &EntryRef, to: &EntryRef) -> Sys<()> {
    let version = from.look()?.ok_or(Errno::NOENT)?;
    let fd = to.open_path()?;
    // Somebody may write to a file who may not make one like it: what is saved is its content.
    not_ours(sys::chown(fd.as_fd(), version.uid, version.gid))?;
    for (name, value) in sys::xattrs_in(from.dir.as_fd(), &from.name)? {
        if !crate::changeset::is_overlay_xattr(&name) {
            sys::set_xattr(to.dir.as_fd(), &to.name, &name, &value)?;
        }
    }
    sys::chmod(fd.as_fd(), version.mode & 0o7777)?;
    sys::set_mtime(to.dir.as_fd(), &to.name, version.mtime)
}

/// Whether some process has a regular file open for writing: then no read lease can be had on it
/// (fcntl(2), F_SETLEASE). Where leases are refused for another reason the answer is no.
pub(super) fn has_writer(end: &EntryRef) -> bool {
    is_open_to_writers(end.open_now(OFlags::RDONLY))
}

/// The same for what is at a name in a directory, which is not followed.
pub(super) fn has_writer_at(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    is_open_to_writers(sys::open_at(dir, name, flags))
}

fn is_open_to_writers(opened: Sys<OwnedFd>) -> bool {
    match opened {
        Ok(fd) => lease_refused(fd.as_fd()),
        // Somebody has a lease on it, and may have it open for writing.
        Err(e) => e == Errno::AGAIN,
    }
}

pub(super) fn lease_refused(fd: BorrowedFd<'_>) -> bool {
    match set_lease(fd, libc::F_RDLCK) {
        Ok(()) => {
            let _ = set_lease(fd, libc::F_UNLCK);
            false
        }
        Err(e) => e == Errno::AGAIN,
    }
}

/// Takes a lease on an open file, or gives it up (fcntl(2), F_SETLEASE). If another process opens the file meanwhile, the kernel
/// sends a signal: SIGURG, which does nothing to a process that has no handler for it. SIGIO, which it would be
/// otherwise, would end a program that commits, or call a handler that is meant for something else.
#[allow(unsafe_code)]
fn set_lease(fd: BorrowedFd<'_>, kind: i32) -> Sys<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: fcntl with F_SETSIG and F_SETLEASE takes integers and touches no memory of ours. A lease ends with its
    // descriptor at the latest.
    let failed = unsafe {
        (kind != libc::F_UNLCK && libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) < 0)
            || libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) < 0
    };
    if !failed {
        return Ok(());
    }
    let e = std::io::Error::last_os_error().raw_os_error();
    Err(e.map_or(Errno::IO, Errno::from_raw_os_error))
}

/// `F_SETSIG` of fcntl(2), which the libc crate does not have.
const F_SETSIG: i32 = 10;

/// Keeps others from opening a file while it is there: who tries waits (fcntl(2), F_SETLEASE).
#[derive(Debug)]
pub(super) struct Alone<'a>(BorrowedFd<'a>);

impl<'a> Alone<'a> {
    /// With a file of which this is the only descriptor, as soon as those who have it open for a moment only have closed it
    /// again. `None` if somebody keeps it open, or if leases are refused here.
    pub fn with(file: &'a OwnedFd) -> Option<Alone<'a>> {
        let until = Instant::now() + OTHERS_WAIT;
        loop {
            match set_lease(file.as_fd(), libc::F_WRLCK) {
                Ok(()) => return Some(Alone(file.as_fd())),
                Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(OTHERS_PAUSE),
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let _ = set_lease(self.0, libc::F_UNLCK);
    }
}

/// How long [`Alone::with`] waits for others to close a file.
const OTHERS_WAIT: Duration = Duration::from_millis(2);
/// How long it sleeps between two tries.
const OTHERS_PAUSE: Duration = Duration::from_micros(100);

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    /// A file with a content, open for reading and for writing.
    fn file(dir: &tempfile::TempDir, content: &str) -> (std::path::PathBuf, OwnedFd, OwnedFd) {
        let path = dir.path().join("file");
        std::fs::write(&path, content).unwrap();
        let read = OpenOptions::new().read(true).open(&path).unwrap();
        let write = OpenOptions::new().write(true).open(&path).unwrap();
        (path, read.into(), write.into())
    }

    fn append(path: &std::path::Path, line: &str) {
        OpenOptions::new().append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn patch(writes: &[(u64, &str)]) -> Patch {
        Patch::new(writes.iter().map(|(at, b)| (*at, b.as_bytes().to_vec())).collect(), None)
    }

    #[test]
    fn what_is_appended() {
        let of = |writes: &[(u64, &str)]| appended(&patch(writes), 4);
        assert_eq!(of(&[(4, "more")]).unwrap(), b"more");
        assert_eq!(of(&[(2, "xxmo"), (6, "re")]).unwrap(), b"more");
        assert_eq!(of(&[(0, "in"), (2, "xxmore")]).unwrap(), b"more");
        assert_eq!((of(&[(0, "new")]), of(&[(5, "hole")])), (None, None));
        let shorter = Patch::new(vec![(4, b"more".to_vec())], Some(3));
        assert_eq!(appended(&shorter, 4), None);
    }

    #[test]
    fn as_long_as_ours_but_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let (_, read, write) = file(&dir, "old\nline\n");
        let (old, new) = (Patch::new(vec![], Some(4)), patch(&[(4, "ours\n")]));
        assert_eq!(patched(&read, &old, &new).unwrap(), Content::Foreign);
        sys::write_all_at(write.as_fd(), b"ours\n", 4).unwrap();
        assert_eq!(patched(&read, &old, &new).unwrap(), Content::Ours);
        sys::truncate(write.as_fd(), 6).unwrap();
        assert_eq!(patched(&read, &old, &new).unwrap(), Content::Ours);
        sys::truncate(write.as_fd(), 4).unwrap();
        assert_eq!(patched(&read, &old, &new).unwrap(), Content::Old);
    }

    /// Who opens a file waits until whoever takes something out of it has finished.
    #[test]
    fn a_line_that_comes_while_ours_is_taken_out() {
        let dir = tempfile::tempdir().unwrap();
        let (path, read, write) = file(&dir, "old\nours\n");
        let both: OwnedFd = OpenOptions::new().read(true).write(true).open(&path).unwrap().into();
        assert!(Alone::with(&both).is_none(), "others have it open");
        drop((read, write));
        // File systems without leases are none that this could be tested on.
        let alone = txos_skip::require_some!(Alone::with(&both), "no leases here");
        let theirs = {
            let path = path.clone();
            std::thread::spawn(move || append(&path, "theirs\n"))
        };
        assert_eq!(find_appended(&both, 4, b"ours\n").unwrap(), Some(4));
        // Told that somebody wants it.
        while lease_is_kept(&both) {
            std::thread::yield_now();
        }
        take_out(&both, 4, 5).unwrap();
        drop(alone);
        theirs.join().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old\ntheirs\n");
    }

    /// Whether nobody waits for a write lease to end: else it is about to be another one.
    #[allow(unsafe_code)]
    fn lease_is_kept(file: &OwnedFd) -> bool {
        use std::os::fd::AsRawFd;
        // SAFETY: fcntl with F_GETLEASE touches no memory of ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_WRLCK }
    }

    #[test]
    fn nobody_elses_line_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let (path, read, write) = file(&dir, "old\n");
        patch_from(&patch(&[(0, "OLD"), (4, "ours\n")]), &write, 4).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "OLD\nours\n");
        // Between the look and the write.
        append(&path, "theirs\n");
        let late = patch(&[(9, "more\n")]);
        assert_eq!(patch_from(&late, &write, 9), Err(Errno::BUSY));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "OLD\nours\ntheirs\n");
        // And it is still there when ours is taken out.
        let at = find_appended(&read, 4, b"ours\n").unwrap();
        assert_eq!(at, Some(4));
        drop(write);
        let both = OpenOptions::new().read(true).write(true).open(&path).unwrap().into();
        take_out(&both, 4, 5).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "OLD\ntheirs\n");
        assert_eq!(find_appended(&read, 4, b"ours\n").unwrap(), None);
    }
}

#[cfg(all(test, not(loom)))]
mod meant {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::version::Stamp;

    fn end(dir: &std::path::Path, name: &str) -> EntryRef {
        let dir = std::fs::File::open(dir).unwrap();
        EntryRef { dir: std::rc::Rc::new(dir.into()), name: name.into() }
    }

    /// Attributes go to the object that is meant, not to what has its name; and to a link itself.
    #[test]
    fn attributes_go_to_what_is_meant() {
        let top = std::env::temp_dir().join(format!("txos-test-inplace-{}", std::process::id()));
        std::fs::create_dir(&top).unwrap();
        for name in ["meant", "other"] {
            std::fs::write(top.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("other", top.join("link")).unwrap();
        let [meant, other, link] = ["meant", "other", "link"].map(|name| end(&top, name));
        let look = |end: &EntryRef| end.look().unwrap().unwrap();
        let mtime = Stamp { sec: 1_000_000_000, nsec: 7 };
        let change = AttrChange {
            mode: Some((0o644, 0o600)),
            mtime: Some((mtime, mtime)),
            ..AttrChange::default()
        };
        let before = look(&other);
        assert_eq!(change_attrs(&other, look(&meant).id, &change), Ok(false));
        assert_eq!(look(&other), before);
        assert_eq!(change_attrs(&link, look(&link).id, &change), Ok(true));
        assert_eq!((look(&link).mtime, look(&other)), (mtime, before));
        assert_eq!(change_attrs(&meant, look(&meant).id, &change), Ok(true));
        assert_eq!((look(&meant).mtime, look(&meant).mode & 0o7777), (mtime, 0o600));
        std::fs::remove_dir_all(top).unwrap();
    }
}
