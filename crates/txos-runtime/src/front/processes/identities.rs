//! Who the processes of a transaction are.
//!
//! The server does not take a process's word for it: the kernel names the sender of a message, and says in
//! `/proc/PID/status` who that is. A process that changes its user, groups or capabilities says that it has, before it does
//! anything else; the server looks then. A process in a user namespace of its own has names for users that are not the server's, and
//! can't go on in the transaction.
#![allow(unsafe_code)] // prctl

use std::fs::{File, read, read_link};
use std::io::{ErrorKind, Read};
use std::str::SplitAsciiWhitespace;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::Call;
use crate::raw::syscall;
use crate::tx::kernel::{Credentials, Identity};

/// The users, groups and capabilities of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// For calls on files.
    files: Identity,
    /// For `access(2)`: the real user and group.
    real: (u32, u32),
    permitted: u64,
    /// Real, effective, saved, and for files.
    users: [u32; 4],
    /// The same of the group.
    of_groups: [u32; 4],
}

const CAP_SETGID: u64 = 1 << 6;
const CAP_SETUID: u64 = 1 << 7;
const CAP_SYS_CHROOT: u64 = 1 << 18;

impl Ids {
    /// Those of a process; `None`: it is gone, or can't be looked at.
    pub fn of(process: u32) -> Option<Ids> {
        Ids::of_entry(&process.to_string())
    }

    /// Those of the calling process.
    pub fn own() -> Option<Ids> {
        Ids::of_entry("self")
    }

    /// Those of the calling thread.
    pub fn of_thread() -> Option<Ids> {
        Ids::of_entry("thread-self")
    }

    /// Those of an entry of `/proc`.
    fn of_entry(name: &str) -> Option<Ids> {
        // As a rule the kernel gives it in one piece: `std::fs::read` would ask ten times.
        let mut text = Vec::with_capacity(4096);
        File::open(format!("/proc/{name}/status"))
            .ok()?
            .take(1 << 20)
            .read_to_end(&mut text)
            .ok()?;
        Ids::from_status(&text)
    }

    /// From what `/proc/PID/status` says (proc(5)).
    fn from_status(text: &[u8]) -> Option<Ids> {
        /// The words after a name. Names are asked for in the kernel's order.
        fn line<'t>(
            rest: &mut impl Iterator<Item = &'t [u8]>,
            name: &str,
        ) -> Option<SplitAsciiWhitespace<'t>> {
            let line = rest.find_map(|line| line.strip_prefix(name.as_bytes()))?;
            Some(std::str::from_utf8(line).ok()?.split_ascii_whitespace())
        }
        let rest = &mut text.split(|&byte| byte == b'\n');
        let numbers = |words: SplitAsciiWhitespace<'_>| -> Option<Vec<u32>> {
            words.map(|word| word.parse().ok()).collect()
        };
        let caps =
            |mut words: SplitAsciiWhitespace<'_>| u64::from_str_radix(words.next()?, 16).ok();
        let users = <[u32; 4]>::try_from(numbers(line(rest, "Uid:")?)?).ok()?;
        let of_groups = <[u32; 4]>::try_from(numbers(line(rest, "Gid:")?)?).ok()?;
        let ([real_uid, _, _, uid], [real_gid, _, _, gid]) = (users, of_groups);
        let mut groups = numbers(line(rest, "Groups:")?)?;
        groups.sort_unstable();
        let permitted = caps(line(rest, "CapPrm:")?)?;
        let files = Identity { uid, gid, groups, caps: caps(line(rest, "CapEff:")?)? };
        let real = (real_uid, real_gid);
        Some(Ids { files, real, permitted, users, of_groups })
    }

    /// With which identity a call is made.
    pub fn for_call(&self, number: i64, words: &[u64; 6]) -> Identity {
        let by_real = match number {
            libc::SYS_access | libc::SYS_faccessat => true,
            libc::SYS_faccessat2 => words[3] & libc::AT_EACCESS as u64 == 0,
            _ => false,
        };
        if !by_real || (self.files.uid, self.files.gid) == self.real {
            return self.files.clone();
        }
        // access(2): a real user other than root is asked for without capabilities.
        let caps = if self.real.0 == 0 { self.permitted } else { 0 };
        Identity { uid: self.real.0, gid: self.real.1, caps, ..self.files.clone() }
    }

    /// All that counts for a signal that a process with these sends.
    pub fn credentials(&self) -> Credentials {
        let (groups, caps) = (self.files.groups.clone(), self.files.caps);
        Credentials::of_process(self.users, self.of_groups, groups, caps, self.permitted)
    }

    /// Whether a process with these ids can get others by its own calls, or by a program that gives no rights
    /// (credentials(7), capabilities(7)). One that runs a set-user-id program has asked for something before that, as a
    /// rule, and is not to get it with that program's rights.
    pub fn can_become(&self, next: &Ids) -> bool {
        let may = |cap: u64| self.permitted & cap != 0;
        let same_groups = self.files.groups == next.files.groups;
        (may(CAP_SETUID) || next.users.iter().all(|id| self.users.contains(id)))
            && (may(CAP_SETGID)
                || same_groups && next.of_groups.iter().all(|id| self.of_groups.contains(id)))
            // Root's programs have what their bounding set leaves them.
            && (next.permitted & !self.permitted == 0 || may(CAP_SETUID) || self.users.contains(&0))
    }

    /// Whether it is free to leave a root directory that it was given.
    pub fn can_leave_its_root(&self) -> bool {
        self.files.caps & CAP_SYS_CHROOT != 0
    }

    /// Whether the server can make calls as this one.
    pub fn can_be_served(&self) -> bool {
        let access = Identity { uid: self.real.0, gid: self.real.1, ..self.files.clone() };
        self.files.can_be_worn() && access.can_be_worn()
    }
}

