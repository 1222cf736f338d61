//! A user who holds an old file open, or has another name for it, and waits for root to make the file
//! afresh: what root creates is root's alone, as after the same commands without a transaction.

use std::os::unix::fs::MetadataExt;

use txos_testkit::rendezvous::PAUSE;
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Rendezvous, binary, skip};

/// What root does to make `F` afresh, of which a user has a hold: as a shell, and as one program.
const AFRESH: [(&str, &str, &str); 6] = [
    (
        "moved over it",
        "echo SECRET > F.new; chmod 600 F.new; mv F.new F",
        "put('F.new', 'SECRET'); chmod 0600, 'F.new'; rename 'F.new', 'F' or die",
    ),
    (
        "removed and made",
        "rm F; umask 077; echo SECRET > F",
        "unlink 'F' or die; umask 077; put('F', 'SECRET')",
    ),
    (
        "made with the same content, then written",
        "rm F; (umask 077; echo old > F); echo SECRET >> F",
        "unlink 'F' or die; umask 077; put('F', 'old'); put('F', \"old\\nSECRET\")",
    ),
    (
        "made with the same content",
        "umask 077; cp F F.new; mv F.new F",
        "umask 077; put('F.new', 'old'); rename 'F.new', 'F' or die",
    ),
    (
        "moved away",
        "mv F F.gone; umask 077; echo SECRET > F",
        "rename 'F', 'F.gone' or die; umask 077; put('F', 'SECRET')",
    ),
    (
        "moved away and removed",
        "mv F F.gone; umask 077; echo SECRET > F; rm F.gone",
        "rename 'F', 'F.gone' or die; umask 077; put('F', 'SECRET'); unlink 'F.gone' or die",
    ),
];

/// What root does that leaves `F` the inode it is.
const CHANGED: [(&str, &str); 3] = [
    ("echo new > F", "put('F', 'new')"),
    ("echo more >> F", "open(O, '>>', 'F') or die; print O \"more\\n\"; close O"),
    ("chmod 644 F", "chmod 0644, 'F' or die"),
];

/// How root's transaction runs.
#[derive(Clone, Copy, Debug)]
enum Door {
    /// A command in an overlay.
    Command,
    /// The same in the library's view: of several processes.
    Library,
    /// A program with its shadow objects.
    Program,
}

impl Door {
    fn run(self, lab: &Lab, shell: &str, perl: &str) -> Invocation {
        const PUT: &str =
            "sub put { open(O, '>', $_[0]) or die; print O \"$_[1]\\n\"; close O or die }";
        match self {
            Door::Command => lab.script(&[], shell),
            Door::Library => lab.script(&["--view", "library"], shell),
            Door::Program => {
                let run = lab.txos(["run", "--in-process", "--", "perl", "-e"]);
                run.arg(format!("{PUT} {perl}"))
            }
        }
    }
}

/// Somebody's process that has `F` open for reading and writing, and at the end reads what is in it and
/// writes something to it.
const HOLDS: &str = "exec 7<>F; PAUSE; cat <&7; echo EVIL >&7";

fn make_shared(lab: &Lab, owner: u32) {
    let _ = lab.native("chmod 1777 .; rm -rf F F.gone G; echo old > F; chmod 666 F");
    std::os::unix::fs::chown(lab.path("F"), Some(owner), Some(owner)).unwrap();
}

#[test]
fn nobody_keeps_a_hold_on_what_root_makes_afresh() {
    nobody_keeps_a_hold(&Lab::in_memory(), &AFRESH);
}

#[test]
fn what_is_made_afresh_and_what_is_changed_on_other_file_systems() {
    for kind in crate::FILE_SYSTEMS {
        let place = crate::on(kind);
        txos_testkit::require!(place.is_some(), "no {kind} here");
        let (lab, _image) = place.unwrap();
        let long = skip::long("attack");
        nobody_keeps_a_hold(&lab, if long { &AFRESH } else { &AFRESH[..2] });
        others_go_on_with_it(&lab, if long { &CHANGED } else { &CHANGED[..1] });
    }
}

fn nobody_keeps_a_hold(lab: &Lab, all: &[(&str, &str, &str)]) {
    let user = User::new();
    for door in [Door::Command, Door::Library, Door::Program] {
        for (what, shell, perl) in all.iter().copied() {
            println!("{door:?}: {what}");
            make_shared(lab, user.uid);
            let mut meeting = Rendezvous::new();
            let script_of_holder = format!("ln F G; {}", HOLDS.replace("PAUSE", PAUSE));
            let holder = user.runs(Invocation::shell(script_of_holder).dir(lab.tree()));
            let holder = holder.meeting(&mut meeting).start();
            assert!(meeting.arrived());
            let old = lab.path("F").metadata().unwrap();
            let _ = door.run(lab, shell, perl).run().expect(0);
            let new = lab.path("F").metadata().unwrap();
            let expected = match what {
                "made with the same content" => "old\n",
                "made with the same content, then written" => "old\nSECRET\n",
                _ => "SECRET\n",
            };
            assert_eq!(lab.read("F"), expected);
            assert_ne!(old.ino(), new.ino(), "{door:?}: {what}");
            assert_eq!((new.uid(), new.mode() & 0o7777), (0, 0o600), "{door:?}: {what}");
            meeting.go();
            assert_eq!(holder.wait().expect(0).text(), "old\n", "{door:?}: {what}");
            assert_eq!(lab.read("F"), expected, "{door:?}: {what}: the user wrote to it");
            // The user's own name leads to the user's own file, which is as they left it.
            assert_eq!(lab.path("G").metadata().unwrap().ino(), old.ino(), "{door:?}: {what}");
            assert_eq!(lab.read("G"), "old\nEVIL\n", "{door:?}: {what}");
            lab.expect_clean();
        }
    }
}

