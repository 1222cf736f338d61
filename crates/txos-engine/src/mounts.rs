//! The mount table as `/proc/self/mountinfo` tells it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number for it, in this namespace.
    pub id: u64,
    /// Number of the mount it is mounted on.
    pub parent: u64,
    /// Device number as `st_dev` packs it.
    pub dev: u64,
    /// What of the file system is mounted: `/`, or a path below for a bind mount.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Options of the mount: `rw,nosuid,relatime`.
    pub options: String,
    /// File system type.
    pub kind: String,
    /// What was mounted: a device, or any word.
    pub source: OsString,
    /// Options of the file system: `rw,size=…`.
    pub fs_options: String,
}

impl Mount {
    /// Whether neither the mount nor its file system is read-only.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let read_only = |options: &str| options.split(',').any(|o| o == "ro");
        !read_only(&self.options) && !read_only(&self.fs_options)
    }

    /// Attributes for a mount that is to behave like this one.
    #[must_use]
    pub fn attributes(&self) -> MountAttrFlags {
        let mut flags = MountAttrFlags::empty();
        let mut relative = false;
        for option in self.options.split(',') {
            match option {
                "ro" => flags |= MountAttrFlags::MOUNT_ATTR_RDONLY,
                "nosuid" => flags |= MountAttrFlags::MOUNT_ATTR_NOSUID,
                "nodev" => flags |= MountAttrFlags::MOUNT_ATTR_NODEV,
                "noexec" => flags |= MountAttrFlags::MOUNT_ATTR_NOEXEC,
                "noatime" => flags |= MountAttrFlags::MOUNT_ATTR_NOATIME,
                "nodiratime" => flags |= MountAttrFlags::MOUNT_ATTR_NODIRATIME,
                "relatime" => relative = true,
                _ => {}
            }
        }
        if !relative && !flags.contains(MountAttrFlags::MOUNT_ATTR_NOATIME) {
            flags |= MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        }
        flags
    }
}

/// Parses a mount table. Lines that are not of the documented form are left out.
#[must_use]
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&b| b == b' ');
    let id = number(words.next()?)?;
    let parent = number(words.next()?)?;
    let device = words.next()?;
    let colon = device.iter().position(|&b| b == b':')?;
    let major = u32::try_from(number(device.get(..colon)?)?).ok()?;
    let minor = u32::try_from(number(device.get(colon + 1..)?)?).ok()?;
    let root = path(words.next()?);
    let point = path(words.next()?);
    let options = text(words.next()?);
    words.by_ref().find(|w| *w == b"-")?;
    let kind = text(words.next()?);
    let source = OsString::from_vec(unescape(words.next()?));
    let fs_options = text(words.next()?);
    Some(Mount {
        id,
        parent,
        dev: rustix::fs::makedev(major, minor),
        root,
        point,
        options,
        kind,
        source,
        fs_options,
    })
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn path(word: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(word)))
}

/// Undoes the kernel's `\ooo` for space, tab, newline and backslash.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&b, tail)) = rest.split_first() {
        if b == b'\\'
            && let Some(digits) = tail.get(..3)
            && digits.iter().all(|d| (b'0'..=b'7').contains(d))
        {
            let value = digits.iter().fold(0u32, |v, d| v * 8 + u32::from(d - b'0'));
            out.push((value & 0xff) as u8);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            out.push(b);
            rest = tail;
        }
    }
    out
}

/// The mounts of this process's namespace that a path leads to: those hidden below others are
/// left out. Those in directories that this user may not search are there all the same: nobody else can
/// tell that they are hidden, and they keep a directory above from being covered whole. Parents come
/// before children.
///
/// # Errors
/// If the table can't be read.
pub fn visible() -> io::Result<Vec<Mount>> {
    let mut mounts = table()?;
    mounts.retain(|m| match look_at(&m.point) {
        Ok(id) => id == Some(m.id),
        Err(error) => error == Errno::ACCESS,
    });
    mounts.sort_by(|a, b| a.point.as_os_str().as_bytes().cmp(b.point.as_os_str().as_bytes()));
    Ok(mounts)
}

