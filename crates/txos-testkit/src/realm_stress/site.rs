//! The test's side: a directory with a realm, cells and histories; workers in it; and whether what
//! they left is sound.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use txos_engine::realm::{Access, Begin, Realm};

use crate::history::log::{Writer, read_all};
use crate::history::report::Summary;
use crate::history::{History, Op, Outcome, check};
use crate::wait::PATIENCE;
use crate::{Done, Invocation, Lab, Running};

use super::cells::{self, BOARD_ROOM, BOARDS, Cells};
use super::{plan, record, slots, worker};

/// The place.
#[derive(Debug)]
pub struct Site {
    dir: PathBuf,
    program: PathBuf,
    /// The cells.
    pub cells: Arc<Cells>,
    /// The test's own door to the realm.
    pub realm: Realm,
    workers: AtomicU32,
}

impl Site {
    /// In a directory of a lab, with the worker's program and a number of cells.
    ///
    /// # Panics
    /// If it can't be made.
    #[must_use]
    pub fn new(lab: &Lab, name: &str, program: &str, cells: usize) -> Site {
        let dir = lab.dir().join(name);
        std::fs::create_dir_all(dir.join("history")).expect("making a site");
        let cells = Arc::new(Cells::create(&dir, cells));
        let realm = match worker::join(&dir, 0, record::settle(Arc::clone(&cells))) {
            Ok(realm) => realm,
            Err(error) => panic!("{error}"),
        };
        Site { dir, program: PathBuf::from(program), cells, realm, workers: AtomicU32::new(1) }
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A worker with a number of its own; the mode is still to be added.
    #[must_use]
    pub fn worker(&self) -> Invocation {
        let number = self.workers.fetch_add(1, Ordering::Relaxed);
        Invocation::new(&self.program).arg(&self.dir).arg(number.to_string())
    }

    /// A worker that carries out steps.
    #[must_use]
    pub fn steps<S: AsRef<std::ffi::OsStr>>(
        &self,
        steps: impl IntoIterator<Item = S>,
    ) -> Invocation {
        self.worker().arg("steps").args(steps)
    }

    /// Waits until so many of the budget's transactions were run.
    ///
    /// # Panics
    /// If for a long time none is.
    pub fn wait_for_progress(&self, enough: u64) {
        let now = || self.cells.progress().load(Ordering::Relaxed);
        let (mut before, mut since) = (now(), Instant::now());
        while now() < enough {
            if now() > before {
                (before, since) = (now(), Instant::now());
            }
            assert!(
                since.elapsed() < PATIENCE,
                "no progress beyond {before}\n{:#?}\n{:#?}",
                self.realm.members(),
                self.realm.statistics()
            );
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Nothing is held, nobody is there, once what the dead left is swept.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn expect_idle(&self) {
        self.realm.sweep();
        let statistics = self.realm.statistics();
        assert_eq!(statistics.held, 0, "something is held: {statistics:?}");
        assert_eq!(self.realm.members(), [], "somebody is there");
        for slot in slots::read(self.realm.path()) {
            let left = (slot.owner, slot.waiting_for, slot.pins, slot.state());
            assert_eq!(left, (0, 0, 0, "idle"), "{slot:?}");
        }
    }

    /// Checks what the workers have logged against each other and against the cells.
    ///
    /// # Panics
    /// If anything is wrong.
    #[must_use]
    #[track_caller]
    pub fn expect_sound(&self) -> Summary {
        self.read_everything();
        let mut history = match read_all(&self.dir.join("history")) {
            Ok(history) => history,
            Err(error) => panic!("{error}"),
        };
        for cell in (0..self.cells.count()).filter(|cell| !cells::is_list(*cell)) {
            history.orders.insert(cell as u64, self.cells.read(cell));
        }
        self.expect_whole_or_absent(&history);
        let report = check(&history);
        report.expect_clean();
        report.summary
    }

    /// One transaction that reads all there is, so that every list is read to its end.
    fn read_everything(&self) {
        let mut log = Writer::create(&self.dir.join("history"), 0).expect("a history");
        let id = log.invoke(&[]).expect("writing the history");
        let mut handle = self.realm.begin(&Begin::default()).expect("a slot");
        let mut ops: Vec<Op> = (0..self.cells.count()).map(plan::read).collect();
        for (cell, op) in ops.iter_mut().enumerate() {
            handle.acquire(&cells::facet(cell), Access::Read).expect("nobody is in the way");
            let found = self.cells.read(cell);
            match op {
                Op::ReadList { values, .. } => *values = found,
                Op::ReadRegister { value, .. } => *value = found.last().copied().unwrap_or(0),
                _ => {}
            }
        }
        for board in 0..BOARDS {
            handle.acquire(&cells::board_facet(board), Access::Read).expect("nobody is in the way");
            ops.extend((0..BOARD_ROOM).map(|of| Op::ReadRegister {
                key: cells::board_key(board, of),
                value: self.cells.read_board(board, of),
            }));
        }
        handle.finish().expect("nobody is in the way");
        log.complete(id, Outcome::Committed, &ops).expect("writing the history");
    }

    /// Of what was written to cells: all of a committed transaction is there, nothing of an aborted
    /// one, and of one that was killed all or nothing.
    #[track_caller]
    fn expect_whole_or_absent(&self, history: &History) {
        let there: HashSet<(u64, u64)> = (0..self.cells.count())
            .flat_map(|cell| self.cells.read(cell).into_iter().map(move |v| (cell as u64, v)))
            .collect();
        for transaction in &history.transactions {
            let is_there: Vec<bool> = transaction
                .ops
                .iter()
                .filter(|op| op.key() < self.cells.count() as u64)
                .filter_map(|op| op.written().map(|value| there.contains(&(op.key(), value))))
                .collect();
            let sound = match transaction.outcome {
                Outcome::Committed => is_there.iter().all(|is| *is),
                Outcome::Aborted => is_there.iter().all(|is| !*is),
                Outcome::Indeterminate => is_there.windows(2).all(|pair| pair[0] == pair[1]),
            };
            assert!(sound, "which of its writes are there: {is_there:?}; {transaction:?}");
        }
    }
}

/// What a worker said, each `NAME VALUE`.
#[must_use]
pub fn counts(done: &Done) -> BTreeMap<String, u64> {
    let text = done.text();
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// The state of a process: `R`, `S`, `T`…
#[must_use]
pub fn state_of(running: &Running) -> Option<char> {
    let path = format!("/proc/{}/stat", running.pid().as_raw_nonzero());
    let stat = std::fs::read_to_string(path).ok()?;
    stat.get(stat.rfind(')')? + 2..)?.chars().next()
}
