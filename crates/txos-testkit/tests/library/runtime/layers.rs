//! Further commands in a transaction that was kept from the library's view: each goes on where the last has ended, as
//! if all of them were one, and each is a layer that can be undone.

use rustix::process::Signal;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::tree::Tolerance;
use txos_testkit::user::User;
use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, Rendezvous, Tree, binary, system};

use super::decided::{CHANGE, PREPARE, expect_as_natively, keep, run};
use super::processes::contained;
use super::program::{Linked, program};

/// What further commands do with what [`CHANGE`] has left.
const FURTHER: [&str; 4] = [
    // Of what is new: content, names, links, attributes, and what lies in new directories.
    "set -e; echo 2 >> made/h; mkdir -p made/deep/er; echo d > made/deep/er/f; mv made made2; ln made2/h2 h3
     chmod 600 made2/deep/er/f; setfattr -n user.second -v 2 made2/h; mv to made2/to; rm fifo; mkfifo made2/fifo",
    // Of what is stable: a moved directory, a patched file, one with several names, one that is gone.
    "set -e; echo y > moved/e/y; mv moved/x x; echo third >> a; chmod 640 a2; echo 11 >> log; mkdir gone; echo n > gone/g
     setfattr -x user.first b; truncate -s 2 b; mv moved/e e2; rmdir moved; mkdir moved; mv e2 moved/",
    // By other programs, and many files.
    "set -e; cp -a made2 copy; tar --numeric-owner -cf - copy | tar --numeric-owner -xf - -C gone; sed -i s/third/3rd/ a; seq 300 | (cd gone; split -l 1 -)
     python3 -c \"import os; os.rename('gone', 'g2'); os.mkdir('gone'); os.link('g2/xaa', 'gone/xaa')\"",
    // Back again.
    "set -e; rm -r copy g2/copy made2/deep; mv gone/xaa made2/h; rm -r gone; mv g2 gone; ln -sf gone to; touch -d @5 gone to b",
];

fn exec(lab: &Lab, id: &str, script: &str) -> Invocation {
    lab.txos(["exec", id, "--", "sh", "-c", script])
}

/// A place of an ordinary user.
fn lab_of(user: &User) -> Lab {
    let lab = Lab::in_memory();
    for dir in [lab.dir(), lab.tree(), lab.store(), lab.realm()] {
        std::fs::create_dir_all(dir).unwrap();
        std::os::unix::fs::chown(dir, Some(user.uid), Some(user.gid)).unwrap();
    }
    lab
}

/// The transaction that a message says was committed.
fn committed(done: &Done) -> String {
    let id = done.stderr.split("txos: committed ").nth(1).and_then(|rest| rest.split(':').next());
    id.unwrap_or_else(|| panic!("nothing was committed: {done:?}")).to_owned()
}

fn diff(lab: &Lab, id: &str) -> String {
    lab.txos(["diff", id]).run().expect(0).text()
}

#[test]
fn each_goes_on_where_the_last_has_ended() {
    // The commands read the lists of users.
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    for place in [&lab, &native] {
        let _ = place.native(PREPARE);
    }
    let before = Tree::of(lab.tree());
    let id = keep(&lab, CHANGE);
    let _ = native.native(CHANGE).expect(0);
    for script in FURTHER {
        let listing = "find . ! -name . ! -path './gone/x*' -printf '%p %y %m %U %s %l\\n' | sort";
        let natively = native.native(&format!("{script}\n{listing}")).expect(0).text();
        let inside = exec(&lab, &id, &format!("{script}\n{listing}")).run().expect(0).text();
        let sizes_of_directories = |text: &str| -> Vec<String> {
            let shown = text.lines().filter(|line| !line.contains(" d "));
            shown.map(str::to_owned).collect()
        };
        assert_eq!(sizes_of_directories(&inside), sizes_of_directories(&natively), "{script}");
        before.expect_same(&Tree::of(lab.tree()));
    }
    let layers = lab.txos(["show", &id]).run().expect(0).text();
    assert!(layers.contains("Layers:") && layers.contains("   5  "), "{layers}");
    let _ = lab.txos(["commit", &id]).run().expect(0).says("committed");
    expect_as_natively(&lab, &native);
    let _ = lab.txos(["revert", &id]).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
}

