//! `txos top`: the transactions that run, again and again.
//!
//! Nothing is read from the terminal and no mode of it changed: SIGINT ends it as it ends `cat`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use serde::Serialize;
use txos_engine::contention::Policy;
use txos_engine::realm::{Member, Realm, SLOTS};

use crate::app::App;
use crate::args::TopArgs;
use crate::duration::length;
use crate::exit::Failure;
use crate::json;
use crate::realm_view::{Counts, Shown, Wait, look};
use crate::style::Paint;

/// Makes a terminal empty, and goes to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What there is at one time.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    policy: Policy,
    /// Commits, aborts and conflicts since the realm was made.
    counted: [u64; 3],
    members: Vec<Member>,
}

/// How much happens in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Rates {
    commits: f64,
    aborts: f64,
    conflicts: f64,
}

/// A look, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Report<'a> {
    policy: &'static str,
    places: u32,
    #[serde(flatten)]
    now: Counts,
    /// Since the look before; none the first time.
    per_second: Option<Rates>,
    transactions: Vec<Shown<'a>>,
}

/// The terminal's size: columns and rows.
type Size = (usize, usize);

impl Look {
    fn new(realm: Option<&Realm>) -> Self {
        let at = Instant::now();
        let Some(realm) = realm else {
            let policy = Policy::default();
            return Look { at, policy, counted: [0; 3], members: Vec::new() };
        };
        let s = realm.statistics();
        let counted = [s.commits, s.aborts, s.conflicts];
        Look { at, policy: s.policy, counted, members: look(realm) }
    }

    fn rates(&self, before: &Look) -> Option<Rates> {
        let time = self.at.duration_since(before.at).as_secs_f64();
        let mut rates = self.counted.iter().zip(before.counted).map(|(now, before)| {
            let rate = now.saturating_sub(before) as f64 / time;
            (rate * 10.0).round() / 10.0
        });
        let (commits, aborts, conflicts) = (rates.next()?, rates.next()?, rates.next()?);
        (time > 0.0).then_some(Rates { commits, aborts, conflicts })
    }
}

/// Shows them until it is interrupted.
pub fn top(app: &App, args: &TopArgs) -> Result<u8, Failure> {
    let on_terminal = io::stdout().is_terminal() && !args.json && !args.once;
    let mut realm = app.realm_existing()?;
    let mut before: Option<Look> = None;
    loop {
        let now = Look::new(realm.as_ref());
        let rates = before.as_ref().and_then(|before| now.rates(before));
        let mut text = match before {
            _ if on_terminal => CLEAR.to_owned(),
            Some(_) if !args.json => "\n".into(),
            _ => String::new(),
        };
        let mut out = io::stdout().lock();
        if args.json {
            let report = Report {
                policy: now.policy.name(),
                places: SLOTS,
                now: Counts::of(&now.members),
                per_second: rates,
                transactions: Shown::all(&now.members),
            };
            match args.once {
                true => json::write(&mut out, report)?,
                false => json::write_line(&mut out, report)?,
            }
        } else {
            let size = terminal_size().map(|(c, r)| (c, if on_terminal { r } else { usize::MAX }));
            text.push_str(&frame(&now, rates, size, app.out));
            out.write_all(text.as_bytes())?;
        }
        out.flush()?;
        drop(out);
        if args.once {
            return Ok(0);
        }
        let spent = now.at.elapsed();
        std::thread::sleep(args.interval.saturating_sub(spent));
        before = Some(now);
        if realm.is_none() {
            realm = app.realm_existing()?;
        }
    }
}

/// Of standard output; none if it is no terminal.
fn terminal_size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 1).then_some((size.ws_col.into(), size.ws_row.into()))
}

const HEADINGS: [&str; 9] =
    ["ID", "PID", "STATE", "PRI", "AGE", "HELD", "RESTARTS", "WAITS FOR", "COMMAND"];
/// Columns of numbers stand to the right.
const RIGHT: [bool; 9] = [false, true, false, true, true, true, true, false, false];

/// One frame: a line of summary, the headings, a line for each transaction.
fn frame(now: &Look, rates: Option<Rates>, size: Option<Size>, paint: Paint) -> String {
    let (columns, rows) = size.unwrap_or((usize::MAX, usize::MAX));
    let mut text = String::new();
    let _ = writeln!(text, "{}", cut(&summary(now, rates), columns));
    if now.members.is_empty() {
        text.push_str("nothing runs\n");
        return text;
    }
    // Two lines above; one below for those that find no room, and the last one stays empty.
    let room = rows.saturating_sub(2);
    let shown = if now.members.len() < room { room } else { room.saturating_sub(2) };
    let lines: Vec<[String; 9]> =
        now.members.iter().take(shown).map(|m| cells(m, &now.members)).collect();
    let mut widths = HEADINGS.map(str::len);
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let strong = paint.strong();
    let _ = writeln!(text, "{strong}{}{strong:#}", line_of(HEADINGS, &widths, columns));
    for (line, member) in lines.iter().zip(&now.members) {
        let style = match member {
            m if m.dead => paint.bad(),
            m if m.waits.is_some() => paint.faint(),
            _ => paint.plain(),
        };
        let cells = line.each_ref().map(String::as_str);
        let _ = writeln!(text, "{style}{}{style:#}", line_of(cells, &widths, columns));
    }
    if let Some(more) = now.members.len().checked_sub(shown).filter(|&n| n > 0) {
        let _ = writeln!(text, "and {more} more");
    }
    text
}

