//! The narrow seam: every system call of staging, journaling, publishing and undoing that changes
//! something goes through here, so that a fault can be put at step N.
//!
//! Steps that std's functions make are wrapped in [`step`] where they are. Calls that only look
//! (open, read, stat, list, lock) are no steps: a process that dies at one leaves what the step before
//! it left. But they can fail, so they are counted apart, by [`look`].
//!
//! In builds with debug assertions the environment variable `TXOS_FAULT` arms a fault, or several,
//! separated by commas:
//! `kill@N` kills this process with SIGKILL before the Nth step, `killafter@N` after it, `stop@N` stops it with SIGSTOP before it,
//! so that others come in between for certain (and what else is armed for that step follows),
//! `EIO@N` (or another errno name) makes it fail, `EIO@N+` it and all later ones; `EIO@look:N` and
//! `EIO@look:N+` do so to looks. `TXOS_FAULT_COUNT=FILE` appends a line to FILE at each: `N name` for a
//! step, `look N name` for a look, and after it `fired N name` if the fault struck. With
//! `TXOS_FAULT_DELAYS=SEED` some steps and looks wait for a random while first, up to 10 ms: so that
//! others come in between where they seldom do. Release builds have none of it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use crate::sys_owner::{Arg, at, opened, or_as_owner};

pub(crate) type Sys<T> = Result<T, Errno>;

/// Leaves a time alone.
const UTIME_OMIT: i64 = rustix::fs::UTIME_OMIT;

/// Longest path handed to the kernel in one piece; longer ones are walked in pieces.
const PIECE_MAX: usize = 3500;

/// Fault points. Compiled to nothing in release builds.
mod fault {
    /// Runs one step, or what the armed fault puts in its place.
    #[cfg(not(debug_assertions))]
    #[inline]
    pub fn step<T, E: From<rustix::io::Errno>>(
        _what: &str,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        f()
    }

    /// Runs a call that only looks, or fails in its place.
    #[cfg(not(debug_assertions))]
    #[inline]
    pub fn look<T, E: From<rustix::io::Errno>>(
        _what: &str,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        f()
    }

    /// From now on this thread's calls are no steps: what it does goes on beside the rest, in no fixed order.
    #[cfg(not(debug_assertions))]
    pub fn leave_thread_alone() {}

    #[cfg(debug_assertions)]
    pub use armed::{leave_thread_alone, look, step};

    #[cfg(debug_assertions)]
    mod armed {
        use std::cell::Cell;
        use std::sync::OnceLock;
        use std::sync::atomic::{AtomicU64, Ordering};

        use rustix::io::Errno;

        thread_local! {
            static LEFT_ALONE: Cell<bool> = const { Cell::new(false) };
        }

        /// From now on this thread's calls are no steps: what it does goes on beside the rest, in no fixed order.
        pub fn leave_thread_alone() {
            LEFT_ALONE.set(true);
        }

        enum Action {
            Stop,
            KillBefore,
            KillAfter,
            Fail(Errno),
        }

        struct Fault {
            action: Action,
            looks: bool,
            at: u64,
            and_later: bool,
        }

        static STEPS: AtomicU64 = AtomicU64::new(0);
        static LOOKS: AtomicU64 = AtomicU64::new(0);

        fn armed() -> &'static [Fault] {
            static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();
            FAULTS.get_or_init(|| {
                let text = std::env::var("TXOS_FAULT").unwrap_or_default();
                text.split(',').filter_map(fault).collect()
            })
        }

        fn fault(text: &str) -> Option<Fault> {
            let (action, at) = text.split_once('@')?;
            let (at, looks) = at.strip_prefix("look:").map_or((at, false), |a| (a, true));
            let (at, and_later) = at.strip_suffix('+').map_or((at, false), |a| (a, true));
            let action = match action {
                "stop" => Action::Stop,
                "kill" => Action::KillBefore,
                "killafter" => Action::KillAfter,
                "EIO" => Action::Fail(Errno::IO),
                "ENOSPC" => Action::Fail(Errno::NOSPC),
                "EDQUOT" => Action::Fail(Errno::DQUOT),
                "EROFS" => Action::Fail(Errno::ROFS),
                "EACCES" => Action::Fail(Errno::ACCESS),
                "ENOMEM" => Action::Fail(Errno::NOMEM),
                "EMFILE" => Action::Fail(Errno::MFILE),
                "EINTR" => Action::Fail(Errno::INTR),
                "ESTALE" => Action::Fail(Errno::STALE),
                _ => return None,
            };
            Some(Fault { action, looks, at: at.parse().ok()?, and_later })
        }

