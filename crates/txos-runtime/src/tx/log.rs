//! Messages to the machine's log (`syslog(3)`, `sd_journal_send(3)`): they are sent at once, as what goes to standard error is, and stay.
//!
//! A log tells what was tried (EuroSys 2012, §7.1), so an aborted attempt's messages are there as well. The C library keeps its connection, and
//! knows nothing of the abort: it stays open. `TXOS_HOLD_OUTPUT=1` has these messages held like any other output.

use std::os::unix::ffi::OsStrExt;

use super::Tx;
use super::effects;
use super::files::{File, OpenFile};
use super::flags;
use super::kernel::{self, Side, Sys};
use super::sockets::{Header, path_in};
use crate::call::Call;
use crate::user::UserSlice;

/// Where loggers listen for single messages. (The journal's sockets for streams are standard outputs of services.)
const LOGS: [&[u8]; 4] = [
    b"/dev/log",
    b"/run/systemd/journal/dev-log",
    b"/run/systemd/journal/socket",
    b"/run/systemd/journal/syslog",
];

/// Whether a path is a log's, as it is or by what `/dev/log` leads to.
fn is_log(path: &[u8]) -> bool {
    LOGS.contains(&path)
        || std::fs::canonicalize("/dev/log").is_ok_and(|log| log.as_os_str().as_bytes() == path)
}

/// Whether a socket is connected to the log.
fn is_connected(real: i32) -> bool {
    const FAMILY: usize = size_of::<libc::sa_family_t>();
    let Ok((address, len)) = kernel::socket_address(real, Side::Peer) else { return false };
    let Some(path) = address.get(FAMILY..len as usize) else { return false };
    let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
    address.starts_with(&(libc::AF_UNIX as u16).to_ne_bytes())
        && path.first() == Some(&b'/')
        && is_log(path)
}

/// What of a socket is the log's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logs {
    /// Whether messages without an address go there, once somebody has looked.
    leads_there: Option<bool>,
    /// The transaction has logged by it.
    pub used: bool,
}

impl Tx {
    /// Whether messages by a socket go to the log at once.
    pub fn logs_by(&mut self, file: File, real: i32) -> bool {
        if effects::is_strict() {
            return false;
        }
        let leads_there = &mut self.fds.get_mut(file).logs.leads_there;
        *leads_there.get_or_insert_with(|| is_connected(real))
    }

    /// Connects to the log. `None`: it is something else that the call connects to.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn connect_to_log(&mut self, call: &Call) -> Sys<Option<u64>> {
        // What a number that is none comes to is decided there.
        let Ok(file) = self.file(call.int(0)) else { return Ok(None) };
        self.fds.get_mut(file).logs = Logs::default();
        if !self.goes_to_log(call.buffer(1, u64::from(call.uint(2)))) {
            return Ok(None);
        }
        // If the messages are held, they are the C library's all the same.
        self.fds.get_mut(file).logs.used = true;
        if effects::is_strict() {
            return Ok(None);
        }
        let done = call.with_descriptor(0, self.real(call.int(0))?).answer_waiting()?;
        self.fds.get_mut(file).logs.leads_there = Some(true);
        Ok(Some(done))
    }

    /// Sends messages to the log. `None`: they go elsewhere, or bring descriptors.
    ///
    /// # Errors
    /// As the call.
    pub fn send_to_log(&mut self, call: &Call, real: i32) -> Sys<Option<u64>> {
        /// `struct mmsghdr`s that the kernel takes at once.
        const MOST: u64 = 1024;
        let address = |header: Sys<Header>| match header {
            Ok(header) if header.control().is_empty() => Some(header.address()),
            _ => None,
        };
        let messages = call.pointer::<[u64; 8]>(1);
        let to = match call.number() {
            libc::SYS_sendto => vec![Some(call.buffer(4, u64::from(call.uint(5))))],
            libc::SYS_sendmsg => vec![address(Header::read(call.pointer(1)))],
            libc::SYS_sendmmsg => (0..call.word(2).min(MOST))
                .map(|i| address(Header::read(messages.item(i).part(0))))
                .collect(),
            _ => return Ok(None),
        };
        let file = self.file(call.int(0))?;
        let all = to.into_iter().all(|to| match to {
            Some(to) if to.address() == 0 => self.logs_by(file, real),
            Some(to) => !effects::is_strict() && self.goes_to_log(to),
            None => false,
        });
        if !all {
            return Ok(None);
        }
        self.fds.get_mut(file).logs.used = true;
        call.with_descriptor(0, real).answer_waiting().map(Some)
    }

    /// Whether an address is the log's, outside of the transaction as within it.
    fn goes_to_log(&self, to: UserSlice) -> bool {
        !self.process.moved.1 && path_in(to).is_some_and(|path| is_log(&path))
    }

    /// Whether an abort leaves a number that the transaction has made to the program: it may be the C library's connection to the log. (Where
    /// memory is put back the C library knows nothing of it.) Of several numbers of one socket it is the first.
    pub fn keeps_connection(&self, number: i32, open: &OpenFile) -> bool {
        open.logs.used
            && open.numbers.first() == Some(&number)
            && self.how.flags & flags::CHECKPOINT == 0
    }
}

#[cfg(test)]
mod tests {
    use super::is_log;

    #[test]
    fn logs_are_known_by_path() {
        assert!(is_log(b"/dev/log") && is_log(b"/run/systemd/journal/dev-log"));
        assert!(
            !is_log(b"/dev/log/") && !is_log(b"/run/systemd/journal/stdout") && !is_log(b"log")
        );
    }
}
