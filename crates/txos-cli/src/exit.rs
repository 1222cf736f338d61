//! Exit statuses, and errors on their way to one.
//!
//! The command's own status passes through unchanged, so everything txos itself has to say uses
//! the numbers that `env(1)`, `timeout(1)` and `sysexits.h` reserve for such wrappers.

use std::io;

use txos_engine::{Conflict, TxId};
use txos_run::{CommandStatus, Limit};

/// The user answered no at `--review`.
pub const DECLINED: u8 = 1;
/// `doctor` found a problem.
pub const PROBLEMS: u8 = 1;
/// It did not end within `--time`, as with timeout(1).
pub const TIMED_OUT: u8 = 124;
/// Its private copies were larger than `--max-bytes`: as of a process that SIGXFSZ ended.
pub const TOO_LARGE: u8 = SIGNAL_BASE + 25;
/// Somebody else changed what the transaction depends on (`EX_TEMPFAIL`: trying again may help).
pub const CONFLICT: u8 = 75;
/// txos itself failed; nothing was published.
pub const FAILED: u8 = 125;
/// The command was found but can't be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the command; also what shells report for us.
pub const SIGNAL_BASE: u8 = 128;

/// How many conflicting objects a message names.
const CONFLICTS_SHOWN_MAX: usize = 10;

/// What a `txos` command ends with when it does not reach its goal.
#[derive(Debug)]
pub enum Failure {
    /// Somebody else was first.
    Conflict {
        /// What got in the way.
        conflicts: Vec<Conflict>,
        /// What has become of the transaction, to follow "conflict: …;".
        aftermath: String,
        /// Transactions that came after the one to be reverted and changed the same, if they are known.
        came_after: Vec<TxId>,
    },
    /// txos failed; the text is a whole message.
    Txos(String),
    /// txos failed because a file system, or a quota on one, is full; the text is a whole message.
    NoSpace(String),
    /// A publish failed half way and so did undoing it; the text is a whole message. Nothing may be
    /// said, or done, about the transaction before recovery.
    Unfinished(String),
    /// Everything is said already.
    Status(u8),
}

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Failure::Txos(message.into())
    }

    /// Somebody else was first; what has become of the transaction.
    pub fn conflict(conflicts: Vec<Conflict>, aftermath: impl Into<String>) -> Self {
        Failure::Conflict { conflicts, aftermath: aftermath.into(), came_after: Vec::new() }
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Conflict { .. } => CONFLICT,
            Failure::Txos(_) | Failure::NoSpace(_) | Failure::Unfinished(_) => FAILED,
            Failure::Status(status) => *status,
        }
    }

    /// The message, without the leading `txos: `; none if everything is said.
    pub fn message(&self) -> Option<String> {
        match self {
            Failure::Conflict { conflicts, aftermath, came_after } => {
                let mut text = conflict_message(conflicts, aftermath);
                for id in came_after {
                    text.push_str(&format!("\n  {id} came after it and changed this too"));
                }
                Some(text)
            }
            Failure::Txos(message) | Failure::NoSpace(message) | Failure::Unfinished(message) => {
                Some(message.clone())
            }
            Failure::Status(_) => None,
        }
    }

    /// The same failure, with word of what has become of the transaction. An unfinished publish
    /// knows that better itself.
    pub fn with_aftermath(self, text: &str) -> Self {
        match self {
            Failure::Conflict { conflicts, came_after, .. } => {
                Failure::Conflict { conflicts, aftermath: text.to_owned(), came_after }
            }
            Failure::Txos(message) => Failure::Txos(followed_by(&message, text)),
            Failure::NoSpace(message) => Failure::NoSpace(followed_by(&message, text)),
            other => other,
        }
    }
}

fn followed_by(message: &str, text: &str) -> String {
    format!("{}; {text}", message.trim_end_matches('.'))
}

/// Whether an error is that a file system, or a quota, is full.
fn is_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<txos_engine::Error> for Failure {
    fn from(error: txos_engine::Error) -> Self {
        match error {
            txos_engine::Error::Conflict(conflicts) => {
                Failure::conflict(conflicts, "nothing changed")
            }
            error @ txos_engine::Error::Unfinished { id, .. } => Failure::Unfinished(format!(
                "{error}. {id} is kept, with all that is needed to put the tree in order: see to \
                 the cause, then run `txos recover`"
            )),
            txos_engine::Error::Io { ref source, .. } if is_of_space(source) => {
                Failure::NoSpace(error.to_string())
            }
            other => Failure::Txos(other.to_string()),
        }
    }
}

impl From<txos_run::Error> for Failure {
    fn from(error: txos_run::Error) -> Self {
        match error {
            txos_run::Error::Engine(error) => error.into(),
            txos_run::Error::View { ref source, .. } | txos_run::Error::Os { ref source, .. }
                if is_of_space(source) =>
            {
                Failure::NoSpace(error.to_string())
            }
            other => Failure::Txos(other.to_string()),
        }
    }
}

