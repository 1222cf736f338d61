//! Caches and their coherence: for each hart split first-level caches and a second-level cache that includes them; MESI, by
//! snooping. Only time is modelled: data is in [`super::ram::Ram`].

use super::mmu::Kind;

/// Sizes in bytes and latencies in cycles; the defaults are the paper's.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Config {
    /// Size of each first-level cache.
    pub l1_bytes: usize,
    /// Lines of a set of it.
    pub l1_ways: usize,
    /// Cost of a miss there.
    pub l1_miss: u64,
    /// Size of the second-level cache.
    pub l2_bytes: usize,
    /// Lines of a set of it.
    pub l2_ways: usize,
    /// Cost of a miss there: from memory or from another cache.
    pub l2_miss: u64,
    /// Cost of a write to a line that others share.
    pub upgrade: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            l1_bytes: 16 << 10,
            l1_ways: 4,
            l1_miss: 16,
            l2_bytes: 4 << 20,
            l2_ways: 8,
            l2_miss: 200,
            upgrade: 200,
        }
    }
}

/// Bytes in a line.
pub const LINE: u64 = 64;

/// State of a line, as its lowest bits in the table.
const INVALID: u64 = 0;
const SHARED: u64 = 1;
const EXCLUSIVE: u64 = 2;
const MODIFIED: u64 = 3;

/// A table of lines: the number of the line above its state; in each set the line used last comes first.
#[derive(Debug)]
struct Table {
    lines: Vec<u64>,
    ways: usize,
    sets: usize,
}

impl Table {
    fn new(bytes: usize, ways: usize) -> Table {
        let sets = (bytes / LINE as usize / ways).next_power_of_two();
        Table { lines: vec![INVALID; sets * ways], ways, sets }
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        let start = (line as usize & (self.sets - 1)) * self.ways;
        &mut self.lines[start..start + self.ways]
    }

    /// State of a line, which is then the one used last.
    #[inline]
    fn touch(&mut self, line: u64) -> u64 {
        let set = self.set(line);
        let found = |entry: &u64| entry >> 2 == line && entry & 3 != INVALID;
        let Some(way) = set.iter().position(found) else { return INVALID };
        let entry = set[way];
        for i in (0..way).rev() {
            set[i + 1] = set[i];
        }
        set[0] = entry;
        entry & 3
    }

    fn state(&mut self, line: u64, new: u64) {
        for entry in self.set(line) {
            if *entry >> 2 == line && *entry & 3 != INVALID {
                *entry = line << 2 | new;
            }
        }
    }

    fn look(&mut self, line: u64) -> u64 {
        self.set(line).iter().find(|e| **e >> 2 == line).map_or(INVALID, |e| e & 3)
    }

    /// Puts a line in; gives the one that had to leave.
    fn insert(&mut self, line: u64, state: u64) -> Option<u64> {
        let set = self.set(line);
        set.rotate_right(1);
        let out = set[0];
        set[0] = line << 2 | state;
        (out & 3 != INVALID).then_some(out >> 2)
    }
}

#[derive(Debug)]
struct Own {
    code: Table,
    data: Table,
    second: Table,
    last_code: u64,
    /// The line accessed last, and whether it may be written without asking.
    last_data: (u64, bool),
}

/// Counters.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Stats {
    /// Accesses to data.
    pub data: u64,
    /// Misses of the first level.
    pub l1_misses: u64,
    /// Misses of the second level.
    pub l2_misses: u64,
    /// Transfers between caches and upgrades: traffic of the bus for coherence.
    pub coherence: u64,
}

/// All caches.
#[derive(Debug)]
pub struct Caches {
    config: Config,
    own: Vec<Own>,
    /// What was counted.
    pub stats: Stats,
}

