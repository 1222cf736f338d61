//! Attacks: what somebody who has no rights to it tries with a transaction, a store or a realm of
//! somebody else's. SECURITY.md says what is a boundary and what is not; each of its promises names a
//! test here.
//!
//! | module | who | tries |
//! |---|---|---|
//! | [`planting`] | a user | things at the places of root's stores |
//! | [`swaps`] | a user | to lead root's publish and recovery elsewhere |
//! | [`stores`] | a user | a store and a journal of his own, for root to work on |
//! | [`scribble`] | a participant | to write anything into the realm |
//! | [`inside`] | a command | to gain rights, to reach the store, to forge overlayfs's marks |
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod inside;
mod planting;
mod scribble;
mod stores;
mod swaps;

use std::path::PathBuf;

use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Running, Tree};

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
