//! Programs of transactions, and how they are run.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::Duration;

use super::super::contend::AbortCause;
use super::super::tx_handle::{Begin, BeginError, RetryHistory, TxHandle};
use super::super::word::{Hold, Request, Word};
use super::super::{Access, DeadPublish, Facet, Identity, PublishFate, Realm, Unresolved};
use super::Table;
use super::history::{self, CELLS, Change, Deed};
use super::sync::{self, AtomicU64, Role};
use super::world::{self, Death, Killed, Process, Sabotage};
use crate::contention::Policy;
use crate::object::FileId;

/// How often a transaction is tried.
const ATTEMPTS: u32 = 6;

/// What is done to the cells. Record *n* protects cell *n*.
#[derive(Clone, Copy, Debug)]
pub enum Touch {
    /// Looks at it.
    Read(usize),
    /// Looks at it before its record is acquired, and again only if a publish has ended meanwhile.
    Glance(usize),
    /// Adds to it.
    Add(usize, u64),
    /// Makes one as another is, plus something.
    Copy(usize, usize, u64),
    /// Inserts bits into it.
    Insert(usize, u64),
    /// Waits while somebody publishes it.
    Pass(usize),
    /// Lets others go on: a switch that does not count as a preemption.
    Pause,
}

/// A part of a process's program.
#[derive(Clone, Debug)]
pub enum Job {
    /// A transaction. What it changes it acquires where it meets it.
    Eager(Vec<Touch>),
    /// A transaction that acquires what it changes when it is about to publish.
    Lazy(Vec<Touch>),
    /// One that holds softly what it looks at: it acquires firmly what it publishes, and validates what
    /// it read before and after.
    Soft(Vec<Touch>),
    /// A lazy one with a sequence number.
    Ordered(u64, Vec<Touch>),
    /// An eager one that does not wait.
    Nonblock(Vec<Touch>),
    /// A call outside of transactions.
    Single(Vec<Touch>),
    /// Done once another process has died, or ended.
    After(usize, Box<Job>),
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Slots of the realm.
    pub slots: usize,
    /// The realm's policy.
    pub policy: Policy,
    /// Waiting up to this is over at once.
    pub patience: Duration,
    /// What becomes of a publish whose process died.
    pub fate: PublishFate,
    /// What the processes do.
    pub jobs: Vec<Vec<Job>>,
    /// Their numbers, for [`Policy::OsPriority`].
    pub pids: Vec<u32>,
    /// Whose transactions are how old.
    pub clocks: Vec<u64>,
    /// A slot that seems to hold record 0 from the beginning, for writing.
    pub stray: Option<u32>,
    /// Who dies when.
    pub deaths: Vec<(usize, Death)>,
    /// Whoever meets a soft holder takes it for one of something else.
    pub all_collide: bool,
    /// What is done wrong.
    pub sabotage: Option<Sabotage>,
}

impl Scene {
    /// The first process is the oldest; there are enough slots.
    pub fn new(jobs: impl Into<Vec<Vec<Job>>>) -> Scene {
        let jobs = jobs.into();
        let count = jobs.len();
        Scene {
            slots: count,
            policy: Policy::Timestamp,
            patience: Duration::ZERO,
            fate: PublishFate::Committed,
            pids: (0..count as u32).map(|n| n + count as u32).collect(),
            clocks: (1..=count as u64).collect(),
            jobs,
            stray: None,
            deaths: Vec::new(),
            all_collide: false,
            sabotage: None,
        }
    }

    /// Under this policy, with short waits over at once where it counts turns.
    pub fn under(mut self, policy: Policy) -> Scene {
        self.policy = policy;
        self.patience = match policy {
            Policy::OsPriority | Policy::Timestamp => Duration::ZERO,
            _ => Duration::from_millis(1),
        };
        self
    }

    /// With so many slots.
    pub fn slots(mut self, slots: usize) -> Scene {
        self.slots = slots;
        self
    }

    /// With these clocks: the lowest is the oldest.
    pub fn clocks(mut self, clocks: &[u64]) -> Scene {
        self.clocks = clocks.to_vec();
        self
    }

