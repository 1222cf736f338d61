//! Files on an overlayfs that a commit is about to write to.
//!
//! Where the machine's own tree is an overlayfs, as in a container, a file of a lower layer is copied when it is opened for
//! writing for the first time. That moves its ctime and nothing else, and the commit would find that somebody has changed the
//! file. So the commit has it copied before it looks whether anybody did, and takes the version that the copy has for the one
//! that the transaction has seen, if nothing else is different.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FsWord, OFlags};

use crate::changeset::{Delta, What, move_on};
use crate::object::FileKind;
use crate::path::join;
use crate::path::layer::split;
use crate::readset::ReadSet;
use crate::sys;
use crate::version::{Version, stat_at};

const OVERLAYFS_SUPER_MAGIC: FsWord = 0x794c_7630;

/// Opens a file for writing that is as a transaction has seen it. Gives its version after that, if the kernel has copied it.
pub(super) fn copied_up(dir: BorrowedFd<'_>, name: &[u8], seen: &Version) -> Option<Version> {
    // No file system with a device of its own is an overlayfs.
    let is_overlay = rustix::fs::major(seen.id.dev) == 0
        && rustix::fs::fstatfs(dir).is_ok_and(|stat| stat.f_type == OVERLAYFS_SUPER_MAGIC);
    if !is_overlay || seen.kind() != FileKind::File {
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
/// they have then. `points`: where the layers are.
pub fn copy_up(points: &[&[u8]], deltas: &mut [Delta], reads: &mut ReadSet) {
    let mut versions = Vec::new();
    for delta in deltas.iter_mut().filter(|delta| !delta.nameless) {
        let (What::Data { base, .. } | What::Patch { base, .. }) = &mut delta.what else {
            continue;
        };
        let Some(point) = points.get(delta.layer) else { continue };
        if rustix::fs::major(base.id.dev) != 0 {
            continue;
        }
        let (dir, name) = split(&delta.stable_path);
        let dir = if dir.is_empty() { point.to_vec() } else { join(point, dir) };
        let Ok(dir) = sys::open_dir_canonical(&dir) else { continue };
        if let Some(after) = copied_up(dir.as_fd(), name, base) {
            versions.push((*base, after));
        }
    }
    if versions.is_empty() {
        return;
    }
    move_on(deltas, &versions);
    reads.moved_on(&versions);
}