/// Whether a call is one of `prctl(2)` that only asks.
pub fn only_asks(call: &Call) -> bool {
    const ASKS: [i32; 10] = [
        libc::PR_GET_PDEATHSIG,
        libc::PR_GET_DUMPABLE,
        libc::PR_GET_KEEPCAPS,
        libc::PR_GET_NAME,
        libc::PR_GET_SECCOMP,
        libc::PR_CAPBSET_READ,
        libc::PR_GET_SECUREBITS,
        libc::PR_GET_TIMERSLACK,
        libc::PR_GET_CHILD_SUBREAPER,
        libc::PR_GET_NO_NEW_PRIVS,
    ];
    call.number() == libc::SYS_prctl && ASKS.contains(&call.int(0))
}

/// Whether a call of `prctl(2)` changes what a program that the process runs is given of its capabilities.
pub fn limits(call: &Call) -> bool {
    const CHANGES: [i32; 3] =
        [libc::PR_CAPBSET_DROP, libc::PR_SET_SECUREBITS, libc::PR_CAP_AMBIENT];
    CHANGES.contains(&call.int(0))
}

/// Whether that was changed while the transaction was one process's.
static ARE_LIMITED: AtomicBool = AtomicBool::new(false);

/// Notes a call of `prctl(2)` of a transaction that is one process's.
pub fn note_limits(call: &Call) {
    if limits(call) {
        ARE_LIMITED.store(true, Ordering::Relaxed);
    }
}

/// Whether the process in which the transaction was may run programs with less than it has itself, or, being root, with more.
pub fn are_limited() -> bool {
    let words = [libc::PR_GET_SECUREBITS as u64, 0, 0, 0, 0, 0];
    // SAFETY: it takes numbers only.
    let plain = unsafe { syscall(libc::SYS_prctl, words) } == 0;
    !plain || ARE_LIMITED.load(Ordering::Relaxed)
}

