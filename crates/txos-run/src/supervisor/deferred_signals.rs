//! Signals to processes outside: held until it is known whether the transaction commits.
//!
//! The target is pinned by a pid descriptor when the signal is sent, so that another process that
//! has the number later is never hit. The sender is told what the kernel would have told: success,
//! no such process, or not permitted. It is delivered with the credentials that the sender had when it
//! sent: whoever has become another user since gets it only if the kernel lets that sender signal it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use super::process::Status;
use super::record::{arg, int};
use super::{Supervisor, Verdict};
use crate::session::tree;
use crate::sys::creds::{self, Credentials};
use crate::sys::seccomp::Call;
use crate::sys::{memory, signals};
use crate::warning::{WarningKind, say};

/// A signal that waits for the commit.
#[derive(Debug)]
pub struct DeferredSignal {
    target: OwnedFd,
    number: i32,
    pid: i32,
    name: tree::Name,
    /// Whoever sent it; `None` if that had our credentials.
    sender: Option<Credentials>,
}

/// Sends what was held, in order; a process made for it sends what one sender sent in a row.
pub fn deliver(signals: &[DeferredSignal]) {
    for batch in signals.chunk_by(|a, b| a.sender == b.sender) {
        for (signal, outcome) in batch.iter().zip(send(batch)) {
            if let Err(why) = outcome {
                say(&format!(
                    "signal {} to process {} ({}) could not be delivered: {why}",
                    signal.number, signal.pid, signal.name
                ));
            }
        }
    }
}

/// Sends signals of one sender, as that.
fn send(batch: &[DeferredSignal]) -> Vec<Result<(), String>> {
    let targets: Vec<_> = batch.iter().map(|s| (s.target.as_fd(), s.number)).collect();
    let Some(sender) = batch.first().and_then(|s| s.sender.as_ref()) else {
        let send = |(target, number)| signals::send(target, number).map_err(|e| e.to_string());
        return targets.into_iter().map(send).collect();
    };
    let text = |outcome: Result<(), Option<Errno>>| {
        outcome.map_err(|e| match e {
            Some(e) => format!("{e} (for user {}, who sent it)", sender.user()),
            None => "the process that was to send it was stopped or killed".into(),
        })
    };
    match creds::send_as(sender, &targets) {
        Ok(outcomes) => outcomes.into_iter().map(text).collect(),
        Err(e) => vec![Err(e.to_string()); targets.len()],
    }
}

/// How many signals are held; a program that sends more is told that there is no room.
const DEFERRED_MAX: usize = 4096;

impl Supervisor {
    /// `kill(2)`.
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

    /// `rt_sigqueueinfo(2)`: to a process only. Groups and everybody are no such process (ESRCH).
    pub(super) fn queue(&mut self, call: &Call) -> Verdict {
        let (target, number) = (int(call, 0), int(call, 1));
        if target <= 0 {
            return Verdict::Through; // The kernel says what is wrong.
        }
        match self.may_queue(call, target, arg(call, 2)) {
            Ok(()) => self.signal_process(call, target, number),
            Err(errno) => Verdict::Answer(Err(errno)),
        }
    }

    /// `rt_tgsigqueueinfo(2)`.
    pub(super) fn queue_thread_of(&mut self, call: &Call) -> Verdict {
        match self.may_queue(call, int(call, 0), arg(call, 3)) {
            Ok(()) => self.kill_thread_of(call),
            Err(errno) => Verdict::Answer(Err(errno)),
        }
    }

    /// Whether the kernel would send such a `siginfo_t` to a process outside: it can be read, and does not
    /// claim to be the kernel's own. It is not looked at again: the caller may change it meanwhile.
    fn may_queue(&mut self, call: &Call, target: i32, info: u64) -> Result<(), Errno> {
        /// What the kernel reads of it, and where its code is.
        const SIZE: usize = 48;
        const CODE: usize = 8;
        if target <= 0 || self.is_ours(call.pid, target) {
            return Ok(()); // The kernel judges.
        }
        let info = memory::read_exact::<SIZE>(call.pid, info).map_err(|_| Errno::FAULT)?;
        let code = i32::from_ne_bytes([info[CODE], info[CODE + 1], info[CODE + 2], info[CODE + 3]]);
        if code >= 0 || code == libc::SI_TKILL { Err(Errno::PERM) } else { Ok(()) }
    }

    /// `tkill(2)`.
    pub(super) fn kill_thread(&mut self, call: &Call) -> Verdict {
        self.signal_process(call, int(call, 0), int(call, 1))
    }

