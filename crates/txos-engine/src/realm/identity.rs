//! Which process: its pid and when it started, in one word.
//!
//! ```text
//!  63                                   22 21        0
//! ┌───────────────────────────────────────┬───────────┐
//! │ start, clock ticks since boot          │ pid       │
//! └───────────────────────────────────────┴───────────┘
//! ```
//!
//! One word, so that a slot is taken, and a dead owner's slot taken over, in one step together
//! with the proof of who did it: there is no instant at which a death would leave a slot without a
//! known owner. A pid is at most 2²² (PID_MAX_LIMIT), and is not given out again within a tick.

use rustix::io::Errno;
use rustix::process::Pid;

/// A process, for all time of this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(u64);

const PID_BITS: u32 = 22;

impl Identity {
    /// The calling process.
    ///
    /// # Errors
    /// If `/proc` can't be read, or is that of another PID namespace (ENOTSUP).
    pub fn of_self() -> std::io::Result<Identity> {
        let pid = rustix::process::getpid().as_raw_pid().cast_unsigned();
        // A /proc of another PID namespace tells of other processes by the same numbers.
        if std::fs::read_link("/proc/self")?.as_os_str() != pid.to_string().as_str() {
            return Err(std::io::Error::from_raw_os_error(libc::ENOTSUP));
        }
        let stat = std::fs::read("/proc/self/stat")?;
        start_and_state(&stat)
            .map(|(start, _)| Identity::new(pid, start))
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidData))
    }

    /// A process, if there is one of that number and `/proc` shows it.
    #[cfg_attr(loom, expect(dead_code, reason = "the model has one process group"))]
    pub(super) fn of(pid: u32) -> Option<Identity> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        start_and_state(&stat).map(|(start, _)| Identity::new(pid, start))
    }

    pub(super) fn new(pid: u32, start: u64) -> Identity {
        Identity(start << PID_BITS | u64::from(pid))
    }

    pub(crate) fn from_word(word: u64) -> Option<Identity> {
        (word != 0).then_some(Identity(word))
    }

    /// One that was made before, from its word.
    pub(super) fn known(word: u64) -> Identity {
        Identity(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Its process id.
    #[must_use]
    pub fn pid(self) -> u32 {
        (self.0 & ((1 << PID_BITS) - 1)) as u32
    }

    /// Whether the process has ended. In doubt it has not.
    #[must_use]
    pub fn is_dead(self) -> bool {
        #[cfg(loom)]
        return super::model::is_dead(self.0);
        #[cfg(not(loom))]
        self.is_dead_now()
    }

    #[cfg_attr(loom, expect(dead_code, reason = "the model has its own dead"))]
    fn is_dead_now(self) -> bool {
        let Some(pid) = Pid::from_raw(self.pid().cast_signed()) else { return true };
        match std::fs::read(format!("/proc/{}/stat", self.pid())) {
            Ok(stat) => match start_and_state(&stat) {
                Some((start, _)) if Identity::new(self.pid(), start) != self => true,
                // A zombie is dead, unless other threads of it live on.
                Some((_, b'Z' | b'X')) => !has_living_threads(self.pid()),
                _ => false,
            },
            // /proc may be mounted so that others' processes are hidden.
            Err(_) => rustix::process::test_kill_process(pid) == Err(Errno::SRCH),
        }
    }
}

/// Field 22 and field 3 of `/proc/PID/stat` (proc(5)).
pub(super) fn start_and_state(stat: &[u8]) -> Option<(u64, u8)> {
    // The name, in parentheses, may hold anything, parentheses too.
    let after = stat.iter().rposition(|&b| b == b')')? + 2;
    let mut fields = stat.get(after..)?.split(|&b| b == b' ');
    let state = *fields.next()?.first()?;
    let start = std::str::from_utf8(fields.nth(18)?).ok()?.parse().ok()?;
    Some((start, state))
}

fn has_living_threads(pid: u32) -> bool {
    let gone = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    let threads = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        // What can't be looked at is not known to be dead.
        Err(e) => return !gone(&e),
    };
    threads.flatten().any(|thread| match std::fs::read(thread.path().join("stat")) {
        Ok(stat) => !matches!(start_and_state(&stat), None | Some((_, b'Z' | b'X'))),
        Err(e) => !gone(&e) && e.raw_os_error() != Some(libc::ESRCH),
    })
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses() {
        let stat = b"42 (a) R (b)) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        assert_eq!(start_and_state(stat), Some((98765, b'S')));
        assert_eq!(start_and_state(b"42 (x"), None);
        assert_eq!(start_and_state(b""), None);
    }

    #[test]
    fn the_living_and_the_dead() {
        let me = Identity::of_self().unwrap();
        assert_eq!(me.pid(), std::process::id());
        assert!(!me.is_dead());
        // The same pid, another start.
        assert!(Identity(me.0 ^ 1 << PID_BITS).is_dead());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let stat = std::fs::read(format!("/proc/{}/stat", child.id())).unwrap();
        let other = Identity::new(child.id(), start_and_state(&stat).unwrap().0);
        assert!(!other.is_dead());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.is_dead());
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let stat = std::fs::read(format!("/proc/{}/stat", child.id())).unwrap();
        let other = Identity::new(child.id(), start_and_state(&stat).unwrap().0);
        // Not waited for yet: it stays a zombie once it has ended.
        let pidfd = rustix::process::pidfd_open(
            Pid::from_raw(child.id().cast_signed()).unwrap(),
            rustix::process::PidfdFlags::empty(),
        )
        .unwrap();
        let mut fds = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
        assert!(other.is_dead());
        child.wait().unwrap();
    }
}
