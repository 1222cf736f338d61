//! Where a transaction's private copies lie: in the engine's store, on the same mount as what they
//! are copies of, so that they can be renamed into place.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

use txos_engine::TxId;
use txos_engine::commit::Ground;
use txos_engine::mounts;
use txos_engine::object::FileId;
use txos_engine::readset::join;
use txos_engine::scope::{self, Scope};
use txos_engine::store::{Begin, Home, LayerMeta, Transaction};
use txos_engine::version::Stamp;

use super::kernel::{Errno, Sys, look};
use super::node::Id;
use super::parts::Copies;
use super::{Failure, Found, Tx, reason, shared};

/// The private copies of a transaction.
pub struct Staging {
    /// The engine's record of it.
    pub tx: Transaction,
    /// The number of the last copy, and of the last that an earlier transaction made here.
    next: u64,
    began_at: u64,
    /// The mount of each layer, and the directory of its copies.
    places: Vec<(u64, FileId)>,
}

/// How a command's transaction stands in the history.
#[derive(Clone, Debug, Default)]
pub struct Label {
    /// Its name.
    pub name: Option<String>,
    /// Its message.
    pub message: Option<String>,
    /// The command's arguments are not to be seen.
    pub hides_arguments: bool,
    /// The command's words, where the library is the process's program: the kernel has those of what has loaded it.
    pub words: Option<Vec<OsString>>,
}

static LABEL: OnceLock<Label> = OnceLock::new();

/// Says how the transaction of this process's command stands in the history.
pub fn label(label: Label) {
    let _ = LABEL.set(label);
}

/// The name of the process's program, for others that wait for it: the kernel's, or the command's where the library is the program.
pub fn program_name() -> Vec<u8> {
    let words = LABEL.get().and_then(|label| label.words.as_deref());
    match words.and_then(<[OsString]>::first).and_then(|word| Path::new(word).file_name()) {
        Some(name) => name.as_bytes().to_vec(),
        None => std::fs::read("/proc/self/comm").unwrap_or_default().trim_ascii().to_vec(),
    }
}

/// The transaction in the store that the process which started this command has begun for it.
static GIVEN: Mutex<Option<(TxId, OwnedFd)>> = Mutex::new(None);
/// There is one: it is that process's to discard.
static GIVEN_ID: OnceLock<TxId> = OnceLock::new();

/// The directory in which a command that goes on is to run.
static DIRECTORY: OnceLock<Vec<u8>> = OnceLock::new();

/// Says in which directory of the transaction this process's command is to run.
pub fn run_in(directory: Vec<u8>) {
    let _ = DIRECTORY.set(directory);
}

/// What of the tree is versioned.
static WITHIN: OnceLock<Scope> = OnceLock::new();

/// Says what of the tree this process's command versions.
pub fn stay_within(scope: Scope) {
    let _ = WITHIN.set(scope);
}

/// What was said.
pub fn within() -> &'static Scope {
    WITHIN.get_or_init(Scope::default)
}

/// The directory that was asked for.
pub fn asked_directory() -> Option<Vec<u8>> {
    DIRECTORY.get().cloned()
}

/// Says which transaction in the store is that of this process's command, and hands on its lock.
pub fn given(id: TxId, lock: OwnedFd) {
    *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some((id, lock));
    let _ = GIVEN_ID.set(id);
}

