//! The canonical delta of a transaction: how it is read from an overlay upper or made of explicit
//! deltas, how it is shown.

mod attrs;
mod content;
mod delta;
mod entries;
mod layer_diff;
mod links;
mod merge;
mod overlay;
pub(crate) mod patch;
mod recorded;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use attrs::{AttrChange, Attrs, XattrChange};
pub use content::same_bytes;
pub(crate) use delta::move_on;
pub use delta::{Delta, What};
pub(crate) use entries::{Source, expand, walk};
pub use layer_diff::{Replay, RunningLayer, Step, layer_entries, running_layer};
pub use merge::merge;
pub use overlay::Renamed;
pub(crate) use overlay::{forget_indexed, is_overlay_xattr};
pub use patch::undone;
pub(crate) use recorded::moved_on;
pub use recorded::{discard_unused, record, recorded_deltas};

use crate::error::{Error, Result};
use crate::object::FileKind;
use crate::path::LayerPath;
use crate::readset::ReadSet;
use crate::store::{Home, Layer, Left, Meta, Transaction};
use crate::version::{Stamp, Version};

/// How often a transaction that runs is looked at until a look succeeds.
const LOOKS_MAX: u32 = 20;
/// How long after a look that failed the next one is made.
const BETWEEN_LOOKS: std::time::Duration = std::time::Duration::from_millis(5);

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It is new.
    Added,
    /// Its content changed (and perhaps its attributes).
    Modified,
    /// Only owner, mode, times or extended attributes changed.
    Attributes,
    /// It is another type of object now.
    TypeChanged,
    /// It was moved here from elsewhere.
    Renamed,
    /// It is gone.
    Deleted,
}

impl Status {
    /// git's letter: A M m T R D.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Status::Added => 'A',
            Status::Modified => 'M',
            Status::Attributes => 'm',
            Status::TypeChanged => 'T',
            Status::Renamed => 'R',
            Status::Deleted => 'D',
        }
    }
}

/// The attributes of one side of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Time of last change of the data.
    pub mtime: crate::version::Stamp,
}

/// One changed path, as people are shown it.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// What happened.
    pub status: Status,
    /// Where, in the stable tree.
    #[serde(serialize_with = "crate::show::path_as_text")]
    pub path: PathBuf,
    /// Where it was, if renamed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "option_path")]
    pub from: Option<PathBuf>,
    /// Attributes before; none if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Side>,
    /// Attributes after; none if it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Side>,
    /// Of something that was moved: what it has replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Side>,
    /// Where its content can be read now, if it can.
    #[serde(skip)]
    pub replaced_content: Option<PathBuf>,
    /// Where the old content can be read now, if it can.
    #[serde(skip)]
    pub old_content: Option<PathBuf>,
    /// Where the new content can be read now, if it can.
    #[serde(skip)]
    pub new_content: Option<PathBuf>,
    /// What makes the old content of the new one, where only what was overwritten is kept ([`undone`]).
    #[serde(skip)]
    pub undo: Option<PathBuf>,
}

impl Entry {
    /// The change that undoes this one.
    pub(crate) fn turned_round(self) -> Entry {
        let (path, from) = match self.from {
            Some(from) => (from, Some(self.path)),
            None => (self.path, None),
        };
        Entry {
            status: match self.status {
                Status::Added => Status::Deleted,
                Status::Deleted => Status::Added,
                same @ (Status::Modified
                | Status::Attributes
                | Status::TypeChanged
                | Status::Renamed) => same,
            },
            path,
            from,
            old: self.new,
            new: self.old,
            replaced: None,
            replaced_content: None,
            old_content: self.new_content,
            new_content: self.old_content,
            undo: None,
        }
    }
}

fn option_path<S: serde::Serializer>(
    path: &Option<PathBuf>,
    s: S,
) -> std::result::Result<S::Ok, S::Error> {
    match path {
        Some(path) => crate::show::path_as_text(path, s),
        None => s.serialize_none(),
    }
}

/// An extended attribute of overlayfs that is taken off when its object is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Strip {
    /// Path below the published object; empty for the object itself.
    pub below: Vec<u8>,
    /// Attribute name.
    pub name: Vec<u8>,
    /// Its value, to put back if the publish is undone.
    pub value: Vec<u8>,
}

/// What is to be done about one path.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Put the staged object where nothing is.
    Install,
    /// Exchange the staged object, which is a new one, with what is there.
    Replace,
    /// Exchange a changed copy of the file that is there with it; written in place if somebody has the
    /// file open for writing.
    Rewrite,
    /// Take the object away.
    Remove,
    /// Move the stable object `from` here.
    Move {
        /// Where it is now, relative to the layer.
        from: LayerPath,
        /// Its version.
        source: Version,
    },
    /// Make this name another link of the object at `to`.
    Link {
        /// The other name, relative to the layer.
        to: LayerPath,
    },
    /// Write the staged content into the inode that is there, then the attributes.
    Data(Box<AttrChange>),
    /// Write the pieces of the staged patch file into the inode that is there, then the attributes.
    Patch(Box<AttrChange>),
    /// Change attributes of the inode that is there.
    Attrs(Box<AttrChange>),
}

