//! One transaction's directory: begun, loaded, kept, discarded.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::savepoint::Manifest;
use super::{FORMAT, FORMAT_UNPRIVILEGED, Home, LayerMeta, Meta, State};
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::machine::boot_id;
use crate::readset::ReadSet;
use crate::sys;
use crate::version::Stamp;

/// A tree to version, and the store that holds its private copies.
#[derive(Clone, Debug)]
pub struct LayerRequest {
    /// The tree's root, canonical.
    pub target: PathBuf,
    /// A store directory on the same mount; made if it does not exist. The home store or a side store.
    pub store: PathBuf,
}

/// What a transaction begins with.
#[derive(Clone, Debug, Default)]
pub struct Begin {
    /// What to version.
    pub layers: Vec<LayerRequest>,
    /// Name for the history.
    pub name: Option<String>,
    /// Message for the history.
    pub message: Option<String>,
    /// The command's words.
    pub command: Vec<String>,
    /// Whether words of it are left out.
    pub arguments_hidden: bool,
    /// Where it is started.
    pub directory: PathBuf,
    /// The trees of `--scope`, for one that is recorded ([`Meta::scope`]).
    pub scope: PathBuf,
    /// Whether it is to be durable.
    pub durable: bool,
}

/// Where one layer's files are.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Number of the layer.
    pub index: usize,
    /// The tree's root in the stable tree, canonical.
    pub target: PathBuf,
    /// Identity of that root when the transaction began.
    pub root: Option<crate::object::FileId>,
    /// The store.
    pub store: PathBuf,
    /// overlayfs upper directory.
    pub upper: PathBuf,
    /// overlayfs work directory.
    pub work: PathBuf,
    /// Where a commit puts what it takes out of the tree.
    pub old: PathBuf,
}

/// How many retained objects lie in one directory. ext4 needs 21 µs to move one into a directory of ten thousand, and
/// 12 µs into one of a hundred.
const IN_ONE_DIRECTORY: u64 = 100;

/// The place of the retained object `number` of a layer, relative to the directory of the layer. `kind` distinguishes
/// those that are counted apart.
#[must_use]
pub(crate) fn old_place(kind: &str, number: u64) -> Vec<u8> {
    match number / IN_ONE_DIRECTORY {
        0 => format!("old/{kind}{number}"),
        group => format!("old/group-{group}/{kind}{number}"),
    }
    .into_bytes()
}

impl Layer {
    /// Checks that an open directory is the root with which the transaction began.
    pub(crate) fn check_root(&self, fd: std::os::fd::BorrowedFd<'_>) -> Result<()> {
        check_root(&self.target, self.root, fd)
    }

    /// Whether another one of these layers lies around it.
    #[must_use]
    pub fn is_inside(&self, layers: &[Layer]) -> bool {
        layers.iter().any(|l| l.target != self.target && self.target.starts_with(&l.target))
    }

    /// Whether the transaction can do without the layer: its directory was removed, or what is at its path now is the outer
    /// layer's, and there are no private copies.
    ///
    /// # Errors
    /// If the private copies can't be listed.
    pub fn is_dispensable(&self, layers: &[Layer]) -> Result<bool> {
        Ok(match self.left()? {
            Left::Nothing => true,
            Left::Another => self.is_inside(layers),
            Left::Tree | Left::Copies | Left::Unknown => false,
        })
    }

    /// What is left of the layer's tree.
    ///
    /// # Errors
    /// If the private copies can't be listed.
    pub fn left(&self) -> Result<Left> {
        let root = sys::open_dir_canonical(self.target.as_os_str().as_encoded_bytes());
        if let Ok(root) = &root
            && self.check_root(std::os::fd::AsFd::as_fd(root)).is_ok()
        {
            return Ok(Left::Tree);
        }
        let removed = matches!(root, Err(Errno::NOENT | Errno::NOTDIR));
        match sys::look("readdir", || std::fs::read_dir(&self.upper)) {
            Ok(mut names) => match names.next() {
                Some(_) => Ok(Left::Copies),
                None if removed => Ok(Left::Nothing),
                None => Ok(Left::Another),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Left::Unknown),
            Err(e) => Err(Error::io("listing", &self.upper, e)),
        }
    }
}

/// Whether somebody has removed a layer's directory.
pub(super) fn is_removed(target: &Path) -> bool {
    matches!(rustix::fs::stat(target), Err(Errno::NOENT | Errno::NOTDIR))
}

