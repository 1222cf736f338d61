//! All of a thread's credentials (credentials(7), capabilities(7)): to know them, and to have them again.

use super::{Errno, Sys, groups, sys};

/// The credentials of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective and saved user.
    users: [u32; 3],
    /// Real, effective and saved group.
    groups: [u32; 3],
    /// User and group of file systems.
    of_files: [u32; 2],
    /// The other groups, in order.
    others: Vec<u32>,
    /// Effective, permitted and inheritable capabilities: low halves, then high ones.
    capabilities: [u32; 6],
}

/// What the kernel takes away when a process takes other credentials: whether it may be dumped and traced, and the
/// signal for the end of its parent.
#[derive(Clone, Copy, Debug)]
pub struct Attachments {
    dumpable: u64,
    death_signal: i32,
}

/// The version of capability sets with two halves, and the calling thread.
const HEADER: [u32; 2] = [0x2008_0522, 0];

/// Whether no security module has a profile for the calling thread, which could have programs load no library.
#[must_use]
pub fn is_unconfined() -> bool {
    match std::fs::read("/proc/thread-self/attr/current") {
        Ok(profile) => profile.trim_ascii() == b"unconfined",
        // There is no such module.
        Err(error) => error.raw_os_error() == Some(libc::EINVAL),
    }
}

impl Credentials {
    /// Those of the calling thread.
    #[must_use]
    pub fn now() -> Credentials {
        let (mut users, mut own_groups, mut capabilities) = ([0u32; 3], [0u32; 3], [0u32; 6]);
        let mut others = groups();
        others.sort_unstable();
        // SAFETY: the kernel writes three words each, and two sets of three words.
        unsafe {
            let [a, b, c] = &mut users;
            let _ = sys!(SYS_getresuid, &raw mut *a, &raw mut *b, &raw mut *c);
            let [a, b, c] = &mut own_groups;
            let _ = sys!(SYS_getresgid, &raw mut *a, &raw mut *b, &raw mut *c);
            let _ = sys!(SYS_capget, HEADER.as_ptr(), capabilities.as_mut_ptr());
        }
        // No user, and no group: nothing changes, and the answer is the present one.
        // SAFETY: they have no pointers.
        let of_files = unsafe { [sys!(SYS_setfsuid, u32::MAX), sys!(SYS_setfsgid, u32::MAX)] }
            .map(|answer| answer.map_or(u32::MAX, |number| number as u32));
        Credentials { users, groups: own_groups, of_files, others, capabilities }
    }

    /// Those of a process, as `/proc/PID/status` has them: real, effective and saved user, and the one for files; the same of
    /// the group; the other groups in order; effective and permitted capabilities.
    #[must_use]
    pub fn of_process(
        [real, effective, saved, user]: [u32; 4],
        [real_group, effective_group, saved_group, group]: [u32; 4],
        others: Vec<u32>,
        caps: u64,
        permitted: u64,
    ) -> Credentials {
        let low = |caps: u64| caps as u32;
        let high = |caps: u64| (caps >> 32) as u32;
        let (users, groups) =
            ([real, effective, saved], [real_group, effective_group, saved_group]);
        let capabilities = [low(caps), low(permitted), 0, high(caps), high(permitted), 0];
        Credentials { users, groups, of_files: [user, group], others, capabilities }
    }

    /// Whether real and effective user, and group, are the same.
    #[must_use]
    pub fn is_own_user(&self) -> bool {
        self.users[0] == self.users[1] && self.groups[0] == self.groups[1]
    }

