//! Looking at objects and file systems.

use std::mem::MaybeUninit;

use txos_engine::object::{FileId, FileKind};
use txos_engine::version::{Stamp, Version};

use super::{CPath, CWD, Sys, sys};
use crate::user::UserPtr;

/// Everything `stat` shows.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Identity.
    pub id: FileId,
    /// Type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// 512-byte blocks.
    pub blocks: u64,
    /// Preferred size of I/O.
    pub blksize: u32,
    /// Number of a device node.
    pub rdev: u64,
    /// Last read.
    pub atime: Stamp,
    /// Last change of data.
    pub mtime: Stamp,
    /// Last change of anything.
    pub ctime: Stamp,
    /// Creation, where the file system knows.
    pub btime: Option<Stamp>,
    /// The mount it was found on.
    pub mnt: u64,
    /// `STATX_ATTR_*`.
    pub attributes: u64,
    /// Which of those the file system knows.
    pub attributes_mask: u64,
}

impl Stat {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode)
    }

    /// As the engine compares it.
    #[must_use]
    pub fn version(&self) -> Version {
        Version {
            id: self.id,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size,
            mtime: self.mtime,
            ctime: self.ctime,
            rdev: self.rdev,
        }
    }

    /// The mount it was found on.
    #[must_use]
    pub fn mount(&self) -> Option<u64> {
        Some(self.mnt)
    }

    /// As `stat(2)` gives it.
    #[must_use]
    pub fn as_stat(&self) -> libc::stat {
        // SAFETY: all zeros is a value of this plain structure.
        let mut st: libc::stat = unsafe { std::mem::zeroed() };
        st.st_dev = self.id.dev;
        st.st_ino = self.id.ino;
        st.st_mode = self.mode;
        st.st_nlink = self.nlink.into();
        st.st_uid = self.uid;
        st.st_gid = self.gid;
        st.st_rdev = self.rdev;
        st.st_size = self.size as i64;
        st.st_blksize = self.blksize.into();
        st.st_blocks = self.blocks as i64;
        (st.st_atime, st.st_atime_nsec) = (self.atime.sec, self.atime.nsec.into());
        (st.st_mtime, st.st_mtime_nsec) = (self.mtime.sec, self.mtime.nsec.into());
        (st.st_ctime, st.st_ctime_nsec) = (self.ctime.sec, self.ctime.nsec.into());
        st
    }

    /// As `statx(2)` gives it to one who asks for `wanted`.
    #[must_use]
    pub fn as_statx(&self, wanted: u32) -> libc::statx {
        // SAFETY: all zeros is a value of this plain structure.
        let mut x: libc::statx = unsafe { std::mem::zeroed() };
        let stamp = |t: Stamp, to: &mut libc::statx_timestamp| {
            (to.tv_sec, to.tv_nsec) = (t.sec, t.nsec);
        };
        x.stx_mask = libc::STATX_BASIC_STATS | wanted & libc::STATX_MNT_ID;
        let times = libc::STATX_MTIME | libc::STATX_CTIME;
        // Who asks for neither gets neither, where stamps are made finer by being asked for.
        let no_times = wanted & times == 0 && txos_engine::version::multigrain();
        x.stx_blksize = self.blksize;
        x.stx_attributes = self.attributes;
        x.stx_attributes_mask = self.attributes_mask;
        x.stx_nlink = self.nlink;
        x.stx_uid = self.uid;
        x.stx_gid = self.gid;
        x.stx_mode = self.mode as u16;
        x.stx_ino = self.id.ino;
        x.stx_size = self.size;
        x.stx_blocks = self.blocks;
        (x.stx_rdev_major, x.stx_rdev_minor) = (libc::major(self.rdev), libc::minor(self.rdev));
        (x.stx_dev_major, x.stx_dev_minor) = (libc::major(self.id.dev), libc::minor(self.id.dev));
        x.stx_mnt_id = self.mnt;
        stamp(self.atime, &mut x.stx_atime);
        if no_times {
            x.stx_mask &= !times;
        } else {
            stamp(self.mtime, &mut x.stx_mtime);
            stamp(self.ctime, &mut x.stx_ctime);
        }
        if let Some(born) = self.btime {
            x.stx_mask |= libc::STATX_BTIME;
            stamp(born, &mut x.stx_btime);
        }
        x
    }
}

