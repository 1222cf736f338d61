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
//! the order "it opened, then the commit happened".
//!
//! # Writers
//!
//! That order does not do for who opens for *writing*: a write to an inode that is not in the tree any
//! more would be lost. So a publish gives way to a writer that waits for an old object
//! ([`Gate::writer_waits`]), and does not to one that waits for a new one, which would be lost by
//! just that. Where both wait, or the publish is undone for another reason, or a writer comes after
//! the last look: who waits to write to what has come to lie aside is refused (`EPERM`, the only answer that
//! fanotify has), for an error is better than a write that goes nowhere. An open cannot be sent back to look up its path anew.
//!
//! # Safety
//!
//! Unsafe here are the two fanotify calls, which rustix does not have, and reading event structures
//! out of a buffer of theirs.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::inplace;
use crate::object::FileId;
use crate::plan::{Does, Plan};
use crate::version::stat_at;

/// Where the objects of a publish are before and after it.
#[derive(Debug, Default)]
struct Sides {
    /// In the tree before, aside after it.
    old: HashSet<FileId>,
    /// Aside before, in the tree after it.
    new: HashSet<FileId>,
    /// Directories that are made anew: they are removed, whatever comes of the publish.
    rebuilt: HashSet<FileId>,
    /// What lies aside lies below these; for objects within directories that come or go.
    stores: Vec<PathBuf>,
}

impl Sides {
    fn of(plan: &Plan) -> Sides {
        let mut sides = Sides::default();
        let mut moved = HashSet::new();
        for op in &plan.ops {
            let (base, new) = (op.base.map(|v| v.id), op.new.map(|v| v.id));
            match op.does {
                Does::Install(_) => sides.new.extend(new),
                Does::Exchange { .. } => {
                    sides.old.extend(base);
                    sides.new.extend(new);
                }
                Does::Remove { .. }
                | Does::MoveIn { .. }
                | Does::Link { .. }
                | Does::Rebuild(_) => {
                    sides.old.extend(base);
                }
                Does::MoveOut { .. } => moved.extend(base),
                Does::Data(_) | Does::Patch { .. } | Does::Attrs { .. } | Does::DirTime { .. } => {}
            }
            // Another of its names stays.
            if op.base.is_some_and(|v| v.nlink > 1) && matches!(op.does, Does::Remove { .. }) {
                moved.extend(base);
            }
        }
        for op in &plan.ops {
            let Does::Rebuild(directory) = &op.does else { continue };
            let inside = directory.inside.iter().filter(|one| one.anew);
            sides.rebuilt.extend(inside.map(|one| one.version.id).chain(op.base.map(|v| v.id)));
        }
        sides.old.retain(|id| !moved.contains(id));
        sides.stores = plan.layers.iter().map(|l| l.store.clone()).collect();
        sides
    }

    /// Whether an open object is out of the tree once the publish is there, or is not.
    fn aside(&self, fd: BorrowedFd<'_>, published: bool) -> bool {
        let Ok(version) = stat_at(fd, b"", AtFlags::EMPTY_PATH) else { return false };
        if self.old.contains(&version.id) {
            return published;
        }
        if self.new.contains(&version.id) {
            return !published;
        }
        std::fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()))
            .is_ok_and(|path| self.stores.iter().any(|store| path.starts_with(store)))
    }
}

impl Sides {
    /// Whether an open object is a directory that was made anew: there is nothing in it any more, and there is elsewhere.
    fn is_gone(&self, fd: BorrowedFd<'_>) -> bool {
        !self.rebuilt.is_empty()
            && stat_at(fd, b"", AtFlags::EMPTY_PATH).is_ok_and(|v| self.rebuilt.contains(&v.id))
            && std::fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd()))
                .is_ok_and(|path| path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)"))
    }
}

/// A thread of an outsider that waits in open(2).
#[derive(Debug)]
struct Held {
    tid: i32,
    /// The event's descriptor, by which it is answered.
    fd: OwnedFd,
}

