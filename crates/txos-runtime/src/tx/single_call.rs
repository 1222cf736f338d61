//! The first call of a transaction: as long as there is no second one, it need not be more than the
//! call that it is.
//!
//! - A look (stat, access, readlink, read) is made by the kernel, and remembered with its answer. A
//!   second call makes it again, as part of the transaction: if the answer is another one, somebody
//!   came in between, and the transaction is doomed.
//! - Of a change of a name, [the answer is foreseen](super::foreseen) where the kernel's looks say enough. Else it is made in
//!   shadow, and so is one write; but what it touches is acquired in the realm only when there is a second call. Without
//!   one, the end is the call itself: it is atomic already, and if the kernel answers otherwise than the transaction
//!   did, the transaction starts again.
//!
//! The first call is kept until then, and its pointers are not: the program may have used the memory for
//! something else. Whoever makes it again puts copies, or room, of ours in their places.
#![allow(unsafe_code)] // calls that are made again with memory of ours

use txos_engine::object::{FileId, FileKind};
use txos_engine::readset::validate::{OwnWrites, ValidationRules};
use txos_engine::realm::{Access, Facet};
use txos_engine::txn::{Outcome, Participant, Route};

use super::attrs::Object;
use super::files::FdTable;
use super::foreseen::Foreseen;
use super::kernel::{self, Errno, Sys};
use super::parts::Copies;
use super::parts::Start;
use super::{Failure, Tx, reason};
use crate::call::Call;
use crate::raw;
use crate::user::Readable;

/// The longest read or write that is put off, bytes.
const LENGTH_MAX: u64 = 16 << 10;
/// What the kernel writes whole, bytes: the smallest page.
const PAGE: u64 = 4 << 10;

/// What the first call was.
#[derive(Debug)]
pub enum First {
    /// There was none yet.
    None,
    /// A look by path: the call, its path, its answer, and what it gave.
    Look(Box<Look>),
    /// A read: the call, its answer, and a digest of the bytes.
    Read(Box<Read>),
    /// A file was opened to be read from, and perhaps closed again.
    Open(Box<Open>),
    /// A change of names that would succeed, of which nothing is done.
    Foreseen(Box<Foreseen>),
    /// A change of names, made in shadow: the call and its paths.
    Change(Box<Change>),
    /// Two changes of names: together they may be one ([`super::single_rename`]).
    Changes,
    /// A write: the call and its bytes.
    Write(Box<Write>),
    /// Something else, or there has been a second call.
    Over,
}

/// See [`First::Look`].
#[derive(Debug)]
pub struct Look {
    call: Call,
    path: Vec<u8>,
    answer: i64,
    gave: Vec<u8>,
}

/// See [`First::Read`].
#[derive(Debug)]
pub struct Read {
    call: Call,
    answer: i64,
    digest: u64,
    file: FileId,
}

/// See [`First::Open`].
#[derive(Debug)]
pub struct Open {
    call: Call,
    path: Vec<u8>,
    fd: i32,
    /// What it is open on, and the mount by which it was reached.
    file: FileId,
    mnt: u64,
    closed: bool,
}

/// See [`First::Change`].
#[derive(Clone, Debug)]
pub struct Change {
    /// As the program made it.
    pub call: Call,
    /// Which of its arguments are paths, and the paths.
    pub paths: Vec<(usize, Vec<u8>)>,
}

impl Change {
    /// What `make` gives of the call, with paths of ours.
    pub fn with_own_paths<T>(&self, make: impl FnOnce(&Call) -> T) -> T {
        let ended = |(at, path): &(usize, Vec<u8>)| (*at, [path.as_slice(), &[0]].concat());
        let paths: Vec<(usize, Vec<u8>)> = self.paths.iter().map(ended).collect();
        let mut call = self.call;
        for (at, path) in &paths {
            // SAFETY: the path ends with its zero, and lives until the answer.
            call = unsafe { call.with_word(*at, path.as_ptr() as u64) };
        }
        make(&call)
    }
}

/// See [`First::Write`].
#[derive(Debug)]
pub struct Write {
    call: Call,
    bytes: Vec<u8>,
    file: FileId,
}

