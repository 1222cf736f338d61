//! Light commits: small changes, made durable by one shared `fdatasync`. Bytes of files that stay, or
//! names of small files ([`names`]). What is not durable may be both, may append ([`growth`]), may move files, and may
//! give directories their times ([`times`]).
//!
//! # The steps, and what a death at each leaves
//!
//! | step | lock held | after kill -9 | after power loss |
//! |---|---|---|---|
//! | 1 take part: the commit lock, shared | commit lock | nothing | nothing |
//! | 2 wait for commits in flight that touch the same; validate; read the old bytes | + append | nothing | nothing |
//! | 3 slot, record, end of the log | + append, slot | nothing, or as 4 | nothing, or as 4 |
//! | 4 flush the log (shared; if durable) | + slot | redone by whoever comes next | old or new |
//! | 5 validate again, rename, write in place, append, set times | + slot | redone; names: or all taken back | new: redone by recovery |
//! | 6 free the slot | | done | new: redone by recovery |
//!
//! Before step 4 has ended nothing of it is in the tree, so nobody has seen anything that could be lost. A
//! commit that fails in step 5 marks its record void, durably, before it says so.
//!
//! # Invariants
//!
//! - Nobody validates against, or writes to, what a commit in flight touches: he finds its slot and
//!   waits for it. Commits wait only for such as have appended before them: there is no cycle.
//! - Whoever takes the commit lock for himself (a full commit, a revert, recovery) finds nobody in
//!   flight, finishes what the dead have left, and empties the log before he publishes anything.
//! - Light commits are in no history: there is nothing to show or to revert.

mod control;
#[cfg(all(feature = "fuzzing", not(loom)))]
pub(crate) mod fuzz;
mod group;
mod growth;
mod log;
mod marks;
mod names;
mod replay;
mod settled;
mod times;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;

pub(super) use self::control::is_of_an_earlier_boot;
use self::control::{
    APPEND, Control, EMPTIED, EMPTY, SLOTS, Slot, State, TOUCHES_MAX, Touch, slot_byte,
};
use self::log::{FileRecord, GrownRecord, HALF, HalfHeader, Log, RECORDS_AT, Record, TimeRecord};
pub use self::names::Ground;
use self::names::{Changes, MoveTarget, NameTarget};
use self::times::TimeTarget;
use super::recover::Recovered;
use super::{Options, Summary, acquire, inplace};
use crate::changeset::patch::Patch;
use crate::changeset::{Delta, What};
use crate::error::{Conflict, ConflictKind, Context, Error, Result};
use crate::id::TxId;
use crate::object::{Facets, FileId, FileKind};
use crate::path::{self, join, split};
use crate::readset::validate::ValidationRules;
use crate::readset::{Observation, Outcome, PAGE, ReadSet};
use crate::realm::{TxHandle, Watch};
use crate::store::Home;
use crate::sys;
use crate::version::{Stamp, Version, stat_at};

/// Most bytes that a light commit writes.
const BYTES_MAX: usize = 64 << 10;
/// Sessions kept for the next commits.
const SESSIONS_MAX: usize = 64;

/// A process's part in the light commits of one store.
#[derive(Debug)]
struct Shared {
    pid: u32,
    /// Spares the threads of a process the kernel's queue.
    append: Mutex<()>,
    group: group::Group,
    settled: settled::Settled,
    sessions: Mutex<Vec<Session>>,
}

impl Default for Shared {
    fn default() -> Self {
        Shared {
            pid: std::process::id(),
            append: Mutex::default(),
            group: group::Group::default(),
            settled: settled::Settled::default(),
            sessions: Mutex::default(),
        }
    }
}

impl Shared {
    /// This process's part; a child that was forked has another than its parent.
    fn of(home: &Home) -> Arc<Shared> {
        let shared = home.attached::<Shared>();
        if shared.pid == std::process::id() { shared } else { Arc::default() }
    }

