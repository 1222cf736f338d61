//! Showing what would change, and asking.

use std::io::{self, IsTerminal, Write, stderr, stdin};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use txos_engine::TxId;
use txos_engine::changeset::Entry;

use crate::app::{App, tell};
use crate::changes::write_stat;
use crate::choose::{self, Choice, Pattern};
use crate::exit::Failure;
use crate::overview::{self, Item};
use crate::pager::{self, Stream};
use crate::patch::{Reader, write_patch};
use crate::signals::Deferred;

/// Lines of the overview before the question, where they can't be paged through.
const LINES_MAX: usize = 40;

/// Whether there is somebody to ask: a terminal to read from, and one to ask on.
pub fn possible() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Shows the changes on standard error; standard output belongs to the command.
pub fn show(app: &App, entries: &[Entry]) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(stderr().lock());
    write_stat(&mut out, entries, app.err)?;
    out.flush()?;
    Ok(())
}

/// What is decided about a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Publish it.
    Commit,
    /// Leave it pending.
    Keep,
    /// Roll it back.
    Discard,
    /// Publish these paths, and leave the rest pending.
    Part(Vec<std::path::PathBuf>),
    /// A look from inside, and the same question again.
    Shell,
}

/// What there is to be decided about.
#[derive(Debug)]
pub struct Question<'a> {
    /// The transaction.
    pub id: TxId,
    /// What it changes.
    pub entries: &'a [Entry],
    /// What a no means; the end of input means the same, and so does a signal that asks to end.
    pub no: Decision,
    /// Whether it can become pending, or is.
    pub can_keep: bool,
    /// Whether it was shown already.
    pub again: bool,
}

/// Shows the changes and asks what to do about them.
pub fn ask(app: &App, question: &Question<'_>, signals: &Deferred) -> Result<Decision, Failure> {
    let items = overview::items(question.entries);
    if !question.again {
        let max = (!pager::pages(Stream::Err)).then_some(LINES_MAX);
        pager::show(Stream::Err, |out| overview::write(out, &items, app.err, max))?;
    }
    let letters = question.letters();
    loop {
        let strong = app.err.strong();
        write!(stderr(), "{strong}Commit these changes? [{letters}]{strong:#} ")?;
        stderr().flush()?;
        let Some(line) = read_line(signals)? else {
            tell("");
            return Ok(question.no.clone());
        };
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        let answer = answer(first)
            .filter(|answer| rest.is_empty() || matches!(answer, Answer::Choose | Answer::Diff));
        match answer {
            Some(Answer::Yes) => return Ok(Decision::Commit),
            Some(Answer::No) => return Ok(question.no.clone()),
            Some(Answer::Discard) => return Ok(Decision::Discard),
            Some(Answer::Diff) => show_patch(app, question.entries, &rest)?,
            Some(Answer::List) => {
                pager::show(Stream::Err, |out| overview::write_all(out, &items, app.err))?;
            }
            Some(Answer::Keep | Answer::Choose | Answer::Shell) if !question.can_keep => {
                tell("that needs a transaction that can be kept, and --hold-output can't be");
            }
            Some(Answer::Keep) => return Ok(Decision::Keep),
            Some(Answer::Shell) => return Ok(Decision::Shell),
            Some(Answer::Choose) => {
                if let Some(decision) = choose(question, &items, &rest) {
                    return Ok(decision);
                }
            }
            None => tell(question.help()),
        }
    }
}

impl Question<'_> {
    fn letters(&self) -> &'static str {
        match (&self.no, self.can_keep) {
            (Decision::Keep, _) => "y/n/d/l/c/s/x/?",
            (_, true) => "y/n/d/l/c/s/k/?",
            (_, false) => "y/n/d/l/?",
        }
    }

    fn help(&self) -> String {
        let no = match self.no {
            Decision::Keep => "no: leave it pending",
            _ => "no: roll back",
        };
        let mut lines = vec![
            ("y", "commit all of it"),
            ("n", no),
            ("d", "diff: show the differences; d PATTERN... those of some paths"),
            ("l", "list every path, none of them folded"),
        ];
        if self.can_keep {
            lines.extend([
                (
                    "c",
                    "choose in an editor what to commit; c PATTERN... what fits, !PATTERN does not",
                ),
                ("s", "a shell inside, to look around; what it changes is not kept"),
                ("k", "keep it pending"),
            ]);
        }
        lines.push(("x", "discard it"));
        let lines: Vec<String> =
            lines.into_iter().map(|(letter, what)| format!("  {letter}  {what}")).collect();
        lines.join("\n")
    }
}

fn show_patch(app: &App, entries: &[Entry], patterns: &[&str]) -> Result<(), Failure> {
    let parsed: Result<Vec<Pattern>, String> =
        patterns.iter().map(|pattern| Pattern::new(pattern.as_ref())).collect();
    let patterns = match parsed {
        Ok(patterns) => patterns,
        Err(why) => {
            tell(why);
            return Ok(());
        }
    };
    let wanted = |entry: &&Entry| {
        patterns.is_empty() || patterns.iter().any(|pattern| pattern.fits_entry(entry))
    };
    let entries: Vec<Entry> = entries.iter().filter(wanted).cloned().collect();
    if entries.is_empty() {
        tell("nothing that is changed has such a name");
        return Ok(());
    }
    Ok(pager::show(Stream::Err, |out| write_patch(out, &entries, app.err, Reader::Person))?)
}

/// What is chosen; `None` if the question is to be asked again.
fn choose(question: &Question<'_>, items: &[Item<'_>], patterns: &[&str]) -> Option<Decision> {
    let chosen = match patterns {
        [] => choose::in_editor(question.id, items),
        patterns => choose::by_patterns(items, patterns),
    };
    match chosen {
        Ok(Choice::All) => Some(Decision::Commit),
        Ok(Choice::Part(paths)) => Some(Decision::Part(paths)),
        Ok(Choice::Nothing) => {
            tell("nothing is picked, and nothing committed");
            None
        }
        Err(why) => {
            tell(format_args!("{why}; nothing is committed"));
            None
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
    let mut line = Vec::new();
    let read = io::BufRead::read_until(&mut stdin().lock(), b'\n', &mut line)?;
    Ok((read > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Diff,
    List,
    Choose,
    Shell,
    Keep,
    Discard,
}

fn answer(word: &str) -> Option<Answer> {
    match word.to_ascii_lowercase().as_str() {
        "y" | "yes" | "commit" => Some(Answer::Yes),
        "n" | "no" | "q" => Some(Answer::No),
        "d" | "diff" => Some(Answer::Diff),
        "l" | "list" => Some(Answer::List),
        "c" | "choose" => Some(Answer::Choose),
        "s" | "shell" => Some(Answer::Shell),
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
        assert_eq!(answer("Y"), Some(Answer::Yes));
        assert_eq!(answer("no"), Some(Answer::No));
        assert_eq!(answer("d"), Some(Answer::Diff));
        for unclear in ["", "z", "yy", "ye", "?", "help"] {
            assert_eq!(answer(unclear), None, "{unclear:?}");
        }
    }
}
