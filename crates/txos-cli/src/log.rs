//! `txos log`: the history, as git shows its own.

use std::io::{self, Write};

use txos_engine::show::{local_time, quoted_bytes, unquoted};
use txos_engine::store::Meta;
use txos_engine::version::Stamp;

use crate::app::App;
use crate::args::LogArgs;
use crate::changes::paths_if_counted;
use crate::exit::Failure;
use crate::json;
use crate::later::touches;
use crate::list::find;
use crate::pager::{self, Stream};
use crate::paths::all_in_tree;
use crate::space::{Counting, du};
use crate::style::Paint;
use crate::tx_status::TxStatus;

/// Shows committed and reverted transactions, the latest commit first.
pub fn log(app: &App, args: &LogArgs) -> Result<u8, Failure> {
    let home = app.open_existing()?;
    let published = |s| matches!(s, TxStatus::Committed | TxStatus::Reverted);
    let (mut found, mut unreadable) = find(home.as_ref(), published)?;
    let (wanted, now) = (all_in_tree(&args.paths)?, Stamp::now());
    found.retain(|(meta, _)| {
        let committed = meta.ended.unwrap_or(meta.begun);
        (args.name.is_none() || args.name == meta.name)
            && args.since.is_none_or(|moment| moment.is_reached_by(committed, now))
            && args.until.is_none_or(|moment| !moment.is_reached_by(committed, now))
    });
    if let Some(home) = home.as_ref().filter(|_| !wanted.is_empty()) {
        found.retain(|(meta, _)| {
            touches(home, meta, &wanted).unwrap_or_else(|error| {
                unreadable.push(error.to_string());
                false
            })
        });
    }
    found.sort_by_key(|(meta, _)| std::cmp::Reverse(meta.ended));
    found.truncate(args.max_count.unwrap_or(usize::MAX));
    let counting = Counting::begin();
    let space = |meta: &Meta| home.as_ref().and_then(|home| counting.of(home, meta));
    if args.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let transaction =
            |(m, s): &(Meta, TxStatus)| json::Transaction::new(m, *s).taking(space(m));
        let transactions = found.iter().map(transaction).collect();
        json::write(&mut out, json::Transactions { transactions, unreadable })?;
        out.flush()?;
        return Ok(0);
    }
    unreadable.iter().for_each(|message| app.warn(message));
    if app.quiet() {
        let mut out = io::BufWriter::new(io::stdout().lock());
        found.iter().try_for_each(|(meta, _)| writeln!(out, "{}", meta.id))?;
        out.flush()?;
        return Ok(0);
    }
    pager::show(Stream::Out, |out| {
        found.iter().enumerate().try_for_each(|(n, (meta, status))| {
            if args.oneline {
                return write_line(out, meta, app.out);
            }
            if n > 0 {
                writeln!(out)?;
            }
            write_entry(out, meta, *status, space(meta), app.out)
        })
    })?;
    Ok(0)
}

/// `3kq9w2ma 2026-03-01 14:05:09 14 paths  make install`.
fn write_line(out: &mut dyn Write, meta: &Meta, paint: Paint) -> io::Result<()> {
    let (id, faint) = (paint.id(), paint.faint());
    write!(out, "{id}{}{id:#} {} ", meta.id, date(meta.ended.unwrap_or(meta.begun)))?;
    write!(out, "{:>10}  {}", paths_if_counted(meta.changes), one_line(meta))?;
    if let Some(relation) = relation(meta) {
        write!(out, " {faint}({relation}){faint:#}")?;
    }
    writeln!(out)
}