    fn session(&self, home: &Home) -> Result<Session> {
        let kept = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| Session::open(home), Ok)
    }

    /// Keeps a session that holds no lock.
    fn keep(&self, session: Session) {
        let mut kept = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < SESSIONS_MAX {
            kept.push(session);
        }
    }

    /// Number of flushes of the log that this process has made.
    #[cfg(test)]
    fn flushes(&self) -> u64 {
        self.group.flushes.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// The files that one commit needs, opened for it alone: the locks go with them.
#[derive(Debug)]
struct Session {
    control: Control,
    log: Log,
    lock: OwnedFd,
    turnstile: OwnedFd,
    journal: Option<OwnedFd>,
    marks: marks::Marks,
    /// The slot it had last.
    slot: u32,
    /// The number that the next record has if nobody has appended one since this session did and freed that slot; else 0.
    quiet: u64,
}

impl Session {
    fn open(home: &Home) -> Result<Session> {
        let log = match Log::open(home, true)? {
            Some(log) => log,
            None => return Err(Error::io("opening", home.dir().join("light"), Errno::NOENT)),
        };
        Ok(Session {
            control: Control::open(home)?,
            log,
            lock: sys::kept(home.open_commit_lock()?),
            turnstile: sys::kept(home.open_turnstile()?),
            journal: None,
            marks: marks::Marks::default(),
            slot: 0,
            quiet: 0,
        })
    }

    /// Takes part: from now on nobody has the commit lock for himself, and everything an earlier
    /// crash has left is in order.
    fn enter(&mut self, home: &Home) -> Result<()> {
        loop {
            home.flock(&self.turnstile, FlockOperation::LockShared)?;
            let entered = home.flock(&self.lock, FlockOperation::LockShared);
            home.flock(&self.turnstile, FlockOperation::Unlock)?;
            entered?;
            if self.is_in_order(home)? {
                return Ok(());
            }
            self.leave(home)?;
            let _lock = home.lock_commits()?;
            let recovered = super::recover::recover_locked(home, &super::Silent)?.1;
            recovered.notes.iter().for_each(|note| tracing::warn!("{note}"));
            resolve_all(home, true, &mut Recovered::default())?;
        }
    }

    /// Whether no publish was interrupted, and the log is in use in this boot.
    fn is_in_order(&mut self, home: &Home) -> Result<bool> {
        if self.journal.is_none() {
            let path = home.dir().join("journal");
            self.journal = match sys::open_record(&path) {
                Ok(fd) => Some(sys::kept(fd)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
                Err(e) => return Err(Error::io("opening the journal", path, e)),
            };
        }
        let interrupted = self.journal.as_ref().is_some_and(crate::journal::is_busy);
        Ok(!interrupted && self.control.is_current()?)
    }

    /// Lets go of the commit lock. A session that fails to is to be dropped: closing the file lets go as well.
    fn leave(&self, home: &Home) -> Result<()> {
        home.flock(&self.lock, FlockOperation::Unlock)
    }
}

/// One file that is to be written.
struct Target {
    path: Vec<u8>,
    base: Version,
    mtime: Option<Stamp>,
    /// Within its size.
    writes: Vec<(u64, Vec<u8>)>,
    /// What is put behind its end.
    tail: Vec<u8>,
    /// Whether a change of other pages of it is no conflict.
    by_pages: bool,
    file: OwnedFd,
}

/// What a light commit does to bytes, if it can: every delta a patch of a file that loses nothing by being written to,
/// and that does not become shorter; nor longer, if the commit is durable.
fn targets(
    grounds: &[Ground],
    deltas: &[&Delta],
    reads: &ReadSet,
    options: &Options,
) -> Result<Option<Vec<Target>>> {
    /// Set-id bits, and what could have capabilities: writing takes them away.
    const FRAGILE: u32 = 0o6111;
    let mut targets: Vec<Target> = Vec::with_capacity(deltas.len());
    let mut bytes = 0;
    for delta in deltas {
        let (What::Patch { base, writes, size, attrs }, Some(Ground { root, .. })) =
            (&delta.what, grounds.get(delta.layer))
        else {
            return Ok(None);
        };
        let mut patch = Patch::new(writes.clone(), None);
        bytes += patch.writes.iter().map(|(_, b)| b.len()).sum::<usize>();
        let after = patch.len_after(base.size);
        let tail = match after > base.size {
            // Behind a hole it is for the full commit, and where the kernel would end the process.
            true => inplace::appended(&patch, base.size)
                .filter(|_| !options.durable && growth::may_reach(after)),
            false => Some(Vec::new()),
        };
        let Some(tail) = tail else { return Ok(None) };
        if delta.path != delta.stable_path
            || delta.nameless
            || delta.path.is_empty()
            || bytes > BYTES_MAX
            || size.is_some_and(|size| size != after)
            || !attrs.is_only_mtime()
            || base.kind() != FileKind::File
            || base.mode & FRAGILE != 0
            || targets.iter().any(|t| t.base.id == base.id)
        {
            return Ok(None);
        }
        let path = join(root.as_os_str().as_bytes(), &delta.path);
        let file = match replay::open(&path, base.id, OFlags::RDWR) {
            Ok(Some((_, file))) => file,
            Ok(None) => return Err(conflict(&path, ConflictKind::NotThere)),
            // Its mode may forbid what the full commit can do nevertheless.
            Err(_) => return Ok(None),
        };
        let seen = reads.get(&path);
        let by_pages = seen.is_some_and(Observation::is_by_pages);
        let mtime = attrs.mtime.map(|(_, new)| new);
        patch.writes.retain_mut(|(at, bytes)| {
            bytes.truncate(usize::try_from(base.size.saturating_sub(*at)).unwrap_or(usize::MAX));
            !bytes.is_empty()
        });
        let (base, writes) = (*base, patch.writes);
        targets.push(Target { path, base, mtime, writes, tail, by_pages, file });
    }
    // The full commit holds back opens of several objects that change at once.
    let gated = options.gate && targets.len() > 1 && crate::rights::is_privileged();
    Ok((!gated).then_some(targets))
}

/// What a light commit does: if it is durable, one of the two.
struct Work {
    /// To bytes of files that stay.
    files: Vec<Target>,
    /// To names of files.
    changes: Changes,
    /// To times of directories.
    times: Vec<TimeTarget>,
}

impl Work {
    fn of(
        grounds: &[Ground],
        deltas: &[Delta],
        reads: &ReadSet,
        options: &Options,
    ) -> Result<Option<Work>> {
        let is_patch = |delta: &&Delta| matches!(delta.what, What::Patch { .. });
        let is_attrs = |delta: &&Delta| matches!(delta.what, What::Attrs { .. });
        let (times, others): (Vec<&Delta>, Vec<&Delta>) = deltas.iter().partition(is_attrs);
        let (patches, names): (Vec<&Delta>, Vec<&Delta>) = others.into_iter().partition(is_patch);
        // The gate holds back opens of what is there.
        let gated = options.gate && !names.is_empty();
        let both = options.durable && !patches.is_empty() && !names.is_empty();
        let timed = options.durable && !times.is_empty();
        if deltas.is_empty() || !options.paths.is_empty() || gated || both || timed {
            return Ok(None);
        }
        let Some(files) = targets(grounds, &patches, reads, options)? else { return Ok(None) };
        let changes = match names[..] {
            [] => Changes::default(),
            _ => match names::changes(grounds, &names)? {
                Some(changes) => changes,
                None => return Ok(None),
            },
        };
        let Some(times) = times::targets(grounds, &times, &changes)? else { return Ok(None) };
        let keeps = || changes.names.iter().all(NameTarget::keeps_order);
        let is_lost = options.durable && (!changes.moves.is_empty() || !keeps());
        let bytes = |t: &Target| {
            t.tail.len() + t.writes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
        };
        let fits = changes.bytes() + files.iter().map(bytes).sum::<usize>() <= BYTES_MAX;
        // A name that changes is no way to a file that stays.
        let apart = files.iter().all(|file| changes.ends().all(|end| end.path != file.path));
        Ok((!is_lost && fits && apart).then_some(Work { files, changes, times }))
    }

    /// A path of it, to tell of.
    fn path(&self) -> &[u8] {
        let file = self.files.first().map(|target| &target.path[..]);
        let name = self.changes.ends().next().map(|end| &end.path[..]);
        let time = self.times.first().map(|target| &target.path[..]);
        file.or(name).or(time).unwrap_or_default()
    }
}

/// The file that stands for names in [`Touch`]es, their pages being digests of paths: two paths with one
/// digest wait for each other, which does no harm.
const NAMES: FileId = FileId { dev: u64::MAX, ino: u64::MAX };

/// The page of a directory by which commits of names that are durable keep apart from those that are not: what one of these changes
/// of a directory is on the disk at no known time, and the other must not take it for its own doing ([`settled`]). It is
/// no name's.
const ORDER: u64 = 1 << 33;

/// A name as a page: of [`NAMES`] the whole path, of a directory the name in it. Neither is 0 or the last,
/// which belong to whoever looks at the whole directory.
fn digest(name: &[u8]) -> u64 {
    1 + u64::from(crc32fast::hash(name))
}

/// What a commit touches, for those who come while it is in flight; `None` if that is too much.
fn touches(work: &Work, reads: &ReadSet, durable: bool) -> Option<Vec<Touch>> {
    let mut all: Vec<Touch> = Vec::new();
    let mut add = |touch: Touch| {
        if let Some(last) = all.last_mut()
            && (last.file, last.writes) == (touch.file, touch.writes)
            && touch.from <= last.to.saturating_add(1)
            && touch.to >= last.from
        {
            (last.from, last.to) = (last.from.min(touch.from), last.to.max(touch.to));
        } else {
            all.push(touch);
        }
        all.len() <= TOUCHES_MAX
    };
    let whole = |base: Version| Touch { file: base.id, from: 0, to: u64::MAX, writes: true };
    for end in work.changes.ends() {
        let name = |file, digest| Touch { file, from: digest, to: digest, writes: true };
        let fits = add(name(NAMES, digest(&end.path))) && add(name(end.dir_id, digest(&end.name)));
        if !fits {
            return None;
        }
    }
    let ends = || work.changes.ends();
    for (at, dir) in ends().map(|end| end.dir_id).enumerate() {
        let is_first = ends().take(at).all(|end| end.dir_id != dir);
        if is_first && !add(Touch { file: dir, from: ORDER, to: ORDER, writes: !durable }) {
            return None;
        }
    }
    for target in &work.times {
        // Names that others change give the directory a time as well. Theirs may not get lost.
        if !add(Touch { file: target.id, from: 0, to: u64::MAX, writes: true }) {
            return None;
        }
    }
    let replaced = work.changes.names.iter().filter_map(|target| target.base);
    let moved = work.changes.moves.iter().map(|target| target.source);
    let grown = work.files.iter().filter(|target| !target.tail.is_empty()).map(|t| t.base);
    for base in replaced.chain(moved).chain(grown) {
        if !add(whole(base)) {
            return None;
        }
    }
    for target in &work.files {
        for (at, bytes) in &target.writes {
            let (from, to) = (at / PAGE, (at + bytes.len() as u64 - 1) / PAGE);
            if !add(Touch { file: target.base.id, from, to, writes: true }) {
                return None;
            }
        }
    }
    let versions = Facets::ATTRS | Facets::DATA | Facets::XATTRS | Facets::WRITE | Facets::APPEND;
    let own = |path: &[u8]| work.changes.ends().any(|end| end.path == path);
    for (path, seen) in reads.iter() {
        let version = match seen.outcome {
            Outcome::Present(version) => Some(version),
            Outcome::Absent(_) => None,
        };
        // A directory is no commit's of this kind, only the names in it. They are what a listing tells; of its attributes
        // they change times, size and number of links, which nobody validates.
        if let Some(version) = version.filter(|version| version.kind() == FileKind::Dir) {
            let all = Touch { file: version.id, from: 0, to: u64::MAX, writes: false };
            if seen.facets().intersects(Facets::LISTING) && !add(all) {
                return None;
            }
            continue;
        }
        let name = digest(&path);
        if !own(&path) && !add(Touch { file: NAMES, from: name, to: name, writes: false }) {
            return None;
        }
        let Some(version) = version.filter(|version| version.kind() == FileKind::File) else {
            continue;
        };
        let read = |from, to| Touch { file: version.id, from, to, writes: false };
        if let Some(pages) = seen.pages_read() {
            for page in pages {
                if !add(read(page, page)) {
                    return None;
                }
            }
        } else if seen.facets().intersects(versions) && !add(read(0, u64::MAX)) {
            return None;
        }
    }
    Some(all)
}

fn conflict(path: &[u8], what: ConflictKind) -> Error {
    Error::Conflict(vec![Conflict { path: path::from_bytes(path), what, when: None }])
}

/// Commits a small change by one record in a log, one `fdatasync` that concurrent commits share (if
/// durable), and then the bytes in place or the files under their names.
///
/// `grounds` are the layers that the deltas name. `handle` as for [`super::commit`], with
/// [`acquire::acquire_for_log`]. `None`: it is not such a change set, nothing was done, and the full commit
/// has to be taken. It is one in two cases, each with 64 KiB altogether:
///
/// - Every delta is a [`What::Patch`] within the size of its file, with no change of attributes but the
///   time, of files that are not executable; with the gate, of one file.
/// - Every delta is a [`What::Put`] of a regular file without extended attributes, over nothing or a file with
///   one name, or a [`What::Remove`] of such a file; without the gate, and in the initial user namespace.
///
/// Without `durable` it may be of both kinds, a patch may append, and a delta may be a [`What::Move`] of a regular
/// file to where nothing is, or a [`What::Attrs`] that gives a directory a time and nothing else: as names that came and
/// went left it, or to keep the one that it had. Somebody else's later time stays, so a time that was asked for is for the
/// full commit.
///
/// And if not more is read and changed than a slot can say: some 40 files, names or ranges of pages, each
/// changed name counting as two or three.
///
/// A light commit is in no history, and can't be reverted.
///
/// # Errors
/// As [`super::commit`]; [`Error::Unfinished`] if neither writing in place nor taking it back worked.
pub fn light(
    home: &Home,
    grounds: &[Ground],
    deltas: &[Delta],
    reads: &ReadSet,
    handle: Option<&mut TxHandle<'_>>,
    options: &Options,
) -> Result<Option<Summary>> {
    let Some(work) = Work::of(grounds, deltas, reads, options)? else { return Ok(None) };
    let Some(touches) = touches(&work, reads, options.durable) else { return Ok(None) };
    let id = match handle.as_ref().and_then(|t| t.id()) {
        Some(id) => id,
        None => TxId::random().at("drawing an id for", home.dir())?,
    };
    let watch = handle.as_ref().map(|handle| handle.watch());
    // From here on no participant can stop it. Not under a lock: it may have to wait for its turn.
    if let Some(handle) = handle {
        let published = match work.changes.is_empty() {
            true => handle.publish_bytes(),
            false => handle.publish(),
        };
        let lost = |stop| Error::Conflict(vec![acquire::conflict(work.path(), &stop)]);
        published.map_err(lost)?;
    }
    let shared = Shared::of(home);
    let mut session = shared.session(home)?;
    session.enter(home)?;
    let commit =
        Commit { shared: &shared, work: &work, touches: &touches, reads, watch, options, id };
    // A session that failed may hold locks: they go with it.
    let switched = commit.run(&mut session)?;
    if switched && let Err(error) = empty_other(&session) {
        // Whoever needs the room tries again.
        tracing::warn!(%error, "the log of light commits could not be emptied");
    }
    match session.leave(home) {
        Ok(()) => shared.keep(session),
        Err(_) => drop(session),
    }
    work.changes.names.iter().for_each(NameTarget::forget_old);
    Ok(Some(Summary::new(id, deltas.len() as u64)))
}

/// Flushes what light commits have written in place, and empties their log: for an orderly end.
///
/// # Errors
/// [`Error::Io`]; nothing is lost then, recovery does it.
pub fn checkpoint(home: &Home) -> Result<()> {
    let _lock = home.lock_commits()?;
    resolve_all(home, false, &mut Recovered::default())
}

/// Carries out what dead processes have left half done in the log, before their private copies go. The log is not
/// emptied, unless it is of another boot.
///
/// # Errors
/// [`Error::Io`]: it can be repeated.
pub fn finish_dead(home: &Home) -> Result<()> {
    let _lock = home.lock_commits()?;
    let Some(log) = Log::open(home, false)? else { return Ok(()) };
    let control = Control::open(home)?;
    match control.state()? {
        Some(state) => finish_slots(&control, &log, state, &mut Recovered::default()).map(drop),
        None => resolve_all(home, false, &mut Recovered::default()),
    }
}

/// Discards the places for private copies of processes that died, after what the log says of them was carried out.
///
/// # Errors
/// [`Error::Io`] with the step; it can be repeated.
pub fn discard_dead_staging(home: &Home) -> Result<()> {
    for id in home.staging_places()? {
        match home.load(id) {
            Ok(tx) if tx.meta.state == crate::store::State::Active => {
                finish_dead(home)?;
                home.discard_staging(tx)?;
            }
            // It was published after all.
            Ok(_) | Err(Error::NoSuchTransaction(_)) => home.forget_staging(id),
            // Its process lives.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Finishes what is in any slot: its owner is dead, as the caller has the commit lock for himself. Gives the
/// state afterwards.
fn finish_slots(
    control: &Control,
    log: &Log,
    state: State,
    recovered: &mut Recovered,
) -> Result<State> {
    for number in used_slots(&state) {
        resolve_slot(control, log, &state, number, recovered)?;
    }
    let state = State { used: 0, ..state };
    control.write_state(&state)?;
    Ok(state)
}

/// One commit.
struct Commit<'a> {
    shared: &'a Shared,
    work: &'a Work,
    touches: &'a [Touch],
    reads: &'a ReadSet,
    /// Its place in the realm: commits of other stores are kept apart by no lock.
    watch: Option<Watch<'a>>,
    options: &'a Options,
    id: TxId,
}

/// A slot whose byte is locked, until this is dropped or the slot taken out.
struct HeldSlot<'c> {
    control: &'c Control,
    slot: Option<u32>,
}

impl Drop for HeldSlot<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.control.unlock(slot_byte(slot));
        }
    }
}