#[test]
fn each_is_undone_and_redone() {
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    let id = keep(&lab, CHANGE);
    let mut seen = vec![String::new(), diff(&lab, &id)];
    for script in FURTHER {
        let _ = exec(&lab, &id, script).run().expect(0);
        seen.push(diff(&lab, &id));
    }
    for at in (0..5).rev() {
        let _ = lab.txos(["undo", &id]).run().expect(0).says("undone");
        assert_eq!(diff(&lab, &id), seen[at], "at layer {at}");
    }
    let _ = lab.txos(["undo", &id]).run().expect(125).says("nothing to undo");
    for at in [1, 3, 5] {
        let _ = lab.txos(["redo", &id, "-n", if at == 1 { "1" } else { "2" }]).run().expect(0);
        assert_eq!(diff(&lab, &id), seen[at], "at layer {at}");
    }
    // What is undone when another command runs is gone for good.
    let _ = lab.txos(["undo", &id, "-n", "4"]).run().expect(0);
    let _ = exec(&lab, &id, FURTHER[0]).run().expect(0);
    assert_eq!(diff(&lab, &id), seen[2]);
    let _ = lab.txos(["redo", &id]).run().expect(125).says("nothing to redo");
    let _ = lab.txos(["undo", &id, "-n", "2"]).run().expect(0);
    let _ = exec(&lab, &id, "echo first > first").run().expect(0);
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(lab.read("first"), "first\n");
    let _ = lab.txos(["revert", &id]).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    lab.expect_clean();
}

/// It fails, is ended, or is killed, alone or with `txos`: the transaction is as it was, and goes on.
#[test]
fn one_that_fails_leaves_all_as_it_was() {
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let native = lab.nested("native");
    for place in [&lab, &native] {
        let _ = place.native(PREPARE);
        let _ = place.native("mkdir child");
    }
    let before = Tree::of(lab.tree());
    let id = keep(&lab, CHANGE);
    let _ = exec(&lab, &id, FURTHER[0]).run().expect(0);
    let _ = native.native(CHANGE).expect(0);
    let _ = native.native(FURTHER[0]).expect(0);
    let was = diff(&lab, &id);
    let spoil = "rm -rf made2 gone; echo spoilt > a; echo spoilt > made2; mv moved a2; chmod 0 b";
    let as_it_was = |done: Done, code: i32| {
        let _ = done.expect(code).says("as it was before this command");
        assert_eq!(diff(&lab, &id), was);
        before.expect_same(&Tree::of(lab.tree()));
    };
    as_it_was(exec(&lab, &id, &format!("{spoil}; exit 3")).run(), 3);
    as_it_was(exec(&lab, &id, &format!("{spoil}; kill -9 $$")).run(), 137);
    as_it_was(lab.txos(["exec", &id, "--strict", "--", "sh", "-c", "kill -0 1; exit 1"]).run(), 1);
    for whom in ["txos", "command"] {
        let mut meeting = Rendezvous::new();
        let running = exec(&lab, &id, &format!("{spoil}\n{PAUSE}")).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let of = running.pid().as_raw_nonzero();
        let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
        let command = list.split_whitespace().next().unwrap().parse().unwrap();
        let command = rustix::process::Pid::from_raw(command).unwrap();
        if whom == "txos" {
            running.signal(Signal::KILL);
            assert!(running.wait().killed());
            drop(meeting);
        } else {
            rustix::process::kill_process(command, Signal::KILL).unwrap();
            let _ = running.wait().expect(137);
        }
        until("the command has ended", || rustix::process::test_kill_process(command).is_err());
        assert_eq!(diff(&lab, &id), was, "{whom} was killed");
    }
    let _ = exec(&lab, &id, FURTHER[1]).run().expect(0);
    let _ = native.native(FURTHER[1]).expect(0);
    let _ = lab.txos(["commit", &id]).run().expect(0);
    expect_as_natively(&lab, &native);
    lab.expect_clean();
}

#[test]
fn forks_go_their_own_ways() {
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let before = Tree::of(lab.tree());
    let id = keep(&lab, CHANGE);
    let was = diff(&lab, &id);
    let fork = |of: &str, script: &str| {
        let words = ["exec", "-q", of, "--fork", "--", "sh", "-c", script];
        lab.txos(words).run().expect(0).stderr.trim().to_owned()
    };
    let one = fork(&id, "echo one >> made/h; rm moved/x");
    let other = fork(&one, "cat made/h > seen; test ! -e moved/x");
    let _ =
        lab.txos(["exec", &id, "--fork", "--", "false"]).run().expect(1).says("the fork is gone");
    assert_eq!(diff(&lab, &id), was);
    let _ = exec(&lab, &id, "grep -q one made/h && exit 1; echo two >> made/h").run().expect(0);
    let _ = lab.txos(["commit", &other]).run().expect(0);
    assert_eq!(lab.read("seen"), "h\none\n");
    let _ = lab.txos(["revert", &other]).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    for pending in [&one, &id] {
        let _ = lab.txos(["abort", pending]).run().expect(0);
    }
    lab.expect_clean();
}

