//! Which transactions took effect: the committed ones, and the indeterminate ones of which one of
//! those has seen something. They are the nodes of the graph, by invocation.

use super::graph::{Node, number};
use super::keys::Keys;
use super::op::{History, Outcome, Transaction};
use super::report::Summary;

/// The transactions that took effect.
#[derive(Debug)]
pub(super) struct Effects<'a> {
    history: &'a History,
    /// Of each transaction of the history its node.
    nodes: Vec<Option<Node>>,
    /// Of each node its transaction.
    transactions: Vec<usize>,
}

impl<'a> Effects<'a> {
    /// Finds them.
    pub(super) fn new(history: &'a History, keys: &Keys<'_>, summary: &mut Summary) -> Self {
        let all = &history.transactions;
        let mut has: Vec<bool> = all.iter().map(|t| t.outcome == Outcome::Committed).collect();
        summary.committed = has.iter().filter(|has| **has).count();
        summary.aborted = all.iter().filter(|t| t.outcome == Outcome::Aborted).count();

        // An indeterminate one that has been seen may have seen another.
        let mut to_look: Vec<usize> = (0..all.len()).filter(|n| has[*n]).collect();
        let mut see = |number: usize, value: u64, to_look: &mut Vec<usize>| {
            let Some(write) = keys.keys[number].write(value) else { return };
            if all[write.by].outcome == Outcome::Indeterminate && !has[write.by] {
                has[write.by] = true;
                to_look.push(write.by);
            }
        };
        for (number, key) in keys.keys.iter().enumerate() {
            key.order.iter().for_each(|value| see(number, *value, &mut to_look));
        }
        let mut looked: Vec<&[u64]> = vec![&[]; keys.keys.len()];
        while let Some(n) = to_look.pop() {
            for op in &all[n].ops {
                let Some(values) = op.found() else { continue };
                let number = keys.number(op.key());
                if !keys.keys[number].doubtful || looked[number].starts_with(values) {
                    continue;
                }
                values.iter().for_each(|value| see(number, *value, &mut to_look));
                if values.len() > looked[number].len() {
                    looked[number] = values;
                }
            }
        }

        let mut transactions: Vec<usize> = (0..all.len()).filter(|n| has[*n]).collect();
        transactions.sort_by_key(|n| (all[*n].invoked, all[*n].end(), *n));
        let mut nodes = vec![None; all.len()];
        for (node, n) in transactions.iter().enumerate() {
            nodes[*n] = Some(number(node));
        }
        summary.seen = transactions.len() - summary.committed;
        summary.unseen = all.len() - transactions.len() - summary.aborted;
        summary.operations = transactions.iter().map(|n| all[*n].ops.len()).sum();
        summary.keys = keys.keys.len();
        Effects { history, nodes, transactions }
    }

    /// All nodes, by invocation.
    pub(super) fn all(&self) -> impl Iterator<Item = Node> + use<> {
        0..number(self.transactions.len())
    }

    /// A node's transaction.
    pub(super) fn transaction(&self, node: Node) -> &'a Transaction {
        &self.history.transactions[self.transactions[node as usize]]
    }

    /// A node's id.
    pub(super) fn id(&self, node: Node) -> u64 {
        self.transaction(node).id
    }

    /// The node of one of the history's transactions, if it took effect.
    pub(super) fn node(&self, n: usize) -> Option<Node> {
        self.nodes[n]
    }

    /// The id of any of the history's transactions.
    pub(super) fn id_of(&self, n: usize) -> u64 {
        self.history.transactions[n].id
    }
}
