//! The wiki: its tests in Python, each group with a store and a realm of its own.

use txos_testkit::image::Image;
use txos_testkit::{Invocation, Lab, require, skip};

use crate::Python;

fn has_what_it_takes() -> bool {
    skip::has("python3")
        && Invocation::new("python3").args(["-c", "import sqlite3"]).run().code() == 0
}

#[test]
fn pages_on_files_and_in_sqlite() {
    require!(has_what_it_takes(), "there is no Python with SQLite");
    let lab = Lab::new();
    Python::new(&lab, "wiki").run("tests.test_application");
    lab.expect_clean();
}

/// Many clients, bad requests, workers that are killed in the middle of a request.
#[test]
fn the_server_under_load_and_kills() {
    require!(has_what_it_takes(), "there is no Python with SQLite");
    let lab = Lab::new();
    for test in [
        "test_start_and_stop",
        "test_workers_end_with_the_server",
        "test_a_storm_on_one_page",
        "test_a_storm_on_sqlite",
        "test_a_look_is_at_one_moment",
        "test_bad_requests",
        "test_the_load_generator",
    ] {
        Python::new(&lab, "wiki").run(&format!("tests.test_server.Serving.{test}"));
    }
    lab.expect_clean();
}

/// `./test --long apps` kills a hundred.
#[test]
fn workers_are_killed() {
    require!(has_what_it_takes(), "there is no Python with SQLite");
    let lab = Lab::new();
    let long = if skip::long("apps") { "apps" } else { "" };
    let test = "tests.test_server.Serving.test_workers_are_killed";
    Python::new(&lab, "wiki").env("TXOS_TEST_LONG", long).run(test);
    let _ = lab.txos(["recover"]).run().expect(0);
    lab.expect_clean();
}

#[test]
fn a_full_disk() {
    require!(has_what_it_takes(), "there is no Python with SQLite");
    let lab = Lab::new();
    let Some(image) = Image::mount(&lab, "ext4", 32, "small") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    let small = image.point.to_str().unwrap();
    let _ = lab.native("head -c 1M /dev/zero > ../ballast");
    let test = "tests.test_server.Serving.test_a_full_disk";
    Python::new(&lab, "wiki").env("TXOS_TEST_SMALL", small).run(test);
}

#[test]
fn an_edit_conflict_in_a_browser() {
    require!(has_what_it_takes(), "there is no Python with SQLite");
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    require!(browsers.into_iter().any(skip::has), "no chromium to edit pages with");
    let lab = Lab::new();
    Python::new(&lab, "wiki").run("tests.test_browser");
}
