//! Answers that the server has given, which every process of a command finds by itself.
//!
//! Most calls of a build look something up, and most of that was looked up before, by this process or another one. So the
//! server writes what it has answered into a table, which each process has mapped to read. A process that finds its
//! question there, with an answer that still holds, needs no message. What the answer rests on was noted in the read set with the
//! first look.
//!
//! | words | what |
//! |---|---|
//! | 1 | the moment of the last change that concerns all answers |
//! | [`MARKS`] | for each mark ([`trace`]) the moment of its last change |
//! | [`SLOTS`] times [`SLOT`] | answers, each at one of the [`WAYS`] places that its question's hash says |
//! | the rest | the content of small files ([`super::images`]), from [`IMAGES_AT`] on |
//!
//! The server is the only writer. A slot begins with a count that is odd while the server writes there; who reads it looks at the count before and
//! after. An answer holds if no mark on which it rests has changed since. The server moves the marks before it says that the change
//! is made, so nobody who knows of a change finds an answer from before.
//!
//! An answer is the same for all processes with the owner's identity, the root directory of the machine and, if the
//! path is relative, one working directory: the server says in each window whether, and from which directory, the table counts
//! ([`wire::standing`]).
#![allow(unsafe_code)] // shared memory

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::images::{self, Image};
use super::link::{Link, Process};
use super::wire;
use crate::call::Call;
use crate::raw::{Errno, Sys, check, syscall};
use crate::tx::kernel;
use crate::tx::node::{Fold, Id, Map};
use crate::tx::trace::{MARKS, MARKS_TOLD, Marks};

/// How many answers there can be.
const SLOTS: usize = 16_384;
/// At how many places, one after the other, the answer to a question may be.
const WAYS: usize = 4;
/// Words of an answer.
const SLOT: usize = PATH_AT + PATH / 8 + DATA / 8;
/// The longest path, in bytes.
const PATH: usize = 224;
/// What a call writes at most: `struct statx`.
const DATA: usize = 256;
/// The size of the table, in bytes.
const SIZE: usize = IMAGES_AT + IMAGES;
/// Where images begin, in bytes, and how much of them there may be.
const IMAGES_AT: usize = ((SLOTS_AT + SLOTS * SLOT) * 8).next_multiple_of(PAGE);
const IMAGES: usize = 32 << 20;
pub(super) const PAGE: usize = 4096;

/// The mark on which every answer rests.
const ALL: usize = 0;
const MARKS_AT: usize = 1;
const SLOTS_AT: usize = MARKS_AT + MARKS;

// Words of a slot.
const COUNT: usize = 0;
const NUMBER: usize = 1;
const FLAGS: usize = 2;
const FROM: usize = 3;
const MOMENT: usize = 4;
const ANSWER: usize = 5;
const SIZES: usize = 6;
const HASH: usize = 7;
const RESTS_ON: usize = 8;
const PATH_AT: usize = RESTS_ON + MARKS_TOLD / 4;
const DATA_AT: usize = PATH_AT + PATH / 8;

/// From where the path of a question begins, if it is absolute.
const ROOT: u32 = 1;
/// The least number of a working directory.
const FIRST_DIRECTORY: u32 = 2;
/// What the numbers of objects begin with, of which a question without a path is.
const OBJECTS: u64 = 1 << 32;

/// What [`wire::standing`] is for a process with the owner's identity and root, by the number of its working directory's node.
pub fn standing(cwd: Option<usize>) -> u32 {
    cwd.and_then(|id| u32::try_from(id).ok()?.checked_add(FIRST_DIRECTORY)).unwrap_or(ROOT)
}

/// A call that looks something up by one path, or looks at what is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    number: i64,
    flags: u64,
    /// What it is about.
    about: About,
    /// Which argument is where the answer goes, and its size.
    out: Option<(usize, usize)>,
}

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The path that is this argument.
    Path(usize),
    /// The number that is the first argument; this argument is a path that has to be empty.
    Number(Option<usize>),
}

