//! A user who holds something of root's open that is then removed or replaced: what is retained of it gives no
//! rights, and a revert gives back what it was.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use txos_testkit::rendezvous::PAUSE;
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, Rendezvous, skip};

/// Modes and owners of everything in the tree, and capabilities.
fn rights(lab: &Lab) -> String {
    let all = "find . -printf '%p %m %U:%G\n' | sort; find . -type f | sort | xargs -r getcap";
    lab.native(all).text()
}

/// What root does to a set-user-id program.
const REMOVES: [&str; 4] =
    ["rm sb; install -m 4755 /usr/bin/id sb", "rm -r d", "rm sb", "mv new sb"];

#[test]
fn an_old_set_user_id_program_gives_no_rights() {
    gives_no_rights(&Lab::new(), &REMOVES);
}

#[test]
fn an_old_set_user_id_program_gives_no_rights_on_other_file_systems() {
    for kind in crate::FILE_SYSTEMS {
        let place = crate::on(kind);
        txos_testkit::require!(place.is_some(), "no {kind} here");
        let (lab, _image) = place.unwrap();
        let count = if skip::long("attack") { REMOVES.len() } else { 2 };
        gives_no_rights(&lab, &REMOVES[..count]);
    }
}

fn gives_no_rights(lab: &Lab, removes: &[&str]) {
    let user = User::new();
    for (view, remove) in
        crate::VIEWS.into_iter().flat_map(|view| removes.iter().map(move |remove| (view, *remove)))
    {
        println!("{view:?}: {remove}");
        let _ = lab.native(
            "chmod 755 .; rm -rf ./*; mkdir -m 755 d; install -m 4755 /usr/bin/id sb
            install -m 4755 /usr/bin/id d/sb; install -m 755 /usr/bin/id new
            install -m 755 /usr/bin/id d/cap; setcap cap_net_raw+ep d/cap; mkdir -m 777 d/open",
        );
        let before = rights(lab);
        let held = if remove == "rm -r d" { "d/sb" } else { "sb" };
        let mut meeting = Rendezvous::new();
        let script = format!("exec 7<{held}; /proc/self/fd/7 -u; {PAUSE}; /proc/self/fd/7 -u");
        let holder = user.runs(Invocation::shell(script).dir(lab.tree()));
        let holder = holder.meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let _ = lab.script(&view, remove).run().expect(0);
        let after = rights(lab);
        // As far as the store shows, nothing there has rights.
        let find = format!(
            "find {} -perm /6000 -type f; find {0} -type f | xargs getcap",
            lab.store().display()
        );
        assert_eq!(lab.native(&find).text(), "", "{remove}");
        meeting.go();
        let uid = user.uid;
        assert_eq!(holder.wait().expect(0).text(), format!("0\n{uid}\n"), "{remove}");
        // There and back, as often as one likes.
        for (revert, expected) in [("@", &before), ("@", &after), ("@", &before)] {
            let _ = lab.txos(["revert", revert]).run().expect(0);
            assert_eq!(&rights(lab), expected, "{remove}");
        }
        let _ = lab.txos(["gc", "--keep", "0"]).run().expect(0);
        lab.expect_clean();
    }
}

/// A file that has another name keeps what it has by that name, as natively.
#[test]
fn another_name_of_a_set_user_id_program_keeps_its_rights() {
    let lab = Lab::in_memory();
    let _ = lab.native("install -m 4755 /usr/bin/id sb; mkdir d; ln sb d/other");
    let _ = lab.script(&[], "rm sb").run().expect(0);
    assert_eq!(lab.path("d/other").metadata().unwrap().permissions().mode() & 0o7777, 0o4755);
    let _ = lab.txos(["revert", "@"]).run().expect(0);
    let (sb, other) = (lab.path("sb").metadata().unwrap(), lab.path("d/other").metadata().unwrap());
    assert_eq!((sb.ino(), sb.mode() & 0o7777), (other.ino(), 0o4755));
}

