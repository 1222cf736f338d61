//! What a command changed is published whole: everything that it changed, as it left it, and
//! nothing else.

use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use txos_testkit::image::Image;
use txos_testkit::pty::Pty;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::tree::{Tolerance, overlay_traces};
use txos_testkit::{Lab, Rendezvous, Tree, fault, require_some, system};

/// A tree with some of everything; all times are the same.
const PREPARE: &str = "
    mkdir -p d/inner gone/deep other turn full
    echo content > changed; echo bye > removed; echo x > d/x; echo y > d/inner/y
    echo deep > gone/deep/file; echo owner > attributes; echo linked > other/one
    ln other/one other/two; ln -s changed link; mkfifo pipe; echo file > turns
    echo t > turn/t; echo 1 > full/1; echo 2 > full/2
    setfattr -n user.kept -v 1 changed; setfacl -m u:1:r changed; setfacl -d -m g:2:rwx d
    truncate -s 1M sparse; echo end >> sparse; mknod null c 1 3
    cp /bin/true tool; chmod 4755 tool; setcap cap_net_raw+ep tool
    chmod 1777 other; chmod 2755 d
    find . -exec touch -h -d @1000000000 {} +";

/// Changes some of everything, in every way that overlayfs has a trick of its own for.
const CHANGE: &str = "
    set -e
    echo new > changed
    rm removed
    mv d moved; echo again > moved/x; mv moved/inner inner; mkdir moved/inner
    mkdir -p new/deep/er; echo f > new/deep/er/file; ln -s ../x new/link; mkfifo new/pipe
    mknod new/zero c 1 5
    rm -r gone; mkdir gone; echo other > gone/file
    rm -r full; mkdir full
    chown 1:2 attributes; chmod 4750 attributes; setfattr -n user.x -v y attributes
    echo more >> other/one
    rm link; ln -s elsewhere link
    rm turns; mkdir turns; echo in > turns/in
    rm -r turn; echo now a file > turn
    ln sparse other/sparse; printf x | dd of=sparse bs=1 seek=500000 conv=notrunc status=none
    ln changed other/three; mv other/two two
    touch -d @1100000000 other; chmod 700 moved
    mv tool t2; rm pipe; mkfifo pipe; rm null";

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    i64::try_from(now).unwrap_or(0) - 1
}

/// Does the changes natively and in a transaction, and compares.
#[track_caller]
fn as_native(lab: &Lab, options: &[&str]) {
    let from = now();
    let native = lab.nested("native");
    let _ = native.native(PREPARE);
    let _ = native.native(CHANGE);
    let _ = lab.native(PREPARE);
    let _ = lab.script(options, CHANGE).run().expect(0).says("txos: committed");
    let tolerance = Tolerance { now_from: Some(from), times: false, links: false };
    Tree::of(native.tree()).expect(&Tree::of(lab.tree()), tolerance, "not as after a native run");
    assert_eq!(overlay_traces(lab.tree()), [""; 0], "overlayfs has left traces");
    lab.expect_clean();
}

#[test]
fn everything_lands_on_the_root_file_system() {
    as_native(&Lab::new(), &[]);
}

#[test]
fn everything_lands_on_a_tmpfs() {
    as_native(&Lab::in_memory(), &["--no-durable", "--no-gate"]);
}

#[test]
fn everything_lands_with_everything_in_scope() {
    let lab = Lab::new();
    let _stable = system::stable();
    let from = now();
    let native = lab.nested("native");
    let _ = native.native(PREPARE);
    let _ = native.native(CHANGE);
    let _ = lab.native(PREPARE);
    let _ = lab.whole(&[], CHANGE).run().expect(0).says("txos: committed");
    let tolerance = Tolerance { now_from: Some(from), times: false, links: false };
    Tree::of(native.tree()).expect(&Tree::of(lab.tree()), tolerance, "not as after a native run");
    assert_eq!(overlay_traces(lab.tree()), [""; 0], "overlayfs has left traces");
    lab.expect_clean();
}