        fn signal_self(signal: rustix::process::Signal) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
        }

        fn kill_self() -> ! {
            signal_self(rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }

        fn note(kind: &str, n: u64, what: &str) {
            use std::io::Write;
            if let Ok(path) = std::env::var("TXOS_FAULT_COUNT")
                && let Ok(mut file) =
                    std::fs::OpenOptions::new().create(true).append(true).open(path)
            {
                // In one piece: several processes write to it.
                let _ = file.write_all(format!("{kind}{n} {what}\n").as_bytes());
            }
        }

        /// Waits, if that is wanted and its turn has come.
        fn delay(n: u64) {
            static SEED: OnceLock<Option<u64>> = OnceLock::new();
            let seed = SEED.get_or_init(|| {
                let seed: u64 = std::env::var("TXOS_FAULT_DELAYS").ok()?.parse().ok()?;
                Some(seed ^ u64::from(std::process::id()) << 32)
            });
            let Some(seed) = seed else { return };
            // SplitMix64.
            let mut x = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let micros = (x >> 8 & 0xffff)
                * match x % 100 {
                    0 => 10_000,
                    1..5 => 1000,
                    5..15 => 50,
                    _ => return,
                };
            std::thread::sleep(std::time::Duration::from_micros(micros >> 16));
        }

        /// What is to happen at this step or look.
        fn due(looks: bool, what: &str) -> Option<&'static Action> {
            if LEFT_ALONE.get() {
                return None;
            }
            let (counter, kind) = if looks { (&LOOKS, "look ") } else { (&STEPS, "") };
            let n = counter.fetch_add(1, Ordering::Relaxed) + 1;
            delay(n);
            note(kind, n, what);
            let due = |f: &&Fault| f.looks == looks && (n == f.at || f.and_later && n > f.at);
            let is_stop = |fault: &&Fault| matches!(fault.action, Action::Stop);
            if armed().iter().filter(due).any(|fault| is_stop(&fault)) {
                signal_self(rustix::process::Signal::STOP);
            }
            let fault = armed().iter().filter(due).find(|fault| !is_stop(fault))?;
            note("fired ", n, what);
            Some(&fault.action)
        }

        /// Runs one step, or what the armed fault puts in its place.
        pub fn step<T, E: From<Errno>>(
            what: &str,
            f: impl FnOnce() -> Result<T, E>,
        ) -> Result<T, E> {
            match due(false, what) {
                // It went on again.
                None | Some(Action::Stop) => f(),
                Some(Action::KillBefore) => kill_self(),
                Some(Action::KillAfter) => {
                    let _ = f();
                    kill_self()
                }
                Some(Action::Fail(e)) => Err((*e).into()),
            }
        }

        /// Runs a call that only looks, or fails in its place.
        pub fn look<T, E: From<Errno>>(
            what: &str,
            f: impl FnOnce() -> Result<T, E>,
        ) -> Result<T, E> {
            match due(true, what) {
                None | Some(Action::Stop) => f(),
                Some(Action::KillBefore | Action::KillAfter) => kill_self(),
                Some(Action::Fail(e)) => Err((*e).into()),
            }
        }
    }
}

pub use fault::{leave_thread_alone, look, step};

/// Whether a step is to be left out or done wrongly, by the name of the mistake: in builds with debug
/// assertions `TXOS_MISTAKE` names one. The tests of crash states make each once, to see that they are
/// able to find it.
#[cfg(debug_assertions)]
pub(crate) fn mistake(name: &str) -> bool {
    std::env::var_os("TXOS_MISTAKE").is_some_and(|made| made == name)
}

/// Release builds make no mistakes on purpose.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn mistake(_name: &str) -> bool {
    false
}

/// From which number on descriptors that are kept open are put; 0: where they come.
static KEEP_ABOVE: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

