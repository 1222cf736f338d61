//! What belongs to a user is the user's, whatever its mode says: calls that the mode of one's own file or
//! directory forbids, made nevertheless.
//!
//! An ordinary user may make a directory that cannot be written (0555), or not even be searched (0600), and a file
//! that cannot be read (0000). A commit has to look into the private copy of it, to move it, and to move it
//! back. The owner could change its mode and change it back; but whatever dies in between would leave the wrong
//! mode, and everybody would see it. So no mode is changed. Instead the call that was refused (EACCES) is made
//! again by a helper: a process in a user namespace in which this user has its own number and no other
//! exists. There it has CAP_DAC_OVERRIDE over what belongs to that user and group, and over nothing else.
//!
//! # Invariants
//!
//! - Nothing comes within reach that the user could not have by `chmod(2)`: the kernel asks the capability of the
//!   namespace only for inodes whose owner *and* group are this user's.
//! - It is done only where [`allow`] was called (the `txos` command) and while a [`Rights`] is held in this thread:
//!   by reading the private copies, publishing, undoing, recovering. Never by looking at what a command
//!   observes, and never by validating that: there the answer "permission denied" is an observation.
//! - The helper shares the table of descriptors, so that what it opens is open here. It dies with the thread that has
//!   started it, and so with the locks that both have.
//! - It makes one call at a time; while it does, this thread waits.
//!
//! # Safety
//!
//! Unsafe are `clone(2)` without shared memory (the child is a copy, with one thread; it allocates nothing and
//! calls nothing but system calls until `_exit(2)`), the mapping that both share, which lives as long as the
//! [`Helper`], and the calls that are passed on: every pointer in them leads into that mapping, to bytes whose
//! length was checked against it.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

type Sys<T> = Result<T, Errno>;

/// Whether this program may start helpers: not in a program of somebody else's.
static ALLOWED: AtomicBool = AtomicBool::new(false);

/// Lets this program's commits use the user's rights as an owner.
pub fn allow() {
    ALLOWED.store(true, Ordering::Relaxed);
}