impl Action {
    /// Whether it leaves every name as it is.
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(self, Action::Data(_) | Action::Patch(_) | Action::Attrs(_))
    }
}

/// One change of a layer, at the grain of the publish: a new directory is one change.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Number of the layer.
    pub layer: usize,
    /// Where, relative to the layer's root.
    pub path: LayerPath,
    /// Where the object's stable counterpart is before the publish: differs from `path` below a
    /// moved directory.
    pub stable_path: LayerPath,
    /// What.
    pub action: Action,
    /// The object there now.
    pub base: Option<Version>,
    /// The staged object.
    pub new: Option<Version>,
    /// The staged object's place, or the slot for what is taken out; relative to the layer's
    /// directory in the store.
    pub staged: Vec<u8>,
    /// Attributes to take off.
    pub strip: Vec<Strip>,
    /// Whether people are shown it (a directory's mtime that merely follows its entries is not).
    pub shown: bool,
    /// Number of objects below it that come or go with it.
    pub below: u64,
    /// For a new directory: every directory below it, relative to it.
    pub dirs: Vec<Vec<u8>>,
    /// For a patch: the pages (of 4,096 bytes) it writes to.
    pub pages: Vec<u64>,
    /// For a change in place of an object that loses this name and keeps others that are not known:
    /// where whatever takes the name puts it; relative to the layer's directory in the store.
    pub held: Option<Vec<u8>>,
    /// Set while scanning: superseded by another change.
    pub dropped: bool,
}

/// Numbers of changed paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// New.
    pub added: u64,
    /// With other content.
    pub modified: u64,
    /// With other owner, mode, time or extended attributes only.
    pub attributes: u64,
    /// Of another type.
    pub type_changed: u64,
    /// Moved.
    pub renamed: u64,
    /// Gone.
    pub deleted: u64,
}

impl Counts {
    /// Counts entries that are listed anyway; a change set counts itself for less.
    pub fn of<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut counts = Counts::default();
        for entry in entries {
            *match entry.status {
                Status::Added => &mut counts.added,
                Status::Modified => &mut counts.modified,
                Status::Attributes => &mut counts.attributes,
                Status::TypeChanged => &mut counts.type_changed,
                Status::Renamed => &mut counts.renamed,
                Status::Deleted => &mut counts.deleted,
            } += 1;
        }
        counts
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.added
            + self.modified
            + self.attributes
            + self.type_changed
            + self.renamed
            + self.deleted
    }
}

/// `14 paths (9 added, 4 modified, 1 deleted)`.
impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total = self.total();
        if total == 0 {
            return f.write_str("nothing changed");
        }
        write!(f, "{total} path{}", if total == 1 { "" } else { "s" })?;
        let kinds = [
            (self.added, "added"),
            (self.modified, "modified"),
            (self.attributes, "attributes only"),
            (self.type_changed, "type changed"),
            (self.renamed, "renamed"),
            (self.deleted, "deleted"),
        ];
        let words: Vec<String> =
            kinds.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
        write!(f, " ({})", words.join(", "))
    }
}

/// What a transaction changes.
#[derive(Debug, Default)]
pub struct ChangeSet {
    pub(crate) changes: Vec<Change>,
    /// Directories and files, for [`ChangeSet::entries`].
    pub(crate) layers: Vec<crate::store::Layer>,
    /// Number of the last slot handed out in `old/`.
    pub(crate) last_slot: u64,
    /// Made of explicit deltas: private copies are where the changes say, not in an upper directory.
    pub(crate) explicit: bool,
}

impl ChangeSet {
    /// Whether the command has made or changed something at a path, also if that is no change any more: what others have
    /// made there since is the same. (Of the library's view, whose changes say so themselves: `false`.)
    #[must_use]
    pub fn has_own_at(&self, path: &Path) -> bool {
        let is_there = |layer: &crate::store::Layer| {
            let below = path.strip_prefix(&layer.target).ok()?;
            (!below.as_os_str().is_empty())
                .then(|| layer.upper.join(below).symlink_metadata().is_ok())
        };
        !self.explicit && self.layers.iter().any(|layer| is_there(layer) == Some(true))
    }

    /// Whether conflicts are about what the transaction has read and does not change.
    #[must_use]
    pub fn has_none_of(&self, conflicts: &[crate::Conflict]) -> bool {
        let Ok(entries) = self.entries() else { return false };
        let changed = |path: &Path| {
            let listed = entries.iter().any(|e| {
                let ends = [Some(&e.path), e.from.as_ref()].into_iter().flatten();
                ends.into_iter().any(|end| end.starts_with(path) || path.starts_with(end))
            });
            listed || self.has_own_at(path)
        };
        !conflicts.iter().any(|c| changed(&c.path))
    }