/// What others have changed that a command before has changed is no ground to go on from; `rebase` runs all of them again.
#[test]
fn others_changes_are_conflicts() {
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let _ = lab.native(PREPARE);
    let id = keep(&lab, "echo more >> log; mkdir n; mv b n/b");
    let _ = exec(&lab, &id, "wc -l < log > n/count").run().expect(0);
    let was = diff(&lab, &id);
    let _ = lab.native("echo other >> log");
    let done = exec(&lab, &id, "echo third > third").run();
    let _ = done.expect(75).says("/log").says("txos rebase").says("as it was before this command");
    let _ = lab.txos(["commit", &id]).run().expect(75).says("/log");
    let _ = lab.txos(["rebase", &id]).run().expect(0).says("takes the place");
    assert_ne!(diff(&lab, "@"), was);
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    assert_eq!((lab.read("n/count"), lab.read("n/b")), ("11\n".into(), "b\n".into()));
    // A name that somebody else has taken meanwhile.
    let id = keep(&lab, "echo ours > taken");
    let _ = lab.native("echo theirs > taken");
    let _ = exec(&lab, &id, "true").run().expect(75).says("/taken");
    assert_eq!(lab.read("taken"), "theirs\n");
    let _ = lab.txos(["abort", &id]).run().expect(0);
    lab.expect_clean();
}

/// As root and as an ordinary user, where a container's rules hold.
#[test]
fn in_a_container() {
    let lab = Lab::in_memory();
    let program = program("contained", Linked::Natively);
    for user in [None, Some(User::new())] {
        let place = lab.nested(if user.is_some() { "users" } else { "roots" });
        let _ = place.native("echo a > a; mkdir d; echo x > d/x; chmod -R a+rwX .");
        if let Some(user) = &user {
            std::os::unix::fs::chown(lab.dir(), Some(user.uid), Some(user.gid)).unwrap();
            let _ = place.native(&format!("chown -R {}:{} .", user.uid, user.gid));
        }
        let runs = |words: &[&str]| match &user {
            None => contained(&place, words),
            Some(user) => {
                let run = Invocation::new("env").arg(&program).arg(binary::txos()).args(words);
                user.runs(run.dir(place.tree()))
            }
        };
        let before = Tree::of(place.tree());
        let first = "mkdir n; cp a n; mv d moved; umask 077; mkdir -m 700 own; echo o > own/o; chmod 500 own";
        let id = runs(&["run", "--keep", "-q", "--", "sh", "-c", first]).run().expect(0).stderr;
        let id = id.trim();
        let script = "cat n/a moved/x own/o; chmod 700 own; echo p > own/p; chmod 500 own; rm n/a";
        let done = runs(&["exec", id, "--", "sh", "-c", script]).run().expect(0);
        assert_eq!(done.text(), "a\nx\no\n");
        let _ = runs(&["undo", id]).run().expect(0);
        let _ = runs(&["redo", id]).run().expect(0);
        let closes = "mkdir shut; echo s > shut/s; chmod 0 shut; exit 1";
        let _ = runs(&["exec", id, "--", "sh", "-c", closes]).run().expect(1).says("as it was");
        let _ = runs(&["exec", id, "--", "chmod", "700", "own"]).run().expect(0);
        before.expect_same(&Tree::of(place.tree()));
        let _ = runs(&["commit", id]).run().expect(0);
        assert_eq!((place.read("own/o"), place.read("own/p")), ("o\n".into(), "p\n".into()));
        assert!(!place.path("n/a").exists() && place.path("n").exists());
    }
}

/// What is made anew under a name of a new directory is there afterwards, whoever decides.
#[test]
fn made_again_in_a_new_directory() {
    let _stable = system::stable();
    let scripts = [
        "mkdir n; echo 1 > n/x; rm n/x; echo 2 > n/x",
        "mkdir n; echo 1 > n/x; sed -i s/1/2/ n/x",
        "mkdir n; echo 1 > n/x; echo 2 > n/t; mv n/t n/x; mv n n2; mv n2 n",
        "rm -r gone; mkdir gone n; echo 1 > gone/g; sed -i s/1/2/ gone/g; ln gone/g n/x",
        "mkdir n; echo 1 > n/x; rm n/x; ln -s ../two n/x; echo 2 > two",
    ];
    for script in scripts {
        for options in [&["--keep", "-q"][..], &["--retry=0"], &["--hold-output"], &[]] {
            let lab = Lab::in_memory();
            let _ = lab.native(PREPARE);
            let done = run(&lab, options, script).run().expect(0);
            if options == ["--keep", "-q"] {
                let _ = lab.txos(["commit", done.stderr.trim()]).run().expect(0);
            }
            assert_eq!(lab.read("n/x"), "2\n", "{options:?}: {script}");
        }
    }
}

