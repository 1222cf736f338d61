//! Directories and names.
//!
//! What is named `staged` here is done to private copies, and is a step at which tests put faults; what is
//! done at once to what is not versioned is none.

use super::{CPath, CWD, Sys, magic_path, seek, step, sys, with_paths};

/// `mkdirat(2)` by a path from the working directory.
///
/// # Errors
/// As the system call.
pub fn mkdir_live(path: &[u8], mode: u32) -> Sys<u64> {
    mkdir_at((CWD, path), mode)
}

/// `mkdirat(2)` in a directory.
///
/// # Errors
/// As the system call.
pub fn mkdir_at(at: (i32, &[u8]), mode: u32) -> Sys<u64> {
    // SAFETY: the path ends with its zero.
    CPath::with(at.1, |p| unsafe { sys!(SYS_mkdirat, at.0, p.at(), mode) })
}

/// `mkdirat(2)`.
///
/// # Errors
/// As the system call.
pub fn mkdir(path: &[u8], mode: u32) -> Sys<()> {
    step("staged mkdir", || mkdir_live(path, mode)).map(drop)
}

/// `renameat2(2)`.
///
/// # Errors
/// As the system call.
pub fn rename_at(from: (i32, &[u8]), to: (i32, &[u8]), flags: u32) -> Sys<u64> {
    // SAFETY: both paths end with their zeroes.
    with_paths(from.1, to.1, |f, t| unsafe {
        sys!(SYS_renameat2, from.0, f.at(), to.0, t.at(), flags)
    })
}

/// `renameat2(2)` by paths from the working directory.
///
/// # Errors
/// As the system call.
pub fn rename_live(from: &[u8], to: &[u8], flags: u32) -> Sys<u64> {
    rename_at((CWD, from), (CWD, to), flags)
}

/// `renameat2(2)` onto nothing.
///
/// # Errors
/// As the system call.
pub fn rename(from: &[u8], to: &[u8]) -> Sys<()> {
    step("staged rename", || rename_live(from, to, libc::RENAME_NOREPLACE)).map(drop)
}

/// `linkat(2)` of a path, or with `AT_EMPTY_PATH` of a descriptor.
///
/// # Errors
/// As the system call.
pub fn link_live(from: (i32, &[u8]), to: &[u8], flags: i32) -> Sys<u64> {
    link_at(from, (CWD, to), flags)
}

/// `linkat(2)` into a directory.
///
/// # Errors
/// As the system call.
pub fn link_at(from: (i32, &[u8]), to: (i32, &[u8]), flags: i32) -> Sys<u64> {
    // SAFETY: both paths end with their zeroes.
    with_paths(from.1, to.1, |f, t| unsafe {
        sys!(SYS_linkat, from.0, f.at(), to.0, t.at(), flags)
    })
}

fn linkat(from: &[u8], to: &[u8], flags: i32) -> Sys<()> {
    step("staged link", || link_live((CWD, from), to, flags)).map(drop)
}

/// `linkat(2)`.
///
/// # Errors
/// As the system call.
pub fn link(from: &[u8], to: &[u8]) -> Sys<()> {
    linkat(from, to, 0)
}

/// Gives an unnamed file a name.
///
/// # Errors
/// As `linkat(2)`.
pub fn link_fd(fd: i32, to: &[u8]) -> Sys<()> {
    linkat(&magic_path(fd), to, libc::AT_SYMLINK_FOLLOW)
}

/// `symlinkat(2)`.
///
/// # Errors
/// As the system call.
pub fn symlink(target: &[u8], path: &[u8]) -> Sys<()> {
    step("staged symlink", || symlink_at(target, (CWD, path))).map(drop)
}

/// `symlinkat(2)` in a directory.
///
/// # Errors
/// As the system call.
pub fn symlink_at(target: &[u8], at: (i32, &[u8])) -> Sys<u64> {
    // SAFETY: both paths end with their zeroes.
    with_paths(target, at.1, |t, p| unsafe { sys!(SYS_symlinkat, t.at(), at.0, p.at()) })
}

/// `mknodat(2)` by a path from the working directory; `dev` is the kernel's packing of a device number.
///
/// # Errors
/// As the system call.
pub fn mknod_live(path: &[u8], mode: u32, dev: u64) -> Sys<u64> {
    // SAFETY: the path ends with its zero.
    CPath::with(path, |p| unsafe { sys!(SYS_mknodat, CWD, p.at(), mode, dev) })
}

/// `mknodat(2)`.
///
/// # Errors
/// As the system call.
pub fn mknod(path: &[u8], mode: u32, rdev: u64) -> Sys<()> {
    let (major, minor) = (u64::from(libc::major(rdev)), u64::from(libc::minor(rdev)));
    let packed = (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12;
    step("staged mknod", || mknod_live(path, mode, packed)).map(drop)
}

/// `unlinkat(2)` by a path from the working directory.
///
/// # Errors
/// As the system call.
pub fn unlink_live(path: &[u8], flags: i32) -> Sys<u64> {
    unlink_at((CWD, path), flags)
}

/// `unlinkat(2)` in a directory.
///
/// # Errors
/// As the system call.
pub fn unlink_at(at: (i32, &[u8]), flags: i32) -> Sys<u64> {
    // SAFETY: the path ends with its zero.
    CPath::with(at.1, |p| unsafe { sys!(SYS_unlinkat, at.0, p.at(), flags) })
}

/// `unlinkat(2)`.
///
/// # Errors
/// As the system call.
pub fn unlink(path: &[u8]) -> Sys<()> {
    step("staged unlink", || unlink_live(path, 0)).map(drop)
}

/// `readlinkat(2)`, whole.
///
/// # Errors
/// As the system call.
pub fn read_link(dir: i32, path: &[u8]) -> Sys<Vec<u8>> {
    CPath::with(path, |p| {
        let mut out = vec![0u8; 4096];
        // SAFETY: the path ends with its zero, and the kernel writes no more than there is room for.
        let n = unsafe { sys!(SYS_readlinkat, dir, p.at(), out.as_mut_ptr(), out.len()) }?;
        out.truncate(n as usize);
        Ok(out)
    })
}

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// `DT_*`.
    pub kind: u8,
}

/// The entries of an open directory from its beginning, without `.` and `..`.
///
/// # Errors
/// As `getdents64(2)`.
pub fn list(fd: i32) -> Sys<Vec<Listed>> {
    seek(fd, 0, libc::SEEK_SET)?;
    let mut out = Vec::new();
    let mut buffer = vec![0u8; 32 << 10];
    loop {
        // SAFETY: the kernel writes no more than the buffer has room for.
        let n = unsafe { sys!(SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()) }? as usize;
        if n == 0 {
            return Ok(out);
        }
        let mut rest = buffer.get(..n).unwrap_or_default();
        while let Some(head) = rest.get(..19) {
            let word = |at: usize| {
                head.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
            };
            let len = usize::from(u16::from_le_bytes([head[16], head[17]]));
            let body = rest.get(19..len).unwrap_or_default();
            let name = body.split(|&b| b == 0).next().unwrap_or_default();
            if name != b"." && name != b".." {
                out.push(Listed { name: name.to_vec(), ino: word(0), kind: head[18] });
            }
            rest = rest.get(len.max(19)..).unwrap_or_default();
        }
    }
}
