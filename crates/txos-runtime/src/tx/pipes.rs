//! What is read from pipes and FIFOs: looked at until the commit, which takes it; an abort leaves it there.
//!
//! What a pipe from before the transaction holds is copied (`tee(2)`) to a pipe of the library's own, and read from that. The
//! original keeps it: an abort, or `kill -9`, has nothing to give back. A look finds everything from the front on, so what the
//! transaction has been given is kept in memory, and every look is compared with it: if the beginning is another one, somebody
//! else has taken it. The commit takes as many bytes as were given.
//!
//! No duplicate of the original is kept, which would keep its writers from seeing that it is closed: a look and the taking go by the
//! program's own number and the identity of what that is, in a process with other threads by a duplicate for their time.
//!
//! That is so in transactions that put back memory (`TX_CHECKPOINT`), and in all if `TXOS_GIVE_BACK=pipes` asks for it ([`are_asked_for`]). In others
//! no pipe is known here, and the kernel answers every read at once: a stream of the C library's has read ahead, and has those bytes still.
//!
//! | pipe | what happens |
//! |---|---|
//! | from before | looked at |
//! | made in the transaction, or a FIFO that it has opened | read at once |
//! | with packets (`O_DIRECT`), of more than [`SIZE_MAX`]; in a process with other threads that has both ends | read at once, which is told |
//! | of a transaction of several threads or processes, a command's, a managed runtime's, an ordered one | as without the variable |
//!
//! # Conversations
//!
//! Programs talk by two pipes, or by a pipe and something else. So once anything has gone out before the commit, by whatever
//! way, or there is a new process or thread, what was looked at is taken, and what comes is read at once: it may be an answer, which
//! who begins again must not take for the next one.
//!
//! # Room
//!
//! What is only looked at takes room, and a writer may wait for that. So it is taken before the transaction waits for anything
//! but more in that pipe; and before it waits for that, if the pipe is full, or after [`PATIENCE`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use txos_engine::object::{FileId, FileKind};

use super::kernel::{self, Errno, OwnedFd, Scratch, Sys};
use super::node::Map;

/// Pipes that can hold more are not looked at, bytes.
pub const SIZE_MAX: u64 = 1 << 20;
/// So much is copied of a pipe in all, bytes. After that it is read at once.
const COPIED_MAX: u64 = 1 << 28;

/// What `TXOS_GIVE_BACK` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// All, by a transaction that puts back memory, and nothing by others.
    WithMemory,
    Pipes,
    All,
}

fn asked() -> Asked {
    static ASKED: std::sync::OnceLock<Asked> = std::sync::OnceLock::new();
    *ASKED.get_or_init(|| {
        let Some(value) = std::env::var_os("TXOS_GIVE_BACK") else { return Asked::WithMemory };
        match value.as_encoded_bytes() {
            b"pipes" => Asked::Pipes,
            b"all" => Asked::All,
            b"0" | b"none" => Asked::Nothing,
            b"" => Asked::WithMemory,
            _ => {
                super::say(
                    "TXOS_GIVE_BACK is none of 0, none, pipes and all: what is read from pipes and terminals is given back by transactions with TX_CHECKPOINT, as without it",
                );
                Asked::WithMemory
            }
        }
    })
}

/// Whether what a transaction with these flags reads from pipes is to be given back, when that first matters.
#[must_use]
pub fn are_asked_for(flags: u32) -> bool {
    match asked() {
        Asked::Nothing => false,
        Asked::WithMemory => flags & super::flags::CHECKPOINT != 0,
        Asked::Pipes | Asked::All => true,
    }
}

/// The same of terminals.
#[must_use]
pub fn are_terminals_asked_for(flags: u32) -> bool {
    asked() != Asked::Pipes && are_asked_for(flags)
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// More than what was given.
    More,
    /// Nothing more, yet.
    Nothing,
    /// Nothing more, and nobody can write any.
    End,
    /// Not what was given: somebody else has taken some of it.
    Another,
    /// Looks are not possible (any more).
    NoLook,
}

