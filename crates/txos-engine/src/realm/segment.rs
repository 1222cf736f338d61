//! The segment's file: made, checked, opened, made anew.
//!
//! # Invariants
//!
//! - The file appears under its name complete, by link(2) of an unnamed one; nobody ever maps half a
//!   header, and a maker that is killed leaves nothing.
//! - Everybody who has it mapped holds a shared `flock` on it; who removes it holds it exclusively.
//!   So a segment is never taken from under anybody, and the last one out may replace it.
//! - A segment of an earlier boot is replaced without a question: nobody of then lives. Anything
//!   else that is not exactly as expected is refused, never guessed at.
//! - All its space is there when it is made, on a file system that overwrites in place: a full one
//!   can't hit a participant later.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::SLOTS;
use super::facet::Seed;
use super::layout::{FORMAT, Fixed, GROUPS, MAGIC, ORECS_LOG2, Slot};
use super::table::{SEGMENT_LEN, Table};
use crate::error::{Context, Error, Result};
use crate::show::quoted;
use crate::sys;

/// What to do about a segment that is refused.
const REBUILD: &str = "`txos doctor --rebuild` makes a new one when nobody uses it.";

/// How often a segment that vanishes between being found and being opened is looked for again.
const TRIES_MAX: u32 = 64;

/// An open segment. The file stays locked (shared) as long as this lives, or a copy of the process does that it was left to.
#[derive(Debug)]
pub(super) struct Segment {
    pub table: Table,
    pub seed: Seed,
    pub path: PathBuf,
    file: Mutex<Option<OwnedFd>>,
}

/// Where this user's realm is: `$TXOS_REALM`; else the first of these that can hold one: `/run/txos`
/// for root, `$XDG_RUNTIME_DIR/txos` for others; `/dev/shm/txos-UID`; `realm` in the home store.
///
/// Looks only; what is not there can hold a realm if it can be made.
///
/// # Errors
/// As [`crate::machine::default_dir`].
pub fn default_dir() -> Result<PathBuf> {
    let named = crate::machine::named_dir;
    if let Some(dir) = named("TXOS_REALM") {
        return Ok(dir);
    }
    let uid = rustix::process::geteuid();
    let run =
        if crate::rights::owns_tree() { Some("/run".into()) } else { named("XDG_RUNTIME_DIR") };
    // Kept over sudo, it is somebody else's.
    let run = run.filter(|dir| fs::metadata(dir).is_ok_and(|m| m.uid() == uid.as_raw()));
    let shm = PathBuf::from(format!("/dev/shm/txos-{}", crate::rights::number_of_places()));
    let candidates = [run.map(|dir| dir.join("txos")), Some(shm)];
    match candidates.into_iter().flatten().find(|dir| could_hold(dir)) {
        Some(dir) => Ok(dir),
        None => Ok(crate::machine::default_dir()?.join("realm")),
    }
}

/// Whether a realm could be in that directory: it is ours, or can be made, and its file system can
/// hold one.
fn could_hold(dir: &Path) -> bool {
    use rustix::fs::{Access, accessat};
    let parent = dir.parent().unwrap_or(dir);
    let there = match fs::symlink_metadata(dir) {
        Ok(meta) => meta.is_dir() && is_ours(meta.uid(), meta.mode()),
        Err(_) => {
            accessat(CWD, parent, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
        }
    };
    there && rustix::fs::statfs(parent).is_ok_and(|stat| Medium::of(&stat).is_some())
}

fn is_ours(uid: u32, mode: u32) -> bool {
    uid == rustix::process::geteuid().as_raw() && mode & 0o022 == 0
}

/// What a segment lies on. Writing to a page of a mapping must never need space that is not there:
/// that would be SIGBUS, at any instruction of any participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// tmpfs or ramfs: what is allocated is there.
    Memory,
    /// A disk file system that writes in place: what was written once has its blocks.
    Disk,
}