#[derive(Default)]
struct State {
    /// How many [`Rights`] are held.
    held: u32,
    /// How many [`without`] are within them.
    suspended: u32,
    /// `Some(None)`: none could be started.
    helper: Option<Option<Helper>>,
    /// Whether this thread is the machine's root, as long as a [`Rights`] is held.
    privileged: Option<bool>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// While it is held, calls of this thread that fail for want of permission are made with the rights of
/// the owner.
#[derive(Debug)]
pub struct Rights(());

/// Begins to use the user's rights as an owner.
#[must_use]
pub fn rights() -> Rights {
    STATE.with_borrow_mut(|state| state.held += 1);
    Rights(())
}

impl Drop for Rights {
    fn drop(&mut self) {
        let ended = STATE.with_borrow_mut(|state| {
            state.held -= 1;
            if state.held > 0 {
                return None;
            }
            state.privileged = None;
            state.helper.take()
        });
        drop(ended);
    }
}

/// Whether this thread is the machine's root, asked once while a [`Rights`] is held: a thread takes no other credentials in
/// the middle of reading private copies or of publishing, where this is wanted for every extended attribute.
pub(crate) fn privileged(ask: impl FnOnce() -> bool) -> bool {
    let known = STATE.with_borrow(|state| state.privileged);
    known.unwrap_or_else(|| {
        let privileged = ask();
        STATE.with_borrow_mut(|state| {
            if state.held > 0 {
                state.privileged = Some(privileged);
            }
        });
        privileged
    })
}

/// Looks at something as the user may.
pub(crate) fn without<T>(look: impl FnOnce() -> T) -> T {
    STATE.with_borrow_mut(|state| state.suspended += 1);
    let seen = look();
    STATE.with_borrow_mut(|state| state.suspended -= 1);
    seen
}

/// Looks at something as its owner within [`without`]: what the transaction itself has closed to its user.
pub(crate) fn nevertheless<T>(look: impl FnOnce() -> T) -> T {
    let suspended = STATE.with_borrow_mut(|state| std::mem::take(&mut state.suspended));
    let seen = look();
    STATE.with_borrow_mut(|state| state.suspended = suspended);
    seen
}

/// An argument of a call.
pub(crate) enum Arg<'a> {
    Fd(BorrowedFd<'a>),
    Number(u64),
    /// A path or a name.
    Text(&'a [u8]),
    /// What is read.
    Bytes(&'a [u8]),
    /// What is written.
    Room(&'a mut [u8]),
}

/// The result of a call; if it was refused for want of permission and the owner's rights are held, of the
/// same one made with those.
pub(crate) fn or_as_owner<'a, T, const N: usize>(
    result: Sys<T>,
    number: libc::c_long,
    args: impl FnOnce() -> [Arg<'a>; N],
    then: impl FnOnce(u64) -> T,
) -> Sys<T> {
    let Err(Errno::ACCESS) = result else { return result };
    if !ALLOWED.load(Ordering::Relaxed) {
        return result;
    }
    STATE.with_borrow_mut(|state| {
        if state.held == 0 || state.suspended > 0 {
            return result;
        }
        match state.helper.get_or_insert_with(|| Helper::start().ok()) {
            Some(helper) => helper.call(number, &mut args()).map(then),
            None => result,
        }
    })
}

/// Opens an object for nothing but its place, with the owner's rights, if they are held.
pub(crate) fn open_place(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: rustix::fs::OFlags,
) -> Sys<OwnedFd> {
    use rustix::fs::OFlags;
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let args = || [at(dir), Arg::Text(path), Arg::Number(flags.bits().into()), Arg::Number(0)];
    or_as_owner(Err(Errno::ACCESS), libc::SYS_openat, args, opened)
}

/// A descriptor that a call has opened.
pub(crate) fn opened(number: u64) -> OwnedFd {
    // SAFETY: the helper has just opened it in the table that is this process's, for nobody else.
    unsafe { OwnedFd::from_raw_fd(number as RawFd) }
}

/// What both share: the call, and behind it what its pointers lead to.
#[repr(C)]
struct Call {
    number: i64,
    args: [u64; 6],
    result: i64,
}

const SHARED_LEN: usize = 512 * 1024;
const HEAD_LEN: usize = size_of::<Call>();

/// The process, and the ways to it.
struct Helper {
    pid: libc::pid_t,
    process: OwnedFd,
    ask: OwnedFd,
    answers: OwnedFd,
    /// Its ends of them: the table of descriptors is the same.
    _its: [OwnedFd; 2],
    shared: *mut u8,
}

impl Helper {
    fn start() -> Sys<Helper> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (asked, ask) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answers, answer) = pipe_with(PipeFlags::CLOEXEC)?;
        let (user, group) =
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let maps = [
            (c"/proc/self/setgroups", "deny".to_owned()),
            (c"/proc/self/uid_map", format!("{user} {user} 1")),
            (c"/proc/self/gid_map", format!("{group} {group} 1")),
        ];
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, where the kernel chooses.
        let shared =
            unsafe { libc::mmap(std::ptr::null_mut(), SHARED_LEN, protection, flags, -1, 0) };
        if shared == libc::MAP_FAILED {
            return Err(Errno::NOMEM);
        }
        let shared = shared.cast::<u8>();
        let parent = std::process::id();
        // SAFETY: plain data, filled in by the calls below; signals are as before when this thread goes on. The
        // child is as the head of this file says.
        let pid = unsafe {
            let mut every: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut every);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
            let pid = libc::syscall(libc::SYS_clone, libc::CLONE_FILES, 0, 0, 0, 0);
            if pid == 0 {
                serve(parent, &maps, asked.as_raw_fd(), answer.as_raw_fd(), shared);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            pid as libc::pid_t
        };
        let started = rustix::process::Pid::from_raw(pid).ok_or(Errno::AGAIN).and_then(|child| {
            rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty())
        });
        let process = match started {
            Ok(process) => process,
            Err(error) => {
                end(pid);
                // SAFETY: it was mapped above, and nobody uses it any more.
                unsafe { libc::munmap(shared.cast(), SHARED_LEN) };
                return Err(error);
            }
        };
        let helper = Helper { pid, process, ask, answers, _its: [asked, answer], shared };
        // It says when it has its namespace, or ends.
        helper.answered()?;
        Ok(helper)
    }

    /// Waits until it has answered.
    fn answered(&self) -> Sys<()> {
        loop {
            let mut fds = [
                PollFd::new(&self.answers, PollFlags::IN),
                PollFd::new(&self.process, PollFlags::IN),
            ];
            match rustix::event::poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let [answered, ended] = fds.map(|fd| !fd.revents().is_empty());
            if answered {
                let mut one = [0];
                return rustix::io::read(&self.answers, &mut one).map(drop);
            }
            if ended {
                return Err(Errno::ACCESS);
            }
        }
    }

    fn call(&self, number: libc::c_long, args: &mut [Arg<'_>]) -> Sys<u64> {
        let mut call = Call { number, args: [0; 6], result: 0 };
        let mut next = HEAD_LEN;
        let mut places = [0; 6];
        for ((arg, word), place) in args.iter().zip(&mut call.args).zip(&mut places) {
            *place = next;
            let (bytes, end): (&[u8], usize) = match arg {
                Arg::Fd(fd) => {
                    *word = fd.as_raw_fd() as i64 as u64;
                    continue;
                }
                Arg::Number(number) => {
                    *word = *number;
                    continue;
                }
                Arg::Text(text) if text.contains(&0) => return Err(Errno::INVAL),
                Arg::Text(text) => (text, 1),
                Arg::Bytes(bytes) => (bytes, 0),
                Arg::Room(room) => (room, 0),
            };
            if bytes.len() + end + 8 > SHARED_LEN - next {
                return Err(Errno::NAMETOOLONG);
            }
            // SAFETY: from `next` on there is room for as many, and the helper waits.
            unsafe {
                let to = self.shared.add(next);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                to.add(bytes.len()).write_bytes(0, end);
                *word = to as u64;
            }
            next = (next + bytes.len() + end).next_multiple_of(8);
        }
        // SAFETY: the mapping is page-aligned and longer than that, and the helper waits.
        unsafe { self.shared.cast::<Call>().write_volatile(call) };
        rustix::io::retry_on_intr(|| rustix::io::write(&self.ask, &[1]))?;
        self.answered()?;
        // SAFETY: as above; it has answered.
        let result = unsafe { self.shared.cast::<Call>().read_volatile() }.result;
        if result < 0 {
            return Err(Errno::from_raw_os_error((-result) as i32));
        }
        for (arg, place) in args.iter_mut().zip(places) {
            if let Arg::Room(room) = arg {
                // SAFETY: as many were reserved there above.
                unsafe {
                    let from = self.shared.add(place);
                    std::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), room.len());
                }
            }
        }
        Ok(result as u64)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        end(self.pid);
        // SAFETY: it was mapped for this, and the other one is gone.
        unsafe { libc::munmap(self.shared.cast(), SHARED_LEN) };
    }
}