    /// `tgkill(2)`.
    pub(super) fn kill_thread_of(&mut self, call: &Call) -> Verdict {
        // Programs signal their own threads all the time.
        if self.processes.group_of(call.pid) == u32::try_from(int(call, 0)).ok() {
            return Verdict::Through;
        }
        let (group, thread) = (int(call, 0), int(call, 1));
        if group <= 0 || thread <= 0 {
            return Verdict::Through; // The kernel says what is wrong.
        }
        let reaper = self.reaper.as_raw_nonzero().get();
        if group != reaper && self.is_ours(call.pid, group) {
            return Verdict::Through;
        }
        if self.processes.group_of(thread.cast_unsigned()) != u32::try_from(group).ok() {
            return Verdict::Answer(Err(Errno::SRCH));
        }
        self.signal_process(call, group, int(call, 2))
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
        let reaper = self.reaper.as_raw_nonzero().get();
        if target != reaper && self.is_ours(call.pid, target) {
            return Verdict::Through;
        }
        // Whoever signals his parent means the monitor, in whose place the reaper is.
        let target = if target == reaper { std::process::id().cast_signed() } else { target };
        Verdict::Answer(self.hold(call, target, number).map(|()| 0))
    }

    fn signal_group(&mut self, call: &Call, group: i32, number: i32) -> Verdict {
        if !(1..=libc::SIGRTMAX()).contains(&number) || self.is_ours_all(call, group) {
            return Verdict::Through;
        }
        let reaper = self.reaper.as_raw_nonzero().get();
        let mut result = Err(Errno::SRCH);
        for member in tree::group(group) {
            let one = if tree::descends_from(member.pid, reaper) {
                self.send_inside(call, member.pid, number)
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

    /// Sends a signal to a process of the transaction at once, as the caller.
    fn send_inside(&mut self, call: &Call, target: i32, number: i32) -> Result<(), Errno> {
        let (target, _) = pinned(target)?;
        let sender = self.sender(call)?;
        match sender.1 {
            None => signals::send(target.as_fd(), number),
            Some(sender) => match creds::send_as(&sender, &[(target.as_fd(), number)]) {
                Ok(sent) => sent
                    .first()
                    .copied()
                    .unwrap_or(Err(None))
                    .map_err(|e| e.unwrap_or(Errno::AGAIN)),
                Err(_) => Err(Errno::AGAIN),
            },
        }
    }

    /// The caller's credentials, and once more unless they are ours.
    fn sender(&mut self, call: &Call) -> Result<(Credentials, Option<Credentials>), Errno> {
        let sender = self.pin(call)?.credentials;
        let own = self.view.own();
        // Who can't take others' acts for the one user whose processes there are.
        let differs = own.can_switch() && (!sender.acts_like(own) || sender.users != own.users);
        Ok((sender.clone(), differs.then_some(sender)))
    }

    /// Whether a group has no member outside (the monitor, which belongs to the command's group,
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
        let reaper = self.reaper.as_raw_nonzero().get();
        tree::group(group).iter().all(|m| tree::descends_from(m.pid, reaper))
    }

    fn hold(&mut self, call: &Call, target: i32, number: i32) -> Result<(), Errno> {
        let (descriptor, receiver) = pinned(target)?;
        let (sender, other) = self.sender(call)?;
        // In an ordinary user's transaction the capabilities are those of its own namespace.
        let sender_here = match self.view.own().can_switch() {
            true => sender,
            false => Credentials { capabilities: 0, ..sender },
        };
        if !sender_here.may_signal(&receiver) {
            return Err(Errno::PERM);
        }
        if self.deferred.len() >= DEFERRED_MAX {
            return Err(Errno::AGAIN);
        }
        let name = tree::name(target);
        self.deferred.push(DeferredSignal {
            target: descriptor,
            number,
            pid: target,
            name,
            sender: other,
        });
        Ok(())
    }
}

/// A process, held fast by a descriptor, and the credentials that it has now.
fn pinned(pid: i32) -> Result<(OwnedFd, Credentials), Errno> {
    let number = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    let descriptor = rustix::process::pidfd_open(number, PidfdFlags::empty())?;
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| Errno::SRCH)?;
    let status = Status::parse(&text).ok_or(Errno::SRCH)?;
    // Signal 0 asks whether it is still there: else the number may have been another's by then.
    match signals::send(descriptor.as_fd(), 0) {
        Ok(()) | Err(Errno::PERM) => Ok((descriptor, status.credentials)),
        Err(e) => Err(e),
    }
}
