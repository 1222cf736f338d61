//! What was observed as facets of the realm: which ones a program's look-up touches, and how.
//!
//! An observation is made *and* its facets are acquired before the call is let through. If
//! acquiring had to wait, what was observed may be old: then everything that was observed **for
//! the first time** in this round is forgotten and looked at again ([`ReadSet::look_again`]), by the
//! paths as they were written, because links and directories on the way may lead elsewhere by now.
//! What the program has seen before is never forgotten, nor what the kernel has looked up for somebody
//! else in the view meanwhile ([`ReadSet::seal_round`]).

use rustix::fs::{AtFlags, CWD};

use super::{Outcome, ReadSet};
use crate::object::{Facets, FileId, FileKind};
use crate::path::join;
use crate::realm::{Access, Facet};
use crate::version::stat_at;

/// A name of which something was observed that was not before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    pub(super) dir: u32,
    pub(super) name: Box<[u8]>,
    /// All facets observed so far.
    pub(super) facets: Facets,
    /// Nothing was observed of the name before.
    pub(super) first: bool,
}

/// What was observed since it was last asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub touches: Vec<Touch>,
    /// Paths of directories that were looked up for the first time.
    pub aliases: Vec<Box<[u8]>>,
    /// What was asked to be observed.
    pub notes: Vec<(Box<[u8]>, bool, Facets)>,
}

impl Touch {
    /// All facets observed of it so far.
    #[must_use]
    pub fn facets(&self) -> Facets {
        self.facets
    }
}

impl ReadSet {
    /// From now on remembers what is newly observed, for [`ReadSet::touched`].
    pub fn remember_touched(&mut self) {
        self.round.get_or_insert_default();
    }

    /// What was newly observed since the round began.
    pub fn touched(&mut self) -> Vec<Touch> {
        self.round.as_mut().map(|round| std::mem::take(&mut round.touches)).unwrap_or_default()
    }

    /// Puts back what [`ReadSet::touched`] gave: it stays part of the round.
    pub fn keep(&mut self, touches: Vec<Touch>) {
        if let Some(round) = &mut self.round {
            round.touches = touches;
        }
    }

    /// What was observed in this round so far is final, as if its call had been let through: the kernel
    /// is about to look it up in a view of the tree, and remembers for good what is there now.
    pub fn seal_round(&mut self) {
        if let Some(round) = &mut self.round {
            round.touches.iter_mut().for_each(|touch| touch.first = false);
            round.aliases.clear();
            round.notes.clear();
        }
    }

    /// Whether something was newly observed.
    #[must_use]
    pub fn has_touched(&self) -> bool {
        self.round.as_ref().is_some_and(|round| !round.touches.is_empty())
    }

    /// The call is let through: what was observed has been seen.
    pub fn end_round(&mut self) {
        if let Some(round) = &mut self.round {
            round.touches.clear();
            round.aliases.clear();
            round.notes.clear();
        }
    }

    /// Forgets what `touches` observed for the first time, and looks again: it has not been seen
    /// by the program yet. What is observed now is in [`ReadSet::touched`], with those of `touches` that stay as
    /// they were observed.
    pub fn look_again(&mut self, touches: &[Touch]) {
        let Some(round) = self.round.as_mut() else { return };
        let Round { aliases, notes, .. } = std::mem::take(round);
        for touch in touches.iter().filter(|touch| touch.first) {
            if let Some(dir) = self.dirs.get_mut(touch.dir as usize) {
                dir.entries.swap_remove(&touch.name);
            }
        }
        for alias in &aliases {
            self.aliases.swap_remove(alias);
        }
        if let Some(round) = &mut self.round {
            round.touches.extend(touches.iter().filter(|touch| !touch.first).cloned());
        }
        for (path, follow, facets) in notes {
            self.note(&path, follow, facets);
        }
    }

    /// The canonical path of what was touched.
    #[must_use]
    pub fn path_of(&self, touch: &Touch) -> Vec<u8> {
        let dir = self.dirs.get(touch.dir as usize).map_or(&b""[..], |d| &d.path);
        join(dir, &touch.name)
    }

    /// Whether the transaction saw anything of a directory: itself, or what is below it.
    #[must_use]
    pub fn concerns(&self, top: &[u8]) -> bool {
        self.dirs.iter().any(|dir| {
            if crate::path::is_at_or_below(&dir.path, top) {
                return !dir.entries.is_empty();
            }
            let itself = crate::path::split(top).filter(|(parent, _)| *parent == dir.path);
            itself.is_some_and(|(_, name)| dir.entries.contains_key(name))
        })
    }

