//! A run among others (papers/001 §3.1): its record, and the runs that it comes after.
//!
//! Both front doors have such runs: `txos run` with `--name` and `--after`, programs with `txos_name` and `TX_AFTER`. Here
//! is what they have in common. How long something is waited for, and what is said meanwhile, is theirs.
//!
//! A run comes after others by words, each a name or the id of a transaction. A word means all runs of that name that there
//! are when it is looked for; if there are none, a transaction of that name in the history that has committed.
//!
//! # No cycle
//!
//! A run writes into its record what it comes after before it looks for that. So of runs that come after each other, each
//! finds the cycle that the last one has closed, and the youngest one is refused.

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::id::TxId;
use crate::runs::{COMMITTED, End, Predecessors, Progress, Record, Run, Runs};
use crate::stamp::Stamp;
use crate::store::{Home, Meta, TxStatus};

/// How long a wait sleeps between two looks: 1 ms at first, twice as long each time, 50 ms at the most.
#[derive(Debug)]
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Pause {
        Pause(Duration::from_millis(1))
    }
}

impl Pause {
    /// Sleeps, longer each time.
    pub fn sleep(&mut self) {
        const MOST: Duration = Duration::from_millis(50);
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(MOST);
    }
}

/// This process's run, and those that it comes after.
#[derive(Debug)]
pub struct Order {
    runs: Option<Runs>,
    own: Option<Run>,
    /// The runs that it comes after, as they were named, that have not been found yet.
    words: Vec<String>,
    /// Those that failed, and after which it ran again: their records' names.
    failed: Vec<String>,
    began: Stamp,
    /// Those that it comes after now.
    pub predecessors: Predecessors,
}