    /// With a bit in record 0 that is nobody's.
    pub fn stray(mut self, slot: u32) -> Scene {
        self.stray = Some(slot);
        self
    }

    /// With soft holders that are taken for holders of something else.
    pub fn colliding(mut self) -> Scene {
        self.all_collide = true;
        self
    }

    /// With this done wrong.
    pub fn but(mut self, sabotage: Sabotage) -> Scene {
        self.sabotage = Some(sabotage);
        self
    }

    /// With a process that dies before a write.
    pub fn dies(mut self, process: usize, write: u32) -> Scene {
        self.deaths.push((process, Death { write, as_taker: false }));
        self
    }

    /// With a process that dies before a write, counted from when it takes over.
    pub fn dies_as_taker(mut self, process: usize, write: u32) -> Scene {
        self.deaths.push((process, Death { write, as_taker: true }));
        self
    }

    /// With publishes that are undone if their process dies.
    pub fn undoing(mut self) -> Scene {
        self.fate = PublishFate::Undone;
        self
    }

    fn process(&self, number: usize) -> Process {
        let death = self.deaths.iter().find(|d| d.0 == number).map(|d| d.1);
        Process { pid: self.pids[number], clock_ns: self.clocks[number], death }
    }

    /// Runs it once, inside of loom.
    pub fn run(&self) -> Tally {
        let processes: Vec<Process> = (0..self.jobs.len()).map(|n| self.process(n)).collect();
        world::raise(&processes, self.sabotage, self.patience);
        history::begin(self.jobs.len());
        let stage = Arc::new(Stage {
            table: Arc::new(Table::new(self.slots, CELLS, self.all_collide)),
            cells: Arc::new(std::array::from_fn(|_| AtomicU64::of(Role::Cell))),
            fate: self.fate,
            pids: self.pids.clone(),
        });
        stage.table.board().policy.store(self.policy.code(), Relaxed);
        if let Some(slot) = self.stray {
            let Request::Take(word) = Word(0).request(1 << slot, Access::Write, Hold::Firm) else {
                unreachable!()
            };
            stage.table.orec(0).store(word.0, Relaxed);
        }
        let others: Vec<_> = (1..self.jobs.len())
            .map(|number| {
                let (stage, jobs) = (Arc::clone(&stage), self.jobs[number].clone());
                loom::thread::spawn(move || live(number, &stage, &jobs))
            })
            .collect();
        let mut tally = live(0, &stage, &self.jobs[0]);
        for other in others {
            tally.add(&other.join().unwrap());
        }
        stage.assert_clean();
        history::assert_right(std::array::from_fn(|n| stage.cells[n].load(Relaxed)));
        (tally.runs, tally.commits) = (1, history::commits());
        tally
    }
}

/// What happened, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Attempts that failed.
    pub retries: u64,
    /// Transactions that were not tried again.
    pub given_up: u64,
    /// Processes that died.
    pub deaths: u64,
    /// Those of them that died while they took over.
    pub takers: u64,
}

impl Tally {
    /// Both together.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.commits += other.commits;
        self.retries += other.retries;
        self.given_up += other.given_up;
        self.deaths += other.deaths;
        self.takers += other.takers;
    }
}

/// What processes share.
struct Stage {
    table: Arc<Table>,
    cells: Arc<[AtomicU64; CELLS]>,
    fate: PublishFate,
    pids: Vec<u32>,
}

impl Stage {
    fn join(&self, pid: u32) -> Realm {
        let (cells, fate, pids) = (Arc::clone(&self.cells), self.fate, self.pids.clone());
        let resolver = move |remains: &DeadPublish| {
            let process = pids.iter().position(|&pid| pid == remains.pid).unwrap();
            Ok::<_, Unresolved>(resolve(process, &cells, fate))
        };
        Realm {
            table: Arc::clone(&self.table),
            me: Identity::new(pid, 1).word().into(),
            label: String::new(),
            home: "/".into(),
            resolver: Box::new(resolver),
            unresolved: Default::default(),
        }
    }