/// Where the record of a commit is.
struct Place {
    half: usize,
    offset: u64,
    /// How much of the log has to be flushed for it.
    written: u64,
    slot: u32,
    /// Nobody else was in flight when it was written, and its number.
    alone: bool,
    number: u64,
    /// The log holds records of durable commits.
    beside_durable: bool,
    /// It was the first of its half: the other one is to be emptied.
    switched: bool,
}

impl Commit<'_> {
    /// Steps 2 to 6. Gives whether the log went over to its other half.
    fn run(&self, session: &mut Session) -> Result<bool> {
        let names = &self.work.changes.names;
        let mut settled = !self.options.durable || names.is_empty();
        let (place, found) = loop {
            match self.append(session, settled)? {
                Tried::Appended(place, found) => break (place, found),
                // What was validated is what is flushed now, and is validated once more.
                Tried::Unsettled => {
                    self.shared.settled.flush(names)?;
                    settled = true;
                }
                Tried::WaitFor(slot) => {
                    session.control.lock(slot_byte(slot))?;
                    session.control.unlock(slot_byte(slot));
                }
                Tried::NoRoom => empty_other(session)?,
            }
        };
        let flushed = match self.options.durable {
            true => self.shared.group.flush(&session.control, &session.log, place.written),
            false if place.beside_durable => self.flush_before(),
            false => Ok(()),
        };
        let written = flushed
            .and_then(|()| self.validate())
            .and_then(|()| self.still_as_read(&found))
            .and_then(|()| self.publish_names(&found))
            .and_then(|shown| {
                let follows = !self.work.files.is_empty() || !self.work.times.is_empty();
                let stages = follows && !self.work.changes.is_empty();
                let note = |progress| session.control.set_progress(place.slot, progress);
                let noted = if stages { note(control::BYTES) } else { Ok(()) };
                let written = noted.and_then(|()| self.write(session, &place, &found, &shown));
                written.map_err(|cause| match cause {
                    // Then the record stands.
                    Error::Unfinished { .. } => cause,
                    // A process that dies now has not come to the bytes.
                    cause if stages => match note(control::NAMES) {
                        Ok(()) => self.taken_back(cause, self.work.changes.take_back(self.id)),
                        Err(noting) => self.unfinished(cause, noting),
                    },
                    cause => cause,
                })
            });
        if let Err(cause) = written {
            if matches!(cause, Error::Unfinished { .. }) {
                // The record stands, and the slot with it: whoever comes next redoes it.
                return Err(cause);
            }
            return Err(match self.call_off(session, &place) {
                Ok(()) => cause,
                Err(undoing) => Error::Unfinished {
                    id: self.id,
                    cause: Box::new(cause),
                    undoing: Box::new(undoing),
                },
            });
        }
        for (at, target) in names.iter().enumerate() {
            let store = &target.record.store;
            if names.iter().take(at).all(|before| before.record.store != *store) {
                session.marks.set(store, place.slot, place.number);
            }
        }
        // It is done. Not freed, the slot is by whoever comes next, who finds everything in place.
        session.quiet = match session.control.free(place.slot) {
            Ok(()) => place.number + 1,
            Err(error) => {
                tracing::warn!(%error, "the slot of a light commit is left to the next one");
                0
            }
        };
        session.control.unlock(slot_byte(place.slot));
        session.slot = place.slot;
        Ok(place.switched)
    }

    /// Steps 2 and 3. `settled`: what the names lead to now is on the disk or in the log.
    fn append(&self, session: &Session, settled: bool) -> Result<Tried> {
        let control = &session.control;
        let queue = self.shared.append.lock().unwrap_or_else(PoisonError::into_inner);
        control.lock(APPEND)?;
        let tried = self.try_append(session, settled);
        control.unlock(APPEND);
        drop(queue);
        tried
    }

    fn try_append(&self, session: &Session, settled: bool) -> Result<Tried> {
        let (control, log) = (&session.control, &session.log);
        let Some(mut state) = control.state()? else {
            return Err(Error::io("reading", log.path.clone(), Errno::STALE));
        };
        let found = state;
        let mut alone = true;
        // The session's own slot, if it is free: its byte is kept.
        let mut own = HeldSlot { control, slot: None };
        for slot in used_slots(&state) {
            if control.try_lock(slot_byte(slot))? {
                let held = HeldSlot { control, slot: Some(slot) };
                state.used &= !(1 << slot);
                // Who appends changes the number: as long as it has not changed the slot is as this session left it. (Who died on the
                // way has not changed it: what that wrote lies where this record goes.)
                if slot == session.slot && session.quiet == state.seq {
                    own = held;
                } else {
                    // Free, or its owner is dead.
                    resolve_slot(control, log, &state, slot, &mut Recovered::default())?;
                }
            } else if let Some(other) = control.slot(slot)?
                && other.touches.iter().any(|t| self.touches.iter().any(|o| o.meets(t)))
            {
                return Ok(Tried::WaitFor(slot));
            } else {
                alone = false;
            }
        }
        self.validate()?;
        if self.options.durable {
            self.work.changes.names.iter().try_for_each(NameTarget::is_as_before)?;
        }
        if !settled && !self.shared.settled.are_known(&self.work.changes.names) {
            return Ok(Tried::Unsettled);
        }
        let durable = self.options.durable;
        let beside_durable = durable || state.last_durable != 0;
        let mut record = Record::new(state.seq, self.id, durable);
        (record.files, record.grown) = self.read_old(beside_durable)?;
        record.names = self.work.changes.names.iter().map(|n| n.record.clone()).collect();
        record.moves = self.work.changes.moves.iter().map(MoveTarget::record).collect();
        record.times = self.work.times.iter().map(TimeTarget::record).collect::<Result<_>>()?;
        let length = record.to_bytes(0).len() as u64;
        let switched = state.end == EMPTIED || state.end + length > HALF;
        if switched {
            if state.other_full != 0 {
                return Ok(Tried::NoRoom);
            }
            if let Some(slot) = own.slot {
                // A record that nobody counted would stay where this one does not come over it.
                resolve_slot(control, log, &found, slot, &mut Recovered::default())?;
            }
            state.other_full = u64::from(state.end != EMPTIED);
            (state.half, state.end, state.epoch) =
                (1 - state.half.min(1), RECORDS_AT, state.epoch + 1);
            let header = HalfHeader { epoch: state.epoch, first: state.seq, clean: false };
            log.write_half(half(state.half), header)?;
        }
        // Of a free slot somebody who has waited for it may have the byte, for a moment.
        let first = session.slot;
        let mut slots = (0..SLOTS).map(|n| (first + n) % SLOTS);
        let slot = match own.slot.take() {
            Some(slot) => slot,
            None => loop {
                match slots.next() {
                    None => return Ok(Tried::WaitFor(first)),
                    Some(slot) if state.used & 1 << slot != 0 => {}
                    Some(slot) if control.try_lock(slot_byte(slot))? => break slot,
                    Some(_) => {}
                }
            },
        };
        record.slot = slot;
        let bytes = record.to_bytes(state.epoch);
        // Whoever comes now finds the slot, and by the end whether its record counts.
        state.used |= 1 << slot;
        if switched || found.used & 1 << slot == 0 {
            control.write_state(&state)?;
        }
        let (at, offset) = (half(state.half), state.end);
        let (epoch, touches) = (state.epoch, self.touches.to_vec());
        let progress = if self.work.changes.is_empty() { control::BYTES } else { control::NAMES };
        control.set_slot(slot, &Slot { half: state.half, epoch, offset, progress, touches })?;
        log.write(at, offset, &bytes)?;
        if durable {
            state.last_durable = record.seq;
        }
        state.seq += 1;
        state.end += length;
        state.written += length;
        control.write_state(&state)?;
        let switched = switched && state.other_full != 0;
        let (written, number) = (state.written, record.seq);
        let place =
            Place { half: at, offset, written, slot, alone, number, beside_durable, switched };
        let Record { files, grown, times, .. } = record;
        Ok(Tried::Appended(place, Found { files, grown, times }))
    }

    fn validate(&self) -> Result<()> {
        let terms = ValidationRules {
            isolation: self.options.isolation,
            merge_append: self.options.merge_append,
        };
        let conflicts = self.reads.validate_beside(terms, self.watch);
        if conflicts.is_empty() { Ok(()) } else { Err(Error::Conflict(conflicts)) }
    }

    /// The file that is at a target's path now, if it is still the one. The read set was validated just before: what
    /// the path leads to is known if that says so.
    fn look(&self, target: &Target) -> Result<Version> {
        let gone = || conflict(&target.path, ConflictKind::NotThere);
        let Some((dir, name)) = split(&target.path) else { return Err(gone()) };
        let is_validated = self.reads.get(&target.path).is_some_and(|seen| {
            seen.facets().contains(Facets::WRITE)
                && matches!(seen.outcome, Outcome::Present(version) if version.id == target.base.id)
        });
        let now = match is_validated {
            true => stat_at(target.file.as_fd(), b"", AtFlags::EMPTY_PATH),
            false => sys::open_dir_canonical(dir)
                .and_then(|dir| stat_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)),
        };
        match now {
            Ok(now) if now.id != target.base.id => Err(gone()),
            Ok(now) if !now.same_owner_and_mode(&target.base) => {
                Err(conflict(&target.path, ConflictKind::OwnerOrMode))
            }
            Ok(now) => Ok(now),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(gone()),
            Err(e) => Err(Error::io("looking at", path::from_bytes(&target.path), e)),
        }
    }

    /// What is overwritten, and where what is appended comes, as a record says it. `timed`: recovery has to know each
    /// file's time, by which it tells whether somebody has written to the file since.
    fn read_old(&self, timed: bool) -> Result<(Vec<FileRecord>, Vec<GrownRecord>)> {
        let mut files = Vec::with_capacity(self.work.files.len());
        let mut grown = Vec::new();
        for target in &self.work.files {
            let now = self.look(target)?;
            if now.size != target.base.size {
                return Err(conflict(&target.path, ConflictKind::Content));
            }
            if now != target.base && !target.by_pages {
                return Err(conflict(&target.path, ConflictKind::Changed));
            }
            let mut pieces = Vec::with_capacity(target.writes.len());
            for (at, new) in &target.writes {
                let old = read_exactly(target, *at, new.len())?;
                pieces.push((*at, old, new.clone()));
            }
            let (path, id) = (target.path.clone(), target.base.id);
            let mtime = target.mtime.or_else(|| timed.then(Stamp::now));
            if !target.tail.is_empty() {
                let (length, tail, path) = (now.size, target.tail.clone(), path.clone());
                grown.push(GrownRecord { path, id, mtime, length, tail });
            }
            files.push(FileRecord { path, id, mtime, pieces });
        }
        Ok((files, grown))
    }

    /// Whether what is to be overwritten is still what the record says. Other pages may have been
    /// changed by other light commits meanwhile.
    fn still_as_read(&self, found: &Found) -> Result<()> {
        for (target, file) in self.work.files.iter().zip(&found.files) {
            let now = self.look(target)?;
            if now == target.base {
                continue;
            }
            if now.size != target.base.size {
                return Err(conflict(&target.path, ConflictKind::Content));
            }
            for (at, old, _) in &file.pieces {
                if read_exactly(target, *at, old.len())? != *old {
                    return Err(conflict(&target.path, ConflictKind::Content));
                }
            }
        }
        Ok(())
    }

    /// Writes in place, appends, and sets times; on failure everything is put back.
    /// `shown`: the times that directories have as far as it is this commit's doing.
    fn write(
        &self,
        session: &Session,
        place: &Place,
        found: &Found,
        shown: &[Stamp],
    ) -> Result<()> {
        let mut begun = Begun::default();
        let note = |progress| session.control.set_progress(place.slot, progress);
        let Err(cause) = self.write_all(found, shown, &mut begun, &note) else { return Ok(()) };
        let io = |e| Error::io("undoing", path::from_bytes(self.work.path()), e);
        let undone = begun
            .undo(&note, io)
            .and_then(|()| restore_times(session, place, &begun.times).map_err(io));
        Err(match undone {
            Ok(()) => cause,
            Err(undoing) => self.unfinished(cause, undoing),
        })
    }

    /// What is appended comes last: it is the least to be taken out again. `note` is told the progress before each append.
    fn write_all<'s>(
        &'s self,
        found: &'s Found,
        shown: &[Stamp],
        begun: &mut Begun<'s>,
        note: &impl Fn(u64) -> Result<()>,
    ) -> Result<()> {
        let files = || self.work.files.iter().zip(&found.files);
        let at = |target: &Target, e: Errno| match e {
            Errno::BUSY => conflict(&target.path, ConflictKind::Content),
            e => Error::io("writing", path::from_bytes(&target.path), e),
        };
        for (target, file) in files() {
            let io = |e| at(target, e);
            let before = stat_at(target.file.as_fd(), b"", AtFlags::EMPTY_PATH).map_err(io)?;
            begun.times.push((target, before.mtime));
            for (offset, old, new) in &file.pieces {
                begun.pieces.push((target, *offset, old));
                sys::write_all_at(target.file.as_fd(), new, *offset).map_err(io)?;
            }
            if let Some(growth) = found.growth(target) {
                growth::reserve(&target.file, growth).map_err(io)?;
            }
        }
        for (target, file) in files() {
            let io = |e| at(target, e);
            let mut is_last = true;
            if let Some(growth) = found.growth(target) {
                note(control::TAILS + begun.grown.len() as u64)?;
                begun.grown.push((target, Vec::new()));
                let (_, pieces) = begun.grown.last_mut().ok_or_else(|| io(Errno::IO))?;
                is_last = growth::append(&target.file, growth, pieces).map_err(io)?;
            }
            // Who has appended since has given it a time of its own.
            if let Some(mtime) = file.mtime.filter(|_| is_last) {
                set_mtime(&target.file, mtime).map_err(io)?;
            }
        }
        for ((target, record), shown) in self.work.times.iter().zip(&found.times).zip(shown) {
            let io = |e| Error::io("setting the time of", path::from_bytes(&target.path), e);
            let given = target.publish(record, *shown).map_err(io)?;
            begun.dated.extend(given.map(|given| (target, record, given)));
        }
        Ok(())
    }

    /// Puts files under their names and takes others away; on failure everything is taken back. Gives the times that
    /// directories that get one show then, if that is this commit's doing alone; else what they had before.
    fn publish_names(&self, found: &Found) -> Result<Vec<Stamp>> {
        let changes = &self.work.changes;
        let mut last = None;
        for end in changes.ends() {
            if last != Some(end.dir_id) {
                end.is_reached()?;
                last = Some(end.dir_id);
            }
        }
        let follows = self.options.durable && !changes.names.is_empty();
        let following = follows.then(|| self.shared.settled.follow(&changes.names));
        let times = || self.work.times.iter().zip(&found.times);
        let mut shown: Vec<Stamp> = found.times.iter().map(|record| record.before).collect();
        let mut as_found = Vec::with_capacity(shown.len());
        for (target, record) in times() {
            as_found.push(target.is_own && target.now()? == record.before);
        }
        let published = changes.publish(self.id);
        for ((shown, is), (target, _)) in shown.iter_mut().zip(as_found).zip(times()) {
            // Of one that can't be looked at nobody knows; it gets no time.
            if let Some(now) = is.then(|| target.now().ok()).flatten() {
                *shown = now;
            }
        }
        if let (Ok(()), Some(following)) = (&published, following) {
            following.note(&changes.names);
        }
        published.map_err(|(cause, back)| {
            let flushed = || match follows {
                true => settled::flush_taken_back(changes.names.iter().map(|n| &n.end.path[..])),
                false => Ok(()),
            };
            self.taken_back(cause, back.and_then(|()| flushed()))
        })?;
        Ok(shown)
    }

    fn taken_back(&self, cause: Error, back: std::result::Result<(), Errno>) -> Error {
        let io = |e| Error::io("undoing", path::from_bytes(self.work.path()), e);
        match back {
            Ok(()) => cause,
            Err(undoing) => self.unfinished(cause, io(undoing)),
        }
    }

    fn unfinished(&self, cause: Error, undoing: Error) -> Error {
        Error::Unfinished { id: self.id, cause: Box::new(cause), undoing: Box::new(undoing) }
    }

    /// What a durable commit has put into a file that is moved or appended to now, recovery would look for under its
    /// name, or tell by its time. So it is flushed first.
    fn flush_before(&self) -> Result<()> {
        let io = |path: &[u8], e| Error::io("flushing", path::from_bytes(path), e);
        for target in self.work.files.iter().filter(|target| !target.tail.is_empty()) {
            sys::fdatasync(target.file.as_fd()).map_err(|e| io(&target.path, e))?;
        }
        for target in &self.work.changes.moves {
            match target.from.open_file(&target.source) {
                Ok(Some(file)) => {
                    sys::fdatasync(file.as_fd()).map_err(|e| io(&target.from.path, e))?;
                }
                Ok(None) => return Err(conflict(&target.from.path, ConflictKind::NotThere)),
                // It may not be read: then everything is.
                Err(_) => rustix::fs::sync(),
            }
        }
        Ok(())
    }

    /// Makes the record count for nothing, durably, before anybody is told that it failed.
    fn call_off(&self, session: &Session, place: &Place) -> Result<()> {
        session.log.void(place.half, place.offset)?;
        if self.options.durable {
            session.log.flush()?;
        }
        // Not freed, whoever comes next finds that its record is void.
        if let Err(error) = session.control.free(place.slot) {
            tracing::warn!(%error, "the slot of a light commit is left to the next one");
        }
        session.control.unlock(slot_byte(place.slot));
        Ok(())
    }
}

