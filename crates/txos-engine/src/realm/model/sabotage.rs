//! Steps left out, which the model finds.
//!
//! A model that finds nothing may be one that sees nothing. So each precaution of the protocol is
//! left out once, and some scene has to go wrong.

use super::super::sync::Step;
use super::explore::find;
use super::peace::{
    call, counter, crossed, glancer, queue, reuse, reuse_for_another, soft_counter, three,
};
use super::scene::Scene;
use super::sync::Role;
use super::world::Sabotage::{
    Force, Hide, LeaveOut, NoBells, NoFence, NoFenceAfterSwap, NoJournal, Relax,
};

#[track_caller]
fn is_found(what: &str, bound: usize, scenes: impl IntoIterator<Item = Scene>) {
    let began = std::time::Instant::now();
    let found = scenes.into_iter().enumerate().find_map(|(n, s)| Some((n, find(bound, s)?)));
    let Some((n, found)) = found else { panic!("{what}: the model does not see it") };
    let found: String = found.chars().take(300).collect();
    println!("{what}: scene {n}, {:.1} s: {found}", began.elapsed().as_secs_f64());
}

/// The scene with every moment of death that it may have.
fn dying(scene: impl Fn(u32) -> Scene) -> impl Iterator<Item = Scene> {
    (1..60).map(scene)
}

#[test]
fn no_pins() {
    is_found("no pins", 3, [reuse().but(Hide(Role::Pins))]);
}

#[test]
fn no_look_after_the_pin() {
    is_found("no look after the pin", 3, [reuse_for_another().but(LeaveOut(Step::LookAgain))]);
}

#[test]
fn no_full_fence() {
    is_found("no fence", 2, [call().but(NoFence)]);
}

#[test]
fn no_fence_after_the_pin() {
    is_found("no fence after the pin", 3, [reuse().but(NoFenceAfterSwap)]);
}

#[test]
fn nobody_is_seen_waiting() {
    is_found("nobody waits", 2, [call().but(Hide(Role::WaitingFor))]);
}

#[test]
fn waiting_without_registering() {
    is_found("no waiters", 2, [counter().but(Hide(Role::Waiters))]);
}

#[test]
fn no_bells() {
    is_found("no bells", 2, [counter().but(NoBells)]);
}

#[test]
fn publishing_though_doomed() {
    is_found("doomed", 2, [crossed().but(LeaveOut(Step::LookWhetherDoomed))]);
}

#[test]
fn publishing_what_is_held_softly() {
    is_found("soft", 2, [soft_counter().but(LeaveOut(Step::HoldFirmly))]);
}

#[test]
fn publishes_not_counted() {
    is_found("publishes", 2, [glancer().but(LeaveOut(Step::CountPublish))]);
}

#[test]
fn counts_without_order() {
    is_found("counts", 2, [glancer().but(Relax(Role::Ended))]);
}

#[test]
fn releasing_before_the_end() {
    is_found(
        "released early",
        2,
        dying(|n| counter().but(LeaveOut(Step::HoldToTheEnd)).dies(0, n)),
    );
}

#[test]
fn a_journal_not_asked() {
    is_found("no journal", 1, dying(|n| crossed().but(NoJournal).dies(0, n)));
}

#[test]
fn two_takers() {
    is_found("two takers", 1, dying(|n| three().but(Force(Role::Taker)).dies(0, n)).skip(8));
}

#[test]
fn records_without_order() {
    is_found("orec", 2, [counter().but(Relax(Role::Orec))]);
}

#[test]
fn statuses_without_order() {
    is_found("status", 2, [counter().but(Relax(Role::Status))]);
}

#[test]
fn waiters_without_order() {
    is_found("waiters", 1, [queue().but(Relax(Role::Waiters))]);
}

#[test]
fn takers_without_order() {
    is_found("taker", 1, dying(|n| three().but(Relax(Role::Taker)).dies(0, n)).skip(8));
}

#[test]
fn owners_without_order() {
    is_found("owner", 2, [counter().slots(1).but(Relax(Role::Owner))]);
}
