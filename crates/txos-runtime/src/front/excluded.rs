//! Files that are no part of any transaction as long as they are only read: a language's own libraries and
//! class files (`txos_exclude`).
//!
//! What a virtual machine loads in the middle of a transaction stays loaded when that is aborted, so its
//! descriptors must stay open, their offsets must not be put back under another thread that loads as well,
//! and a transaction that has failed must not keep a class from being loaded. So calls on such a file go to
//! the kernel, as if there were no transaction. A file is known by its identity, not by its name: device, inode, and
//! when it was made, as the number of an inode that is gone is soon another file's.
#![allow(unsafe_code)] // sets that are shared by address

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use txos_engine::object::{FileId, FileKind};
use txos_engine::version::Stamp;

use crate::call::Call;
use crate::raw::Errno;
use crate::tx::kernel::{self, Stat};

/// More files than any class path has.
const FILES_MAX: usize = 1 << 18;
/// Directories within directories.
const DEPTH_MAX: usize = 40;

/// Files, each with the time at which it was made, where the file system knows that.
type Files = HashMap<FileId, Option<Stamp>>;

/// What was excluded so far.
#[derive(Clone, Debug, Default)]
struct Excluded {
    files: Files,
    /// Paths at or below which such files are, and how their names end.
    places: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A set that is never changed: a new one takes its place, and it stays, as another thread may be reading it
/// in a signal handler.
static NOW: AtomicPtr<Excluded> = AtomicPtr::new(null_mut());
static CHANGE: Mutex<()> = Mutex::new(());

fn now() -> Option<&'static Excluded> {
    // SAFETY: null, or leaked below.
    unsafe { NOW.load(Ordering::Acquire).as_ref() }
}

/// Excludes a file, or every file below a directory whose name ends so, as they are now. How many.
///
/// # Errors
/// The path leads nowhere, or to what can't be listed; there are too many.
pub fn exclude(path: &Path, suffix: &[u8]) -> Result<usize, Errno> {
    if !path.is_absolute() {
        return Err(Errno::INVAL);
    }
    let top = kernel::statx(libc::AT_FDCWD, path.as_os_str().as_bytes(), 0)?;
    let mut found = Files::new();
    match top.kind() {
        FileKind::Dir => below(path, suffix, DEPTH_MAX, &mut found)?,
        // Of a device nothing can be put back.
        FileKind::File | FileKind::CharDevice => {
            found.insert(top.id, top.btime);
        }
        _ => return Err(Errno::INVAL),
    }
    let count = found.len();
    let _one = CHANGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut new = now().cloned().unwrap_or_default();
    new.files.extend(found);
    let place = (path.as_os_str().as_bytes().to_vec(), suffix.to_vec());
    if !new.places.contains(&place) {
        new.places.push(place);
    }
    NOW.store(Box::into_raw(Box::new(new)), Ordering::Release);
    Ok(count)
}

/// Links to files are followed, those to directories are not: they may lead anywhere.
fn below(dir: &Path, suffix: &[u8], depth: usize, found: &mut Files) -> Result<(), Errno> {
    for entry in fs::read_dir(dir).map_err(errno)? {
        let entry = entry.map_err(errno)?;
        let kind = entry.file_type().map_err(errno)?;
        let path = entry.path();
        if kind.is_dir() {
            // What can't be listed can't be loaded from either.
            let listed = if depth > 0 { below(&path, suffix, depth - 1, found) } else { Ok(()) };
            if listed == Err(Errno::TOOBIG) {
                return listed;
            }
        } else if entry.file_name().as_bytes().ends_with(suffix)
            && let Ok(file) = kernel::statx(libc::AT_FDCWD, path.as_os_str().as_bytes(), 0)
            && file.kind() == FileKind::File
        {
            if found.len() >= FILES_MAX {
                return Err(Errno::TOOBIG);
            }
            found.insert(file.id, file.btime);
        }
    }
    Ok(())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}

/// The path of C.
#[must_use]
pub fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}

/// The answer to a call on an excluded file. `is_stable` says whether a number is as the kernel has it.
pub fn answer(call: &Call, is_stable: impl FnOnce(i32) -> bool) -> Option<i64> {
    let excluded = now()?;
    let by_path = match call.number() {
        libc::SYS_open => opens_to_read(call.int(1)).then_some((0, true)),
        libc::SYS_openat => opens_to_read(call.int(2)).then_some((1, true)),
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => Some((0, false)),
        libc::SYS_newfstatat | libc::SYS_statx if call.int(0) >= 0 => None,
        libc::SYS_newfstatat | libc::SYS_statx | libc::SYS_faccessat | libc::SYS_faccessat2 => {
            Some((1, false))
        }
        _ => None,
    };
    if let Some((at, opens)) = by_path {
        return excluded.by_path(call, at, opens);
    }
    let at = number_of(call)?;
    let number = call.int(at);
    (number >= 0 && is_stable(number) && excluded.has_open(number)).then(|| call.make())
}

/// Which argument is the descriptor of a call that reads, or concerns the descriptor only.
fn number_of(call: &Call) -> Option<usize> {
    match call.number() {
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_lseek
        | libc::SYS_fstat
        | libc::SYS_fstatfs
        | libc::SYS_fadvise64
        | libc::SYS_readahead
        | libc::SYS_close => Some(0),
        libc::SYS_newfstatat if call.int(3) & libc::AT_EMPTY_PATH != 0 => Some(0),
        libc::SYS_statx if call.int(2) & libc::AT_EMPTY_PATH != 0 => Some(0),
        // Streams ask whether they are on a terminal.
        libc::SYS_ioctl
            if [libc::FIONREAD, libc::TCGETS, libc::TIOCGWINSZ].contains(&call.word(1)) =>
        {
            Some(0)
        }
        libc::SYS_fcntl => {
            use libc::{F_GETFD, F_GETFL, F_SETFD, F_SETFL};
            matches!(call.int(1), F_GETFD | F_SETFD | F_GETFL | F_SETFL).then_some(0)
        }
        libc::SYS_mmap => Some(4),
        // Go asks whether it can be polled.
        libc::SYS_epoll_ctl => Some(2),
        _ => None,
    }
}