    /// Nothing is left of anybody, once the dead are cleared away.
    fn assert_clean(&self) {
        world::leave_process();
        let realm = self.join(self.pids.iter().max().unwrap() + 1);
        if world::somebody_died() {
            realm.sweep();
            // Cleared by one of the others, the pins on it were not.
            assert_eq!(realm.sweep(), 0, "nobody dead is left");
        }
        // A lock that a dead process has is free to take.
        let is_free = |lock: u64| Identity::from_word(lock).is_none_or(Identity::is_dead);
        for index in 0..self.table.orecs() {
            let word = Word(self.table.orec(index).load(Acquire));
            assert_eq!(word.holders(), 0, "record {index} is held");
        }
        for number in 0..self.table.slots() {
            let slot = self.table.slot(number);
            assert_eq!(slot.owner.load(SeqCst), 0, "slot {number} is taken");
            assert_eq!(slot.pins.load(SeqCst), 0, "slot {number} is pinned");
            assert!(is_free(slot.taker.load(SeqCst)), "slot {number} is being cleared");
            assert_eq!(slot.waiting_for.load(SeqCst), 0, "slot {number} waits");
        }
        let group = self.table.group(0);
        assert!(is_free(group.reserved[0].load(SeqCst)), "the groups are locked");
        world::assert_all_awake();
    }
}

/// Finishes or undoes what a dead process was publishing.
fn resolve(process: usize, cells: &[AtomicU64; CELLS], fate: PublishFate) -> PublishFate {
    let Some(deed) = history::read_journal(process) else { return PublishFate::Undone };
    if world::sabotage() == Some(Sabotage::NoJournal) {
        return PublishFate::Undone;
    }
    for &(cell, change, before) in &deed.changes {
        match fate {
            PublishFate::Committed => change.apply(&cells[cell]),
            PublishFate::Undone => change.undo(&cells[cell], before),
        }
    }
    history::resolved(process, fate);
    fate
}

/// A process's life: its program, or a part of it.
fn live(number: usize, stage: &Arc<Stage>, jobs: &[Job]) -> Tally {
    world::become_process(number);
    let realm = stage.join(stage.pids[number]);
    let life = Life { number, realm: &realm, cells: &stage.cells };
    let mut tally = Tally::default();
    let lived = catch_unwind(AssertUnwindSafe(|| {
        for job in jobs {
            life.job(job, &mut tally);
        }
        world::end_process();
    }));
    match lived {
        Err(payload) if !payload.is::<Killed>() => resume_unwind(payload),
        _ => tally,
    }
}

struct Life<'a> {
    number: usize,
    realm: &'a Realm,
    cells: &'a [AtomicU64; CELLS],
}

/// Whoever is doomed is doomed over a record that it holds, or was about to hold.
fn assert_held(handle: &TxHandle<'_>, stop: &AbortCause, held: &[u32]) {
    // Until the winner has written down who it is, it has not written down over what.
    if let AbortCause::Doomed(opponent) = stop
        && opponent.pid != 0
    {
        let over = handle.own().doomed_over.load(Relaxed);
        assert!(held.contains(&over), "doomed over {over}, which it does not hold");
    }
}

/// The facet that a record is for.
fn facet(record: usize) -> Facet<'static> {
    Facet::Page { file: FileId { dev: 1, ino: 1 }, number: record as u64 }
}