impl Question {
    /// The question that a call asks, by its arguments. `None`: it is none for the table.
    pub fn of(number: i64, words: &[u64; 6]) -> Option<Question> {
        const CHANGES: i32 = libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE & !libc::O_DIRECTORY;
        const STAT: usize = size_of::<libc::stat>();
        const STATX: usize = size_of::<libc::statx>();
        let from_cwd = |at: usize| words[at] as i32 == libc::AT_FDCWD;
        let opens = |flags: u64| {
            let flags = flags as i32;
            flags & libc::O_ACCMODE == libc::O_RDONLY && flags & CHANGES == 0
        };
        let has_path = |at: usize, flags: u64| match flags as i32 & libc::AT_EMPTY_PATH {
            0 => from_cwd(0).then_some(About::Path(at)),
            _ => (words[0] as i32 >= 0).then_some(About::Number(Some(at))),
        };
        let (about, flags, out) = match number {
            libc::SYS_fstat => (About::Number(None), 0, Some((1, STAT))),
            libc::SYS_stat | libc::SYS_lstat => (About::Path(0), 0, Some((1, STAT))),
            libc::SYS_newfstatat => {
                (has_path(1, words[3])?, words[3] & 0xffff_ffff, Some((2, STAT)))
            }
            libc::SYS_statx => {
                let flags = words[2] << 32 | words[3] & 0xffff_ffff;
                (has_path(1, words[2])?, flags, Some((4, STATX)))
            }
            libc::SYS_access => (About::Path(0), words[1] & 0xffff_ffff, None),
            libc::SYS_faccessat if from_cwd(0) => (About::Path(1), words[2] & 0xffff_ffff, None),
            libc::SYS_faccessat2 if from_cwd(0) => {
                (About::Path(1), words[2] << 32 | words[3] & 0xffff_ffff, None)
            }
            libc::SYS_readlink => (About::Path(0), 0, Some((1, words[2] as i32 as usize))),
            libc::SYS_readlinkat if from_cwd(0) => {
                (About::Path(1), 0, Some((2, words[3] as i32 as usize)))
            }
            libc::SYS_open if opens(words[1]) => (About::Path(0), words[1] & 0xffff_ffff, None),
            libc::SYS_openat if from_cwd(0) && opens(words[2]) => {
                (About::Path(1), words[2] & 0xffff_ffff, None)
            }
            _ => return None,
        };
        // `readlink` with a size that is none is a mistake before it is a question.
        let has_room = out.is_none_or(|(_, size)| (1..=i32::MAX as usize).contains(&size));
        has_room.then_some(Question { number, flags, about, out })
    }

    /// Which program a process runs by a path, with the flags of `execveat(2)`: the answer's data is where it is.
    pub fn program(flags: i32) -> Question {
        let flags = u64::from(flags.cast_unsigned());
        Question { number: libc::SYS_execveat, flags, about: About::Path(1), out: None }
    }

    fn reads_link(&self) -> bool {
        matches!(self.number, libc::SYS_readlink | libc::SYS_readlinkat)
    }

    /// It opens something.
    pub fn opens(&self) -> bool {
        matches!(self.number, libc::SYS_open | libc::SYS_openat)
    }

    /// With which flags, if it does.
    pub fn flags(&self) -> i32 {
        self.flags as i32
    }

    /// What it is about.
    pub fn about(&self) -> About {
        self.about
    }

    /// Whether an answer is one for the table that says where a program is.
    pub fn can_tell(place: &[u8]) -> bool {
        place.len() <= DATA
    }

    /// Where an answer is, and how long it is. `None`: that answer is none for the table.
    pub fn data(&self, answer: i64) -> Option<(usize, usize)> {
        let errno = i32::try_from(-answer).unwrap_or(0);
        match (self.out, answer) {
            (_, ..0) => {
                let says = matches!(errno, libc::ENOENT | libc::ENOTDIR)
                    || errno == libc::EINVAL && self.reads_link();
                says.then_some((0, 0))
            }
            // What is opened is another thing each time; what has an image is written down with that.
            _ if self.opens() => None,
            (None, _) => Some((0, 0)),
            (Some((at, size)), _) if self.reads_link() => {
                let whole = answer as usize;
                // There may have been more of it.
                (whole < size && whole <= DATA).then_some((at, whole))
            }
            (Some(out), _) => Some(out),
        }
    }

