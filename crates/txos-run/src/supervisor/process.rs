//! Looking at a stopped process through `/proc`, cheaply.
//!
//! # Invariants
//!
//! - A cached descriptor of `/proc/PID` belongs to one process for ever: when that process is gone,
//!   every look through it fails, whoever has the number now. So a failure means "open again", and
//!   nothing is ever read of the wrong process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::sys::creds::Credentials;

/// How many threads are kept open, and how many links of each: well below 1,024 in all.
const OPEN_MAX: usize = 64;
const LINKS_MAX: usize = 8;

/// Which link of `/proc/PID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The working directory.
    Cwd,
    /// The root directory.
    Root,
    /// An open file.
    Fd(i32),
}

/// A directory that is some process's root. While that process lives, nobody else's is equal but in the
/// same mount namespace: a mount is in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootDirectory {
    dev: (u32, u32),
    ino: u64,
    mount: u64,
}

/// Descriptors of `/proc/PID`, by thread number.
#[derive(Debug, Default)]
pub struct Processes {
    open: HashMap<u32, Opened>,
}

/// What is open of one thread.
#[derive(Debug)]
struct Opened {
    dir: OwnedFd,
    /// Links themselves, not what they lead to: each look gives what they lead to then.
    links: Vec<(Link, OwnedFd)>,
    group: Option<u32>,
}

impl Processes {
    fn open(&mut self, pid: u32) -> Result<&mut Opened, Errno> {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&pid) {
            self.open.clear();
        }
        match self.open.entry(pid) {
            Entry::Occupied(e) => Ok(e.into_mut()),
            Entry::Vacant(e) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let path = format!("/proc/{pid}");
                let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
                Ok(e.insert(Opened { dir, links: Vec::new(), group: None }))
            }
        }
    }

    /// Does something with `/proc/PID`, once more if what is open was of an earlier process.
    fn with<T>(
        &mut self,
        pid: u32,
        mut f: impl FnMut(&mut Opened) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match f(self.open(pid)?) {
            Err(Errno::SRCH | Errno::NOENT) => {
                self.open.remove(&pid);
                f(self.open(pid)?)
            }
            other => other,
        }
    }

    /// Appends where a link of `/proc/PID` leads.
    pub fn link(&mut self, pid: u32, link: Link, into: &mut Vec<u8>) -> Result<(), Errno> {
        self.with(pid, |opened| {
            into.reserve(crate::sys::memory::PATH_MAX);
            let fd = opened.link(link)?;
            rustix::fs::readlinkat_raw(fd, c"", rustix::buffer::spare_capacity(into)).map(|_| ())
        })
    }

    /// What a link of `/proc/PID` leads to: which object it is, on which mount.
    pub fn stat_through(&mut self, pid: u32, link: Link) -> Result<rustix::fs::Statx, Errno> {
        use rustix::fs::StatxFlags;
        let mask = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::MNT_ID;
        self.with(pid, |opened| {
            let name = match link {
                Link::Cwd => "cwd".to_owned(),
                Link::Root => "root".to_owned(),
                Link::Fd(n) => format!("fd/{n}"),
            };
            rustix::fs::statx(&opened.dir, name, AtFlags::STATX_DONT_SYNC, mask)
        })
    }

    /// The thread group (what programs call the process) of a thread.
    pub fn group_of(&mut self, thread: u32) -> Option<u32> {
        // Looked at even if it is known: the number may be another thread's by now.
        let known = self.with(thread, |opened| {
            rustix::fs::statat(&opened.dir, c"stat", AtFlags::empty()).map(|_| opened.group)
        });
        if let Ok(Some(group)) = known {
            return Some(group);
        }
        let group = self.status(thread)?.group;
        self.open(thread).ok()?.group = Some(group);
        Some(group)
    }

    /// What `/proc/PID/status` says.
    pub fn status(&mut self, pid: u32) -> Option<Status> {
        Status::parse(&self.text(pid, "status")?)
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
        let stat = self.with(pid, |o| rustix::fs::statat(&o.dir, name, AtFlags::empty()));
        Some(stat.ok()?.st_ino)
    }

    /// Which directory the process has as its root, on which mount.
    pub fn root(&mut self, pid: u32) -> Result<RootDirectory, Errno> {
        let found = self.stat_through(pid, Link::Root)?;
        Ok(RootDirectory {
            dev: (found.stx_dev_major, found.stx_dev_minor),
            ino: found.stx_ino,
            mount: found.stx_mnt_id,
        })
    }

    /// Opens a file in `/proc/PID`.
    pub fn file(&mut self, pid: u32, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.with(pid, |opened| {
            rustix::fs::openat(&opened.dir, name, flags | OFlags::CLOEXEC, Mode::empty())
        })
    }
}

