//! What a transaction consists of besides the tree ([`super::tree`]) and descriptors ([`super::files`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use txos_engine::readset::{Coverage, ReadSet};
use txos_engine::realm::{RetryHistory, TxHandle};
use txos_engine::scope::Scope;

use super::{perm, shared, single_call, staging};

/// Whether something of a transaction of this process was not part of it.
static SOMETHING_LIVE: AtomicBool = AtomicBool::new(false);

/// The same, for a handler of signals.
pub fn was_something_live() -> bool {
    SOMETHING_LIVE.load(Ordering::Relaxed)
}

/// What the transaction has acquired, and what it remembers to have seen.
#[derive(Debug)]
pub struct Locks {
    /// What it has seen of the stable tree.
    pub reads: ReadSet,
    /// Its participant in the realm, once it has acquired something.
    pub handle: Option<TxHandle<'static>>,
    /// The same once the transaction has committed, until the kernel's table is what the program has seen.
    pub left: Option<TxHandle<'static>>,
    /// What the next attempt begins with, if the handle has ended.
    pub again: Option<RetryHistory>,
    /// There is no realm.
    pub alone: bool,
    /// The thread whose transaction it is, whichever makes the call; 0: a command, whose priority is its process's.
    pub thread: u32,
    /// Locks to write that it has had ([`super::retaken`]).
    pub taken: Vec<(usize, super::retaken::Lock)>,
    /// A file with a record lock that is mapped since before ([`super::mapped`]).
    pub mapped: Option<Vec<u8>>,
    /// How many calls there were.
    pub calls: u64,
}

impl Default for Locks {
    fn default() -> Locks {
        let reads = ReadSet::new(Coverage::default());
        Locks {
            reads,
            handle: None,
            left: None,
            again: None,
            alone: false,
            thread: 0,
            taken: Vec::new(),
            mapped: None,
            calls: 0,
        }
    }
}

/// What the kernel keeps for the whole process, as the transaction sees it.
#[derive(Debug, Default)]
pub struct ProcessGlobals {
    /// The mask that the transaction has set.
    pub umask: Option<u32>,
    /// The mask from before, once it was asked for.
    pub umask_was: Option<u32>,
    /// The thread's credentials, once they were asked for.
    pub cred: Option<perm::Cred>,
    /// Where its numbers begin, if the transaction has several processes.
    pub space: Option<i32>,
    /// What is not versioned the process is to do itself: where that is, once a path has led there.
    pub delegates: bool,
    /// As above.
    pub elsewhere: Option<Vec<u8>>,
    /// Whose permissions are asked for: 0 is who began, other numbers are other identities.
    pub who: u32,
    /// Its real user and group are the effective ones.
    pub own_user: Option<bool>,
    /// Whether the transaction changed its working directory, and its root.
    pub moved: (bool, bool),
    /// The working directory, if it has no path any more.
    pub lost_directory: Option<i32>,
    /// The process group in whose order it commits.
    pub group: Option<i32>,
    /// Addresses of sockets that were bound to a name: the kernel's, and the program's path.
    pub bound: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Where private copies lie.
#[derive(Debug)]
pub struct Copies {
    /// The transaction in the store, once there is a copy.
    pub staging: Option<staging::Staging>,
    /// File systems with copies.
    pub layers: Vec<staging::Layer>,
    /// How many copies the commit has put into the tree.
    pub published: u64,
    /// The engine has made more of the place than a place for copies.
    pub used_up: bool,
    /// Which file systems are versioned, by device and mount.
    pub file_systems: Vec<((u64, u64), bool)>,
    /// What of them is.
    pub within: &'static Scope,
}

impl Copies {
    /// Whether a path leads to one of the private copies, which are no part of what the transaction sees.
    pub fn is_in_store(&self, path: &[u8]) -> bool {
        let dirs = self.layers.iter().filter_map(|layer| layer.dir.as_ref());
        dirs.into_iter().any(|dir| txos_engine::readset::is_at_or_below(path, dir))
    }
}

impl Default for Copies {
    fn default() -> Copies {
        Copies {
            staging: None,
            layers: Vec::new(),
            published: 0,
            used_up: false,
            file_systems: shared::file_systems(),
            within: staging::within(),
        }
    }
}

/// What is said to people: at once, and at the end.
#[derive(Debug)]
pub struct Report {
    /// System calls that passed through with a warning.
    pub unsupported: u64,
    /// Kinds that a warning was given of.
    pub warned: Vec<&'static str>,
    /// What was not part of it, by kind, with the paths if it were paths.
    pub live: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
    /// It was said that something is outside.
    pub said_outside: bool,
    /// The number of the call that is being carried out.
    pub calling: i64,
}

/// How many paths of one kind are told apart; from there on there are "at least" so many.
pub const LIVE_PATHS_MAX: usize = 4096;

impl Default for Report {
    fn default() -> Report {
        Report {
            unsupported: 0,
            warned: Vec::new(),
            live: BTreeMap::new(),
            said_outside: false,
            calling: -1,
        }
    }
}

impl Report {
    /// What was not part of the transaction, for people; empty if that is nothing.
    #[must_use]
    pub fn was_live(&self) -> String {
        let kind = |(what, paths): (&&str, &BTreeSet<Vec<u8>>)| {
            let named: Vec<String> =
                paths.iter().take(3).map(|p| txos_engine::show::quoted_bytes(p)).collect();
            let least = if paths.len() < LIVE_PATHS_MAX { "" } else { "at least " };
            let (count, s) = (paths.len(), if paths.len() == 1 { "" } else { "s" });
            let more = if count > named.len() { ", …" } else { "" };
            match count {
                0 => (*what).to_owned(),
                _ => format!("{what}: {least}{count} path{s} ({}{more})", named.join(", ")),
            }
        };
        self.live.iter().map(kind).collect::<Vec<String>>().join("; ")
    }

