//! The record of one transaction: `tx/ID/meta.json`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    FORMAT, FORMAT_RECORDED, FORMAT_SAVEPOINTS, FORMAT_UNCOUNTED, FORMAT_UNDONE,
    FORMAT_UNPRIVILEGED, Stack,
};
use crate::error::{Error, Result};
use crate::id::TxId;
use crate::object::FileKind;
use crate::rights;
use crate::version::{Stamp, Version};

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
    /// Whether the command had arguments that were not to be recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arguments_hidden: bool,
    /// Where the command was started.
    #[serde(with = "crate::show::path_text")]
    pub directory: PathBuf,
    /// User who ran it.
    pub uid: u32,
    /// Whether that was user number 0 without being the machine's root: its private copies have the marks of
    /// a user namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unprivileged_root: bool,
    /// What numbers of users and groups meant to that process ([`crate::rights::numbering`]); older records
    /// don't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbering: Option<String>,
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
    /// Mount namespace (inode number) in which one of its commands ran; processes may be left behind in its view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_namespace: Option<u64>,
    /// Status with which the command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Number of changed paths; none if they were not counted since the last command.
    #[serde(default = "super::meta::none_changed")]
    pub changes: Option<u64>,
    /// Nothing that this commit published changed later if its ctime is before this stamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "fence")]
    pub commit_stamp: Option<Stamp>,
    /// The transaction that this one undid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts: Option<TxId>,
    /// The transaction that undid this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_by: Option<TxId>,
    /// Of one that undid another one: only a part of that one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverts_part: bool,
    /// The transactions that undid parts of this one. Its plan is what is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts_reverted_by: Vec<TxId>,
    /// A part of this pending transaction that is being committed on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splitting: Option<TxId>,
    /// Directories in which the part that is being committed changes names, as they were before, if nobody else had changed them since
    /// the transaction began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_by_own: Vec<Version>,
    /// Directories as publishes of this pending transaction have left them, of a part or undone, that nobody else had changed since
    /// it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_by_own: Vec<Version>,
    /// What its commands changed, one layer each, while it is pending, and which they were, after that.
    #[serde(default, skip_serializing_if = "Stack::is_empty")]
    pub stack: Stack,
    /// The transactions that ran inside of its commands, in the order in which they ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<super::InsideRecord>,
    /// While one more command runs in a pending transaction, or its layers are undone or redone: what it
    /// goes back to. That is beside the layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<super::Before>>,
    /// Of what it was made a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<super::Fork>,
    /// What it changes is recorded as such ([`crate::changeset::record`]): it has no overlay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
    /// Of one that is recorded so: the trees of `--scope`, as [`crate::scope::joined`] has them. Empty: all.
    #[serde(default, skip_serializing_if = "is_nothing", with = "crate::show::path_text")]
    pub scope: PathBuf,
    /// What it versions.
    pub layers: Vec<LayerMeta>,
}

/// What a record means that says nothing of changed paths.
#[expect(clippy::unnecessary_wraps, reason = "that they were not counted is said by `null`")]
pub(super) fn none_changed() -> Option<u64> {
    Some(0)
}

fn is_nothing(path: &std::path::Path) -> bool {
    path.as_os_str().is_empty()
}

impl Meta {
    /// Whether others may have changed an object since the transaction began. Stamps of coarse clocks lag by up to their grain.
    pub(crate) fn may_be_changed(&self, version: &Version) -> bool {
        version.ctime.as_ns() + version.grain_ns() >= self.begun.as_ns()
    }

    /// Whether others may have changed a directory since overlayfs copied it. That was some milliseconds after the transaction began, as
    /// long as it takes to mount the overlay and to start the command: more than a clock's grain.
    pub(crate) fn may_be_changed_dir(&self, version: &Version) -> bool {
        version.ctime.as_ns() >= self.begun.as_ns() && !self.left_by_own.contains(version)
    }

    /// No part of it is being committed any more.
    pub(crate) fn ends_split(&mut self) {
        self.splitting = None;
        self.found_by_own.clear();
    }

    /// A publish of its own has left a directory with another version than it had.
    pub(crate) fn has_left(&mut self, before: &Version, now: &Version) {
        let is_dir = before.kind() == FileKind::Dir;
        if is_dir && before.same_attributes(now) && !self.may_be_changed_dir(before) {
            self.left_by_own.push(*now);
        }
    }

