//! The wiki: its tests in Python, each group with a store and a realm of its own.

use txos_testkit::image::Image;
use txos_testkit::{Done, Invocation, Lab, binary, require, skip};

use crate::root;

/// Runs tests of `apps/wiki/tests`; none of them may be left out.
fn python(lab: &Lab, tests: &str, more: &[(&str, &str)]) -> Done {
    let python_path = [root().join("apps/wiki"), root().join("bindings/python")];
    let mut run = Invocation::new("python3")
        .args(["-W", "error::ResourceWarning", "-m", "unittest", "-v", tests])
        .dir(root().join("apps/wiki"))
        .env("PYTHONPATH", std::env::join_paths(python_path).unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TXOS_LIB", binary::library())
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .env("TXOS_TEST_DIR", lab.tree());
    for (name, value) in more {
        run = run.env(name, value);
    }
    let done = run.run().expect(0).says("\nOK\n");
    let left = std::fs::read_dir(lab.tree()).unwrap().count();
    assert_eq!(left, 0, "{done:?}");
    done
}

fn has_what_it_takes() -> bool {
    skip::has("python3")
        && Invocation::new("python3").args(["-c", "import sqlite3"]).run().code() == 0
}

#[test]
fn pages_on_files_and_in_sqlite() {
    require!(has_what_it_takes(), "there is no Python with SQLite");
    let lab = Lab::new();
    let _ = python(&lab, "tests.test_application", &[]);
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
        let _ = python(&lab, &format!("tests.test_server.Serving.{test}"), &[]);
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
    let _ = python(&lab, test, &[("TXOS_TEST_LONG", long)]);
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
    let _ = python(&lab, test, &[("TXOS_TEST_SMALL", small)]);
}

#[test]
fn an_edit_conflict_in_a_browser() {
    require!(has_what_it_takes(), "there is no Python with SQLite");
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    require!(browsers.into_iter().any(skip::has), "no chromium to edit pages with");
    let lab = Lab::new();
    let _ = python(&lab, "tests.test_browser", &[]);
}
