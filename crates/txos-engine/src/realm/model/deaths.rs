//! Scenes in which a process dies: at every moment, and what it held is taken over.

use super::explore::{explore_deaths, explore_takers_deaths};
use super::peace::{call, counter, crossed};
use super::scene::Job::{After, Eager, Lazy, Nonblock, Ordered};
use super::scene::Scene;
use super::scene::Touch::{Add, Insert, Read};

#[test]
fn of_one_of_two_that_count() {
    for victim in [0, 1] {
        explore_deaths(&format!("{victim} of counter dies"), 2, |n| counter().dies(victim, n));
        explore_deaths(&format!("{victim} of counter dies, undone"), 1, |n| {
            counter().dies(victim, n).undoing()
        });
    }
}

#[test]
fn of_one_of_two_in_opposite_orders() {
    for victim in [0, 1] {
        explore_deaths(&format!("{victim} of crossed dies"), 1, |n| crossed().dies(victim, n));
        explore_deaths(&format!("{victim} of crossed dies, undone"), 1, |n| {
            crossed().dies(victim, n).undoing()
        });
    }
}

#[test]
fn of_who_inserts() {
    let scene = || {
        Scene::new([
            vec![Lazy(vec![Insert(0, 1), Insert(1, 1)])],
            vec![Eager(vec![Read(0), Insert(1, 2)])],
        ])
    };
    for victim in [0, 1] {
        explore_deaths(&format!("{victim} of inserters dies"), 1, |n| scene().dies(victim, n));
        explore_deaths(&format!("{victim} of inserters dies, undone"), 1, |n| {
            scene().dies(victim, n).undoing()
        });
    }
}

#[test]
fn of_who_has_the_only_slot() {
    for victim in [0, 1] {
        explore_deaths(&format!("{victim} of one slot dies"), 2, |n| {
            counter().slots(1).dies(victim, n)
        });
    }
}

#[test]
fn of_a_single_call() {
    for victim in [0, 1] {
        explore_deaths(&format!("{victim} of call dies"), 1, |n| call().dies(victim, n));
    }
}

/// Nobody waits for a dead one that waits: it is cleared away.
#[test]
fn of_who_waits() {
    let scene = || {
        Scene::new([
            vec![Eager(vec![Add(0, 1)])],
            vec![Eager(vec![Add(1, 1), Add(0, 1)])],
            vec![Eager(vec![Add(1, 1)])],
        ])
    };
    explore_deaths("a waiting one dies", 0, |n| scene().dies(1, n));
}

/// Nor does one that must not wait give up because of a dead one.
#[test]
fn before_one_that_does_not_wait() {
    let scene = || {
        Scene::new([
            vec![Eager(vec![Add(0, 1), Add(1, 1)])],
            vec![Nonblock(vec![Add(1, 1), Add(0, 1)])],
        ])
    };
    explore_deaths("nobody is busy with the dead", 1, |n| scene().slots(3).dies(0, n));
}

/// Another one takes the number of the dead.
#[test]
fn of_whose_turn_it_is() {
    let scene =
        || Scene::new([vec![Ordered(1, vec![Add(0, 1)])], vec![Ordered(0, vec![Add(0, 1)])]]);
    explore_deaths("the later one dies", 0, |n| scene().dies(0, n));
    let scene = || {
        let again = After(1, Box::new(Ordered(0, vec![Add(1, 1)])));
        Scene::new([
            vec![Ordered(1, vec![Add(0, 1)])],
            vec![Ordered(0, vec![Add(0, 1)])],
            vec![again],
        ])
    };
    explore_deaths("the one whose turn it is dies", 0, |n| scene().slots(2).dies(1, n));
}

/// Who died is taken over by one who dies as well.
#[test]
fn of_takers() {
    for victim in [0, 1] {
        explore_takers_deaths(&format!("{victim} of counter dies, and its taker"), 1, |n, m| {
            counter().dies(victim, n).dies_as_taker(1 - victim, m)
        });
        explore_takers_deaths(&format!("{victim} of one slot dies, and its taker"), 1, |n, m| {
            counter().slots(1).dies(victim, n).dies_as_taker(1 - victim, m)
        });
    }
}

/// And a third one takes over from both.
#[test]
fn of_takers_of_takers() {
    let scene = || Scene::new([0, 1, 2].map(|_| vec![Eager(vec![Add(0, 1)])]));
    explore_takers_deaths("two die, one after the other", 0, |n, m| {
        scene().dies(0, n).dies_as_taker(1, m)
    });
}
