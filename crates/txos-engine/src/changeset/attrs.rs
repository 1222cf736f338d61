//! Owner, mode, time and extended attributes: read, compared, and as a reversible change.

use serde::{Deserialize, Serialize};

use super::overlay::is_overlay_xattr;
use crate::object::FileKind;
use crate::version::{Stamp, Version};

/// The attributes of one object, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// Permission bits; 0 for a symbolic link, which has none of its own.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Extended attributes, sorted, without overlayfs's own.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attrs {
    /// Reads the extended attributes of the object at `path` (not followed) beside its version.
    ///
    /// # Errors
    /// The errno of `llistxattr(2)` or `lgetxattr(2)`.
    pub fn read(version: &Version, path: &[u8]) -> Result<Self, rustix::io::Errno> {
        Ok(Self::from_parts(version, &crate::sys::xattrs(path)?))
    }

    /// From a version and all of the object's extended attributes.
    #[must_use]
    pub fn from_parts(version: &Version, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let link = version.kind() == FileKind::Symlink;
        Attrs {
            mode: if link { 0 } else { version.mode & 0o7777 },
            uid: version.uid,
            gid: version.gid,
            xattrs: xattrs.iter().filter(|(n, _)| !is_overlay_xattr(n)).cloned().collect(),
        }
    }
}

/// An extended attribute before and after a change; `None` where there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XattrChange {
    /// Name, with its namespace.
    pub name: Vec<u8>,
    /// Value before.
    pub old: Option<Vec<u8>>,
    /// Value after.
    pub new: Option<Vec<u8>>,
}

/// A change of attributes: every part as (before, after).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttrChange {
    /// Permission bits.
    pub mode: Option<(u32, u32)>,
    /// Owner and group.
    pub owner: Option<((u32, u32), (u32, u32))>,
    /// Time of last change of the data.
    pub mtime: Option<(Stamp, Stamp)>,
    /// Extended attributes.
    pub xattrs: Vec<XattrChange>,
}

impl AttrChange {
    /// What leads from `old` to `new`, times left out.
    #[must_use]
    pub fn between(old: &Attrs, new: &Attrs) -> Self {
        let value = |list: &[(Vec<u8>, Vec<u8>)], name: &[u8]| {
            list.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
        };
        let mut names: Vec<&Vec<u8>> =
            old.xattrs.iter().chain(&new.xattrs).map(|(n, _)| n).collect();
        names.sort();
        names.dedup();
        // chown(2) drops file capabilities, so they are set again whenever the owner changes.
        let chowned = (old.uid, old.gid) != (new.uid, new.gid);
        let xattrs = names
            .into_iter()
            .map(|name| XattrChange {
                old: value(&old.xattrs, name),
                new: value(&new.xattrs, name),
                name: name.clone(),
            })
            .filter(|x| x.old != x.new || (chowned && x.name == b"security.capability"))
            .collect();
        let (old_owner, new_owner) = ((old.uid, old.gid), (new.uid, new.gid));
        AttrChange {
            mode: (old.mode != new.mode).then_some((old.mode, new.mode)),
            owner: (old_owner != new_owner).then_some((old_owner, new_owner)),
            mtime: None,
            xattrs,
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == AttrChange::default()
    }

    /// Whether it changes nothing but the time.
    #[must_use]
    pub fn is_only_mtime(&self) -> bool {
        self.mode.is_none() && self.owner.is_none() && self.xattrs.is_empty()
    }

    /// The change that undoes this one.
    #[must_use]
    pub fn reversed(&self) -> Self {
        AttrChange {
            mode: self.mode.map(|(a, b)| (b, a)),
            owner: self.owner.map(|(a, b)| (b, a)),
            mtime: self.mtime.map(|(a, b)| (b, a)),
            xattrs: self
                .xattrs
                .iter()
                .map(|x| XattrChange {
                    name: x.name.clone(),
                    old: x.new.clone(),
                    new: x.old.clone(),
                })
                .collect(),
        }
    }
}
