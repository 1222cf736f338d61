//! Output that is held briefly: what a command prints into a pipe is passed on a moment later, so that a short command
//! that loses a conflict can be run again before anybody has seen anything.
//!
//! It is held for [`TIME_MAX`] from its first byte, and no more than [`BYTES_MAX`] of it; then it is passed on, and all that
//! follows at once. The order of what goes into one pipe stays, also where standard output and standard error are the
//! same one. When the last reader of the pipe has gone, the command is told by `SIGPIPE` as without a transaction.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::error::{Result, Step};

/// For how long.
const TIME_MAX: Duration = Duration::from_secs(1);
/// How much.
const BYTES_MAX: usize = 64 * 1024;

/// Whether a descriptor is one of which the output can be held: a pipe.
#[must_use]
pub fn can_be_held(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// One pipe of ours, and where it leads.
struct Way {
    read: Option<OwnedFd>,
    to: OwnedFd,
}

/// The reading ends.
pub struct Ends {
    ways: Vec<Way>,
    over_read: OwnedFd,
    over_write: OwnedFd,
}

/// Makes a pipe in the place of standard output and of standard error where these are pipes; gives their writing ends.
///
/// # Errors
/// If a pipe can't be made.
pub fn prepare() -> Result<Option<(Ends, [Option<OwnedFd>; 2])>> {
    let streams = [rustix::stdio::stdout(), rustix::stdio::stderr()];
    let same =
        |a: BorrowedFd<'_>, b: BorrowedFd<'_>| match (rustix::fs::fstat(a), rustix::fs::fstat(b)) {
            (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
            _ => false,
        };
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("making a pipe");
    let duplicate = |fd: BorrowedFd<'_>| {
        rustix::io::fcntl_dupfd_cloexec(fd, 3).step("duplicating a descriptor")
    };
    let [out, err] = streams;
    let mut writing = [None, None];
    let mut ways = Vec::new();
    if can_be_held(out) {
        let (read, write) = pipe()?;
        if can_be_held(err) && same(out, err) {
            writing = [None, Some(duplicate(write.as_fd())?)];
        }
        ways.push(Way { read: Some(read), to: duplicate(out)? });
        let [first, _] = &mut writing;
        *first = Some(write);
    }
    if can_be_held(err) && matches!(&writing, [_, None]) {
        let (read, write) = pipe()?;
        ways.push(Way { read: Some(read), to: duplicate(err)? });
        let [_, second] = &mut writing;
        *second = Some(write);
    }
    if ways.is_empty() {
        return Ok(None);
    }
    let (over_read, over_write) = pipe()?;
    Ok(Some((Ends { ways, over_read, over_write }, writing)))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Decision {
    /// Not yet.
    #[default]
    None,
    /// It is passed on, or was.
    Pass,
    /// It is dropped.
    Forget,
}

#[derive(Debug, Default)]
struct State {
    decision: Decision,
    /// Everything was read.
    drained: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides, unless that is done; gives what is decided.
    fn decide(&self, wish: Decision) -> Decision {
        let mut state = self.lock();
        if state.decision == Decision::None {
            state.decision = wish;
        }
        self.changed.notify_all();
        state.decision
    }
}

/// Output that is held.
#[derive(Debug)]
pub struct Brief {
    shared: Arc<Shared>,
    over: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Ends {
    /// Starts to hold it.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn hold(self) -> Result<Brief> {
        let shared = Arc::new(Shared::default());
        let Ends { ways, over_read, over_write } = self;
        let holder = Holder {
            shared: Arc::clone(&shared),
            ways,
            over: over_read,
            held: Vec::new(),
            bytes: 0,
            deadline: None,
        };
        let thread = std::thread::Builder::new()
            .name("txos-output".into())
            .spawn(move || holder.run())
            .step("starting the thread for held output")?;
        Ok(Brief { shared, over: Some(over_write), thread: Some(thread) })
    }
}

impl Brief {
    /// Every process of the transaction has ended: waits until the rest is read.
    pub fn finish(&mut self) {
        self.over = None;
        let mut state = self.shared.lock();
        while !state.drained {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether something was, or may have been, passed on.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.shared.lock().decision == Decision::Pass
    }

    /// Passes on what is held.
    pub fn pass(&mut self) {
        self.end(Decision::Pass);
    }

    /// Drops what is held; `false` if it was passed on before.
    pub fn forget(&mut self) -> bool {
        self.end(Decision::Forget) == Decision::Forget
    }

    fn end(&mut self, wish: Decision) -> Decision {
        self.over = None;
        let decided = self.shared.decide(wish);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        decided
    }
}

impl Drop for Brief {
    fn drop(&mut self) {
        self.pass();
    }
}

struct Holder {
    shared: Arc<Shared>,
    ways: Vec<Way>,
    over: OwnedFd,
    held: Vec<(usize, Vec<u8>)>,
    bytes: usize,
    /// Set with the first byte.
    deadline: Option<Instant>,
}

impl Holder {
    fn run(mut self) {
        let mut buffer = vec![0u8; BYTES_MAX];
        while self.ways.iter().any(|way| way.read.is_some()) {
            let Ok(ready) = self.wait() else { break };
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.pass_on();
            }
            if ready.is_empty() && self.is_over() {
                break;
            }
            for way in ready {
                self.read(way, &mut buffer);
            }
        }
        // No writer is left, or none that counts.
        let mut state = self.shared.lock();
        state.drained = true;
        self.shared.changed.notify_all();
        while state.decision == Decision::None {
            let left = match self.deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => TIME_MAX,
            };
            if left.is_zero() {
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        if self.deadline.is_some() {
            self.pass_on();
        }
    }

    /// Waits until something can be read, or it is over, or something has to be passed on.
    fn wait(&self) -> std::result::Result<Vec<usize>, Errno> {
        let open = |(index, way): (usize, &'_ Way)| way.read.is_some().then_some(index);
        let which: Vec<usize> = self.ways.iter().enumerate().filter_map(open).collect();
        let mut fds = vec![PollFd::new(&self.over, PollFlags::IN)];
        for fd in which.iter().filter_map(|&index| self.ways.get(index)?.read.as_ref()) {
            fds.push(PollFd::new(fd, PollFlags::IN));
        }
        let left = self.deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        let rest = fds.get(1..).unwrap_or_default();
        let ready = which.iter().zip(rest).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(&index, _)| index).collect())
    }

    fn is_over(&self) -> bool {
        let mut fds = [PollFd::new(&self.over, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    fn read(&mut self, index: usize, buffer: &mut [u8]) {
        let Some(way) = self.ways.get_mut(index) else { return };
        let Some(fd) = &way.read else { return };
        let got = match rustix::io::read(fd, &mut *buffer) {
            Err(Errno::INTR) => return,
            Err(_) | Ok(0) => {
                way.read = None;
                return;
            }
            Ok(got) => got,
        };
        let bytes = buffer.get(..got).unwrap_or_default();
        self.held.push((index, bytes.to_vec()));
        self.bytes += got;
        if self.deadline.is_none() {
            self.deadline = Some(Instant::now() + TIME_MAX);
        }
        if self.bytes > BYTES_MAX || self.shared.lock().decision == Decision::Pass {
            self.pass_on();
        }
    }

    /// Passes on what is held, unless that is to be forgotten. From then on nothing is held.
    fn pass_on(&mut self) {
        let decided = self.shared.decide(Decision::Pass);
        self.bytes = 0;
        // All that comes is passed on at once.
        self.deadline = Some(Instant::now() + TIME_MAX);
        for (index, bytes) in std::mem::take(&mut self.held) {
            let Some(way) = self.ways.get_mut(index) else { continue };
            if decided == Decision::Pass && write_all(way.to.as_fd(), &bytes).is_err() {
                // Nobody reads any more: nor do we, so that the command is told.
                way.read = None;
            }
        }
    }
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
                let _ = poll(&mut fds, None);
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