const MASK: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_MNT_ID;

fn ask(dir: i32, path: &[u8], flags: i32, mask: u32) -> Sys<libc::statx> {
    CPath::with(path, |p| {
        let mut out = MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: the path ends with its zero, and the kernel fills a structure of ours.
        unsafe { sys!(SYS_statx, dir, p.at(), flags, mask, out.as_mut_ptr()) }?;
        // SAFETY: zeroed, and filled in by the kernel.
        Ok(unsafe { out.assume_init() })
    })
}

fn id_of(s: &libc::statx) -> FileId {
    FileId { dev: libc::makedev(s.stx_dev_major, s.stx_dev_minor), ino: s.stx_ino }
}

/// `statx(2)`.
///
/// # Errors
/// As the system call.
pub fn statx(dir: i32, path: &[u8], flags: i32) -> Sys<Stat> {
    let s = ask(dir, path, flags, MASK)?;
    let stamp = |t: libc::statx_timestamp| Stamp { sec: t.tv_sec, nsec: t.tv_nsec };
    Ok(Stat {
        id: id_of(&s),
        mode: u32::from(s.stx_mode),
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        size: s.stx_size,
        blocks: s.stx_blocks,
        blksize: s.stx_blksize,
        rdev: libc::makedev(s.stx_rdev_major, s.stx_rdev_minor),
        atime: stamp(s.stx_atime),
        mtime: stamp(s.stx_mtime),
        ctime: stamp(s.stx_ctime),
        btime: (s.stx_mask & libc::STATX_BTIME != 0).then(|| stamp(s.stx_btime)),
        mnt: s.stx_mnt_id,
        attributes: s.stx_attributes,
        attributes_mask: s.stx_attributes_mask,
    })
}

/// What something is, without its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Which one.
    pub id: FileId,
    /// Type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Bytes.
    pub size: u64,
    /// The mount it was found on.
    pub mnt: u64,
    /// `STATX_ATTR_*`.
    pub attributes: u64,
}

impl Glance {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode)
    }
}

/// `statx(2)` that doesn't ask for times: where asking makes stamps finer, the next write would have to stamp the file anew,
/// which takes longer than many a write.
///
/// # Errors
/// As the system call.
pub fn glance(dir: i32, path: &[u8], flags: i32) -> Sys<Glance> {
    const TIMELESS: u32 = libc::STATX_TYPE
        | libc::STATX_MODE
        | libc::STATX_NLINK
        | libc::STATX_UID
        | libc::STATX_INO
        | libc::STATX_SIZE
        | libc::STATX_MNT_ID;
    let s = ask(dir, path, flags, TIMELESS)?;
    Ok(Glance {
        id: id_of(&s),
        mode: u32::from(s.stx_mode),
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        size: s.stx_size,
        mnt: s.stx_mnt_id,
        attributes: s.stx_attributes,
    })
}

/// What a descriptor is open on, without its times.
///
/// # Errors
/// As `statx(2)`.
pub fn identify_fd(fd: i32) -> Sys<Glance> {
    glance(fd, b"", libc::AT_EMPTY_PATH)
}

/// `lstat` by absolute path.
///
/// # Errors
/// As `statx(2)`.
pub fn look(path: &[u8]) -> Sys<Stat> {
    statx(CWD, path, libc::AT_SYMLINK_NOFOLLOW)
}

/// `lstat` in a directory.
///
/// # Errors
/// As `statx(2)`.
pub fn look_at(dir: i32, name: &[u8]) -> Sys<Stat> {
    statx(dir, name, libc::AT_SYMLINK_NOFOLLOW)
}

/// `fstat`.
///
/// # Errors
/// As `statx(2)`.
pub fn look_fd(fd: i32) -> Sys<Stat> {
    statx(fd, b"", libc::AT_EMPTY_PATH)
}

/// `newfstatat(2)` by a path from the working directory, for the program.
///
/// # Errors
/// As the system call.
#[inline]
pub fn stat_to(path: &[u8], flags: i32, out: UserPtr<libc::stat>) -> Sys<u64> {
    // SAFETY: the path ends with its zero, and the program wants the answer there.
    CPath::with(path, |p| unsafe { sys!(SYS_newfstatat, CWD, p.at(), out.address(), flags) })
}

