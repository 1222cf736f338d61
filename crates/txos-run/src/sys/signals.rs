//! Signals: what the monitor and the reaper ignore or collect, and what the command gets back.
//!
//! # Safety
//!
//! Dispositions and masks are process-wide state. [`Guard`] changes them for the time of a
//! transaction and puts them back; a child that is about to run a program calls
//! [`Guard::restore`]. No handler of ours runs code but [`wake`]'s empty one.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::session::tree;

/// Ignored by monitor and reaper: the terminal's signals are the command's.
const IGNORED: [i32; 5] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Collected through a descriptor: children's changes, and what is passed on to the command. All are
/// blocked from the beginning, so that no thread takes one; blocked, they are kept even if ignored.
const COLLECTED: [i32; 7] = [
    libc::SIGCHLD,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGINT,
    libc::SIGQUIT,
];

/// The dispositions and the mask as they were.
pub struct Guard {
    dispositions: Vec<(i32, libc::sigaction)>,
    mask: libc::sigset_t,
    collector: OwnedFd,
    /// Whether a key at the terminal is for us.
    takes_keys: bool,
    active: bool,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub number: i32,
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; sigaddset works on an initialised one.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn set_disposition(signal: i32, handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: `sigaction` is plain data for which all-zero is valid; SIG_IGN, SIG_DFL and the empty
    // handler run no Rust code that could be interrupted in an inconsistent state.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        libc::sigaction(signal, &raw const new, &raw mut old);
        old
    }
}

/// Signals whose disposition is handed from one process to another: all that can have one, but those that this
/// process's own libraries need.
fn that_can_be_ignored() -> impl Iterator<Item = i32> {
    let own = [libc::SIGKILL, libc::SIGSTOP, libc::SIGPIPE, 32, 33];
    (1..=libc::SIGRTMAX()).filter(move |signal| !own.contains(signal))
}

/// The signals that this process ignores, and so does each program that it starts. `SIGPIPE`, which the runtime of Rust
/// programs ignores, is left out.
#[must_use]
pub fn ignored() -> Vec<i32> {
    let is_ignored = |signal: &i32| {
        // SAFETY: all-zero is a valid `sigaction`; without a new one the call only fills in the old one.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, std::ptr::null(), &raw mut now) == 0
                && now.sa_sigaction == libc::SIG_IGN
        }
    };
    that_can_be_ignored().filter(is_ignored).collect()
}

/// Ignores these, and no others.
pub fn ignore_only(signals: &[i32]) {
    for signal in that_can_be_ignored() {
        let handler = if signals.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        set_disposition(signal, handler);
    }
}

/// Ends this process by a signal that has ended its command: whoever waits for it sees the same. Comes back if it does not end it.
pub fn end_by(signal: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let only = set_of(&[signal]);
    set_disposition(signal, libc::SIG_DFL);
    // SAFETY: the structures live as long as the calls. One dump of memory is enough: the command's.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
    }
}

