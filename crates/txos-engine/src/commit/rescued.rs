//! What others wrote to an object while it was being published is kept in the store's `rescued/`, where nothing deletes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::inplace;
use super::roots::EntryRef;
use crate::id::TxId;
use crate::sys::{self, Sys};
use crate::version::stat_at;

/// Most files of one name that one transaction keeps for others.
const MAX: u32 = 10_000;

/// Has `put` put something into a store's `rescued/`, under a name that is made of the transaction's and of `name`, until that
/// is one that nothing has there. Says where.
pub(super) fn keep(
    store: BorrowedFd<'_>,
    id: TxId,
    name: &[u8],
    mut put: impl FnMut(&Rc<OwnedFd>, &[u8]) -> Result<(), Errno>,
) -> Result<Vec<u8>, Errno> {
    let made = match sys::mkdir(store, b"rescued", 0o700) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e),
    };
    let dir = Rc::new(sys::open_dir_beneath(store, b"rescued")?);
    if made {
        // Whoever recovers first may be root; what is kept is the store's owner's to find, and to add to.
        let owner = stat_at(store, b"", AtFlags::EMPTY_PATH)?;
        inplace::not_ours(sys::chown(dir.as_fd(), owner.uid, owner.gid))?;
    }
    let base = name.get(..200).unwrap_or(name);
    for n in 0..MAX {
        let name = [format!("{id}-{n}-").as_bytes(), base].concat();
        match put(&dir, &name) {
            Ok(()) => return Ok([&b"rescued/"[..], &name].concat()),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::EXIST)
}

/// Gives a copy, which so far is this user's alone, the owner, the mode and the attributes of the file that it is a copy of, but for
/// set-id bits and capabilities: nobody runs it. Where it can't have the owner or the group it stays this user's alone, since what
/// the mode and a list allow was meant for those of the other.
pub(super) fn like(from: &EntryRef, to: &EntryRef) -> Sys<()> {
    const SET_ID: u32 = 0o6000;
    let was = from.look()?.ok_or(Errno::NOENT)?;
    let fd = to.open_path()?;
    inplace::not_ours(sys::chown(fd.as_fd(), was.uid, was.gid))?;
    let is = to.look()?.ok_or(Errno::NOENT)?;
    if (is.uid, is.gid) == (was.uid, was.gid) {
        for (name, value) in sys::xattrs_in(from.dir.as_fd(), &from.name)? {
            if !crate::changeset::is_overlay_xattr(&name) && name != b"security.capability" {
                sys::set_xattr(to.dir.as_fd(), &to.name, &name, &value)?;
            }
        }
        sys::chmod(fd.as_fd(), was.mode & 0o7777 & !SET_ID)?;
    }
    sys::set_mtime(to.dir.as_fd(), &to.name, was.mtime)
}

/// What is said of an object at `path` that is kept `at` a place of the store.
pub(super) fn note(path: &[u8], at: &[u8]) -> String {
    format!(
        "{} was written by somebody else while it was being published; as they left it, it is {} in the store",
        crate::show::quoted_bytes(path),
        crate::show::quoted_bytes(at)
    )
}
