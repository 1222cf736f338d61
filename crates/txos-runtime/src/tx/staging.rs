//! Where a transaction's private copies lie: in the engine's store, on the same mount as what they
//! are copies of, so that they can be renamed into place.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use txos_engine::mounts::{self, Mount};
use txos_engine::readset::join;
use txos_engine::store::{Begin, LayerMeta, Transaction};

use super::kernel::{Sys, look};
use super::node::Id;
use super::{Failure, Tx, commons, reason};

/// The private copies of a transaction.
pub struct Staging {
    /// The engine's record of it.
    pub tx: Transaction,
    /// Mount number, where it is mounted, where the copies lie.
    layers: Vec<Layer>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Layer {
    mnt: u64,
    point: Vec<u8>,
    dir: Vec<u8>,
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staging").field("layers", &self.layers).finish_non_exhaustive()
    }
}

/// Kinds of file systems on which private copies can be kept and renamed into place.
const VERSIONABLE: [i64; 5] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0xf2f5_2010, // f2fs
];

/// Trees of the running system, which are never versioned.
const NEVER: [&[u8]; 3] = [b"/proc", b"/sys", b"/dev"];

/// What of them is.
const STILL: [&[u8]; 1] = [b"/dev/shm"];

impl Tx {
    /// Whether an object that was found at a path is on a file system that is versioned.
    pub fn is_versioned(&mut self, path: &[u8], stat: &super::kernel::Stat) -> bool {
        let below = |top: &&[u8]| txos_engine::readset::is_at_or_below(path, top);
        if path.starts_with(b"/") && NEVER.iter().any(below) && !STILL.iter().any(below) {
            return false;
        }
        if let Some((_, known)) = self.file_systems.iter().find(|(dev, _)| *dev == stat.id.dev) {
            return *known;
        }
        let known = VERSIONABLE.contains(&super::kernel::file_system(path, stat));
        self.file_systems.push((stat.id.dev, known));
        known
    }

    /// The store's transaction, begun when the first private copy is made.
    fn staging(&mut self) -> Result<&mut Staging, Failure> {
        if self.staging.is_none() {
            let home = commons::home()?;
            let begin = Begin {
                layers: Vec::new(),
                name: None,
                message: None,
                command: command(),
                directory: PathBuf::from("/"),
                durable: self.how.flags & super::flags::DURABLE != 0,
            };
            let tx = home.begin(begin).map_err(failed)?;
            self.staging = Some(Staging { tx, layers: Vec::new(), next: 0 });
        }
        self.staging.as_mut().ok_or_else(Failure::default)
    }

    /// The number of the layer of a mount, made if need be.
    ///
    /// # Errors
    /// EIO if it can't be made; the transaction is doomed then, with the reason.
    pub fn layer(&mut self, mnt: u64) -> Sys<usize> {
        if let Some(staging) = &self.staging
            && let Some(at) = staging.layers.iter().position(|l| l.mnt == mnt)
        {
            return Ok(at);
        }
        match self.add_layer(mnt) {
            Ok(at) => Ok(at),
            Err(failure) => {
                let errno = failure.errno;
                self.doom(failure);
                Err(errno)
            }
        }
    }

