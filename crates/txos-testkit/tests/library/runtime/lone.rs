//! Transactions of one call that makes or removes a name, or writes: it is answered as natively, and happens at the end or not at all.

use std::path::{Path, PathBuf};

use txos_testkit::image::Image;
use txos_testkit::tree::{Tolerance, Tree};
use txos_testkit::{Invocation, Lab, require, require_some, skip};

use crate::place::start;
use crate::program::{Linked, program};

/// A user to whom modes mean something: nobody has this number.
const USER: u32 = 64_324;

/// What the calls find. The ordinary user owns `own`, and nothing else.
const PREPARE: &str = "
    mkdir -p d/inner own closed sticky shared to/there
    echo file > d/file; echo two > d/two; echo own > own/file; echo s > sticky/theirs; echo c > closed/file
    ln -s file d/link; ln -s nowhere d/dangling; ln -s d way; ln -s ../d/file own/out; mkfifo d/fifo
    ln d/two d/three; chmod 1777 sticky; chmod 2777 shared; chmod 700 closed; chmod 777 d to/there
    chmod 4755 d/two
";

/// One call a line.
fn calls() -> String {
    let (long, longer) = ("n".repeat(255), "n".repeat(256));
    let mut calls: Vec<String> = [
        "mkdir d/new",
        "mkdir d/new",
        "mkdir d/slash/",
        "mkdir d/.",
        "mkdir d/inner/..",
        "mkdir d/link",
        "mkdir d/dangling",
        "mkdir d/file/x",
        "mkdir missing/x",
        "mkdir way/through",
        "mkdir shared/group",
        "mkdir closed/x",
        "mkdir sticky/x",
        "mkdir d//double",
        "mkdir ./d/./dot",
        "mkdir d/inner/../back",
        "mkdir own/x",
        "mkdir /proc/self/x",
        "mkdir to/there/x",
        "mkdir ",
        "symlink target d/sym",
        "symlink target d/sym",
        "symlink  d/empty",
        "symlink x d/slashed/",
        "symlink /abs own/abs",
        "link d/file d/hard",
        "link d/file d/hard",
        "link d/link d/tolink",
        "link d/dangling d/todangling",
        "link d/inner d/dir",
        "link d/fifo d/fifo2",
        "link d/missing d/x",
        "link d/file own/hard",
        "link own/file own/more",
        "link own/file d/more",
        "link own/file closed/more",
        "link way/two to/there/two",
        "link d/two d/set",
        "link d/file d/slash2/",
        "link closed/file d/fromclosed",
        "unlink d/hard",
        "unlink d/hard",
        "unlink d/inner",
        "unlink d/link",
        "unlink d/dangling",
        "unlink d/fifo",
        "unlink d/.",
        "unlink d/three",
        "unlink way/two",
        "unlink own/file",
        "unlink own/out",
        "unlink sticky/theirs",
        "unlink closed/file",
        "unlink d/file/",
        "unlink missing/x",
        "unlink d/file/x",
        "unlink way",
        "unlink to/there/two",
        "chdir d/inner",
        "mkdir here",
        "symlink x ../beside",
        "link ../file linked",
        "unlink linked",
        // The directory that is the working one goes.
        "mkdir gone",
        "chdir gone",
        "rmdir ../gone",
        "mkdir x",
        "symlink x y",
        "link ../../file z",
        "unlink x",
    ]
    .map(str::to_owned)
    .into();
    calls.extend([
        "chdir ../../..".to_owned(),
        format!("mkdir d/{long}"),
        format!("mkdir d/{longer}"),
        format!("symlink x d/{longer}"),
        format!("unlink d/{long}"),
        format!("unlink d/{longer}"),
        format!("link own/x d/{longer}"),
        format!("mkdir {}x", "d/../".repeat(900)),
        format!("mkdir {}x", "d/../".repeat(810)),
    ]);
    calls.iter().map(|call| format!("{call}\n")).collect()
}

/// A directory that is the ordinary user's.
fn own(lab: &Lab, name: &str) -> PathBuf {
    let dir = lab.dir().join(format!("{name} of another"));
    std::fs::create_dir_all(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(USER), Some(USER)).unwrap();
    dir
}

/// The answers of one process that makes all calls, and the tree after them.
fn make(lab: &Lab, how: &str, user: bool) -> (Vec<String>, Tree) {
    let _ = lab.native(&format!(
        "umask 022; {PREPARE} chown -R {USER}:{USER} own; chown :{USER} shared; chmod 2777 shared"
    ));
    if user {
        let _ = lab.native("chmod 777 .");
    }
    let own = |name: &str| own(lab, name);
    let mut run = start(lab, "lone", Linked::WithLibrary).arg(how).input(calls());
    if user {
        run = run.env("TXOS_STORE", own("store")).env("TXOS_REALM", own("realm")).user(USER, USER);
    }
    let done = run.run().expect(0);
    let lines = done.text().lines().map(str::to_owned).collect();
    (lines, Tree::of(lab.tree()))
}