impl Write {
    /// The call.
    ///
    /// # Safety
    /// This lives until the answer.
    unsafe fn call(&self) -> Call {
        // SAFETY: these are the bytes that the program's buffer had, and the call only reads them.
        unsafe { self.call.with_word(1, self.bytes.as_ptr() as u64) }
    }
}

/// A facet that is acquired when there is a second call.
#[derive(Debug)]
pub struct Later {
    facet: Kept,
    access: Access,
    path: Vec<u8>,
}

/// A [`Facet`] that owns its name.
#[derive(Debug)]
enum Kept {
    Entry(FileId, Vec<u8>),
    Listing(FileId),
    Attributes(FileId),
    Extent(FileId),
    Page(FileId, u64),
    Target(FileId),
    Xattrs(FileId),
    Descriptor(u64, u32),
}

impl Kept {
    fn of(facet: &Facet<'_>) -> Kept {
        match *facet {
            Facet::Entry { dir, name } => Kept::Entry(dir, name.to_vec()),
            Facet::Listing(id) => Kept::Listing(id),
            Facet::Attributes(id) => Kept::Attributes(id),
            Facet::Extent(id) => Kept::Extent(id),
            Facet::Page { file, number } => Kept::Page(file, number),
            Facet::Target(id) => Kept::Target(id),
            Facet::Xattrs(id) => Kept::Xattrs(id),
            Facet::Descriptor { process, number } => Kept::Descriptor(process, number),
        }
    }

    fn facet(&self) -> Facet<'_> {
        match self {
            Kept::Entry(dir, name) => Facet::Entry { dir: *dir, name },
            Kept::Listing(id) => Facet::Listing(*id),
            Kept::Attributes(id) => Facet::Attributes(*id),
            Kept::Extent(id) => Facet::Extent(*id),
            Kept::Page(file, number) => Facet::Page { file: *file, number: *number },
            Kept::Target(id) => Facet::Target(*id),
            Kept::Xattrs(id) => Facet::Xattrs(*id),
            Kept::Descriptor(process, number) => {
                Facet::Descriptor { process: *process, number: *number }
            }
        }
    }
}