    /// Reads the change set of a transaction from its layers. No overlay may be mounted on them.
    /// `keep_inode` are globs of files whose inode must stay.
    ///
    /// # Errors
    /// [`Error::Io`] with the step and path, [`Error::Conflict`] if a directory that the
    /// transaction works in has been removed.
    pub fn read(tx: &Transaction, reads: &ReadSet, keep_inode: &[String]) -> Result<ChangeSet> {
        if tx.meta.recorded {
            return Self::from_recorded(tx.layers(), recorded::recorded(tx.dir())?);
        }
        Self::scan(tx.layers(), tx.meta.begun, reads, keep_inode)
    }

    /// What a transaction whose command runs has changed so far, path by path. Nothing is locked, and nothing
    /// waits for this look; what changes meanwhile may be in it or not.
    ///
    /// # Errors
    /// As [`ChangeSet::read`], if several looks in a row have failed: the command changes what they looked at.
    pub fn so_far(home: &Home, meta: &Meta) -> Result<Vec<Entry>> {
        Self::looked_so_far(home, meta, |changes| changes.entries())
    }

    /// How many paths that are, by status.
    ///
    /// # Errors
    /// As [`ChangeSet::so_far`].
    pub fn count_so_far(home: &Home, meta: &Meta) -> Result<Counts> {
        Self::looked_so_far(home, meta, |changes| Ok(changes.counts()))
    }

    fn looked_so_far<T>(
        home: &Home,
        meta: &Meta,
        of: impl Fn(ChangeSet) -> Result<T>,
    ) -> Result<T> {
        let layers = crate::store::layers(meta);
        if meta.recorded {
            let deltas = recorded::recorded(&home.tx_dir(meta.id))?;
            return of(Self::from_recorded(layers, deltas)?);
        }
        let reads = home.reads(meta.id).ok().flatten().unwrap_or_default();
        let look = || of(Self::scan(layers.clone(), meta.begun, &reads, &[])?);
        let mut found = look();
        for _ in 1..LOOKS_MAX {
            if found.is_ok() {
                break;
            }
            std::thread::sleep(BETWEEN_LOOKS);
            found = look();
        }
        found
    }

    fn scan(
        layers: Vec<Layer>,
        begun: Stamp,
        reads: &ReadSet,
        keep_inode: &[String],
    ) -> Result<ChangeSet> {
        let _rights = crate::sys_owner::rights();
        let keep = path_matcher("--keep-inode", keep_inode)?;
        let mut last_slot = 0;
        let mut changes = Vec::new();
        for layer in &layers {
            match layer.left()? {
                // Nothing to publish; what the transaction has seen there is validated like anything else.
                Left::Nothing => continue,
                // What is there now is the outer layer's.
                Left::Another if layer.is_inside(&layers) => continue,
                // Somebody unmounted what the transaction had nothing to do with.
                Left::Another | Left::Unknown
                    if !reads.concerns(layer.target.as_os_str().as_encoded_bytes()) =>
                {
                    continue;
                }
                Left::Another | Left::Unknown | Left::Copies | Left::Tree => {}
            }
            let scan = overlay::Scan::new(layer, begun, reads, &keep, &mut last_slot)?;
            changes.extend(scan.run()?);
        }
        Ok(ChangeSet { changes, layers, last_slot, explicit: false })
    }

    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many paths are changed, by status. Cheap: nothing is looked at again.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for change in self.changes.iter().filter(|c| c.shown) {
            let here = match (&change.action, change.base, change.new) {
                (Action::Install, ..) | (Action::Link { .. }, None, _) => &mut counts.added,
                (Action::Remove, ..) => &mut counts.deleted,
                (Action::Move { .. }, ..) => &mut counts.renamed,
                (Action::Attrs(_), ..) => &mut counts.attributes,
                (_, Some(a), Some(b)) if a.kind() != b.kind() => &mut counts.type_changed,
                _ => &mut counts.modified,
            };
            *here += 1;
            match change.action {
                Action::Remove => counts.deleted += change.below,
                _ => counts.added += change.below,
            }
        }
        counts
    }

    /// Every changed path, in order of path; new directories come with everything in them.
    ///
    /// # Errors
    /// [`Error::Io`] if a new directory can't be listed.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let _rights = crate::sys_owner::rights();
        entries::of_changes(self)
    }
}

/// A matcher of canonical paths for the globs of an option; none match nothing.
///
/// # Errors
/// [`Error::Unsupported`] for a text that is no pattern.
pub(crate) fn path_matcher(
    option: &str,
    globs: &[String],
) -> Result<impl Fn(&[u8]) -> bool + use<>> {
    use std::os::unix::ffi::OsStrExt;
    let mut set = globset::GlobSetBuilder::new();
    for text in globs {
        let glob =
            globset::GlobBuilder::new(text).literal_separator(true).build().map_err(|e| {
                Error::Unsupported {
                    what: format!("{option} {text:?} is not a pattern: {e}"),
                    advice: "Write it as the shell would, for example '/var/log/**'.".into(),
                }
            })?;
        set.add(glob);
    }
    let set = set.build().map_err(|e| Error::Unsupported {
        what: format!("{option}: {e}"),
        advice: "Use fewer or shorter patterns.".into(),
    })?;
    Ok(move |path: &[u8]| !set.is_empty() && set.is_match(std::ffi::OsStr::from_bytes(path)))
}
