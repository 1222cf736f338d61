//! Whether a command has printed anything, or read anything that can't be read again.
//!
//! A command of which nobody has seen anything can be run again without a word. So what it inherits is
//! marked before it starts, and looked at when it has lost a conflict. Whatever can't be told counts as
//! used:
//!
//! | inherited descriptor | unused if |
//! |---|---|
//! | `/dev/null`, a directory, one that only names (`O_PATH`) | always |
//! | regular file | offset, size and time of change are as they were; a time of change shortly before the start could hide one with the same stamp, unless the file is empty |
//! | pipe, FIFO | nobody has written or read since a clock tick before the start, and no fewer bytes wait; on a kernel that stamps pipes, which is tried on one of our own (Linux 6.18 does not) |
//! | terminal | no event of its inode (inotify), which is tried on a terminal of our own first |
//! | anything else (socket, event, device) | never |
//!
//! `/dev/tty`, which any process may open, is watched as well.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::time::{ClockId, Timespec};

/// `/dev/null`: (major, minor).
const NULL: (u32, u32) = (1, 3);

/// More than anybody inherits on purpose; from there on it can't be told.
const INHERITED_MAX: usize = 256;

/// What a command inherits, before it starts.
#[derive(Debug)]
pub struct Marks {
    fds: Vec<(i32, Mark)>,
    /// The events of terminals, if there is one to watch.
    events: Option<OwnedFd>,
    /// A pipe of our own, and its first stamps: whether they move when it is used.
    control: Option<(OwnedFd, OwnedFd, Mark)>,
    /// Something is there of which nothing can be told.
    unknown: bool,
    /// When, less a tick of the clock that stamps files.
    before: (i64, i64),
}

#[derive(Debug, PartialEq, Eq)]
enum Mark {
    File { offset: u64, size: i64, mtime: (i64, i64) },
    Pipe { mtime: (i64, i64), atime: (i64, i64), waiting: u64 },
}

impl Marks {
    /// Marks nothing yet.
    fn none() -> Self {
        Marks { fds: Vec::new(), events: None, control: None, unknown: false, before: before_now() }
    }

    /// Marks everything that will be inherited: not standard output and error where they are held.
    #[must_use]
    pub fn set(is_held: impl Fn(BorrowedFd<'_>) -> bool) -> Self {
        let mut marks = Marks::none();
        let listed = std::fs::read_dir("/proc/self/fd");
        let Ok(entries) = listed else { return Marks { unknown: true, ..marks } };
        let numbers: Vec<i32> =
            entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        let mut inherited = 0;
        for number in numbers {
            // Gone meanwhile: it was the listing's own.
            let Some(fd) = borrow(number) else { continue };
            if rustix::io::fcntl_getfd(fd).is_ok_and(|f| f.contains(rustix::io::FdFlags::CLOEXEC)) {
                continue;
            }
            if matches!(number, 1 | 2) && is_held(fd) {
                continue;
            }
            inherited += 1;
            if inherited > INHERITED_MAX || marks.add(number, fd).is_err() {
                marks.unknown = true;
            }
        }
        // Nobody who has no terminal can open it.
        if rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).is_ok()
            && marks.watch("/dev/tty").is_err()
        {
            marks.unknown = true;
        }
        marks
    }

    /// Whether it can be told on every kernel.
    #[must_use]
    pub fn can_tell(&self) -> bool {
        !self.unknown && self.control.is_none()
    }

    /// Whether it can't be told, whatever is used.
    #[must_use]
    pub fn are_useless(&self) -> bool {
        self.unknown
    }

