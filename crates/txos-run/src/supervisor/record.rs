//! Recording what a stopped call looks at.

use txos_engine::object::Facets;
use txos_engine::readset::split;

use super::effects::Intent;
use super::process::Link;
use super::table::{At, Follow, OpenFlags};
use super::{Supervisor, Verdict};
use crate::sys::memory;
use crate::sys::seccomp::Call;
use crate::warning::WarningKind;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

/// Buffers that live as long as the supervisor, so that the usual call allocates nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    /// As the program wrote it.
    pub(super) written: Vec<u8>,
    /// Absolute in the view.
    pub(super) path: Vec<u8>,
}

const O_ACCMODE: u64 = libc::O_ACCMODE as u64;
const O_WRONLY: u64 = libc::O_WRONLY as u64;
const O_RDWR: u64 = libc::O_RDWR as u64;
const O_CREAT: u64 = libc::O_CREAT as u64;
const O_EXCL: u64 = libc::O_EXCL as u64;
const O_TRUNC: u64 = libc::O_TRUNC as u64;
const O_APPEND: u64 = libc::O_APPEND as u64;
const O_NOFOLLOW: u64 = libc::O_NOFOLLOW as u64;
const O_PATH: u64 = libc::O_PATH as u64;
const O_DIRECTORY: u64 = libc::O_DIRECTORY as u64;
const O_TMPFILE: u64 = libc::O_TMPFILE as u64;

/// What opening a file with these flags depends on.
#[must_use]
pub fn facets_of_open(flags: u64) -> Facets {
    if flags & O_PATH != 0 || flags & O_TMPFILE == O_TMPFILE || flags & O_DIRECTORY != 0 {
        return Facets::ENTRY;
    }
    let mut facets = match flags & O_ACCMODE {
        O_WRONLY if flags & O_APPEND != 0 && flags & O_TRUNC == 0 => Facets::WRITE | Facets::APPEND,
        O_WRONLY => Facets::WRITE,
        // O_RDWR with O_TRUNC reads only what it wrote itself.
        O_RDWR if flags & O_TRUNC != 0 => Facets::WRITE,
        O_RDWR => Facets::WRITE | Facets::DATA | Facets::ATTRS,
        _ => Facets::DATA | Facets::ATTRS,
    };
    if flags & (O_CREAT | O_TRUNC) != 0 {
        facets |= Facets::WRITE;
    }
    facets | Facets::ENTRY
}

/// Whether an open with these flags means to change what is there.
#[must_use]
pub fn opens_for_change(flags: u64) -> bool {
    flags & O_PATH == 0
        && (flags & O_ACCMODE == O_WRONLY
            || flags & O_ACCMODE == O_RDWR
            || flags & (O_CREAT | O_TRUNC) != 0)
}

/// Whether what is listed of a directory may be older than the call that lists it: btrfs leaves out what
/// has come, or has another name, since the directory was opened.
fn lists_as_when_opened(path: &[u8]) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type == libc::BTRFS_SUPER_MAGIC)
}

/// Whether an open with these flags follows a link at the end.
#[must_use]
pub fn open_follows(flags: u64) -> bool {
    flags & O_NOFOLLOW == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL
}

impl Follow {
    pub(super) fn of(self, call: &Call) -> bool {
        let bit = |i: usize, bit: u64| call.data.args.get(i).is_some_and(|a| a & bit != 0);
        match self {
            Follow::Yes => true,
            Follow::No => false,
            Follow::Unless(i, b) => !bit(i, b),
            Follow::If(i, b) => bit(i, b),
        }
    }
}

/// An argument of a call.
pub fn arg(call: &Call, index: usize) -> u64 {
    call.data.args.get(index).copied().unwrap_or(0)
}

/// An argument of type `int`: the upper half of the register means nothing.
pub fn int(call: &Call, index: usize) -> i32 {
    arg(call, index) as u32 as i32
}

