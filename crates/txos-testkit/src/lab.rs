//! One test's place: a mount namespace of its own, a directory with a tree to version, a store on
//! the same mount. Everything goes at its end; mounts go even if the test process is killed, with
//! the namespace.
//!
//! # Safety
//!
//! Unsafe here is `unshare(2)` of the calling thread: it affects no other thread, and nothing in
//! this process relies on the namespace or the working directory that it shared.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use crate::process::{Done, Invocation};
use crate::{binary, skip};

/// The place.
#[derive(Debug)]
pub struct Lab {
    dir: PathBuf,
    store: PathBuf,
    tree: PathBuf,
    realm: PathBuf,
}

/// What a store holds, beyond what it needs when nothing is going on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Transactions with their states.
    pub transactions: Vec<(String, String)>,
    /// Entries in the trash of the home store.
    pub trash: usize,
}

impl Lab {
    /// On the mount of the root directory.
    ///
    /// # Panics
    /// If it can't be made. Tests need root; `./test` says so.
    #[must_use]
    pub fn new() -> Lab {
        Self::enter_namespace();
        let dir = Self::make_dir(&on_root_mount());
        Self::in_dir(dir.clone(), dir)
    }

    /// On a tmpfs of its own: the same to overlayfs, and quick to flush.
    ///
    /// # Panics
    /// As [`Lab::new`].
    #[must_use]
    pub fn in_memory() -> Lab {
        Self::enter_namespace();
        let dir = Self::make_dir(&on_root_mount());
        rustix::mount::mount("tmpfs", &dir, "tmpfs", MountFlags::empty(), Some(c"mode=755"))
            .expect("mounting a tmpfs");
        Self::in_dir(dir.clone(), dir)
    }

    /// With tree and store in another directory, such as a mounted image.
    ///
    /// # Panics
    /// As [`Lab::new`].
    #[must_use]
    pub fn at(self, place: &Path) -> Lab {
        let dir = self.dir.clone();
        std::mem::forget(self);
        Self::in_dir(dir, place.to_owned())
    }

    /// Another place inside this one, with a tree and a store of its own.
    ///
    /// # Panics
    /// If it can't be made.
    #[must_use]
    pub fn nested(&self, name: &str) -> Lab {
        let dir = self.tree.parent().unwrap_or(&self.dir).join(name);
        std::fs::create_dir(&dir).expect("making a nested place");
        Self::in_dir(dir.clone(), dir)
    }

    fn in_dir(dir: PathBuf, place: PathBuf) -> Lab {
        let tree = place.join("tree");
        std::fs::create_dir_all(&tree).expect("making the tree");
        // Labs may be nested: the path without its slashes is a name.
        let name = dir.to_string_lossy().trim_start_matches('/').replace('/', "-");
        let memory = Path::new("/dev/shm");
        let realm = if memory.is_dir() { memory.join(name) } else { dir.join("realm") };
        Lab { dir, store: place.join("store"), tree, realm }
    }

