//! Transactions that meet: what each process of a workload does, again and again, until its time is
//! over.
//!
//! # Invariants
//!
//! - It ends in time whatever the policy: whoever waits looks at the clock and calls it off, pauses
//!   end with the span, and what is not committed by then counts as restarts but not as a commit.
//! - A transaction that fails begins again as a single call does ([`Realm::single`]): it waits for
//!   whoever it gave way to, pauses, and keeps its age and work.
//! - What is measured works: where a workload has values (the counter, the accounts), they are
//!   read and written under what was acquired, and checked. Values live in a file beside the realm.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use txos_engine::contention::backoff;
use txos_engine::object::FileId;
use txos_engine::realm::{
    AbortCause, Access, Begin, Facet, Realm, RetryHistory, TxHandle, WaitDecision,
};

use crate::crew::{self, Span};
use crate::work;

/// Simulated work with each facet, in nanoseconds.
pub const WORK_NS: u64 = 2_000;
/// How long to wait for whoever won before trying again; as `Realm::single` does.
const PATIENCE: Duration = Duration::from_millis(100);

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Everybody adds one to the same counter.
    Counter,
    /// Names come and go in 64 directories; some are listed.
    Directories,
    /// One long reader among short writers.
    LongReader,
    /// Everybody reads and writes much.
    Install,
    /// Transfers between accounts, and an auditor.
    Bank,
    /// As `Install`, smaller; half of the processes are more important.
    Priorities,
}

/// Accounts of the bank.
const ACCOUNTS: u64 = 1_000;

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 6] = [
        Workload::Counter,
        Workload::Directories,
        Workload::LongReader,
        Workload::Install,
        Workload::Bank,
        Workload::Priorities,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Counter => "counter",
            Workload::Directories => "directories",
            Workload::LongReader => "long reader",
            Workload::Install => "install against install",
            Workload::Bank => "bank",
            Workload::Priorities => "priorities",
        }
    }

    /// The one of a name.
    pub fn named(name: &str) -> Result<Workload, &'static str> {
        Workload::ALL.into_iter().find(|w| w.name() == name).ok_or("there is no such workload")
    }

    /// What its transactions do.
    pub fn about(self) -> &'static str {
        match self {
            Workload::Counter => "each adds one to the same facet",
            Workload::Directories => {
                "each adds or removes 1 to 4 names in each of 1 to 3 of 64 directories; one in ten \
                 lists one before"
            }
            Workload::LongReader => {
                "one process reads 2,000 of 10,000 facets in a transaction, the others write 1 to 3 \
                 of them"
            }
            Workload::Install => "each reads 500 and writes 100 of 5,000 facets, in any order",
            Workload::Bank => {
                "each moves an amount between two of 1,000 accounts; one process reads all of them"
            }
            Workload::Priorities => {
                "each reads 50 and writes 20 of 1,000 facets, in any order; every other process is at \
                 nice 19"
            }
        }
    }

    /// What is different about some of its processes.
    pub fn special(self) -> Option<&'static str> {
        match self {
            Workload::LongReader => Some("reader"),
            Workload::Bank => Some("auditor"),
            Workload::Priorities => Some("important half"),
            _ => None,
        }
    }

    fn is_special(self, member: u64) -> bool {
        match self {
            Workload::Priorities => member.is_multiple_of(2),
            _ => self.special().is_some() && member == 0,
        }
    }

    fn has_values(self) -> bool {
        matches!(self, Workload::Counter | Workload::Bank)
    }

    /// What the next transaction touches, in this order.
    fn plan(self, special: bool, random: &mut Rng) -> Vec<(Key, Access)> {
        let pages =
            |picked: Vec<u64>, access| picked.into_iter().map(move |n| (Key::Page(n), access));
        match self {
            Workload::Counter => vec![(Key::Page(0), Access::Write)],
            Workload::Directories => {
                let mut plan = Vec::new();
                if random.u64(..10) == 0 {
                    plan.push((Key::Listing(random.u64(..64)), Access::Read));
                }
                let count = 1 + random.u64(..3) as usize;
                for dir in pick(random, count, 64) {
                    for _ in 0..=random.u64(..4) {
                        plan.push((Key::Entry(dir, random.u64(..100)), Access::Write));
                    }
                    plan.push((Key::Listing(dir), Access::Insert));
                }
                plan
            }
            Workload::LongReader if special => {
                pages(pick(random, 2_000, 10_000), Access::Read).collect()
            }
            Workload::LongReader => {
                let count = 1 + random.u64(..3) as usize;
                pages(pick(random, count, 10_000), Access::Write).collect()
            }
            Workload::Install => mixed(random, 500, 100, 5_000),
            Workload::Bank if special => pages((0..ACCOUNTS).collect(), Access::Read).collect(),
            Workload::Bank => pages(pick(random, 2, ACCOUNTS), Access::Write).collect(),
            Workload::Priorities => mixed(random, 50, 20, 1_000),
        }
    }
}