impl Opened {
    /// A descriptor of the link itself.
    fn link(&mut self, link: Link) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(at) = self.links.iter().position(|(l, _)| *l == link) {
            return self.links.get(at).map(|(_, fd)| fd.as_fd()).ok_or(Errno::NOENT);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match link {
            Link::Cwd => rustix::fs::openat(&self.dir, c"cwd", flags, Mode::empty())?,
            Link::Root => rustix::fs::openat(&self.dir, c"root", flags, Mode::empty())?,
            Link::Fd(n) => rustix::fs::openat(&self.dir, format!("fd/{n}"), flags, Mode::empty())?,
        };
        if self.links.len() >= LINKS_MAX {
            self.links.remove(0);
        }
        self.links.push((link, fd));
        self.links.last().map(|(_, fd)| fd.as_fd()).ok_or(Errno::NOENT)
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
    /// What the kernel asks for when it checks what the thread may do.
    pub credentials: Credentials,
}

impl Status {
    /// Reads the text; `None` if it is not all there.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let line = |name: &str| text.lines().find_map(|l| l.strip_prefix(name));
        let numbers = |name: &str| -> Option<Vec<u32>> {
            line(name)?.split_whitespace().map(|w| w.parse().ok()).collect()
        };
        let four = |name: &str| <[u32; 4]>::try_from(numbers(name)?).ok();
        let mut supplementary = numbers("Groups:")?;
        supplementary.sort_unstable();
        Some(Status {
            group: *numbers("Tgid:")?.first()?,
            credentials: Credentials {
                users: four("Uid:")?,
                groups: four("Gid:")?,
                supplementary,
                capabilities: u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?,
            },
        })
    }

    /// Of this thread.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn of_this_thread() -> std::io::Result<Self> {
        let text = std::fs::read_to_string("/proc/thread-self/status")?;
        Status::parse(&text).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_at_oneself() {
        let mut processes = Processes::default();
        let me = std::process::id();
        let mut cwd = Vec::new();
        processes.link(me, Link::Cwd, &mut cwd).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(cwd, here.as_os_str().as_encoded_bytes());
        assert_eq!(processes.group_of(me), Some(me));
        let status = processes.status(me).unwrap();
        assert_eq!(status.credentials.user(), rustix::process::geteuid().as_raw());
        let mine = Status::of_this_thread().unwrap().credentials;
        assert!(status.credentials.acts_like(&mine));
    }

    #[test]
    fn a_status_is_whole_or_none() {
        let text = "Tgid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 4 \nCapEff:\t00000000000000c0\n";
        let status = Status::parse(text).unwrap();
        assert_eq!((status.group, status.credentials.users), (7, [1, 2, 3, 4]));
        assert_eq!(status.credentials.supplementary, [4, 9]);
        assert!(status.credentials.can_switch());
        for cut in ["Tgid", "Uid", "Gid", "Groups", "CapEff"] {
            assert_eq!(Status::parse(&text.replace(cut, "x")), None);
        }
    }
}
