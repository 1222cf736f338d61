//! `--report`: how a command ended, as one JSON document for the program that started it.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::str::FromStr;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use serde::Serialize;
use txos_engine::commit::{Left, Summary};
use txos_engine::error::Party;
use txos_engine::show::quoted;
use txos_engine::version::Stamp;
use txos_engine::{Conflict, TxId};
use txos_run::{Live, Warning};

use crate::app::App;
use crate::changes::Counts;
use crate::exit::Failure;
use crate::json;
use crate::tx_status::TxStatus;

/// Where a report goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a file, which is emptied when the command begins.
    File(PathBuf),
    /// To a descriptor that the caller has opened.
    Descriptor(RawFd),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("FD:") {
            None if text.is_empty() => Err("a file, or FD: and the number of a descriptor".into()),
            None => Ok(Target::File(text.into())),
            Some(number) => match number.parse() {
                Ok(number) if number >= 0 => Ok(Target::Descriptor(number)),
                _ => Err(format!("{number:?} is no descriptor: a number such as 3")),
            },
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is published.
    Committed,
    /// The changes of an earlier transaction are undone.
    Reverted,
    /// Earlier versions are put back.
    Restored,
    /// It is pending.
    Kept,
    /// Layers of a pending transaction are taken back.
    Undone,
    /// Layers of a pending transaction are put back.
    Redone,
    /// What it changed is part of the transaction that it ran in.
    InOuter,
    /// It succeeded and there was nothing to publish.
    Unchanged,
    /// What would change was shown.
    DryRun,
    /// The command failed; or somebody said no.
    RolledBack,
    /// Others were first.
    Conflict,
    /// txos failed.
    Failed,
    /// txos failed in the middle of a publish: `txos recover` is to be run.
    Unfinished,
}

/// What a report says.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    command: &'static str,
    id: Option<TxId>,
    outcome: Option<Outcome>,
    exit_status: u8,
    message: Option<String>,
    retryable: Option<bool>,
    attempts: u32,
    inside: Option<TxId>,
    counts: Option<Counts>,
    layer: Option<Counts>,
    merged_appends: u64,
    warnings: Vec<Warning>,
    live: Live,
    conflicts: Vec<Obstacle>,
    came_after: Vec<TxId>,
    left: Vec<LeftPath>,
    merged: Vec<String>,
    begun: Option<Stamp>,
    ended: Option<Stamp>,
    transaction: Option<json::Transaction>,
}

/// A conflict.
#[derive(Debug, Serialize)]
struct Obstacle {
    #[serde(flatten)]
    conflict: Conflict,
    aspect: &'static str,
    by: Option<Party>,
    retryable: bool,
}

impl Obstacle {
    /// Of a command that begins from what is there now, or of one that goes by what it has observed before.
    fn new(conflict: Conflict, afresh: bool) -> Self {
        Obstacle {
            aspect: conflict.what.aspect(),
            by: conflict.what.party(),
            retryable: afresh || conflict.what.passes(),
            conflict,
        }
    }
}

/// What a revert left.
#[derive(Debug, Serialize)]
struct LeftPath {
    path: String,
    what: Option<String>,
}

impl Report {
    /// Another attempt of a command in a new transaction.
    pub fn attempt(&mut self, id: TxId) {
        let (command, attempts) = (self.command, self.attempts + 1);
        *self = Report { command, attempts, ..Report::default() };
        self.id = Some(id);
    }

    /// A command in a transaction inside of another one.
    pub fn inside(&mut self, id: TxId, outer: TxId) {
        self.command = "run";
        self.attempt(id);
        self.inside = Some(outer);
    }

    /// When it began and ended, of a transaction of which there is no record.
    pub fn lasted(&mut self, begun: Stamp, ended: Stamp) {
        (self.begun, self.ended) = (Some(begun), Some(ended));
    }

    /// The transaction that a command is about.
    pub fn of(&mut self, id: TxId) {
        self.id = Some(id);
    }

    /// What the command did that can't be rolled back.
    pub fn ran(&mut self, warnings: &[Warning], live: &Live) {
        self.warnings = warnings.to_vec();
        self.live = live.clone();
    }

    /// How it ended, with what changed.
    pub fn ended(&mut self, outcome: Outcome, counts: Option<Counts>) {
        self.outcome = Some(outcome);
        self.counts = counts;
    }

    /// What the command changed of a pending transaction.
    pub fn of_layer(&mut self, counts: Option<Counts>) {
        self.layer = counts;
    }

    /// What was published.
    pub fn published(&mut self, outcome: Outcome, summary: &Summary, counts: Option<Counts>) {
        self.ended(outcome, counts);
        self.id = Some(summary.id);
        self.merged_appends = summary.merged;
        self.left(&summary.left);
        self.merged(&summary.merged_texts);
    }

    /// What a revert merged.
    pub fn merged(&mut self, merged: &[PathBuf]) {
        self.merged = merged.iter().map(|path| quoted(path)).collect();
    }

    /// What a revert left.
    pub fn left(&mut self, left: &[Left]) {
        let path = |left: &Left| LeftPath {
            path: quoted(&left.path),
            what: left.conflict.as_ref().map(|conflict| conflict.what.to_string()),
        };
        self.left = left.iter().map(path).collect();
    }