    fn add(&mut self, number: i32, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        if rustix::fs::fcntl_getfl(fd)?.contains(OFlags::PATH) {
            return Ok(());
        }
        let stat = rustix::fs::fstat(fd)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(()),
            FileType::CharacterDevice
                if (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == NULL =>
            {
                Ok(())
            }
            FileType::CharacterDevice if rustix::termios::isatty(fd) => {
                self.watch(&format!("/proc/self/fd/{number}"))
            }
            FileType::RegularFile | FileType::Fifo => {
                let mark = mark(fd)?;
                let stamps_unsure = match mark {
                    Mark::File { size, mtime, .. } => size > 0 && mtime >= self.before,
                    Mark::Pipe { mtime, atime, .. } => mtime.max(atime) >= self.before,
                };
                self.unknown |= stamps_unsure;
                if matches!(mark, Mark::Pipe { .. }) && self.control.is_none() {
                    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                    let first = self::mark(read.as_fd())?;
                    self.control = Some((read, write, first));
                }
                self.fds.push((number, mark));
                Ok(())
            }
            _ => Err(Errno::NOTSUP),
        }
    }

    fn watch(&mut self, path: &str) -> Result<(), Errno> {
        if self.events.is_none() {
            if !terminals_tell() {
                return Err(Errno::NOTSUP);
            }
            self.events = Some(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        }
        let Some(events) = &self.events else { return Err(Errno::NOTSUP) };
        inotify::add_watch(events, path, WatchFlags::MODIFY | WatchFlags::ACCESS).map(drop)
    }

    /// Whether nothing was printed, and nothing read, since they were set. To be asked after the command
    /// has ended and before anything of ours is printed.
    #[must_use]
    pub fn untouched(&self) -> bool {
        if self.unknown || self.events.as_ref().is_some_and(has_events) {
            return false;
        }
        if self.control.as_ref().is_some_and(|control| !stamps_tell(control)) {
            return false;
        }
        self.fds.iter().all(|(number, was)| {
            let now = borrow(*number).and_then(|fd| mark(fd).ok());
            match (was, now) {
                (Mark::File { .. }, Some(now)) => *was == now,
                (
                    Mark::Pipe { mtime, atime, waiting },
                    Some(Mark::Pipe { mtime: m, atime: a, waiting: w }),
                ) => (*mtime, *atime) == (m, a) && w >= *waiting,
                _ => false,
            }
        })
    }
}

fn mark(fd: BorrowedFd<'_>) -> Result<Mark, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let mtime = (stat.st_mtime, stat.st_mtime_nsec as i64);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let offset = rustix::fs::seek(fd, SeekFrom::Current(0))?;
            Ok(Mark::File { offset, size: stat.st_size, mtime })
        }
        FileType::Fifo => {
            let atime = (stat.st_atime, stat.st_atime_nsec as i64);
            let waiting = rustix::io::ioctl_fionread(fd)?;
            Ok(Mark::Pipe { mtime, atime, waiting })
        }
        _ => Err(Errno::NOTSUP),
    }
}

/// Whether writing to a pipe and reading from it shows. One that was made within the same tick of the
/// clock does not tell.
fn stamps_tell((read, write, first): &(OwnedFd, OwnedFd, Mark)) -> bool {
    let used = || -> Result<Mark, Errno> {
        rustix::io::write(write, b"x")?;
        rustix::io::read(read, &mut [0u8; 1])?;
        mark(read.as_fd())
    };
    match (first, used()) {
        (Mark::Pipe { mtime, atime, .. }, Ok(Mark::Pipe { mtime: m, atime: a, .. })) => {
            *mtime != m && *atime != a
        }
        _ => false,
    }
}

/// Now, by the clock that stamps files, less one of its ticks.
fn before_now() -> (i64, i64) {
    const SECOND: i64 = 1_000_000_000;
    let Timespec { tv_sec, tv_nsec } = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    let tick = rustix::time::clock_getres(ClockId::RealtimeCoarse);
    let ns = i128::from(tv_sec) * i128::from(SECOND) + i128::from(tv_nsec)
        - (i128::from(tick.tv_sec) * i128::from(SECOND) + i128::from(tick.tv_nsec));
    let second = i128::from(SECOND);
    (ns.div_euclid(second) as i64, ns.rem_euclid(second) as i64)
}