impl Medium {
    /// `None`: one that writes elsewhere (btrfs, zfs, overlayfs…), or that is not known.
    fn of(stat: &rustix::fs::StatFs) -> Option<Medium> {
        const EXT: i64 = 0xEF53;
        const XFS: i64 = 0x5846_5342;
        const TMPFS: i64 = 0x0102_1994;
        const RAMFS: i64 = 0x8584_58f6;
        match stat.f_type {
            TMPFS | RAMFS => Some(Medium::Memory),
            EXT | XFS => Some(Medium::Disk),
            _ => None,
        }
    }
}

/// The segment's name: processes that number processes or time differently can't judge of each
/// other's life, so each pair of namespaces has a segment of its own.
fn file_name() -> Result<String> {
    let number = |name: &str| -> Result<u64> {
        let path = format!("/proc/self/ns/{name}");
        match fs::metadata(&path) {
            Ok(meta) => Ok(meta.ino()),
            // Kernels without time namespaces have one time.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && name == "time" => Ok(0),
            Err(e) => Err(Error::io("looking at", path, e)),
        }
    };
    let name = format!("realm-{:x}-{:x}", number("pid")?, number("time")?);
    // In a user namespace a user may have another number: then the same directory holds another segment.
    let user = rustix::process::geteuid().as_raw();
    Ok(match crate::rights::number_of_places() == user {
        true => name,
        false => format!("{name}-as-{user}"),
    })
}

impl Segment {
    /// Opens the segment in `dir`, making what is not there.
    ///
    /// # Errors
    /// [`Error::Format`] for a damaged, foreign or newer one, [`Error::Io`] with the step.
    pub fn open(dir: &Path) -> Result<Segment> {
        let (dir_fd, name) = (open_dir(dir)?, file_name()?);
        let path = dir.join(&name);
        for _ in 0..TRIES_MAX {
            let file = match open_file(dir_fd.as_fd(), &name) {
                Ok(file) => file,
                Err(Errno::NOENT) => {
                    match make(dir, &name) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(e) => return Err(Error::io("creating the realm", &path, e)),
                    }
                    continue;
                }
                Err(e) => return Err(Error::io("opening the realm", &path, e)),
            };
            lock(file.as_fd(), FlockOperation::LockShared).at("locking the realm", &path)?;
            if !is_named(dir_fd.as_fd(), &name, file.as_fd()) {
                continue; // Replaced meanwhile.
            }
            let fixed = match check(file.as_fd(), &path)? {
                Found::Usable(fixed) => fixed,
                over => {
                    // Whoever gets it for himself alone removes it.
                    let alone = lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive);
                    if alone.is_ok() && is_named(dir_fd.as_fd(), &name, file.as_fd()) {
                        sys::unlink(dir_fd.as_fd(), name.as_bytes(), AtFlags::empty())
                            .at("removing a realm that is over", &path)?;
                    } else if let (Err(_), Found::Older(refused)) = (alone, over) {
                        return Err(refused);
                    }
                    continue;
                }
            };
            let table =
                sys::look("mmap", || Table::map(file.as_fd())).at("mapping the realm", &path)?;
            return Ok(Segment {
                table,
                seed: Seed(fixed.seed),
                path,
                file: Mutex::new(Some(crate::sys::kept(file))),
            });
        }
        Err(Error::io(
            "opening the realm (it is being replaced again and again)",
            &path,
            Errno::AGAIN,
        ))
    }

    /// Closes the file here: a copy of the process has it open, and keeps it locked.
    pub fn leave_file(&self) {
        drop(self.file.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The segment in `dir` if there is one: does not make it.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn open_existing(dir: &Path) -> Result<Option<Segment>> {
        if !dir.join(file_name()?).exists() {
            return Ok(None);
        }
        Segment::open(dir).map(Some)
    }
}

/// Replaces the segment in `dir`, whatever it holds, if nobody uses it.
///
/// # Errors
/// [`Error::Unsupported`] if somebody does; [`Error::Io`].
pub fn rebuild(dir: &Path) -> Result<PathBuf> {
    let (dir_fd, name) = (open_dir(dir)?, file_name()?);
    let path = dir.join(&name);
    match open_file(dir_fd.as_fd(), &name) {
        Ok(file) => {
            match lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    return Err(Error::Unsupported {
                        what: format!("the realm {} is in use, and left as it is", quoted(&path)),
                        advice: "End the transactions that `txos list` shows, then try again."
                            .into(),
                    });
                }
                Err(e) => return Err(Error::io("locking the realm", &path, e)),
            }
            // Replaced meanwhile, it is another one's, and as good as rebuilt.
            if is_named(dir_fd.as_fd(), &name, file.as_fd()) {
                sys::unlink(dir_fd.as_fd(), name.as_bytes(), AtFlags::empty())
                    .at("removing the realm", &path)?;
            }
        }
        Err(Errno::NOENT) => {}
        Err(e) => return Err(Error::io("opening the realm", &path, e)),
    }
    match make(dir, &name) {
        Ok(()) | Err(Errno::EXIST) => Ok(path),
        Err(e) => Err(Error::io("creating the realm", &path, e)),
    }
}

