//! The first call of a transaction: as long as there is no second one, it need not be more than the
//! call that it is.
//!
//! - A look (stat, access, readlink, read) is made by the kernel, and remembered with its answer. A
//!   second call makes it again, as part of the transaction: if the answer is another one, somebody
//!   came in between, and the transaction is doomed.
//! - A change (of a name, or one write) is made in shadow as ever, but what it touches is acquired in
//!   the realm only when there is a second call. Without one, the end is the call itself: it is atomic
//!   already, and if the kernel answers otherwise than the shadow did, the transaction starts again.

use txos_engine::object::{FileId, FileKind};
use txos_engine::readset::validate::{OwnWrites, ValidationRules};
use txos_engine::realm::{Access, Facet};
use txos_engine::txn::{Outcome, Participant, Route};

use super::kernel::{self, Sys, check, sys};
use super::{Failure, Tx, raw_call, reason, user};

/// The longest read or write that is put off, bytes.
const LENGTH_MAX: u64 = 16 << 10;

/// What the first call was.
#[derive(Debug)]
pub enum First {
    /// There was none yet.
    None,
    /// A look by path: its number and arguments, its path, its answer, and what it gave.
    Look(Box<Look>),
    /// A read: number and arguments, its answer, and a digest of the bytes.
    Read(Box<Read>),
    /// A file was opened to be read from, and perhaps closed again.
    Open(Box<Open>),
    /// A change of names: number, arguments, paths.
    Change(Box<Change>),
    /// Two changes of names: together they may be one ([`super::single`]).
    Changes,
    /// A write: number, arguments, bytes.
    Write(Box<Write>),
    /// Something else, or there has been a second call.
    Over,
}

/// See [`First::Look`].
#[derive(Debug)]
pub struct Look {
    number: i64,
    args: [u64; 6],
    path: Vec<u8>,
    answer: i64,
    gave: Vec<u8>,
}

/// See [`First::Read`].
#[derive(Debug)]
pub struct Read {
    number: i64,
    args: [u64; 6],
    answer: i64,
    digest: u64,
    file: FileId,
}

/// See [`First::Open`].
#[derive(Debug)]
pub struct Open {
    number: i64,
    args: [u64; 6],
    path: Vec<u8>,
    fd: i32,
    /// What it is open on, and the mount by which it was reached.
    file: FileId,
    mnt: u64,
    closed: bool,
}

/// See [`First::Change`].
#[derive(Debug)]
pub struct Change {
    number: i64,
    args: [u64; 6],
    paths: Vec<(usize, Vec<u8>)>,
}

/// See [`First::Write`].
#[derive(Debug)]
pub struct Write {
    number: i64,
    args: [u64; 6],
    bytes: Vec<u8>,
    file: FileId,
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
        }
    }
}

/// Which argument of a look is its path, which where it gives its answer, and how much.
fn look_of(number: i64, a: &[u64; 6]) -> Option<(usize, Option<(usize, usize)>)> {
    const STAT: usize = size_of::<libc::stat>();
    const STATX: usize = size_of::<libc::statx>();
    let cwd = |at: usize| a[at] as i32 == libc::AT_FDCWD;
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_access => Some((0, None)),
        libc::SYS_faccessat | libc::SYS_faccessat2 if cwd(0) => Some((1, None)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat => Some((0, Some((1, STAT)))),
        libc::SYS_newfstatat if cwd(0) => Some((1, Some((2, STAT)))),
        libc::SYS_statx if cwd(0) => Some((1, Some((4, STATX)))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_readlink => Some((0, Some((1, a[2].min(4096) as usize)))),
        _ => None,
    }
}

/// Where the path of an open is, and its flags.
fn open_of(number: i64, a: &[u64; 6]) -> Option<(usize, i32)> {
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => Some((0, a[1] as i32)),
        libc::SYS_openat if a[0] as i32 == libc::AT_FDCWD => Some((1, a[2] as i32)),
        _ => None,
    }
}