/// What was written so far.
#[derive(Default)]
struct Begun<'s> {
    /// The times that the files had.
    times: Vec<(&'s Target, Stamp)>,
    /// Where, and what was there.
    pieces: Vec<(&'s Target, u64, &'s [u8])>,
    /// Where what was appended came to be.
    grown: Vec<(&'s Target, Vec<growth::Piece>)>,
    /// The directories whose times are set, and to what.
    dated: Vec<(&'s TimeTarget, &'s TimeRecord, Stamp)>,
}

impl Begun<'_> {
    fn undo(&self, note: &impl Fn(u64) -> Result<()>, io: impl Fn(Errno) -> Error) -> Result<()> {
        for (target, record, given) in self.dated.iter().rev() {
            target.take_back(record, *given).map_err(&io)?;
        }
        for (at, (target, pieces)) in self.grown.iter().enumerate().rev() {
            note(control::TAILS + at as u64)?;
            growth::take_out(&target.file, pieces).map_err(&io)?;
        }
        if !self.grown.is_empty() {
            note(control::BYTES)?;
        }
        let mut back = self.pieces.iter();
        back.try_for_each(|(target, at, old)| sys::write_all_at(target.file.as_fd(), old, *at))
            .map_err(io)
    }
}

/// After the bytes were written back: the times that the files had before. Other pages of them may
/// have been written by other light commits meanwhile: then the time is theirs.
fn restore_times(
    session: &Session,
    place: &Place,
    times: &[(&Target, Stamp)],
) -> std::result::Result<(), Errno> {
    let control = &session.control;
    if !place.alone || control.lock(APPEND).is_err() {
        return Ok(());
    }
    let still = matches!(control.state(), Ok(Some(state)) if state.seq == place.number + 1);
    let restored = times
        .iter()
        .filter(|_| still)
        .try_for_each(|(target, time)| set_mtime(&target.file, *time));
    control.unlock(APPEND);
    restored
}

