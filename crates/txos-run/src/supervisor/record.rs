//! Recording what a stopped call looks at.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use txos_engine::object::Facets;
use txos_engine::readset::split;

use super::execute::Executed;
use super::process::Link;
use super::recorder::{Recorder, is_in_interpreter};
use super::side_effects::Intent;
use super::{Supervisor, Verdict};
use crate::sys::memory;
use crate::sys::seccomp::Call;
use crate::warning::WarningKind;
use rustix::fs::{CWD, FileType, OFlags, ResolveFlags};
use rustix::io::Errno;
use txos_calls::{Aspects, At, Follow, OpenFlags};

/// How many looks the supervisor remembers to have observed.
const KNOWN_MAX: usize = 1 << 16;

/// Looks that were observed, letter by letter: processes of others must not be able to make one that is taken for
/// another, as they could with the recorder's keys.
#[derive(Debug, Default)]
pub struct KnownLooks {
    looks: HashSet<Box<[u8]>>,
    /// What paths lead to, by [`super::view_renames::ViewRenames::revision`], when they were observed.
    revision: u64,
    /// The look that was asked for last: a path, and what the look depends on.
    asked: Vec<u8>,
}

impl KnownLooks {
    fn contains(&mut self, revision: u64, path: &[u8], follow: bool, facets: Facets) -> bool {
        if self.revision != revision {
            self.revision = revision;
            self.looks.clear();
        }
        self.asked.clear();
        self.asked.extend_from_slice(path);
        self.asked.extend_from_slice(&[facets.0, u8::from(follow)]);
        self.looks.contains(&self.asked[..])
    }

    /// Remembers the look that was asked for last.
    fn insert(&mut self) {
        if self.looks.len() >= KNOWN_MAX {
            self.looks.clear();
        }
        self.looks.insert(self.asked.as_slice().into());
    }
}

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
    let path = path.to_vec();
    let found = txos_engine::patience::run(move || rustix::fs::statfs(&path[..]));
    found.is_ok_and(|found| found.f_type == libc::BTRFS_SUPER_MAGIC)
}

/// Whether an open with these flags follows a link at the end.
#[must_use]
pub fn open_follows(flags: u64) -> bool {
    flags & O_NOFOLLOW == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL
}

/// What a path leads to for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The caller finds nothing there.
    Nothing,
    /// Something of this kind.
    Kind(FileType),
    /// It was not looked at. It may be anything.
    Unknown,
}

impl Found {
    fn may_be(self, kind: FileType) -> bool {
        self == Found::Unknown || self == Found::Kind(kind)
    }
}

/// What a row of the table says of an object.
#[must_use]
pub const fn facets(aspects: Aspects) -> Facets {
    Facets(aspects.0)
}

