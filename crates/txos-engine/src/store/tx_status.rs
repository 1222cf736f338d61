//! Where a transaction stands: its recorded state, and what has become of it since.

use std::fmt;

use super::{Home, Meta, State, boot_id};
use serde::Serialize;

/// A transaction's state as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TxStatus {
    /// Its command runs.
    Active,
    /// Its txos process is gone in the middle: `gc` removes it.
    Dead,
    /// Kept: `commit`, `exec` or `abort`.
    Pending,
    /// Kept without flushing, and the machine has restarted since: its private copies can't be
    /// trusted.
    Lost,
    /// Published.
    Committed,
    /// Published, and undone later.
    Reverted,
}

impl fmt::Display for TxStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TxStatus::Active => "active",
            TxStatus::Dead => "dead",
            TxStatus::Pending => "pending",
            TxStatus::Lost => "lost",
            TxStatus::Committed => "committed",
            TxStatus::Reverted => "reverted",
        })
    }
}

impl TxStatus {
    /// Looks it up.
    #[must_use]
    pub fn of(home: &Home, meta: &Meta) -> Self {
        let held = meta.state == State::Active && home.is_held(meta.id);
        TxStatus::from_facts(meta, held, &boot_id())
    }

    /// Decides it. `held`: whether a process holds an active transaction.
    #[must_use]
    pub fn from_facts(meta: &Meta, held: bool, boot: &str) -> Self {
        match meta.state {
            State::Active if held => TxStatus::Active,
            State::Active => match &meta.before {
                // Whoever takes hold of it takes it back to what it was.
                Some(before) if !meta.durable && before.boot != boot => TxStatus::Lost,
                Some(_) => TxStatus::Pending,
                None => TxStatus::Dead,
            },
            State::Pending if !meta.durable && meta.boot != boot => TxStatus::Lost,
            State::Pending => TxStatus::Pending,
            State::Committed => TxStatus::Committed,
            State::Reverted => TxStatus::Reverted,
        }
    }
}
