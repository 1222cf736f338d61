//! The stable side: what the kernel answers about real objects.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use txos_engine::object::{FileId, FileKind};
use txos_engine::version::{Stamp, Version};

/// An errno, positive.
pub type Errno = i32;
/// What a system call gives.
pub type Sys<T> = Result<T, Errno>;

/// Turns the kernel's answer around.
#[inline]
pub fn check(answer: i64) -> Sys<u64> {
    match answer {
        -4095..=-1 => Err(i32::try_from(-answer).unwrap_or(libc::EIO)),
        _ => Ok(answer as u64),
    }
}

/// Makes a system call whose arguments are numbers and pointers that the caller answers for.
macro_rules! sys {
    ($number:ident $(, $arg:expr)* $(,)?) => {{
        #[allow(unused_mut)]
        let mut a = [0u64; 6];
        let mut _n = 0;
        $( #[allow(clippy::cast_sign_loss)] { a[_n] = $arg as u64; } _n += 1; )*
        // SAFETY: pointers among the arguments are to live memory of the size the call wants: ours,
        // or the program's own arguments of this very call.
        #[allow(unsafe_code)]
        unsafe { $crate::raw::syscall(libc::$number, a) }
    }};
}
pub(crate) use sys;

/// One step of staging, or a publish of one call: a call that changes something. Tests put faults here.
pub fn step<T>(what: &str, f: impl FnOnce() -> Sys<T>) -> Sys<T> {
    let io = std::io::Error::from_raw_os_error;
    let done = txos_engine::sys::step(what, || f().map_err(io));
    done.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
}

/// A path as the kernel wants it, on the stack.
pub struct CPath {
    bytes: MaybeUninit<[u8; 4100]>,
}

impl CPath {
    /// Copies a path and ends it.
    ///
    /// # Errors
    /// ENAMETOOLONG over 4,095 bytes, ENOENT with a zero byte inside.
    #[inline]
    pub fn with<T>(path: &[u8], f: impl FnOnce(*const u8) -> Sys<T>) -> Sys<T> {
        if path.len() > 4095 {
            return Err(libc::ENAMETOOLONG);
        }
        let mut here = CPath { bytes: MaybeUninit::uninit() };
        let to = here.bytes.as_mut_ptr().cast::<u8>();
        // SAFETY: there is room for 4,095 bytes and the final zero.
        unsafe {
            std::ptr::copy_nonoverlapping(path.as_ptr(), to, path.len());
            to.add(path.len()).write(0);
        }
        f(to)
    }
}

/// Everything `stat` shows.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Identity.
    pub id: FileId,
    /// Type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks.
    pub blocks: u64,
    /// Preferred size of I/O.
    pub blksize: u32,
    /// Number of a device node.
    pub rdev: u64,
    /// Last read.
    pub atime: Stamp,
    /// Last change of data.
    pub mtime: Stamp,
    /// Last change of anything.
    pub ctime: Stamp,
    /// Creation, where the file system knows.
    pub btime: Option<Stamp>,
    /// The mount it was found on.
    pub mnt: u64,
    /// `STATX_ATTR_*`.
    pub attributes: u64,
    /// Which of those the file system knows.
    pub attributes_mask: u64,
}

impl Stat {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode)
    }

    /// As the engine compares it.
    #[must_use]
    pub fn version(&self) -> Version {
        Version {
            id: self.id,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size,
            mtime: self.mtime,
            ctime: self.ctime,
            rdev: self.rdev,
        }
    }
}

const MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID;