impl Supervisor {
    /// The path that a call names, absolute in the view, in `self.scratch.path`; `false` if there
    /// is none to look at.
    fn path(&mut self, call: &Call, at: At) -> bool {
        let Scratch { written, path } = &mut self.scratch;
        path.clear();
        match memory::read_path(call.pid, arg(call, at.path), written) {
            Ok(()) if written.is_empty() => return false,
            Ok(()) => {}
            Err(e) => {
                self.unreadable = e == Errno::PERM;
                return false;
            }
        }
        if written.first() == Some(&b'/') {
            if self.roots_differ {
                // Unreadable: the process is gone, and so is its call.
                if self.processes.link(call.pid, Link::Root, path).is_err() {
                    return false;
                }
                if path == b"/" {
                    path.clear();
                }
            }
            path.extend_from_slice(written);
            return true;
        }
        let dir = at.dir.map_or(libc::AT_FDCWD, |i| int(call, i));
        let known = if dir == libc::AT_FDCWD {
            self.processes.link(call.pid, Link::Cwd, path)
        } else {
            self.processes.link(call.pid, Link::Fd(dir), path)
        };
        if known.is_err() || path.first() != Some(&b'/') {
            return false;
        }
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(written);
        true
    }

    /// A path relative to the process's working directory, absolute.
    pub(super) fn absolute(&mut self, pid: u32, written: &[u8]) -> Option<Vec<u8>> {
        let mut path = Vec::new();
        if written.first() == Some(&b'/') {
            if self.roots_differ {
                self.processes.link(pid, Link::Root, &mut path).ok()?;
            }
            if path == b"/" {
                path.clear();
            }
            path.extend_from_slice(written);
        } else {
            self.processes.link(pid, Link::Cwd, &mut path).ok()?;
            path = txos_engine::readset::join(&path, written);
        }
        Some(path)
    }

    /// What changing `self.scratch.path` means for the world outside.
    fn effect_here(&mut self, call: &Call, intent: Intent) -> Verdict {
        let path = std::mem::take(&mut self.scratch.path);
        let verdict = self.effect(call.pid, &path, intent);
        self.scratch.path = path;
        verdict
    }

    /// Observes `self.scratch.path`.
    fn note(&mut self, call: &Call, follow: bool, facets: Facets) {
        let path = std::mem::take(&mut self.scratch.path);
        self.note_path(call.pid, &path, follow, facets);
        self.scratch.path = path;
    }

    /// Observes a path of the view.
    pub(super) fn note_path(&mut self, pid: u32, path: &[u8], follow: bool, facets: Facets) {
        if is_below_never(path) {
            // Links of /proc lead back into the tree: /proc/self/cwd, /proc/self/root, …
            if let Some(real) = self.through_proc(pid, path) {
                self.reads.note(&real, follow, facets);
            }
            return;
        }
        self.reads.note(path, follow, facets);
        if self.moved.may_concern(path) {
            self.note_moved(pid, path, follow, facets);
        }
    }

    /// Observes a path also where it was before the transaction moved things, and where links of
    /// the transaction lead it.
    fn note_moved(&mut self, pid: u32, path: &[u8], follow: bool, facets: Facets) {
        for before in self.moved.before(path) {
            self.reads.note(&before, follow, facets);
        }
        // If the last name does not exist, its directory still leads somewhere.
        let (dir, name) = split(path).unwrap_or((path, b""));
        let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let canonical = match self.open_in_view(pid, path, OFlags::PATH | nofollow) {
            Ok(fd) => super::process::path_of(std::os::fd::AsFd::as_fd(&fd)),
            Err(_) => self
                .open_in_view(pid, dir, OFlags::PATH)
                .ok()
                .and_then(|fd| super::process::path_of(std::os::fd::AsFd::as_fd(&fd)))
                .map(|dir| txos_engine::readset::join(&dir, name)),
        };
        if let Some(canonical) = canonical
            && canonical != path
        {
            self.reads.note(&canonical, false, facets);
            for before in self.moved.before(&canonical) {
                self.reads.note(&before, false, facets);
            }
        }
    }

    /// The path for what is at or below `/proc/PID/cwd`, `root`, `exe` or `fd/N`; `None` for the rest of
    /// `/proc`. Only the link is read: what is below has not been observed yet.
    fn through_proc(&self, pid: u32, path: &[u8]) -> Option<Vec<u8>> {
        let mut rest = path.strip_prefix(b"/proc/")?;
        let mut next = || {
            let start = rest.iter().position(|&b| b != b'/').unwrap_or(rest.len());
            let trimmed = rest.get(start..).unwrap_or_default();
            let end = trimmed.iter().position(|&b| b == b'/').unwrap_or(trimmed.len());
            let (part, behind) = trimmed.split_at(end);
            rest = behind;
            part
        };
        let mut link = match next() {
            b"self" | b"thread-self" => format!("/proc/{pid}").into_bytes(),
            other => [b"/proc/", other].concat(),
        };
        let mut what = next();
        if what == b"task" {
            link = [&link, &b"/task/"[..], next()].concat();
            what = next();
        }
        link = match what {
            b"cwd" | b"root" | b"exe" => [&link, &b"/"[..], what].concat(),
            b"fd" => [&link, &b"/fd/"[..], next()].concat(),
            _ => return None,
        };
        let target = rustix::fs::readlinkat(rustix::fs::CWD, link, Vec::with_capacity(256)).ok()?;
        let target = target.into_bytes();
        let lost = target.ends_with(b" (deleted)") || !target.starts_with(b"/");
        let real = if rest.is_empty() { target } else { [&target, rest].concat() };
        (!lost && !is_below_never(&real)).then_some(real)
    }