/// A user has made another name for a set-user-id program of root's, as a kernel that protects no hard links
/// lets everybody (`fs.protected_hardlinks`); here root makes it for the user. What dpkg does takes the rights of
/// the old file before it goes, and so does its transaction, whenever that name came.
#[test]
fn a_users_own_name_of_an_old_program_has_no_rights_that_were_taken() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir theirs ../theirs");
    for script in [
        "chmod 600 sb; rm sb",
        "chmod 0 sb; rm sb; install -m 4755 /bin/true sb",
        "cp /bin/true new; chmod 4755 new; chmod 600 sb; mv new sb",
        "chmod 600 sb; mv sb away; rm away",
    ] {
        for place in ["theirs", "../theirs"] {
            for early in [true, false] {
                println!("{script}: {place}, {early}");
                let link = format!("ln sb {place}/kept");
                let _ = lab.native("rm -f sb theirs/* ../theirs/*; install -m 4755 /bin/true sb");
                if early {
                    let _ = lab.native(&link);
                }
                let mut meeting = Rendezvous::new();
                let run = lab.script(&[], &format!("{script}; {PAUSE}"));
                let run = run.meeting(&mut meeting).start();
                assert!(meeting.arrived());
                if !early {
                    let _ = lab.native(&link);
                }
                meeting.go();
                let done = run.wait();
                assert!(done.code() == 0 || !early && done.code() == 75, "{done:?}");
                let kept = lab.path(place).join("kept").metadata().unwrap().mode() & 0o6000;
                // A conflict leaves everything as it is.
                assert_eq!(kept != 0, done.code() == 75, "{done:?}");
            }
        }
    }
}

/// A removed directory is dead for a user who is in it: what the user makes there does not come back with
/// root's revert, because it can't be made.
#[test]
fn a_removed_directory_is_dead() {
    let lab = Lab::in_memory();
    let user = User::new();
    let _ = lab.native("chmod 755 .; mkdir -p d/in; echo x > d/in/x; chmod 777 d/in");
    std::os::unix::fs::chown(lab.path("d"), Some(user.uid), Some(user.gid)).unwrap();
    let before = rights(&lab);
    for shared in ["d", "d/in"] {
        let mut meeting = Rendezvous::new();
        let script = format!(
            "cd {shared}; {PAUSE}; echo planted > planted; mkdir planted2; chmod 777 .; echo > planted3; true"
        );
        let holder = user.runs(Invocation::shell(script).dir(lab.tree()));
        let holder = holder.meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let _ = lab.script(&[], "rm -r d").run().expect(0);
        meeting.go();
        drop(holder.wait().expect(0));
        let _ = lab.txos(["revert", "@"]).run().expect(0);
        assert_eq!(rights(&lab), before, "{shared}");
        let entry = lab.txos(["show", "@", "--json"]).run().expect(0);
        assert!(!entry.text().contains("planted"), "{shared}");
    }
}

/// Killed at any step of a commit or a revert: after recovery the rights are those of before or of after.
#[test]
fn rights_survive_a_kill_at_any_step() {
    let lab = Lab::in_memory();
    let prepare =
        "mkdir d; install -m 4755 /bin/true d/sb; install -m 6755 /bin/true sb; mkdir -m 777 d/open
        chown 1:1 d/open; find . -exec touch -h -d @1000000000 {} +";
    let change = "rm -r d; rm sb; install -m 4755 /bin/false sb";
    for revert in [false, true] {
        let place = |step: usize| {
            let place = lab.nested(&format!("{revert}{step}"));
            let _ = place.native(prepare);
            let before = rights(&place);
            let options: &[&str] = if revert { &[] } else { &["--keep"] };
            let _ = place.script(options, change).run().expect(0);
            (if revert { rights(&place) } else { before }, place)
        };
        let command = if revert { "revert" } else { "commit" };
        let count = lab.dir().join(format!("count{revert}"));
        let (before, undisturbed) = place(0);
        let _ = undisturbed.txos([command, "@"]).env("TXOS_FAULT_COUNT", &count).run().expect(0);
        let after = rights(&undisturbed);
        assert_ne!(before, after);
        for step in 1..=txos_testkit::fault::steps_in(&count).len() {
            let (_, place) = place(step);
            let killed = format!("kill@{step}");
            drop(place.txos([command, "@"]).env("TXOS_FAULT", &killed).run());
            let _ = place.txos(["recover"]).run().expect(0);
            let found = rights(&place);
            assert!(found == before || found == after, "{command} {killed}:\n{found}");
            if found == after && !revert {
                let _ = place.txos(["revert", "@"]).run().expect(0);
                assert_eq!(rights(&place), before, "{killed}, reverted");
            }
        }
    }
}
