//! Calls about extended attributes.

use super::{CWD, NOFOLLOW, path_or_empty};
use crate::call::Call;
use crate::tx::Tx;
use crate::tx::attrs::Object;
use crate::tx::kernel::{Errno, Sys};
use crate::user::{UserPtr, UserSlice};

// The C library's bindings do not name these yet.
const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_LISTXATTRAT: i64 = 465;
const SYS_REMOVEXATTRAT: i64 = 466;

impl Tx {
    /// Calls about extended attributes; others are handed on.
    #[inline]
    pub(super) fn xattr_call(&mut self, call: &Call) -> Sys<u64> {
        let a = *call.words();
        let int = |i: usize| call.int(i);
        match call.number() {
            libc::SYS_setxattr | libc::SYS_lsetxattr | libc::SYS_fsetxattr => {
                // As in the kernel, name and value are looked at before the object.
                if int(4) & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
                    return Err(Errno::INVAL);
                }
                let name = xattr_name(call.pointer(1))?;
                if a[3] > 65_536 {
                    return Err(Errno::TOOBIG);
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

            SYS_SETXATTRAT => {
                let object = self.xattrat_object(call)?;
                let name = xattr_name(call.pointer(3))?;
                let (value, packed) = xattr_args(call, 4, a[5])?;
                let (size, flags) = (packed & 0xffff_ffff, (packed >> 32) as i32);
                if size > 65_536 {
                    return Err(Errno::TOOBIG);
                }
                self.set_xattr(object, &name, &value.read()?, flags)
            }
            SYS_GETXATTRAT => {
                let object = self.xattrat_object(call)?;
                let name = xattr_name(call.pointer(3))?;
                let (value, packed) = xattr_args(call, 4, a[5])?;
                if packed >> 32 != 0 {
                    return Err(Errno::INVAL);
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
            _ => self.descriptor_call(call),
        }
    }

    fn xattr_object(&mut self, call: &Call) -> Sys<Object> {
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

    fn xattrat_object(&mut self, call: &Call) -> Sys<Object> {
        let (dir, flags) = (call.int(0), call.int(2));
        if flags & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Err(Errno::INVAL);
        }
        let path = path_or_empty(call.pointer(1), flags)?;
        if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 && dir >= 0 {
            return self.changeable(dir);
        }
        self.object(dir, &path, flags)
    }
}

fn xattr_name(at: UserPtr<u8>) -> Sys<Vec<u8>> {
    let name = at.text(256, Errno::RANGE)?;
    if name.is_empty() { Err(Errno::RANGE) } else { Ok(name) }
}

/// Value, and packed size and flags, of the extended attribute calls with a structure, which is the
/// argument `at`.
fn xattr_args(call: &Call, at: usize, size: u64) -> Sys<(UserSlice, u64)> {
    match size {
        ..16 => return Err(Errno::INVAL),
        16 => {}
        4097.. => return Err(Errno::TOOBIG),
        _ if !call.buffer(at, size).after(16).is_zero()? => return Err(Errno::TOOBIG),
        _ => {}
    }
    call.pointer::<[u64; 2]>(at).buffer(|packed| packed & 0xffff_ffff)
}