    fn add_layer(&mut self, mnt: u64) -> Result<usize, Failure> {
        if self.mounts.is_empty() {
            let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
            self.mounts = mounts::parse(&text);
        }
        let Some(mount) = self.mounts.iter().find(|m| m.id == mnt).cloned() else {
            return Err(Failure {
                reason: reason::FAILED,
                errno: libc::EIO,
                what: "the mount of what is changed is not in /proc/self/mountinfo".into(),
                ..Failure::default()
            });
        };
        let home = commons::home()?;
        let store = store_on(&mount)?;
        let staging = self.staging()?;
        if store != home.dir() {
            home.add_side_store(&store).map_err(failed)?;
        }
        let root = look(mount.point.as_os_str().as_bytes()).ok().map(|s| s.id);
        staging.tx.meta.layers.push(LayerMeta {
            target: mount.point.clone(),
            store: store.clone(),
            root,
        });
        let Some(layer) = staging.tx.layers().pop() else { return Err(Failure::default()) };
        let dir = layer.upper.parent().unwrap_or(&layer.upper).to_owned();
        for path in [&layer.upper, &layer.work, &layer.old, &dir.join("new")] {
            use std::os::unix::fs::DirBuilderExt;
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|e| failed(txos_engine::Error::io("creating", path, e)))?;
        }
        staging.tx.save(false).map_err(failed)?;
        staging.layers.push(Layer {
            mnt,
            point: mount.point.as_os_str().as_bytes().to_vec(),
            dir: dir.as_os_str().as_bytes().to_vec(),
        });
        Ok(staging.layers.len() - 1)
    }

    /// A free place among the private copies of a mount.
    ///
    /// # Errors
    /// As [`Tx::layer`].
    pub fn place(&mut self, mnt: u64) -> Sys<(usize, Vec<u8>)> {
        let layer = self.layer(mnt)?;
        let Some(staging) = self.staging.as_mut() else { return Err(libc::EIO) };
        staging.next += 1;
        let dir = &staging.layers[layer].dir;
        Ok((layer, join(dir, format!("new/{}", staging.next).as_bytes())))
    }

    /// A place for a new file: in the place of its directory if that is new as well, so that one
    /// rename publishes both.
    ///
    /// # Errors
    /// As [`Tx::layer`], or if the directory's place can't be made.
    pub fn place_in(&mut self, dir: Id, name: &[u8]) -> Sys<(usize, Vec<u8>)> {
        let mnt = self.nodes[dir].stat.mnt;
        if self.nodes[dir].stable.is_some() {
            return self.place(mnt);
        }
        let (layer, top) = self.staged_dir(dir)?;
        let path = join(&top, name);
        if look(&path).is_ok() { self.place(mnt) } else { Ok((layer, path)) }
    }

    /// The place of a new directory.
    ///
    /// # Errors
    /// As [`Tx::layer`], or as `mkdir(2)`.
    pub fn staged_dir(&mut self, dir: Id) -> Sys<(usize, Vec<u8>)> {
        let mnt = self.nodes[dir].stat.mnt;
        if let Some(path) = self.nodes[dir].dir()?.staged.clone() {
            return Ok((self.layer(mnt)?, path));
        }
        let (layer, path) = self.place(mnt)?;
        super::kernel::mkdir(&path, 0o700)?;
        self.nodes[dir].dir_mut()?.staged = Some(path.clone());
        Ok((layer, path))
    }
}

impl Staging {
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
        let rest = path.get(self.layers[layer].dir.len()..).unwrap_or_default();
        rest.strip_prefix(b"/").unwrap_or(rest).to_vec()
    }
}

/// The store on a mount: the home store, or one beside the mount's root.
fn store_on(mount: &Mount) -> Result<PathBuf, Failure> {
    let home = commons::home()?;
    let unsupported = |what: String| Failure {
        reason: reason::FAILED,
        errno: libc::EXDEV,
        what,
        path: mount.point.as_os_str().as_bytes().to_vec(),
        ..Failure::default()
    };
    if mounts::mount_id(home.dir()) == Some(mount.id) {
        return Ok(home.dir().to_owned());
    }
    if !mount.point.is_dir() {
        return Err(unsupported("a file is mounted there: nothing can be renamed over it".into()));
    }
    let uid = rustix::process::geteuid();
    let name = match uid.is_root() {
        true => ".txos".to_owned(),
        false => format!(".txos-{}", uid.as_raw()),
    };
    Ok(mount.point.join(name))
}

/// An error of the engine, as the program is told.
pub fn failed(error: txos_engine::Error) -> Failure {
    let (reason, errno, path) = match &error {
        txos_engine::Error::Conflict(conflicts) => {
            let path = conflicts.first().map(|c| c.path.as_os_str().as_bytes().to_vec());
            (reason::CONFLICT, libc::ECANCELED, path)
        }
        txos_engine::Error::Io { path, source, .. } => (
            reason::FAILED,
            source.raw_os_error().unwrap_or(libc::EIO),
            Some(path.as_os_str().as_bytes().to_vec()),
        ),
        _ => (reason::FAILED, libc::EIO, None),
    };
    let path = path.unwrap_or_default();
    Failure { reason, errno, what: error.to_string(), path, ..Failure::default() }
}

/// The program's words, for the history.
fn command() -> Vec<String> {
    let text = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    text.split(|&b| b == 0)
        .filter(|w| !w.is_empty())
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect()
}
