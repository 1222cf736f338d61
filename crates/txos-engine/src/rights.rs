//! Which root this is, if it is one.
//!
//! User number 0 alone says little: in a user namespace (`unshare -Ur`, a rootless container) it is an
//! ordinary user in root's clothes, and in a container with the usual capabilities it may not mount. To the
//! kernel the *machine's root* is number 0 with CAP_SYS_ADMIN in the initial user namespace. Only that one
//! has overlays with `trusted.` attributes, stored file handles and the gate; any other's transactions run
//! in a user namespace, as an ordinary user's do.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::thread::CapabilitySet;

/// Inode number of the initial user namespace (`PROC_USER_INIT_INO` of the kernel).
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// What the map of users is where every number means itself.
const IDENTITY: [&str; 3] = ["0", "0", "4294967295"];

/// How the initial user namespace is called in records.
const INITIAL: &str = "initial";

/// Whose rights a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// The machine's root.
    MachineRoot,
    /// User number 0 in a user namespace.
    NamespaceRoot,
    /// User number 0 without CAP_SYS_ADMIN.
    PlainRoot,
    /// Anybody else.
    User,
}

impl Rights {
    /// This process's.
    #[must_use]
    pub fn now() -> Rights {
        if !rustix::process::geteuid().is_root() {
            return Rights::User;
        }
        if !has(CapabilitySet::SYS_ADMIN) {
            return if is_initial() { Rights::PlainRoot } else { Rights::NamespaceRoot };
        }
        if is_initial() { Rights::MachineRoot } else { Rights::NamespaceRoot }
    }

    /// What is missing to a root that is not the machine's, as a predicate: "is …".
    #[must_use]
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Rights::MachineRoot | Rights::User => None,
            Rights::NamespaceRoot => Some("root in a user namespace only, not the machine's root"),
            Rights::PlainRoot => Some("root without the capability CAP_SYS_ADMIN"),
        }
    }
}

/// Whether this process is the machine's root.
#[must_use]
pub fn is_privileged() -> bool {
    Rights::now() == Rights::MachineRoot
}

/// [`is_privileged`], asked once while this thread uses the user's rights as an owner.
pub(crate) fn is_privileged_throughout() -> bool {
    crate::sys_owner::privileged(is_privileged)
}

/// Whether this process is user number 0 without being the machine's root.
#[must_use]
pub fn is_unprivileged_root() -> bool {
    Rights::now().missing().is_some()
}

/// Whether the effective capabilities of this thread include one.
#[must_use]
pub fn has(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Whether user number 0 of this process is whom the tree that it sees belongs to: the machine's root, and root
/// in a container. Not so where an ordinary user has made itself root of a user namespace.
pub(crate) fn owns_tree() -> bool {
    rustix::process::geteuid().is_root()
        && (is_initial() || fs::metadata("/").is_ok_and(|m| m.uid() == 0))
}

/// The number by which the places of this user are called where each user has one. An ordinary user that has
/// made itself root of a user namespace has the number it has outside.
pub(crate) fn number_of_places() -> u32 {
    let user = rustix::process::geteuid().as_raw();
    if user != 0 || owns_tree() {
        return user;
    }
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    outer(&map, user).unwrap_or(user)
}

fn outer(map: &str, user: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut words = line.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(count)), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return None;
        };
        let at = user.checked_sub(inside).filter(|at| *at < count)?;
        outside.checked_add(at)
    })
}

/// Whether this process is in the machine's initial user namespace. A process can't come back to it, and
/// leaves it only by what is done right after a `fork`: the answer is remembered for each process.
pub(crate) fn is_initial() -> bool {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let process = u64::from(std::process::id());
    let known = KNOWN.load(Ordering::Relaxed);
    if known >> 1 == process {
        return known & 1 == 1;
    }
    let initial = look();
    KNOWN.store(process << 1 | u64::from(initial), Ordering::Relaxed);
    initial
}

fn look() -> bool {
    let number = fs::metadata("/proc/self/ns/user").map(|m| m.ino());
    number.is_ok_and(|ino| ino == INITIAL_USER_NAMESPACE)
        && fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| is_identity(&map))
}

fn is_identity(map: &str) -> bool {
    map.split_whitespace().eq(IDENTITY)
}

/// What numbers of users and groups mean to this process, for comparison: `initial`, or the maps of its
/// user namespace in one line. `None` if that can't be told.
#[must_use]
pub fn numbering() -> Option<String> {
    if is_initial() {
        return Some(INITIAL.to_owned());
    }
    let map = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/self").join(name)).ok()?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    Some(format!("users {} groups {}", map("uid_map")?, map("gid_map")?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn maps() {
        assert!(is_identity("         0          0 4294967295\n"));
        assert!(!is_identity("0 0 1\n"));
        assert!(!is_identity("0 0 4294967295\n1 1 1\n"));
        assert!(!is_identity(""));
        let map = "0 1000 1\n1 100000 65536\n";
        assert_eq!(outer(map, 0), Some(1000));
        assert_eq!(outer(map, 5), Some(100_004));
        assert_eq!(outer(map, 65_536), Some(165_535));
        assert_eq!(outer(map, 65_537), None);
        assert_eq!(outer("0 4294967295 2\n", 1), None);
        assert_eq!(outer("nonsense\n", 0), None);
    }

    #[test]
    fn one_answer() {
        assert_eq!(is_privileged(), Rights::now() == Rights::MachineRoot);
        assert_eq!(numbering().as_deref() == Some(INITIAL), is_initial());
        assert_eq!(is_unprivileged_root(), Rights::now().missing().is_some());
    }
}
