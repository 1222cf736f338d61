//! Signals to processes outside: held until it is known whether the transaction commits.
//!
//! The target is pinned by a pid descriptor when the signal is sent, so that another process that
//! has the number later is never hit. The sender is told what the kernel would have told: success,
//! no such process, or not permitted.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use super::record::int;
use super::{Supervisor, Verdict};
use crate::session::tree;
use crate::sys::seccomp::Call;
use crate::sys::signals;
use crate::warning::{WarningKind, say};

/// A signal that waits for the commit.
#[derive(Debug)]
pub struct HeldSignal {
    target: OwnedFd,
    number: i32,
    pid: i32,
    name: String,
}

impl HeldSignal {
    /// Sends it.
    pub fn deliver(&self) {
        if let Err(e) = signals::send(self.target.as_fd(), self.number) {
            say(&format!(
                "signal {} to process {} ({}) could not be delivered: {e}",
                self.number, self.pid, self.name
            ));
        }
    }
}

/// How many signals are held; a program that sends more is told that there is no room.
const HELD_MAX: usize = 4096;

impl Supervisor {
    /// `kill(2)` and `rt_sigqueueinfo(2)`.
    pub(super) fn kill(&mut self, call: &Call) -> Verdict {
        let (target, number) = (int(call, 0), int(call, 1));
        match target {
            1.. => self.signal_process(call, target, number),
            0 => Verdict::Through,
            -1 => {
                let verdict = self.beyond(WarningKind::Broadcast, || {
                    "the command signals every process of the machine; it was refused".into()
                });
                match verdict {
                    Verdict::Through => Verdict::Answer(Err(Errno::PERM)),
                    stop => stop,
                }
            }
            group => self.signal_group(call, group.saturating_neg(), number),
        }
    }

    /// `tkill(2)`.
    pub(super) fn kill_thread(&mut self, call: &Call) -> Verdict {
        self.signal_process(call, int(call, 0), int(call, 1))
    }

    /// `tgkill(2)` and `rt_tgsigqueueinfo(2)`.
    pub(super) fn kill_thread_of(&mut self, call: &Call) -> Verdict {
        // Programs signal their own threads all the time.
        if self.processes.group_of(call.pid) == u32::try_from(int(call, 0)).ok() {
            return Verdict::Through;
        }
        self.signal_process(call, int(call, 0), int(call, 2))
    }

    /// `pidfd_send_signal(2)`.
    pub(super) fn kill_descriptor(&mut self, call: &Call) -> Verdict {
        match self.process_of_descriptor(call.pid, int(call, 0)) {
            Some(pid) => self.signal_process(call, pid, int(call, 1)),
            None => Verdict::Through,
        }
    }

    fn signal_process(&mut self, call: &Call, target: i32, number: i32) -> Verdict {
        if target <= 0 || !(1..=libc::SIGRTMAX()).contains(&number) {
            return Verdict::Through; // The kernel says what is wrong.
        }
        let keeper = self.keeper.as_raw_nonzero().get();
        if target != keeper && self.is_ours(call.pid, target) {
            return Verdict::Through;
        }
        // Whoever signals his parent means the front, in whose place the keeper is.
        let target = if target == keeper { std::process::id().cast_signed() } else { target };
        Verdict::Answer(self.hold(call, target, number).map(|()| 0))
    }

    fn signal_group(&mut self, call: &Call, group: i32, number: i32) -> Verdict {
        if !(1..=libc::SIGRTMAX()).contains(&number) || self.is_ours_all(call, group) {
            return Verdict::Through;
        }
        let keeper = self.keeper.as_raw_nonzero().get();
        let mut result = Err(Errno::SRCH);
        for member in tree::group(group) {
            let one = if tree::descends_from(member.pid, keeper) {
                Pid::from_raw(member.pid).ok_or(Errno::SRCH).and_then(|pid| {
                    let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
                    signals::send(fd.as_fd(), number)
                })
            } else {
                self.hold(call, member.pid, number)
            };
            // As the kernel: success if any member could be signalled.
            if one.is_ok() || result.is_err() {
                result = one;
            }
        }
        Verdict::Answer(result.map(|()| 0))
    }

    /// Whether a group has no member outside (the front, which belongs to the command's group,
    /// ignores what the terminal sends and passes on the rest).
    pub(super) fn is_ours_all(&mut self, call: &Call, group: i32) -> bool {
        let namespace = self.processes.namespace(call.pid, "ns/pid");
        if namespace.is_some_and(|ino| ino != self.pid_namespace) {
            return true;
        }
        let caller = tree::process(call.pid.cast_signed());
        if caller.is_some_and(|c| c.group == group) {
            return true;
        }
        let keeper = self.keeper.as_raw_nonzero().get();
        tree::group(group).iter().all(|m| tree::descends_from(m.pid, keeper))
    }

    fn hold(&mut self, call: &Call, target: i32, number: i32) -> Result<(), Errno> {
        let pid = Pid::from_raw(target).ok_or(Errno::SRCH)?;
        let sender = self.processes.status(call.pid).ok_or(Errno::SRCH)?;
        let number_of_target = u32::try_from(target).map_err(|_| Errno::SRCH)?;
        let receiver = self.processes.status(number_of_target).ok_or(Errno::SRCH)?;
        let privileged = sender.identity.uid == 0 && rustix::process::geteuid().is_root();
        let same = [sender.identity.uid, sender.real_uid]
            .iter()
            .any(|uid| [receiver.real_uid, receiver.saved_uid].contains(uid));
        if !privileged && !same {
            return Err(Errno::PERM);
        }
        if self.held.len() >= HELD_MAX {
            return Err(Errno::AGAIN);
        }
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let name = tree::process(target).map(|p| p.name).unwrap_or_default();
        self.held.push(HeldSignal { target: fd, number, pid: target, name });
        Ok(())
    }
}
