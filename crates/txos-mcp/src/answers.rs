//! What the tools take and answer. The JSON schemas that clients see are made from these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::capture::Text;
use crate::documents::{Conflict, Counts, Layer, Live, Warning};
use crate::policy::OnFailure;

/// `begin` takes this.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginArgs {
    /// A name for the transaction, under which `txos` finds it as well as under its id.
    pub name: Option<String>,
    /// What it is for, for the history.
    pub message: Option<String>,
    /// The id of a pending transaction to go on with, instead of a new one.
    pub resume: Option<String>,
}

/// `run` takes this.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunArgs {
    /// The command, for the shell. Standard input is empty unless `stdin` is given.
    pub command: String,
    /// Where to run it: a path relative to the workspace, or an absolute one, quoted as answers quote paths or plain.
    pub directory: Option<String>,
    /// What it reads from standard input.
    pub stdin: Option<String>,
    /// Stop it after so many seconds; the policy has a limit.
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<u64>,
    /// What becomes of its changes if it fails or is stopped: `discard` takes them back, `keep` keeps them.
    pub on_failure: Option<OnFailure>,
}

/// `diff` takes this.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffArgs {
    /// Only what lies at or below these paths, quoted as answers quote them or plain.
    #[serde(default)]
    pub paths: Vec<String>,
    /// How it is shown: `patch`, `stat` or `names`.
    #[serde(default)]
    pub format: DiffFormat,
}

/// How differences are shown.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiffFormat {
    /// A unified diff.
    #[default]
    Patch,
    /// Sizes before and after.
    Stat,
    /// A letter and the path.
    Names,
}

/// `show` takes this.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowArgs {
    /// Only what lies at or below these paths, quoted as answers quote them or plain.
    #[serde(default)]
    pub paths: Vec<String>,
    /// At most so many changes (200 unless given).
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
}

/// `read` takes this.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadArgs {
    /// The file: a path relative to the workspace, or an absolute one, quoted as answers quote paths or plain.
    pub path: String,
    /// The first byte wanted (0 unless given).
    #[serde(default)]
    pub offset: u64,
    /// At most so many bytes; the policy has a limit.
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
}

/// `undo` and `redo` take this.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoArgs {
    /// How many commands (1 unless given).
    #[schemars(range(min = 1))]
    pub count: Option<u32>,
}

/// `revert` takes this.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertArgs {
    /// The id of the committed transaction to undo.
    pub id: String,
}

/// A tool that takes nothing takes this.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoArgs {}

/// `begin` answers this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Begun {
    /// The transaction.
    pub id: String,
    /// The directory that commands run in, quoted as git quotes.
    pub workspace: String,
    /// Whether it was there before.
    pub resumed: bool,
}

/// `run` answers this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Ran {
    /// The transaction.
    pub id: String,
    /// Whether this call began it.
    pub begun: bool,
    /// The command's exit status; 128 and the number of the signal that ended it. 75, 125, 126 and 127 may
    /// also be txos's own: then `message` says why.
    pub exit_status: i32,
    /// Whether what the command changed is part of the transaction now.
    pub kept: bool,
    /// `kept`, `rolled-back`, `conflict` or `failed`.
    pub outcome: String,
    /// Why it was stopped, if it was: `time`.
    pub stopped: Option<String>,
    /// What txos says of a failure, and what to do.
    pub message: Option<String>,
    /// What it printed on standard output.
    pub stdout: Text,
    /// What it printed on standard error, with warnings of txos, each of which starts with `txos: `.
    pub stderr: Text,
    /// How long it took, with its transaction.
    pub seconds: f64,
    /// What the command changed of the transaction, if it is kept.
    pub counts: Option<Counts>,
    /// What can't be rolled back, as it was told.
    pub warnings: Vec<Warning>,
    /// What took effect at once.
    pub live: Vec<Live>,
    /// What got in the way.
    pub conflicts: Vec<Conflict>,
}

/// `undo` and `redo` answer this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Moved {
    /// The transaction.
    pub id: String,
    /// How many paths it changes now.
    pub changes: Option<u64>,
    /// Its layers: the first is the beginning, each further one a command.
    pub layers: Vec<Layer>,
}

/// `status` answers this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Status {
    /// The open transaction, if there is one.
    pub id: Option<String>,
    /// Its state.
    pub state: Option<String>,
    /// How many paths it changes.
    pub changes: Option<u64>,
    /// What its commands changed: the first layer is the beginning, each further one a command.
    pub layers: Vec<Layer>,
    /// The directory that commands run in, quoted as git quotes.
    pub workspace: String,
    /// Pending transactions that were begun in this workspace; `begin` with `resume` goes on with one.
    pub pending: Vec<String>,
    /// The policy in force.
    pub policy: serde_json::Value,
}

/// `diff` answers this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Difference {
    /// The transaction.
    pub id: String,
    /// The differences.
    pub diff: Text,
}

/// `show` answers this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Changes {
    /// The transaction.
    pub id: String,
    /// Its state.
    pub state: String,
    /// Numbers of what is listed and left out together.
    pub counts: Counts,
    /// The changes, in order of path.
    pub changes: Vec<Change>,
    /// How many more there are.
    pub left_out: u64,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// `added`, `modified`, `attributes`, `type-changed`, `renamed` or `deleted`.
    pub status: String,
    /// Where, quoted as git quotes.
    pub path: String,
    /// Where it was, if it is renamed.
    pub from: Option<String>,
    /// What it is, or was: `file`, `dir` …
    pub kind: String,
    /// Its size now in bytes; `null` if it is gone.
    pub size: Option<u64>,
}

/// `read` answers this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Content {
    /// The file, quoted as git quotes.
    pub path: String,
    /// The first byte of this part.
    pub offset: u64,
    /// The part.
    pub content: Text,
    /// Whether it ends here.
    pub end: bool,
}

/// `review` answers this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Review {
    /// The transaction.
    pub id: String,
    /// What it changes.
    pub counts: Counts,
    /// What a reader should look at first: what is deleted, replaced by another type, or made set-id or
    /// changes its owner or mode. At most 200.
    pub first: Vec<Change>,
    /// How many of those there are.
    pub first_count: u64,
    /// What lies outside the workspace. At most 200.
    pub outside: Vec<Change>,
    /// How many of those there are.
    pub outside_count: u64,
    /// Bytes of the files that are new or changed.
    pub bytes: u64,
    /// Whether it could be committed now.
    pub can_commit: bool,
    /// If not, why.
    pub message: Option<String>,
    /// What got in the way.
    pub conflicts: Vec<Conflict>,
    /// What its commands did that a rollback does not undo, as far as this server saw it.
    pub live: Vec<Live>,
    /// Whether a person has to commit it.
    pub needs_person: bool,
    /// What a person can run.
    pub commands: Vec<String>,
}

/// `commit`, `revert` and `abort` answer this.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Decided {
    /// The transaction; of a `revert`, the one that undid the other.
    pub id: String,
    /// `committed`, `unchanged`, `reverted`, `aborted`; `needs-person`: nothing was done, and a person has to
    /// run one of `commands`.
    pub outcome: String,
    /// What was published.
    pub counts: Option<Counts>,
    /// Why it needs a person, and what else is to be known.
    pub message: Option<String>,
    /// What a person can run.
    pub commands: Vec<String>,
}
