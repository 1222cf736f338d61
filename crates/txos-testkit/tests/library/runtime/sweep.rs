//! Every fault at every step of a transaction inside a program: of its private copies, its commit, its
//! light commit; and that the program goes on with the descriptors that it had.

use std::fs;
use std::time::Duration;

use txos_testkit::fault_matrix::{Budget, Case, Matrix, nothing_more};
use txos_testkit::image::Image;
use txos_testkit::process::quote;
use txos_testkit::{Done, Lab, require_some, skip};

use crate::crashes::PREPARE;
use crate::place::start;
use crate::program::{Linked, program};

fn sweep(mode: &'static str, points: usize) {
    sweep_at(&Lab::in_memory(), mode, points);
}

/// The same on a file system on a disk.
fn sweep_on_ext4(mode: &'static str, points: usize) {
    let lab = Lab::in_memory();
    let image = require_some!(Image::mount(&lab, "ext4", 64, "ext4"), "no ext4 here");
    let lab = lab.at(&image.point);
    sweep_at(&lab, mode, points);
    drop(image);
}

fn sweep_at(lab: &Lab, mode: &'static str, points: usize) {
    let native = quote(program("faults", Linked::Natively)).into_string().unwrap();
    let plain = match mode {
        "light" | "durable-light" => "plain-light",
        "names" | "durable-names" => "plain-names",
        "lock" => "plain-lock",
        "move" => "plain-move",
        _ => "plain",
    };
    let change = format!("{native} {plain}");
    let case = Case {
        name: mode,
        prepare: &|place| drop(place.native(PREPARE)),
        operation: &|place| start(place, "faults", Linked::WithLibrary).arg(mode),
        native: Some((PREPARE, &change)),
        half: false,
        dead: false,
        refusals: &[125],
        afterwards: &nothing_more,
    };
    let mut matrix = Matrix::new(lab, case);
    // In place, marked as free: what fails there has happened nevertheless.
    if mode.ends_with("light") {
        matrix.last_steps(7);
    }
    // Names that are taken back leave the directories' times (docs/light-log-format.md).
    if mode.ends_with("names") || mode == "lock" {
        matrix.times_are_moved();
    }
    matrix.sweep(Budget { points, time: Duration::from_secs(180) });
}

#[test]
fn every_step_of_a_commit() {
    sweep("commit", 20);
}

#[test]
fn every_step_of_a_durable_commit() {
    sweep("durable", 20);
}

#[test]
fn every_step_of_a_move() {
    sweep("move", 20);
}

#[test]
fn every_step_of_a_light_commit() {
    sweep("light", 16);
}

#[test]
fn every_step_of_a_durable_light_commit() {
    sweep("durable-light", 24);
}

#[test]
fn every_step_of_a_commit_of_names() {
    sweep("names", 16);
}

/// A lock file that is made and removed leaves a directory with another time, and does not make the commit a full one.
#[test]
fn every_step_of_a_commit_beside_a_lock_file() {
    sweep("lock", 16);
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let _ = start(&lab, "faults", Linked::WithLibrary).arg("lock").run().expect(0);
    let light = fs::read(lab.store().join("light")).expect("the log of light commits");
    let turn = lab.path("turn").into_os_string().into_encoded_bytes();
    assert!(light.windows(turn.len()).any(|bytes| bytes == turn), "it speaks of the directory");
}

#[test]
fn every_step_of_a_durable_commit_of_names() {
    sweep_on_ext4("durable-names", 24);
}

/// What `c/struck.c` has found: at each instant of a transaction that receives, reads from a pipe, sends and signals.
fn struck(arguments: &[&str]) -> Done {
    let lab = Lab::in_memory();
    let done = start(&lab, "struck", Linked::WithLibrary)
        .args(arguments)
        .env("TXOS_HOLD_OUTPUT", "1")
        .env("TXOS_GIVE_BACK", "pipes")
        .within(Duration::from_secs(1900))
        .run()
        .expect(0);
    print!("{}", done.text());
    done
}

/// A number in what it has said, by the words before it.
fn told(done: &Done, words: &str) -> u64 {
    let text = done.text();
    let (_, after) = text.split_once(words).unwrap_or_default();
    let digits = after.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

/// Before the commit nothing is sent and nothing received is lost; after it the files are whole, and what is sent is a beginning of
/// what was held.
#[test]
fn killed_at_every_call_with_effects_that_are_held() {
    let modes = [
        ("nothing", "64", "4"),
        ("light", "64", "1"),
        ("names", "96", "4"),
        ("durable", "96", "4"),
        ("full", "96", "8"),
        ("identity", "192", "32"),
    ];
    for (mode, every, every_effect) in modes {
        let done = match skip::long("sweep") {
            true => struck(&["kill", mode, "1", "1"]),
            false => struck(&["kill", mode, every, every_effect]),
        };
        // It was killed before the commit, before anything was sent, and between two things that are sent.
        let sums = [told(&done, " runs, "), told(&done, "sent nothing "), told(&done, "a part ")];
        assert!(sums.into_iter().all(|n| n > 0), "{done:?}");
    }
}

/// A commit that fails sends nothing and gives back everything.
#[test]
fn every_step_fails_with_effects_that_are_held() {
    let long = skip::long("sweep");
    let errors: &[&str] = if long { &["EIO", "ENOSPC", "EMFILE"] } else { &["EIO"] };
    let modes: &[&str] = if long { &["light", "names", "durable"] } else { &["light", "durable"] };
    for error in errors {
        for mode in modes {
            let done = struck(&["fail", mode, error]);
            assert!(told(&done, " runs, ") > 0, "{done:?}");
        }
    }
}