impl Held {
    /// Whether it asked for write access. The kernel has counted it among the writers by now, so
    /// without a writer it is none; with several that wait for one object, their calls say who it is.
    fn writes(&self) -> bool {
        inplace::lease_refused(self.fd.as_fd()) && opens_for_writing(self.tid)
    }
}

/// A closed gate. Dropping it opens it for everybody; see [`Gate::open`].
#[derive(Debug)]
pub(super) struct Gate {
    sides: Sides,
    group: Arc<OwnedFd>,
    held: Arc<Mutex<Vec<Held>>>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Gate {
    /// A gate for a plan that holds nothing yet; `None` where the kernel does not let us (not root).
    pub fn new(plan: &Plan) -> Option<Gate> {
        Self::made(Sides::of(plan))
    }

    fn made(sides: Sides) -> Option<Gate> {
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
        Some(Gate { sides, group, held, stop, thread: Some(thread) })
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

    /// A thread that waits to write to an object that the publish has taken out of the tree, if there
    /// is one. A thread that has been killed as it waited is not asked after.
    ///
    /// Looks at whoever has come until now: also at those whom the gate's thread, which has yet to be
    /// woken for them, has not taken in.
    pub fn writer_waits(&self) -> Option<i32> {
        take_in(&self.group, &self.held);
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|h| self.sides.aside(h.fd.as_fd(), true) && h.writes()).map(|h| h.tid)
    }

    /// Opens the gate: of a publish that stands, or of one that was undone. Everybody goes on, but for
    /// those who would write to what is not in the tree.
    pub fn open(mut self, published: bool) {
        self.stop();
        take_in(&self.group, &self.held);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for held in held.drain(..) {
            let lost = self.sides.aside(held.fd.as_fd(), published) && held.writes();
            let gone = self.sides.is_gone(held.fd.as_fd());
            if gone {
                tracing::warn!(pid = held.tid, "refused to open a directory that was made anew");
            } else if lost {
                tracing::warn!(
                    pid = held.tid,
                    "refused to open a file for writing that was replaced"
                );
            }
            answer(self.group.as_fd(), held.fd.as_fd(), !lost && !gone);
        }
    }

    /// Ends the thread: what comes from now on stays in the kernel's queue.
    fn stop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop();
        for held in self.held.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            answer(self.group.as_fd(), held.fd.as_fd(), true);
        }
        // Closing the group lets through whatever came since.
    }
}

