//! How finely file systems stamp changes.
//!
//! Since Linux 6.13 a file system may be *multigrain*: what changes after its stamps were asked for gets a stamp
//! that nothing had before. The kernel decides that by the type under which a file system is mounted, and not
//! every type that txos versions is among them:
//!
//! | mounted as | stamps |
//! |---|---|
//! | ext4, xfs, btrfs | every change has its own |
//! | tmpfs | the same, but for a directory from which a name is removed, or in which one is linked: that gets the stamp of the object, which nobody may have asked for (`shmem_unlink`, `shmem_link`) |
//! | ext2, ext3 (also by ext4's driver), f2fs, zfs, bcachefs | of the timer's tick |
//! | overlay | as the file system below it, which can't be told from here: taken for the tick |
//!
//! Before Linux 6.13 all of them have stamps of the tick.

use std::sync::{Mutex, OnceLock};

use crate::mounts;
use crate::stamp::Stamp;

/// Whether this kernel has multigrain stamps (Linux 6.13 and later); [`of`] says which file systems have.
#[must_use]
pub fn multigrain() -> bool {
    static MULTIGRAIN: OnceLock<bool> = OnceLock::new();
    *MULTIGRAIN.get_or_init(|| kernel_at_least(6, 13))
}

/// Whether the running kernel is of release `major.minor` or later.
#[must_use]
pub fn kernel_at_least(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next().and_then(|p| p.parse::<u32>().ok()).unwrap_or(0);
    (next(), next()) >= (major, minor)
}

/// How finely a file system stamps changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// What changes after it was looked at has another stamp.
    Fine,
    /// The same, but for names that leave a directory, or are linked there.
    FineButNames,
    /// What changes twice within a tick may have one stamp.
    Tick,
    /// Nobody knows which file system it is.
    Unknown,
}

impl Grain {
    /// That of a type of file system, on a kernel that has multigrain stamps.
    fn of_type(kind: &str) -> Grain {
        match kind {
            "ext4" | "xfs" | "btrfs" => Grain::Fine,
            "tmpfs" => Grain::FineButNames,
            _ => Grain::Tick,
        }
    }

    /// Whether a file with the same stamps is unchanged, however shortly before it was looked at.
    #[must_use]
    pub fn is_fine(self) -> bool {
        matches!(self, Grain::Fine | Grain::FineButNames)
    }
}

/// What is known of devices, and since which second: a device's number may be another file system's later.
struct Known {
    since: i64,
    devices: Vec<(u64, Grain)>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { since: 0, devices: Vec::new() });

/// How finely the file system of an object stamps changes.
///
/// `dev` is the object's device number; `mount` gives the number of the mount by which it is reached, where
/// that is known: what is on btrfs has device numbers of its own, which the mount table does not have.
/// What was learned by a mount is known by the device until the second is over.
pub fn of(dev: u64, mount: impl FnOnce() -> Option<u64>, now: Stamp) -> Grain {
    if crate::sys::mistake("stamps-taken-for-fine") {
        return Grain::Fine;
    }
    if !multigrain() {
        return Grain::Tick;
    }
    // In a child of a fork the lock may be another thread's, which is not there: nobody waits for it.
    if let Ok(known) = KNOWN.try_lock()
        && known.since == now.sec
        && let Some((_, grain)) = known.devices.iter().find(|(of, _)| *of == dev)
    {
        return *grain;
    }
    let grain = look(dev, mount());
    // What is not known may be by another mount.
    if grain != Grain::Unknown
        && let Ok(mut known) = KNOWN.try_lock()
    {
        if known.since != now.sec {
            *known = Known { since: now.sec, devices: Vec::new() };
        }
        known.devices.push((dev, grain));
    }
    grain
}

/// The same, from the mount table.
fn look(dev: u64, mount: Option<u64>) -> Grain {
    let Ok(table) = mounts::table() else { return Grain::Unknown };
    let own_devices = |kind: &str| matches!(kind, "btrfs" | "overlay");
    let by_device = table.iter().find(|m| m.dev == dev);
    let by_mount = || table.iter().find(|m| Some(m.id) == mount && own_devices(&m.kind));
    by_device.or_else(by_mount).map_or(Grain::Unknown, |m| Grain::of_type(&m.kind))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_not_known_to_be_fine_is_not() {
        assert!(["ext4", "xfs", "btrfs"].iter().all(|kind| Grain::of_type(kind) == Grain::Fine));
        assert_eq!(Grain::of_type("tmpfs"), Grain::FineButNames);
        for kind in ["ext2", "ext3", "f2fs", "zfs", "bcachefs", "overlay", "something new"] {
            assert_eq!(Grain::of_type(kind), Grain::Tick, "{kind}");
        }
        assert!(!Grain::Unknown.is_fine());
    }

    #[test]
    fn a_device_of_no_mount_is_not_known() {
        if multigrain() {
            assert_eq!(of(u64::MAX, || None, Stamp::now_coarse()), Grain::Unknown);
        }
    }
}
