//! Recorded blocks: one request to a line, an empty line after each block.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::chance::Chance;
use crate::executor::{Executor, How};
use crate::request::Request;
use crate::state::{State, hex};
use crate::vertex::Vertex;

/// What is to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of blocks.
    pub blocks: u32,
    /// Requests in each.
    pub size: u32,
    /// Of 100 requests so many write: half of them add a random edge, half delete one that was there at the beginning.
    pub writes: u32,
    /// Of 100 of the others so many ask whether an edge exists; the rest ask for shortest paths.
    pub exists: u32,
    /// Begins the random numbers.
    pub seed: u64,
}

impl Plan {
    /// Prints the blocks, for the graph in the working directory.
    ///
    /// # Errors
    /// Those of files.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "there is no graph");
        let vertices = State::read()?.ok_or_else(none)?.vertices;
        let mut chance = Chance::new(self.seed);
        let mut buffer = Vec::new();
        for _ in 0..self.blocks {
            for _ in 0..self.size {
                let a = chance.below(vertices);
                let b = (a + 1 + chance.below(vertices - 1)) % vertices;
                let request = if chance.below(100) < self.writes {
                    let there = Vertex::read(a, &mut buffer)?.neighbours;
                    match there.get(chance.below(there.len() as u32) as usize) {
                        Some(&neighbour) if chance.below(2) == 0 => Request::Delete(a, neighbour),
                        _ => Request::Add(a, b),
                    }
                } else if chance.below(100) < self.exists {
                    Request::Exists(a, b)
                } else {
                    Request::Path(a, b)
                };
                writeln!(out, "{request}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// Reads recorded blocks.
///
/// # Errors
/// The file's.
pub fn read(file: &Path) -> io::Result<Vec<Vec<String>>> {
    let text = fs::read_to_string(file)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", file.display())))?;
    Ok(text
        .split_terminator("\n\n")
        .map(|block| block.lines().map(str::to_owned).collect())
        .collect())
}

fn middle(mut durations: Vec<Duration>, percent: usize) -> u128 {
    durations.sort_unstable();
    durations
        .get((durations.len() * percent / 100).min(durations.len().saturating_sub(1)))
        .map_or(0, Duration::as_micros)
}

/// Executes blocks, and prints what came out and how long it took.
///
/// # Errors
/// The executor's.
pub fn replay(dir: &Path, blocks: &[Vec<String>], how: How, durable: bool) -> io::Result<()> {
    let mut executor = Executor::open(dir, how, durable)?;
    let (mut answers, mut hashes) = (Sha256::new(), Sha256::new());
    let (mut requests, mut writes, mut effective) = (0, 0, 0);
    let started = Instant::now();
    // Those that it has executed already are left out: an executor that was interrupted goes on.
    for block in blocks.iter().skip(executor.height() as usize) {
        let done = executor.execute(block)?;
        executor.commit()?;
        hashes.update(executor.hash());
        for (text, answer) in block.iter().zip(&done) {
            requests += 1;
            writes +=
                u32::from(Request::parse(text, executor.vertices()).is_ok_and(Request::is_write));
            effective += u32::from(answer.as_ref().is_ok_and(|a| a == "added" || a == "deleted"));
            answers.update(answer.as_deref().unwrap_or_else(|why| why));
            answers.update("\n");
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let figures = std::mem::take(&mut executor.figures);
    println!("taken-back {}", executor.taken_back());
    println!("height {}", executor.height());
    println!("requests {requests}");
    println!("writes {writes}");
    println!("effective {effective}");
    println!("seconds {seconds:.6}");
    println!("aborts {}", figures.aborts);
    println!("took-median-us {}", middle(figures.took.clone(), 50));
    println!("took-99-us {}", middle(figures.took, 99));
    println!("waited-median-us {}", middle(figures.waited, 50));
    println!("hash {}", executor.hash());
    println!("hashes {}", hex(&hashes.finalize().into()));
    println!("answers {}", hex(&answers.finalize().into()));
    Ok(())
}
