//! What got in a transaction's way: the conflicts that people are told of.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::id::TxId;
use crate::object::FileKind;

/// Where an outsider or another transaction got in the way.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Conflict {
    /// The object, as a path in the stable tree.
    #[serde(serialize_with = "crate::show::path_as_text")]
    pub path: PathBuf,
    /// What happened to it.
    #[serde(serialize_with = "as_text")]
    pub what: ConflictKind,
    /// When it changed: ctime of the object that is there now, if there is one.
    pub when: Option<crate::stamp::Stamp>,
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, not_merged) = match &self.what {
            ConflictKind::NotMerged(what, why) => (&**what, Some(why)),
            what => (what, None),
        };
        if !self.path.as_os_str().is_empty() {
            write!(f, "{}: ", crate::show::quoted(&self.path))?;
        }
        write!(f, "{what}")?;
        if let Some(when) = self.when {
            write!(f, " at {}", crate::show::local_time(when))?;
        }
        not_merged.map_or(Ok(()), |why| write!(f, "; not merged: {why}"))
    }
}

impl ConflictKind {
    /// Who did it, where that is known: other transactions, and processes that hold a file.
    #[must_use]
    pub fn party(&self) -> Option<Party> {
        match self {
            ConflictKind::Opponent { by, .. } => Some(by.clone()),
            ConflictKind::Leased(pid) => {
                pid.map(|pid| Party { pid: Some(pid), ..Party::default() })
            }
            ConflictKind::WriterWaits(pid) => {
                Some(Party { pid: u32::try_from(*pid).ok(), ..Party::default() })
            }
            ConflictKind::AfterCommit(what) | ConflictKind::NotMerged(what, _) => what.party(),
            _ => None,
        }
    }

    /// Whether it passes when somebody else has ended or let go, without a change of what was observed.
    #[must_use]
    pub fn passes(&self) -> bool {
        matches!(self.aspect(), "opponent" | "writer")
    }

    /// What of the object it is about, in a word for programs: `name`, `object`, `content`, `attributes`,
    /// `listing`, `way` (a directory or link that leads to it), `opponent` (another transaction), `writer` (somebody
    /// has it open), `retained` (what is needed to undo is gone), or `unknown`.
    #[must_use]
    pub fn aspect(&self) -> &'static str {
        use ConflictKind as K;
        match self {
            K::Opponent { .. } | K::Committing => "opponent",
            K::Created(_)
            | K::CreatedMeanwhile
            | K::CreatedAgain
            | K::Removed
            | K::OtherNameRemoved => "name",
            K::NotFound | K::NameLost | K::Links => "name",
            K::NotThere | K::Replaced | K::ReplacedBy(..) => "object",
            K::DirectoryGone
            | K::DirectoryRemoved
            | K::DirectoryReplaced
            | K::DirectoryNotThere
            | K::WayChangedByOther
            | K::RootReplaced
            | K::LeadsElsewhere
            | K::LeadsNowhere
            | K::WayReplaced => "way",
            K::Changed
            | K::ChangedSinceBegin
            | K::ChangedWhileReplaced
            | K::KeptChanging
            | K::Content
            | K::NotOnlyAppended
            | K::ChangedByBoth
            | K::SeenByOther { .. }
            | K::SeenDifferently => "content",
            K::Attributes | K::OwnerOrMode | K::ExtendedAttributes => "attributes",
            K::Names | K::Below(_) => "listing",
            K::OpenedWhileReplaced | K::Leased(_) | K::Written | K::WriterWaits(_) => "writer",
            K::FailsOtherwise(_) | K::NotSeen(_) | K::NotKnown(..) => "unknown",
            K::NotRetained => "retained",
            K::AfterCommit(what) | K::NotMerged(what, _) => what.aspect(),
        }
    }
}

/// Who got in a transaction's way, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Party {
    /// Its transaction.
    pub id: Option<TxId>,
    /// Its process.
    pub pid: Option<u32>,
    /// What it runs, as it told others.
    pub command: Option<String>,
}

