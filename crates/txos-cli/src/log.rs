//! `txos log`: the history, as git shows its own.

use std::io::{self, Write};

use txos_engine::show::{local_time, quoted_bytes, unquoted};
use txos_engine::store::{JoinedCommand, Meta};
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

/// How many commands of a transaction the history shows.
const COMMANDS_SHOWN_MAX: usize = 10;

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
        json::write(&mut out, json::Transactions { transactions, unreadable, running: None })?;
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
    let commands = commands(meta);
    for (index, command) in commands.iter().take(COMMANDS_SHOWN_MAX).enumerate() {
        let heading = if index == 0 { "Command:" } else { "" };
        writeln!(out, "{heading:8}  {command}")?;
    }
    if let Some(more) = commands.len().checked_sub(COMMANDS_SHOWN_MAX).filter(|more| *more > 0) {
        let id = meta.id;
        writeln!(out, "          and {more} more; `txos show {id}` lists them as layers")?;
    }
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

/// The first command, after the name if there is one, and how many more there are.
pub fn one_line(meta: &Meta) -> String {
    let commands = commands(meta);
    let mut line = commands.first().cloned().unwrap_or_default();
    if let Some(more @ 1..) = commands.len().checked_sub(1) {
        line.push_str(&format!(" (and {more} more)"));
    }
    match &meta.name {
        Some(name) => format!("{}: {line}", quoted_bytes(name.as_bytes())),
        None => line,
    }
}

/// What was run in a transaction, the first command first.
pub fn commands(meta: &Meta) -> Vec<String> {
    let line = |ran: JoinedCommand| {
        let line = command_line(&ran.command);
        if ran.arguments_hidden { format!("{line} (arguments not recorded)") } else { line }
    };
    meta.commands().into_iter().map(line).collect()
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
    fn what_ran_is_shown_and_not_what_began_it() {
        use crate::tx_status::sample;
        let meta = |words: &[&str], undone: u32| {
            let mut meta = Meta { command: vec![(*words.first().unwrap()).into()], ..sample() };
            meta.stack = meta.stack_or_first();
            for word in &words[1..] {
                let mut layer = meta.stack.layers[0].clone();
                (layer.command, layer.counts) = (vec![(*word).into()], Some(1));
                meta.stack.layers.push(layer);
            }
            meta.stack.at = u32::try_from(words.len()).unwrap() - undone;
            meta
        };
        for (words, undone, shown) in [
            (&["make"][..], 0, &["make"][..]),
            (&["true"], 0, &["true"]),
            (&["make"], 1, &["make"]),
            (&["true", "make"], 0, &["make"]),
            (&["true", "make", "true"], 0, &["make", "true"]),
            (&["true", "make", "install"], 1, &["make"]),
            (&["true", "make"], 1, &["true"]),
            (&["false", "make"], 0, &["false", "make"]),
        ] {
            assert_eq!(commands(&meta(words, undone)), shown, "{words:?} {undone}");
        }
        let mut changed = meta(&["true", "make"], 0);
        changed.stack.layers[0].counts = Some(1);
        assert_eq!(commands(&changed), ["true", "make"]);
        changed.stack.layers[1].arguments_hidden = true;
        assert_eq!(commands(&changed)[1], "make (arguments not recorded)");
        assert_eq!(one_line(&changed), "true (and 1 more)");
        assert_eq!(one_line(&Meta { name: Some("n".into()), ..meta(&["a"], 0) }), "n: a");
        let all = ["a"; COMMANDS_SHOWN_MAX + 2];
        let mut out = Vec::new();
        write_entry(&mut out, &meta(&all, 0), TxStatus::Committed, None, Paint::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("Command:  a\n          a\n"), "{text}");
        assert!(text.contains("\n          and 2 more; `txos show "), "{text}");
    }

    #[test]
    fn dates_are_to_the_second() {
        let shown = date(Stamp { sec: 1_700_000_000, nsec: 123_456_789 });
        assert_eq!(shown.len(), "2026-03-01 14:05:09".len());
    }
}
