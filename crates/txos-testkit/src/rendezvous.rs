//! Stops a command at a known point: it writes a line to one inherited pipe and reads one from
//! another. Pipes, not FIFOs: a FIFO of a versioned tree is another one inside the transaction.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::wait::PATIENCE;

/// What a shell script runs to wait for the test.
pub const PAUSE: &str = "echo >&8; read _ <&9";

/// Both pipes; the command has its ends as descriptors 8 and 9.
#[derive(Debug)]
pub struct Rendezvous {
    arrived: OwnedFd,
    go: OwnedFd,
    theirs: Option<(OwnedFd, OwnedFd)>,
}

impl Default for Rendezvous {
    fn default() -> Self {
        Self::new()
    }
}

impl Rendezvous {
    /// A new pair.
    ///
    /// # Panics
    /// If there are no descriptors left.
    #[must_use]
    pub fn new() -> Self {
        let (arrived, tell) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        Rendezvous { arrived, go, theirs: Some((tell, wait)) }
    }

    /// The command's ends, with the numbers they get. The test's copies close with them, so that
    /// the end of the command is noticed.
    pub(crate) fn ends(&mut self) -> Vec<(OwnedFd, i32)> {
        let (tell, wait) = self.theirs.take().expect("one command has the ends");
        vec![(tell, 8), (wait, 9)]
    }

    /// Waits until the command is at its point; `false` if it has ended instead.
    ///
    /// # Panics
    /// If neither happens in time.
    #[must_use]
    pub fn arrived(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the command did not arrive within {PATIENCE:?}");
            let timeout = Timespec::try_from(left).expect("a short time");
            let mut fds = [PollFd::from_borrowed_fd(self.arrived.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(e) => panic!("waiting for the command: {e}"),
            }
            let mut line = [0];
            return rustix::io::read(&self.arrived, &mut line).expect("reading from the command")
                == 1;
        }
    }

    /// Lets it go on.
    pub fn go(&self) {
        // If it has ended, its status tells.
        let _ = rustix::io::write(&self.go, b"\n");
    }
}
