//! Transactions beside futexes, mutexes, semaphores, pipes and lock files: what waits for somebody who needs what it
//! holds is not waited for, and who can't go on is told why. See `c/waiting.c` for the scenes.

use txos_testkit::{Done, Lab};

use crate::place::{start, strays};
use crate::program::Linked;

fn scene_with(name: &str, held: &str) -> Done {
    let lab = Lab::in_memory();
    let scene = start(&lab, "waiting", Linked::WithLibrary).arg(name).arg(lab.tree());
    let done = scene.env("TXOS_HOLD_OUTPUT", held).run().expect(0);
    let made = ["f", "g", "made", "used", "lock"];
    assert!(strays(&lab, |name| made.contains(&name)).is_empty());
    done
}

fn scene(name: &str) -> Done {
    scene_with(name, "")
}

#[test]
fn one_that_waits_at_a_futex_is_in_nobodys_way() {
    let _ = scene("goodfutex").says_not("waiting for");
}

#[test]
fn who_waits_for_one_that_begins_to_wait_goes_on() {
    let _ = scene("woken");
}

#[test]
fn a_lock_taken_inside_and_around_transactions_does_not_livelock() {
    let _ = scene("badfutex");
}

#[test]
fn one_that_begins_again_does_so_before_it_has_the_lock() {
    let _ = scene("restarted");
}

#[test]
fn one_that_waits_for_a_mutex_of_its_last_attempt_says_so() {
    let _ = scene("own");
}

#[test]
fn a_turn_that_waits_for_what_a_later_one_holds_is_reported() {
    let done = scene("orderedfutex");
    assert!(done.stderr.contains("it is the turn of sequence number 1"), "{done:?}");
}

#[test]
fn a_turn_that_waits_for_the_mutex_of_a_later_one_aborts_that() {
    let _ = scene("orderedmutex");
}

#[test]
fn mutexes_inside_and_outside_compose() {
    let _ = scene("mutex");
}

#[test]
fn consumers_follow_producers_by_semaphores_and_order() {
    let _ = scene("ordered-p/c");
}

#[test]
fn consumers_follow_producers_by_a_pipe_and_order() {
    let _ = scene_with("pipe-p/c", "1");
}

#[test]
fn who_creates_a_lock_file_is_not_kept_by_those_who_wait_for_it() {
    let _ = scene("lockfile");
    let _ = scene("priorities");
}

#[test]
fn the_priority_of_a_thread_is_its_own_and_not_its_processs() {
    let _ = scene("threads");
}

#[test]
fn a_lock_file_that_an_outsider_creates_is_seen() {
    let _ = scene("outsider");
}

#[test]
fn one_that_waits_at_a_pipe_is_in_nobodys_way_and_reads_once() {
    let _ = scene("pipe").says_not("waiting for");
}

#[test]
fn one_that_waits_for_a_child_is_not_in_the_childs_way() {
    let _ = scene("child");
}
