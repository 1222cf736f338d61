//! Strongly connected components: Tarjan's algorithm with a stack of its own, so that a history of
//! millions of transactions in one line does not overflow the thread's.

use super::graph::{Graph, Labels, Node};

/// Not in any component of more than one node.
pub(super) const ALONE: u32 = u32::MAX;

const UNVISITED: u32 = u32::MAX;

/// The components of more than one node.
#[derive(Debug)]
pub(super) struct Components {
    /// Which component each node is in, or [`ALONE`].
    pub(super) of: Vec<u32>,
    /// Their nodes.
    pub(super) members: Vec<Vec<Node>>,
}

/// Finds the components that edges of these labels make of the nodes that are wanted.
pub(super) fn components(
    graph: &Graph,
    labels: Labels,
    wanted: impl Fn(Node) -> bool,
) -> Components {
    let nodes = graph.nodes();
    let mut found = Components { of: vec![ALONE; nodes], members: Vec::new() };
    let mut index = vec![UNVISITED; nodes];
    let mut low = vec![0u32; nodes];
    let mut open = vec![false; nodes];
    let mut path: Vec<Node> = Vec::new();
    let mut calls: Vec<(Node, u32)> = Vec::new();
    let mut visited = 0u32;
    for root in 0..super::graph::number(nodes) {
        if index[root as usize] != UNVISITED || !wanted(root) {
            continue;
        }
        calls.push((root, graph.from(root).start));
        while let Some((node, at)) = calls.pop() {
            let n = node as usize;
            if index[n] == UNVISITED {
                index[n] = visited;
                low[n] = visited;
                visited += 1;
                open[n] = true;
                path.push(node);
            }
            let mut entered = None;
            for number in at..graph.from(node).end {
                let arc = graph.arc(number);
                let to = arc.to as usize;
                if !arc.label.is_in(labels) {
                    continue;
                }
                if index[to] == UNVISITED {
                    if wanted(arc.to) {
                        entered = Some((arc.to, number));
                        break;
                    }
                } else if open[to] {
                    low[n] = low[n].min(low[to]);
                }
            }
            if let Some((to, number)) = entered {
                // The same edge once more when the node is left: it is open then, or closed.
                calls.push((node, number));
                calls.push((to, graph.from(to).start));
            } else if low[n] == index[n] {
                close(node, &mut path, &mut open, &mut found);
            }
        }
    }
    found
}

/// Takes a component off the path.
fn close(root: Node, path: &mut Vec<Node>, open: &mut [bool], found: &mut Components) {
    let start = path.iter().rposition(|node| *node == root).unwrap_or(0);
    for node in &path[start..] {
        open[*node as usize] = false;
    }
    if path.len() - start > 1 {
        let number = super::graph::number(found.members.len());
        for node in &path[start..] {
            found.of[*node as usize] = number;
        }
        found.members.push(path[start..].to_vec());
    }
    path.truncate(start);
}