    pub(super) fn look(&mut self, call: &Call, at: At, follow: Follow, facets: Facets) -> Verdict {
        if self.path(call, at) {
            self.note(call, follow.of(call), facets);
            if let Some(recorder) = &mut self.recorder
                && recorder.is_question(call.pid, &self.scratch.written)
            {
                return Verdict::Answer(Ok(0));
            }
        }
        Verdict::Through
    }

    pub(super) fn open(&mut self, call: &Call, at: At, flags: OpenFlags) -> Verdict {
        let flags = match flags {
            OpenFlags::Arg(i) => u64::from(arg(call, i) as u32),
            OpenFlags::Creat => O_CREAT | O_WRONLY | O_TRUNC,
            OpenFlags::How(i) => match memory::read_exact::<8>(call.pid, arg(call, i)) {
                Ok(bytes) => u64::from_ne_bytes(bytes),
                Err(_) => return Verdict::Through,
            },
        };
        if !self.path(call, at) {
            return Verdict::Through;
        }
        if let Some(verdict) = self.open_for_recorder(call) {
            return verdict;
        }
        let mut facets = facets_of_open(flags);
        if flags & (O_DIRECTORY | O_PATH) == O_DIRECTORY && lists_as_when_opened(&self.scratch.path)
        {
            facets |= Facets::LISTING;
        }
        self.note(call, open_follows(flags), facets);
        match flags {
            _ if !opens_for_change(flags) || flags & O_TMPFILE == O_TMPFILE => Verdict::Through,
            _ if flags & O_CREAT != 0 => self.effect_here(call, Intent::OpenOrMake),
            _ => self.effect_here(call, Intent::Open),
        }
    }

    pub(super) fn change(
        &mut self,
        call: &Call,
        at: At,
        follow: Follow,
        facets: Facets,
        intent: Intent,
    ) -> Verdict {
        if self.path(call, at) {
            self.note(call, follow.of(call), facets);
            return self.effect_here(call, intent);
        }
        Verdict::Through
    }

    pub(super) fn unlink(&mut self, call: &Call, at: At, flags: Option<usize>) -> Verdict {
        let removes_dir = flags.is_some_and(|i| int(call, i) & libc::AT_REMOVEDIR != 0);
        let mut facets = Facets::ENTRY | Facets::WRITE | Facets::REPLACED;
        if removes_dir {
            facets |= Facets::LISTING; // It was empty, or the call fails because it was not.
        }
        if self.path(call, at) {
            self.note(call, false, facets);
            return self.effect_here(call, Intent::Alter);
        }
        Verdict::Through
    }

    pub(super) fn symlink(&mut self, call: &Call, at: At) -> Verdict {
        if self.path(call, at) {
            self.note(call, false, Facets::ENTRY | Facets::WRITE);
            self.moved.name(&self.scratch.path);
            return self.effect_here(call, Intent::Make);
        }
        Verdict::Through
    }

    pub(super) fn rename(&mut self, call: &Call, from: At, to: At) -> Verdict {
        if !self.path(call, from) {
            return Verdict::Through;
        }
        let facets = Facets::ENTRY | Facets::WRITE | Facets::REPLACED;
        self.note(call, false, facets);
        let old = self.scratch.path.clone();
        let kind = self.kind_in_view(call.pid, &old);
        if !self.path(call, to) {
            return Verdict::Through;
        }
        let replaces_dir = if kind == Some(FileType::Directory) {
            Facets::LISTING // What it replaces must be empty.
        } else {
            Facets::ENTRY
        };
        self.note(call, false, facets | replaces_dir);
        match kind {
            Some(FileType::Directory) => self.moved.directory(&old, &self.scratch.path),
            Some(FileType::Symlink) => self.moved.name(&self.scratch.path),
            _ => {}
        }
        // With RENAME_EXCHANGE what was at the target appears at the source.
        if matches!(kind, Some(FileType::Directory | FileType::Symlink)) {
            self.moved.name(&old);
        }
        if kind.is_none() {
            return Verdict::Through; // There is nothing to rename.
        }
        match self.effect(call.pid, &old, Intent::Alter) {
            Verdict::Through => self.effect_here(call, Intent::OpenOrMake),
            stop => stop,
        }
    }

