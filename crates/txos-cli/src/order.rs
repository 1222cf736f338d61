//! `txos run --after`: a run among others, as a producer and as a consumer (papers/001 §3.1).
//!
//! A consumer starts at once and serializes after its producers:
//!
//! - While a producer runs, the consumer gives way to all others in the realm, and waits as long as it takes for what a
//!   producer holds.
//! - It commits, or is found to have failed by itself, when all producers have committed, and validates what it has read
//!   after that. If they have changed any of it, it runs again.
//! - If a producer does not commit, neither does the consumer.
//!
//! What is waited for is the end of a process, which a kill ends as well; see [`txos_engine::runs`].

use std::time::{Duration, Instant};

use txos_engine::TxId;
use txos_engine::error::Result;
use txos_engine::runs::{COMMITTED, End, Record, Run, Runs};
use txos_engine::store::{Home, Meta};
use txos_engine::version::Stamp;
use txos_run::Predecessors;
use txos_run::participant::REPORT_AFTER;
use txos_run::predecessors::Progress;

use crate::app::App;
use crate::args::RunArgs;
use crate::exit::Failure;
use crate::report::Outcome;
use crate::signals;
use crate::tx_status::TxStatus;

/// How long a wait sleeps between two looks, at first and at the most.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(1)..Duration::from_millis(50);

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

/// How a wait for all predecessors ended.
#[derive(Debug)]
pub enum Awaited {
    /// They have committed.
    Committed,
    /// A signal asked to end.
    Asked,
    /// One has not committed: what to say.
    Failed(String),
}

/// What a word means.
enum Meaning {
    /// These runs go on, or have left records.
    Runs,
    /// A transaction that has committed.
    Committed,
    /// Nothing that is known yet.
    Nothing,
}

impl Order {
    /// Makes the record of this process's run. Without one, others can't come after it, which is not worth a word.
    pub fn begin(app: &App, args: &RunArgs, label: &str) -> std::result::Result<Order, Failure> {
        let began = app.realm_dir().and_then(|dir| {
            let runs = Runs::of_realm(&dir)?;
            let own = runs.begin(args.name.as_deref(), label, &args.after)?;
            Ok((runs, own))
        });
        let (runs, own) = match began {
            Ok((runs, own)) => (Some(runs), Some(own)),
            Err(failure) if !args.after.is_empty() => {
                return Err(failure.with_aftermath("--after needs it; nothing was run"));
            }
            Err(failure) => {
                tracing::info!("none can come after it: {}", failure.message().unwrap_or_default());
                (None, None)
            }
        };
        Ok(Order {
            runs,
            own,
            words: args.after.clone(),
            failed: Vec::new(),
            began: Stamp::now(),
            predecessors: Predecessors::default(),
        })
    }

    /// Another attempt of the run begins.
    pub fn attempt(&mut self, id: TxId) {
        if let Some(error) = self.own.as_mut().and_then(|own| own.attempt(id).err()) {
            tracing::info!("none can come after it by this id: {error}");
        }
    }

    /// The run has ended.
    pub fn end(self, app: &App, ended: &std::result::Result<u8, Failure>) {
        let Some(own) = self.own else { return };
        let status = ended.as_ref().map_or_else(Failure::status, |status| *status);
        let end = match (ended, app.report.ended()) {
            (Ok(_), (Some(id), Some(Outcome::Committed))) => End::Committed(id),
            (Ok(_), (_, Some(Outcome::Unchanged))) => End::Unchanged,
            (Ok(_), (Some(id), Some(Outcome::Kept))) => End::Kept(id),
            _ => End::RolledBack(status),
        };
        if let Err(error) = own.end(end) {
            tracing::info!("those that come after it take it for killed: {error}");
        }
    }

    /// Whether one that it comes after goes on, or how that ended is to be told.
    pub fn is_behind(&self) -> bool {
        !matches!(self.predecessors.look(), Ok(Progress::Over))
    }

