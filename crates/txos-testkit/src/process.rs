//! Running things: output kept, a deadline, and no process that outlives the test.
//!
//! # Safety
//!
//! Unsafe here is what runs between fork and exec: only system calls that signal-safety(7) allows,
//! on memory prepared before.
#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal};

use crate::rendezvous::Rendezvous;
use crate::wait::PATIENCE;

/// A command line, with what it is to find around it.
#[derive(Debug)]
pub struct Invocation {
    command: Command,
    shown: String,
    input: Vec<u8>,
    fds: Vec<(OwnedFd, i32)>,
    terminal: Option<OwnedFd>,
    patience: Duration,
}

impl Invocation {
    /// A program.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let shown = program.as_ref().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        for name in
            ["TXOS_STORE", "TXOS_REALM", "TXOS_FAULT", "TXOS_FAULT_COUNT", "TXOS_LOG", "NO_COLOR"]
        {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C.UTF-8");
        let (input, fds) = (Vec::new(), Vec::new());
        Invocation { command, shown, input, fds, terminal: None, patience: PATIENCE }
    }

    /// A shell script.
    #[must_use]
    pub fn shell(script: impl AsRef<OsStr>) -> Self {
        Self::new("sh").arg("-c").arg(script)
    }

    /// One argument more.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.shown = format!("{} {:?}", self.shown, arg.as_ref());
        self.command.arg(arg);
        self
    }

    /// Several.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(self, args: impl IntoIterator<Item = S>) -> Self {
        args.into_iter().fold(self, Invocation::arg)
    }

    /// An environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.shown = format!("{name}={:?} {}", value.as_ref(), self.shown);
        self.command.env(name, value);
        self
    }

    /// Without an environment variable.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Where it starts.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// As another user, without supplementary groups.
    #[must_use]
    pub fn user(mut self, uid: u32, gid: u32) -> Self {
        self.command.uid(uid).gid(gid);
        self
    }

    /// Standard input; empty without this.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// A descriptor to inherit.
    #[must_use]
    pub fn fd(mut self, fd: OwnedFd, number: i32) -> Self {
        self.fds.push((fd, number));
        self
    }

    /// The pipes at which it can pause.
    #[must_use]
    pub fn meeting(mut self, at: &mut Rendezvous) -> Self {
        self.fds.extend(at.ends());
        self
    }

    /// A terminal, which becomes its controlling one and all its standard streams.
    #[must_use]
    pub fn terminal(mut self, terminal: OwnedFd) -> Self {
        self.terminal = Some(terminal);
        self
    }

    /// Gives it another time than the usual one, for what a long mode does.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Gives it a process group of its own: in a group that nobody controls, the kernel hangs up everybody
    /// when one is stopped and another ends.
    #[must_use]
    pub fn in_own_group(mut self) -> Self {
        std::os::unix::process::CommandExt::process_group(&mut self.command, 0);
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it can't be started.
    #[must_use]
    pub fn start(mut self) -> Running {
        let stream = || File::from(memfd_create("stream", MemfdFlags::CLOEXEC).expect("a memfd"));
        let copy = |file: &File| Stdio::from(file.try_clone().expect("a descriptor"));
        let (stdout, stderr) = (stream(), stream());
        if let Some(terminal) = &self.terminal {
            let end = || Stdio::from(terminal.try_clone().expect("a descriptor"));
            self.command.stdin(end()).stdout(end()).stderr(end());
        } else {
            let mut stdin = stream();
            stdin.write_all(&self.input).and_then(|()| stdin.rewind()).expect("writing the input");
            self.command.stdin(Stdio::from(stdin)).stdout(copy(&stdout)).stderr(copy(&stderr));
        }
        let fds: Vec<(i32, i32)> = self.fds.iter().map(|(fd, n)| (fd.as_raw_fd(), *n)).collect();
        let on_terminal = self.terminal.is_some();
        let parent = rustix::process::getpid();
        // SAFETY: the closure calls prctl, getppid, setsid, ioctl, fcntl and dup2 only, all on
        // integers; it allocates nothing and takes no lock.
        unsafe {
            self.command.pre_exec(move || in_child(&fds, on_terminal, parent));
        }
        let child = match self.command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{}: {error}", self.shown),
        };
        let (shown, patience) = (self.shown, self.patience);
        Running { child, shown, stdout, stderr, status: None, patience }
    }

    /// Starts it and waits for its end.
    #[must_use]
    pub fn run(self) -> Done {
        self.start().wait()
    }
}

