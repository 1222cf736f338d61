//! The engine of TxOS: transactions over a live file tree, without interception.
//!
//! A front door (`txos-run` for process trees) records what a transaction read in a
//! [`readset::ReadSet`] and hands over where its private copies are; the engine turns that into a
//! [`changeset::ChangeSet`], validates it against the live tree, journals it and publishes it by
//! verified, reversible renames, all or nothing.
//!
//! | module | what lives there |
//! |---|---|
//! | [`id`], [`object`], [`version`] | names, identities, facets and versions of things |
//! | [`mounts`], [`nesting`] | the mount table; whether this process is in a transaction's view |
//! | [`readset`] | what a transaction has seen, and whether it is still so |
//! | [`contention`] | which of two transactions gives way where they meet |
//! | [`realm`] | where transactions meet while they run: shared memory, ownership, waiting, deaths |
//! | [`changeset`] | what a transaction changes: read from an overlay upper, shown to people |
//! | [`store`] | private copies, retained old versions, the record of every transaction |
//! | `plan` | a change set as an ordered list of reversible operations |
//! | [`journal`] | the write-ahead log that makes a publish all-or-nothing across a crash |
//! | [`commit`] | validate, gate, publish, verify, undo; recovery; revert |
//!
//! Dependencies point downwards in this table's order reversed; nothing here knows of mounts,
//! seccomp or the command line.

pub mod changeset;
pub mod commit;
pub mod contention;
pub mod error;
#[cfg(all(feature = "fuzzing", not(loom)))]
#[doc(hidden)]
pub mod fuzzing;
pub mod id;
pub mod journal;
pub mod mounts;
pub mod nesting;
pub mod object;
mod plan;
pub mod readset;
pub mod realm;
pub mod show;
pub mod store;
pub mod sys;
mod sys_handle;
mod sys_lock;
#[cfg(not(loom))]
mod sys_sched;
pub mod sys_secure;
pub mod version;

pub use error::{Conflict, Context, Error, Result};
pub use id::TxId;
#[cfg(not(loom))]
pub use sys_sched::process_group;