/// A pipe that is looked at.
#[derive(Debug)]
struct Pipe {
    id: FileId,
    /// The program's number from before, which the kernel has as well until the end.
    number: i32,
    /// What it holds, by the last look.
    bytes: Vec<u8>,
    /// So much of that the program was given.
    given: usize,
    /// By the last look it may have had no room.
    full: bool,
    /// A FIFO that was opened while nobody wrote there does not say whether somebody does.
    vague: bool,
    copied: u64,
    at_once: bool,
    /// By the commit's look, under its claim, it holds what was given, and so many bytes in all.
    verified: Option<u64>,
    /// By the looks of calls it has had no room since then.
    full_since: Option<Instant>,
    /// So many bytes were taken.
    taken: u64,
}

/// All of a transaction, and what they are looked at by.
#[derive(Debug, Default)]
struct All {
    pipes: Vec<Pipe>,
    scratch: Option<Scratch>,
    /// Something was taken because the transaction waits for others.
    went_out: bool,
}

/// The pipes of a transaction. What waits for others on its behalf has them as well.
#[derive(Clone, Debug, Default)]
pub struct Pipes(Arc<Mutex<All>>);

/// One of them.
#[derive(Clone, Debug)]
pub struct Handle {
    all: Pipes,
    at: usize,
}

/// The number of a pipe for the time of a call: a duplicate, or the program's own where there is no room for one.
struct Held(i32, #[allow(dead_code, reason = "closed when it goes")] Option<OwnedFd>);

impl Pipes {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pipe, which the program has at this number from before. `looks`: whether it may be looked at.
    pub fn add(&self, id: FileId, number: i32, looks: bool) -> Handle {
        let size = kernel::pipe_size(number).unwrap_or(u64::MAX);
        let mut all = self.lock();
        let at_once = !looks || size > SIZE_MAX || all.scratch(size).is_err();
        all.pipes.push(Pipe {
            id,
            number,
            bytes: Vec::new(),
            given: 0,
            full: false,
            vague: kernel::path_of_fd(number).is_ok_and(|path| path.starts_with(b"/")),
            copied: 0,
            at_once,
            verified: None,
            full_since: None,
            taken: 0,
        });
        Handle { all: self.clone(), at: all.pipes.len() - 1 }
    }

    /// The transaction waits for another one, whose process may wait for room: all is taken. In words, for people, if that is
    /// anything.
    #[must_use]
    pub fn take_all(&self) -> Option<String> {
        let mut all = self.lock();
        let All { pipes, scratch, went_out } = &mut *all;
        let looked = pipes.iter_mut().filter(|pipe| pipe.has_looked());
        let mut any = false;
        let lost = looked.filter_map(|pipe| {
            any = true;
            pipe.take(scratch).words(pipe.number)
        });
        let lost: Vec<String> = lost.collect();
        *went_out |= any;
        let said = "the transaction waits for another one, so what it has read from pipes is taken before the commit, and is \
                    not given back";
        any.then(|| [vec![said.to_owned()], lost].concat().join("; "))
    }

    /// In a child that was copied from the process, and has descriptors of its own: closes those of the library.
    pub fn close(&self) {
        // Nobody can be at it, but who it was copied from.
        if let Ok(mut all) = self.0.try_lock() {
            all.scratch = None;
        }
    }

    /// Whether the program was given something that is not taken.
    #[must_use]
    pub fn any_looked(&self) -> bool {
        self.lock().pipes.iter().any(Pipe::has_looked)
    }

    /// Whether something was taken so.
    #[must_use]
    pub fn went_out(&self) -> bool {
        self.lock().went_out
    }
}

/// Pipes that one transaction takes from, and no other: by a lock on a byte of the file of the realm for each, from before the last
/// look until all is taken. Two that have read the same bytes can't both commit then. The kernel lets go of those of a process
/// that ends.
#[derive(Debug)]
pub struct Claims {
    file: OwnedFd,
    places: Vec<u64>,
}

impl Claims {
    /// Opens this file, so that the commit needs no descriptor for it.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn reserve(realm: &[u8]) -> Sys<Claims> {
        let file = OwnedFd::open(realm, libc::O_RDWR | libc::O_CLOEXEC)?.raised()?;
        Ok(Claims { file, places: Vec::new() })
    }

    /// Claims pipes. `false`: another transaction takes from one of them.
    ///
    /// # Errors
    /// As `fcntl(2)`.
    pub fn claim(&mut self, pipes: impl Iterator<Item = FileId>) -> Sys<bool> {
        let mut wanted: Vec<u64> = pipes.map(place_of).collect();
        // In one order, one of several that claim the same gets all.
        wanted.sort_unstable();
        wanted.dedup();
        for place in wanted {
            match kernel::lock_bytes_at_once(self.file.number(), libc::F_WRLCK, place, 1) {
                Err(Errno::AGAIN | Errno::ACCESS) => return Ok(false),
                done => done?,
            }
            self.places.push(place);
        }
        Ok(true)
    }

    /// In a child that was copied from the process: closes the file, and lets go of nothing, which is the parent's.
    pub fn close(mut self) {
        self.places.clear();
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        // A child of another thread may have the open file as well.
        for &place in &self.places {
            let _ = kernel::lock_bytes(self.file.number(), libc::F_UNLCK, place, 1);
        }
    }
}