/// A directory in which only the content of a file is changed keeps the time that others have given it meanwhile.
#[test]
fn others_times_of_directories_stay() {
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir d; echo 1 > d/n; echo 2 > d/m");
    let time = || {
        let meta = std::fs::metadata(lab.path("d")).unwrap();
        std::os::unix::fs::MetadataExt::mtime(&meta)
    };
    let early = "touch -d @1000000000 d";
    for (script, others, expected) in [
        (": > d/n; truncate -s 0 d/m", "touch -d @1100000000 d", Some(1_100_000_000)),
        (": > d/n", "touch d/other", None),
        ("echo 4567 > d/n", "true", Some(1_000_000_000)),
        ("touch d/t; rm d/t", "touch -d @1100000000 d", None),
    ] {
        let _ = lab.native(early);
        let mut meeting = Rendezvous::new();
        let script = format!("{script}\n{PAUSE}");
        let running = run(&lab, &[], &script).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        let _ = lab.native(others).expect(0);
        let theirs = time();
        meeting.go();
        let _ = running.wait().expect(0);
        match expected {
            Some(expected) => assert_eq!(time(), expected, "{script}"),
            None => assert!(time() >= theirs.max(1_500_000_000), "{script}"),
        }
        let committed = time();
        let _ = lab.txos(["revert", "@"]).run().expect(0);
        if expected.is_some() {
            assert_eq!(time(), committed, "{script}, reverted");
        }
    }
    lab.expect_clean();
}

/// What a program is given by its file is gone once the file is written to, and there again after a revert.
#[test]
fn a_write_takes_capabilities() {
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let has = || {
        let mut value = [0; 64];
        rustix::fs::lgetxattr(lab.path("p"), "security.capability", &mut value).is_ok()
    };
    let _ = lab.native("head -c 20000 /bin/true > p; chmod 755 p");
    let value = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(lab.path("p"), "security.capability", &value, flags).unwrap();
    for script in
        ["echo x >> p", "printf y | dd of=p bs=1 seek=5 conv=notrunc status=none", ": > p"]
    {
        let _ = run(&lab, &[], &format!("{script}; ! getfattr -n security.capability p"))
            .run()
            .expect(0);
        assert!(!has(), "{script}");
        let _ = lab.txos(["revert", "@"]).run().expect(0);
        assert!(has(), "{script}, reverted");
    }
    lab.expect_clean();
}

/// Directories that their modes close to their owner are committed where `txos` can have a user namespace.
#[test]
fn closed_directories_of_an_ordinary_user() {
    let user = User::new();
    let lab = lab_of(&user);
    for options in [&[][..], &["--retry=0"]] {
        let script = "mkdir -m 555 r; mkdir -m 0 z; mkdir d; echo 1 > d/f; mkdir d/s; echo 2 > d/s/q; chmod 0 d/s; chmod 555 d";
        let _ = user.runs(run(&lab, options, script)).run().expect(0);
        let modes = lab.native("stat -c %a r z d d/s | paste -sd ' '").text();
        assert_eq!(modes.trim(), "555 0 555 0");
        let _ = lab.native("cat d/s/q").expect(0);
        let _ = user.runs(lab.txos(["revert", "@"])).run().expect(0);
        assert!(!lab.path("d").exists() && !lab.path("z").exists());
    }
}

/// A path below what is open and no directory is no look at what the library has it open as.
#[test]
fn below_an_open_fifo_there_is_nothing() {
    const SCRIPT: &str = "
import os
os.mkfifo('F'); f = os.open('F', os.O_RDWR)
if os.fork() == 0: os._exit(0)
os.wait()
try: os.stat('d', dir_fd=f)
except NotADirectoryError: print('no directory')
";
    let lab = Lab::in_memory();
    std::fs::write(lab.path("below.py"), SCRIPT).unwrap();
    let run = lab.txos(["run", "--view", "library", "--", "python3", "below.py"]);
    assert_eq!(run.run().expect(0).text(), "no directory\n");
    lab.expect_clean();
}