impl Caches {
    /// Empty caches of so many harts.
    #[must_use]
    pub fn new(config: Config, harts: usize) -> Caches {
        let own = (0..harts)
            .map(|_| Own {
                code: Table::new(config.l1_bytes, config.l1_ways),
                data: Table::new(config.l1_bytes, config.l1_ways),
                second: Table::new(config.l2_bytes, config.l2_ways),
                last_code: u64::MAX,
                last_data: (u64::MAX, false),
            })
            .collect();
        Caches { config, own, stats: Stats::default() }
    }

    /// An access of a hart to a physical address: the cycles that it takes beyond the first.
    #[inline]
    pub fn access(&mut self, hart: usize, kind: Kind, at: u64) -> u64 {
        let line = at / LINE;
        let own = &mut self.own[hart];
        if kind == Kind::Fetch {
            if own.last_code == line {
                return 0;
            }
        } else {
            self.stats.data += 1;
            if own.last_data.0 == line && (kind == Kind::Read || own.last_data.1) {
                return 0;
            }
        }
        self.miss(hart, kind, line)
    }

    fn miss(&mut self, hart: usize, kind: Kind, line: u64) -> u64 {
        let own = &mut self.own[hart];
        let first = if kind == Kind::Fetch { &mut own.code } else { &mut own.data };
        let hit = first.touch(line);
        let write = kind == Kind::Write;
        let mut cycles = 0;
        if hit == INVALID {
            self.stats.l1_misses += 1;
            cycles += self.config.l1_miss;
            first.insert(line, SHARED);
        }
        let state = own.second.touch(line);
        let new = match (state, write) {
            (INVALID, _) => {
                self.stats.l2_misses += 1;
                cycles += self.config.l2_miss;
                let shared = self.snoop(hart, line, write);
                let new = match (write, shared) {
                    (true, _) => MODIFIED,
                    (_, true) => SHARED,
                    _ => EXCLUSIVE,
                };
                let own = &mut self.own[hart];
                if let Some(out) = own.second.insert(line, new) {
                    // The second level includes the first.
                    own.data.state(out, INVALID);
                    own.code.state(out, INVALID);
                }
                new
            }
            (SHARED, true) => {
                cycles += self.config.upgrade;
                self.stats.coherence += 1;
                self.snoop(hart, line, true);
                MODIFIED
            }
            (_, true) => MODIFIED,
            (state, false) => state,
        };
        let own = &mut self.own[hart];
        if new != state {
            own.second.state(line, new);
        }
        if kind == Kind::Fetch {
            own.last_code = line;
        } else {
            own.last_data = (line, new == MODIFIED);
        }
        cycles
    }

    /// What the others do: give a line up, or share it. Gives whether any had it.
    fn snoop(&mut self, hart: usize, line: u64, write: bool) -> bool {
        let mut had = false;
        for (other, own) in self.own.iter_mut().enumerate() {
            if other == hart {
                continue;
            }
            let state = own.second.look(line);
            if state == INVALID {
                continue;
            }
            had = true;
            self.stats.coherence += 1;
            if write {
                own.second.state(line, INVALID);
                own.data.state(line, INVALID);
                own.code.state(line, INVALID);
            } else {
                own.second.state(line, SHARED);
            }
            if own.last_data.0 == line {
                own.last_data = (u64::MAX, false);
            }
            if write && own.last_code == line {
                own.last_code = u64::MAX;
            }
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_others_write_is_fetched_again() {
        let mut caches = Caches::new(Config::default(), 2);
        let at = 0x8000_0000;
        assert_eq!(caches.access(0, Kind::Read, at), 216);
        assert_eq!(caches.access(0, Kind::Read, at + 8), 0);
        // Exclusive: written without asking.
        assert_eq!(caches.access(0, Kind::Write, at), 0);
        assert_eq!(caches.access(1, Kind::Write, at), 216);
        assert_eq!(caches.access(0, Kind::Read, at), 216);
        // Shared now.
        assert_eq!(caches.access(1, Kind::Write, at), 200);
        assert_eq!(caches.stats.coherence, 4);
    }
}
