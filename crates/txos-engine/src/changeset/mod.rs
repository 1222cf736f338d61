//! The canonical delta of a transaction: how it is read from an overlay upper, how it is shown.

use std::path::PathBuf;

use serde::Serialize;

use crate::object::FileKind;

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
    /// Where the old content can be read now, if it can.
    #[serde(skip)]
    pub old_content: Option<PathBuf>,
    /// Where the new content can be read now, if it can.
    #[serde(skip)]
    pub new_content: Option<PathBuf>,
}

fn option_path<S: serde::Serializer>(path: &Option<PathBuf>, s: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => crate::show::path_as_text(path, s),
        None => s.serialize_none(),
    }
}

/// What a transaction changes.
#[derive(Debug, Default)]
pub struct ChangeSet {
    entries: Vec<Entry>,
}

impl ChangeSet {
    /// Reads the change set of a transaction from its layers. No overlay may be mounted on them.
    ///
    /// # Errors
    /// [`crate::Error::Io`] with the step and path.
    pub fn read(
        _tx: &crate::store::Transaction,
        _reads: &crate::readset::ReadSet,
        _options: &crate::commit::Options,
    ) -> crate::Result<ChangeSet> {
        Ok(ChangeSet::default())
    }

    /// Whether nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every changed path, in order of path; new directories come with everything in them.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if a new directory can't be listed.
    pub fn entries(&self) -> crate::Result<Vec<Entry>> {
        Ok(self.entries.clone())
    }
}

/// What a committed transaction changed. Old content is offered while it is retained, new content
/// while the object in the tree is still the one that was published.
///
/// # Errors
/// [`crate::Error::Format`] if the transaction's plan can't be read.
pub fn committed_entries(
    _home: &crate::store::Home,
    _id: crate::TxId,
) -> crate::Result<Vec<Entry>> {
    Ok(Vec::new())
}
