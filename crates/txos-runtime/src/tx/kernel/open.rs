//! Opening objects, and descriptors: their numbers, flags and duplicates.

use super::{CPath, CWD, Errno, Sys, chmod, list, read_link, statx, step, sys};
use txos_engine::object::FileKind;

/// `openat(2)`.
///
/// # Errors
/// As the system call.
pub fn open(path: &[u8], flags: i32, mode: u32) -> Sys<i32> {
    // SAFETY: the path ends with its zero.
    let open = || CPath::with(path, |p| unsafe { sys!(SYS_openat, CWD, p.at(), flags, mode) });
    let fd = if flags & libc::O_CREAT != 0 { step("staged create", open)? } else { open()? };
    Ok(fd as i32)
}

/// `openat2(2)`.
///
/// # Errors
/// As the system call.
pub fn open_by(dir: i32, path: &[u8], flags: i32, mode: u32, resolve: u64) -> Sys<i32> {
    let makes = flags & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0;
    let mode = if makes && flags & libc::O_PATH == 0 { u64::from(mode) } else { 0 };
    let how = [flags as u32 as u64, mode, resolve];
    // SAFETY: the path ends with its zero, and the structure is as long as it is said to be.
    let open =
        |p: &CPath| unsafe { sys!(SYS_openat2, dir, p.at(), how.as_ptr(), size_of_val(&how)) };
    CPath::with(path, open).map(|fd| fd as i32)
}

/// Opens an object of the stable tree by its canonical path: a link that has come in between is not
/// followed. (`O_NOFOLLOW` would do so for the last name only, and stay among the status flags.)
///
/// # Errors
/// As `openat2(2)`: ELOOP for a link.
pub fn open_exact(path: &[u8], flags: i32) -> Sys<i32> {
    open_exact_at(CWD, path, flags)
}

/// The same, from a directory.
///
/// # Errors
/// As of [`open_exact`].
pub fn open_exact_at(dir: i32, path: &[u8], flags: i32) -> Sys<i32> {
    if path.starts_with(b"/proc/") {
        return open(path, flags, 0);
    }
    const RESOLVE_NO_SYMLINKS: u64 = 0x04;
    let how = [flags as u64, 0, RESOLVE_NO_SYMLINKS];
    // SAFETY: the path ends with its zero, and the structure is as long as it is said to be.
    let open =
        |p: &CPath| unsafe { sys!(SYS_openat2, dir, p.at(), how.as_ptr(), size_of_val(&how)) };
    CPath::with(path, open).map(|fd| fd as i32)
}

/// Opens a regular file of the stable tree by its canonical path, to read it; from a directory, as
/// [`open_exact_at`]. A FIFO that has come in its place is not waited for: it is opened, and is not the file then.
///
/// # Errors
/// As of [`open_exact`].
pub fn open_file_at(dir: i32, path: &[u8], flags: i32) -> Sys<i32> {
    match open_exact_at(dir, path, flags | libc::O_RDONLY | libc::O_NONBLOCK) {
        // There is a lease on it, whose holder may give it up (fcntl(2)).
        Err(Errno::AGAIN) => {
            let place = OwnedFd::of(open_exact_at(dir, path, libc::O_PATH | libc::O_CLOEXEC)?);
            open_file_through(&place, flags)
        }
        opened => opened,
    }
}

/// Opens the regular file that a descriptor leads to, to read it, as [`open_file_at`]: a lease on it is waited for unless
/// the flags say otherwise.
///
/// # Errors
/// As `open(2)`; ENOENT if it is no regular file.
pub fn open_file_through(place: &OwnedFd, flags: i32) -> Sys<i32> {
    match super::look_fd(place.number())?.kind() {
        FileKind::File => {
            let flags = flags & !libc::O_NOFOLLOW | libc::O_RDONLY;
            open(&magic_path(place.number()), flags, 0)
        }
        _ => Err(Errno::NOENT),
    }
}

/// Opens something whose mode may keep out who has a right to it: its owner, by an older descriptor.
/// The mode is the owner's for the moment; `path` leads to the object.
///
/// # Errors
/// As `open`, and as `chmod(2)`.
pub fn open_past_mode(path: &[u8], open: impl Fn() -> Sys<i32>) -> Sys<i32> {
    match open() {
        Err(Errno::ACCESS) => {
            let mode = statx(CWD, path, 0)?.mode;
            chmod(path, mode | 0o600)?;
            let opened = open();
            chmod(path, mode)?;
            opened
        }
        other => other,
    }
}

