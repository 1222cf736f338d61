//! The root gate: while a publish is under way, opens of the objects in its write set wait.
//!
//! A fanotify permission group with one mark per object: the old ones, the new ones, and new
//! directories with their children. Nothing else on the machine is slowed or stopped, and the
//! kernel lets everything through when the group's holder dies (fanotify(7)).
//!
//! # Why both old and new
//!
//! An outsider that opens a new object before the end would next see an old one elsewhere; so new
//! objects wait. An outsider that opens an old object waits too and gets the old one, which is
//! the order "it opened, then the commit happened". That is unless it opens for *writing*: a
//! write to an inode that is being replaced would be lost, so [`Gate::writer_waits`] tells, and
//! the publish is undone before the writer is let through.
//!
//! # Safety
//!
//! Unsafe here are the two fanotify calls, which rustix does not have, and reading event structures
//! out of a buffer of theirs.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

/// A thread of an outsider that waits in open(2).
#[derive(Debug)]
struct Held {
    tid: i32,
    /// The event's descriptor, by which it is answered.
    fd: OwnedFd,
}

/// A closed gate; opening it is dropping it.
#[derive(Debug)]
pub(super) struct Gate {
    group: Arc<OwnedFd>,
    held: Arc<Mutex<Vec<Held>>>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Gate {
    /// A gate that holds nothing yet; `None` where the kernel does not let us (not root).
    pub fn new() -> Option<Gate> {
        // Each waiting open costs a descriptor; with none left the kernel would refuse the open.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
        // SAFETY: fanotify_init takes two integers and returns a new descriptor or -1.
        let raw = unsafe {
            libc::fanotify_init(
                libc::FAN_CLASS_CONTENT
                    | libc::FAN_CLOEXEC
                    | libc::FAN_NONBLOCK
                    | libc::FAN_REPORT_TID
                    | libc::FAN_UNLIMITED_QUEUE
                    | libc::FAN_UNLIMITED_MARKS,
                (libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC) as libc::c_uint,
            )
        };
        if raw < 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "no gate");
            return None;
        }
        // SAFETY: `raw` is a descriptor that the kernel just made for us; nobody else owns it.
        let group = Arc::new(unsafe { OwnedFd::from_raw_fd(raw) });
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok()?;
        let held = Arc::new(Mutex::new(Vec::new()));
        let thread = {
            let (group, held) = (Arc::clone(&group), Arc::clone(&held));
            let stop = stop.try_clone().ok()?;
            std::thread::Builder::new()
                .name("txos-gate".into())
                .spawn(move || serve(&group, &stop, &held))
                .ok()?
        };
        Some(Gate { group, held, stop, thread: Some(thread) })
    }

    /// Holds opens of the entry `name` of `dir` (not followed) from now on.
    ///
    /// # Errors
    /// The errno of `fanotify_mark(2)`.
    pub fn hold(&self, dir: BorrowedFd<'_>, name: &[u8], is_dir: bool) -> Result<(), Errno> {
        let mut mask = libc::FAN_OPEN_PERM | libc::FAN_OPEN_EXEC_PERM;
        if is_dir {
            mask |= libc::FAN_ONDIR | libc::FAN_EVENT_ON_CHILD;
        }
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        // SAFETY: all arguments are integers but `name`, a NUL-terminated string that outlives the call.
        let failed = unsafe {
            libc::fanotify_mark(
                self.group.as_raw_fd(),
                libc::FAN_MARK_ADD | libc::FAN_MARK_DONT_FOLLOW,
                mask,
                dir.as_raw_fd(),
                name.as_ptr(),
            )
        };
        if failed == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }

    /// A thread that waits to open an object of the write set for writing, if there is one.
    pub fn writer_waits(&self) -> Option<i32> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|h| h.tid).find(|&tid| opens_for_writing(tid))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for held in self.held.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            allow(self.group.as_fd(), held.fd.as_fd());
        }
        // Closing the group lets through whatever came since.
    }
}

/// Answers our own opens at once and keeps everybody else's.
fn serve(group: &OwnedFd, stop: &OwnedFd, held: &Mutex<Vec<Held>>) {
    let mut buffer = vec![0u8; 16 * 1024];
    loop {
        let mut fds = [PollFd::new(group, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if fds.get(1).is_some_and(|f| !f.revents().is_empty()) {
            return;
        }
        let n = match rustix::io::read(group, &mut buffer[..]) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(_) => return,
        };
        let mut rest = buffer.get(..n).unwrap_or_default();
        while let Some(event) = next_event(&mut rest) {
            if event.fd < 0 {
                continue;
            }
            // SAFETY: the kernel opened this descriptor for us in the event; it is ours to close.
            let fd = unsafe { OwnedFd::from_raw_fd(event.fd) };
            if is_own_thread(event.pid) {
                allow(group.as_fd(), fd.as_fd());
            } else {
                let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
                held.push(Held { tid: event.pid, fd });
            }
        }
    }
}

/// Whether a thread is one of this process.
fn is_own_thread(tid: i32) -> bool {
    rustix::fs::access(format!("/proc/self/task/{tid}"), rustix::fs::Access::EXISTS).is_ok()
}

/// Takes one event off the front of a buffer.
fn next_event(rest: &mut &[u8]) -> Option<libc::fanotify_event_metadata> {
    const LEN: usize = std::mem::size_of::<libc::fanotify_event_metadata>();
    let bytes = rest.get(..LEN)?;
    // SAFETY: `bytes` holds LEN bytes of a plain-data structure without invalid values;
    // read_unaligned asks for no alignment.
    let event: libc::fanotify_event_metadata =
        unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
    if event.vers != libc::FANOTIFY_METADATA_VERSION {
        return None;
    }
    *rest = rest.get(event.event_len as usize..)?;
    Some(event)
}

fn allow(group: BorrowedFd<'_>, fd: BorrowedFd<'_>) {
    let mut answer = [0u8; 8];
    answer[..4].copy_from_slice(&fd.as_raw_fd().to_ne_bytes());
    answer[4..].copy_from_slice(&libc::FAN_ALLOW.to_ne_bytes());
    let _ = rustix::io::write(group, &answer);
}

const _: () = assert!(std::mem::size_of::<libc::fanotify_response>() == 8);

/// Whether a thread that is stopped inside an open call asked for write access, by the arguments
/// in `/proc/TID/syscall`. When that can't be read the answer is yes: better undo than lose a write.
fn opens_for_writing(tid: i32) -> bool {
    if tid == 0 {
        // A thread of another pid namespace has no number here: nobody can tell what it wants.
        return true;
    }
    let Ok(text) = std::fs::read_to_string(format!("/proc/{tid}/syscall")) else {
        // Gone: it opens nothing any more.
        return std::path::Path::new(&format!("/proc/{tid}")).exists();
    };
    let mut words = text.split_whitespace();
    let Some(number) = words.next().and_then(|w| w.parse::<i64>().ok()) else { return true };
    let args: Vec<u64> =
        words.map_while(|w| u64::from_str_radix(w.strip_prefix("0x")?, 16).ok()).collect();
    let writes = |flags: u64| {
        flags & (libc::O_ACCMODE as u64) != libc::O_RDONLY as u64
            || flags & (libc::O_TRUNC as u64) != 0
    };
    match number {
        libc::SYS_openat => args.get(2).is_none_or(|&f| writes(f)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => args.get(1).is_none_or(|&f| writes(f)),
        libc::SYS_execve | libc::SYS_execveat => false,
        // openat2 has its flags in memory; creat always writes; anything else opened in passing.
        _ => true,
    }
}
