//! What `--json` prints: the stable schema of docs/json.md.
//!
//! Within one schema number fields are only ever added; a change of meaning or the loss of a field
//! takes the next number.

use std::io::{self, Write};

use serde::Serialize;
use txos_engine::TxId;
use txos_engine::changeset::Entry;
use txos_engine::commit::Recovered;
use txos_engine::show::quoted;
use txos_engine::store::Meta;
use txos_engine::version::Stamp;

use crate::changes::Counts;
use crate::realm_view::{Shown, Wait};
use crate::tx_status::TxStatus;

/// The number of the schema.
pub const SCHEMA: u32 = 1;

/// One document: the schema number, then the rest.
#[derive(Debug, Serialize)]
struct Document<T> {
    schema: u32,
    #[serde(flatten)]
    body: T,
}

/// Prints a document.
pub fn write(out: &mut dyn Write, body: impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SCHEMA, body })?;
    writeln!(out)
}

/// Prints a document on one line, for those who read one after the other.
pub fn write_line(out: &mut dyn Write, body: impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Document { schema: SCHEMA, body })?;
    writeln!(out)
}

/// A transaction.
#[derive(Debug, Serialize)]
pub struct Transaction {
    id: TxId,
    state: TxStatus,
    name: Option<String>,
    message: Option<String>,
    command: Vec<String>,
    arguments_hidden: bool,
    directory: String,
    uid: u32,
    begun: Stamp,
    ended: Option<Stamp>,
    durable: bool,
    exit_status: Option<i32>,
    changes: Option<u64>,
    reverts: Option<TxId>,
    reverted_by: Option<TxId>,
    parts_reverted_by: Vec<TxId>,
    layers: Vec<Layer>,
    stack: Vec<StackLayer>,
    inside: Vec<InsideCommand>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<Wait>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Layer {
    target: String,
    store: String,
}

/// What one command changed of a pending transaction.
#[derive(Debug, Serialize)]
struct StackLayer {
    number: usize,
    command: Vec<String>,
    /// All of its commands, if it holds what several changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    commands: Option<Vec<Vec<String>>>,
    directory: String,
    begun: Option<Stamp>,
    ended: Option<Stamp>,
    exit_status: Option<i32>,
    /// Paths that it changes.
    changes: Option<u64>,
    undone: bool,
}

impl StackLayer {
    fn all(meta: &Meta) -> Vec<StackLayer> {
        let at = meta.stack.at as usize;
        let layer = |(index, layer): (usize, &txos_engine::store::StackLayer)| StackLayer {
            number: index + 1,
            command: layer.command.clone(),
            commands: (!layer.joined.is_empty())
                .then(|| layer.joined.iter().map(|ran| ran.command.clone()).collect()),
            directory: quoted(&layer.directory),
            begun: layer.begun,
            ended: layer.ended,
            exit_status: layer.exit_status,
            changes: layer.counts,
            undone: index >= at,
        };
        meta.stack.layers.iter().enumerate().map(layer).collect()
    }
}

/// A transaction that ran inside of another one.
#[derive(Debug, Serialize)]
struct InsideCommand {
    id: TxId,
    name: Option<String>,
    message: Option<String>,
    command: Vec<String>,
    arguments_hidden: bool,
    begun: Stamp,
    ended: Stamp,
    exit_status: Option<i32>,
    succeeded: bool,
    changes: u64,
    /// Number of the layer whose command ran it.
    layer: usize,
    undone: bool,
}

impl InsideCommand {
    fn all(meta: &Meta) -> Vec<InsideCommand> {
        let stack = meta.stack_or_first();
        let command = |record: &txos_engine::store::InsideRecord| {
            let layer = record.layer_in(&stack)?;
            Some(InsideCommand {
                id: record.id,
                name: record.name.clone(),
                message: record.message.clone(),
                command: record.command.clone(),
                arguments_hidden: record.arguments_hidden,
                begun: record.begun,
                ended: record.ended,
                exit_status: record.exit_status,
                succeeded: record.succeeded,
                changes: record.changes,
                layer: layer + 1,
                undone: layer >= stack.at as usize,
            })
        };
        meta.inside.iter().filter_map(command).collect()
    }
}

impl Transaction {
    /// From its record.
    pub fn new(meta: &Meta, status: TxStatus) -> Self {
        let layer = |l: &txos_engine::store::LayerMeta| Layer {
            target: quoted(&l.target),
            store: quoted(&l.store),
        };
        Transaction {
            id: meta.id,
            state: status,
            name: meta.name.clone(),
            message: meta.message.clone(),
            command: meta.command.clone(),
            arguments_hidden: meta.arguments_hidden,
            directory: quoted(&meta.directory),
            uid: meta.uid,
            begun: meta.begun,
            ended: meta.ended,
            durable: meta.durable,
            exit_status: meta.exit_status,
            changes: meta.changes,
            reverts: meta.reverts,
            reverted_by: meta.reverted_by,
            parts_reverted_by: meta.parts_reverted_by.clone(),
            layers: meta.layers.iter().map(layer).collect(),
            stack: StackLayer::all(meta),
            inside: InsideCommand::all(meta),
            waits_for: None,
            disk: None,
        }
    }

