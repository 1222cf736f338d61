//! Attacks: what somebody who has no rights to it tries with a transaction, a store or a realm of
//! somebody else's. SECURITY.md says what is a boundary and what is not; each of its promises names a
//! test here.
//!
//! | module | who | tries |
//! |---|---|---|
//! | [`afresh`] | a user | to keep a hold on what root makes afresh |
//! | [`damage`] | whoever damages a store | to lead what reads it elsewhere |
//! | [`exposure`] | a user | to reach what is his neither before nor after, while root publishes |
//! | [`filling`] | a user | to stop root's transactions by filling what the store and the realm are on |
//! | [`leases`] | a user | to stop root's commit by a lease |
//! | [`retained`] | a user | to use what root has removed, by a descriptor from before |
//! | [`mixed`] | all of them | at once, for `$TXOS_TEST_SECONDS` in the long mode |
//! | [`peers`] | a user at the other end of a socket or pipe | to stop root's transaction or to have it lose, double or hand out something |
//! | [`planting`] | a user | things at the places of root's stores |
//! | [`served`] | a user | to hold up root's transaction by a file system that the user serves |
//! | [`swaps`] | a user | to lead root's publish and recovery elsewhere |
//! | [`stores`] | a user | a store and a journal of his own, for root to work on |
//! | [`scribble`] | a participant | to write anything into the realm |
//! | [`callers`] | a user's process in root's transaction | to have the supervisor act with root's rights |
//! | [`inside`] | a command | to gain rights, to reach the store, to forge overlayfs's marks |
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod afresh;
mod callers;
mod damage;
mod exposure;
mod filling;
mod inside;
mod leases;
mod mixed;
mod peers;
mod planting;
#[path = "../../library/runtime/program.rs"]
#[expect(dead_code, reason = "what the other tests need")]
mod program;
mod retained;
mod scribble;
mod served;
mod stores;
mod swaps;

use std::path::PathBuf;

use txos_testkit::image::Image;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Running, Tree, random, skip};

/// Mounts what can't be written to over `/run`, in the mount namespace of the test alone: root's realm is in
/// `/dev/shm` then.
fn without_run() {
    let flags = rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount("tmpfs", "/run", "tmpfs", flags, None).unwrap();
}

/// How a command gets its view.
const VIEWS: [[&str; 2]; 2] = [["--view", "overlay"], ["--view", "library"]];

/// Somebody without rights: nobody has this number.
const STRANGER: u32 = 64_323;

/// A place with a directory of the stranger's in the tree, and a secret beside it.
struct Scene {
    lab: Lab,
    attacker: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let lab = Lab::in_memory();
        let attacker = lab.dir().join("attacker");
        // Out of the way of the permissions of wherever it was built.
        txos_testkit::process::copy_program(env!("CARGO_BIN_EXE_attacker"), &attacker);
        let _ = lab.native(
            "mkdir ../secret ../secret/d theirs
            for f in file mode gone linked; do echo secret > ../secret/$f; echo secret > ../secret/d/$f; done
            chmod 600 ../secret/*",
        );
        std::os::unix::fs::chown(lab.path("theirs"), Some(STRANGER), Some(STRANGER)).unwrap();
        Scene { lab, attacker }
    }

    /// What nobody may change.
    fn secret(&self) -> Tree {
        Tree::of(self.lab.tree().parent().unwrap().join("secret"))
    }

    /// A shell script of the stranger's, in his directory.
    fn plant(&self, script: &str) {
        let script = format!("set -e\n{script}");
        let stranger = Invocation::shell(script).dir(self.lab.path("theirs"));
        let _ = stranger.user(STRANGER, STRANGER).run().expect(0);
    }

    fn attack(&self, args: &[&str]) -> Running {
        let attack = Invocation::new(&self.attacker).args(args).dir(self.lab.path("theirs"));
        let attack = attack.user(STRANGER, STRANGER).start();
        until("the attack begins", || attack.stdout() == "attacking\n");
        attack
    }
}

/// File systems besides tmpfs on which what is exposed, retained and kept is looked at.
const FILE_SYSTEMS: [&str; 2] = ["btrfs", "xfs"];

/// A place on a file system of this kind; `None`: there is none here.
fn on(kind: &str) -> Option<(Lab, Image)> {
    let lab = Lab::in_memory();
    // As large as the smallest XFS.
    let image = Image::mount(&lab, kind, 320, kind)?;
    let lab = lab.at(&image.point);
    Some((lab, image))
}

/// Where the random attacks begin: at a number of their own each time in the long mode, and where
/// `$TXOS_TEST_SEED` says one.
fn seed(short: u64) -> u64 {
    if skip::long("attack") || std::env::var_os("TXOS_TEST_SEED").is_some() {
        random::seed()
    } else {
        short
    }
}