    fn hash(&self, from: u64, path: &[u8]) -> u64 {
        let mut fold = Fold::default();
        fold.write_u64(self.number as u64);
        fold.write_u64(self.flags);
        fold.write_u64(from);
        fold.write(path);
        fold.finish()
    }
}

/// Where the answer to a question with this hash may be.
fn places(hash: u64) -> impl Iterator<Item = usize> {
    let first = hash as usize % (SLOTS / WAYS) * WAYS;
    (first..first + WAYS).map(|slot| SLOTS_AT + slot * SLOT)
}

/// Whether a path may be asked for by the table: what `/proc`, `/sys` and `/dev` say of a process is its own.
fn is_general(path: &[u8]) -> bool {
    !path.is_empty()
        && path.len() <= PATH
        && !path.windows(2).any(|two| two == b"//")
        && (path.starts_with(b"/dev/shm/")
            || ![&b"/proc"[..], b"/sys", b"/dev"].iter().any(|top| path.starts_with(top)))
}

/// From where a path begins. `None`: it is none for the table.
pub fn from_path(path: &[u8], standing: u32) -> Option<u64> {
    match standing {
        _ if !is_general(path) => None,
        0 => None,
        _ if path.starts_with(b"/") => Some(ROOT.into()),
        FIRST_DIRECTORY.. => Some(standing.into()),
        _ => None,
    }
}

/// The same of an object, by the server's number for it. `None`: the table does not count for the process.
pub fn from_object(object: u32, standing: u32) -> Option<u64> {
    (standing != 0).then_some(OBJECTS + u64::from(object))
}

