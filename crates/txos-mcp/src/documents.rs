//! What txos writes as JSON (docs/json.md), as far as it is read here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Numbers of changed paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Counts {
    /// New.
    pub added: u64,
    /// With other content.
    pub modified: u64,
    /// With other owner, mode, times or extended attributes only.
    pub attributes: u64,
    /// Of another type.
    pub type_changed: u64,
    /// Under another name.
    pub renamed: u64,
    /// Gone.
    pub deleted: u64,
}

/// Something that can't be rolled back, as it was told.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Warning {
    /// Its kind, such as `network`.
    pub kind: String,
    /// What happened.
    pub text: String,
}

/// What took effect at once, by kind.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Live {
    /// Its kind.
    pub kind: String,
    /// The paths, if it were paths.
    pub paths: Vec<String>,
}

/// What got in the way.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Conflict {
    /// Where.
    pub path: String,
    /// What happened there.
    pub what: String,
    /// What of it was looked at or changed.
    pub aspect: String,
}

/// How a command of txos ended.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// The transaction.
    pub id: Option<String>,
    /// The word for it.
    pub outcome: String,
    /// With which txos ends.
    pub exit_status: i32,
    /// What txos says of a failure.
    pub message: Option<String>,
    /// What is changed.
    pub counts: Option<Counts>,
    /// What the command changed of a pending transaction.
    #[serde(default)]
    pub layer: Option<Counts>,
    /// What can't be rolled back.
    pub warnings: Vec<Warning>,
    /// All of it.
    pub live: Vec<Live>,
    /// What got in the way.
    pub conflicts: Vec<Conflict>,
    /// Its record, if it is there.
    pub transaction: Option<Transaction>,
}

/// A transaction.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Transaction {
    /// Its id.
    pub id: String,
    /// Its state, such as `pending`.
    pub state: String,
    /// Its name.
    pub name: Option<String>,
    /// Its message.
    pub message: Option<String>,
    /// The words of its first command.
    pub command: Vec<String>,
    /// Where that was started.
    pub directory: String,
    /// How many paths it changes; none if they were not counted.
    pub changes: Option<u64>,
    /// What its commands changed, the first at the bottom.
    #[serde(default)]
    pub stack: Vec<Layer>,
}

/// What one command changed of a pending transaction.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Layer {
    /// Its number, from 1.
    pub number: u64,
    /// The words of the command.
    pub command: Vec<String>,
    /// With which it ended.
    pub exit_status: Option<i32>,
    /// Whether `undo` has taken it back, and `redo` would put it back.
    pub undone: bool,
}

/// `txos list --json`.
#[derive(Debug, Deserialize)]
pub struct List {
    /// The transactions.
    pub transactions: Vec<Transaction>,
}

/// `txos show --json`, `txos diff --json`.
#[derive(Debug, Deserialize)]
pub struct Shown {
    /// The transaction.
    pub transaction: Transaction,
    /// Numbers.
    #[serde(default)]
    pub counts: Counts,
    /// What changes.
    #[serde(default)]
    pub changes: Vec<Change>,
}

/// A change.
#[derive(Clone, Debug, Deserialize)]
pub struct Change {
    /// The word for it.
    pub status: String,
    /// Where.
    pub path: String,
    /// Where it was.
    pub from: Option<String>,
    /// Before.
    pub old: Option<Object>,
    /// After.
    pub new: Option<Object>,
}

/// One end of a change.
#[derive(Clone, Debug, Deserialize)]
pub struct Object {
    /// File, directory …
    pub kind: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
}