/// [`visible`], looked at again only when the kernel says that a mount has come or gone.
#[derive(Debug)]
pub struct Watched {
    table: OwnedFd,
    mounts: Vec<Mount>,
}

impl Watched {
    /// Looks at the mounts of this thread's namespace.
    ///
    /// # Errors
    /// If the table can't be read.
    pub fn begin() -> io::Result<Watched> {
        // What changes from here on is told by the descriptor.
        let table = open_table()?;
        Ok(Watched { table, mounts: visible()? })
    }

    /// The mounts as they are now.
    ///
    /// # Errors
    /// If the table can't be read.
    pub fn now(&mut self) -> io::Result<&[Mount]> {
        let mut fds = [PollFd::new(&self.table, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut fds, Some(&at_once))? > 0 {
            self.mounts = visible()?;
        }
        Ok(&self.mounts)
    }
}

/// The mounts of this process's namespace, hidden ones as well.
///
/// # Errors
/// If the table can't be read.
pub fn table() -> io::Result<Vec<Mount>> {
    Ok(parse(&read_table()?))
}

/// The text of the mount table. (`std::fs::read` asks for the size, which is 0, and begins with 32 bytes.)
fn read_table() -> Result<Vec<u8>, Errno> {
    const SOME: usize = 16 << 10;
    let table = open_table()?;
    let mut text = Vec::with_capacity(SOME);
    loop {
        text.reserve(SOME / 2);
        match rustix::io::read(&table, rustix::buffer::spare_capacity(&mut text)) {
            Ok(0) => return Ok(text),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn open_table() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, c"/proc/thread-self/mountinfo", flags, Mode::empty())
}

/// Number of the mount that a path leads to. Triggers no automount.
#[must_use]
pub fn mount_id(path: &Path) -> Option<u64> {
    look_at(path).ok().flatten()
}

/// [`mount_id`]; `None` where the kernel does not tell.
fn look_at(path: &Path) -> Result<Option<u64>, Errno> {
    // The number is the kernel's own: no server of a file system is asked.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    Ok(number_in(&rustix::fs::statx(CWD, path, flags, StatxFlags::MNT_ID)?))
}

/// Number of the mount by which something was found. Its file system is not asked.
#[must_use]
pub fn mount_of(found: impl AsFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    number_in(&rustix::fs::statx(found, c"", flags, StatxFlags::MNT_ID).ok()?)
}

/// Number of the mount by which a name in a directory is reached. Its file system is not asked.
pub(crate) fn mount_in(dir: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Option<u64> {
    let flags = flags | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    number_in(&rustix::fs::statx(dir, name, flags, StatxFlags::MNT_ID).ok()?)
}

fn number_in(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_everything() {
        let line = b"36 35 98:1 /mnt\\0401 /mnt\\134a\\012b rw,nosuid,noatime master:1 shared:2 - ext3 /dev/ro\\040ot rw,errors=continue";
        let mounts = parse(line);
        let [m] = &mounts[..] else { panic!("{mounts:?}") };
        assert_eq!((m.id, m.parent), (36, 35));
        assert_eq!(m.dev, rustix::fs::makedev(98, 1));
        assert_eq!(m.root, Path::new("/mnt 1"));
        assert_eq!(m.point, Path::new("/mnt\\a\nb"));
        assert_eq!((m.kind.as_str(), m.source.to_str()), ("ext3", Some("/dev/ro ot")));
        assert!(m.is_writable());
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOATIME;
        assert_eq!(m.attributes(), flags);
    }

    #[test]
    fn no_optional_fields_and_rubbish() {
        let text =
            b"1 0 0:5 / / rw - tmpfs none ro,size=1\nrubbish\n\n2 1 0:6 / /a ro - proc proc rw";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert!(mounts.iter().all(|m| !m.is_writable()));
        assert_eq!(mounts[0].attributes(), MountAttrFlags::MOUNT_ATTR_STRICTATIME);
    }

    #[test]
    fn the_root_is_visible() {
        assert!(visible().unwrap().iter().any(|m| m.point == Path::new("/")));
    }
}
