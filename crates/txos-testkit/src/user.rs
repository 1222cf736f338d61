//! An ordinary user, made for one test and removed after it.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::process::Invocation;
use crate::system::{self, Guard};

/// The user. While it exists, nobody else changes the machine's users.
#[derive(Debug)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Home directory.
    pub home: PathBuf,
    guard: Guard,
}

impl User {
    /// Makes one with a home directory.
    ///
    /// # Panics
    /// If `useradd` fails.
    #[must_use]
    pub fn new() -> User {
        let guard = system::changing();
        let name = format!("txt{}", std::process::id());
        let name = free_name(name);
        let _ = Invocation::new("useradd")
            .args(["--create-home", "--shell", "/bin/sh", "--user-group", &name])
            .run()
            .expect(0);
        let id = |option: &str| -> u32 {
            let done = Invocation::new("id").args([option, &name]).run().expect(0);
            done.text().trim().parse().expect("a number")
        };
        let (uid, gid) = (id("-u"), id("-g"));
        let home = PathBuf::from("/home").join(&name);
        guard.downgrade();
        User { name, uid, gid, home, guard }
    }

    /// Makes an invocation this user's.
    #[must_use]
    pub fn runs(&self, invocation: Invocation) -> Invocation {
        invocation
            .user(self.uid, self.gid)
            .env("HOME", &self.home)
            .env("USER", &self.name)
            .without_env("XDG_STATE_HOME")
            .without_env("XDG_RUNTIME_DIR")
    }
}

impl Default for User {
    fn default() -> Self {
        Self::new()
    }
}

fn free_name(base: String) -> String {
    let taken =
        |name: &str| Command::new("id").arg(name).output().is_ok_and(|o| o.status.success());
    if !taken(&base) {
        return base;
    }
    (1..).map(|n| format!("{base}x{n}")).find(|name| !taken(name)).unwrap_or(base)
}

impl Drop for User {
    fn drop(&mut self) {
        self.guard.upgrade();
        let _ = std::fs::remove_dir_all(format!("/dev/shm/txos-{}", self.uid));
        // userdel refuses while a process of the user runs, such as one that empties a trash.
        for _ in 0..100 {
            self.end_processes();
            let removed = Command::new("userdel").args(["--remove", &self.name]).output();
            if removed.is_ok_and(|o| o.status.success()) {
                return;
            }
        }
        eprintln!("user {} could not be removed", self.name);
    }
}

impl User {
    /// Ends what this user still runs: the number is nobody else's.
    fn end_processes(&self) {
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|n| n.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
            let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if entry.metadata().is_ok_and(|m| m.uid() == self.uid) {
                let _ = rustix::process::pidfd_send_signal(&fd, Signal::KILL);
                let mut fds = [PollFd::new(&fd, PollFlags::IN)];
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                let _ = rustix::event::poll(&mut fds, Some(&second));
            }
        }
    }
}