/// Names and attributes of a FIFO or device that a process has open, by its descriptor: whether it is stable, this command's or
/// an earlier one's.
#[test]
fn names_of_an_open_fifo_are_the_transactions() {
    const MAKE: &str = "mkdir b; mkfifo b/first";
    const SCRIPT: &str = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def linked(*arguments):
    ctypes.set_errno(0)
    print(libc.linkat(*arguments), os.strerror(ctypes.get_errno()))
os.mkfifo('own')
names = ['stable', 'b/first', 'own'] + ['null'] * (os.geteuid() == 0)
for name in names:
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    by_path, new = b'/proc/self/fd/%d' % fd, os.path.basename(name)
    linked(-100, by_path, -100, b'd/' + new.encode() + b'1', 0x400)
    linked(-100, by_path, -100, b'd/' + new.encode() + b'1', 0x400)
    linked(-100, by_path, -100, b'none/' + new.encode(), 0x400)
    # Without that flag it is a link of /proc.
    linked(-100, by_path, -100, new.encode() + b'0', 0)
    if os.geteuid() == 0: linked(fd, b'', os.open('d', os.O_RDONLY), new.encode() + b'2', 0x1000)
    linked(fd, b'', -100, new.encode() + b'3', 0)
    os.chmod(by_path, 0o640)
    os.utime(by_path, (7, 7))
    print(os.readlink(by_path).endswith(os.fsencode('/tree/' + name)), os.access(by_path, os.R_OK))
    if os.geteuid() == 0: os.setxattr(by_path, 'trusted.note', b'kept'); print(os.listxattr(by_path))
    for of in [fd, by_path, name, 'd/' + new + '1']:
        seen = os.stat(of)
        print(oct(seen.st_mode), seen.st_nlink, seen.st_mtime)
    print(os.path.samefile(name, 'd/' + new + '1'), os.path.samestat(os.fstat(fd), os.stat(name)))
    os.rename('d/' + new + '1', new + '4')
    print(os.readlink(by_path).endswith(os.fsencode('/tree/' + name)))
null = os.open('/dev/null', os.O_RDONLY)
for new in [b'elsewhere', b'own']:
    linked(-100, b'/proc/self/fd/%d' % null, -100, new, 0x400)
    if os.geteuid() == 0: linked(null, b'', -100, new, 0x1000)
print(sorted(os.listdir('d')), sorted(os.listdir('.')))
";
    let ordinary = User::new();
    for user in [None, Some(&ordinary)] {
        let lab = user.map_or_else(Lab::in_memory, lab_of);
        let native = lab.nested("native");
        for place in [&lab, &native] {
            let _ =
                place.native("umask 022; mkfifo stable; mkdir d; mknod null c 1 3; chmod 777 .");
            std::fs::write(place.path("script.py"), SCRIPT).unwrap();
            if let Some(user) = user {
                let _ = place.native(&format!("chown -R {}:{} .", user.uid, user.gid));
            }
        }
        let as_user = |command: Invocation| match user {
            Some(user) => user.runs(command),
            None => command,
        };
        let _ = as_user(Invocation::shell(MAKE).dir(native.tree())).run().expect(0);
        let before = Tree::of(lab.tree());
        let kept = as_user(run(&lab, &["--keep", "-q"], MAKE)).run().expect(0);
        let id = kept.stderr.trim().to_owned();
        let _ = as_user(exec(&lab, &id, "python3 script.py; exit 3")).run().expect(3);
        before.expect_same(&Tree::of(lab.tree()));
        let ours = as_user(exec(&lab, &id, "python3 script.py; true")).run().expect(0).text();
        let natively = as_user(Invocation::shell("python3 script.py").dir(native.tree()));
        let natively = natively.run().expect(0).text();
        assert_eq!(ours, natively);
        before.expect_same(&Tree::of(lab.tree()));
        let _ = as_user(lab.txos(["commit", &id])).run().expect(0);
        expect_as_natively(&lab, &native);
        let _ = as_user(lab.txos(["revert", &id])).run().expect(0);
        // What was taken out of the tree keeps a link until `gc`.
        let tolerance = Tolerance { links: true, ..Tolerance::default() };
        before.expect(&Tree::of(lab.tree()), tolerance, "not as before");
        if user.is_none() {
            lab.expect_clean();
        }
    }
}

/// A further command runs in the directory that its path leads to in the transaction, and nothing that it does there is live.
#[test]
fn in_the_directory_that_the_transaction_has_there() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir -p d p/d; echo g > d/g; echo g > p/d/g");
    let before = Tree::of(lab.tree());
    let within =
        |id: &str, dir: &str, script: &str| exec(&lab, id, script).dir(lab.path(dir)).run();
    let id = keep(&lab, "mv d e; mkdir d; echo q > d/q; mv p p2");
    let done = within(&id, "d", "ls; rm -f g q; echo n > n; (pwd)").expect(0);
    assert_eq!(done.text(), format!("q\n{}\n", lab.path("d").display()));
    let _ = within(&id, "p/d", "echo live > g")
        .expect(125)
        .says("working directory")
        .says("stays pending");
    let to = |dir: &str| {
        ["exec", &id, "--dir", dir, "--", "sh", "-c", "cat g; echo two > g; (pwd)"]
            .map(str::to_owned)
    };
    let done = lab.txos(to("p2/d")).run().expect(0);
    assert_eq!(done.text(), format!("g\n{}\n", lab.path("p2/d").display()));
    let _ = lab.txos(to("p/d")).run().expect(125).says("working directory");
    let fork = ["exec", "--fork", &id, "--", "rm", "-f", "g"];
    let _ = lab.txos(fork).dir(lab.path("d")).run().expect(0);
    before.expect_same(&Tree::of(lab.tree()));
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert_eq!(
        (lab.read("d/n"), lab.read("e/g"), lab.read("p2/d/g")),
        ("n\n".into(), "g\n".into(), "two\n".into())
    );
    let _ = lab.txos(["abort", "--all"]).run();
}

