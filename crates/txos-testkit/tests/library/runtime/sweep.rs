//! Every fault at every step of a transaction inside a program: of its private copies, its commit, its
//! light commit; and that the program goes on with the descriptors that it had.

use std::fs;
use std::time::Duration;

use txos_testkit::fault_matrix::{Budget, Case, Matrix, nothing_more};
use txos_testkit::image::Image;
use txos_testkit::process::quote;
use txos_testkit::{Lab, require_some};

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
