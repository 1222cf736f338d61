//! The forest-fire model of growing graphs (Leskovec, Kleinberg, Faloutsos: "Graphs over time", KDD 2005, §4.2).
//!
//! Each new vertex *v* picks an ambassador at random and links to it. From there a fire spreads: at each burned vertex
//! *w* it draws *x* of *w*'s links out and *y* of its links in that are not burned yet, *x* geometrically distributed
//! with mean *p* / (1 - *p*), *y* with mean *rp* / (1 - *rp*). *v* links to all that burned. Directions are only
//! for the growth: the graph is undirected.

use std::collections::BTreeSet;

use crate::chance::Chance;

/// What graph is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forest {
    /// Number of vertices.
    pub vertices: u32,
    /// The chance to burn on along a link out, in millionths: *p*.
    pub forward: u32,
    /// The chance to burn on along a link in, in millionths: *rp*.
    pub backward: u32,
    /// The most vertices that one fire burns.
    pub burned_max: u32,
    /// Begins the random numbers.
    pub seed: u64,
}

impl Forest {
    /// About the size and density of the autonomous systems' graph in the paper: 10,900 vertices, 31,180 edges.
    pub fn sparse(seed: u64) -> Self {
        Forest { vertices: 10_900, forward: 460_000, backward: 150_000, burned_max: 10_900, seed }
    }

    /// About the size and density of the paper's dense one: 5,000 vertices, 3,174,615 edges.
    pub fn dense(seed: u64) -> Self {
        Forest { vertices: 5_000, forward: 700_000, backward: 300_000, burned_max: 1_100, seed }
    }

    /// The neighbours of each vertex, ascending.
    pub fn grow(&self) -> Vec<Vec<u32>> {
        let mut chance = Chance::new(self.seed);
        let count = self.vertices as usize;
        let (mut out, mut into) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        let mut burned_by = vec![0_u32; count];
        for v in 1..self.vertices {
            let mut burned = vec![chance.below(v)];
            burned_by[burned[0] as usize] = v;
            let mut at = 0;
            while let Some(&w) = burned.get(at).filter(|_| burned.len() < self.burned_max as usize)
            {
                at += 1;
                for (links, goes_on) in [(&out, self.forward), (&into, self.backward)] {
                    let links: &[u32] = &links[w as usize];
                    while chance.millionths(goes_on) {
                        let Some(next) = unburned(links, &burned_by, v, &mut chance) else { break };
                        burned_by[next as usize] = v;
                        burned.push(next);
                    }
                }
            }
            for &w in &burned {
                into[w as usize].push(v);
            }
            out[v as usize] = burned;
        }
        out.into_iter()
            .zip(into)
            .map(|(out, into)| {
                out.into_iter().chain(into).collect::<BTreeSet<u32>>().into_iter().collect()
            })
            .collect()
    }
}

/// One of the links at random that has not burned in the fire of *v*.
fn unburned(links: &[u32], burned_by: &[u32], v: u32, chance: &mut Chance) -> Option<u32> {
    /// How often it is tried with one of all links.
    const TRIES: u32 = 16;
    let is_free = |n: u32| burned_by[n as usize] != v;
    for _ in 0..TRIES {
        let n = *links.get(chance.below(links.len() as u32) as usize)?;
        if is_free(n) {
            return Some(n);
        }
    }
    let free: Vec<u32> = links.iter().copied().filter(|&n| is_free(n)).collect();
    free.get(chance.below(free.len() as u32) as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges, and the most that one vertex has.
    fn measure(graph: &[Vec<u32>]) -> (usize, usize) {
        let degrees = graph.iter().map(Vec::len);
        (degrees.clone().sum::<usize>() / 2, degrees.max().unwrap_or(0))
    }

    #[test]
    fn graphs_are_undirected_connected_and_the_same_for_a_seed() {
        let small = Forest { vertices: 500, ..Forest::sparse(7) };
        let graph = small.grow();
        assert_eq!(graph, small.grow());
        assert_ne!(graph, Forest { seed: 8, ..small }.grow());
        for (v, neighbours) in graph.iter().enumerate() {
            assert!(neighbours.is_sorted_by(|a, b| a < b) && !neighbours.contains(&(v as u32)));
            for &n in neighbours {
                assert!(graph[n as usize].contains(&(v as u32)), "{v} {n}");
            }
        }
        let mut reached = BTreeSet::from([0]);
        let mut next = vec![0_u32];
        while let Some(v) = next.pop() {
            next.extend(graph[v as usize].iter().filter(|&&n| reached.insert(n)));
        }
        assert_eq!(reached.len(), 500);
    }

    #[test]
    fn sizes_are_about_the_papers() {
        let (edges, most) = measure(&Forest::sparse(1).grow());
        assert!((25_000..40_000).contains(&edges), "{edges}");
        // A few vertices have most of the links, as in the graphs that the model is made after.
        assert!(most > 100, "{most}");
        let (edges, _) = measure(&Forest::dense(1).grow());
        assert!((2_500_000..4_000_000).contains(&edges), "{edges}");
    }
}
