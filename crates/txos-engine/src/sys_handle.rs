//! File handles: recognising which stable inode an overlayfs copy came from.
//!
//! # Safety
//!
//! The one unsafe block calls `name_to_handle_at(2)` with a buffer laid out as the man page says.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Length of the header of overlayfs's stored handle (`struct ovl_fb`): version, magic, length,
/// flags, type, uuid.
const OVL_HEADER_LEN: usize = 5 + 16;
/// `OVL_FH_MAGIC`.
const OVL_MAGIC: u8 = 0xfb;
/// `MAX_HANDLE_SZ`.
const HANDLE_MAX: usize = 128;

/// `struct file_handle` with room for the longest handle.
#[repr(C)]
struct RawHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    data: [u8; HANDLE_MAX],
}

const _: () = assert!(std::mem::size_of::<RawHandle>() == 8 + HANDLE_MAX);

/// The file handle of an object: who it is for as long as it exists, on its file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    kind: libc::c_int,
    bytes: Vec<u8>,
}

impl Handle {
    /// That of the object `name` in `dir`; `None` if there is none, or the file system has no handles.
    pub fn of(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Handle> {
        let name = CString::new(name).ok()?;
        let mut handle =
            RawHandle { bytes: HANDLE_MAX as libc::c_uint, kind: 0, data: [0; HANDLE_MAX] };
        let mut mount_id: libc::c_int = 0;
        // SAFETY: `handle` is a file_handle with HANDLE_MAX bytes of room behind its two words, as its
        // `bytes` field says; `name` is NUL-terminated; both outlive the call.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                dir.as_raw_fd(),
                name.as_ptr(),
                &raw mut handle,
                &raw mut mount_id,
                0,
            )
        };
        let bytes = handle.data.get(..handle.bytes as usize)?;
        (failed == 0).then(|| Handle { kind: handle.kind, bytes: bytes.to_vec() })
    }

    /// That which overlayfs stored: in an `origin` attribute, or as a name in its index. What can't be
    /// read is none.
    pub fn stored(origin: &[u8]) -> Option<Handle> {
        if origin.get(1) != Some(&OVL_MAGIC) {
            return None;
        }
        let (kind, bytes) = (*origin.get(4)?, origin.get(OVL_HEADER_LEN..)?);
        Some(Handle { kind: libc::c_int::from(kind), bytes: bytes.to_vec() })
    }
}
