//! Signals of a command that are sent when its process has ended.
//!
//! About the transaction of some commands the process decides that has started them, when they have ended. The process that had the
//! transaction holds the signals until then. Through the socket by which it was followed, that process
//! says
//!
//! | | |
//! |---|---|
//! | `H` | signals are held, before it says in the transaction's directory that the command has ended |
//! | `R` | and after that: it waits |
//!
//! and then waits for `S`: it sends them, and says what could not be sent, and `E`. If the other end is closed instead, they are dropped.
//!
//! About others their own transaction's process decides, and the command's process waits for that. A signal may end it until all is published and
//! validated. Then it is asked whether it is there: if a signal has ended it, nothing of the commit happens; else none does any
//! more, so that its status says what became of the transaction. Only SIGKILL can still come between.
#![allow(unsafe_code)] // the other process's socket

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::server::{killed_by, leave_streams};
use super::wire::{self, Answer, Ask, How, Request};
use crate::front::api;
use crate::front::report::reason;
use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::held::Held;
use crate::tx::{Decides, Failure, kernel};

/// A command's process that waits for its transaction's end.
#[derive(Debug)]
pub struct Awaited {
    socket: i32,
    /// Its number, and a descriptor of it.
    process: Option<(u32, i32)>,
    /// The signal that has ended it; 0: it is not known which.
    killed: Cell<Option<i32>>,
}

/// A process that does not answer for so long is stopped, as by its terminal. Others wait for the commit.
const PATIENCE: Duration = Duration::from_secs(2);

impl Awaited {
    /// By the process at the other end of a connection.
    pub(super) fn by(socket: i32, process: Option<(u32, i32)>) -> Awaited {
        Awaited { socket, process, killed: Cell::new(None) }
    }

    /// The signal by which it was found to have ended when it was asked; 0: it is not known which.
    pub fn killed_by(&self) -> Option<i32> {
        self.killed.get()
    }

    /// It is committed.
    pub fn is_decided(&self) {
        let _ = wire::send_at_once(self.socket, &Answer::new(How::Decided, 0), &[]);
    }

    /// Whether it is there, and no signal ends it from here on. If it does not say so in time, it is taken to be there.
    fn is_there(&self) -> bool {
        match wire::send_at_once(self.socket, &Answer::new(How::Deciding, 0), &[]) {
            Err(errno) if wire::is_end(errno) => return false,
            Err(_) => return true,
            Ok(()) => {}
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut polled = libc::pollfd { fd: self.socket, events: libc::POLLIN, revents: 0 };
            let words = [(&raw mut polled) as u64, 1, left.as_millis() as u64, 0, 0, 0];
            // SAFETY: the structure lives until the answer.
            match check(unsafe { syscall(libc::SYS_poll, words) }) {
                Err(Errno::INTR) => {}
                Err(_) => return true,
                Ok(0) => return true,
                // One that ends closes its end.
                Ok(_) => match wire::receive_at_once::<Request>(self.socket) {
                    Ok(None) => return false,
                    Err(errno) if wire::is_end(errno) => return false,
                    Ok(Some(asked)) if asked.message.ask() == Some(Ask::Ready) => return true,
                    Ok(Some(_)) | Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(_) => return true,
                },
            }
        }
    }
}

impl Decides for Awaited {
    fn decide(&self) -> Result<(), Failure> {
        if self.is_there() {
            return Ok(());
        }
        let signal = self.process.and_then(|(number, process)| killed_by(number, process));
        self.killed.set(Some(signal.unwrap_or(0)));
        let what = "its process was killed".into();
        Err(Failure { reason: reason::EXITED, errno: libc::ECANCELED, what, ..Failure::default() })
    }

    fn is_others(&self) -> bool {
        false
    }
}

/// Signals that wait.
#[derive(Debug)]
pub struct Waiting {
    held: Held,
    /// To who decides; `None`: it is committed.
    socket: Option<i32>,
}

impl Waiting {
    /// `None`: there are none.
    pub fn of(held: Held, socket: i32) -> Option<Waiting> {
        if held.is_empty() {
            return None;
        }
        match say(socket, b"H") {
            Ok(()) => Some(Waiting { held, socket: Some(socket) }),
            Err(errno) => {
                api::tell(&format!(
                    "signals that were held are dropped: {}",
                    std::io::Error::from(errno)
                ));
                None
            }
        }
    }

    /// Signals to all processes of a transaction that is committed: the command's is not one of those, if it has ended by then.
    pub fn for_end(held: Held) -> Waiting {
        Waiting { held, socket: None }
    }

    /// The command's process has ended: waits until it is decided, and sends them then.
    pub fn wait(mut self) {
        let Some(socket) = self.socket else {
            self.held.send().iter().for_each(|failure| api::tell(failure));
            return;
        };
        // It is in nobody's way meanwhile.
        leave_streams();
        let _ = kernel::chdir(b"/");
        if say(socket, b"R").is_err() || !matches!(receive(socket), Ok(Some(b'S'))) {
            return;
        }
        for failure in self.held.send() {
            if say(socket, format!("{failure}\n").as_bytes()).is_err() {
                return;
            }
        }
        let _ = say(socket, b"E");
    }
}

fn say(socket: i32, mut bytes: &[u8]) -> Sys<()> {
    while !bytes.is_empty() {
        let flags = libc::MSG_NOSIGNAL as u64;
        let words = [socket as u64, bytes.as_ptr() as u64, bytes.len() as u64, flags, 0, 0];
        // SAFETY: the kernel reads so many.
        match check(unsafe { syscall(libc::SYS_sendto, words) }) {
            Ok(sent) => bytes = bytes.get(sent as usize..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The next byte; `None`: the other end is closed.
fn receive(socket: i32) -> Sys<Option<u8>> {
    let mut byte = 0_u8;
    loop {
        // SAFETY: the kernel writes the one byte.
        match check(unsafe {
            syscall(libc::SYS_read, [socket as u64, (&raw mut byte) as u64, 1, 0, 0, 0])
        }) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(byte)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
