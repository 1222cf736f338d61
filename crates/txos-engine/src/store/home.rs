//! Opening stores, finding transactions, the commit lock, the trash.

use std::any::Any;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{FORMAT, FORMAT_RECORDED, Meta, State};
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::show::{quoted, unquoted};
use crate::{rights, sys};

/// The home store of a user: entry to everything the engine keeps.
#[derive(Debug)]
pub struct Home {
    dir: PathBuf,
    /// What this process keeps with the store.
    attached: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// Held by whoever publishes, recovers or reverts: one at a time per home store.
#[derive(Debug)]
pub struct CommitLock {
    _fd: OwnedFd,
}

/// A child that was forked meanwhile has the descriptor as well: closing ours would let go of nothing.
impl Drop for CommitLock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self._fd, FlockOperation::Unlock);
    }
}

impl Home {
    /// Opens the home store, creating it if there is none.
    ///
    /// # Errors
    /// [`Error::Format`] for a foreign or newer store, [`Error::Io`] if it can't be made.
    pub fn open(dir: &Path) -> Result<Home> {
        create_store(dir)?;
        let dir = dir.canonicalize().at("opening the store", dir)?;
        Ok(Home { dir, attached: OnceLock::new() })
    }

    /// Opens the home store if there is one. Makes nothing, also when the store is removed at this moment.
    ///
    /// # Errors
    /// As [`Home::open`].
    pub fn open_existing(dir: &Path) -> Result<Option<Home>> {
        let is_gone = |error: &Error| matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotFound);
        let format = dir.join("format");
        // What others can read may be looked for anywhere; what is there must be this user's.
        if !format.try_exists().at("looking for the store", &format)? {
            return Ok(None);
        }
        let opened = is_whole(dir).and_then(|whole| {
            let dir = whole.then(|| dir.canonicalize().at("opening the store", dir));
            Ok(dir.transpose()?.map(|dir| Home { dir, attached: OnceLock::new() }))
        });
        match opened {
            Err(error) if is_gone(&error) => Ok(None),
            opened => opened,
        }
    }

    /// Where the home store is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Directory of a transaction in the home store.
    #[must_use]
    pub fn tx_dir(&self, id: TxId) -> PathBuf {
        self.dir.join("tx").join(id.as_str())
    }

    /// All stores: the home store first, then the side stores it lists (some may not be there now).
    ///
    /// # Errors
    /// If the list can't be read.
    pub fn stores(&self) -> Result<Vec<PathBuf>> {
        let mut all = vec![self.dir.clone()];
        let list = self.dir.join("stores");
        let text = match sys::read_text(&list) {
            Ok(t) => t,
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io("reading", &list, e)),
        };
        for line in text.lines() {
            if let Some(bytes) = unquoted(line) {
                let path = crate::path::from_bytes(&bytes);
                if path.is_absolute() && !all.contains(&path) {
                    all.push(path);
                }
            }
        }
        Ok(all)
    }

    /// Makes a side store and remembers it.
    ///
    /// # Errors
    /// As [`Home::open`].
    pub fn add_side_store(&self, dir: &Path) -> Result<()> {
        if !dir.ancestors().skip(1).all(is_safe_parent) {
            return Err(Error::Unsupported {
                what: format!(
                    "{} can't hold a store: others can write a directory above it, and could put \
                     something else in the store's place",
                    quoted(dir)
                ),
                advice:
                    "Leave this tree out, or correct owner and mode of the directories above it."
                        .into(),
            });
        }
        create_store(dir)?;
        if self.stores()?.iter().any(|s| s == dir) {
            return Ok(());
        }
        let list = self.dir.join("stores");
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
        let mut file = sys::step("store create", || options.open(&list)).at("opening", &list)?;
        let line = format!("{}\n", quoted(dir));
        sys::step("store append", || file.write_all(line.as_bytes())).at("writing", &list)
    }

    /// What this process keeps with the store: made at the first call, the same one ever after. One type
    /// for a store; another one finds nothing kept.
    pub(crate) fn attached<T: Default + Any + Send + Sync>(&self) -> Arc<T> {
        let attached = self.attached.get_or_init(|| Arc::new(T::default()));
        attached.clone().downcast().unwrap_or_default()
    }

    /// The side store of this user beside the root of a mount, made and known as such if need be.
    ///
    /// # Errors
    /// As [`Home::add_side_store`].
    pub fn side_store(&self, mount_point: &Path) -> Result<PathBuf> {
        let name = match rights::owns_tree() {
            true => ".txos".to_owned(),
            // Its own place, whatever number it has in a user namespace.
            false => format!(".txos-{}", rights::number_of_places()),
        };
        let dir = mount_point.join(name);
        self.add_side_store(&dir)?;
        Ok(dir)
    }

    /// Waits for and takes the commit lock.
    ///
    /// # Errors
    /// If the lock file can't be opened.
    pub fn lock_commits(&self) -> Result<CommitLock> {
        // Light commits share the lock, one after the other; behind the turnstile they wait for us.
        let turnstile = self.open_turnstile()?;
        self.flock(&turnstile, FlockOperation::LockExclusive)?;
        let fd = self.open_commit_lock()?;
        self.flock(&fd, FlockOperation::LockExclusive)?;
        let _ = rustix::fs::flock(&turnstile, FlockOperation::Unlock);
        Ok(CommitLock { _fd: fd })
    }

    pub(crate) fn open_turnstile(&self) -> Result<OwnedFd> {
        open_lock(&self.dir.join("lock.turn"))
    }

    pub(crate) fn open_commit_lock(&self) -> Result<OwnedFd> {
        open_lock(&self.dir.join("lock"))
    }

    /// Waits for a lock of the store.
    pub(crate) fn flock(&self, fd: &OwnedFd, how: FlockOperation) -> Result<()> {
        sys::flock(fd, how).at("locking", &self.dir)
    }

    /// The commit lock if nobody has it now.
    ///
    /// # Errors
    /// If the lock file can't be opened.
    pub fn try_lock_commits(&self) -> Result<Option<CommitLock>> {
        let path = self.dir.join("lock");
        let fd = open_lock(&path)?;
        match sys::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(CommitLock { _fd: fd })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(Error::io("locking", &path, e)),
        }
    }

    /// The ids in the store, in no order. Entries that are no transaction are left out.
    ///
    /// # Errors
    /// If the directory can't be read.
    pub fn ids(&self) -> Result<Vec<TxId>> {
        let dir = self.dir.join("tx");
        let mut ids = Vec::new();
        for entry in sys::look("readdir", || fs::read_dir(&dir)).at("listing", &dir)? {
            let entry = entry.at("listing", &dir)?;
            if let Some(id) = entry.file_name().to_str().and_then(|n| n.parse().ok()) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Reads the record of a transaction.
    ///
    /// # Errors
    /// [`Error::Format`] if it is damaged or newer, [`Error::NoSuchTransaction`] if there is none.
    pub fn meta(&self, id: TxId) -> Result<Meta> {
        let path = self.tx_dir(id).join("meta.json");
        let bytes = match sys::read_record(&path) {
            Ok(b) => b,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Error::NoSuchTransaction(id.to_string()));
            }
            Err(e) => return Err(Error::io("reading", &path, e)),
        };
        // A power cut can leave the name of a file whose bytes were not flushed.
        if bytes.iter().all(|&b| b == 0) {
            return Err(Error::NoSuchTransaction(id.to_string()));
        }
        let meta: Meta = serde_json::from_slice(&bytes).map_err(|e| Error::Format {
            path: path.clone(),
            problem: format!("is not a record of a transaction that this txos can read ({e})"),
            advice: "`txos gc --force ID` removes the transaction with its private copies.",
        })?;
        if meta.format > FORMAT_RECORDED || meta.id != id {
            return Err(Error::Format {
                path,
                problem: format!("is of format {} for {}", meta.format, meta.id),
                advice: "Use the version of txos that wrote it.",
            });
        }
        Ok(meta)
    }

    /// Writes a record that nobody holds the transaction of, by rename.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub(crate) fn save_meta(&self, meta: &Meta, flush: bool) -> Result<()> {
        super::transaction::save_meta(&self.tx_dir(meta.id), meta, flush)
    }

    /// Flushes the record of a transaction: that it is found under its name, and as it was saved last.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn flush_record(&self, id: TxId) -> Result<()> {
        let dir = self.tx_dir(id);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let fd = sys::open(dir.as_os_str().as_encoded_bytes(), flags, 0).at("opening", &dir)?;
        sys::fsync(fd.as_fd()).at("flushing", &dir)
    }

    /// The records of all transactions, newest first; those that can't be read come as errors. The place that
    /// a running program keeps for its private copies is none.
    ///
    /// # Errors
    /// If the store can't be listed.
    pub fn transactions(&self) -> Result<Vec<std::result::Result<Meta, Error>>> {
        let mut all: Vec<_> = self.ids()?.into_iter().map(|id| self.meta(id)).collect();
        // Whatever vanished between listing and reading was just cleaned up.
        all.retain(|m| !matches!(m, Err(Error::NoSuchTransaction(_))));
        let kept = |meta: &Meta| {
            meta.state == State::Active && self.is_staging(meta.id) && self.is_held(meta.id)
        };
        all.retain(|meta| !meta.as_ref().is_ok_and(kept));
        all.sort_by_key(|m| std::cmp::Reverse(m.as_ref().map(|m| m.begun).ok()));
        Ok(all)
    }

    /// The transaction that `text` means: `@` is the newest, anything else the start of an id.
    ///
    /// # Errors
    /// [`Error::NoSuchTransaction`], [`Error::AmbiguousId`]. For `@`, [`Error::Io`] if a record can't be read: it
    /// may be the newest one's. Damaged ones are passed over.
    pub fn resolve(&self, text: &str) -> Result<TxId> {
        if text == "@" {
            let mut newest = None;
            for record in self.transactions()? {
                match record {
                    Ok(meta) if meta.state != State::Active || Home::falls_back(&meta) => {
                        newest = newest.or(Some(meta.id));
                    }
                    Ok(_) | Err(Error::Format { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
            return newest.ok_or_else(|| Error::NoSuchTransaction(text.into()));
        }
        let mut found: Vec<TxId> =
            self.ids()?.into_iter().filter(|id| id.as_str().starts_with(text)).collect();
        found.sort();
        match found[..] {
            _ if text.is_empty() => Err(Error::NoSuchTransaction(text.into())),
            [] => Err(Error::NoSuchTransaction(text.into())),
            [id] => Ok(id),
            _ => Err(Error::AmbiguousId(text.into(), found)),
        }
    }

    /// Deletes what is in the trash of all stores, for at most `budget`. Gives `true` when nothing
    /// is left.
    ///
    /// # Errors
    /// If a trash directory can't be read; single entries that resist are left for next time.
    pub fn empty_trash(&self, budget: Option<Duration>) -> Result<bool> {
        let deadline = budget.map(|b| Instant::now() + b);
        self.empty_trash_while(&|| deadline.is_none_or(|deadline| Instant::now() < deadline))
    }

    /// Deletes what is in the trash of all stores, as long as `goes_on` says so, which is asked before each entry. Gives
    /// `true` when nothing is left.
    ///
    /// # Errors
    /// As of [`Home::empty_trash`].
    pub fn empty_trash_while(&self, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        let mut empty = true;
        self.each_trash(|trash| empty &= delete_below(trash, goes_on).unwrap_or(false))?;
        Ok(empty)
    }

    /// Whether the trash of no store holds more than `most` transactions or parts of one.
    ///
    /// # Errors
    /// As of [`Home::empty_trash`].
    pub fn has_little_trash(&self, most: usize) -> Result<bool> {
        let mut little = true;
        self.each_trash(|trash| {
            little &= sys::names_in(trash.as_fd()).is_ok_and(|names| names.len() <= most);
        })?;
        Ok(little)
    }

    /// Opens the trash of each store that is there.
    fn each_trash(&self, mut each: impl FnMut(&OwnedFd)) -> Result<()> {
        for store in self.stores()? {
            let Some(root) = open_trusted(&store)? else { continue };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match sys::open_at(root.as_fd(), b"trash", flags) {
                Ok(trash) => each(&trash),
                Err(Errno::NOENT) => {}
                Err(e) => return Err(Error::io("opening", store.join("trash"), e)),
            }
        }
        Ok(())
    }
}

/// Opens a store, if it is there. What is there and is not ours alone is none: its file system is not
/// mounted, and somebody has put something else in its place. Nothing of ours is in that.
pub(super) fn open_trusted(store: &Path) -> Result<Option<OwnedFd>> {
    match sys::open_dir_canonical(store.as_os_str().as_encoded_bytes()) {
        Ok(root) => match check_trusted(store, root.as_fd()) {
            Ok(()) => Ok(Some(root)),
            Err(error @ Error::Format { .. }) => {
                tracing::warn!("left alone: {error}");
                Ok(None)
            }
            Err(error) => Err(error),
        },
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(Error::io("opening", store, e)),
    }
}

/// Deletes everything below an open directory, not following links; `false` if it was to stop or
/// something could not be deleted. Depth is bounded by memory, not by descriptors: a directory
/// that is too deep is first moved up to the top.
fn delete_below(top: &OwnedFd, goes_on: &dyn Fn() -> bool) -> std::result::Result<bool, Errno> {
    let mut lifted = 0u64;
    loop {
        let mut again = false;
        let mut complete = true;
        delete_level(top, top, goes_on, 0, &mut lifted, &mut again, &mut complete)?;
        if !again {
            return Ok(complete);
        }
    }
}

/// Directory levels that are kept open at a time.
const DEPTH_MAX: u32 = 64;

#[expect(clippy::too_many_arguments, reason = "the recursion carries its state")]
fn delete_level(
    top: &OwnedFd,
    dir: &OwnedFd,
    goes_on: &dyn Fn() -> bool,
    depth: u32,
    lifted: &mut u64,
    again: &mut bool,
    complete: &mut bool,
) -> std::result::Result<(), Errno> {
    let mut names = Vec::new();
    // The top is listed once a round, by the same descriptor.
    sys::look("lseek", || rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0)))?;
    sys::for_each_name(dir.as_fd(), |name, kind| names.push((name.to_vec(), kind)))?;
    for (name, kind) in names {
        if !goes_on() {
            *complete = false;
            return Ok(());
        }
        if kind != FileType::Directory {
            match sys::unlink(dir.as_fd(), &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR) => {}
                Err(_) => {
                    *complete = false;
                    continue;
                }
            }
        }
        if depth >= DEPTH_MAX {
            // Too deep to go on from here: bring the rest up to the top and go round again.
            *lifted += 1;
            let up = format!("deep-{}-{lifted}", std::process::id());
            let to_top = || rustix::fs::renameat(dir, &name[..], top, up.as_bytes());
            if sys::step("store rename", to_top).is_ok() {
                *again = true;
            } else {
                *complete = false;
            }
            continue;
        }
        let open = |dir: &OwnedFd| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            sys::open_at(dir.as_fd(), &name, flags)
        };
        let sub = match open(dir) {
            Err(Errno::ACCESS) => {
                // Private copies keep the modes the command gave them; make this one ours again.
                // By what was opened, for the name may be a link by now.
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                if let Ok(found) = sys::open_at(dir.as_fd(), &name, flags) {
                    let _ = sys::chmod(found.as_fd(), 0o700);
                }
                open(dir)
            }
            other => other,
        };
        match sub {
            Ok(sub) => {
                let writable = rustix::fs::fstat(&sub).is_ok_and(|s| s.st_mode & 0o200 != 0);
                if !writable {
                    let _ = sys::step("store chmod", || rustix::fs::fchmod(&sub, Mode::RWXU));
                }
                delete_level(top, &sub, goes_on, depth + 1, lifted, again, complete)?;
            }
            Err(Errno::NOENT) => continue,
            Err(_) => *complete = false,
        }
        if !matches!(
            sys::unlink(dir.as_fd(), &name, AtFlags::REMOVEDIR),
            Ok(()) | Err(Errno::NOENT)
        ) {
            *complete = false;
        }
    }
    Ok(())
}

