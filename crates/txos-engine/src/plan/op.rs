//! One operation of a plan.
//!
//! # Adding a kind
//!
//! A kind is a variant of [`Does`], made from a change in `Plan::build`. Matches on [`Does`] name every variant
//! where a decision is due, so the compiler leads through publishing, undoing, verifying, the gate, reverting,
//! retaining and the history. What it does not ask for:
//!
//! - the record (`wire.rs`: `Kind`, and its bytes in the test), `docs/journal-format.md`, and the versions of the
//!   journal and, if a finished commit can have it, of stored plans;
//! - the phase of the publish in which it is carried out (`commit::publish`), and its place in a revert's order
//!   (`commit::revert`);
//! - what it locks (`commit::acquire`: without a row of its own, the strongest);
//! - the random plans of `commit::fuzz`.

use std::cell::Cell;

use crate::changeset::{AttrChange, Strip};
use crate::object::FileKind;
use crate::path::{LayerPath, StorePath};
use crate::version::{Stamp, Version};

/// One operation: what it does, where, and what it finds there and leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    /// Number of the layer.
    pub layer: u16,
    /// Where, relative to the layer's root; the root itself is empty.
    pub target: LayerPath,
    /// Where the object at the target is before the plan begins: differs below a moved directory.
    pub before: LayerPath,
    /// Where it is when the plan is done: differs in a revert, which undoes a move last.
    pub after: LayerPath,
    /// What is at the target before.
    pub base: Option<Version>,
    /// What will be there: the staged object; for Attrs the version with the new attributes.
    pub new: Option<Version>,
    /// Whether people are shown it.
    pub shown: bool,
    /// Number of objects below it that come or go with it.
    pub below: u64,
    /// Later work of txos itself can move the ctime of the published object: undoing a revert of it, or taking
    /// a retained link away. This is its version after that, so that a revert does not take it for an
    /// outsider's change.
    pub own_version: Option<Version>,
    /// What it does.
    pub does: Does,
}

/// What an operation does, with what it needs for that. A *slot* is a place in the layer's store, relative to
/// that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Slot → target, where nothing is.
    Install(Staged),
    /// Slot ↔ target.
    Exchange {
        /// What is put in place; then the slot holds what was there.
        staged: Staged,
        /// What becomes of outsiders that have the old file open for writing. Not stored: for staging and
        /// the gate.
        outsiders: Exchanged,
        /// Of a finished exchange of a file with several links: another of its names. Relative to the layer.
        other: Option<LayerPath>,
    },
    /// Target → slot.
    Remove {
        /// Where the object is retained.
        slot: StorePath,
        /// As of an exchange.
        other: Option<LayerPath>,
    },
    /// Target → slot, to be moved in elsewhere.
    MoveOut {
        /// Where it waits.
        slot: StorePath,
    },
    /// Slot → target, or slot ↔ target if something is there.
    MoveIn {
        /// Where it waits.
        slot: StorePath,
        /// Where the object was. Relative to the layer.
        from: Option<LayerPath>,
    },
    /// Another name for an inode, where nothing is; or slot ↔ target, if something is, after making slot
    /// that other name.
    Link {
        /// Where the name is made if something is at the target, and where that is retained.
        slot: StorePath,
        /// A name of the inode. Relative to the layer.
        other: LayerPath,
    },
    /// Content of the slot → the inode at target.
    Data(Write),
    /// The pieces of the patch file in the slot → the inode at target.
    Patch {
        /// What is written.
        write: Write,
        /// The pages that it writes to. Not stored: only acquiring needs them.
        pages: Vec<u64>,
    },
    /// Attributes of the inode at target.
    Attrs {
        /// Attributes to change.
        change: Box<AttrChange>,
        /// Where the object is, if it is not at the target.
        held: Option<Held>,
        /// In a revert: the slot of the retained object that gets its rights back.
        retained: Option<StorePath>,
    },
    /// mtime of the directory at target.
    DirTime {
        /// The time.
        change: Box<AttrChange>,
    },
    /// The directory at target becomes one that can be renamed: that in the slot takes its place, with all that
    /// is in it.
    Rebuild(Rebuilt),
}

/// The kinds of [`Does`] that change names: a pattern, for matches that leave none out.
macro_rules! on_names {
    () => {
        Does::Install(_)
            | Does::Exchange { .. }
            | Does::Remove { .. }
            | Does::MoveOut { .. }
            | Does::MoveIn { .. }
            | Does::Link { .. }
            | Does::Rebuild(_)
    };
}