/// For programs that are guests in somebody else's process: descriptors that the engine keeps open
/// get numbers from `min` on, so that those of the program are what they would be without it.
pub fn keep_descriptors_above(min: i32) {
    KEEP_ABOVE.store(min, std::sync::atomic::Ordering::Relaxed);
}

/// Puts a descriptor that is going to be kept where [`keep_descriptors_above`] says; where it can't
/// be put there it stays.
pub(crate) fn kept(fd: OwnedFd) -> OwnedFd {
    let min = KEEP_ABOVE.load(std::sync::atomic::Ordering::Relaxed);
    if min <= 0 {
        return fd;
    }
    rustix::io::fcntl_dupfd_cloexec(&fd, min).unwrap_or(fd)
}

/// `renameat2(2)`.
pub fn rename(
    from: BorrowedFd<'_>,
    old: &[u8],
    to: BorrowedFd<'_>,
    new: &[u8],
    flags: RenameFlags,
) -> Sys<()> {
    fault::step("rename", || {
        let args = || {
            let flags = Arg::Number(flags.bits().into());
            [at(from), Arg::Text(old), at(to), Arg::Text(new), flags]
        };
        let renamed = rustix::fs::renameat_with(from, old, to, new, flags);
        or_as_owner(renamed, libc::SYS_renameat2, args, drop)
    })
}

/// `renameat2(2)` to where a directory is that is not empty: why it fails.
///
/// # Errors
/// `ENOTEMPTY` or `EEXIST`, if nothing else is in the way.
pub fn why_not_renamed(
    from: BorrowedFd<'_>,
    old: &[u8],
    to: BorrowedFd<'_>,
    new: &[u8],
) -> Sys<()> {
    fault::look("renameat", || {
        let args = || [at(from), Arg::Text(old), at(to), Arg::Text(new), Arg::Number(0)];
        let renamed = rustix::fs::renameat(from, old, to, new);
        or_as_owner(renamed, libc::SYS_renameat2, args, drop)
    })
}

/// `mkdirat(2)`.
pub fn mkdir(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> Sys<()> {
    fault::step("mkdir", || {
        let made = rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode));
        let args = || [at(dir), Arg::Text(name), Arg::Number(mode.into())];
        or_as_owner(made, libc::SYS_mkdirat, args, drop)
    })
}

