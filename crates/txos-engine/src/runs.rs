//! Commands that run as transactions, and transactions of programs that have a name, by what stays the same over their
//! attempts.
//!
//! Each attempt of a run is a transaction with an id of its own. A run that is to come after another one (`txos run
//! --after` and `TX_AFTER`, the producers and consumers of papers/001 §3.1) can't go by that id. So a run has a record as
//! long as it lasts: a file in the directory `runs` of the realm's directory. A program's transaction is a run if the
//! program asked for it, and has no record otherwise.
//!
//! # Invariants
//!
//! - The run's process holds the record's flock(2) exclusively. If nobody holds it, the run is over; it is as well if
//!   that process has died, and a child that it forked still has the descriptor.
//! - A record is only appended to, one JSON value a line. A last line without its end says nothing: the process died
//!   as it wrote it.
//! - How the run ended is written before the lock is let go of. If no line says it, the process died before.
//! - A record that was removed had ended. A process that has opened it before can still read it.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::realm::{Identity, open_dir};
use crate::sys;

mod predecessors;

pub use predecessors::{Predecessors, Progress};

/// The longest record that is read, in bytes: that of 10,000 attempts has less.
const RECORD_MAX: u64 = 1 << 20;

/// The run that a name leads to which has committed: no record has this name.
pub const COMMITTED: &str = "committed";

/// How often a record is made again that was removed before it was locked.
const TRIES_MAX: u32 = 100;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It committed as this transaction.
    Committed(TxId),
    /// It succeeded, and had nothing to commit.
    Unchanged,
    /// It left this transaction pending.
    Kept(TxId),
    /// It was rolled back, with this exit status.
    RolledBack(u8),
    /// A program's transaction was aborted, for this reason in words.
    Aborted(String),
}

/// The process of a run, so that it can be found to be dead whatever its children hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    /// [`Identity`] as a word.
    process: u64,
    /// The PID namespace in which that is so.
    namespace: u64,
}

impl Owner {
    /// The calling process, if `/proc` tells of it.
    fn of_self() -> Option<Owner> {
        let process = Identity::of_self().ok()?.word();
        Some(Owner { process, namespace: pid_namespace()? })
    }

    /// Whether it has ended; in doubt it has not.
    fn is_dead(self) -> bool {
        pid_namespace() == Some(self.namespace)
            && Identity::from_word(self.process).is_some_and(Identity::is_dead)
    }
}

fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// What a record says, line by line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Began {
        pid: u32,
        at_ns: u64,
        name: Option<String>,
        command: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<Owner>,
    },
    Attempt(TxId),
    After {
        word: String,
        run: Option<String>,
    },
    Ended(End),
}

/// The records of the runs of a realm.
#[derive(Clone, Debug)]
pub struct Runs {
    /// For messages.
    dir: PathBuf,
    /// The directory itself: nobody else can write it, and no other takes its place.
    opened: Arc<OwnedFd>,
}

/// A run that it comes after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    /// As it was named.
    pub word: String,
    /// Its record's name, when it is known which run that is.
    pub run: Option<String>,
}

/// What the record of a run says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Process of the run.
    pub pid: u32,
    /// When it began (CLOCK_MONOTONIC, ns).
    pub at_ns: u64,
    /// Its name: of a command, `--name`.
    pub name: Option<String>,
    /// Its command.
    pub command: String,
    /// The thread whose transaction it is, if it is a program's.
    pub thread: Option<u32>,
    owner: Option<Owner>,
    /// Its attempts, in their order.
    pub attempts: Vec<TxId>,
    /// The runs that it comes after, in the order in which they were found.
    pub after: Vec<After>,
    /// How it ended, if it says so.
    pub end: Option<End>,
}

impl Record {
    /// Of a text. `None`: not even its beginning was written.
    fn of(text: &str) -> Option<Record> {
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        let mut lines = whole.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let Some(Line::Began { pid, at_ns, name, command, thread, owner }) = lines.next() else {
            return None;
        };
        let mut record = Record { pid, at_ns, name, command, thread, owner, ..Record::default() };
        for line in lines {
            match line {
                Line::Began { .. } => {}
                Line::Attempt(id) => record.attempts.push(id),
                Line::After { word, run } => record.take(After { word, run }),
                Line::Ended(end) => record.end = Some(end),
            }
        }
        Some(record)
    }

