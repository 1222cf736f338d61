//! What an outsider does to the files of a commit between the death of its process and the recovery is not lost.

use std::fs::{Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::Signal;
use txos_testkit::fault::steps_in;
use txos_testkit::image::Image;
use txos_testkit::wait::until;
use txos_testkit::{Lab, require_some};

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

/// An outsider opens the files of a light commit right before one of its renames, after which the commit is killed. The outsider then
/// writes to what it has open, which may be a file that is not in the tree any more, and closes it before the recovery or after it.
#[test]
fn what_is_written_by_an_older_descriptor_after_the_death_of_a_light_commit() {
    let prepared = || {
        let lab = Lab::in_memory();
        // A mode that no copy has by itself.
        let _ = lab.native("for f in a c d e f; do echo $f > $f; chmod 641 $f; done");
        lab
    };
    let commit = |lab: &Lab| start(lab, "between", Linked::WithLibrary).arg("light");
    let sample = prepared();
    let count = sample.dir().join("count");
    let _ = commit(&sample).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = steps_in(&count);
    let renames: Vec<usize> =
        (1..=steps.len()).filter(|step| steps[step - 1] == "rename").collect();
    let mut open_when_replaced = 0;
    for (step, closes) in renames.iter().flat_map(|step| [(step, true), (step, false)]) {
        let lab = prepared();
        let running =
            commit(&lab).env("TXOS_FAULT", format!("stop@{step},killafter@{step}")).start();
        let stat = format!("/proc/{}/stat", running.pid());
        until("it is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
        let open = |name: &&str| OpenOptions::new().append(true).open(lab.path(name)).ok();
        let mut files: Vec<_> =
            FILES.iter().filter_map(|name| open(name).map(|file| (name, file))).collect();
        running.signal(Signal::CONT);
        assert!(running.wait().killed(), "step {step}");
        for (name, file) in &mut files {
            let is_there = |now: Metadata| now.ino() == file.metadata().unwrap().ino();
            let there = lab.path(**name).metadata().is_ok_and(is_there);
            open_when_replaced += u32::from(!there);
            file.write_all(format!("theirs {name}\n").as_bytes()).unwrap();
        }
        let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
        let files = if closes { Vec::new() } else { files };
        let recovered = lab.txos(["recover"]).run().expect(0);
        drop(files);
        let content = |name: &&str| std::fs::read_to_string(lab.path(name)).unwrap_or_default();
        let (there, aside) = (FILES.iter().map(content).collect::<String>(), rescued(&lab));
        for name in names {
            let line = format!("theirs {name}\n");
            let is_aside = !there.contains(&line) && aside.contains(&line);
            assert!(
                there.matches(&line).count() == 1 || is_aside,
                "step {step}, closes: {closes}: {line:?} is lost\n{there}\naside: {aside}\n{recovered:?}"
            );
            let says = |words| recovered.stderr.contains(words);
            assert!(
                !is_aside || says("written by somebody else") && says("rescued/"),
                "{recovered:?}"
            );
        }
        for kept in std::fs::read_dir(lab.store().join("rescued")).into_iter().flatten() {
            let kept = kept.unwrap();
            // What the commit has made has its own.
            let wanted =
                if kept.file_name().as_encoded_bytes().ends_with(b"-d") { 0o641 } else { 0o644 };
            assert_eq!(kept.metadata().unwrap().mode() & 0o7777, wanted, "{kept:?}");
        }
    }
    assert!(open_when_replaced >= 4, "{open_when_replaced} of {steps:?}");
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

/// Commits that add names to a directory, and remove names from it, don't wait for each other: one is stopped in its middle, and others
/// end. Whether it goes on or is killed, the others have what they did.
#[test]
fn commits_of_other_names_in_a_directory_do_not_wait() {
    let lab = Lab::in_memory();
    let image = require_some!(Image::mount(&lab, "ext4", 64, "ext4"), "no ext4 here");
    let lab = lab.at(&image.point);
    let _ = lab.native("touch old older oldest");
    let commit = |what: &str, name: &str| {
        start(&lab, "beside", Linked::WithLibrary).args([what, name]).env("TXOS_STORE", lab.store())
    };
    let count = lab.dir().join("count");
    // (The store and its log are made by the first one.)
    let _ = commit("add", "first").run().expect(0);
    let _ = commit("add", "sample").env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let rename = steps_in(&count).iter().position(|step| step == "rename").unwrap() + 1;
    for (killed, name, others) in
        [(false, "one", ["two", "old"]), (true, "three", ["four", "older"])]
    {
        let stopped = commit("add", name).env("TXOS_FAULT", format!("stop@{rename}")).start();
        let stat = format!("/proc/{}/stat", stopped.pid());
        until("it is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
        let _ = commit("add", others[0]).run().expect(0);
        let _ = commit("remove", others[1]).run().expect(0);
        assert!(!lab.path(name).exists());
        stopped.signal(if killed { Signal::KILL } else { Signal::CONT });
        let done = stopped.wait();
        assert!(if killed { done.killed() } else { done.code() == 0 }, "{done:?}");
        // (What is durable in the log is redone.)
        let _ = commit("remove", if killed { "oldest" } else { "first" }).run().expect(0);
        for (path, there) in [(name, true), (others[0], true), (others[1], false)] {
            assert_eq!(lab.path(path).exists(), there, "killed: {killed}, {path}");
        }
        assert_eq!(lab.read(name), "ours\n");
    }
    drop(image);
}
