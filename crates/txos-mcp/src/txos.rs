//! The command `txos`, started as a process of its own for each thing that is to be done.
//!
//! A process boundary, because what holds for the command then holds here: a transaction whose process is
//! killed is as it was before. A child that dies with the server (`PR_SET_PDEATHSIG`) leaves nothing running:
//! txos ends every process of a command with it.
//!
//! # Safety
//!
//! The closure that runs between fork and exec makes system calls only, on descriptors that the parent holds
//! open; it neither allocates nor locks.

#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::capture::{Bounded, Text, read};

/// The number under which a child finds where its report goes.
const REPORT: i32 = 8;
/// How long a command that was asked to end is waited for before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How long output is waited for when a child has ended: nothing of it is left that could write.
const DRAIN: Duration = Duration::from_millis(500);

/// How `txos` is called.
#[derive(Clone, Debug)]
pub struct Txos {
    program: PathBuf,
    store: Option<PathBuf>,
    /// Ends everything that runs.
    pub shutdown: CancellationToken,
}

/// One call.
#[derive(Debug, Default)]
pub struct Call {
    /// What follows `txos -q`.
    pub words: Vec<OsString>,
    /// Whether it takes `--report`, which is put behind the first word.
    pub report: bool,
    /// What it reads from standard input.
    pub input: Option<String>,
    /// Where it is started.
    pub directory: PathBuf,
    /// The most of each of its outputs that is kept.
    pub bound: usize,
    /// Of what goes to standard output, so many bytes at most are wanted, from its beginning.
    pub page: Option<usize>,
    /// How long it may take.
    pub time: Option<Duration>,
    /// Whether it is let end whatever happens: what publishes is not stopped half way.
    pub to_the_end: bool,
}

/// How a call ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status, or 128 and the number of the signal.
    pub status: i32,
    /// Standard output.
    pub stdout: Text,
    /// Whether there was more than the page that was asked for.
    pub more: bool,
    /// Standard error, with what txos itself said.
    pub stderr: Text,
    /// What it reported; empty if it was killed.
    pub report: Vec<u8>,
    /// Why it was stopped.
    pub stopped: Option<Stopped>,
    /// How long it took.
    pub time: Duration,
}

/// Why something was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It took too long.
    Time,
    /// The request was cancelled.
    Cancelled,
    /// The server ends.
    Shutdown,
}

impl Call {
    /// A call with these words.
    pub fn new<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Call {
        let words = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        Call { words, ..Call::default() }
    }
}

impl Txos {
    /// With this program and store.
    pub fn new(program: PathBuf, store: Option<PathBuf>) -> Txos {
        Txos { program, store, shutdown: CancellationToken::new() }
    }

