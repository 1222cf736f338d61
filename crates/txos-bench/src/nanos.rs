//! What the operations of a realm cost one process that meets nobody: the measuring itself.
//!
//! Run as a process of its own, kept on one processor, many times over; each time it prints one
//! figure for each operation, the median of many short batches. A batch takes well under a
//! millisecond, so most are not interrupted.
//!
//! An acquisition is measured as a slope: transactions of 1 to 1,000 acquisitions, and the line
//! that fits their times best. What does not depend on the number is not in it.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::Instant;

use txos_engine::object::FileId;
use txos_engine::realm::{Access, Begin, Facet, Realm, Seed, TxHandle};

use crate::crew;
use crate::measure::Stats;
use crate::work;

/// Facets that are acquired again and again: their records stay in the caches of the processor.
const WARM: usize = 1 << 10;
/// Facets of which none is soon acquired again: as many as there are records.
const COLD: usize = 1 << 20;
/// Facets that are only looked at again and again.
const FEW: usize = 64;
/// Acquisitions in the transactions of a slope.
const SIZES: [usize; 6] = [1, 10, 100, 250, 500, 1_000];
/// Operations in a batch.
const BATCH: usize = 2_000;
/// Batches of each figure.
const BATCHES: usize = 31;

/// Names in a directory.
const NAMES: usize = 1 << 10;

/// Ordinary names, in as many directories as one wants: all of them facets of their own. The names
/// themselves stay in the caches, as that of a call that is being made does.
#[derive(Debug)]
pub struct Names {
    names: Vec<Box<[u8]>>,
    /// Of the first directory.
    first: u64,
}

impl Names {
    /// Names in the directories from this one on.
    pub fn new(first: u64) -> Self {
        const STEMS: [&str; 8] =
            ["lib", "README", "index", "config", "main", "test_case", "module", "x"];
        const ENDS: [&str; 6] = ["", ".c", ".so.1", ".html", ".py", ".conf"];
        let mut random = fastrand::Rng::with_seed(first);
        let mut pick = |from: &[&'static str]| random.choice(from).copied().unwrap_or_default();
        let mut name = |i| format!("{}-{i}{}", pick(&STEMS), pick(&ENDS)).into_bytes().into();
        Names { names: (0..NAMES).map(&mut name).collect(), first }
    }

    /// Facet number `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Facet<'_> {
        let name = self.names.get(i % NAMES).map(AsRef::as_ref).unwrap_or_default();
        Facet::Entry { dir: FileId { dev: 0xfd01, ino: self.first + (i / NAMES) as u64 }, name }
    }

    /// Bytes of a name, on average.
    pub fn mean_len(&self) -> f64 {
        self.names.iter().map(|name| name.len() as f64).sum::<f64>() / NAMES as f64
    }
}

/// Measures in the realm of a directory and prints what was found.
pub fn main(dir: &Path, cpu: usize) -> io::Result<()> {
    crew::pin(cpu);
    let realm = crew::join(dir)?;
    let span = crew::enter()?;
    // All of the mapping is touched once: how the kernel maps it is not measured.
    black_box(realm.statistics());
    let names = Names::new(1 << 40);
    let one = names.get(0);
    println!("names {}", names.mean_len());

    println!("empty {}", batch(BATCH, |_| commit(begin(&realm))));
    let begin_acquire_commit = |_| {
        let mut handle = begin(&realm);
        take(&mut handle, &one, Access::Write);
        commit(handle);
    };
    println!("one {}", batch(BATCH, begin_acquire_commit));
    let touches = [(one, Access::Write)];
    println!("single {}", batch(BATCH, |_| realm.single(&touches, || ())));
    let handle = begin(&realm);
    println!("doomed {}", batch(10 * BATCH, |_| black_box(&handle).is_doomed()));
    drop(handle);
    println!("clock {}", batch(BATCH, |_| work::now()));
    println!("memory {}", memory());

    // All of them in a row, and each only when the one before is known.
    let seed = black_box(Seed([span.start, 0x0123_4567_89ab_cdef]));
    println!("hash {}", batch(BATCH, |i| names.get(i % FEW).hash(seed)));
    let mut before = 0;
    let chained = |i: usize| {
        before = names.get((i ^ (before & 1) as usize) % FEW).hash(seed);
        before
    };
    println!("hash chained {}", batch(BATCH, chained));
    println!("in use warm {}", batch(BATCH, |i| realm.is_in_use(&names.get(i % FEW), READ)));
    let mut at = 0;
    let next = |_| {
        at += 1;
        realm.is_in_use(&names.get(at % COLD), READ)
    };
    println!("in use cold {}", batch(BATCH, next));

    for (name, access) in [("read", Access::Read), ("write", Access::Write)] {
        for (how, facets) in [("warm", WARM), ("cold", COLD)] {
            let [alone, with] = slopes(&realm, &names, facets, access);
            println!("{name} {how} alone {alone}");
            println!("{name} {how} released {with}");
        }
    }
    Ok(())
}

const READ: Access = Access::Read;

fn begin(realm: &Realm) -> TxHandle<'_> {
    match realm.begin(&Begin::default()) {
        Ok(handle) => handle,
        Err(why) => unreachable!("it waits for a place: {why}"),
    }
}

