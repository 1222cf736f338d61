//! Programs in C that use the library, and the same without it: compiled when they are measured,
//! against the built `libtxos.so`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::fs::IFlags;

use crate::bench::{self, Bench};
use crate::crew::{self, Report};

/// Where a file system in memory is.
const MEMORY: &str = "/dev/shm";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a program may take to end: one that is a transaction commits then.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// A directory for programs, with a store of its own in it; and a realm.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    realm: PathBuf,
    /// Whether the realm goes with it: it is outside, in memory.
    with_realm: bool,
    /// What it is called in a table.
    pub name: String,
    /// Whether what is flushed here survives anything.
    pub durable: bool,
}

impl Place {
    /// One on the file system of the benchmarks, and one in memory.
    pub fn both(bench: &Bench) -> Result<[Self; 2], String> {
        bench::remove_stale(bench.memory());
        let memory = bench.memory().join(format!("txos-bench-{}", std::process::id()));
        // Realms are in memory, as they are by default.
        let (realm, disk_realm) = (memory.join("realm"), memory.join("realm-disk"));
        let memory = Place::make(memory, realm, "tmpfs".into(), false)?;
        let disk = Place::make(bench.at("inside"), disk_realm, bench.file_system(), true)?.spread();
        Ok([disk, memory])
    }

    fn make(dir: PathBuf, realm: PathBuf, name: String, durable: bool) -> Result<Self, String> {
        std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Place { dir, realm, with_realm: false, name, durable })
    }

    /// One on the file system of the benchmarks, and one on each of the others that were named.
    pub fn disks(bench: &Bench) -> Result<Vec<Self>, String> {
        let realm = |n: usize| {
            let memory = Path::new(MEMORY).join(format!("txos-bench-{}", std::process::id()));
            PathBuf::from(format!("{}-realm{n}", memory.display()))
        };
        let mut places =
            vec![Place::make(bench.at("inside"), realm(0), bench.file_system(), true)?.spread()];
        for (n, (name, dir)) in bench.others().iter().enumerate() {
            let dir = dir.join(format!("txos-bench-{}", std::process::id()));
            places.push(Place::make(dir, realm(n + 1), name.clone(), true)?.spread());
        }
        places.iter_mut().for_each(|place| place.with_realm = true);
        Ok(places)
    }

    /// Has ext4 put the directories in it far from each other, by their names: where many files were
    /// deleted lately, new ones are dear for some minutes, and nobody is to pay for those before.
    fn spread(self) -> Self {
        if let Ok(dir) = File::open(&self.dir)
            && let Ok(flags) = rustix::fs::ioctl_getflags(&dir)
        {
            // Not ext4: there it does not matter.
            let _ = rustix::fs::ioctl_setflags(&dir, flags | IFlags::TOPDIR);
        }
        self
    }

    /// A new place in it, called by a name that is new as well: with a store that nobody has used.
    pub fn inside(&self, name: &str) -> Result<Self, String> {
        Place::make(self.at(name), self.realm.clone(), self.name.clone(), self.durable)
    }

    /// As [`Place::inside`], and with a realm of its own: what runs there meets nobody.
    pub fn apart(&self, name: &str) -> Result<Self, String> {
        let mut realm = self.realm.clone().into_os_string();
        realm.push(format!("-{name}"));
        Place::make(self.at(name), realm.into(), self.name.clone(), self.durable)
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Has a program keep to this place's store and realm.
    pub fn keep<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("TXOS_STORE", self.at("store")).env("TXOS_REALM", &self.realm);
        // What there is of settings is not to be measured, and cargo has its own idea of which
        // library is to be found.
        for name in ["TXOS_IN_PROCESS", "TXOS_LOG", "LD_PRELOAD", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.with_realm {
            // Not there if nobody came.
            let _ = std::fs::remove_dir_all(&self.realm);
        }
        // What a command still deletes and notes in the background may come in between.
        for _ in 0..100 {
            match std::fs::remove_dir_all(&self.dir) {
                Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                Err(error) if self.dir.exists() => {
                    eprintln!("txos-bench: {} is left: {error}", self.dir.display());
                    return;
                }
                _ => return,
            }
        }
        eprintln!("txos-bench: {} is left", self.dir.display());
    }
}