/// The transaction has moved to another process, which has a copy of the lock: closes this one's.
pub fn given_away() {
    drop(GIVEN.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// The transaction in the store that is another process's to discard, if there is one.
pub fn given_id() -> Option<TxId> {
    GIVEN_ID.get().copied()
}

/// Places that ended transactions of this process have left for the next ones, empty.
static SPARE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());

/// How many are kept: transactions of so many threads at a time find one.
const SPARE_MAX: usize = 16;

/// Up to so many copies that a transaction leaves are deleted one by one, and its place is kept.
const LEFT_MAX: u64 = 64;

struct Spare {
    pid: u32,
    home: &'static Home,
    staging: Staging,
}

impl Spare {
    /// A child's copy of the list names its parent's places; and by another store it can't be used.
    fn is_ours(&self, home: &'static Home) -> bool {
        self.pid == std::process::id() && std::ptr::eq(self.home, home)
    }
}

/// `exit(3)`: discards the places that this process has kept. The program may be in a transaction, to which these calls
/// don't belong: the places would be gone in it only, and one that begins again would leave the list locked.
extern "C" fn at_exit() {
    #[cfg(target_arch = "x86_64")]
    crate::front::thread::aside(discard_spare);
    #[cfg(not(target_arch = "x86_64"))]
    discard_spare();
}

fn discard_spare() {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    for spare in spare.drain(..) {
        if spare.pid == std::process::id() {
            // Left over, it is removed by whoever makes one next.
            let _ = spare.home.discard_staging(spare.staging.tx);
            let _ = spare.home.empty_trash(Some(std::time::Duration::from_millis(20)));
        } else {
            // The parent's: closing the lock takes nothing from it.
            drop(spare);
        }
    }
}

/// A mount of which something is changed.
#[derive(Clone, Debug)]
pub struct Layer {
    mnt: u64,
    /// Where it is mounted.
    pub point: Vec<u8>,
    /// Where private copies lie, once there are any.
    pub dir: Option<Vec<u8>>,
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staging").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Tx {
    /// Does something with the store, whose files are not to have the modes that a program's umask
    /// leaves them. (It is the process's: it is changed only if it takes from the owner himself.)
    pub fn in_the_store<T>(&mut self, f: impl FnOnce(&mut Tx) -> T) -> T {
        let mask = self.umask();
        let real = self.process.umask_was.unwrap_or(mask);
        // The process that serves others has now one's mask, now another's.
        if real & 0o700 == 0 && self.process.space.is_none() {
            return f(self);
        }
        let was = super::kernel::set_umask(0o077);
        let done = f(self);
        super::kernel::set_umask(was);
        done
    }

    /// The store's transaction, begun when the first private copy is made.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn staging(&mut self) -> Result<&mut Staging, Failure> {
        if self.copies.staging.is_none() {
            let home = shared::home()?;
            let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((id, lock)) = given.filter(|_| self.is_recorded()) {
                let tx = home.take_over(id, lock).map_err(failed)?;
                self.copies.staging =
                    Some(Staging { tx, next: 0, began_at: 0, places: Vec::new() });
                return self.copies.staging.as_mut().ok_or_else(Failure::default);
            }
            let Label { name, message, hides_arguments, .. } =
                LABEL.get().cloned().unwrap_or_default();
            let mut command = command();
            let has_arguments = command.len() > 1;
            if hides_arguments {
                command.truncate(1);
            }
            let begin = Begin {
                layers: Vec::new(),
                name,
                message,
                command,
                arguments_hidden: hides_arguments && has_arguments,
                directory: PathBuf::from("/"),
                scope: std::path::PathBuf::new(),
                durable: self.how.flags & super::flags::DURABLE != 0,
            };
            if !self.is_recorded() {
                static DEAD: Once = Once::new();
                // What can't be discarded is in nobody's way.
                DEAD.call_once(|| drop(txos_engine::commit::discard_dead_staging(home)));
            }
            let tx = home.begin(begin).map_err(failed)?;
            if !self.is_recorded() {
                home.keep_staging(tx.id()).map_err(failed)?;
            }
            self.copies.staging = Some(Staging { tx, next: 0, began_at: 0, places: Vec::new() });
        }
        self.copies.staging.as_mut().ok_or_else(Failure::default)
    }

    /// The number of the layer of a mount.
    ///
    /// # Errors
    /// EIO if the mount is not known; the transaction is doomed then.
    pub fn layer(&mut self, mnt: u64) -> Sys<usize> {
        if let Some(at) = self.copies.layers.iter().position(|l| l.mnt == mnt) {
            return Ok(at);
        }
        // The layer is everybody's, also where the way to the mount is closed to whom the call is made for.
        let Some(point) = super::kernel::as_owner(|| shared::mount_point(mnt)) else {
            self.doom(Failure {
                reason: reason::FAILED,
                errno: libc::EIO,
                what: "the mount of what is changed is not in /proc/self/mountinfo".into(),
                ..Failure::default()
            });
            return Err(Errno::IO);
        };
        self.copies.layers.push(Layer { mnt, point, dir: None });
        Ok(self.copies.layers.len() - 1)
    }

    /// Where the private copies of a layer lie; made if need be.
    fn copies(&mut self, layer: usize) -> Sys<Vec<u8>> {
        if let Some(dir) = self.copies.layers.get(layer).and_then(|l| l.dir.clone()) {
            return Ok(dir);
        }
        let made = super::kernel::as_owner(|| self.in_the_store(|tx| tx.make_layers(layer)));
        if let Err(failure) = made {
            let errno = failure.errno;
            self.doom(failure);
            return Err(Errno::from_raw_os_error(errno));
        }
        self.copies.layers.get(layer).and_then(|l| l.dir.clone()).ok_or(Errno::IO)
    }

    /// Makes the places of all layers up to this one: the store numbers them in order.
    ///
    /// # Errors
    /// Why there can be no private copies on a mount.
    pub fn make_layers(&mut self, last: usize) -> Result<(), Failure> {
        if self.copies.staging.is_none() && !self.is_recorded() {
            self.take_spare()?;
        }
        for at in 0..=last.min(self.copies.layers.len().saturating_sub(1)) {
            if self.copies.layers[at].dir.is_some() {
                continue;
            }
            let layer = self.copies.layers[at].clone();
            let target = PathBuf::from(std::ffi::OsStr::from_bytes(&layer.point));
            let store = store_on(layer.mnt, &target)?;
            let root = look(&layer.point).ok().map(|s| s.id);
            let staging = self.staging()?;
            staging.tx.meta.layers.push(LayerMeta { target, store, root });
            let Some(made) = staging.tx.layers().pop() else { return Err(Failure::default()) };
            let dir = made.upper.parent().unwrap_or(&made.upper).to_owned();
            for path in [&made.upper, &made.work, &made.old, &dir.join("new")] {
                use std::os::unix::fs::DirBuilderExt;
                let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
                made.map_err(|e| failed(txos_engine::Error::io("creating", path, e)))?;
            }
            staging.tx.save(false).map_err(failed)?;
            let place = dir.join("new");
            let place = look(place.as_os_str().as_bytes())
                .map_err(|e| failed(txos_engine::Error::io("looking at", &place, e)))?;
            staging.places.push((layer.mnt, place.id));
            self.copies.layers[at].dir = Some(dir.as_os_str().as_bytes().to_vec());
        }
        Ok(())
    }

    /// Finds the places of a transaction that goes on ([`Tx::take_up`]): they are as its last command left them.
    ///
    /// # Errors
    /// If a file system or a place is not there any more, or another directory is in its place.
    pub fn take_up_layers(&mut self) -> Result<(), Failure> {
        let layers = self.staging()?.tx.layers();
        let mut last = 0;
        for made in &layers {
            let point = made.target.as_os_str().as_bytes().to_vec();
            let dir = made.upper.parent().unwrap_or(&made.upper).to_owned();
            let looked = look(&point).and_then(|root| {
                let place = look(dir.join("new").as_os_str().as_bytes())?;
                Ok((root, place))
            });
            let (root, place) = looked.map_err(|errno| {
                failed(txos_engine::Error::io("looking at", &made.target, errno))
            })?;
            if made.root.is_some_and(|was| was != root.id) {
                return Err(Failure {
                    reason: reason::CONFLICT,
                    errno: libc::ECANCELED,
                    what: format!(
                        "{}: another directory is in its place now",
                        txos_engine::show::quoted(&made.target)
                    ),
                    path: point,
                    ..Failure::default()
                });
            }
            let names = std::fs::read_dir(dir.join("new"));
            let names = names.map_err(|e| failed(txos_engine::Error::io("listing", &dir, e)))?;
            for name in names.flatten() {
                let number = name.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
                last = last.max(number.unwrap_or(0));
            }
            let dir = dir.as_os_str().as_bytes().to_vec();
            self.staging()?.places.push((root.mnt, place.id));
            self.copies.layers.push(Layer { mnt: root.mnt, point, dir: Some(dir) });
        }
        let staging = self.staging()?;
        (staging.next, staging.began_at) = (last, last);
        Ok(())
    }

    /// Whether it stays in the history: then its place is its own.
    fn is_recorded(&self) -> bool {
        self.promises().recorded
    }

    /// Takes a place that an earlier transaction has left, if there is one for the mounts of this one.
    fn take_spare(&mut self) -> Result<(), Failure> {
        let home = shared::home()?;
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = spare.iter().rposition(|s| s.is_ours(home) && self.fits(&s.staging)) else {
            return Ok(());
        };
        let mut staging = spare.swap_remove(at).staging;
        drop(spare);
        staging.tx.meta.begun = Stamp::now();
        staging.tx.meta.durable = self.promises().durable;
        for (at, made) in staging.tx.layers().iter().enumerate() {
            let (mnt, dir) = (staging.places[at].0, made.upper.parent());
            let dir = dir.map(|dir| dir.as_os_str().as_bytes().to_vec());
            match self.copies.layers.get_mut(at) {
                Some(layer) => layer.dir = dir,
                None => {
                    let point = made.target.as_os_str().as_bytes().to_vec();
                    self.copies.layers.push(Layer { mnt, point, dir });
                }
            }
        }
        self.copies.staging = Some(staging);
        Ok(())
    }

    /// Whether a place is for the same mounts in the same order, and they and it are where they were.
    fn fits(&self, staging: &Staging) -> bool {
        let layers = staging.tx.layers();
        let same = self.copies.layers.iter().zip(&layers).zip(&staging.places).all(
            |((layer, made), (mnt, _))| {
                layer.mnt == *mnt && layer.point == made.target.as_os_str().as_bytes()
            },
        );
        same && layers.iter().zip(&staging.places).all(|(made, (mnt, id))| {
            let dir = made.upper.parent().unwrap_or(&made.upper).join("new");
            let there = look(dir.as_os_str().as_bytes());
            let root = look(made.target.as_os_str().as_bytes());
            there.is_ok_and(|now| (now.mnt, now.id) == (*mnt, *id))
                && root.is_ok_and(|now| made.root.is_none_or(|root| root == now.id))
        })
    }

    /// The layers, for the log of light commits.
    pub fn grounds(&self) -> Vec<Ground> {
        let copies = self.copies.staging.as_ref().map(|staging| staging.tx.layers());
        let of = |(at, layer): (usize, &Layer)| {
            let made = copies.as_ref().and_then(|made| made.get(at));
            let dir =
                made.and_then(|made| Some((made.store.clone(), made.upper.parent()?.to_owned())));
            Ground { root: PathBuf::from(std::ffi::OsStr::from_bytes(&layer.point)), copies: dir }
        };
        self.copies.layers.iter().enumerate().map(of).collect()
    }

    /// A free place among the private copies of a mount.
    ///
    /// # Errors
    /// As [`Tx::layer`].
    pub fn staged_path(&mut self, mnt: u64) -> Sys<(usize, Vec<u8>)> {
        let layer = self.layer(mnt)?;
        let dir = self.copies(layer)?;
        let Some(staging) = self.copies.staging.as_mut() else { return Err(Errno::IO) };
        staging.next += 1;
        Ok((layer, join(&dir, format!("new/{}", staging.next).as_bytes())))
    }

    /// A place for a new file: in the place of its directory if that is new as well, so that one
    /// rename publishes both.
    ///
    /// # Errors
    /// As [`Tx::layer`], or if the directory's place can't be made.
    pub fn place_in(&mut self, dir: Id, name: &[u8]) -> Sys<(usize, Vec<u8>)> {
        let mnt = self.tree.nodes[dir].stat.mnt;
        if self.tree.nodes[dir].stable.is_some() {
            return self.staged_path(mnt);
        }
        let (layer, top) = self.staged_dir(dir)?;
        let path = join(&top, name);
        let taken = super::kernel::as_owner(|| look(&path)).is_ok();
        if taken { self.staged_path(mnt) } else { Ok((layer, path)) }
    }

    /// The place of a new directory.
    ///
    /// # Errors
    /// As [`Tx::layer`], or as `mkdir(2)`.
    pub fn staged_dir(&mut self, dir: Id) -> Sys<(usize, Vec<u8>)> {
        let mnt = self.tree.nodes[dir].stat.mnt;
        if let Some(path) = self.tree.nodes[dir].dir()?.staged.clone() {
            return Ok((self.layer(mnt)?, path));
        }
        let (layer, path) = self.staged_path(mnt)?;
        super::kernel::as_owner(|| self.in_the_store(|_| super::kernel::mkdir(&path, 0o700)))?;
        self.tree.nodes[dir].dir_mut()?.staged = Some(path.clone());
        Ok((layer, path))
    }
}