/// `unlinkat(2)`.
pub fn unlink(dir: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Sys<()> {
    fault::step("unlink", || {
        let removed = rustix::fs::unlinkat(dir, name, flags);
        let args = || [at(dir), Arg::Text(name), Arg::Number(flags.bits().into())];
        or_as_owner(removed, libc::SYS_unlinkat, args, drop)
    })
}

/// `fchmodat(2)` through `/proc/thread-self/fd`, so that a directory entry is never followed.
pub fn chmod(fd: BorrowedFd<'_>, mode: u32) -> Sys<()> {
    fault::step("chmod", || {
        rustix::fs::chmod(
            format!("/proc/thread-self/fd/{}", fd.as_raw_fd()),
            Mode::from_raw_mode(mode),
        )
    })
}

/// `fchownat(2)` of an object opened with `O_PATH`.
pub fn chown(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> Sys<()> {
    fault::step("chown", || {
        rustix::fs::chownat(
            fd,
            c"",
            Some(rustix::fs::Uid::from_raw(uid)),
            Some(rustix::fs::Gid::from_raw(gid)),
            AtFlags::EMPTY_PATH,
        )
    })
}

/// `utimensat(2)`; `None` leaves that time alone.
pub fn set_mtime(dir: BorrowedFd<'_>, name: &[u8], mtime: crate::stamp::Stamp) -> Sys<()> {
    let times = mtime_alone(mtime);
    fault::step("utimens", || {
        let set = rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        let words = [0, UTIME_OMIT, mtime.sec, i64::from(mtime.nsec)].map(i64::to_ne_bytes);
        let args = || {
            let flags = Arg::Number(AtFlags::SYMLINK_NOFOLLOW.bits().into());
            [at(dir), Arg::Text(name), Arg::Bytes(words.as_flattened()), flags]
        };
        or_as_owner(set, libc::SYS_utimensat, args, drop)
    })
}

/// `futimens(2)`.
pub fn set_own_mtime(fd: BorrowedFd<'_>, mtime: crate::stamp::Stamp) -> Sys<()> {
    let times = mtime_alone(mtime);
    fault::step("utimens", || rustix::fs::futimens(fd, &times))
}

/// `pwrite(2)` of a whole buffer.
pub fn write_all_at(fd: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Sys<()> {
    while !bytes.is_empty() {
        let n = match fault::step("pwrite", || rustix::io::pwrite(fd, bytes, offset)) {
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        if n == 0 {
            return Err(Errno::IO);
        }
        bytes = bytes.get(n..).unwrap_or_default();
        offset += n as u64;
    }
    Ok(())
}

/// `pwritev2(2)` with `RWF_APPEND` of a whole buffer.
pub fn append_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Sys<()> {
    while !bytes.is_empty() {
        let n = retry(|| {
            fault::step("append", || {
                let slices = [std::io::IoSlice::new(bytes)];
                rustix::io::pwritev2(fd, &slices, 0, rustix::io::ReadWriteFlags::APPEND)
            })
        })?;
        if n == 0 {
            return Err(Errno::IO);
        }
        bytes = bytes.get(n..).unwrap_or_default();
    }
    Ok(())
}

/// `pwritev2(2)` with `RWF_APPEND` of some of a buffer, by a descriptor whose position is nobody else's: where the bytes end
/// that were appended, and how many they are.
pub fn append_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> Sys<(u64, u64)> {
    let n = retry(|| {
        fault::step("append", || {
            let slices = [std::io::IoSlice::new(bytes)];
            // An offset of -1 moves the position.
            rustix::io::pwritev2(fd, &slices, u64::MAX, rustix::io::ReadWriteFlags::APPEND)
        })
    })?;
    if n == 0 {
        return Err(Errno::IO);
    }
    Ok((rustix::fs::tell(fd)?, n as u64))
}

/// `ftruncate(2)`.
pub fn truncate(fd: BorrowedFd<'_>, len: u64) -> Sys<()> {
    retry(|| fault::step("ftruncate", || rustix::fs::ftruncate(fd, len)))
}

/// `fallocate(2)`.
pub fn allocate(fd: BorrowedFd<'_>, from: u64, len: u64) -> Sys<()> {
    // tmpfs gives up at any signal.
    let allocated = retry(|| {
        fault::step("fallocate", || {
            rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), from, len)
        })
    });
    match allocated {
        Err(Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// `fallocate(2)` from the start; an error where the file system can't.
pub fn allocate_all(fd: BorrowedFd<'_>, len: u64) -> Sys<()> {
    // tmpfs gives up at any signal.
    retry(|| {
        fault::step("fallocate", || {
            rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, len)
        })
    })
}

/// `linkat(2)`: another name for an object that is itself not followed.
pub fn link(from: BorrowedFd<'_>, old: &[u8], to: BorrowedFd<'_>, new: &[u8]) -> Sys<()> {
    fault::step("link", || {
        let linked = rustix::fs::linkat(from, old, to, new, AtFlags::empty());
        let args = || [at(from), Arg::Text(old), at(to), Arg::Text(new), Arg::Number(0)];
        or_as_owner(linked, libc::SYS_linkat, args, drop)
    })
}

/// Creates a file of ours that must not exist.
pub fn create(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<OwnedFd> {
    fault::step("create", || {
        rustix::fs::openat(
            dir,
            name,
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
    })
}

/// `fallocate(2)` that leaves the size as it is.
pub fn reserve(fd: BorrowedFd<'_>, from: u64, len: u64) -> Sys<()> {
    // tmpfs gives up at any signal.
    let allocated = retry(|| {
        fault::step("fallocate", || {
            rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::KEEP_SIZE, from, len)
        })
    });
    match allocated {
        Err(Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// `fdatasync(2)`.
pub fn fdatasync(fd: BorrowedFd<'_>) -> Sys<()> {
    retry(|| fault::step("fdatasync", || rustix::fs::fdatasync(fd)))
}

/// `fsync(2)`.
pub fn fsync(fd: BorrowedFd<'_>) -> Sys<()> {
    retry(|| fault::step("fsync", || rustix::fs::fsync(fd)))
}

/// `syncfs(2)`.
pub fn syncfs(fd: BorrowedFd<'_>) -> Sys<()> {
    retry(|| fault::step("syncfs", || rustix::fs::syncfs(fd)))
}

/// `lsetxattr(2)` on an entry of an open directory.
pub fn set_xattr(dir: BorrowedFd<'_>, name: &[u8], attr: &[u8], value: &[u8]) -> Sys<()> {
    let path = entry_path(dir, name);
    fault::step("setxattr", || {
        let set = rustix::fs::lsetxattr(&path[..], attr, value, rustix::fs::XattrFlags::empty());
        or_as_owner(set, libc::SYS_lsetxattr, || setting(&path, attr, value), drop)
    })
}

/// `lremovexattr(2)` on an entry of an open directory.
pub fn remove_xattr(dir: BorrowedFd<'_>, name: &[u8], attr: &[u8]) -> Sys<()> {
    fault::step("removexattr", || {
        if let Some(removed) = crate::sys_xattr::remove(dir, name, attr) {
            return removed;
        }
        let path = entry_path(dir, name);
        let removed = rustix::fs::lremovexattr(&path[..], attr);
        let args = || [Arg::Text(&path), Arg::Text(attr)];
        or_as_owner(removed, libc::SYS_lremovexattr, args, drop)
    })
}

/// What `setxattr(2)` takes.
fn setting<'a>(path: &'a [u8], attr: &'a [u8], value: &'a [u8]) -> [Arg<'a>; 5] {
    let length = Arg::Number(value.len() as u64);
    [Arg::Text(path), Arg::Text(attr), Arg::Bytes(value), length, Arg::Number(0)]
}

/// A path that leads to what is open and nowhere else: a symbolic link that is open is not followed.
fn own_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd())
}

/// `setxattr(2)` of what is open, be it only its place (`O_PATH`).
pub fn set_xattr_of(fd: BorrowedFd<'_>, attr: &[u8], value: &[u8]) -> Sys<()> {
    let path = own_path(fd);
    fault::step("setxattr", || {
        let set = rustix::fs::setxattr(&path[..], attr, value, rustix::fs::XattrFlags::empty());
        or_as_owner(set, libc::SYS_setxattr, || setting(path.as_bytes(), attr, value), drop)
    })
}

/// `removexattr(2)` of what is open, be it only its place.
pub fn remove_xattr_of(fd: BorrowedFd<'_>, attr: &[u8]) -> Sys<()> {
    let path = own_path(fd);
    fault::step("removexattr", || {
        let removed = rustix::fs::removexattr(&path[..], attr);
        let args = || [Arg::Text(path.as_bytes()), Arg::Text(attr)];
        or_as_owner(removed, libc::SYS_removexattr, args, drop)
    })
}

/// `utimensat(2)` of what is open, be it only its place.
pub fn set_mtime_of(fd: BorrowedFd<'_>, mtime: crate::stamp::Stamp) -> Sys<()> {
    let times = mtime_alone(mtime);
    fault::step("utimens", || rustix::fs::utimensat(CWD, own_path(fd), &times, AtFlags::empty()))
}

/// Times to set of which only the mtime is.
fn mtime_alone(mtime: crate::stamp::Stamp) -> rustix::fs::Timestamps {
    rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: rustix::fs::Timespec {
            tv_sec: mtime.sec,
            tv_nsec: i64::from(mtime.nsec),
        },
    }
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut f: impl FnMut() -> Sys<T>) -> Sys<T> {
    loop {
        match f() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// A path for calls that take no directory descriptor: `/proc/thread-self/fd/N/name`. The directory itself
/// (an empty name) is `/proc/thread-self/fd/N/.`, since calls that follow no link would else see the
/// link in `/proc`.
#[must_use]
pub fn entry_path(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/thread-self/fd/{}", dir.as_raw_fd()).into_bytes();
    path.push(b'/');
    path.extend_from_slice(if name.is_empty() { b"." } else { name });
    path
}

/// Opens the directory at `path` below `root`, following no link and crossing no mount, whatever
/// the length of the path.
///
/// # Errors
/// The errno of `openat2(2)`: `ELOOP` for a link, `EXDEV` for a mount.
pub fn open_dir_beneath(root: BorrowedFd<'_>, path: &[u8]) -> Sys<OwnedFd> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    open_in_pieces(root, path, resolve)
}

/// Waits until whoever was inside a system call when this began has, as far as the kernel lets one wait, gone past
/// what he had read: one grace period, some 15 ms (`MEMBARRIER_CMD_GLOBAL`, membarrier(2)).
///
/// The kernel judges an access by the mode first and by the access control list then, without a lock: who read the
/// mode before it was tightened, and looks for the list after it was removed, takes the old mode for all there is.
/// Natively `chmod 600 f; setfacl -b f` lets a reader in now and then, on tmpfs once in some thousands.
pub fn let_pass() {
    // Where the kernel refuses it, the commit is as good as the two commands are.
    let _ = rustix::thread::membarrier(rustix::thread::MembarrierCommand::Global);
}

/// Opens a file of a store for reading: a regular file, reached without a link at its end. Nothing else is
/// waited for or read, such as a FIFO that somebody put there.
///
/// # Errors
/// `EINVAL` for what is no regular file, `ELOOP` for a link.
pub fn open_record(path: &std::path::Path) -> std::io::Result<OwnedFd> {
    look("open", || {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let file = rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "it is not a regular file",
            ));
        }
        Ok(file)
    })
}

/// Reads a file of a store.
///
/// # Errors
/// As of [`open_record`].
pub fn read_record(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let file = open_record(path)?;
    look("read", || {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut bytes)?;
        Ok(bytes)
    })
}

/// The same, as text.
///
/// # Errors
/// As of [`read_record`]; `InvalidData` for what is no text.
pub fn read_text(path: &std::path::Path) -> std::io::Result<String> {
    let text = String::from_utf8(read_record(path)?);
    text.map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
}

/// Opens the directory at an absolute path that is expected to have no links in it.
///
/// # Errors
/// The errno of `openat2(2)`: `ELOOP` for a link.
pub fn open_dir_canonical(path: &[u8]) -> Sys<OwnedFd> {
    if path.len() <= PIECE_MAX {
        return open_piece(CWD, path, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS);
    }
    let root = open_piece(CWD, b"/", ResolveFlags::empty())?;
    open_in_pieces(root.as_fd(), path, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

fn open_piece(dir: BorrowedFd<'_>, path: &[u8], resolve: ResolveFlags) -> Sys<OwnedFd> {
    let name = if path.is_empty() { &b"."[..] } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    retry(|| {
        look("openat2", || {
            let found = if resolve.contains(ResolveFlags::NO_XDEV) {
                rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
            } else {
                // Somebody may have mounted a file system of his own on the way.
                crate::patience::find(dir, name, flags, resolve)
            };
            let how = [u64::from(flags.bits()), 0, resolve.bits()].map(u64::to_ne_bytes);
            let args = || {
                let how = how.as_flattened();
                [at(dir), Arg::Text(name), Arg::Bytes(how), Arg::Number(how.len() as u64)]
            };
            or_as_owner(found, libc::SYS_openat2, args, opened)
        })
    })
}

fn open_in_pieces(root: BorrowedFd<'_>, path: &[u8], resolve: ResolveFlags) -> Sys<OwnedFd> {
    let mut current: Option<OwnedFd> = None;
    let mut rest = path.strip_prefix(b"/").unwrap_or(path);
    loop {
        let piece = if rest.len() <= PIECE_MAX {
            rest
        } else {
            let cut = rest
                .get(..PIECE_MAX)
                .and_then(|p| p.iter().rposition(|&b| b == b'/'))
                .ok_or(Errno::NAMETOOLONG)?;
            rest.get(..cut).unwrap_or_default()
        };
        let dir = current.as_ref().map_or(root, |fd| fd.as_fd());
        let next = open_piece(dir, piece, resolve)?;
        rest = rest.get(piece.len()..).unwrap_or_default();
        rest = rest.strip_prefix(b"/").unwrap_or(rest);
        if rest.is_empty() {
            return Ok(next);
        }
        current = Some(next);
    }
}

/// One name in a directory, as `getdents64(2)` gives it.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Its type as the directory says it.
    pub kind: FileType,
    /// Inode number.
    pub ino: u64,
}

/// Calls `f` for every entry of a directory but `.` and `..`.
///
/// # Errors
/// The errno of `getdents64(2)`.
pub fn for_each_entry(dir: BorrowedFd<'_>, mut f: impl FnMut(DirEntry<'_>)) -> Sys<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(64 * 1024);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    look("getdents", || Ok::<(), Errno>(()))?;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => f(DirEntry { name, kind: entry.file_type(), ino: entry.ino() }),
        }
    }
    Ok(())
}

