//! Somebody swaps a directory of his, in which root publishes, for a link to another place, or one
//! file for another, all the time: before, during and after the publish, while it is undone, and while
//! recovery undoes it.

use txos_testkit::random::Random;
use txos_testkit::{Tree, skip};

use crate::Scene;

/// What root's transaction does in the stranger's directory: something of every kind.
const CHANGE: &str = "
    echo new > theirs/d/file || exit 9
    echo made > theirs/d/made; mkdir -p theirs/d/dir/deep; echo x > theirs/d/dir/deep/x
    rm -f theirs/d/gone; chmod 640 theirs/d/mode; touch -d @1000000000 theirs/d/mode
    echo more >> theirs/d/linked; ln -s x theirs/d/sym";

const PREPARE: &str = "
    rm -rf theirs/d theirs/link other; mkdir -p theirs/d/d other
    for f in file mode gone; do echo old > theirs/d/$f; done
    echo old > theirs/d/linked; ln theirs/d/linked other/linked
    chown -R $stranger theirs; chown 0 theirs/d/linked";

fn rounds() -> u64 {
    if skip::long("attack") { 1000 } else { 12 }
}

impl Scene {
    fn prepare(&self) {
        let prepare = PREPARE.replace("$stranger", &crate::STRANGER.to_string());
        let _ = self.lab.native(&prepare);
        self.plant("ln -s ../../secret link");
    }
}

/// Looks whether the directory is a link, and uses it if not.
const CHECKED: &str = "[ ! -h theirs/d ] || exit 9
    echo new > theirs/d/file; rm -f theirs/d/gone; chmod 640 theirs/d/mode";

/// Without a transaction the attack must work, or it measures nothing.
#[test]
fn without_a_transaction_the_secret_is_changed() {
    let scene = Scene::new();
    scene.prepare();
    let before = scene.secret();
    let mut attack = scene.attack(&["exchange", "d", "link"]);
    for n in 0.. {
        let done = txos_testkit::Invocation::shell(CHECKED).dir(scene.lab.tree()).run();
        drop(done);
        if !before.difference(&scene.secret(), Default::default()).is_empty() {
            break;
        }
        assert!(n < 20_000 && !attack.ended(), "it never works");
    }
}

/// In a transaction check and use are one, whatever is swapped when. The secret is in scope.
#[test]
fn a_directory_is_swapped_for_a_link_while_root_looks_and_writes() {
    let scene = Scene::new();
    let lab = &scene.lab;
    scene.prepare();
    let secret = scene.secret();
    for view in crate::VIEWS {
        let mut committed = 0;
        for _ in 0..rounds() {
            let attack = scene.attack(&["exchange", "d", "link"]);
            let run = lab.txos(["run"]).args(view).arg("--scope").arg(lab.dir());
            let done = run.args(["--", "sh", "-c", CHECKED]).run();
            assert!(matches!(done.code(), 0 | 1 | 2 | 9 | 75), "{view:?}: {done:?}");
            committed += u32::from(done.code() == 0);
            drop(attack);
            secret.expect_same(&scene.secret());
            scene.prepare();
        }
        println!("{view:?}: {committed} of {} committed", rounds());
    }
    lab.expect_clean();
}

/// The transaction is made in peace; only its publish, and what undoes it, is attacked.
#[test]
fn a_directory_is_swapped_for_a_link_while_root_publishes_and_recovers() {
    let scene = Scene::new();
    let lab = &scene.lab;
    scene.prepare();
    for view in crate::VIEWS {
        publishes_among_swaps(&scene, view);
    }
    lab.expect_clean();
}

