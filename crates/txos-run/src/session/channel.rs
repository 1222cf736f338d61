//! What monitor and reaper report to each other: one packet a message, over a socket pair.
//!
//! The command's process holds the reaper's end until it becomes the program, so that the listener
//! and a failed exec reach the monitor directly and in order.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::view::build::Failure;

/// Longest message in bytes; a path of the longest kind, quoted, fits.
const MESSAGE_MAX: usize = 64 * 1024;

/// From the reaper (or the command's process before exec) to the monitor.
#[derive(Debug, Serialize, Deserialize)]
pub enum News {
    /// The view could not be made; the reaper ends.
    Failed(Failure),
    /// The view stands. The reaper waits for [`Order::Go`].
    Ready {
        /// Inode number of the view's mount namespace.
        mount_namespace: u64,
        /// Layers that had to be left live (quoted), and why.
        left_live: Vec<(String, String)>,
    },
    /// The filter is installed; the listener comes with the message.
    Listener,
    /// The filter could not be installed, or another step before exec failed.
    NotPrepared {
        /// What was being done.
        step: String,
        /// Why it failed.
        errno: i32,
    },
    /// The program could not be executed.
    NotExecuted {
        /// Why.
        errno: i32,
    },
    /// The command was stopped.
    Stopped,
    /// The command ended, with this wait status.
    Exited {
        /// As `waitpid(2)` gave it.
        status: i32,
    },
    /// Every descendant has ended; so does the reaper.
    AllGone,
}

/// From the monitor to the reaper.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Start the command.
    Go,
    /// The monitor goes on after a stop: so shall the command.
    Continue,
    /// Pass a signal on to the command.
    Signal(i32),
    /// Ask every descendant to end.
    Terminate,
    /// Kill every descendant.
    Kill,
}

/// One end.
#[derive(Debug)]
pub struct Channel {
    fd: OwnedFd,
}

/// A connected pair of ends, closed on exec.
///
/// # Errors
/// Its errno.
pub fn pair() -> io::Result<(Channel, Channel)> {
    let (a, b) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((Channel { fd: a }, Channel { fd: b }))
}

impl Channel {
    /// Sends a message.
    ///
    /// # Errors
    /// `EPIPE` if the other side is gone.
    pub fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        // write(2), because the command's process calls this under the filter.
        loop {
            match rustix::io::write(&self.fd, &bytes) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Sends a message with the listener.
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub fn send_listener(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = serde_json::to_vec(&News::Listener)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [listener];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        rustix::net::sendmsg(
            &self.fd,
            &[io::IoSlice::new(&bytes)],
            &mut control,
            SendFlags::from_bits_retain(txos_calls::LISTENER_FLAGS),
        )?;
        Ok(())
    }

    /// Receives a message if one is there; `None` if the other side is gone.
    ///
    /// # Errors
    /// `EWOULDBLOCK` if none is there.
    pub fn receive<T: DeserializeOwned>(
        &self,
        wait: bool,
    ) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut bytes = vec![0u8; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        if !wait {
            flags |= RecvFlags::DONTWAIT;
        }
        let mut was_reset = false;
        let got = loop {
            let mut parts = [io::IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(&self.fd, &mut parts, &mut control, flags) {
                Ok(got) => break got.bytes,
                Err(Errno::INTR) => {}
                // The other end has gone without reading all that was sent to it. That is told once, and
                // before its own last messages.
                Err(Errno::CONNRESET) if !was_reset => was_reset = true,
                Err(Errno::CONNRESET) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        };
        if got == 0 {
            return Ok(None);
        }
        let fd = control.drain().find_map(|m| match m {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let message = serde_json::from_slice(bytes.get(..got).unwrap_or_default())?;
        Ok(Some((message, fd)))
    }

    /// The descriptor, for polling.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Another handle on the same end.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn duplicate(&self) -> io::Result<Channel> {
        Ok(Channel { fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 3)? })
    }
}