/// Ends a child that tells nobody of its end.
fn end(pid: libc::pid_t) {
    if pid <= 0 {
        return;
    }
    // SAFETY: numbers only, and the status is not asked for. It is our child, and so nobody else's number.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        while libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) < 0
            && *libc::__errno_location() == libc::EINTR
        {}
    }
}

/// The helper.
///
/// # Safety
///
/// To be called in a child that shares no memory but the mapping at `shared`, which is as long as
/// [`SHARED_LEN`].
unsafe fn serve(
    parent: u32,
    maps: &[(&std::ffi::CStr, String)],
    asked: RawFd,
    answer: RawFd,
    shared: *mut u8,
) -> ! {
    // SAFETY: system calls with memory of this process's; what is passed on is as `Helper::call` has written it.
    unsafe {
        let die = || -> ! { libc::_exit(1) };
        if libc::unshare(libc::CLONE_NEWUSER) != 0 {
            die();
        }
        for (path, text) in maps {
            let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            let written = libc::write(fd, text.as_ptr().cast(), text.len());
            libc::close(fd);
            if written < 0 {
                die();
            }
        }
        // What this process becomes has cleared it, so only now; and perhaps too late.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() as u32 != parent {
            die();
        }
        let mut one = 1u8;
        loop {
            if libc::write(answer, (&raw const one).cast(), 1) != 1
                || libc::read(asked, (&raw mut one).cast(), 1) != 1
            {
                die();
            }
            let call = shared.cast::<Call>();
            let Call { number, args: [a, b, c, d, e, f], .. } = call.read_volatile();
            let result = libc::syscall(number, a, b, c, d, e, f);
            let result = if result == -1 { -i64::from(*libc::__errno_location()) } else { result };
            (&raw mut (*call).result).write_volatile(result);
        }
    }
}

/// A directory from which a call starts.
pub(crate) fn at(dir: BorrowedFd<'_>) -> Arg<'_> {
    Arg::Fd(dir)
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    /// Without [`allow`] nothing is done, and nothing outside a scope of rights.
    #[test]
    fn it_is_asked_for() {
        let refused = || or_as_owner(Err(Errno::ACCESS), libc::SYS_getpid, || [], |pid| pid);
        assert_eq!(refused(), Err(Errno::ACCESS));
        let held = rights();
        assert_eq!(refused(), Err(Errno::ACCESS));
        allow();
        let helper = refused();
        // Where there are no user namespaces nothing changes.
        if let Ok(pid) = helper {
            assert_ne!(pid, u64::from(std::process::id()));
            assert_eq!(refused(), Ok(pid));
            assert_eq!(without(refused), Err(Errno::ACCESS));
            let other = or_as_owner(Err(Errno::NOENT), libc::SYS_getpid, || [], |pid| pid);
            assert_eq!(other, Err(Errno::NOENT));
            let long = vec![b'x'; SHARED_LEN];
            let call = |text| {
                let args = || [Arg::Text(text), Arg::Number(0)];
                or_as_owner(Err(Errno::ACCESS), libc::SYS_access, args, |n| n)
            };
            assert_eq!(call(&long), Err(Errno::NAMETOOLONG));
            assert_eq!(call(b"/"), Ok(0));
            assert_eq!(call(b"/nothing/here"), Err(Errno::NOENT));
        }
        drop(held);
        assert_eq!(refused(), Err(Errno::ACCESS));
        ALLOWED.store(false, Ordering::Relaxed);
    }
}
