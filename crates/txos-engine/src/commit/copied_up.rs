//! Files on an overlayfs that a commit is about to write to.
//!
//! Where the machine's own tree is an overlayfs, as in a container, a file of a lower layer is copied when it is opened for
//! writing for the first time. That moves its ctime and nothing else, and the commit would find that somebody has changed the
//! file. So the commit has it copied before it looks whether anybody did, and takes the version that the copy has for the one
//! that the transaction has seen, if nothing else is different.
//!
//! A file of a lower layer that has several names becomes a file of its own for the name by which it is changed, removed or moved, unless the
//! overlay has an index: another inode. So the commit has it become that before its journal says which inode is to be changed, and can be put back.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FsWord, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use crate::changeset::{Delta, What, move_on, same_bytes};
use crate::object::FileKind;
use crate::path::join;
use crate::path::layer::split;
use crate::readset::ReadSet;
use crate::sys;
use crate::version::{Version, stat_at};

const OVERLAYFS_SUPER_MAGIC: FsWord = 0x794c_7630;

/// Whether what a transaction has seen is a file of an overlayfs.
fn is_on_overlay(dir: BorrowedFd<'_>, seen: &Version) -> bool {
    // No file system with a device of its own is an overlayfs.
    rustix::fs::major(seen.id.dev) == 0 && seen.kind() == FileKind::File && is_overlay(dir)
}

/// Whether a directory is on an overlayfs.
pub(super) fn is_overlay(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|stat| stat.f_type == OVERLAYFS_SUPER_MAGIC)
}

/// Has a name of a file with several names, which is as a transaction has seen it, become a file of its own, if the kernel would do that with its first
/// change. Gives its version after that.
///
/// # Errors
/// As `utimensat(2)` and `open(2)`: what the kernel would do is not known then.
pub(super) fn separated(
    dir: BorrowedFd<'_>,
    name: &[u8],
    seen: &Version,
) -> Result<Option<Version>, Errno> {
    if seen.nlink < 2 || !is_on_overlay(dir, seen) {
        return Ok(None);
    }
    let look = || stat_at(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let open = |how| sys::open_at(dir, name, how | OFlags::NOFOLLOW | OFlags::NONBLOCK);
    if look().is_none_or(|now| now != *seen) {
        return Ok(None);
    }
    let before = sys::xattrs_in(dir, name)?;
    let old = open(OFlags::RDONLY);
    if open(OFlags::WRONLY).is_err() {
        // A program that runs, or what its owner may not write to: setting the time that it has copies it as well.
        let same = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: seen.mtime.sec,
                tv_nsec: i64::from(seen.mtime.nsec),
            },
        };
        rustix::fs::utimensat(dir, name, &same, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let Some(after) = look().filter(|now| now.id != seen.id) else { return Ok(None) };
    let as_seen = Version { id: seen.id, ..after };
    // Between the looks somebody may have put another file in its place.
    let is_copy = seen.same_but_ctime(&as_seen)
        && sys::xattrs_in(dir, name)? == before
        && same_bytes(&File::from(old?), &File::from(open(OFlags::RDONLY)?), seen.size)?;
    Ok(is_copy.then_some(after))
}

/// Opens a file for writing that is as a transaction has seen it. Gives its version after that, if the kernel has copied it.
pub(super) fn copied_up(dir: BorrowedFd<'_>, name: &[u8], seen: &Version) -> Option<Version> {
    if !is_on_overlay(dir, seen) {
        return None;
    }
    let look = || stat_at(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let attributes = || sys::xattrs_in(dir, name).ok();
    let before = look().filter(|now| now == seen).and_then(|_| attributes())?;
    drop(sys::open_at(dir, name, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK).ok()?);
    let after = look().filter(|now| now != seen)?;
    let same = seen.same_but_ctime(&after) && seen.nlink == after.nlink;
    (same && attributes().is_some_and(|now| now == before)).then_some(after)
}

/// Has the kernel copy the files that are to be changed in place, and tells the deltas and the read set of the versions that
/// they have then. `points`: where the layers are. Whether one of them has several names on an overlay: only a whole commit ([`separated`]) changes that.
pub fn copy_up(points: &[&[u8]], deltas: &mut [Delta], reads: &mut ReadSet) -> bool {
    let mut versions = Vec::new();
    let mut has_several_names = false;
    for delta in deltas.iter_mut().filter(|delta| !delta.nameless) {
        let writes = matches!(delta.what, What::Data { .. } | What::Patch { .. });
        let is_concerned = |seen: &Version| {
            rustix::fs::major(seen.id.dev) == 0
                && seen.kind() == FileKind::File
                && (writes || seen.nlink > 1)
        };
        let Some(seen) = delta.what.versions().copied().find(is_concerned) else { continue };
        let Some(point) = points.get(delta.layer) else { continue };
        let (dir, name) = split(&delta.stable_path);
        let dir = if dir.is_empty() { point.to_vec() } else { join(point, dir) };
        let Ok(dir) = sys::open_dir_canonical(&dir) else { continue };
        if seen.nlink > 1 {
            has_several_names |= is_on_overlay(dir.as_fd(), &seen);
        } else if let Some(after) = copied_up(dir.as_fd(), name, &seen) {
            versions.push((seen, after));
        }
    }
    if !versions.is_empty() {
        move_on(deltas, &versions);
        reads.moved_on(&versions);
    }
    has_several_names
}
