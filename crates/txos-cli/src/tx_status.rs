//! Where a transaction stands: its recorded state, and what has become of it since.

use std::fmt;

use serde::Serialize;
use txos_engine::store::{Home, Meta, State, boot_id};

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
    pub fn of(home: &Home, meta: &Meta) -> Self {
        let held = meta.state == State::Active && home.is_held(meta.id);
        TxStatus::from_facts(meta, held, &boot_id())
    }

    /// Decides it. `held`: whether a process holds an active transaction.
    fn from_facts(meta: &Meta, held: bool, boot: &str) -> Self {
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

/// A record for tests, with nothing in it that it need not have.
#[cfg(test)]
pub fn sample() -> Meta {
    Meta {
        format: 1,
        id: txos_engine::id::TxId::from_bits(0),
        state: State::Committed,
        name: None,
        message: None,
        command: Vec::new(),
        directory: "/".into(),
        uid: 0,
        begun: Default::default(),
        ended: None,
        boot: String::new(),
        durable: true,
        mount_namespace: None,
        exit_status: None,
        changes: Some(0),
        commit_stamp: None,
        reverts: None,
        reverted_by: None,
        reverts_part: false,
        arguments_hidden: false,
        parts_reverted_by: Vec::new(),
        splitting: None,
        stack: txos_engine::store::Stack::default(),
        inside: Vec::new(),
        unprivileged_root: false,
        numbering: None,
        before: None,
        fork: None,
        recorded: false,
        layers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination() {
        let meta = |state, durable| Meta { state, durable, boot: "this".into(), ..sample() };
        for durable in [false, true] {
            for boot in ["this", "other"] {
                let of = |state, held| TxStatus::from_facts(&meta(state, durable), held, boot);
                assert_eq!(of(State::Active, true), TxStatus::Active);
                assert_eq!(of(State::Active, false), TxStatus::Dead);
                assert_eq!(of(State::Committed, false), TxStatus::Committed);
                assert_eq!(of(State::Reverted, false), TxStatus::Reverted);
                let mut dead = meta(State::Active, durable);
                let before = txos_engine::store::Before {
                    boot: boot.into(),
                    ended: None,
                    exit_status: None,
                    changes: Some(1),
                    savepoint: 1,
                    command: None,
                };
                dead.before = Some(Box::new(before));
                let of_dead = |held| TxStatus::from_facts(&dead, held, "this");
                assert_eq!(of_dead(true), TxStatus::Active);
                let falls_back = durable || boot == "this";
                let to = if falls_back { TxStatus::Pending } else { TxStatus::Lost };
                assert_eq!(of_dead(false), to);
                let lost = !durable && boot == "other";
                let kept = if lost { TxStatus::Lost } else { TxStatus::Pending };
                assert_eq!(of(State::Pending, false), kept);
            }
        }
    }
}