/// The byte of a pipe, past those of ordered transactions ([`super::held`]).
fn place_of(pipe: FileId) -> u64 {
    const FIRST: u64 = 1 << 62;
    let mixed = (pipe.dev ^ pipe.ino.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    FIRST | (mixed ^ mixed >> 32 ^ pipe.ino) & (FIRST - 1)
}

impl All {
    /// What pipes of this size are looked at by.
    fn scratch(&mut self, size: u64) -> Sys<&mut Scratch> {
        ready(&mut self.scratch, size)
    }
}

fn ready(scratch: &mut Option<Scratch>, size: u64) -> Sys<&mut Scratch> {
    let there = match scratch {
        Some(there) => there,
        None => scratch.insert(Scratch::new()?),
    };
    there.resize(size)?;
    Ok(there)
}

/// How many transactions of the process in a row have lost what they had read from a pipe. Who writes there can change what is in it
/// (`vmsplice(2)`), and could have each of them lose so. (Who finds it locked does not count: in a child it may be so for ever.)
static LOST: Mutex<Vec<(FileId, u32)>> = Mutex::new(Vec::new());
/// After so many the next one reads at once.
const LOST_MAX: u32 = 16;

/// A transaction has lost what it had read from a pipe.
pub fn has_lost(pipe: FileId) {
    /// More are not counted.
    const MOST: usize = 1024;
    let Ok(mut all) = LOST.try_lock() else { return };
    let has_room = all.len() < MOST;
    match all.iter_mut().find(|(known, _)| *known == pipe) {
        Some((_, times)) => *times += 1,
        None if has_room => all.push((pipe, 1)),
        None => {}
    }
}

/// Whether so many have that this one is to read at once; then it is counted anew.
#[must_use]
pub fn loses_always(pipe: FileId) -> bool {
    let Ok(mut all) = LOST.try_lock() else { return false };
    let place = all.iter().position(|&(known, times)| known == pipe && times >= LOST_MAX);
    place.map(|place| all.swap_remove(place)).is_some()
}

/// A transaction has taken what it had read.
fn has_won(pipe: FileId) {
    let Ok(mut all) = LOST.try_lock() else { return };
    all.retain(|(known, _)| *known != pipe);
}

/// Which ends of pipes the process has: for each, whether it is read and whether it is written to.
#[must_use]
pub fn ends_of_process() -> Map<FileId, [bool; 2]> {
    let mut all: Map<FileId, [bool; 2]> = Map::default();
    for number in kernel::open_numbers().unwrap_or_default() {
        let Ok(stat) = kernel::look_fd(number) else { continue };
        let Ok(flags) = kernel::status_flags(number) else { continue };
        if stat.kind() == FileKind::Fifo && flags & libc::O_PATH == 0 {
            let [reads, writes] = all.entry(stat.id).or_default();
            *reads |= flags & libc::O_ACCMODE != libc::O_WRONLY;
            *writes |= flags & libc::O_ACCMODE != libc::O_RDONLY;
        }
    }
    all
}

/// What became of bytes that were to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// So many had somebody else taken.
    stolen: u64,
    /// So many are not at the front as they were given, and none of them is taken.
    other: u64,
    /// So many are there still: no number of the process is of the pipe any more, or taking failed.
    left: u64,
}