fn on_image(kind: &str, mib: u64) {
    let lab = Lab::new();
    let image = Image::mount(&lab, kind, mib, kind);
    let image = require_some!(image, "no {kind} here");
    let lab = lab.at(&image.point);
    as_native(&lab, &[]);
    drop(lab);
}

#[test]
fn everything_lands_on_ext4() {
    on_image("ext4", 64);
}

#[test]
fn everything_lands_on_xfs() {
    on_image("xfs", 320);
}

#[test]
fn everything_lands_on_btrfs() {
    on_image("btrfs", 128);
}

#[test]
fn several_file_systems_commit_together() {
    let lab = Lab::new();
    let (a, b) = (Image::mount(&lab, "ext4", 32, "a"), Image::mount(&lab, "ext4", 32, "b"));
    let (a, b) = require_some!(a.zip(b), "no ext4 images here");
    let place = |image: &Image, name: &str| image.point.join(name);
    std::fs::write(place(&a, "moves"), "over\n").unwrap();
    std::fs::write(place(&b, "changes"), "old\n").unwrap();
    let script = "set -e; echo here > file; echo new > ../b/changes; mv ../a/moves ../b/moved";
    let run = |options: &[&str], script: &str| {
        lab.txos(["run", "--scope"])
            .arg(lab.tree())
            .arg("--scope")
            .arg(&a.point)
            .arg("--scope")
            .arg(&b.point)
            .args(options)
            .args(["--", "sh", "-c", script])
            .run()
    };
    // Making a store on a file system changes the time of its root directory.
    let _ = run(&[], "true").expect(0);
    // What is discarded is deleted in the background, or by the next command.
    let _ = lab.txos(["gc"]).run().expect(0);
    let emptied = || {
        [&a, &b].iter().all(|image| {
            let trash = std::fs::read_dir(image.point.join(".txos/trash"));
            trash.map_or(0, Iterator::count) == 0
        })
    };
    txos_testkit::wait::until("the trash is emptied", emptied);
    let before = (Tree::of(&a.point), Tree::of(&b.point), Tree::of(lab.tree()));
    let _ = run(&[], &format!("{script}; exit 3")).expect(3);
    txos_testkit::wait::until("the trash is emptied", emptied);
    let same = |was: &Tree, now: Tree| was.expect_same(&now.without(".txos"));
    same(&before.0.clone().without(".txos"), Tree::of(&a.point));
    same(&before.1.clone().without(".txos"), Tree::of(&b.point));
    same(&before.2, Tree::of(lab.tree()));
    let _ = run(&[], script).expect(0);
    assert_eq!(lab.read("file"), "here\n");
    assert_eq!(std::fs::read_to_string(place(&b, "changes")).unwrap(), "new\n");
    assert_eq!(std::fs::read_to_string(place(&b, "moved")).unwrap(), "over\n");
    assert!(!place(&a, "moves").exists());
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    assert_eq!(std::fs::read_to_string(place(&a, "moves")).unwrap(), "over\n");
    assert_eq!(std::fs::read_to_string(place(&b, "changes")).unwrap(), "old\n");
    assert!(!place(&b, "moved").exists() && !lab.path("file").exists());
    lab.expect_clean();
}

#[test]
fn a_failing_command_changes_nothing() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    for status in [1, 2, 74, 75, 99, 125, 126, 127, 255] {
        let _ = lab
            .script(&[], &format!("{CHANGE}\nexit {status}"))
            .run()
            .expect(status)
            .says("rolled back, nothing changed");
        before.expect_same(&Tree::of(lab.tree()));
    }
    lab.expect_clean();
    assert_eq!(lab.held().transactions, [], "nothing is on record of what was rolled back");
}

#[test]
fn a_command_that_dies_of_a_signal_changes_nothing() {
    let lab = Lab::in_memory();
    for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("INT", 2), ("HUP", 1)] {
        let _ = lab
            .script(&[], &format!("echo > new; kill -{name} $$"))
            .run()
            .expect(128 + number)
            .says(format!("killed by SIG{name}"));
        assert!(!lab.path("new").exists());
    }
    lab.expect_clean();
}

