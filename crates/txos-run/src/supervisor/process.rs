//! Looking at a stopped process through `/proc`, cheaply.
//!
//! # Invariants
//!
//! - A cached descriptor of `/proc/PID` belongs to one process for ever: when that process is gone,
//!   every look through it fails, whoever has the number now. So a failure means "open again", and
//!   nothing is ever read of the wrong process.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use txos_engine::readset::join;

use crate::sys::creds::Identity;

/// How many processes are kept open.
const OPEN_MAX: usize = 256;

/// Descriptors of `/proc/PID`, by thread number.
#[derive(Debug, Default)]
pub struct Processes {
    open: HashMap<u32, OwnedFd>,
    groups: HashMap<u32, u32>,
}

impl Processes {
    /// The descriptor of `/proc/PID`.
    fn open(&mut self, pid: u32) -> Result<&OwnedFd, Errno> {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&pid) {
            self.open.clear();
            self.groups.clear();
        }
        let fd = match self.open.entry(pid) {
            std::collections::hash_map::Entry::Occupied(e) => &*e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let path = format!("/proc/{pid}");
                &*e.insert(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
            }
        };
        Ok(fd)
    }

    fn forget(&mut self, pid: u32) {
        self.open.remove(&pid);
        self.groups.remove(&pid);
    }

    /// Does something with `/proc/PID`, once more if the descriptor was of an earlier process.
    fn with<T>(
        &mut self,
        pid: u32,
        mut f: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match f(self.open(pid)?.as_fd()) {
            Err(Errno::SRCH | Errno::NOENT) => {
                self.forget(pid);
                f(self.open(pid)?.as_fd())
            }
            other => other,
        }
    }

    /// Appends the target of a link in `/proc/PID` to `into`.
    pub fn link(&mut self, pid: u32, name: &[u8], into: &mut Vec<u8>) -> Result<(), Errno> {
        self.with(pid, |dir| {
            into.reserve(crate::sys::memory::PATH_MAX);
            let spare = rustix::buffer::spare_capacity(into);
            rustix::fs::readlinkat_raw(dir, name, spare).map(|_| ())
        })
    }

    /// Appends the path of a descriptor of the process.
    pub fn descriptor(&mut self, pid: u32, number: i32, into: &mut Vec<u8>) -> Result<(), Errno> {
        let mut name = [0u8; 16];
        let mut rest = &mut name[..];
        // Sixteen bytes hold "fd/" and any int.
        let _ = write!(rest, "fd/{number}");
        let used = 16 - rest.len();
        self.link(pid, name.get(..used).unwrap_or_default(), into)
    }

    /// The thread group (what programs call the process) of a thread.
    pub fn group_of(&mut self, thread: u32) -> Option<u32> {
        if let Some(&group) = self.groups.get(&thread) {
            return Some(group);
        }
        let group = self.status(thread)?.group;
        self.groups.insert(thread, group);
        Some(group)
    }

    /// What `/proc/PID/status` says.
    pub fn status(&mut self, pid: u32) -> Option<Status> {
        Some(Status::parse(&self.text(pid, "status")?))
    }

    /// The text of a file in `/proc/PID`.
    pub fn text(&mut self, pid: u32, name: &str) -> Option<String> {
        let file = self.file(pid, name, OFlags::RDONLY).ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::fs::File::from(file), &mut text).ok()?;
        Some(text)
    }

    /// The inode number of a namespace of the process: `ns/mnt`, `ns/pid`.
    pub fn namespace(&mut self, pid: u32, name: &str) -> Option<u64> {
        let stat =
            self.with(pid, |dir| rustix::fs::statat(dir, name, rustix::fs::AtFlags::empty()));
        Some(stat.ok()?.st_ino)
    }

    /// Opens a file in `/proc/PID`.
    pub fn file(&mut self, pid: u32, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.with(pid, |dir| {
            rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())
        })
    }

    /// Opens what an absolute path leads to for the process, its root directory included.
    pub fn open_in_view(
        &mut self,
        pid: u32,
        path: &[u8],
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let root = self.file(pid, "root", OFlags::PATH | OFlags::DIRECTORY)?;
        let path = path.strip_prefix(b"/").unwrap_or(path);
        rustix::fs::openat2(
            &root,
            if path.is_empty() { b"." } else { path },
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT,
        )
    }
}

/// The path that an open descriptor of ours leads to.
pub fn path_of(fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let path = rustix::fs::readlinkat(CWD, link, Vec::with_capacity(256)).ok()?.into_bytes();
    path.starts_with(b"/").then_some(path)
}

/// What is needed of `/proc/PID/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Thread group.
    pub group: u32,
    /// Effective identity.
    pub identity: Identity,
    /// Real user.
    pub real_uid: u32,
    /// Saved user.
    pub saved_uid: u32,
}

impl Status {
    fn parse(text: &str) -> Self {
        let line = |name: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(name))
                .map(|l| l.split_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<u32>>())
                .unwrap_or_default()
        };
        let at = |list: &[u32], i: usize| list.get(i).copied().unwrap_or(u32::MAX);
        let (uids, gids) = (line("Uid:"), line("Gid:"));
        Status {
            group: at(&line("Tgid:"), 0),
            identity: Identity { uid: at(&uids, 1), gid: at(&gids, 1), groups: line("Groups:") },
            real_uid: at(&uids, 0),
            saved_uid: at(&uids, 2),
        }
    }
}

/// Takes `.` and `..` and doubled slashes out of an absolute path, by the letter.
#[must_use]
pub fn lexically_normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.iter().fold(b"/".to_vec(), |path, part| join(&path, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_at_oneself() {
        let mut processes = Processes::default();
        let me = std::process::id();
        let mut cwd = Vec::new();
        processes.link(me, b"cwd", &mut cwd).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(cwd, here.as_os_str().as_encoded_bytes());
        assert_eq!(processes.group_of(me), Some(me));
        let status = processes.status(me).unwrap();
        assert_eq!(status.identity.uid, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn normal_paths() {
        assert_eq!(lexically_normal(b"/a/./b//../c/"), b"/a/c");
        assert_eq!(lexically_normal(b"/../.."), b"/");
        assert_eq!(lexically_normal(b"/run"), b"/run");
    }
}