/// Opens the directory, making it if its parent exists; refuses one that others can write.
pub(crate) fn open_dir(dir: &Path) -> Result<OwnedFd> {
    match sys::step("realm mkdir", || fs::DirBuilder::new().mode(0o700).create(dir)) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Error::io("creating the realm's directory", dir, e)),
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = sys::open(dir.as_os_str().as_encoded_bytes(), flags, 0)
        .at("opening the realm's directory", dir)?;
    let stat = sys::look("fstat", || rustix::fs::fstat(&fd))
        .at("looking at the realm's directory", dir)?;
    if !is_ours(stat.st_uid, stat.st_mode) {
        let own = rustix::process::geteuid().as_raw();
        let why = match stat.st_uid == own {
            true => "others can write it".to_owned(),
            false => format!("it belongs to user {}, and this process is user {own}", stat.st_uid),
        };
        return Err(Error::Unsupported {
            what: format!("{} can't hold a realm: {why}", quoted(dir)),
            advice: "Correct its owner and mode (0700), or name another one with TXOS_REALM."
                .into(),
        });
    }
    Ok(fd)
}

fn open_file(dir: BorrowedFd<'_>, name: &str) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    sys::open_at(dir, name.as_bytes(), flags)
}

fn lock(file: BorrowedFd<'_>, how: FlockOperation) -> std::result::Result<(), Errno> {
    sys::flock(file, how)
}

