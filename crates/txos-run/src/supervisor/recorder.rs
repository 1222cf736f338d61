//! The supervisor's side of the preloaded recorder (`txos-recorder`).
//!
//! The recorder makes a call unseen only if the area says that the supervisor was told of the same look
//! before: the same path, written in the same way, from the same directory, for the same facets. A look
//! that was observed adds nothing when it is observed again (the first observation of a facet is kept,
//! and a path that was written leads where it led), so the read set is the same with the recorder and
//! without. Where that would not be so, the supervisor says it before it lets the call through that
//! changes it:
//!
//! | what | why | then |
//! |---|---|---|
//! | a directory was moved or a link made inside | paths are also looked at where they were before | a new generation |
//! | root directory, mounts or mount namespace change | absolute paths lead elsewhere, for some processes | off |
//! | a process can't be looked at | what it tells is not observed | off |
//! | a process takes other credentials | whoever has them may write to the area, and is not to decide what others need not tell | a new area, for programs that start later; the old one is off |
//!
//! Paths in `/proc` are always told: its links mean something else at each look.

//!
//! # How it gets into a program
//!
//! The dynamic linker asks for `/etc/ld.so.preload` when it starts a program. That call is told, and so
//! the linker, and nobody else, is answered that the file is there and names one library more. So the
//! command's environment is as it would be without, programs that clear theirs have the recorder too,
//! and one that is statically linked, or of another architecture, is simply told of.
//!
//! It is the linker that asks if this is the first look of the program, or if the call is made in the
//! code of its interpreter: what the user preloads (`LD_PRELOAD`, `LD_AUDIT`) is looked for before.
//!
//! Only callers with the supervisor's own credentials, root directory and namespaces are given the
//! recorder: of all others every look is told. So nobody reads through the supervisor what it could not
//! read itself, and nobody decides what another user's program need not tell.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use txos_engine::object::Facets;
use txos_engine::readset::ReadSet;
use txos_recorder::area::{CONTROL_PATH, LIBRARY_PATH, PATH, Start};

use super::ahead::{Ahead, ReportedLook};
use super::caller::AsCaller;
use super::process::Link;
use super::record::{int, open_follows};
use super::{Supervisor, Verdict};
use crate::sys::seccomp::Call;
use txos_calls::{Aspects, At, Handler, OpenFlags};

use crate::sys::area::{self, Area};

/// Where the dynamic linker looks for what it is to load into every program.
const PRELOAD: &[u8] = b"/etc/ld.so.preload";

/// The longest such file that is added to.
const PRELOAD_MAX: usize = 1 << 16;

/// How many programs are being started at once, as far as is kept in mind.
const STARTING_MAX: usize = 1024;

/// How far a program has been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starting {
    /// It was told to be executed.
    Executed,
    /// It has looked at something, and its dynamic linker has not asked yet.
    Loading,
    /// Its dynamic linker has asked whether there is anything to preload.
    Asked,
}

/// What a transaction's recorders need.
#[derive(Debug)]
pub struct Recorder {
    area: Area,
    library: OwnedFd,
    /// The revision of [`super::view_renames::ViewRenames`] that the generation stands for.
    revision: u64,
    starting: HashMap<u32, Starting>,
    ahead: Ahead,
    off: bool,
}

impl Recorder {
    /// A recorder, if there can be one here.
    #[must_use]
    pub fn new() -> Option<Recorder> {
        let (area, library) = (Area::new().ok()?, area::library().ok()?);
        Some(Recorder {
            area,
            library,
            revision: 0,
            starting: HashMap::new(),
            ahead: Ahead::default(),
            off: false,
        })
    }

