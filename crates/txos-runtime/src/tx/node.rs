//! Shadow objects: what the transaction knows of, and has done to, each object it touched.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use txos_engine::object::{FileId, FileKind};

use super::content::Data;
use super::kernel::{Errno, Stat, Sys};

/// Index of a node.
pub type Id = usize;
/// A name in a directory.
pub type Name = Box<[u8]>;

/// A hash for names and small keys: no secret is needed, only this process chooses what it looks up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.write_u64(u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
        }
        let mut last = [0u8; 8];
        let rest = chunks.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.write_u64(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(23);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

/// A map without a random seed: none has to be fetched from the system.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Fold>>;

/// What was changed of a node's attributes.
pub mod changed {
    /// Permission bits.
    pub const MODE: u8 = 1;
    /// Owner or group.
    pub const OWNER: u8 = 2;
    /// Time of last change of the data, to a value that was asked for.
    pub const MTIME: u8 = 4;
    /// Time of last access, likewise.
    pub const ATIME: u8 = 8;
    /// Extended attributes.
    pub const XATTRS: u8 = 16;
    /// Of a directory whose names are the same at the end: the time that they leave it with.
    pub const NAMES_MTIME: u8 = 32;
}

/// The object in the stable tree that a node stands for.
#[derive(Clone, Debug)]
pub struct Stable {
    /// Its directory there, canonical; empty for one that has no name any more.
    pub dir: std::rc::Rc<[u8]>,
    /// Which directory that is.
    pub dir_id: FileId,
    /// Its name there; `.` for the root.
    pub name: Name,
    /// Both.
    pub path: Vec<u8>,
    /// What it was when it was first looked at.
    pub stat: Stat,
}

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What the transaction sees there.
    pub now: Option<Id>,
    /// What is there in the stable tree.
    pub base: Option<Id>,
}

/// What is known of the names in a directory.
#[derive(Debug, Default)]
pub struct Dir {
    /// Names that were looked up or changed.
    pub entries: Map<Name, Entry>,
    /// Its canonical path in the stable tree, which its entries share, once one was looked up there.
    pub place: Option<std::rc::Rc<[u8]>>,
    /// For listings: how many of them exist only in the transaction, or no longer.
    pub changes: usize,
    /// For a new directory: its place among the private copies, once it has one.
    pub staged: Option<Vec<u8>>,
    /// It has been removed.
    pub removed: bool,
    /// The directory from which it was removed: `..` leads there still.
    pub above: Option<Id>,
}

/// Extended attributes by name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// One object as the transaction sees it.
#[derive(Debug)]
pub struct Node {
    /// Attributes. Size, blocks and times of a file with a private copy are the copy's; but its time of change is the
    /// later of the copy's and this one, once a name or an attribute has changed.
    pub stat: Stat,
    /// Its counterpart; `None`: it is new.
    pub stable: Option<Stable>,
    /// For a directory.
    pub dir: Option<Box<Dir>>,
    /// For a symbolic link whose target is known.
    pub target: Option<Vec<u8>>,
    /// For a regular file.
    pub data: Data,
    /// All extended attributes, once one was changed.
    pub xattrs: Option<Xattrs>,
    /// Bits of [`changed`].
    pub changed: u8,
    /// [`txos_engine::object::Facets`] noted in the read set.
    pub noted: u8,
    /// Bits of [`held`].
    pub held: u8,
    /// Pages that were acquired one by one.
    pub pages: u32,
    /// It is not versioned: devices, /proc, foreign file systems.
    pub live: bool,
    /// Names by which the transaction knows it.
    pub names: Vec<(Id, Name)>,
    /// The last of them, when it has none any more.
    pub last_name: Option<Vec<u8>>,
    /// Permissions (R, W, X bits) that the kernel has granted.
    pub may: u32,
    /// Permissions that it has refused, and how.
    pub may_not: u32,
    /// Whose these are ([`super::parts::ProcessGlobals::who`]).
    pub judged_for: u32,
    /// The errno of that.
    pub refusal: Errno,
    /// A descriptor from before the transaction leads to it: its inode stays.
    pub kept: bool,
    /// What was appended to it is written after the commit, by a descriptor from before: nothing else may write to it.
    pub appended: bool,
    /// The call in which the stable object was first looked at, if that is known.
    pub looked: Option<Looked>,
    /// A process has it open and reads or writes it itself ([`super::lending`]).
    pub lent: bool,
}

/// When something was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The number of the call.
    pub call: u64,
    /// How many publishes had ended in the realm before the look.
    pub ended: u64,
}

/// What has been acquired of a node in the realm.
pub mod held {
    /// Attributes, to read.
    pub const ATTRS: u8 = 1;
    /// Extent and attributes, to read: the whole content.
    pub const DATA: u8 = 2;
    /// Everything, to write.
    pub const WRITE: u8 = 4;
    /// Extent, to read.
    pub const EXTENT: u8 = 8;
    /// Names in it, to list.
    pub const LISTING: u8 = 16;
    /// Extended attributes, to read.
    pub const XATTRS: u8 = 32;
    /// Its entry, to write.
    pub const ENTRY: u8 = 64;
    /// What [`DATA`] is, of a file that was opened and not read yet: its content is not in the read set.
    pub const EXPECTED: u8 = 128;
}

impl Node {
    /// A node for an object that was looked at, or is new.
    #[must_use]
    pub fn new(stat: Stat, stable: Option<Stable>) -> Node {
        let dir = (stat.kind() == FileKind::Dir).then(Box::default);
        Node {
            stat,
            stable,
            dir,
            target: None,
            data: Data::Stable,
            xattrs: None,
            changed: 0,
            noted: 0,
            held: 0,
            pages: 0,
            live: false,
            names: Vec::new(),
            last_name: None,
            may: 0,
            may_not: 0,
            judged_for: 0,
            refusal: Errno::ACCESS,
            kept: false,
            appended: false,
            looked: None,
            lent: false,
        }
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.stat.kind()
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.dir.is_some()
    }

    /// What is known of the names in it.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn dir(&self) -> Sys<&Dir> {
        self.dir.as_deref().ok_or(Errno::NOTDIR)
    }

    /// The same, to change.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn dir_mut(&mut self) -> Sys<&mut Dir> {
        self.dir.as_deref_mut().ok_or(Errno::NOTDIR)
    }

    /// Whether permissions have to be worked out here, because the stable object's are not its own.
    #[must_use]
    pub fn has_own_permissions(&self) -> bool {
        self.stable.is_none()
            || self.changed & (changed::MODE | changed::OWNER | changed::XATTRS) != 0
    }
}
