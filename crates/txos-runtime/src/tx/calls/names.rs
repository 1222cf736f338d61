//! Calls that open, make, find, move and remove objects by their names, and those about the process's
//! directories.

use super::{At, CWD, NOFOLLOW, path_or_empty};
use crate::call::Call;
use crate::tx::Tx;
use crate::tx::attrs::Object;
use crate::tx::files::File;
use crate::tx::kernel::{self, Errno, Sys};
use crate::tx::names::Target;
use crate::tx::node::{Id, Node};
use crate::tx::walk::{Place, Spot};
use crate::tx::{acquire, open};
use crate::user::UserSlice;

impl Tx {
    /// Calls about names; others are handed on.
    #[inline]
    pub(super) fn name_call(&mut self, call: &Call) -> Sys<u64> {
        let a = *call.words();
        let int = |i: usize| call.int(i);
        match call.number() {
            libc::SYS_openat => {
                let mode = if creates(int(2)) { a[3] as u32 } else { 0 };
                self.open(int(0), &call.path(1)?, int(2), mode, 0)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => {
                let mode = if creates(int(1)) { a[2] as u32 } else { 0 };
                self.open(CWD, &call.path(0)?, int(1), mode, 0)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.open(CWD, &call.path(0)?, flags, a[1] as u32, 0)
            }
            libc::SYS_openat2 => self.openat2(call),

            #[cfg(target_arch = "x86_64")]
            libc::SYS_getdents => self.getdents(call, true),
            libc::SYS_getdents64 => self.getdents(call, false),

            #[cfg(target_arch = "x86_64")]
            libc::SYS_mkdir => self.mkdir(CWD, &call.path(0)?, a[1] as u32),
            libc::SYS_mkdirat => self.mkdir(int(0), &call.path(1)?, a[2] as u32),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mknod => self.mknod(CWD, call.path(0), a[1] as u32, a[2] & 0xffff_ffff),
            libc::SYS_mknodat => self.mknod(int(0), call.path(1), a[2] as u32, a[3] & 0xffff_ffff),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rmdir => self.rmdir(CWD, &call.path(0)?),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink => self.unlink(CWD, &call.path(0)?),
            libc::SYS_unlinkat => {
                let path = call.path(1)?;
                match int(2) {
                    0 => self.unlink(int(0), &path),
                    libc::AT_REMOVEDIR => self.rmdir(int(0), &path),
                    _ => Err(Errno::INVAL),
                }
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link => self.linkat((CWD, call.pointer(0)), (CWD, call.pointer(1)), 0),
            libc::SYS_linkat => {
                self.linkat((int(0), call.pointer(1)), (int(2), call.pointer(3)), int(4))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_symlink => self.symlink(&call.path(0)?, CWD, &call.path(1)?),
            libc::SYS_symlinkat => self.symlink(&call.path(0)?, int(1), &call.path(2)?),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_readlink => self.readlink(CWD, &call.path(0)?, call.buffer(1, a[2])),
            libc::SYS_readlinkat => self.readlink(int(0), &call.path(1)?, call.buffer(2, a[3])),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => self.rename((CWD, &call.path(0)?), (CWD, call.path(1)), 0),
            libc::SYS_renameat => self.rename((int(0), &call.path(1)?), (int(2), call.path(3)), 0),
            libc::SYS_renameat2 => {
                self.rename((int(0), &call.path(1)?), (int(2), call.path(3)), a[4] as u32)
            }

            libc::SYS_chdir => {
                let object = self.object(CWD, &call.path(0)?, 0)?;
                self.chdir(object)
            }
            libc::SYS_fchdir => {
                let object = self.object_of(int(0))?;
                self.chdir(object)
            }
            libc::SYS_getcwd => self.getcwd(call),
            libc::SYS_chroot => {
                let object = self.object(CWD, &call.path(0)?, 0)?;
                self.chroot(object)
            }
            libc::SYS_umask => Ok(self.set_umask(a[0] as u32)),
            libc::SYS_name_to_handle_at => {
                let path = path_or_empty(call.pointer(1), int(4))?;
                self.handle_of(call, &path)
            }
            libc::SYS_open_by_handle_at => self.open_by_handle(call),
            _ => self.attribute_call(call),
        }
    }

    fn openat2(&mut self, call: &Call) -> Sys<u64> {
        let size = call.word(3);
        if size < 24 {
            return Err(Errno::INVAL);
        }
        let [flags, mode, resolve]: [u64; 3] = call.pointer(2).read()?;
        if size > 24 && !call.buffer(2, size).after(24).is_zero()? {
            return Err(Errno::TOOBIG);
        }
        let flags = i32::try_from(flags).map_err(|_| Errno::INVAL)?;
        const KNOWN: i32 = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_NOCTTY
            | libc::O_TRUNC
            | libc::O_APPEND
            | libc::O_NONBLOCK
            | libc::O_SYNC
            | libc::O_ASYNC
            | libc::O_DIRECT
            | 0o100_000
            | libc::O_DIRECTORY
            | libc::O_NOFOLLOW
            | libc::O_NOATIME
            | libc::O_CLOEXEC
            | libc::O_PATH
            | libc::O_TMPFILE;
        if flags & !KNOWN != 0 || resolve & !0x3f != 0 || mode & !0o7777 != 0 {
            return Err(Errno::INVAL);
        }
        if mode != 0 && !creates(flags) {
            return Err(Errno::INVAL);
        }
        if flags & libc::O_PATH != 0
            && flags
                & !(libc::O_PATH
                    | libc::O_DIRECTORY
                    | libc::O_NOFOLLOW
                    | libc::O_CLOEXEC
                    | 0o100_000)
                != 0
        {
            return Err(Errno::INVAL);
        }
        self.open(call.int(0), &call.path(1)?, flags, mode as u32, resolve)
    }

    fn linkat(&mut self, from: At, to: At, flags: i32) -> Sys<u64> {
        if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_FOLLOW) != 0 {
            return Err(Errno::INVAL);
        }
        let source = path_or_empty(from.1, flags)?;
        let mut look = flags & libc::AT_EMPTY_PATH;
        // By a descriptor that was opened with other credentials nothing is linked without CAP_DAC_READ_SEARCH.
        if look != 0 && from.0 != CWD && !source.starts_with(b"/") && self.has_other_rights() {
            return Err(Errno::NOENT);
        }
        if flags & libc::AT_SYMLINK_FOLLOW == 0 {
            look |= NOFOLLOW;
        }
        let object = self.object(from.0, &source, look)?;
        if let Object::Live(path) = &object {
            kernel::look(path)?;
        }
        let path = to.1.path()?;
        match object {
            Object::Node(id) => self.link(id, to.0, &path),
            object => match (object, self.new_name(to.0, &path, false)?) {
                (Object::Live(from), Target::Live(to)) => {
                    self.live_link((CWD, &from), &to, flags & libc::AT_SYMLINK_FOLLOW)
                }
                (Object::Fd(real), Target::Live(to)) => {
                    self.live_link((real, b""), &to, libc::AT_EMPTY_PATH)
                }
                _ => Err(Errno::XDEV),
            },
        }
    }

    fn readlink(&mut self, dirfd: i32, path: &[u8], out: UserSlice) -> Sys<u64> {
        if (out.len() as i32) <= 0 {
            return Err(Errno::INVAL);
        }
        let target = if path.is_empty() {
            if dirfd == CWD {
                return Err(Errno::NOENT);
            }
            let file = self.file(dirfd)?;
            match self.fds.get(file).node {
                Some(id) if self.tree.nodes[id].target.is_some() || is_link(self, id) => {
                    self.target(id)?
                }
                _ => return Err(Errno::NOENT),
            }
        } else if let Some(number) = self.tree.descriptor_path(path) {
            self.descriptor_name(number)?
        } else {
            let base = self.base(dirfd, path)?;
            match self.walk(base, path, false)? {
                Place::At(Spot { node: Some(id), .. }) if is_link(self, id) => self.target(id)?,
                Place::At(Spot { node: Some(_), .. }) => return Err(Errno::INVAL),
                Place::At(_) => return Err(Errno::NOENT),
                Place::Live(path) => match open::descriptor_path(&path) {
                    Some(number) => self.descriptor_name(number)?,
                    None if path == b"/proc/self/cwd" => {
                        let cwd = self.cwd()?;
                        self.tree.path_of(cwd)
                    }
                    None => kernel::read_link(CWD, &path)?,
                },
            }
        };
        let n = target.len().min(out.len() as usize);
        out.write(&target[..n])?;
        Ok(n as u64)
    }

    /// What /proc/self/fd says of a descriptor.
    fn descriptor_name(&mut self, number: i32) -> Sys<Vec<u8>> {
        let file = self.file(number).map_err(|_| Errno::NOENT)?;
        match self.fds.get(file).node.filter(|&id| !self.tree.nodes[id].live) {
            Some(id) if self.tree.nodes[id].names.is_empty() && id != self.tree.top => {
                let known = self.tree.nodes[id].last_name.clone();
                let mut path = known.or_else(|| self.tree.real_path(id)).unwrap_or_default();
                path.extend_from_slice(b" (deleted)");
                Ok(path)
            }
            Some(id) => match self.fds.get(file).name.clone() {
                None => self.name_from_before(number, file, id),
                Some((dir, name))
                    if id != self.tree.top
                        && self.tree.nodes[id].names.contains(&(dir, name.clone())) =>
                {
                    Ok(txos_engine::readset::join(&self.tree.path_of(dir), &name))
                }
                _ => Ok(self.tree.path_of(id)),
            },
            None => {
                let real = self.real(number)?;
                kernel::path_of_fd(real)
            }
        }
    }

    /// Of a descriptor from before: the name it was opened by, if that still leads to its object.
    fn name_from_before(&mut self, number: i32, file: File, id: Id) -> Sys<Vec<u8>> {
        let special =
            |node: &Node| !node.is_dir() && node.stat.kind() != txos_engine::object::FileKind::File;
        let real = match self.fds.get(file).before.first() {
            Some(&before) => before,
            // Of pipes and devices nothing is known but their descriptor.
            None if special(&self.tree.nodes[id]) && self.tree.nodes[id].stable.is_some() => {
                self.real(number)?
            }
            None => return Ok(self.tree.path_of(id)),
        };
        if let Ok(path) = kernel::path_of_fd(real)
            && path.starts_with(b"/")
        {
            match self.walk(self.tree.top, &path, false) {
                Ok(Place::At(spot)) if spot.node == Some(id) => return Ok(path),
                Err(acquire::DOOMED) => return Err(acquire::DOOMED),
                _ => {}
            }
        }
        Ok(self.tree.path_of(id))
    }
}

fn is_link(tx: &Tx, id: Id) -> bool {
    tx.tree.nodes[id].kind() == txos_engine::object::FileKind::Symlink
}

/// Whether an open has a mode argument.
fn creates(flags: i32) -> bool {
    const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
    flags & (libc::O_CREAT | TMPFILE) != 0
}