impl Lost {
    /// In words, if something was lost.
    #[must_use]
    pub fn words(self, number: i32) -> Option<String> {
        let some = |bytes: u64, one: &str, several: &str| {
            let (s, what) = if bytes == 1 { ("", one) } else { ("s", several) };
            (bytes > 0).then(|| {
                format!(
                    "{bytes} byte{s} that the transaction has read from a pipe (descriptor {number}) {what}"
                )
            })
        };
        const STOLEN: [&str; 2] =
            ["was taken by somebody else as well", "were taken by somebody else as well"];
        const LEFT: &str = "could not be taken, and may be read again";
        let stolen = some(self.stolen, STOLEN[0], STOLEN[1]);
        const OTHER: [&str; 2] = [
            "is not at its front any more: somebody else has taken or changed it, and the transaction takes nothing there",
            "are not at its front any more: somebody else has taken or changed some, and the transaction takes nothing there",
        ];
        let other = some(self.other, OTHER[0], OTHER[1]);
        let left = some(self.left, LEFT, LEFT);
        let both: Vec<String> = [stolen, other, left].into_iter().flatten().collect();
        (!both.is_empty()).then(|| both.join("; "))
    }
}

impl Pipe {
    fn has_looked(&self) -> bool {
        !self.at_once && self.given > 0
    }

    /// A number for it: the one from before, or another one if another thread has closed that.
    fn hold(&self) -> Option<Held> {
        let is_it = |number: i32| kernel::look_fd(number).is_ok_and(|stat| stat.id == self.id);
        let reads = |number: i32| {
            let flags = kernel::status_flags(number);
            flags.is_ok_and(|flags| {
                flags & libc::O_ACCMODE != libc::O_WRONLY && flags & libc::O_PATH == 0
            })
        };
        // Nobody else can close it, or fork with a duplicate.
        let alone = kernel::has_had_one_thread();
        let hold = |number: i32| match kernel::copy_high(number).map(OwnedFd::of) {
            Ok(copy) => is_it(copy.number()).then(|| Held(copy.number(), Some(copy))),
            Err(Errno::BADF) => None,
            Err(_) => is_it(number).then_some(Held(number, None)),
        };
        let first = match alone {
            true => is_it(self.number).then_some(Held(self.number, None)),
            false => hold(self.number),
        };
        first.or_else(|| {
            let numbers = kernel::open_numbers().unwrap_or_default();
            let other = numbers.into_iter().find(|&number| is_it(number) && reads(number))?;
            hold(other)
        })
    }