impl Staging {
    /// Its lock.
    pub fn lock_number(&self) -> Option<i32> {
        self.tx.lock().map(|lock| std::os::fd::AsRawFd::as_raw_fd(&lock))
    }

    /// Keeps the place for the next transaction, if that one needs no other: `published` of its copies were put
    /// into the tree, and the others go.
    pub fn keep(mut self, home: &'static Home, published: u64) -> Option<Staging> {
        static AT_EXIT: Once = Once::new();
        // On a full disk it may not have been made to its end.
        if self.places.len() != self.tx.meta.layers.len() {
            return Some(self);
        }
        let made = self.next - self.began_at;
        if made > published && (made > LEFT_MAX || !self.is_emptied()) {
            return Some(self);
        }
        self.began_at = self.next;
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        spare.retain(|spare| spare.is_ours(home));
        if spare.len() >= SPARE_MAX {
            return Some(self);
        }
        spare.push(Spare { pid: std::process::id(), home, staging: self });
        drop(spare);
        AT_EXIT.call_once(|| super::kernel::at_exit(at_exit));
        None
    }

    /// Deletes what the transaction has left; not so if there are directories among it.
    fn is_emptied(&self) -> bool {
        self.tx.layers().iter().all(|layer| {
            let dir = layer.upper.parent().unwrap_or(&layer.upper).as_os_str().as_bytes();
            (self.began_at + 1..=self.next).all(|number| {
                let gone = super::kernel::unlink(&join(dir, format!("new/{number}").as_bytes()));
                matches!(gone, Ok(()) | Err(Errno::NOENT))
            })
        })
    }
}

