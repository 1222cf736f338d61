//! Short ways through the graph.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::graph::{Graph, Labels, Node};

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Only edges of these labels.
    pub(super) labels: Labels,
    /// The component of each node,
    pub(super) of: &'a [u32],
    /// and that in which to stay.
    pub(super) component: u32,
    /// Positions in a topological order: nothing beyond that of the end leads to it.
    pub(super) positions: Option<&'a [u32]>,
}

impl Place<'_> {
    fn has(&self, node: Node) -> bool {
        self.of[node as usize] == self.component
    }
}

/// A search; used again and again, so that its tables are made only once.
#[derive(Debug)]
pub(super) struct Search<'a> {
    graph: &'a Graph,
    /// In which search each node was last reached,
    seen: Vec<u32>,
    /// at what cost,
    cost: Vec<u32>,
    /// and by which edge.
    by: Vec<u32>,
    round: u32,
    /// Edges looked at until now.
    pub(super) spent: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        let nodes = graph.nodes();
        Search {
            graph,
            seen: vec![0; nodes],
            cost: vec![0; nodes],
            by: vec![0; nodes],
            round: 0,
            spent: 0,
        }
    }

    /// The cheapest way between two different nodes, as the numbers of its edges, and its cost, if
    /// that is less than a limit. Links cost nothing, other edges 1.
    pub(super) fn way(
        &mut self,
        (from, to): (Node, Node),
        place: Place<'_>,
        limit: u32,
    ) -> Option<(Vec<u32>, u32)> {
        self.round += 1;
        self.reach(from, 0, 0);
        let end = place.positions.map(|positions| positions[to as usize]);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((node, cost)) = queue.pop_front() {
            if node == to {
                return Some((self.edges(from, to), cost));
            }
            if cost > self.cost[node as usize] {
                continue;
            }
            for number in self.graph.from(node) {
                self.spent += 1;
                let arc = self.graph.arc(number);
                let link = arc.label == super::graph::Label::Link;
                if !(link || arc.label.is_in(place.labels)) || !place.has(arc.to) {
                    continue;
                }
                if let (Some(positions), Some(end)) = (place.positions, end)
                    && positions[arc.to as usize] > end
                {
                    continue;
                }
                let total = cost + u32::from(!link);
                if total >= limit || !self.better(arc.to, total) {
                    continue;
                }
                self.reach(arc.to, total, number);
                if link {
                    queue.push_front((arc.to, total));
                } else {
                    queue.push_back((arc.to, total));
                }
            }
        }
        None
    }

    fn better(&self, node: Node, cost: u32) -> bool {
        self.seen[node as usize] != self.round || cost < self.cost[node as usize]
    }

    fn reach(&mut self, node: Node, cost: u32, by: u32) {
        let n = node as usize;
        (self.seen[n], self.cost[n], self.by[n]) = (self.round, cost, by);
    }

    fn edges(&self, from: Node, to: Node) -> Vec<u32> {
        let mut edges = Vec::new();
        let mut at = to;
        while at != from {
            let number = self.by[at as usize];
            edges.push(number);
            at = self.graph.arc(number).from;
        }
        edges.reverse();
        edges
    }
}

/// Puts the nodes of a component into an order that its edges of these labels keep, and that is
/// near that of time. Nothing, if there is none.
pub(super) fn sort(graph: &Graph, members: &[Node], place: Place<'_>, into: &mut [u32]) -> bool {
    let mut before = vec![0u32; members.len()];
    // Until a node has a position, `into` holds where it is among the members.
    for (n, node) in members.iter().enumerate() {
        into[*node as usize] = super::graph::number(n);
    }
    let followers = |node: Node| {
        graph.from(node).map(|number| graph.arc(number)).filter(|arc| {
            let link = arc.label == super::graph::Label::Link;
            (link || arc.label.is_in(place.labels)) && place.has(arc.to)
        })
    };
    for node in members {
        for arc in followers(*node) {
            before[into[arc.to as usize] as usize] += 1;
        }
    }
    let free = |n: usize| (graph.time(members[n]), members[n]);
    let mut ready: BinaryHeap<_> =
        (0..members.len()).filter(|n| before[*n] == 0).map(|n| Reverse(free(n))).collect();
    let mut positions = vec![0u32; members.len()];
    let mut position = 0;
    while let Some(Reverse((_, node))) = ready.pop() {
        positions[into[node as usize] as usize] = position;
        position += 1;
        for arc in followers(node) {
            let n = into[arc.to as usize] as usize;
            before[n] -= 1;
            if before[n] == 0 {
                ready.push(Reverse(free(n)));
            }
        }
    }
    for (node, position) in members.iter().zip(&positions) {
        into[*node as usize] = *position;
    }
    position as usize == members.len()
}