/// A program, compiled with the library and without it.
#[derive(Debug)]
pub struct Program {
    with: PathBuf,
    without: PathBuf,
}

impl Program {
    /// Compiles `src/c/NAME.c`.
    pub fn compile(bench: &Bench, name: &str) -> Result<Self, String> {
        let library = bench.library()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/c").join(format!("{name}.c"));
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../txos-runtime/include");
        let compile = |made: &Path, more: &dyn Fn(&mut Command)| -> Result<(), String> {
            let mut cc = Command::new("cc");
            cc.args(["-O2", "-pthread", "-o"]).arg(made).arg(&source);
            more(&mut cc);
            cc.stdin(Stdio::null()).stderr(Stdio::piped());
            bench::run(&mut cc).map(drop)
        };
        let with = bench.at(format!("{name}-with"));
        let without = bench.at(format!("{name}-without"));
        compile(&without, &|cc| {
            cc.arg("-DNATIVE");
        })?;
        let dir = library.parent().unwrap_or(Path::new("."));
        compile(&with, &|cc| {
            cc.arg("-I").arg(&header).arg(&library);
            cc.arg(format!("-Wl,-rpath,{}", dir.display()));
        })?;
        Ok(Program { with, without })
    }

    /// Where it is, with the library or without.
    pub fn path(&self, with: bool) -> &Path {
        if with { &self.with } else { &self.without }
    }

    /// A command of it; to be run by [`report`] or [`Session::start`].
    pub fn command(&self, place: &Place, with: bool, words: &[&str]) -> Command {
        let mut command = Command::new(self.path(with));
        command.args(words);
        place.keep(&mut command);
        command
    }
}

/// Runs it to its end: what it printed, lines `KEY VALUE`.
pub fn report(mut command: Command) -> Result<Report, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = bench::output(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().next_back() {
        // Warnings mean that something else is measured than is meant.
        None if output.status.success() => {
            Ok(crew::parse(&String::from_utf8_lossy(&output.stdout)))
        }
        last => Err(format!("{command:?}: {}: {}", output.status, last.unwrap_or_default())),
    }
}

/// A running program that answers each line with one.
#[derive(Debug)]
pub struct Session {
    child: Child,
    /// None when no more is to come.
    words: Option<ChildStdin>,
    answers: Receiver<String>,
    what: String,
}

impl Session {
    /// Starts it, and waits for the line that says that it is ready.
    pub fn start(mut command: Command) -> Result<Self, String> {
        let what = format!("{command:?}");
        let failed = |e: io::Error| format!("{what}: {e}");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let gone = || failed(io::Error::other("no pipe"));
        let words = Some(child.stdin.take().ok_or_else(gone)?);
        let lines = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        let (sender, answers) = channel();
        // Ends with the program's output, or with the session.
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let session = Session { child, words, answers, what };
        match session.answer()?.as_str() {
            "ready" => Ok(session),
            other => Err(format!("{}: said {other:?}", session.what)),
        }
    }

    /// Its answer to a line.
    pub fn ask(&mut self, line: &str) -> Result<f64, String> {
        let words = self.words.as_mut().ok_or("it is over")?;
        let written = writeln!(words, "{line}");
        written.map_err(|e| format!("{}: {e}", self.what))?;
        let answer = self.answer().map_err(|e| format!("{e} at {line:?}"))?;
        answer.parse().map_err(|e| format!("{}: {answer:?}: {e}", self.what))
    }

    fn answer(&self) -> Result<String, String> {
        self.answers.recv_timeout(PATIENCE).map_err(|e| format!("{}: no answer: {e}", self.what))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It ends with its input; one that does not in time is killed.
        self.words = None;
        let deadline = Instant::now() + LAST_WORDS;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Both do nothing for one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
