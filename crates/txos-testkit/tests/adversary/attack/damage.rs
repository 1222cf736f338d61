//! A store whose files somebody has damaged, or put there: what reads them refuses, by name, and acts on
//! nothing outside.

use std::path::{Path, PathBuf};

use txos_testkit::random::Random;
use txos_testkit::{Tree, skip};

use crate::{STRANGER, Scene};

/// What becomes of a file in the store.
const DAMAGES: [&str; 9] = [
    "true > \"$1\"",
    "head -c 7 \"$1\" > $tmp; cat $tmp > \"$1\"",
    "head -c 4096 /dev/urandom > \"$1\"",
    "cat \"$1\" \"$1\" > $tmp; cat $tmp > \"$1\"",
    "rm \"$1\"; mkfifo \"$1\"",
    "rm \"$1\"; mkdir \"$1\"",
    "rm \"$1\"; ln -s $secret/file \"$1\"",
    "chown $stranger \"$1\"; chmod 666 \"$1\"",
    "cp \"$1\" $tmp; tr 'a-y' 'b-z' < $tmp > \"$1\"",
];

/// Every regular file of a store.
fn files(dir: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), into),
            Ok(kind) if kind.is_file() => into.push(entry.path()),
            _ => {}
        }
    }
}

/// A store with everything in it: history, a kept transaction, a publish that was killed half done.
fn furnish(scene: &Scene) {
    let lab = &scene.lab;
    let _ =
        lab.native("rm -rf ../store work; mkdir work; for i in 1 2 3; do echo old > work/$i; done");
    let _ = lab.script(&[], "rm work/3; install -m 4755 /bin/true work/sb").run().expect(0);
    let _ = lab.script(&[], "rm work/sb; echo newer > work/1").run().expect(0);
    let _ = lab.script(&["--keep"], "echo kept > work/1; echo made > work/made").run().expect(0);
    let change = "for i in 1 2; do echo newest > work/$i; done; mkdir work/d; echo x > work/d/x";
    drop(lab.script(&[], change).env("TXOS_FAULT", "kill@20").run());
}

const COMMANDS: [&[&str]; 9] = [
    &["status"],
    &["list"],
    &["log"],
    &["recover"],
    &["show", "@"],
    &["diff", "@"],
    &["commit", "@"],
    &["revert", "@"],
    &["gc", "--keep", "0"],
];

#[test]
fn a_damaged_store_is_refused_or_read_and_leads_nowhere() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let (seed, rounds) = (crate::seed(3), if skip::long("attack") { 400 } else { 16 });
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let secret_at = lab.tree().parent().unwrap().join("secret").display().to_string();
    let (secret, theirs) = (scene.secret(), Tree::of(lab.path("theirs")));
    for round in 0..rounds {
        furnish(&scene);
        let mut all = Vec::new();
        files(lab.store(), &mut all);
        // Names of transactions are drawn anew each time: they come in the order of what they hold.
        all.sort_by_key(|path| {
            let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
            parts
                .skip_while(|part| part != "store")
                .filter(|part| part.len() != 8)
                .collect::<Vec<_>>()
        });
        // Content of the tree that is retained is no record.
        let records: Vec<_> =
            all.iter().filter(|p| !p.to_string_lossy().contains("/upper/")).collect();
        let hurt = records[random.below(records.len() as u64) as usize];
        let damage = *random.pick(&DAMAGES);
        println!("{round}: {}: {damage}", hurt.display());
        let script = format!(
            "tmp=../tmp; secret={secret_at}; stranger={STRANGER}; set -- \"$(cat)\"; {damage}"
        );
        let input = hurt.to_str().unwrap().to_owned();
        let hurting = txos_testkit::Invocation::shell(script).dir(lab.tree()).input(input);
        let _ = hurting.run().expect(0);
        for command in COMMANDS {
            let done = lab.txos(command).run();
            let known = matches!(done.code(), 0 | 1 | 2 | 75 | 125);
            assert!(known && !done.stderr.contains("panicked"), "{command:?}: {done:?}");
            assert!(done.code() == 0 || !done.stderr.is_empty(), "{command:?}: {done:?}");
            secret.expect_same(&scene.secret());
        }
        theirs.expect_same(&Tree::of(lab.path("theirs")));
    }
}
