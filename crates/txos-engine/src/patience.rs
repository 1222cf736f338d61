//! Looking where somebody else may have to answer: in a file system that a user serves (FUSE), a look lasts as
//! long as that user likes, and no signal ends it.
//!
//! A process that looks on behalf of others, or while it holds what others wait for, asks for a bound
//! ([`begin`]). From then on such a look is made on a thread of its own, which is left behind when the
//! patience is over; whoever asked is told `ETIMEDOUT`, which tells nothing of what is there. Everybody
//! else looks as ever: what stops them is what would have stopped them anyway.
//!
//! # Invariants
//!
//! - What the kernel knows without asking anybody is not bounded, and costs nothing
//!   ([`rustix::fs::ResolveFlags::CACHED`]).
//! - No more than [`LEFT_MAX`] threads are left behind. Then what is not known is not looked at.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

/// How long a look may take.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How many threads are left behind at the most.
const LEFT_MAX: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

static BOUNDED: AtomicBool = AtomicBool::new(false);
static LEFT: AtomicUsize = AtomicUsize::new(0);
static IDLE: Mutex<Vec<Sender<Work>>> = Mutex::new(Vec::new());

/// From now on this process waits for no look longer than [`PATIENCE`].
pub fn begin() {
    BOUNDED.store(true, Ordering::Relaxed);
}

/// Starts a thread for a look that will come. Without one, it is started then.
pub fn prepare() {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.is_empty()
        && let Ok(worker) = start()
    {
        idle.push(worker);
    }
}

/// Does something that may ask a file system which somebody serves.
///
/// # Errors
/// Its own; `ETIMEDOUT` if it takes too long, or would have to wait for what took too long before; `EAGAIN`
/// if there is no thread.
pub fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Errno> + Send + 'static,
) -> Result<T, Errno> {
    if !BOUNDED.load(Ordering::Relaxed) {
        return work();
    }
    bounded(work, PATIENCE)
}

fn bounded<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Errno> + Send + 'static,
    patience: Duration,
) -> Result<T, Errno> {
    if LEFT.load(Ordering::Relaxed) >= LEFT_MAX {
        return Err(Errno::TIMEDOUT);
    }
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let worker = match idle {
        Some(worker) => worker,
        None => start().map_err(|_| Errno::AGAIN)?,
    };
    let (answer, outcome) = channel();
    LEFT.fetch_add(1, Ordering::Relaxed);
    let work: Work = Box::new(move || {
        let done = work();
        LEFT.fetch_sub(1, Ordering::Relaxed);
        // Nobody waits any more if it took too long.
        let _ = answer.send(done);
    });
    if worker.send(work).is_err() {
        LEFT.fetch_sub(1, Ordering::Relaxed);
        return Err(Errno::AGAIN);
    }
    let done = outcome.recv_timeout(patience).map_err(|_| Errno::TIMEDOUT)?;
    // One that was left behind ends with its work: nobody can send it more.
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    done
}

fn start() -> std::io::Result<Sender<Work>> {
    let (work, orders) = channel::<Work>();
    let worker = std::thread::Builder::new().name("txos-looks".into());
    worker.spawn(move || orders.into_iter().for_each(|work| work()))?;
    Ok(work)
}

/// `openat2(2)` with `O_PATH`, which opens nothing and only finds.
///
/// # Errors
/// Its own; as of [`run`].
pub fn find(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let open = move |dir: BorrowedFd<'_>, path: &[u8], resolve| {
        rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)
    };
    if !BOUNDED.load(Ordering::Relaxed) {
        return open(dir, path, resolve);
    }
    match open(dir, path, resolve | ResolveFlags::CACHED) {
        // It would have to ask; or the kernel does not know the question (before Linux 5.12).
        Err(Errno::AGAIN | Errno::INVAL) => {}
        known => return known,
    }
    let path = path.to_vec();
    if dir.as_raw_fd() == rustix::fs::CWD.as_raw_fd() {
        return run(move || open(rustix::fs::CWD, &path, resolve));
    }
    let dir = rustix::io::fcntl_dupfd_cloexec(dir, 0)?;
    run(move || open(dir.as_fd(), &path, resolve))
}

/// The target of the symbolic link at an absolute path; `None` for anything else, and for nothing.
///
/// # Errors
/// As of [`run`].
pub fn read_link(path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let read = |path: &[u8]| {
        let target = rustix::fs::readlinkat(rustix::fs::CWD, path, Vec::with_capacity(256));
        target.ok().map(|target| target.into_bytes())
    };
    if !BOUNDED.load(Ordering::Relaxed) {
        return Ok(read(path));
    }
    // What the kernel knows to be no link is not read.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let cached = ResolveFlags::CACHED;
    match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), cached) {
        Ok(found) if kind(&found).is_ok_and(|kind| kind != FileType::Symlink) => return Ok(None),
        Ok(_) | Err(Errno::AGAIN | Errno::INVAL) => {}
        Err(_) => return Ok(None),
    }
    let path = path.to_vec();
    run(move || Ok(read(&path)))
}

/// What kind of thing was found, as the kernel knows it: its file system is not asked.
///
/// # Errors
/// Of `statx(2)`.
pub fn kind(found: &OwnedFd) -> Result<FileType, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(found, c"", flags, StatxFlags::TYPE)?;
    Ok(FileType::from_raw_mode(found.stx_mode.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn what_takes_too_long_is_left_behind() {
        let (free, wait) = channel::<()>();
        let stuck = move || wait.recv().map_err(|_| Errno::IO);
        assert_eq!(bounded(stuck, Duration::from_millis(1)), Err(Errno::TIMEDOUT));
        // Others are not behind it.
        assert_eq!(bounded(|| Ok(7), Duration::from_secs(60)), Ok(7));
        assert_eq!(
            bounded(|| Err::<(), _>(Errno::NOENT), Duration::from_secs(60)),
            Err(Errno::NOENT)
        );
        drop(free);
    }

    #[test]
    fn finding_is_finding() {
        let find = |path: &[u8], flags| {
            find(rustix::fs::CWD, path, flags, ResolveFlags::empty()).map(drop)
        };
        assert_eq!(find(b"/proc/self", OFlags::DIRECTORY), Ok(()));
        assert_eq!(find(b"/no such", OFlags::empty()), Err(Errno::NOENT));
        assert_eq!(find(b"/proc/self/status", OFlags::DIRECTORY), Err(Errno::NOTDIR));
    }

    #[test]
    fn links_are_read_and_nothing_else_is() {
        BOUNDED.store(true, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("txos-read-link-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink("to/here", dir.join("link")).unwrap();
        let read = |name: &str| read_link(dir.join(name).as_os_str().as_bytes());
        let target = read("link");
        let others = [".", "nothing", "nothing/at/all"].map(read);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(target, Ok(Some(b"to/here".to_vec())));
        assert_eq!(others, [Ok(None), Ok(None), Ok(None)]);
    }
}