    pub(super) fn link(&mut self, call: &Call, from: At, to: At, follow: Follow) -> Verdict {
        if self.path(call, from) {
            self.note(call, follow.of(call), Facets::ENTRY | Facets::WRITE);
            let old = std::mem::take(&mut self.scratch.path);
            let kind = self.kind_in_view(call.pid, &old);
            self.scratch.path = old;
            if self.path(call, to) {
                self.note(call, false, Facets::ENTRY | Facets::WRITE);
                if kind == Some(FileType::Symlink) {
                    self.moved.name(&self.scratch.path);
                }
                return self.effect_here(call, Intent::Make);
            }
        }
        Verdict::Through
    }

    /// What is at a path for the process.
    fn kind_in_view(&mut self, pid: u32, path: &[u8]) -> Option<FileType> {
        let fd = self.open_in_view(pid, path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(rustix::fs::fstat(&fd).ok()?.st_mode))
    }

    pub(super) fn list(&mut self, call: &Call, fd: usize) -> Verdict {
        self.scratch.path.clear();
        let number = int(call, fd);
        let path = &mut self.scratch.path;
        if self.processes.link(call.pid, Link::Fd(number), path).is_ok() && path.starts_with(b"/") {
            self.note(call, false, Facets::ENTRY | Facets::LISTING);
        }
        Verdict::Through
    }

    pub(super) fn execute(&mut self, call: &Call, at: At) -> Verdict {
        if self.path(call, at) {
            let path = std::mem::take(&mut self.scratch.path);
            self.note_path(call.pid, &path, true, Facets::ENTRY | Facets::DATA | Facets::ATTRS);
            let foreign = self.note_interpreters(call.pid, &path);
            if let Some(recorder) = &mut self.recorder {
                recorder.executes(call.pid);
            }
            let verdict = if foreign {
                self.beyond(WarningKind::Unrecorded, || {
                    format!(
                        "{} is a 32-bit program; what it reads is not recorded",
                        txos_engine::show::quoted_bytes(&path)
                    )
                })
            } else {
                Verdict::Through
            };
            self.scratch.path = path;
            return verdict;
        }
        Verdict::Through
    }
}

/// Whether the path is, by the letter, in a tree that is never versioned.
#[must_use]
pub fn is_below_never(path: &[u8]) -> bool {
    crate::view::plan::NEVER
        .iter()
        .any(|n| txos_engine::readset::is_at_or_below(path, n.as_bytes()))
        && !path.windows(3).any(|w| w == b"/..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facets_of_opens() {
        let has = |flags: i32| facets_of_open(flags as u64);
        let (r, w, a) = (Facets::DATA, Facets::WRITE, Facets::APPEND);
        assert!(has(libc::O_RDONLY).contains(r) && !has(libc::O_RDONLY).intersects(w));
        assert!(has(libc::O_WRONLY).contains(w) && !has(libc::O_WRONLY).intersects(r));
        assert!(has(libc::O_RDWR).contains(w | r));
        assert!(has(libc::O_WRONLY | libc::O_APPEND).contains(w | a));
        assert!(!has(libc::O_WRONLY | libc::O_APPEND | libc::O_TRUNC).intersects(a));
        assert!(has(libc::O_RDONLY | libc::O_CREAT).contains(r | w));
        assert_eq!(has(libc::O_PATH | libc::O_RDWR), Facets::ENTRY);
        assert_eq!(has(libc::O_DIRECTORY), Facets::ENTRY);
    }

    #[test]
    fn links_at_the_end() {
        assert!(open_follows(O_CREAT));
        assert!(open_follows(O_EXCL));
        assert!(!open_follows(O_CREAT | O_EXCL));
        assert!(!open_follows(O_NOFOLLOW));
    }

    #[test]
    fn never_by_the_letter() {
        assert!(is_below_never(b"/proc/self/stat"));
        assert!(is_below_never(b"/run"));
        assert!(!is_below_never(b"/runner"));
        assert!(!is_below_never(b"/proc/../etc/passwd"));
    }
}
