//! One more command in a pending transaction: all of it becomes the transaction's, or nothing does.

use rustix::process::Signal;
use txos_testkit::image::Image;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Lab, Rendezvous, Tree, require};

/// What the stable tree is, what a pending transaction makes of it, and what one more command does.
const PREPARE: &str = "
    echo old > a; ln a a2; echo b > b; mkdir -p d/e gone; echo x > d/x; echo g > gone/g; ln -s a link
    find . -exec touch -h -d @1000000000 {} +";
const FIRST: &str = "
    set -e
    echo new >> a; mkdir made; echo h > made/h; ln made/h made/h2; mv d moved; rm -r gone
    ln -s made to; mkfifo fifo; chmod 751 b; setfattr -n user.first -v 1 b
    truncate -s 3M sparse; echo end >> sparse; chown 7:8 made/h; chmod 4755 made/h";
const SECOND: &str = "
    set -e
    echo more >> made/h; echo more >> a2; rm -r moved; mkdir gone; mv made else; rm fifo
    setfattr -n user.first -v 2 b; echo in place | dd of=sparse conv=notrunc 2>/dev/null";

/// Tells a place's pending transaction, which must stay what it is: what it would change, and what it has.
fn content(lab: &Lab, id: &str) -> Result<String, String> {
    let mut all = String::new();
    for form in ["--name-status", "--json"] {
        let done = lab.txos(["diff", id, form]).run();
        if done.code() != 0 {
            return Err(format!("{done:?}"));
        }
        if form == "--name-status" {
            all.push_str(&done.text());
        }
    }
    let patch = lab.txos(["diff", id]).run();
    if patch.code() != 0 {
        return Err(format!("{patch:?}"));
    }
    Ok(all + &patch.text())
}

fn keep(lab: &Lab) -> String {
    let _ = lab.native(PREPARE);
    lab.script(&["--keep", "-q"], FIRST).run().expect(0).stderr.trim().to_owned()
}

/// Runs the second command, and kills the monitor while it runs.
fn killed_within(lab: &Lab, id: &str) {
    let mut meeting = Rendezvous::new();
    let script = format!("{SECOND}\n{PAUSE}");
    let running = lab.txos(["exec", id, "--", "sh", "-c", &script]).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    running.signal(Signal::KILL);
    assert!(running.wait().killed());
}

/// Commits a transaction that was taken back, and compares with what the first command alone makes.
fn commits_as_before(lab: &Lab, id: &str) {
    let native = lab.nested("native");
    let _ = native.native(PREPARE);
    let _ = native.native(FIRST);
    let _ = lab.txos(["commit", id]).run().expect(0);
    let (is, should) = (Tree::of(lab.tree()), Tree::of(native.tree()));
    let now_from =
        txos_testkit::tree::Tolerance { now_from: Some(1_000_000_001), times: false, links: true };
    should.expect(&is, now_from, "what is committed is not what it was before the failed command");
    lab.expect_clean();
}

#[test]
fn a_command_that_fails_leaves_it_as_it_was() {
    let lab = Lab::in_memory();
    let id = keep(&lab);
    let before = content(&lab, &id).unwrap();
    let failing = format!("{SECOND}\nexit 3");
    let done = lab.txos(["exec", &id, "--", "sh", "-c", &failing]).run().expect(3);
    let _ = done.says("stays pending, as it was before");
    assert_eq!(content(&lab, &id).unwrap(), before);
    let strict = format!("{SECOND}\n: > /dev/kmsg");
    let done = lab.txos(["exec", "--strict", &id, "--", "sh", "-c", &strict]).run().expect(125);
    let _ = done.says("/dev/kmsg").says("stays pending, as it was before");
    assert_eq!(content(&lab, &id).unwrap(), before);
    let _ = lab.txos(["exec", &id, "--", "no-such-program"]).run().expect(127);
    assert_eq!(content(&lab, &id).unwrap(), before);
    commits_as_before(&lab, &id);
}

#[test]
fn what_a_failing_command_did_is_kept_if_told_so() {
    let lab = Lab::in_memory();
    let id = keep(&lab);
    let script = "echo 1 > made/new; exit 3";
    let args = ["exec", "--commit-on", "always", &id, "--", "sh", "-c", script];
    let _ = lab.txos(args).run().expect(3);
    assert!(content(&lab, &id).unwrap().contains("made/new"));
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(lab.read("made/new"), "1\n");
    lab.expect_clean();
}

