//! Record locks (fcntl(2)) between processes of a transaction.
//!
//! To the kernel the server is the owner of all of them, which never excludes itself. So each file that is locked has
//! a file in memory here, of which each process has an open file description of its own, and the kernel keeps
//! them apart by those (F_OFD_SETLK). What outsiders have locked is looked for before (`posix_lock`). The kernel finds no
//! deadlock between descriptions; [`Locks::waits`] does.

#![allow(unsafe_code)] // fcntl

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::kernel;
use crate::tx::node::Id;
use crate::tx::spaces::Lockable;

/// The locks of all processes.
#[derive(Debug, Default)]
pub struct Locks {
    /// The file in memory of a file.
    files: BTreeMap<Id, i32>,
    /// The description of it that a process has, by its space.
    owned: BTreeMap<(i32, Id), i32>,
    /// The processes that wait, by their spaces: for what, and when they have asked last.
    waiting: BTreeMap<i32, (Wanted, Instant)>,
}

/// A part of a file that a process wants to lock.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    file: Id,
    writes: bool,
    start: i64,
    /// The last byte; the greatest number: to its end, however long it becomes.
    last: i64,
}

impl Wanted {
    /// `lock` is as [`Locks::ask`] leaves it.
    fn of(file: Id, lock: &libc::flock) -> Wanted {
        let (at, size) = (lock.l_start, lock.l_len);
        let (start, last) = match size {
            0 => (at, i64::MAX),
            1.. => (at, at.saturating_add(size - 1)),
            _ => (at.saturating_add(size), at - 1),
        };
        Wanted { file, writes: i32::from(lock.l_type) == libc::F_WRLCK, start, last }
    }

    /// Whether a lock is in its way, by its line in `/proc/self/fdinfo` (proc_pid_fdinfo(5)).
    fn is_kept_away_by(&self, line: &str) -> bool {
        let Some(lock) = line.strip_prefix("lock:") else { return false };
        let fields: Vec<&str> = lock.split_ascii_whitespace().collect();
        let [_, "OFDLCK", _, kind, _, _, start, last] = fields[..] else { return false };
        let Ok(start) = start.parse::<i64>() else { return false };
        let last = last.parse().unwrap_or(i64::MAX);
        (self.writes || kind == "WRITE") && start <= self.last && self.start <= last
    }
}

/// A process that has not asked for so long does not wait any more.
const WAITS_FOR: Duration = Duration::from_secs(1);

impl Locks {
    /// Takes, frees or asks for a lock: what `command` says, without waiting. `lock` is with offsets from the start.
    ///
    /// # Errors
    /// As `fcntl(2)`.
    pub fn ask(
        &mut self,
        space: i32,
        file: &Lockable,
        command: i32,
        lock: &mut libc::flock,
    ) -> Sys<()> {
        let missing = match i32::from(lock.l_type) {
            libc::F_RDLCK => !file.reads,
            libc::F_WRLCK => !file.writes,
            _ => false,
        };
        if missing && command != libc::F_GETLK {
            return Err(Errno::BADF);
        }
        *lock = file.from_start(*lock)?;
        self.set(space, file.id, command, lock)
    }

    /// Locks that the first process has since it was the only one.
    pub fn begins_with(&mut self, locks: Vec<(Id, libc::flock)>) {
        for (file, mut lock) in locks {
            // Nobody else has any.
            let _ = self.set(0, file, libc::F_SETLK, &mut lock);
        }
    }

    fn set(&mut self, space: i32, file: Id, command: i32, lock: &mut libc::flock) -> Sys<()> {
        let fd = self.description(space, file)?;
        let command = match command {
            libc::F_GETLK => libc::F_OFD_GETLK,
            _ => libc::F_OFD_SETLK,
        };
        let words = [fd as u64, command as u64, std::ptr::from_mut(lock) as u64, 0, 0, 0];
        // SAFETY: the kernel reads the structure, and may write it.
        check(unsafe { syscall(libc::SYS_fcntl, words) }).map(drop)
    }

    /// The processes whose locks are in the way, by their spaces.
    fn in_the_way(&self, space: i32, wanted: &Wanted) -> Vec<i32> {
        let others = self.owned.iter().filter(|((s, id), _)| *s != space && *id == wanted.file);
        let has_one = |fd: i32| {
            let all = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{fd}"));
            all.is_ok_and(|all| all.lines().any(|line| wanted.is_kept_away_by(line)))
        };
        others.filter(|(_, fd)| has_one(**fd)).map(|((space, _), _)| *space).collect()
    }

    /// Which process has the lock that [`Locks::ask`] has found with `F_GETLK`, by its space.
    pub fn holder(&self, space: i32, file: &Lockable, found: &libc::flock) -> Option<i32> {
        let wanted = Wanted { writes: true, ..Wanted::of(file.id, found) };
        self.in_the_way(space, &wanted).first().copied()
    }

    /// A process has not got a lock, and waits for it. `lock` is as [`Locks::ask`] has left it.
    ///
    /// # Errors
    /// EDEADLK: who has it waits, over some others perhaps, for this process.
    pub fn waits(&mut self, space: i32, file: &Lockable, lock: &libc::flock) -> Sys<()> {
        let now = Instant::now();
        self.waiting.retain(|_, (_, asked)| now.duration_since(*asked) < WAITS_FOR);
        let wanted = Wanted::of(file.id, lock);
        let (mut seen, mut next) = (BTreeSet::new(), self.in_the_way(space, &wanted));
        while let Some(holder) = next.pop() {
            if !seen.insert(holder) {
                continue;
            }
            let Some((wanted, _)) = self.waiting.get(&holder) else { continue };
            let others = self.in_the_way(holder, wanted);
            if others.contains(&space) {
                self.waiting.remove(&space);
                return Err(Errno::DEADLK);
            }
            next.extend(others);
        }
        self.waiting.insert(space, (wanted, now));
        Ok(())
    }

    /// A process does something else: it does not wait any more.
    pub fn goes_on(&mut self, space: i32) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&space);
        }
    }

    /// Whether no process has asked for a lock that it could still have.
    pub fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    fn description(&mut self, space: i32, id: Id) -> Sys<i32> {
        if let Some(&fd) = self.owned.get(&(space, id)) {
            return Ok(fd);
        }
        let memory = match self.files.get(&id) {
            Some(&memory) => memory,
            None => {
                let memory = kernel::memory_file(c"txos locks")?;
                let memory = kernel::raised(memory);
                self.files.insert(id, memory);
                memory
            }
        };
        let fd = kernel::open(&kernel::magic_path(memory), libc::O_RDWR | libc::O_CLOEXEC, 0)?;
        let fd = kernel::raised(fd);
        self.owned.insert((space, id), fd);
        Ok(fd)
    }

    /// A process has closed a file: its locks on it are gone, whatever else it has open.
    pub fn closed(&mut self, space: i32, id: Id) {
        let Some(fd) = self.owned.remove(&(space, id)) else { return };
        kernel::close(fd);
        if !self.owned.keys().any(|(_, other)| *other == id)
            && let Some(memory) = self.files.remove(&id)
        {
            kernel::close(memory);
        }
    }

    /// A process has closed the files for which that says so.
    pub fn closed_all(&mut self, space: i32, is_closed: impl Fn(Id) -> bool) {
        let gone = self.owned.keys().filter(|(owner, id)| *owner == space && is_closed(*id));
        for (_, id) in gone.copied().collect::<Vec<_>>() {
            self.closed(space, id);
        }
    }
}