/// `close(2)`.
#[inline]
pub fn close(fd: i32) {
    // SAFETY: it has no pointers.
    let _ = unsafe { sys!(SYS_close, fd) };
}

/// A descriptor that the runtime has to itself: it is closed when this goes.
///
/// The standard library's type would close it by the C library's function, which is interposed here.
#[derive(Debug)]
pub struct OwnedFd(i32);

impl OwnedFd {
    /// Takes a descriptor that nothing else closes.
    #[must_use]
    pub fn of(fd: i32) -> OwnedFd {
        OwnedFd(fd)
    }

    /// Opens an object, without making it.
    ///
    /// # Errors
    /// As `openat(2)`.
    pub fn open(path: &[u8], flags: i32) -> Sys<OwnedFd> {
        open(path, flags, 0).map(OwnedFd)
    }

    /// Its number, for calls that are made while this lives.
    #[inline]
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Moves it to a high number, out of the way of the program's. If that fails, it is closed.
    ///
    /// # Errors
    /// EMFILE.
    pub fn raised(self) -> Sys<OwnedFd> {
        copy_high(self.0).map(OwnedFd)
    }

    /// The number, which the caller closes.
    #[must_use]
    pub fn into_number(self) -> i32 {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// What stands at a number that is taken, and leads nowhere any more: EBADF for all that reads or writes.
#[must_use]
pub fn dead() -> Option<OwnedFd> {
    OwnedFd::open(b"/", libc::O_PATH | libc::O_CLOEXEC).ok()
}

/// `memfd_create(2)`, closed by `execve(2)`.
///
/// # Errors
/// As the system call.
pub fn memory_file(name: &std::ffi::CStr) -> Sys<i32> {
    // SAFETY: the name ends with its zero.
    unsafe { sys!(SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) }.map(|fd| fd as i32)
}

/// The path by which the kernel leads to what a descriptor of this process is open on.
#[must_use]
pub fn magic_path(fd: i32) -> Vec<u8> {
    format!("/proc/thread-self/fd/{fd}").into_bytes()
}

/// Whether a path is one of those: it is a link that has to be followed.
#[must_use]
pub fn is_magic(path: &[u8]) -> bool {
    path.starts_with(b"/proc/thread-self/fd/")
}

/// Where a descriptor of this process leads, as the kernel names it.
///
/// # Errors
/// As `readlink(2)`.
pub fn path_of_fd(fd: i32) -> Sys<Vec<u8>> {
    read_link(CWD, &magic_path(fd))
}

/// The numbers of this process's open descriptors, as the kernel has them.
///
/// # Errors
/// If /proc can't be read.
pub fn open_numbers() -> Sys<Vec<i32>> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let top = OwnedFd::open(b"/proc/thread-self/fd", flags)?;
    let listed = list(top.number());
    let number = |entry: &super::Listed| std::str::from_utf8(&entry.name).ok()?.parse().ok();
    Ok(listed?.iter().filter_map(number).filter(|&fd| fd != top.number()).collect())
}

/// Whether a descriptor is of a pipe of which this process has the other end as well.
#[must_use]
pub fn is_own_pipe(fd: i32) -> bool {
    let end = |fd| {
        let stat = super::look_fd(fd).ok().filter(|stat| stat.kind() == FileKind::Fifo)?;
        Some((stat.id, status_flags(fd).ok()? & libc::O_ACCMODE))
    };
    let Some((pipe, how)) = end(fd) else { return false };
    let other = |number| end(number).is_some_and(|(id, mode)| id == pipe && mode != how);
    open_numbers().is_ok_and(|numbers| numbers.into_iter().any(other))
}

/// The C library's bindings do not name it yet.
const F_DUPFD_QUERY: i32 = 1027;

/// `fcntl(2)` with a command that takes a number, or nothing.
#[inline]
fn fcntl(fd: i32, command: i32, arg: i32) -> Sys<u64> {
    use libc::{F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_SETFD, F_SETFL};
    assert!(matches!(
        command,
        F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_GETFL | F_SETFD | F_SETFL | F_DUPFD_QUERY
    ));
    // SAFETY: these commands take no pointer.
    unsafe { sys!(SYS_fcntl, fd, command, arg) }
}

/// The access mode and status flags of a descriptor.
///
/// # Errors
/// EBADF.
#[inline]
pub fn status_flags(fd: i32) -> Sys<i32> {
    fcntl(fd, libc::F_GETFL, 0).map(|flags| flags as i32)
}

/// Sets those status flags that can be set.
///
/// # Errors
/// As `fcntl(2)`.
#[inline]
pub fn set_status_flags(fd: i32, flags: i32) -> Sys<u64> {
    fcntl(fd, libc::F_SETFL, flags)
}

/// Whether a descriptor is closed by `execve(2)`.
///
/// # Errors
/// EBADF.
#[inline]
pub fn close_on_exec(fd: i32) -> Sys<bool> {
    fcntl(fd, libc::F_GETFD, 0).map(|flags| flags as i32 & libc::FD_CLOEXEC != 0)
}

/// Sets whether a descriptor is closed by `execve(2)`.
///
/// # Errors
/// EBADF.
#[inline]
pub fn set_close_on_exec(fd: i32, on: bool) -> Sys<u64> {
    fcntl(fd, libc::F_SETFD, if on { libc::FD_CLOEXEC } else { 0 })
}

/// Duplicates a descriptor to the lowest free number from `least` on.
///
/// # Errors
/// As `fcntl(2)`.
#[inline]
pub fn duplicate(fd: i32, least: i32, cloexec: bool) -> Sys<i32> {
    let how = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    fcntl(fd, how, least).map(|fd| fd as i32)
}

/// `dup3(2)`.
///
/// # Errors
/// As the system call.
#[inline]
pub fn dup3(fd: i32, number: i32, cloexec: bool) -> Sys<i32> {
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_dup3, fd, number, flags) }.map(|fd| fd as i32)
}