#[test]
fn commands_that_can_not_be_executed() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo text > text; mkdir dir; printf 'x' > bad; chmod +x bad");
    let run = |program: &str| lab.txos(["run", "--scope", ".", "--", program]).run();
    let _ = run("no-such-command-anywhere").expect(127).says("not found");
    let _ = run("./no-such-file").expect(127).says("not found");
    let _ = run("./text").expect(126).says("can't be executed");
    let _ = run("./dir").expect(126).says("can't be executed");
    lab.expect_clean();
}

#[test]
fn wrong_usage_is_125() {
    let lab = Lab::new();
    for words in [
        &["run"][..],
        &["run", "--no-such-option", "true"],
        &["run", "--isolation", "none", "true"],
        &["no-such-command"],
        &["commit", "zzzzzzzz"],
        &["show", "@"],
        &["abort", "@"],
        &["run", "--scope", "no/such/dir", "--", "true"],
        &["run", "--review", "--", "true"],
    ] {
        let _ = lab.txos(words).run().expect(125);
    }
    let _ = lab.txos(["run", "--scope", "/proc", "--", "true"]).run().expect(125).says("/proc");
}

#[test]
fn commit_on_always_commits_a_failure() {
    let lab = Lab::in_memory();
    let _ = lab.script(&["--commit-on", "always"], "echo > new; exit 3").run().expect(3);
    assert!(lab.path("new").exists());
}

#[test]
fn keep_exec_diff_commit() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo old > a; echo b > b");
    let before = Tree::of(lab.tree());
    let kept = lab.script(&["--keep", "-q"], "echo new > a; mkdir d; echo c > d/c").run().expect(0);
    let id = kept.stderr.trim().to_owned();
    assert_eq!(id, lab.newest(), "quiet, --keep says the id alone: {kept:?}");
    before.expect_same(&Tree::of(lab.tree()));

    let list = lab.txos(["list", "--json"]).run().expect(0).json();
    assert_eq!(list["schema"], 1, "{list}");
    assert_eq!(list["transactions"][0]["id"], id.as_str());
    assert_eq!(list["transactions"][0]["state"], "pending");
    assert!(lab.txos(["list"]).run().expect(0).text().contains(&id));

    // The command goes on where the other stopped.
    let _ = lab.txos(["exec", &id[..4], "--", "sh", "-c", "cat a; rm b"]).run().expect(0);
    let seen = lab.txos(["exec", &id, "--", "sh", "-c", "cat a; ls"]).run().expect(0);
    assert_eq!(seen.text(), "new\na\nd\n");
    let _ = lab.txos(["exec", &id, "--", "sh", "-c", "exit 7"]).run().expect(7);
    before.expect_same(&Tree::of(lab.tree()));

    let status = lab.txos(["diff", &id, "--name-status"]).run().expect(0).text();
    let root = lab.tree().display();
    let expected = format!("M\t{root}/a\nD\t{root}/b\nA\t{root}/d/\nA\t{root}/d/c\n");
    assert_eq!(status, expected);
    let patch = lab.txos(["diff", &id]).run().expect(0).text();
    assert!(patch.contains("-old\n+new\n"), "{patch}");
    let json = lab.txos(["diff", &id, "--json"]).run().expect(0).json();
    assert_eq!(json["counts"]["added"], 2);
    assert_eq!(json["counts"]["modified"], 1);
    assert_eq!(json["counts"]["deleted"], 1);
    let one = lab.txos(["diff", &id, "--name-status", "d"]).run().expect(0).text();
    assert_eq!(one.lines().count(), 2, "{one}");
    let stat = lab.txos(["diff", &id, "--stat"]).run().expect(0).text();
    assert!(stat.contains("4 paths"), "{stat}");

    let _ = lab.txos(["commit", &id]).run().expect(0).says("committed");
    assert_eq!(lab.read("a"), "new\n");
    assert_eq!(lab.read("d/c"), "c\n");
    assert!(!lab.path("b").exists());
    let _ = lab.txos(["commit", &id]).run().expect(125).says("committed");
    let shown = lab.txos(["show", &id, "--json"]).run().expect(0).json();
    assert_eq!(shown["transaction"]["state"], "committed");
    assert_eq!(shown["changes"].as_array().map(Vec::len), Some(4));
    lab.expect_clean();
}

