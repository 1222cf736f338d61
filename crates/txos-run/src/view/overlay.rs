//! One overlay mount, not yet attached anywhere.
//!
//! The layers' directories are named to the kernel as `/proc/self/fd/N`: a path of any length and
//! with any characters fits in an option that way.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use txos_engine::store::Layer;

use super::build::Failure;

/// How long a directory may still be in use by an earlier mount of the same transaction.
const BUSY_MAX: Duration = Duration::from_millis(500);

/// Makes the overlay of a layer.
pub fn make(
    layer: &Layer,
    source: &str,
    attributes: MountAttrFlags,
    rootless: bool,
) -> Result<OwnedFd, Failure> {
    forget_volatile(&layer.work)?;
    let deadline = Instant::now() + BUSY_MAX;
    loop {
        match try_make(layer, source, attributes, rootless) {
            Err(e) if e.errno == Errno::BUSY.raw_os_error() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

/// overlayfs refuses a work directory that was mounted `volatile` before, because a crash may have
/// lost data. Here a crash ends the transaction, so that the mark means nothing.
fn forget_volatile(work: &Path) -> Result<(), Failure> {
    let mark = work.join("work/incompat/volatile");
    match std::fs::remove_dir_all(&mark) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::new("removing", &mark, &e)),
    }
}

fn try_make(
    layer: &Layer,
    source: &str,
    attributes: MountAttrFlags,
    rootless: bool,
) -> Result<OwnedFd, Failure> {
    let open = |path: &Path| {
        rustix::fs::openat(
            CWD,
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| Failure::new("opening", path, &e.into()))
    };
    let (lower, upper, work) = (open(&layer.target)?, open(&layer.upper)?, open(&layer.work)?);
    let failed = |e: Errno| Failure::new("mounting an overlay over", &layer.target, &e.into());
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed)?;
    let set = |key: &str, value: &str| fsconfig_set_string(&fs, key, value);
    let name = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let configure = || -> Result<(), Errno> {
        set("source", source)?;
        set("lowerdir", &name(&lower))?;
        set("upperdir", &name(&upper))?;
        set("workdir", &name(&work))?;
        if rootless {
            fsconfig_set_flag(&fs, "userxattr")?;
        } else {
            set("redirect_dir", "on")?;
            set("index", "on")?;
            set("metacopy", "off")?;
        }
        fsconfig_set_flag(&fs, "volatile")?;
        fsconfig_create(&fs)
    };
    configure().map_err(|e| failed(e).with_detail(&kernel_log(&fs)))?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed)
}

/// What the kernel has to say about a failed mount.
fn kernel_log(fs: &OwnedFd) -> String {
    let mut log = String::new();
    let mut line = [0u8; 512];
    while let Ok(n) = rustix::io::read(fs, &mut line[..])
        && n > 0
    {
        let text = String::from_utf8_lossy(line.get(..n).unwrap_or_default());
        // Each line starts with its severity: "e overlay: …".
        let text = text.trim_end();
        log.push_str("; ");
        log.push_str(text.get(2..).unwrap_or(text));
    }
    log
}
