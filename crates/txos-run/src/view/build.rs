//! Puts the view together. Runs in the reaper, which from then on lives in it.
//!
//! # Invariants
//!
//! - First everything is *captured* (overlays made, live mounts and excluded paths cloned), then
//!   everything is *attached*, parents before children: what is attached later may hide what was
//!   captured earlier.
//! - Nothing propagates out of or into the namespace; it vanishes with its last process.
//! - Where a transaction versions `/`, the overlay becomes the root directory. Else layers are
//!   mounted over the directories where they are.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount_change, move_mount, open_tree, unmount,
};
use serde::{Deserialize, Serialize};
use txos_engine::TxId;
use txos_engine::store::{Layer, Left};

use super::mounts;
use super::{nesting, overlay, plan::Plan};
use crate::doctor::{Asker, namespace_advice};
use crate::sys::fork;

/// A step of building the view that failed, in a form that the reaper can send to the monitor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What was being done.
    pub step: String,
    /// On what.
    #[serde(with = "txos_engine::show::path_text")]
    pub path: PathBuf,
    /// Why.
    pub errno: i32,
    /// What else there is to say.
    pub detail: String,
}

impl Failure {
    /// A failed step.
    #[must_use]
    pub fn new(step: &str, path: &Path, error: &io::Error) -> Self {
        Failure {
            step: step.to_owned(),
            path: path.to_owned(),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            detail: String::new(),
        }
    }

    /// Adds what else there is to say.
    #[must_use]
    pub fn with_detail(mut self, detail: &str) -> Self {
        self.detail.push_str(detail);
        self
    }
}

impl From<Failure> for crate::Error {
    fn from(f: Failure) -> Self {
        crate::Error::View {
            step: f.step,
            path: f.path,
            source: io::Error::from_raw_os_error(f.errno),
            detail: f.detail,
        }
    }
}

/// Something captured, and where it goes.
struct Piece {
    mount: OwnedFd,
    path: PathBuf,
}

/// What was built.
pub struct Built {
    /// The layers that had to be left live, and why.
    pub left_live: Vec<(PathBuf, String)>,
    /// What was the root directory until then, if that was changed.
    pub old_root: Option<OldRoot>,
}

/// The old root directory, mounted over the new one, which is the working directory. It has to be
/// [detached](OldRoot::detach) before any path is looked up: `..` would lead to it from the root.
#[must_use]
pub struct OldRoot(());

impl OldRoot {
    /// Lets go of it. That waits until every processor has seen it (some .1 to .5 ms).
    ///
    /// # Errors
    /// If it can't be detached.
    pub fn detach(self) -> Result<(), Failure> {
        let failed = |step: &str, e: Errno| Failure::new(step, Path::new("/"), &e.into());
        unmount(".", UnmountFlags::DETACH).map_err(|e| failed("detaching the old", e))?;
        rustix::process::chdir("/").map_err(|e| failed("entering", e))
    }
}

/// Builds the view.
///
/// `staging` is a directory in the home store on which the new root is put together.
pub fn build(id: TxId, layers: &[Layer], plan: &Plan, staging: &Path) -> Result<Built, Failure> {
    enter_namespaces(plan.rootless, plan.no_network)?;
    let mut left_live = Vec::new();
    let mut pieces = Vec::new();
    let there = layers.iter().enumerate().filter(|(_, layer)| !plan.missed.contains(&layer.target));
    for (index, layer) in there {
        let attributes = plan.attributes.get(index).copied().unwrap_or(MountAttrFlags::empty());
        match overlay::make(layer, &nesting::source_name(id), attributes, plan.rootless) {
            Ok(mount) => pieces.push(Piece { mount, path: layer.target.clone() }),
            Err(e) if has_vanished(&e, layer, plan) => {}
            // A scope or the root must be versioned; another file system may stay live.
            Err(e) if may_stay_live(layers, layer)? => {
                pieces.extend(capture(&layer.target, false)?);
                let why = io::Error::from_raw_os_error(e.errno);
                left_live.push((layer.target.clone(), format!("{why}{}", e.detail)));
            }
            Err(e) => return Err(e.with_detail(unusable_advice(plan.rootless))),
        }
    }
    for (path, recursive) in &plan.live {
        // In a user namespace only whole trees of mounts can be taken.
        pieces.extend(capture(path, *recursive || plan.rootless)?);
    }
    pieces.sort_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
    for path in &plan.excluded {
        pieces.extend(capture(path, true)?);
    }
    for path in &plan.hidden {
        pieces.push(Piece { mount: nothing(path)?, path: path.clone() });
    }
    let old_root = attach(pieces, staging)?;
    Ok(Built { left_live, old_root })
}

fn unusable_advice(rootless: bool) -> &'static str {
    if rootless {
        ". The directory can't be versioned in a user namespace; choose others with --scope, or run as the machine's root"
    } else {
        ". The file system can't hold the private copies of an overlay: choose directories on ext4, xfs, btrfs or tmpfs with --scope (in a container, mount a volume or tmpfs there)"
    }
}