/// Answers and trees as natively, on the file system where `lab` is.
fn is_as_natively(lab: &Lab, user: bool) {
    let times = Tolerance { times: true, ..Tolerance::default() };
    let (answers, tree) = make(&lab.nested("natively"), "natively", user);
    let done = answers.iter().filter(|line| line.ends_with(": 0")).count();
    assert!(answers.len() > 70 && done > 15, "{answers:#?}");
    for how in ["committed", "looked"] {
        let lab = lab.nested(how);
        let (told, made) = make(&lab, how, user);
        assert_eq!(told.len(), answers.len(), "{how}, as a user: {user}");
        for (told, answer) in told.iter().zip(&answers) {
            assert_eq!(told, answer, "{how}, as a user: {user}");
        }
        tree.expect(&made, times, how);
        lab.expect_clean();
    }
    // What an abort leaves is what was there, and the directories that were made and removed outside.
    let lab = lab.nested("aborted");
    let _ = make(&lab, "aborted", user);
    let left = Tree::of(lab.tree());
    let lab = lab.nested("untouched");
    let untouched = make(&lab, "nothing", user).1;
    untouched.expect(&left, times, "aborted");
}

#[test]
fn in_memory() {
    require!(skip::is_root(), "only root can become another user");
    for user in [false, true] {
        is_as_natively(&Lab::in_memory(), user);
    }
}

fn on(kind: &str, mib: u64) {
    let lab = Lab::new();
    let image = require_some!(Image::mount(&lab, kind, mib, "image"), "no such file system here");
    let lab = lab.at(&image.point);
    for user in [false, true] {
        is_as_natively(&lab.nested(if user { "user" } else { "root" }), user);
    }
}

#[test]
fn on_ext4() {
    on("ext4", 64);
}

#[test]
fn on_xfs() {
    on("xfs", 320);
}

#[test]
fn on_btrfs() {
    on("btrfs", 128);
}

#[test]
fn without_a_descriptor_left() {
    let lab = Lab::in_memory();
    let _ = lab.native("touch file gone");
    let calls = "mkdir new\nsymlink target sym\nlink file hard\nunlink gone\n";
    let done = start(&lab, "lone", Linked::WithLibrary).arg("full").input(calls).run().expect(0);
    assert!(done.text().lines().all(|line| line.ends_with(": 0")), "{done:?}");
    assert!(["new", "hard"].iter().all(|made| lab.path(made).exists()));
    assert!(lab.path("sym").is_symlink() && !lab.path("gone").exists());
    lab.expect_clean();
}

/// The one call is made in that directory; a private copy would have to get a group that the user may not give.
#[test]
fn in_a_directory_of_a_group_that_the_user_is_not_in() {
    require!(skip::is_root(), "only root can become another user");
    for (how, commits) in [("committed", true), ("looked", false)] {
        let lab = Lab::in_memory();
        let _ = lab.native("mkdir shared; chmod 2777 shared; chmod 777 .");
        let own = |name: &str| own(&lab, name);
        let run = start(&lab, "lone", Linked::WithLibrary).arg(how).input("mkdir shared/new\n");
        let run = run.env("TXOS_STORE", own("store")).env("TXOS_REALM", own("realm"));
        let done = run.user(USER, USER).run().expect(i32::from(!commits));
        assert_eq!(lab.path("shared/new").exists(), commits, "{done:?}");
        assert!(commits || done.text().contains("sys_xend: EPERM"), "{done:?}");
    }
}

#[test]
fn who_made_the_call_has_made_it() {
    require!(skip::is_root(), "only root can become another user");
    for mode in ["777", "755"] {
        let lab = Lab::in_memory();
        let _ = lab.native(&format!("chmod {mode} ."));
        let done = start(&lab, "lone", Linked::WithLibrary).arg("identity").run().expect(0);
        assert_eq!(done.text(), "alone: 0\nlooked: 0\n", "{mode}");
        lab.expect_clean();
    }
}