impl Copies {
    /// Whether an object that was found at a path is versioned, by the policy of [`scope`].
    pub fn is_versioned(&mut self, path: &[u8], stat: &super::kernel::Stat) -> bool {
        // Where what has no path was, who asks knows.
        let is_out = scope::is_never(path) || !path.is_empty() && self.within.leaves_out(path);
        !is_out && self.versions(stat, || super::kernel::file_system(path, stat))
    }

    /// The same of an object that is open: no path may lead to it any more, or the path to another object.
    pub fn is_versioned_open(&mut self, fd: i32, stat: &super::kernel::Stat) -> bool {
        let path = super::kernel::path_of_fd(fd);
        let path = path.unwrap_or_default();
        !scope::is_never(&path)
            && !self.within.leaves_out(&path)
            && self.versions(stat, || super::kernel::file_system_of(fd))
    }

    /// Whether the file system of an object is versioned.
    fn versions(&mut self, stat: &super::kernel::Stat, magic: impl FnOnce() -> i64) -> bool {
        let key = (stat.id.dev, stat.mnt);
        if let Some((_, known)) = self.file_systems.iter().find(|(fs, _)| *fs == key) {
            return *known;
        }
        let magic = magic();
        let known = scope::versions_magic_in_a_thread(magic);
        // What could not be asked says nothing about the others on it.
        if magic != 0 {
            self.file_systems.push((key, known));
        }
        known
    }