/// What the command only changes stays the inode that it is: a user who holds it open goes on with it.
#[test]
fn a_file_that_is_only_changed_stays_what_others_have_open() {
    others_go_on_with_it(&Lab::in_memory(), &CHANGED);
}

fn others_go_on_with_it(lab: &Lab, all: &[(&str, &str)]) {
    let user = User::new();
    for door in [Door::Command, Door::Library, Door::Program] {
        for (shell, perl) in all.iter().copied() {
            make_shared(lab, user.uid);
            let twin = lab.nested(&format!("{door:?}{}", shell.len()));
            make_shared(&twin, user.uid);
            let _ = twin.native(shell);
            let mut meeting = Rendezvous::new();
            let holder =
                user.runs(Invocation::shell(HOLDS.replace("PAUSE", PAUSE)).dir(lab.tree()));
            let holder = holder.meeting(&mut meeting).start();
            assert!(meeting.arrived());
            let old = lab.path("F").metadata().unwrap();
            let _ = door.run(lab, shell, perl).run().expect(0);
            assert_eq!(lab.path("F").metadata().unwrap().ino(), old.ino(), "{door:?}: {shell}");
            meeting.go();
            assert_eq!(holder.wait().expect(0).text(), twin.read("F"), "{door:?}: {shell}");
            assert_eq!(lab.read("F"), twin.read("F") + "EVIL\n", "{door:?}: {shell}");
        }
    }
}

/// What is no file as well: a user who reads from an old FIFO does not read what is written to the new.
#[test]
fn objects_of_every_kind_are_made_afresh() {
    let lab = Lab::in_memory();
    let kinds = ["mkfifo X", "ln -s to X", "mknod X c 1 3", "mkdir X"];
    for make in kinds {
        for view in crate::VIEWS {
            let _ = lab.native(&format!("rm -rf X; {make}"));
            let old = std::fs::symlink_metadata(lab.path("X")).unwrap();
            let _ = lab.script(&view, &format!("rm -r X; {make}")).run().expect(0);
            let new = std::fs::symlink_metadata(lab.path("X")).unwrap();
            assert_ne!(old.ino(), new.ino(), "{view:?}: {make}");
        }
    }
}

/// An ordinary user's transaction has no file handles to tell a copy by.
#[test]
fn nobody_keeps_a_hold_on_what_a_user_makes_afresh() {
    let lab = Lab::new();
    let user = User::new();
    let possible = user.runs(Invocation::shell("unshare -Ur true")).run().code() == 0;
    txos_testkit::require!(possible, "no user namespaces for ordinary users here");
    let txos = lab.dir().join("txos");
    txos_testkit::process::copy_program(binary::txos(), &txos);
    std::os::unix::fs::chown(lab.tree(), Some(user.uid), Some(user.gid)).unwrap();
    let scope = lab.tree().to_str().unwrap().to_owned();
    let runs = |script: &str| {
        let run = Invocation::new(&txos).args(["run", "--scope", &scope, "--", "sh", "-c", script]);
        user.runs(run.dir(lab.tree())).run().expect(0)
    };
    for (what, script, _) in AFRESH {
        make_shared(&lab, user.uid);
        let mut meeting = Rendezvous::new();
        // Anybody else: here root, who may as well.
        let holder = Invocation::shell(HOLDS.replace("PAUSE", PAUSE)).dir(lab.tree());
        let holder = holder.user(crate::STRANGER, crate::STRANGER).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let old = lab.path("F").metadata().unwrap();
        let _ = runs(script);
        assert_ne!(lab.path("F").metadata().unwrap().ino(), old.ino(), "{what}");
        meeting.go();
        assert_eq!(holder.wait().expect(0).text(), "old\n", "{what}");
        assert!(!lab.read("F").contains("EVIL"), "{what}");
    }
    // And what is only changed stays.
    make_shared(&lab, user.uid);
    let mut meeting = Rendezvous::new();
    let holder = Invocation::shell(HOLDS.replace("PAUSE", PAUSE)).dir(lab.tree());
    let holder = holder.user(crate::STRANGER, crate::STRANGER).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    let _ = runs("echo new > F");
    meeting.go();
    assert_eq!(holder.wait().expect(0).text(), "new\n");
    assert_eq!(lab.read("F"), "new\nEVIL\n");
}
