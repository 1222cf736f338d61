//! File handles: `name_to_handle_at(2)`, `open_by_handle_at(2)`.
//!
//! A handle is of a stable inode. So it is given of objects that the transaction has neither made nor written, and leads to what
//! the transaction sees of the object: to the private copy, if it has written to it since.
//!
//! | the object | `name_to_handle_at` | `open_by_handle_at` |
//! |---|---|---|
//! | stable | its handle | opened as by its path, and observed so |
//! | renamed in the transaction | its handle | opened |
//! | written in the transaction | refused: the commit may replace its inode | what the transaction has written |
//! | made in the transaction | refused: it has no inode that stays | there is no handle |
//! | removed in the transaction | | ESTALE, as of one that is gone |
//! | with no name that the kernel tells, or one that leads elsewhere in the transaction | | refused: nothing is known that could be observed |
//! | not versioned | as natively | as natively |

use super::Tx;
use super::attrs::Object;
use super::content::Data;
use super::kernel::{self, Errno, OwnedFd, Stat, Sys};
use super::node::Id;
use super::walk::{Place, Spot};
use crate::call::Call;

/// `AT_HANDLE_FID`.
const FID: i32 = 0x200;
/// `AT_HANDLE_MNT_ID_UNIQUE`.
const UNIQUE_MOUNT: i32 = 1;
/// `AT_HANDLE_CONNECTABLE`.
const CONNECTABLE: i32 = 2;

impl Tx {
    /// `name_to_handle_at(2)`.
    ///
    /// # Errors
    /// As the call; EOPNOTSUPP of what the transaction has made or written.
    pub fn handle_of(&mut self, call: &Call, path: &[u8]) -> Sys<u64> {
        const KNOWN: i32 =
            libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH | FID | UNIQUE_MOUNT | CONNECTABLE;
        let (dir, flags) = (call.int(0), call.int(4));
        if flags & !KNOWN != 0 {
            return Err(Errno::INVAL);
        }
        let follows = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let look =
            flags & libc::AT_EMPTY_PATH | if follows { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        let opened = match self.object(dir, path, look)? {
            Object::Fd(real) => return named(call, real, c"", flags | libc::AT_EMPTY_PATH),
            Object::Live(mut path) => {
                path.push(0);
                let path = std::ffi::CStr::from_bytes_with_nul(&path).map_err(|_| Errno::NOENT)?;
                return named(call, libc::AT_FDCWD, path, flags & !libc::AT_EMPTY_PATH);
            }
            Object::Node(id) if !self.has_lasting_inode(id) => {
                return self.unsupported_errno(
                    "a file handle of what exists only in the transaction, or was written in it,",
                );
            }
            // By the descriptor itself: it may have no name.
            Object::Node(_) if path.is_empty() && dir != libc::AT_FDCWD => None,
            Object::Node(id) => {
                let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
                Some(OwnedFd::of(self.placeholder(id, flags)?))
            }
        };
        let real = match &opened {
            Some(fd) => fd.number(),
            None => self.real_without_offset(dir)?,
        };
        let flags = flags & !libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH;
        named(call, real, c"", flags)
    }

    /// Whether the inode of an object was there before the transaction, and stays as far as is known.
    fn has_lasting_inode(&self, id: Id) -> bool {
        let node = &self.tree.nodes[id];
        node.stable.is_some() && matches!(node.data, Data::Stable)
    }

    /// `open_by_handle_at(2)`.
    ///
    /// # Errors
    /// As the call; EOPNOTSUPP of what has no name by which it could be observed.
    pub fn open_by_handle(&mut self, call: &Call) -> Sys<u64> {
        let flags = call.int(2);
        let mount = match call.int(0) {
            libc::AT_FDCWD => libc::AT_FDCWD,
            number => self.real_without_offset(number)?,
        };
        let real_call = call.with_descriptor(0, mount);
        // What it is. The kernel says whether the caller may open by handle at all.
        let looks = (libc::O_PATH | libc::O_CLOEXEC) as u64;
        let fd =
            kernel::move_high(with_flags(&real_call, looks).answer()? as i32).map(OwnedFd::of)?;
        let stat = kernel::look_fd(fd.number())?;
        let path = kernel::path_of_fd(fd.number())?;
        if !self.copies.is_versioned(&path, &stat) {
            drop(fd);
            return self.fds.new_descriptor(&real_call);
        }
        let Some(id) = self.found_by_handle(&path, &stat)? else {
            return self.unsupported_errno(
                "opening by a file handle what has no name, or another one in the transaction,",
            );
        };
        if self.tree.nodes[id].names.is_empty() && stat.nlink < 2 {
            return Err(Errno::STALE);
        }
        self.open_node(id, flags & !(libc::O_CREAT | libc::O_EXCL))
    }

    /// The node of a stable object that a handle leads to: one that is known, or that its path leads to.
    fn found_by_handle(&mut self, path: &[u8], stat: &Stat) -> Sys<Option<Id>> {
        if let Some(&id) = self.tree.by_id.get(&(stat.id, stat.mnt)) {
            let node = &self.tree.nodes[id];
            let is_gone = node.names.is_empty() && stat.nlink > 1;
            // It has names that the transaction does not know, and lost those that it knows.
            return Ok(Some(id).filter(|_| !is_gone));
        }
        match self.walk(self.tree.top, path, false) {
            Ok(Place::At(Spot { node: Some(id), dir, name, .. })) => {
                let stable = self.tree.nodes[id].stable.as_ref();
                let is_it = stable.is_some_and(|s| s.stat.id == stat.id);
                if is_it {
                    self.tree.opened_as = Some((dir, name.into()));
                }
                Ok(Some(id).filter(|_| is_it))
            }
            Err(super::acquire::DOOMED) => Err(super::acquire::DOOMED),
            _ => Ok(None),
        }
    }
}

/// The call with other flags.
#[allow(unsafe_code)] // an argument is replaced
fn with_flags(call: &Call, flags: u64) -> Call {
    // SAFETY: it is no pointer.
    unsafe { call.with_word(2, flags) }
}

/// `name_to_handle_at(2)` of a path of ours.
#[allow(unsafe_code)] // arguments are replaced
fn named(call: &Call, dir: i32, path: &std::ffi::CStr, flags: i32) -> Sys<u64> {
    let call = call.with_descriptor(0, dir);
    // SAFETY: the path lives until the answer; the flags are no pointer.
    unsafe { call.with_word(1, path.as_ptr() as u64).with_word(4, flags as u64) }.answer()
}
