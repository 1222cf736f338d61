//! The same scenes with more preemptions. They take minutes each.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/model \
//!     cargo test -p txos-engine --release --lib realm::model::long -- --ignored --nocapture
//! ```

use super::deaths::{both_die, chain, either_dies, heir, inserters};
use super::explore::{explore, explore_deaths, explore_takers_deaths};
use super::peace::{
    PATIENT, call, counter, crossed, glancer, lister, nonblock, onlooker, ordered, ordered_across,
    ordered_and_pinned, reuse, reuse_for_another, skew, three, upgrade,
};

#[test]
#[ignore = "takes minutes"]
fn two() {
    explore("lost updates", 4, counter());
    explore("write skew", 3, skew());
    explore("upgrades", 3, upgrade());
    explore("opposite orders", 3, crossed());
    explore("all or nothing", 3, onlooker());
    explore("all or nothing, younger writer", 3, onlooker().clocks(&[2, 1]));
    explore("looks before acquiring", 3, glancer());
    explore("single calls", 3, call());
    explore("nonblock", 3, nonblock());
    explore("one slot", 5, counter().slots(1));
    explore("order, one slot", 3, ordered().slots(1));
}

#[test]
#[ignore = "takes minutes"]
fn generations() {
    explore("generations", 3, reuse());
    explore("generations, older ones", 2, reuse().clocks(&[1, 2]));
    explore("generations, another record", 3, reuse_for_another());
    explore("order and pins", 3, ordered_and_pinned());
}

#[test]
#[ignore = "takes minutes"]
fn policies() {
    for policy in PATIENT {
        explore(&format!("write skew, {policy}"), 2, skew().under(policy));
        explore(&format!("opposite orders, {policy}"), 2, crossed().under(policy));
    }
}

#[test]
#[ignore = "takes minutes"]
fn more_than_two() {
    explore("three, two slots", 1, three());
    explore("inserts commute", 2, lister());
    explore("order", 2, ordered());
    explore("order across records", 1, ordered_across());
}

#[test]
#[ignore = "takes minutes"]
fn deaths() {
    either_dies("counter", 2, counter);
    either_dies("opposite orders", 2, crossed);
    either_dies("inserts", 2, inserters);
    either_dies("one slot", 3, || counter().slots(1));
    either_dies("single call", 2, call);
    explore_deaths("the one whose turn it is dies", 1, |n| heir().dies(1, n));
}

#[test]
#[ignore = "takes minutes"]
fn takers() {
    both_die("counter", 2, counter);
    both_die("one slot", 2, || counter().slots(1));
    explore_deaths("a waiting one dies", 1, |n| chain().dies(1, n));
    explore_takers_deaths("two of three die", 0, |n, m| {
        three().slots(3).dies(0, n).dies_as_taker(1, m)
    });
    explore_takers_deaths("two of three die, more preemptions", 1, |n, m| {
        three().slots(3).dies(0, 5 * n).dies_as_taker(1, m)
    });
}