/// Calls `f` for every name in a directory but `.` and `..`, with its type as the directory says it.
///
/// # Errors
/// The errno of `getdents64(2)`.
pub fn for_each_name(dir: BorrowedFd<'_>, mut f: impl FnMut(&[u8], FileType)) -> Sys<()> {
    for_each_entry(dir, |e| f(e.name, e.kind))
}

/// The names in a directory that is open for nothing but its place (`O_PATH`), with their types.
///
/// # Errors
/// The errno of `openat(2)` or `getdents64(2)`.
pub fn names_in(dir: BorrowedFd<'_>) -> Sys<Vec<(Vec<u8>, FileType)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = open_at(dir, b".", flags)?;
    let mut names = Vec::new();
    for_each_name(readable.as_fd(), |name, kind| names.push((name.to_vec(), kind)))?;
    Ok(names)
}

/// The extended attributes of an object (not followed), names sorted.
///
/// # Errors
/// The errno of `llistxattr(2)` or `lgetxattr(2)`; a file system without them has none.
pub fn xattrs(path: &[u8]) -> Sys<Vec<(Vec<u8>, Vec<u8>)>> {
    all_xattrs(|names| list_by_path(path, names), |name| xattr(path, name))
}

/// All extended attributes of an entry of an open directory (not followed), of the directory itself for an empty name.
///
/// # Errors
/// As [`xattrs`].
pub fn xattrs_in(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<Vec<(Vec<u8>, Vec<u8>)>> {
    let list = |names: &mut [u8]| match crate::sys_xattr::list(dir, name, names) {
        Some(listed) => listed,
        None => list_by_path(&entry_path(dir, name), names),
    };
    let get = |attr: &[u8]| {
        whole_xattr(|value| match crate::sys_xattr::get(dir, name, attr, value) {
            Some(got) => got,
            None => get_by_path(&entry_path(dir, name), attr, value),
        })
    };
    all_xattrs(list, get)
}

/// Whether an attribute is an access control list once more: xfs shows root the lists by names of its own as well. Whoever copies or
/// changes those, too, does to the list what comes out of order.
#[must_use]
pub fn is_second_name(name: &[u8]) -> bool {
    matches!(name, b"trusted.SGI_ACL_FILE" | b"trusted.SGI_ACL_DEFAULT")
}

fn list_by_path(path: &[u8], names: &mut [u8]) -> Sys<usize> {
    let listed = rustix::fs::llistxattr(path, &mut *names);
    let length = Arg::Number(names.len() as u64);
    let args = || [Arg::Text(path), Arg::Room(names), length];
    or_as_owner(listed, libc::SYS_llistxattr, args, |n| n as usize)
}

fn all_xattrs(
    list: impl Fn(&mut [u8]) -> Sys<usize>,
    get: impl Fn(&[u8]) -> Sys<Option<Vec<u8>>>,
) -> Sys<Vec<(Vec<u8>, Vec<u8>)>> {
    // Most objects have none or a few: one call with room for those, a second for the rest.
    let mut names = vec![0u8; 512];
    loop {
        let listed = look("listxattr", || list(&mut names));
        match listed {
            Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Ok(n) => {
                names.truncate(n);
                break;
            }
            Err(Errno::RANGE) => {
                // The kernel lists no more.
                if names.len() >= XATTR_MAX {
                    return Err(Errno::RANGE);
                }
                names.resize(XATTR_MAX, 0);
            }
            Err(e) => return Err(e),
        }
    }
    let mut all = Vec::new();
    for name in names.split(|&b| b == 0).filter(|n| !n.is_empty() && !is_second_name(n)) {
        match get(name) {
            Ok(Some(value)) => all.push((name.to_vec(), value)),
            Ok(None) => {}
            Err(e) => return Err(e),
        }
    }
    all.sort();
    Ok(all)
}

/// One extended attribute of an object (not followed); `None` if it has none of that name.
///
/// # Errors
/// The errno of `lgetxattr(2)`.
pub fn xattr(path: &[u8], name: &[u8]) -> Sys<Option<Vec<u8>>> {
    whole_xattr(|value| get_by_path(path, name, value))
}

fn get_by_path(path: &[u8], name: &[u8], value: &mut [u8]) -> Sys<usize> {
    let got = rustix::fs::lgetxattr(path, name, &mut *value);
    or_as_owner(got, libc::SYS_lgetxattr, || getting(path, name, value), |n| n as usize)
}

/// [`xattr`] of what is open, be it only its place.
///
/// # Errors
/// The errno of `getxattr(2)`.
pub fn xattr_of(fd: BorrowedFd<'_>, name: &[u8]) -> Sys<Option<Vec<u8>>> {
    let path = own_path(fd);
    let path = path.as_bytes();
    whole_xattr(|value| {
        let got = rustix::fs::getxattr(path, name, &mut *value);
        or_as_owner(got, libc::SYS_getxattr, || getting(path, name, value), |n| n as usize)
    })
}

/// What `getxattr(2)` takes.
fn getting<'a>(path: &'a [u8], name: &'a [u8], value: &'a mut [u8]) -> [Arg<'a>; 4] {
    let length = Arg::Number(value.len() as u64);
    [Arg::Text(path), Arg::Text(name), Arg::Room(value), length]
}