/// `k` different numbers below `n`, in random order. Few of many cost little, which a look at each would not.
fn pick(random: &mut Rng, k: usize, n: u64) -> Vec<u64> {
    let mut seen = std::collections::HashSet::new();
    std::iter::repeat_with(|| random.u64(..n))
        .filter(|&one| seen.insert(one))
        .take(k.min(n as usize))
        .collect()
}

/// So many reads and writes of `n` facets, in random order.
fn mixed(random: &mut Rng, reads: usize, writes: usize, n: u64) -> Vec<(Key, Access)> {
    let picked = pick(random, reads + writes, n);
    let all = (reads + writes) as u64;
    let written: std::collections::HashSet<u64> = pick(random, writes, all).into_iter().collect();
    let access = |at| if written.contains(&at) { Access::Write } else { Access::Read };
    (0..).zip(picked).map(|(at, page)| (Key::Page(page), access(at))).collect()
}

/// A facet of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Page(u64),
    Entry(u64, u64),
    Listing(u64),
}

impl Key {
    fn acquire(self, handle: &mut TxHandle<'_>, access: Access) -> Result<(), AbortCause> {
        let dir = |number| FileId { dev: 0xfd01, ino: 100 + number };
        let taken = match self {
            Key::Page(number) => handle
                .acquire(&Facet::Page { file: FileId { dev: 0xfd01, ino: 1 }, number }, access),
            Key::Entry(number, name) => {
                let name = name.to_le_bytes();
                handle.acquire(&Facet::Entry { dir: dir(number), name: &name }, access)
            }
            Key::Listing(number) => handle.acquire(&Facet::Listing(dir(number)), access),
        };
        taken.map(drop)
    }
}

/// Numbers in a file, all zero at first.
struct Values(File);

impl Values {
    fn open(dir: &Path) -> io::Result<Values> {
        let path = dir.join("values");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() < 8 * ACCOUNTS {
            file.set_len(8 * ACCOUNTS)?;
        }
        Ok(Values(file))
    }

    fn get(&self, number: u64) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 8 * number)?;
        Ok(i64::from_le_bytes(bytes))
    }

    fn set(&self, number: u64, value: i64) -> io::Result<()> {
        self.0.write_all_at(&value.to_le_bytes(), 8 * number)
    }
}

/// The number that the counter shows in the end.
pub fn counted(dir: &Path) -> io::Result<i64> {
    Values::open(dir)?.get(0)
}

/// What became of a process's transactions.
#[derive(Debug, Default)]
struct Tally {
    commits: u64,
    restarts: u64,
    worst: u32,
    wrong: u64,
}

/// `WORKLOAD DIR MEMBER`: plays one process's part and prints its tally.
pub fn main(workload: Workload, dir: &Path, member: u64) -> io::Result<()> {
    let special = workload.is_special(member);
    if workload == Workload::Priorities && !special {
        rustix::process::setpriority_process(None, 19)?;
    }
    let realm = crew::join(dir)?;
    let values = workload.has_values().then(|| Values::open(dir)).transpose()?;
    let span = crew::enter()?;
    let mut random = Rng::with_seed(span.start ^ member << 56);
    let mut tally = Tally::default();
    while work::now() < span.end {
        let plan = workload.plan(special, &mut random);
        transact(&realm, &plan, values.as_ref(), span, member, &mut tally)?;
    }
    println!("commits {}\nrestarts {}\nworst {}", tally.commits, tally.restarts, tally.worst);
    println!("wrong {}\nspecial {}", tally.wrong, u8::from(special));
    Ok(())
}

/// One transaction, tried until it commits or the time is over.
fn transact(
    realm: &Realm,
    plan: &[(Key, Access)],
    values: Option<&Values>,
    span: Span,
    member: u64,
    tally: &mut Tally,
) -> io::Result<()> {
    let left = || Duration::from_nanos(span.end.saturating_sub(work::now()));
    let mut how = Begin::default();
    let mut attempts = 0;
    while !left().is_zero() {
        attempts += 1;
        tally.worst = tally.worst.max(attempts);
        let Ok(handle) = realm.begin(&how) else { continue };
        let mut handle = handle.attended(|_| {
            if left().is_zero() { WaitDecision::CallOff } else { WaitDecision::Wait }
        });
        let mut seen = Vec::new();
        match prepare(&mut handle, plan, values, &mut seen)? {
            Ok(()) => {
                publish(plan, values, &seen, tally)?;
                // Publishing can't be doomed.
                let _ = handle.finish();
                tally.commits += 1;
                return Ok(());
            }
            Err(stop) => {
                let again = handle.abort();
                how.again = Some(again);
                if !matches!(stop, AbortCause::CalledOff(_)) {
                    tally.restarts += 1;
                }
                pause(realm, &stop, again, member, left);
            }
        }
    }
    Ok(())
}

