//! `graph`: executes blocks of requests on a graph of one file for each vertex.
//!
//! ```text
//! graph make DIR sparse|dense|VERTICES SEED              makes a graph by the forest-fire model
//! graph record DIR BLOCKS SIZE WRITES EXISTS SEED        prints blocks of requests on it: of 100 so many writes; of the
//!                                                        other ones so many of 100 ask whether an edge exists, the rest for paths
//! graph replay DIR FILE plain|THREADS [durable]          executes recorded blocks, prints figures and hashes
//! graph hash DIR                                         the hash of the files as they are
//! graph serve DIR plain|THREADS [durable]                takes commands on standard input
//! ```

mod chance;
mod executor;
mod forest;
mod merkle;
mod record;
mod request;
mod serve;
mod state;
mod vertex;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use executor::How;
use forest::Forest;

const USAGE: &str = "usage: graph make DIR sparse|dense|VERTICES SEED
       graph record DIR BLOCKS SIZE WRITES EXISTS SEED
       graph replay DIR FILE plain|THREADS [durable]
       graph hash DIR
       graph serve DIR plain|THREADS [durable]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            eprintln!("graph: {error}\n{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("graph: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

fn number<T: std::str::FromStr>(word: &str) -> io::Result<T> {
    word.parse().map_err(|_| bad(&format!("{word}: a number was expected")))
}

fn how(word: &str) -> io::Result<How> {
    match word {
        "plain" => Ok(How::Plain),
        threads => number(threads).map(How::Threads),
    }
}

fn forest(kind: &str, seed: &str) -> io::Result<Forest> {
    let seed = number(seed)?;
    Ok(match kind {
        "sparse" => Forest::sparse(seed),
        "dense" => Forest::dense(seed),
        vertices => Forest { vertices: number::<u32>(vertices)?.max(2), ..Forest::sparse(seed) },
    })
}

fn durable(words: &[&str]) -> io::Result<bool> {
    match words {
        [] => Ok(false),
        ["durable"] => Ok(true),
        _ => Err(bad("too many words")),
    }
}

fn run(args: &[&str]) -> io::Result<()> {
    match args {
        ["make", dir, kind, seed] => {
            if state::has_vertices(Path::new(dir)) {
                return Err(bad(&format!("{dir}: there is a graph")));
            }
            state::make(Path::new(dir), &forest(kind, seed)?)
        }
        ["record", dir, blocks, size, writes, exists, seed] => {
            std::env::set_current_dir(Path::new(dir).join("v"))?;
            let plan = record::Plan {
                blocks: number(blocks)?,
                size: number(size)?,
                writes: number(writes)?,
                exists: number(exists)?,
                seed: number(seed)?,
            };
            let mut out = io::BufWriter::new(io::stdout().lock());
            plan.print(&mut out)?;
            out.flush()
        }
        ["replay", dir, file, how_word, rest @ ..] => {
            let blocks = record::read(Path::new(file))?;
            own_group()?;
            record::replay(Path::new(dir), &blocks, how(how_word)?, durable(rest)?)
        }
        ["hash", dir] => {
            std::env::set_current_dir(Path::new(dir).join("v"))?;
            let state = state::State::read()?.ok_or_else(|| bad("there is no graph"))?;
            let hashes = state::hashes(state.vertices, 1)?;
            println!("{}", state::hex(&merkle::Merkle::new(&hashes).root()));
            Ok(())
        }
        ["serve", dir, how_word, rest @ ..] => {
            own_group()?;
            serve::serve(Path::new(dir), how(how_word)?, durable(rest)?)
        }
        _ => Err(bad("what is to be done?")),
    }
}

/// The order of transactions is a process group's, and two executors have two orders. What has started this one does not
/// end it by a signal to its group then, so it ends with its parent.
fn own_group() -> io::Result<()> {
    if rustix::process::getpgrp() != rustix::process::getpid() {
        rustix::process::setpgid(None, None)?;
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    Ok(())
}
