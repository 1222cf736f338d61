//! Cycles in which harts wait for locks: those of the instructions that are executed again in one visit of a function that takes a lock.
//!
//! Such a function executes each of its instructions once at most if the lock is free.

use rustc_hash::FxHashMap;

/// The functions that take locks, and what was waited for in them.
#[derive(Debug, Default)]
pub struct Watched {
    /// Where the functions begin and end.
    pub ranges: Vec<(u64, u64)>,
    /// Cycles by the address to which the function returns: the critical region.
    pub regions: FxHashMap<u64, u64>,
}

impl Watched {
    /// Whether a page of instructions has some of them.
    #[must_use]
    pub fn has_page(&self, from: u64, to: u64) -> bool {
        self.ranges.iter().any(|range| range.0 < to && from < range.1)
    }
}

/// Bytes of a function that are told apart; what lies behind them is not watched.
const LONGEST: u64 = 1024;

/// A hart in such a function.
#[derive(Debug, Default)]
pub struct Visit {
    /// Cycles in which the hart has waited, all in all.
    pub cycles: u64,
    /// The function, and its instructions that were executed in this visit: one bit for 16 bits of it.
    function: u64,
    executed: [u64; (LONGEST / 128) as usize],
    region: u64,
}

impl Visit {
    /// An instruction was executed, and took so many cycles; `ra` is the register of that name after it.
    pub fn instruction(&mut self, watched: &mut Watched, pc: u64, ra: u64, cycles: u64) {
        let inside = |&&(from, to): &&(u64, u64)| from <= pc && pc < to && pc - from < LONGEST;
        let Some(&(from, _)) = watched.ranges.iter().find(inside) else { return };
        if pc == from || self.function != from {
            (self.function, self.region, self.executed) = (from, ra, Default::default());
        }
        let place = (pc - from) / 2;
        let (word, bit) = (&mut self.executed[(place / 64) as usize], 1 << (place % 64));
        if *word & bit != 0 {
            self.cycles += cycles;
            *watched.regions.entry(self.region).or_default() += cycles;
        }
        *word |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_executed_again_is_waiting() {
        let mut watched = Watched { ranges: vec![(100, 120)], ..Watched::default() };
        let mut visit = Visit::default();
        // Once through; then a loop of two instructions, twice again, and out.
        for pc in [90, 100, 104, 108, 104, 108, 104, 108, 112, 120] {
            visit.instruction(&mut watched, pc, 7, 10);
        }
        assert_eq!((visit.cycles, watched.regions.get(&7)), (40, Some(&40)));
        // Another visit, and a free lock; the function jumps to and fro.
        for pc in [100, 112, 104, 108] {
            visit.instruction(&mut watched, pc, 8, 10);
        }
        assert_eq!((visit.cycles, watched.regions.get(&8)), (40, None));
    }
}