impl Life<'_> {
    fn job(&self, job: &Job, tally: &mut Tally) {
        match job {
            Job::Eager(touches) => self.transaction(touches, &Manner::default(), tally),
            Job::Lazy(touches) => {
                self.transaction(touches, &Manner { lazy: true, ..Manner::default() }, tally);
            }
            Job::Soft(touches) => {
                let manner = Manner { lazy: true, soft: true, ..Manner::default() };
                self.transaction(touches, &manner, tally);
            }
            Job::Ordered(sequence, touches) => {
                let manner = Manner { sequence: Some(*sequence), ..Manner::default() };
                self.transaction(touches, &manner, tally);
            }
            Job::Nonblock(touches) => {
                let manner = Manner { nonblock: true, ..Manner::default() };
                self.transaction(touches, &manner, tally);
            }
            Job::Single(touches) => self.single(touches),
            Job::After(process, then) => {
                world::outlive(*process);
                self.job(then, tally);
            }
        }
    }

    fn single(&self, touches: &[Touch]) {
        let facets: Vec<_> = touches
            .iter()
            .flat_map(|touch| match *touch {
                Touch::Read(cell) | Touch::Glance(cell) => vec![(facet(cell), Access::Read)],
                Touch::Add(cell, _) => vec![(facet(cell), Access::Write)],
                Touch::Insert(cell, _) => vec![(facet(cell), Access::Insert)],
                Touch::Pass(_) | Touch::Pause => Vec::new(),
                Touch::Copy(to, from, _) => {
                    vec![(facet(from), Access::Read), (facet(to), Access::Write)]
                }
            })
            .collect();
        let mut deed = Deed::begin(self.number, None);
        let done = self.realm.single(&facets, || {
            for touch in touches {
                self.look(touch, &mut deed);
            }
            self.remember(&mut deed);
            history::write_journal(deed);
            history::publishes(self.number);
            self.write_cells();
        });
        done.expect("it waits for a slot");
        history::committed(self.number);
    }

    fn transaction(&self, touches: &[Touch], manner: &Manner, tally: &mut Tally) {
        let mut again = None;
        for _ in 0..ATTEMPTS {
            match self.attempt(touches, manner, again) {
                Ok(()) => return,
                Err(next) => {
                    tally.retries += 1;
                    again = Some(next);
                    sync::sleep(Duration::ZERO);
                }
            }
        }
        tally.given_up += 1;
    }

    fn attempt(
        &self,
        touches: &[Touch],
        manner: &Manner,
        again: Option<RetryHistory>,
    ) -> Result<(), RetryHistory> {
        let how = Begin {
            again,
            sequence: manner.sequence,
            nonblock: manner.nonblock,
            soft: manner.soft,
            ..Begin::default()
        };
        let mut deed = Deed::begin(self.number, manner.sequence);
        let mut handle = match self.realm.begin(&how) {
            Ok(handle) => handle,
            // Another one had its number.
            Err(BeginError::TurnOver { .. }) => return Ok(()),
            Err(e) => panic!("{e}: whoever does not wait comes where there are enough slots"),
        };
        history::assert_new(handle.slot, handle.generation);
        let mut held = Vec::new();
        let worked = self.work(&mut handle, touches, manner, &mut deed, &mut held);
        let next = handle.again();
        let committed = match worked {
            Ok(()) if manner.soft => self.commit_validated(handle, deed),
            Ok(()) => self.commit(handle, deed, &held).is_ok(),
            Err(_) => false,
        };
        if committed { Ok(()) } else { Err(next) }
    }

    /// Everything up to the publish.
    fn work(
        &self,
        handle: &mut TxHandle<'_>,
        touches: &[Touch],
        manner: &Manner,
        deed: &mut Deed,
        held: &mut Vec<u32>,
    ) -> Result<(), AbortCause> {
        let mut acquire = |handle: &mut TxHandle<'_>, cell: usize, access| {
            held.push(cell as u32);
            let acquired = handle.acquire(&facet(cell), access).map(drop);
            acquired.inspect_err(|stop| assert_held(handle, stop, held))
        };
        for touch in touches {
            match *touch {
                Touch::Read(cell) => acquire(handle, cell, Access::Read)?,
                Touch::Glance(cell) => {
                    let ended = self.realm.publishes_ended();
                    let value = self.cells[cell].load(Relaxed);
                    acquire(handle, cell, Access::Read)?;
                    if self.realm.publishes_ended() == ended {
                        deed.reads.push((cell, value, world::stamp()));
                        continue;
                    }
                }
                Touch::Add(cell, _) if manner.lazy => acquire(handle, cell, Access::Read)?,
                Touch::Add(cell, _) => acquire(handle, cell, Access::Write)?,
                Touch::Copy(to, from, _) => {
                    acquire(handle, from, Access::Read)?;
                    if !manner.lazy {
                        acquire(handle, to, Access::Write)?;
                    }
                }
                Touch::Insert(cell, _) if !manner.lazy => acquire(handle, cell, Access::Insert)?,
                Touch::Pass(cell) => _ = handle.pass(&facet(cell), Access::Read)?,
                Touch::Insert(..) | Touch::Pause => {}
            }
            self.look(touch, deed);
        }
        if manner.lazy {
            handle.prepare()?;
            for (cell, change, _) in &deed.changes {
                acquire(handle, *cell, change.access())?;
            }
        }
        Ok(())
    }

    /// Reads what a touch reads, and notes what it will change.
    fn look(&self, touch: &Touch, deed: &mut Deed) {
        let mut read = |cell: usize| {
            let value = self.cells[cell].load(Relaxed);
            deed.reads.push((cell, value, world::stamp()));
            value
        };
        let change = match *touch {
            Touch::Read(cell) | Touch::Glance(cell) => {
                read(cell);
                return;
            }
            Touch::Pass(_) => return,
            Touch::Pause => return sync::sleep(Duration::ZERO),
            Touch::Add(cell, value) => (cell, Change::Set(read(cell) + value)),
            Touch::Copy(to, from, value) => (to, Change::Set(read(from) + value)),
            Touch::Insert(cell, bits) => (cell, Change::Insert(bits)),
        };
        deed.changes.push((change.0, change.1, 0));
    }

    /// Notes what there is before it is changed, for whoever has to undo it.
    fn remember(&self, deed: &mut Deed) {
        for (cell, _, before) in &mut deed.changes {
            *before = self.cells[*cell].load(Relaxed);
        }
    }

    fn commit(
        &self,
        mut handle: TxHandle<'_>,
        mut deed: Deed,
        held: &[u32],
    ) -> Result<(), AbortCause> {
        self.remember(&mut deed);
        let reads_only = deed.changes.is_empty();
        history::write_journal(deed);
        let published = if reads_only { Ok(()) } else { handle.publish() };
        let published = published.inspect_err(|stop| assert_held(&handle, stop, held));
        let ended = published.and_then(|()| {
            if !reads_only {
                history::publishes(self.number);
                self.write_cells();
            }
            handle.finish()
        });
        match ended {
            Ok(()) => history::committed(self.number),
            Err(_) => history::drop_journal(self.number),
        }
        ended
    }

    /// Whether what was read is there still. What a transaction has written itself it need not ask.
    fn is_valid(&self, deed: &Deed, written: bool) -> bool {
        let own = |cell: usize| written && deed.changes.iter().any(|change| change.0 == cell);
        let mut reads = deed.reads.iter().filter(|read| !own(read.0));
        reads.all(|&(cell, value, _)| self.cells[cell].load(Relaxed) == value)
    }

    /// A commit as commands do it: no hold protects what was read. Whether it was valid.
    fn commit_validated(&self, mut handle: TxHandle<'_>, mut deed: Deed) -> bool {
        self.remember(&mut deed);
        // When it read does not count, only that it is there still.
        for (_, _, at) in &mut deed.reads {
            *at = 0;
        }
        history::write_journal(deed.clone());
        let mut valid = handle.publish().is_ok() && self.is_valid(&deed, false);
        if valid && !deed.changes.is_empty() {
            history::publishes(self.number);
            self.write_cells();
            valid = self.is_valid(&deed, true);
            if !valid {
                for (cell, change, before) in &deed.changes {
                    change.undo(&self.cells[*cell], *before);
                }
            }
        }
        let done = valid && handle.finish().is_ok();
        match done {
            true => history::committed(self.number),
            false => history::drop_journal(self.number),
        }
        done
    }

    /// Does what the journal says.
    fn write_cells(&self) {
        let deed = history::read_journal(self.number).expect("it is there");
        for (cell, change, _) in deed.changes {
            change.apply(&self.cells[cell]);
            history::wrote(self.number, cell);
        }
        history::wrote_all(self.number);
    }
}

/// How a transaction goes about it.
#[derive(Clone, Debug, Default)]
struct Manner {
    lazy: bool,
    soft: bool,
    nonblock: bool,
    sequence: Option<u64>,
}
