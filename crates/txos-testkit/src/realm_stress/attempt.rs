//! A transaction's life: acquire, keep changes private, publish by redo record and stores.

use std::collections::BTreeMap;

use txos_engine::TxId;
use txos_engine::realm::{AbortCause, Access, BeginError, Facet, RetryHistory, TxHandle};

use crate::history::Op;
use crate::random::Random;

use super::cells::{self, Cells, ROOM};
use super::points;
use super::record::{self, Entry, Journal};

/// Why an attempt did not commit.
#[derive(Debug)]
pub enum End {
    /// The realm stopped it.
    Stopped(AbortCause),
    /// A cell is full.
    Full,
    /// It was to.
    GaveUp,
}

impl From<AbortCause> for End {
    fn from(stop: AbortCause) -> End {
        End::Stopped(stop)
    }
}

/// A name for a transaction.
#[must_use]
pub fn name(random: &mut Random) -> TxId {
    TxId::from_bits(random.bits())
}

/// A transaction that runs.
#[derive(Debug)]
pub struct Attempt<'r> {
    handle: TxHandle<'r>,
    cells: &'r Cells,
    id: TxId,
    /// Of each cell what is to be put behind its values.
    added: BTreeMap<usize, Vec<u64>>,
    /// What is to be set on boards.
    set: BTreeMap<u64, u64>,
    /// It reads without acquiring, to see whether that is found out.
    pub careless: bool,
    /// What is to be acquired at the end.
    later: Vec<(Facet<'static>, Access)>,
}

impl<'r> Attempt<'r> {
    /// With a handle that was begun under this name.
    #[must_use]
    pub fn new(handle: TxHandle<'r>, cells: &'r Cells, id: TxId) -> Attempt<'r> {
        points::reach("begun");
        Attempt {
            handle,
            cells,
            id,
            added: BTreeMap::new(),
            set: BTreeMap::new(),
            careless: false,
            later: Vec::new(),
        }
    }

    /// Acquires something.
    ///
    /// # Errors
    /// The realm's.
    pub fn acquire(&mut self, facet: &Facet<'_>, access: Access) -> Result<bool, AbortCause> {
        let waited = self.handle.acquire(facet, access)?;
        points::reach("acquired");
        Ok(waited)
    }

    /// Whether another one has won.
    #[must_use]
    pub fn is_doomed(&self) -> bool {
        self.handle.is_doomed()
    }

    /// Carries out an operation, and fills in what it finds. What is written is acquired at the end
    /// if it is `lazy`.
    ///
    /// # Errors
    /// [`End`].
    pub fn carry_out(&mut self, op: &mut Op, lazy: bool) -> Result<(), End> {
        let key = op.key();
        let (facet, cell) = facet_of(key);
        let writes = op.written().is_some();
        let access = match (writes, cell) {
            (false, _) => Access::Read,
            (true, Some(_)) => Access::Write,
            (true, None) => Access::Insert,
        };
        if lazy && writes {
            self.later.push((facet, access));
        } else if writes || !self.careless {
            self.acquire(&facet, access)?;
        }
        match (op, cell) {
            (Op::Append { value, .. } | Op::Write { value, .. }, Some(cell)) => {
                let added = self.added.entry(cell).or_default();
                added.push(*value);
                let before = self.cells.load(self.cells.length_at(cell));
                if before + added.len() as u64 > ROOM as u64 {
                    return Err(End::Full);
                }
            }
            (Op::Append { value, .. } | Op::Write { value, .. }, None) => {
                self.set.insert(board_word(self.cells, key), *value);
            }
            (Op::ReadList { values, .. }, Some(cell)) => *values = self.read(cell),
            (Op::ReadRegister { value, .. }, Some(cell)) => {
                *value = self.read(cell).last().copied().unwrap_or(0);
            }
            (Op::ReadRegister { value, .. }, None) => {
                let word = board_word(self.cells, key);
                *value = self.set.get(&word).copied().unwrap_or_else(|| self.cells.load(word));
            }
            (Op::ReadList { .. }, None) => {}
        }
        Ok(())
    }

    /// What is in a cell for this transaction.
    #[must_use]
    pub fn read(&self, cell: usize) -> Vec<u64> {
        let mut values = self.cells.read(cell);
        values.extend(self.added.get(&cell).into_iter().flatten());
        values
    }

    /// Sets a cell's only value.
    ///
    /// # Errors
    /// The realm's.
    pub fn set(&mut self, cell: usize, value: u64) -> Result<(), AbortCause> {
        self.acquire(&cells::facet(cell), Access::Write)?;
        let at = self.cells.length_at(cell);
        self.set.extend([(at, 1), (at + 1, value)]);
        Ok(())
    }

    /// A cell's only value, or what it was set to; 0 if there is none.
    ///
    /// # Errors
    /// The realm's.
    pub fn get(&mut self, cell: usize) -> Result<u64, AbortCause> {
        self.acquire(&cells::facet(cell), Access::Read)?;
        let word = self.cells.length_at(cell) + 1;
        Ok(self.set.get(&word).copied().unwrap_or_else(|| self.cells.load(word)))
    }

    /// Acquires what is left to be, and makes everything visible. `early`: the record is written
    /// before nobody can doom it any more.
    ///
    /// # Errors
    /// [`End`].
    pub fn publish(&mut self, journal: &mut Journal, early: bool) -> Result<(), End> {
        self.handle.prepare()?;
        points::reach("prepared");
        for (facet, access) in std::mem::take(&mut self.later) {
            self.acquire(&facet, access)?;
        }
        let entries = self.entries()?;
        if early {
            journal.write(self.id, &entries);
            points::reach("early");
        }
        self.handle.publish()?;
        points::reach("publish");
        if !early {
            journal.write(self.id, &entries);
        }
        points::reach("record");
        record::apply(self.cells, &entries, "word");
        points::reach("words");
        Ok(())
    }

    /// The words that are to be set: of each cell the values, then the length.
    fn entries(&self) -> Result<Vec<Entry>, End> {
        let mut entries: Vec<Entry> = Vec::new();
        for (cell, added) in &self.added {
            let at = self.cells.length_at(*cell);
            let before = self.cells.load(at);
            let after = before + added.len() as u64;
            if after > ROOM as u64 {
                return Err(End::Full);
            }
            entries.extend((at + before + 1..).zip(added.iter().copied()));
            entries.push((at, after));
        }
        entries.extend(self.set.iter().map(|(word, value)| (*word, *value)));
        Ok(entries)
    }

    /// Whether it changes anything.
    #[must_use]
    pub fn writes(&self) -> bool {
        !(self.added.is_empty() && self.set.is_empty())
    }

    /// Commits.
    ///
    /// # Errors
    /// The realm's, of one that did not publish.
    pub fn finish(self) -> Result<(), AbortCause> {
        self.handle.finish()
    }

    /// Ends without effect.
    #[must_use]
    pub fn abort(self) -> RetryHistory {
        self.handle.abort()
    }
}