#[test]
fn an_aborted_transaction_is_gone() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    let _ = lab.script(&["--keep"], CHANGE).run().expect(0).says("nothing is published yet");
    let _ = lab.txos(["abort", "@"]).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
    assert_eq!(lab.held().transactions, []);
}

/// A part that takes one of a file's names away changes no more of the file: the rest goes on depending on it by another
/// name, and commits if nobody else has changed it. (In the library's view there is no such part.)
#[test]
fn what_a_part_leaves_of_a_file_by_another_name_the_rest_depends_on() {
    let others = ["true", "echo more >> OTHER", "chmod 600 OTHER", "setfattr -n user.k -v 1 OTHER"];
    for (view, take, other) in [
        ("overlay", "rm a", "b"),
        ("overlay", "rm a", "d/b"),
        ("library", "rm a", "b"),
        ("library", "rm -r e", "d/b"),
    ] {
        for theirs in others {
            let theirs = theirs.replace("OTHER", other);
            let lab = Lab::new();
            let _ = lab.native(&format!("mkdir d e; echo file > a; ln a {other}; ln a e/c"));
            let script = format!("{take}; cat {other} > out");
            let _ = lab.script(&["--view", view, "--keep", "-q"], &script).run().expect(0);
            let id = lab.newest();
            let part = take.rsplit(' ').next().unwrap();
            let done = lab.txos(["commit", &id, part]).run();
            if view == "library" {
                let _ = done.expect(125).says("has other names").says("nothing was changed");
            } else {
                let _ = done.expect(0);
            }
            let _ = lab.native(&theirs);
            let done = lab.txos(["commit", &id]).run();
            let expected = if theirs == "true" { 0 } else { 75 };
            assert_eq!(done.code(), expected, "{view}: {take}, {theirs}: {done:?}");
            assert_eq!(lab.path("out").exists(), expected == 0, "{view}: {take}, {theirs}");
        }
    }
}

/// A part changes a file of which the rest takes another name: the rest depends on the file as the part has left it.
#[test]
fn a_part_changes_a_file_of_which_the_rest_takes_another_name() {
    const PREPARE: &str =
        "mkdir d; echo file > a; ln a d/b; ln -s nowhere link; echo other > other; touch -d @9 d";
    let write = "printf x | dd of=a conv=notrunc status=none";
    let cases = [
        (write, "true"),
        (write, "echo theirs >> a"),
        (write, "chmod 640 d/b"),
        ("echo more >> a", "true"),
        (": > a", "true"),
        ("chmod 600 a", "true"),
        ("chmod 600 a", "echo theirs >> d/b"),
        ("touch -d @5 a", "true"),
        ("setfattr -n user.k -v 1 a", "true"),
    ];
    for (view, take) in [
        ("overlay", "mv -f link d/b"),
        ("overlay", "ln other new; mv -f new d/b"),
        ("library", "mv -f link d/b"),
        ("library", "ln other new; mv -f new d/b"),
    ] {
        // In an overlay the rest does not say which state of the file it has replaced.
        let cases = cases.iter().filter(|(_, theirs)| view == "library" || *theirs == "true");
        for &(change, theirs) in cases {
            let case = format!("{view}: {change}, {take}, {theirs}");
            let lab = Lab::new();
            let _ = lab.native(PREPARE);
            let before = Tree::of(lab.tree());
            let script = format!("set -e; {change}; {take}");
            let _ = lab.script(&["--view", view, "--keep", "-q"], &script).run().expect(0);
            let id = lab.newest();
            let part = lab.txos(["commit", &id, "a"]).run();
            // An overlay has a copy of the moved link, so something new takes the name.
            if view == "overlay" && take.starts_with("mv") {
                let _ = part.expect(125).says("have to be committed together");
                before.expect_same(&Tree::of(lab.tree()));
                continue;
            }
            assert_eq!(part.code(), 0, "{case}: {part:?}");
            let _ = lab.native(theirs);
            let middle = Tree::of(lab.tree());
            let rest = lab.txos(["commit", &id]).run();
            if theirs != "true" {
                assert_eq!(rest.code(), 75, "{case}: {rest:?}");
                middle.expect_same(&Tree::of(lab.tree()));
                continue;
            }
            assert_eq!(rest.code(), 0, "{case}: {rest:?}");
            let native = lab.nested("native");
            let _ = native.native(PREPARE);
            let _ = native.native(&script);
            let tolerance =
                Tolerance { now_from: Some(1_500_000_000), links: true, ..Tolerance::default() };
            Tree::of(native.tree()).expect(&Tree::of(lab.tree()), tolerance, &case);
            let _ = lab.txos(["revert", &id]).run().expect(0);
            middle.expect(&Tree::of(lab.tree()), tolerance, &case);
        }
    }
}

