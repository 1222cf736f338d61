//! Versions of objects, as the kernel keeps them.
//!
//! # Invariants
//!
//! - A [`Version`] is everything `statx(2)` tells about an object that changes when the object
//!   does: identity, type and mode, owner, size, link count, mtime, ctime. Every writer on the
//!   machine bumps ctime, so versions catch outsiders exactly as they catch participants.
//! - Where ctime is *multigrain* ([`crate::grain`]) a change after a query gets a distinct stamp.
//!   Elsewhere ctime moves with the timer tick, and on file systems that keep whole seconds (ext4 with
//!   inodes of 128 bytes) with the second, on every kernel. An object that changed so shortly before it
//!   was looked at is **racy** ([`Version::is_racy`]) and [`observe`] waits that out, so that a recorded
//!   version is never ambiguous.
//! - A directory is not waited for: nothing but its names is compared by its version, and only where that
//!   tells them ([`Version::tells_names`]).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::grain::{self, Grain};
pub use crate::grain::{kernel_at_least, multigrain};
use crate::object::{FileId, FileKind};
pub use crate::stamp::Stamp;

/// The longest timer tick of a Linux kernel (CONFIG_HZ=100), in nanoseconds.
pub(crate) const TICK_MAX_NS: i64 = 10_000_000;

const SECOND_NS: i64 = 1_000_000_000;

/// How often [`observe`] looks again at an object that keeps changing under its eyes.
const RACY_LOOKS_MAX: u32 = 8;

/// The same, where each look has to wait for a second.
const RACY_SECONDS_MAX: u32 = 3;

/// One version of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Identity.
    pub id: FileId,
    /// `st_mode`: type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Stamp,
    /// Last change of anything.
    pub ctime: Stamp,
    /// Device number of a device node, else 0.
    pub rdev: u64,
}

/// The fields of `statx` that a version is made of.
pub const STATX_MASK: StatxFlags = StatxFlags::BASIC_STATS;

impl Version {
    /// Whether it is of the same object, with the same owner, group and mode.
    #[must_use]
    pub fn same_attributes(&self, other: &Version) -> bool {
        let attributes = |v: &Version| (v.id, v.mode, v.uid, v.gid);
        attributes(self) == attributes(other)
    }

    /// Builds a version from what `statx` answered.
    #[must_use]
    pub fn from_statx(s: &Statx) -> Self {
        Version {
            id: FileId {
                dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
                ino: s.stx_ino,
            },
            mode: u32::from(s.stx_mode),
            uid: s.stx_uid,
            gid: s.stx_gid,
            nlink: s.stx_nlink,
            size: s.stx_size,
            mtime: Stamp { sec: s.stx_mtime.tv_sec, nsec: s.stx_mtime.tv_nsec },
            ctime: Stamp { sec: s.stx_ctime.tv_sec, nsec: s.stx_ctime.tv_nsec },
            rdev: rustix::fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
        }
    }

    /// The object's type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode)
    }

    /// Same object, same type: what a path lookup that only wants *the thing* depends on.
    #[must_use]
    pub fn same_entry(&self, other: &Version) -> bool {
        self.id == other.id && self.kind() == other.kind() && self.rdev == other.rdev
    }

    /// Same owner, group and mode of the same object.
    #[must_use]
    pub fn same_owner_and_mode(&self, other: &Version) -> bool {
        self.same_entry(other)
            && self.mode == other.mode
            && self.uid == other.uid
            && self.gid == other.gid
    }

    /// Same in everything but ctime and link count: what a rename of ours leaves unchanged. The times
    /// of a passage are not compared.
    #[must_use]
    pub fn same_but_ctime(&self, other: &Version) -> bool {
        self.same_owner_and_mode(other)
            && (self.is_passage() || self.size == other.size && self.mtime == other.mtime)
    }

    /// Whether it is a FIFO, a socket or a device: what passes through it changes its times, and is no
    /// change of it.
    #[must_use]
    pub fn is_passage(&self) -> bool {
        !matches!(self.kind(), FileKind::File | FileKind::Dir | FileKind::Symlink)
    }
}