fn in_child(fds: &[(i32, i32)], on_terminal: bool, parent: Pid) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    if on_terminal {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    }
    // What the test itself has inherited is none of the command's.
    // SAFETY: it takes integers, and marks descriptors of this process only.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
    }
    // Moved out of the way first: a source may have another's number.
    let mut moved = [(0, 0); 8];
    for (slot, &(from, to)) in moved.iter_mut().zip(fds) {
        // SAFETY: fcntl and dup2 take integers; a bad descriptor is an error, nothing worse.
        let high = unsafe { libc::fcntl(from, libc::F_DUPFD_CLOEXEC, 100) };
        if high < 0 {
            return Err(std::io::Error::last_os_error());
        }
        *slot = (high, to);
    }
    for &(from, to) in moved.iter().take(fds.len()) {
        // SAFETY: as above.
        if unsafe { libc::dup2(from, to) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A started command; killed when it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    shown: String,
    stdout: File,
    stderr: File,
    status: Option<ExitStatus>,
    patience: Duration,
}

impl Running {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // One that has ended can't be hurt; it is a zombie until it is waited for.
        let _ = rustix::process::kill_process(self.pid(), signal);
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// If it can't be waited for.
    pub fn ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("waiting for a child");
        }
        self.status.is_some()
    }

    /// Whether it has ended by SIGKILL, as far as is known.
    #[must_use]
    pub fn status_is_kill(&self) -> bool {
        self.status.is_some_and(|status| status.signal() == Some(9))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end in time; it is killed.
    #[must_use]
    #[track_caller]
    pub fn wait(mut self) -> Done {
        let fd = rustix::process::pidfd_open(self.pid(), rustix::process::PidfdFlags::empty());
        let deadline = Instant::now() + self.patience;
        while !self.ended() {
            if Instant::now() > deadline {
                self.signal(Signal::KILL);
                panic!(
                    "{}: not ended after {:?}, killed\n{}",
                    self.shown,
                    self.patience,
                    String::from_utf8_lossy(&contents(&self.stderr))
                );
            }
            let Ok(fd) = &fd else { continue };
            let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
            let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = rustix::event::poll(&mut fds, Some(&second));
        }
        Done {
            status: self.status.unwrap_or_default(),
            stdout: contents(&self.stdout),
            stderr: String::from_utf8_lossy(&contents(&self.stderr)).into_owned(),
            shown: self.shown.clone(),
        }
    }

    /// What it has written to standard output by now.
    #[must_use]
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&contents(&self.stdout)).into_owned()
    }

    /// What it has written to standard error by now.
    #[must_use]
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&contents(&self.stderr)).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended() {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Reads a stream from its start, through a handle of its own: the writer's place must stay.
fn contents(stream: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let path = PathBuf::from(format!("/proc/self/fd/{}", stream.as_raw_fd()));
    if let Ok(mut file) = File::open(path) {
        let _ = file.read_to_end(&mut bytes);
    }
    bytes
}

/// A command that has ended.
pub struct Done {
    /// How.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
    shown: String,
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = String::from_utf8_lossy(&self.stdout);
        write!(f, "{}\n{}\n--- stdout\n{out}\n--- stderr\n{}", self.shown, self.status, self.stderr)
    }
}

impl Done {
    /// The status as a shell tells it: 128+n after signal n.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Whether it was ended by SIGKILL.
    #[must_use]
    pub fn killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Checks the exit status.
    ///
    /// # Panics
    /// If it is another; with all that the command said.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "expected exit status {code}: {self:?}");
        self
    }

    /// Checks that standard error contains a text.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn says(self, text: impl AsRef<str>) -> Self {
        assert!(self.stderr.contains(text.as_ref()), "expected {:?} in: {self:?}", text.as_ref());
        self
    }

    /// Checks that standard error does not contain a text.
    ///
    /// # Panics
    /// If it does.
    #[track_caller]
    pub fn says_not(self, text: &str) -> Self {
        assert!(!self.stderr.contains(text), "expected no {text:?} in: {self:?}");
        self
    }

    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("no JSON ({error}): {self:?}"),
        }
    }
}

/// A word for a shell script.
#[must_use]
pub fn quote(word: impl AsRef<OsStr>) -> OsString {
    let text = word.as_ref().to_string_lossy().replace('\'', "'\\''");
    format!("'{text}'").into()
}

/// Copies a program that is to be run, by another process: what this one has open for writing, if only
/// for a moment, a child that another thread makes has open as well until it runs something, and a
/// file that is open for writing can't be run (ETXTBSY).
///
/// # Panics
/// If it can't be copied.
#[track_caller]
pub fn copy_program(from: impl AsRef<std::path::Path>, to: impl AsRef<std::path::Path>) {
    let status = std::process::Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(status.is_ok_and(|s| s.success()), "copying to {}", to.as_ref().display());
}