/// What is left of a layer: see [`Layer::left`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Its directory is what it was when the transaction began.
    Tree,
    /// Its directory is not, and there are private copies of what was in it.
    Copies,
    /// Its directory has been removed, and there are no private copies.
    Nothing,
    /// Another directory is at its path, and there are no private copies.
    Another,
    /// It is not there, and nor are the private copies: they were on the same file system.
    Unknown,
}

/// Checks that an open directory is the layer's root, not what somebody has put in its place.
pub(crate) fn check_root(
    target: &Path,
    root: Option<crate::object::FileId>,
    fd: std::os::fd::BorrowedFd<'_>,
) -> Result<()> {
    let now = crate::version::stat_at(fd, b"", rustix::fs::AtFlags::EMPTY_PATH)
        .at("looking at", target)?;
    if root.is_none_or(|id| id == now.id) {
        return Ok(());
    }
    Err(Error::Conflict(vec![crate::error::Conflict {
        path: target.to_owned(),
        what: crate::error::ConflictKind::RootReplaced,
        when: Some(now.ctime),
    }]))
}

fn look_at_root(target: &Path) -> Option<crate::object::FileId> {
    let fd = sys::open_dir_canonical(target.as_os_str().as_encoded_bytes()).ok()?;
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    crate::version::stat_at(std::os::fd::AsFd::as_fd(&fd), b"", flags).ok().map(|v| v.id)
}

/// A transaction that this process holds: nobody else runs, commits or discards it meanwhile.
#[derive(Debug)]
pub struct Transaction {
    /// Its record; [`Transaction::save`] writes it.
    pub meta: Meta,
    dir: PathBuf,
    held: Held,
    /// The savepoint that this process has made last.
    pub(super) listed: Option<(u32, Manifest)>,
}

/// By what a process holds a transaction.
#[derive(Debug)]
enum Held {
    /// It has begun it, and has its lock since.
    Begun { lock: OwnedFd },
    /// By its lock. Before that it may have been interrupted in its commit; then whoever recovers still
    /// changes its record.
    Loaded { lock: OwnedFd },
    /// By the commit lock, and the journal that names it.
    Recovered,
}

impl Home {
    /// Begins a transaction: makes its directories in every store and takes its lock.
    ///
    /// # Errors
    /// [`Error::Io`] with the step; what was made is removed again by `gc`.
    pub fn begin(&self, begin: Begin) -> Result<Transaction> {
        let (id, dir) = self.make_directory()?;
        let lock = lock(&dir, FlockOperation::NonBlockingLockExclusive)?.ok_or_else(|| busy(id))?;
        let unprivileged_root = crate::rights::is_unprivileged_root();
        let meta = Meta {
            format: if unprivileged_root { FORMAT_UNPRIVILEGED } else { FORMAT },
            id,
            state: State::Active,
            name: begin.name,
            message: begin.message,
            command: begin.command,
            arguments_hidden: begin.arguments_hidden,
            directory: begin.directory,
            uid: rustix::process::getuid().as_raw(),
            unprivileged_root,
            numbering: crate::rights::numbering(),
            begun: Stamp::now(),
            ended: None,
            boot: boot_id(),
            durable: begin.durable,
            mount_namespace: None,
            exit_status: None,
            changes: Some(0),
            commit_stamp: None,
            reverts: None,
            reverted_by: None,
            reverts_part: false,
            parts_reverted_by: Vec::new(),
            splitting: None,
            found_by_own: Vec::new(),
            left_by_own: Vec::new(),
            stack: super::Stack::default(),
            inside: Vec::new(),
            before: None,
            fork: None,
            recorded: false,
            scope: begin.scope,
            layers: begin
                .layers
                .into_iter()
                .map(|l| LayerMeta {
                    root: look_at_root(&l.target),
                    target: l.target,
                    store: l.store,
                })
                .collect(),
        };
        let tx = Transaction { meta, dir, held: Held::Begun { lock }, listed: None };
        tx.save(false)?;
        for layer in tx.layers() {
            if layer.store != self.dir() {
                self.add_side_store(&layer.store)?;
            }
            for dir in [&layer.upper, &layer.work, &layer.old] {
                let mut made = fs::DirBuilder::new();
                made.recursive(true).mode(0o700);
                sys::step("store mkdir", || made.create(dir)).at("creating", dir)?;
            }
        }
        Ok(tx)
    }

    fn make_directory(&self) -> Result<(TxId, PathBuf)> {
        loop {
            let id = TxId::random().at("drawing an id for", self.dir())?;
            let dir = self.tx_dir(id);
            match sys::step("store mkdir", || fs::DirBuilder::new().mode(0o700).create(&dir)) {
                Ok(()) => return Ok((id, dir)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io("creating", dir, e)),
            }
        }
    }

