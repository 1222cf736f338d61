//! Objects of the file system: who they are, and the facets of them that a transaction can touch.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The identity of a file-system object while it exists: device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// Device number as `st_dev` packs it.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// The type of an object (the `S_IFMT` bits of its mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// FIFO.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileKind {
    /// The kind of an object with this `st_mode`; an unknown type reads as a regular file.
    #[must_use]
    pub fn from_mode(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFDIR => FileKind::Dir,
            libc::S_IFLNK => FileKind::Symlink,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => FileKind::File,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::File => "file",
            FileKind::Dir => "directory",
            FileKind::Symlink => "symbolic link",
            FileKind::Fifo => "FIFO",
            FileKind::Socket => "socket",
            FileKind::CharDevice => "character device",
            FileKind::BlockDevice => "block device",
        })
    }
}

/// The facets of an object that a transaction depends on, as a set of bits.
///
/// Facets of one object are separate (DESIGN, "Words"): two transactions conflict only when they
/// touch the same facet and one of them writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facets(pub u8);

impl Facets {
    /// That the path leads to this object (or to none): identity and kind.
    pub const ENTRY: Facets = Facets(1);
    /// Owner, group, mode; for anything but a directory also size, times and link count.
    pub const ATTRS: Facets = Facets(2);
    /// The bytes of a regular file, or the target of a symbolic link.
    pub const DATA: Facets = Facets(4);
    /// The names in a directory.
    pub const LISTING: Facets = Facets(8);
    /// Extended attributes, access control lists included.
    pub const XATTRS: Facets = Facets(16);
    /// The transaction meant to change this object; its first version is the base of the change.
    pub const WRITE: Facets = Facets(32);
    /// The transaction opened the file for appending only: it never saw the bytes.
    pub const APPEND: Facets = Facets(64);

    /// The transaction unlinked the name, or renamed or linked something over it: what is there now
    /// is not a changed copy of what was. Nothing to validate; it tells what a new inode means.
    pub const REPLACED: Facets = Facets(128);

    /// Whether every facet of `other` is in `self`.
    #[must_use]
    pub const fn contains(self, other: Facets) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a file was only opened for appending: its content was not seen.
    #[must_use]
    pub const fn is_append(self) -> bool {
        let seen = Facets::ATTRS.0 | Facets::DATA.0 | Facets::XATTRS.0 | Facets::REPLACED.0;
        self.contains(Facets::APPEND) && !self.intersects(Facets(seen))
    }

    /// Whether `self` and `other` share a facet.
    #[must_use]
    pub const fn intersects(self, other: Facets) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Facets {
    type Output = Facets;

    fn bitor(self, rhs: Facets) -> Facets {
        Facets(self.0 | rhs.0)
    }
}

impl std::ops::BitOrAssign for Facets {
    fn bitor_assign(&mut self, rhs: Facets) {
        self.0 |= rhs.0;
    }
}
