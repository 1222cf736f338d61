//! The layers of a view in a user namespace.
//!
//! Two things restrict them there:
//!
//! - The kernel locks mounts to their parents, so that a directory with a mount below it can't be
//!   the lower layer of an overlay. Layers are therefore the topmost directories without.
//! - Only what belongs to the user can be copied up: a change deep in `/var` would have to copy up
//!   directories of root's, which fails. So a directory of the user's below somebody else's gets a
//!   layer of its own, and so does somebody else's directory in which the user may write (`/tmp`).
//!
//! The layer over somebody else's tree stays as a guard: a change that can't be made private
//! there fails instead of taking effect at once. Looking for the user's directories goes
//! [`DEPTH_MAX`] levels down, and along the paths to the home and the working directory.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use txos_engine::scope::NEVER;
use txos_engine::store::LayerRequest;

use super::mounts::{self, Mount};
use super::plan::{below, is_never};

/// How many levels below a layer in somebody else's hands are searched.
const DEPTH_MAX: u32 = 2;

/// How many directories are looked at in all.
const LOOKS_MAX: u32 = 20_000;

/// Covers a tree on one mount with layers.
pub struct Cover<'a> {
    directory: Option<PathBuf>,
    mounts: &'a [Mount],
    mount: &'a Mount,
    store: &'a Path,
    uid: u32,
    looks: u32,
    targets: BTreeSet<PathBuf>,
}

impl<'a> Cover<'a> {
    /// For a mount, with a store on it.
    #[must_use]
    pub fn new(
        mounts: &'a [Mount],
        mount: &'a Mount,
        store: &'a Path,
        directory: Option<PathBuf>,
    ) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Cover { directory, mounts, mount, store, uid, looks: 0, targets: BTreeSet::new() }
    }

    /// The layers of a directory, parents before children.
    #[must_use]
    pub fn of(mut self, top: &Path) -> Vec<LayerRequest> {
        self.split(top);
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let directory = self.directory.take();
        for place in [home, directory].into_iter().flatten() {
            if let Ok(place) = place.canonicalize()
                && place.starts_with(top)
            {
                self.along(&place);
            }
        }
        let store = self.store;
        let request = |target| LayerRequest { target, store: store.to_owned() };
        self.targets.into_iter().map(request).collect()
    }

    /// Goes down until there is no mount below.
    fn split(&mut self, dir: &Path) {
        if rustix::fs::access(dir, Access::EXEC_OK).is_err() {
            return; // Nothing in it can be reached, let alone changed.
        }
        if !self.is_split(dir) {
            self.targets.insert(dir.to_owned());
            if !self.is_own(dir) {
                self.search(dir, 0);
            }
            return;
        }
        for child in self.directories(dir) {
            self.split(&child);
        }
    }

    /// Finds directories below somebody else's that need a layer of their own.
    fn search(&mut self, dir: &Path, depth: u32) {
        for child in self.directories(dir) {
            if self.is_own(&child) {
                self.targets.insert(child);
                continue;
            }
            if rustix::fs::access(&child, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
                self.targets.insert(child.clone());
            }
            if depth + 1 < DEPTH_MAX {
                self.search(&child, depth + 1);
            }
        }
    }

    /// Makes sure that a deep place of the user's is covered.
    fn along(&mut self, place: &Path) {
        let mut above: Vec<&Path> = place.ancestors().collect();
        above.reverse();
        let covered =
            |c: &Self, dir: &Path| !c.is_split(dir) && c.targets.iter().any(|t| dir.starts_with(t));
        let mut parent_is_own = false;
        for dir in above {
            let own = self.is_own(dir);
            let here = mounts::mount_id(dir) == Some(self.mount.id);
            if here && own && !parent_is_own && covered(self, dir) {
                self.targets.insert(dir.to_owned());
            }
            parent_is_own = own;
        }
    }

    /// The directories in a directory that are on the same mount and not the running system's.
    fn directories(&mut self, dir: &Path) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            if self.looks >= LOOKS_MAX {
                break;
            }
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            self.looks += 1;
            let path = entry.path();
            if !is_never(&path)
                && path != self.store
                && !self.mounts.iter().any(|m| m.point == path)
            {
                found.push(path);
            }
        }
        found
    }

    fn is_own(&self, dir: &Path) -> bool {
        std::fs::symlink_metadata(dir).is_ok_and(|m| m.uid() == self.uid)
    }

    /// Whether something below the directory is never part of it: a mount, or `/run` and the like.
    fn is_split(&self, dir: &Path) -> bool {
        below(self.mounts, dir).next().is_some()
            || NEVER.iter().any(|n| Path::new(n).starts_with(dir))
    }
}
