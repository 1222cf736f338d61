//! Scenes in which nobody dies.

use super::explore::{USUAL, explore};
use super::scene::Job::{Eager, Lazy, Nonblock, Ordered, Single};
use super::scene::Scene;
use super::scene::Touch::{Add, Copy, Insert, Read};
use crate::contention::Policy;

/// Two that read what the other writes.
fn skew() -> Scene {
    Scene::new([vec![Lazy(vec![Copy(1, 0, 1)])], vec![Lazy(vec![Copy(0, 1, 1)])]])
}

/// Two that add to one cell.
pub fn counter() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1)])], vec![Eager(vec![Add(0, 1)])]])
}

/// Two that take the records in opposite orders.
pub fn crossed() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1), Add(1, 1)])], vec![Eager(vec![Add(1, 1), Add(0, 1)])]])
}

/// Two that read a record before they change it.
fn upgrade() -> Scene {
    Scene::new([vec![Lazy(vec![Add(0, 1)])], vec![Lazy(vec![Add(0, 1)])]])
}

/// One that sees all or nothing of another one.
fn onlooker() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1), Add(1, 1)])], vec![Eager(vec![Read(1), Read(0)])]])
}

/// Two that insert, and one that lists.
fn lister() -> Scene {
    Scene::new([
        vec![Eager(vec![Read(0)])],
        vec![Eager(vec![Insert(0, 1)])],
        vec![Lazy(vec![Insert(0, 2)])],
    ])
}

/// A slot whose transactions follow each other, while another one seizes what they hold.
pub fn reuse() -> Scene {
    let twice = vec![Eager(vec![Add(0, 1)]), Eager(vec![Add(0, 1)])];
    Scene::new([twice, vec![Eager(vec![Add(0, 1)])]]).clocks(&[2, 1])
}

/// The same, but what follows holds something else.
pub fn reuse_for_another() -> Scene {
    let both = vec![Eager(vec![Add(0, 1)]), Eager(vec![Add(1, 1)])];
    Scene::new([both, vec![Eager(vec![Add(0, 1)])]]).clocks(&[2, 1])
}

/// A single call across a transaction.
pub fn call() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1), Add(1, 1)])], vec![Single(vec![Add(1, 1), Add(0, 1)])]])
}

/// Two that commit in the order opposite to their ages, and touch the same.
fn ordered() -> Scene {
    Scene::new([vec![Ordered(1, vec![Add(0, 1)])], vec![Ordered(0, vec![Add(0, 1)])]])
}

#[test]
fn write_skew() {
    explore("write skew", USUAL, skew());
}

#[test]
fn lost_updates() {
    explore("lost updates", USUAL, counter());
}

#[test]
fn opposite_orders() {
    explore("opposite orders", USUAL, crossed());
}

#[test]
fn opposite_orders_by_other_policies() {
    for policy in
        [Policy::OsPriority, Policy::Karma, Policy::Polka, Policy::SizeMatters, Policy::Polite]
    {
        explore(&format!("opposite orders, {policy}"), 1, crossed().under(policy));
    }
}

#[test]
fn write_skew_by_other_policies() {
    for policy in
        [Policy::OsPriority, Policy::Karma, Policy::Polka, Policy::SizeMatters, Policy::Polite]
    {
        explore(&format!("write skew, {policy}"), 1, skew().under(policy));
    }
}

#[test]
fn upgrades() {
    explore("upgrades", USUAL, upgrade());
}

#[test]
fn all_or_nothing() {
    explore("all or nothing", USUAL, onlooker());
    explore("all or nothing, younger writer", USUAL, onlooker().clocks(&[2, 1]));
}

#[test]
fn inserts_commute() {
    explore("inserts commute", 1, lister());
}

#[test]
fn generations() {
    explore("generations", 1, reuse());
    explore("generations, older ones", 1, reuse().clocks(&[1, 2]));
    explore("generations, another record", 1, reuse_for_another());
}

#[test]
fn single_calls() {
    explore("single calls", USUAL, call());
    explore("single calls, older", USUAL, call().clocks(&[2, 1]));
}

#[test]
fn order() {
    explore("order", 1, ordered());
}

#[test]
fn order_with_few_slots() {
    explore("order, one slot", USUAL, ordered().slots(1));
}

/// Who waits for its turn holds what another one waits for, for which waits whose turn it is.
#[test]
fn order_across_records() {
    let scene = Scene::new([
        vec![Ordered(1, vec![Add(0, 1)])],
        vec![Eager(vec![Add(1, 1), Add(0, 1)])],
        vec![Ordered(0, vec![Add(1, 1)])],
    ]);
    explore("order across records", 0, scene);
}

/// Whose turn it is finds its slot pinned by one who then waits for its turn.
#[test]
fn order_and_pins() {
    let scene = Scene::new([
        vec![Ordered(1, vec![Add(0, 1)])],
        vec![Eager(vec![Add(0, 1)]), Ordered(0, vec![Add(1, 1)])],
    ]);
    explore("order and pins", 1, scene.clocks(&[2, 1]));
}

#[test]
fn waiting_for_a_slot() {
    explore("one slot", USUAL, counter().slots(1));
}

#[test]
fn three_on_one_record() {
    let three = || vec![Eager(vec![Add(0, 1)])];
    explore("three", 0, Scene::new([three(), three(), three()]).slots(2));
}

#[test]
fn nobody_waits_who_must_not() {
    let scene = Scene::new([
        vec![Eager(vec![Add(0, 1), Add(1, 1)])],
        vec![Nonblock(vec![Add(1, 1), Add(0, 1)])],
    ]);
    explore("nonblock", USUAL, scene.slots(3));
}