/// Monitor, reaper and command are each killed while the command runs, after it changed everything.
#[test]
fn killed_while_the_command_runs() {
    let lab = Lab::in_memory();
    let id = keep(&lab);
    let before = content(&lab, &id).unwrap();
    for whom in ["monitor", "reaper", "command"] {
        let mut meeting = Rendezvous::new();
        let script = format!("{SECOND}\n{PAUSE}");
        let running =
            lab.txos(["exec", &id, "--", "sh", "-c", &script]).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let monitor = running.pid();
        let child = |of: rustix::process::Pid| {
            let of = of.as_raw_nonzero();
            let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
            let first = list.split_whitespace().next().unwrap().parse().unwrap();
            rustix::process::Pid::from_raw(first).unwrap()
        };
        let victim = match whom {
            "monitor" => monitor,
            "reaper" => child(monitor),
            _ => child(child(monitor)),
        };
        rustix::process::kill_process(victim, Signal::KILL).unwrap();
        let done = running.wait();
        assert!(done.killed() || done.code() == 125 || done.code() == 137, "{whom}: {done:?}");
        // Who was killed can't say it; a reaper notices a little later that its monitor is gone.
        until("the transaction is free", || {
            let done = lab.txos(["show", &id, "--json"]).run();
            done.code() == 0 && done.json()["transaction"]["state"] == "pending"
        });
        assert_eq!(content(&lab, &id).as_ref(), Ok(&before), "{whom} was killed");
    }
    // What is there can be gone on with, and gc takes nothing of it.
    let _ = lab.txos(["gc"]).run().expect(0);
    assert_eq!(content(&lab, &id).as_ref(), Ok(&before));
    commits_as_before(&lab, &id);
}

/// `gc`, the first to come after a kill, takes nothing of it either.
#[test]
fn gc_takes_a_killed_one_back() {
    let lab = Lab::in_memory();
    let id = keep(&lab);
    let before = content(&lab, &id).unwrap();
    killed_within(&lab, &id);
    until("gc takes it back", || {
        let done = lab.txos(["gc"]).run().expect(0);
        done.stderr.contains(&format!("{id} is as it was before it"))
    });
    assert_eq!(lab.held().transactions, [(id.clone(), "pending".to_owned())]);
    assert_eq!(content(&lab, &id).as_ref(), Ok(&before));
    commits_as_before(&lab, &id);
}

/// What a layer was before is not there (its file system is not mounted, say): no layer is taken back
/// without the others, and nothing else is kept from going on.
#[test]
fn a_layer_that_is_not_there_is_waited_for() {
    let lab = Lab::in_memory();
    let id = keep(&lab);
    let before = content(&lab, &id).unwrap();
    killed_within(&lab, &id);
    let saved = lab.store().join("tx").join(&id).join("l0.saved");
    let aside = lab.dir().join("aside");
    std::fs::rename(&saved, &aside).unwrap();
    until("the transaction is free", || {
        let done = lab.txos(["diff", &id]).run();
        done.code() == 125 && done.stderr.contains("are not there")
    });
    let done = lab.txos(["gc"]).run().expect(0);
    let _ = done.says("is left as it is").says("are not there");
    std::fs::rename(&aside, &saved).unwrap();
    assert_eq!(content(&lab, &id).as_ref(), Ok(&before));
    commits_as_before(&lab, &id);
}

