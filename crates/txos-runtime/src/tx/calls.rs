//! One system call: what each of them does in a transaction.
#![allow(unsafe_code)] // a message whose parts are replaced

use super::Tx;
use super::attrs::Object;
use super::kernel::{self, Sys};
use super::names::{Target, no_link_there};
use super::node::Id;
use super::sockets::Header;
use super::walk::{Place, Spot};
use crate::call::{self, Call};
use crate::table::{self, Class};
use crate::user::{UserPtr, UserSlice};

const CWD: i32 = libc::AT_FDCWD;
const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// A relative `timeval` pair of utimes(2) and futimesat(2).
fn from_micros(at: UserPtr<[libc::timeval; 2]>) -> Sys<Option<[libc::timespec; 2]>> {
    if at.is_null() {
        return Ok(None);
    }
    let times = at.read()?;
    if times.iter().any(|t| !(0..1_000_000).contains(&t.tv_usec)) {
        return Err(libc::EINVAL);
    }
    Ok(Some(times.map(|t| libc::timespec { tv_sec: t.tv_sec, tv_nsec: t.tv_usec * 1000 })))
}

fn from_nanos(at: UserPtr<[libc::timespec; 2]>) -> Sys<Option<[libc::timespec; 2]>> {
    if at.is_null() { Ok(None) } else { at.read().map(Some) }
}

/// A path argument, and the directory that it starts from.
type At = (i32, UserPtr<u8>);

