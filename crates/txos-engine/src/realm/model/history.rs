//! What the transactions of a run did, and whether that is right.
//!
//! # Invariants
//!
//! - A transaction is written down before it publishes, so of one whose process dies it is known
//!   what it would have done. Whether it did it is known from whoever asked the journal; if nobody
//!   did, both is allowed, as far as what others read and the cells at the end agree with it.

use std::cell::RefCell;

use super::super::{Access, PublishFate};
use super::sync::AtomicU64;
use super::world;
use std::sync::atomic::Ordering::Relaxed;

/// Cells of the tiny database.
pub const CELLS: usize = 2;

/// What a transaction does to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this value.
    Set(u64),
    /// It has these bits, besides others.
    Insert(u64),
}

impl Change {
    /// How the cell's record is acquired.
    pub fn access(self) -> Access {
        match self {
            Change::Set(_) => Access::Write,
            Change::Insert(_) => Access::Insert,
        }
    }

    /// Does it.
    pub fn apply(self, cell: &AtomicU64) {
        match self {
            Change::Set(value) => cell.store(value, Relaxed),
            Change::Insert(bits) => drop(cell.fetch_or(bits, Relaxed)),
        }
    }

    /// Puts back what was there before.
    pub fn undo(self, cell: &AtomicU64, before: u64) {
        match self {
            Change::Set(_) => cell.store(before, Relaxed),
            Change::Insert(bits) => drop(cell.fetch_and(!bits, Relaxed)),
        }
    }

    fn on(self, value: u64) -> u64 {
        match self {
            Change::Set(value) => value,
            Change::Insert(bits) => value | bits,
        }
    }
}

/// A transaction, as far as it has come.
#[derive(Clone, Debug)]
pub struct Deed {
    /// Whose it is.
    pub process: usize,
    /// Its place in a sequence.
    pub sequence: Option<u64>,
    /// When it began to begin.
    pub began: u64,
    /// Cells that it read, what was there, and when.
    pub reads: Vec<(usize, u64, u64)>,
    /// What it does, and what was there before.
    pub changes: Vec<(usize, Change, u64)>,
    /// When it changed which cell.
    pub writes: Vec<(usize, u64)>,
    /// From when to when nobody else might touch what it changes.
    pub published: Option<(u64, u64)>,
    /// When it was known to have ended.
    pub ended: Option<u64>,
    /// What is known of its fate.
    fate: Option<PublishFate>,
}

impl Deed {
    /// A transaction that begins now.
    pub fn begin(process: usize, sequence: Option<u64>) -> Deed {
        Deed {
            process,
            sequence,
            began: world::stamp(),
            reads: Vec::new(),
            changes: Vec::new(),
            writes: Vec::new(),
            published: None,
            ended: None,
            fate: None,
        }
    }

    fn touches(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.reads.iter().map(|&(cell, _, at)| (cell, at)).chain(self.writes.iter().copied())
    }

    fn inserts_into(&self, cell: usize) -> bool {
        self.changes.iter().any(|c| c.0 == cell && c.1.access() == Access::Insert)
    }
}

/// What happened in a run.
#[derive(Default)]
struct History {
    done: Vec<Deed>,
    /// What each process is about to publish, or publishes.
    pending: Vec<Option<Deed>>,
    /// Slots and generations that there have been.
    generations: Vec<(u32, u64)>,
}

thread_local! {
    static HISTORY: RefCell<History> = RefCell::default();
}

/// Begins a run.
pub fn begin(processes: usize) {
    HISTORY.set(History { pending: vec![None; processes], ..History::default() });
}

/// A transaction has begun: no other one had its slot and generation.
pub fn assert_new(slot: u32, generation: u64) {
    HISTORY.with_borrow_mut(|history| {
        let place = (slot, generation);
        assert!(!history.generations.contains(&place), "generation {generation} again");
        history.generations.push(place);
    });
}

fn with_pending<R>(process: usize, look: impl FnOnce(&mut Option<Deed>) -> R) -> R {
    HISTORY.with_borrow_mut(|history| look(&mut history.pending[process]))
}

/// A process is about to publish: its journal says what.
pub fn write_journal(deed: Deed) {
    with_pending(deed.process, |pending| *pending = Some(deed));
}

/// It does not publish after all.
pub fn drop_journal(process: usize) {
    with_pending(process, Option::take);
}

/// It publishes from now on.
pub fn publishes(process: usize) {
    let now = world::stamp();
    with_pending(process, |deed| deed.as_mut().unwrap().published = Some((now, u64::MAX)));
}

/// It changed a cell.
pub fn wrote(process: usize, cell: usize) {
    let now = world::stamp();
    with_pending(process, |deed| deed.as_mut().unwrap().writes.push((cell, now)));
}

/// It has written all that it changes.
pub fn wrote_all(process: usize) {
    let now = world::stamp();
    with_pending(process, |deed| {
        if let Some((_, to)) = &mut deed.as_mut().unwrap().published {
            *to = now;
        }
    });
}