/// `statx(2)`.
///
/// # Errors
/// As the system call.
pub fn statx(dir: i32, path: &[u8], flags: i32) -> Sys<Stat> {
    CPath::with(path, |p| {
        let mut out = MaybeUninit::<libc::statx>::zeroed();
        check(sys!(SYS_statx, dir, p, flags, MASK, out.as_mut_ptr()))?;
        // SAFETY: zeroed, and filled in by the kernel.
        let s = unsafe { out.assume_init() };
        let stamp = |t: libc::statx_timestamp| Stamp { sec: t.tv_sec, nsec: t.tv_nsec };
        Ok(Stat {
            id: FileId { dev: libc::makedev(s.stx_dev_major, s.stx_dev_minor), ino: s.stx_ino },
            mode: u32::from(s.stx_mode),
            nlink: s.stx_nlink,
            uid: s.stx_uid,
            gid: s.stx_gid,
            size: s.stx_size,
            blocks: s.stx_blocks,
            blksize: s.stx_blksize,
            rdev: libc::makedev(s.stx_rdev_major, s.stx_rdev_minor),
            atime: stamp(s.stx_atime),
            mtime: stamp(s.stx_mtime),
            ctime: stamp(s.stx_ctime),
            btime: (s.stx_mask & libc::STATX_BTIME != 0).then(|| stamp(s.stx_btime)),
            mnt: s.stx_mnt_id,
            attributes: s.stx_attributes,
            attributes_mask: s.stx_attributes_mask,
        })
    })
}

/// `lstat` by absolute path.
///
/// # Errors
/// As `statx(2)`.
pub fn look(path: &[u8]) -> Sys<Stat> {
    statx(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW)
}

/// The file-mode creation mask of a process that has one thread only, by changing it for a moment;
/// the caller takes no signals. `None`: there may be others, who would feel that.
#[must_use]
pub fn umask_of_one_thread() -> Option<u32> {
    static FLAG: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let flag = *FLAG.get_or_init(|| {
        // SAFETY: looks a symbol up (glibc 2.32) by a name that ends.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        found as usize
    });
    if flag == 0 {
        return None;
    }
    // SAFETY: it is a `char` of the C library's, which stays.
    let single = unsafe { std::ptr::read_volatile(flag as *const libc::c_char) } != 0;
    single.then(|| {
        let mask = sys!(SYS_umask, 0o077);
        let _ = sys!(SYS_umask, mask);
        mask as u32
    })
}

/// `lstat` in a directory.
///
/// # Errors
/// As `statx(2)`.
pub fn look_at(dir: i32, name: &[u8]) -> Sys<Stat> {
    statx(dir, name, libc::AT_SYMLINK_NOFOLLOW)
}

/// `fstat`.
///
/// # Errors
/// As `statx(2)`.
pub fn look_fd(fd: i32) -> Sys<Stat> {
    statx(fd, b"", libc::AT_EMPTY_PATH)
}

/// `openat(2)`.
///
/// # Errors
/// As the system call.
pub fn open(path: &[u8], flags: i32, mode: u32) -> Sys<i32> {
    let open = || CPath::with(path, |p| check(sys!(SYS_openat, libc::AT_FDCWD, p, flags, mode)));
    let fd = if flags & libc::O_CREAT != 0 { step("staged create", open)? } else { open()? };
    Ok(fd as i32)
}

/// Opens an object of the stable tree by its canonical path: a link that has come in between is not
/// followed. (`O_NOFOLLOW` would do so for the last name only, and stay among the status flags.)
///
/// # Errors
/// As `openat2(2)`: ELOOP for a link.
pub fn open_exact(path: &[u8], flags: i32) -> Sys<i32> {
    if path.starts_with(b"/proc/") {
        return open(path, flags, 0);
    }
    const RESOLVE_NO_SYMLINKS: u64 = 0x04;
    let how = [flags as u64, 0, RESOLVE_NO_SYMLINKS];
    CPath::with(path, |p| {
        check(sys!(SYS_openat2, libc::AT_FDCWD, p, how.as_ptr(), size_of_val(&how)))
    })
    .map(|fd| fd as i32)
}

/// `close(2)`.
pub fn close(fd: i32) {
    let _ = sys!(SYS_close, fd);
}