fn open_lock(path: &Path) -> Result<OwnedFd> {
    sys::open(
        path.as_os_str().as_encoded_bytes(),
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW,
        0o600,
    )
    .at("opening the lock", path)
}

/// Whether a store is there. It is whole with its format file, which comes last.
fn is_whole(dir: &Path) -> Result<bool> {
    // Whose it is comes first: what is in somebody else's may be a pipe without an end.
    match check_owner(dir) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(false),
        other => other?,
    }
    let format = dir.join("format");
    match sys::read_text(&format) {
        Ok(text) => check_store(dir, &format, &text).map(|()| true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("reading", &format, e)),
    }
}

/// Makes a store directory with its format file, or checks the one that is there.
fn create_store(dir: &Path) -> Result<()> {
    let format = dir.join("format");
    if is_whole(dir)? {
        return Ok(());
    }
    // A directory with anything in it that is not the beginning of a store is somebody else's.
    if let Ok(entries) = sys::look("readdir", || fs::read_dir(dir)) {
        for entry in entries {
            let entry = entry.at("listing", dir)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let empty = || fs::read_dir(entry.path()).is_ok_and(|mut d| d.next().is_none());
            let ours = matches!(&*name, "tx" | "trash") && empty() || name.starts_with("format.");
            // Another one may be making it at this moment, and be done.
            if !ours && let Ok(text) = sys::read_text(&format) {
                return check_store(dir, &format, &text);
            }
            if !ours {
                return Err(Error::Format {
                    path: dir.to_owned(),
                    problem: format!("is not a txos store and not empty (it holds {name:?})"),
                    advice: "Name another directory with TXOS_STORE, or restore its file `format`.",
                });
            }
        }
    }
    sys::step("store mkdir", || fs::DirBuilder::new().recursive(true).mode(0o700).create(dir))
        .at("creating the store", dir)?;
    check_owner(dir)?;
    for sub in ["tx", "trash"] {
        let path = dir.join(sub);
        match sys::step("store mkdir", || fs::DirBuilder::new().mode(0o700).create(&path)) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::io("creating", &path, e));
            }
            _ => {}
        }
    }
    // The format file comes last and by rename: with it the store is complete.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let temp = dir.join(format!("format.{}.{number}", std::process::id()));
    let text = format!("txos-store {FORMAT}\n");
    // Flushed before it gets its name: after a power cut it is there and whole, or not there.
    let write = || -> std::io::Result<()> {
        sys::step("store create", || fs::write(&temp, &text))?;
        Ok(sys::fdatasync(fs::File::open(&temp)?.as_fd())?)
    };
    let made = write().at("writing", &temp).and_then(|()| {
        sys::step("store rename", || fs::rename(&temp, &format)).at("creating", &format)
    });
    if made.is_err() {
        // What is left of it is removed by gc.
        let _ = sys::step("store unlink", || fs::remove_file(&temp));
    }
    made
}

