//! loom.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::scene::{Scene, Tally};
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

/// Runs a scene in every interleaving.
///
/// # Panics
/// If one is wrong.
pub fn explore(name: &str, bound: usize, scene: Scene) {
    let began = Instant::now();
    report(name, began, &count(bound, scene));
}

/// Runs a scene in every interleaving for every moment at which a process can die: before its
/// first write, before its second and so on, until none is left.
///
/// # Panics
/// If one is wrong.
pub fn explore_deaths(name: &str, bound: usize, scene: impl Fn(u32) -> Scene) {
    let (began, mut all) = (Instant::now(), Tally::default());
    for write in 1.. {
        let tally = count(bound, scene(write));
        all.add(&tally);
        if tally.deaths == 0 {
            break;
        }
    }
    assert!(all.deaths > 0, "{name}: nobody died");
    report(name, began, &all);
}

/// The same with two deaths: of one process, and of another one while it takes over.
///
/// # Panics
/// If one is wrong.
pub fn explore_takers_deaths(name: &str, bound: usize, scene: impl Fn(u32, u32) -> Scene) {
    let (began, mut all) = (Instant::now(), Tally::default());
    'first: for first in 1.. {
        for second in 1.. {
            let tally = count(bound, scene(first, second));
            all.add(&tally);
            if tally.deaths == 0 {
                break 'first;
            }
            if tally.takers == 0 {
                break;
            }
        }
    }
    assert!(all.takers > 0, "{name}: nobody died who took over");
    report(name, began, &all);
}

fn report(name: &str, began: Instant, tally: &Tally) {
    let Tally { runs, commits, retries, given_up, deaths, takers } = tally;
    println!(
        "{name}: {runs} interleavings in {:.1} s; {commits} commits, {retries} retries, \
         {deaths} deaths ({takers} of takers)",
        began.elapsed().as_secs_f64()
    );
    assert_eq!(*given_up, 0, "{name}: somebody did not get on");
}

fn count(bound: usize, scene: Scene) -> Tally {
    let all = Arc::new(Mutex::new(Tally::default()));
    let (deaths, sum) = (world::deaths(), Arc::clone(&all));
    builder(Some(bound)).check(move || sum.lock().unwrap().add(&scene.run()));
    let mut all = *all.lock().unwrap();
    (all.deaths, all.takers) = (world::deaths().0 - deaths.0, world::deaths().1 - deaths.1);
    all
}

/// Whether some interleaving of a scene is wrong, and what it says.
pub fn find(bound: usize, scene: Scene) -> Option<String> {
    let run = std::panic::AssertUnwindSafe(|| builder(Some(bound)).check(move || _ = scene.run()));
    let payload = std::panic::catch_unwind(run).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(
        text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default(),
    )
}
