//! Dovecot's maildir in transactions: Debian's packages are unpacked, and sessions on them are asked, loaded and killed by tests
//! in Python. It needs a network, so it is a long mode.

use std::path::PathBuf;
use std::sync::OnceLock;

use txos_testkit::image::Image;
use txos_testkit::{Lab, require, skip};

use crate::power::Disks;
use crate::{Python, built_for};

const WHY_NOT: &str = "it fetches Dovecot: ./test --long apps";

/// What was built for all of these tests; an error says why it could not be.
fn built() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| built_for("mail", "TXOS_MAIL")).clone()
}

fn has_what_it_takes() -> bool {
    ["python3", "cc", "dpkg-deb", "apt-get", "setpriv"].into_iter().all(skip::has)
}

/// Runs tests one by one, on an ext4 with a journal.
fn run(tests: &[&str]) {
    let lab = Lab::new();
    let Some(image) = Image::mount(&lab, "ext4", 512, "disk") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    match built() {
        Ok(built) => {
            for test in tests {
                Python::new(&lab, "mail")
                    .env("TXOS_MAIL", &built.to_string_lossy())
                    .env("TXOS_TEST_LONG", "apps")
                    .run(&format!("tests.{test}"));
            }
        }
        Err(why) => skip::say(&format!("Dovecot can't be unpacked: {why}")),
    }
}

#[test]
fn sessions_without_lock_files() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, dpkg-deb, apt-get or setpriv");
    run(&["test_sessions"]);
}

#[test]
fn a_full_disk() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, dpkg-deb, apt-get or setpriv");
    let lab = Lab::new();
    let Some(image) = Image::mount(&lab, "ext4", 32, "small") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    let _ = lab.native("head -c 1M /dev/zero > ../ballast");
    match built() {
        Ok(built) => Python::new(&lab, "mail")
            .env("TXOS_MAIL", &built.to_string_lossy())
            .env("TXOS_TEST_SMALL", &image.point.to_string_lossy())
            .run("tests.test_disk"),
        Err(why) => skip::say(&format!("Dovecot can't be unpacked: {why}")),
    }
}

/// Many clients, kills, and a program that knows nothing of Dovecot.
#[test]
fn many_clients_on_one_maildir() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, dpkg-deb, apt-get or setpriv");
    run(&["test_many"]);
}

/// With durable transactions: what was acknowledged is there after a power cut, and nothing is half there.
#[test]
fn power_cuts() {
    require!(skip::long("apps"), "{WHY_NOT}");
    require!(has_what_it_takes(), "there is no Python, compiler, dpkg-deb, apt-get or setpriv");
    match built() {
        // (Its store is its user's own.)
        Ok(built) => Disks::new("mail", ("TXOS_MAIL", built)).cut(100, false),
        Err(why) => skip::say(&format!("Dovecot can't be unpacked: {why}")),
    }
}
