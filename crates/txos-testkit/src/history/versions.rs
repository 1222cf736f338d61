//! The versions of a key, as far as their order is known, and the edges that follow from them.

use std::collections::HashSet;

use super::effect::Effects;
use super::graph::{Arc, Builder, Label, Node};
use super::keys::{Key, Write};
use super::report::{Anomaly, Kind, Report};

/// What one transaction made of a key.
#[derive(Debug, Default)]
pub(super) struct Version {
    /// Nobody, of the initial one.
    pub(super) writer: Option<Node>,
    /// The first value that the writer put there, and the last.
    pub(super) values: (u64, u64),
    /// Who read it, and the value that each found last.
    pub(super) readers: Vec<(Node, u64)>,
    /// The versions that are known to come after it, with none known between.
    pub(super) next: Vec<usize>,
}

/// The versions of a key; the first is the initial one.
#[derive(Debug)]
pub(super) struct Versions {
    pub(super) key: u64,
    pub(super) all: Vec<Version>,
}

impl Versions {
    pub(super) fn new(key: u64) -> Self {
        Versions { key, all: vec![Version::default()] }
    }

    /// Adds a value to the chain that ends with the last version: to that version, if the writer
    /// is the same. Gives the version that it is in.
    pub(super) fn chain(&mut self, writer: Node, value: u64) -> usize {
        let last = self.all.len() - 1;
        if self.all[last].writer == Some(writer) {
            self.all[last].values.1 = value;
            return last;
        }
        let new = self.add(writer, value);
        self.all[last].next.push(new);
        new
    }

    /// Adds a version that nothing leads to yet.
    pub(super) fn add(&mut self, writer: Node, value: u64) -> usize {
        let version =
            Version { writer: Some(writer), values: (value, value), ..Version::default() };
        self.all.push(version);
        self.all.len() - 1
    }

    /// Reports transactions that read the same version and both wrote another.
    pub(super) fn lost_updates(
        &self,
        writers: &[Node],
        effects: &Effects<'_>,
        report: &mut Report,
    ) -> Vec<Vec<Node>> {
        let mut found = Vec::new();
        for version in &self.all {
            let mut both = version.readers.iter().filter(|r| writers.binary_search(&r.0).is_ok());
            let (Some((a, value)), Some((b, _))) = (both.next(), both.next()) else { continue };
            let what = if version.writer.is_some() {
                format!("{value}")
            } else {
                "the initial version".to_owned()
            };
            report.add(Anomaly {
                kind: Kind::LostUpdate,
                transactions: vec![effects.id(*a), effects.id(*b)],
                cycle: Vec::new(),
                text: format!(
                    "key {}: T{} and T{} both read {what}, and both wrote",
                    self.key,
                    effects.id(*a),
                    effects.id(*b)
                ),
            });
            found.push(vec![*a, *b]);
        }
        found
    }

    /// Adds the edges.
    pub(super) fn edges(&self, builder: &mut Builder) {
        for version in &self.all {
            let mut later: Vec<(Node, u64)> = Vec::new();
            for next in &version.next {
                let next = &self.all[*next];
                if let Some(writer) = next.writer
                    && version.writer != next.writer
                {
                    later.push((writer, next.values.0));
                }
            }
            later.sort_unstable();
            if let Some(from) = version.writer {
                for (to, value) in &later {
                    self.edge(builder, Label::Ww, (from, *to), (version.values.1, *value));
                }
                for (to, value) in &version.readers {
                    if *to != from {
                        self.edge(builder, Label::Wr, (from, *to), (*value, *value));
                    }
                }
            }
            self.anti_dependencies(builder, version, &later);
        }
    }

    /// From all readers to all writers of what is next; through one node, if there are several of
    /// both.
    fn anti_dependencies(&self, builder: &mut Builder, version: &Version, later: &[(Node, u64)]) {
        let mut pass = None;
        for (from, value) in &version.readers {
            let direct = later.len() < 2
                || version.readers.len() < 2
                || later.binary_search_by_key(from, |l| l.0).is_ok();
            if direct {
                for (to, later) in later.iter().filter(|(to, _)| to != from) {
                    self.edge(builder, Label::Rw, (*from, *to), (*value, *later));
                }
                continue;
            }
            let through = *pass.get_or_insert_with(|| {
                let first = later.iter().map(|(to, _)| builder.time(*to)).min();
                let through = builder.pass(first.unwrap_or(0));
                for (to, value) in later {
                    builder.link(through, *to, self.key, *value);
                }
                through
            });
            self.edge(builder, Label::Rw, (*from, through), (*value, 0));
        }
    }

    pub(super) fn edge(
        &self,
        builder: &mut Builder,
        label: Label,
        (from, to): (Node, Node),
        (earlier, value): (u64, u64),
    ) {
        builder.add(Arc { from, to, label, key: self.key, earlier, value });
    }
}

/// What every read of any key may be wrong in, whatever the order of its versions.
pub(super) struct Faults<'a, 'b> {
    pub(super) key: &'a Key<'a>,
    pub(super) effects: &'a Effects<'b>,
    pub(super) report: &'a mut Report,
    told: HashSet<(Kind, u64)>,
}

impl<'a, 'b> Faults<'a, 'b> {
    pub(super) fn new(key: &'a Key<'a>, effects: &'a Effects<'b>, report: &'a mut Report) -> Self {
        Faults { key, effects, report, told: HashSet::new() }
    }

    /// Reports, once for each value.
    pub(super) fn tell(&mut self, kind: Kind, value: u64, who: Vec<u64>, text: &str) {
        if self.told.insert((kind, value)) {
            let text = format!("key {}: {text}", self.key.key);
            self.report.add(Anomaly { kind, transactions: who, cycle: Vec::new(), text });
        }
    }

    /// Who wrote a value that was read, if it is somebody who took effect.
    pub(super) fn writer(&mut self, reader: Node, value: u64) -> Result<(Write, Node), Kind> {
        let reader = self.effects.id(reader);
        let Some(write) = self.key.write(value) else {
            let text = format!("T{reader} read {value}, which nobody wrote");
            self.tell(Kind::GarbageRead, value, vec![reader], &text);
            return Err(Kind::GarbageRead);
        };
        let Some(node) = self.effects.node(write.by) else {
            let writer = self.effects.id_of(write.by);
            let text = format!("T{reader} read {value}, which T{writer} wrote and then aborted");
            self.tell(Kind::G1a, value, vec![writer, reader], &text);
            return Err(Kind::G1a);
        };
        Ok((*write, node))
    }

    /// Reports a read of what is not its writer's last.
    pub(super) fn intermediate(&mut self, reader: Node, write: &Write) {
        let (reader, writer) = (self.effects.id(reader), self.effects.id_of(write.by));
        if !write.last && reader != writer {
            let text = format!(
                "T{reader} read {}, which T{writer} wrote, but not as its last",
                write.value
            );
            self.tell(Kind::G1b, write.value, vec![writer, reader], &text);
        }
    }
}
