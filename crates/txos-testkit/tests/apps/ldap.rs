//! slapd with its flat files in transactions: built from Debian's source package, and asked, loaded and killed by its tests in
//! Python. It takes minutes and a network, so it is a long mode.

use std::path::PathBuf;
use std::sync::OnceLock;

use txos_testkit::image::Image;
use txos_testkit::{Lab, require, skip};

use crate::power::Disks;
use crate::{Python, built_for};

const WHY_NOT: &str = "it builds slapd: ./test --long apps";

/// What was built for all of these tests; an error says why it could not be.
fn built() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| built_for("ldap", "TXOS_LDAP")).clone()
}

fn has_what_it_takes() -> bool {
    ["python3", "cc", "make", "dpkg-source", "patch"].into_iter().all(skip::has)
}

fn python(lab: &Lab) -> Result<Python<'_>, String> {
    let built = built()?.to_string_lossy().into_owned();
    Ok(Python::new(lab, "ldap").env("TXOS_LDAP", &built).env("TXOS_TEST_LONG", "apps"))
}

#[test]
fn answers_as_on_lmdb() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, make, dpkg-source or patch");
    let lab = Lab::new();
    match python(&lab) {
        Ok(python) => python.run("tests.test_protocol"),
        Err(why) => return skip::say(&format!("slapd can't be built: {why}")),
    }
    lab.expect_clean();
}

/// Many clients, two servers on one database; a hundred kills.
#[test]
fn many_clients_and_kills() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, make, dpkg-source or patch");
    let lab = Lab::new();
    // (With a journal, which the commits of few files go by.)
    let Some(image) = Image::mount(&lab, "ext4", 512, "disk") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    match python(&lab) {
        Ok(python) => {
            for test in [
                "test_of_those_who_add_the_same_one_wins",
                "test_no_change_is_lost",
                "test_a_subtree_that_moves_takes_everything_along",
                "test_a_search_finds_all_of_the_subtrees_that_move",
                "test_two_servers_on_one_database",
            ] {
                python.run(&format!("tests.test_many.Many.{test}"));
            }
            let mut python = python;
            for seed in ["1", "2", "3", "4"] {
                python = python.env("TXOS_TEST_SEED", seed);
                python.run("tests.test_many.Many.test_killed");
            }
        }
        Err(why) => skip::say(&format!("slapd can't be built: {why}")),
    }
}

/// Whatever of its writes a power cut leaves: a server on it has all that was acknowledged, and nothing half.
#[test]
fn power_cuts() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, make, dpkg-source or patch");
    match built() {
        Ok(built) => Disks::new("ldap", ("TXOS_LDAP", built)).cut(100, true),
        Err(why) => skip::say(&format!("slapd can't be built: {why}")),
    }
}

#[test]
fn a_full_disk() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, make, dpkg-source or patch");
    let lab = Lab::new();
    let Some(image) = Image::mount(&lab, "ext4", 32, "small") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    let _ = lab.native("head -c 1M /dev/zero > ../ballast");
    let small = image.point.to_string_lossy().into_owned();
    match python(&lab) {
        Ok(python) => {
            python.env("TXOS_TEST_SMALL", &small).run("tests.test_many.Many.test_a_full_disk");
        }
        Err(why) => skip::say(&format!("slapd can't be built: {why}")),
    }
}
