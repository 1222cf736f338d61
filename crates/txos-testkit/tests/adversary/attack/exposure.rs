//! A user watches while root's transaction publishes, is undone, recovered or reverted: at no instant can the user
//! read what the user could read neither before nor after, whatever order the commands had.

use std::os::unix::fs::MetadataExt;

use txos_testkit::random::Random;
use txos_testkit::user::User;
use txos_testkit::{Invocation, Lab, skip};

/// A change of permissions together with one of names or bytes.
struct Case {
    name: &'static str,
    prepare: &'static str,
    change: &'static str,
    /// The user may have opened a file before that keeps its inode, and then reads what is written to it:
    /// natively as well.
    opened_before: bool,
    /// The same, where the change is reverted.
    opened_after: bool,
}

const fn case(name: &'static str, prepare: &'static str, change: &'static str) -> Case {
    Case { name, prepare, change, opened_before: false, opened_after: false }
}

const fn opened(name: &'static str, prepare: &'static str, change: &'static str) -> Case {
    Case { opened_before: true, ..case(name, prepare, change) }
}

const fn opened_after(name: &'static str, prepare: &'static str, change: &'static str) -> Case {
    Case { opened_after: true, ..case(name, prepare, change) }
}

/// In none of them can the user (`$U`, of the group `$G`) read SECRET before or after.
const CASES: &[Case] = &[
    case(
        "a directory is closed, and something put in it",
        "mkdir -m 755 d; echo public > d/public",
        "chmod 700 d; echo SECRET > d/secret; mkdir d/new; echo SECRET > d/new/secret",
    ),
    case(
        "a directory is opened, and something was taken out of it",
        "mkdir -m 700 d; echo SECRET > d/secret; echo public > d/public",
        "rm d/secret; chmod 755 d",
    ),
    opened(
        "a file with two names is closed, and written",
        "echo public > f; ln f g",
        "chmod 600 f; echo SECRET > f",
    ),
    opened_after(
        "a file with two names is written, and opened",
        "echo SECRET > f; ln f g; chmod 600 f",
        "echo public > f; chmod 644 f",
    ),
    case(
        "an inner directory is closed, an outer one opened",
        "mkdir -p -m 755 a/b; chmod 700 a; echo SECRET > a/b/s",
        "chmod 700 a/b; chmod 755 a",
    ),
    case(
        "a file is closed, and moved out into the open",
        "mkdir -m 700 priv; mkdir -m 755 pub; echo SECRET > priv/f; ln priv/f priv/other",
        "chmod 600 priv/f; mv priv/f pub/f",
    ),
    case(
        "a directory is moved, closed, and something put in it",
        "mkdir -m 755 d e; echo public > d/public",
        "mv d e/d; chmod 700 e/d; echo SECRET > e/d/s",
    ),
    case(
        "a file changes its group and its mode",
        "echo SECRET > f; ln f g; chmod 640 f",
        "chmod 600 f; chgrp $G f",
    ),
    opened(
        "a file changes its owner, its mode and its content",
        "echo public > f; ln f g; chown $U f; chmod 644 f",
        "chown 0:0 f; chmod 600 f; echo SECRET > f",
    ),
    case(
        "an access control list takes what the mode gives",
        "echo SECRET > f; ln f g; chmod 600 f",
        "setfacl -m u:$U:---,g:1:r f; chmod o+r f",
    ),
    opened(
        "an access control list goes, and the content changes",
        "echo public > f; ln f g; chmod 600 f; setfacl -m u:$U:r f",
        "setfacl -b f; echo SECRET > f",
    ),
];

/// Where SECRET may be.
const PLACES: [&str; 12] = [
    "d/secret",
    "d/new/secret",
    "f",
    "g",
    "a/b/s",
    "priv/f",
    "priv/other",
    "pub/f",
    "e/d/s",
    "d/s",
    "d/public",
    "e/d/public",
];

struct Watch {
    user: User,
    lab: Lab,
    nested: u32,
}

impl Watch {
    fn new() -> Watch {
        Watch::on(Lab::in_memory())
    }

    fn on(lab: Lab) -> Watch {
        Watch { user: User::new(), lab, nested: 0 }
    }

    /// A script about the user.
    fn about(&self, script: &str) -> String {
        let (user, group) = (self.user.uid.to_string(), self.user.gid.to_string());
        script.replace("$U", &user).replace("$G", &group)
    }