/// The table.
#[derive(Clone, Copy, Debug)]
pub struct Table(&'static [AtomicU64]);

impl Table {
    /// A new one: its descriptor. The server maps it first ([`Book::of`]).
    ///
    /// # Errors
    /// As `memfd_create(2)`; EFBIG: the process may not have a file of that size.
    pub fn new_file() -> Sys<i32> {
        // Beyond the limit the kernel would send SIGXFSZ.
        if crate::tx::kernel::most_in_a_file() < SIZE as u64 {
            return Err(Errno::FBIG);
        }
        wire::new_file(c"txos answers", SIZE as u64)
    }

    /// Maps it for as long as there is the process.
    ///
    /// # Errors
    /// As `mmap(2)`.
    pub fn map(fd: i32, prot: i32) -> Sys<Table> {
        let shared = (libc::MAP_SHARED | libc::MAP_NORESERVE) as u64;
        let words = [0, SIZE as u64, prot as u64, shared, fd as u64, 0];
        // SAFETY: it is mapped where nothing is.
        let place = check(unsafe { syscall(libc::SYS_mmap, words) })?;
        // SAFETY: there are as many words, aligned, and nobody unmaps them; the file's size is sealed.
        let words = unsafe { std::slice::from_raw_parts(place as *const AtomicU64, SIZE / 8) };
        Ok(Table(words))
    }

    /// Maps a process's own, to read, and closes the descriptor.
    pub fn take(fd: i32) -> Option<Table> {
        let table = Table::map(fd, libc::PROT_READ).ok();
        kernel::close(fd);
        table
    }

    /// Bytes of an image. `None`: there are none.
    pub fn image(&self, place: u64, size: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(place).ok()?;
        if start.checked_add(size)? > IMAGES {
            return None;
        }
        let mut bytes = vec![0; size];
        let from = self.0.as_ptr().cast::<u8>();
        // SAFETY: it is inside of the mapping, and nobody writes to an image that a process knows.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(IMAGES_AT + start), bytes.as_mut_ptr(), size)
        };
        Some(bytes)
    }

    /// Puts a table without answers in its place. Other threads may be looking into it.
    fn forget(&self) {
        let nothing =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let (place, prot) = (self.0.as_ptr() as u64, libc::PROT_READ as u64);
        // SAFETY: it takes the place of the mapping, of which it has the size; every word of it is a value.
        let done = check(unsafe {
            syscall(libc::SYS_mmap, [place, SIZE as u64, prot, nothing as u64, u64::MAX, 0])
        });
        debug_assert!(done.is_ok());
    }

    fn load(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn store(&self, at: usize, word: u64) {
        self.0[at].store(word, Ordering::Relaxed);
    }

    /// Whether none of these marks has moved since, nor that of all.
    pub(super) fn holds(&self, marks: &[u16], moment: u64) -> bool {
        let is_at_rest = |at: usize| self.0[at].load(Ordering::Acquire) <= moment;
        is_at_rest(ALL) && marks.iter().all(|mark| is_at_rest(MARKS_AT + usize::from(*mark)))
    }

    fn bytes(&self, at: usize, size: usize) -> Vec<u8> {
        let words = (at..at + size.div_ceil(8)).map(|at| self.load(at));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        bytes.truncate(size);
        bytes
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        for (place, part) in (at..).zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.store(place, u64::from_ne_bytes(word));
        }
    }

    /// The answer to a question, and what the call writes.
    fn find(&self, question: &Question, from: u64, path: &[u8]) -> Option<(i64, Vec<u8>)> {
        let hash = question.hash(from, path);
        places(hash).find_map(|slot| self.find_at(slot, hash, question, from, path))
    }

    fn find_at(
        &self,
        slot: usize,
        hash: u64,
        question: &Question,
        from: u64,
        path: &[u8],
    ) -> Option<(i64, Vec<u8>)> {
        let count = self.0[slot + COUNT].load(Ordering::Acquire);
        let word = |at: usize| self.load(slot + at);
        if word(HASH) != hash {
            return None;
        }
        let sizes = word(SIZES);
        let (size, rests_on) = (sizes as u16 as usize, (sizes >> 16) as u16 as usize);
        let data = (sizes >> 32) as usize;
        let is_it = count != 0
            && count.is_multiple_of(2)
            && word(NUMBER) == question.number as u64
            && word(FLAGS) == question.flags
            && word(FROM) == from
            && size == path.len()
            && data <= DATA
            && rests_on <= MARKS_TOLD;
        if !is_it {
            return None;
        }
        let mut marks = [0; MARKS_TOLD];
        for (at, four) in marks.chunks_mut(4).enumerate() {
            let word = word(RESTS_ON + at);
            for (at, mark) in four.iter_mut().enumerate() {
                *mark = (word >> (16 * at)) as u16;
            }
        }
        let (moment, answer) = (word(MOMENT), word(ANSWER) as i64);
        let asked = self.bytes(slot + PATH_AT, size);
        let data = self.bytes(slot + DATA_AT, data);
        // What was read is of one answer if the count is the same.
        fence(Ordering::Acquire);
        let is_whole = self.load(slot + COUNT) == count;
        let holds = || self.holds(&marks[..rests_on], moment);
        (is_whole && asked == path && holds()).then_some((answer, data))
    }
}

/// The server's side.
#[derive(Debug)]
pub struct Book {
    table: Table,
    /// The table's file, for programs that processes run.
    pub fd: i32,
    /// Moves with every change.
    moment: u64,
    images: Images,
}

/// What the server knows of images.
#[derive(Debug, Default)]
struct Images {
    of: Map<Id, Image>,
    /// The first byte that is free.
    next: usize,
}

impl Book {
    /// Of a table that is still empty.
    ///
    /// # Errors
    /// As `mmap(2)`, `fcntl(2)` with `F_ADD_SEALS`.
    pub fn of(fd: i32) -> Sys<Book> {
        let table = Table::map(fd, libc::PROT_READ | libc::PROT_WRITE)?;
        // From now on nobody else can write to it, by a mapping or otherwise.
        wire::seal(fd, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE)?;
        Ok(Book { table, fd, moment: 0, images: Images::default() })
    }