    /// Takes hold of an existing transaction.
    ///
    /// # Errors
    /// [`Error::WrongState`] if another process holds it; else as [`Home::meta`].
    pub fn load(&self, id: TxId) -> Result<Transaction> {
        self.load_unless_held(id)?.ok_or_else(|| busy(id))
    }

    /// [`Home::load`]; `None` if another process holds it.
    ///
    /// # Errors
    /// As [`Home::load`].
    pub fn load_unless_held(&self, id: TxId) -> Result<Option<Transaction>> {
        let meta = self.meta(id)?;
        let dir = self.tx_dir(id);
        let lock = lock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        // The record may have changed while we waited for nothing; read it under the lock.
        Ok(lock.map(|lock| {
            let meta = self.meta(id).unwrap_or(meta);
            Transaction { meta, dir, held: Held::Loaded { lock }, listed: None }
        }))
    }

    /// Takes over a transaction from the process that has begun it, with its lock ([`Transaction::lock`]).
    ///
    /// # Errors
    /// As [`Home::meta`].
    pub fn take_over(&self, id: TxId, lock: OwnedFd) -> Result<Transaction> {
        let held = Held::Begun { lock: sys::kept(lock) };
        Ok(Transaction { meta: self.meta(id)?, dir: self.tx_dir(id), held, listed: None })
    }

    /// The transaction that the journal says is published, for the holder of the commit lock to record
    /// that. Its own lock may be held: by processes that its dead one has left and that are about to
    /// end, or by somebody who has loaded it, and asks [`Home::check_loaded`] before he goes on.
    ///
    /// # Errors
    /// As [`Home::meta`].
    pub(crate) fn load_published(&self, id: TxId) -> Result<Transaction> {
        Ok(Transaction {
            meta: self.meta(id)?,
            dir: self.tx_dir(id),
            held: Held::Recovered,
            listed: None,
        })
    }

    /// That nobody has recovered a transaction since it was loaded. Asked when the journal does not name
    /// it: from then on nobody will.
    ///
    /// # Errors
    /// [`Error::WrongState`] with what it is now.
    pub(crate) fn check_loaded(&self, tx: &Transaction) -> Result<()> {
        if !matches!(tx.held, Held::Loaded { .. }) {
            return Ok(());
        }
        match self.meta(tx.id())?.state {
            now if now == tx.meta.state => Ok(()),
            now => Err(Error::WrongState {
                id: tx.id(),
                state: now.to_string(),
                advice: "that came to light only now, by a recovery; `txos log` shows it.".into(),
            }),
        }
    }