/// Whether a call only looks at what is on the way to an excluded file: also a transaction that has failed
/// must find that file. (Java looks at each directory before it loads a library.)
pub fn is_on_the_way(call: &Call) -> bool {
    let at = match call.number() {
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access | libc::SYS_readlink => 0,
        libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_readlinkat => 1,
        _ => return false,
    };
    let (Some(excluded), Ok(path)) = (now(), call.path(at)) else { return false };
    excluded.places.iter().any(|(place, _)| is_below(place, &path) || is_below(&path, place))
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    path.starts_with(b"/")
        && path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn opens_to_read(flags: i32) -> bool {
    const KEPT: i32 = libc::O_CLOEXEC
        | libc::O_LARGEFILE
        | libc::O_NOCTTY
        | libc::O_NOFOLLOW
        | libc::O_NONBLOCK
        | libc::O_NOATIME;
    flags & !KEPT == libc::O_RDONLY
}

impl Excluded {
    fn has(&self, stat: &Stat) -> bool {
        self.files.get(&stat.id) == Some(&stat.btime)
    }

    fn by_path(&self, call: &Call, at: usize, opens: bool) -> Option<i64> {
        let path = call.path(at).ok()?;
        let fits = |(place, suffix): &(Vec<u8>, Vec<u8>)| {
            path.strip_prefix(place.as_slice()).is_some_and(|rest| {
                rest.is_empty() || (rest.starts_with(b"/") && path.ends_with(suffix))
            })
        };
        if !path.starts_with(b"/") || !self.places.iter().any(fits) {
            return None;
        }
        if !opens {
            let stat = kernel::statx(libc::AT_FDCWD, &path, 0).ok()?;
            return self.has(&stat).then(|| call.make());
        }
        let answer = call.make();
        let number = i32::try_from(answer).ok().filter(|&fd| fd >= 0)?;
        if self.has_open(number) {
            return Some(answer);
        }
        // Another file by now: it is opened as part of the transaction.
        kernel::close(number);
        None
    }

    /// Whether a number is open on one of them, a regular file only to be read from.
    fn has_open(&self, number: i32) -> bool {
        let Ok(stat) = kernel::look_fd(number) else { return false };
        self.has(&stat)
            && (stat.kind() != FileKind::File
                || kernel::status_flags(number)
                    .is_ok_and(|flags| flags & (libc::O_ACCMODE | libc::O_PATH) == libc::O_RDONLY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reading_opens_are_let_through() {
        for flags in [0, libc::O_CLOEXEC, libc::O_NOFOLLOW | libc::O_LARGEFILE] {
            assert!(opens_to_read(flags), "{flags:#o}");
        }
        for flags in [libc::O_RDWR, libc::O_WRONLY, libc::O_TRUNC, libc::O_CREAT, libc::O_PATH] {
            assert!(!opens_to_read(flags), "{flags:#o}");
        }
    }

    #[test]
    fn directories_are_on_the_way_to_what_is_in_them() {
        for dir in ["/", "/usr", "/usr/", "/usr/lib"] {
            assert!(is_below(b"/usr/lib", dir.as_bytes()), "{dir}");
        }
        for (path, dir) in [("/usr/lib64", "/usr/lib"), ("/", "/usr"), ("usr/lib", ""), ("", "/")] {
            assert!(!is_below(path.as_bytes(), dir.as_bytes()), "{path} {dir}");
        }
    }

    #[test]
    fn files_are_known_by_identity_and_by_the_end_of_their_names() {
        let top = std::env::temp_dir().join(format!("txos-excluded-{}", std::process::id()));
        fs::create_dir_all(top.join("deep")).unwrap();
        for name in ["deep/A.class", "deep/data", "B.class"] {
            fs::write(top.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("..", top.join("deep/up")).unwrap();
        assert_eq!(exclude(&top, b".class"), Ok(2));
        assert_eq!(exclude(&top.join("none"), b""), Err(Errno::NOENT));
        let known = |name: &str| {
            let path = std::ffi::CString::new(top.join(name).as_os_str().as_bytes()).unwrap();
            let words = [path.as_ptr() as u64, 0, 0, 0, 0, 0];
            // SAFETY: the path lives until the answer.
            let call = unsafe { Call::new(libc::SYS_open, words) };
            let answer = answer(&call, |_| true);
            if let Some(number) = answer {
                kernel::close(i32::try_from(number).unwrap());
            }
            answer.is_some()
        };
        assert_eq!(["deep/A.class", "B.class", "deep/data"].map(known), [true, true, false]);
        // Its name leads to another file now.
        fs::rename(top.join("deep/data"), top.join("B.class")).unwrap();
        assert!(!known("B.class"));
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn an_inode_that_is_made_anew_is_another_file() {
        let stat = kernel::statx(libc::AT_FDCWD, b"/", 0).unwrap();
        let mut excluded = Excluded::default();
        excluded.files.insert(stat.id, stat.btime);
        assert!(excluded.has(&stat));
        let later = Stamp { sec: stat.btime.map_or(0, |at| at.sec) + 1, nsec: 0 };
        assert!(!excluded.has(&Stat { btime: Some(later), ..stat }));
    }
}
