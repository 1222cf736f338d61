//! What measured commands do, where no tool of the system does it: this program run as
//! `txos-bench work NAME …`, so that no interpreter is measured with it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};

use crate::{nanos, workloads};

/// The first word of such a command line.
pub const WORD: &str = "work";

/// Files in a directory of a tree.
const FILES_PER_DIR: u64 = 100;

/// Does it.
pub fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> = words.map(|w| w.to_string_lossy().into_owned()).collect();
    match dispatch(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("txos-bench work {}: {error}", words.join(" "));
            ExitCode::from(2)
        }
    }
}

fn dispatch(words: &[&str]) -> io::Result<ExitCode> {
    let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
    match words {
        ["tree", dir, n] => tree(Path::new(dir), number(n)?)?,
        ["append", dir, n] => append(Path::new(dir), number(n)?)?,
        ["look", dir, n] => look(Path::new(dir), number(n)?)?,
        ["nanos", dir, n] => nanos::main(Path::new(dir), number(n)? as usize)?,
        ["throughput", dir, n] => nanos::throughput(Path::new(dir), number(n)?)?,
        ["false-conflicts", dir, n] => nanos::false_conflicts(Path::new(dir), number(n)? as usize)?,
        ["play", rest @ ..] => workloads::main(rest)?,
        ["fail", dir, n] => {
            tree(Path::new(dir), number(n)?)?;
            println!("{}", now());
            return Ok(ExitCode::from(1));
        }
        _ => return Err(io::Error::other("there is no such work")),
    }
    Ok(ExitCode::SUCCESS)
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