    /// The calling thread has these again.
    ///
    /// # Errors
    /// EPERM if the kernel does not let it. It may have some of them then, and the kernel lets it have those of before.
    pub fn put_in_force(&self) -> Sys<()> {
        let [real, effective, saved] = self.users;
        let now = Credentials::now();
        if now == *self {
            return Ok(());
        }
        // What is permitted no more comes back by no call. Without it the thread could still exchange its real, effective and
        // saved group, and not all of those that it has now would be left to be had again.
        if !self.is_within(&now) {
            return Err(Errno::PERM);
        }
        // What is permitted, or what the saved user permits, is needed for the rest.
        let _ = now.raise();
        // SAFETY: the kernel reads so many groups, and two sets of three words; the others have no pointers.
        unsafe {
            if [now.users[0], now.users[2]].contains(&0) {
                let _ = sys!(SYS_setresuid, u32::MAX, 0, u32::MAX);
            }
            if now.others != self.others {
                let _ = sys!(SYS_setgroups, self.others.len(), self.others.as_ptr());
            }
            let [a, b, c] = self.groups;
            let _ = sys!(SYS_setresgid, a, b, c);
            // What is permitted goes with the last user that is root, if the thread does not ask to keep it.
            let keeps = sys!(SYS_prctl, libc::PR_GET_KEEPCAPS).unwrap_or(0);
            let _ = sys!(SYS_prctl, libc::PR_SET_KEEPCAPS, 1);
            let _ = sys!(SYS_setresuid, real, effective, saved);
            let _ = sys!(SYS_prctl, libc::PR_SET_KEEPCAPS, keeps);
            // It is effective no more when the effective user is not root.
            let _ = Credentials::now().raise();
            let _ = sys!(SYS_setfsgid, self.of_files[1]);
            let _ = sys!(SYS_setfsuid, self.of_files[0]);
            let _ = sys!(SYS_capset, HEADER.as_ptr(), self.capabilities.as_ptr());
        }
        if Credentials::now() == *self { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Does something with these, and has the present ones again.
    ///
    /// # Errors
    /// EPERM if the kernel does not let the thread have these: nothing was done.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> Sys<R> {
        let present = Credentials::now();
        if present == *self {
            return Ok(work());
        }
        let attachments = Attachments::now();
        let taken = self.put_in_force();
        let done = taken.map(|()| work());
        if present.put_in_force().is_err() {
            super::super::say(
                "the thread can't take its credentials again; the program can't go on, and is ended (SIGABRT)",
            );
            std::process::abort()
        }
        attachments.put_back();
        done
    }

    /// All threads have these users and groups again. The C library has them do what the calling one does, and ends the
    /// process should they be answered differently; so this is for credentials that it has taken in the same way.
    pub fn put_in_force_in_all_threads(&self) {
        let ([real, effective, saved], [a, b, c]) = (self.users, self.groups);
        let now = Credentials::now();
        if !self.is_within(&now) {
            return;
        }
        // SAFETY: the C library reads so many groups; the others have no pointers.
        unsafe {
            if [now.users[0], now.users[2]].contains(&0) {
                libc::setresuid(u32::MAX, 0, u32::MAX);
            }
            if now.others != self.others {
                libc::setgroups(self.others.len(), self.others.as_ptr());
            }
            libc::setresgid(a, b, c);
            libc::setresuid(real, effective, saved);
        }
    }

    /// Whether a thread with these can take any others that are permitted no more.
    #[must_use]
    pub fn can_take_others(&self) -> bool {
        const NEEDED: u32 = 1 << 6 | 1 << 7; // CAP_SETGID and CAP_SETUID
        self.capabilities[1] & NEEDED == NEEDED
    }

    /// Whether all that is permitted to these is permitted to others.
    #[must_use]
    pub fn is_within(&self, others: &Credentials) -> bool {
        [1, 4].iter().all(|&i| self.capabilities[i] & !others.capabilities[i] == 0)
    }

    /// The same, but that what is permitted to others is permitted to them as well.
    #[must_use]
    pub fn permitting_as(&self, others: &Credentials) -> Credentials {
        let mut all = self.clone();
        for i in [1, 4] {
            all.capabilities[i] |= others.capabilities[i];
        }
        all
    }

    /// The permitted capabilities: the low half, then the high one.
    #[must_use]
    pub fn permitted(&self) -> [u32; 2] {
        [self.capabilities[1], self.capabilities[4]]
    }

    /// All of them as words.
    #[must_use]
    pub fn to_words(&self) -> Vec<u32> {
        let own = [&self.users[..], &self.groups, &self.of_files, &self.capabilities].concat();
        [own, self.others.clone()].concat()
    }

    /// The same from their words.
    #[must_use]
    pub fn from_words(words: &[u32]) -> Option<Credentials> {
        let (users, rest) = words.split_first_chunk()?;
        let (groups, rest) = rest.split_first_chunk()?;
        let (of_files, rest) = rest.split_first_chunk()?;
        let (capabilities, others) = rest.split_first_chunk()?;
        Some(Credentials {
            users: *users,
            groups: *groups,
            of_files: *of_files,
            others: others.to_vec(),
            capabilities: *capabilities,
        })
    }

    /// These are the calling thread's: all capabilities that are permitted to it become effective.
    ///
    /// # Errors
    /// As `capset(2)`.
    pub fn raise(&self) -> Sys<()> {
        let mut sets = self.capabilities;
        (sets[0], sets[3]) = (sets[1], sets[4]);
        // SAFETY: two sets of three words.
        unsafe { sys!(SYS_capset, HEADER.as_ptr(), sets.as_ptr()) }.map(drop)
    }
}

impl Attachments {
    /// Those of the calling process, and thread.
    #[must_use]
    pub fn now() -> Attachments {
        let mut death_signal = 0;
        // SAFETY: the kernel writes the one number.
        unsafe {
            let _ = sys!(SYS_prctl, libc::PR_GET_PDEATHSIG, &raw mut death_signal);
            let dumpable = sys!(SYS_prctl, libc::PR_GET_DUMPABLE).unwrap_or(1);
            Attachments { dumpable, death_signal }
        }
    }