    /// The format that can say what this record says.
    pub(crate) fn format_needed(&self) -> u32 {
        let pending = matches!(self.state, State::Active | State::Pending);
        if pending && self.recorded {
            return FORMAT_RECORDED;
        }
        let uncounted = self.before.as_ref().is_some_and(|before| before.changes.is_none());
        let uncounted_layer =
            pending && self.stack.layers.iter().any(|layer| layer.changes.is_none());
        if self.changes.is_none() || uncounted || uncounted_layer {
            return FORMAT_UNCOUNTED;
        }
        let undone = self.before.as_ref().is_some_and(|before| before.savepoint == 0);
        if undone || pending && self.stack.is_undone() {
            return FORMAT_UNDONE;
        }
        let saved = pending && self.stack.layers.iter().any(|layer| layer.saved);
        match (saved || self.before.is_some(), self.unprivileged_root) {
            (true, _) => FORMAT_SAVEPOINTS,
            (false, true) => FORMAT_UNPRIVILEGED,
            (false, false) => FORMAT,
        }
    }

    /// That this process reads what the transaction has noted as the process did that noted it.
    ///
    /// # Errors
    /// [`Error::WrongState`] if it was another kind of root, or another user namespace. Nothing was looked at yet.
    pub fn check_same_rights(&self) -> Result<()> {
        let refused = |state: &str, advice: &str| {
            Err(Error::WrongState { id: self.id, state: state.into(), advice: advice.into() })
        };
        if self.uid == 0 && rustix::process::getuid().is_root() {
            match (self.unprivileged_root, rights::is_unprivileged_root()) {
                (true, false) => {
                    return refused(
                        "one that root began in a user namespace, or without CAP_SYS_ADMIN",
                        "this root is the machine's, to whom its private copies mean something else; go on \
                         with it where it was begun, or `txos abort` it.",
                    );
                }
                (false, true) => {
                    return refused(
                        "one that the machine's root began",
                        "this root is in a user namespace or has no CAP_SYS_ADMIN; go on with it as the \
                         machine's root, or `txos abort` it.",
                    );
                }
                _ => {}
            }
        }
        self.check_same_numbering()
    }

    /// That numbers of users and groups mean what they meant to the process that noted them.
    ///
    /// # Errors
    /// [`Error::WrongState`] if not.
    pub fn check_same_numbering(&self) -> Result<()> {
        let Some(noted) = &self.numbering else { return Ok(()) };
        if rights::numbering().is_none_or(|now| now == *noted) {
            return Ok(());
        }
        Err(Error::WrongState {
            id: self.id,
            state: "of another user namespace".into(),
            advice: format!(
                "numbers of users and groups mean others there ({noted}); use txos there, or in one that has \
                 the same maps."
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    /// A record of before there were kinds of root is anybody's who can read it.
    #[test]
    fn older_records_are_read() {
        let text = r#"{"format":1,"id":"3kq9w2ma","state":"pending","command":["true"],"directory":"/",
            "uid":0,"begun":{"sec":1,"nsec":2},"boot":"b","durable":true,"layers":[]}"#;
        let mut meta: Meta = serde_json::from_str(text).unwrap();
        assert!(!meta.unprivileged_root);
        assert_eq!(meta.numbering, None);
        assert_eq!(meta.format_needed(), FORMAT);
        meta.check_same_numbering().unwrap();
        meta.numbering = Some("users 0 4711 1 groups 0 4711 1".into());
        assert!(meta.check_same_numbering().is_err());
        meta.unprivileged_root = true;
        assert_eq!(meta.format_needed(), FORMAT_UNPRIVILEGED);
        meta.changes = None;
        assert_eq!(meta.format_needed(), FORMAT_UNCOUNTED);
        let again: Meta = serde_json::from_str(&serde_json::to_string(&meta).unwrap()).unwrap();
        assert_eq!(again.changes, None);
        meta.changes = Some(0);
        meta.recorded = true;
        assert_eq!(meta.format_needed(), FORMAT_RECORDED);
        meta.state = State::Committed;
        assert_eq!(meta.format_needed(), FORMAT_UNPRIVILEGED, "its plan says what it changed");
        let again: Meta = serde_json::from_str(&serde_json::to_string(&meta).unwrap()).unwrap();
        assert_eq!(again, meta);
    }
}
