//! What a random transaction is going to do, known before it begins. Each attempt is a transaction of
//! its own to the history, so it gets values of its own.

use crate::history::Op;
use crate::random::Random;

use super::cells::{self, BOARD_ROOM, BOARDS, Cells, ROOM};

/// How many registers to either side of its own a worker reads on a board.
const NEAR: usize = 4;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads the cell of a lane.
    Read(usize),
    /// Appends to it, if it is a list, or writes it.
    Write(usize),
    /// Reads the registers of some workers on a board: those with numbers near its own.
    ReadBoard(usize),
    /// Writes its own, which commutes with others' doing so.
    WriteBoard(usize),
}

/// A transaction to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it does.
    pub steps: Vec<Step>,
    /// It is a single call; then it has one step.
    pub single: bool,
    /// It acquires what it writes only when it is about to publish.
    pub lazy: bool,
    /// The redo record is written before it begins to publish.
    pub early: bool,
    /// It changes its mind at the end.
    pub give_up: bool,
    /// It does not wait.
    pub nonblock: bool,
    /// It waits, but calls it off when it is told so.
    pub impatient: bool,
    /// It pauses between its steps, so that others meet it.
    pub slow: bool,
}

impl Plan {
    /// A random one over a number of lanes, for a worker.
    #[must_use]
    pub fn random(random: &mut Random, lanes: usize, worker: usize) -> Plan {
        let single = random.below(8) == 0;
        let count = if single { 1 } else { 1 + random.below(8) };
        let steps = (0..count).map(|_| step(random, lanes, worker)).collect();
        let mut one_in = |n| random.below(n) == 0;
        Plan {
            steps,
            single,
            lazy: one_in(3),
            early: one_in(2),
            give_up: one_in(40),
            nonblock: one_in(25),
            impatient: one_in(25),
            slow: one_in(16),
        }
    }
}

fn step(random: &mut Random, lanes: usize, worker: usize) -> Step {
    // Half of all at a quarter of the lanes.
    let among = if random.below(2) == 0 { lanes.div_ceil(4) } else { lanes };
    let lane = random.below(among as u64) as usize;
    let board = random.below(BOARDS as u64) as usize;
    match random.below(20) {
        0 => Step::ReadBoard(board),
        1 | 2 if worker < BOARD_ROOM => Step::WriteBoard(board),
        3..=10 => Step::Read(lane),
        _ => Step::Write(lane),
    }
}

/// How far each lane is filled.
#[derive(Clone, Debug)]
pub struct Lanes(Vec<usize>);

impl Lanes {
    /// A number of lanes, none of which is known to be filled.
    #[must_use]
    pub fn new(count: usize) -> Lanes {
        Lanes((0..count).collect())
    }

    /// The number of lanes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The lane's first cell that is not known to be full.
    #[must_use]
    pub fn cell(&self, lane: usize) -> usize {
        self.0[lane]
    }

    /// Looks for lanes whose cells are full by now. That may be old as soon as it is known; to write
    /// to a full cell is given up.
    pub fn look(&mut self, cells: &Cells) {
        let count = self.0.len();
        for cell in &mut self.0 {
            while cells.load(cells.length_at(*cell)) >= ROOM as u64 && *cell + count < cells.count()
            {
                *cell += count;
            }
        }
    }
}

/// The operations of an attempt: what its reads find is filled in later. `value` gives values that
/// nobody else has.
pub fn operations(
    steps: &[Step],
    lanes: &Lanes,
    worker: usize,
    mut value: impl FnMut() -> u64,
) -> Vec<Op> {
    let mut ops = Vec::new();
    for step in steps {
        match *step {
            Step::Read(lane) => ops.push(read(lanes.cell(lane))),
            Step::Write(lane) => {
                let (cell, value) = (lanes.cell(lane), value());
                let key = cell as u64;
                let list = cells::is_list(cell);
                ops.push(if list { Op::Append { key, value } } else { Op::Write { key, value } });
            }
            Step::ReadBoard(board) => {
                let first = worker.min(BOARD_ROOM).saturating_sub(NEAR);
                let of = (first..BOARD_ROOM).take(2 * NEAR);
                ops.extend(
                    of.map(|of| Op::ReadRegister { key: cells::board_key(board, of), value: 0 }),
                );
            }
            Step::WriteBoard(board) => {
                ops.push(Op::Write { key: cells::board_key(board, worker), value: value() });
            }
        }
    }
    ops
}

/// A read of a cell.
#[must_use]
pub fn read(cell: usize) -> Op {
    let key = cell as u64;
    if cells::is_list(cell) {
        Op::ReadList { key, values: Vec::new() }
    } else {
        Op::ReadRegister { key, value: 0 }
    }
}
