//! A place where C programs meet: a lab, and programs started in its tree.

use std::path::PathBuf;

use txos_testkit::image::Image;
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, require_some};

use crate::program::{Linked, program};

/// A program of these tests, in a lab's tree.
pub fn start(lab: &Lab, name: &'static str, linked: Linked) -> Invocation {
    Invocation::new(program(name, linked))
        .env("TXOS_STORE", lab.store())
        .env("TXOS_REALM", lab.realm())
        .dir(lab.tree())
}

/// The names in the lab's tree that are not expected.
pub fn strays(lab: &Lab, expected: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(lab.tree()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| !expected(&path.file_name().unwrap().to_string_lossy())).collect()
}

/// A transaction that could not make its place in the store, whatever part of it was made, is in no later one's way.
#[test]
fn a_place_that_was_half_made_is_not_used_again() {
    let lab = Lab::new();
    let few = ["-N", "128"];
    let image = require_some!(Image::mount_with(&lab, "ext4", &few, 16, "few"), "no ext4 here");
    let lab = lab.at(&image.point);
    let full = || start(&lab, "full", Linked::WithLibrary);
    // (The store is made, and what is mounted once stays.)
    let _ = lab.native("touch taken.0");
    let _ = full().run().expect(0);
    let mut failed = 0;
    for free in 0..24 {
        let _ = lab.native(&format!(
            "rm -f made; n=0; while touch taken.$n 2> /dev/null; do n=$((n + 1)); done
             for one in $(seq {free}); do rm taken.$((n - one)); done"
        ));
        let done = full().run().expect(0);
        failed += u32::from(done.stderr.contains("No space left on device"));
        assert_eq!(lab.read("made"), "made\n", "{free}");
    }
    assert!(failed > 3, "there was space enough");
    let _ = lab.native("rm made");
    lab.expect_clean();
}

/// What an ordinary user's program has opened, or closes to itself in the same transaction, is committed as natively, and the
/// store stays in order.
#[test]
fn modes_that_keep_their_owner_out() {
    let lab = Lab::in_memory();
    let user = User::new();
    let runs = |linked: Linked, name: &str| {
        let place = lab.nested(name);
        for dir in [lab.dir(), place.dir(), place.tree()] {
            std::os::unix::fs::chown(dir, Some(user.uid), Some(user.gid)).unwrap();
        }
        user.runs(start(&place, "modes", linked).dir(place.tree())).run().expect(0)
    };
    let natively = runs(Linked::Natively, "native").text();
    assert!(natively.contains("3: 102 bytes, mode 444, zzzzoooo"), "{natively}");
    assert_eq!(runs(Linked::WithLibrary, "inside").says_not("missing").text(), natively);
}
