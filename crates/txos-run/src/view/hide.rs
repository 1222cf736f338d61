//! Paths that are absent inside: a whiteout of overlayfs in the layer's upper directory for each, put there before the
//! view is made, and taken out when it is gone. In between it looks like a deletion, and nothing reads it as one.
//!
//! A command that makes something under such a name, or moves or removes a directory above it, would change what it can't
//! see: that is refused when it has ended.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps};
use txos_engine::Context;
use txos_engine::show::quoted;
use txos_engine::store::{Layer, Transaction, copy_attributes};

use crate::error::{Error, Result};

/// A path that is hidden.
struct Whiteout {
    /// In the stable tree.
    path: PathBuf,
    /// In the upper directory.
    at: PathBuf,
    /// The layer's upper directory.
    upper: PathBuf,
    /// It was put there for this; else the transaction had removed the path before.
    placed: bool,
}

/// What is hidden from a command.
pub struct Hidden {
    whiteouts: Vec<Whiteout>,
    /// Directories made in upper directories, with their change times; parents first.
    made: Vec<(PathBuf, (i64, i64))>,
}

fn refused(path: &Path, why: &str) -> Error {
    Error::Unsupported {
        what: format!("{} can't be hidden: {why}", quoted(path)),
        advice: "Nothing was run.".into(),
    }
}

/// Hides paths. One that does not exist is absent as it is, and stays so for the command.
///
/// # Errors
/// If one is not versioned, or was changed by the transaction before.
pub fn place(tx: &Transaction, paths: &[PathBuf]) -> Result<Hidden> {
    let layers = tx.layers();
    let mut hidden = Hidden { whiteouts: Vec::new(), made: Vec::new() };
    let placed = paths.iter().try_for_each(|path| hidden.add(&layers, path));
    if let Err(error) = placed {
        hidden.take_out()?;
        return Err(error);
    }
    for (dir, changed) in &mut hidden.made {
        *changed = change_time(dir);
    }
    Ok(hidden)
}

fn change_time(path: &Path) -> (i64, i64) {
    std::fs::symlink_metadata(path).map(|m| (m.ctime(), m.ctime_nsec())).unwrap_or_default()
}

fn is_whiteout(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_char_device() && m.rdev() == 0)
}

/// Whether an upper directory stands for the directory of its name, together with what is below it there.
fn is_merged(dir: &Path) -> bool {
    let marks = ["trusted.overlay.opaque", "user.overlay.opaque"];
    let moved = ["trusted.overlay.redirect", "user.overlay.redirect"];
    let has = |name: &&str| rustix::fs::lgetxattr(dir, *name, &mut [0u8; 4096][..]).is_ok();
    std::fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir()) && !marks.iter().chain(&moved).any(has)
}

impl Hidden {
    /// Canonical paths of what is hidden.
    pub fn paths(&self) -> impl Iterator<Item = Vec<u8>> {
        self.whiteouts.iter().map(|w| w.path.as_os_str().as_bytes().to_vec())
    }

    fn add(&mut self, layers: &[Layer], written: &Path) -> Result<()> {
        let (dir, name) = written
            .parent()
            .zip(written.file_name())
            .ok_or_else(|| refused(written, "it is no name in a directory"))?;
        let dir = match dir.canonicalize() {
            Ok(dir) => dir,
            Err(e) => return Err(refused(written, &format!("its directory can't be found ({e})"))),
        };
        let path = dir.join(name);
        let layer = layers
            .iter()
            .filter(|l| path.starts_with(&l.target) && path != l.target)
            .max_by_key(|l| l.target.as_os_str().len());
        let Some(layer) = layer.filter(|_| !super::plan::is_never(&path)) else {
            return Err(refused(&path, "it is not versioned in this transaction"));
        };
        let below = path.strip_prefix(&layer.target).unwrap_or(Path::new(""));
        let at = layer.upper.join(below);
        if self.whiteouts.iter().any(|w| path.starts_with(&w.path)) {
            return Ok(());
        }
        if is_whiteout(&at) {
            self.whiteouts.push(Whiteout { path, at, upper: layer.upper.clone(), placed: false });
            return Ok(());
        }
        if at.symlink_metadata().is_ok() {
            return Err(refused(&path, "this transaction has changed it, or something in it"));
        }
        self.make_way(layer, below)?;
        let parent = at.parent().unwrap_or(&layer.upper).to_owned();
        let step = "hiding by a whiteout at";
        keeping_times(&parent, || {
            rustix::fs::mknodat(CWD, &at, FileType::CharacterDevice, Mode::empty(), 0)
        })
        .at(step, &at)?;
        self.whiteouts.push(Whiteout { path, at, upper: layer.upper.clone(), placed: true });
        Ok(())
    }