    /// Counts something that is not part of the transaction. Whether it is the first of its kind, of which people
    /// are warned.
    pub fn note_live(&mut self, what: &'static str, path: &[u8]) -> bool {
        self.unsupported += 1;
        SOMETHING_LIVE.store(true, Ordering::Relaxed);
        let paths = self.live.entry(what).or_default();
        if !path.is_empty() && paths.len() < LIVE_PATHS_MAX {
            paths.insert(path.to_vec());
        }
        self.is_first(what)
    }

    /// Whether nobody was warned of this kind before.
    pub fn is_first(&mut self, what: &'static str) -> bool {
        let first = !self.warned.contains(&what);
        if first {
            self.warned.push(what);
        }
        first
    }
}

/// How it began, as long as it may end without a journal.
#[derive(Debug)]
pub struct Start {
    /// The first call.
    pub first: single_call::First,
    /// What is acquired when there is another call.
    pub later: Vec<single_call::Later>,
    /// It has made calls that change names, and no other, and all of them succeeded.
    pub only_names: bool,
}

impl Default for Start {
    fn default() -> Start {
        Start { first: single_call::First::None, later: Vec::new(), only_names: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_live_is_counted_by_kind_and_warned_of_once() {
        let mut report = Report::default();
        assert_eq!(report.was_live(), "");
        assert!(report.note_live("a socket", b""));
        assert!(!report.note_live("a socket", b""));
        assert!(report.note_live("a device", b"/dev/null"));
        assert!(!report.note_live("a device", b"/dev/null"));
        assert_eq!(report.was_live(), "a device: 1 path (/dev/null); a socket");
        for name in ["/b", "/c", "/d"] {
            report.note_live("a device", name.as_bytes());
        }
        assert_eq!(report.was_live(), "a device: 4 paths (/b, /c, /d, …); a socket");
        assert_eq!(report.unsupported, 7);
        for n in 0..LIVE_PATHS_MAX {
            report.note_live("a device", format!("/x{n}").as_bytes());
        }
        assert!(report.was_live().contains("at least 4096 paths"), "{}", report.was_live());
    }

    #[test]
    fn an_open_file_without_a_name_says_itself_whether_it_is_versioned() {
        use super::super::kernel::{self, OwnedFd};
        use std::os::unix::ffi::OsStrExt;
        let path = std::env::temp_dir().join(format!("txos-no-name-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let fd = OwnedFd::open(path.as_os_str().as_bytes(), libc::O_RDONLY | libc::O_CLOEXEC);
        std::fs::remove_file(&path).unwrap();
        let fd = fd.unwrap();
        let stat = kernel::look_fd(fd.number()).unwrap();
        let mut copies = Copies { file_systems: Vec::new(), ..Copies::default() };
        // Nothing is known by a path that leads nowhere, and nothing is kept of it.
        assert!(!copies.is_versioned(path.as_os_str().as_bytes(), &stat));
        assert!(copies.file_systems.is_empty());
        assert!(copies.is_versioned_open(fd.number(), &stat));
        assert!(copies.is_versioned(path.as_os_str().as_bytes(), &stat));
    }
}
