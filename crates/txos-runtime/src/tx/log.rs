//! Messages to the machine's log (`syslog(3)`, `sd_journal_send(3)`): they are sent at once, as what goes to standard error is, and stay.
//!
//! A log tells what was tried (EuroSys 2012, §7.1), so an aborted attempt's messages are there as well. The C library keeps its connection, and
//! knows nothing of the abort: it stays open. `TXOS_HOLD_OUTPUT=1` has these messages held like any other output.

use super::Tx;
use super::effects;
use super::flags;
use super::kernel::{self, Side, Sys};
use super::sockets::{Header, path_in};
use crate::call::Call;

/// Where loggers listen for single messages. (The journal's sockets for streams are standard outputs of services.)
const LOGS: [&[u8]; 4] = [
    b"/dev/log",
    b"/run/systemd/journal/dev-log",
    b"/run/systemd/journal/socket",
    b"/run/systemd/journal/syslog",
];

fn is_log(path: &[u8]) -> bool {
    LOGS.contains(&path)
}

/// Whether a socket is connected to the log.
pub fn is_connected(real: i32) -> bool {
    const FAMILY: usize = size_of::<libc::sa_family_t>();
    let Ok((address, len)) = kernel::socket_address(real, Side::Peer) else { return false };
    let Some(path) = address.get(FAMILY..len as usize) else { return false };
    address.starts_with(&(libc::AF_UNIX as u16).to_ne_bytes())
        && is_log(path.split(|&byte| byte == 0).next().unwrap_or_default())
}

impl Tx {
    /// Connects to the log. `None`: it is something else that the call connects to.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn connect_to_log(&mut self, call: &Call) -> Sys<Option<u64>> {
        if !self.goes_to_log(call.buffer(1, u64::from(call.uint(2)))) {
            return Ok(None);
        }
        let file = self.file(call.int(0))?;
        let done = call.with_descriptor(0, self.real(call.int(0))?).answer()?;
        self.fds.get_mut(file).logs = true;
        Ok(Some(done))
    }

    /// Sends a message to the log. `None`: it goes elsewhere, or brings descriptors.
    ///
    /// # Errors
    /// As the call.
    pub fn send_to_log(&mut self, call: &Call, real: i32) -> Sys<Option<u64>> {
        let to = match call.number() {
            libc::SYS_sendto => call.buffer(4, u64::from(call.uint(5))),
            libc::SYS_sendmsg => match Header::read(call.pointer(1)) {
                Ok(header) if header.control().is_empty() => header.address(),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let is_log = match to.address() {
            0 => !effects::is_strict() && is_connected(real),
            _ => self.goes_to_log(to),
        };
        if is_log { call.with_descriptor(0, real).answer().map(Some) } else { Ok(None) }
    }

    /// Whether an address is the log's, outside of the transaction as within it.
    fn goes_to_log(&self, to: crate::user::UserSlice) -> bool {
        !effects::is_strict()
            && !self.has_moved_to().1
            && path_in(to).is_some_and(|path| is_log(&path))
    }

    /// Whether an abort leaves a socket to the program: it is the C library's connection. (Where memory is put back the C library knows
    /// nothing of it.)
    pub fn keeps_connection(&self, logs: bool) -> bool {
        logs && self.how.flags & flags::CHECKPOINT == 0
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
