//! A terminal: what is typed on it, and what it shows.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::Winsize;

use crate::wait::PATIENCE;

/// The outer side of a terminal.
#[derive(Debug)]
pub struct Pty {
    outer: OwnedFd,
    shown: Vec<u8>,
}

impl Pty {
    /// A terminal of a size, and its inner side for [`crate::Invocation::terminal`].
    ///
    /// # Panics
    /// If there is none to be had.
    #[must_use]
    pub fn open(columns: u16, rows: u16) -> (Pty, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let outer = openpt(flags).expect("a terminal");
        grantpt(&outer).and_then(|()| unlockpt(&outer)).expect("a terminal");
        let name = ptsname(&outer, Vec::new()).expect("its name");
        let flags =
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let inner =
            rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("its inner side");
        let pty = Pty { outer, shown: Vec::new() };
        pty.resize(columns, rows);
        (pty, inner)
    }

    /// Gives it another size.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.outer, size).expect("setting the window size");
    }

    /// Types.
    ///
    /// # Panics
    /// If nobody takes it.
    pub fn type_in(&self, text: &str) {
        let n = rustix::io::write(&self.outer, text.as_bytes()).expect("typing");
        assert_eq!(n, text.len(), "typing");
    }

    /// Waits until a text was shown, and forgets all up to it.
    ///
    /// # Panics
    /// If it is not shown in time.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) =
                self.shown.windows(text.len()).position(|window| window == text.as_bytes())
            {
                self.shown.drain(..at + text.len());
                return;
            }
            let more = self.read_more(deadline);
            assert!(more, "{text:?} was not shown, but: {}", String::from_utf8_lossy(&self.shown));
        }
    }

    /// Waits until a text was shown, and gives all up to it, byte by byte.
    ///
    /// # Panics
    /// If it is not shown in time.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let at = self.shown.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = at {
                return self.shown.drain(..at + text.len()).collect();
            }
            let more = self.read_more(deadline);
            assert!(more, "{text:?} was not shown, but: {}", String::from_utf8_lossy(&self.shown));
        }
    }

    /// [`Pty::rest`], byte by byte.
    #[must_use]
    pub fn all(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        while self.read_more(deadline) {}
        std::mem::take(&mut self.shown)
    }

    /// Reads until everybody has closed the inner side; gives what was shown and not yet expected.
    #[must_use]
    pub fn rest(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        while self.read_more(deadline) {}
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    fn read_more(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        let mut fds = [PollFd::from_borrowed_fd(self.outer.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return false,
            Err(rustix::io::Errno::INTR) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        let mut buffer = [0; 4096];
        match rustix::io::read(&self.outer, &mut buffer) {
            // EIO: nobody has the inner side open any more.
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.shown.extend_from_slice(&buffer[..n]);
                true
            }
        }
    }
}