/// A transaction with its headers, and its message below them.
pub fn write_entry(
    out: &mut dyn Write,
    meta: &Meta,
    status: TxStatus,
    space: Option<u64>,
    paint: Paint,
) -> io::Result<()> {
    let (id, bad) = (paint.id(), paint.bad());
    write!(out, "{id}transaction {}{id:#}", meta.id)?;
    match status {
        TxStatus::Committed => {}
        TxStatus::Dead | TxStatus::Lost => write!(out, " {bad}({status}){bad:#}")?,
        _ => write!(out, " ({status})")?,
    }
    writeln!(out)?;
    writeln!(out, "Date:     {}", date(meta.ended.unwrap_or(meta.begun)))?;
    if let Some(name) = &meta.name {
        writeln!(out, "Name:     {}", quoted_bytes(name.as_bytes()))?;
    }
    writeln!(out, "Command:  {}", command(meta))?;
    match (meta.exit_status, status) {
        (Some(status), _) if status != 0 => writeln!(out, "Status:   {status}")?,
        _ => {}
    }
    if !matches!(status, TxStatus::Active | TxStatus::Dead) {
        writeln!(out, "Changes:  {}", paths_if_counted(meta.changes))?;
    }
    if let Some(bytes) = space {
        writeln!(out, "Size:     {}", du(bytes))?;
    }
    if let Some(other) = meta.reverts {
        let part = if meta.reverts_part { "a part of " } else { "" };
        writeln!(out, "Reverts:  {part}{other}")?;
    }
    for other in &meta.parts_reverted_by {
        writeln!(out, "Reverted: in part by {other}")?;
    }
    if let Some(other) = meta.reverted_by {
        writeln!(out, "Reverted: by {other}")?;
    }
    if let Some(message) = &meta.message {
        writeln!(out)?;
        for line in message.lines() {
            writeln!(out, "    {}", harmless(line))?;
        }
    }
    Ok(())
}

/// "reverts X" or "reverted by Y".
fn relation(meta: &Meta) -> Option<String> {
    let part = if meta.reverts_part { "a part of " } else { "" };
    let reverts = meta.reverts.map(|id| format!("reverts {part}{id}"));
    let reverted = || meta.reverted_by.map(|id| format!("reverted by {id}"));
    let in_part = || (!meta.parts_reverted_by.is_empty()).then(|| "reverted in part".to_owned());
    reverts.or_else(reverted).or_else(in_part)
}

/// The command, after the name if there is one.
pub fn one_line(meta: &Meta) -> String {
    match &meta.name {
        Some(name) => format!("{}: {}", quoted_bytes(name.as_bytes()), command(meta)),
        None => command(meta),
    }
}

fn command(meta: &Meta) -> String {
    let line = command_line(&meta.command);
    if meta.arguments_hidden { format!("{line} (arguments not recorded)") } else { line }
}

/// Recorded words as one would type them.
pub fn command_line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

/// A recorded word as one would type it. What the record had to quote stays quoted.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-+=./,:@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    match unquoted(word).map(String::from_utf8) {
        Some(Ok(text)) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ if word.chars().any(char::is_control) => quoted_bytes(word.as_bytes()),
        _ => word.to_owned(),
    }
}

/// A line of free text; quoted if it would do something to the terminal.
fn harmless(line: &str) -> String {
    if line.chars().any(|c| c.is_control() && c != '\t') {
        quoted_bytes(line.as_bytes())
    } else {
        line.to_owned()
    }
}

/// A stamp in local time, to the second.
pub fn date(stamp: Stamp) -> String {
    let text = local_time(stamp);
    text.split_once('.').map_or(text.clone(), |(seconds, _)| seconds.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_does_nothing_to_the_terminal() {
        assert_eq!(harmless("plain \"text\""), "plain \"text\"");
        assert_eq!(harmless("\u{1b}[2J"), "\"\\033[2J\"");
    }

    #[test]
    fn commands_can_be_typed_again() {
        assert_eq!(shell_word("make"), "make");
        assert_eq!(shell_word("--prefix=/opt/x"), "--prefix=/opt/x");
        assert_eq!(shell_word("echo hi > a"), "'echo hi > a'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("\"say \\\"x\\\"\""), "'say \"x\"'");
        assert_eq!(shell_word("\"\""), "''");
        assert_eq!(shell_word("\"a\\nb\""), "\"a\\nb\"");
        // A record that somebody else wrote.
        assert_eq!(shell_word("\u{1b}[2J"), "\"\\033[2J\"");
    }

    #[test]
    fn dates_are_to_the_second() {
        let shown = date(Stamp { sec: 1_700_000_000, nsec: 123_456_789 });
        assert_eq!(shown.len(), "2026-03-01 14:05:09".len());
    }
}
