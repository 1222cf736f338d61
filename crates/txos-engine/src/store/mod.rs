//! Stores: where private copies live while a transaction runs, and retained old versions after.
//!
//! The byte-level description is docs/store-format.md; this is its implementation.
//!
//! - The **home store** is one directory per user (`/var/lib/txos`, or `$XDG_STATE_HOME/txos`). It
//!   holds the journal, the commit lock and the record of every transaction.
//! - A **side store** is a directory on another mount (`MOUNTPOINT/.txos`), because a rename never
//!   crosses a mount. The home store's file `stores` lists them.
//!
//! ```text
//! STORE/
//!   format             "txos-store 1\n": checked on open, a newer one is refused
//!   lock               flock(2): held exclusively by whoever commits, recovers or reverts
//!   journal            write-ahead log (home store only)
//!   stores             one quoted path a line (home store only)
//!   light, light.now   the log of light commits, and which are in flight (home store only)
//!   light.marks/N      how far slot N of that log has published names on this file system
//!   staging/ID         empty: tx/ID is a program's place for private copies (home store only)
//!   tx/ID/             one transaction
//!     meta.json        what it is and in what state (home store only)
//!     lock             flock(2): held by the process that runs it; free = its process is gone
//!     reads            its read set, while it is pending
//!     plan             what its commit did, for `diff` and `revert`
//!     lN/upper, lN/work   layer N: overlayfs upper and work directories
//!     lN/old           layer N: what a commit took out of the tree
//!     saved/K, lN.saved/K   savepoint K of a pending transaction: what it was with its first K layers
//!   trash/             being deleted
//!   realm/             the realm, where there is no better place for it (home store only)
//! ```

mod before;
mod fork;
mod home;
mod inside;
mod merge;
mod meta;
mod savepoint;
mod stack;
mod staging;
mod transaction;
mod tx_status;
mod upper;

pub use crate::machine::{boot_id, default_dir, usual_dir};
pub use before::Before;
pub(crate) use before::deltas_of;
pub use fork::Fork;
pub(crate) use home::check_trusted;
pub use home::{CommitLock, Home};
pub use inside::{Handover, Inside, InsideRecord};
pub(crate) use merge::{Changed, Import, Sum, are_alike, conflict as merge_conflict};
pub use meta::{LayerMeta, Meta, State};
pub(crate) use savepoint::{
    Content, Item, Manifest, Tree, attributes as set_attributes, look as look_at_entries,
    saved_content,
};
pub use stack::{Command, JoinedCommand, Stack, StackLayer};
pub(crate) use transaction::check_root;
pub use transaction::{Begin, Layer, LayerRequest, Left, Transaction, replace_file};
pub(crate) use transaction::{layers, old_place};
pub use tx_status::TxStatus;
pub use upper::copy_attributes;

/// Format of a store that this version reads and writes.
pub const FORMAT: u32 = 1;

/// Format of a record that names savepoints: an older txos would change what they are of, and go back to others.
pub(crate) const FORMAT_SAVEPOINTS: u32 = 4;

/// Format of a record of a transaction of which every layer is undone: an older txos takes for granted that one is
/// in force.
pub(crate) const FORMAT_UNDONE: u32 = 5;

/// Format of a record whose changed paths were not counted: an older txos takes for granted that they were.
pub(crate) const FORMAT_UNCOUNTED: u32 = 6;

/// The file in a transaction's directory that lists its changes, if they are recorded as such
/// ([`crate::changeset::record`]), with its first bytes and its format.
pub(crate) const DELTAS: &str = "deltas";
pub(crate) const DELTAS_MAGIC: &[u8; 8] = b"TXOSDLTA";
pub(crate) const DELTAS_FORMAT: u32 = 1;

/// That file of a transaction that changes nothing: of a list without items postcard writes its length.
pub(crate) fn no_deltas() -> Vec<u8> {
    crate::codec::seal(DELTAS_MAGIC, DELTAS_FORMAT, &[0])
}

/// Format of a record of a pending transaction whose changes are recorded as such: an older txos would look for them in an
/// overlay's directories, where there are none.
pub(crate) const FORMAT_RECORDED: u32 = 7;

/// Format of a record of a root that is not the machine's: an older txos would look for the wrong marks in its
/// private copies.
pub(crate) const FORMAT_UNPRIVILEGED: u32 = 3;