/// `fstat(2)`, for the program.
///
/// # Errors
/// As the system call.
#[inline]
pub fn fstat_to(fd: i32, out: UserPtr<libc::stat>) -> Sys<u64> {
    // SAFETY: the program wants the answer there.
    unsafe { sys!(SYS_fstat, fd, out.address()) }
}

/// `statx(2)`, for the program.
///
/// # Errors
/// As the system call.
#[inline]
pub fn statx_to(
    dir: i32,
    path: &[u8],
    flags: i32,
    wanted: u32,
    out: UserPtr<libc::statx>,
) -> Sys<u64> {
    // SAFETY: the path ends with its zero, and the program wants the answer there.
    CPath::with(path, |p| unsafe { sys!(SYS_statx, dir, p.at(), flags, wanted, out.address()) })
}

/// `faccessat2(2)`.
///
/// # Errors
/// As the system call.
#[inline]
pub fn access_at(dir: i32, path: &[u8], mask: u32, flags: i32) -> Sys<u64> {
    // SAFETY: the path ends with its zero.
    CPath::with(path, |p| unsafe { sys!(SYS_faccessat2, dir, p.at(), mask, flags) })
}

/// `faccessat2(2)` with the effective credentials, links not followed.
///
/// # Errors
/// As the system call.
#[inline]
pub fn access(path: &[u8], mask: u32) -> Sys<()> {
    access_at(CWD, path, mask, libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW).map(drop)
}

/// `statfs(2)`, for the program.
///
/// # Errors
/// As the system call.
#[inline]
pub fn statfs_to(path: &[u8], out: UserPtr<libc::statfs>) -> Sys<u64> {
    // SAFETY: the path ends with its zero, and the program wants the answer there.
    CPath::with(path, |p| unsafe { sys!(SYS_statfs, p.at(), out.address()) })
}

/// `fstatfs(2)`, for the program.
///
/// # Errors
/// As the system call.
#[inline]
pub fn fstatfs_to(fd: i32, out: UserPtr<libc::statfs>) -> Sys<u64> {
    // SAFETY: the program wants the answer there.
    unsafe { sys!(SYS_fstatfs, fd, out.address()) }
}

/// The words of `struct statfs`.
fn statfs(path: &[u8]) -> Sys<[u64; 15]> {
    let mut words = [0u64; 15];
    // SAFETY: the path ends with its zero, and there is room for the structure.
    CPath::with(path, |p| unsafe { sys!(SYS_statfs, p.at(), words.as_mut_ptr()) })?;
    Ok(words)
}

/// The magic number of the file system that an object is on.
#[must_use]
pub fn file_system(path: &[u8], stat: &Stat) -> i64 {
    // A link leads elsewhere, and a device may wait: their directory is on the same.
    let own = matches!(stat.kind(), FileKind::File | FileKind::Dir);
    let place = if own { path } else { txos_engine::readset::split(path).map_or(path, |(d, _)| d) };
    // f_type is the first word. Whom the look is made for makes no difference: it is so for everybody.
    super::past_closed_directories(|| statfs(place)).map_or(0, |words| words[0] as i64)
}

/// The same, of what a descriptor is open on; 0 for what is on no mount that can be seen, as a file of memory.
#[must_use]
pub fn file_system_of(fd: i32) -> i64 {
    let mount = super::signals::number_in(&format!("/proc/self/fdinfo/{fd}"), "mnt_id:");
    let Some(start) = mount.map(|mount: i32| format!("{mount} ")) else { return 0 };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if !mounts.lines().any(|line| line.starts_with(&start)) {
        return 0;
    }
    let mut words = [0u64; 15];
    // SAFETY: there is room for the structure.
    let done = unsafe { sys!(SYS_fstatfs, fd, words.as_mut_ptr()) };
    done.map_or(0, |_| words[0] as i64)
}

/// Whether what a path leads to is mounted read-only.
#[must_use]
pub fn is_read_only(path: &[u8]) -> bool {
    // f_flags, which the C library's crate does not show, is the eleventh word.
    super::past_closed_directories(|| statfs(path))
        .is_ok_and(|words| words[10] & libc::ST_RDONLY != 0)
}

const _: () = assert!(size_of::<libc::statfs>() == size_of::<[u64; 15]>());
const _: () = assert!(std::mem::offset_of!(libc::statfs, f_type) == 0);
