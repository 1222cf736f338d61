//! Commands on standard input, answers on standard output, line by line: how a replica asks its executor.
//!
//! | command | answer |
//! |---|---|
//! | `info` | `HEIGHT HASH`; `0 -` if there is no graph yet, or none that can be gone on with |
//! | `make KIND SEED` | `HASH`, of the graph at the beginning |
//! | `check REQUEST` | `ok`, or `no WHY` |
//! | `block COUNT`, and so many lines of requests | so many lines `ok ANSWER` or `no WHY`, then `HASH` |
//! | `commit` | `ok` |
//!
//! What can't be answered ends the executor, with a message on standard error.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;

use crate::executor::{Executor, How};
use crate::request::Request;
use crate::state::{self, State};

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

/// Whether the graph in a directory is of this start of the machine, or durable.
fn can_go_on(dir: &Path, durable: bool) -> io::Result<bool> {
    if !dir.join("state").exists() {
        return Ok(false);
    }
    std::env::set_current_dir(dir.join("v"))?;
    Ok(State::read()?.is_some_and(|state| durable || state.boot == state::boot()))
}

/// Serves until the end of the input.
///
/// # Errors
/// The executor's, and commands that are none.
pub fn serve(dir: &Path, how: How, durable: bool) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let dir = &dir.canonicalize()?;
    let mut lines = io::stdin().lock().lines();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut executor =
        if can_go_on(dir, durable)? { Some(Executor::open(dir, how, durable)?) } else { None };
    while let Some(line) = lines.next().transpose()? {
        let words: Vec<&str> = line.split(' ').collect();
        match (&words[..], &mut executor) {
            (["info"], None) => writeln!(out, "0 -")?,
            (["info"], Some(executor)) => {
                writeln!(out, "{} {}", executor.height(), executor.hash())?
            }
            (["make", kind, seed], _) => {
                drop(executor.take());
                std::env::set_current_dir(dir)?;
                for name in ["v", "state"] {
                    let path = dir.join(name);
                    let gone = if path.is_dir() {
                        fs::remove_dir_all(&path)
                    } else {
                        fs::remove_file(&path)
                    };
                    gone.or_else(|e| {
                        if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }
                    })?;
                }
                state::make(dir, &crate::forest(kind, seed)?)?;
                let made = Executor::open(dir, how, durable)?;
                writeln!(out, "{}", made.hash())?;
                executor = Some(made);
            }
            (["check", _, ..], Some(executor)) => {
                match Request::parse(&line["check ".len()..], executor.vertices()) {
                    Ok(_) => writeln!(out, "ok")?,
                    Err(why) => writeln!(out, "no {why}")?,
                }
            }
            (["block", count], Some(executor)) => {
                let count: usize = count.parse().map_err(|_| bad("how many requests?"))?;
                let texts = lines.by_ref().take(count).collect::<io::Result<Vec<String>>>()?;
                if texts.len() < count {
                    return Err(bad("the input has ended in the middle of a block"));
                }
                for answer in executor.execute(&texts)? {
                    match answer {
                        Ok(text) => writeln!(out, "ok {text}")?,
                        Err(why) => writeln!(out, "no {why}")?,
                    }
                }
                writeln!(out, "{}", executor.hash())?;
            }
            (["commit"], Some(executor)) => {
                executor.commit()?;
                writeln!(out, "ok")?;
            }
            _ => return Err(bad(&format!("{line}: no such command, or no graph yet"))),
        }
        out.flush()?;
    }
    Ok(())
}