/// What the commands before have made can be run, as natively.
#[test]
fn programs_of_the_transaction_run() {
    let lab = Lab::in_memory();
    let _ = lab.native("cp /bin/echo stable; mkdir from; ln -s from l");
    let make = "printf '#!/bin/sh\\necho s $0 $1\\n' > s; chmod 755 s; cp /bin/echo t; mkdir bin; cp s bin/of-the-path; ln -s t u";
    let id = keep(&lab, make);
    let path = format!("{}:{}", lab.path("bin").display(), std::env::var("PATH").unwrap());
    let runs =
        |words: &[&str]| lab.txos(["exec", &id, "--"].iter().chain(words)).env("PATH", &path).run();
    assert_eq!(runs(&["./s", "1"]).expect(0).text(), "s ./s 1\n");
    assert_eq!(runs(&["./u", "t"]).expect(0).text(), "t\n");
    let by_path = format!("s {} 2\n", lab.path("bin/of-the-path").display());
    assert_eq!(runs(&["of-the-path", "2"]).expect(0).text(), by_path);
    let _ = runs(&["./none"]).expect(127).says("command not found");
    let _ = runs(&["./bin"]).expect(126);
    let _ = runs(&["rm", "s"]).expect(0);
    let _ = runs(&["./s"]).expect(127);
    // One from before that is elsewhere now.
    let _ = runs(&["mv", "stable", "moved"]).expect(0);
    let _ = runs(&["./stable"]).expect(127);
    assert_eq!(runs(&["./moved", "m"]).expect(0).text(), "m\n");
    let linked = ["exec", "--dir", "l", &id, "--", "/bin/pwd"];
    let _ = runs(&["sh", "-c", "mkdir to; ln -sfn to l"]).expect(0);
    let to = format!("{}\n", lab.path("to").display());
    assert_eq!(lab.txos(linked).run().expect(0).text(), to);
    let _ = lab.txos(["abort", &id]).run().expect(0);
    lab.expect_clean();
}

/// A command that is the first to change something of a file system, and fails, leaves the transaction as it was.
#[test]
fn a_file_system_that_only_a_failed_command_changed() {
    let lab = Lab::in_memory();
    let id = keep(&lab, "true");
    let _ = exec(&lab, &id, "echo n > n; exit 1").run().expect(1).says("as it was");
    let _ = exec(&lab, &id, "echo n > n").run().expect(0);
    let _ = exec(&lab, &id, "echo m > m; kill -9 $$").run().expect(137).says("as it was");
    let _ = lab.txos(["commit", &id]).run().expect(0);
    assert!(lab.path("n").exists() && !lab.path("m").exists());
    lab.expect_clean();
}

/// Who has taken a right from himself does not have it in the next command either.
#[test]
fn rights_that_a_command_took_are_gone() {
    let user = User::new();
    let lab = lab_of(&user);
    let prepare = "mkdir -p t/d/a; echo g > t/g";
    let _ = user.runs(Invocation::shell(prepare).dir(lab.tree())).run().expect(0);
    let first = "echo 1 > t/d/a/x; chmod 444 t";
    let id = user.runs(run(&lab, &["--keep", "-q"], first)).run().expect(0).stderr;
    let script = "! cat t/g && ! sh -c 'echo x >> t/g' && ! rm -r t/d/a && chmod 755 t && cat t/g";
    assert_eq!(user.runs(exec(&lab, id.trim(), script)).run().expect(0).text(), "g\n");
    let _ = user.runs(lab.txos(["abort", id.trim()])).run().expect(0);
}

