//! What an outsider does to the files of a commit between the death of its process and the recovery is not lost.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use txos_testkit::Lab;

use crate::place::start;
use crate::program::Linked;

const FILES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// An outsider's line at the end of a file, if there is one.
fn append(path: &Path, line: &str) -> bool {
    match OpenOptions::new().append(true).open(path) {
        Ok(mut file) => file.write_all(line.as_bytes()).map(|()| true).unwrap(),
        Err(_) => false,
    }
}

/// What the store has put aside for others.
fn rescued(lab: &Lab) -> String {
    let Ok(kept) = std::fs::read_dir(lab.store().join("rescued")) else { return String::new() };
    kept.map(|kept| std::fs::read_to_string(kept.unwrap().path()).unwrap()).collect()
}

/// A commit is killed at every step; outsiders append to `touched` of its files, and then it is recovered. Gives how many were
/// killed.
fn at_every_step(mode: &str, how: &str, touched: &[&str]) -> u32 {
    for step in 1..400 {
        let lab = Lab::in_memory();
        let _ = lab.native("for f in a c d e f; do echo $f > $f; done");
        let done = start(&lab, "between", Linked::WithLibrary)
            .arg(mode)
            .env("TXOS_FAULT", format!("{how}@{step}"))
            .run();
        if !done.killed() {
            let _ = done.expect(0);
            return step - 1;
        }
        let theirs: Vec<String> = touched
            .iter()
            .map(|name| (name, format!("theirs {name}\n")))
            .filter(|(name, line)| append(&lab.path(name), line))
            .map(|(_, line)| line)
            .collect();
        let recovered = lab.txos(["recover"]).run().expect(0);
        let there: String = FILES
            .iter()
            .map(|name| std::fs::read_to_string(lab.path(name)).unwrap_or_default())
            .collect();
        let aside = rescued(&lab);
        for line in &theirs {
            assert!(
                there.matches(line.as_str()).count() == 1
                    || !there.contains(line) && aside.contains(line),
                "{mode}, {how}@{step}: {line:?} is lost\n{there}\naside: {aside}\n{recovered:?}"
            );
        }
        // And it is whole or not there.
        let ours = |name: &&&str| lab.path(name).exists() && lab.read(name).contains("ours");
        let (all, count) = (["a", "b", "c", "e"], ["a", "b", "c", "e"].iter().filter(ours).count());
        assert!(
            count == 0 || count == all.len(),
            "{mode}, {how}@{step}: {count} of {all:?}\n{there}\n{recovered:?}"
        );
        assert_eq!(lab.path("d").exists(), count == 0, "{mode}, {how}@{step}");
        if touched.is_empty() {
            lab.expect_clean();
        }
    }
    panic!("it has too many steps");
}

#[test]
fn appends_between_the_death_of_a_light_commit_and_its_recovery() {
    for how in ["kill", "killafter"] {
        for touched in [&FILES[..], &["a"], &["c"], &["d"], &["e"]] {
            assert!(at_every_step("light", how, touched) > 5);
        }
    }
}

#[test]
fn appends_between_the_death_of_a_full_commit_and_its_recovery() {
    for touched in [&FILES[..], &["c"], &["e"]] {
        assert!(at_every_step("full", "killafter", touched) > 10);
    }
}

/// A program's handler of SIGIO stays: the commit takes leases, and asks for another signal if one is broken.
#[test]
fn a_commit_leaves_the_programs_handler_of_sigio() {
    let lab = Lab::in_memory();
    let _ = lab.native("for f in a c d e f; do echo $f > $f; done");
    let done = start(&lab, "between", Linked::WithLibrary).arg("sigio").run().expect(0);
    assert_eq!(done.text(), "there\n");
}