/// Whether what the kernel says of a process means the same to the calling one: it has the same user namespace. Where that may
/// not be looked at, the maps say so: one that a process without rights has made has only that process's user in it
/// (user_namespaces(7)).
pub fn is_of_this_namespace(process: u32) -> bool {
    let of = |process: &str| read_link(format!("/proc/{process}/ns/user"));
    match (of("self"), of(&process.to_string())) {
        (Ok(own), Ok(theirs)) => own == theirs,
        (Ok(_), Err(error)) if error.kind() == ErrorKind::PermissionDenied => {
            ["uid_map", "gid_map"].iter().all(|name| {
                let map = |process: &str| read(format!("/proc/{process}/{name}")).ok();
                map("self").is_some_and(|own| map(&process.to_string()) == Some(own))
            })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 3 \n\
        CapInh:\t0\nCapPrm:\t00000000000000ff\nCapEff:\t0000000000000003\n";

    #[test]
    fn the_kernel_says_who_a_process_is() {
        let ids = Ids::from_status(STATUS).unwrap();
        assert_eq!(ids.files, Identity { uid: 4, gid: 8, groups: vec![3, 9], caps: 3 });
        assert_eq!((ids.real, ids.permitted), ((1, 5), 0xff));
        let own = Ids::own().unwrap();
        assert_eq!(own, Ids::of(std::process::id()).unwrap());
        assert_eq!(own.files, Identity::of_thread());
        assert!(own.can_be_served() && is_of_this_namespace(std::process::id()));
    }

    #[test]
    fn access_goes_by_the_real_user() {
        let ids = Ids::from_status(STATUS).unwrap();
        let access = ids.for_call(libc::SYS_access, &[0; 6]);
        assert_eq!((access.uid, access.gid, access.caps), (1, 5, 0));
        let effective =
            ids.for_call(libc::SYS_faccessat2, &[0, 0, 0, libc::AT_EACCESS as u64, 0, 0]);
        assert_eq!(effective.uid, 4);
    }

    #[test]
    fn rights_are_given_up_and_not_taken() {
        let ids = |uid: &str, gid: &str, groups: &str, caps: &str| {
            let text = format!(
                "Uid:\t{uid}\nGid:\t{gid}\nGroups:\t{groups}\nCapPrm:\t{caps}\nCapEff:\t{caps}\n"
            );
            Ids::from_status(text.as_bytes()).unwrap()
        };
        let root = ids("0 0 0 0", "0 0 0 0", "0", "1ffffffffff");
        let user = ids("7 7 7 7", "7 7 7 7", "8 9", "0");
        let for_now = ids("0 7 0 7", "0 7 0 7", "0", "0");
        let set_user_id = ids("7 0 0 0", "7 7 7 7", "8 9", "1ffffffffff");
        let set_group_id = ids("7 7 7 7", "7 5 5 5", "8 9", "0");
        for (from, to) in [
            (&root, &user),
            (&root, &for_now),
            (&for_now, &root),
            (&user, &user),
            (&set_user_id, &user),
            (&set_group_id, &user),
            (&set_group_id, &ids("7 7 7 7", "5 7 7 7", "8 9", "0")),
            (&ids("0 0 0 0", "0 0 0 0", "0", "0"), &root),
        ] {
            assert!(from.can_become(from) && from.can_become(to), "{from:?} {to:?}");
        }
        for to in [
            &root,
            &set_user_id,
            &set_group_id,
            &ids("7 7 7 7", "7 7 7 7", "8", "0"),
            &ids("7 7 7 7", "7 7 7 7", "8 9", "1"),
            &ids("6 6 6 6", "7 7 7 7", "8 9", "0"),
        ] {
            assert!(!user.can_become(to), "{to:?}");
        }
        assert!(root.can_leave_its_root() && !user.can_leave_its_root());
    }

    #[test]
    fn what_is_incomplete_is_nobody() {
        assert_eq!(Ids::from_status(b"Uid:\t1\t2\t3\nGid:\t1\t1\t1\t1\n"), None);
        assert_eq!(Ids::from_status(b""), None);
        assert_eq!(Ids::of(0), None);
    }
}
