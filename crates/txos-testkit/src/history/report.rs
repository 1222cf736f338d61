//! What a check found: kinds of anomalies, each with a witness that a reader can follow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Witnesses that are kept of each kind; more are only counted.
const KEPT_MAX: usize = 50;

/// What is wrong. Ordered as they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The history is not one, so nothing else was checked.
    Malformed,
    /// A value was written twice, or is in a list twice.
    DuplicateValue,
    /// A value was read that nobody wrote.
    GarbageRead,
    /// Two reads of a list of which neither is the beginning of the other.
    IncompatibleOrder,
    /// A transaction disagrees with itself.
    Internal,
    /// An aborted transaction's value was read.
    G1a,
    /// A value was read that its own transaction replaced or added to.
    G1b,
    /// A committed append is in no read, though one began after it was complete.
    LostAppend,
    /// Two transactions read the same version and both changed it.
    LostUpdate,
    /// Writes in a circle.
    G0,
    /// Writes and reads in a circle.
    G1c,
    /// A circle with exactly one anti-dependency.
    GSingle,
    /// A circle with several anti-dependencies.
    G2,
    /// Writes in a circle with real time.
    G0Realtime,
    /// Writes and reads in a circle with real time.
    G1cRealtime,
    /// A circle with exactly one anti-dependency, and real time: as a stale read.
    GSingleRealtime,
    /// A circle with several anti-dependencies, and real time.
    G2Realtime,
}

impl Kind {
    /// The short name, that of the literature where there is one.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Malformed => "malformed history",
            Kind::DuplicateValue => "duplicate value",
            Kind::GarbageRead => "garbage read",
            Kind::IncompatibleOrder => "incompatible order",
            Kind::Internal => "internal",
            Kind::G1a => "G1a",
            Kind::G1b => "G1b",
            Kind::LostAppend => "lost append",
            Kind::LostUpdate => "lost update",
            Kind::G0 => "G0",
            Kind::G1c => "G1c",
            Kind::GSingle => "G-single",
            Kind::G2 => "G2",
            Kind::G0Realtime => "G0-realtime",
            Kind::G1cRealtime => "G1c-realtime",
            Kind::GSingleRealtime => "G-single-realtime",
            Kind::G2Realtime => "G2-realtime",
        }
    }

    /// What it means, in a few words.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::Malformed => "this is not a history",
            Kind::DuplicateValue => "a value is there twice",
            Kind::GarbageRead => "a value was read that nobody wrote",
            Kind::IncompatibleOrder => "two reads disagree about the order",
            Kind::Internal => "a transaction disagrees with itself",
            Kind::G1a => "a value of an aborted transaction was read",
            Kind::G1b => "an intermediate value was read",
            Kind::LostAppend => "a committed append is gone",
            Kind::LostUpdate => "two changed what both had read",
            Kind::G0 => "writes in a circle",
            Kind::G1c => "information flows in a circle",
            Kind::GSingle => "a circle with one read of what was overwritten",
            Kind::G2 => "a circle with several reads of what was overwritten",
            Kind::G0Realtime => "writes against real time",
            Kind::G1cRealtime => "information flows against real time",
            Kind::GSingleRealtime => "a stale read: older than what was complete before",
            Kind::G2Realtime => "reads of what was overwritten, against real time",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a transaction is before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// It wrote the earlier version.
    Ww,
    /// The other read what it wrote.
    Wr,
    /// The other wrote a later version than the one it read.
    Rw,
    /// The same process ran it before the other.
    Process,
    /// It was complete before the other was invoked.
    Realtime,
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Relation::Ww => "ww",
            Relation::Wr => "wr",
            Relation::Rw => "rw",
            Relation::Process => "process",
            Relation::Realtime => "rt",
        })
    }
}

/// One edge of a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The transaction that is before.
    pub from: u64,
    /// The one that is after.
    pub to: u64,
    /// Why.
    pub relation: Relation,
    /// Whether it took real time to tell, as it always does for [`Relation::Realtime`] and
    /// [`Relation::Process`].
    pub realtime: bool,
    /// The key, unless it is time alone.
    pub key: Option<u64>,
    /// The value read (wr), or that of the later version (ww, rw).
    pub value: Option<u64>,
    /// The same in words.
    pub text: String,
}

/// Something wrong, with its witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// What.
    pub kind: Kind,
    /// Whose; of a cycle in its order.
    pub transactions: Vec<u64>,
    /// The cycle, if it is one: each edge starts where the one before it ends.
    pub cycle: Vec<Edge>,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.kind, self.kind.meaning(), self.text)?;
        for edge in &self.cycle {
            write!(f, "\n  {}", edge.text)?;
        }
        Ok(())
    }
}

/// What was checked: a report without anomalies is worth no more than this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Transactions that committed.
    pub committed: usize,
    /// Those that aborted.
    pub aborted: usize,
    /// Indeterminate ones of which something was seen.
    pub seen: usize,
    /// Other indeterminate ones.
    pub unseen: usize,
    /// Operations of all that took effect.
    pub operations: usize,
    /// Different keys.
    pub keys: usize,
    /// Edges between versions' writers.
    pub ww: usize,
    /// Edges from writers to readers.
    pub wr: usize,
    /// Edges from readers to later versions' writers.
    pub rw: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} committed, {} aborted, {} indeterminate of which {} were seen; {} operations on {} \
             keys; {} ww, {} wr, {} rw",
            self.committed,
            self.aborted,
            self.seen + self.unseen,
            self.seen,
            self.operations,
            self.keys,
            self.ww,
            self.wr,
            self.rw
        )
    }
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The anomalies, by kind; of each kind the first few.
    pub anomalies: Vec<Anomaly>,
    /// How many there were of each kind.
    pub counts: BTreeMap<Kind, usize>,
    /// What was checked.
    pub summary: Summary,
}

impl Report {
    pub(super) fn add(&mut self, anomaly: Anomaly) {
        let count = self.counts.entry(anomaly.kind).or_default();
        *count += 1;
        if *count <= KEPT_MAX {
            self.anomalies.push(anomaly);
        }
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    /// The kinds that were found.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.counts.keys().copied().collect()
    }

    /// What remains if these kinds are allowed: [`Kind::G2`] and [`Kind::G2Realtime`] under snapshot
    /// isolation.
    #[must_use]
    pub fn allowing(mut self, kinds: &[Kind]) -> Report {
        self.anomalies.retain(|anomaly| !kinds.contains(&anomaly.kind));
        self.counts.retain(|kind, _| !kinds.contains(kind));
        self
    }

    /// Fails unless nothing was found.
    ///
    /// # Panics
    /// With all that was.
    #[track_caller]
    pub fn expect_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary)?;
        if self.is_clean() {
            return write!(f, "nothing is wrong");
        }
        let counts: Vec<String> = self.counts.iter().map(|(k, n)| format!("{n} {k}")).collect();
        write!(f, "wrong: {}", counts.join(", "))?;
        for anomaly in &self.anomalies {
            write!(f, "\n{anomaly}")?;
        }
        Ok(())
    }
}
