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
#![allow(unsafe_code)] // the other process's socket

use super::server::leave_streams;
use crate::front::api;
use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::held::Held;
use crate::tx::kernel;

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