impl Version {
    /// Whether the object, looked at just before `now`, may change once more and have the same version
    /// still; also where nothing is known of its file system.
    #[must_use]
    pub fn is_racy(&self, now: Stamp) -> bool {
        self.racy_for(now, || None).is_some()
    }

    /// Whether every change after this look has another stamp; of a directory's names
    /// [`Version::tells_names`] says that. `mount`: as of [`grain::of`].
    pub fn is_fine(&self, mount: impl FnOnce() -> Option<u64>) -> bool {
        // A stamp of nothing but seconds may be one of a file system that has no others.
        self.ctime.nsec != 0 && grain::of(self.id.dev, mount, Stamp::now_coarse()).is_fine()
    }

    /// Whether a directory that has this version, before and after, has the same names. `mount`: as of
    /// [`grain::of`].
    pub(crate) fn tells_names(&self, mount: impl FnOnce() -> Option<u64>) -> bool {
        let fine = || grain::of(self.id.dev, mount, Stamp::now_coarse()) == Grain::Fine;
        self.ctime.nsec != 0 && fine()
    }

    /// Whether its stamp is known to be racy; not where nothing is known of its file system.
    pub(crate) fn is_known_racy(&self, now: Stamp) -> bool {
        let unknown = || grain::of(self.id.dev, || None, now) == Grain::Unknown;
        self.is_racy(now) && (self.ctime.nsec == 0 || !unknown())
    }

    /// How long its stamp may stand for more than one change, where it is not multigrain, in nanoseconds.
    pub(crate) fn grain_ns(&self) -> i64 {
        match self.ctime.nsec {
            // Whole seconds; elsewhere one stamp in 10⁹.
            0 => SECOND_NS + TICK_MAX_NS,
            _ => TICK_MAX_NS,
        }
    }

    /// For how long the version stays racy. `mount`: as of [`grain::of`].
    fn racy_for(&self, now: Stamp, mount: impl FnOnce() -> Option<u64>) -> Option<Duration> {
        let grain = self.grain_ns();
        let age = now.as_ns().saturating_sub(self.ctime.as_ns());
        // A stamp of the future: the clock was set back.
        let recent = (-grain..=grain).contains(&age);
        if !recent || self.kind() == FileKind::Dir || self.is_fine(mount) {
            return None;
        }
        let left = (grain - age.max(0)).clamp(0, grain).cast_unsigned();
        Some(Duration::from_nanos(left) + Duration::from_millis(1))
    }
}

