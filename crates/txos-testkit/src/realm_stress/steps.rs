//! A worker that does what its arguments say, one after the other.
//!
//! | argument | |
//! |---|---|
//! | `begin[:nonblock][:ordered=N][:reset]` | begins a transaction |
//! | `acquire:CELL:ACCESS` | `read`, `insert` or `write` |
//! | `read:CELL` | says `read CELL VALUE…` |
//! | `write:CELL:VALUE` | a value more, private until it is published |
//! | `publish[:early]` | makes it visible |
//! | `finish`, `abort` | ends the transaction |
//! | `single:CELL:VALUE` | a value more, by a single call |
//! | `ordered:FIRST:BY:END:CELL` | sequence numbers FIRST, FIRST + BY, … below END, each put into the cell |
//! | `onward:FIRST:BY:END:CELL` | the same, past those that are over |
//! | `group:PGID` | joins a process group, a new one for 0 |
//! | `sweep` | clears up after the dead |
//! | `meet`, `say:TEXT` | meets the test; says something |
//!
//! While it waits it says `waits PID`. What stops it, it says (`stopped WHY PID`, `full`,
//! `turn-over NEXT`), and ends with status 3; in `ordered` it tries again instead.

use txos_engine::realm::{AbortCause, Access, Begin, BeginError, RetryHistory, WaitDecision};

use crate::history::Op;
use crate::random::Random;

use super::attempt::{self, Attempt, End};
use super::cells;
use super::points;
use super::record::Journal;
use super::worker::{PATIENCE, Worker, parse};

/// The exit status of one that was stopped.
const STOPPED: u8 = 3;

/// Carries out the steps; gives the exit status.
///
/// # Panics
/// If there is no such step.
pub fn run(worker: &mut Worker, steps: &[String]) -> u8 {
    match all(worker, steps) {
        Ok(()) => 0,
        Err(what) => {
            println!("{what}");
            STOPPED
        }
    }
}

