//! Showing what would change, and asking.

use std::io::{self, IsTerminal, Write, stderr, stdin};

use txos_engine::changeset::Entry;

use crate::app::{App, tell};
use crate::changes::write_stat;
use crate::exit::Failure;
use crate::patch::write_patch;

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

/// Shows the changes and asks whether to commit them. The end of input means no.
pub fn ask(app: &App, entries: &[Entry]) -> Result<bool, Failure> {
    show(app, entries, Some(LINES_MAX))?;
    loop {
        let strong = app.err.strong();
        write!(stderr(), "{strong}Commit these changes? [y/n/d]{strong:#} ")?;
        stderr().flush()?;
        let mut line = String::new();
        if stdin().read_line(&mut line)? == 0 {
            tell("");
            return Ok(false);
        }
        match answer(&line) {
            Some(Answer::Yes) => return Ok(true),
            Some(Answer::No) => return Ok(false),
            Some(Answer::Diff) => {
                let mut out = io::BufWriter::new(stderr().lock());
                write_patch(&mut out, entries, app.err)?;
                out.flush()?;
            }
            None => tell("y = commit, n = roll back, d = show the differences"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Diff,
}

fn answer(line: &str) -> Option<Answer> {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Answer::Yes),
        "n" | "no" | "q" => Some(Answer::No),
        "d" | "diff" => Some(Answer::Diff),
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
        for unclear in ["", "\n", "x", "yy", "ye"] {
            assert_eq!(answer(unclear), None, "{unclear:?}");
        }
    }
}
