//! The hash of the whole graph: a Merkle tree over the vertices, kept in memory.

use sha2::{Digest, Sha256};

use crate::vertex::Hash;

/// A binary tree; the root is at 1, the children of *n* at 2*n* and 2*n* + 1. Leaves that are missing are zeros.
#[derive(Clone, Debug)]
pub struct Merkle {
    nodes: Vec<Hash>,
    leaves: usize,
}

impl Merkle {
    /// Of all leaves.
    pub fn new(leaves: &[Hash]) -> Self {
        let width = leaves.len().next_power_of_two().max(1);
        let mut nodes = vec![Hash::default(); 2 * width];
        nodes[width..width + leaves.len()].copy_from_slice(leaves);
        let mut tree = Merkle { nodes, leaves: width };
        for node in (1..width).rev() {
            tree.join(node);
        }
        tree
    }

    fn join(&mut self, node: usize) {
        let mut hash = Sha256::new();
        hash.update(self.nodes[2 * node]);
        hash.update(self.nodes[2 * node + 1]);
        self.nodes[node] = hash.finalize().into();
    }

    /// Changes leaves. Of one that is named twice the last hash counts.
    pub fn set(&mut self, changed: impl IntoIterator<Item = (u32, Hash)>) {
        let mut nodes: Vec<usize> = Vec::new();
        for (leaf, hash) in changed {
            let node = self.leaves + leaf as usize;
            if let Some(place) = self.nodes.get_mut(node) {
                *place = hash;
                nodes.push(node / 2);
            }
        }
        // Level by level, each node once.
        while !nodes.is_empty() {
            nodes.sort_unstable();
            nodes.dedup();
            nodes.retain(|&node| node > 0);
            for &node in &nodes {
                self.join(node);
            }
            nodes.iter_mut().for_each(|node| *node /= 2);
        }
    }

    /// The hash of all.
    pub fn root(&self) -> Hash {
        self.nodes[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_give_what_a_new_tree_has() {
        for count in [1_usize, 2, 3, 7, 8, 9] {
            let mut leaves: Vec<Hash> = (0..count).map(|n| [n as u8; 32]).collect();
            let mut tree = Merkle::new(&leaves);
            let before = tree.root();
            for leaf in [0, count - 1] {
                leaves[leaf] = [99; 32];
            }
            tree.set([(0, [98; 32]), (0, [99; 32]), (count as u32 - 1, [99; 32])]);
            assert_eq!(tree.root(), Merkle::new(&leaves).root());
            assert_ne!(tree.root(), before);
        }
    }
}