/// The same if the commit of the part is killed, at each of its steps: the rest goes with the part or after it.
#[test]
fn a_part_that_is_killed_leaves_a_rest_that_takes_another_name() {
    const PREPARE: &str = "mkdir d; echo file > a; ln a d/b; ln -s nowhere link";
    const CHANGE: &str = "set -e; printf x | dd of=a conv=notrunc status=none; mv -f link d/b";
    let native = Lab::in_memory();
    let _ = native.native(&format!("{PREPARE}; {CHANGE}"));
    let native = Tree::of(native.tree());
    let mut killed = 0;
    for step in 1.. {
        let lab = Lab::in_memory();
        let _ = lab.native(PREPARE);
        let _ = lab.script(&["--view", "library", "--keep", "-q"], CHANGE).run().expect(0);
        let id = lab.newest();
        let part = lab.txos(["commit", &id, "a"]).env("TXOS_FAULT", format!("kill@{step}")).run();
        let rest = lab.txos(["commit", &id]).run();
        assert_eq!(rest.code(), 0, "killed at step {step}: {part:?}, {rest:?}");
        let tolerance =
            Tolerance { now_from: Some(1_500_000_000), links: true, ..Tolerance::default() };
        native.expect(&Tree::of(lab.tree()), tolerance, &format!("killed at step {step}"));
        if part.code() == 0 {
            break;
        }
        killed += 1;
    }
    assert!(killed > 10, "only {killed} steps");
}

#[test]
fn part_of_a_pending_transaction_is_committed() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir one two; echo 1 > one/a; echo 2 > two/a");
    let _ = lab
        .script(&["--keep"], "echo x > one/a; echo x > two/a; echo n > two/n; mkdir three")
        .run()
        .expect(0);
    let id = lab.newest();
    let _ = lab.txos(["commit", &id, "two"]).run().expect(0).says("stays pending");
    assert_eq!(lab.read("two/a"), "x\n");
    assert_eq!(lab.read("two/n"), "n\n");
    assert_eq!(lab.read("one/a"), "1\n");
    assert!(!lab.path("three").exists());
    let list = lab.txos(["list", "--json"]).run().expect(0).json();
    let pending: Vec<_> = list["transactions"].as_array().into_iter().flatten().collect();
    assert_eq!(pending.len(), 1, "{list}");
    let rest = pending[0]["id"].as_str().unwrap().to_owned();
    let seen = lab.txos(["exec", &rest, "--", "cat", "one/a", "two/a"]).run().expect(0);
    assert_eq!(seen.text(), "x\nx\n");
    let _ = lab.txos(["commit", &rest]).run().expect(0);
    assert_eq!(lab.read("one/a"), "x\n");
    assert!(lab.path("three").is_dir());
    lab.expect_clean();
}