    /// The library. The dynamic linker reads from it: the position must be its own.
    fn library(&self) -> Option<OwnedFd> {
        let link =
            format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.library.as_fd()));
        rustix::fs::openat(CWD, link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    /// A process is about to execute a program.
    pub(super) fn executes(&mut self, pid: u32) {
        if self.starting.len() >= STARTING_MAX {
            self.starting.clear();
        }
        self.starting.insert(pid, Starting::Executed);
    }

    /// It did something else than its dynamic linker would, or goes on as it was.
    pub(super) fn forget(&mut self, pid: u32) {
        if !self.starting.is_empty() {
            self.starting.remove(&pid);
        }
    }

    /// Some process that has the area takes other credentials: those that have it are told of every look
    /// from now on, and programs that are started later share another one.
    pub(super) fn renew(&mut self, reads: &mut ReadSet) {
        if self.off {
            return;
        }
        self.ahead.flush(reads, &self.area);
        self.area.turn_off();
        match Area::new() {
            Ok(area) => self.area = area,
            Err(_) => self.off = true,
        }
    }

    /// Whether this look is the dynamic linker's question, once for each program. `is_linker`: whether
    /// the call is made in the code of the program's interpreter.
    pub(super) fn is_question(
        &mut self,
        pid: u32,
        written: &[u8],
        is_linker: impl FnOnce() -> bool,
    ) -> bool {
        let Some(starting) = self.starting.get_mut(&pid) else { return false };
        let asks = match *starting {
            Starting::Executed => written == PRELOAD,
            Starting::Loading => written == PRELOAD && is_linker(),
            Starting::Asked => false,
        };
        *starting = if asks { Starting::Asked } else { Starting::Loading };
        asks
    }

    /// Whether this opening is the dynamic linker's, of what it was told is there.
    fn is_sequel(&mut self, pid: u32, written: &[u8]) -> bool {
        let Some(starting) = self.starting.get_mut(&pid) else { return false };
        if *starting != Starting::Asked {
            *starting = Starting::Loading;
            return false;
        }
        self.starting.remove(&pid);
        written == PRELOAD
    }

    /// Whether a path means the same to all processes, as far as is known.
    pub(super) fn is_on(&self) -> bool {
        !self.off
    }

    /// Every look is told from now on.
    pub(super) fn turn_off(&mut self) {
        self.off = true;
        self.area.turn_off();
    }

    /// What was observed ahead and looked at becomes part of the read set.
    pub(super) fn flush_ahead(&mut self, reads: &mut ReadSet) {
        self.ahead.flush(reads, &self.area);
    }

    /// If paths lead elsewhere than before, nothing is known of them.
    pub(super) fn follow(&mut self, revision: u64, reads: &mut ReadSet) {
        if self.revision != revision {
            self.revision = revision;
            self.area.begin_generation();
            self.ahead.flush(reads, &self.area);
        }
    }
}

impl Supervisor {
    /// An open of one of the recorder's files, as the program wrote it.
    pub(super) fn open_for_recorder(&mut self, call: &Call) -> Option<Verdict> {
        let recorder = self.recorder.as_mut()?;
        let written = &self.scratch.written;
        if written == LIBRARY_PATH.to_bytes() {
            return recorder.library().map(|library| Verdict::Give(Arc::new(library)));
        }
        if written == CONTROL_PATH.to_bytes() {
            return Some(Verdict::Give(recorder.area.control()));
        }
        if written == PATH.to_bytes() {
            // Whoever writes to it decides what others need not tell.
            if !self.caller(call)?.is_like_us() {
                return None;
            }
            return Some(Verdict::Give(self.recorder.as_ref()?.area.tables()));
        }
        if !recorder.is_sequel(call.pid, written) {
            return None;
        }
        let caller = self.opener(call)?;
        if !caller.is_like_us() {
            return None;
        }
        let mut list = Vec::new();
        match preloaded(&caller) {
            Ok(there) => {
                // As it would be without the recorder. The question has observed the name before.
                let path = std::mem::take(&mut self.scratch.path);
                self.note_path(call, &path, true, Facets::ENTRY | Facets::DATA | Facets::ATTRS);
                self.scratch.path = path;
                list = there;
                list.push(b'\n');
            }
            Err(Errno::NOENT) => {}
            Err(_) => return None,
        }
        list.extend_from_slice(LIBRARY_PATH.to_bytes());
        list.push(b'\n');
        Some(
            crate::sys::area::list(&list)
                .map_or(Verdict::Answer(Err(Errno::NOENT)), |list| Verdict::Give(Arc::new(list))),
        )
    }

    /// Reads ahead after a look that was told.
    pub(super) fn read_ahead(&mut self, call: &Call, handler: Handler) {
        let Some(recorder) = self.recorder.as_mut() else { return };
        let path = &self.scratch.path;
        if recorder.off
            || call.data.arch != super::filter::NATIVE
            || !txos_calls::row(call.data.nr.into()).is_some_and(|row| row.gated)
            || !recorder.ahead.is_of_use(&self.reads, path)
        {
            return;
        }
        // What the transaction itself moved is looked at under several names.
        if self.renames.may_concern(path) {
            return;
        }
        // Keys of what somebody else looks at are of no use to us, and ours tell of names.
        if self.identities_differ && !self.caller(call).is_some_and(|caller| caller.is_like_us()) {
            return;
        }
        let Some(recorder) = self.recorder.as_mut() else { return };
        let path = &self.scratch.path;
        let (at, follow, facets) = match handler {
            Handler::Look(at, follow, aspects) if aspects.0 & Aspects::XATTRS.0 == 0 => {
                (at, follow.with(&call.data.args), super::record::facets(aspects))
            }
            Handler::Open(at, OpenFlags::Arg(flags)) => {
                let flags = u64::from(super::record::arg(call, flags) as u32);
                (at, open_follows(flags), super::record::facets_of_open(flags))
            }
            _ => return,
        };
        let whole = Facets::WRITE | Facets::LISTING;
        if facets.intersects(whole) {
            return;
        }
        let written = &self.scratch.written;
        let start = match written.first() {
            Some(b'/') => Some(Start::default()),
            _ => start_of(&mut self.processes, call, at),
        };
        let Some(start) = start else { return };
        let look = ReportedLook { path, written, start, follow, facets };
        recorder.ahead.after(&look, &mut self.reads, &mut self.participant, &recorder.area);
    }
}