/// It has committed.
pub fn committed(process: usize) {
    let now = world::stamp();
    HISTORY.with_borrow_mut(|history| {
        let mut deed = history.pending[process].take().unwrap();
        deed.ended = Some(now);
        deed.fate = Some(PublishFate::Committed);
        history.done.push(deed);
    });
}

/// What the journal of a process that died while it published says.
pub fn read_journal(process: usize) -> Option<Deed> {
    with_pending(process, |deed| deed.clone())
}

/// Somebody who read the journal did what it says.
pub fn resolved(process: usize, fate: PublishFate) {
    let now = world::stamp();
    with_pending(process, |deed| {
        let Some(deed) = deed else { return };
        assert!(deed.fate.is_none_or(|before| before == fate), "two fates: {deed:?}");
        deed.fate = Some(fate);
        if let Some((_, to)) = &mut deed.published {
            *to = now;
        }
    });
}

/// How many committed.
pub fn commits() -> u64 {
    HISTORY.with_borrow(|history| history.done.len() as u64)
}

/// All is as it should be, with these values at the end.
pub fn assert_right(cells: [u64; CELLS]) {
    HISTORY.with_borrow(|history| {
        let left =
            || history.pending.iter().flatten().filter(|d| d.fate != Some(PublishFate::Undone));
        let (known, open): (Vec<&Deed>, Vec<&Deed>) =
            history.done.iter().chain(left()).partition(|deed| deed.fate.is_some());
        assert_nobody_intrudes(&known);
        assert_in_order(&known);
        let some = (0..1 << open.len()).any(|set: u32| {
            let chosen = open.iter().enumerate().filter(|(n, _)| set & 1 << n != 0);
            let mut all: Vec<&Deed> = known.iter().copied().chain(chosen.map(|c| *c.1)).collect();
            fits(&mut all, [0; CELLS], cells)
        });
        assert!(some, "no serial order fits {cells:?}: {known:?}, or perhaps {open:?}");
    });
}

/// Nobody who committed touched what another one was publishing.
fn assert_nobody_intrudes(known: &[&Deed]) {
    for deed in known {
        let Some((from, to)) = deed.published else { continue };
        for (cell, _, _) in &deed.changes {
            for other in known.iter().filter(|o| !std::ptr::eq(**o, *deed)) {
                let commute = deed.inserts_into(*cell) && other.inserts_into(*cell);
                let touched = other.touches().any(|(c, at)| c == *cell && from < at && at < to);
                assert!(commute || !touched, "{other:?} touched what {deed:?} was publishing");
            }
        }
    }
}

/// Ordered ones published one after the other.
fn assert_in_order(known: &[&Deed]) {
    let when = |deed: &&Deed| Some((deed.sequence?, deed.published?));
    let mut ordered: Vec<_> = known.iter().filter_map(when).collect();
    ordered.sort_unstable();
    for pair in ordered.windows(2) {
        assert!(pair[0].1.1 < pair[1].1.0, "out of order: {known:?}");
    }
}

/// Whether the rest of the transactions fit some serial order from here on.
fn fits(rest: &mut Vec<&Deed>, cells: [u64; CELLS], last: [u64; CELLS]) -> bool {
    if rest.is_empty() {
        return cells == last;
    }
    (0..rest.len()).any(|n| {
        let next = rest.swap_remove(n);
        let not_late = rest.iter().all(|other| other.ended.is_none_or(|end| end > next.began));
        let saw = next.reads.iter().all(|&(cell, value, _)| cells[cell] == value);
        let mut after = cells;
        for &(cell, change, _) in &next.changes {
            after[cell] = change.on(after[cell]);
        }
        let found = not_late && saw && fits(rest, after, last);
        rest.push(next);
        let end = rest.len() - 1;
        rest.swap(n, end);
        found
    })
}

/// A checker that never objects finds nothing.
#[test]
fn wrong_histories_are_seen() {
    let deed = |began, ended, reads: &[(usize, u64)], changes: &[(usize, u64)]| Deed {
        process: 0,
        sequence: None,
        began,
        reads: reads.iter().map(|&(cell, value)| (cell, value, began)).collect(),
        changes: changes.iter().map(|&(cell, value)| (cell, Change::Set(value), 0)).collect(),
        writes: Vec::new(),
        published: None,
        ended: Some(ended),
        fate: Some(PublishFate::Committed),
    };
    let right = |deeds: &[Deed], last| fits(&mut deeds.iter().collect(), [0; CELLS], last);
    // A lost update.
    let add = deed(1, 5, &[(0, 0)], &[(0, 1)]);
    assert!(!right(&[add.clone(), add.clone()], [1, 0]));
    assert!(right(&[add.clone(), deed(2, 6, &[(0, 1)], &[(0, 2)])], [2, 0]));
    // Write skew.
    let skew = [deed(1, 5, &[(0, 0)], &[(1, 1)]), deed(2, 6, &[(1, 0)], &[(0, 1)])];
    assert!(!right(&skew, [1, 1]));
    // Serializable, but the reader began after the writer had ended.
    assert!(right(&[add.clone(), deed(4, 6, &[(0, 0)], &[])], [1, 0]));
    assert!(!right(&[add, deed(6, 7, &[(0, 0)], &[])], [1, 0]));
}