    /// Runs that are known by now take the place of their name.
    fn take(&mut self, after: After) {
        self.after
            .retain(|known| known.word != after.word || known.run.is_some() && after.run.is_some());
        self.after.push(after);
    }

    /// Whether it began after another one.
    #[must_use]
    pub fn is_younger(&self, other: &Record) -> bool {
        (self.at_ns, self.pid) > (other.at_ns, other.pid)
    }

    /// Whether a word means this run: its name, or the id of one of its attempts.
    #[must_use]
    pub fn is_meant(&self, word: &str) -> bool {
        self.name.as_deref() == Some(word) || self.attempts.iter().any(|id| id.as_str() == word)
    }
}

/// Another run, as its record says.
#[derive(Debug)]
pub struct Other {
    file: File,
    path: PathBuf,
    /// Its record's name.
    pub key: String,
    /// What the record said when it was last looked at.
    pub record: Record,
}

/// Where another run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It goes on.
    Runs,
    /// It ended.
    Ended(End),
    /// Its process was killed, or failed to say how it ended.
    Died,
}

impl Other {
    /// It is going to be kept open.
    fn keep(&mut self) -> Result<()> {
        let copy = self.file.try_clone().at("opening again", &self.path)?;
        self.file = File::from(sys::kept(copy.into()));
        Ok(())
    }

    /// Looks where it is.
    ///
    /// # Errors
    /// [`Error::Io`] if its record can't be read.
    pub fn look(&mut self) -> Result<Stage> {
        // Before the record is read: what it has said by then it says for good.
        let is_over =
            is_free(&self.file, &self.path)? || self.record.owner.is_some_and(Owner::is_dead);
        if let Some(record) = read(&mut self.file, &self.path)? {
            self.record = record;
        }
        Ok(match (&self.record.end, is_over) {
            (_, false) => Stage::Runs,
            (Some(end), true) => Stage::Ended(end.clone()),
            (None, true) => Stage::Died,
        })
    }
}

/// This process's run. Dropped, its record is gone.
#[derive(Debug)]
pub struct Run {
    file: File,
    path: PathBuf,
    /// Its record's name.
    pub key: String,
    /// Its path leads through it.
    _opened: Arc<OwnedFd>,
    /// The process that began it: a child that has a copy of this lets go of nothing.
    process: u32,
}

impl Runs {
    /// Those of the realm in a directory, which is made if its parent exists.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if others can write the directory, [`Error::Io`] with the step.
    pub fn of_realm(dir: &Path) -> Result<Runs> {
        let realm = open_dir(dir)?;
        let below = through(&realm).join("runs");
        let opened = Arc::new(sys::kept(open_dir(&below)?));
        Ok(Runs { dir: dir.join("runs"), opened })
    }

    fn path(&self, key: &str) -> PathBuf {
        through(&self.opened).join(key)
    }

    /// Makes the record of a run of this process that comes after others, as they are named.
    ///
    /// # Errors
    /// [`Error::Io`] with the step.
    pub fn begin(&self, name: Option<&str>, command: &str, after: &[String]) -> Result<Run> {
        self.begin_in(name, command, after, None)
    }

    /// The same for a transaction of a thread of this process.
    ///
    /// # Errors
    /// As of [`Runs::begin`].
    pub fn begin_in(
        &self,
        name: Option<&str>,
        command: &str,
        after: &[String],
        thread: Option<u32>,
    ) -> Result<Run> {
        for _ in 0..TRIES_MAX {
            let key = TxId::random().at("naming a record in", &self.dir)?.as_str().to_owned();
            let path = self.path(&key);
            let mut options = fs::OpenOptions::new();
            options.read(true).append(true).create_new(true).mode(0o600);
            options.custom_flags(libc::O_NOFOLLOW);
            let file = match sys::step("runs create", || options.open(&path)) {
                Ok(file) => File::from(sys::kept(file.into())),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(Error::io("creating", &path, e)),
            };
            sys::flock(&file, FlockOperation::LockExclusive).at("locking", &path)?;
            // Another run may have taken it for a dead one's, before it was locked.
            if file.metadata().at("looking at", &path)?.nlink() == 0 {
                continue;
            }
            let process = std::process::id();
            let mut run = Run { file, path, key, _opened: Arc::clone(&self.opened), process };
            let (pid, name, command) =
                (std::process::id(), name.map(str::to_owned), command.to_owned());
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let at_ns = (now.tv_sec as u64).saturating_mul(1_000_000_000) + now.tv_nsec as u64;
            let owner = Owner::of_self();
            let mut lines = vec![Line::Began { pid, at_ns, name, command, thread, owner }];
            // At once: who looks finds both, or neither.
            lines.extend(after.iter().map(|word| Line::After { word: word.clone(), run: None }));
            run.append(&lines)?;
            return Ok(run);
        }
        let error = std::io::Error::other("other processes remove what is made there");
        Err(Error::io("creating a record in", &self.dir, error))
    }

