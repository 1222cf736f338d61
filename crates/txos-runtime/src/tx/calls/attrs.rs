//! Calls about attributes: stat, access, modes, owners, times, file systems.

use super::{CWD, NOFOLLOW, path_or_empty};
use crate::call::Call;
use crate::tx::Tx;
use crate::tx::kernel::{self, Errno, Sys};
use crate::user::UserPtr;

// The C library's bindings do not name these yet.
const SYS_FCHMODAT2: i64 = 452;
const SYS_FILE_GETATTR: i64 = 468;

impl Tx {
    /// Calls that look at attributes, and change modes and owners; others are handed on.
    #[inline]
    pub(super) fn attribute_call(&mut self, call: &Call) -> Sys<u64> {
        let a = *call.words();
        let int = |i: usize| call.int(i);
        match call.number() {
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
                    return Err(Errno::INVAL);
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
                    return Err(Errno::INVAL);
                }
                let path = path_or_empty(call.pointer(1), int(4))?;
                let object = self.object(int(0), &path, int(4))?;
                self.chown(object, a[2] as u32, a[3] as u32)
            }
            libc::SYS_fchown => {
                let object = self.changeable(int(0))?;
                self.chown(object, a[1] as u32, a[2] as u32)
            }

            libc::SYS_statfs => {
                let object = self.object(CWD, &call.path(0)?, 0)?;
                self.tree.statfs(object, call.pointer(1))
            }
            libc::SYS_fstatfs => {
                let object = self.object_of(int(0))?;
                self.tree.statfs(object, call.pointer(1))
            }

            SYS_FILE_GETATTR => {
                if int(4) & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
                    return Err(Errno::INVAL);
                }
                let path = path_or_empty(call.pointer(1), int(4))?;
                let object = self.object(int(0), &path, int(4))?;
                // What was made in the transaction has none yet.
                let path = self.tree.kernel_path(&object).map_err(|_| Errno::OPNOTSUPP)?;
                kernel::file_attributes_to(&path, call.buffer(2, a[3]))
            }
            _ => self.time_call(call),
        }
    }

    /// Calls that set times; others are handed on.
    #[inline]
    pub(super) fn time_call(&mut self, call: &Call) -> Sys<u64> {
        let a = *call.words();
        let int = |i: usize| call.int(i);
        match call.number() {
            libc::SYS_utimensat => {
                let times = from_nanos(call.pointer(2))?;
                if times.is_some_and(|t| t.iter().all(|t| t.tv_nsec == libc::UTIME_OMIT)) {
                    // Not even the path is looked at.
                    return Ok(0);
                }
                if int(3) & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
                    return Err(Errno::INVAL);
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
                let first = usize::from(call.number() == libc::SYS_futimesat);
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
            _ => self.xattr_call(call),
        }
    }
}

/// A relative `timeval` pair of utimes(2) and futimesat(2).
fn from_micros(at: UserPtr<[libc::timeval; 2]>) -> Sys<Option<[libc::timespec; 2]>> {
    if at.is_null() {
        return Ok(None);
    }
    let times = at.read()?;
    if times.iter().any(|t| !(0..1_000_000).contains(&t.tv_usec)) {
        return Err(Errno::INVAL);
    }
    Ok(Some(times.map(|t| libc::timespec { tv_sec: t.tv_sec, tv_nsec: t.tv_usec * 1000 })))
}

fn from_nanos(at: UserPtr<[libc::timespec; 2]>) -> Sys<Option<[libc::timespec; 2]>> {
    if at.is_null() { Ok(None) } else { at.read().map(Some) }
}

/// Mode and flags of the access calls.
fn known_access(wanted: u64, flags: i32) -> Sys<()> {
    const KNOWN: i32 = libc::AT_EACCESS | NOFOLLOW | libc::AT_EMPTY_PATH;
    if wanted as u32 & !7 != 0 || flags & !KNOWN != 0 { Err(Errno::INVAL) } else { Ok(()) }
}