    /// The process has them again.
    pub fn put_back(&self) {
        // SAFETY: they have no pointers.
        unsafe {
            // What is dumpable for root only can't be asked for: it comes with the credentials.
            if self.dumpable < 2 {
                let _ = sys!(SYS_prctl, libc::PR_SET_DUMPABLE, self.dumpable);
            }
            let _ = sys!(SYS_prctl, libc::PR_SET_PDEATHSIG, self.death_signal);
        }
    }
}

/// Whether the calling thread may have its permitted capabilities survive a change of users (`PR_SET_KEEPCAPS`).
#[must_use]
pub fn can_keep_capabilities() -> bool {
    // SAFETY: it has no pointers, and changes nothing.
    unsafe {
        let keeps = sys!(SYS_prctl, libc::PR_GET_KEEPCAPS);
        keeps.is_ok_and(|keeps| sys!(SYS_prctl, libc::PR_SET_KEEPCAPS, keeps).is_ok())
    }
}

/// How long a process that does something for others may take, in milliseconds.
const PATIENCE: i64 = 2_000;
/// What it ends with if it can't have the credentials.
const NOT_THESE: i32 = 255;

/// Has a process do something that is made for it, and has these credentials, all of them: with the kernel's errno as its
/// status. Whom it becomes may stop and end that process, and only that: it is waited for two seconds at most. The calling process
/// has no other threads.
///
/// # Errors
/// EPERM: it can't have these, or has not answered; as `clone(2)` and `pidfd_open(2)`.
pub fn in_other_process(
    credentials: &Credentials,
    work: impl FnOnce() -> Sys<u64>,
) -> Sys<Sys<u64>> {
    // No signal tells of its end, and only who asks for such children finds it.
    // SAFETY: the child is a copy that goes on here, on its own copy of this stack.
    let child = unsafe { sys!(SYS_clone, 0, 0, 0, 0, 0) }?;
    if child == 0 {
        // Its memory is a copy of the caller's.
        // SAFETY: they have no pointers.
        let hide = || unsafe { sys!(SYS_prctl, libc::PR_SET_DUMPABLE, 0) };
        let _ = hide();
        let status = match credentials.put_in_force().and_then(|()| hide()) {
            Ok(_) => work().err().map_or(0, Errno::raw_os_error),
            Err(_) => NOT_THESE,
        };
        loop {
            // SAFETY: nothing comes after it.
            let _ = unsafe { sys!(SYS_exit_group, status) };
        }
    }
    let child = child as i32;
    // It stays until it is waited for, so the number is its own.
    let process = super::open_process(child);
    let (mut polled, count) = (
        libc::pollfd {
            fd: process.as_ref().map_or(-1, super::OwnedFd::number),
            events: libc::POLLIN,
            revents: 0,
        },
        1,
    );
    // SAFETY: the structure lives until the answer.
    let _ = unsafe { sys!(SYS_poll, &raw mut polled, count, PATIENCE) };
    if polled.revents == 0 {
        let _ = super::kill(child, libc::SIGKILL);
    }
    let mut status = 0_i32;
    // SAFETY: the kernel writes the status.
    unsafe { sys!(SYS_wait4, child, &raw mut status, libc::__WALL, 0) }?;
    match libc::WEXITSTATUS(status) {
        _ if !libc::WIFEXITED(status) => Err(Errno::PERM),
        NOT_THESE => Err(Errno::PERM),
        0 => Ok(Ok(0)),
        errno => Ok(Err(Errno::from_raw_os_error(errno))),
    }
}

/// Limits of the process for a resource: soft, hard. `new` is set, if it is given.
///
/// # Errors
/// As `prlimit(2)`.
pub fn limits(resource: u32, new: Option<[u64; 2]>) -> Sys<[u64; 2]> {
    let mut old = [0; 2];
    let new = new.as_ref().map_or(std::ptr::null(), |new| new.as_ptr());
    // SAFETY: the kernel reads the new ones, if there are some, and writes the old ones.
    unsafe { sys!(SYS_prlimit64, 0, resource, new, old.as_mut_ptr()) }?;
    Ok(old)
}

/// How urgently a thread runs, as `sched_getattr(2)` has it.
pub type Urgency = [u32; 14];

/// The calling thread's scheduling policy, priority and nice value.
///
/// # Errors
/// As `sched_getattr(2)`.
pub fn urgency() -> Sys<Urgency> {
    let mut attributes = [0; 14];
    // SAFETY: the kernel writes as much.
    unsafe { sys!(SYS_sched_getattr, 0, attributes.as_mut_ptr(), size_of::<Urgency>(), 0) }?;
    Ok(attributes)
}

/// Sets them.
///
/// # Errors
/// As `sched_setattr(2)`.
pub fn set_urgency(attributes: &Urgency) -> Sys<()> {
    // SAFETY: the kernel reads as much as the first word says, which it has written.
    unsafe { sys!(SYS_sched_setattr, 0, attributes.as_ptr(), 0) }.map(drop)
}

/// The calling thread's priority for input and output.
///
/// # Errors
/// As `ioprio_get(2)`.
pub fn io_priority() -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_ioprio_get, 1, 0) }
}