fn check_store(dir: &Path, format: &Path, text: &str) -> Result<()> {
    let refuse =
        |problem: String, advice| Err(Error::Format { path: format.to_owned(), problem, advice });
    match text.trim_end().strip_prefix("txos-store ").map(str::parse::<u32>) {
        Some(Ok(FORMAT)) => check_owner(dir),
        Some(Ok(newer)) if newer > FORMAT => refuse(
            format!("says format {newer}, newer than this txos knows ({FORMAT})"),
            "Use the version of txos that wrote it.",
        ),
        _ => refuse(
            "is not the format file of a txos store".into(),
            "Move the directory away, or name another with TXOS_STORE.",
        ),
    }
}

/// A store must be a directory of our own that nobody else can write: it is trusted by recovery.
fn check_owner(dir: &Path) -> Result<()> {
    let fd = sys::open(
        dir.as_os_str().as_encoded_bytes(),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW,
        0,
    )
    .at("opening the store", dir)?;
    check_trusted(dir, fd.as_fd())
}

/// Whether nobody but this user and root can put something else in the place of an entry of `dir`.
fn is_safe_parent(dir: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    fs::metadata(dir).is_ok_and(|m| {
        let sticky = m.mode() & 0o1000 != 0;
        (m.uid() == uid || m.uid() == 0) && (sticky || m.mode() & 0o022 == 0)
    })
}