    fn look(&mut self, scratch: &mut Option<Scratch>) -> Found {
        if self.at_once || self.copied > COPIED_MAX {
            return Found::NoLook;
        }
        let Some(held) = self.hold() else { return Found::NoLook };
        let mut ended = false;
        // Somebody may change its size meanwhile.
        let mut size = kernel::pipe_size(held.0).unwrap_or(u64::MAX);
        loop {
            if size > SIZE_MAX {
                return Found::NoLook;
            }
            let Ok(found) = ready(scratch, size).and_then(|scratch| scratch.look(held.0)) else {
                return Found::NoLook;
            };
            self.copied += found.bytes.len() as u64;
            if !found.bytes.starts_with(self.bytes.get(..self.given).unwrap_or_default()) {
                return Found::Another;
            }
            self.vague &= found.writers != Some(true);
            (self.full, self.bytes) = (found.full, found.bytes);
            if self.bytes.len() > self.given {
                return Found::More;
            }
            let now = kernel::pipe_size(held.0).unwrap_or(u64::MAX);
            if now != size {
                size = now;
                continue;
            }
            // There may be more than the copy has room for.
            if self.full && (ended || found.writers == Some(false) || kernel::is_hung_up(held.0)) {
                return Found::NoLook;
            }
            if ended || found.writers == Some(false) {
                return Found::End;
            }
            if !kernel::is_hung_up(held.0) {
                return Found::Nothing;
            }
            // What was written before that is there by now.
            (ended, self.vague) = (true, false);
        }
    }

    /// Takes what was given, and looks no more.
    fn take(&mut self, scratch: &mut Option<Scratch>) -> Lost {
        self.at_once = true;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(std::mem::take(&mut self.given));
        if bytes.is_empty() {
            return Lost::default();
        }
        has_won(self.id);
        let all = bytes.len() as u64;
        let left = Lost { left: all, ..Lost::default() };
        let Some(held) = self.hold() else { return left };
        let there = kernel::arrived(held.0).unwrap_or(0);
        // The commit's look has found it at the front. What it is now counts no more: it may be a page of a file that the
        // commit itself has changed.
        let verified = self.verified.take().is_some_and(|then| there >= then);
        let size = kernel::pipe_size(held.0).unwrap_or(u64::MAX);
        match ready(scratch, size.min(SIZE_MAX)).and_then(|scratch| scratch.look(held.0)) {
            _ if verified => {}
            Ok(found) if found.bytes.starts_with(&bytes) => {}
            // Without a look the count says it.
            Err(_) if there >= all => {}
            // Part of it could as well be the beginning of what is another reader's.
            _ => return Lost { other: all, ..Lost::default() },
        }
        let mut rest = &bytes[..];
        let Some(scratch) = scratch.as_mut() else { return left };
        let mut lost = Lost::default();
        while !rest.is_empty() {
            match scratch.take(held.0, rest.len()) {
                Ok(taken) if !taken.is_empty() => {
                    let (now, after) = rest.split_at(taken.len().min(rest.len()));
                    if now != taken && !verified {
                        lost.stolen += now.len() as u64;
                    }
                    self.taken += now.len() as u64;
                    rest = after;
                }
                // Somebody has taken it in this instant.
                Ok(_) | Err(Errno::AGAIN) => {
                    lost.stolen += rest.len() as u64;
                    break;
                }
                Err(_) => {
                    lost.left += rest.len() as u64;
                    break;
                }
            }
        }
        lost
    }
}

impl Handle {
    /// With this pipe, and what it is looked at by.
    fn with<T>(&self, work: impl FnOnce(&mut Pipe, &mut Option<Scratch>) -> T, none: T) -> T {
        let mut all = self.all.lock();
        let All { pipes, scratch, .. } = &mut *all;
        match pipes.get_mut(self.at) {
            Some(pipe) => work(pipe, scratch),
            None => none,
        }
    }

    /// Whether the program was given something that is not taken.
    #[must_use]
    pub fn has_looked(&self) -> bool {
        self.with(|pipe, _| pipe.has_looked(), false)
    }

    /// Whether it is read at once.
    #[must_use]
    pub fn is_at_once(&self) -> bool {
        self.with(|pipe, _| pipe.at_once, true)
    }