/// An error while writing to standard output; a reader that has gone away is no reason for words.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            let signal = rustix::process::Signal::PIPE.as_raw();
            return Failure::Status(of_signal(signal));
        }
        Failure::Txos(format!("writing the output: {error}"))
    }
}

/// The message for a conflict: what changed and when, the first few objects.
pub fn conflict_message(conflicts: &[Conflict], aftermath: &str) -> String {
    let mut text =
        format!("conflict: the transaction depends on what others have changed; {aftermath}");
    for conflict in conflicts.iter().take(CONFLICTS_SHOWN_MAX) {
        text.push_str(&format!("\n  {conflict}"));
    }
    if let Some(more) = conflicts.len().checked_sub(CONFLICTS_SHOWN_MAX).filter(|&n| n > 0) {
        text.push_str(&format!("\n  and {more} more"));
    }
    text
}

/// The exit status that stands for how the command ended.
pub fn of_command(status: &CommandStatus) -> u8 {
    match status {
        // wait(2) reports eight bits; anything else can't come from a process.
        CommandStatus::Exited(code) => u8::try_from(*code).unwrap_or(FAILED),
        CommandStatus::Signaled(signal) => of_signal(*signal),
        CommandStatus::NotFound(_) => NOT_FOUND,
        CommandStatus::NotExecutable(_) => NOT_EXECUTABLE,
        CommandStatus::Stopped { .. } | CommandStatus::Refused { .. } => FAILED,
        CommandStatus::Exceeded { limit: Limit::Predecessor, .. } => FAILED,
        CommandStatus::Exceeded { limit: Limit::Time, .. } => TIMED_OUT,
        CommandStatus::Exceeded { limit: Limit::Bytes, .. } => TOO_LARGE,
        CommandStatus::Lost { .. } => CONFLICT,
    }
}

/// The status with which shells report death by a signal.
pub fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal).ok().and_then(|n| SIGNAL_BASE.checked_add(n)).unwrap_or(u8::MAX)
}

/// What became of a program that could not be started.
pub fn of_start_error(error: io::Error) -> CommandStatus {
    if error.kind() == io::ErrorKind::NotFound {
        CommandStatus::NotFound(error)
    } else {
        CommandStatus::NotExecutable(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(path: &str) -> Conflict {
        Conflict { path: path.into(), what: txos_engine::error::ConflictKind::Content, when: None }
    }

    fn unfinished() -> txos_engine::Error {
        let eio = || txos_engine::Error::io("renaming", "/a", io::Error::from_raw_os_error(5));
        txos_engine::Error::Unfinished {
            id: txos_engine::TxId::from_bits(1),
            cause: Box::new(eio()),
            undoing: Box::new(eio()),
        }
    }

    #[test]
    fn every_ending_has_its_status() {
        let error = || io::Error::from(io::ErrorKind::NotFound);
        let table = [
            (CommandStatus::Exited(0), 0),
            (CommandStatus::Exited(2), 2),
            (CommandStatus::Exited(255), 255),
            (CommandStatus::Signaled(2), 130),
            (CommandStatus::Signaled(9), 137),
            (CommandStatus::Signaled(64), 192),
            (CommandStatus::NotFound(error()), 127),
            (CommandStatus::NotExecutable(error()), 126),
            (CommandStatus::Stopped { reason: String::new() }, 125),
            (CommandStatus::Refused { text: String::new() }, 125),
            (CommandStatus::Exceeded { limit: Limit::Predecessor, text: String::new() }, 125),
            (CommandStatus::Exceeded { limit: Limit::Time, text: String::new() }, 124),
            (CommandStatus::Exceeded { limit: Limit::Bytes, text: String::new() }, 153),
        ];
        for (status, expected) in table {
            assert_eq!(of_command(&status), expected, "{status:?}");
        }
    }

    #[test]
    fn errors_become_statuses() {
        let conflict = txos_engine::Error::Conflict(vec![conflict("/a")]);
        assert_eq!(Failure::from(conflict).status(), CONFLICT);
        let unknown = txos_engine::Error::NoSuchTransaction("x".into());
        assert_eq!(Failure::from(txos_run::Error::from(unknown)).status(), FAILED);
        let unfinished = Failure::from(unfinished()).with_aftermath("nothing changed");
        assert_eq!(unfinished.status(), FAILED);
        let message = unfinished.message().unwrap();
        assert!(
            message.contains("txos recover") && !message.contains("nothing changed"),
            "{message}"
        );
        let pipe = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::from(pipe).status(), 141);
    }

    #[test]
    fn conflicts_are_named_up_to_ten() {
        let many: Vec<Conflict> = (0..13).map(|i| conflict(&format!("/f{i}"))).collect();
        let text = conflict_message(&many, "rolled back");
        assert_eq!(text.lines().count(), 12);
        assert!(text.starts_with("conflict: "));
        assert!(text.contains("\n  /f0: its content was changed\n"));
        assert!(text.ends_with("and 3 more"));
        assert!(!conflict_message(&many[..10], "").contains("more"));
    }
}
