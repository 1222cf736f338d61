//! A process of another user in root's transaction turns on it, past the library: the process that makes the calls of
//! all of them gives it nothing that this user may not have natively, and goes on for the others.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use txos_testkit::{Done, Invocation, Lab, Tree, require, require_some, system};

use crate::program::{Linked, program};
use crate::signalling::Listener;
use crate::whole::{Pair, SOURCES};

const PLACES: &str = "umask 022; mkdir -m 1777 pub; echo secret > secret; chmod 600 secret; echo for all > for-all; chmod 666 for-all; \
    echo not read > write-only; chmod 222 write-only; echo read > readable; mkdir given; head -c 100000 /dev/zero > given/f; \
    chown -R 65534:65534 given; cp /bin/true secret-program; chmod 700 secret-program; cp /bin/true unread-program; \
    chmod 711 unread-program; cp /bin/sleep set-user-id; chmod 4755 set-user-id; mkfifo -m 666 pub/ready pub/go";

struct Scene {
    lab: Lab,
    attacker: PathBuf,
    /// `setpriv` reads the machine's groups.
    _stable: system::Guard,
}

impl Scene {
    /// `None`: not here, where there is no other user, or no way past the dispatch.
    fn new() -> Option<Scene> {
        if !rustix::process::geteuid().is_root() || !cfg!(target_arch = "x86_64") {
            return None;
        }
        let lab = Lab::in_memory();
        let _ = lab.native(PLACES);
        for place in [lab.dir(), lab.tree()] {
            std::fs::set_permissions(place, PermissionsExt::from_mode(0o755)).unwrap();
        }
        // Where everybody finds it.
        let attacker = lab.dir().join("hostile");
        txos_testkit::process::copy_program(program("hostile", Linked::Natively), &attacker);
        Some(Scene { lab, attacker, _stable: system::stable() })
    }

    fn attack(&self, attack: &str) -> Invocation {
        let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
        let script = format!("{user} {} {attack}; cat secret > roots", self.attacker.display());
        self.lab.txos(["run", "--in-process", "--", "sh", "-c", &script])
    }

    /// What it got is this, and the others go on.
    #[track_caller]
    fn gets(&self, attack: &str, got: &str) {
        let done = self.attack(attack).run().expect(0);
        assert_eq!(done.text().trim_end(), got, "{done:?}");
        assert_eq!(self.lab.read("roots"), "secret\n");
        self.lab.expect_clean();
    }

    /// It ends the transaction, of which nothing is left.
    #[track_caller]
    fn ends(&self, attack: &str, code: i32) -> Done {
        let done = self.attack(attack).run().expect(code);
        assert!(!self.lab.path("roots").exists(), "{done:?}");
        self.lab.expect_clean();
        done
    }
}

#[test]
fn descriptors_of_others_are_not_its() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    scene.gets("numbers", "numbers: 0 0");
    scene.gets("magic", "magic: 0\nmagic below: 0");
    scene.gets(
        "descriptors",
        "map: done\nwritten: EBADF\nmode: EPERM\nmap to write: EACCES\nmap of another: EBADF\n\
         map of what is not read: EACCES\nread of it: EBADF\nsendfile of it: EBADF\ncopy of it: EBADF\n\
         program: EACCES\nprogram that is not read: EACCES\nwindow: EBADF",
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    scene.gets(
        "nonsense",
        "end: EINVAL\nno such thing: EINVAL\nno such call: ENOSYS\nany image: EPERM\nany fcntl: ENOSYS\nany ioctl: ENOSYS\n\
         endless path: EFAULT\nstill there: done\nsecret: EACCES",
    );
    scene.gets(
        "connection",
        "copy of the process: EPERM\nchild: done\ncall before it is there: EPERM",
    );
}

/// Nobody names the writer of a mailbox: the owner's processes are served by theirs, and no others. The owner may write there what it likes.
#[test]
fn mailboxes_are_the_owners() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    scene.gets("mailbox", "mailbox: left");
    assert!(!scene.lab.path("pub/boxed").exists());
    let attack = |attack: &str| {
        let script = format!("true; {} {attack}; true", scene.attacker.display());
        scene.lab.txos(["run", "--in-process", "--", "sh", "-c", &script]).run().expect(0)
    };
    let done = attack("inherits");
    assert_eq!(done.text(), "windows: 1, open: 0\n", "{done:?}");
    let has_two = std::thread::available_parallelism().is_ok_and(|all| all.get() > 1);
    let done = attack("scribbles");
    let text = format!("still there: done\nsome were taken: {}\n", u8::from(has_two));
    assert_eq!(done.text(), text, "{done:?}");
    assert!(scene.lab.path("pub/still").exists());
    scene.lab.expect_clean();
}

/// It has signals held that it may not send: at the commit it may not send them either.
#[test]
fn its_signals_are_its_own() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    let listener = Listener::new();
    let done = scene.attack(&format!("signals {}", listener.pid())).run().expect(0);
    let wrong = "no signal: EINVAL\nasks: EINVAL\nno group: EINVAL\nno thread: EINVAL\nnobody: EINVAL\n\
                 outside of the window: EFAULT\nbefore it: EFAULT\nno descriptor: EBADF\nno signal's call: EINVAL\n";
    assert_eq!(done.text(), format!("{wrong}kill: done\ntgkill: done\nqueue: done\n"));
    assert_eq!(done.stderr.matches("Operation not permitted").count(), 3, "{done:?}");
    assert_eq!(listener.got(), "");
    assert_eq!(scene.lab.read("roots"), "secret\n");
    scene.lab.expect_clean();
}

