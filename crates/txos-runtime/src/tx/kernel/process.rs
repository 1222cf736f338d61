//! Who and where the process is; its sockets' addresses.

use super::{CPath, Errno, Sys, sys};

/// `atexit(3)`. Without it, what the function does is left to others.
pub fn at_exit(run: extern "C" fn()) {
    // SAFETY: the function takes nothing, and stays as long as the library.
    unsafe { libc::atexit(run) };
}

/// `umask(2)`: sets the file-mode creation mask, and gives the one of before.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_umask, mask) }.map_or(0, |before| before as u32)
}

/// Where the C library says whether there is one thread only; 0: it does not. Looking it up for the first time takes
/// memory of the C library's allocator.
pub fn single_threaded() -> usize {
    static FLAG: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *FLAG.get_or_init(|| {
        // SAFETY: looks a symbol up (glibc 2.32) by a name that ends.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        found as usize
    })
}

/// The file-mode creation mask of a process that has one thread only, by changing it for a moment;
/// the caller takes no signals. `None`: there may be others, who would feel that.
#[must_use]
pub fn umask_of_one_thread() -> Option<u32> {
    let flag = single_threaded();
    if flag == 0 {
        return None;
    }
    // SAFETY: it is a `char` of the C library's, which stays.
    let single = unsafe { std::ptr::read_volatile(flag as *const libc::c_char) } != 0;
    single.then(|| {
        let mask = set_umask(0o077);
        set_umask(mask);
        mask
    })
}

/// The file-mode creation mask of the calling thread, as `/proc` tells it; 022 where there is no `/proc`.
#[must_use]
pub fn umask_as_told() -> u32 {
    let text = std::fs::read("/proc/thread-self/status").unwrap_or_default();
    text.split(|&b| b == b'\n')
        .find_map(|line| line.strip_prefix(b"Umask:"))
        .and_then(|text| std::str::from_utf8(text.trim_ascii()).ok())
        .and_then(|text| u32::from_str_radix(text, 8).ok())
        .unwrap_or(0o022)
}

/// Three words of a process's memory; `None` if it does not let itself be looked at, or there are none.
#[must_use]
pub fn words_of(pid: u32, at: u64) -> Option<[u32; 3]> {
    let mut words = [0_u32; 3];
    let len = size_of_val(&words) as u64;
    let (here, there) = ([words.as_mut_ptr() as u64, len], [at, len]);
    // SAFETY: the kernel writes the words, and reads the two structures that say where.
    let read = unsafe { sys!(SYS_process_vm_readv, pid, here.as_ptr(), 1, there.as_ptr(), 1, 0) };
    (read == Ok(len)).then_some(words)
}

/// How many threads the process has; `None` where there is no `/proc`.
#[must_use]
pub fn threads() -> Option<u64> {
    let stat = rustix::fs::stat(c"/proc/self/task").ok()?;
    (stat.st_nlink as u64).checked_sub(2)
}

/// Whether one of the process's threads is about to be gone: `pthread_join(3)` returns before that.
#[must_use]
pub fn has_ending_thread() -> bool {
    /// In the flags of `/proc/PID/task/TID/stat`: `PF_EXITING`.
    const EXITING: u64 = 4;
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // After the name, which may contain anything: state, four ids, a terminal and its group; then the flags.
        let mut words = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        // A first thread that has ended stays, as a zombie, as long as there are others.
        let stays = words.next() == Some("Z");
        let flags = words.nth(5).and_then(|flags| flags.parse::<u64>().ok());
        !stays && flags.is_some_and(|flags| flags & EXITING != 0)
    })
}

/// A call that takes nothing and gives an id.
macro_rules! id {
    ($(#[$doc:meta] $name:ident $number:ident)*) => {$(
        #[$doc]
        #[must_use]
        pub fn $name() -> u32 {
            // SAFETY: it has no arguments.
            unsafe { sys!($number) }.map_or(0, |id| id as u32)
        }
    )*};
}

id! {
    /// The real user.
    getuid SYS_getuid
    /// The effective user.
    geteuid SYS_geteuid
    /// The real group.
    getgid SYS_getgid
    /// The effective group.
    getegid SYS_getegid
}

/// The supplementary groups; none if they can't be asked.
#[must_use]
pub fn groups() -> Vec<u32> {
    let mut groups = vec![0u32; 64];
    let ask = |groups: &mut [u32]| {
        // SAFETY: the kernel writes no more groups than there is room for.
        unsafe { sys!(SYS_getgroups, groups.len(), groups.as_mut_ptr()) }
    };
    let mut n = ask(&mut groups);
    if n.is_err() {
        groups.resize(65_536, 0);
        n = ask(&mut groups);
    }
    groups.truncate(n.map_or(0, |n| n as usize));
    groups
}

/// The effective capabilities of the thread.
#[must_use]
pub fn capabilities() -> u64 {
    let header = [0x2008_0522_u32, 0];
    let mut data = [0u32; 6];
    // SAFETY: this version of the header has two sets of three words.
    let _ = unsafe { sys!(SYS_capget, header.as_ptr(), data.as_mut_ptr()) };
    u64::from(data[0]) | u64::from(data[3]) << 32
}

/// `getcwd(2)`.
///
/// # Errors
/// As the system call; ENOENT also for one outside of the root.
pub fn working_directory() -> Sys<Vec<u8>> {
    let mut out = vec![0u8; 4096];
    // SAFETY: the kernel writes no more than there is room for.
    let n = unsafe { sys!(SYS_getcwd, out.as_mut_ptr(), out.len()) }? as usize;
    out.truncate(n.saturating_sub(1));
    if out.starts_with(b"/") { Ok(out) } else { Err(Errno::NOENT) }
}

/// `chdir(2)`.
///
/// # Errors
/// As the system call.
pub fn chdir(path: &[u8]) -> Sys<()> {
    // SAFETY: the path ends with its zero.
    CPath::with(path, |p| unsafe { sys!(SYS_chdir, p.at()) }).map(drop)
}

/// `fchdir(2)`.
///
/// # Errors
/// As the system call.
pub fn fchdir(fd: i32) -> Sys<()> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_fchdir, fd) }.map(drop)
}

/// `chroot(2)`.
///
/// # Errors
/// As the system call.
pub fn chroot(path: &[u8]) -> Sys<()> {
    // SAFETY: the path ends with its zero.
    CPath::with(path, |p| unsafe { sys!(SYS_chroot, p.at()) }).map(drop)
}

/// `bind(2)`.
///
/// # Errors
/// As the system call.
pub fn bind(fd: i32, address: &[u8]) -> Sys<u64> {
    // SAFETY: the kernel reads the address.
    unsafe { sys!(SYS_bind, fd, address.as_ptr(), address.len()) }
}

/// A call that gives the address of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `getsockname(2)`.
    Own,
    /// `getpeername(2)`.
    Peer,
}

/// The beginning of a socket's address, and how long all of it is.
///
/// # Errors
/// As the system call.
pub fn socket_address(fd: i32, side: Side) -> Sys<([u8; 128], u32)> {
    let (mut name, mut len) = ([0u8; 128], 128u32);
    let (at, room) = (name.as_mut_ptr(), &raw mut len);
    // SAFETY: the kernel writes no more than the length says, and the length.
    unsafe {
        match side {
            Side::Own => sys!(SYS_getsockname, fd, at, room),
            Side::Peer => sys!(SYS_getpeername, fd, at, room),
        }
    }?;
    Ok((name, len))
}
