//! What a pending transaction was before one more command runs in it (`txos exec`), so that it is that
//! again if the command fails or anything dies.
//!
//! # Invariants
//!
//! - The record names a saved state (`before`) only while all of it is there: it is written after the
//!   last copy, and, of a durable transaction, after both were flushed.
//! - While the record names one, the saved state decides: whoever finds it with the transaction's lock
//!   free takes the transaction back to it. Taking back can be interrupted and repeated.
//! - One write of the record ends it: the command's changes are the transaction's from then on.
//!
//! overlayfs writes in place into what is in an upper directory, so that a saved copy can share blocks
//! (where the file system can) but no inode with it. Names of one inode, in the upper directory and in
//! overlayfs's index, are names of one inode in the copy.
//!
//! ```text
//! tx/ID/reads.before         another name of the read set, which is only ever replaced
//! tx/ID/lN.before/upper      a copy of lN/upper
//! tx/ID/lN.before/work/index a copy of overlayfs's index
//! ```

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Home, Layer, State, Transaction, boot_id};
use crate::error::{Context, Error, Result};
use crate::path::join;
use crate::sys;
use crate::version::Stamp;

type Sys<T> = std::result::Result<T, Errno>;

/// The fields of the record that go back with the saved state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Boot in which it was kept.
    pub boot: String,
    /// When it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Stamp>,
    /// Status with which its last command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Number of changed paths.
    #[serde(default)]
    pub changes: u64,
}

/// Marks of overlayfs that name an inode of the original: it sets them anew.
const OF_THE_ORIGINAL: [&[u8]; 2] = [b"trusted.overlay.upper", b"user.overlay.upper"];

impl Transaction {
    /// Saves a pending transaction as it is, and makes it active.
    ///
    /// # Errors
    /// [`Error::Io`] with the step; the transaction is as it was.
    pub fn save_before(&mut self) -> Result<()> {
        let flush = self.meta.durable;
        let _rights = crate::sys_owner::rights();
        // What another one that died on the way had copied.
        self.discard_before()?;
        for layer in self.layers() {
            let to = before(&layer);
            make_dir(&to)?;
            make_dir(&to.join("work"))?;
            let mut copy = Copy { names: HashMap::new(), top: to.clone() };
            copy.tree(&layer.upper, b"upper")?;
            let index = layer.work.join("index");
            if index.is_dir() {
                copy.tree(&index, b"work/index")?;
            }
            if flush {
                let fd = open(&to)?;
                sys::syncfs(fd.as_fd()).at("flushing", &to)?;
            }
        }
        let (reads, kept) = (self.dir().join("reads"), self.dir().join("reads.before"));
        sys::step("store link", || fs::hard_link(&reads, &kept)).at("saving", &reads)?;
        if flush {
            self.flush_dir()?;
        }
        let was = self.meta.clone();
        self.meta.before = Some(Box::new(Before {
            boot: std::mem::replace(&mut self.meta.boot, boot_id()),
            ended: self.meta.ended.take(),
            exit_status: self.meta.exit_status.take(),
            changes: self.meta.changes,
        }));
        self.meta.format = self.meta.format_needed();
        self.meta.state = State::Active;
        let saved = self.save(flush).and_then(|()| if flush { self.flush_dir() } else { Ok(()) });
        if saved.is_err() {
            // The record that is there now may be either; with the saved state both mean the same.
            self.meta = was;
        }
        saved
    }