/// As [`Realm::single`], but not beyond the end.
fn pause(
    realm: &Realm,
    stop: &AbortCause,
    again: RetryHistory,
    member: u64,
    left: impl Fn() -> Duration,
) {
    if let AbortCause::Lost(opponent) = stop {
        realm.wait_for(opponent, PATIENCE.min(left()));
    }
    let seed = member << 48 ^ again.start_ns;
    std::thread::sleep(backoff::before_restart(again.restarts, seed).min(left()));
}

/// Acquires everything, with some work after each, up to where it can't be doomed any more.
fn prepare(
    handle: &mut TxHandle<'_>,
    plan: &[(Key, Access)],
    values: Option<&Values>,
    seen: &mut Vec<i64>,
) -> io::Result<Result<(), AbortCause>> {
    for &(key, access) in plan {
        if let Err(stop) = key.acquire(handle, access) {
            return Ok(Err(stop));
        }
        if let (Some(values), Key::Page(number)) = (values, key) {
            seen.push(values.get(number)?);
        }
        spin(WORK_NS);
    }
    Ok(handle.publish())
}

/// Writes what was changed: one more on the counter, one moved from the first account to the second.
/// Who only read looks whether the sum is right.
fn publish(
    plan: &[(Key, Access)],
    values: Option<&Values>,
    seen: &[i64],
    tally: &mut Tally,
) -> io::Result<()> {
    if plan.iter().any(|(_, access)| *access != Access::Read) {
        spin(WORK_NS);
    }
    let Some(values) = values else { return Ok(()) };
    match (plan, seen) {
        ([(Key::Page(one), _)], [value]) => values.set(*one, value + 1),
        ([(Key::Page(from), _), (Key::Page(to), _)], [a, b]) => {
            values.set(*from, a - 1)?;
            values.set(*to, b + 1)
        }
        _ => {
            tally.wrong += u64::from(seen.iter().sum::<i64>() != 0);
            Ok(())
        }
    }
}

fn spin(ns: u64) {
    let end = work::now() + ns;
    while work::now() < end {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_touch_what_they_say() {
        let mut random = Rng::with_seed(1);
        let count = |plan: &[(Key, Access)], access| plan.iter().filter(|s| s.1 == access).count();
        let plan = Workload::Install.plan(false, &mut random);
        assert_eq!((count(&plan, Access::Read), count(&plan, Access::Write)), (500, 100));
        let plan = Workload::LongReader.plan(true, &mut random);
        assert_eq!(count(&plan, Access::Read), 2_000);
        let plan = Workload::Bank.plan(true, &mut random);
        assert_eq!(count(&plan, Access::Read), 1_000);
        let plan = Workload::Bank.plan(false, &mut random);
        assert_eq!(count(&plan, Access::Write), 2);
        for _ in 0..100 {
            let plan = Workload::Directories.plan(false, &mut random);
            assert!((1..=3).contains(&count(&plan, Access::Insert)));
            assert!((1..=12).contains(&count(&plan, Access::Write)));
        }
    }

    #[test]
    fn a_part_is_played_and_adds_up() {
        let dir = std::env::temp_dir().join(format!("txos-bench-play-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let realm = crew::join(&dir).unwrap();
        let values = Values::open(&dir).unwrap();
        let start = work::now();
        let span = Span { start, end: start + 60_000_000_000 };
        let mut tally = Tally::default();
        let mut random = Rng::with_seed(3);
        for special in [false, true] {
            let plan = Workload::Bank.plan(special, &mut random);
            transact(&realm, &plan, Some(&values), span, 0, &mut tally).unwrap();
        }
        assert_eq!((tally.commits, tally.restarts, tally.worst, tally.wrong), (2, 0, 1, 0));
        values.set(7, 1000).unwrap();
        let plan = Workload::Bank.plan(true, &mut random);
        transact(&realm, &plan, Some(&values), span, 0, &mut tally).unwrap();
        assert_eq!(tally.wrong, 1, "a sum that is wrong is seen");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