    /// A path of the stable tree, relative to its layer's root.
    #[must_use]
    pub fn relative(&self, layer: usize, path: &[u8]) -> Vec<u8> {
        let point = &self.layers[layer].point;
        let rest = if point == b"/" { path } else { path.get(point.len()..).unwrap_or_default() };
        rest.strip_prefix(b"/").unwrap_or(rest).to_vec()
    }

    /// A place among the private copies, relative to the layer's directory.
    #[must_use]
    pub fn staged(&self, layer: usize, path: &[u8]) -> Vec<u8> {
        let dir = self.layers[layer].dir.as_deref().unwrap_or_default();
        let rest = path.get(dir.len()..).unwrap_or_default();
        rest.strip_prefix(b"/").unwrap_or(rest).to_vec()
    }
}

/// The store on a mount: the home store, or one beside the mount's root.
fn store_on(mnt: u64, point: &std::path::Path) -> Result<PathBuf, Failure> {
    let home = shared::home()?;
    let unsupported = |what: String| Failure {
        reason: reason::FAILED,
        errno: libc::EXDEV,
        what,
        path: point.as_os_str().as_bytes().to_vec(),
        ..Failure::default()
    };
    if mounts::mount_id(home.dir()) == Some(mnt) {
        return Ok(home.dir().to_owned());
    }
    if !point.is_dir() {
        return Err(unsupported("a file is mounted there: nothing can be renamed over it".into()));
    }
    home.side_store(point).map_err(failed)
}

