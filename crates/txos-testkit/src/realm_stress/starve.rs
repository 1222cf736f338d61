//! Who starves: one long transaction over half of the cells, against short ones that move units
//! between two cells of one half. What the cells of a half have in sum never changes.

use std::sync::atomic::Ordering;

use txos_engine::contention::backoff;
use txos_engine::realm::{AbortCause, Begin, RetryHistory};

use crate::random::Random;

use super::attempt::{self, Attempt, End};
use super::points;
use super::worker::{PATIENCE, Worker};

/// A long one that needed so many attempts has starved.
pub const ATTEMPTS_MAX: u32 = 60;

/// How often the long one lets others run after each cell.
const YIELDS: u32 = 4;

/// One transaction that reads the first half of the cells and writes every other of those; then
/// everybody is to stop.
///
/// # Panics
/// If it sees units appear or disappear.
pub fn long(worker: &mut Worker, cells: usize) {
    let mut random = Random::new(u64::from(worker.number));
    // The short ones are at it.
    crate::wait::until("the short ones run", || {
        worker.cells.progress().load(Ordering::Relaxed) > 100
    });
    let before = worker.cells.progress().load(Ordering::Relaxed);
    let committed = attempts(worker, &mut random, ATTEMPTS_MAX, |attempt| {
        let mut sum = 0u64;
        for cell in 0..cells / 2 {
            let value = attempt.get(cell)?;
            if cell % 2 == 0 {
                attempt.set(cell, value)?;
            }
            sum = sum.wrapping_add(value);
            (0..YIELDS).for_each(|_| std::thread::yield_now());
        }
        Ok(sum)
    });
    let after = worker.cells.progress().load(Ordering::Relaxed);
    worker.cells.budget().store(0, Ordering::Relaxed);
    worker.count("meanwhile", after - before);
    worker.count("committed", u64::from(committed.is_some()));
    if let Some(sum) = committed {
        assert_eq!(sum, 0, "units appeared or disappeared");
    }
}

/// Short ones, until they are told to stop. After each cell they let others run, so many times.
pub fn short(worker: &mut Worker, cells: usize, seed: u64, yields: u32) {
    let mut random = Random::new(seed);
    points::reach("ready");
    while worker.cells.take() {
        let half = cells as u64 / 2;
        let base = half * random.below(2);
        let (from, to) = (base + random.below(half), base + random.below(half));
        let done = attempts(worker, &mut random.clone(), u32::MAX, |attempt| {
            for (cell, by) in [(from, u64::MAX), (to, 1)] {
                let value = attempt.get(cell as usize)?;
                attempt.set(cell as usize, value.wrapping_add(by))?;
                (0..yields).for_each(|_| std::thread::yield_now());
            }
            Ok(())
        });
        random.bits();
        worker.count("committed", u64::from(done.is_some()));
        worker.cells.progress().fetch_add(1, Ordering::Relaxed);
    }
}

/// Tries until it commits, `most` times. Counts the attempts, and who won against it.
fn attempts<T>(
    worker: &mut Worker,
    random: &mut Random,
    most: u32,
    body: impl Fn(&mut Attempt<'_>) -> Result<T, AbortCause>,
) -> Option<T> {
    let mut again: Option<RetryHistory> = None;
    for number in 1..=most {
        let id = attempt::name(random);
        let how = Begin { id: Some(id), again, ..Begin::default() };
        let handle = worker.realm.begin(&how).expect("a slot");
        let mut attempt = Attempt::new(handle, &worker.cells, id);
        let done = body(&mut attempt)
            .map_err(End::from)
            .and_then(|done| attempt.publish(&mut worker.journal, number % 2 == 0).map(|()| done));
        let end = match done {
            Ok(done) => {
                attempt.finish().expect("a publishing one can't be doomed");
                worker.count("attempts", u64::from(number));
                return Some(done);
            }
            Err(end) => end,
        };
        let next = attempt.abort();
        again = Some(next);
        if let End::Stopped(stop) = &end {
            if let Some(opponent) = stop.opponent() {
                let what = format!("lost-to-{}", opponent.pid);
                worker.count(&what, 1);
            }
            if let AbortCause::Lost(opponent) = stop {
                worker.realm.wait_for(opponent, PATIENCE);
            }
        }
        std::thread::sleep(backoff::before_restart(next.restarts, random.bits()));
    }
    worker.count("attempts", u64::from(most));
    None
}