/// Who lists a directory and closes it to himself has not changed what he depends on.
#[test]
fn a_directory_that_is_listed_and_closed() {
    let user = User::new();
    let lab = lab_of(&user);
    for options in [
        &["run", "--view=library"][..],
        &["run", "--view=library", "--retry=0"],
        &["run", "--view=overlay"],
    ] {
        let prepare = "mkdir d; echo 1 > d/f";
        let _ = user.runs(Invocation::shell(prepare).dir(lab.tree())).run().expect(0);
        let words = options.iter().chain(&["--", "sh", "-c", "ls d; chmod 0 d"]);
        let _ = user.runs(lab.txos(words)).run().expect(0);
        assert_eq!(lab.native("stat -c %a d").text(), "0\n", "{options:?}");
        let _ = lab.native("rm -r d");
    }
}

/// An ordinary user's directory of another group keeps that, whatever is made in it.
#[test]
fn a_directory_of_another_group_keeps_it() {
    let user = User::new();
    let lab = lab_of(&user);
    // The top of what is the user's.
    std::os::unix::fs::chown(lab.dir(), Some(user.uid), Some(0)).unwrap();
    for view in ["overlay", "library"] {
        let words = ["run", "--view", view, "--", "mkdir", view];
        let _ = user.runs(lab.txos(words).dir(lab.dir())).run().expect(0);
        assert!(lab.dir().join(view).exists());
        let meta = std::fs::metadata(lab.dir()).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&meta), 0, "{view}");
        let _ = user.runs(lab.txos(["revert", "@"])).run().expect(0);
    }
}

/// Whatever a process's umask takes from files, it takes nothing from those of the store.
#[test]
fn a_umask_takes_nothing_from_the_store() {
    let user = User::new();
    let lab = lab_of(&user);
    for (script, name) in [("(umask 777; echo x > a)", "a"), ("umask 777; : > b; true | true", "b")]
    {
        for options in [&[][..], &["--retry=0"]] {
            let _ = user.runs(run(&lab, options, script)).run().expect(0);
            let meta = std::fs::symlink_metadata(lab.path(name)).unwrap();
            assert_eq!(std::os::unix::fs::MetadataExt::mode(&meta) & 0o7777, 0, "{script}");
            let _ = user.runs(lab.txos(["revert", "@"])).run().expect(0);
        }
    }
}

/// A new name of a file of which a few bytes are changed shows what it will hold.
#[test]
fn a_link_of_a_changed_file_is_shown() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo hi > f; chmod 644 f");
    let id = keep(&lab, "echo more >> f; ln f ff");
    let shown = diff(&lab, &id);
    assert!(
        shown.contains("new file mode 100644") && shown.matches("+more").count() == 2,
        "{shown}"
    );
    let _ = lab.txos(["abort", &id]).run().expect(0);
    lab.expect_clean();
}

/// A script that was moved or linked in the transaction is run, and not what is at the name that it had.
#[test]
fn scripts_are_those_that_their_names_are_of() {
    let lab = Lab::in_memory();
    let _ = lab.native("printf '#!/bin/sh\\necho old $0\\n' > s; chmod 755 s; mkdir d; cp s d/s");
    let new =
        |name: &str| format!("printf '#!/bin/sh\\necho new $0\\n' > {name}; chmod 755 {name}");
    for (script, expected) in [
        (format!("mv s t; {}; ./t; ./s", new("s")), "old ./t\nnew ./s\n"),
        ("ln s t; sed -i s/old/new/ s; ./t; ./s".to_owned(), "old ./t\nnew ./s\n"),
        (format!("mv d e; mkdir d; {}; e/s; d/s", new("d/s")), "old e/s\nnew d/s\n"),
        ("mv s t; ./t; cd d; ./s; ../t".to_owned(), "old ./t\nold ./s\nold ../t\n"),
    ] {
        let done = run(&lab, &[], &format!("{script}; exit 3")).run().expect(3);
        assert_eq!(done.text(), expected, "{script}");
    }
    lab.expect_clean();
}

/// A new directory that its mode closes, and that has a default ACL, is taken back like any other.
#[test]
fn a_closed_directory_with_a_default_list_is_taken_back() {
    let user = User::new();
    let lab = lab_of(&user);
    let id = user.runs(run(&lab, &["--keep", "-q"], "mkdir -m 444 n")).run().expect(0).stderr;
    let id = id.trim();
    let runs = |words: &[&str]| user.runs(lab.txos(words)).run();
    let _ = runs(&["exec", id, "--", "setfacl", "-d", "-m", "g:495:rx", "n"]).expect(0);
    let _ = runs(&["exec", id, "--", "touch", "q"]).expect(0);
    let _ = runs(&["undo", id]).expect(0);
    let _ = runs(&["exec", id, "--", "sh", "-c", "touch q; exit 1"]).expect(1).says("as it was");
    let _ = runs(&["redo", id]).expect(0);
    let _ = runs(&["commit", id]).expect(0);
    assert!(lab.native("getfacl n").text().contains("default:group:495:r-x"));
}