    /// Whether a touch is the first for appending only to a file that is there.
    #[must_use]
    pub fn begins_to_append(&self, touch: &Touch) -> bool {
        let seen = self.dirs.get(touch.dir as usize).and_then(|d| d.entries.get(&touch.name));
        seen.is_some_and(|seen| {
            touch.facets.is_append()
                && seen.appended_beyond.is_none()
                && matches!(seen.outcome, Outcome::Present(v) if v.kind() == FileKind::File)
        })
    }

    /// Notes how long the private copy of a file is before anything was appended to it.
    pub fn appends_beyond(&mut self, touch: &Touch, len: u64) {
        let dir = self.dirs.get_mut(touch.dir as usize);
        if let Some(seen) = dir.and_then(|d| d.entries.get_mut(&touch.name)) {
            seen.appended_beyond.get_or_insert(len);
        }
    }

    /// How long the private copy of a file was is not known: what is appended can't be told from what others
    /// append, so that any change of the file by others is a conflict.
    pub fn appends_to_all(&mut self, touch: &Touch) {
        let dir = self.dirs.get_mut(touch.dir as usize);
        if let Some(seen) = dir.and_then(|d| d.entries.get_mut(&touch.name)) {
            seen.facets |= Facets::DATA.0;
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
                first: false,
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
pub(super) fn accesses<E>(
    dir: FileId,
    name: &[u8],
    object: Option<(FileId, FileKind)>,
    facets: Facets,
    mut acquire: impl FnMut(&Facet<'_>, Access) -> Result<(), E>,
) -> Result<(), E> {
    let entry = Facet::Entry { dir, name };
    let whole = Facets::ATTRS | Facets::DATA | Facets::XATTRS;
    let appends = object.is_some() && facets.is_append();
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
    fn only_what_was_not_seen_is_looked_at_again() {
        let dir = std::env::temp_dir().join(format!("txos-touch-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("d")).unwrap();
        let path = |name: &str| dir.join(name).into_os_string().into_encoded_bytes();
        for name in ["old", "new", "d/target"] {
            std::fs::write(dir.join(name), "1").unwrap();
        }
        let mut reads = ReadSet::new(super::super::Coverage::default());
        reads.remember_touched();
        reads.note(&path("old"), true, Facets::ENTRY);
        assert_eq!(reads.touched().len(), 1);
        reads.end_round();
        let version = |reads: &ReadSet, name| reads.get(&path(name)).map(|o| o.outcome);
        let old = version(&reads, "old");
        reads.note(&path("old"), true, Facets::ENTRY | Facets::DATA);
        reads.note(&path("new"), true, Facets::ENTRY | Facets::DATA);
        let touches = reads.touched();
        assert_eq!(touches.iter().map(|t| t.first).collect::<Vec<_>>(), [false, true]);
        // Both change while their facets are waited for; one becomes a link.
        std::fs::write(dir.join("old"), "22").unwrap();
        std::fs::remove_file(dir.join("new")).unwrap();
        std::os::unix::fs::symlink("d/target", dir.join("new")).unwrap();
        reads.look_again(&touches);
        assert_eq!(version(&reads, "old"), old, "what was seen stays");
        assert!(version(&reads, "d/target").is_some(), "the link is followed");
        let again: Vec<_> = reads.touched().iter().map(|t| reads.path_of(t)).collect();
        assert_eq!(again, [path("old"), path("new"), path("d/target")]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A file that is to be appended to was found in the view, and had to be waited for after that: it stays
    /// to be asked how long its private copy is.
    #[test]
    fn what_is_final_stays_in_the_round() {
        let dir = std::env::temp_dir().join(format!("txos-final-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("list").into_os_string().into_encoded_bytes();
        std::fs::write(dir.join("list"), "1\n").unwrap();
        let mut reads = ReadSet::new(super::super::Coverage::default());
        reads.remember_touched();
        reads.note(&file, true, Facets::WRITE | Facets::APPEND);
        reads.seal_round();
        for _ in 0..2 {
            let touches = reads.touched();
            let append: Vec<_> = touches.iter().map(|t| reads.begins_to_append(t)).collect();
            assert_eq!(append, [true]);
            reads.look_again(&touches);
        }
        let touches = reads.touched();
        reads.appends_to_all(&touches[0]);
        assert!(!reads.get(&file).unwrap().facets().is_append());
        std::fs::remove_dir_all(&dir).unwrap();
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