const _: () = assert!(
    Aspects::ENTRY.0 == Facets::ENTRY.0
        && Aspects::ATTRS.0 == Facets::ATTRS.0
        && Aspects::DATA.0 == Facets::DATA.0
        && Aspects::LISTING.0 == Facets::LISTING.0
        && Aspects::XATTRS.0 == Facets::XATTRS.0
        && Aspects::WRITE.0 == Facets::WRITE.0
);

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
        if let Err(e) = known {
            // Anything else: the process is gone, and so is its call.
            self.unreadable = is_inconclusive(e);
            return false;
        }
        if path.first() != Some(&b'/') {
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
    fn effect_here(&mut self, call: &Call, intent: Intent, follow: bool) -> Verdict {
        let path = std::mem::take(&mut self.scratch.path);
        let verdict = self.effect(call, &path, intent, follow);
        self.scratch.path = path;
        verdict
    }

    /// Observes `self.scratch.path`, unless it was observed for the same look before.
    fn note(&mut self, call: &Call, follow: bool, facets: Facets) {
        let is_known = self.may_be_known(facets);
        if is_known
            && self.known.contains(self.renames.revision(), &self.scratch.path, follow, facets)
        {
            return;
        }
        let path = std::mem::take(&mut self.scratch.path);
        self.note_path(call, &path, follow, facets);
        self.scratch.path = path;
        if is_known && !self.unreadable && !self.reads.led_outside() {
            self.known.insert();
        }
    }

    /// Whether a second look at `self.scratch.path` adds nothing to a first: where the recorder would not
    /// report it. The supervisor meets such a look again from code without the recorder: the dynamic linker, the C
    /// library's own, programs without it.
    fn may_be_known(&self, facets: Facets) -> bool {
        let changes = Facets::WRITE | Facets::APPEND | Facets::LISTING;
        let path = &self.scratch.path;
        self.recorder.as_ref().is_some_and(Recorder::is_on)
            && !self.roots_differ
            && self.scratch.written.first() == Some(&b'/')
            && !facets.intersects(changes)
            && !is_below_never(path)
            && !self.renames.may_concern(path)
    }

    /// Observes a path of the view.
    pub(super) fn note_path(&mut self, call: &Call, path: &[u8], follow: bool, facets: Facets) {
        if is_below_never(path) {
            // Links of /proc lead back into the tree: /proc/self/cwd, /proc/self/root, …
            if let Some(real) = self.through_proc(call.pid, path) {
                self.reads.note(&real, follow, facets);
            }
            return;
        }
        self.reads.note(path, follow, facets);
        if self.renames.may_concern(path) {
            self.note_moved(call, path, follow, facets);
        }
    }

    /// Observes a path also where it was before the transaction moved things, and where links of
    /// the transaction lead it.
    fn note_moved(&mut self, call: &Call, path: &[u8], follow: bool, facets: Facets) {
        for before in self.renames.before(path) {
            self.reads.note(&before, follow, facets);
        }
        // If the last name does not exist, its directory still leads somewhere.
        let (dir, name) = split(path).unwrap_or((path, b""));
        let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let path_of = |fd: OwnedFd| super::process::path_of(fd.as_fd());
        let Some(caller) = self.opener(call) else { return };
        let mut unreadable = false;
        let mut find = |path, flags| {
            let found = caller.find(path, flags, ResolveFlags::empty());
            unreadable |= found.as_ref().is_err_and(|e| is_inconclusive(*e));
            found.ok()
        };
        let canonical = match find(path, nofollow) {
            Some(fd) => path_of(fd),
            None => find(dir, OFlags::empty())
                .and_then(path_of)
                .map(|dir| txos_engine::readset::join(&dir, name))
                .map(|entry| {
                    let end = if follow { self.end_of_links(call, &entry) } else { None };
                    end.unwrap_or(entry)
                }),
        };
        self.unreadable |= unreadable;
        if let Some(canonical) = canonical
            && canonical != path
        {
            self.reads.note(&canonical, false, facets);
            for before in self.renames.before(&canonical) {
                self.reads.note(&before, false, facets);
            }
        }
    }

    /// The path for what is at or below `/proc/PID/cwd`, `root`, `exe` or `fd/N`; `None` for the rest of
    /// `/proc`. Only the link is read: what is below has not been observed yet.
    pub(super) fn through_proc(&self, pid: u32, path: &[u8]) -> Option<Vec<u8>> {
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
            self.note(call, follow.with(&call.data.args), facets);
            if let Some(recorder) = &mut self.recorder
                && recorder.is_question(call.pid, &self.scratch.written, || {
                    is_in_interpreter(call.pid, call.data.instruction_pointer)
                })
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
            _ if flags & O_CREAT != 0 => {
                self.effect_here(call, Intent::OpenOrMake, open_follows(flags))
            }
            _ => self.effect_here(call, Intent::Open, open_follows(flags)),
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
            let follow = follow.with(&call.data.args);
            if matches!(intent, Intent::Make) || !self.is_nothing_there(call, follow) {
                self.note(call, follow, facets);
            }
            return self.effect_here(call, intent, follow);
        }
        Verdict::Through
    }

    /// Whether nothing is at a path, neither in the stable tree nor in the view: then a call that changes what is there
    /// fails, and that nothing is there is all that is observed. So transactions that see to it that a name is free, by
    /// removing it, don't wait for each other. `false`: something may be there, and nothing was observed if the stable
    /// tree has it.
    fn is_nothing_there(&mut self, call: &Call, follow: bool) -> bool {
        let path = &self.scratch.path;
        if follow || is_below_never(path) {
            return false;
        }
        let stable =
            txos_engine::patience::find(CWD, path, OFlags::NOFOLLOW, ResolveFlags::empty());
        if !matches!(stable, Err(Errno::NOENT)) {
            return false;
        }
        self.note(call, follow, Facets::ENTRY);
        let path = std::mem::take(&mut self.scratch.path);
        let nothing = matches!(self.kind_in_view(call, &path), Found::Nothing);
        self.scratch.path = path;
        nothing
    }

    pub(super) fn unlink(&mut self, call: &Call, at: At, flags: Option<usize>) -> Verdict {
        let removes_dir = flags.is_some_and(|i| int(call, i) & libc::AT_REMOVEDIR != 0);
        let mut facets = Facets::ENTRY | Facets::WRITE | Facets::REPLACED;
        if removes_dir {
            facets |= Facets::LISTING; // It was empty, or the call fails because it was not.
        }
        if self.path(call, at) {
            if !self.is_nothing_there(call, false) {
                self.note(call, false, facets);
            }
            // Where a caller is that can't be followed, something else may be unlinked than was noted.
            let _ = self.opener(call);
            return self.effect_here(call, Intent::Alter, false);
        }
        Verdict::Through
    }

    pub(super) fn symlink(&mut self, call: &Call, at: At) -> Verdict {
        if self.path(call, at) {
            self.note(call, false, Facets::ENTRY | Facets::WRITE);
            self.renames.name(&self.scratch.path);
            return self.effect_here(call, Intent::Make, false);
        }
        Verdict::Through
    }

    pub(super) fn rename(
        &mut self,
        call: &Call,
        from: At,
        to: At,
        flags: Option<usize>,
    ) -> Verdict {
        if !self.path(call, from) {
            return Verdict::Through;
        }
        let facets = Facets::ENTRY | Facets::WRITE | Facets::REPLACED;
        self.note(call, false, facets);
        let old = self.scratch.path.clone();
        let found = self.kind_in_view(call, &old);
        if !self.path(call, to) {
            return Verdict::Through;
        }
        let flags = flags.map_or(0, |i| arg(call, i) as u32);
        let exchanges = flags & libc::RENAME_EXCHANGE != 0;
        let replaces = flags & (libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) == 0;
        let there = if replaces { Found::Nothing } else { self.kind_at(call) };
        let facets = match there {
            // It fails, and that something is there is all that is observed: `mv DIR TARGET/` tries it so with TARGET
            // itself before anything else.
            Found::Kind(_) if !exchanges => Facets::ENTRY,
            // What it replaces must be empty.
            _ if replaces && found.may_be(FileType::Directory) => facets | Facets::LISTING,
            _ => facets,
        };
        self.note(call, false, facets);
        let replaced = if exchanges { there } else { Found::Nothing };
        if found.may_be(FileType::Directory) || replaced.may_be(FileType::Directory) {
            self.renames.directory(&old, &self.scratch.path, exchanges);
        } else if found.may_be(FileType::Symlink) || replaced.may_be(FileType::Symlink) {
            self.renames.name(&self.scratch.path);
            if exchanges {
                self.renames.name(&old);
            }
        }
        if found == Found::Nothing {
            return Verdict::Through; // There is nothing to rename.
        }
        match self.effect(call, &old, Intent::Alter, false) {
            Verdict::Through => self.effect_here(call, Intent::OpenOrMake, false),
            stop => stop,
        }
    }

    pub(super) fn link(&mut self, call: &Call, from: At, to: At, follow: Follow) -> Verdict {
        if self.path(call, from) {
            self.note(call, follow.with(&call.data.args), Facets::ENTRY | Facets::WRITE);
            let found = self.kind_at(call);
            if self.path(call, to) {
                self.note(call, false, Facets::ENTRY | Facets::WRITE);
                if found.may_be(FileType::Symlink) {
                    self.renames.name(&self.scratch.path);
                }
                return self.effect_here(call, Intent::Make, false);
            }
        }
        Verdict::Through
    }

    /// What is at `self.scratch.path` for the caller.
    fn kind_at(&mut self, call: &Call) -> Found {
        let path = std::mem::take(&mut self.scratch.path);
        let found = self.kind_in_view(call, &path);
        self.scratch.path = path;
        found
    }

    /// What is at a path for the caller.
    fn kind_in_view(&mut self, call: &Call, path: &[u8]) -> Found {
        let Some(caller) = self.opener(call) else { return Found::Unknown };
        match caller.find(path, OFlags::NOFOLLOW, ResolveFlags::empty()) {
            Ok(fd) => txos_engine::patience::kind(&fd).map_or(Found::Unknown, Found::Kind),
            Err(Errno::PERM | Errno::XDEV) => Found::Unknown,
            Err(e) if is_inconclusive(e) => Found::Unknown,
            Err(_) => Found::Nothing,
        }
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
            self.note_path(call, &path, true, Facets::ENTRY | Facets::DATA | Facets::ATTRS);
            let Executed { found, foreign } = self.note_interpreters(call, &path);
            if let Some(recorder) = &mut self.recorder {
                recorder.forget(call.pid);
                if found && !foreign {
                    recorder.executes(call.pid);
                }
            }
            let verdict = if foreign {
                // What it does to its credentials is not told.
                self.somebody_differs();
                self.reads.misses_replacements();
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

/// Whether a look that failed so has told nothing of what is there, for want of something of ours: time,
/// descriptors, memory.
pub(super) fn is_inconclusive(e: Errno) -> bool {
    matches!(e, Errno::TIMEDOUT | Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

/// Whether the path is, by the letter, in a tree that is never versioned.
#[must_use]
pub fn is_below_never(path: &[u8]) -> bool {
    txos_engine::scope::is_never(path) && !path.windows(3).any(|w| w == b"/..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_known_by_its_path_what_it_looks_at_and_when() {
        let mut known = KnownLooks::default();
        assert!(!known.contains(0, b"/a", true, Facets::ENTRY));
        known.insert();
        assert!(known.contains(0, b"/a", true, Facets::ENTRY));
        for (path, follow, facets) in [
            (&b"/b"[..], true, Facets::ENTRY),
            (b"/a\x01", true, Facets::ENTRY),
            (b"/a", false, Facets::ENTRY),
            (b"/a", true, Facets::ATTRS),
        ] {
            assert!(!known.contains(0, path, follow, facets), "{path:?}");
        }
        assert!(!known.contains(1, b"/a", true, Facets::ENTRY), "a directory was moved since");
        known.insert();
        assert!(known.contains(1, b"/a", true, Facets::ENTRY));
    }

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