/// `os-priority: 2 running, 1 of them waiting; 0.5 commits, 0 aborts, 1 conflicts a second`.
fn summary(now: &Look, rates: Option<Rates>) -> String {
    let mut text = format!("{}: {}", now.policy, Counts::of(&now.members));
    if let Some(Rates { commits, aborts, conflicts }) = rates {
        let _ = write!(text, "; {commits} commits/s, {aborts} aborts/s, {conflicts} conflicts/s");
    }
    text
}

fn cells(member: &Member, all: &[Member]) -> [String; 9] {
    let waits = Wait::of(member, all).map(|wait| format!("{wait} {}", wait.length()));
    [
        member.id.map_or_else(|| "-".into(), |id| id.to_string()),
        member.pid.to_string(),
        if member.dead { "dead".into() } else { member.state.to_string() },
        member.priority.to_string(),
        length(member.age),
        member.held.to_string(),
        member.restarts.to_string(),
        waits.unwrap_or_else(|| "-".into()),
        member.label.clone(),
    ]
}

fn line_of(cells: [&str; 9], widths: &[usize; 9], columns: usize) -> String {
    let cells = cells.iter().zip(widths).zip(RIGHT).map(|((cell, &width), right)| match right {
        true => format!("{cell:>width$}"),
        false => format!("{cell:width$}"),
    });
    let line = cells.collect::<Vec<_>>().join("  ");
    cut(line.trim_end(), columns)
}

/// At most so many characters of a line.
fn cut(line: &str, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        None => line.to_owned(),
        Some(_) => line.chars().take(columns.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::realm_view::samples::{crowd, member};

    fn look(counted: [u64; 3], members: Vec<Member>) -> Look {
        Look { at: Instant::now(), policy: Policy::OsPriority, counted, members }
    }

    fn plain(now: &Look, size: Option<Size>) -> String {
        frame(now, None, size, Paint::default())
    }

    #[test]
    fn a_line_for_each() {
        let text = plain(&look([0; 3], crowd()), None);
        assert_eq!(
            text,
            "os-priority: 3 running, 2 of them waiting, 1 dead\n\
             ID         PID  STATE   PRI    AGE  HELD  RESTARTS  WAITS FOR      COMMAND\n\
             3kq9w2ma  1007  active    0   12 s    12         2  aaaa0001 12 s  make install\n\
             aaaa0001  1003  active    0  1 min    12         0  its turn 3 s   make install\n\
             aaaa0002  1000  dead      0    2 h    12         0  -              make install\n\
             -         1009  active    0    0 s    12         0  -\n"
        );
        assert_eq!(
            plain(&look([0; 3], Vec::new()), None),
            "os-priority: 0 running\nnothing runs\n"
        );
    }

    #[test]
    fn it_fits_the_terminal() {
        let mut long = member(1, None, 1);
        long.label = "ä".repeat(200);
        let text = plain(&look([0; 3], vec![long]), Some((80, 24)));
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.ends_with("ä…\n"), "{text}");
        let many: Vec<Member> = (0..60).map(|n| member(n, None, 1)).collect();
        for rows in 4..70 {
            let text = plain(&look([0; 3], many.clone()), Some((80, rows)));
            // The cursor stands on a line of its own below.
            assert!(text.lines().count() < rows, "{rows}\n{text}");
            let shown = text.lines().filter(|l| l.contains("make install")).count();
            let more =
                if shown == 60 { String::new() } else { format!("and {} more\n", 60 - shown) };
            assert!(text.ends_with(&more), "{rows}\n{text}");
            assert!(shown == 60 || shown == rows - 4, "{rows}: {shown}");
        }
    }

    #[test]
    fn rates_are_those_since_the_look_before() {
        let before = look([10, 5, 7], Vec::new());
        let mut now = look([15, 5, 8], Vec::new());
        now.at = before.at + Duration::from_secs(2);
        let rates = now.rates(&before).unwrap();
        assert_eq!(rates, Rates { commits: 2.5, aborts: 0.0, conflicts: 0.5 });
        let text = frame(&now, Some(rates), None, Paint::default());
        assert!(
            text.starts_with(
                "os-priority: 0 running; 2.5 commits/s, 0 aborts/s, 0.5 conflicts/s\n"
            )
        );
        now.at = before.at;
        assert_eq!(now.rates(&before), None);
    }
}