/// What was found in the files that are written to, as the record says it.
struct Found {
    /// For each.
    files: Vec<FileRecord>,
    /// For each that grows.
    grown: Vec<GrownRecord>,
    /// For each directory that gets a time.
    times: Vec<TimeRecord>,
}

impl Found {
    fn growth(&self, target: &Target) -> Option<&GrownRecord> {
        self.grown.iter().find(|grown| grown.id == target.base.id)
    }
}

/// How an attempt to append went.
enum Tried {
    Appended(Place, Found),
    /// One in flight touches the same.
    WaitFor(u32),
    /// The other half has to be emptied first.
    NoRoom,
    /// What the names lead to may not be on the disk.
    Unsettled,
}

fn used_slots(state: &State) -> impl Iterator<Item = u32> + use<> {
    let used = state.used;
    (0..SLOTS).filter(move |slot| used & 1 << slot != 0)
}

fn half(number: u64) -> usize {
    usize::from(number != 0)
}

fn set_mtime(file: &OwnedFd, mtime: Stamp) -> std::result::Result<(), Errno> {
    // By the descriptor: the name may be somebody else's by now. And so may the file: then it has the kernel's time.
    inplace::not_ours(sys::set_own_mtime(file.as_fd(), mtime))
}

fn read_exactly(target: &Target, at: u64, len: usize) -> Result<Vec<u8>> {
    match read_whole(&target.file, at, len) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(conflict(&target.path, ConflictKind::Content)),
        Err(e) => Err(Error::io("reading", path::from_bytes(&target.path), e)),
    }
}

