//! A user serves a file system that does not answer, or from within the transaction, and root's supervisor
//! comes to look into it.

use txos_testkit::process::quote;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous, Running};

use crate::STRANGER;

const SERVER: &str = include_str!("programs/served.py");

/// A place with a mount of the stranger's that the stranger serves.
struct Served {
    lab: Lab,
    server: Option<Running>,
}

impl Served {
    /// `None`: there is no FUSE here.
    fn new(how: &str) -> Option<Served> {
        let lab = Lab::in_memory();
        let program = lab.dir().join("served.py");
        std::fs::write(&program, SERVER).unwrap();
        let _ = lab.native("mkdir -p theirs/m; touch ../log; chmod 666 ../log");
        std::os::unix::fs::chown(lab.path("theirs"), Some(STRANGER), Some(STRANGER)).unwrap();
        let mut server = Invocation::new("/usr/bin/python3")
            .arg(&program)
            .arg(lab.path("theirs/m"))
            .args([&STRANGER.to_string(), how])
            .arg(lab.tree().parent().unwrap().join("log"))
            .start();
        let mut up = false;
        until("it serves, or can't", || {
            up = server.stdout() == "serving\n";
            up || server.ended()
        });
        up.then_some(Served { lab, server: Some(server) })
    }

    /// The kernel answers in the place of a server that is gone.
    fn ends(&mut self) {
        if let Some(server) = self.server.take() {
            server.signal(rustix::process::Signal::KILL);
            let _ = server.wait();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.ends();
        let _ = Invocation::new("umount").arg("-l").arg(self.lab.path("theirs/m")).run();
    }
}

fn fuse() -> bool {
    Invocation::shell("[ -c /dev/fuse ] && /usr/bin/python3 -c pass").run().code() == 0
}

/// What waits for the server: the call itself, as natively. The supervisor's look at it must hold up nobody else.
const WAITS: [&str; 6] = [
    "mkdir theirs/m/stuck",
    "echo x > theirs/m/stuck",
    "theirs/m/stuck",
    "stat theirs/m/stuck/below",
    "mv theirs/m/stuck theirs/m/dir",
    "cd theirs/m && cat stuck/below/file",
];

#[test]
fn a_file_system_that_does_not_answer_holds_up_who_looks_into_it_alone() {
    txos_testkit::require!(fuse(), "no FUSE or no Python here");
    for (how, waits) in WAITS.iter().map(|w| ("stuck", *w)).chain([("silent", WAITS[3])]) {
        for other_user in [false, true] {
            println!("{how}: {waits}, another user: {other_user}");
            let served = Served::new(how);
            txos_testkit::require!(served.is_some(), "FUSE can't be mounted here");
            let mut served = served.unwrap();
            let mut meeting = Rendezvous::new();
            let as_user = format!("setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups");
            let who = if other_user { as_user.as_str() } else { "env" };
            // A name has been asked for, by the call itself or by a look at it: then others are served.
            let script = format!(
                "{who} sh -c {} 2>/dev/null & until grep -q '^1 1' ../log; do :; done
                mkdir made; mv made moved; echo done > moved/done; {PAUSE}",
                quote(waits).to_str().unwrap()
            );
            let run = served.lab.script(&[], &script).meeting(&mut meeting).start();
            assert!(meeting.arrived());
            served.ends();
            meeting.go();
            let done = run.wait();
            // What could not be looked at may make it a conflict, and nothing else.
            assert!(matches!(done.code(), 0 | 75), "{done:?}");
            assert_eq!(served.lab.path("moved/done").exists(), done.code() == 0, "{done:?}");
        }
    }
}

/// The server is a process of the transaction, whose every call waits for the supervisor: the supervisor must
/// not wait for the server.
#[test]
fn a_server_in_the_transaction_is_not_waited_for() {
    txos_testkit::require!(fuse(), "no FUSE or no Python here");
    let lab = Lab::in_memory();
    let program = lab.dir().join("served.py");
    std::fs::write(&program, SERVER).unwrap();
    let _ = lab.native("mkdir m; touch log");
    // It opens its log, which is told of, before it answers.
    let script = format!(
        "/usr/bin/python3 {} m 0 stuck log > said & server=$!
        until grep -q serving said || ! kill -0 $server; do :; done
        mkdir m/new 2> refused; cat m/file; echo x > m/dir/new; kill -9 $server; umount -l m; wait; rm said",
        program.display()
    );
    let done = lab.script(&[], &script).run().expect(0);
    assert!(done.text().contains("#!/x"), "{done:?}");
    assert!(lab.read("log").contains("file"));
}