/// Sets it.
///
/// # Errors
/// As `ioprio_set(2)`.
pub fn set_io_priority(priority: u64) -> Sys<()> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_ioprio_set, 1, 0, priority) }.map(drop)
}

/// Processors, one bit each.
pub type Processors = Vec<u64>;

/// On which processors the calling thread runs.
///
/// # Errors
/// As `sched_getaffinity(2)`.
pub fn processors() -> Sys<Processors> {
    let mut set = vec![0_u64; 1024];
    // SAFETY: the kernel writes no more than there is room for.
    let bytes =
        unsafe { sys!(SYS_sched_getaffinity, 0, set.len() * size_of::<u64>(), set.as_mut_ptr()) }?;
    set.truncate(bytes as usize / size_of::<u64>());
    Ok(set)
}

/// Sets them.
///
/// # Errors
/// As `sched_setaffinity(2)`.
pub fn set_processors(set: &[u64]) -> Sys<()> {
    // SAFETY: the kernel reads as much.
    unsafe { sys!(SYS_sched_setaffinity, 0, size_of_val(set), set.as_ptr()) }.map(drop)
}

/// `personality(2)`: sets the execution domain, and gives the one of before; 0xffffffff only asks.
///
/// # Errors
/// As `personality(2)`.
pub fn personality(domain: u64) -> Sys<u64> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_personality, domain) }
}

/// The calling thread's number.
#[must_use]
pub fn own_thread() -> i32 {
    // SAFETY: it takes nothing.
    unsafe { sys!(SYS_gettid) }.map_or(0, |number| number as i32)
}