/// A fault at each step of saving, running and keeping: the transaction is what it was, or what the
/// command made of it, and never anything else.
fn every_step(fault: &str, kills: bool) {
    let lab = Lab::in_memory();
    let (first, second) = ("echo new > a; echo 1 > n", "echo more >> a; rm n; echo 2 > m");
    let mut seen = [0, 0];
    let mut wrong = Vec::new();
    for step in 1.. {
        let place = lab.nested(&format!("{step}"));
        let _ = place.native("echo old > a; ln a b");
        let kept = place.script(&["--keep", "-q"], first).run().expect(0);
        let id = kept.stderr.trim().to_owned();
        let before = content(&place, &id).unwrap();
        let count = place.dir().join("steps");
        let done = place
            .txos(["exec", &id, "--", "sh", "-c", second])
            .env("TXOS_FAULT", format!("{fault}@{step}"))
            .env("TXOS_FAULT_COUNT", &count)
            .run();
        let what = std::fs::read_to_string(&count).unwrap_or_default();
        let fired = what.lines().find(|l| l.starts_with("fired ")).map(str::to_owned);
        let Some(fired) = fired else {
            let _ = done.expect(0);
            break;
        };
        if kills {
            // The reaper ends a moment after its monitor.
            until("the transaction is free", || {
                place.txos(["show", &id, "--json"]).run().json()["transaction"]["state"]
                    == "pending"
            });
        }
        let after = match content(&place, &id) {
            Ok(after) => after,
            Err(error) => {
                wrong.push(format!("{fault}@{step} ({fired}): {error}"));
                continue;
            }
        };
        let is_new = after.contains("/m") && after != before;
        if after != before && !(is_new && after.contains("+more") && after.contains("+2")) {
            wrong.push(format!("{fault}@{step} ({fired}): neither old nor new:\n{after}"));
        }
        if !kills && done.code() != 0 && is_new && !done.stderr.contains("what the command changed")
        {
            wrong.push(format!("{fault}@{step} ({fired}): failed, and yet kept: {done:?}"));
        }
        if !kills && done.code() == 0 && !is_new {
            wrong.push(format!("{fault}@{step} ({fired}): done, and yet lost: {done:?}"));
        }
        seen[usize::from(is_new)] += 1;
        let committed = place.txos(["commit", &id]).run();
        let expected = if is_new { "new\nmore\n" } else { "new\n" };
        if committed.code() != 0 || place.read("b") != expected {
            wrong.push(format!("{fault}@{step} ({fired}): {committed:?}"));
        }
        place.expect_clean();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen[0] > 10 && seen[1] > 0, "{seen:?}: which steps were tried?");
}

#[test]
fn killed_before_every_step() {
    every_step("kill", true);
}

#[test]
fn every_step_fails_with_an_io_error() {
    every_step("EIO", false);
}

/// On a file system with blocks that can be shared, and on one of another kind than the store's.
#[test]
fn on_other_file_systems() {
    let lab = Lab::in_memory();
    for kind in ["xfs", "btrfs", "ext4"] {
        require!(txos_testkit::skip::has(&format!("mkfs.{kind}")), "mkfs.{kind}");
        let image = Image::mount(&lab, kind, 512, kind);
        require!(image.is_some(), "mounting {kind}");
        let place = lab.nested(&format!("lab-{kind}")).at(&lab.dir().join(kind));
        let id = keep(&place);
        let before = content(&place, &id).unwrap();
        let failing = format!("{SECOND}\nexit 3");
        let _ = place.txos(["exec", &id, "--", "sh", "-c", &failing]).run().expect(3);
        assert_eq!(content(&place, &id).as_ref(), Ok(&before), "{kind}");
        let _ = place.txos(["exec", &id, "--", "sh", "-c", SECOND]).run().expect(0);
        let _ = place.txos(["commit", &id]).run().expect(0);
        assert!(place.path("else/h2").exists(), "{kind}");
    }
}

/// What one command moved, or made a link to, another one reads: that is what nobody else may have changed.
#[test]
fn what_was_moved_before_is_looked_at_where_it_was() {
    let scenes = [
        ("mv d e", "cat e/f > out", "d/f"),
        ("mv d e; mv e/sub e/other", "cat e/other/g > out", "d/sub/g"),
        ("mkdir new; mv d new/e", "cat new/e/f > out", "d/f"),
        ("ln -s d link", "cat link/f > out", "d/f"),
        ("mkdir new; ln -s ../d new/link", "cat new/link/sub/g > out", "d/sub/g"),
        ("mv d e", "mv e again; cat again/f > out", "d/f"),
        ("mv d e; mv c d", "cat d/f > out", "c/f"),
    ];
    for (number, (first, second, changed)) in scenes.into_iter().enumerate() {
        for conflicts in [true, false] {
            let lab = Lab::in_memory();
            let place = lab.nested(&format!("{number}-{conflicts}"));
            let _ = place.native("mkdir -p d/sub c; echo 1 > d/f; echo 1 > d/sub/g; echo 1 > c/f");
            let _ = place.native("find . -exec touch -h -d @1000000000 {} +");
            let id =
                place.script(&["--keep", "-q"], first).run().expect(0).stderr.trim().to_owned();
            let exec = ["exec", &id, "--", "sh", "-c", second];
            let _ = place.txos(exec).run().expect(0);
            if conflicts {
                let _ = place.native(&format!("echo 2 > {changed}"));
            }
            let done = place.txos(["commit", &id]).run();
            assert_eq!(done.code(), if conflicts { 75 } else { 0 }, "{first}; {second}: {done:?}");
        }
    }
}

