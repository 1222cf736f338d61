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
//!
//! Paths in `/proc` are always told: its links mean something else at each look.

//!
//! # How it gets into a program
//!
//! The dynamic linker asks for `/etc/ld.so.preload` when it starts a program. That call is told, and so
//! the linker, and nobody else, is answered that the file is there and names one library more. So the
//! command's environment is as it would be without, programs that clear theirs have the recorder too,
//! and one that is statically linked, or of another architecture, is simply told of.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use txos_engine::object::Facets;
use txos_engine::readset::ReadSet;
use txos_recorder::area::{LIBRARY_PATH, PATH, Start};

use super::ahead::{Ahead, Told};
use super::process::Link;
use super::record::{int, open_follows};
use super::table::{At, Handler, OpenFlags, is_gated};
use super::{Supervisor, Verdict};
use crate::sys::seccomp::Call;

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
    /// Its dynamic linker has asked whether there is anything to preload.
    Asked,
}

/// What a transaction's recorders need.
#[derive(Debug)]
pub struct Recorder {
    area: Area,
    library: OwnedFd,
    /// The revision of [`super::moved::Moved`] that the generation stands for.
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

    /// The file behind one of the recorder's own paths, as a program wrote it.
    pub(super) fn file_at(&self, written: &[u8]) -> Option<OwnedFd> {
        if written == PATH.to_bytes() {
            return self.area.fd().try_clone_to_owned().ok();
        }
        if written != LIBRARY_PATH.to_bytes() {
            return None;
        }
        // The dynamic linker reads from it: the position must be its own.
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

    /// Whether this look, the first of a program, is the dynamic linker's question.
    pub(super) fn is_question(&mut self, pid: u32, written: &[u8]) -> bool {
        let Some(starting) = self.starting.get_mut(&pid) else { return false };
        if written == PRELOAD && *starting == Starting::Executed {
            *starting = Starting::Asked;
            return true;
        }
        self.starting.remove(&pid);
        false
    }

    /// Whether this opening is the dynamic linker's, of what it was told is there.
    fn is_sequel(&mut self, pid: u32, written: &[u8]) -> bool {
        if self.starting.is_empty() {
            return false;
        }
        self.starting.remove(&pid) == Some(Starting::Asked) && written == PRELOAD
    }

    /// Every look is told from now on.
    pub(super) fn turn_off(&mut self) {
        self.off = true;
        self.area.turn_off();
    }

    /// What was observed ahead and looked at becomes part of the read set.
    pub(super) fn settle(&mut self, reads: &mut ReadSet) {
        self.ahead.settle(reads, &self.area);
    }

    /// If paths lead elsewhere than before, nothing is known of them.
    pub(super) fn follow(&mut self, revision: u64, reads: &mut ReadSet) {
        if self.revision != revision {
            self.revision = revision;
            self.area.begin_generation();
            self.ahead.settle(reads, &self.area);
        }
    }
}

impl Supervisor {
    /// An open of one of the recorder's files, as the program wrote it.
    pub(super) fn open_for_recorder(&mut self, call: &Call) -> Option<Verdict> {
        let recorder = self.recorder.as_mut()?;
        let written = &self.scratch.written;
        if let Some(file) = recorder.file_at(written) {
            return Some(Verdict::Give(file));
        }
        if !recorder.is_sequel(call.pid, written) {
            return None;
        }
        let mut list = Vec::new();
        match self.open_in_view(call.pid, PRELOAD, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(there) => {
                // As it would be without the recorder. The question has observed the name before.
                let path = std::mem::take(&mut self.scratch.path);
                self.note_path(call.pid, &path, true, Facets::ENTRY | Facets::DATA | Facets::ATTRS);
                self.scratch.path = path;
                list.resize(PRELOAD_MAX, 0);
                let got = rustix::io::pread(&there, &mut list[..], 0).unwrap_or(0);
                list.truncate(got);
                list.push(b'\n');
            }
            Err(Errno::NOENT) => {}
            Err(_) => return None,
        }
        list.extend_from_slice(LIBRARY_PATH.to_bytes());
        list.push(b'\n');
        Some(
            crate::sys::area::list(&list).map_or(Verdict::Answer(Err(Errno::NOENT)), Verdict::Give),
        )
    }

    /// Reads ahead after a look that was told.
    pub(super) fn read_ahead(&mut self, call: &Call, handler: Handler) {
        let Some(recorder) = self.recorder.as_mut() else { return };
        let path = &self.scratch.path;
        if recorder.off
            || !is_gated(call.data.nr.into())
            || !recorder.ahead.is_of_use(&self.reads, path)
        {
            return;
        }
        // What the transaction itself moved is looked at under several names.
        if self.moved.may_concern(path) {
            return;
        }
        let (at, follow, facets) = match handler {
            Handler::Look(at, follow, facets) if !facets.intersects(Facets::XATTRS) => {
                (at, follow.of(call), facets)
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
        let told = Told { path, written, start, follow, facets };
        recorder.ahead.after(&told, &mut self.reads, &mut self.meeting, &recorder.area);
    }
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