    /// The stored read set of a transaction, if it has one.
    pub(crate) fn reads(&self, id: TxId) -> Result<Option<ReadSet>> {
        let path = self.tx_dir(id).join("reads");
        match sys::read_record(&path) {
            Ok(bytes) => ReadSet::from_bytes(&bytes, &path).map(Some),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("reading", path, e)),
        }
    }

    /// Stores a read set in place of the one that is there.
    pub(crate) fn save_reads(&self, id: TxId, reads: &ReadSet) -> Result<()> {
        replace_file(&self.tx_dir(id).join("reads"), &reads.to_bytes()?, true)
    }

    /// Stores the read sets of a transaction's savepoints anew that `change` says it has changed.
    ///
    /// # Errors
    /// If one can't be read or stored.
    pub(crate) fn each_saved_reads(
        &self,
        id: TxId,
        change: impl Fn(&mut ReadSet) -> bool,
    ) -> Result<()> {
        let saved = self.tx_dir(id).join("saved");
        let names = match sys::look("readdir", || fs::read_dir(&saved)) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            names => names.at("listing", &saved)?,
        };
        for entry in names {
            let path = entry.at("listing", &saved)?.path();
            if path.extension().is_none_or(|extension| extension != "reads") {
                continue;
            }
            let mut reads =
                ReadSet::from_bytes(&sys::read_record(&path).at("reading", &path)?, &path)?;
            if change(&mut reads) {
                replace_file(&path, &reads.to_bytes()?, true)?;
            }
        }
        Ok(())
    }

    /// Removes what a process that died left of a transaction's own files: half written ones, and, of
    /// one that was committed, what it needed until then. The caller has the commit lock, and nothing
    /// is left to be recovered.
    ///
    /// # Errors
    /// If something can't be removed.
    pub fn remove_left_over(&self, tx: &Transaction) -> Result<()> {
        let remove = |path: PathBuf| match sys::step("store unlink", || fs::remove_file(&path)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("removing", path, e)),
            _ => Ok(()),
        };
        for name in
            ["meta.json", "reads", "plan", "rights", "left", "rest", "space", "cgroup", "deltas"]
        {
            remove(temporary(&tx.dir().join(name)))?;
        }
        if matches!(tx.meta.state, State::Committed | State::Reverted) {
            // Whether its plan has a use for what is empty is not known here.
            tx.discard_work(|_| true);
        }
        if tx.meta.state == State::Pending {
            tx.discard_unnamed()?;
        }
        Ok(())
    }

    /// Whether some process holds the transaction.
    #[must_use]
    pub fn is_held(&self, id: TxId) -> bool {
        // Shared: two that only ask are not in each other's way.
        matches!(lock(&self.tx_dir(id), FlockOperation::NonBlockingLockShared), Ok(None))
    }

    /// Moves a transaction's directories to the trash of their stores: one rename each, however
    /// much they hold. The home store's directory goes last, so that a crash leaves it findable.
    pub(crate) fn move_to_trash(&self, id: TxId) -> Result<()> {
        let mut stores = self.stores()?;
        stores.reverse();
        for store in stores {
            let to = format!("{id}-{}", Stamp::now().as_ns());
            // Beneath a store that is ours, wherever its path leads by now.
            let Some(root) = super::home::open_trusted(&store)? else { continue };
            let moved = sys::open_dir_beneath(root.as_fd(), b"tx").and_then(|tx| {
                let trash = sys::open_dir_beneath(root.as_fd(), b"trash")?;
                sys::step("store rename", || {
                    rustix::fs::renameat(&tx, id.as_str(), &trash, &to[..])
                })
            });
            match moved {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => {
                    return Err(Error::io("discarding", store.join("tx").join(id.as_str()), e));
                }
            }
        }
        Ok(())
    }
}

impl Transaction {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> TxId {
        self.meta.id
    }

    /// Its lock, for a process that [takes it over](Home::take_over).
    #[must_use]
    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        match &self.held {
            Held::Begun { lock } | Held::Loaded { lock } => Some(lock.as_fd()),
            Held::Recovered => None,
        }
    }

    /// Its directory in the home store.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where its layers are.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        layers(&self.meta)
    }

    /// Removes what it needed until it was committed: the read set, and the work directories of its
    /// overlays, which go to the trash. What can't be removed is left to `gc`. `is_used` tells of a layer, by its number,
    /// whether a revert may put something into its directories.
    pub(crate) fn discard_work(&self, is_used: impl Fn(usize) -> bool) {
        let _ = self.discard_unnamed();
        for name in ["reads", "deltas"] {
            let _ = sys::step("store unlink", || fs::remove_file(self.dir.join(name)));
        }
        for layer in self.layers() {
            let name = format!("{}-l{}-work", self.id(), layer.index);
            let trash = layer.store.join("trash").join(name);
            let _ = sys::step("store rename", || fs::rename(&layer.work, &trash));
            if self.meta.recorded {
                discard_shown(&layer);
            }
            if !is_used(layer.index) {
                self.remove_unused(&layer);
            }
        }
    }

    /// Removes what was made for a layer in a side store if nothing is in it: the command touched nothing
    /// of that file system. Only empty directories go.
    fn remove_unused(&self, layer: &Layer) {
        let is_empty = |dir: &Path| match fs::read_dir(dir) {
            Ok(mut names) => names.next().is_none(),
            Err(e) => e.kind() == ErrorKind::NotFound,
        };
        let here = self.dir.parent().and_then(Path::parent) == Some(&layer.store);
        let top = layer.upper.parent().unwrap_or(&layer.upper);
        // A program makes a layer for what it changes; a revert needs its place, whatever is in it.
        let used = top.join("new").exists() || layer.work.exists();
        if here || used || !is_empty(&layer.upper) || !is_empty(&layer.old) {
            return;
        }
        let entry = top.parent().unwrap_or(top);
        for dir in [&layer.upper, &layer.old, top, entry] {
            // Another layer's directory is beside it; or it is gone already.
            let _ = sys::step("store rmdir", || fs::remove_dir(dir));
        }
    }

    /// Writes the record, by rename; with `flush`, durably.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn save(&self, flush: bool) -> Result<()> {
        // What a power cut falls back to is known by the record alone.
        let flush = flush || self.meta.durable && self.meta.before.is_some();
        save_meta(&self.dir, &self.meta, flush)
    }

    /// Stores the read set beside the private copies.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn save_reads(&self, reads: &ReadSet, flush: bool) -> Result<()> {
        replace_file(&self.dir.join("reads"), &reads.to_bytes()?, flush)
    }

    /// Stores the read set as [`Transaction::save_reads`] does, unless the file of a transaction that was pending before
    /// holds it already: that file has been as stable as the record since.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn keep_reads(&self, reads: &ReadSet, flush: bool) -> Result<()> {
        let (path, bytes) = (self.dir.join("reads"), reads.to_bytes()?);
        let is_there =
            self.meta.before.is_some() && sys::read_record(&path).is_ok_and(|there| there == bytes);
        if is_there { Ok(()) } else { replace_file(&path, &bytes, flush) }
    }

    /// Loads the read set that [`Transaction::save_reads`] stored.
    ///
    /// # Errors
    /// [`Error::Format`] if it is damaged.
    pub fn load_reads(&self) -> Result<ReadSet> {
        let path = self.dir.join("reads");
        let bytes = sys::read_record(&path).at("reading", &path)?;
        ReadSet::from_bytes(&bytes, &path)
    }
}