/// A look whether it could be committed says what a commit would, and changes nothing.
#[test]
fn a_commit_can_be_tried() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo r > read; echo w > written");
    let made = lab.script(&["--keep", "-q"], "cat read; echo x > written").run().expect(0);
    let id = made.stderr.trim().to_owned();
    let tried = lab.txos(["commit", &id, "--dry-run"]).run().expect(0);
    assert!(tried.stderr.contains("can be committed now"), "{tried:?}");
    assert_eq!(lab.read("written"), "w\n");
    let _ = lab.native("echo other > read");
    for verb in [&["commit", &id, "--dry-run"][..], &["commit", &id]] {
        let done = lab.txos(verb).run().expect(75);
        let says = |text: &str| done.stderr.contains(text);
        assert!(
            says("stays pending") && says("--isolation snapshot") && says("/read: "),
            "{done:?}"
        );
    }
    let snapshot = ["commit", &id, "--isolation", "snapshot"];
    let _ = lab.txos(snapshot.iter().chain(&["--dry-run"])).run().expect(0);
    let _ = lab.native("echo theirs > written");
    let done = lab.txos(["commit", &id, "--dry-run"]).run().expect(75);
    assert!(!done.stderr.contains("--isolation snapshot"), "{done:?}");
    let _ = lab.txos(snapshot.iter().chain(&["--dry-run"])).run().expect(75);
    let _ = lab.txos(snapshot).run().expect(75);
    assert_eq!(lab.read("written"), "theirs\n");
}

/// What the command has made, and others by now as well, it does not only read: nothing is advised that would not help.
#[test]
fn what_both_have_made_is_not_only_read() {
    for view in ["overlay", "library"] {
        let lab = Lab::in_memory();
        let made = lab.script(&["--view", view, "--keep", "-q"], "mkdir d; echo x > f").run();
        let id = made.expect(0).stderr.trim().to_owned();
        let _ = lab.native("mkdir d");
        let done = lab.txos(["commit", &id]).run().expect(75);
        assert!(done.stderr.contains("/d: it did not exist and was created"), "{done:?}");
        assert!(!done.stderr.contains("--isolation snapshot"), "{done:?}");
        let _ = lab.txos(["commit", &id, "--isolation", "snapshot"]).run().expect(75);
        assert!(!lab.path("f").exists());
    }
}

/// overlayfs copies a directory with its attributes when something in it is changed. What others change of those meanwhile is no
/// change of the command's.
#[test]
fn attributes_that_others_have_given_a_directory_stay() {
    let others = ["chmod 711 d", "chown 7:8 d", "setfattr -n user.o -v 1 d", "chmod 3777 d"];
    for change in others {
        for command in ["echo n > d/n", "mkdir d/e", "rm d/x", "mv d/x d/y", "touch d/x"] {
            let lab = Lab::new();
            let _ = lab.native("mkdir d; echo x > d/x");
            let done = lab.script(&["--view", "overlay", "--keep", "-q"], command).run().expect(0);
            let id = done.stderr.trim().to_owned();
            let _ = lab.native(change);
            let before = lab.native("stat -c '%a %u:%g' d; getfattr -d d").text();
            let _ = lab.txos(["commit", "--dry-run", &id]).run().expect(75);
            let done = lab.txos(["commit", &id]).run().expect(75);
            let _ = done.says("/d: it was changed after the transaction began");
            assert_eq!(
                lab.native("stat -c '%a %u:%g' d; getfattr -d d").text(),
                before,
                "{change}, {command}"
            );
            let _ = lab.txos(["abort", &id]).run().expect(0);
        }
    }
}