/// An error of the engine, as the program is told.
pub fn failed(error: txos_engine::Error) -> Failure {
    let (reason, errno, path) = match &error {
        txos_engine::Error::Conflict(conflicts) => {
            let path = conflicts.first().map(|c| c.path.as_os_str().as_bytes().to_vec());
            (reason::CONFLICT, libc::ECANCELED, path)
        }
        // Somebody put something else there, or took it away, between the validation and the publish.
        txos_engine::Error::Io { path, source, .. }
            if matches!(
                source.raw_os_error(),
                Some(
                    libc::ELOOP
                        | libc::ENOENT
                        | libc::ENOTDIR
                        | libc::EISDIR
                        | libc::EEXIST
                        | libc::ENOTEMPTY
                        | libc::ENXIO
                        | libc::EOPNOTSUPP
                        | libc::ESTALE
                )
            ) =>
        {
            (reason::CONFLICT, libc::ECANCELED, Some(path.as_os_str().as_bytes().to_vec()))
        }
        txos_engine::Error::Io { path, source, .. } => (
            reason::FAILED,
            source.raw_os_error().unwrap_or(libc::EIO),
            Some(path.as_os_str().as_bytes().to_vec()),
        ),
        _ => (reason::FAILED, libc::EIO, None),
    };
    let (path, what) = (path.unwrap_or_default(), error.to_string());
    let found = match error {
        txos_engine::Error::Conflict(conflicts) => {
            Some(Box::new(Found { conflicts, only_read: false }))
        }
        _ => None,
    };
    Failure { reason, errno, what, path, found, ..Failure::default() }
}

/// The program's words, for the history.
fn command() -> Vec<String> {
    if let Some(words) = LABEL.get().and_then(|label| label.words.as_ref()) {
        return words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    }
    let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    text.split(|&b| b == 0)
        .filter(|w| !w.is_empty())
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect()
}