/// Whether the open file is the one of that name.
fn is_named(dir: BorrowedFd<'_>, name: &str, file: BorrowedFd<'_>) -> bool {
    match (rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW), rustix::fs::fstat(file)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

fn boot() -> [u8; 16] {
    let text = crate::machine::boot_id();
    let mut digits = text.bytes().filter_map(|b| char::from(b).to_digit(16));
    std::array::from_fn(|_| {
        let mut digit = || digits.next().unwrap_or(0) as u8;
        digit() << 4 | digit()
    })
}

const FIXED_LEN: usize = size_of::<Fixed>();

impl Fixed {
    fn new() -> std::result::Result<Fixed, Errno> {
        let mut random = [0u8; 16];
        let mut done = 0;
        while let Some(rest) = random.get_mut(done..).filter(|r| !r.is_empty()) {
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        let bits = u128::from_le_bytes(random);
        Ok(Fixed {
            magic: MAGIC,
            format: FORMAT,
            slots: SLOTS,
            slot_len: size_of::<Slot>() as u32,
            orecs_log2: ORECS_LOG2,
            groups: GROUPS as u32,
            uid: rustix::process::geteuid().as_raw(),
            boot: boot(),
            made: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |d| d.as_secs()),
            seed: [bits as u64, (bits >> 64) as u64],
            reserved: [0; 48],
            checksum: 0,
            padding: 0,
        })
    }

    /// As it lies in the file, with its checksum.
    fn to_bytes(self) -> [u8; FIXED_LEN] {
        let mut bytes = [0; FIXED_LEN];
        let fields: [&[u8]; 12] = [
            &self.magic,
            &self.format.to_le_bytes(),
            &self.slots.to_le_bytes(),
            &self.slot_len.to_le_bytes(),
            &self.orecs_log2.to_le_bytes(),
            &self.groups.to_le_bytes(),
            &self.uid.to_le_bytes(),
            &self.boot,
            &self.made.to_le_bytes(),
            &self.seed[0].to_le_bytes(),
            &self.seed[1].to_le_bytes(),
            &self.reserved,
        ];
        let mut at = 0;
        for field in fields {
            if let Some(to) = bytes.get_mut(at..at + field.len()) {
                to.copy_from_slice(field);
            }
            at += field.len();
        }
        let checksum = crc32fast::hash(bytes.get(..at).unwrap_or_default());
        if let Some(to) = bytes.get_mut(at..at + 4) {
            to.copy_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    /// `None`: damaged.
    fn from_bytes(bytes: &[u8; FIXED_LEN]) -> Option<Fixed> {
        let (body, tail) = bytes.split_at(std::mem::offset_of!(Fixed, checksum));
        let word = |at: usize| body.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let long = |at: usize| body.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let checksum = tail.get(..4)?.try_into().ok().map(u32::from_le_bytes)?;
        Some(Fixed {
            magic: body.get(..8)?.try_into().ok()?,
            format: word(8)?,
            slots: word(12)?,
            slot_len: word(16)?,
            orecs_log2: word(20)?,
            groups: word(24)?,
            uid: word(28)?,
            boot: body.get(32..48)?.try_into().ok()?,
            made: long(48)?,
            seed: [long(56)?, long(64)?],
            reserved: body.get(72..120)?.try_into().ok()?,
            checksum: (crc32fast::hash(body) == checksum).then_some(checksum)?,
            padding: 0,
        })
    }
}

/// A header that is read is the one that was written.
#[cfg(feature = "fuzzing")]
pub(super) fn fuzz_header(bytes: &[u8]) {
    let mut header = [0u8; FIXED_LEN];
    for (to, from) in header.iter_mut().zip(bytes) {
        *to = *from;
    }
    let at = std::mem::offset_of!(Fixed, checksum);
    let (body, tail) = header.split_at_mut(at);
    let checksum = crc32fast::hash(body).to_le_bytes();
    for sealed in [false, true] {
        if sealed {
            tail.iter_mut().zip(checksum).for_each(|(to, from)| *to = from);
        }
        let bytes: [u8; FIXED_LEN] = std::array::from_fn(|i| {
            body.get(i).or_else(|| tail.get(i.wrapping_sub(at))).copied().unwrap_or(0)
        });
        if let Some(fixed) = Fixed::from_bytes(&bytes) {
            assert_eq!(fixed.to_bytes().get(..at), bytes.get(..at));
        }
    }
}

/// Makes a segment without a name, and gives it its own.
fn make(dir: &Path, name: &str) -> std::result::Result<(), Errno> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file =
        sys::step("realm create", || rustix::fs::openat(CWD, dir, flags, Mode::RUSR | Mode::WUSR))?;
    fill(file.as_fd())?;
    let unnamed = format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    sys::step("realm link", || {
        rustix::fs::linkat(CWD, &unnamed[..], CWD, dir.join(name), AtFlags::SYMLINK_FOLLOW)
    })
}

fn fill(file: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
    // Whatever the umask says.
    sys::step("realm chmod", || rustix::fs::fchmod(file, Mode::RUSR | Mode::WUSR))?;
    if Medium::of(&rustix::fs::fstatfs(file)?) == Some(Medium::Memory) {
        sys::allocate_all(file, SEGMENT_LEN as u64)?;
    } else {
        // Blocks that were allocated, but never written, may need space when they are.
        let zeros = vec![0; 1 << 16];
        let mut at = 0;
        while at < SEGMENT_LEN {
            let len = zeros.len().min(SEGMENT_LEN - at);
            sys::write_all_at(file, zeros.get(..len).unwrap_or_default(), at as u64)?;
            at += len;
        }
    }
    let bytes = Fixed::new()?.to_bytes();
    sys::write_all_at(file, &bytes, 0)
}

/// What a segment is.
enum Found {
    Usable(Fixed),
    /// Of an earlier boot: nothing in it matters any more.
    Stale,
    /// Of an earlier format: nothing in it matters once nobody has it. Until then it is refused, so.
    Older(Error),
}

/// Whether a segment can be used.
fn check(file: BorrowedFd<'_>, path: &Path) -> Result<Found> {
    let bad =
        |problem: String| Err(Error::Format { path: path.to_owned(), problem, advice: REBUILD });
    let stat = sys::look("fstat", || rustix::fs::fstat(file)).at("looking at the realm", path)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return bad("is not a file".into());
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return bad("belongs to, or can be opened by, somebody else".into());
    }
    let mut bytes = [0; FIXED_LEN];
    let read = sys::read_at(file, &mut bytes, 0).at("reading the realm", path)?;
    if read != FIXED_LEN || bytes.get(..8) != Some(&MAGIC[..]) {
        return bad("is not a realm".into());
    }
    let Some(fixed) = Fixed::from_bytes(&bytes) else {
        return bad("is damaged (checksum of the header)".into());
    };
    let problem = format!("is of format {}; this txos knows {FORMAT}", fixed.format);
    if fixed.format > FORMAT {
        return bad(problem);
    }
    if fixed.format < FORMAT {
        let path = path.to_owned();
        return Ok(Found::Older(Error::Format { path, problem, advice: REBUILD }));
    }
    let geometry = (fixed.slots, fixed.slot_len, fixed.orecs_log2, fixed.groups);
    let expected = (SLOTS, size_of::<Slot>() as u32, ORECS_LOG2, GROUPS as u32);
    if geometry != expected || stat.st_size != SEGMENT_LEN as i64 {
        return bad("is damaged (its parts do not have the sizes of its format)".into());
    }
    if fixed.uid != rustix::process::geteuid().as_raw() {
        return bad(format!("was made by user {}", fixed.uid));
    }
    Ok(if fixed.boot == boot() { Found::Usable(fixed) } else { Found::Stale })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("txos-segment-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    fn only_file(dir: &Path) -> PathBuf {
        let mut files = fs::read_dir(dir).unwrap();
        let first = files.next().unwrap().unwrap().path();
        assert!(files.next().is_none(), "nothing is left beside the segment");
        first
    }

    fn problem(dir: &Path) -> String {
        match Segment::open(dir) {
            Ok(_) => panic!("was accepted"),
            Err(Error::Format { problem, advice, .. }) => {
                assert_eq!(advice, REBUILD);
                problem
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn made_once_and_shared() {
        let dir = dir("shared");
        let first = Segment::open(&dir).unwrap();
        let second = Segment::open(&dir).unwrap();
        assert_eq!(first.seed, second.seed);
        first.table.board().policy.store(3, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(second.table.board().policy.load(std::sync::atomic::Ordering::SeqCst), 3);
        let meta = fs::metadata(only_file(&dir)).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.len()), (0o600, SEGMENT_LEN as u64));
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, 0o700);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn damaged_newer_and_foreign_ones_are_refused() {
        let dir = dir("damaged");
        drop(Segment::open(&dir).unwrap());
        let file = only_file(&dir);
        let sound = fs::read(&file).unwrap();
        let mut newer = Fixed::new().unwrap();
        newer.format = FORMAT + 1;
        let mut bigger = Fixed::new().unwrap();
        bigger.slots += 1;
        let mut others = Fixed::new().unwrap();
        others.uid += 1;
        let cases: [(Vec<u8>, &str); 7] = [
            (Vec::new(), "is not a realm"),
            (b"TXOSREAL".to_vec(), "is not a realm"),
            (vec![b'x'; SEGMENT_LEN], "is not a realm"),
            (sound[..SEGMENT_LEN - 1].to_vec(), "is damaged (its parts"),
            ([&newer.to_bytes()[..], &sound[FIXED_LEN..]].concat(), "is of format 5"),
            ([&bigger.to_bytes()[..], &sound[FIXED_LEN..]].concat(), "is damaged (its parts"),
            ([&others.to_bytes()[..], &sound[FIXED_LEN..]].concat(), "was made by user"),
        ];
        for (bytes, expected) in cases {
            fs::write(&file, bytes).unwrap();
            let problem = problem(&dir);
            assert!(problem.starts_with(expected), "{problem}");
        }
        // Each bit of the header counts.
        fs::write(&file, &sound).unwrap();
        let open = fs::OpenOptions::new().write(true).open(&file).unwrap();
        for bit in 0..8 * 124 {
            let mut bytes = sound[..FIXED_LEN].to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            open.write_all_at(&bytes, 0).unwrap();
            problem(&dir);
        }
        open.write_all_at(&sound[..FIXED_LEN], 0).unwrap();
        assert!(Segment::open(&dir).is_ok());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(problem(&dir).starts_with("belongs to"));
        rebuild(&dir).unwrap();
        assert!(Segment::open(&dir).is_ok());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_reboot_makes_a_new_one() {
        let dir = dir("reboot");
        drop(Segment::open(&dir).unwrap());
        let path = only_file(&dir);
        let mut old = Fixed::new().unwrap();
        old.boot[3] ^= 1;
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&old.to_bytes(), 0).unwrap();
        let inode = file.metadata().unwrap().ino();
        let segment = Segment::open(&dir).unwrap();
        assert_ne!(fs::metadata(&segment.path).unwrap().ino(), inode);
        assert_ne!(segment.seed.0, old.seed);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_older_format_gives_way_once_nobody_has_it() {
        let dir = dir("older");
        drop(Segment::open(&dir).unwrap());
        let path = only_file(&dir);
        let mut old = Fixed::new().unwrap();
        old.format = FORMAT - 1;
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&old.to_bytes(), 0).unwrap();
        let inode = file.metadata().unwrap().ino();
        // As long as it is open, no other file has its number.
        let _open = fs::File::open(&path).unwrap();
        lock(file.as_fd(), FlockOperation::LockShared).unwrap();
        assert!(problem(&dir).starts_with("is of format 3; this txos knows 4"));
        assert_eq!(fs::metadata(only_file(&dir)).unwrap().ino(), inode);
        drop(file);
        let segment = soon(|| Segment::open(&dir));
        assert_ne!(fs::metadata(&segment.path).unwrap().ino(), inode);
        fs::remove_dir_all(&dir).unwrap();
    }

    /// What can be done once nobody uses a segment: a child that another test makes has its descriptor as well, until it runs its program.
    fn soon<T>(done: impl Fn() -> Result<T>) -> T {
        let start = std::time::Instant::now();
        loop {
            match done() {
                Err(_) if start.elapsed() < std::time::Duration::from_secs(10) => {
                    std::thread::yield_now();
                }
                done => return done.unwrap(),
            }
        }
    }

    #[test]
    fn one_in_use_is_not_rebuilt() {
        let dir = dir("in-use");
        let segment = Segment::open(&dir).unwrap();
        let error = rebuild(&dir).unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        drop(segment);
        soon(|| rebuild(&dir));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_write_or_own_is_refused() {
        let dir = dir("open");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        let error = Segment::open(&dir).unwrap_err().to_string();
        assert!(error.contains("others can write it"), "{error}");
        // Only root can give it away.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let own = rustix::process::geteuid().as_raw();
        if std::os::unix::fs::chown(&dir, Some(own + 1), None).is_ok() {
            let error = Segment::open(&dir).unwrap_err().to_string();
            assert!(error.contains(&format!("it belongs to user {}", own + 1)), "{error}");
            assert!(!error.contains("others can write"), "{error}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn opened_by_many_at_once_it_is_one() {
        let dir = dir("race");
        let seeds: Vec<Seed> = std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Segment::open(&dir).unwrap().seed)).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(seeds.windows(2).all(|w| w[0] == w[1]));
        fs::remove_dir_all(&dir).unwrap();
    }
}
