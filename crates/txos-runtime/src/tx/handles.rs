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

use txos_engine::object::FileKind;

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
        const WITH_DIRECTORY: i32 = CONNECTABLE | libc::AT_EMPTY_PATH;
        if flags & !KNOWN != 0 || flags & WITH_DIRECTORY == WITH_DIRECTORY {
            return Err(Errno::INVAL);
        }
        let follows = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let look =
            flags & libc::AT_EMPTY_PATH | if follows { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        let opened = match self.object(dir, path, look)? {
            Object::Fd(real) => return named_open(call, real, flags),
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
        named_open(call, real, flags)
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
        let mut flags = call.int(2);
        let moved = self.process.moved.0 || self.process.space.is_some();
        let own;
        let mount = match call.int(0) {
            libc::AT_FDCWD if moved => {
                own = self.anchor()?;
                own.number()
            }
            libc::AT_FDCWD => libc::AT_FDCWD,
            // The roots of what has no mounts.
            ..0 => return self.new_descriptor(call),
            number => self.real_without_offset(number)?,
        };
        // The program may change it meanwhile.
        let handle = Handle::copy(call)?;
        let real_call = handle.in_call(&call.with_descriptor(0, mount));
        if mount >= 0 && !self.copies.is_versioned_open(mount, &kernel::look_fd(mount)?) {
            return self.open_live_handle(&real_call);
        }
        // What it is. The kernel says whether the caller may open by handle at all.
        let looks = libc::O_PATH | libc::O_CLOEXEC | flags & libc::O_DIRECTORY;
        let fd = with_flags(&real_call, looks as u64).answer()? as i32;
        let fd = OwnedFd::of(fd).raised()?;
        let stat = kernel::look_fd(fd.number())?;
        let path = kernel::path_of_fd(fd.number())?;
        if !self.copies.is_versioned_open(fd.number(), &stat) {
            drop(fd);
            return self.open_live_handle(&real_call);
        }
        let Some(id) = self.found_by_handle(&path, &stat)? else {
            return self.unsupported_errno(
                "opening by a file handle what has no name, or another one in the transaction,",
            );
        };
        // It has names outside, and the transaction has removed them all.
        if self.tree.nodes[id].names.is_empty() && stat.nlink > 0 {
            return Err(Errno::STALE);
        }
        const NEW: i32 = libc::O_CREAT | libc::O_EXCL;
        if flags & NEW == NEW {
            return Err(Errno::EXIST);
        }
        // The handle is of the link: that is not followed.
        if flags & libc::O_PATH != 0 && stat.kind() == FileKind::Symlink {
            flags |= libc::O_NOFOLLOW;
        }
        self.open_node(id, flags & !NEW)
    }

    /// The kernel opens what is not versioned.
    fn open_live_handle(&mut self, call: &Call) -> Sys<u64> {
        let number = self.new_descriptor(call)?;
        let real = self.real_without_offset(number as i32)?;
        if kernel::look_fd(real)?.kind() == FileKind::Dir {
            // Paths begin there.
            let node = self.tree.live_dir(&kernel::magic_path(real))?;
            let file = self.file(number as i32)?;
            self.fds.get_mut(file).node = Some(node);
        }
        Ok(number)
    }

    /// A descriptor on the mount of the working directory, which the kernel may not know.
    fn anchor(&mut self) -> Sys<OwnedFd> {
        let mut id = self.cwd()?;
        while self.tree.nodes[id].stable.is_none() && id != self.tree.root {
            id = self.tree.parent(id);
        }
        OwnedFd::of(self.placeholder(id, libc::O_DIRECTORY | libc::O_CLOEXEC)?).raised()
    }

    /// The node of a stable object that a handle leads to: one that is known, or that its path leads to.
    fn found_by_handle(&mut self, path: &[u8], stat: &Stat) -> Sys<Option<Id>> {
        if let Some(&id) = self.tree.by_id.get(&(stat.id, stat.mnt)) {
            let node = &self.tree.nodes[id];
            // It has names that the transaction does not know, and lost those that it knows.
            let has_others = node.names.is_empty() && node.stat.nlink > 0;
            return Ok(Some(id).filter(|_| !has_others));
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

/// A copy of a handle: `struct file_handle`, and what it has.
struct Handle([u8; Handle::HEAD + Handle::MOST], bool);

impl Handle {
    const HEAD: usize = 8;
    /// `MAX_HANDLE_SZ`.
    const MOST: usize = 128;

    /// That of a call, as far as the kernel looks at it.
    fn copy(call: &Call) -> Sys<Handle> {
        let mut copy = [0; Handle::HEAD + Handle::MOST];
        let Ok(head) = call.pointer::<[u8; Handle::HEAD]>(1).read() else {
            return Ok(Handle(copy, false));
        };
        copy[..Handle::HEAD].copy_from_slice(&head);
        let len = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        // Others are refused by their lengths.
        if (1..=Handle::MOST).contains(&len) {
            let end = Handle::HEAD + len;
            let all = call.buffer(1, end as u64).after(Handle::HEAD as u64).read()?;
            copy[Handle::HEAD..end].copy_from_slice(&all);
        }
        Ok(Handle(copy, true))
    }

    /// A call of it. It is made as long as this is there. Without one the kernel says what is wrong first.
    #[allow(unsafe_code)] // an argument is replaced
    fn in_call(&self, call: &Call) -> Call {
        let at = if self.1 { self.0.as_ptr() as u64 } else { 0 };
        // SAFETY: the copy lives until the answer, as is said above, and is as long as its head says.
        unsafe { call.with_word(1, at) }
    }
}

/// The call with other flags.
#[allow(unsafe_code)] // an argument is replaced
fn with_flags(call: &Call, flags: u64) -> Call {
    // SAFETY: it is no pointer.
    unsafe { call.with_word(2, flags) }
}

/// `name_to_handle_at(2)` of what is open.
fn named_open(call: &Call, real: i32, flags: i32) -> Sys<u64> {
    if flags & CONNECTABLE == 0 {
        return named(call, real, c"", flags & !libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH);
    }
    // The kernel wants a path then.
    let path = std::ffi::CString::new(kernel::magic_path(real)).map_err(|_| Errno::NOENT)?;
    named(call, libc::AT_FDCWD, &path, flags | libc::AT_SYMLINK_FOLLOW)
}

/// `name_to_handle_at(2)` of a path of ours.
#[allow(unsafe_code)] // arguments are replaced
fn named(call: &Call, dir: i32, path: &std::ffi::CStr, flags: i32) -> Sys<u64> {
    let call = call.with_descriptor(0, dir);
    // SAFETY: the path lives until the answer; the flags are no pointer.
    unsafe { call.with_word(1, path.as_ptr() as u64).with_word(4, flags as u64) }.answer()
}