    /// No answer that rests on one of these holds any longer.
    pub fn changed(&mut self, marks: Marks) {
        self.moment += 1;
        let moves = |at: usize| self.table.0[at].store(self.moment, Ordering::Release);
        match marks.told() {
            Some(told) => told.iter().for_each(|mark| moves(MARKS_AT + usize::from(*mark))),
            None => moves(ALL),
        }
    }

    /// The image of a file that a process has opened, if there is one that still holds.
    pub fn image(&self, id: Id) -> Option<Image> {
        let image = self.images.of.get(&id).copied()?;
        let marks = image.marks();
        self.table.holds(marks.told()?, image.moment).then_some(image)
    }

    /// Whether there is room for an image of so many bytes.
    pub fn has_room(&self, size: u64) -> bool {
        (self.images.next as u64).saturating_add(size) <= IMAGES as u64
    }

    /// Puts a file's content behind the table. `None`: there is no room.
    pub fn add_image(&mut self, id: Id, content: &[u8]) -> Option<Image> {
        let before = self.images.of.get(&id).copied();
        let is_same = |image: &Image| {
            let bytes = self.table.image(image.place, image.size as usize);
            bytes.is_some_and(|bytes| bytes == content)
        };
        let place = match before.filter(is_same) {
            Some(image) => image.place,
            None => self.put_image(content)? as u64,
        };
        let (object, size) = (u32::try_from(id).ok()?, content.len() as u64);
        let image = Image { object, place, size, moment: self.moment };
        self.images.of.insert(id, image);
        Some(image)
    }

    fn put_image(&mut self, content: &[u8]) -> Option<usize> {
        if !self.has_room(content.len() as u64) {
            return None;
        }
        let place = self.images.next;
        let to = self.table.0.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: it is inside of the mapping, which may be written to; no process knows of this part yet.
        unsafe {
            let to = to.add(IMAGES_AT + place);
            std::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
        }
        self.images.next = (place + content.len()).next_multiple_of(PAGE);
        Some(place)
    }

    /// Whether an object has, or had, an image.
    pub fn had_image(&self, id: Id) -> bool {
        self.images.of.contains_key(&id)
    }

    /// Writes an answer down, unless it rests on too much.
    pub fn write(
        &self,
        question: &Question,
        (from, path): (u64, &[u8]),
        answer: i64,
        data: &[u8],
        rests_on: Marks,
    ) {
        let table = &self.table;
        let Some(rests_on) = rests_on.told() else { return };
        let hash = question.hash(from, path);
        // In place of the same, or of nothing, or of the oldest.
        let age = |slot: usize| match table.load(slot + COUNT) {
            0 => (1, 0),
            _ if table.load(slot + HASH) == hash => (0, 0),
            _ => (2, table.load(slot + MOMENT)),
        };
        let Some(slot) = places(hash).min_by_key(|&slot| age(slot)) else { return };
        let count = table.load(slot + COUNT);
        table.store(slot + COUNT, count + 1);
        fence(Ordering::Release);
        table.store(slot + NUMBER, question.number as u64);
        table.store(slot + FLAGS, question.flags);
        table.store(slot + HASH, hash);
        table.store(slot + FROM, from);
        table.store(slot + MOMENT, self.moment);
        table.store(slot + ANSWER, answer as u64);
        let sizes = (data.len() as u64) << 32 | (rests_on.len() as u64) << 16 | path.len() as u64;
        table.store(slot + SIZES, sizes);
        for (at, four) in rests_on.chunks(4).enumerate() {
            let word = four.iter().rev().fold(0, |word, mark| word << 16 | u64::from(*mark));
            table.store(slot + RESTS_ON + at, word);
        }
        table.put(slot + PATH_AT, path);
        table.put(slot + DATA_AT, data);
        table.0[slot + COUNT].store(count + 2, Ordering::Release);
    }
}

/// What a call changes of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Nothing that a question is about.
    Nothing,
    /// Names, what had or has them, or what is open at the number that is its first argument.
    Traced,
    /// Perhaps more.
    Any,
}