/// `readlinkat(2)`, whole.
///
/// # Errors
/// As the system call.
pub fn read_link(dir: i32, path: &[u8]) -> Sys<Vec<u8>> {
    CPath::with(path, |p| {
        let mut out = vec![0u8; 4096];
        let n = check(sys!(SYS_readlinkat, dir, p, out.as_mut_ptr(), out.len()))?;
        out.truncate(n as usize);
        Ok(out)
    })
}

/// The path by which the kernel leads to what a descriptor of this process is open on.
#[must_use]
pub fn magic_path(fd: i32) -> Vec<u8> {
    format!("/proc/self/fd/{fd}").into_bytes()
}

/// The numbers of this process's open descriptors, as the kernel has them.
///
/// # Errors
/// If /proc can't be read.
pub fn open_numbers() -> Sys<Vec<i32>> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let top = open(b"/proc/self/fd", flags, 0)?;
    let listed = list(top);
    close(top);
    let number = |entry: &Listed| std::str::from_utf8(&entry.name).ok()?.parse().ok();
    Ok(listed?.iter().filter_map(number).filter(|&fd| fd != top).collect())
}

/// Opens something whose mode may keep out who has a right to it: its owner, by an older descriptor.
/// The mode is the owner's for the moment; `path` leads to the object.
///
/// # Errors
/// As `open`, and as `chmod(2)`.
pub fn open_past_mode(path: &[u8], open: impl Fn() -> Sys<i32>) -> Sys<i32> {
    match open() {
        Err(libc::EACCES) => {
            let mode = statx(libc::AT_FDCWD, path, 0)?.mode;
            chmod(path, mode | 0o600)?;
            let opened = open();
            chmod(path, mode)?;
            opened
        }
        other => other,
    }
}

/// Where a descriptor of this process leads, as the kernel names it.
///
/// # Errors
/// As `readlink(2)`.
pub fn path_of_fd(fd: i32) -> Sys<Vec<u8>> {
    read_link(libc::AT_FDCWD, &magic_path(fd))
}

/// `faccessat2(2)` with the effective credentials, links not followed.
///
/// # Errors
/// As the system call.
pub fn access(path: &[u8], mask: u32) -> Sys<()> {
    let flags = libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW;
    CPath::with(path, |p| check(sys!(SYS_faccessat2, libc::AT_FDCWD, p, mask, flags))).map(drop)
}

/// `lseek(2)`.
///
/// # Errors
/// As the system call.
pub fn seek(fd: i32, offset: i64, whence: i32) -> Sys<u64> {
    check(sys!(SYS_lseek, fd, offset, whence))
}

/// `pread64(2)` into a buffer of ours.
///
/// # Errors
/// As the system call.
pub fn pread(fd: i32, buffer: &mut [u8], at: u64) -> Sys<usize> {
    loop {
        match check(sys!(SYS_pread64, fd, buffer.as_mut_ptr(), buffer.len(), at)) {
            Err(libc::EINTR) => {}
            other => return other.map(|n| n as usize),
        }
    }
}

