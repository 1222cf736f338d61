//! Several processes of this program that begin at the same moment, each with a realm of its own
//! mapping: what a realm is for can't be measured with threads.
//!
//! A member prints `ready`, reads the span of time it is to work in, works, and prints what it
//! found: a line each, `KEY VALUE`. One that does not end in time is killed.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use txos_engine::realm::{DeadPublish, Realm, Unresolved};

use crate::bench::Bench;
use crate::work;

/// Between the word to go and the beginning: all are awake by then.
const LEAD: Duration = Duration::from_millis(5);
/// How long after the end of its span a member may still run.
const GRACE: Duration = Duration::from_secs(3);

/// What a member found.
pub type Report = BTreeMap<String, f64>;

/// The span of time in which the members work, on the clock of [`work::now`].
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Its beginning in nanoseconds.
    pub start: u64,
    /// Its end.
    pub end: u64,
}

struct Member {
    child: Child,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Both do nothing for one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs one member for each list of words, for `time`. `None` stands for one that had to be killed.
pub fn run(
    bench: &Bench,
    members: &[Vec<String>],
    time: Duration,
) -> Result<Vec<Option<Report>>, String> {
    let failed = |e: io::Error| format!("a process of the benchmark: {e}");
    let mut crew = members
        .iter()
        .map(|words| start(bench, words).map_err(failed))
        .collect::<Result<Vec<_>, _>>()?;
    for member in &mut crew {
        let mut line = String::new();
        member.answers.read_line(&mut line).map_err(failed)?;
        if line != "ready\n" {
            return Err("a process of the benchmark did not come up".into());
        }
    }
    let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    let start = work::now() + nanos(LEAD);
    let go = format!("{start} {}\n", start + nanos(time));
    for member in &mut crew {
        member.words.write_all(go.as_bytes()).map_err(failed)?;
    }
    let deadline = Instant::now() + LEAD + time + GRACE;
    crew.into_iter().map(|member| collect(member, deadline)).collect()
}

fn start(bench: &Bench, words: &[String]) -> io::Result<Member> {
    let mut command = bench.member(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let gone = || io::Error::other("no pipe");
    let words = child.stdin.take().ok_or_else(gone)?;
    let answers = BufReader::new(child.stdout.take().ok_or_else(gone)?);
    Ok(Member { child, words, answers })
}

/// What a member says is less than a pipe holds, so it need not be read while it runs.
fn collect(mut member: Member, deadline: Instant) -> Result<Option<Report>, String> {
    let status = loop {
        match member.child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() > deadline => return Ok(None),
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(format!("waiting for a process of the benchmark: {e}")),
        }
    };
    let mut text = String::new();
    let read = member.answers.read_to_string(&mut text);
    if !status.success() || read.is_err() {
        return Err(format!("a process of the benchmark: {status}"));
    }
    Ok(Some(parse(&text)))
}

/// Lines `KEY VALUE`.
pub fn parse(text: &str) -> Report {
    text.lines()
        .filter_map(|line| {
            let (key, value) = line.rsplit_once(' ')?;
            Some((key.to_owned(), value.parse().ok()?))
        })
        .collect()
}

/// A member's side: says that it is ready, and gives the span when that has begun.
pub fn enter() -> io::Result<Span> {
    let mut out = io::stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>());
    let (Some(Ok(start)), Some(Ok(end))) = (numbers.next(), numbers.next()) else {
        return Err(io::Error::other("was not told when to begin"));
    };
    while work::now() < start {
        std::hint::spin_loop();
    }
    Ok(Span { start, end })
}

/// Joins the realm in a directory. Nobody publishes files here, so nothing is ever to be resolved.
pub fn join(dir: &Path) -> io::Result<Realm> {
    let resolve = |_: &DeadPublish| Err(Unresolved("a benchmark publishes nothing".into()));
    Realm::join(dir, "txos-bench", dir, Box::new(resolve)).map_err(io::Error::other)
}

/// Keeps this process on one processor: number `n` of those it may use.
pub fn pin(n: usize) {
    let Ok(all) = sched_getaffinity(None) else { return };
    let usable = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
    let count = usable.clone().count().max(1);
    if let Some(cpu) = usable.clone().nth(n % count) {
        let mut one = CpuSet::new();
        one.set(cpu);
        // Where that is forbidden the figures are as good as the scheduler.
        let _ = sched_setaffinity(None, &one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys_and_values() {
        let report = parse("a b 1.5\nnonsense\nc 2\n");
        assert_eq!(report.len(), 2);
        assert_eq!(report.get("a b"), Some(&1.5));
    }
}