/// `fcntl(2)`: whether two descriptors are of one description.
///
/// # Errors
/// As the system call.
pub fn is_duplicate(fd: i32, other: i32) -> Sys<u64> {
    fcntl(fd, F_DUPFD_QUERY, other)
}

/// `kcmp(2)`: whether two descriptors are of one description.
#[must_use]
pub fn is_same_description(fd: i32, other: i32) -> bool {
    const KCMP_FILE: i32 = 0;
    let pid = std::process::id();
    // SAFETY: it has no pointers.
    let order = unsafe { sys!(SYS_kcmp, pid, pid, KCMP_FILE, fd, other) };
    order == Ok(0)
}

/// Whether a number still is of the description that another number of ours is of. Where the kernel tells
/// that to nobody, whether it is of the same file.
#[must_use]
pub fn is_still_same(ours: i32, number: i32) -> bool {
    const KCMP_FILE: i32 = 0;
    let pid = std::process::id();
    // SAFETY: it has no pointers.
    match unsafe { sys!(SYS_kcmp, pid, pid, KCMP_FILE, ours, number) } {
        Ok(order) => order == 0,
        Err(Errno::BADF) => false,
        Err(_) => match is_duplicate(ours, number) {
            Ok(same) => same == 1,
            Err(Errno::BADF) => false,
            Err(_) => match (super::look_fd(ours), super::look_fd(number)) {
                (Ok(ours), Ok(there)) => (ours.id, ours.mnt) == (there.id, there.mnt),
                _ => false,
            },
        },
    }
}

/// `fcntl(F_GETLK)`: the lock that is in the way of the one given, which it replaces.
///
/// # Errors
/// As the system call.
pub fn lock_in_the_way(fd: i32, lock: &mut libc::flock) -> Sys<()> {
    // SAFETY: the kernel reads and writes the structure.
    unsafe { sys!(SYS_fcntl, fd, libc::F_GETLK, std::ptr::from_mut(lock)) }.map(drop)
}

/// `nanosleep(2)`.
///
/// # Errors
/// EINTR.
pub fn sleep(time: std::time::Duration) -> Sys<()> {
    let time =
        libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: the kernel reads the time.
    unsafe { sys!(SYS_nanosleep, &raw const time, 0) }.map(drop)
}