    fn place(&mut self, prepare: &str) -> Lab {
        self.nested += 1;
        let place = self.lab.nested(&format!("place{}", self.nested));
        let _ = place.native(&self.about(&format!("umask 022; {prepare}")));
        self.reads_nothing(&place, "before");
        place
    }

    /// What the user can read has no secret in it.
    #[track_caller]
    fn reads_nothing(&self, place: &Lab, when: &str) {
        let all = format!("cat {} 2>/dev/null; true", PLACES.join(" "));
        let seen = self.user.runs(Invocation::shell(all).dir(place.tree())).run().expect(0);
        assert!(!seen.text().contains("SECRET"), "{when}: the user has read it");
    }
}

/// Which steps are tried: all, or some of them, at random.
fn steps(count: usize, random: &mut Random) -> Vec<u64> {
    let all = 1..=count as u64;
    if skip::long("attack") {
        all.collect()
    } else {
        all.filter(|_| random.below(8) == 0).collect()
    }
}

/// What is published or taken back: a commit, or the revert of one.
#[derive(Clone, Copy, Debug)]
enum What {
    Commit,
    Revert,
}

impl What {
    fn ready(self, watch: &mut Watch, case: &Case) -> Lab {
        let place = watch.place(case.prepare);
        let change = watch.about(&format!("umask 022; {}", case.change));
        match self {
            What::Commit => {
                let _ = place.script(&["--keep"], &change).run().expect(0);
            }
            What::Revert => {
                let _ = place.script(&[], &change).run().expect(0);
                watch.reads_nothing(&place, "after");
            }
        }
        place
    }

    fn go(self, place: &Lab) -> Invocation {
        match self {
            What::Commit => place.txos(["commit", "@"]),
            What::Revert => place.txos(["revert", "@"]),
        }
    }
}

/// Killed at any step, and recovery killed at any of its own: what stands then is what the user sees at that
/// instant. The same where it fails at a step and is killed while it is undone.
fn at_every_step(what: What, mut watch: Watch, cases: &[Case]) {
    let seed = crate::seed(7);
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    for case in cases {
        println!("{}", case.name);
        let place = what.ready(&mut watch, case);
        let count = watch.lab.dir().join(format!("count{}", watch.nested));
        let _ = what.go(&place).env("TXOS_FAULT_COUNT", &count).run().expect(0);
        watch.reads_nothing(&place, "after");
        let total = txos_testkit::fault::steps_in(&count).len();
        for step in steps(total, &mut random) {
            let inner = step + 1 + random.below(total as u64);
            let faults = [format!("kill@{step}"), format!("EIO@{step},kill@{inner}")];
            for fault in &faults {
                let place = what.ready(&mut watch, case);
                let when = format!("{what:?}, {}, {fault}", case.name);
                drop(what.go(&place).env("TXOS_FAULT", fault).run());
                watch.reads_nothing(&place, &when);
                let inner = 1 + random.below(total as u64 / 2);
                drop(place.txos(["recover"]).env("TXOS_FAULT", format!("kill@{inner}")).run());
                watch.reads_nothing(&place, &format!("{when}, recovery killed at {inner}"));
                let _ = place.txos(["recover"]).run().expect(0);
                watch.reads_nothing(&place, &format!("{when}, recovered"));
            }
        }
    }
}

#[test]
fn nothing_is_exposed_at_any_step_of_a_commit() {
    at_every_step(What::Commit, Watch::new(), CASES);
}

#[test]
fn nothing_is_exposed_at_any_step_of_a_revert() {
    at_every_step(What::Revert, Watch::new(), CASES);
}

#[test]
fn nothing_is_exposed_at_any_step_on_other_file_systems() {
    for kind in crate::FILE_SYSTEMS {
        for what in [What::Commit, What::Revert] {
            let place = crate::on(kind);
            txos_testkit::require!(place.is_some(), "no {kind} here");
            let (lab, image) = place.unwrap();
            println!("{kind}");
            at_every_step(
                what,
                Watch::on(lab),
                if skip::long("attack") { CASES } else { &CASES[..1] },
            );
            drop(image);
        }
    }
}