/// What happened to an object that a transaction depends on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConflictKind {
    /// Another transaction in the realm touches it, and went first; in words.
    #[error("{text}")]
    Opponent {
        /// What happened.
        text: String,
        /// Who it was.
        by: Party,
    },
    /// Another transaction of the store is being committed, and this one does not wait.
    #[error("another transaction with this store is being committed")]
    Committing,
    /// Two transactions that are to be merged have both changed it.
    #[error("both have changed it")]
    ChangedByBoth,
    /// One of two transactions that are to be merged has removed, moved or replaced a directory that leads to what the
    /// other one changed.
    #[error(
        "one has changed it, and the other has removed, moved or replaced a directory that leads to it"
    )]
    WayChangedByOther,
    /// Of two transactions that are to be merged one has looked at what the other changes.
    #[error("{reader} has looked at it, and {writer} changes it")]
    SeenByOther {
        /// The one that has looked at it.
        reader: TxId,
        /// The one that changes it.
        writer: TxId,
    },
    /// Two transactions that are to be merged have seen it in different states.
    #[error("it was changed by others after one had looked at it, and before the other did")]
    SeenDifferently,
    /// It was absent, and is there now.
    #[error("it did not exist and was created{}", in_brackets(.0.as_ref()))]
    Created(Option<FileKind>),
    /// It was absent until the publish.
    #[error("it was created")]
    CreatedMeanwhile,
    /// The transaction had removed it.
    #[error("something was created there")]
    CreatedAgain,
    /// It is gone.
    #[error("it was removed")]
    Removed,
    /// The name that another one was to be linked to is gone.
    #[error("its other name was removed")]
    OtherNameRemoved,
    /// The directory that it is in is another one, or gone.
    #[error("its directory was removed or replaced")]
    DirectoryGone,
    /// It is another object, or gone.
    #[error("it was removed or replaced")]
    NotThere,
    /// Another object has its name.
    #[error("it was replaced")]
    Replaced,
    /// An object of another kind has its name.
    #[error("the {0} was replaced by a {1}")]
    ReplacedBy(FileKind, FileKind),
    /// A directory that the transaction has changed is gone.
    #[error("the directory was removed")]
    DirectoryRemoved,
    /// A directory that the transaction has changed is another one.
    #[error("the directory was replaced")]
    DirectoryReplaced,
    /// A directory that the transaction has changed is another one, or gone.
    #[error("the directory was removed or replaced")]
    DirectoryNotThere,
    /// The root of a layer is another directory.
    #[error("the directory was replaced by another")]
    RootReplaced,
    /// A private copy is of a stable object that is found under no name.
    #[error("a file with several names was moved or removed")]
    NotFound,
    /// It lost the name by which it is known.
    #[error("its name was removed, and the file has others that can't be told")]
    NameLost,
    /// Something of it is otherwise.
    #[error("it was changed")]
    Changed,
    /// It was changed before the transaction looked at it for the first time, and after it began.
    #[error("it was changed after the transaction began")]
    ChangedSinceBegin,
    /// It was changed at the last moment.
    #[error("it was changed while it was being replaced")]
    ChangedWhileReplaced,
    /// Somebody could write to it still.
    #[error("it was opened for writing while it was being replaced")]
    OpenedWhileReplaced,
    /// No version of it could be observed.
    #[error("it kept changing while it was read")]
    KeptChanging,
    /// Its content is another.
    #[error("its content was changed")]
    Content,
    /// Both appended to it, and the other one did more.
    #[error("its content was changed, not only appended to")]
    NotOnlyAppended,
    /// Its attributes are others.
    #[error("its attributes were changed")]
    Attributes,
    /// Its owner, group or mode is another.
    #[error("its owner or mode was changed")]
    OwnerOrMode,
    /// It has more or fewer names.
    #[error("its number of links was changed")]
    Links,
    /// Its extended attributes are others.
    #[error("its extended attributes were changed")]
    ExtendedAttributes,
    /// A directory that was listed has other names in it.
    #[error("names in it were added or removed")]
    Names,
    /// Something in a directory that would have to go.
    #[error("{} in it was changed or created", crate::show::quoted_bytes(.0))]
    Below(Vec<u8>),
    /// A path leads to another directory.
    #[error("it leads to another directory now")]
    LeadsElsewhere,
    /// A path led to a directory.
    #[error("it no longer leads to a directory")]
    LeadsNowhere,
    /// A path leads to the same through another directory.
    #[error("a directory on the way was replaced")]
    WayReplaced,
    /// A path that led to an error leads to another one.
    #[error("looking it up now fails otherwise ({0})")]
    FailsOtherwise(Errno),
    /// The transaction's own look failed for a reason that says nothing of the object.
    #[error("it could not be looked at while the transaction ran ({0})")]
    NotSeen(Errno),
    /// A look now fails: whether it changed is not known. The look, in words.
    #[error("{0} ({1})")]
    NotKnown(&'static str, Errno),
    /// Somebody has a lease on it, and keeps it: the process, if that is known.
    #[error("{} has a lease on it (fcntl F_SETLEASE), and keeps it", process(.0.as_ref()))]
    Leased(Option<u32>),
    /// Somebody else wrote to it.
    #[error("somebody else wrote to it")]
    Written,
    /// A process waits at the gate to write to something that was taken out of the tree.
    #[error("process {0} was opening a file of the change set for writing during the publish")]
    WriterWaits(i32),
    /// A revert: the old version is not in the store any more.
    #[error("its retained version is gone from the store")]
    NotRetained,
    /// A revert: it happened after the commit.
    #[error("{0} after the commit")]
    AfterCommit(Box<ConflictKind>),
    /// A revert with merging: and why it could not be merged.
    #[error("{0}; not merged: {1}")]
    NotMerged(Box<ConflictKind>, String),
}

fn in_brackets(kind: Option<&FileKind>) -> String {
    kind.map(|kind| format!(" ({kind})")).unwrap_or_default()
}

fn process(pid: Option<&u32>) -> String {
    pid.map_or("somebody".to_owned(), |pid| format!("process {pid}"))
}

fn as_text<S: serde::Serializer>(kind: &ConflictKind, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(kind)
}
