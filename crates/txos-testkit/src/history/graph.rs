//! The dependency graph. The first nodes are the transactions that took effect, by invocation; the
//! others only pass edges on, so that "each of these before each of those" takes a few edges instead
//! of a product: from such a node on, [`Label::Link`] continues the edge that led to it, at no cost.

use super::report::Relation;

/// A node's number.
pub(super) type Node = u32;

/// A set of labels.
pub(super) type Labels = u8;

/// What an edge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Label {
    Ww = 1,
    Wr = 2,
    Rw = 4,
    Process = 8,
    Realtime = 16,
    Link = 32,
    /// An order of versions that only real time tells.
    WwRealtime = 64,
    /// The same, from a reader.
    RwRealtime = 128,
}

impl Label {
    pub(super) fn is_in(self, labels: Labels) -> bool {
        self as Labels & labels != 0
    }

    pub(super) fn realtime(self) -> bool {
        !matches!(self, Label::Ww | Label::Wr | Label::Rw)
    }

    pub(super) fn relation(self) -> Relation {
        match self {
            Label::Ww | Label::WwRealtime => Relation::Ww,
            Label::Wr => Relation::Wr,
            Label::Rw | Label::RwRealtime => Relation::Rw,
            Label::Process => Relation::Process,
            Label::Realtime | Label::Link => Relation::Realtime,
        }
    }
}

/// One edge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arc {
    pub(super) from: Node,
    pub(super) to: Node,
    pub(super) label: Label,
    pub(super) key: u64,
    /// The earlier version's value, 0 for the initial one.
    pub(super) earlier: u64,
    /// The value read (wr), or that of the later version.
    pub(super) value: u64,
}

/// A number of nodes or edges.
///
/// # Panics
/// At 2³²: no history is that large.
pub(super) fn number(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than 2^32 nodes and edges")
}

/// A graph being made.
#[derive(Debug, Default)]
pub(super) struct Builder {
    arcs: Vec<Arc>,
    times: Vec<u64>,
    transactions: usize,
}

impl Builder {
    /// With transactions invoked at these times, in order.
    pub(super) fn new(invoked: Vec<u64>) -> Self {
        Builder { transactions: invoked.len(), times: invoked, arcs: Vec::new() }
    }

    pub(super) fn add(&mut self, arc: Arc) {
        self.arcs.push(arc);
    }

    /// A node that passes on, to nodes not earlier than this time.
    pub(super) fn pass(&mut self, time: u64) -> Node {
        self.times.push(time);
        number(self.times.len() - 1)
    }

    pub(super) fn link(&mut self, from: Node, to: Node, key: u64, value: u64) {
        self.add(Arc { from, to, label: Label::Link, key, earlier: 0, value });
    }

    pub(super) fn time(&self, node: Node) -> u64 {
        self.times[node as usize]
    }

    pub(super) fn count(&self, label: Label) -> usize {
        self.arcs.iter().filter(|arc| arc.label == label).count()
    }

    /// Sorts the edges by where they start; those of one node stay in the order in which they came.
    pub(super) fn finish(self) -> Graph {
        let mut first = vec![0u32; self.times.len() + 1];
        for arc in &self.arcs {
            first[arc.from as usize + 1] += 1;
        }
        for n in 1..first.len() {
            first[n] += first[n - 1];
        }
        let mut next = first.clone();
        let mut order = vec![0u32; self.arcs.len()];
        for (n, arc) in self.arcs.iter().enumerate() {
            let at = &mut next[arc.from as usize];
            order[*at as usize] = number(n);
            *at += 1;
        }
        let arcs = order.iter().map(|n| self.arcs[*n as usize]).collect();
        Graph { arcs, first, times: self.times, transactions: self.transactions }
    }
}

/// A graph.
#[derive(Debug)]
pub(super) struct Graph {
    arcs: Vec<Arc>,
    first: Vec<u32>,
    times: Vec<u64>,
    transactions: usize,
}

impl Graph {
    pub(super) fn nodes(&self) -> usize {
        self.times.len()
    }

    pub(super) fn is_transaction(&self, node: Node) -> bool {
        (node as usize) < self.transactions
    }

    /// When the node is; no link goes to an earlier one.
    pub(super) fn time(&self, node: Node) -> u64 {
        self.times[node as usize]
    }

    pub(super) fn arc(&self, n: u32) -> &Arc {
        &self.arcs[n as usize]
    }

    /// The numbers of the edges that start at a node.
    pub(super) fn from(&self, node: Node) -> std::ops::Range<u32> {
        self.first[node as usize]..self.first[node as usize + 1]
    }
}