/// What the file says that lists libraries for every program: a regular file of root's that all can read,
/// reached without a link. Of any other, nothing is read: the dynamic linker opens it itself.
fn preloaded(caller: &AsCaller) -> Result<Vec<u8>, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = caller.find(PRELOAD, OFlags::NOFOLLOW, resolve)?;
    let (found, stat) = caller.regular(found)?;
    if stat.st_uid != 0 || stat.st_mode & 0o004 == 0 || stat.st_mode & 0o022 != 0 {
        return Err(Errno::ACCESS);
    }
    let file = caller.open(found, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let mut list = vec![0; PRELOAD_MAX];
    let got = rustix::io::pread(&file, &mut list[..], 0)?;
    list.truncate(got);
    Ok(list)
}

/// Whether an address of a process lies in the code of its interpreter, the dynamic linker.
pub(super) fn is_in_interpreter(pid: u32, address: u64) -> bool {
    let base = std::fs::read(format!("/proc/{pid}/auxv")).ok().and_then(|aux| base_of(&aux));
    let maps = std::fs::read(format!("/proc/{pid}/maps"));
    base.zip(maps.ok()).is_some_and(|(base, maps)| same_file(&maps, base, address))
}

/// Where the interpreter was loaded to, by the auxiliary vector; `None`: there is none.
fn base_of(auxv: &[u8]) -> Option<u64> {
    const AT_BASE: u64 = 7;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let mut pairs = auxv.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    pairs.find(|pair| pair.0 == AT_BASE).map(|pair| pair.1).filter(|&base| base != 0)
}

/// Whether two addresses are of one mapped file, by `/proc/PID/maps`.
fn same_file(maps: &[u8], one: u64, other: u64) -> bool {
    let file_at = |address: u64| {
        maps.split(|&b| b == b'\n').find_map(|line| {
            // first-last rights offset device inode path
            let line = String::from_utf8_lossy(line);
            let mut words = line.split_ascii_whitespace();
            let (first, last) = words.next()?.split_once('-')?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            let here = (hex(first)?..hex(last)?).contains(&address);
            let (device, inode) = (words.nth(2)?, words.next()?);
            (here && inode != "0").then(|| (device.to_owned(), inode.to_owned()))
        })
    };
    let file = file_at(one);
    file.is_some() && file == file_at(other)
}

/// The directory that a relative path of a call starts at, as the recorder sees it.
fn start_of(processes: &mut super::process::Processes, call: &Call, at: At) -> Option<Start> {
    let dir = at.dir.map_or(libc::AT_FDCWD, |index| int(call, index));
    let link = if dir == libc::AT_FDCWD { Link::Cwd } else { Link::Fd(dir) };
    let found = processes.stat_through(call.pid, link).ok()?;
    let birth = u64::try_from(found.stx_btime.tv_sec).ok()?.wrapping_mul(1_000_000_000);
    Some(Start {
        dev: u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
        ino: found.stx_ino,
        mount: found.stx_mnt_id,
        birth: birth.wrapping_add(found.stx_btime.tv_nsec.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_where_the_kernel_put_it() {
        let auxv: Vec<u8> =
            [6_u64, 4096, 7, 0x7f00, 0, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(base_of(&auxv), Some(0x7f00));
        assert_eq!(base_of(&auxv[..16]), None);
        let maps = "1000-2000 r--p 00000000 fe:01 17   /lib/ld.so\n\
                    2000-3000 r-xp 00001000 fe:01 17   /lib/ld.so\n\
                    4000-5000 r-xp 00000000 fe:01 18   /lib/libc.so with a name\n\
                    6000-7000 rw-p 00000000 00:00 0 \n\
                    8000-9000 rw-p 00000000 00:00 0    [stack]\n";
        let same = |one, other| same_file(maps.as_bytes(), one, other);
        assert!(same(0x1000, 0x2fff));
        assert!(!same(0x1000, 0x4000));
        assert!(!same(0x1000, 0x3000));
        assert!(!same(0x6000, 0x8000));
        assert!(!same(0x3000, 0x3001));
        // This program's own linker, and its own code.
        let linker = std::fs::read("/proc/self/auxv").ok().and_then(|auxv| base_of(&auxv));
        if let Some(linker) = linker {
            let pid = std::process::id();
            assert!(is_in_interpreter(pid, linker + 64));
            assert!(!is_in_interpreter(pid, is_in_interpreter as *const () as u64));
        }
    }
}