fn all(worker: &mut Worker, steps: &[String]) -> Result<(), String> {
    let mut random = Random::new(crate::random::seed() ^ u64::from(worker.number) << 32);
    let Worker { realm, cells, journal, .. } = worker;
    let mut attempt: Option<Attempt<'_>> = None;
    for step in steps {
        let mut words = step.split(':');
        let verb = words.next().unwrap_or_default();
        let mut next = || words.next().expect("an argument of a step");
        match (verb, attempt.as_mut()) {
            ("begin", None) => {
                let id = attempt::name(&mut random);
                let mut how = Begin { id: Some(id), ..Begin::default() };
                for option in words {
                    match option.split_once('=') {
                        Some(("ordered", number)) => how.sequence = Some(parse(number)),
                        None if option == "nonblock" => how.nonblock = true,
                        None if option == "reset" => how.reset_sequence = true,
                        _ => panic!("{option}: no such option of begin"),
                    }
                }
                let handle = realm.begin(&how).map_err(|e| begin_error(&e))?;
                let mut told = 0;
                let handle = handle.attended(move |info| {
                    if std::mem::replace(&mut told, info.holder.pid) != info.holder.pid {
                        println!("waits {}", info.holder.pid);
                    }
                    points::reach("wait");
                    WaitDecision::Wait
                });
                attempt = Some(Attempt::new(handle, cells, id));
            }
            ("acquire", Some(attempt)) => {
                let cell = parse(next()) as usize;
                let access = match next() {
                    "read" => Access::Read,
                    "insert" => Access::Insert,
                    _ => Access::Write,
                };
                attempt.acquire(&cells::facet(cell), access).map_err(|e| stopped(&e))?;
            }
            ("read", Some(attempt)) => {
                let cell = parse(next()) as usize;
                let read = attempt.acquire(&cells::facet(cell), Access::Read);
                read.map_err(|e| stopped(&e))?;
                let values = attempt.read(cell);
                let values: Vec<String> = values.iter().map(u64::to_string).collect();
                println!("read {cell} {}", values.join(" "));
            }
            ("write", Some(attempt)) => {
                let mut op = Op::Append { key: parse(next()), value: parse(next()) };
                attempt.carry_out(&mut op, false).map_err(|e| ended(&e))?;
            }
            ("publish", Some(attempt)) => {
                let early = words.next() == Some("early");
                attempt.publish(journal, early).map_err(|e| ended(&e))?;
            }
            ("finish" | "abort", Some(_)) => {
                let attempt = attempt.take().expect("a transaction");
                if verb == "finish" {
                    attempt.finish().map_err(|e| stopped(&e))?;
                } else {
                    let _ = attempt.abort();
                }
            }
            ("single", None) => {
                let mut ops = [Op::Append { key: parse(next()), value: parse(next()) }];
                attempt::single(realm, cells, &mut ops).map_err(|e| begin_error(&e))?;
            }
            ("ordered" | "onward", None) => {
                let [first, by, end, cell] = std::array::from_fn(|_| parse(next()));
                for sequence in (first..end).step_by(by as usize) {
                    let begin = |again| {
                        let id = attempt::name(&mut random);
                        let how = Begin {
                            id: Some(id),
                            again,
                            sequence: Some(sequence),
                            ..Begin::default()
                        };
                        Ok(Attempt::new(realm.begin(&how)?, cells, id))
                    };
                    let again = |opponent: &AbortCause| {
                        if let AbortCause::Lost(opponent) = opponent {
                            realm.wait_for(opponent, PATIENCE);
                        }
                    };
                    match ordered(begin, again, (cell, sequence), journal) {
                        Err(why) if verb == "onward" && why.contains("turn-over") => {}
                        other => other?,
                    }
                }
            }
            ("group", None) => {
                let group = rustix::process::Pid::from_raw(parse(next()) as i32);
                rustix::process::setpgid(None, group).expect("joining a process group");
            }
            ("sweep", _) => println!("swept {}", realm.sweep()),
            ("meet", _) => points::meet(),
            ("say", _) => println!("{}", next()),
            _ => panic!("{step}: no such step, or not now"),
        }
    }
    Ok(())
}

/// Puts its sequence number into a cell, as often tried as needed.
fn ordered<'r>(
    mut begin: impl FnMut(Option<RetryHistory>) -> Result<Attempt<'r>, BeginError>,
    again: impl Fn(&AbortCause),
    (cell, sequence): (u64, u64),
    journal: &mut Journal,
) -> Result<(), String> {
    let mut before = None;
    loop {
        let mut attempt = begin(before).map_err(|e| begin_error(&e))?;
        let mut op = Op::Append { key: cell, value: sequence };
        let done = attempt.carry_out(&mut op, sequence % 2 == 0);
        match done.and_then(|()| attempt.publish(journal, sequence % 3 == 0)) {
            Ok(()) => return attempt.finish().map_err(|e| stopped(&e)),
            Err(End::Stopped(stop @ (AbortCause::Doomed(_) | AbortCause::Lost(_)))) => {
                before = Some(attempt.abort());
                again(&stop);
            }
            Err(end) => return Err(ended(&end)),
        }
    }
}

fn ended(end: &End) -> String {
    match end {
        End::Stopped(stop) => stopped(stop),
        other => format!("stopped {other:?} 0"),
    }
}

fn stopped(stop: &AbortCause) -> String {
    let why = match stop {
        AbortCause::Doomed(_) => "doomed",
        AbortCause::Lost(_) => "lost",
        AbortCause::Busy(_) => "busy",
        AbortCause::CalledOff(_) => "called-off",
        AbortCause::TurnOver { .. } => "turn-over",
        _ => "otherwise",
    };
    format!("stopped {why} {}", stop.opponent().map_or(0, |opponent| opponent.pid))
}

fn begin_error(error: &BeginError) -> String {
    match error {
        BeginError::Full => "full".to_owned(),
        BeginError::TurnOver { next, .. } => format!("turn-over {next}"),
        other => other.to_string(),
    }
}