/// On xfs root has access control lists by a second name, too. They are given and taken where those are, and no sooner.
#[test]
fn lists_go_when_the_mode_does_on_xfs() {
    let place = crate::on("xfs");
    txos_testkit::require!(place.is_some(), "no xfs here");
    let (lab, image) = place.unwrap();
    let mut watch = Watch::on(lab);
    let of_attributes = |what: &String| ["setxattr", "removexattr", "chmod"].contains(&&**what);
    for case in CASES.iter().filter(|case| case.name.starts_with("an access control list")) {
        for what in [What::Commit, What::Revert] {
            let place = what.ready(&mut watch, case);
            let count = watch.lab.dir().join(format!("count{}", watch.nested));
            let _ = what.go(&place).env("TXOS_FAULT_COUNT", &count).run().expect(0);
            let steps = txos_testkit::fault::steps_in(&count);
            assert!(steps.iter().filter(|what| of_attributes(what)).count() >= 2, "{steps:?}");
            for (n, name) in steps.iter().enumerate().filter(|(_, what)| of_attributes(what)) {
                let place = what.ready(&mut watch, case);
                drop(what.go(&place).env("TXOS_FAULT", format!("killafter@{}", n + 1)).run());
                watch.reads_nothing(&place, &format!("{what:?}, {}, {name}", case.name));
                let _ = place.txos(["recover"]).run().expect(0);
                watch.reads_nothing(&place, &format!("{what:?}, {}, recovered", case.name));
            }
        }
    }
    drop(image);
}

/// A user who opens all the time, with the gate and without.
#[test]
fn nothing_is_exposed_to_a_user_who_opens_all_the_time() {
    let mut watch = Watch::new();
    let attacker = watch.lab.dir().join("attacker");
    txos_testkit::process::copy_program(env!("CARGO_BIN_EXE_attacker"), &attacker);
    let rounds = if skip::long("attack") { 100 } else { 2 };
    for round in 0..rounds {
        for case in CASES.iter().filter(|case| !case.opened_before) {
            let place = watch.place(case.prepare);
            let attack = watch
                .user
                .runs(Invocation::new(&attacker).arg("read").args(PLACES).dir(place.tree()));
            let mut attack = attack.start();
            txos_testkit::wait::until("the attack begins", || attack.stdout() == "attacking\n");
            let gate =
                if round % 2 == 0 { &["--no-durable"][..] } else { &["--no-durable", "--no-gate"] };
            let change = watch.about(&format!("umask 022; {}", case.change));
            let _ = place.script(gate, &change).run().expect(0);
            if !case.opened_after {
                let _ = place.txos(["revert", "@"]).run().expect(0);
            }
            assert!(!attack.ended(), "{}: {}", case.name, attack.stdout());
        }
    }
}

/// A set-user-id program gets another content: at no step has it both.
#[test]
fn new_content_is_never_set_user_id_before_it_is_to_be() {
    let lab = Lab::in_memory();
    let cases = [
        ("chmod 4755 f", "chmod 755 f; echo NEW > f", false),
        ("chmod 755 f", "echo NEW > f; chmod 6755 f", true),
        ("chmod 4755 f", "echo NEW > f; chmod 4755 f", true),
        ("chmod 6755 f", "chown 1:1 f; chmod 700 f; echo NEW > f", false),
    ];
    for (n, (prepare, change, after)) in cases.iter().enumerate() {
        let place = |step: usize| {
            let place = lab.nested(&format!("case{n}step{step}"));
            let _ = place.native(&format!("echo old program > f; ln f g; {prepare}"));
            let _ = place.script(&["--keep"], change).run().expect(0);
            place
        };
        let looks = |place: &Lab| {
            let set = place.path("f").metadata().unwrap().mode() & 0o6000 != 0;
            (set, place.read("f"))
        };
        let count = lab.dir().join(format!("count{n}"));
        let undisturbed = place(0);
        let before = looks(&undisturbed);
        let _ = undisturbed.txos(["commit", "@"]).env("TXOS_FAULT_COUNT", &count).run().expect(0);
        let finally = looks(&undisturbed);
        assert_eq!(finally, (*after, "NEW\n".into()), "{change}");
        for step in 1..=txos_testkit::fault::steps_in(&count).len() {
            let place = place(step);
            let killed = format!("kill@{step}");
            drop(place.txos(["commit", "@"]).env("TXOS_FAULT", &killed).run());
            let found = looks(&place);
            assert!(
                !found.0 || found == before || found == finally,
                "{change}, {killed}: set-id with {:?}",
                found.1
            );
            let _ = place.txos(["recover"]).run().expect(0);
            let found = looks(&place);
            assert!(found == before || found == finally, "{change}, {killed}: {found:?}");
        }
    }
}