    /// Removes the records that dead processes have left.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory can't be listed. A record that can't be removed stays.
    pub fn sweep(&self) -> Result<()> {
        for key in self.keys()? {
            let path = self.path(&key);
            let Ok(file) = open(&path) else { continue };
            let locked = sys::flock(&file, FlockOperation::NonBlockingLockExclusive);
            if locked.is_ok() {
                let _ = sys::step("runs unlink", || fs::remove_file(&path));
            }
        }
        Ok(())
    }

    fn keys(&self) -> Result<Vec<String>> {
        let listed = fs::read_dir(through(&self.opened)).at("listing", &self.dir)?;
        let mut keys = Vec::new();
        for entry in listed {
            let name = entry.at("listing", &self.dir)?.file_name().into_string().ok();
            keys.extend(name.filter(|name| name.parse::<TxId>().is_ok()));
        }
        Ok(keys)
    }

    /// All runs of which there are records: those that go on, and what dead ones have left.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory can't be listed. A record that can't be read is passed over.
    pub fn all(&self) -> Result<Vec<Other>> {
        Ok(self.keys()?.iter().filter_map(|key| self.open(key)).collect())
    }

    /// The run of a record's name, if its record is there.
    #[must_use]
    pub fn open(&self, key: &str) -> Option<Other> {
        let path = self.path(key);
        let mut file = open(&path).ok()?;
        let record = read(&mut file, &path).ok()??;
        Some(Other { file, path, key: key.to_owned(), record })
    }

    /// The runs from one to another, each of which comes after the next: both are in it. `None`: the first does not
    /// come after the other. A run comes after itself only in a cycle.
    ///
    /// # Errors
    /// As of [`Runs::all`].
    pub fn way(&self, from: &str, to: &str) -> Result<Option<Vec<Record>>> {
        let all = self.all()?;
        let Some(first) = all.iter().find(|other| other.key == from) else { return Ok(None) };
        let (mut seen, mut next) = (Vec::<&str>::new(), vec![vec![first]]);
        while let Some(way) = next.pop() {
            let Some(at) = way.last() else { continue };
            for after in &at.record.after {
                // One that is not known yet may be each of the name, but not the one that comes after it.
                let is_meant = |other: &&Other| match &after.run {
                    Some(key) => other.key == *key,
                    None => other.key != at.key && other.record.is_meant(&after.word),
                };
                for other in all.iter().filter(is_meant) {
                    let way = [way.as_slice(), &[other]].concat();
                    if other.key == to {
                        return Ok(Some(way.iter().map(|run| run.record.clone()).collect()));
                    }
                    if !seen.contains(&other.key.as_str()) {
                        seen.push(&other.key);
                        next.push(way);
                    }
                }
            }
        }
        Ok(None)
    }
}

impl Run {
    fn append(&mut self, lines: &[Line]) -> Result<()> {
        let mut text = String::new();
        for line in lines {
            let line = serde_json::to_string(line)
                .map_err(|e| Error::io("encoding", &self.path, std::io::Error::other(e)))?;
            text.extend([&line, "\n"]);
        }
        sys::step("runs append", || self.file.write_all(text.as_bytes())).at("writing", &self.path)
    }

    /// Another attempt begins.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn attempt(&mut self, id: TxId) -> Result<()> {
        self.append(&[Line::Attempt(id)])
    }

    /// The run comes after another one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn after(&mut self, word: &str, run: Option<&str>) -> Result<()> {
        self.append(&[Line::After { word: word.to_owned(), run: run.map(str::to_owned) }])
    }

    /// The run has ended.
    ///
    /// # Errors
    /// [`Error::Io`]: those that come after it take it for dead.
    pub fn end(mut self, end: End) -> Result<()> {
        self.append(&[Line::Ended(end)])
    }
}

/// A child that was forked meanwhile has the descriptor as well: closing ours would let go of nothing.
impl Drop for Run {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let _ = fs::remove_file(&self.path);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// The path of an open directory.
fn through(dir: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = sys::look("open", || options.open(path))?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(ErrorKind::InvalidInput.into()),
    }
}

