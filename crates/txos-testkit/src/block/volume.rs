//! File systems in images: made, mounted, and checked by their own tools.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

use super::state::Medium;
use crate::process::{Done, Invocation};
use crate::skip;

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With a journal of 4 MiB, in ordered mode.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];

    /// As `mount` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }

    /// Whether this machine has its tools and its kernel the file system.
    #[must_use]
    pub fn is_here(self) -> bool {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.lines().any(|line| line.trim() == self.name())
            && skip::has(&format!("mkfs.{}", self.name()))
    }

    /// Makes one in a new image file.
    ///
    /// # Panics
    /// If it can't be made.
    pub fn make(self, image: &Path) {
        let (mib, options): (u64, &[&str]) = match self {
            Kind::Ext4 => (
                48,
                &[
                    "-q",
                    "-F",
                    "-m0",
                    "-b",
                    "4096",
                    "-J",
                    "size=4",
                    "-E",
                    "lazy_itable_init=0,lazy_journal_init=0",
                ],
            ),
            Kind::Xfs => (300, &["-q", "-f"]),
            Kind::Btrfs => (128, &["-q", "-f"]),
        };
        File::create(image).and_then(|f| f.set_len(mib << 20)).expect("making an image");
        let make = Invocation::new(format!("mkfs.{}", self.name()));
        let _ = make.args(options).arg(image).run().expect(0);
        // Blocks of zeros need not be copied for each state.
        let _ = Invocation::new("fallocate").arg("--dig-holes").arg(image).run();
    }

    /// What the file system relies on beyond sectors of 512 bytes: ext4 and XFS their superblock, btrfs its
    /// own sectors of 4,096 bytes.
    #[must_use]
    pub fn medium(self) -> Medium {
        let unit = if self == Kind::Btrfs { 4096 } else { 512 };
        Medium { unit, whole: std::iter::once(0..4096).collect() }
    }

    /// Mounts a file, or a recorder's disk.
    ///
    /// # Errors
    /// What `mount` said.
    pub fn mount(self, disk: &Path, point: &Path) -> Result<Mounted, String> {
        let options = match self {
            Kind::Btrfs => "loop,noatime,nodiscard",
            _ => "loop,noatime",
        };
        std::fs::create_dir_all(point).map_err(|e| e.to_string())?;
        let mount = Invocation::new("mount").args(["-t", self.name(), "-o", options]);
        let done = mount.arg(disk).arg(point).run();
        let mounted = Mounted { point: point.to_owned() };
        if done.code() == 0 { Ok(mounted) } else { Err(format!("{done:?}")) }
    }

    /// Checks a file system that is not mounted, changing nothing.
    #[must_use]
    pub fn check(self, image: &Path) -> Done {
        match self {
            Kind::Ext4 => Invocation::new("e2fsck").arg("-fn"),
            Kind::Xfs => Invocation::new("xfs_repair").arg("-n"),
            Kind::Btrfs => Invocation::new("btrfs").args(["check", "--readonly"]),
        }
        .arg(image)
        .run()
    }
}

/// A mounted file system; its loop device goes with it.
#[derive(Debug)]
pub struct Mounted {
    /// Where.
    pub point: PathBuf,
}

impl Mounted {
    /// Unmounts it, once nobody uses it any more: a command may delete what it needs no more after it
    /// has said that it has ended.
    ///
    /// # Panics
    /// If it stays in use.
    pub fn unmount(self) {
        crate::wait::until("the image is not in use", || {
            match rustix::mount::unmount(&self.point, UnmountFlags::empty()) {
                Ok(()) => true,
                Err(rustix::io::Errno::BUSY) => false,
                Err(e) => panic!("unmounting an image: {e}"),
            }
        });
        std::mem::forget(self);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
    }
}