impl Changes {
    /// By the number and the arguments of a call.
    pub fn of(number: i64, words: &[u64; 6]) -> Changes {
        match number {
            libc::SYS_open | libc::SYS_openat => match Question::of(number, words) {
                Some(_) => Changes::Nothing,
                None => Changes::Traced,
            },
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_lseek
            | libc::SYS_getdents
            | libc::SYS_getdents64
            | libc::SYS_close
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_syncfs
            | libc::SYS_sync
            | libc::SYS_sync_file_range
            | libc::SYS_flock
            | libc::SYS_fcntl
            | libc::SYS_chdir
            | libc::SYS_fchdir
            | libc::SYS_chroot
            | libc::SYS_umask
            | libc::SYS_fadvise64
            | libc::SYS_readahead
            | libc::SYS_stat
            | libc::SYS_lstat
            | libc::SYS_fstat
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_statfs
            | libc::SYS_fstatfs
            | libc::SYS_access
            | libc::SYS_faccessat
            | libc::SYS_faccessat2
            | libc::SYS_readlink
            | libc::SYS_readlinkat
            | libc::SYS_getcwd
            | libc::SYS_getxattr
            | libc::SYS_lgetxattr
            | libc::SYS_fgetxattr
            | libc::SYS_listxattr
            | libc::SYS_llistxattr
            | libc::SYS_flistxattr => Changes::Nothing,
            libc::SYS_creat
            | libc::SYS_mkdir
            | libc::SYS_mkdirat
            | libc::SYS_rmdir
            | libc::SYS_unlink
            | libc::SYS_unlinkat
            | libc::SYS_rename
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_symlink
            | libc::SYS_symlinkat
            | libc::SYS_link
            | libc::SYS_linkat
            | libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_ftruncate => Changes::Traced,
            _ => Changes::Any,
        }
    }

    /// The number whose object a call changes.
    pub fn number(number: i64, words: &[u64; 6]) -> Option<i32> {
        let by_number = [libc::SYS_write, libc::SYS_pwrite64, libc::SYS_ftruncate];
        by_number.contains(&number).then_some(words[0] as i32)
    }
}

/// Forgets what was answered to the owner, if the process is another user now.
pub fn forget(process: &Process, link: &mut Link) {
    if let Some(table) = process.answers.filter(|_| process.standing() == 0) {
        table.forget();
        link.answers = None;
    }
}

/// Where the program is that a process runs by a path. Programs have no other libraries in the transaction then. `None`: the server is to be asked.
pub fn find_program(link: &Link, flags: i32, path: &[u8]) -> Option<Sys<Vec<u8>>> {
    let table = link.answers.as_ref()?;
    // SAFETY: the window is mapped as long as the process is in the transaction.
    let standing = unsafe { wire::standing(link.window) }.load(Ordering::Acquire);
    let from = from_path(path, standing)?;
    let (answer, place) = table.find(&Question::program(flags), from, path)?;
    Some(check(answer).map(|_| place))
}