#[test]
fn a_dry_run_shows_and_changes_nothing() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    let done = lab.script(&["--dry-run"], CHANGE).run().expect(0);
    let done = done.says("turns/in").says("dry run");
    assert_eq!(done.text(), "", "standard output is the command's");
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
    assert_eq!(lab.held().transactions, []);
}

#[test]
fn review_asks() {
    let lab = Lab::in_memory();
    for (answers, status, made) in [("n\n", 1, false), ("d\ny\n", 0, true)] {
        let (mut pty, inner) = Pty::open(80, 24);
        let run = lab.script(&["--review"], "echo hello > reviewed").terminal(inner).start();
        pty.expect("reviewed");
        for answer in answers.split_inclusive('\n') {
            pty.expect("?");
            pty.type_in(answer);
        }
        let _ = pty.rest();
        let _ = run.wait().expect(status);
        assert_eq!(lab.path("reviewed").exists(), made);
    }
}

#[test]
fn inodes_stay_where_they_must() {
    let lab = Lab::in_memory();
    let _ =
        lab.native("echo 1 > linked; ln linked other; echo 1 > kept; echo 1 > mode; echo 1 > x");
    let inode = |name: &str| lab.path(name).metadata().unwrap().ino();
    let names = ["linked", "other", "kept", "mode"];
    let before = names.map(inode);
    let _ = lab
        .script(
            &["--keep-inode", "**/kept"],
            "for f in linked kept x; do echo 2 > $f; done; chmod 1 mode",
        )
        .run()
        .expect(0);
    assert_eq!(names.map(inode), before);
    for name in ["linked", "other", "kept", "x"] {
        assert_eq!(lab.read(name), "2\n", "{name}");
    }
    lab.expect_clean();
}

#[test]
fn a_new_directory_is_published_by_one_rename() {
    let lab = Lab::in_memory();
    let count = lab.dir().join("count");
    let script = "mkdir -p new/a/b; for i in $(seq 200); do echo $i > new/a/b/$i; done";
    let _ = lab.script(&[], script).env("TXOS_FAULT_COUNT", &count).run().expect(0);
    let steps = fault::steps_in(&count);
    let renames = steps.iter().filter(|step| *step == "rename").count();
    assert_eq!(renames, 1, "{steps:?}");
    assert_eq!(lab.path("new/a/b").read_dir().unwrap().count(), 200);
}

#[test]
fn history_names_and_messages() {
    let lab = Lab::in_memory();
    let options = ["--name", "first", "-m", "Why it was done"];
    let _ = lab.script(&options, "echo > a").run().expect(0);
    let _ = lab.script(&[], "echo > b").run().expect(0);
    let log = lab.txos(["log", "--json"]).run().expect(0).json();
    assert_eq!(log["schema"], 1);
    let transactions = log["transactions"].as_array().unwrap();
    assert_eq!(transactions.len(), 2);
    assert_eq!(transactions[0]["command"][2], "echo > b", "newest first");
    assert_eq!(transactions[1]["name"], "first");
    assert_eq!(transactions[1]["message"], "Why it was done");
    assert_eq!(transactions[1]["exit_status"], 0);
    assert_eq!(transactions[1]["changes"], 1);
    assert_eq!(transactions[1]["directory"], lab.tree().to_str().unwrap());
    let text = lab.txos(["log"]).run().expect(0).text();
    assert!(text.contains("Why it was done"), "{text}");
    assert_eq!(lab.txos(["log", "--oneline", "-n", "1"]).run().expect(0).text().lines().count(), 1);
}

#[test]
fn a_run_that_changes_nothing_succeeds() {
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    let _ = lab.script(&[], "cat changed; ls -lR >/dev/null").run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
}