    /// Finds the runs that it comes after; waits for those that have not begun yet, for `patience` at the most.
    pub fn find(
        &mut self,
        app: &App,
        home: &Home,
        patience: Duration,
    ) -> std::result::Result<(), Failure> {
        const NOTHING: &str = "nothing was run";
        let words = std::mem::take(&mut self.words);
        // From now on others find a cycle that this one closes.
        for word in &words {
            self.note(word, None)?;
        }
        for word in &words {
            let (began, mut said, mut pause) = (Instant::now(), false, PAUSE.start);
            loop {
                self.check_cycle()?;
                match self.meaning(home, word).map_err(|f| f.with_aftermath(NOTHING))? {
                    Meaning::Runs | Meaning::Committed => break,
                    Meaning::Nothing => {}
                }
                if began.elapsed() >= patience {
                    return Err(Failure::new(format!(
                        "--after {word}: no run has this name or id, nor has a committed transaction; {NOTHING}"
                    )));
                }
                if !said && began.elapsed() >= REPORT_AFTER {
                    said = true;
                    app.say(format_args!("waiting for a run of the name {word} to begin"));
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE.end);
            }
        }
        if let Some(runs) = &self.runs {
            // What it can't remove another run does.
            let _ = runs.sweep();
        }
        if words.is_empty() {
            // It is in no cycle.
            return Ok(());
        }
        self.check_cycle()?;
        if let Progress::Failed { text, .. } = self.predecessors.look()? {
            return Err(Failure::new(format!("{text}; {NOTHING}")));
        }
        Ok(())
    }

    fn note(&mut self, word: &str, run: Option<&str>) -> Result<()> {
        self.own.as_mut().map_or(Ok(()), |own| own.after(word, run))
    }

    /// What a word means now: all runs that have this name or id, or else what has committed.
    fn meaning(&mut self, home: &Home, word: &str) -> std::result::Result<Meaning, Failure> {
        let Some(runs) = &self.runs else { return Ok(Meaning::Nothing) };
        let Some(own) = &self.own else { return Ok(Meaning::Nothing) };
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
        if !meant.is_empty() {
            for other in meant {
                let key = other.key.clone();
                self.predecessors.add(word, other);
                self.note(word, Some(&key))?;
            }
            return Ok(Meaning::Runs);
        }
        let is_named = |meta: &Meta| meta.name.as_deref() == Some(word) || meta.id.as_str() == word;
        // Of one that failed, what came after that is meant.
        let is_new = |meta: &Meta| {
            self.failed.is_empty() || meta.commit_stamp.is_some_and(|stamp| stamp > self.began)
        };
        let mut known: Vec<Meta> =
            home.transactions()?.into_iter().flatten().filter(is_named).collect();
        known.sort_by_key(|meta| std::cmp::Reverse(meta.ended.unwrap_or(meta.begun)));
        let statuses = known.iter().map(|meta| (meta, TxStatus::of(home, meta)));
        for (meta, status) in statuses {
            match status {
                TxStatus::Committed | TxStatus::Reverted if is_new(meta) => {
                    self.note(word, Some(COMMITTED))?;
                    return Ok(Meaning::Committed);
                }
                TxStatus::Pending => {
                    let id = meta.id;
                    return Err(Failure::new(format!(
                        "--after {word}: {id} is pending; `txos commit {id}` first"
                    )));
                }
                _ => {}
            }
        }
        Ok(Meaning::Nothing)
    }

    /// Refuses this run if the runs that it comes after come after it, and none of them is younger: the youngest is
    /// refused.
    fn check_cycle(&self) -> std::result::Result<(), Failure> {
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
        Err(Failure::new(format!(
            "--after: this is a cycle: {} comes after {way}, which comes after it; rolled back, nothing changed",
            name(me)
        )))
    }

    /// Waits until all that it comes after have ended.
    pub fn await_end(&self, app: &App) -> std::result::Result<Awaited, Failure> {
        let (began, mut said, mut pause) = (Instant::now(), false, PAUSE.start);
        loop {
            match self.predecessors.look()? {
                Progress::Over => return Ok(Awaited::Committed),
                Progress::Failed { text, .. } => return Ok(Awaited::Failed(text)),
                Progress::Runs(_) if signals::asked().is_some() => return Ok(Awaited::Asked),
                Progress::Runs(which) => {
                    if !said && began.elapsed() >= REPORT_AFTER {
                        said = true;
                        app.say(format_args!("waiting for {which}, which this run comes after"));
                    }
                }
            }
            self.check_cycle()?;
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE.end);
        }
    }

    /// Before it runs again after a producer failed: the next run of that name is the one that it comes after.
    pub fn forget_failed(&mut self) -> Result<()> {
        while let Progress::Failed { word, run, .. } = self.predecessors.look()? {
            self.failed.push(run);
            self.predecessors.forget(&word);
            self.words.push(word);
        }
        Ok(())
    }
}
