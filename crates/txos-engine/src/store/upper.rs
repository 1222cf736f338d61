//! The top directory of a new layer: overlayfs shows its attributes, not those of the directory
//! that it covers, so they are copied at the beginning.
//!
//! In a user namespace a directory of somebody else's can't keep its owner. It then gets the
//! permissions that the user had in it, as its owner's: what he could not do outside, he can't do
//! inside. (Reading is always granted: the engine must be able to list the upper directory, and
//! what lies below it is still out of reach.)

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, Timestamps};

use super::Transaction;
use crate::error::{Context, Result};
use crate::rights::is_privileged;
use crate::sys;

impl Transaction {
    /// Prepares the upper directories of a transaction that has just begun.
    ///
    /// # Errors
    /// [`crate::Error::Io`] with the step and path.
    pub fn prepare_upper(&self) -> Result<()> {
        for layer in self.layers() {
            // Others may have removed it since it was found; who builds the view decides what that means.
            if super::transaction::is_removed(&layer.target) {
                continue;
            }
            copy_attributes(&layer.target, &layer.upper)?;
        }
        Ok(())
    }
}

/// Gives a directory the attributes of another one, as far as this process may.
///
/// # Errors
/// [`crate::Error::Io`] with the step and path.
pub fn copy_attributes(from: &Path, to: &Path) -> Result<()> {
    let stat = rustix::fs::stat(from).at("looking at", from)?;
    let fd = rustix::fs::openat(
        CWD,
        to,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .at("opening", to)?;
    // A root who is not the machine's could give it away, and then do nothing in it any more: in the view's
    // user namespace only its own number is known.
    let stays = is_privileged() || stat.st_uid == rustix::process::geteuid().as_raw();
    let owned = stays
        && rustix::fs::fchown(
            &fd,
            Some(rustix::fs::Uid::from_raw(stat.st_uid)),
            Some(rustix::fs::Gid::from_raw(stat.st_gid)),
        )
        .is_ok();
    let mode = if owned { stat.st_mode & 0o7777 } else { own_permissions(from, stat.st_mode) };
    sys::chmod(fd.as_fd(), mode).at("setting the mode of", to)?;
    let source = from.as_os_str().as_bytes();
    for (name, value) in sys::xattrs(source).unwrap_or_default() {
        // overlayfs's own marks would mean something else here. What can't be set (another
        // owner's, in a user namespace) could not be used there either.
        if !name.starts_with(b"trusted.") && !name.starts_with(b"user.overlay.") {
            let flags = rustix::fs::XattrFlags::empty();
            let _ = rustix::fs::setxattr(to, &name[..], &value, flags);
        }
    }
    let times = Timestamps {
        last_access: rustix::fs::Timespec {
            tv_sec: stat.st_atime,
            tv_nsec: stat.st_atime_nsec as _,
        },
        last_modification: rustix::fs::Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec as _,
        },
    };
    rustix::fs::utimensat(CWD, to, &times, AtFlags::empty()).at("setting the times of", to)
}

/// What the user may do in a directory, as its owner's permissions.
fn own_permissions(dir: &Path, mode: u32) -> u32 {
    let may = |access: Access, bit: u32| {
        if rustix::fs::access(dir, access).is_ok() { bit } else { 0 }
    };
    let own = 0o400 | may(Access::WRITE_OK, 0o200) | may(Access::EXEC_OK, 0o100);
    (mode & 0o7077) | own
}
