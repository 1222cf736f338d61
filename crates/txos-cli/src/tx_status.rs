//! Where a transaction stands: see [`TxStatus`].

pub use txos_engine::store::TxStatus;
#[cfg(test)]
use txos_engine::store::{Meta, State};

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
        found_by_own: Vec::new(),
        left_by_own: Vec::new(),
        stack: txos_engine::store::Stack::default(),
        inside: Vec::new(),
        unprivileged_root: false,
        numbering: None,
        before: None,
        fork: None,
        recorded: false,
        scope: std::path::PathBuf::new(),
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
