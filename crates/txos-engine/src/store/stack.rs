//! The stack of a pending transaction: what its commands changed, one layer each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Meta;
use crate::version::Stamp;

/// A command that runs in a pending transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Its words, each quoted if need be.
    pub words: Vec<String>,
    /// Where it was started.
    #[serde(with = "crate::show::path_text")]
    pub directory: PathBuf,
    /// Whether words of it are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arguments_hidden: bool,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Stamp>,
    /// Number of paths that it changed, once that is known.
    #[serde(skip)]
    pub changes: Option<u64>,
    /// Whether it is known to have left every private copy as it was.
    #[serde(skip)]
    pub is_same: bool,
}

/// What one command changed of a pending transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackLayer {
    /// The command's words, each quoted if need be.
    pub command: Vec<String>,
    /// Where it was started.
    #[serde(with = "crate::show::path_text")]
    pub directory: PathBuf,
    /// Whether words of the command are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arguments_hidden: bool,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Stamp>,
    /// When it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Stamp>,
    /// Status with which the command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// Number of paths that the transaction changes with this layer and those below it; none if they were not
    /// counted.
    #[serde(default = "super::meta::none_changed")]
    pub changes: Option<u64>,
    /// Whether the private copies are those of the layers below: its command changed nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_same: bool,
    /// Number of paths that this layer changes, if it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<u64>,
    /// Whether the savepoint of the transaction with this layer and those below it is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub saved: bool,
    /// All of its commands, the first first, if it holds what several changed: the layers that were in force when a part of
    /// the transaction was committed. Else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined: Vec<JoinedCommand>,
}

/// One of the commands of which a layer holds the changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedCommand {
    /// Its words, each quoted if need be.
    pub command: Vec<String>,
    /// Where it was started.
    #[serde(with = "crate::show::path_text")]
    pub directory: PathBuf,
    /// Whether words of it are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arguments_hidden: bool,
    /// Status with which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
}

impl StackLayer {
    /// What was run in it, the first command first.
    #[must_use]
    pub fn commands(&self) -> Vec<JoinedCommand> {
        if !self.joined.is_empty() {
            return self.joined.clone();
        }
        vec![JoinedCommand {
            command: self.command.clone(),
            directory: self.directory.clone(),
            arguments_hidden: self.arguments_hidden,
            exit_status: self.exit_status,
        }]
    }

    /// Whether a transaction was only begun with it: a `true` that changed nothing.
    fn only_begins(&self) -> bool {
        self.command == ["true"] && self.counts == Some(0) && self.joined.is_empty()
    }
}

/// The layers of a transaction, the first at the bottom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Those that are in force, then those that were undone and can be redone.
    pub layers: Vec<StackLayer>,
    /// How many are in force; none if all were undone.
    pub at: u32,
}

impl Stack {
    /// Whether nothing is known of it: a transaction that was never kept, or by an older txos.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Whether every layer was undone: the transaction is what it was before its first command.
    #[must_use]
    pub fn is_undone(&self) -> bool {
        self.at == 0 && !self.layers.is_empty()
    }

    /// How many layers were undone and can be redone.
    #[must_use]
    pub fn undone(&self) -> u32 {
        u32::try_from(self.layers.len()).unwrap_or(u32::MAX).saturating_sub(self.at)
    }

    /// The uppermost layer that is in force.
    pub(super) fn here(&self) -> Option<&StackLayer> {
        self.layers.get(self.at.checked_sub(1)? as usize)
    }

    pub(crate) fn here_mut(&mut self) -> Option<&mut StackLayer> {
        self.layers.get_mut(self.at.checked_sub(1)? as usize)
    }

    /// The last savepoint before number `at`.
    pub(super) fn saved_below(&self, at: u32) -> Option<u32> {
        (1..at).rev().find(|n| self.layers.get(*n as usize - 1).is_some_and(|l| l.saved))
    }
}

impl Meta {
    /// What was run in the transaction: each command whose changes are in force, the first first. A `true` that changed
    /// nothing and that others follow is none of them: the transaction was begun with it.
    #[must_use]
    pub fn commands(&self) -> Vec<JoinedCommand> {
        let in_force = self.stack.layers.get(..self.stack.at as usize).unwrap_or_default();
        let in_force = match in_force {
            [first, rest @ ..] if first.only_begins() && !rest.is_empty() => rest,
            all => all,
        };
        let mut commands: Vec<_> = in_force.iter().flat_map(StackLayer::commands).collect();
        if commands.is_empty() {
            commands.push(JoinedCommand {
                command: self.command.clone(),
                directory: self.directory.clone(),
                arguments_hidden: self.arguments_hidden,
                exit_status: self.exit_status,
            });
        }
        commands
    }

    /// The first of [`Meta::commands`].
    pub(crate) fn first_command(&self) -> (Vec<String>, bool) {
        let first = self.commands().into_iter().next();
        first.map(|first| (first.command, first.arguments_hidden)).unwrap_or_default()
    }

    /// The layers; of a transaction that has none noted, what it is as the first.
    #[must_use]
    pub fn stack_or_first(&self) -> Stack {
        let mut meta = self.clone();
        meta.begin_stack();
        meta.stack
    }

    /// Makes what the transaction is its first layer, if it has none.
    pub(super) fn begin_stack(&mut self) {
        if !self.stack.is_empty() {
            return;
        }
        self.stack.layers.push(StackLayer {
            command: self.command.clone(),
            directory: self.directory.clone(),
            arguments_hidden: self.arguments_hidden,
            begun: Some(self.begun),
            ended: self.ended,
            exit_status: self.exit_status,
            changes: self.changes,
            is_same: false,
            counts: self.changes,
            saved: false,
            joined: Vec::new(),
        });
        self.stack.at = 1;
    }

    /// Makes one layer of all that are in force: what is left of the transaction. (What was saved of them is removed by
    /// the next [`super::Transaction::discard_unnamed`].)
    pub(crate) fn flatten_stack(&mut self) {
        let commands = self.commands();
        self.stack = Stack::default();
        self.begin_with(commands);
    }

    /// Makes what the transaction is its first layer, which commands have made together.
    pub(crate) fn begin_with(&mut self, commands: Vec<JoinedCommand>) {
        if let Some(first) = commands.first() {
            self.command.clone_from(&first.command);
            self.directory.clone_from(&first.directory);
            self.arguments_hidden = first.arguments_hidden;
        }
        self.begin_stack();
        if let Some(layer) = self.stack.layers.first_mut().filter(|_| commands.len() > 1) {
            layer.joined = commands;
        }
    }
}
