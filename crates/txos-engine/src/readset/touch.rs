//! What was observed as facets of the realm: which ones a program's look-up touches, and how.
//!
//! An observation is made *and* its facets are acquired before the call is let through. If
//! acquiring had to wait, what was observed may be old, and is observed anew ([`ReadSet::renew`]):
//! nothing of it has been seen by the program yet.

use rustix::fs::{AtFlags, CWD};

use super::{Outcome, ReadSet, join, observe};
use crate::object::{Facets, FileId, FileKind};
use crate::realm::{Access, Facet};
use crate::version::stat_at;

/// A name of which something was observed that was not before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    pub(super) dir: u32,
    pub(super) name: Box<[u8]>,
    /// All facets observed so far.
    pub(super) facets: Facets,
}

impl Touch {
    /// All facets observed of it so far.
    #[must_use]
    pub fn facets(&self) -> Facets {
        self.facets
    }
}

impl ReadSet {
    /// From now on remembers what is newly observed, for [`ReadSet::take_touched`].
    pub fn remember_touched(&mut self) {
        self.touched.get_or_insert_default();
    }

    /// What was newly observed since the last call.
    pub fn take_touched(&mut self) -> Vec<Touch> {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether something was newly observed.
    #[must_use]
    pub fn has_touched(&self) -> bool {
        self.touched.as_ref().is_some_and(|t| !t.is_empty())
    }

    /// The canonical path of what was touched.
    #[must_use]
    pub fn path_of(&self, touch: &Touch) -> Vec<u8> {
        let dir = self.dirs.get(touch.dir as usize).map_or(&b""[..], |d| &d.path);
        join(dir, &touch.name)
    }

    /// Observes it anew: the first observation was never acted on.
    pub fn renew(&mut self, touch: &Touch) {
        let path = self.path_of(touch);
        let Some(dir) = self.dirs.get_mut(touch.dir as usize) else { return };
        let Some(seen) = dir.entries.get_mut(&touch.name) else { return };
        let facets = seen.facets;
        *seen = observe::look(&path);
        seen.facets = facets;
        if touch.facets.contains(Facets::LISTING) {
            seen.listing = observe::list(&path).map(Box::new);
        }
        if touch.facets.contains(Facets::XATTRS) {
            seen.xattrs = crate::sys::xattr_digest(&path).ok();
        }
    }

    /// Every facet that a touch stands for, with how it is touched.
    ///
    /// `reads`: whether what is only read counts (it does not under snapshot isolation).
    ///
    /// # Errors
    /// The first of `acquire`.
    pub fn facets_of<E>(
        &mut self,
        touch: &Touch,
        reads: bool,
        mut acquire: impl FnMut(&Facet<'_>, Access) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(dir) = self.dirs.get_mut(touch.dir as usize) else { return Ok(()) };
        let Some(id) = dir.id.or_else(|| directory_id(&dir.path)) else { return Ok(()) };
        dir.id = Some(id);
        let Some(seen) = dir.entries.get(&touch.name) else { return Ok(()) };
        let object = match seen.outcome {
            Outcome::Present(version) => Some((version.id, version.kind())),
            Outcome::Absent(_) => None,
        };
        accesses(id, &touch.name, object, touch.facets, |facet, access| {
            if access == Access::Read && !reads { Ok(()) } else { acquire(facet, access) }
        })
    }

    /// Everything seen so far, as touches: what a conflict is looked for in.
    pub fn all_touches(&self) -> impl Iterator<Item = Touch> {
        (0u32..).zip(&self.dirs).flat_map(|(index, dir)| {
            dir.entries.iter().map(move |(name, seen)| Touch {
                dir: index,
                name: name.clone(),
                facets: seen.facets(),
            })
        })
    }
}

fn directory_id(path: &[u8]) -> Option<FileId> {
    stat_at(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok().map(|v| v.id)
}

/// | observed | acquired |
/// |---|---|
/// | anything | entry: read |
/// | attributes, data, extended attributes | attributes: read |
/// | names in it | listing: read |
/// | meant to be changed | entry, attributes, extent: write |
/// | the same, where nothing is, or where it is replaced | entry: write; listing of the directory: insert |
/// | opened for appending only | entry, attributes, extent: insert: appends are merged |
fn accesses<E>(
    dir: FileId,
    name: &[u8],
    object: Option<(FileId, FileKind)>,
    facets: Facets,
    mut acquire: impl FnMut(&Facet<'_>, Access) -> Result<(), E>,
) -> Result<(), E> {
    let entry = Facet::Entry { dir, name };
    let whole = Facets::ATTRS | Facets::DATA | Facets::XATTRS;
    let appends = object.is_some() && crate::commit::is_append(facets);
    let change = if appends { Access::Insert } else { Access::Write };
    if !facets.intersects(Facets::WRITE) {
        acquire(&entry, Access::Read)?;
    } else {
        acquire(&entry, change)?;
        if object.is_none() || facets.contains(Facets::REPLACED) {
            acquire(&Facet::Listing(dir), Access::Insert)?;
        }
    }
    let Some((id, kind)) = object else { return Ok(()) };
    if facets.intersects(Facets::WRITE) {
        acquire(&Facet::Attributes(id), change)?;
        if kind == FileKind::File {
            acquire(&Facet::Extent(id), change)?;
        }
    } else if facets.intersects(whole) {
        acquire(&Facet::Attributes(id), Access::Read)?;
    }
    if facets.contains(Facets::LISTING) && kind == FileKind::Dir {
        acquire(&Facet::Listing(id), Access::Read)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: FileId = FileId { dev: 1, ino: 1 };
    const FILE: FileId = FileId { dev: 1, ino: 2 };

    fn of(object: Option<FileKind>, facets: Facets) -> Vec<String> {
        let mut all = Vec::new();
        let object = object.map(|kind| (FILE, kind));
        let done: Result<(), ()> = accesses(DIR, b"n", object, facets, |facet, access| {
            let what = match facet {
                Facet::Entry { .. } => "entry",
                Facet::Listing(DIR) => "directory's listing",
                Facet::Listing(_) => "listing",
                Facet::Attributes(_) => "attributes",
                Facet::Extent(_) => "extent",
                _ => "other",
            };
            all.push(format!("{what} {access:?}"));
            Ok(())
        });
        done.unwrap();
        all
    }

    #[test]
    fn what_look_ups_touch() {
        let file = Some(FileKind::File);
        let (e, w) = (Facets::ENTRY, Facets::ENTRY | Facets::WRITE);
        assert_eq!(of(None, e), ["entry Read"]);
        assert_eq!(of(file, e), ["entry Read"]);
        assert_eq!(of(file, e | Facets::DATA), ["entry Read", "attributes Read"]);
        let listed = of(Some(FileKind::Dir), e | Facets::LISTING);
        assert_eq!(listed, ["entry Read", "listing Read"]);
        assert_eq!(of(None, w), ["entry Write", "directory's listing Insert"]);
        assert_eq!(of(file, w), ["entry Write", "attributes Write", "extent Write"]);
        assert_eq!(
            of(file, w | Facets::REPLACED),
            ["entry Write", "directory's listing Insert", "attributes Write", "extent Write"]
        );
        assert_eq!(
            of(file, w | Facets::APPEND),
            ["entry Insert", "attributes Insert", "extent Insert"]
        );
        // Who also reads what it appends to must have it alone.
        assert_eq!(
            of(file, w | Facets::APPEND | Facets::DATA),
            ["entry Write", "attributes Write", "extent Write"]
        );
        assert_eq!(of(None, w | Facets::APPEND), ["entry Write", "directory's listing Insert"]);
    }
}