    /// Takes the transaction back to what [`Transaction::save_before`] saved: it is pending again. One
    /// that has nothing saved is left as it is.
    ///
    /// # Errors
    /// [`Error::WrongState`] if the store of a layer is not there: no layer is taken back without the
    /// others. [`Error::Io`] with the step. Both can be repeated.
    pub fn fall_back(&mut self) -> Result<()> {
        let _rights = crate::sys_owner::rights();
        let Some(was) = self.meta.before.clone() else { return Ok(()) };
        let flush = self.meta.durable;
        // Until the record says that it is over, each layer's directory is there, if its store is.
        for layer in self.layers() {
            if !exists(&before(&layer))? {
                return Err(Error::WrongState {
                    id: self.id(),
                    state: format!(
                        "interrupted, and its private copies in {} are not there",
                        crate::show::quoted(&layer.store)
                    ),
                    advice: "mount that file system and try again; until then nothing of the \
                             transaction is changed."
                        .into(),
                });
            }
        }
        for layer in self.layers() {
            let from = before(&layer);
            for (part, to) in [("upper", &layer.upper), ("work", &layer.work)] {
                let from = from.join(part);
                if !exists(&from)? {
                    continue; // It is back already.
                }
                if exists(to)? {
                    self.to_trash(&layer.store, to, part)?;
                }
                sys::step("store rename", || fs::rename(&from, to)).at("taking back", to)?;
            }
            if flush {
                let fd = open(&from)?;
                sys::syncfs(fd.as_fd()).at("flushing", &from)?;
            }
        }
        let (kept, reads) = (self.dir().join("reads.before"), self.dir().join("reads"));
        match sys::step("store rename", || fs::rename(&kept, &reads)) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Error::io("taking back", reads, e));
            }
            // Two names of one file: `rename` leaves both.
            _ => remove_file(&kept)?,
        }
        let mut meta = self.meta.clone();
        meta.state = State::Pending;
        meta.before = None;
        meta.format = meta.format_needed();
        meta.boot = was.boot;
        meta.ended = was.ended;
        meta.exit_status = was.exit_status;
        meta.changes = was.changes;
        let active = std::mem::replace(&mut self.meta, meta);
        if let Err(error) = self.save(flush) {
            self.meta = active;
            return Err(error);
        }
        if flush {
            self.flush_dir()?;
        }
        self.discard_before()
    }

    /// What the command made of the transaction is what it is from the next save of its record on.
    pub fn stay(&mut self) {
        self.meta.before = None;
        self.meta.format = self.meta.format_needed();
        self.meta.state = State::Pending;
    }

    /// Removes what was saved, if the record does not name it.
    ///
    /// # Errors
    /// If it can't be moved to the trash.
    pub fn discard_before(&self) -> Result<()> {
        let _rights = crate::sys_owner::rights();
        if self.meta.before.is_some() {
            return Ok(());
        }
        for layer in self.layers() {
            let saved = before(&layer);
            if exists(&saved)? {
                self.to_trash(&layer.store, &saved, "before")?;
            }
        }
        remove_file(&self.dir().join("reads.before"))
    }

    fn to_trash(&self, store: &Path, from: &Path, what: &str) -> Result<()> {
        let name = format!("{}-{what}-{}", self.id(), Stamp::now().as_ns());
        let to = store.join("trash").join(name);
        sys::step("store rename", || fs::rename(from, to)).at("discarding", from)
    }

    fn flush_dir(&self) -> Result<()> {
        let dir = open(self.dir())?;
        sys::fsync(dir.as_fd()).at("flushing", self.dir())
    }
}

impl Home {
    /// Whether a transaction that nobody runs any more is, in truth, pending: the command that ran in it
    /// died, and what it was before is there.
    #[must_use]
    pub fn falls_back(meta: &super::Meta) -> bool {
        meta.state == State::Active && meta.before.is_some()
    }
}

/// Where a layer's saved copies are.
fn before(layer: &Layer) -> PathBuf {
    let mut path = layer.upper.parent().unwrap_or(&layer.upper).as_os_str().to_owned();
    path.push(".before");
    path.into()
}

fn make_dir(dir: &Path) -> Result<()> {
    let made = sys::step("store mkdir", || rustix::fs::mkdirat(CWD, dir, Mode::RWXU));
    made.at("creating", dir)
}

fn open(dir: &Path) -> Result<OwnedFd> {
    sys::open(dir.as_os_str().as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY, 0).at("opening", dir)
}

fn exists(path: &Path) -> Result<bool> {
    match sys::look("lstat", || fs::symlink_metadata(path)) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("looking at", path, e)),
    }
}

fn remove_file(path: &Path) -> Result<()> {
    match sys::step("store unlink", || fs::remove_file(path)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("removing", path, e)),
        _ => Ok(()),
    }
}

/// Copies trees of one layer.
struct Copy {
    /// The first name, below `top`, of each inode that has several.
    names: HashMap<(u64, u64), Vec<u8>>,
    top: PathBuf,
}

