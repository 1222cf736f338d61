//! loom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::scene::Scene;
use super::world;

/// Steps of all threads together, in one run: more mean that it goes round and round.
const STEPS_MAX: usize = 20_000;

/// How many preemptions are tried, unless `LOOM_MAX_PREEMPTIONS` says something else.
pub const USUAL: usize = 2;

fn builder(bound: Option<usize>) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(bound);
    if std::env::var_os("LOOM_MAX_BRANCHES").is_none() {
        builder.max_branches = STEPS_MAX;
    }
    builder.max_threads = 4;
    builder
}

/// Runs a scene in every interleaving. Gives the number of deaths.
///
/// # Panics
/// If one is wrong.
pub fn explore(name: &str, bound: Option<usize>, scene: Scene) -> u64 {
    let counters: [Arc<AtomicU64>; 4] = std::array::from_fn(|_| Arc::default());
    let [runs, commits, retries, given_up] = counters.clone();
    let (began, deaths) = (Instant::now(), world::deaths());
    builder(bound).check(move || {
        let tally = scene.run();
        runs.fetch_add(1, Relaxed);
        commits.fetch_add(tally.commits, Relaxed);
        retries.fetch_add(tally.retries, Relaxed);
        given_up.fetch_add(tally.given_up, Relaxed);
    });
    let deaths = world::deaths() - deaths;
    let [runs, commits, retries, given_up] = counters.map(|c| c.load(Relaxed));
    println!(
        "{name}: {runs} interleavings in {:.1} s; {commits} commits, {retries} retries, \
         {given_up} given up, {deaths} deaths",
        began.elapsed().as_secs_f64()
    );
    deaths
}

/// Whether some interleaving of a scene is wrong, and what it says.
pub fn find(bound: Option<usize>, scene: Scene) -> Option<String> {
    let run = std::panic::AssertUnwindSafe(|| builder(bound).check(move || drop(scene.run())));
    let payload = std::panic::catch_unwind(run).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(
        text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default(),
    )
}
