//! Showing what would change, and asking.

use std::io::{self, IsTerminal, Write, stderr, stdin};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use txos_engine::changeset::Entry;

use crate::app::{App, tell};
use crate::changes::write_stat;
use crate::exit::Failure;
use crate::patch::{Reader, write_patch};
use crate::signals::Deferred;

/// Lines of the overview before the question.
const LINES_MAX: usize = 40;

/// Whether there is somebody to ask: a terminal to read from, and one to ask on.
pub fn possible() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Shows the changes on standard error; standard output belongs to the command.
pub fn show(app: &App, entries: &[Entry], lines_max: Option<usize>) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(stderr().lock());
    write_stat(&mut out, entries, app.err, lines_max)?;
    out.flush()?;
    Ok(())
}

/// What is decided about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Publish it.
    Commit,
    /// Leave it pending.
    Keep,
    /// Roll it back.
    Discard,
}

/// Shows the changes and asks what to do about them. `no` is what a no means; the end of input means the
/// same, and so does a signal that asks to end. `can_keep`: whether it can become pending.
pub fn ask(
    app: &App,
    entries: &[Entry],
    no: Decision,
    can_keep: bool,
    signals: &Deferred,
) -> Result<Decision, Failure> {
    show(app, entries, Some(LINES_MAX))?;
    let (letters, help) = match (no, can_keep) {
        (Decision::Keep, _) => (
            "y/n/d/x",
            "y = commit, n = leave it pending, d = show the differences, x = discard it",
        ),
        (_, true) => {
            ("y/n/d/k", "y = commit, n = roll back, d = show the differences, k = keep it pending")
        }
        (_, false) => ("y/n/d", "y = commit, n = roll back, d = show the differences"),
    };
    loop {
        let strong = app.err.strong();
        write!(stderr(), "{strong}Commit these changes? [{letters}]{strong:#} ")?;
        stderr().flush()?;
        let Some(line) = read_line(signals)? else {
            tell("");
            return Ok(no);
        };
        match answer(&line) {
            Some(Answer::Yes) => return Ok(Decision::Commit),
            Some(Answer::No) => return Ok(no),
            Some(Answer::Keep) if can_keep || no == Decision::Keep => return Ok(Decision::Keep),
            Some(Answer::Discard) if no == Decision::Keep => return Ok(Decision::Discard),
            Some(Answer::Diff) => {
                let mut out = io::BufWriter::new(stderr().lock());
                write_patch(&mut out, entries, app.err, Reader::Person)?;
                out.flush()?;
            }
            _ => tell(help),
        }
    }
}

/// A line from the terminal; `None` at the end of input or when a signal asks to end.
fn read_line(signals: &Deferred) -> io::Result<Option<String>> {
    loop {
        // poll(2) comes back for every signal, read(2) does not.
        let stdin = stdin();
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None) {
            Ok(_) if signals.asked().is_none() => break,
            Ok(_) => return Ok(None),
            Err(Errno::INTR) if signals.asked().is_none() => {}
            Err(Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    let mut line = String::new();
    Ok((stdin().read_line(&mut line)? > 0).then_some(line))
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Diff,
    Keep,
    Discard,
}

fn answer(line: &str) -> Option<Answer> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Answer::Yes),
        "n" | "no" | "q" => Some(Answer::No),
        "d" | "diff" => Some(Answer::Diff),
        "k" | "keep" => Some(Answer::Keep),
        "x" | "discard" => Some(Answer::Discard),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_commits() {
        assert_eq!(answer(" Y\n"), Some(Answer::Yes));
        assert_eq!(answer("no\n"), Some(Answer::No));
        assert_eq!(answer("d"), Some(Answer::Diff));
        for unclear in ["", "\n", "z", "yy", "ye"] {
            assert_eq!(answer(unclear), None, "{unclear:?}");
        }
    }
}