/// [`check_owner`] of an open directory.
pub(crate) fn check_trusted(dir: &Path, fd: std::os::fd::BorrowedFd<'_>) -> Result<()> {
    let meta =
        crate::version::stat_at(fd, b"", AtFlags::EMPTY_PATH).at("looking at the store", dir)?;
    let uid = rustix::process::geteuid().as_raw();
    if meta.uid == uid && meta.mode & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::Format {
        path: dir.to_owned(),
        problem: format!(
            "can't be trusted as a store (owner {}, mode {:04o}; it must be a directory of uid {uid} that nobody else can write)",
            meta.uid,
            meta.mode & 0o7777
        ),
        advice: "Correct its owner and mode, or name another directory with TXOS_STORE.",
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A store that goes while others look for it is not made again.
    #[test]
    fn looking_for_a_store_makes_none() {
        let top = std::env::temp_dir().join(format!("txos-test-home-gone-{}", std::process::id()));
        let dir = top.join("store");
        for _ in 0..200 {
            drop(Home::open(&dir).unwrap());
            let is_gone = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while !is_gone.load(Ordering::Relaxed) {
                            drop(Home::open_existing(&dir).unwrap());
                        }
                    });
                }
                fs::rename(&dir, top.join("gone")).unwrap();
                is_gone.store(true, Ordering::Relaxed);
            });
            assert!(!dir.exists());
            fs::remove_dir_all(top.join("gone")).unwrap();
        }
        fs::remove_dir_all(top).unwrap();
    }

    /// Whoever opens a new store first makes it; nobody sees it half made.
    #[test]
    fn a_new_store_may_be_opened_by_many_at_once() {
        let top = std::env::temp_dir().join(format!("txos-test-home-{}", std::process::id()));
        for round in 0..40 {
            let dir = top.join(round.to_string());
            std::thread::scope(|scope| {
                let open = || Home::open(&dir).map(drop);
                let all: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
                for one in all {
                    one.join().unwrap().unwrap();
                }
            });
        }
        fs::remove_dir_all(top).unwrap();
    }
}
