//! Process groups that wait for the commit (`setpgid(2)`).
//!
//! A group tells others something: who gets the signals of a terminal, whom `kill(-group)` hits. So a change of the process's own
//! group, and of a child's that was there before the transaction, is checked as the kernel would check it, and then only seems to be
//! made. The commit makes it, in the order of the calls, before anything else that is held is sent; an abort forgets it.
//!
//! Some calls depend on the kernel's groups: a signal to one, a terminal that gets one, a wait for the children in one. Before those
//! all changes are made at once; an abort then puts them back, as far as the kernel lets it. The same goes for a child's group
//! before the process waits for anything: the child may be waiting for it.
//!
//! A child that the transaction has made is outside already, and mostly runs another program before the commit, after which the kernel
//! lets nobody change its group. What is held of it would be lost. So its group is changed at once.

use super::restored::{Old, Restored};
use crate::call::Call;
use crate::tx::kernel::{self, Errno, OwnedFd, Sys};

/// So many changes are held. Each of a child's takes a descriptor.
const MOST: usize = 256;

/// Changes that are held.
#[derive(Debug, Default)]
pub struct Groups {
    /// In the order of the calls.
    held: Vec<Change>,
    /// The children that the transaction has made.
    made: Vec<i32>,
}

/// A process that gets another group.
#[derive(Debug)]
struct Change {
    /// Its number.
    process: i32,
    /// What it is held by; the process itself needs nothing.
    child: Option<OwnedFd>,
    group: i32,
}

