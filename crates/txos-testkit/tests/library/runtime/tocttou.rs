//! Time of check to time of use: a program with root's rights asks whether its caller may write to a
//! file, and then writes to it, while that caller swaps the file for a link to another one. In a
//! transaction check and use are one; without, the attack must work, or it measures nothing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Running, skip};

use crate::program::{Linked, program};

/// The attacker: nobody has this number.
const ATTACKER: u32 = 64_322;

/// Links on the way through a maze; the kernel follows 40.
const LINKS: usize = 30;
/// Directories between one link and the next.
const DEPTH: usize = 60;

struct Scene {
    lab: Lab,
}

/// What a victim tells of itself.
type Tally = HashMap<String, u64>;

impl Scene {
    fn new() -> Scene {
        let lab = Lab::in_memory();
        let dir = lab.path("theirs");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(lab.path("secret"), "nobody's business\n").unwrap();
        std::fs::write(dir.join("target"), "0\n").unwrap();
        std::os::unix::fs::symlink(lab.path("secret"), dir.join("link")).unwrap();
        std::os::unix::fs::chown(&dir, Some(ATTACKER), Some(ATTACKER)).unwrap();
        std::os::unix::fs::chown(dir.join("target"), Some(ATTACKER), Some(ATTACKER)).unwrap();
        Scene { lab }
    }

    /// A way to the target that takes long: through directory after directory, link after link.
    fn maze(&self) -> PathBuf {
        let maze = self.lab.path("maze");
        let mut next = self.lab.path("theirs");
        for n in 0..LINKS {
            let deep = maze.join(format!("m{n}")).join(vec!["d"; DEPTH].join("/"));
            std::fs::create_dir_all(&deep).unwrap();
            std::os::unix::fs::symlink(&next, deep.join("on")).unwrap();
            next = deep.join("on");
        }
        next.join("target")
    }

    fn attack(&self, linked: Linked, how: &str) -> Running {
        let attacker = Invocation::new(program("attacker", linked))
            .arg(self.lab.path("theirs"))
            .arg(how)
            .env("TXOS_STORE", self.lab.store())
            .env("TXOS_REALM", self.lab.realm())
            .user(ATTACKER, ATTACKER)
            .start();
        until("the attack begins", || attacker.stdout() == "attacking\n");
        attacker
    }

    /// Runs a victim; looks for what it has written only if that must still be there.
    fn victim(&self, how: &str, path: &PathBuf, effort: Effort, look: bool) -> Tally {
        let linked = if how == "plain" { Linked::Natively } else { Linked::WithLibrary };
        let done = Invocation::new(program("victim", linked))
            .args([how, &effort.rounds.to_string(), &effort.seconds.to_string()])
            .arg(ATTACKER.to_string())
            .arg(if look { self.lab.path("theirs") } else { PathBuf::new() })
            .arg(path)
            .arg(self.lab.path("secret"))
            .env("TXOS_STORE", self.lab.store())
            .env("TXOS_REALM", self.lab.realm())
            .run()
            .expect(0);
        print!("{how} {}: {}", path.display().to_string().len(), done.text());
        let text = done.text();
        let mut words = text.split_whitespace();
        let mut tally = Tally::new();
        while let (Some(word), Some(number)) = (words.next(), words.next()) {
            tally.insert(word.to_owned(), number.parse().unwrap());
        }
        tally
    }

    /// Victims with and without, against one attacker.
    fn contest(&self, path: &PathBuf, attacker: Linked, how: &str, effort: Effort) {
        let mut attack = self.attack(attacker, how);
        // Until the attack has worked: on a busy machine the two may take turns for a long while.
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.victim("plain", path, effort, false)["wins"] == 0 {
            assert!(Instant::now() < deadline, "the attack never works, so this shows nothing");
        }
        let safe = self.victim("transaction", path, effort, how == "exchange");
        assert_eq!((safe["wins"], safe["lost"]), (0, 0), "{safe:?}");
        assert!(safe["committed"] > 0, "no transaction got through: {safe:?}");
        assert!(!attack.ended(), "the attacker gave up: {}", attack.stderr());
    }
}

#[derive(Clone, Copy)]
struct Effort {
    rounds: u64,
    seconds: u64,
}

/// 100,000 rounds in the long mode.
fn effort() -> Effort {
    if skip::long("tocttou") {
        Effort { rounds: 100_000, seconds: 100 }
    } else {
        Effort { rounds: 10_000, seconds: 2 }
    }
}

#[test]
fn an_outsider_swaps_file_and_link() {
    let scene = Scene::new();
    let path = scene.lab.path("theirs/target");
    scene.contest(&path, Linked::Natively, "exchange", effort());
}

#[test]
fn an_outsider_swaps_them_at_the_end_of_a_maze() {
    let scene = Scene::new();
    let path = scene.maze();
    scene.contest(&path, Linked::Natively, "exchange", effort());
}

#[test]
fn an_outsider_puts_others_in_place() {
    let scene = Scene::new();
    let path = scene.lab.path("theirs/target");
    scene.contest(&path, Linked::Natively, "replace", effort());
}

#[test]
fn a_participant_swaps_file_and_link() {
    let scene = Scene::new();
    let path = scene.lab.path("theirs/target");
    scene.contest(&path, Linked::WithLibrary, "exchange", effort());
}