    fn failed(&mut self, failure: &Failure) {
        self.message = failure.message();
        let outcome = match failure {
            Failure::Conflict { conflicts, came_after, .. } => {
                let afresh = matches!(self.command, "run" | "rebase" | "restore");
                let obstacle = |conflict: &Conflict| Obstacle::new(conflict.clone(), afresh);
                self.conflicts = conflicts.iter().map(obstacle).collect();
                self.retryable = Some(self.conflicts.iter().all(|conflict| conflict.retryable));
                self.came_after.clone_from(came_after);
                Outcome::Conflict
            }
            Failure::Txos(_) | Failure::NoSpace(_) | Failure::Status(_) => Outcome::Failed,
            Failure::Unfinished(_) => Outcome::Unfinished,
        };
        self.outcome = Some(outcome);
    }
}

/// The report of this process, and where it goes.
#[derive(Debug, Default)]
pub struct Reporter {
    report: RefCell<Report>,
    out: RefCell<Option<File>>,
    /// What another process has written for this one.
    ready: RefCell<Option<Vec<u8>>>,
}

impl Reporter {
    /// Opens where the report goes, before anything is done.
    ///
    /// # Errors
    /// If it can't be written to.
    pub fn open(&self, command: &'static str, target: Option<&Target>) -> Result<(), Failure> {
        self.report.borrow_mut().command = command;
        let Some(target) = target else { return Ok(()) };
        let out = match target {
            Target::File(path) => {
                File::options().write(true).create(true).truncate(true).open(path).map_err(|e| {
                    Failure::new(format!("--report {}: {e}; nothing was done", quoted(path)))
                })?
            }
            Target::Descriptor(number) => descriptor(*number).map_err(|e| {
                Failure::new(format!("--report FD:{number}: {e}; nothing was done"))
            })?,
        };
        *self.out.borrow_mut() = Some(out);
        Ok(())
    }

    /// The transaction that is pending by now, if one is.
    pub fn kept(&self) -> Option<TxId> {
        let report = self.report.borrow();
        report.id.filter(|_| report.outcome == Some(Outcome::Kept))
    }

    /// The transaction, and how it ended, as far as that is known.
    pub fn ended(&self) -> (Option<TxId>, Option<Outcome>) {
        let report = self.report.borrow();
        (report.id, report.outcome)
    }

    /// Changes what it will say.
    pub fn note(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.report.borrow_mut());
    }

    /// Another process has written the report.
    pub fn is_ready(&self, text: Vec<u8>) {
        *self.ready.borrow_mut() = Some(text);
    }

    /// Writes it, if it was asked for.
    pub fn write(&self, app: &App, ended: &Result<u8, Failure>, status: u8) {
        let Some(mut out) = self.out.borrow_mut().take() else { return };
        let ready = self.ready.take();
        let written = ready.map_or_else(|| self.text(app, ended, status), Ok);
        if let Err(error) = written.and_then(|text| out.write_all(&text)) {
            app.warn(format_args!("the report could not be written: {error}"));
        }
    }

    /// What it says.
    ///
    /// # Errors
    /// Those of the encoding.
    pub fn text(&self, app: &App, ended: &Result<u8, Failure>, status: u8) -> io::Result<Vec<u8>> {
        let mut report = self.report.take();
        report.exit_status = status;
        match ended {
            Err(failure) => report.failed(failure),
            Ok(_) => report.outcome = report.outcome.or(Some(Outcome::RolledBack)),
        }
        let home = report.id.and_then(|_| app.open_existing().ok().flatten());
        if let Some((home, id)) = home.as_ref().zip(report.id)
            && let Ok(meta) = home.meta(id)
        {
            report.transaction = Some(json::Transaction::new(&meta, TxStatus::of(home, &meta)));
            (report.begun, report.ended) = (Some(meta.begun), meta.ended);
        }
        let mut text = Vec::new();
        json::write(&mut text, &report)?;
        Ok(text)
    }
}

/// A descriptor that the caller has opened for writing. The command does not get it.
#[expect(unsafe_code, reason = "a number from the command line becomes a descriptor")]
fn descriptor(number: RawFd) -> io::Result<File> {
    // SAFETY: borrowed for these calls only, which fail if it is not open.
    let given = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(given)?;
    let ours: OwnedFd = rustix::io::fcntl_dupfd_cloexec(given, 3)?;
    if number > 2 {
        fcntl_setfd(given, flags | FdFlags::CLOEXEC)?;
    }
    Ok(File::from(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        assert_eq!("FD:3".parse(), Ok(Target::Descriptor(3)));
        assert_eq!("a/b".parse(), Ok(Target::File("a/b".into())));
        for bad in ["", "FD:", "FD:-1", "FD:x"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    /// The document exactly as programs see it. A failure here means: the schema changed.
    #[test]
    fn the_schema_stays() {
        let mut report = Report { command: "run", ..Report::default() };
        report.attempt("3kq9w2ma".parse().unwrap());
        let conflict = Conflict {
            path: "/etc/a\nb".into(),
            what: txos_engine::error::ConflictKind::Content,
            // (A time is told in local time.)
            when: None,
        };
        report.failed(&Failure::conflict(vec![conflict], "rolled back"));
        let mut out = Vec::new();
        json::write(&mut out, &report).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), include_str!("../tests/snapshots/report.json"));
    }
}