impl Change {
    fn put_in_force(&self) -> Sys<()> {
        if self.child.as_ref().is_some_and(|child| !kernel::is_there(child)) {
            return Err(Errno::SRCH);
        }
        match kernel::set_group_of(self.process, self.group) {
            // The child has done so itself.
            Err(_) if kernel::group_of(self.process) == Ok(self.group) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Why it could not be made.
    fn failed(&self, errno: Errno, when: &str) -> String {
        let (group, number) = (self.group, self.process);
        let who = match self.child {
            Some(_) => format!("child {number}"),
            None => "itself".into(),
        };
        let why = match errno {
            Errno::SRCH => "it is there no more".into(),
            Errno::ACCESS => "it runs another program by now".into(),
            _ => std::io::Error::from(errno).to_string(),
        };
        format!("the process could not put {who} into process group {group}{when}: {why}")
    }
}

impl Groups {
    /// Whether any are held.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The group that a process seems to have. `None`: what the kernel says.
    #[must_use]
    pub fn seen(&self, process: i32) -> Option<i32> {
        let mut last = self.held.iter().rev();
        last.find(|change| change.process == process).map(|change| change.group)
    }

    /// The transaction has made a child.
    pub fn has_made(&mut self, child: i32) {
        self.made.push(child);
    }

    /// Nothing is held any more.
    pub fn forget(&mut self) {
        *self = Groups::default();
    }

    /// Whether any process seems to be in a group of this session.
    fn is_one(&self, group: i32) -> bool {
        if self.held.iter().any(|change| self.seen(change.process) == Some(group)) {
            return true;
        }
        let is_of = |&number: &i32| kernel::group_of(number) == Ok(group);
        let member = Some(group).filter(is_of);
        match member.or_else(|| kernel::processes().into_iter().find(is_of)) {
            Some(member) => kernel::session_of(member) == kernel::session_of(0),
            // /proc may hide processes of other users.
            None => kernel::kill(-group, 0) != Err(Errno::SRCH),
        }
    }

    /// The commit: makes all changes. Why any of them failed.
    pub fn committed(&mut self) -> Vec<String> {
        self.made.clear();
        let failed = |change: Change| {
            let errno = change.put_in_force().err()?;
            Some(change.failed(errno, " after the commit"))
        };
        self.held.drain(..).filter_map(failed).collect()
    }

    /// Makes all changes now: what an abort is to put back, and why any of them failed.
    fn make(&mut self) -> (Vec<Old>, Vec<String>) {
        let (mut old, mut failed) = (Vec::new(), Vec::new());
        for change in self.held.drain(..) {
            let before = kernel::group_of(change.process);
            match (change.put_in_force(), before) {
                (Err(errno), _) => failed.push(change.failed(errno, "")),
                (Ok(()), Err(_)) => {}
                (Ok(()), Ok(before)) => old.push(match change.child {
                    None => Old::Group(before),
                    Some(child) => Old::GroupOfChild(change.process, child, before),
                }),
            }
        }
        (old, failed)
    }
}

impl Restored {
    /// Makes the changes of groups now that wait for the commit.
    pub fn make_groups(&mut self) {
        if !self.groups.any() {
            return;
        }
        let (old, failed) = self.groups.make();
        old.into_iter().for_each(|old| self.keep(Ok(old)));
        failed.iter().for_each(|words| super::api::tell(words));
    }

    /// Before a call that depends on the kernel's groups, or that may wait for a child (`waits`): the changes are made.
    pub fn groups_before(&mut self, call: &Call, waits: impl FnOnce() -> bool) {
        let has_child = self.groups.held.iter().any(|change| change.child.is_some());
        if self.groups.any() && (depends(call) || has_child && (stops(call) || waits())) {
            self.make_groups();
        }
    }

    /// `setpgid(2)`. `None`: it is made at once, as others are that are no part of the transaction.
    pub fn set_group(&mut self, call: &Call, in_session: bool) -> Option<i64> {
        let own = kernel::own_process();
        let process = if call.int(0) == 0 { own } else { call.int(0) };
        let group = if call.int(1) == 0 { process } else { call.int(1) };
        if self.groups.made.contains(&process) {
            // It may be to join one that waits.
            self.make_groups();
            return None;
        }
        let checked = match process == own {
            true => self.may_change_own(group, in_session),
            false => self.may_change(process, group, in_session),
        };
        let child = match checked {
            Err(errno) => return Some(-i64::from(errno.raw_os_error())),
            Ok(Knows::Kernel) => None,
            Ok(Knows::Library) if self.groups.held.len() >= MOST => None,
            Ok(Knows::Library) if process == own => Some(None),
            Ok(Knows::Library) => kernel::open_process(process).ok().map(Some),
        };
        let Some(child) = child else {
            self.make_groups();
            if process != own {
                return None;
            }
            self.keep(kernel::group_of(0).map(Old::Group));
            return Some(call.make());
        };
        self.groups.held.push(Change { process, child, group });
        Some(0)
    }

    /// Whether the process may change its own group.
    fn may_change_own(&self, group: i32, in_session: bool) -> Sys<Knows> {
        let own = kernel::own_process();
        // The leader of a session stays in its group.
        if in_session || kernel::session_of(0) == Ok(own) {
            return Err(Errno::PERM);
        }
        if group == own || self.groups.is_one(group) {
            Ok(Knows::Library)
        } else {
            Err(Errno::PERM)
        }
    }

    /// Whether it may change a child's.
    fn may_change(&self, process: i32, group: i32, in_session: bool) -> Sys<Knows> {
        if process < 0 || kernel::kill(process, 0) == Err(Errno::SRCH) {
            return Err(Errno::SRCH);
        }
        match kernel::process_of_thread(process) {
            Some(leader) if leader != process => return Err(Errno::INVAL),
            _ => {}
        }
        let (parent, runs) = (kernel::parent_of(process), kernel::runs_another_program(process));
        let (Some(parent), Some(runs)) = (parent, runs) else { return Ok(Knows::Kernel) };
        if parent != kernel::own_process() {
            return Err(Errno::SRCH);
        }
        let session = kernel::session_of(process);
        if in_session || session != kernel::session_of(0) {
            return Err(Errno::PERM);
        }
        if runs {
            return Err(Errno::ACCESS);
        }
        if session == Ok(process) || group != process && !self.groups.is_one(group) {
            return Err(Errno::PERM);
        }
        Ok(Knows::Library)
    }

    /// `setsid(2)` needs a group that nobody is in. Whether it could be made.
    pub fn may_lead_session(&mut self) -> bool {
        let own = kernel::own_process();
        match self.groups.seen(own) {
            Some(group) if group == own => return false,
            // It seems to have left its own.
            Some(_) => self.make_groups(),
            None => {}
        }
        kernel::kill(-own, 0) == Err(Errno::SRCH)
    }
}

/// Who can say whether a change may be made.
#[derive(Clone, Copy, Debug)]
enum Knows {
    Library,
    /// `/proc` does not tell enough of the process.
    Kernel,
}

/// Whether a call is answered by the groups that the kernel knows, or changes what is a group's.
fn depends(call: &Call) -> bool {
    /// `PIDFD_SIGNAL_PROCESS_GROUP`, from Linux 6.9 on.
    const SIGNAL_GROUP: u32 = 1 << 2;
    /// `IOPRIO_WHO_PGRP`.
    const IO_GROUP: i32 = 2;
    const GROUP: i32 = libc::PRIO_PGRP as i32;
    /// `FIOSETOWN`, `SIOCSPGRP`.
    const OWNERS: [u64; 2] = [0x8901, 0x8902];
    match call.number() {
        libc::SYS_kill => call.int(0) <= 0 && call.int(0) != -1,
        libc::SYS_pidfd_send_signal => call.uint(3) & SIGNAL_GROUP != 0,
        libc::SYS_wait4 => call.int(0) <= 0 && call.int(0) != -1,
        libc::SYS_waitid => call.uint(0) == libc::P_PGID,
        libc::SYS_setpriority | libc::SYS_getpriority => call.int(0) == GROUP,
        libc::SYS_ioprio_set | libc::SYS_ioprio_get => call.int(0) == IO_GROUP,
        libc::SYS_ioctl => {
            call.word(1) as u32 == libc::TIOCSPGRP as u32 || OWNERS.contains(&call.word(1))
        }
        libc::SYS_fcntl => matches!(call.int(1), libc::F_SETOWN | F_SETOWN_EX),
        _ => false,
    }
}

/// `fcntl(2)`: an owner of any kind.
const F_SETOWN_EX: i32 = 15;

/// Whether by a call the process may stop itself: somebody else is to see to its children then.
fn stops(call: &Call) -> bool {
    const STOP: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let own = kernel::own_process();
    match call.number() {
        libc::SYS_kill => call.int(0) == own && STOP.contains(&call.int(1)),
        libc::SYS_tkill => STOP.contains(&call.int(1)),
        libc::SYS_tgkill => call.int(0) == own && STOP.contains(&call.int(2)),
        _ => false,
    }
}
