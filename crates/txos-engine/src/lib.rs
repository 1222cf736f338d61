//! The engine of TxOS: transactions over a live file tree, without interception.
//!
//! A front door (`txos-run` for process trees) records what a transaction read in a
//! [`readset::ReadSet`] and hands over where its private copies are; the engine turns that into a
//! [`changeset::ChangeSet`], validates it against the live tree, journals it and publishes it by
//! verified, reversible renames, all or nothing.
//!
//! | module | what lives there |
//! |---|---|
//! | `hash` | tables by path and name |
//! | [`id`], `stamp`, [`object`], [`path`], [`show`], [`error`], `codec` | names, identities, times, facets, errors |
//! | [`patience`] | looks that somebody else may have to answer, bounded |
//! | [`sys`] and its like | system calls, each a step that a fault can be put at |
//! | `machine`, `lease` | this boot; waiting for leases |
//! | [`rights`] | which root this is, if it is one |
//! | [`mounts`], [`grain`], [`version`] | the mount table; how finely changes are stamped; versions of things |
//! | [`scope`] | what of the tree can be versioned |
//! | [`nesting`] | whether this process is in a transaction's view |
//! | [`runs`] | commands and programs' named transactions that run, by what stays the same over their attempts |
//! | [`contention`] | which of two transactions gives way where they meet |
//! | [`realm`] | where transactions meet while they run: shared memory, ownership, waiting, deaths |
//! | `places` | where everything is after some renames |
//! | [`readset`] | what a transaction has seen, and whether it is still so |
//! | [`store`] | private copies, retained old versions, the record of every transaction |
//! | [`order`] | a run among others: what it comes after |
//! | [`changeset`] | what a transaction changes: read from an overlay upper, shown to people |
//! | `plan` | a change set as an ordered list of reversible operations |
//! | [`journal`] | the write-ahead log that makes a publish all-or-nothing across a crash |
//! | [`commit`] | validate, gate, publish, verify, undo; recovery; revert |
//! | [`txn`] | the commit protocol of both front doors: route, acquire, commit, give way, end |
//!
//! A module imports only from itself and from those above it in this table (`tests/layers.rs`); nothing here
//! knows of mounts, seccomp or the command line.

pub mod changeset;
mod codec;
pub mod commit;
mod conflict;
pub mod contention;
pub mod error;
#[cfg(all(feature = "fuzzing", not(loom)))]
#[doc(hidden)]
pub mod fuzzing;
pub mod grain;
mod hash;
pub mod id;
pub mod journal;
mod lease;
mod machine;
pub mod mounts;
pub mod nesting;
pub mod object;
#[cfg(not(loom))]
pub mod order;
pub mod path;
pub mod patience;
mod places;
mod plan;
pub mod program;
pub mod readset;
pub mod realm;
pub mod rights;
#[cfg(not(loom))]
pub mod runs;
pub mod scope;
pub mod show;
mod stamp;
pub mod store;
pub mod sys;
mod sys_copy;
mod sys_handle;
mod sys_lock;
pub mod sys_owner;
#[cfg(not(loom))]
mod sys_sched;
pub mod sys_secure;
mod sys_tree;
mod sys_xattr;
pub mod txn;
pub mod version;

pub use error::{Conflict, Context, Error, Result};
pub use id::TxId;
#[cfg(not(loom))]
pub use sys_sched::process_group;