/// Directories that a process makes with a file mode mask that takes all rights are made as natively.
#[test]
fn directories_under_a_umask_that_takes_all() {
    let user = User::new();
    let lab = lab_of(&user);
    let _ = user.runs(run(&lab, &[], "(umask 777; mkdir -p a/b); mkdir c")).run().expect(0);
    assert_eq!(lab.native("stat -c %a a a/b c | paste -sd ' '").text(), "300 0 755\n");
}

/// A change in place with many names that go: what is retained lies in groups of a hundred.
#[test]
fn a_patch_with_many_removals() {
    let prepare =
        "mkdir many ro; echo ro > ro/f; cd many; seq 300 | xargs touch; cp -r . ../others";
    for change in [
        "echo x >> ro/f; rm many/*",
        "for n in $(seq 150); do mv many/$n many/r$n; done; printf X | dd of=ro/f conv=notrunc bs=1 status=none",
        "for n in $(seq 120); do echo y >> many/$n; done; rm others/2*",
    ] {
        let lab = Lab::in_memory();
        let native = lab.nested("native");
        for place in [&lab, &native] {
            let _ = place.native(prepare);
        }
        let before = Tree::of(lab.tree());
        let _ = native.native(change).expect(0);
        let _ = run(&lab, &[], change).run().expect(0);
        expect_as_natively(&lab, &native);
        let _ = lab.txos(["revert", "@"]).run().expect(0);
        before.expect_same(&Tree::of(lab.tree()));
    }
}

/// A part is published as a transaction of its own; the rest goes on.
#[test]
fn a_part_is_committed_and_the_rest_stays() {
    let prepare = "mkdir d e; for f in d/a d/b d/gone e/m; do echo $f > $f; done; head -c 20000 /dev/zero > d/big
         echo l > l1; ln l1 l2; ln -s x d/link; find . -exec touch -h -d @1000000000 {} +";
    let change = "echo new > d/a; echo new > d/b; rm d/gone; chmod 700 d; mkdir n; echo 1 > n/1; mv e/m e/m2
         printf X | dd of=d/big bs=1 seek=9000 conv=notrunc status=none; echo l >> l1; ln -sf y d/link; touch -d @5 d";
    let part_by_part = |lab: &Lab| {
        let native = lab.nested("native");
        for place in [lab, &native] {
            let _ = place.native(prepare);
        }
        let before = Tree::of(lab.tree());
        let _ = native.native(change).expect(0);
        let id = keep(lab, change);
        let commit = |paths: &[&str], code| {
            let paths = paths.iter().map(|path| lab.path(path).display().to_string());
            let words = ["commit".to_owned(), id.clone()].into_iter().chain(paths);
            lab.txos(words).run().expect(code)
        };
        let mut parts = Vec::new();
        for paths in [&["d/a"][..], &["n", "d/gone"], &["d/big"], &["l2", "l1"]] {
            let done = commit(paths, 0).says("stays pending");
            parts.push(committed(&done));
        }
        assert_eq!((lab.read("d/a"), lab.read("d/b")), ("new\n".into(), "d/b\n".into()));
        assert_eq!((lab.read("l2"), lab.read("n/1")), ("l\nl\n".into(), "1\n".into()));
        assert!(!lab.path("d/gone").exists() && lab.path("e/m").exists());
        let refused = commit(&["e/m2"], 125).says("was moved there or is a new link");
        let _ = refused.says("stays pending");
        let _ = commit(&["d/a"], 125).says("is not changed by the transaction");
        // The next command goes on with the rest, and what was committed is there for it.
        let further = "cat d/a d/b n/1 l2; test ! -e d/gone; echo 2 >> d/b; echo 2 >> n/1";
        let seen = exec(lab, &id, further).run().expect(0).text();
        assert_eq!(seen, "new\nnew\n1\nl\nl\n");
        let _ = native.native("echo 2 >> d/b; echo 2 >> n/1");
        let _ = commit(&["d/b"], 0);
        let _ = commit(&[], 0).says("committed");
        expect_as_natively(lab, &native);
        // All of it can be taken back, the last first.
        let last = lab.txos(["log", "--json"]).run().json();
        let last = last["transactions"].as_array().expect("transactions").iter();
        for id in last.filter_map(|tx| tx["id"].as_str()) {
            let _ = lab.txos(["revert", id]).run().expect(0);
        }
        before.expect_same(&Tree::of(lab.tree()));
        lab.expect_clean();
        parts.len()
    };
    assert_eq!(part_by_part(&Lab::in_memory()), 4);
}