/// The command's own change of a directory is committed beside names of others, in parts as well.
#[test]
fn attributes_that_the_command_has_given_a_directory_are_committed() {
    let lab = Lab::new();
    let script = "chmod 711 d; setfattr -n user.own -v 1 d; echo n > d/n; echo m > d/m";
    let keep = || {
        let _ = lab.native("rm -rf d; mkdir -m 755 d");
        let done = lab.script(&["--view", "overlay", "--keep", "-q"], script).run().expect(0);
        done.stderr.trim().to_owned()
    };
    let is_committed = || {
        assert_eq!(
            lab.native("stat -c %a d; getfattr --only-values -n user.own d; ls d").text(),
            "711\n1m\nn\n"
        );
    };
    let id = keep();
    let _ = lab.txos(["commit", &id]).run().expect(0);
    is_committed();
    let id = keep();
    let _ = lab.txos(["commit", &id, "d/n"]).run().expect(0);
    assert_eq!(lab.native("stat -c %a d; ls d").text(), "755\nn\n");
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    is_committed();
}

/// Who comes last sets the time: the command's own, if it has set one, also if others have made names meanwhile.
#[test]
fn a_time_that_the_command_has_set_is_the_directorys() {
    const OLD: &str = "2001-02-03";
    const LATER: &str = "2041-02-03";
    for view in ["overlay", "library"] {
        for (script, theirs, time) in [
            ("touch -d OLD d", "true", OLD),
            ("touch -d OLD d", "echo > d/theirs", OLD),
            ("echo > d/n; touch -d OLD d", "echo > d/theirs", OLD),
            ("chmod 711 d; touch -d OLD d", "rm d/o", OLD),
            ("touch -d LATER d", "echo > d/theirs", LATER),
            // What it has not set is that of the last change.
            ("echo > d/n", "touch -d LATER d/o", ""),
            ("touch -d OLD d; echo > d/n", "echo > d/theirs", ""),
            ("chmod 711 d/o; cat d/o", "touch -d 2010-01-01 d", "2010-01-01"),
        ] {
            let lab = Lab::new();
            let _ =
                lab.native("mkdir d; echo > d/o; touch -d 2005-01-01 d; date +%Y-%m-%d > ../now");
            let today = std::fs::read_to_string(lab.dir().join("now")).unwrap();
            let dates = |text: &str| text.replace("OLD", OLD).replace("LATER", LATER);
            let _ = lab.script(&["--view", view, "--keep", "-q"], &dates(script)).run().expect(0);
            let _ = lab.native(&dates(theirs));
            let _ = lab.txos(["commit", "@"]).run().expect(0);
            let expected = if time.is_empty() { today.trim() } else { time };
            let found = lab.native("date -r d +%Y-%m-%d").text();
            assert_eq!(found.trim(), expected, "{view}: {script}, {theirs}");
        }
    }
}

#[test]
fn an_append_is_merged_with_appends_only() {
    let lab = Lab::new();
    for (change, status) in [
        ("echo b >> x", 0),
        ("echo b > x", 75),
        ("truncate -s 0 x", 75),
        ("echo b >> x; setfattr -n user.o -v 1 x", 75),
        ("setfattr -n user.o -v 1 x", 75),
    ] {
        let _ = lab.native("rm -f x; echo a > x");
        let done =
            lab.script(&["--view", "overlay", "--keep", "-q"], "echo c >> x").run().expect(0);
        let id = done.stderr.trim().to_owned();
        let _ = lab.native(change);
        let before = lab.native("cat x; getfattr -d x").text();
        let _ = lab.txos(["commit", "--dry-run", &id]).run().expect(status);
        assert_eq!(lab.native("cat x; getfattr -d x").text(), before, "{change}");
        let _ = lab.txos(["commit", &id]).run().expect(status);
        match status {
            0 => assert_eq!(lab.native("cat x").text(), "a\nb\nc\n"),
            _ => {
                assert_eq!(lab.native("cat x; getfattr -d x").text(), before, "{change}");
                let _ = lab.txos(["abort", &id]).run().expect(0);
            }
        }
    }
}