/// As the first process of a container, or in a rescue shell that init itself is: the process group has
/// no number.
#[test]
fn the_process_group_may_be_outside_of_the_pid_namespace() {
    let lab = Lab::in_memory();
    let inside = |script: &str| {
        txos_testkit::Invocation::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(txos_testkit::binary::txos())
            .args(["run", "--scope", ".", "--", "sh", "-c", script])
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
    };
    let _ = inside("echo new > new; exit 3").run().expect(3);
    assert!(!lab.path("new").exists());
    let _ = inside("echo new > new").run().expect(0).says_not("txos: warning");
    assert_eq!(lab.read("new"), "new\n");
    lab.expect_clean();
}

#[test]
fn what_is_excluded_changes_at_once() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir -p cache; echo > log");
    let options = ["--exclude", "cache", "--exclude", "*log"];
    let _ = lab
        .script(&options, "echo x > cache/x; echo line >> log; echo > rolled-back; exit 1")
        .run()
        .expect(1);
    assert_eq!(lab.read("cache/x"), "x\n");
    assert_eq!(lab.read("log"), "\nline\n");
    assert!(!lab.path("rolled-back").exists());
}

#[test]
fn outside_the_scope_everything_changes_at_once() {
    let lab = Lab::in_memory();
    let outside = lab.dir().join("outside");
    let _ = lab.script(&[], &format!("echo x > {}; echo > in; exit 1", outside.display())).run();
    assert!(outside.exists());
    assert!(!lab.path("in").exists());
}

#[test]
fn completions_and_help() {
    let lab = Lab::in_memory();
    for shell in ["bash", "zsh", "fish"] {
        assert!(lab.txos(["completions", shell]).run().expect(0).text().contains("txos"));
    }
    let _ = lab.txos(["--help"]).run().expect(0);
    let _ = lab.txos(["--version"]).run().expect(0);
    let _ = lab.txos(["doctor", "--json"]).run();
    assert!(!lab.store().exists(), "looking has made a store");
}

#[test]
fn two_users_of_one_store_take_turns() {
    let lab = Lab::in_memory();
    let runs: Vec<_> = (0..6)
        .map(|n| {
            let script = format!("for i in $(seq 20); do echo $i > file-{n}-$i; done");
            lab.script(&[], &script).start()
        })
        .collect();
    for run in runs {
        let _ = run.wait().expect(0);
    }
    assert_eq!(lab.tree().read_dir().unwrap().count(), 120);
    lab.expect_clean();
}

/// `mv DIR TARGET/` looks at one name in TARGET. It asks first to put DIR where TARGET is, if nothing is there: that
/// looks at nothing in TARGET.
#[test]
fn a_directory_that_is_moved_into_another_is_in_nobodys_way_there() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir one two three target empty; echo 1 > one/f; echo 2 > two/f");
    let waiting = |moves: &str| {
        let mut at = Rendezvous::new();
        let script = format!("{moves}; {PAUSE}");
        let running = lab.script(&["--retry", "0"], &script).meeting(&mut at).start();
        assert!(at.arrived(), "it has moved it");
        (running, at)
    };
    let (running, at) = waiting("mv one target/");
    let _ = lab.native("echo x > target/x");
    // Nor does another transaction wait for it, which moves another one there.
    let _ = lab.script(&["--retry", "0", "--wait", "20"], "mv two target/").run().expect(0);
    at.go();
    let _ = running.wait().expect(0);
    assert_eq!(lab.native("ls target; cat target/*/f").text(), "one\ntwo\nx\n1\n2\n");
    // What it replaces must be empty at the commit.
    let (running, at) = waiting("mv -T three empty");
    let _ = lab.native("echo x > empty/x");
    at.go();
    let _ = running.wait().expect(75).says("/empty: names in it were added");
    // And nothing may be where it is put.
    let (running, at) = waiting("mv -nT three four");
    let _ = lab.native("mkdir four");
    at.go();
    let _ = running.wait().expect(75).says("/four");
    lab.expect_clean();
}