    /// Runs it.
    ///
    /// # Errors
    /// If it can't be started.
    pub async fn run(&self, call: Call, cancelled: &CancellationToken) -> io::Result<Ended> {
        let begun = Instant::now();
        let report = File::from(rustix::fs::memfd_create("report", MemfdFlags::CLOEXEC)?);
        let mut child = self.spawn(&call, &report)?;
        if let (Some(text), Some(mut stdin)) = (call.input, child.stdin.take()) {
            tokio::spawn(async move {
                // A command may end without having read it.
                let _ = stdin.write_all(text.as_bytes()).await;
            });
        }
        let (mut stdout, mut stderr) = (Bounded::new(call.bound), Bounded::new(call.bound));
        let outputs = (child.stdout.take(), child.stderr.take());
        let reading = async {
            let out = async {
                if let Some(from) = outputs.0 {
                    read(from, &mut stdout).await;
                }
            };
            let err = async {
                if let Some(from) = outputs.1 {
                    read(from, &mut stderr).await;
                }
            };
            tokio::join!(out, err);
        };
        let mut reading = Box::pin(reading);
        let mut read_all = false;
        let time = call.time.unwrap_or(Duration::MAX);
        let stops = async {
            if call.to_the_end {
                return std::future::pending().await;
            }
            tokio::select! {
                () = cancelled.cancelled() => Stopped::Cancelled,
                () = self.shutdown.cancelled() => Stopped::Shutdown,
                () = sleep(time) => Stopped::Time,
            }
        };
        tokio::pin!(stops);
        let mut stopped = None;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                () = &mut reading, if !read_all => read_all = true,
                why = &mut stops, if stopped.is_none() => {
                    stopped = Some(why);
                    end(&mut child, &mut reading, &mut read_all).await;
                }
            }
        };
        if !read_all {
            let _ = tokio::time::timeout(DRAIN, &mut reading).await;
        }
        drop(reading);
        use std::os::unix::process::ExitStatusExt;
        let status = status.code().or(status.signal().map(|n| 128 + n)).unwrap_or(-1);
        let more = call.page.is_some_and(|limit| stdout.is_longer_than(limit));
        Ok(Ended {
            status,
            more,
            stdout: match call.page {
                Some(limit) => stdout.page(limit),
                None => stdout.text(),
            },
            stderr: stderr.text(),
            report: contents(report)?,
            stopped,
            time: begun.elapsed(),
        })
    }

    /// What a call prints as JSON.
    ///
    /// # Errors
    /// What it said, if it failed, or that it is no such document.
    pub async fn json<T: DeserializeOwned>(
        &self,
        words: &[OsString],
        directory: &Path,
        cancelled: &CancellationToken,
    ) -> Result<T, String> {
        let bound = 2 * DOCUMENT_MAX;
        let call = Call { directory: directory.to_owned(), bound, ..Call::new(words) };
        let ended = self.run(call, cancelled).await.map_err(|e| format!("txos: {e}"))?;
        if ended.stopped.is_some() {
            return Err("the request was cancelled".into());
        }
        if ended.status != 0 {
            return Err(ended.stderr.text.trim().to_owned());
        }
        if ended.stdout.left_out > 0 {
            return Err(format!("the answer is too large ({} bytes)", ended.stdout.bytes));
        }
        serde_json::from_str(&ended.stdout.text)
            .map_err(|e| format!("txos {}: {e}", words.join(OsStr::new(" ")).display()))
    }

    fn spawn(&self, call: &Call, report: &File) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.arg("-q");
        if let Some(store) = &self.store {
            command.arg("--store").arg(store);
        }
        let (verb, rest) = call.words.split_at(call.words.len().min(1));
        command.args(verb);
        if call.report {
            command.arg("--report").arg(format!("FD:{REPORT}"));
        }
        command.args(rest).current_dir(&call.directory).process_group(0);
        let stdin = if call.input.is_some() { Stdio::piped() } else { Stdio::null() };
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(!call.to_the_end);
        // Above the number that it is to have, so that it stays close-on-exec itself.
        let given: OwnedFd = rustix::io::fcntl_dupfd_cloexec(report, REPORT + 1)?;
        let (raw, server) = (given.as_raw_fd(), rustix::process::getpid());
        let to_the_end = call.to_the_end;
        // SAFETY: system calls only (see the module); `given` is open until the child has been started.
        unsafe {
            command.pre_exec(move || before_exec(raw, server, to_the_end));
        }
        command.spawn()
    }
}

/// The largest JSON document that is read.
const DOCUMENT_MAX: usize = 256 * 1024 * 1024;

/// In the child: gives the report its number, and has it killed when the server dies.
fn before_exec(report: i32, server: Pid, to_the_end: bool) -> io::Result<()> {
    // SAFETY: dup2 takes numbers; REPORT is a descriptor of nothing that this child will use.
    if unsafe { libc::dup2(report, REPORT) } == -1 {
        return Err(io::Error::last_os_error());
    }
    if !to_the_end {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have died before that.
        if rustix::process::getppid() != Some(server) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

/// Asks a child to end, and kills it if it does not. It is waited for afterwards.
async fn end(
    child: &mut Child,
    reading: &mut (impl Future<Output = ()> + Unpin),
    read_all: &mut bool,
) {
    let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
    // It is not waited for yet, so the number is still its own.
    let _ = kill_process(pid, Signal::TERM);
    let grace = tokio::time::sleep(GRACE);
    tokio::pin!(grace);
    loop {
        tokio::select! {
            _ = child.wait() => return,
            () = &mut *reading, if !*read_all => *read_all = true,
            () = &mut grace => break,
        }
    }
    let _ = child.start_kill();
}

async fn sleep(time: Duration) {
    match Instant::now().checked_add(time) {
        Some(_) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

fn contents(mut file: File) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    io::Read::read_to_end(&mut file, &mut all)?;
    Ok(all)
}