/// What guards a key, and its cell, if it is none of a board.
fn facet_of(key: u64) -> (Facet<'static>, Option<usize>) {
    if key >> 40 == 0 {
        (cells::facet(key as usize), Some(key as usize))
    } else {
        (cells::board_facet((key >> 20) as usize & 0xf_ffff), None)
    }
}

fn board_word(cells: &Cells, key: u64) -> u64 {
    cells.board_at((key >> 20) as usize & 0xf_ffff, key as usize & 0xf_ffff)
}

/// Carries out an operation on its own, as a call outside of any transaction. The last word that
/// it sets makes it visible, so it is whole whenever its process dies. `false`: the cell is full.
///
/// # Errors
/// The realm's.
pub fn single(
    realm: &txos_engine::realm::Realm,
    cells: &Cells,
    ops: &mut [Op],
) -> Result<bool, BeginError> {
    let access = |op: &Op| match (op.written(), facet_of(op.key()).1) {
        (None, _) => Access::Read,
        (Some(_), Some(_)) => Access::Write,
        (Some(_), None) => Access::Insert,
    };
    let touches: Vec<_> = ops.iter().map(|op| (facet_of(op.key()).0, access(op))).collect();
    realm.single(&touches, || {
        points::reach("publish");
        ops.iter_mut().all(|op| call(cells, op))
    })
}

fn call(cells: &Cells, op: &mut Op) -> bool {
    let key = op.key();
    match (op, facet_of(key).1) {
        (Op::Append { value, .. } | Op::Write { value, .. }, Some(cell)) => {
            let at = cells.length_at(cell);
            let length = cells.load(at);
            if length >= ROOM as u64 {
                return false;
            }
            cells.store(at + 1 + length, *value);
            points::reach("word");
            cells.store(at, length + 1);
        }
        (Op::Append { value, .. } | Op::Write { value, .. }, None) => {
            cells.store(board_word(cells, key), *value);
        }
        (Op::ReadList { values, .. }, Some(cell)) => *values = cells.read(cell),
        (Op::ReadRegister { value, .. }, Some(cell)) => {
            *value = cells.read(cell).last().copied().unwrap_or(0);
        }
        (Op::ReadRegister { value, .. }, None) => *value = cells.load(board_word(cells, key)),
        (Op::ReadList { .. }, None) => {}
    }
    true
}