/// Why a run can't come after what it is to come after.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The runs that it comes after come after it, and it is the youngest of them.
    #[error("this is a cycle: {0}")]
    Cycle(String),
    /// It names a transaction that is pending.
    #[error("{0} is pending; `txos commit {0}` first")]
    Pending(TxId),
    /// A record can't be read or written.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Order {
    /// Makes the record of a run of this process, in the realm of a directory. `thread`: it is a transaction of this thread.
    ///
    /// # Errors
    /// If it can't be made.
    pub fn begin(
        realm: &Path,
        name: Option<&str>,
        command: &str,
        words: &[String],
        thread: Option<u32>,
    ) -> Result<Order> {
        let runs = Runs::of_realm(realm)?;
        let own = runs.begin_in(name, command, words, thread)?;
        Ok(Order { runs: Some(runs), own: Some(own), ..Order::without_record(words) })
    }

    /// A run that none can come after.
    #[must_use]
    pub fn without_record(words: &[String]) -> Order {
        Order {
            runs: None,
            own: None,
            words: words.to_vec(),
            failed: Vec::new(),
            began: Stamp::now(),
            predecessors: Predecessors::default(),
        }
    }

    /// Another attempt of the run begins.
    ///
    /// # Errors
    /// If it can't be written down: none can come after it by this id.
    pub fn attempt(&mut self, id: TxId) -> Result<()> {
        self.own.as_mut().map_or(Ok(()), |own| own.attempt(id))
    }

    /// Its record's name, if it has one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.own.as_ref().map(|own| own.key.as_str())
    }

    /// The run has ended.
    ///
    /// # Errors
    /// If it can't be written down: those that come after it take it for killed.
    pub fn end(self, end: End) -> Result<()> {
        self.own.map_or(Ok(()), |own| own.end(end))
    }

    /// Whether one that it comes after goes on, or how that ended is to be told.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !matches!(self.predecessors.look(), Ok(Progress::Over))
    }

    /// The words that have not been looked for, which are to be now. From now on others find a cycle that this run closes.
    ///
    /// # Errors
    /// If they can't be written down.
    pub fn words(&mut self) -> Result<Vec<String>> {
        let words = std::mem::take(&mut self.words);
        for word in &words {
            self.note(word, None)?;
        }
        Ok(words)
    }

    fn note(&mut self, word: &str, run: Option<&str>) -> Result<()> {
        self.own.as_mut().map_or(Ok(()), |own| own.after(word, run))
    }

    /// Looks whether there are runs of this name or id: it comes after all of them then.
    ///
    /// # Errors
    /// If the records can't be listed, or its own can't be written.
    pub fn find_runs(&mut self, word: &str) -> Result<bool> {
        let (Some(runs), Some(own)) = (&self.runs, &self.own) else { return Ok(false) };
        let me = runs.open(&own.key).map(|me| me.record).unwrap_or_default();
        let mut meant = Vec::new();
        for other in runs.all()? {
            let is_other = other.key != own.key && !self.failed.contains(&other.key);
            if !is_other || !other.record.is_meant(word) {
                continue;
            }
            // A younger one that comes after this one is about to find the cycle.
            if other.record.is_younger(&me) && runs.way(&other.key, &own.key)?.is_some() {
                continue;
            }
            meant.push(other);
        }
        let found = !meant.is_empty();
        for other in meant {
            let key = other.key.clone();
            self.predecessors.add(word, other)?;
            self.note(word, Some(&key))?;
        }
        Ok(found)
    }

    /// Looks whether a transaction of this name or id has committed, where there is no run of that name.
    ///
    /// # Errors
    /// [`Refused::Pending`]; if the history can't be read.
    pub fn find_committed(
        &mut self,
        home: &Home,
        word: &str,
    ) -> std::result::Result<bool, Refused> {
        if self.own.is_none() {
            return Ok(false);
        }
        let is_named = |meta: &Meta| meta.name.as_deref() == Some(word) || meta.id.as_str() == word;
        // Of one that failed, what came after that is meant.
        let is_new = |meta: &Meta| {
            self.failed.is_empty() || meta.commit_stamp.is_some_and(|stamp| stamp > self.began)
        };
        let mut known: Vec<Meta> =
            home.transactions()?.into_iter().flatten().filter(is_named).collect();
        known.sort_by_key(|meta| std::cmp::Reverse(meta.ended.unwrap_or(meta.begun)));
        for (meta, status) in known.iter().map(|meta| (meta, TxStatus::of(home, meta))) {
            match status {
                TxStatus::Committed | TxStatus::Reverted if is_new(meta) => {
                    self.note(word, Some(COMMITTED))?;
                    return Ok(true);
                }
                TxStatus::Pending => return Err(Refused::Pending(meta.id)),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Removes what dead runs have left. What it can't remove another run does.
    pub fn sweep(&self) {
        if let Some(runs) = &self.runs {
            let _ = runs.sweep();
        }
    }

    /// Refuses this run if the runs that it comes after come after it, and none of them is younger: the youngest is
    /// refused.
    ///
    /// # Errors
    /// [`Refused::Cycle`]; if the records can't be listed.
    pub fn check_cycle(&self) -> std::result::Result<(), Refused> {
        let (Some(runs), Some(own)) = (&self.runs, &self.own) else { return Ok(()) };
        let Some(cycle) = runs.way(&own.key, &own.key)? else { return Ok(()) };
        let Some((me, others)) = cycle.split_first() else { return Ok(()) };
        if others.iter().any(|other| other.is_younger(me)) {
            return Ok(());
        }
        let name = |run: &Record| match &run.name {
            Some(name) => format!("{name} (process {}, {})", run.pid, run.command),
            None => format!("process {} ({})", run.pid, run.command),
        };
        let others = others.split_last().map(|(_, others)| others).unwrap_or_default();
        let way = others.iter().map(name).collect::<Vec<_>>().join(", which comes after ");
        Err(Refused::Cycle(format!("{} comes after {way}, which comes after it", name(me))))
    }

    /// Looks where those are that it comes after. While they run they may begin to come after this one.
    ///
    /// # Errors
    /// [`Refused::Cycle`]; if a record can't be read.
    pub fn look(&self) -> std::result::Result<Progress, Refused> {
        let progress = self.predecessors.look()?;
        if matches!(progress, Progress::Runs(_)) {
            self.check_cycle()?;
        }
        Ok(progress)
    }

    /// Before it runs again after a producer failed: the next run of that name is the one that it comes after.
    ///
    /// # Errors
    /// If a record can't be read.
    pub fn forget_failed(&mut self) -> Result<()> {
        while let Progress::Failed { word, run, .. } = self.predecessors.look()? {
            self.failed.push(run);
            self.predecessors.forget(&word);
            self.words.push(word);
        }
        Ok(())
    }
}