/// Of a working directory that no path leads to, what is done there is live as ever.
#[test]
fn in_a_working_directory_that_is_covered() {
    require!(skip::is_root(), "only root can mount");
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir covered; echo file > covered/file");
    let script = "cd covered && mount -t tmpfs none . && exec \"$0\" looked";
    let run = Invocation::new("unshare").args(["-m", "--", "sh", "-c", script]);
    let run = run.arg(program("lone", Linked::WithLibrary)).dir(lab.tree()).input("mkdir new\n");
    let run = run.env("TXOS_STORE", lab.store()).env("TXOS_REALM", lab.realm());
    let done = run.run().expect(0);
    assert_eq!(done.text(), "mkdir new : 0\n");
    assert!(done.stderr.contains("in a working directory that no path leads to"), "{done:?}");
    assert!(lab.path("covered/new").exists());
}

/// What a process prints whose one call a script comes after, before the end.
fn between(lab: &Lab, flags: u32, script: &str, call: &[&str]) -> String {
    let run = start(lab, "lone", Linked::WithLibrary);
    run.arg("between").arg(flags.to_string()).arg(script).args(call).run().expect(0).text()
}

#[test]
fn what_comes_between_the_call_and_the_end_is_a_conflict() {
    /// `TX_RESTART`.
    const RESTART: u32 = 0x01;
    let lost = "0\nend: ECANCELED, reason 2\n";
    for (script, call, again) in [
        ("mkdir d/new", &["mkdir", "d/new"][..], "EEXIST"),
        ("mv d old; mkdir d", &["mkdir", "d/new"], "0"),
        ("mv d old", &["symlink", "x", "d/new"], "ENOENT"),
        ("rm d/file", &["unlink", "d/file"], "ENOENT"),
        ("rm d/file; echo other > d/file; ln d/file d/keep", &["unlink", "d/file"], "0"),
        ("rm d/file", &["link", "d/file", "d/hard"], "ENOENT"),
        ("echo x > d/hard", &["link", "d/file", "d/hard"], "EEXIST"),
        ("mv d old; ln -s old d; mv old/file .", &["link", "d/file", "d/hard"], "ENOENT"),
    ] {
        let script = format!("{script} && touch came");
        let prepared = || {
            let lab = Lab::in_memory();
            let _ = lab.native("mkdir d; echo file > d/file");
            lab
        };
        let lab = prepared();
        // It has to be known that the file system is versioned.
        assert_eq!(between(&lab, 0, &script, call), lost, "{script}: {call:?}");
        lab.expect_clean();
        let lab = prepared();
        let told = between(&lab, RESTART, &script, call);
        assert_eq!(told, format!("0\n{again}\nend: 0, reason 0\n"), "{script}: {call:?}");
        lab.expect_clean();
    }
}

/// The kernel writes page by page, and leaves the rest when the process is killed.
#[test]
fn a_write_that_is_killed_is_whole_or_not_there() {
    let run = |lab: &Lab| {
        for (length, at) in [("16384", "0"), ("4096", "100"), ("4096", "4096")] {
            let run = start(lab, "lone", Linked::WithLibrary);
            let done = run.args(["killed", length, at, "150"]).run().expect(0);
            assert_eq!(done.text(), "0 halves\n", "{length} at {at}");
        }
        lab.expect_clean();
    };
    run(&Lab::in_memory());
    let lab = Lab::new();
    let image = require_some!(Image::mount(&lab, "ext4", 64, "image"), "no ext4 here");
    run(&lab.at(&image.point));
}

/// No directory on the way is looked at.
#[test]
fn system_calls_do_not_grow_with_depth() {
    require!(skip::has("strace"), "no strace here");
    let calls_of = |path: &str| {
        let lab = Lab::in_memory();
        let _ = lab.native("mkdir -p a/b/c/d/e/f/g/h; touch f a/b/c/d/e/f/g/h/f");
        let counts = lab.path("../counts");
        let script =
            format!("mkdir {path}new\nlink {path}f {path}f2\nsymlink x {path}s\nunlink {path}f\n");
        // Where the program's memory lies must not be chance: its pages are asked about.
        let _ = Invocation::new("setarch")
            .args(["-R", "strace", "-f", "-qq", "-o"])
            .arg(&counts)
            .arg(program("lone", Linked::WithLibrary))
            .arg("committed")
            .env("TXOS_STORE", lab.store())
            .env("TXOS_REALM", lab.realm())
            .dir(lab.tree())
            .input(script)
            .run()
            .expect(0);
        calls_after_the_first(&counts)
    };
    let (near, far) = (calls_of("./"), calls_of("a/b/c/d/e/f/g/h/"));
    // The long way would be 32 more: 8 looks for each of four calls.
    assert!(near > 20 && near < 100 && far < near + 8, "{near} {far}");
}

/// Without those that a process begins with, and the one transaction that finds out what is versioned.
fn calls_after_the_first(counts: &Path) -> usize {
    let text = std::fs::read_to_string(counts).unwrap();
    text.lines().skip_while(|line| !line.contains("read(0")).count()
}