/// The kinds that change an inode that stays, and no name.
macro_rules! in_place {
    () => {
        Does::Data(_) | Does::Patch { .. } | Does::Attrs { .. } | Does::DirTime { .. }
    };
}

pub(crate) use {in_place, on_names};

/// An object that is put in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Staged {
    /// Where it is.
    pub slot: StorePath,
    /// Attributes of overlayfs to take off it.
    pub strip: Vec<Strip>,
    /// Of a new directory: every directory below it, relative to it. Not stored: for the gate.
    pub dirs: Vec<Vec<u8>>,
}

/// A directory that is made anew, as the kernel refuses to rename it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rebuilt {
    /// Where the new one is made.
    pub slot: StorePath,
    /// The times of the directories in it that are made anew as well, by their paths in it.
    pub times: Vec<(Vec<u8>, Stamp)>,
    /// What is in it, inner ones first. Not stored: only carrying it out and validating need it.
    pub inside: Vec<Inside>,
    /// The new one, once it is in place. Not stored.
    pub left: Cell<Option<Version>>,
}

/// What is in a directory that is made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inside {
    /// Where, relative to the directory.
    pub below: Vec<u8>,
    /// What it was when it was found.
    pub version: Version,
    /// A directory that is made anew itself; else it is moved.
    pub anew: bool,
    /// What it is once it is in the new one.
    pub left: Cell<Option<Version>>,
}

/// What is written into an inode that stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Write {
    /// Where the new content is.
    pub slot: StorePath,
    /// Where the content that is overwritten was saved.
    pub undo_copy: StorePath,
    /// Attributes to change.
    pub attrs: Option<Box<AttrChange>>,
    /// Where the object is, if it is not at the target.
    pub held: Option<Held>,
}

/// Which object an exchange puts in the place of a file, and so what becomes of outsiders that have
/// the old file open for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exchanged {
    /// A new object. It is exchanged whatever it holds and whoever writes to the old one: an outsider
    /// never keeps a descriptor or a name of what the transaction created.
    #[default]
    Fresh,
    /// A new object, and the old file had a writer when the commit was staged. That writer goes on
    /// writing to the old inode, as after any rename.
    FreshOverWriter,
    /// A changed copy of the very file: it stands for that inode, so no write to the old one may be lost.
    Copy,
}

/// Where an object is that is changed in place although the plan takes away every name of it that
/// is known: it has others, which see the change. The operation that takes its name away has put
/// this very inode into the store, and there it is found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Held {
    /// Where, relative to the layer's store, while the operation is carried out.
    pub place: StorePath,
    /// It is there before the plan begins as well, instead of at the operation's `before`.
    pub before: bool,
    /// It is there when the plan is done as well, instead of at the operation's `after`.
    pub after: bool,
}

impl Op {
    /// Whether it knows the objects and the places that it needs.
    pub fn is_complete(&self) -> bool {
        let (base, new) = (self.base.is_some(), self.new.is_some());
        match &self.does {
            Does::Install(staged) => new && !staged.slot.is_empty(),
            Does::Exchange { staged, .. } => base && new && !staged.slot.is_empty(),
            Does::Remove { slot, .. } | Does::MoveOut { slot } => base && !slot.is_empty(),
            Does::MoveIn { slot, .. } | Does::Link { slot, .. } => new && !slot.is_empty(),
            Does::Data(write) | Does::Patch { write, .. } => {
                base && !write.slot.is_empty() && !write.undo_copy.is_empty()
            }
            Does::Attrs { .. } | Does::DirTime { .. } => true,
            Does::Rebuild(rebuilt) => base && new && !rebuilt.slot.is_empty(),
        }
    }

    /// Its place in the store; empty if it has none.
    pub fn slot(&self) -> &[u8] {
        match &self.does {
            Does::Install(staged) | Does::Exchange { staged, .. } => &staged.slot,
            Does::Remove { slot, .. }
            | Does::MoveOut { slot }
            | Does::MoveIn { slot, .. }
            | Does::Link { slot, .. } => slot,
            Does::Data(write) | Does::Patch { write, .. } => &write.slot,
            Does::Attrs { retained, .. } => retained.as_deref().unwrap_or_default(),
            Does::DirTime { .. } => &[],
            Does::Rebuild(rebuilt) => &rebuilt.slot,
        }
    }