    /// The same, which waits for somebody now, or does not.
    pub fn waiting(self, waits_for: Option<Wait>) -> Self {
        Transaction { waits_for, ..self }
    }
}

impl Transaction {
    /// The same, which takes so much disk space, if that is known.
    pub fn taking(self, disk: Option<u64>) -> Self {
        Transaction { disk, ..self }
    }
}

/// `list` and `log`.
#[derive(Debug, Serialize)]
pub struct Transactions<'a> {
    /// Newest first.
    pub transactions: Vec<Transaction>,
    /// Messages about records that can't be read.
    pub unreadable: Vec<String>,
    /// Of `list`: those that run and have no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Vec<Shown<'a>>>,
}

/// `show` and `diff`.
#[derive(Debug, Serialize)]
pub struct Changes<'a> {
    /// Which transaction.
    pub transaction: Transaction,
    /// Totals of `changes`.
    pub counts: Counts,
    /// Every path; none while the command runs.
    pub changes: &'a [Entry],
}

/// `recover`.
#[derive(Debug, Serialize)]
pub struct Recovery<'a> {
    undone: &'a [TxId],
    finished: &'a [TxId],
    notes: &'a [String],
}

impl<'a> Recovery<'a> {
    /// From the engine's report.
    pub fn new(recovered: &'a Recovered) -> Self {
        Recovery {
            undone: &recovered.undone,
            finished: &recovered.finished,
            notes: &recovered.notes,
        }
    }
}

#[cfg(test)]
mod tests {
    use txos_engine::changeset::Status;
    use txos_engine::store::{LayerMeta, State};

    use super::*;
    use crate::changes::samples::{entry, side};
    use crate::tx_status::sample;

    /// A record with everything that a document shows.
    fn meta() -> Meta {
        Meta {
            id: "3kq9w2ma".parse().unwrap(),
            state: State::Committed,
            name: Some("web".into()),
            command: vec!["make".into(), "install".into()],
            directory: "/src".into(),
            begun: Stamp { sec: 10, nsec: 5 },
            ended: Some(Stamp { sec: 12, nsec: 0 }),
            boot: "b".into(),
            mount_namespace: Some(4),
            exit_status: Some(0),
            changes: Some(1),
            layers: vec![LayerMeta {
                target: "/".into(),
                root: None,
                store: "/var/lib/txos".into(),
            }],
            ..sample()
        }
    }

    fn text(body: impl Serialize) -> String {
        let mut out = Vec::new();
        write(&mut out, body).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The documents exactly as scripts see them. A failure here means: the schema changed.
    #[test]
    fn the_schema_stays() {
        let entry = entry(Status::Added, "/opt/a\nb", None, Some(side(3)));
        let changes = [entry];
        let shown = text(Changes {
            transaction: Transaction::new(&meta(), TxStatus::Committed),
            counts: Counts::of(&changes),
            changes: &changes,
        });
        assert_eq!(shown, include_str!("../tests/snapshots/show.json"));
        let listed = text(Transactions {
            transactions: Vec::new(),
            unreadable: vec!["meta.json is damaged".into()],
            running: None,
        });
        assert_eq!(listed, include_str!("../tests/snapshots/list.json"));
        let wait = Wait { id: Some(meta().id), pid: Some(7), turn: false, seconds: 1.5 };
        let waits = Transaction::new(&meta(), TxStatus::Active).waiting(Some(wait));
        assert_eq!(
            serde_json::to_value(waits).unwrap()["waits_for"],
            serde_json::json!({"id": "3kq9w2ma", "pid": 7, "turn": false, "seconds": 1.5})
        );
        let takes = Transaction::new(&meta(), TxStatus::Pending).taking(Some(4096));
        assert_eq!(serde_json::to_value(takes).unwrap()["disk"], 4096);
        let recovered = Recovered { undone: vec![meta().id], ..Recovered::default() };
        assert_eq!(
            text(Recovery::new(&recovered)),
            include_str!("../tests/snapshots/recover.json")
        );
    }
}
