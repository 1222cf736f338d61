//! What measured commands do, where no tool of the system does it: this program run as
//! `txos-bench work NAME …`, so that no interpreter is measured with it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use rustix::time::{ClockId, clock_gettime};

use crate::nanos;
use crate::workloads::{self, Workload};

/// Files in a directory of a tree.
const FILES_PER_DIR: u64 = 100;

/// The work.
#[derive(Debug, Subcommand)]
pub enum Work {
    /// Makes a tree of so many files
    Tree(Sized),
    /// Makes it, prints the time, and fails
    Fail(Sized),
    /// Adds a byte to each of its files
    Append(Sized),
    /// Makes or replaces so many files, each flushed, renamed, and its directory flushed
    Replace(Sized),
    /// Delivers so many mails into a directory of mails
    Deliver(Sized),
    /// Looks at each of its files, and prints the memory of the processes above
    Look(Sized),
    /// Measures a realm's operations, on one processor
    Nanos(Sized),
    /// Acquires facets in a realm as one of several processes
    Throughput(Sized),
    /// Counts false conflicts in a realm with so many facets held
    FalseConflicts(Sized),
    /// Plays a workload as one of several processes
    Play {
        /// Which
        #[arg(value_parser = Workload::named)]
        workload: Workload,
        #[command(flatten)]
        part: Sized,
    },
}

/// Where, and a number.
#[derive(Debug, Args)]
pub struct Sized {
    dir: PathBuf,
    n: u64,
}

/// Does it.
pub fn main(work: &Work) -> ExitCode {
    let done = match work {
        Work::Tree(Sized { dir, n }) => tree(dir, *n),
        Work::Fail(Sized { dir, n }) => {
            if tree(dir, *n).is_ok() {
                println!("{}", now());
            }
            return ExitCode::from(1);
        }
        Work::Append(Sized { dir, n }) => append(dir, *n),
        Work::Replace(Sized { dir, n }) => replace(dir, *n),
        Work::Deliver(Sized { dir, n }) => deliver(dir, *n),
        Work::Look(Sized { dir, n }) => look(dir, *n),
        Work::Nanos(Sized { dir, n }) => nanos::main(dir, *n as usize),
        Work::Throughput(Sized { dir, n }) => nanos::throughput(dir, *n),
        Work::FalseConflicts(Sized { dir, n }) => nanos::false_conflicts(dir, *n as usize),
        Work::Play { workload, part } => workloads::main(*workload, &part.dir, part.n),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("txos-bench work: {error}");
            ExitCode::from(2)
        }
    }
}

/// Monotonic time in nanoseconds; the same clock for every process.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |n: i64| u64::try_from(n).unwrap_or_default();
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// File number `i` of a tree.
pub fn file(dir: &Path, i: u64) -> PathBuf {
    dir.join(format!("d{:04}", i / FILES_PER_DIR)).join(format!("file-{i:06}"))
}

/// The directories of a tree of `n` files.
pub fn directories(dir: &Path, n: u64) -> io::Result<()> {
    (0..n.div_ceil(FILES_PER_DIR))
        .try_for_each(|d| fs::create_dir_all(dir.join(format!("d{d:04}"))))
}

/// `n` small files, a hundred in each directory.
pub fn tree(dir: &Path, n: u64) -> io::Result<()> {
    directories(dir, n)?;
    (0..n).try_for_each(|i| File::create(file(dir, i))?.write_all(b"a small file\n"))
}

/// One byte more in each file of a tree.
fn append(dir: &Path, n: u64) -> io::Result<()> {
    (0..n).try_for_each(|i| OpenOptions::new().append(true).open(file(dir, i))?.write_all(b"x"))
}

/// Files that are there whole or not at all after a power cut, one after the other.
fn replace(dir: &Path, n: u64) -> io::Result<()> {
    let new = dir.join("new");
    (0..n).try_for_each(|i| put(&new, &dir.join(i.to_string()), dir))
}

/// Mails as a mail server delivers them: each is written and flushed in `tmp`, and renamed into `new`.
fn deliver(dir: &Path, n: u64) -> io::Result<()> {
    let [tmp, new] = ["tmp", "new"].map(|name| dir.join(name));
    for dir in [&tmp, &new] {
        fs::create_dir_all(dir)?;
    }
    (0..n).try_for_each(|i| put(&tmp.join(i.to_string()), &new.join(i.to_string()), &new))
}

/// A small file, written and flushed as `from`, renamed to `to`; then its directory is flushed.
fn put(from: &Path, to: &Path, dir: &Path) -> io::Result<()> {
    let mut file = File::create(from)?;
    file.write_all(&[b'x'; 2000])?;
    file.sync_all()?;
    fs::rename(from, to)?;
    File::open(dir)?.sync_all()
}

/// Looks at each file of a tree, then prints the peak of memory of the processes above this one:
/// a line each, `NAME KIB`, the nearest first.
fn look(dir: &Path, n: u64) -> io::Result<()> {
    for i in 0..n {
        fs::metadata(file(dir, i))?;
    }
    let mut pid = field("self", "PPid:")?;
    while pid > 1 {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
        println!("{} {}", name.trim(), field(&pid.to_string(), "VmHWM:").unwrap_or(0));
        pid = field(&pid.to_string(), "PPid:")?;
    }
    Ok(())
}

/// A number from `/proc/PID/status`.
fn field(pid: &str, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_as_many_files_as_asked_for() {
        let dir = std::env::temp_dir().join(format!("txos-bench-work-{}", std::process::id()));
        tree(&dir, 101).unwrap();
        append(&dir, 101).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        assert_eq!(fs::read(file(&dir, 100)).unwrap(), b"a small file\nx");
        fs::remove_dir_all(&dir).unwrap();
    }
}
