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
use txos_engine::order::{self, Pause, Refused};
use txos_engine::runs::{End, Predecessors, Progress};
use txos_engine::store::Home;
use txos_run::participant::REPORT_AFTER;

use crate::app::App;
use crate::args::RunArgs;
use crate::exit::Failure;
use crate::report::Outcome;
use crate::signals;

/// This process's run, and those that it comes after.
#[derive(Debug)]
pub struct Order(order::Order);

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

/// Why a run is refused, for people.
fn refusal(refused: Refused) -> Failure {
    match refused {
        Refused::Failed(error) => Failure::from(error),
        refused => Failure::new(format!("--after: {refused}; rolled back, nothing changed")),
    }
}

impl Order {
    /// Makes the record of this process's run. Without one, others can't come after it, which is not worth a word.
    pub fn begin(app: &App, args: &RunArgs, label: &str) -> std::result::Result<Order, Failure> {
        let began = app.realm_dir().and_then(|dir| {
            Ok(order::Order::begin(&dir, args.name.as_deref(), label, &args.after, None)?)
        });
        match began {
            Ok(order) => Ok(Order(order)),
            Err(failure) if !args.after.is_empty() => {
                Err(failure.with_aftermath("--after needs it; nothing was run"))
            }
            Err(failure) => {
                tracing::info!("none can come after it: {}", failure.message().unwrap_or_default());
                Ok(Order(order::Order::without_record(&args.after)))
            }
        }
    }

    /// Another attempt of the run begins.
    pub fn attempt(&mut self, id: TxId) {
        if let Err(error) = self.0.attempt(id) {
            tracing::info!("none can come after it by this id: {error}");
        }
    }

    /// The run has ended.
    pub fn end(self, app: &App, ended: &std::result::Result<u8, Failure>) {
        let status = ended.as_ref().map_or_else(Failure::status, |status| *status);
        let end = match (ended, app.report.ended()) {
            (Ok(_), (Some(id), Some(Outcome::Committed))) => End::Committed(id),
            (Ok(_), (_, Some(Outcome::Unchanged))) => End::Unchanged,
            (Ok(_), (Some(id), Some(Outcome::Kept))) => End::Kept(id),
            _ => End::RolledBack(status),
        };
        if let Err(error) = self.0.end(end) {
            tracing::info!("those that come after it take it for killed: {error}");
        }
    }

    /// Those that it comes after now.
    pub fn predecessors(&self) -> Predecessors {
        self.0.predecessors.clone()
    }

    /// Whether one that it comes after goes on, or how that ended is to be told.
    pub fn is_behind(&self) -> bool {
        self.0.is_behind()
    }

    /// Finds the runs that it comes after; waits for those that have not begun yet, for `patience` at the most.
    pub fn find(
        &mut self,
        app: &App,
        home: &Home,
        patience: Duration,
    ) -> std::result::Result<(), Failure> {
        const NOTHING: &str = "nothing was run";
        let words = self.0.words()?;
        for word in &words {
            let (began, mut said, mut pause) = (Instant::now(), false, Pause::default());
            loop {
                self.0.check_cycle().map_err(refusal)?;
                let found = match self.0.find_runs(word)? {
                    true => Ok(true),
                    false => self.0.find_committed(home, word),
                };
                let found = found.map_err(|refused| match refused {
                    Refused::Pending(_) => Failure::new(format!("--after {word}: {refused}")),
                    refused => refusal(refused),
                });
                if found.map_err(|failure| failure.with_aftermath(NOTHING))? {
                    break;
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
                pause.sleep();
            }
        }
        self.0.sweep();
        if words.is_empty() {
            // It is in no cycle.
            return Ok(());
        }
        self.0.check_cycle().map_err(refusal)?;
        if let Progress::Failed { text, .. } = self.0.predecessors.look()? {
            return Err(Failure::new(format!("{text}; {NOTHING}")));
        }
        Ok(())
    }

    /// Waits until all that it comes after have ended.
    pub fn await_end(&self, app: &App) -> std::result::Result<Awaited, Failure> {
        let (began, mut said, mut pause) = (Instant::now(), false, Pause::default());
        loop {
            match self.0.look().map_err(refusal)? {
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
            pause.sleep();
        }
    }

    /// Before it runs again after a producer failed: the next run of that name is the one that it comes after.
    pub fn forget_failed(&mut self) -> Result<()> {
        self.0.forget_failed()
    }
}
