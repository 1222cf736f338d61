//! The worker's command line: `realm-worker DIR NUMBER MODE …`, in a directory made by
//! [`crate::realm_stress::Site`].
//!
//! | mode | |
//! |---|---|
//! | `mix LANES SEED THREADS` | random transactions, as many as the budget in the cells allows; logged |
//! | `careless LANES SEED THREADS` | the same, but what is only read is not acquired |
//! | `forgetful LANES SEED THREADS` | the same, but what a dead one published is never finished |
//! | `long CELLS`, `short CELLS SEED YIELDS NICE` | see [`super::starve`] |
//! | `steps STEP…` | see [`super::steps`] |
//! | `spin` | begins and aborts, for ever |
//!
//! What it has to say is on standard output, one `NAME VALUE` a line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use txos_engine::contention::backoff;
use txos_engine::realm::{
    AbortCause, Begin, BeginError, DeadPublish, PublishFate, Realm, ResolvePublish, RetryHistory,
    WaitDecision,
};

use crate::history::log::Writer;
use crate::history::{Op, Outcome};
use crate::random::Random;

use super::attempt::{self, Attempt, End};
use super::cells::Cells;
use super::plan::{Lanes, Plan, operations};
use super::record::{self, Journal};
use super::{points, starve, steps};

/// How long to wait for whoever won before trying again.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// What the numbers of a worker's threads differ by.
const THREAD: u32 = 1 << 20;

/// A worker, in its site; or one of its threads.
#[derive(Debug)]
pub struct Worker {
    /// Its number.
    pub number: u32,
    /// The realm.
    pub realm: Arc<Realm>,
    /// The cells.
    pub cells: Arc<Cells>,
    /// Its redo records.
    pub journal: Journal,
    dir: PathBuf,
    careless: bool,
    counts: BTreeMap<String, u64>,
}

/// Runs a worker; gives its exit status.
///
/// # Panics
/// If its arguments are wrong, or anything is not as it should be.
pub fn main() -> u8 {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().expect("an argument");
    let (dir, number, mode) = (PathBuf::from(next()), parse(&next()), next());
    let rest: Vec<String> = args.collect();
    let mut worker = match Worker::new(&dir, number as u32, mode == "forgetful") {
        Ok(worker) => worker,
        Err(error) => {
            eprintln!("{error}");
            return 1;
        }
    };
    match (mode.as_str(), rest.as_slice()) {
        ("mix" | "careless" | "forgetful", [lanes, seed, threads]) => {
            worker.careless = mode == "careless";
            let threads: Vec<Worker> =
                (1..parse(threads)).map(|n| worker.thread(n as u32)).collect();
            let (lanes, seed) = (parse(lanes) as usize, parse(seed));
            std::thread::scope(|scope| {
                let run = |mut thread: Worker| {
                    let seed = seed ^ u64::from(thread.number);
                    scope.spawn(move || {
                        thread.mix(lanes, seed);
                        thread.counts
                    })
                };
                let threads: Vec<_> = threads.into_iter().map(run).collect();
                worker.mix(lanes, seed);
                for thread in threads {
                    for (what, count) in thread.join().expect("a thread's end") {
                        worker.count(&what, count);
                    }
                }
            });
        }
        ("long", [cells]) => starve::long(&mut worker, parse(cells) as usize),
        ("short", [cells, seed, yields, nice]) => {
            let nice = nice.parse().expect("a nice value");
            rustix::process::setpriority_process(None, nice).expect("setting the nice value");
            let yields = parse(yields) as u32;
            starve::short(&mut worker, parse(cells) as usize, parse(seed), yields);
        }
        ("spin", []) => worker.spin(),
        ("steps", steps) => return steps::run(&mut worker, steps),
        _ => panic!("{mode}: no such mode, or too few or too many arguments"),
    }
    worker.tell();
    0
}

/// A number.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn parse(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Joins a site's realm.
///
/// # Errors
/// The realm's.
pub fn join(
    dir: &Path,
    number: u32,
    settle: Box<dyn ResolvePublish>,
) -> txos_engine::Result<Realm> {
    let label = format!("worker {number}");
    Realm::join(&dir.join("realm"), &label, &record::path(dir, number), settle)
}

impl Worker {
    fn new(dir: &Path, number: u32, forgetful: bool) -> txos_engine::Result<Worker> {
        let cells = Arc::new(Cells::open(dir));
        let journal = Journal::create(&record::path(dir, number));
        let settle = if forgetful {
            Box::new(|_: &DeadPublish| Ok(PublishFate::Undone))
        } else {
            record::settle(Arc::clone(&cells))
        };
        let realm = join(dir, number, settle)?;
        let (dir, counts) = (dir.to_owned(), BTreeMap::new());
        Ok(Worker { number, realm: Arc::new(realm), cells, journal, dir, careless: false, counts })
    }