/// Which arguments of a change of names are paths.
fn change_of(number: i64, a: &[u64; 6]) -> Option<&'static [usize]> {
    let cwd = |at: usize| a[at] as i32 == libc::AT_FDCWD;
    match number {
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
pub fn changes_names(number: i64, args: &[u64; 6]) -> bool {
    change_of(number, args).is_some()
}

/// A digest of what was read: fast, and only for one process to compare with itself.
fn digest(bytes: &[u8]) -> u64 {
    let mut lanes = [
        0x243f_6a88_85a3_08d3_u64,
        0x1319_8a2e_0370_7344,
        0xa409_3822_299f_31d0,
        0x082e_fa98_ec4e_6c89,
    ];
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            *lane = (*lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    for &byte in chunks.remainder() {
        lanes[0] = (lanes[0] ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    lanes.iter().fold(bytes.len() as u64, |all, lane| {
        (all ^ lane).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31)
    })
}

impl Tx {
    /// Makes the first call, if it is one that can be put off.
    pub fn first_call(&mut self, number: i64, a: [u64; 6]) -> Option<i64> {
        self.first = First::Over;
        if self.how.flags & super::flags::COMMAND != 0 {
            return None;
        }
        if let Some((path_at, gives)) = look_of(number, &a) {
            return self.first_look_by_path(number, a, path_at, gives);
        }
        if let Some((path_at, flags)) = open_of(number, &a) {
            return self.first_open(number, a, path_at, flags);
        }
        match number {
            libc::SYS_read | libc::SYS_pread64 if a[2] <= LENGTH_MAX => self.first_read(number, a),
            libc::SYS_write | libc::SYS_pwrite64 if (1..=LENGTH_MAX).contains(&a[2]) => {
                self.first_write(number, a)
            }
            _ => {
                let paths_at = change_of(number, &a)?;
                let mut paths = Vec::with_capacity(2);
                for &at in paths_at {
                    paths.push((at, user::path(a[at]).ok()?.to_vec()));
                }
                self.first = First::Change(Box::new(Change { number, args: a, paths }));
                None
            }
        }
    }

    fn first_look_by_path(
        &mut self,
        number: i64,
        args: [u64; 6],
        path_at: usize,
        gives: Option<(usize, usize)>,
    ) -> Option<i64> {
        let quiet = quiet()?;
        // The kernel looks first: it says whether there is a path, and nothing is changed by a look.
        let answer = raw_call(number, args);
        if answer == -i64::from(libc::EFAULT) {
            return Some(answer);
        }
        let path = match answer {
            // It may not have come as far as the path.
            ..0 => user::path(args[path_at]).ok()?,
            // A null path is an empty one.
            _ if args[path_at] == 0 => return None,
            _ => user::known_path(args[path_at]).ok()?,
        };
        if path.is_empty() || super::open::leads_to_descriptor(path) {
            return None;
        }
        if self::quiet() != Some(quiet) {
            // Somebody published meanwhile: it is looked at again, as one who may wait for him.
            return None;
        }
        let gave = match gives {
            Some((at, len)) if answer >= 0 => {
                let len = if number_gives_length(number) { answer as usize } else { len };
                user::known(args[at], len as u64).to_vec()
            }
            _ => Vec::new(),
        };
        let path = path.to_vec();
        self.first = First::Look(Box::new(Look { number, args, path, answer, gave }));
        Some(answer)
    }

    fn first_open(
        &mut self,
        number: i64,
        args: [u64; 6],
        path_at: usize,
        flags: i32,
    ) -> Option<i64> {
        const HARMLESS: i32 = libc::O_CLOEXEC
            | libc::O_NOFOLLOW
            | libc::O_DIRECTORY
            | libc::O_NOCTTY
            | libc::O_LARGEFILE
            | 0o100_000;
        let path = user::path(args[path_at]).ok()?;
        if flags & !HARMLESS != libc::O_RDONLY || super::open::leads_to_descriptor(path) {
            return None;
        }
        let quiet = quiet()?;
        let answer = raw_call(number, args);
        let fd = i32::try_from(answer).ok().filter(|&fd| fd >= 0)?;
        let stat = kernel::look_fd(fd).ok()?;
        let (file, mnt) = (stat.id, stat.mnt);
        if !matches!(stat.kind(), FileKind::File | FileKind::Dir) {
            // Opening it has been felt at the other end: it is not done twice.
            return Some(self.plain(fd).map_or_else(|e| -i64::from(e), i64::from));
        }
        if self::quiet() != Some(quiet) {
            kernel::close(fd);
            return None;
        }
        let path = path.to_vec();
        let open = Open { number, args, path, fd, file, mnt, closed: false };
        self.first = First::Open(Box::new(open));
        Some(answer)
    }

    fn first_read(&mut self, number: i64, args: [u64; 6]) -> Option<i64> {
        let fd = args[0] as i32;
        let file = self.plain_file(fd)?;
        let quiet = quiet()?;
        let answer = raw_call(number, args);
        if answer < 0 {
            // Nothing has happened: it fails again if there is more.
            return None;
        }
        if self::quiet() != Some(quiet) {
            if number == libc::SYS_read {
                let _ = kernel::seek(fd, -answer, libc::SEEK_CUR);
            }
            return None;
        }
        let digest = digest(user::known(args[1], answer as u64));
        self.first = First::Read(Box::new(Read { number, args, answer, digest, file }));
        Some(answer)
    }

    fn first_write(&mut self, number: i64, args: [u64; 6]) -> Option<i64> {
        let fd = args[0] as i32;
        if number == libc::SYS_pwrite64 && (args[3] as i64) < 0 {
            return None;
        }
        let flags = check(sys!(SYS_fcntl, fd, libc::F_GETFL)).ok()? as i32;
        let writes = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
        let plain = flags & (libc::O_PATH | libc::O_DIRECT) == 0;
        if !writes || !plain {
            return None;
        }
        let file = self.plain_file(fd)?;
        let bytes = user::bytes(args[1], args[2]).ok()?.to_vec();
        self.first = First::Write(Box::new(Write { number, args, bytes, file }));
        Some(args[2] as i64)
    }

    /// A regular file of a versioned file system.
    fn plain_file(&mut self, fd: i32) -> Option<FileId> {
        let stat = kernel::look_fd(fd).ok()?;
        let key = (stat.id.dev, stat.mnt);
        // One on a file system that no transaction has met yet goes the long way.
        let plain = stat.kind() == FileKind::File && self.file_systems.contains(&(key, true));
        plain.then_some(stat.id)
    }

    /// Instead of acquiring a facet during the first call: `true` if that is put off.
    pub fn acquires_later(&mut self, facet: &Facet<'_>, access: Access, path: &[u8]) -> bool {
        if !matches!(self.first, First::Change(_) | First::Changes) {
            return false;
        }
        self.later.push(Later { facet: Kept::of(facet), access, path: path.to_vec() });
        true
    }

    /// There is a second call: the first becomes part of a transaction of several.
    ///
    /// # Errors
    /// The transaction is doomed: somebody came between the two.
    pub fn second_call(&mut self) -> Sys<()> {
        let looks = matches!(self.first, First::Look(_) | First::Read(_) | First::Open(_));
        self.only_names &= !looks && !matches!(self.first, First::Write(_));
        match std::mem::replace(&mut self.first, First::Over) {
            First::None | First::Over => Ok(()),
            First::Look(look) => self.look_again(&look),
            First::Read(read) => self.read_again(&read),
            First::Open(open) => self.open_again(&open),
            First::Write(write) => self.write_really(&write),
            First::Change(_) | First::Changes => self.acquire_now(),
        }
    }

    /// The second call changes names as the first did: what both touch is still acquired later.
    pub fn changes_more(&mut self, number: i64, args: &[u64; 6]) -> bool {
        let more = matches!(self.first, First::Change(_))
            && self.only_names
            && self.may_be_plain()
            && changes_names(number, args);
        if more {
            self.first = First::Changes;
        }
        more
    }

    /// The second call closes what the first one opened: still nothing has happened.
    pub fn closes_first(&mut self, number: i64, args: [u64; 6]) -> Option<i64> {
        let First::Open(open) = &mut self.first else { return None };
        if number != libc::SYS_close || args[0] as i32 != open.fd || open.closed {
            return None;
        }
        open.closed = true;
        Some(raw_call(number, args))
    }

    fn open_again(&mut self, open: &Open) -> Sys<()> {
        let mut args = open.args;
        let (path_at, _) = open_of(open.number, &args).ok_or(libc::EIO)?;
        let mut path = open.path.clone();
        path.push(0);
        args[path_at] = path.as_ptr() as u64;
        if !open.closed {
            is_still(open.fd, open.file)?;
        }
        let opened = self.carry_out(open.number, args);
        let number = match opened {
            Ok(number) => number as i32,
            Err(super::touch::DOOMED) if self.doom.is_some() => return Err(super::touch::DOOMED),
            Err(_) => return Err(self.changed_between(&open.path)),
        };
        let real = self.real(number)?;
        let now = kernel::look_fd(real).map(|stat| (stat.id, stat.mnt));
        if now != Ok((open.file, open.mnt)) {
            return Err(self.changed_between(&open.path));
        }
        if open.closed {
            return self.close_number(number);
        }
        // The program knows it by the number that the first open gave.
        self.replace_number(number, open.fd)
    }

    fn look_again(&mut self, look: &Look) -> Sys<()> {
        let mut args = look.args;
        let (path_at, gives) = look_of(look.number, &args).ok_or(libc::EIO)?;
        let mut path = look.path.clone();
        path.push(0);
        args[path_at] = path.as_ptr() as u64;
        let mut out = vec![0u8; 4096];
        if let Some((at, _)) = gives {
            args[at] = out.as_mut_ptr() as u64;
        }
        let answer = match self.carry_out(look.number, args) {
            Ok(value) => value as i64,
            Err(super::touch::DOOMED) if self.doom.is_some() => return Err(super::touch::DOOMED),
            Err(errno) => -i64::from(errno),
        };
        let same = answer == look.answer && same_look(look.number, &out, &look.gave);
        if same { Ok(()) } else { Err(self.changed_between(&look.path)) }
    }

    fn read_again(&mut self, read: &Read) -> Sys<()> {
        let fd = read.args[0] as i32;
        is_still(fd, read.file)?;
        if read.number == libc::SYS_read {
            kernel::seek(fd, -read.answer, libc::SEEK_CUR)?;
        }
        let mut out = vec![0u8; read.args[2] as usize];
        let mut args = read.args;
        args[1] = out.as_mut_ptr() as u64;
        let answer = self.carry_out(read.number, args).map_or_else(|e| -i64::from(e), |n| n as i64);
        let given = out.get(..usize::try_from(answer).unwrap_or(0)).unwrap_or_default();
        if answer == read.answer && digest(given) == read.digest {
            return Ok(());
        }
        Err(self.changed_between(b""))
    }

    fn write_really(&mut self, write: &Write) -> Sys<()> {
        is_still(write.args[0] as i32, write.file)?;
        let mut args = write.args;
        args[1] = write.bytes.as_ptr() as u64;
        let n = self.carry_out(write.number, args)?;
        if n == write.args[2] { Ok(()) } else { Err(self.changed_between(b"")) }
    }

    fn acquire_now(&mut self) -> Sys<()> {
        for later in std::mem::take(&mut self.later) {
            self.acquire(&later.facet.facet(), later.access, &later.path)?;
        }
        // It was looked at before it was acquired.
        let conflicts = self.reads.validate(ValidationRules::default(), &OwnWrites::default());
        match conflicts.first() {
            None => Ok(()),
            Some(conflict) => {
                use std::os::unix::ffi::OsStrExt;
                let path = conflict.path.as_os_str().as_bytes().to_vec();
                Err(self.changed_outside(&path, &conflict.what.clone()))
            }
        }
    }

    fn changed_between(&mut self, path: &[u8]) -> i32 {
        self.changed_outside(path, "it was changed between the first call and the second")
    }

    /// The end after one call: that call. `None`: there was none, or it was not of that kind.
    pub fn only_call(&mut self) -> Option<Result<(), Failure>> {
        match std::mem::replace(&mut self.first, First::Over) {
            First::Look(_) | First::Read(_) | First::Open(_) => Some(Ok(())),
            First::Change(change) if self.has_changes() && self.may_be_plain() => {
                Some(self.finish_change(&change))
            }
            First::Write(write) if self.may_be_plain() => match overwrites(&write) {
                Some(at) => Some(self.finish_write(&write, at)),
                None => {
                    self.first = First::Write(write);
                    None
                }
            },
            other => {
                self.first = other;
                None
            }
        }
    }

    fn finish_change(&mut self, change: &Change) -> Result<(), Failure> {
        let acquired = self.acquire_for_publish();
        self.publish_alone(acquired, || {
            let mut args = change.args;
            let paths: Vec<(usize, Vec<u8>)> = change
                .paths
                .iter()
                .map(|(at, path)| (*at, [path.as_slice(), &[0]].concat()))
                .collect();
            for (at, path) in &paths {
                args[*at] = path.as_ptr() as u64;
            }
            check(raw_call(change.number, args)).map(drop)
        })
    }

    /// Acquires what was put off, for a publish that looks for itself whether all is as it was.
    pub fn acquire_for_publish(&mut self) -> Sys<()> {
        self.first = First::Over;
        let later = std::mem::take(&mut self.later);
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
        self.publish_alone(acquired, || overwrite(write, at))
    }

    /// Makes the one call as a publish among those of others: nobody who works on the same goes on
    /// without having seen it.
    pub fn publish_alone(
        &mut self,
        acquired: Sys<()>,
        call: impl FnOnce() -> Sys<()>,
    ) -> Result<(), Failure> {
        if acquired.is_err() {
            return Err(self.doom.take().unwrap_or_default());
        }
        let participant = Participant::new(self.ticket.take());
        let done = participant.commit_by_call(call).map_err(|failed| self.not_committed(failed))?;
        done.map_err(|errno| Failure {
            reason: if is_others(errno) { reason::CONFLICT } else { reason::FAILED },
            errno: if is_others(errno) { libc::ECANCELED } else { errno },
            what: format!(
                "what would have succeeded when it was called failed at the end: {}",
                std::io::Error::from_raw_os_error(errno)
            ),
            ..Failure::default()
        })
    }

    /// Whether the call itself promises all that was asked for.
    pub fn may_be_plain(&self) -> bool {
        Route::of(Outcome::Call, self.promises()) == Route::Call
    }

    /// Before others of the program's calls come in between (sys_xpause).
    pub fn before_pause(&mut self) {
        let settled = self.ready().and_then(|()| match self.first {
            First::None => Ok(()),
            _ => self.second_call(),
        });
        if settled.is_err() && self.doom.is_none() {
            let _ = self.changed_outside(b"", "its first call could not be made again");
        }
    }

    /// On abort: a read that the kernel made has moved the offset.
    pub fn undo_first(&mut self) {
        if let First::Open(open) = &self.first
            && !open.closed
            && is_still(open.fd, open.file).is_ok()
        {
            kernel::close(open.fd);
        }
        if let First::Read(read) = &self.first
            && read.number == libc::SYS_read
            && is_still(read.args[0] as i32, read.file).is_ok()
        {
            let _ = kernel::seek(read.args[0] as i32, -read.answer, libc::SEEK_CUR);
        }
    }

    /// A write that was put off and is to be durable or ordered after all.
    pub fn settle_first(&mut self) -> Sys<()> {
        match self.first {
            First::Write(_) | First::Change(_) | First::Changes => self.second_call(),
            _ => Ok(()),
        }
    }
}

/// See [`txos_engine::realm::Realm::quiet`]; 0 where there is no realm.
fn quiet() -> Option<u64> {
    match super::commons::realm_as_known() {
        Some(realm) => realm.quiet(),
        None => Some(0),
    }
}

/// Whether a number is still of the same file: another thread may have closed it, and opened
/// something else.
fn is_still(fd: i32, file: FileId) -> Sys<()> {
    match kernel::look_fd(fd) {
        Ok(stat) if stat.id == file => Ok(()),
        _ => Err(libc::EBADF),
    }
}

/// What a change of a name fails with when somebody else has changed names meanwhile. Everything else
/// would fail again.
fn is_others(errno: i32) -> bool {
    matches!(
        errno,
        libc::ENOENT
            | libc::EEXIST
            | libc::ENOTDIR
            | libc::EISDIR
            | libc::ENOTEMPTY
            | libc::ELOOP
            | libc::ESTALE
            | libc::EXDEV
            | libc::EBUSY
    )
}

/// Where a write goes, if it lies within its file: it needs no room then that there may not be.
fn overwrites(write: &Write) -> Option<u64> {
    let fd = write.args[0] as i32;
    let flags = check(sys!(SYS_fcntl, fd, libc::F_GETFL)).ok()? as i32;
    if flags & libc::O_APPEND != 0 {
        return None;
    }
    let at = match write.number {
        libc::SYS_pwrite64 => write.args[3],
        _ => kernel::seek(fd, 0, libc::SEEK_CUR).ok()?,
    };
    let now = kernel::look_fd(fd).ok().filter(|now| now.id == write.file)?;
    (at.checked_add(write.bytes.len() as u64)? <= now.size).then_some(at)
}

/// Carries a write out; what was there is put back if it can't be carried out as a whole.
fn overwrite(write: &Write, at: u64) -> Sys<()> {
    let fd = write.args[0] as i32;
    let mut old = vec![0u8; write.bytes.len()];
    let readable = kernel::pread(fd, &mut old, at).is_ok_and(|n| n == old.len());
    let mut args = write.args;
    args[1] = write.bytes.as_ptr() as u64;
    let short = match check(raw_call(write.number, args)) {
        Ok(n) if n == write.args[2] => return Ok(()),
        Ok(n) => n,
        Err(errno) => return Err(errno),
    };
    // Where the old bytes can't be known, the rest is what is left to try.
    let rest = write.bytes.get(short as usize..).unwrap_or_default();
    match kernel::pwrite_all(fd, rest, at + short) {
        Ok(()) => {
            if write.number == libc::SYS_write {
                let _ = kernel::seek(fd, (at + write.args[2]) as i64, libc::SEEK_SET);
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
fn number_gives_length(number: i64) -> bool {
    number == libc::SYS_readlink
}

/// The same where that call does not exist.
#[cfg(not(target_arch = "x86_64"))]
fn number_gives_length(_number: i64) -> bool {
    false
}

/// Compares what two looks gave; times of last access and block counts may differ.
fn same_look(number: i64, now: &[u8], then: &[u8]) -> bool {
    if then.is_empty() {
        return true;
    }
    let now = now.get(..then.len()).unwrap_or_default();
    if number_gives_length(number) {
        return now == then;
    }
    // Device, inode, link count, mode, owners, size, mtime and ctime: at these places in both structures.
    let fields: &[(usize, usize)] = if number == libc::SYS_statx {
        &[(16, 48), (96, 108), (112, 124), (136, 144)]
    } else {
        &[(0, 40), (48, 56), (88, 120)]
    };
    fields.iter().all(|&(from, to)| now.get(from..to) == then.get(from..to))
}
