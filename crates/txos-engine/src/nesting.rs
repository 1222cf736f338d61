//! Whether this process is in a transaction's view: a nested `txos run` joins it, and a program in it
//! has no transactions of its own.

use std::sync::OnceLock;

use crate::id::TxId;
use crate::mounts;

/// Start of the source name of every overlay of ours.
const SOURCE_PREFIX: &str = "txos-";

/// Name of the source of a transaction's overlays.
#[must_use]
pub fn source_name(id: TxId) -> String {
    format!("{SOURCE_PREFIX}{id}")
}

/// The transaction in whose view this process runs, if it does. A process neither enters nor leaves one.
#[must_use]
pub fn inside() -> Option<TxId> {
    static VIEW: OnceLock<Option<TxId>> = OnceLock::new();
    if let Some(known) = VIEW.get() {
        return *known;
    }
    let table = mounts::table().ok()?;
    *VIEW.get_or_init(|| transaction_of(&table))
}

fn transaction_of(mounts: &[mounts::Mount]) -> Option<TxId> {
    mounts
        .iter()
        .filter(|m| m.kind == "overlay")
        .find_map(|m| m.source.to_str()?.strip_prefix(SOURCE_PREFIX)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_of_ours() {
        let id = TxId::from_bits(7);
        let line = |source: &str, kind: &str| format!("1 0 0:5 / / rw - {kind} {source} rw\n");
        let of = |line: String| transaction_of(&mounts::parse(line.as_bytes()));
        assert_eq!(of(line(&source_name(id), "overlay")), Some(id));
        assert_eq!(of(line(&source_name(id), "tmpfs")), None);
        assert_eq!(of(line("overlay", "overlay")), None);
        assert_eq!(of(line("txos-nonsense", "overlay")), None);
    }
}