/// `statx` relative to a directory, as a [`Version`].
///
/// # Errors
/// The errno of `statx(2)`; `ENOENT` and `ENOTDIR` mean that there is no such object.
pub fn stat_at(dir: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> Result<Version, Errno> {
    crate::sys::look("statx", || stat(dir, path, flags))
}

/// The same; no fault is put here.
pub(crate) fn stat(dir: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> Result<Version, Errno> {
    let flags = flags | AtFlags::STATX_DONT_SYNC;
    match rustix::fs::statx(dir, path, flags, STATX_MASK) {
        Err(Errno::ACCESS) => stat_as_owner(dir, path, flags),
        other => Ok(Version::from_statx(&other?)),
    }
}

/// An entry of a directory that may be ours and can't be searched nevertheless: by what is opened there.
fn stat_as_owner(dir: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> Result<Version, Errno> {
    use rustix::fs::OFlags;
    if path.is_empty() {
        return Err(Errno::ACCESS);
    }
    let follow = match flags.contains(AtFlags::SYMLINK_NOFOLLOW) {
        true => OFlags::NOFOLLOW,
        false => OFlags::empty(),
    };
    let found = crate::sys_owner::open_place(dir, path, follow)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(Version::from_statx(&rustix::fs::statx(found, c"", flags, STATX_MASK)?))
}

/// A version that may be trusted later: it looked once, and if that was racy, it waited and looked
/// again.
///
/// The second value is `true` if the object kept changing and the version stays ambiguous; such
/// an observation must be treated as a conflict unless its content is compared.
///
/// # Errors
/// The errno of `statx(2)`.
pub fn observe(dir: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> Result<(Version, bool), Errno> {
    let mount = |_: &Version| crate::mounts::mount_in(dir, path, flags);
    unambiguous(stat(dir, path, flags)?, |version| *version, mount, || stat(dir, path, flags))
}

/// Looks again at what was looked at a moment ago, for as long as its version is racy; the second
/// value is `true` if it still is. `mount` gives the number of the mount by which it is reached.
///
/// # Errors
/// Those of `look`.
pub fn unambiguous<T, E>(
    first: T,
    version: impl Fn(&T) -> Version,
    mount: impl Fn(&T) -> Option<u64>,
    mut look: impl FnMut() -> Result<T, E>,
) -> Result<(T, bool), E> {
    let mut seen = first;
    for looks in 0.. {
        let now = version(&seen);
        let Some(wait) = now.racy_for(Stamp::now_coarse(), || mount(&seen)) else { break };
        if looks >= if now.ctime.nsec == 0 { RACY_SECONDS_MAX } else { RACY_LOOKS_MAX } {
            return Ok((seen, true));
        }
        std::thread::sleep(wait);
        seen = look()?;
    }
    Ok((seen, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_racy_for_a_second() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().as_os_str().as_encoded_bytes();
        let mut version = stat_at(rustix::fs::CWD, path, AtFlags::empty()).unwrap();
        let at = |sec, nsec| Stamp { sec, nsec };
        version.ctime = at(1_000_000_000, 0);
        for (now, racy) in [
            (at(1_000_000_000, 0), true),
            (at(1_000_000_000, 999_999_999), true),
            (at(1_000_000_001, 5_000_000), true),
            (at(1_000_000_001, 20_000_000), false),
            (at(999_999_999, 999_999_999), true),
            (at(999_999_990, 0), false),
        ] {
            assert_eq!(version.is_racy(now), racy, "{now:?}");
        }
        version.ctime = at(1_000_000_000, 1);
        assert!(!version.is_racy(at(1_000_000_000, 20_000_000)));
        let fine = grain::of(version.id.dev, || None, at(1_000_000_000, 1)).is_fine();
        assert_eq!(version.is_racy(at(1_000_000_000, 1_000_000)), !fine);
    }

    #[test]
    fn what_is_racy_is_looked_at_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().as_os_str().as_encoded_bytes();
        let still = stat_at(rustix::fs::CWD, path, AtFlags::empty()).unwrap();
        let fresh = Version { ctime: Stamp { nsec: 0, ..Stamp::now_coarse() }, ..still };
        let old = Version { ctime: Stamp { sec: 1, nsec: 1 }, ..still };
        let mut looks = [old].into_iter();
        let (seen, racy) = unambiguous(fresh, |v| *v, |_| None, || looks.next().ok_or(())).unwrap();
        assert!(seen == old && !racy && looks.next().is_none());
        // What is not racy is not looked at again.
        assert_eq!(unambiguous(old, |v| *v, |_| None, || Err(())), Ok((old, false)));
    }

    #[test]
    fn a_change_is_a_new_version() {
        let dir = std::env::temp_dir().join(format!("txos-version-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("f");
        std::fs::write(&file, "one").unwrap();
        let look = || {
            observe(rustix::fs::CWD, file.as_os_str().as_encoded_bytes(), AtFlags::SYMLINK_NOFOLLOW)
                .unwrap()
                .0
        };
        let one = look();
        assert_eq!(one, look());
        std::fs::write(&file, "two").unwrap();
        assert_ne!(one, look());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