/// The longest value that the kernel lets an attribute have.
const XATTR_MAX: usize = 64 * 1024;

fn whole_xattr(get: impl Fn(&mut [u8]) -> Sys<usize>) -> Sys<Option<Vec<u8>>> {
    let mut value = vec![0u8; 256];
    loop {
        match look("getxattr", || get(&mut value[..])) {
            Ok(n) => {
                value.truncate(n);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) if value.len() < XATTR_MAX => value.resize(XATTR_MAX, 0),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}

/// A digest of an object's extended attributes.
///
/// # Errors
/// As [`xattrs`].
pub fn xattr_digest(path: &[u8]) -> Sys<u64> {
    // FNV-1a, lengths included so that no two lists run together.
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |bytes: &[u8]| {
        for &b in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            h = (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for (name, value) in xattrs(path)? {
        eat(&name);
        eat(&value);
    }
    Ok(h)
}

/// Opens a file of ours by absolute path; links are followed (the store's place is the user's choice).
///
/// # Errors
/// The errno of `openat(2)`.
pub fn open(path: &[u8], flags: OFlags, mode: u32) -> Sys<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let open = || {
        let found = rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(mode));
        or_as_owner(found, libc::SYS_openat, || opening(CWD, path, flags, mode), opened)
    };
    if flags.contains(OFlags::CREATE) {
        retry(|| step("open", open))
    } else {
        retry(|| look("open", open))
    }
}

/// Opens what is there, relative to a directory.
///
/// # Errors
/// The errno of `openat(2)`.
pub fn open_at(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Sys<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    retry(|| {
        look("open", || {
            let found = rustix::fs::openat(dir, name, flags, Mode::empty());
            or_as_owner(found, libc::SYS_openat, || opening(dir, name, flags, 0), opened)
        })
    })
}

/// What `openat(2)` takes.
fn opening<'a>(dir: BorrowedFd<'a>, path: &'a [u8], flags: OFlags, mode: u32) -> [Arg<'a>; 4] {
    let flags = Arg::Number(flags.bits().into());
    [at(dir), Arg::Text(path), flags, Arg::Number(mode.into())]
}

/// `pread(2)` of as much as there is room for, or less.
///
/// # Errors
/// The errno of `pread(2)`.
pub fn read_at(fd: impl AsFd, room: &mut [u8], offset: u64) -> Sys<usize> {
    retry(|| look("pread", || rustix::io::pread(&fd, &mut *room, offset)))
}

/// The size of an open file.
///
/// # Errors
/// The errno of `fstat(2)`.
pub fn size(fd: impl AsFd) -> Sys<u64> {
    look("fstat", || rustix::fs::fstat(&fd)).map(|s| u64::try_from(s.st_size).unwrap_or(0))
}

/// `flock(2)`, waited for through signals.
///
/// # Errors
/// The errno of `flock(2)`.
pub fn flock(fd: impl AsFd, how: rustix::fs::FlockOperation) -> Sys<()> {
    retry(|| look("flock", || rustix::fs::flock(&fd, how)))
}