impl Copy {
    /// Copies a directory with everything below it to a name below the top.
    fn tree(&mut self, from: &Path, name: &[u8]) -> Result<()> {
        let (source, top) = (open(from)?, open(&self.top)?);
        let shown = |path: &[u8]| {
            PathBuf::from(std::ffi::OsStr::from_bytes(&join(from.as_os_str().as_bytes(), path)))
        };
        let made = |dir: BorrowedFd<'_>, name: &[u8]| {
            sys::step("save mkdir", || rustix::fs::mkdirat(dir, name, Mode::RWXU))
        };
        made(top.as_fd(), name).at("saving", from)?;
        let target = sys::open_dir_beneath(top.as_fd(), name).at("saving", from)?;
        // Parents before children; attributes are set the other way round, because the times of a
        // directory change with what is made in it.
        let mut dirs = vec![Vec::new()];
        let mut next = 0;
        while let Some(path) = dirs.get(next).cloned() {
            next += 1;
            let open_both = || {
                let from = sys::open_dir_beneath(source.as_fd(), &path)?;
                Ok::<_, Errno>((from, sys::open_dir_beneath(target.as_fd(), &path)?))
            };
            let (from_dir, to_dir) = open_both().at("saving", shown(&path))?;
            let entries = sys::names_in(from_dir.as_fd()).at("listing", shown(&path))?;
            for (entry, _) in entries {
                let full = if path.is_empty() { entry.clone() } else { join(&path, &entry) };
                let stat = stat(from_dir.as_fd(), &entry).at("looking at", shown(&full))?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    made(to_dir.as_fd(), &entry).at("saving", shown(&full))?;
                    dirs.push(full);
                    continue;
                }
                let here = join(name, &full);
                self.object(&top, from_dir.as_fd(), to_dir.as_fd(), &entry, &stat, &here)
                    .at("saving", shown(&full))?;
            }
        }
        for path in dirs.iter().rev() {
            let copied = || {
                let from = sys::open_dir_beneath(source.as_fd(), path)?;
                let to = sys::open_dir_beneath(target.as_fd(), path)?;
                let stat = stat(from.as_fd(), b"")?;
                attributes(from.as_fd(), to.as_fd(), b"", &stat)
            };
            copied().at("saving", shown(path))?;
        }
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the two ends of one step of a recursion, and what was seen there"
    )]
    fn object(
        &mut self,
        top: &OwnedFd,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
        here: &[u8],
    ) -> Sys<()> {
        if stat.st_nlink > 1 {
            let id = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.names.get(&id) {
                let (dir, base) = crate::path::split(first).unwrap_or((b"", first));
                let dir = sys::open_dir_beneath(top.as_fd(), dir)?;
                return sys::step("save link", || {
                    rustix::fs::linkat(&dir, base, to, name, AtFlags::empty())
                });
            }
            self.names.insert(id, here.to_vec());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let source = sys::open_at(from, name, OFlags::RDONLY | OFlags::NOFOLLOW)?;
                let copy = sys::create(to, name)?;
                crate::sys_copy::content(&source, &copy)?;
            }
            FileType::Symlink => {
                let target = sys::look("readlink", || {
                    let link = sys::open_at(from, name, OFlags::PATH | OFlags::NOFOLLOW)?;
                    rustix::fs::readlinkat(link, c"", Vec::new())
                })?;
                sys::step("save symlink", || rustix::fs::symlinkat(&target, to, name))?;
            }
            kind => sys::step("save mknod", || {
                rustix::fs::mknodat(to, name, kind, Mode::RUSR | Mode::WUSR, stat.st_rdev)
            })?,
        }
        attributes(from, to, name, stat)
    }
}

fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> Sys<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    sys::look("stat", || match rustix::fs::statat(dir, name, flags) {
        Err(Errno::ACCESS) => {
            let found = crate::sys_owner::open_place(dir, name, OFlags::NOFOLLOW)?;
            rustix::fs::statat(found, c"", AtFlags::EMPTY_PATH)
        }
        other => other,
    })
}

/// Owner, mode, extended attributes and times of an entry; of the directory itself for an empty name.
fn attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> Sys<()> {
    // A directory that nobody may search is reached by what is open, not by a name in it.
    let (path, follow) = match name {
        b"" => (format!("/proc/self/fd/{}", to.as_raw_fd()).into_bytes(), AtFlags::empty()),
        name => (sys::entry_path(to, name), AtFlags::SYMLINK_NOFOLLOW),
    };
    sys::step("save chown", || {
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        rustix::fs::chownat(CWD, &path[..], Some(uid), Some(gid), follow)
    })?;
    // After the owner, whose change takes capabilities away; before the mode, which may take away the
    // right to set them.
    for (attr, value) in sys::xattrs(&sys::entry_path(from, name))? {
        if OF_THE_ORIGINAL.contains(&&attr[..]) {
            continue;
        }
        // A label that the system gives by itself is there already, and can't always be set.
        if sys::xattr(&sys::entry_path(to, name), &attr).ok().flatten().as_ref() != Some(&value) {
            sys::set_xattr(to, name, &attr, &value)?;
        }
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        sys::step("save chmod", || rustix::fs::chmod(&path[..], mode))?;
    }
    let times = Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    };
    sys::step("save utimens", || rustix::fs::utimensat(CWD, &path[..], &times, follow))
}
