//! Scenes in which a process dies: at every moment, and what it held is taken over.

use super::explore::{explore_deaths, explore_takers_deaths};
use super::peace::{call, counter, crossed, glancer, nonblock, passer, three};
use super::scene::Job::{After, Eager, Lazy, Ordered};
use super::scene::Scene;
use super::scene::Touch::{Add, Insert, Pause, Read};

/// Two that insert, one of which looks.
pub fn inserters() -> Scene {
    Scene::new([
        vec![Lazy(vec![Insert(0, 1), Insert(1, 1)])],
        vec![Eager(vec![Read(0), Insert(1, 2)])],
    ])
}

/// The second waits for the first, and has what the third wants.
pub fn chain() -> Scene {
    Scene::new([
        vec![Eager(vec![Add(0, 1), Pause])],
        vec![Eager(vec![Read(1), Read(0)])],
        vec![Eager(vec![Add(1, 1)])],
    ])
}

/// When the second has died, the third has its number.
pub fn heir() -> Scene {
    let again = After(1, Box::new(Ordered(0, vec![Add(1, 1)])));
    Scene::new([vec![Ordered(1, vec![Add(0, 1)])], vec![Ordered(0, vec![Add(0, 1)])], vec![again]])
        .slots(2)
}

/// Both of two die, and their publishes are finished, or undone.
pub fn either_dies(name: &str, bound: usize, scene: fn() -> Scene) {
    for victim in [0, 1] {
        explore_deaths(&format!("{name}, {victim} dies"), bound, |n| scene().dies(victim, n));
        explore_deaths(&format!("{name}, {victim} dies and is undone"), bound, |n| {
            scene().dies(victim, n).undoing()
        });
    }
}

/// One of two dies, and then the other while it takes over from it.
pub fn both_die(name: &str, bound: usize, scene: fn() -> Scene) {
    for victim in [0, 1] {
        explore_takers_deaths(&format!("{name}, {victim} dies, and its taker"), bound, |n, m| {
            scene().dies(victim, n).dies_as_taker(1 - victim, m)
        });
    }
}

#[test]
fn of_who_counts() {
    either_dies("counter", 1, counter);
}

#[test]
fn of_who_takes_opposite_orders() {
    either_dies("opposite orders", 1, crossed);
}

#[test]
fn of_who_inserts() {
    either_dies("inserts", 1, inserters);
}

#[test]
fn of_who_publishes_what_was_looked_at() {
    either_dies("looks before acquiring", 1, glancer);
}

#[test]
fn of_who_has_the_only_slot() {
    either_dies("one slot", 1, || counter().slots(1));
}

#[test]
fn of_who_makes_a_single_call() {
    either_dies("single call", 1, call);
}

/// Nobody gives way to a dead one that waits: it is cleared away.
#[test]
fn of_who_waits() {
    explore_deaths("a waiting one dies", 0, |n| chain().dies(1, n));
    explore_deaths("one that is passed dies", 1, |n| passer().dies(0, n));
}

/// Nor does one that must not wait give up because of a dead one.
#[test]
fn before_one_that_does_not_wait() {
    explore_deaths("nobody is busy with the dead", 1, |n| nonblock().dies(0, n));
}

/// Another one takes the number of the dead.
#[test]
fn of_whose_turn_it_is() {
    explore_deaths("the one whose turn it is dies", 0, |n| heir().dies(1, n));
    explore_deaths("the one who waits for its turn dies", 0, |n| heir().dies(0, n));
}

/// Who died is taken over by one who dies as well.
#[test]
fn of_takers() {
    both_die("counter", 1, counter);
    both_die("one slot", 1, || counter().slots(1));
}

/// And a third one takes over from both. The first dies before every third write only.
#[test]
fn of_takers_of_takers() {
    explore_takers_deaths("two of three die", 0, |n, m| {
        three().slots(3).dies(0, 3 * n).dies_as_taker(1, m)
    });
}