/// `flock(2)`.
///
/// # Errors
/// As the system call.
pub fn flock(fd: i32, operation: i32) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_flock, fd, operation) }
}

/// `inotify_add_watch(2)`.
///
/// # Errors
/// As the system call.
pub fn watch(fd: i32, path: &[u8], mask: u32) -> Sys<u64> {
    // SAFETY: the path ends with its zero.
    CPath::with(path, |p| unsafe { sys!(SYS_inotify_add_watch, fd, p.at(), mask) })
}

/// Puts a descriptor at a high number, out of the way of the program's. If there is no room it is closed.
///
/// # Errors
/// EMFILE.
pub fn move_high(fd: i32) -> Sys<i32> {
    let high = copy_high(fd);
    close(fd);
    high
}

/// The same of two. If there is no room for both, both are closed.
///
/// # Errors
/// EMFILE.
pub fn move_pair_high(pair: [i32; 2]) -> Sys<[OwnedFd; 2]> {
    let [first, second] = pair.map(|fd| move_high(fd).map(OwnedFd::of));
    Ok([first?, second?])
}

/// Puts a descriptor at a high number. If there is no room it stays where it is.
pub fn raised(fd: i32) -> i32 {
    copy_high(fd).inspect(|_| close(fd)).unwrap_or(fd)
}

/// Duplicates a descriptor to a high number.
///
/// # Errors
/// EMFILE.
pub fn copy_high(fd: i32) -> Sys<i32> {
    match duplicate(fd, high_base(), true) {
        // The program has lowered its limit since.
        Err(Errno::INVAL) => duplicate(fd, base_below(limit()), true),
        done => done,
    }
}

/// Puts a descriptor of a process whose transaction is elsewhere out of the way of the program's numbers, and no higher than
/// need be: each `fork` copies the table of descriptors up to the highest. If there is no room it stays where it is.
pub fn set_aside(fd: i32) -> i32 {
    /// The limit that most processes have. The few descriptors of such a process don't keep it from having more of its own.
    const USUAL: u64 = 1024;
    duplicate(fd, base_below(limit().min(USUAL)), true).inspect(|_| close(fd)).unwrap_or(fd)
}

/// From which number on descriptors of ours are kept, with this limit.
fn base_below(limit: u64) -> i32 {
    i32::try_from(limit.min(1 << 16) * 2 / 3).unwrap_or(600).max(16)
}

/// How many descriptors the process may have: the soft limit.
fn limit() -> u64 {
    soft_limit(libc::RLIMIT_NOFILE).unwrap_or(1024)
}

/// Has the process have as many descriptors as it may, whatever the program has set: for one that does not go on as the program.
pub fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let of = libc::RLIMIT_NOFILE;
    // SAFETY: the kernel writes the structure, and reads it. (If it refuses, the limit stays.)
    let _ = unsafe {
        sys!(SYS_prlimit64, 0, of, 0, &raw mut limit).and_then(|_| {
            limit.rlim_cur = limit.rlim_max;
            sys!(SYS_prlimit64, 0, of, &raw const limit, 0)
        })
    };
}

/// A soft limit of the process.
fn soft_limit(of: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it sets nothing, and writes to the structure.
    unsafe { sys!(SYS_prlimit64, 0, of, 0, &raw mut limit) }.ok()?;
    Some(limit.rlim_cur)
}

/// How long a file may become that the process writes to, bytes (`RLIMIT_FSIZE`).
#[must_use]
pub fn most_in_a_file() -> u64 {
    soft_limit(libc::RLIMIT_FSIZE).unwrap_or(u64::MAX)
}

/// Whether no limit keeps the process from mapping as much as there is room for.
#[must_use]
pub fn has_endless_memory() -> bool {
    let all = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
    all.into_iter().all(|of| soft_limit(of) == Some(libc::RLIM_INFINITY))
}

/// From which number on the program has no descriptors.
#[must_use]
pub fn descriptor_limit() -> i32 {
    i32::try_from(limit()).unwrap_or(i32::MAX)
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
    let base = base_below(limit());
    BASE.store(base, Ordering::Relaxed);
    base
}