/// Which argument of a look is its path, which where it gives its answer, and how much.
fn look_of(call: &Call) -> Option<(usize, Option<(usize, usize)>)> {
    const STAT: usize = size_of::<libc::stat>();
    const STATX: usize = size_of::<libc::statx>();
    let cwd = |at: usize| call.int(at) == libc::AT_FDCWD;
    match call.number() {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_access => Some((0, None)),
        libc::SYS_faccessat | libc::SYS_faccessat2 if cwd(0) => Some((1, None)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat => Some((0, Some((1, STAT)))),
        libc::SYS_newfstatat if cwd(0) => Some((1, Some((2, STAT)))),
        libc::SYS_statx if cwd(0) => Some((1, Some((4, STATX)))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_readlink => Some((0, Some((1, call.word(2).min(4096) as usize)))),
        _ => None,
    }
}

/// Where the path of an open is, and its flags.
fn open_of(call: &Call) -> Option<(usize, i32)> {
    match call.number() {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => Some((0, call.int(1))),
        libc::SYS_openat if call.int(0) == libc::AT_FDCWD => Some((1, call.int(2))),
        _ => None,
    }
}

/// Which arguments of a change of names are paths.
fn change_of(call: &Call) -> Option<&'static [usize]> {
    let cwd = |at: usize| call.int(at) == libc::AT_FDCWD;
    match call.number() {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink | libc::SYS_rmdir | libc::SYS_mkdir => Some(&[0]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link | libc::SYS_symlink | libc::SYS_rename => Some(&[0, 1]),
        libc::SYS_unlinkat | libc::SYS_mkdirat if cwd(0) => Some(&[1]),
        libc::SYS_linkat | libc::SYS_renameat | libc::SYS_renameat2 if cwd(0) && cwd(2) => {
            Some(&[1, 3])
        }
        libc::SYS_symlinkat if cwd(1) => Some(&[0, 2]),
        _ => None,
    }
}

/// Whether a call does nothing but change names, given by paths.
pub fn changes_names(call: &Call) -> bool {
    change_of(call).is_some()
}

/// A digest of what was read: fast, and only for one process to compare with itself.
fn digest(bytes: Readable) -> u64 {
    const BLOCK: usize = 32;
    let mut lanes = [
        0x243f_6a88_85a3_08d3_u64,
        0x1319_8a2e_0370_7344,
        0xa409_3822_299f_31d0,
        0x082e_fa98_ec4e_6c89,
    ];
    let whole = bytes.len() / BLOCK * BLOCK;
    for at in (0..whole).step_by(BLOCK) {
        let block = bytes.array::<BLOCK>(at);
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            let word = u64::from_le_bytes(*word);
            *lane = (*lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    for at in whole..bytes.len() {
        let [byte] = bytes.array::<1>(at);
        lanes[0] = (lanes[0] ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    lanes.iter().fold(bytes.len() as u64, |all, lane| {
        (all ^ lane).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31)
    })
}

impl Tx {
    /// Makes the first call, if it is one that can be put off.
    pub fn first_call(&mut self, call: &Call) -> Option<i64> {
        self.start.first = First::Over;
        if self.how.flags & super::flags::COMMAND != 0 {
            return None;
        }
        if let Some((path_at, gives)) = look_of(call) {
            return self.first_look_by_path(call, path_at, gives);
        }
        if let Some((path_at, flags)) = open_of(call) {
            return self.first_open(call, path_at, flags);
        }
        let len = call.word(2);
        match call.number() {
            libc::SYS_read | libc::SYS_pread64 if len <= LENGTH_MAX => self.first_read(call),
            libc::SYS_write | libc::SYS_pwrite64 if (1..=LENGTH_MAX).contains(&len) => {
                self.first_write(call)
            }
            _ => {
                let paths_at = change_of(call)?;
                let mut paths = Vec::with_capacity(2);
                for &at in paths_at {
                    paths.push((at, call.path(at).ok()?));
                }
                let change = Change { call: *call, paths };
                if let Some(foreseen) = self.foresee(&change) {
                    self.start.first = First::Foreseen(Box::new(foreseen));
                    return Some(0);
                }
                self.start.first = First::Change(Box::new(change));
                None
            }
        }
    }

    fn first_look_by_path(
        &mut self,
        call: &Call,
        path_at: usize,
        gives: Option<(usize, usize)>,
    ) -> Option<i64> {
        let quiet = quiet()?;
        // The kernel looks first: it says whether there is a path, and nothing is changed by a look.
        let answer = call.make();
        if answer == -i64::from(libc::EFAULT) {
            return Some(answer);
        }
        let path = match answer {
            // It may not have come as far as the path.
            ..0 => call.path(path_at).ok()?,
            // A null path is an empty one.
            _ if call.word(path_at) == 0 => return None,
            // SAFETY: the kernel has just looked at what it leads to.
            _ => unsafe { call.pointer(path_at).known_path() }.ok()?,
        };
        if path.is_empty() || super::open::leads_to_descriptor(&path) {
            return None;
        }
        if self::quiet() != Some(quiet) {
            // Somebody published meanwhile: it is looked at again, as one who may wait for him.
            return None;
        }
        let gave = match gives {
            Some((at, len)) if answer >= 0 => {
                let len = if gives_length(call) { answer as usize } else { len };
                // SAFETY: the kernel has just written so much.
                unsafe { call.buffer(at, len as u64).known() }.to_vec()
            }
            _ => Vec::new(),
        };
        self.start.first = First::Look(Box::new(Look { call: *call, path, answer, gave }));
        Some(answer)
    }

    fn first_open(&mut self, call: &Call, path_at: usize, flags: i32) -> Option<i64> {
        const HARMLESS: i32 = libc::O_CLOEXEC
            | libc::O_NOFOLLOW
            | libc::O_DIRECTORY
            | libc::O_NOCTTY
            | libc::O_LARGEFILE
            | 0o100_000;
        let path = call.path(path_at).ok()?;
        if flags & !HARMLESS != libc::O_RDONLY || super::open::leads_to_descriptor(&path) {
            return None;
        }
        let quiet = quiet()?;
        let answer = call.make();
        let fd = i32::try_from(answer).ok().filter(|&fd| fd >= 0)?;
        let stat = kernel::identify_fd(fd).ok()?;
        let (file, mnt) = (stat.id, stat.mnt);
        if !matches!(stat.kind(), FileKind::File | FileKind::Dir) {
            // Opening it has been felt at the other end: it is not done twice.
            return Some(raw::answer(self.plain(fd).map(|number| number as u64)));
        }
        if self::quiet() != Some(quiet) {
            kernel::close(fd);
            return None;
        }
        let fd = match self.claim_new(fd, flags & libc::O_CLOEXEC != 0) {
            Ok(fd) => fd,
            failed => return Some(raw::answer(failed.map(|fd| fd as u64))),
        };
        let answer = i64::from(fd);
        if self.closes_late() {
            self.fds.watch(fd);
        }
        let open = Open { call: *call, path, fd, file, mnt, closed: false };
        self.start.first = First::Open(Box::new(open));
        Some(answer)
    }

    fn first_read(&mut self, call: &Call) -> Option<i64> {
        let fd = call.int(0);
        let file = self.copies.plain_file(fd)?;
        if self.is_number_anothers(fd) {
            return None;
        }
        let quiet = quiet()?;
        let answer = call.make();
        if answer < 0 {
            // Nothing has happened: it fails again if there is more.
            return None;
        }
        if self::quiet() != Some(quiet) {
            if call.number() == libc::SYS_read {
                let _ = kernel::seek(fd, -answer, libc::SEEK_CUR);
            }
            return None;
        }
        // SAFETY: the kernel has just written so much.
        let digest = digest(unsafe { call.buffer(1, answer as u64).known() });
        self.start.first = First::Read(Box::new(Read { call: *call, answer, digest, file }));
        Some(answer)
    }

    fn first_write(&mut self, call: &Call) -> Option<i64> {
        let fd = call.int(0);
        if call.number() == libc::SYS_pwrite64 && call.long(3) < 0 {
            return None;
        }
        let flags = kernel::status_flags(fd).ok()?;
        let writes = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
        let plain = flags & (libc::O_PATH | libc::O_DIRECT) == 0;
        if !writes || !plain {
            return None;
        }
        let file = self.copies.plain_file(fd)?;
        let bytes = call.buffer(1, call.word(2)).read().ok()?;
        // It is carried out at the end.
        match self.claim_used(fd) {
            Err(_) if self.doom.is_some() => return Some(-i64::from(libc::ECANCELED)),
            Err(_) => return None,
            Ok(()) => {}
        }
        self.start.first = First::Write(Box::new(Write { call: *call, bytes, file }));
        Some(call.long(2))
    }

    /// There is a second call: the first becomes part of a transaction of several.
    ///
    /// # Errors
    /// The transaction is doomed: somebody came between the two.
    pub fn second_call(&mut self) -> Sys<()> {
        let looks = matches!(self.start.first, First::Look(_) | First::Read(_) | First::Open(_));
        self.start.only_names &= !looks && !matches!(self.start.first, First::Write(_));
        match std::mem::replace(&mut self.start.first, First::Over) {
            First::None | First::Over => Ok(()),
            First::Look(look) => self.look_again(&look),
            First::Read(read) => self.read_again(&read),
            First::Open(open) => {
                let first = self.fds.count();
                let done = self.open_again(&open);
                if done.is_err() && self.doom.is_some() {
                    // The program knows the number of the first open only, which the abort takes care of.
                    self.fds.close_opened_since(first, None);
                    self.start.first = First::Open(open);
                }
                done
            }
            First::Write(write) => self.write_really(&write),
            First::Foreseen(foreseen) => self.unfold(&foreseen),
            First::Change(_) | First::Changes => self.acquire_now(),
        }
    }

    /// Before a call that is not the first. If it changes names as the first did, what both touch is still acquired later.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn go_on_after_first(&mut self, call: &Call) -> Sys<()> {
        let more = self.start.only_names && self.may_be_plain() && changes_names(call);
        match std::mem::replace(&mut self.start.first, First::Over) {
            First::Foreseen(foreseen) if more => {
                self.start.first = First::Change(Box::new(foreseen.change.clone()));
                self.unfold(&foreseen)?;
            }
            other => self.start.first = other,
        }
        match self.start.first {
            First::Change(_) if more => {
                self.start.first = First::Changes;
                Ok(())
            }
            _ => self.second_call(),
        }
    }

    /// The second call closes what the first one opened: still nothing has happened.
    pub fn closes_first(&mut self, call: &Call) -> Option<i64> {
        let First::Open(open) = &mut self.start.first else { return None };
        if call.number() != libc::SYS_close || call.int(0) != open.fd || open.closed {
            return None;
        }
        let fd = open.fd;
        open.closed = true;
        self.fds.unwatch(fd);
        let answer = call.make();
        self.let_go_of_number(fd);
        Some(answer)
    }

    fn open_again(&mut self, open: &Open) -> Sys<()> {
        let (path_at, _) = open_of(&open.call).ok_or(Errno::IO)?;
        let mut path = open.path.clone();
        path.push(0);
        // SAFETY: the path ends with its zero, and lives until the answer.
        let call = unsafe { open.call.with_word(path_at, path.as_ptr() as u64) };
        // By the program, or on another thread by a collector.
        let closed = open.closed || !self.fds.is_still(open.fd);
        if closed {
            self.fds.unwatch(open.fd);
        } else {
            is_still(open.fd, open.file)?;
        }
        let opened = self.carry_out(&call);
        let number = match opened {
            Ok(number) => number as i32,
            Err(super::acquire::DOOMED) if self.doom.is_some() => {
                return Err(super::acquire::DOOMED);
            }
            Err(_) => return Err(self.changed_between(&open.path)),
        };
        let real = self.real(number)?;
        let now = kernel::identify_fd(real).map(|stat| (stat.id, stat.mnt));
        if now != Ok((open.file, open.mnt)) {
            return Err(self.changed_between(&open.path));
        }
        if closed {
            return self.close_number(number);
        }
        // The program knows it by the number that the first open gave.
        self.fds.replace_number(number, open.fd)?;
        self.let_go_of_number(number);
        Ok(())
    }

    fn look_again(&mut self, look: &Look) -> Sys<()> {
        let (path_at, gives) = look_of(&look.call).ok_or(Errno::IO)?;
        let mut path = look.path.clone();
        path.push(0);
        // SAFETY: the path ends with its zero, and lives until the answer.
        let mut call = unsafe { look.call.with_word(path_at, path.as_ptr() as u64) };
        // As much as any look gives: of a link no more than a path is long.
        let mut out = vec![0u8; 4096];
        if let Some((at, _)) = gives {
            // SAFETY: there is room for the answer, and nobody refers to it before it is there.
            call = unsafe { call.with_word(at, out.as_mut_ptr() as u64) };
        }
        let answer = match self.carry_out(&call) {
            Err(super::acquire::DOOMED) if self.doom.is_some() => {
                return Err(super::acquire::DOOMED);
            }
            other => raw::answer(other),
        };
        let same = answer == look.answer && same_look(&look.call, &out, &look.gave);
        // What is not versioned may change at any time, and that is no conflict.
        let nofollow = libc::AT_SYMLINK_NOFOLLOW;
        if same || matches!(self.object(libc::AT_FDCWD, &look.path, nofollow), Ok(Object::Live(_)))
        {
            return Ok(());
        }
        Err(self.changed_between(&look.path))
    }

    fn read_again(&mut self, read: &Read) -> Sys<()> {
        let fd = read.call.int(0);
        is_still(fd, read.file)?;
        if read.call.number() == libc::SYS_read {
            kernel::seek(fd, -read.answer, libc::SEEK_CUR)?;
        }
        let mut out = vec![0u8; read.call.word(2) as usize];
        // SAFETY: there is as much room as in the program's buffer, and it lives until the answer is seen.
        let call = unsafe { read.call.with_word(1, out.as_mut_ptr() as u64) };
        let answer = raw::answer(self.carry_out(&call));
        if answer == read.answer {
            // SAFETY: it was just written.
            let given = unsafe { call.buffer(1, answer as u64).known() };
            if digest(given) == read.digest {
                return Ok(());
            }
        }
        Err(self.changed_between(b""))
    }

    fn write_really(&mut self, write: &Write) -> Sys<()> {
        is_still(write.call.int(0), write.file)?;
        // SAFETY: the bytes live until the answer.
        let n = self.carry_out(&unsafe { write.call() })?;
        if n == write.call.word(2) { Ok(()) } else { Err(self.changed_between(b"")) }
    }

    fn acquire_now(&mut self) -> Sys<()> {
        for later in std::mem::take(&mut self.start.later) {
            self.acquire(&later.facet.facet(), later.access, &later.path)?;
        }
        // It was looked at before it was acquired.
        let conflicts =
            self.locks.reads.validate(ValidationRules::default(), &OwnWrites::default());
        match conflicts.first() {
            None => Ok(()),
            Some(conflict) => {
                use std::os::unix::ffi::OsStrExt;
                let path = conflict.path.as_os_str().as_bytes().to_vec();
                Err(self.changed_outside(&path, &conflict.what.to_string()))
            }
        }
    }

    /// What the first call said does not hold any more: the transaction is doomed.
    pub fn changed_between(&mut self, path: &[u8]) -> Errno {
        self.changed_outside(path, "it was changed between the first call and the second")
    }

    /// The end after one call: that call. `None`: there was none, or it was not of that kind.
    pub fn only_call(&mut self) -> Option<Result<(), Failure>> {
        match std::mem::replace(&mut self.start.first, First::Over) {
            First::Look(_) | First::Read(_) | First::Open(_) => Some(Ok(())),
            First::Foreseen(foreseen) if self.may_be_plain() => {
                let done = self.finish_foreseen(&foreseen);
                Some(done.unwrap_or_else(|| self.finish_in_shadow(&foreseen)))
            }
            First::Change(change) if self.tree.has_changes() && self.may_be_plain() => {
                Some(self.finish_change(&change))
            }
            First::Write(write) if self.may_be_plain() => match overwrites(&write) {
                Some(at) => Some(self.finish_write(&write, at)),
                None => {
                    self.start.first = First::Write(write);
                    None
                }
            },
            other => {
                self.start.first = other;
                None
            }
        }
    }

    /// What was foreseen, in the way of a transaction that made it in shadow: others are at work all the time.
    fn finish_in_shadow(&mut self, foreseen: &Foreseen) -> Result<(), Failure> {
        let change = foreseen.change.clone();
        self.start.first = First::Change(Box::new(change.clone()));
        let made = self.ready().and_then(|()| self.unfold(foreseen));
        match made {
            Ok(()) if self.tree.has_changes() => self.finish_change(&change),
            // The path leads out of the versioned trees by now, where the call was made at once.
            Ok(()) => Ok(()),
            Err(_) => Err(self.doom.take().unwrap_or_default()),
        }
    }

    fn finish_change(&mut self, change: &Change) -> Result<(), Failure> {
        let acquired = self.acquire_for_publish();
        self.publish_alone(acquired, is_others, || {
            change.with_own_paths(|call| call.answer().map(drop))
        })
    }

    /// Acquires what was put off, for a publish that looks for itself whether all is as it was.
    pub fn acquire_for_publish(&mut self) -> Sys<()> {
        self.start.first = First::Over;
        let later = std::mem::take(&mut self.start.later);
        later
            .iter()
            .try_for_each(|later| self.acquire(&later.facet.facet(), later.access, &later.path))
    }

    fn finish_write(&mut self, write: &Write, at: u64) -> Result<(), Failure> {
        let (file, len) = (write.file, write.bytes.len() as u64);
        let pages = at >> 12..=(at + len - 1) >> 12;
        let mut facets =
            vec![(Facet::Attributes(file), Access::Insert), (Facet::Extent(file), Access::Read)];
        facets.extend(pages.map(|number| (Facet::Page { file, number }, Access::Write)));
        let acquired =
            facets.iter().try_for_each(|(facet, access)| self.acquire(facet, *access, b""));
        self.publish_alone(acquired, is_others, || overwrite(write, at))
    }

    /// Makes the one call as a publish among those of others: nobody who works on the same goes on
    /// without having seen it. `is_others`: whether what it fails with says that somebody else has changed names.
    pub fn publish_alone(
        &mut self,
        acquired: Sys<()>,
        is_others: impl Fn(Errno) -> bool,
        call: impl FnOnce() -> Sys<()>,
    ) -> Result<(), Failure> {
        if acquired.is_err() {
            return Err(self.doom.take().unwrap_or_default());
        }
        let left = self.installs_numbers().then_some(&mut self.locks.left);
        let participant = Participant::new(self.locks.handle.take()).leaving(left);
        let done = participant.commit_by_call(call).map_err(|failed| self.not_committed(failed))?;
        done.map_err(|errno| Failure {
            reason: if is_others(errno) { reason::CONFLICT } else { reason::FAILED },
            errno: if is_others(errno) { libc::ECANCELED } else { errno.raw_os_error() },
            what: format!(
                "what would have succeeded when it was called failed at the end: {}",
                std::io::Error::from(errno)
            ),
            ..Failure::default()
        })
    }

    /// Whether the call itself promises all that was asked for.
    pub fn may_be_plain(&self) -> bool {
        Route::of(Outcome::Call, self.promises()) == Route::Call
    }

    /// Before something that a call whose answer was foreseen must not feel.
    pub fn settle_foreseen(&mut self) {
        if matches!(self.start.first, First::Foreseen(_)) {
            self.before_pause();
        }
    }

    /// Before others of the program's calls come in between (sys_xpause).
    pub fn before_pause(&mut self) {
        let done = self.ready().and_then(|()| match self.start.first {
            First::None => Ok(()),
            _ => self.second_call(),
        });
        if done.is_err() && self.doom.is_none() {
            let _ = self.changed_outside(b"", "its first call could not be made again");
        }
    }

    /// A write that was put off and is to be durable or ordered after all.
    pub fn carry_out_first(&mut self) -> Sys<()> {
        match self.start.first {
            First::Write(_) | First::Foreseen(_) | First::Change(_) | First::Changes => {
                self.second_call()
            }
            _ => Ok(()),
        }
    }
}

impl Copies {
    /// A regular file of a versioned file system.
    fn plain_file(&mut self, fd: i32) -> Option<FileId> {
        let stat = kernel::identify_fd(fd).ok()?;
        let key = (stat.id.dev, stat.mnt);
        // One on a file system that no transaction has met yet goes the long way.
        let plain = stat.kind() == FileKind::File && self.file_systems.contains(&(key, true));
        plain.then_some(stat.id)
    }
}

impl Start {
    /// Instead of acquiring a facet during the first call: `true` if that is put off.
    pub fn acquires_later(&mut self, facet: &Facet<'_>, access: Access, path: &[u8]) -> bool {
        if !self.acquires_at_the_end() {
            return false;
        }
        self.later.push(Later { facet: Kept::of(facet), access, path: path.to_vec() });
        true
    }

    /// Whether what is touched is acquired only when there is another call, or at the end.
    pub fn acquires_at_the_end(&self) -> bool {
        matches!(self.first, First::Change(_) | First::Changes)
    }

    /// The number of a file that the first call has opened, until it becomes one of the transaction's.
    #[must_use]
    pub fn opened(&self) -> Option<i32> {
        match &self.first {
            First::Open(open) => Some(open.fd),
            _ => None,
        }
    }

    /// The same as long as it is open.
    #[must_use]
    pub fn open(&self) -> Option<i32> {
        match &self.first {
            First::Open(open) if !open.closed => Some(open.fd),
            _ => None,
        }
    }

    /// On abort: a read that the kernel made has moved the offset.
    /// `managed`: what was opened keeps its number, on a dead object.
    /// `fds`: where is known whether another thread has closed it meanwhile.
    pub fn undo_first(&mut self, managed: bool, fds: &FdTable) {
        if let First::Open(open) = &self.first
            && !open.closed
            && fds.is_still(open.fd)
            && is_still(open.fd, open.file).is_ok()
        {
            let cloexec = kernel::close_on_exec(open.fd).unwrap_or(true);
            let dead = if managed { kernel::dead() } else { None };
            match dead.map(|dead| kernel::dup3(dead.number(), open.fd, cloexec)) {
                Some(Ok(_)) => {}
                _ => kernel::close(open.fd),
            }
        }
        if let First::Read(read) = &self.first
            && read.call.number() == libc::SYS_read
            && is_still(read.call.int(0), read.file).is_ok()
        {
            let _ = kernel::seek(read.call.int(0), -read.answer, libc::SEEK_CUR);
        }
    }
}

/// See [`txos_engine::realm::Realm::quiet`]; 0 where there is no realm.
pub fn quiet() -> Option<u64> {
    match super::shared::realm_as_known() {
        Some(realm) => realm.quiet(),
        None => Some(0),
    }
}

/// Whether a number is still of the same file: another thread may have closed it, and opened
/// something else.
fn is_still(fd: i32, file: FileId) -> Sys<()> {
    match kernel::identify_fd(fd) {
        Ok(stat) if stat.id == file => Ok(()),
        _ => Err(Errno::BADF),
    }
}

/// What a change of a name fails with when somebody else has changed names meanwhile. Everything else
/// would fail again.
pub fn is_others(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT
            | Errno::EXIST
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::NOTEMPTY
            | Errno::LOOP
            | Errno::STALE
            | Errno::XDEV
            | Errno::BUSY
    )
}

/// Where a write goes, if it lies within its file, as it needs no room then that there may not be; and within a page. Between
/// two pages the kernel looks whether the process is killed, and leaves the rest.
fn overwrites(write: &Write) -> Option<u64> {
    let fd = write.call.int(0);
    let flags = kernel::status_flags(fd).ok()?;
    if flags & libc::O_APPEND != 0 {
        return None;
    }
    let at = match write.call.number() {
        libc::SYS_pwrite64 => write.call.word(3),
        _ => kernel::seek(fd, 0, libc::SEEK_CUR).ok()?,
    };
    let len = write.bytes.len() as u64;
    if at % PAGE + len > PAGE {
        return None;
    }
    let now = kernel::identify_fd(fd).ok().filter(|now| now.id == write.file)?;
    (at.checked_add(len)? <= now.size).then_some(at)
}

/// Carries a write out; what was there is put back if it can't be carried out as a whole.
fn overwrite(write: &Write, at: u64) -> Sys<()> {
    let fd = write.call.int(0);
    let mut old = vec![0u8; write.bytes.len()];
    let readable = kernel::pread(fd, &mut old, at).is_ok_and(|n| n == old.len());
    // SAFETY: the bytes live until the answer.
    let short = match unsafe { write.call() }.answer() {
        Ok(n) if n == write.call.word(2) => return Ok(()),
        Ok(n) => n,
        Err(errno) => return Err(errno),
    };
    // Where the old bytes can't be known, the rest is what is left to try.
    let rest = write.bytes.get(short as usize..).unwrap_or_default();
    match kernel::pwrite_all(fd, rest, at + short) {
        Ok(()) => {
            if write.call.number() == libc::SYS_write {
                let _ = kernel::seek(fd, (at + write.call.word(2)) as i64, libc::SEEK_SET);
            }
            Ok(())
        }
        Err(errno) => {
            if readable {
                let _ = kernel::pwrite_all(fd, &old[..short as usize], at);
            }
            Err(errno)
        }
    }
}

/// Whether the answer of a look says how much it gave.
#[cfg(target_arch = "x86_64")]
fn gives_length(call: &Call) -> bool {
    call.number() == libc::SYS_readlink
}

/// The same where that call does not exist.
#[cfg(not(target_arch = "x86_64"))]
fn gives_length(_call: Call) -> bool {
    false
}

/// Compares what two looks gave; times of last access and block counts may differ.
fn same_look(call: &Call, now: &[u8], then: &[u8]) -> bool {
    if then.is_empty() {
        return true;
    }
    let now = now.get(..then.len()).unwrap_or_default();
    if gives_length(call) {
        return now == then;
    }
    // Device, inode, link count, mode, owners, size, mtime and ctime: at these places in both structures.
    let fields: &[(usize, usize)] = if call.number() == libc::SYS_statx {
        &[(16, 48), (96, 108), (112, 124), (136, 144)]
    } else {
        &[(0, 40), (48, 56), (88, 120)]
    };
    fields.iter().all(|&(from, to)| now.get(from..to) == then.get(from..to))
}
