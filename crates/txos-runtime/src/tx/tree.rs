//! The tree as the transaction sees it: shadow objects, and where paths begin.
//!
//! # Invariants
//!
//! - A node is never removed: an [`Id`] stays good until the end.
//! - A stable object has one node, however many names lead to it.
//! - Node 0 is the root of the mount namespace as this process sees it.

use txos_engine::object::FileId;

use super::delta::Nameless;
use super::libraries::Libraries;
use super::node::{Id, Map, Name, Node};
use super::trace::Trace;

/// Shadow objects by number, and where paths begin.
#[derive(Debug, Default)]
pub struct ShadowTree {
    /// The objects.
    pub nodes: Vec<Node>,
    /// The node of a stable object, reached by a mount.
    pub by_id: Map<(FileId, u64), Id>,
    /// The root of the mount namespace, as this process sees it.
    pub top: Id,
    /// The process's root directory.
    pub root: Id,
    /// The working directory, once it was looked at.
    pub cwd: Option<Id>,
    /// The node of a working directory that no path leads to.
    pub unreachable: Option<Id>,
    /// A walk that leads out of the root fails (openat2(2), RESOLVE_BENEATH).
    pub beneath: bool,
    /// The name by which an object is being opened.
    pub opened_as: Option<(Id, Name)>,
    /// Places of links and nodes that were made among the private copies.
    pub made: Map<Id, Vec<u8>>,
    /// Changed stable objects whose known names are all gone, while they have others.
    pub nameless: Vec<Nameless>,
    /// Default access control lists of stable directories.
    pub default_acls: Map<(FileId, u64), Option<Vec<u8>>>,
    /// The inode number that the next new object shows.
    pub next_ino: u64,
    /// What the call that is being carried out has passed and changed.
    pub trace: Trace,
    /// What of it the dynamic linker may look for.
    pub libraries: Libraries,
}