fn may_stay_live(layers: &[Layer], layer: &Layer) -> Result<bool, Failure> {
    let mounts = mounts::table()
        .map_err(|e| Failure::new("reading", Path::new("/proc/self/mountinfo"), &e))?;
    let on_top = mounts::mount_id(&layer.target);
    Ok(mounts.iter().any(|m| m.point == layer.target && on_top == Some(m.id))
        && layers.iter().any(|l| l.target != layer.target && layer.target.starts_with(&l.target)))
}

/// Whether making a layer failed because others removed its directory, which nobody asked for and of which the
/// transaction has no private copies.
fn has_vanished(failure: &Failure, layer: &Layer, plan: &Plan) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR].map(Errno::raw_os_error).contains(&failure.errno);
    gone && failure.path == layer.target
        && plan.found.contains(&layer.target)
        && layer.left().is_ok_and(|left| left == Left::Nothing)
}

fn enter_namespaces(rootless: bool, no_network: bool) -> Result<(), Failure> {
    let proc_self = Path::new("/proc/self");
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let asker = Asker::now();
    fork::unshare(rootless, no_network).map_err(|e| {
        let failure = Failure::new("making namespaces for", proc_self, &e);
        failure.with_detail(&namespace_advice(rootless, asker))
    })?;
    if rootless {
        let write = |file: &str, text: &str| {
            let path = proc_self.join(file);
            std::fs::write(&path, text).map_err(|e| {
                let failure = Failure::new("mapping your user and group in", &path, &e);
                failure.with_detail(&namespace_advice(true, asker))
            })
        };
        write("setgroups", "deny")?;
        write("uid_map", &format!("{uid} {uid} 1"))?;
        write("gid_map", &format!("{gid} {gid} 1"))?;
        // Gaining capabilities made us undumpable, so that the monitor could not look at us.
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable);
    }
    if no_network {
        fork::loopback_up().map_err(|e| {
            Failure::new("turning on the loopback interface for", proc_self, &e)
                .with_detail("; --no-network can't be had here")
        })?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)
        .map_err(|e| Failure::new("making the mounts private below", Path::new("/"), &e.into()))
}

/// Clones what is mounted at a path (or, for a plain path, makes a bind mount of it).
fn capture(path: &Path, recursive: bool) -> Result<Option<Piece>, Failure> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW
        | OpenTreeFlags::AT_NO_AUTOMOUNT;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    match open_tree(CWD, path, flags) {
        Ok(mount) => Ok(Some(Piece { mount, path: path.to_owned() })),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(Failure::new("binding into the view", path, &e.into())),
    }
}

/// An empty, unwritable file system: what is seen of a store inside.
fn nothing(path: &Path) -> Result<OwnedFd, Failure> {
    let make = || -> Result<OwnedFd, Errno> {
        let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&fs, "mode", "000")?;
        fsconfig_set_string(&fs, "size", "4096")?;
        fsconfig_set_string(&fs, "nr_inodes", "2")?;
        fsconfig_set_flag(&fs, "ro")?;
        fsconfig_create(&fs)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    make().map_err(|e| Failure::new("hiding the store", path, &e.into()))
}

/// Attaches everything; the piece for `/`, if there is one, becomes the root directory.
fn attach(pieces: Vec<Piece>, staging: &Path) -> Result<Option<OldRoot>, Failure> {
    let mut root: Option<OwnedFd> = None;
    for piece in pieces {
        if piece.path == Path::new("/") {
            put(&piece.mount, CWD, staging)?;
            root = Some(piece.mount);
            continue;
        }
        let target = match &root {
            Some(root) => resolve(root.as_fd(), &piece.path),
            None => open(&piece.path),
        };
        match target {
            Ok(target) => put(&piece.mount, target.as_fd(), Path::new(""))
                .map_err(|f| Failure { path: piece.path.clone(), ..f })?,
            // Gone in the view: the transaction removed it earlier.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(e) => return Err(Failure::new("opening in the view", &piece.path, &e.into())),
        }
    }
    match root {
        Some(root) => change_root(&root).map(Some),
        None => Ok(None),
    }
}

fn put(mount: &OwnedFd, dir: BorrowedFd<'_>, path: &Path) -> Result<(), Failure> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.as_os_str().is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    move_mount(mount, "", dir, path, flags)
        .map_err(|e| Failure::new("attaching to the view", path, &e.into()))
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

fn resolve(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        root,
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
}

/// Makes an attached mount the root directory.
fn change_root(root: &OwnedFd) -> Result<OldRoot, Failure> {
    let failed = |step: &str, e: Errno| Failure::new(step, Path::new("/"), &e.into());
    rustix::process::fchdir(root).map_err(|e| failed("entering the view's", e))?;
    rustix::process::pivot_root(".", ".")
        .map_err(|e| failed("changing the root directory (pivot_root) to the view of", e))?;
    Ok(OldRoot(()))
}