/// So many bytes of a file; `None` if there are fewer.
fn read_whole(file: &OwnedFd, at: u64, len: usize) -> std::result::Result<Option<Vec<u8>>, Errno> {
    let mut bytes = vec![0u8; len];
    let mut done = 0;
    while done < len {
        match sys::read_at(file, bytes.get_mut(done..).unwrap_or_default(), at + done as u64) {
            Ok(0) => return Ok(None),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Some(bytes))
}

/// Finishes what the owner of a slot left when it died. The caller has the slot's byte and [`APPEND`].
fn resolve_slot(
    control: &Control,
    log: &Log,
    state: &State,
    number: u32,
    recovered: &mut Recovered,
) -> Result<()> {
    let Some(slot) = control.slot(number)? else { return Ok(()) };
    if slot.epoch == state.epoch && slot.offset >= state.end {
        // Its record, if it was written, was never counted.
        log.erase(half(slot.half), slot.offset)?;
    } else {
        match log.record(half(slot.half), slot.offset, slot.epoch)? {
            Some(read) if read.void => {}
            Some(read) => {
                let note = |progress| control.set_progress(number, progress);
                if !carry_on(number, slot.progress, &read.record, note, recovered)? {
                    let names = &read.record.names;
                    settled::flush_taken_back(names.iter().map(|name| &name.path[..]))
                        .map_err(|e| Error::io("flushing what was taken back in", &log.path, e))?;
                    log.void(half(slot.half), slot.offset)?;
                    log.flush()?;
                }
            }
            None => recovered.notes.push(format!(
                "the record of an interrupted light commit in {} is damaged; nothing was redone",
                crate::show::quoted(&log.path)
            )),
        }
    }
    control.free(number)
}

/// Finishes what the record of a dead process says; or takes it back, where what somebody else has done meanwhile can't be
/// reconciled with it, and gives `false`. `note` is told the progress.
fn carry_on(
    slot: u32,
    progress: u64,
    record: &Record,
    note: impl Fn(u64) -> Result<()>,
    recovered: &mut Recovered,
) -> Result<bool> {
    let mut done = replay::Replayed::default();
    let finished = finish_record(progress, record, &note, &mut done)?;
    match finished {
        Some(progress) => take_back_record(progress, record, &note, &mut done.notes)?,
        None => {
            let mut marks = marks::Marks::default();
            for name in &record.names {
                marks.set(&name.store, slot, record.seq);
            }
            done.finished.dedup();
        }
    }
    if finished.is_some() {
        recovered.undone.push(record.id);
        let name = record.names.first().map(|name| &name.path);
        let other = record.moves.first().map(|name| &name.to);
        let grown = record.grown.first().map(|growth| &growth.path);
        let path = name.or(other).or(grown).or(record.times.first().map(|time| &time.path));
        done.notes.push(format!(
            "a light commit that was interrupted was taken back: somebody else has put something in \
             the place of {}, or no room was left",
            path.map_or_else(String::new, |path| crate::show::quoted_bytes(path))
        ));
    }
    done.notes.iter().for_each(|note| tracing::warn!("{note}"));
    recovered.notes.extend(done.notes);
    recovered.finished.extend(done.finished);
    Ok(finished.is_none())
}

/// Gives how far it has come if it can't be finished.
fn finish_record(
    mut progress: u64,
    record: &Record,
    note: &impl Fn(u64) -> Result<()>,
    done: &mut replay::Replayed,
) -> Result<Option<u64>> {
    let tails = growth::look(&record.grown, progress)?;
    if !growth::can_finish(&record.grown, &tails) {
        return Ok(Some(progress));
    }
    let mut missing = false;
    if progress < control::BYTES {
        match names::finish(&record.names, &record.moves)? {
            Some(some) => missing |= some,
            None => return Ok(Some(progress)),
        }
        progress = control::BYTES;
        if !record.files.is_empty() || !record.grown.is_empty() || !record.times.is_empty() {
            note(progress)?;
        }
    }
    if !record.files.is_empty() {
        let more = replay::replay(std::slice::from_ref(record), false)?;
        done.notes.extend(more.notes);
        missing |= !more.finished.is_empty();
    }
    let reached = std::cell::Cell::new(progress);
    let noted = |progress| {
        reached.set(progress);
        note(progress)
    };
    match growth::finish(&record.grown, &tails, noted)? {
        Some(some) => missing |= some,
        None => return Ok(Some(reached.get())),
    }
    missing |= times::finish(&record.times, &mut done.notes);
    done.finished.extend(missing.then_some(record.id));
    Ok(None)
}

/// Undoes a record by what is there. `notes`: what a person should know.
fn take_back_record(
    progress: u64,
    record: &Record,
    note: &impl Fn(u64) -> Result<()>,
    notes: &mut Vec<String>,
) -> Result<()> {
    if progress >= control::BYTES {
        times::undo(&record.times, notes);
        let tails = growth::look(&record.grown, progress)?;
        growth::undo(&record.grown, &tails, note)?;
        let mut back = Record::new(record.seq, record.id, false);
        back.files = record.files.clone();
        for file in &mut back.files {
            file.mtime = None;
            file.pieces.iter_mut().for_each(|(_, old, new)| std::mem::swap(old, new));
        }
        // Where others have written since, theirs stays.
        replay::replay(&[back], false)?;
        note(control::NAMES)?;
    }
    names::undo(&record.names, &record.moves, record.id, notes)
}

/// Flushes what the half holds that is not written now, and lets it be used again.
fn empty_other(session: &Session) -> Result<()> {
    let (control, log) = (&session.control, &session.log);
    control.lock(EMPTY)?;
    let emptied = (|| {
        let Some(state) = control.state()?.filter(|s| s.other_full != 0) else { return Ok(()) };
        let other = half(1 - state.half.min(1));
        let header = log.half(other)?;
        for number in used_slots(&state) {
            let is_there = |s: &Slot| half(s.half) == other && s.epoch == header.epoch;
            if !control.slot(number)?.as_ref().is_some_and(is_there) {
                continue;
            }
            control.lock(slot_byte(number))?;
            control.lock(APPEND)?;
            // Still there: its owner is dead. The next one's record is in the other half.
            let resolved = match control.slot(number)?.as_ref().is_some_and(is_there) {
                true => resolve_slot(control, log, &state, number, &mut Recovered::default()),
                false => Ok(()),
            };
            control.unlock(APPEND);
            control.unlock(slot_byte(number));
            resolved?;
        }
        empty(log, other, header)?;
        control.lock(APPEND)?;
        let noted = control.state().and_then(|state| match state {
            Some(state) => {
                // Numbers go on from half to half.
                let gone = state.last_durable < log.half(half(state.half))?.first;
                let last_durable = if gone { 0 } else { state.last_durable };
                control.write_state(&State { other_full: 0, last_durable, ..state })
            }
            None => Ok(()),
        });
        control.unlock(APPEND);
        noted
    })();
    control.unlock(EMPTY);
    emptied
}

/// Flushes what the records of a half say, and notes durably that they count no more.
fn empty(log: &Log, half: usize, header: HalfHeader) -> Result<()> {
    let records = log.records(half, header)?;
    let durable = records.iter().any(|r| r.durable);
    if durable {
        replay::flush_files(&records)?;
    }
    log.write_half(half, HalfHeader { clean: true, ..header })?;
    if durable { log.flush() } else { Ok(()) }
}

/// Brings everything light commits have left into order, and empties their log. The caller has the
/// commit lock for himself. With `make`, the log is made if there is none.
///
/// # Errors
/// [`Error::Format`] for a log of a newer version; [`Error::Io`]: it can be repeated.
pub(super) fn resolve_all(home: &Home, make: bool, recovered: &mut Recovered) -> Result<()> {
    let Some(log) = Log::open(home, make)? else { return Ok(()) };
    let control = Control::open(home)?;
    control.lock(APPEND)?;
    let Some(mut state) = control.state()? else {
        return begin(&log, &control, recovered);
    };
    if state.used != 0 {
        state = finish_slots(&control, &log, state, recovered)?;
    }
    let active = half(state.half);
    for (number, full) in [(1 - active, state.other_full != 0), (active, state.end != EMPTIED)] {
        if full {
            empty(&log, number, log.half(number)?)?;
        }
    }
    let emptied = State { used: 0, end: EMPTIED, other_full: 0, last_durable: 0, ..state };
    if emptied != state {
        state = emptied;
        control.write_state(&state)?;
    }
    control.take_over()
}

/// The first time in a boot: redoes what the log says.
fn begin(log: &Log, control: &Control, recovered: &mut Recovered) -> Result<()> {
    log.fill()?;
    let mut halves = [(0, log.half(0)?), (1, log.half(1)?)];
    halves.sort_by_key(|(_, header)| header.epoch);
    let mut records: Vec<Record> = Vec::new();
    // A new log counts from the clock: no mark of an earlier one is ahead of it.
    let began = u64::try_from(Stamp::now().as_ns()).unwrap_or(1);
    let unused = halves.iter().all(|(_, header)| header.epoch == 0);
    let (mut seq, mut next) = (if unused { began } else { 1 }, None);
    for (number, header) in halves {
        if header.epoch == 0 || header.clean {
            seq = seq.max(header.first);
            continue;
        }
        // What follows a gap was never acknowledged as durable.
        if next.is_some_and(|next| next != header.first) {
            break;
        }
        let more = log.records(number, header)?;
        next = Some(header.first + more.len() as u64);
        records.extend(more);
        seq = seq.max(header.first);
    }
    replay::renumber(&mut records);
    let done = replay::replay(&records, true)?;
    recovered.notes.extend(done.notes);
    recovered.finished.extend(done.finished);
    for (number, header) in halves {
        if header.epoch != 0 && !header.clean {
            log.write_half(number, HalfHeader { clean: true, ..header })?;
        }
    }
    log.flush()?;
    let [_, (last, header)] = halves;
    control.begin(&State {
        seq: seq + records.len() as u64 + 1,
        written: began,
        half: last as u64,
        end: EMPTIED,
        epoch: header.epoch,
        used: 0,
        other_full: 0,
        last_durable: 0,
    })
}

/// Whether the log holds a light commit that was carried out.
pub(super) fn holds(home: &Home, id: TxId) -> bool {
    let Ok(Some(log)) = Log::open(home, false) else { return false };
    (0..2).any(|half| {
        let records = log.half(half).and_then(|header| log.records(half, header));
        records.is_ok_and(|all| all.iter().any(|record| record.id == id && !record.is_void()))
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