fn publishes_among_swaps(scene: &Scene, view: [&str; 2]) {
    let lab = &scene.lab;
    let options = [&view[..], &["--keep"]].concat();
    let count = lab.dir().join("count");
    let _ = std::fs::remove_file(&count);
    let _ = lab.script(&[], CHANGE).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = txos_testkit::fault::steps_in(&count).len() as u64;
    let seed = crate::seed(1);
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
    scene.prepare();
    let secret = scene.secret();
    for _ in 0..rounds() {
        let _ = lab.script(&options, CHANGE).run().expect(0);
        let attack = scene.attack(&["exchange", "d", "link"]);
        let step = 1 + random.below(steps);
        let how = random.pick(&["kill", "killafter", "EIO"]);
        let done = lab.txos(["commit", "@"]).env("TXOS_FAULT", format!("{how}@{step}")).run();
        assert!(done.killed() || matches!(done.code(), 0 | 75 | 125), "{done:?}");
        secret.expect_same(&scene.secret());
        // Recovery among swaps may have to be repeated; it must not write elsewhere.
        for _ in 0..3 {
            let done = lab.txos(["recover"]).run();
            assert!(matches!(done.code(), 0 | 125), "{done:?}");
        }
        drop(attack);
        secret.expect_same(&scene.secret());
        let _ = lab.txos(["recover"]).run().expect(0);
        secret.expect_same(&scene.secret());
        let _ = lab.txos(["abort", "@"]).run();
        scene.prepare();
    }
}

/// The command itself commits, in the middle of the swaps, and is killed at a step of that.
#[test]
fn a_directory_is_swapped_for_a_link_while_a_command_publishes_by_itself() {
    let scene = Scene::new();
    let lab = &scene.lab;
    scene.prepare();
    let secret = scene.secret();
    let seed = crate::seed(1);
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut killed = 0;
    for _ in 0..rounds() {
        let attack = scene.attack(&["exchange", "d", "link"]);
        let fault = format!("{}@{}", random.pick(&["kill", "killafter"]), 1 + random.below(80));
        let run = lab.script(&["--view", "library", "--no-durable"], CHANGE);
        let done = run.env("TXOS_FAULT", fault).run();
        killed += u32::from(![0, 9, 75].contains(&done.code()));
        secret.expect_same(&scene.secret());
        for _ in 0..3 {
            let done = lab.txos(["recover"]).run();
            assert!(matches!(done.code(), 0 | 125), "{done:?}");
        }
        drop(attack);
        let _ = lab.txos(["recover"]).run().expect(0);
        secret.expect_same(&scene.secret());
        let _ = lab.txos(["gc"]).run().expect(0);
        scene.prepare();
    }
    println!("{killed} of {} were killed or failed", rounds());
}

/// A file that is changed in place, because it has another name, is swapped for one that is somebody
/// else's: a link to it (as where the kernel does not protect hard links) in the same directory.
#[test]
fn a_file_is_swapped_for_another_while_root_writes_to_it() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let _ = lab.native(
        "mkdir other; echo target > theirs/target; ln theirs/target other/target
        echo untouched > ../victim; chmod 600 ../victim; ln ../victim theirs/victim",
    );
    let top = lab.tree().parent().unwrap().to_owned();
    let looks = || {
        let tree = Tree::of(&top);
        let meta = std::fs::metadata(top.join("victim")).unwrap();
        drop(tree);
        use std::os::unix::fs::MetadataExt;
        (
            std::fs::read_to_string(top.join("victim")).unwrap(),
            meta.mode(),
            meta.uid(),
            meta.mtime(),
        )
    };
    let before = looks();
    let mut landed = 0;
    for n in 0..rounds() {
        let script = format!(
            "echo {n} >> theirs/target; chown 7 theirs/target; chmod {} theirs/target",
            if n % 2 == 0 { "644" } else { "4755" }
        );
        let kept = lab.script(&["--keep"], &script).run().expect(0);
        drop(kept);
        let attack = scene.attack(&["exchange", "target", "victim"]);
        let mut done = lab.txos(["commit", "@"]).run();
        for _ in 0..8 {
            if done.code() != 75 {
                break;
            }
            done = lab.txos(["commit", "@"]).run();
        }
        drop(attack);
        assert!(matches!(done.code(), 0 | 75), "{done:?}");
        landed += u32::from(done.code() == 0);
        assert_eq!(looks(), before, "what was committed went to another file");
        let _ = lab.txos(["abort", "@"]).run();
        let _ = lab.native(
            "[ theirs/victim -ef ../victim ] || { mv theirs/victim v; mv theirs/target theirs/victim; mv v theirs/target; }",
        );
    }
    println!("{landed} of {} landed", rounds());
}
