//! Who the processes of a transaction are.
//!
//! The server does not take a process's word for it: the kernel names the sender of a message, and says in
//! `/proc/PID/status` who that is. A process that changes its user, groups or capabilities says that it has, before it does
//! anything else; the server looks then. A process in a user namespace of its own has names for users that are not the server's, and
//! can't go on in the transaction.

use std::fs::{read, read_link};
use std::io::ErrorKind;

use crate::tx::kernel::Identity;

/// The users, groups and capabilities of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// For calls on files.
    files: Identity,
    /// For `access(2)`: the real user and group.
    real: (u32, u32),
    permitted: u64,
}

impl Ids {
    /// Those of a process; `None`: it is gone, or can't be looked at.
    pub fn of(process: u32) -> Option<Ids> {
        Ids::from_status(&read(format!("/proc/{process}/status")).ok()?)
    }

    /// Those of the calling process.
    pub fn own() -> Option<Ids> {
        Ids::from_status(&read("/proc/self/status").ok()?)
    }

    /// From what `/proc/PID/status` says (proc(5)).
    fn from_status(text: &[u8]) -> Option<Ids> {
        let line = |name: &str| {
            let mut lines = text.split(|&byte| byte == b'\n');
            let rest = lines.find_map(|line| line.strip_prefix(name.as_bytes()))?;
            Some(std::str::from_utf8(rest).ok()?.split_ascii_whitespace())
        };
        let numbers = |name: &str| -> Option<Vec<u32>> {
            line(name)?.map(|word| word.parse().ok()).collect()
        };
        let caps = |name: &str| u64::from_str_radix(line(name)?.next()?, 16).ok();
        let (users, of_groups) = (numbers("Uid:")?, numbers("Gid:")?);
        let (&[real_uid, _, _, uid], &[real_gid, _, _, gid]) = (&users[..], &of_groups[..]) else {
            return None;
        };
        let mut groups = numbers("Groups:")?;
        groups.sort_unstable();
        let files = Identity { uid, gid, groups, caps: caps("CapEff:")? };
        Some(Ids { files, real: (real_uid, real_gid), permitted: caps("CapPrm:")? })
    }

    /// With which identity a call is made; and whether it is that of the real user.
    pub fn for_call(&self, number: i64, words: &[u64; 6]) -> (Identity, bool) {
        let by_real = match number {
            libc::SYS_access | libc::SYS_faccessat => true,
            libc::SYS_faccessat2 => words[3] & libc::AT_EACCESS as u64 == 0,
            _ => false,
        };
        if !by_real || (self.files.uid, self.files.gid) == self.real {
            return (self.files.clone(), false);
        }
        // access(2): a real user other than root is asked for without capabilities.
        let caps = if self.real.0 == 0 { self.permitted } else { 0 };
        let real = Identity { uid: self.real.0, gid: self.real.1, caps, ..self.files.clone() };
        (real, true)
    }

    /// Whether the server can make calls as this one.
    pub fn can_be_served(&self) -> bool {
        let access = Identity { uid: self.real.0, gid: self.real.1, ..self.files.clone() };
        self.files.can_be_worn() && access.can_be_worn()
    }
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
        let (access, by_real) = ids.for_call(libc::SYS_access, &[0; 6]);
        assert_eq!((access.uid, access.gid, access.caps, by_real), (1, 5, 0, true));
        let (effective, _) =
            ids.for_call(libc::SYS_faccessat2, &[0, 0, 0, libc::AT_EACCESS as u64, 0, 0]);
        assert_eq!(effective.uid, 4);
    }

    #[test]
    fn what_is_incomplete_is_nobody() {
        assert_eq!(Ids::from_status(b"Uid:\t1\t2\t3\nGid:\t1\t1\t1\t1\n"), None);
        assert_eq!(Ids::from_status(b""), None);
        assert_eq!(Ids::of(0), None);
    }
}