    /// So many bytes were given.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.with(|pipe, _| pipe.given as u64, 0)
    }

    /// So many bytes were taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.with(|pipe, _| pipe.taken, 0)
    }

    /// So many bytes were found and not given yet.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        self.with(|pipe, _| pipe.bytes.len().saturating_sub(pipe.given) as u64, 0)
    }

    /// Whether it may have had no room, by the last look.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.with(|pipe, _| pipe.full, true)
    }

    /// Whether it does not say if somebody can write there.
    #[must_use]
    pub fn is_vague(&self) -> bool {
        self.with(|pipe, _| pipe.vague, true)
    }

    /// Looks at what it holds.
    #[must_use]
    pub fn look(&self) -> Found {
        self.with(Pipe::look, Found::NoLook)
    }

    /// Gives the next bytes, as many as `to` takes of so many; how many.
    ///
    /// # Errors
    /// As `to`.
    pub fn give(&self, most: u64, to: impl FnOnce(&[u8]) -> Sys<usize>) -> Sys<usize> {
        let give = |pipe: &mut Pipe, _: &mut Option<Scratch>| {
            let next = pipe.bytes.get(pipe.given..).unwrap_or_default();
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(next.len());
            let n = to(&next[..most])?.min(most);
            pipe.given += n;
            pipe.verified = None;
            Ok(n)
        };
        self.with(give, Ok(0))
    }

    /// What the program was given.
    #[must_use]
    pub fn was_given(&self) -> Vec<u8> {
        let given = |pipe: &mut Pipe, _: &mut Option<Scratch>| {
            pipe.bytes.get(..pipe.given).unwrap_or_default().to_vec()
        };
        self.with(given, Vec::new())
    }

    /// What was taken is told of otherwise.
    pub fn forget_taken(&self) {
        self.with(|pipe, _| pipe.taken = 0, ());
    }

    /// Takes what was given, and looks no more.
    #[must_use]
    pub fn take(&self) -> Lost {
        self.with(Pipe::take, Lost::default())
    }

    /// Whether it holds no less than by the last look that was right: what is lost was changed there, and not taken.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        let is_so = |pipe: &mut Pipe, _: &mut Option<Scratch>| {
            let held = pipe.hold();
            held.is_some_and(|held| {
                kernel::arrived(held.0).is_ok_and(|there| there >= pipe.bytes.len() as u64)
            })
        };
        self.with(is_so, false)
    }

    /// Looks whether it has room; `true` if it has had none for so long.
    #[must_use]
    pub fn is_full_for(&self, time: Duration) -> bool {
        let is_so = |pipe: &mut Pipe, scratch: &mut Option<Scratch>| {
            let found = pipe.look(scratch);
            if !pipe.full || found == Found::Another {
                pipe.full_since = None;
                return false;
            }
            pipe.full_since.get_or_insert_with(Instant::now).elapsed() >= time
        };
        self.with(is_so, false)
    }

    /// Whether what was given is still there, and at the front.
    #[must_use]
    pub fn is_as_given(&self) -> bool {
        let is_so = |pipe: &mut Pipe, scratch: &mut Option<Scratch>| {
            if !pipe.has_looked() {
                return true;
            }
            match pipe.look(scratch) {
                Found::Another => return false,
                // It is found out by the taking.
                Found::NoLook => {}
                Found::More | Found::Nothing | Found::End => {
                    pipe.verified = Some(pipe.bytes.len() as u64);
                }
            }
            true
        };
        self.with(is_so, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    fn given(handle: &Handle, most: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let n = handle.give(most, |bytes| {
            out.extend_from_slice(bytes);
            Ok(bytes.len())
        });
        assert_eq!(n, Ok(out.len()));
        out
    }

    fn pipe() -> (std::io::PipeReader, std::io::PipeWriter, Handle) {
        let (reader, writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let id = kernel::look_fd(fd).unwrap().id;
        let handle = Pipes::default().add(id, fd, true);
        (reader, writer, handle)
    }

    #[test]
    fn exactly_what_was_given_is_taken() {
        let (mut reader, mut writer, handle) = pipe();
        assert_eq!(handle.look(), Found::Nothing);
        writer.write_all(b"one two").unwrap();
        assert_eq!((handle.look(), given(&handle, 3)), (Found::More, b"one".to_vec()));
        writer.write_all(b" three").unwrap();
        assert_eq!((handle.look(), given(&handle, 4)), (Found::More, b" two".to_vec()));
        assert!(handle.is_as_given());
        assert_eq!(
            (handle.take(), handle.taken(), handle.look()),
            (Lost::default(), 7, Found::NoLook)
        );
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, " three");
    }

    #[test]
    fn the_end_comes_after_all_of_it() {
        let (_reader, mut writer, handle) = pipe();
        writer.write_all(b"last").unwrap();
        drop(writer);
        assert_eq!((handle.look(), given(&handle, 9)), (Found::More, b"last".to_vec()));
        assert_eq!(handle.look(), Found::End);
    }

    #[test]
    fn what_somebody_else_takes_is_found_and_what_follows_is_left() {
        let (mut reader, mut writer, handle) = pipe();
        writer.write_all(b"abcdef").unwrap();
        assert_eq!((handle.look(), given(&handle, 4)), (Found::More, b"abcd".to_vec()));
        reader.read_exact(&mut [0; 2]).unwrap();
        assert!(!handle.is_as_given());
        assert!(!handle.is_changed());
        assert_eq!(handle.take(), Lost { other: 4, ..Lost::default() });
        let mut rest = [0; 4];
        reader.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"cdef");
        assert_eq!(
            Lost { stolen: 2, ..Lost::default() }.words(7).unwrap(),
            "2 bytes that the transaction has read from a pipe (descriptor 7) were taken by somebody else as well"
        );
    }

    #[test]
    fn it_is_taken_by_any_number_that_is_left() {
        for (another, lost) in
            [(true, Lost::default()), (false, Lost { left: 3, ..Lost::default() })]
        {
            let (reader, mut writer, handle) = pipe();
            writer.write_all(b"one two").unwrap();
            assert_eq!((handle.look(), given(&handle, 3)), (Found::More, b"one".to_vec()));
            let other = another.then(|| reader.try_clone().unwrap());
            // As another thread would.
            drop(reader);
            assert_eq!(handle.take(), lost);
            drop(writer);
            let mut rest = String::new();
            if let Some(mut other) = other {
                other.read_to_string(&mut rest).unwrap();
                assert_eq!(rest, " two");
            }
        }
    }

    #[test]
    fn a_pipe_is_claimed_by_one() {
        let path = std::env::temp_dir().join(format!("txos-claims-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        let realm = path.as_os_str().as_encoded_bytes();
        let [one, other] = [1, 2].map(|ino| FileId { dev: 7, ino });
        let claim = |pipes: &[FileId]| {
            let mut claims = Claims::reserve(realm).unwrap();
            claims.claim(pipes.iter().copied()).unwrap().then_some(claims)
        };
        let first = claim(&[other, one, one]);
        assert!(first.is_some() && claim(&[one]).is_none());
        drop(first);
        let second = claim(&[one]);
        assert!(second.is_some() && claim(&[other]).is_some() && claim(&[other, one]).is_none());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_part_that_is_alike_is_not_taken() {
        let (mut reader, mut writer, handle) = pipe();
        writer.write_all(&[255, 10, 0, 0, 0, 11, 0, 0]).unwrap();
        assert_eq!((handle.look(), given(&handle, 4)), (Found::More, vec![255, 10, 0, 0]));
        reader.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(handle.take(), Lost { other: 4, ..Lost::default() });
        let mut next = [9; 4];
        reader.read_exact(&mut next).unwrap();
        assert_eq!(next, [0, 11, 0, 0]);
    }
}