    /// What it writes into an inode that stays.
    pub fn write(&self) -> Option<&Write> {
        match &self.does {
            Does::Data(write) | Does::Patch { write, .. } => Some(write),
            on_names!() | Does::Attrs { .. } | Does::DirTime { .. } => None,
        }
    }

    /// The same, to be changed.
    pub fn write_mut(&mut self) -> Option<&mut Write> {
        match &mut self.does {
            Does::Data(write) | Does::Patch { write, .. } => Some(write),
            on_names!() | Does::Attrs { .. } | Does::DirTime { .. } => None,
        }
    }

    /// Which attributes it changes.
    pub fn attrs(&self) -> Option<&AttrChange> {
        match &self.does {
            Does::Data(write) | Does::Patch { write, .. } => write.attrs.as_deref(),
            Does::Attrs { change, .. } | Does::DirTime { change } => Some(change),
            on_names!() => None,
        }
    }

    /// Another name of its object: the one that a link is made of, or one that was found for a retained file.
    pub fn other(&self) -> Option<&[u8]> {
        match &self.does {
            Does::Link { other, .. } => Some(other),
            Does::Exchange { other, .. } | Does::Remove { other, .. } => other.as_deref(),
            Does::Install(_)
            | Does::MoveOut { .. }
            | Does::MoveIn { .. }
            | Does::Rebuild(_)
            | in_place!() => None,
        }
    }

    /// Where its object was moved from.
    pub fn moved_from(&self) -> Option<&[u8]> {
        match &self.does {
            Does::MoveIn { from, .. } => from.as_deref(),
            _ => None,
        }
    }

    /// Where its object is in the store, if it is changed there.
    pub fn held(&self) -> Option<&Held> {
        match &self.does {
            Does::Data(write) | Does::Patch { write, .. } => write.held.as_ref(),
            Does::Attrs { held, .. } => held.as_ref(),
            on_names!() | Does::DirTime { .. } => None,
        }
    }

    /// The same, to be changed; `None` for an operation that can't be on such an object.
    pub fn held_mut(&mut self) -> Option<&mut Option<Held>> {
        match &mut self.does {
            Does::Data(write) | Does::Patch { write, .. } => Some(&mut write.held),
            Does::Attrs { held, .. } => Some(held),
            on_names!() | Does::DirTime { .. } => None,
        }
    }

    /// Whether it writes content into an inode that stays.
    pub fn is_write(&self) -> bool {
        self.write().is_some()
    }

    /// Whether it changes an inode that stays, and no name.
    pub fn is_in_place(&self) -> bool {
        match &self.does {
            in_place!() => true,
            on_names!() => false,
        }
    }

    /// Whether it changes attributes and nothing else.
    pub fn sets_attributes(&self) -> bool {
        self.is_in_place() && !self.is_write()
    }

    /// Whether it is only the time of a directory.
    pub fn is_dir_time(&self) -> bool {
        matches!(self.does, Does::DirTime { .. })
    }

    /// Whether the directory is to keep the time that it has, whatever is done in it: one that a person has not set.
    pub fn keeps_dir_time(&self) -> bool {
        let Does::DirTime { change } = &self.does else { return false };
        !self.shown && change.mtime.is_some_and(|(old, new)| old == new)
    }

    /// Whether it rebuilds a directory.
    pub fn is_rebuild(&self) -> bool {
        matches!(self.does, Does::Rebuild(_))
    }

    /// Whether it exchanges.
    pub fn is_exchange(&self) -> bool {
        matches!(self.does, Does::Exchange { .. })
    }

    /// Whether it makes a link.
    pub fn is_link(&self) -> bool {
        matches!(self.does, Does::Link { .. })
    }

    /// Whether it takes what is at the target away and puts nothing there.
    pub fn takes_away(&self) -> bool {
        matches!(self.does, Does::Remove { .. } | Does::MoveOut { .. })
    }

    /// Whether the publish gives way to a writer of the file that this exchanges, if it finds one then.
    pub fn yields_to_writers(&self) -> bool {
        let Does::Exchange { outsiders, .. } = &self.does else { return false };
        let is_file = self.base.is_some_and(|v| v.kind() == FileKind::File);
        is_file && *outsiders != Exchanged::FreshOverWriter
    }
}