/// Answers a call by the table. `None`: the server is to be asked.
pub fn find(process: &Process, call: &Call) -> Option<Sys<u64>> {
    let table = process.answers.as_ref()?;
    let question = Question::of(call.number(), call.words())?;
    let standing = process.standing();
    let (from, path) = match question.about {
        About::Path(at) => {
            let path = call.path(at).ok()?;
            (from_path(&path, standing)?, path)
        }
        About::Number(at) => {
            if at.is_some_and(|at| call.path(at).map_or(true, |path| !path.is_empty())) {
                return None;
            }
            let object = process.link().objects.get(&call.int(0)).copied()?;
            (from_object(object, standing)?, Vec::new())
        }
    };
    let (answer, data) = table.find(&question, from, &path)?;
    if answer < 0 {
        return Some(Err(Errno::from_raw_os_error(-answer as i32)));
    }
    if question.opens() {
        return images::open(process, question.flags(), &data);
    }
    let Some((at, size)) = question.out else { return Some(Ok(answer as u64)) };
    let data = &data[..data.len().min(size)];
    let to = call.buffer(at, data.len() as u64).writable().ok()?;
    if to.len() < data.len() {
        return None;
    }
    to.write(0, data);
    Some(Ok(if question.reads_link() { data.len() as u64 } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(number: i64, words: [u64; 6]) -> Question {
        Question::of(number, &words).unwrap()
    }

    #[test]
    fn an_answer_holds_until_what_it_rests_on_has_changed() {
        let fd = Table::new_file().unwrap();
        let mut book = Book::of(fd).unwrap();
        let reader = Table::map(fd, libc::PROT_READ).unwrap();
        crate::tx::kernel::close(fd);
        let question = ask(libc::SYS_stat, [0; 6]);
        let mut rests_on = Marks::default();
        rests_on.insert(3);
        let path = b"/usr/include/stdio.h";
        let stat = [7; size_of::<libc::stat>()];
        book.write(&question, (ROOT.into(), path), 0, &stat, rests_on);
        assert_eq!(reader.find(&question, ROOT.into(), path), Some((0, stat.to_vec())));
        assert_eq!(reader.find(&ask(libc::SYS_lstat, [0; 6]), ROOT.into(), path), None);
        assert_eq!(reader.find(&question, ROOT.into(), b"/usr/include/stdlib.h"), None);
        let mut other = Marks::default();
        other.insert(4);
        book.changed(other);
        assert!(reader.find(&question, ROOT.into(), path).is_some());
        book.changed(rests_on);
        assert_eq!(reader.find(&question, ROOT.into(), path), None);
        book.write(&question, (ROOT.into(), path), 0, &stat, rests_on);
        assert!(reader.find(&question, ROOT.into(), path).is_some());
        book.changed(Marks::ALL);
        assert_eq!(reader.find(&question, ROOT.into(), path), None);
    }

    #[test]
    fn relative_paths_belong_to_one_directory() {
        let fd = Table::new_file().unwrap();
        let book = Book::of(fd).unwrap();
        crate::tx::kernel::close(fd);
        let question = ask(libc::SYS_access, [0; 6]);
        let missing = -i64::from(libc::ENOENT);
        let write = |standing: u32, path: &[u8]| {
            if let Some(from) = from_path(path, standing) {
                book.write(&question, (from, path), missing, &[], Marks::default());
            }
        };
        write(standing(Some(5)), b"config.h");
        write(standing(None), b"other.h");
        let find = |standing: u32, path: &[u8]| {
            book.table.find(&question, from_path(path, standing)?, path)
        };
        assert_eq!(find(standing(Some(5)), b"config.h"), Some((missing, Vec::new())));
        assert_eq!(find(standing(Some(6)), b"config.h"), None);
        assert_eq!(find(standing(None), b"config.h"), None);
        assert_eq!(find(standing(Some(5)), b"other.h"), None);
        assert_eq!(find(0, b"/config.h"), None);
    }

    #[test]
    fn only_looks_are_questions() {
        let here = libc::AT_FDCWD as u32;
        let words = |flags: i32| [u64::from(here), 0, flags as u64, 0, 0, 0];
        assert!(Question::of(libc::SYS_openat, &words(libc::O_CLOEXEC)).is_some());
        assert!(Question::of(libc::SYS_openat, &words(libc::O_DIRECTORY)).is_some());
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE] {
            assert_eq!(Question::of(libc::SYS_openat, &words(flags)), None, "{flags:o}");
            assert_eq!(Changes::of(libc::SYS_openat, &words(flags)), Changes::Traced);
        }
        assert_eq!(Question::of(libc::SYS_openat, &[3, 0, 0, 0, 0, 0]), None);
        assert_eq!(Question::of(libc::SYS_readlink, &[0; 6]), None);
        assert_eq!(Changes::of(libc::SYS_chmod, &[0; 6]), Changes::Any);
        let link = ask(libc::SYS_readlink, [0, 0, 100, 0, 0, 0]);
        assert_eq!(link.data(99), Some((1, 99)));
        assert_eq!(link.data(100), None);
        assert_eq!(link.data(-i64::from(libc::EINVAL)), Some((0, 0)));
        assert_eq!(link.data(-i64::from(libc::EACCES)), None);
    }
}