fn has_events(events: &OwnedFd) -> bool {
    let mut buffer = [0u8; 4096];
    // What can't be read can't be told.
    !matches!(rustix::io::read(events, &mut buffer[..]), Err(Errno::AGAIN))
}

/// Whether this kernel tells of what is written to a terminal, tried on one that nobody else knows.
fn terminals_tell() -> bool {
    let tried = || -> Result<bool, Errno> {
        let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&outer)?;
        unlockpt(&outer)?;
        let name = ptsname(&outer, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inner = rustix::fs::open(&name, flags, Mode::empty())?;
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&events, &name, WatchFlags::MODIFY | WatchFlags::ACCESS)?;
        rustix::io::write(&inner, b"x")?;
        let wrote = has_events(&events);
        rustix::io::write(&outer, b"\n")?;
        let mut byte = [0u8; 1];
        rustix::io::read(&inner, &mut byte)?;
        Ok(wrote && has_events(&events))
    };
    tried().unwrap_or(false)
}

/// A descriptor by its number, if it is open.
#[allow(unsafe_code)]
fn borrow(number: i32) -> Option<BorrowedFd<'static>> {
    // SAFETY: it is borrowed for a look by this thread only, and none of those that are looked at twice
    // (they are inherited, and belong to the command) is closed by anything here meanwhile.
    let fd = (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })?;
    rustix::io::fcntl_getfd(fd).is_ok().then_some(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    fn unknown(fd: BorrowedFd<'_>) -> Marks {
        use std::os::fd::AsRawFd;
        let mut marks = Marks::none();
        marks.unknown |= marks.add(fd.as_raw_fd(), fd).is_err();
        marks
    }

    /// Waits until what is stamped now counts as earlier: ticks come late, and not evenly.
    fn tick() {
        let now = rustix::time::clock_gettime(ClockId::Realtime);
        while before_now() <= (now.tv_sec, now.tv_nsec) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn pipes() {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        rustix::io::write(&write, b"before").unwrap();
        assert!(!unknown(write.as_fd()).untouched(), "within a tick nothing can be told");
        let (control_read, control_write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let first = mark(control_read.as_fd()).unwrap();
        tick();
        let tells = stamps_tell(&(control_read, control_write, first));
        let (reads, writes) = (unknown(read.as_fd()), unknown(write.as_fd()));
        tick();
        assert_eq!(reads.untouched(), tells);
        assert_eq!(writes.untouched(), tells);
        rustix::io::write(&write, b"x").unwrap();
        assert!(!writes.untouched());
        tick();
        let reads = unknown(read.as_fd());
        tick();
        rustix::io::read(&read, &mut [0u8; 1]).unwrap();
        assert!(!reads.untouched());
    }

    #[test]
    fn files() {
        let path = std::env::temp_dir().join(format!("txos-streams-{}", std::process::id()));
        let mut options = std::fs::File::options();
        let mut file =
            options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let marks = unknown(file.as_fd());
        assert!(marks.untouched(), "an empty file");
        file.write_all(b"1234").unwrap();
        assert!(!marks.untouched(), "written");
        assert!(!unknown(file.as_fd()).untouched(), "within a tick nothing can be told");
        tick();
        file.rewind().unwrap();
        let marks = unknown(file.as_fd());
        assert!(marks.untouched());
        file.read_exact(&mut [0u8; 1]).unwrap();
        assert!(!marks.untouched(), "read");
        let marks = unknown(file.as_fd());
        rustix::io::pwrite(&file, b"5", 0).unwrap();
        assert!(!marks.untouched(), "written elsewhere");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn others() {
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let marks = unknown(null.as_fd());
        (&null).write_all(b"x").unwrap();
        assert!(marks.untouched());
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!unknown(socket.as_fd()).untouched());
    }
}