/// What a record says; `None`: nothing yet.
fn read(file: &mut File, path: &Path) -> Result<Option<Record>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0)).at("reading", path)?;
    file.take(RECORD_MAX).read_to_end(&mut text).at("reading", path)?;
    Ok(Record::of(&String::from_utf8_lossy(&text)))
}

/// Whether nobody holds a record.
fn is_free(file: &File, path: &Path) -> Result<bool> {
    match sys::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            Ok(true)
        }
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(e) => Err(Error::io("locking", path, e)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn runs(name: &str) -> Result<(Runs, PathBuf)> {
        let dir = std::env::temp_dir().join(format!("txos-runs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Ok((Runs::of_realm(&dir)?, dir))
    }

    #[test]
    fn a_run_is_known_as_long_as_it_lasts_and_to_who_has_opened_it_after_that() {
        let (runs, dir) = runs("life").unwrap();
        let id = TxId::from_bits(7);
        let mut run = runs.begin(Some("make"), "make all", &[]).unwrap();
        run.attempt(id).unwrap();
        let mut others = runs.all().unwrap();
        let other = others.first_mut().unwrap();
        assert!(other.record.is_meant("make") && other.record.is_meant(id.as_str()));
        assert!(!other.record.is_meant("mak"));
        assert_eq!(other.look().unwrap(), Stage::Runs);
        runs.sweep().unwrap();
        run.end(End::Committed(id)).unwrap();
        assert_eq!(other.look().unwrap(), Stage::Ended(End::Committed(id)));
        assert!(runs.all().unwrap().is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_run_that_died_is_known_as_such_and_swept() {
        let (runs, dir) = runs("death").unwrap();
        let run = runs.begin(None, "true", &[]).unwrap();
        // As the kernel does it: the lock is gone, and the record is there.
        rustix::fs::flock(&run.file, FlockOperation::Unlock).unwrap();
        std::mem::forget(run);
        let mut others = runs.all().unwrap();
        assert_eq!(others.first_mut().unwrap().look().unwrap(), Stage::Died);
        runs.sweep().unwrap();
        assert!(runs.all().unwrap().is_empty());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_was_half_written_says_nothing() {
        assert_eq!(Record::of(""), None);
        assert_eq!(Record::of(r#"{"began":{"pid":1,"at_ns":2,"name":null,"command":"x"}}"#), None);
        let whole = "{\"began\":{\"pid\":1,\"at_ns\":2,\"name\":null,\"command\":\"x\"}}\n{\"ended\":\"unch";
        let record = Record::of(whole).unwrap();
        assert_eq!((record.pid, record.end), (1, None));
    }

    #[test]
    fn cycles_are_found_and_chains_are_none() {
        let (runs, dir) = runs("cycle").unwrap();
        let begin = |name| runs.begin(Some(name), name, &[]).unwrap();
        let (mut a, mut b, mut c) = (begin("a"), begin("b"), begin("c"));
        b.after("a", Some(&a.key)).unwrap();
        c.after("b", None).unwrap();
        let cycle = |run: &Run| runs.way(&run.key, &run.key).unwrap();
        for run in [&a, &b, &c] {
            assert_eq!(cycle(run), None);
        }
        let names = |way: Option<Vec<Record>>| {
            way.map(|way| way.into_iter().filter_map(|run| run.name).collect::<String>())
        };
        assert_eq!(names(runs.way(&c.key, &a.key).unwrap()).as_deref(), Some("cba"));
        // A name that no other run has yet.
        a.after("d", None).unwrap();
        assert_eq!(cycle(&a), None);
        let mut d = begin("d");
        d.after("c", Some(&c.key)).unwrap();
        for (run, expected) in [(&a, "adcba"), (&b, "badcb"), (&c, "cbadc"), (&d, "dcbad")] {
            assert_eq!(names(cycle(run)).as_deref(), Some(expected));
        }
        // Runs of one name follow one another.
        let mut next = begin("e");
        next.after("e", None).unwrap();
        assert_eq!(cycle(&next), None);
        // Also when what they came after has committed by then.
        next.after("e", Some(COMMITTED)).unwrap();
        let mut last = begin("e");
        last.after("e", Some(&next.key)).unwrap();
        assert_eq!(cycle(&last), None);
        drop((a, b, c, d, next, last));
        fs::remove_dir_all(dir).unwrap();
    }
}
