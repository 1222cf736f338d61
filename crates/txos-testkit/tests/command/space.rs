//! Disk space: what transactions take is shown, the history has a bound, and a full disk is told what could be freed.

use rustix::process::Signal;
use txos_testkit::image::Image;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Lab, Rendezvous, skip};

/// `disk` of the newest transaction of a list.
fn disk(lab: &Lab, list: &str) -> Option<u64> {
    let listed = lab.txos([list, "--json"]).run().expect(0).json();
    listed["transactions"][0]["disk"].as_u64()
}

#[test]
fn what_transactions_take_is_shown() {
    let lab = Lab::in_memory();
    let _ = lab.native("head -c 3M /dev/zero > old; echo x > x");
    let taken = |bytes: Option<u64>, mib: u64| {
        let bytes = bytes.expect("it is known");
        assert!((mib << 20..(mib << 20) + 300_000).contains(&bytes), "{bytes} is not {mib} MiB");
    };
    // While it runs, and when it is kept.
    let mut meeting = Rendezvous::new();
    let script = format!("head -c 2M /dev/zero > new; ln new link; {PAUSE}");
    let running = lab.script(&["--keep"], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    taken(disk(&lab, "list"), 2);
    meeting.go();
    let _ = running.wait().expect(0);
    taken(disk(&lab, "list"), 2);
    let listed = lab.txos(["list"]).run().expect(0).text();
    assert!(listed.contains("  SIZE  ") && listed.contains("  2.1M  "), "{listed}");
    // One more command in it.
    let _ =
        lab.txos(["exec", "@", "--", "sh", "-c", "head -c 4M /dev/zero > more"]).run().expect(0);
    // The savepoint to which it can be undone is one more copy of what was there.
    taken(disk(&lab, "list"), 8);
    // In part it is history, and in part it is not.
    let more = lab.path("more").display().to_string();
    let _ = lab.txos(["commit", "@", &more]).run().expect(0);
    taken(disk(&lab, "list"), 2);
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert!(disk(&lab, "log").expect("it is known") < 300_000, "what was new is in the tree");
    let _ = lab.script(&[], "rm old").run().expect(0);
    taken(disk(&lab, "log"), 3);
    let shown = lab.txos(["log", "-n", "1"]).run().expect(0).text();
    assert!(shown.contains("Size:     3.1M"), "{shown}");
    let status = || lab.txos(["status", "--json"]).run().expect(0).json()["store"].clone();
    taken(status()["history_bytes"].as_u64(), 3);
    let _ = lab.script(&["--keep"], "head -c 1M /dev/zero > kept").run().expect(0);
    taken(status()["pending_bytes"].as_u64(), 1);
    let text = lab.txos(["status"]).run().expect(0).text();
    assert!(text.contains("1.1M in private copies") && text.contains("no bound"), "{text}");
    // What is undone has given back what it retained.
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert!(status()["history_bytes"].as_u64().expect("it is known") < 500_000);
}

#[test]
fn the_history_has_a_bound() {
    let lab = Lab::in_memory();
    let commit = |n: u32| {
        let _ = lab.native(&format!("head -c 1M /dev/zero > f{n}"));
        let _ = lab.script(&["--name", &n.to_string()], &format!("rm f{n}")).run().expect(0);
    };
    let names = || -> Vec<String> {
        let log = lab.txos(["log", "--json"]).run().expect(0).json();
        let of = |t: &serde_json::Value| t["name"].as_str().unwrap_or("-").to_owned();
        log["transactions"].as_array().unwrap().iter().map(of).collect()
    };
    let _ =
        lab.script(&["--keep", "--name", "pending"], "head -c 2M /dev/zero > p").run().expect(0);
    (1..=4).for_each(commit);
    assert_eq!(names(), ["4", "3", "2", "1"]);
    // Two are 2 MiB and a little, and the pending one takes two.
    let set = lab.txos(["gc", "--bound", "4800K", "--json"]).run().expect(0).json();
    assert_eq!(set["bound"], 4800 << 10);
    assert_eq!(set["removed"].as_array().map(Vec::len), Some(2), "{set}");
    assert_eq!(names(), ["4", "3"]);
    // From now on at each commit.
    (5..=7).for_each(commit);
    assert_eq!(names(), ["7", "6"]);
    let text = lab.txos(["status"]).run().expect(0).text();
    assert!(text.contains("bound 4.7M"), "{text}");
    // A pending one never goes, nor does the newest commit, whatever the bound. It can be undone.
    let _ = lab.txos(["gc", "--bound", "1K"]).run().expect(0);
    assert_eq!(names(), ["7"]);
    commit(8);
    assert_eq!(names(), ["8"]);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert_eq!(names().len(), 2, "a pair stays together");
    assert!(lab.path("f8").exists());
    let _ = lab.txos(["commit", "pending"]).run().expect(0);
    assert_eq!(names(), ["pending"]);
    let _ = lab.txos(["gc", "--bound", "none"]).run().expect(0);
    (9..=10).for_each(commit);
    assert_eq!(names(), ["10", "9", "pending"]);
    for bad in ["", "1.5G", "all"] {
        let _ = lab.txos(["gc", "--bound", bad]).run().expect(125);
    }
    // One that can't be read is no reason to remove anything, or not to commit.
    std::fs::write(lab.store().join("bound"), "txos-bound 2\n1\n").unwrap();
    let _ = lab.native("echo y > y");
    let _ = lab.script(&[], "rm y").run().expect(0).says("--bound");
    assert_eq!(names().len(), 4);
    let _ = lab.txos(["gc", "--bound", "none"]).run().expect(0);
    lab.expect_clean();
}

/// Killed while the history is made smaller: what is left is whole, and the next command goes on.
#[test]
fn a_bound_survives_kills() {
    let lab = Lab::in_memory();
    for n in 0..6 {
        let _ = lab.native(&format!("head -c 256K /dev/zero > f{n}"));
        let _ = lab.script(&[], &format!("rm f{n}")).run().expect(0);
    }
    for n in 0..6u64 {
        let running = lab.txos(["gc", "--bound", "600K"]).start();
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_micros(n * 900) {
            std::hint::spin_loop();
        }
        running.signal(Signal::KILL);
        let _ = running.wait();
        let _ = lab.txos(["log", "--json"]).run().expect(0);
    }
    let _ = lab.txos(["gc", "--bound", "600K"]).run().expect(0);
    let log = lab.txos(["log", "--json"]).run().expect(0).json();
    assert_eq!(log["transactions"].as_array().map(Vec::len), Some(2));
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert!(lab.path("f5").exists());
    lab.expect_clean();
}

#[test]
fn a_full_disk_is_told_what_could_be_freed() {
    let lab = Lab::new();
    let Some(image) = Image::mount(&lab, "ext4", 24, "small") else {
        return skip::say("no ext4 image");
    };
    let lab = lab.at(&image.point);
    let _ = lab.native("head -c 6M /dev/urandom > old");
    let fill = "head -c 100M /dev/zero > big";
    // There is no history yet that could be removed.
    let done = lab.script(&[], fill).run().expect(1);
    assert!(!done.stderr.contains("txos gc"), "{done:?}");
    let _ = lab.script(&[], "rm old").run().expect(0);
    let done = lab.script(&[], fill).run().expect(1);
    let _ = done.says("the history of 1 transaction takes 6.").says("txos gc --keep N");
    let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
    lab.expect_clean();
}

/// What takes long to count is noted by a process for which nobody waits.
#[test]
fn much_is_counted_after_the_end() {
    let lab = Lab::in_memory();
    let script =
        "mkdir d; cd d; for i in $(seq 100); do mkdir $i; (cd $i; seq 100 | xargs touch); done";
    let done = lab.script(&["--keep", "-q"], script).run().expect(0);
    let id = done.stderr.trim().to_owned();
    let note = lab.store().join("tx").join(&id).join("space");
    until("the space is noted", || note.exists());
    let noted = std::fs::read_to_string(&note).unwrap();
    assert!(noted.contains(" pending "), "{noted}");
    let bytes: u64 = noted.split(' ').next().unwrap().parse().unwrap();
    assert!(disk(&lab, "list").is_some_and(|shown| shown == bytes), "{noted}");
    let _ = lab.txos(["abort", &id]).run().expect(0);
}