    /// Makes the directories above a path in the upper directory, as a copy of what they are.
    fn make_way(&mut self, layer: &Layer, below: &Path) -> Result<()> {
        let mut above: Vec<&Path> = below.ancestors().skip(1).collect();
        above.reverse();
        for dir in above.into_iter().filter(|dir| !dir.as_os_str().is_empty()) {
            let at = layer.upper.join(dir);
            if is_merged(&at) {
                continue;
            }
            let target = layer.target.join(dir);
            if at.symlink_metadata().is_ok() {
                return Err(refused(&target, "this transaction has moved or replaced it"));
            }
            let parent = at.parent().unwrap_or(&layer.upper).to_owned();
            keeping_times(&parent, || rustix::fs::mkdir(&at, Mode::RWXU)).at("creating", &at)?;
            self.made.push((at.clone(), (0, 0)));
            copy_attributes(&target, &at)?;
        }
        Ok(())
    }

    /// Takes the whiteouts out again; nothing may be mounted over them. Gives what the command did to hidden paths, if it did
    /// something.
    ///
    /// # Errors
    /// If one can't be taken out.
    pub fn take_out(self) -> Result<Option<String>> {
        let mut touched = Vec::new();
        let is_unchanged = |(dir, changed): &&(PathBuf, (i64, i64))| {
            *changed == (0, 0) || change_time(dir) == *changed
        };
        let unchanged: Vec<&PathBuf> =
            self.made.iter().rev().filter(is_unchanged).map(|(dir, _)| dir).collect();
        for Whiteout { path, at, upper, placed } in &self.whiteouts {
            if !is_whiteout(at) || !way_is_kept(upper, at) {
                touched.push(quoted(path));
            } else if *placed {
                let parent = at.parent().unwrap_or(at).to_owned();
                keeping_times(&parent, || rustix::fs::unlinkat(CWD, at, AtFlags::empty()))
                    .at("removing the whiteout at", at)?;
            }
        }
        // What the kernel or the command has touched meanwhile stays, as a copy perhaps without changes.
        for dir in unchanged {
            let parent = dir.parent().unwrap_or(dir).to_owned();
            let remove = || rustix::fs::unlinkat(CWD, dir, AtFlags::REMOVEDIR);
            let _ = keeping_times(&parent, remove);
        }
        Ok((!touched.is_empty()).then(|| {
            format!(
                "changed what --hide keeps out of its sight: it made, moved or removed {} or a directory above it",
                touched.join(", ")
            )
        }))
    }
}

/// Whether every directory between an upper directory and a whiteout stands for what is in the stable tree.
fn way_is_kept(upper: &Path, at: &Path) -> bool {
    let above = at.ancestors().skip(1).take_while(|dir| *dir != upper);
    above.into_iter().all(is_merged)
}

/// Changes names in a directory, and leaves its times as they are.
fn keeping_times<T>(
    dir: &Path,
    change: impl FnOnce() -> std::result::Result<T, rustix::io::Errno>,
) -> std::result::Result<T, rustix::io::Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, dir, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    let done = change()?;
    let times = Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    };
    rustix::fs::futimens(fd.as_fd(), &times)?;
    Ok(done)
}