    fn enter_namespace() {
        assert!(skip::is_root(), "these tests need root; run ./test");
        // SAFETY: see the head of this file.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.expect("a mount namespace");
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).expect("making the mounts private");
    }

    fn make_dir(parent: &Path) -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("txos-test-{}-{n}", std::process::id()));
        std::fs::create_dir(&dir).expect("making the directory of the test");
        dir
    }

    /// The directory that everything of this test is in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// The realm's directory: every test's transactions meet only each other.
    #[must_use]
    pub fn realm(&self) -> &Path {
        &self.realm
    }

    /// The tree to version.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// A path in the tree.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.tree.join(path)
    }

    /// Runs a shell script in the tree, natively.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn native(&self, script: &str) -> Done {
        Invocation::shell(format!("set -e\n{script}")).dir(&self.tree).run().expect(0)
    }

    /// The content of a file in the tree.
    ///
    /// # Panics
    /// If it can't be read.
    #[must_use]
    #[track_caller]
    pub fn read(&self, path: &str) -> String {
        match std::fs::read(self.path(path)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// `txos ARGS`, started in the tree.
    #[must_use]
    pub fn txos<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Invocation {
        Invocation::new(binary::txos())
            .env("TXOS_STORE", &self.store)
            .env("TXOS_REALM", &self.realm)
            .dir(&self.tree)
            .args(args)
    }

    /// `txos run --scope TREE OPTIONS -- sh -c SCRIPT`.
    #[must_use]
    pub fn script(&self, options: &[&str], script: &str) -> Invocation {
        self.txos(["run", "--scope"]).arg(&self.tree).args(options).args(["--", "sh", "-c", script])
    }

    /// The same with everything in scope.
    #[must_use]
    pub fn whole(&self, options: &[&str], script: &str) -> Invocation {
        self.txos(["run"]).args(options).args(["--", "sh", "-c", script])
    }

    /// The newest transaction's id.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    #[track_caller]
    pub fn newest(&self) -> String {
        let shown = self.txos(["show", "@", "--json"]).run().expect(0).json();
        shown["transaction"]["id"].as_str().expect("an id").to_owned()
    }

    /// What the store holds.
    ///
    /// # Panics
    /// If it can't be listed.
    #[must_use]
    #[track_caller]
    pub fn held(&self) -> Held {
        let mut held = Held::default();
        for entry in std::fs::read_dir(self.store.join("tx")).into_iter().flatten().flatten() {
            let id = entry.file_name().to_string_lossy().into_owned();
            let state = std::fs::read(entry.path().join("meta.json"))
                .ok()
                .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
                .and_then(|meta| meta["state"].as_str().map(str::to_owned));
            held.transactions.push((id, state.unwrap_or_else(|| "without a record".into())));
        }
        held.trash = std::fs::read_dir(self.store.join("trash")).map_or(0, Iterator::count);
        held
    }

    /// Makes stores, and directories of transactions, that were never finished look so old that `txos gc` does
    /// not take them for being made right now.
    pub fn age_half_made(&self) {
        for entry in std::fs::read_dir(self.store.join("tx")).into_iter().flatten().flatten() {
            if !entry.path().join("meta.json").exists()
                && let Ok(dir) = std::fs::File::open(entry.path())
            {
                let _ = dir.set_modified(std::time::SystemTime::UNIX_EPOCH);
            }
        }
        for entry in std::fs::read_dir(&self.store).into_iter().flatten().flatten() {
            let half = entry.file_name().to_string_lossy().starts_with("format.");
            if let Some(file) = half.then(|| std::fs::File::open(entry.path())).and_then(Result::ok)
            {
                let _ = file.set_modified(std::time::SystemTime::UNIX_EPOCH);
            }
        }
    }

    /// What is left of transactions beyond history and what a store always has: transactions that
    /// are over, files of ours, trash, processes, mounts.
    #[must_use]
    pub fn left_over(&self) -> Vec<String> {
        const STORE: [&str; 13] = [
            "format",
            "lock",
            "lock.turn",
            "journal",
            "stores",
            "tx",
            "trash",
            "light",
            "light.now",
            "light.marks",
            "staging",
            "realm",
            "bound",
        ];
        const TRANSACTION: [&str; 7] =
            ["meta.json", "lock", "plan", "fence", "reads", "deltas", "space"];
        let names = |dir: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
        };
        let held = self.held();
        let mut left = Vec::new();
        let history = ["committed", "reverted", "pending"];
        for (id, state) in &held.transactions {
            if !history.contains(&&**state) {
                left.push(format!("transaction {id}, {state}"));
            }
            let own = names(&self.store.join("tx").join(id));
            let known = |n: &&String| TRANSACTION.contains(&&***n) || n.starts_with('l');
            left.extend(own.iter().filter(|n| !known(n)).map(|n| format!("{n} of {state} {id}")));
            if state != "pending" && own.iter().any(|n| n == "reads") {
                left.push(format!("reads of {state} {id}"));
            }
        }
        // Where there is no store yet, gc removes nothing.
        let made = self.store.join("format").exists();
        let known = |n: &String| STORE.contains(&&**n) || !made && n.starts_with("format.");
        left.extend(names(&self.store).into_iter().filter(|n| !known(n)));
        left.extend((held.trash > 0).then(|| format!("{} in the trash", held.trash)));
        let ids: Vec<&str> = held.transactions.iter().map(|(id, _)| id.as_str()).collect();
        left.extend(left_over(&ids, &self.store));
        left
    }

    /// Checks that `txos gc` leaves nothing behind but history: no dead transaction, no process,
    /// no mount, no trash.
    ///
    /// # Panics
    /// If something is left.
    #[track_caller]
    pub fn expect_clean(&self) {
        self.age_half_made();
        let _ = self.txos(["gc"]).run().expect(0);
        let held = self.held();
        let history = ["committed", "reverted", "pending"];
        let stray: Vec<_> =
            held.transactions.iter().filter(|(_, s)| !history.contains(&s.as_str())).collect();
        assert!(stray.is_empty(), "left in the store after gc: {stray:?}");
        // An earlier command may be at it in the background, and gc leaves that what it is deleting.
        crate::wait::until("nothing is left in the trash after gc", || self.held().trash == 0);
        let ids: Vec<&str> = held.transactions.iter().map(|(id, _)| id.as_str()).collect();
        let left = left_over(&ids, &self.store);
        assert!(left.is_empty(), "left over: {left:?}");
    }
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

/// Processes that live in the view of a transaction whose store this is, and overlays of it here.
fn left_over(ids: &[&str], store: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let store = store.to_string_lossy().into_owned();
    let ours = |line: &str| {
        line.contains(" - overlay txos-")
            && (line.contains(&store) || ids.iter().any(|id| line.contains(&format!("txos-{id}"))))
    };
    let mine = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    left.extend(mine.lines().filter(|line| ours(line)).map(|line| format!("mount {line}")));
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(table) = std::fs::read_to_string(entry.path().join("mountinfo")) else { continue };
        if table.lines().any(ours) {
            let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            left.push(format!("process {} ({})", entry.file_name().display(), comm.trim()));
        }
    }
    left
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A test that failed may have left a transaction running; its monitor is gone by now.
        if std::thread::panicking() && self.store.join("format").exists() {
            let _ = Command::new(binary::txos())
                .args(["gc", "--quiet"])
                .env("TXOS_STORE", &self.store)
                .env("TXOS_REALM", &self.realm)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        unmount_below(&self.dir);
        let _ = std::fs::remove_dir_all(&self.realm);
        // What a command still notes in the background may come in between.
        for _ in 0..100 {
            let _ = Command::new("rm").arg("-rf").arg(&self.dir).stderr(Stdio::null()).status();
            if !self.dir.exists() {
                break;
            }
        }
    }
}

/// Unmounts everything at or below a directory, in this thread's namespace.
pub(crate) fn unmount_below(dir: &Path) {
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mut points: Vec<&str> = points.filter(|p| Path::new(p).starts_with(dir)).collect();
    points.sort_unstable();
    for point in points.into_iter().rev() {
        let _ = rustix::mount::unmount(point, UnmountFlags::DETACH);
    }
}

/// A directory for temporary files on the mount of the root directory.
fn on_root_mount() -> PathBuf {
    let device = |path: &Path| std::fs::metadata(path).map(|m| m.dev()).ok();
    let root = device(Path::new("/"));
    [std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from("/root")]
        .into_iter()
        .find(|path| device(path) == root)
        .expect("/tmp, /var/tmp or /root on the root mount")
}
