//! The record of one transaction: `tx/ID/meta.json`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::id::TxId;
use crate::version::Stamp;

/// Where a transaction is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its command runs (or its process died: then its lock is free and `gc` removes it).
    Active,
    /// Kept for later: `commit`, `exec` or `abort`.
    Pending,
    /// Published; old versions are retained.
    Committed,
    /// Published and later undone by another transaction.
    Reverted,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Active => "active",
            State::Pending => "pending",
            State::Committed => "committed",
            State::Reverted => "reverted",
        })
    }
}

/// One layer: a tree that the transaction versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerMeta {
    /// The tree's root in the stable tree, canonical.
    #[serde(with = "crate::show::path_text")]
    pub target: PathBuf,
    /// Identity of that root when the transaction began: it must still be the same directory.
    /// (Always written: plans hold it in an encoding without field names.)
    #[serde(default)]
    pub root: Option<crate::object::FileId>,
    /// The store that holds the layer's private copies, on the same mount.
    #[serde(with = "crate::show::path_text")]
    pub store: PathBuf,
}

/// The record of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Format of this record.
    pub format: u32,
    /// The transaction's name.
    pub id: TxId,
    /// Its state.
    pub state: State,
    /// `--name`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `--message`, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The command, each word quoted if need be.
    pub command: Vec<String>,
    /// Where the command was started.
    #[serde(with = "crate::show::path_text")]
    pub directory: PathBuf,
    /// User who ran it.
    pub uid: u32,
    /// When it began.
    pub begun: Stamp,
    /// When it was committed or kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Stamp>,
    /// Boot in which it ran (`/proc/sys/kernel/random/boot_id`): private copies of a transaction
    /// that was active or not flushed at another boot are lost.
    pub boot: String,
    /// Whether private copies and publish are made durable.
    pub durable: bool,
    /// Mount namespace (inode number) in which its processes run, to find those left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_namespace: Option<u64>,
    /// Status with which the command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Number of changed paths.
    #[serde(default)]
    pub changes: u64,
    /// Nothing that this commit published changed later if its ctime is before this stamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Stamp>,
    /// The transaction that this one undid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts: Option<TxId>,
    /// The transaction that undid this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_by: Option<TxId>,
    /// A part of this pending transaction that is being committed on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splitting: Option<TxId>,
    /// What it versions.
    pub layers: Vec<LayerMeta>,
}
