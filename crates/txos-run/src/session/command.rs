//! The last steps before the command's program runs, in its own process.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::FdFlags;
use rustix::process::Pid;

use super::channel::{Channel, News};
use crate::inside::Given;
use crate::sys::{fork, seccomp, signals};

/// What the command's process needs to know, prepared before any fork.
pub struct Prepared {
    /// The program and its arguments.
    pub argv: Vec<CString>,
    /// Its environment.
    pub environment: Vec<CString>,
    /// Where it starts.
    pub directory: PathBuf,
    /// Its process group; `None` to stay in the reaper's.
    pub group: Option<Pid>,
    /// Nobody in its session could continue that group once it is stopped.
    pub is_orphaned: bool,
    /// The filter.
    pub program: Vec<seccomp::Instruction>,
    /// Where its process is written to, so that its memory is limited.
    pub memory: Option<OwnedFd>,
    /// How much address space each of its processes may have.
    pub address_space: Option<u64>,
    /// Standard output and error, where they are held.
    pub output: [Option<OwnedFd>; 2],
    /// What a process in another transaction hands it.
    pub given: Option<Arc<Given>>,
}

/// Becomes the command. Everything the command inherits is as the monitor had it.
pub fn become_command(prepared: &Prepared, channel: &Channel, signals: &mut signals::Guard) -> ! {
    let error = match prepare(prepared, channel, signals) {
        Ok(program) => {
            if let Some(program) = program {
                // If it could not be run, the C library says why, or finds another one.
                let _ = fork::exec(Some(&program), &prepared.argv, &prepared.environment);
            }
            let errno = fork::exec(None, &prepared.argv, &prepared.environment)
                .raw_os_error()
                .unwrap_or(libc::ENOEXEC);
            News::NotExecuted { errno }
        }
        Err((step, e)) => {
            let errno = e.raw_os_error().unwrap_or(libc::EIO);
            News::NotPrepared { step: step.to_owned(), errno }
        }
    };
    // If the monitor is gone, the reaper is about to kill us anyway.
    let _ = channel.send(&error);
    fork::exit(127)
}

type Failed = (&'static str, io::Error);

fn prepare(
    prepared: &Prepared,
    channel: &Channel,
    signals: &mut signals::Guard,
) -> Result<Option<CString>, Failed> {
    if let Some(group) = prepared.group {
        // Fails only for a session leader or a group that is gone; then ours will have to do.
        let _ = rustix::process::setpgid(None, Some(group));
    }
    if let Some(given) = &prepared.given {
        given.put_in_place().map_err(|e| ("handing over the descriptors of", e))?;
    }
    let [out, err] = &prepared.output;
    if let Some(out) = out {
        fork::put_fd(out.as_fd(), 1).map_err(|e| ("holding standard output", e))?;
    }
    if let Some(err) = err {
        fork::put_fd(err.as_fd(), 2).map_err(|e| ("holding standard error", e))?;
    }
    reopen_directories();
    rustix::process::chdir(&prepared.directory)
        .map_err(|e| ("entering the working directory in the view", e.into()))?;
    let program = prepared.argv.first().and_then(|name| found_in_path(name));
    if let Some(procs) = &prepared.memory {
        rustix::io::write(procs, b"0\n")
            .map_err(|e| ("entering the cgroup that limits the memory of", e.into()))?;
    }
    if let Some(bytes) = prepared.address_space {
        let limit = rustix::process::Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::setrlimit(rustix::process::Resource::As, limit)
            .map_err(|e| ("limiting the memory of", e.into()))?;
    }
    signals.restore(true);
    if let Some(given) = &prepared.given {
        given.ignore_as_the_asker();
    }
    let listener =
        seccomp::install(&prepared.program).map_err(|e| ("installing the seccomp filter", e))?;
    channel.send_listener(listener.as_fd()).map_err(|e| ("sending the listener", e))?;
    Ok(program)
}

/// Where a program's name leads by `$PATH`. Like a shell that starts a command, this looks before the transaction begins: each
/// place without the program would be a call that waits for the supervisor. `None`: the C library looks.
fn found_in_path(name: &CStr) -> Option<CString> {
    let (name, path) = (name.to_bytes(), std::env::var_os("PATH")?);
    if name.is_empty() || name.contains(&b'/') {
        return None;
    }
    for dir in path.as_bytes().split(|&byte| byte == b':') {
        if dir.is_empty() {
            // The working directory.
            return None;
        }
        let place = CString::new([dir, b"/", name].concat()).ok()?;
        let can = rustix::fs::accessat(CWD, &place, Access::EXEC_OK, AtFlags::EACCESS);
        let is_file = || {
            let stat = rustix::fs::stat(&place);
            stat.is_ok_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode).is_file())
        };
        if can.is_ok() && is_file() {
            return Some(place);
        }
    }
    None
}

/// Inherited descriptors of directories still lead into the stable tree: opens them in the view,
/// at the same numbers.
fn reopen_directories() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> =
        entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for number in numbers {
        if let Ok(fd) = fork::inherited(number) {
            // One that can't be reopened (removed, out of reach) stays as it is.
            let _ = reopen(number, fd);
        }
    }
}

fn reopen(number: i32, fd: BorrowedFd<'_>) -> io::Result<()> {
    let inherits = !rustix::io::fcntl_getfd(fd)?.contains(FdFlags::CLOEXEC);
    let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_dir();
    if !inherits || !is_dir {
        return Ok(());
    }
    let path = std::fs::read_link(Path::new("/proc/self/fd").join(number.to_string()))?;
    let flags = rustix::fs::fcntl_getfl(fd)? & (OFlags::PATH | OFlags::DIRECTORY);
    let new = rustix::fs::openat(CWD, &path, flags | OFlags::CLOEXEC, Mode::empty())?;
    fork::put_fd(new.as_fd(), number)
}