/// It stops the processes that are made to send for it: they are not waited for again and again.
#[test]
fn nobody_waits_for_its_signals() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    let listener = Listener::new();
    let began = Instant::now();
    let done = scene.attack(&format!("stops {}", listener.pid())).run().expect(0);
    assert_eq!(done.text(), "stops: 1000\n", "{done:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(scene.lab.read("roots"), "secret\n");
    assert_eq!(listener.got(), "");
}

/// A FIFO at the place of a file that was found is not waited for; the file has changed, so nothing is published.
#[test]
fn nobody_waits_for_what_it_puts_there() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    for how in ["open", "both", "truncate", "write", "page"] {
        let _ = scene.ends(&format!("fifo {how}"), 75);
        let _ =
            scene.lab.native("rm given/f; head -c 100000 /dev/zero > given/f; chown 65534 given/f");
    }
}

#[test]
fn nobody_waits_until_it_takes_its_answers() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    let _ = scene.ends("flood", 125).says("takes no answers");
}

/// It asks, and is a set-user-id program when the server looks who it is: it does not get what that may.
#[test]
fn a_set_user_id_program_asks_for_nobody() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    let done = scene.attack("rise ./set-user-id").run();
    assert!(!done.text().contains("secret"), "{done:?}");
    // Unless the server has looked before that: then it has asked for itself, in vain.
    if done.code() != 0 {
        let done = done.expect(125).says("gives it other rights");
        assert!(!scene.lab.path("roots").exists(), "{done:?}");
    }
    scene.lab.expect_clean();
}

/// What it was allowed once it is asked for again: the file is another one's by then.
#[test]
fn what_was_allowed_is_judged_again() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    let running = scene.attack("late").start();
    // Each opening waits for the attacker's.
    let ready = std::fs::File::open(scene.lab.path("pub/ready")).unwrap();
    let _ = scene.lab.native("chmod 600 for-all; echo secret > for-all");
    std::fs::write(scene.lab.path("pub/go"), "x").unwrap();
    let done = running.wait();
    drop(ready);
    assert_eq!(done.text().trim_end(), "before: done\nafter: EACCES\nlate: nothing", "{done:?}");
}

/// A user without the right to leave it is not kept in a root directory that only the transaction knows.
#[test]
fn nobody_is_locked_up_by_name_only() {
    let scene =
        require_some!(Scene::new(), "only root can become others; and the attacks are for x86-64");
    let script = "chroot 'given' or die; use POSIX; POSIX::setgid(65534); POSIX::setuid(65534); print 'outside'";
    let before = Tree::of(scene.lab.tree());
    let done =
        scene.lab.txos(["run", "--in-process", "--", "perl", "-e", script]).run().expect(125);
    assert!(
        done.stderr.contains("root directory of its own") && !done.text().contains("outside"),
        "{done:?}"
    );
    before.expect_same(&Tree::of(scene.lab.tree()));
}

/// Rights that only a transaction could give by mistake: a program with its directory's group, attributes that others
/// may not see or set.
#[test]
fn groups_and_attributes_are_as_natively() {
    require!(rustix::process::geteuid().is_root(), "only root can become others");
    let pair = Pair::new(&format!(
        "{SOURCES}; mkdir pub grouped; chmod 1777 pub; chgrp 50 grouped; chmod 2777 grouped; echo x > theirs; \
         setfattr -n trusted.kept -v 1 theirs; setfattr -n user.kept -v 1 theirs; chown 65534 theirs; echo y > roots"
    ));
    for place in [&pair.lab, &pair.ours] {
        for dir in [place.dir(), place.tree()] {
            std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
        }
    }
    let script = r#"
        use Fcntl; use POSIX; system("setfattr -n trusted.x -v 1 roots"); $| = 1;
        unless (fork) {
            $) = "65534 65534"; POSIX::setgid(65534); POSIX::setuid(65534); umask 0;
            for my $mode (02755, 02745, 06777, 04755) {
                sysopen(my $h, sprintf("grouped/%o", $mode), O_CREAT | O_WRONLY, $mode) or print "$!\n";
            }
            mkdir "grouped/d", 0755; chmod 02755, "grouped/d";
            for my $do ("setfattr -n user.x -v 1 pub", "setfattr -n user.x -v 1 grouped", "getfattr -n trusted.x roots",
                "getfattr --only-values -n trusted.kept theirs", "setfattr -n user.x -v 1 theirs", "setfattr -x trusted.kept theirs",
                "getfattr -d -m - theirs") {
                print `$do 2>&1`, "$do: $?\n";
            }
            exit 0;
        }
        wait; exit $?;
    "#;
    for place in [&pair.native, &pair.ours] {
        std::fs::write(place.path("script.pl"), script).unwrap();
    }
    pair.does(&["perl", "script.pl"]);
    pair.clean();
}
