//! Scenes in which nobody dies.

use super::explore::{USUAL, explore};
use super::scene::Job::{Eager, Lazy, Nonblock, Ordered, Single, Soft};
use super::scene::Scene;
use super::scene::Touch::{Add, Copy, Glance, Insert, Pass, Pause, Read};
use crate::contention::Policy;

/// Policies under which waits count turns.
pub const PATIENT: [Policy; 4] =
    [Policy::Karma, Policy::Polka, Policy::SizeMatters, Policy::Polite];

/// Two that read what the other writes.
pub fn skew() -> Scene {
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
pub fn upgrade() -> Scene {
    Scene::new([vec![Lazy(vec![Add(0, 1)])], vec![Lazy(vec![Add(0, 1)])]])
}

/// One that sees all or nothing of another one.
pub fn onlooker() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1), Add(1, 1)])], vec![Eager(vec![Read(1), Read(0)])]])
}

/// The same, but what it looks at it acquires afterwards.
pub fn glancer() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1), Add(1, 1)])], vec![Eager(vec![Glance(1), Glance(0)])]])
}

/// Two that insert, and one that lists.
pub fn lister() -> Scene {
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

/// Three that add to one cell, and two slots.
pub fn three() -> Scene {
    Scene::new([0, 1, 2].map(|_| vec![Eager(vec![Add(0, 1)])])).slots(2)
}

/// Two that wait for the same one.
pub fn queue() -> Scene {
    Scene::new([
        vec![Eager(vec![Add(0, 1), Pause])],
        vec![Eager(vec![Read(0)])],
        vec![Eager(vec![Read(0)])],
    ])
}

/// One that passes what another one publishes.
pub fn passer() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1), Add(1, 1)])], vec![Eager(vec![Pass(0), Read(1)])]])
}

/// A single call across a transaction.
pub fn call() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1), Add(1, 1)])], vec![Single(vec![Add(1, 1), Add(0, 1)])]])
}

/// One that does not wait.
pub fn nonblock() -> Scene {
    Scene::new([
        vec![Eager(vec![Add(0, 1), Add(1, 1)])],
        vec![Nonblock(vec![Add(1, 1), Add(0, 1)])],
    ])
    .slots(3)
}

/// Two that commit in the order opposite to their ages, and touch the same.
pub fn ordered() -> Scene {
    Scene::new([vec![Ordered(1, vec![Add(0, 1)])], vec![Ordered(0, vec![Add(0, 1)])]])
}

/// Who waits for its turn holds what another one waits for, for which waits whose turn it is.
pub fn ordered_across() -> Scene {
    Scene::new([
        vec![Ordered(1, vec![Add(0, 1), Pause])],
        vec![Eager(vec![Read(1), Read(0)])],
        vec![Ordered(0, vec![Add(1, 1)])],
    ])
}

/// Whose turn it is finds its slot pinned by one who then waits for its turn.
pub fn ordered_and_pinned() -> Scene {
    Scene::new([
        vec![Ordered(1, vec![Add(0, 1)])],
        vec![Eager(vec![Read(0)]), Ordered(0, vec![Read(1)])],
    ])
    .clocks(&[2, 1])
}

/// A command and a transaction that add to one cell.
pub fn soft_counter() -> Scene {
    Scene::new([vec![Soft(vec![Add(0, 1)])], vec![Eager(vec![Add(0, 1)])]]).colliding()
}

/// Two commands that do.
pub fn soft_counters() -> Scene {
    Scene::new([0, 1].map(|_| vec![Soft(vec![Add(0, 1)])])).colliding()
}

/// A command and a transaction, each of which reads what the other writes.
pub fn soft_skew() -> Scene {
    Scene::new([vec![Soft(vec![Copy(1, 0, 1)])], vec![Lazy(vec![Copy(0, 1, 1)])]]).colliding()
}

/// Two commands.
pub fn soft_skews() -> Scene {
    Scene::new([vec![Soft(vec![Copy(1, 0, 1)])], vec![Soft(vec![Copy(0, 1, 1)])]]).colliding()
}

/// A transaction that takes two records from a command which reads them, and one that sees all of it.
pub fn soft_onlooker() -> Scene {
    Scene::new([vec![Eager(vec![Add(0, 1), Add(1, 1)])], vec![Soft(vec![Read(1), Read(0)])]])
        .colliding()
}

#[test]
fn collisions() {
    for (name, scene) in [
        ("lost updates", soft_counter as fn() -> Scene),
        ("lost updates of commands", soft_counters),
        ("write skew", soft_skew),
        ("write skew of commands", soft_skews),
        ("all or nothing", soft_onlooker),
    ] {
        for clocks in [[1, 2], [2, 1]] {
            explore(&format!("collisions: {name}"), 1, scene().clocks(&clocks));
            // Nobody is taken out of a record, and soft holders are met as others are.
            let mut meeting = scene().clocks(&clocks);
            meeting.all_collide = false;
            explore(&format!("soft: {name}"), 1, meeting);
        }
    }
}

#[test]
fn looks_before_acquiring() {
    explore("looks before acquiring", USUAL, glancer());
    explore("looks before acquiring, younger writer", USUAL, glancer().clocks(&[2, 1]));
}

#[test]
fn write_skew() {
    explore("write skew", USUAL, skew());
    explore("write skew, os-priority", USUAL, skew().under(Policy::OsPriority));
    for policy in PATIENT {
        explore(&format!("write skew, {policy}"), 1, skew().under(policy));
    }
}

#[test]
fn lost_updates() {
    explore("lost updates", USUAL, counter());
    explore("lost updates, os-priority", USUAL, counter().under(Policy::OsPriority));
}

#[test]
fn opposite_orders() {
    explore("opposite orders", USUAL, crossed());
    explore("opposite orders, os-priority", USUAL, crossed().under(Policy::OsPriority));
    for policy in PATIENT {
        explore(&format!("opposite orders, {policy}"), 1, crossed().under(policy));
    }
}

#[test]
fn waiting_for_the_same() {
    explore("two wait", 1, queue());
    explore("one passes", USUAL, passer());
}

/// Bits of a damaged realm cost nobody anything, be they of a slot that is taken or of one that is
/// not.
#[test]
fn stray_bits() {
    for slot in 0..3 {
        explore(&format!("a stray bit of slot {slot}"), USUAL, counter().slots(3).stray(slot));
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
    explore("generations, another record", USUAL, reuse_for_another());
}

#[test]
fn single_calls() {
    explore("single calls", USUAL, call());
    explore("single calls, older", USUAL, call().clocks(&[2, 1]));
}

#[test]
fn nobody_waits_who_must_not() {
    explore("nonblock", USUAL, nonblock());
}

#[test]
fn waiting_for_a_slot() {
    explore("one slot", USUAL, counter().slots(1));
    explore("three, two slots", 0, three());
}

#[test]
fn order() {
    explore("order", 1, ordered());
    explore("order, one slot", USUAL, ordered().slots(1));
    explore("order across records", 0, ordered_across());
    explore("order and pins", 1, ordered_and_pinned());
}