/// Writes a whole buffer at an offset.
///
/// # Errors
/// As `pwrite64(2)`; ENOSPC if nothing could be written.
pub fn pwrite_all(fd: i32, mut bytes: &[u8], mut at: u64) -> Sys<()> {
    while !bytes.is_empty() {
        let wrote = step("staged pwrite", || {
            check(sys!(SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), at))
        });
        match wrote {
            Ok(0) => return Err(libc::ENOSPC),
            Ok(n) => {
                bytes = bytes.get(n as usize..).unwrap_or_default();
                at += n;
            }
            Err(libc::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
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
        let n = check(sys!(SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()))? as usize;
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

/// The value of an extended attribute; `None` if there is none, or none can be.
///
/// # Errors
/// As `lgetxattr(2)`.
pub fn xattr(path: &[u8], name: &[u8]) -> Sys<Option<Vec<u8>>> {
    CPath::with(path, |p| {
        CPath::with(name, |n| {
            let mut out = vec![0u8; 256];
            loop {
                let got = check(sys!(SYS_lgetxattr, p, n, out.as_mut_ptr(), out.len()));
                match got {
                    Ok(len) => {
                        out.truncate(len as usize);
                        return Ok(Some(out));
                    }
                    Err(libc::ERANGE) if out.len() < 1 << 16 => out.resize(1 << 16, 0),
                    Err(libc::ENODATA) => return Ok(None),
                    Err(e) => return Err(e),
                }
            }
        })
    })
}

/// The names of all extended attributes.
///
/// # Errors
/// As `llistxattr(2)`.
pub fn xattr_names(path: &[u8]) -> Sys<Vec<Vec<u8>>> {
    CPath::with(path, |p| {
        let mut out = vec![0u8; 1 << 16];
        let n = check(sys!(SYS_llistxattr, p, out.as_mut_ptr(), out.len()))? as usize;
        let names = out.get(..n).unwrap_or_default().split(|&b| b == 0);
        Ok(names.filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect())
    })
}

/// Puts a descriptor at a high number, out of the way of the program's.
///
/// # Errors
/// EMFILE.
pub fn move_high(fd: i32) -> Sys<i32> {
    let high = copy_high(fd)?;
    close(fd);
    Ok(high)
}

/// Duplicates a descriptor to a high number.
///
/// # Errors
/// EMFILE.
pub fn copy_high(fd: i32) -> Sys<i32> {
    check(sys!(SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, high_base())).map(|fd| fd as i32)
}

/// From which number on descriptors of ours are kept.
#[must_use]
pub fn high_base() -> i32 {
    use std::sync::atomic::{AtomicI32, Ordering};
    static BASE: AtomicI32 = AtomicI32::new(0);
    let known = BASE.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    let _ = sys!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, &raw mut limit);
    let base = i32::try_from(limit.rlim_cur.min(1 << 16) * 2 / 3).unwrap_or(600).max(16);
    BASE.store(base, Ordering::Relaxed);
    base
}

/// `mkdirat(2)`.
///
/// # Errors
/// As the system call.
pub fn mkdir(path: &[u8], mode: u32) -> Sys<()> {
    step("staged mkdir", || {
        CPath::with(path, |p| check(sys!(SYS_mkdirat, libc::AT_FDCWD, p, mode))).map(drop)
    })
}

/// `renameat2(2)` onto nothing.
///
/// # Errors
/// As the system call.
pub fn rename(from: &[u8], to: &[u8]) -> Sys<()> {
    step("staged rename", || {
        CPath::with(from, |f| {
            CPath::with(to, |t| {
                let cwd = libc::AT_FDCWD;
                check(sys!(SYS_renameat2, cwd, f, cwd, t, libc::RENAME_NOREPLACE))
            })
        })
        .map(drop)
    })
}

/// `linkat(2)`.
///
/// # Errors
/// As the system call.
pub fn link(from: &[u8], to: &[u8]) -> Sys<()> {
    step("staged link", || {
        let cwd = libc::AT_FDCWD;
        CPath::with(from, |f| CPath::with(to, |t| check(sys!(SYS_linkat, cwd, f, cwd, t, 0))))
            .map(drop)
    })
}

/// Gives an unnamed file a name.
///
/// # Errors
/// As `linkat(2)`.
pub fn link_fd(fd: i32, to: &[u8]) -> Sys<()> {
    step("staged link", || {
        let from = magic_path(fd);
        let cwd = libc::AT_FDCWD;
        CPath::with(&from, |f| {
            CPath::with(to, |t| check(sys!(SYS_linkat, cwd, f, cwd, t, libc::AT_SYMLINK_FOLLOW)))
        })
        .map(drop)
    })
}

/// `symlinkat(2)`.
///
/// # Errors
/// As the system call.
pub fn symlink(target: &[u8], path: &[u8]) -> Sys<()> {
    step("staged symlink", || {
        CPath::with(target, |t| {
            CPath::with(path, |p| check(sys!(SYS_symlinkat, t, libc::AT_FDCWD, p)))
        })
        .map(drop)
    })
}

/// `mknodat(2)`.
///
/// # Errors
/// As the system call.
pub fn mknod(path: &[u8], mode: u32, rdev: u64) -> Sys<()> {
    step("staged mknod", || {
        let (major, minor) = (u64::from(libc::major(rdev)), u64::from(libc::minor(rdev)));
        let packed = (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12;
        CPath::with(path, |p| check(sys!(SYS_mknodat, libc::AT_FDCWD, p, mode, packed))).map(drop)
    })
}

/// `unlinkat(2)`.
///
/// # Errors
/// As the system call.
pub fn unlink(path: &[u8]) -> Sys<()> {
    step("staged unlink", || {
        CPath::with(path, |p| check(sys!(SYS_unlinkat, libc::AT_FDCWD, p, 0))).map(drop)
    })
}

/// `fchmodat(2)`; links are not followed where that can be said (they have no mode).
///
/// # Errors
/// As the system call.
pub fn chmod(path: &[u8], mode: u32) -> Sys<()> {
    step("staged chmod", || {
        CPath::with(path, |p| check(sys!(SYS_fchmodat, libc::AT_FDCWD, p, mode & 0o7777))).map(drop)
    })
}

/// `lchown(2)`.
///
/// # Errors
/// As the system call.
pub fn chown(path: &[u8], uid: u32, gid: u32) -> Sys<()> {
    step("staged chown", || {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        CPath::with(path, |p| check(sys!(SYS_fchownat, libc::AT_FDCWD, p, uid, gid, flags)))
            .map(drop)
    })
}

/// `utimensat(2)`, not following; `None` leaves a time as it is.
///
/// # Errors
/// As the system call.
pub fn utimes(path: &[u8], atime: Option<Stamp>, mtime: Option<Stamp>) -> Sys<()> {
    step("staged utimens", || {
        let time = |t: Option<Stamp>| match t {
            Some(t) => libc::timespec { tv_sec: t.sec, tv_nsec: i64::from(t.nsec) },
            None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        };
        let times = [time(atime), time(mtime)];
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        CPath::with(path, |p| check(sys!(SYS_utimensat, libc::AT_FDCWD, p, times.as_ptr(), flags)))
            .map(drop)
    })
}

/// Sets the time of last change of the data of what a magic link leads to.
///
/// # Errors
/// As `utimensat(2)`.
pub fn utimes_through(path: &[u8], mtime: Stamp) -> Sys<()> {
    step("staged utimens", || {
        let omit = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
        let times = [omit, libc::timespec { tv_sec: mtime.sec, tv_nsec: i64::from(mtime.nsec) }];
        CPath::with(path, |p| check(sys!(SYS_utimensat, libc::AT_FDCWD, p, times.as_ptr(), 0)))
            .map(drop)
    })
}

/// `lsetxattr(2)`, without flags.
///
/// # Errors
/// As the system call.
pub fn set_xattr(path: &[u8], name: &[u8], value: &[u8]) -> Sys<()> {
    step("staged setxattr", || {
        CPath::with(path, |p| {
            CPath::with(name, |n| check(sys!(SYS_lsetxattr, p, n, value.as_ptr(), value.len(), 0)))
        })
        .map(drop)
    })
}

/// `lremovexattr(2)`; that there is none is no error.
///
/// # Errors
/// As the system call.
pub fn remove_xattr(path: &[u8], name: &[u8]) -> Sys<()> {
    let done = step("staged removexattr", || {
        CPath::with(path, |p| CPath::with(name, |n| check(sys!(SYS_lremovexattr, p, n))))
    });
    match done {
        Ok(_) | Err(libc::ENODATA) => Ok(()),
        Err(e) => Err(e),
    }
}

/// The magic number of the file system that an object is on.
#[must_use]
pub fn file_system(path: &[u8], stat: &Stat) -> i64 {
    // A link leads elsewhere, and a device may wait: their directory is on the same.
    let own = matches!(stat.kind(), FileKind::File | FileKind::Dir);
    let place = if own { path } else { txos_engine::readset::split(path).map_or(path, |(d, _)| d) };
    let mut out = MaybeUninit::<libc::statfs>::zeroed();
    let asked = CPath::with(place, |p| check(sys!(SYS_statfs, p, out.as_mut_ptr())));
    // SAFETY: zeroed, and filled in by the kernel where it could.
    if asked.is_ok() { unsafe { out.assume_init() }.f_type } else { 0 }
}

/// Copies what a file holds into an empty one, sharing blocks where the file system can and leaving
/// holes as they are.
///
/// # Errors
/// As the system calls.
pub fn copy_content(from: i32, to: i32, size: u64) -> Sys<()> {
    if size == 0
        || step("staged ficlone", || check(sys!(SYS_ioctl, to, libc::FICLONE, from))).is_ok()
    {
        return Ok(());
    }
    let mut at = 0;
    while at < size {
        let data = match seek_copy(from, at, libc::SEEK_DATA) {
            Ok(data) => data,
            Err(libc::ENXIO) => break,
            Err(_) => at,
        };
        let hole = seek_copy(from, data, libc::SEEK_HOLE).unwrap_or(size).min(size);
        copy_range(from, to, data, hole)?;
        at = hole.max(data + 1);
    }
    step("staged ftruncate", || check(sys!(SYS_ftruncate, to, size))).map(drop)
}

fn seek_copy(fd: i32, at: u64, whence: i32) -> Sys<u64> {
    check(sys!(SYS_lseek, fd, at, whence))
}

fn copy_range(from: i32, to: i32, start: u64, end: u64) -> Sys<()> {
    let (mut source, mut target) = (start, start);
    while source < end {
        let want = (end - source).min(1 << 30);
        let (s, t) = (&raw mut source, &raw mut target);
        match step("staged copy", || check(sys!(SYS_copy_file_range, from, s, to, t, want, 0))) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(libc::EINTR) => {}
            Err(libc::EXDEV | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EBADF) => {
                break;
            }
            Err(e) => return Err(e),
        }
    }
    let mut buffer = vec![0u8; 1 << 17];
    while source < end {
        let want = buffer.len().min(usize::try_from(end - source).unwrap_or(usize::MAX));
        let n = pread(from, &mut buffer[..want], source)?;
        if n == 0 {
            break;
        }
        pwrite_all(to, &buffer[..n], source)?;
        source += n as u64;
    }
    Ok(())
}

/// `getcwd(2)`.
///
/// # Errors
/// As the system call; ENOENT also for one outside of the root.
pub fn working_directory() -> Sys<Vec<u8>> {
    let mut out = vec![0u8; 4096];
    let n = check(sys!(SYS_getcwd, out.as_mut_ptr(), out.len()))? as usize;
    out.truncate(n.saturating_sub(1));
    if out.starts_with(b"/") { Ok(out) } else { Err(libc::ENOENT) }
}

/// Whether what a path leads to is mounted read-only.
#[must_use]
pub fn is_read_only(path: &[u8]) -> bool {
    // struct statfs: f_flags, which the C library's crate does not show, is its eleventh word.
    let mut words = [0u64; 15];
    let asked = CPath::with(path, |p| check(sys!(SYS_statfs, p, words.as_mut_ptr())));
    asked.is_ok() && words[10] & libc::ST_RDONLY != 0
}

const _: () = assert!(size_of::<libc::statfs>() == size_of::<[u64; 15]>());
