//! What a command may use: bytes of private copies, time.
//!
//! # Invariants
//!
//! - Nothing of a transaction whose private copies take more than it was given is ever published or kept: they are
//!   measured again when everything has ended.
//! - While the command runs they are looked at every [`LOOK_MIN`], or less often where a look takes long (at most one
//!   part in [`SHARE`] of a processor goes into looks). In between they may grow further.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use txos_engine::runs::{Predecessors, Progress};

/// How often private copies are looked at, at the most and at the least.
const LOOK_MIN: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_secs(2);

/// How often the runs that the command comes after are looked at.
const LOOK_AT_PREDECESSORS: Duration = Duration::from_millis(50);

/// The share of a processor that goes into looks is one by this.
const SHARE: u32 = 20;

/// How long a command whose time is over may go on after it was asked to end.
pub const GRACE: Duration = Duration::from_secs(5);

/// What a command may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Disk space of the transaction's private copies, in bytes.
    pub max_bytes: Option<u64>,
    /// Time, by the clock.
    pub time: Option<Duration>,
    /// Memory of all its processes, in bytes.
    pub memory: Option<u64>,
    /// Whether it has a network of its own, without a way out.
    pub no_network: bool,
}

/// What a command used more of than it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Disk space.
    Bytes,
    /// Time.
    Time,
    /// None: a run that it comes after failed.
    Predecessor,
}

/// What is to be done about the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Ask it to end.
    Terminate,
    /// End it.
    Kill,
}

/// Watches over what a command uses.
#[derive(Debug)]
pub struct Guard {
    limits: Limits,
    uppers: Vec<PathBuf>,
    after: Predecessors,
    after_at: Option<Instant>,
    begun: Option<Instant>,
    look_at: Option<Instant>,
    kill_at: Option<Instant>,
    exceeded: Option<(Limit, String)>,
}

impl Guard {
    /// Over what is written into these directories, and over the runs that the command comes after.
    #[must_use]
    pub fn new(limits: &Limits, uppers: Vec<PathBuf>, after: Predecessors) -> Guard {
        let limits = limits.clone();
        Guard {
            limits,
            uppers,
            after,
            after_at: None,
            begun: None,
            look_at: None,
            kill_at: None,
            exceeded: None,
        }
    }

    /// The command begins now.
    pub fn begin(&mut self) {
        let now = Instant::now();
        self.begun = Some(now);
        self.look_at = self.limits.max_bytes.map(|_| now + LOOK_MIN);
        self.after_at = (!self.after.is_empty()).then(|| now + LOOK_AT_PREDECESSORS);
    }

    fn ends_at(&self) -> Option<Instant> {
        self.begun?.checked_add(self.limits.time?)
    }

    /// For how long there is nothing to do.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let next = match self.exceeded {
            Some(_) => self.kill_at,
            None => [self.ends_at(), self.look_at, self.after_at].into_iter().flatten().min(),
        };
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Looks whether it is time for something.
    pub fn look(&mut self) -> Option<Stop> {
        let now = Instant::now();
        if self.exceeded.is_some() {
            self.kill_at.take_if(|at| *at <= now)?;
            return Some(Stop::Kill);
        }
        if self.ends_at().is_some_and(|at| at <= now) {
            let time = self.limits.time.unwrap_or_default().as_secs_f64();
            self.exceeded = Some((Limit::Time, format!("was stopped after {time} s (--time)")));
            self.kill_at = Some(now + GRACE);
            return Some(Stop::Terminate);
        }
        if self.after_at.is_some_and(|at| at <= now) {
            self.after_at = match self.after.look() {
                Ok(Progress::Over) => None,
                // A record that can't be read is told of when the command has ended.
                Ok(Progress::Runs(_)) | Err(_) => Some(now + LOOK_AT_PREDECESSORS),
                Ok(Progress::Failed { text, .. }) => {
                    self.exceeded = Some((Limit::Predecessor, format!("was stopped: {text}")));
                    return Some(Stop::Kill);
                }
            };
        }
        self.look_at.filter(|at| *at <= now)?;
        let over = self.measure();
        let took = now.elapsed();
        self.look_at = Some(Instant::now() + (took * SHARE).clamp(LOOK_MIN, LOOK_MAX));
        self.exceeded = over;
        self.exceeded.as_ref().map(|_| Stop::Kill)
    }

    /// Everything has ended: whether it used more than it was given.
    pub fn end(&mut self) -> Option<(Limit, String)> {
        self.exceeded.take().or_else(|| self.measure())
    }

    fn measure(&self) -> Option<(Limit, String)> {
        let max = self.limits.max_bytes?;
        let taken = disk_space(&self.uppers);
        (taken > max).then(|| {
            let text = format!(
                "was stopped: the transaction's private copies take {taken} bytes, more than the {max} that \
                 --max-bytes allows"
            );
            (Limit::Bytes, text)
        })
    }
}

/// Disk space below some directories. Of a file with several names there it is counted once. What can't be looked at
/// is not counted.
#[must_use]
pub fn disk_space(dirs: &[PathBuf]) -> u64 {
    disk_space_until(dirs, None).unwrap_or_default()
}

/// The same; `None` if it was not counted at this time.
#[must_use]
pub fn disk_space_until(dirs: &[PathBuf], deadline: Option<Instant>) -> Option<u64> {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let mut open: Vec<PathBuf> = dirs.to_vec();
    while let Some(dir) = open.pop() {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return None;
        }
        bytes += space_in(&dir, &mut open, &mut seen);
    }
    Some(bytes)
}

fn space_in(dir: &Path, open: &mut Vec<PathBuf>, seen: &mut HashSet<(u64, u64)>) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            open.push(entry.path());
        } else if meta.nlink() > 1 && !seen.insert((meta.dev(), meta.ino())) {
            continue;
        }
        bytes += meta.blocks() * 512;
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn none() -> Predecessors {
        Predecessors::default()
    }

    #[test]
    fn time_is_over_once_and_then_again() {
        let time = Some(Duration::ZERO);
        let mut guard = Guard::new(&Limits { time, ..Limits::default() }, Vec::new(), none());
        assert_eq!((guard.left(), guard.look()), (None, None), "it has not begun");
        guard.begin();
        assert_eq!(guard.left(), Some(Duration::ZERO));
        assert_eq!(guard.look(), Some(Stop::Terminate));
        assert!(guard.left().unwrap() > GRACE / 2);
        assert_eq!(guard.look(), None);
        guard.kill_at = Some(Instant::now());
        assert_eq!(guard.look(), Some(Stop::Kill));
        assert_eq!((guard.left(), guard.look()), (None, None));
        assert_eq!(guard.end().unwrap().0, Limit::Time);
    }

    #[test]
    fn space_is_counted_once_for_each_file() {
        let dir = std::env::temp_dir().join(format!("txos-space-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("d")).unwrap();
        std::fs::write(dir.join("d/a"), vec![1; 100_000]).unwrap();
        let before = disk_space(std::slice::from_ref(&dir));
        assert!(before >= 100_000);
        std::fs::hard_link(dir.join("d/a"), dir.join("d/b")).unwrap();
        let after = disk_space(std::slice::from_ref(&dir));
        assert!(after < before + 100_000);
        let limits = Limits { max_bytes: Some(99_999), ..Limits::default() };
        let mut guard = Guard::new(&limits, vec![dir.clone()], none());
        assert_eq!(guard.end().unwrap().0, Limit::Bytes);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