/// Answers our own opens at once and keeps everybody else's, until it is told to stop.
fn serve(group: &OwnedFd, stop: &OwnedFd, held: &Mutex<Vec<Held>>) {
    loop {
        let mut fds = [PollFd::new(group, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if fds.get(1).is_some_and(|f| !f.revents().is_empty()) || !take_in(group, held) {
            return;
        }
    }
}

/// Takes in everybody who has come to the gate. `false` if the group does not answer any more.
///
/// Two threads may do this at once; who comes back has seen all that came before it was called,
/// because it is done with the list locked.
fn take_in(group: &OwnedFd, held: &Mutex<Vec<Held>>) -> bool {
    let mut buffer = [0u8; 4096];
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let n = match rustix::io::read(group, &mut buffer[..]) {
            Ok(n) => n,
            Err(Errno::AGAIN) => return true,
            Err(Errno::INTR) => continue,
            Err(_) => return false,
        };
        let mut rest = buffer.get(..n).unwrap_or_default();
        while let Some(event) = next_event(&mut rest) {
            if event.fd < 0 {
                continue;
            }
            // SAFETY: the kernel opened this descriptor for us in the event; it is ours to close.
            let fd = unsafe { OwnedFd::from_raw_fd(event.fd) };
            if is_own_thread(event.pid) {
                answer(group.as_fd(), fd.as_fd(), true);
            } else {
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

/// Lets an open through, or refuses it.
fn answer(group: BorrowedFd<'_>, fd: BorrowedFd<'_>, through: bool) {
    let verdict = if through { libc::FAN_ALLOW } else { libc::FAN_DENY };
    let mut answer = [0u8; 8];
    answer[..4].copy_from_slice(&fd.as_raw_fd().to_ne_bytes());
    answer[4..].copy_from_slice(&verdict.to_ne_bytes());
    let _ = rustix::io::write(group, &answer);
}

const _: () = assert!(std::mem::size_of::<libc::fanotify_response>() == 8);

/// How often a thread is looked at that is on its way to sleep at the gate.
const LOOKS_MAX: usize = 20_000;

/// Whether a thread that is stopped inside an open call asked for write access, by the arguments
/// in `/proc/TID/syscall`. When that can't be read the answer is yes: better undo than lose a write.
fn opens_for_writing(tid: i32) -> bool {
    if tid == 0 {
        // A thread of another pid namespace has no number here: nobody can tell what it wants.
        return true;
    }
    let path = format!("/proc/{tid}/syscall");
    let mut looks = 0;
    let text = loop {
        match std::fs::read_to_string(&path) {
            // It has come to the gate, but does not sleep yet.
            Ok(text) if text.starts_with("running") && looks < LOOKS_MAX => {
                looks += 1;
                std::thread::yield_now();
            }
            Ok(text) => break text,
            // Gone: it opens nothing any more.
            Err(_) => return std::path::Path::new(&format!("/proc/{tid}")).exists(),
        }
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

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A gate on two files, `old` and `new`, that change places.
    fn gate(dir: &std::path::Path) -> Option<Gate> {
        let at =
            rustix::fs::open(dir, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let id = |name: &[u8]| stat_at(at.as_fd(), name, AtFlags::empty()).unwrap().id;
        for name in ["old", "new"] {
            std::fs::write(dir.join(name), "content\n").unwrap();
        }
        let sides =
            Sides { old: [id(b"old")].into(), new: [id(b"new")].into(), ..Sides::default() };
        let gate = Gate::made(sides)?;
        gate.hold(at.as_fd(), b"old", false).unwrap();
        gate.hold(at.as_fd(), b"new", false).unwrap();
        Some(gate)
    }

    /// Somebody who comes to the gate, and is there.
    fn comes(gate: &Gate, dir: &std::path::Path, script: &str) -> Child {
        let before = gate.held.lock().unwrap().len();
        let child = Command::new("/bin/sh").args(["-c", script]).current_dir(dir).spawn().unwrap();
        while gate.held.lock().unwrap().len() == before {
            std::thread::yield_now();
        }
        child
    }

    fn ended_well(mut child: Child) -> bool {
        child.wait().unwrap().success()
    }

    #[test]
    fn writers_are_told_by_what_they_write_to() {
        let dir = tempfile::tempdir().unwrap();
        let gate = txos_skip::require_some!(gate(dir.path()), "no fanotify permissions here");
        let to_new = comes(&gate, dir.path(), "exec 2>/dev/null; echo more >> new");
        let reads = comes(&gate, dir.path(), "read line < old; test \"$line\" = content");
        assert_eq!(gate.writer_waits(), None);
        let to_old = comes(&gate, dir.path(), "exec 2>/dev/null; echo more >> old");
        assert_eq!(gate.writer_waits(), Some(to_old.id().cast_signed()));
        // The publish gives way: what is new will be aside, what is old stays.
        gate.open(false);
        assert!(ended_well(to_old), "a writer of what stays goes on");
        assert!(ended_well(reads), "a reader goes on");
        assert!(!ended_well(to_new), "a writer of what goes is refused");
        let holds = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((holds("old"), holds("new")), ("content\nmore\n".into(), "content\n".into()));
    }

    #[test]
    fn a_publish_that_stands_lets_writers_of_the_new_through() {
        let dir = tempfile::tempdir().unwrap();
        let gate = txos_skip::require_some!(gate(dir.path()), "no fanotify permissions here");
        let to_new = comes(&gate, dir.path(), "echo more >> new");
        let late = comes(&gate, dir.path(), "exec 2>/dev/null; echo more >> old");
        gate.open(true);
        assert!(ended_well(to_new));
        assert!(!ended_well(late), "its write would be lost");
    }
}