impl Tx {
    /// Carries a system call out.
    #[expect(clippy::too_many_lines, reason = "it is one table")]
    pub fn carry_out(&mut self, call: Call) -> Sys<u64> {
        let (number, a) = (call.number(), *call.words());
        let int = |i: usize| call.int(i);
        self.calling = number;
        match number {
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2 => self.read(call),
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2 => self.write(call),
            libc::SYS_lseek => self.lseek(int(0), a[1] as i64, int(2)),

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
            libc::SYS_close => self.close_number(int(0)).map(|()| 0),
            libc::SYS_close_range => self.close_range(a[0] as u32, a[1] as u32, a[2] as u32),

            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat => self.fstatat(CWD, &call.path(0)?, 0, call.pointer(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lstat => self.fstatat(CWD, &call.path(0)?, NOFOLLOW, call.pointer(1)),
            libc::SYS_fstat => {
                let object = self.object_of(int(0))?;
                self.stat_object(object, 0, call.pointer(1))
            }
            libc::SYS_newfstatat => {
                let path = path_or_empty(call.pointer(1), int(3))?;
                self.fstatat(int(0), &path, int(3), call.pointer(2))
            }
            libc::SYS_statx => {
                let path = path_or_empty(call.pointer(1), int(2))?;
                self.statx(int(0), &path, int(2), a[3] as u32, call.pointer(4))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_access => {
                known_access(a[1], 0)?;
                self.access(CWD, &call.path(0)?, a[1] as u32, 0)
            }
            libc::SYS_faccessat => {
                known_access(a[2], 0)?;
                self.access(int(0), &call.path(1)?, a[2] as u32, 0)
            }
            libc::SYS_faccessat2 => {
                known_access(a[2], int(3))?;
                let path = path_or_empty(call.pointer(1), int(3))?;
                self.access(int(0), &path, a[2] as u32, int(3))
            }

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
                    _ => Err(libc::EINVAL),
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

            libc::SYS_truncate => {
                if (a[1] as i64) < 0 {
                    return Err(libc::EINVAL);
                }
                let path = call.path(0)?;
                match self.object(CWD, &path, 0)? {
                    Object::Node(id) => {
                        self.may_truncate(id)?;
                        self.truncate_by_path(id, a[1] as i64)
                    }
                    Object::Live(path) => self.live_truncate(&path, a[1]),
                    Object::Fd(_) => Err(libc::EINVAL),
                }
            }
            libc::SYS_ftruncate => {
                if (a[1] as i64) < 0 {
                    return Err(libc::EINVAL);
                }
                let file = self.file(int(0))?;
                match self.files.get(file).node.filter(|&id| self.has_content(id)) {
                    Some(_) if !self.files.get(file).writes() => {
                        let path_only = self.files.get(file).flags & libc::O_PATH != 0;
                        Err(if path_only { libc::EBADF } else { libc::EINVAL })
                    }
                    Some(id) => self.truncate(id, a[1] as i64),
                    None => self.on_descriptor(call),
                }
            }
            libc::SYS_fallocate => {
                let file = self.file(int(0))?;
                let open = self.files.get(file);
                let bad = (a[2] as i64) < 0 || (a[3] as i64) <= 0 || !open.writes();
                let dir = open.node.is_some_and(|id| self.nodes[id].is_dir());
                if bad || dir {
                    // It fails: how, the kernel says best.
                    return self.on_descriptor(call);
                }
                let real = self.native_content(int(0), true)?;
                let done = call.with_descriptor(0, real).answer()?;
                self.written_by(int(0));
                Ok(done)
            }
            libc::SYS_copy_file_range | libc::SYS_splice | libc::SYS_sendfile => self.between(call),
            libc::SYS_tee => {
                let (from, to) = (self.real(int(0))?, self.real(int(1))?);
                self.write_outside(int(1), to)?;
                call.with_descriptor(0, from).with_descriptor(1, to).answer()
            }
            libc::SYS_vmsplice => {
                let file = self.file(int(0))?;
                if self.files.get(file).writes() {
                    let real = self.real(int(0))?;
                    self.write_outside(int(0), real)?;
                }
                self.on_descriptor(call)
            }
            libc::SYS_mmap if a[3] & 0x20 == 0 => self.mmap(call),
            libc::SYS_readahead | libc::SYS_fadvise64 => {
                let file = self.file(int(0))?;
                if self.files.get(file).flags & libc::O_PATH != 0 {
                    return Err(libc::EBADF);
                }
                if number == libc::SYS_readahead && !self.files.get(file).reads() {
                    return Err(libc::EBADF);
                }
                self.on_descriptor(call)
            }
            libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs => {
                // The commit makes durable what is to be.
                let file = self.file(int(0))?;
                if self.files.get(file).flags & libc::O_PATH != 0 {
                    return Err(libc::EBADF);
                }
                match self.files.get(file).node.filter(|&id| self.has_content(id)) {
                    Some(_) => Ok(0),
                    None => self.on_descriptor(call),
                }
            }
            libc::SYS_sync_file_range => {
                let (offset, len) = (a[1] as i64, a[2] as i64);
                self.file(int(0))?;
                if offset < 0
                    || offset.checked_add(len).is_none_or(|e| e < offset)
                    || a[3] & !7 != 0
                {
                    return Err(libc::EINVAL);
                }
                self.on_descriptor_or(call)
            }
            libc::SYS_sync => Ok(0),

            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => {
                let object = self.object(CWD, &call.path(0)?, 0)?;
                self.chmod(object, a[1] as u32)
            }
            libc::SYS_fchmodat => {
                let object = self.object(int(0), &call.path(1)?, 0)?;
                self.chmod(object, a[2] as u32)
            }
            SYS_FCHMODAT2 => {
                if int(3) & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
                    return Err(libc::EINVAL);
                }
                let path = path_or_empty(call.pointer(1), int(3))?;
                let object = self.object(int(0), &path, int(3))?;
                self.chmod(object, a[2] as u32)
            }
            libc::SYS_fchmod => {
                let object = self.changeable(int(0))?;
                self.chmod(object, a[1] as u32)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown => {
                let object = self.object(CWD, &call.path(0)?, 0)?;
                self.chown(object, a[1] as u32, a[2] as u32)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown => {
                let object = self.object(CWD, &call.path(0)?, NOFOLLOW)?;
                self.chown(object, a[1] as u32, a[2] as u32)
            }
            libc::SYS_fchownat => {
                if int(4) & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
                    return Err(libc::EINVAL);
                }
                let path = path_or_empty(call.pointer(1), int(4))?;
                let object = self.object(int(0), &path, int(4))?;
                self.chown(object, a[2] as u32, a[3] as u32)
            }
            libc::SYS_fchown => {
                let object = self.changeable(int(0))?;
                self.chown(object, a[1] as u32, a[2] as u32)
            }
            libc::SYS_utimensat => {
                let times = from_nanos(call.pointer(2))?;
                if times.is_some_and(|t| t.iter().all(|t| t.tv_nsec == libc::UTIME_OMIT)) {
                    // Not even the path is looked at.
                    return Ok(0);
                }
                if int(3) & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
                    return Err(libc::EINVAL);
                }
                let object = if a[1] == 0 {
                    self.changeable(int(0))?
                } else {
                    self.object(int(0), &call.path(1)?, int(3))?
                };
                self.utimes(object, times)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes | libc::SYS_futimesat => {
                let first = usize::from(number == libc::SYS_futimesat);
                let dir = if first == 1 { int(0) } else { CWD };
                let times = from_micros(call.pointer(first + 1))?;
                let object = self.object(dir, &call.path(first)?, 0)?;
                self.utimes(object, times)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => {
                let at = call.pointer::<[i64; 2]>(1);
                let times = match at.is_null() {
                    true => None,
                    false => Some(at.read()?.map(|tv_sec| libc::timespec { tv_sec, tv_nsec: 0 })),
                };
                let object = self.object(CWD, &call.path(0)?, 0)?;
                self.utimes(object, times)
            }

            libc::SYS_setxattr | libc::SYS_lsetxattr | libc::SYS_fsetxattr => {
                // As in the kernel, name and value are looked at before the object.
                if int(4) & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
                    return Err(libc::EINVAL);
                }
                let name = xattr_name(call.pointer(1))?;
                if a[3] > 65_536 {
                    return Err(libc::E2BIG);
                }
                let value = call.buffer(2, a[3]).read()?;
                let object = self.xattr_object(call)?;
                self.set_xattr(object, &name, &value, int(4))
            }
            libc::SYS_getxattr | libc::SYS_lgetxattr | libc::SYS_fgetxattr => {
                let name = xattr_name(call.pointer(1))?;
                let object = self.xattr_object(call)?;
                self.get_xattr(object, &name, call.buffer(2, a[3]))
            }
            libc::SYS_listxattr | libc::SYS_llistxattr | libc::SYS_flistxattr => {
                let object = self.xattr_object(call)?;
                self.list_xattrs(object, call.buffer(1, a[2]))
            }
            libc::SYS_removexattr | libc::SYS_lremovexattr | libc::SYS_fremovexattr => {
                let name = xattr_name(call.pointer(1))?;
                let object = self.xattr_object(call)?;
                self.remove_xattr(object, &name)
            }

            libc::SYS_statfs => {
                let object = self.object(CWD, &call.path(0)?, 0)?;
                self.statfs(object, call.pointer(1))
            }
            libc::SYS_fstatfs => {
                let object = self.object_of(int(0))?;
                self.statfs(object, call.pointer(1))
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

            libc::SYS_dup => self.dup(int(0), 0, false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => match int(0) == int(1) {
                true => self.file(int(0)).map(|_| a[0] & 0xffff_ffff),
                false => self.dup_to(int(0), int(1), false),
            },
            libc::SYS_dup3 => {
                if int(2) & !libc::O_CLOEXEC != 0 || int(0) == int(1) {
                    return Err(libc::EINVAL);
                }
                self.dup_to(int(0), int(1), int(2) & libc::O_CLOEXEC != 0)
            }
            libc::SYS_fcntl => self.fcntl(call),
            libc::SYS_flock => self.flock(int(0), int(1)),
            libc::SYS_ioctl => self.ioctl(call),

            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => self.poll(call),
            libc::SYS_ppoll => self.poll(call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => self.select(call),
            libc::SYS_pselect6 => self.select(call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_signalfd if int(0) != -1 => self.on_descriptor(call).map(|_| a[0]),
            libc::SYS_signalfd4 if int(0) != -1 => self.on_descriptor(call).map(|_| a[0]),
            libc::SYS_waitid => {
                let real = self.real(int(1))?;
                call.with_descriptor(1, real).answer()
            }
            libc::SYS_kcmp => {
                const KCMP_FILE: i32 = 0;
                let own = std::process::id();
                if int(2) != KCMP_FILE || a[0] as u32 != own || a[1] as u32 != own {
                    return call.answer();
                }
                let (one, other) = (self.real(int(3))?, self.real(int(4))?);
                call.with_descriptor(3, one).with_descriptor(4, other).answer()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_pipe => self.new_pair(call, 0),
            libc::SYS_pipe2 => self.new_pair(call, 0),
            libc::SYS_socketpair => self.new_pair(call, 3),
            libc::SYS_socket => self.new_descriptor(call),
            libc::SYS_connect | libc::SYS_sendto => self.to_address(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_getsockname | libc::SYS_getpeername => self.socket_name(call),
            libc::SYS_inotify_add_watch => {
                let real = self.real(int(0))?;
                let link = a[2] as u32 & libc::IN_DONT_FOLLOW != 0;
                let flags = if link { NOFOLLOW } else { 0 };
                let object = self.object(CWD, &call.path(1)?, flags)?;
                let path = self.kernel_path(&object)?;
                kernel::watch(real, &path, a[2] as u32)
            }
            SYS_SETXATTRAT => {
                let object = self.xattrat_object(call)?;
                let name = xattr_name(call.pointer(3))?;
                let (value, packed) = xattr_args(call, 4, a[5])?;
                let (size, flags) = (packed & 0xffff_ffff, (packed >> 32) as i32);
                if size > 65_536 {
                    return Err(libc::E2BIG);
                }
                self.set_xattr(object, &name, &value.read()?, flags)
            }
            SYS_GETXATTRAT => {
                let object = self.xattrat_object(call)?;
                let name = xattr_name(call.pointer(3))?;
                let (value, packed) = xattr_args(call, 4, a[5])?;
                if packed >> 32 != 0 {
                    return Err(libc::EINVAL);
                }
                self.get_xattr(object, &name, value)
            }
            SYS_LISTXATTRAT => {
                let object = self.xattrat_object(call)?;
                self.list_xattrs(object, call.buffer(3, a[4]))
            }
            SYS_REMOVEXATTRAT => {
                let object = self.xattrat_object(call)?;
                self.remove_xattr(object, &xattr_name(call.pointer(3))?)
            }
            SYS_FILE_GETATTR => {
                if int(4) & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
                    return Err(libc::EINVAL);
                }
                let path = path_or_empty(call.pointer(1), int(4))?;
                let object = self.object(int(0), &path, int(4))?;
                // What was made in the transaction has none yet.
                let path = self.kernel_path(&object).map_err(|_| libc::EOPNOTSUPP)?;
                kernel::file_attributes_to(&path, call.buffer(2, a[3]))
            }
            libc::SYS_sendmsg => self.send_message(call),
            libc::SYS_sendmmsg => {
                // Each header is followed by the length of what was sent.
                let messages = call.pointer::<[u64; 8]>(1);
                for i in 0..a[2].min(1024) {
                    let Ok(header) = Header::read(messages.item(i).part(0)) else { continue };
                    if !header.control().is_empty() {
                        return self.unsupported_errno("handing descriptors over by many messages");
                    }
                    if self.is_elsewhere(&header) {
                        return self.unsupported_errno("many messages to sockets by path");
                    }
                }
                self.the_rest(call)
            }
            libc::SYS_seccomp if a[0] as u32 > libc::SECCOMP_SET_MODE_FILTER => call.answer(),
            libc::SYS_prctl => self.refuse(libc::EINVAL, "a sandbox of the program's own"),
            _ => self.the_rest(call),
        }
    }

    /// What is no file's business: as the table says.
    pub fn the_rest(&mut self, call: Call) -> Sys<u64> {
        let mut paths = Vec::new();
        let mut call = call;
        match table::class(call.number()) {
            Class::Descriptor => {}
            Class::Passed(_) if only_asks(call) => {}
            Class::Passed(what) => {
                call = self.stable_arguments(call, &mut paths)?;
                self.unsupported_call(what, b"")?;
            }
            Class::Refused(errno, what) => return self.refuse(errno, what),
            _ => return self.refuse(libc::ENOSYS, "a system call that is not known here"),
        }
        for &i in call::descriptors(call.number()) {
            // None, or the working directory; or the kernel says that it is none.
            if call.int(i) >= 0 {
                call = call.with_descriptor(i, self.real(call.int(i))?);
            }
        }
        if makes_one(call.number()) { self.new_descriptor(call) } else { call.answer() }
    }

    /// `sendmsg(2)`: the descriptors in it are numbers of the program's.
    fn send_message(&mut self, call: Call) -> Sys<u64> {
        /// `struct cmsghdr`, before its data; each begins at a multiple of a word.
        const HEAD: usize = 16;
        let Ok(mut header) = Header::read(call.pointer(1)) else {
            return self.the_rest(call);
        };
        let mut control = header.control().first(1 << 20).read()?;
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, i32::from_ne_bytes)
        };
        let mut at = 0;
        while at + HEAD <= control.len() {
            let len = word(&control, at) as usize;
            if len < HEAD || len > control.len() - at {
                break; // The kernel says that it is wrong.
            }
            let rights = word(&control, at + 8) == libc::SOL_SOCKET
                && word(&control, at + 12) == libc::SCM_RIGHTS;
            let mut place = at + HEAD;
            while rights && place + 4 <= at + len {
                let fd = word(&control, place);
                let file = self.file(fd)?;
                if self.files.get(file).node.is_some() {
                    // Who gets it would see what is not committed.
                    return self.unsupported_errno("handing a versioned file to others");
                }
                control[place..place + 4].copy_from_slice(&self.real(fd)?.to_ne_bytes());
                place += 4;
            }
            at += len.next_multiple_of(8);
        }
        // It is kept until the call is made.
        let _address = self.address_in_header(&mut header)?;
        header.set_control(&control);
        // SAFETY: the header, and the address and control data that it leads to, live until the answer.
        let call = unsafe { call.with_word(1, header.at()) };
        self.the_rest(call)
    }

    fn xattrat_object(&mut self, call: Call) -> Sys<Object> {
        let (dir, flags) = (call.int(0), call.int(2));
        if flags & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Err(libc::EINVAL);
        }
        let path = path_or_empty(call.pointer(1), flags)?;
        if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 && dir >= 0 {
            return self.changeable(dir);
        }
        self.object(dir, &path, flags)
    }

    fn openat2(&mut self, call: Call) -> Sys<u64> {
        let size = call.word(3);
        if size < 24 {
            return Err(libc::EINVAL);
        }
        let [flags, mode, resolve]: [u64; 3] = call.pointer(2).read()?;
        if size > 24 && !call.buffer(2, size).after(24).is_zero()? {
            return Err(libc::E2BIG);
        }
        let flags = i32::try_from(flags).map_err(|_| libc::EINVAL)?;
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
            return Err(libc::EINVAL);
        }
        if mode != 0 && !creates(flags) {
            return Err(libc::EINVAL);
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
            return Err(libc::EINVAL);
        }
        self.open(call.int(0), &call.path(1)?, flags, mode as u32, resolve)
    }

    fn linkat(&mut self, from: At, to: At, flags: i32) -> Sys<u64> {
        if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_FOLLOW) != 0 {
            return Err(libc::EINVAL);
        }
        let source = path_or_empty(from.1, flags)?;
        let mut look = flags & libc::AT_EMPTY_PATH;
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
            _ => match self.new_name(to.0, &path, false)? {
                Target::Here(_) => Err(libc::EXDEV),
                Target::Live(path) => Err(no_link_there(&path)),
            },
        }
    }

    fn readlink(&mut self, dirfd: i32, path: &[u8], out: UserSlice) -> Sys<u64> {
        if (out.len() as i32) <= 0 {
            return Err(libc::EINVAL);
        }
        let target = if path.is_empty() {
            if dirfd == CWD {
                return Err(libc::ENOENT);
            }
            let file = self.file(dirfd)?;
            match self.files.get(file).node {
                Some(id) if self.nodes[id].target.is_some() || is_link(self, id) => {
                    self.target(id)?
                }
                _ => return Err(libc::ENOENT),
            }
        } else if let Some(number) = self.descriptor_path(path) {
            self.descriptor_name(number)?
        } else {
            let base = self.base(dirfd, path)?;
            match self.walk(base, path, false)? {
                Place::At(Spot { node: Some(id), .. }) if is_link(self, id) => self.target(id)?,
                Place::At(Spot { node: Some(_), .. }) => return Err(libc::EINVAL),
                Place::At(_) => return Err(libc::ENOENT),
                Place::Live(path) => match super::open::descriptor_path(&path) {
                    Some(number) => self.descriptor_name(number)?,
                    None if path == b"/proc/self/cwd" => {
                        let cwd = self.cwd()?;
                        self.path_of(cwd)
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
        let file = self.file(number).map_err(|_| libc::ENOENT)?;
        match self.files.get(file).node.filter(|&id| !self.nodes[id].live) {
            Some(id) if self.nodes[id].names.is_empty() && id != self.top => {
                let known = self.nodes[id].last_name.clone();
                let mut path = known.or_else(|| self.real_path(id)).unwrap_or_default();
                path.extend_from_slice(b" (deleted)");
                Ok(path)
            }
            Some(id) => match self.files.get(file).name.clone() {
                None => self.name_from_before(number, file, id),
                Some((dir, name)) if self.nodes[id].names.contains(&(dir, name.clone())) => {
                    Ok(txos_engine::readset::join(&self.path_of(dir), &name))
                }
                _ => Ok(self.path_of(id)),
            },
            None => {
                let real = self.real(number)?;
                kernel::path_of_fd(real)
            }
        }
    }

    /// Of a descriptor from before: the name it was opened by, if that still leads to its object.
    fn name_from_before(&mut self, number: i32, file: super::files::File, id: Id) -> Sys<Vec<u8>> {
        let special = |node: &super::node::Node| {
            !node.is_dir() && node.stat.kind() != txos_engine::object::FileKind::File
        };
        let real = match self.files.get(file).before.first() {
            Some(&before) => before,
            // Of pipes and devices nothing is known but their descriptor.
            None if special(&self.nodes[id]) && self.nodes[id].stable.is_some() => {
                self.real(number)?
            }
            None => return Ok(self.path_of(id)),
        };
        if let Ok(path) = kernel::path_of_fd(real)
            && path.starts_with(b"/")
        {
            match self.walk(self.top, &path, false) {
                Ok(Place::At(spot)) if spot.node == Some(id) => return Ok(path),
                Err(super::touch::DOOMED) => return Err(super::touch::DOOMED),
                _ => {}
            }
        }
        Ok(self.path_of(id))
    }

    fn xattr_object(&mut self, call: Call) -> Sys<Object> {
        match call.number() {
            libc::SYS_fsetxattr
            | libc::SYS_fgetxattr
            | libc::SYS_flistxattr
            | libc::SYS_fremovexattr => self.changeable(call.int(0)),
            libc::SYS_lsetxattr
            | libc::SYS_lgetxattr
            | libc::SYS_llistxattr
            | libc::SYS_lremovexattr => self.object(CWD, &call.path(0)?, NOFOLLOW),
            _ => self.object(CWD, &call.path(0)?, 0),
        }
    }

    /// The object of a descriptor that is not only a path.
    fn changeable(&mut self, number: i32) -> Sys<Object> {
        let file = self.file(number)?;
        if self.files.get(file).flags & libc::O_PATH != 0 {
            return Err(libc::EBADF);
        }
        self.object_of(number)
    }

    fn may_truncate(&mut self, id: Id) -> Sys<()> {
        use txos_engine::object::FileKind;
        match self.nodes[id].kind() {
            FileKind::Dir => return Err(libc::EISDIR),
            FileKind::File => {}
            _ => return Err(libc::EINVAL),
        }
        self.may(id, super::perm::mask::W)?;
        let fixed = (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64;
        if self.nodes[id].stat.attributes & fixed != 0 { Err(libc::EPERM) } else { Ok(()) }
    }

    fn live_truncate(&mut self, path: &[u8], size: u64) -> Sys<u64> {
        self.unsupported_call("a change outside of the versioned trees", path)?;
        kernel::truncate(path, size)
    }

    fn on_descriptor_or(&mut self, call: Call) -> Sys<u64> {
        let file = self.file(call.int(0))?;
        if self.files.get(file).flags & libc::O_PATH != 0 {
            return Err(libc::EBADF);
        }
        match self.files.get(file).node.filter(|&id| self.has_content(id)) {
            Some(_) => Ok(0),
            None => self.on_descriptor(call),
        }
    }

    /// A descriptor's file was written to by the kernel.
    fn written_by(&mut self, number: i32) {
        if let Ok(file) = self.file(number)
            && let Some(id) = self.files.get(file).node
        {
            self.written(id);
        }
    }

    /// Calls that move bytes from one descriptor to another.
    fn between(&mut self, call: Call) -> Sys<u64> {
        let number = call.number();
        let (from_at, to_at) = match number {
            libc::SYS_sendfile => (1, 0),
            _ => (0, 2),
        };
        let (from, to) = (call.int(from_at), call.int(to_at));
        if number == libc::SYS_splice && call.word(4) == 0 {
            return Ok(0);
        }
        // Errors in the order of the kernel: both descriptors first.
        self.file(from)?;
        self.file(to)?;
        if number == libc::SYS_copy_file_range && call.uint(5) != 0 {
            return Err(libc::EINVAL);
        }
        let between = |from: i32, to: i32| {
            call.with_descriptor(from_at, from).with_descriptor(to_at, to).answer()
        };
        let same = call.word(from_at) == call.word(to_at);
        for fd in [from, to] {
            let file = self.file(fd)?;
            let open = self.files.get(file);
            let (placeholder, node) = (open.flags & libc::O_PATH != 0, open.node);
            // For a copy, what both are counts before how they are open.
            let strange = number == libc::SYS_copy_file_range && !self.is_regular(fd, node)?;
            if placeholder || strange || node.is_some_and(|id| self.nodes[id].is_dir()) {
                // It fails: how, the kernel says best.
                let real = self.real(from)?;
                let other = match self.native_content(to, true) {
                    Ok(other) => other,
                    Err(super::touch::DOOMED) => return Err(super::touch::DOOMED),
                    Err(_) => self.real(to)?,
                };
                return between(real, other);
            }
        }
        if number == libc::SYS_splice {
            self.can_splice(from, to)?;
        }
        let target = self.native_content(to, true)?;
        let source = match same {
            true => target,
            false => self.native_content(from, false)?,
        };
        let done = between(source, target)?;
        if done > 0 {
            self.written_by(to);
        }
        Ok(done)
    }
}

impl Tx {
    /// Whether a descriptor is of a regular file.
    fn is_regular(&mut self, number: i32, node: Option<Id>) -> Sys<bool> {
        let kind = match node {
            Some(id) => self.nodes[id].kind(),
            None => kernel::look_fd(self.real(number)?)?.kind(),
        };
        Ok(kind == txos_engine::object::FileKind::File)
    }

    /// `splice(2)` wants a pipe at one end, before it looks at what the other is.
    fn can_splice(&mut self, from: i32, to: i32) -> Sys<()> {
        let mut pipes = 0;
        for number in [from, to] {
            let real = self.real(number)?;
            pipes +=
                usize::from(kernel::look_fd(real)?.kind() == txos_engine::object::FileKind::Fifo);
        }
        if pipes == 0 { Err(libc::EINVAL) } else { Ok(()) }
    }
}

fn is_link(tx: &Tx, id: Id) -> bool {
    tx.nodes[id].kind() == txos_engine::object::FileKind::Symlink
}

/// Whether an open has a mode argument.
fn creates(flags: i32) -> bool {
    const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
    flags & (libc::O_CREAT | TMPFILE) != 0
}

/// Mode and flags of the access calls.
fn known_access(wanted: u64, flags: i32) -> Sys<()> {
    const KNOWN: i32 = libc::AT_EACCESS | NOFOLLOW | libc::AT_EMPTY_PATH;
    if wanted as u32 & !7 != 0 || flags & !KNOWN != 0 { Err(libc::EINVAL) } else { Ok(()) }
}

/// `fchmodat2(2)`, which the C library does not know yet.
const SYS_FCHMODAT2: i64 = 452;

fn xattr_name(at: UserPtr<u8>) -> Sys<Vec<u8>> {
    let name = at.text(256, libc::ERANGE)?;
    if name.is_empty() { Err(libc::ERANGE) } else { Ok(name) }
}

/// Value, and packed size and flags, of the extended attribute calls with a structure, which is the
/// argument `at`.
fn xattr_args(call: Call, at: usize, size: u64) -> Sys<(UserSlice, u64)> {
    match size {
        ..16 => return Err(libc::EINVAL),
        16 => {}
        4097.. => return Err(libc::E2BIG),
        _ if !call.buffer(at, size).after(16).is_zero()? => return Err(libc::E2BIG),
        _ => {}
    }
    call.pointer::<[u64; 2]>(at).buffer(|packed| packed & 0xffff_ffff)
}

/// A path argument. A null path is an empty one since Linux 6.11.
fn path_or_empty(at: UserPtr<u8>, flags: i32) -> Sys<Vec<u8>> {
    if at.is_null() && flags & libc::AT_EMPTY_PATH != 0 { Ok(Vec::new()) } else { at.path() }
}

/// Whether a call that is passed on changes nothing with these arguments.
fn only_asks(call: Call) -> bool {
    let no_modes = |at: usize| call.pointer::<u32>(at).read().is_ok_and(|modes| modes == 0);
    match call.number() {
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_rt_sigqueueinfo => call.int(1) == 0,
        libc::SYS_pidfd_send_signal => call.int(1) == 0,
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => call.int(2) == 0,
        libc::SYS_prlimit64 => call.word(2) == 0,
        libc::SYS_adjtimex => no_modes(0),
        libc::SYS_clock_adjtime => no_modes(1),
        // Opening, reading without clearing, sizes.
        libc::SYS_syslog => matches!(call.int(0), 0..=3 | 9 | 10),
        _ => false,
    }
}

// The C library's bindings do not name these yet.
const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_LISTXATTRAT: i64 = 465;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_GETATTR: i64 = 468;

/// Whether a call makes a descriptor that the transaction is to know (others are taken note of at their
/// first use).
fn makes_one(number: i64) -> bool {
    match number {
        libc::SYS_epoll_create1
        | libc::SYS_eventfd2
        | libc::SYS_timerfd_create
        | libc::SYS_signalfd4
        | libc::SYS_inotify_init1
        | libc::SYS_memfd_create
        | libc::SYS_memfd_secret
        | libc::SYS_pidfd_open
        | libc::SYS_userfaultfd
        | libc::SYS_mq_open
        | libc::SYS_fsopen
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_fspick
        | libc::SYS_perf_event_open => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_create
        | libc::SYS_eventfd
        | libc::SYS_signalfd
        | libc::SYS_inotify_init => true,
        _ => false,
    }
}