/// Removes what shows files as they will be ([`crate::changeset::record`]): they are so.
fn discard_shown(layer: &Layer) {
    let new = layer.upper.parent().unwrap_or(&layer.upper).join("new");
    for entry in fs::read_dir(new).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"shown-") {
            let _ = sys::step("store unlink", || fs::remove_file(entry.path()));
        }
    }
}

/// Writes a record into a transaction's directory, by rename.
pub(crate) fn save_meta(dir: &Path, meta: &Meta, flush: bool) -> Result<()> {
    let meta = Meta { format: meta.format_needed(), ..meta.clone() };
    let bytes = serde_json::to_vec_pretty(&meta)
        .map_err(|e| Error::io("encoding", dir, std::io::Error::other(e)))?;
    replace_file(&dir.join("meta.json"), &bytes, flush)
}

/// Where the layers of a transaction are.
#[must_use]
pub(crate) fn layers(meta: &Meta) -> Vec<Layer> {
    meta.layers
        .iter()
        .enumerate()
        .map(|(index, l)| {
            let dir = l.store.join("tx").join(meta.id.as_str()).join(format!("l{index}"));
            Layer {
                index,
                target: l.target.clone(),
                root: l.root,
                store: l.store.clone(),
                upper: dir.join("upper"),
                work: dir.join("work"),
                old: dir.join("old"),
            }
        })
        .collect()
}

/// Under which name a file of ours is written before it is put in its place.
fn temporary(path: &Path) -> PathBuf {
    let mut temp = path.as_os_str().to_owned();
    temp.push(".new");
    PathBuf::from(temp)
}

/// Writes a file of a store whole or not at all. What else lies under the name of the file in the making, such as a
/// FIFO or a link that somebody put there, is neither waited for nor followed.
///
/// # Errors
/// [`Error::Io`] with the step; the file is as it was.
pub fn replace_file(path: &Path, bytes: &[u8], flush: bool) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    let temp = temporary(path);
    let write = || -> std::io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
        options.create(true).write(true).truncate(true).mode(0o600);
        options.custom_flags(flags.bits().cast_signed());
        let mut file = sys::step("store create", || options.open(&temp))?;
        sys::step("store write", || file.write_all(bytes))?;
        if flush {
            sys::fdatasync(file.as_fd())?;
        }
        Ok(())
    };
    let replaced = write()
        .at("writing", &temp)
        .and_then(|()| sys::step("store rename", || fs::rename(&temp, path)).at("writing", path));
    if replaced.is_err() {
        // Failing to, it is replaced by the next attempt, or removed by gc.
        let _ = sys::step("store unlink", || fs::remove_file(&temp));
    }
    replaced
}

fn lock(dir: &Path, how: FlockOperation) -> Result<Option<OwnedFd>> {
    let path = dir.join("lock");
    let fd = sys::open(
        path.as_os_str().as_encoded_bytes(),
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW,
        0o600,
    )
    .at("opening the lock", &path)?;
    match sys::flock(&fd, how) {
        Ok(()) => Ok(Some(sys::kept(fd))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(Error::io("locking", &path, e)),
    }
}

fn busy(id: TxId) -> Error {
    Error::WrongState {
        id,
        state: "in use by another process".into(),
        advice: "wait until its command has ended.".into(),
    }
}