    /// A thread of it, with a number, a history and redo records of its own.
    fn thread(&self, thread: u32) -> Worker {
        let journal = record::of_thread(&record::path(&self.dir, self.number), thread);
        Worker {
            number: self.number + THREAD * thread,
            realm: Arc::clone(&self.realm),
            cells: Arc::clone(&self.cells),
            journal: Journal::create(&journal),
            dir: self.dir.clone(),
            careless: self.careless,
            counts: BTreeMap::new(),
        }
    }

    /// Counts something.
    pub fn count(&mut self, what: &str, number: u64) {
        *self.counts.entry(what.to_owned()).or_default() += number;
    }

    fn tell(&self) {
        for (what, count) in &self.counts {
            println!("{what} {count}");
        }
    }

    fn spin(&self) {
        self.cells.progress().fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let how = Begin::default();
        while let Ok(handle) = self.realm.begin(&how) {
            let _ = handle.abort();
        }
    }

    fn mix(&mut self, lanes: usize, seed: u64) {
        let mut log = Writer::create(&self.dir.join("history"), self.number).expect("a history");
        let mut random = Random::new(seed);
        let mut lanes = Lanes::new(lanes);
        let mut values = u64::from(self.number) << 32;
        while self.cells.take() {
            let plan = Plan::random(&mut random, lanes.count(), self.number as usize);
            let mut again = None;
            loop {
                lanes.look(&self.cells);
                let mut ops = operations(&plan.steps, &lanes, self.number as usize, || {
                    values += 1;
                    values
                });
                let id = log.invoke(&ops).expect("writing the history");
                let ended = if plan.single {
                    self.single(&mut ops)
                } else {
                    self.attempt(&plan, &mut ops, again, &mut random)
                };
                let (outcome, next) = match ended {
                    Ok(()) => (Outcome::Committed, None),
                    Err(next) => (Outcome::Aborted, next),
                };
                log.complete(id, outcome, &ops).expect("writing the history");
                if next.is_none() {
                    break;
                }
                again = next;
            }
            self.cells.progress().fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn single(&mut self, ops: &mut [Op]) -> Result<(), Option<RetryHistory>> {
        let done = attempt::single(&self.realm, &self.cells, ops).expect("a single call waits");
        // The realm counts both.
        self.count("commits", 1);
        self.count(if done { "singles" } else { "full" }, 1);
        done.then_some(()).ok_or(None)
    }

    /// One attempt. `Err(Some)`: it is to be tried again.
    fn attempt(
        &mut self,
        plan: &Plan,
        ops: &mut [Op],
        again: Option<RetryHistory>,
        random: &mut Random,
    ) -> Result<(), Option<RetryHistory>> {
        let id = attempt::name(random);
        let how = Begin { id: Some(id), nonblock: plan.nonblock, again, ..Begin::default() };
        let handle = match self.realm.begin(&how) {
            Ok(handle) => handle,
            Err(BeginError::Full) if plan.nonblock => return Err(None),
            Err(error) => panic!("{error}"),
        };
        let impatient = plan.impatient;
        let handle = handle.attended(move |_| {
            points::reach("wait");
            if impatient { WaitDecision::CallOff } else { WaitDecision::Wait }
        });
        let mut attempt = Attempt::new(handle, &self.cells, id);
        attempt.careless = self.careless;
        let end = match carry_out(&mut attempt, plan, ops, &mut self.journal) {
            Ok(()) => match attempt.finish() {
                Ok(()) => {
                    self.count("commits", 1);
                    return Ok(());
                }
                // It did not publish, and has ended.
                Err(_) => {
                    self.count("aborts", 1);
                    return Err(None);
                }
            },
            Err(end) => end,
        };
        let again = attempt.abort();
        self.count("aborts", 1);
        self.count(reason(&end), 1);
        match end {
            End::Stopped(AbortCause::Doomed(_)) => {}
            End::Stopped(AbortCause::Lost(opponent)) => self.realm.wait_for(&opponent, PATIENCE),
            End::Stopped(_) | End::Full | End::GaveUp => return Err(None),
        }
        std::thread::sleep(backoff::before_restart(again.restarts, random.bits()));
        Err(Some(again))
    }
}

fn reason(end: &End) -> &'static str {
    match end {
        End::Stopped(AbortCause::Doomed(_)) => "doomed",
        End::Stopped(AbortCause::Lost(_)) => "lost",
        End::Stopped(AbortCause::Busy(_)) => "busy",
        End::Stopped(AbortCause::CalledOff(_)) => "called-off",
        End::Stopped(_) => "stopped",
        End::Full => "full",
        End::GaveUp => "gave-up",
    }
}

fn carry_out(
    attempt: &mut Attempt<'_>,
    plan: &Plan,
    ops: &mut [Op],
    journal: &mut Journal,
) -> Result<(), End> {
    for op in ops {
        attempt.carry_out(op, plan.lazy)?;
        if plan.slow {
            (0..10).for_each(|_| std::thread::yield_now());
        }
    }
    if plan.give_up {
        return Err(End::GaveUp);
    }
    // One that changed nothing may end without publishing, or go through it.
    if attempt.writes() || plan.early {
        attempt.publish(journal, plan.early)?;
    }
    Ok(())
}