impl Guard {
    /// Ignores the terminal's signals and collects the others, until dropped.
    ///
    /// # Errors
    /// If no descriptor can be had for it.
    pub fn take() -> io::Result<Guard> {
        let set = set_of(&COLLECTED);
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd gave us this descriptor just now; nobody else owns it.
        let collector = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut mask = set_of(&[]);
        // SAFETY: both sets are initialised.
        unsafe {
            let blocked = set_of(&COLLECTED);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut mask)
        };
        let mut dispositions: Vec<_> =
            IGNORED.iter().map(|&s| (s, set_disposition(s, libc::SIG_IGN))).collect();
        // An ignored SIGCHLD would reap children before we could ask for their status.
        dispositions.push((libc::SIGCHLD, set_disposition(libc::SIGCHLD, libc::SIG_DFL)));
        Ok(Guard { dispositions, mask, collector, takes_keys: false, active: true })
    }

    /// Puts everything back as it was; for a child, also SIGPIPE, which the runtime of Rust
    /// programs ignores.
    pub fn restore(&mut self, in_child: bool) {
        if !std::mem::replace(&mut self.active, false) {
            return;
        }
        if !in_child {
            // What arrived too late for the command is not meant for what comes after it.
            while self.next().is_some() {}
        }
        for (signal, old) in &self.dispositions {
            // SAFETY: `old` was filled in by sigaction.
            unsafe { libc::sigaction(*signal, &raw const *old, std::ptr::null_mut()) };
        }
        if in_child {
            set_disposition(libc::SIGPIPE, libc::SIG_DFL);
        }
        // SAFETY: `mask` was filled in by pthread_sigmask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut())
        };
    }

    /// The descriptor that becomes readable when a signal arrives.
    #[must_use]
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.collector.as_fd()
    }

    /// The next signal that has arrived, if any. An interrupt that a key at the terminal made is
    /// left out while there is a command: it is in the same group and has got it itself. One that
    /// a process sent to us is for us to pass on.
    #[must_use]
    pub fn next(&self) -> Option<Arrived> {
        loop {
            let (number, code) = self.read()?;
            let key = matches!(number, libc::SIGINT | libc::SIGQUIT) && code == libc::SI_KERNEL;
            if self.takes_keys || !key {
                return Some(Arrived { number });
            }
        }
    }

    /// Number and code of one signal.
    fn read(&self) -> Option<(i32, i32)> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is as large as one record; a read gives whole records or fails.
        let got = unsafe { libc::read(self.collector.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if got != size as isize {
            return None;
        }
        // SAFETY: the kernel filled it in entirely.
        let info = unsafe { info.assume_init() };
        i32::try_from(info.ssi_signo).ok().map(|number| (number, info.ssi_code))
    }

    /// From now on keys at the terminal are for us as well: nobody else is left.
    pub fn collect_interrupt(&mut self) {
        // Those that were meant for the command may be pending; ignoring anew drops them.
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            set_disposition(signal, libc::SIG_IGN);
        }
        self.takes_keys = true;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.restore(false);
    }
}

/// `pidfd_send_signal(2)` with any signal, real-time ones included.
///
/// # Errors
/// Its errno.
pub fn send(target: std::os::fd::BorrowedFd<'_>, number: i32) -> Result<(), rustix::io::Errno> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo asks the kernel to make one; everything else is a number.
    let r =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, target.as_raw_fd(), number, none, 0) };
    if r == 0 {
        return Ok(());
    }
    Err(rustix::io::Errno::from_io_error(&io::Error::last_os_error())
        .unwrap_or(rustix::io::Errno::IO))
}

/// Makes a blocking call of another thread return `EINTR`.
pub mod wake {
    use std::os::unix::thread::{JoinHandleExt, RawPthread};
    use std::sync::Once;
    use std::thread::JoinHandle;
    use std::time::Duration;

    extern "C" fn nothing(_: i32) {}

    fn signal() -> i32 {
        libc::SIGRTMAX() - 3
    }

    /// Installs the empty handler, once.
    pub fn prepare() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let handler: extern "C" fn(i32) = nothing;
            super::set_disposition(signal(), handler as libc::sighandler_t);
        });
    }

    /// Wakes the thread until it has ended. The caller has told it by other means to end.
    pub fn until_finished<T>(thread: &JoinHandle<T>) {
        let id: RawPthread = thread.as_pthread_t();
        while !thread.is_finished() {
            // SAFETY: the handle is not joined yet, so the id is valid even if the thread ended.
            unsafe { libc::pthread_kill(id, signal()) };
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Whether nobody in this process's session could continue its process group once it is stopped (`setpgid(2)`, orphaned process groups).
/// Of the group's members it looks at this process and at its ancestors. A parent outside of the PID namespace counts as one of another session.
#[must_use]
pub fn is_orphaned() -> bool {
    // Of a session or group that began outside of the namespace the kernel gives 0, which `rustix` does not expect.
    // SAFETY: these calls take and give numbers.
    let of = |pid| unsafe { (libc::getsid(pid), libc::getpgid(pid)) };
    let (session, group) = of(0);
    let parent = |pid| tree::process(pid).map(|process| process.parent).filter(|&pid| pid != 0);
    let own = rustix::process::getpid().as_raw_nonzero().get();
    std::iter::successors(parent(own), |&pid| parent(pid))
        .map(of)
        .find(|&(of_session, of_group)| of_session != session || of_group != group)
        .is_none_or(|(of_session, _)| of_session != session)
}
