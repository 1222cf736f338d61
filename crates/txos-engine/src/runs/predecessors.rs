//! The runs that another one comes after (papers/001 §3.1): where they are, and whether one of them failed.

use std::sync::{Arc, Mutex, PoisonError};

use super::{End, Other, Stage};
use crate::error::Result;

/// Some runs of other processes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Predecessors {
    others: Arc<Mutex<Vec<Predecessor>>>,
}

#[derive(Debug)]
struct Predecessor {
    /// As it was named.
    word: String,
    other: Other,
    is_over: bool,
}

/// Where predecessors are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of them have committed, or had nothing to commit.
    Over,
    /// At least one goes on: this one, with its command.
    Runs(String),
    /// One has not committed.
    Failed {
        /// As it was named.
        word: String,
        /// What it is, and what became of it: "p (process 12, make all), which it comes after, was killed".
        text: String,
        /// Its record's name.
        run: String,
        /// Whether another run may have this name: it was not named by its id.
        by_name: bool,
    },
}

impl Predecessors {
    /// One more.
    ///
    /// # Errors
    /// If its record can't be kept open.
    pub fn add(&self, word: &str, mut other: Other) -> Result<()> {
        other.keep()?;
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.push(Predecessor { word: word.to_owned(), other, is_over: false });
        Ok(())
    }

    /// As it was named: one of them that is a transaction of this thread of this process.
    #[must_use]
    pub fn of_thread(&self, pid: u32, thread: u32) -> Option<String> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |one: &&Predecessor| {
            one.other.record.pid == pid && one.other.record.thread == Some(thread)
        };
        others.iter().find(is_it).map(|one| one.word.clone())
    }

    /// No more of that name.
    pub fn forget(&self, word: &str) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|one| one.word != word);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The processes of those that were not known to be over when they were last looked at.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.iter().filter(|one| !one.is_over).map(|one| one.other.record.pid).collect()
    }

    /// Looks where they are.
    ///
    /// # Errors
    /// If a record can't be read.
    pub fn look(&self) -> Result<Progress> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let mut runs = None;
        for one in others.iter_mut().filter(|one| !one.is_over) {
            let what = match one.other.look()? {
                Stage::Runs => {
                    runs = runs.or_else(|| Some(one.in_words()));
                    continue;
                }
                Stage::Ended(End::Committed(_) | End::Unchanged) => {
                    one.is_over = true;
                    continue;
                }
                Stage::Ended(End::Kept(id)) => {
                    format!("is pending as {id}, and not committed (`txos commit {id}`)")
                }
                Stage::Ended(End::RolledBack(status)) => {
                    format!("was rolled back, with status {status}")
                }
                Stage::Ended(End::Aborted(why)) if why.is_empty() => "was rolled back".into(),
                Stage::Ended(End::Aborted(why)) => format!("was rolled back: {why}"),
                Stage::Died => "was killed".into(),
            };
            let text = format!("{}, which it comes after, {what}", one.in_words());
            return Ok(Progress::Failed {
                word: one.word.clone(),
                text,
                run: one.other.key.clone(),
                by_name: one.other.record.name.as_deref() == Some(&one.word),
            });
        }
        Ok(runs.map_or(Progress::Over, Progress::Runs))
    }
}

impl Predecessor {
    /// "p (process 12, make all)".
    fn in_words(&self) -> String {
        let record = &self.other.record;
        format!("{} (process {}, {})", self.word, record.pid, record.command)
    }
}