/// What the machine takes for a word at random out of as much memory as the records have, when the
/// next one is only known after it.
fn memory() -> f64 {
    // Not zeros: those the kernel would give without memory behind them.
    let words = black_box(vec![1u64; COLD]);
    let mut random = fastrand::Rng::with_seed(1);
    let mut before = 0;
    batch(BATCH, |_| {
        let at = (random.u64(..) ^ before) as usize % COLD;
        before = words.get(at).copied().unwrap_or_default();
        before
    })
}

/// Nobody else is there: a refusal would be a defect, and end the measurement.
#[inline]
fn take(handle: &mut TxHandle<'_>, facet: &Facet<'_>, access: Access) {
    if let Err(stop) = handle.acquire(facet, access) {
        unreachable!("nobody is in the way: {stop}");
    }
}

#[inline]
fn commit(handle: TxHandle<'_>) {
    if let Err(stop) = handle.finish() {
        unreachable!("nobody is in the way: {stop}");
    }
}

/// Nanoseconds of one operation: the median of the batches.
fn batch<T>(len: usize, mut operation: impl FnMut(usize) -> T) -> f64 {
    // The first warms up.
    let times: Vec<f64> = (0..=BATCHES)
        .map(|_| {
            let start = Instant::now();
            (0..len).for_each(|i| drop(black_box(operation(i))));
            nanos(start) / len as f64
        })
        .collect();
    Stats::of(times.into_iter().skip(1)).median
}

fn nanos(since: Instant) -> f64 {
    since.elapsed().as_nanos() as f64
}

/// Nanoseconds of one acquisition more in a transaction: without and with its release.
fn slopes(realm: &Realm, names: &Names, facets: usize, access: Access) -> [f64; 2] {
    let (mut alone, mut whole) = (Vec::new(), Vec::new());
    let mut at = 0;
    let mut fill = |handle: &mut TxHandle<'_>, size: usize| {
        for _ in 0..size {
            take(handle, &names.get(at % facets), access);
            at += 1;
        }
    };
    for size in SIZES {
        let times = (BATCH / size).max(1);
        let x = size as f64;
        let of = |time: f64| (x, time / times as f64);
        let (mut firsts, mut wholes) = (Vec::new(), Vec::new());
        for _ in 0..=BATCHES {
            let mut time = 0.0;
            for _ in 0..times {
                let mut handle = begin(realm);
                let start = Instant::now();
                fill(&mut handle, size);
                time += nanos(start);
                commit(handle);
            }
            firsts.push(time);
            let start = Instant::now();
            for _ in 0..times {
                let mut handle = begin(realm);
                fill(&mut handle, size);
                commit(handle);
            }
            wholes.push(nanos(start));
        }
        alone.push(of(Stats::of(firsts.into_iter().skip(1)).median));
        whole.push(of(Stats::of(wholes.into_iter().skip(1)).median));
    }
    [slope(&alone), slope(&whole)]
}

/// Of the line that fits these points best.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let both: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let square: f64 = points.iter().map(|p| (p.0 - x) * (p.0 - x)).sum();
    both / square
}

/// Commits as many transactions of ten facets as it can, over names that are its own, and prints
/// their number and the processor's time for them.
pub fn throughput(dir: &Path, member: u64) -> io::Result<()> {
    const OWN: usize = 128;
    const FACETS: usize = 10;
    crew::pin(member as usize);
    let realm = crew::join(dir)?;
    black_box(realm.statistics());
    let names = Names::new(member << 32);
    let span = crew::enter()?;
    let cpu = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let before = cpu();
    let (mut commits, mut failed, mut at) = (0u64, 0u64, 0);
    while work::now() < span.end {
        for _ in 0..50 {
            let mut handle = begin(&realm);
            let ready = (0..FACETS).try_for_each(|i| {
                let facet = names.get((at + i) % OWN);
                handle.acquire(&facet, Access::Write).map(drop)
            });
            at += FACETS;
            match ready.and_then(|()| handle.finish()) {
                Ok(()) => commits += 1,
                // Two names that share a record.
                Err(_) => failed += 1,
            }
        }
    }
    println!("commits {commits}\nfailed {failed}\ncpu {}", cpu() - before);
    Ok(())
}

/// Holds facets with random names, and counts how many other names seem to be in use.
pub fn false_conflicts(dir: &Path, facets: usize) -> io::Result<()> {
    const PROBES: usize = 500_000;
    let realm = crew::join(dir)?;
    crew::enter()?;
    let (held, others) = (Names::new(1 << 40), Names::new(1 << 41));
    let mut handle = begin(&realm);
    (0..facets).for_each(|i| take(&mut handle, &held.get(i), Access::Write));
    let seen = (0..PROBES).filter(|&i| realm.is_in_use(&others.get(i), READ)).count();
    let statistics = realm.statistics();
    commit(handle);
    println!("seen {}", seen as f64 / PROBES as f64);
    println!("held {}\nrecords {}", statistics.held, statistics.records);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_ordinary() {
        let names = Names::new(1);
        let all: std::collections::HashSet<_> = (0..10_000).map(|i| names.get(i)).collect();
        assert_eq!(all.len(), 10_000);
        assert!((6.0..20.0).contains(&names.mean_len()), "{}", names.mean_len());
    }

    #[test]
    fn a_slope_leaves_out_what_is_constant() {
        let points = [(1.0, 107.0), (10.0, 170.0), (100.0, 800.0)];
        assert!((slope(&points) - 7.0).abs() < 1e-9);
    }
}
