//! What a command under `txos run` does to others and to the machine: told of, held, or refused. Nothing here
//! does any harm (see `outside.c`); what is made has namespaces of its own.
//!
//! # Safety
//!
//! Unsafe here is `unshare(2)` of the calling thread: nothing in this process relies on the System V objects
//! or the network that it shared.
#![allow(unsafe_code)]

use rustix::process::Signal;
use rustix::thread::UnshareFlags;
use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, Running};

use crate::program::Linked;
use crate::{INSIDE, RUN, built, cases, start};

/// One whom calls reach, and the lab around both.
struct Reach {
    listener: Running,
    objects: Vec<(&'static str, String)>,
    lab: Lab,
    outside: Lab,
}

impl Reach {
    fn new() -> Reach {
        let lab = Lab::in_memory();
        // SAFETY: see the head of this file.
        unsafe {
            rustix::thread::unshare_unsafe(UnshareFlags::NEWIPC | UnshareFlags::NEWNET).unwrap();
        }
        let outside = lab.nested("outside");
        let listener = start(&outside, "outside", Linked::Natively).arg("listen").start();
        until("the listener is ready", || listener.stdout().ends_with('\n'));
        let ids = listener.stdout();
        let ids = ids.split_whitespace().map(str::to_owned);
        let objects = ["SHM", "SEM", "MSG"].into_iter().zip(ids).collect();
        Reach { listener, objects, lab, outside }
    }

    fn words(&self, call: &str) -> [String; 3] {
        let program = built("outside", Linked::Natively).display().to_string();
        [program, call.to_owned(), self.listener.pid().as_raw_nonzero().to_string()]
    }

    fn with_objects(&self, invocation: Invocation) -> Invocation {
        self.objects.iter().fold(invocation, |i, (name, id)| i.env(name, id))
    }

    fn natively(&self, call: &str) -> Done {
        let [program, rest @ ..] = self.words(call);
        self.with_objects(Invocation::new(program).args(rest).dir(self.outside.tree())).run()
    }

    fn in_a_command(&self, options: &[&str], call: &str, end: &str) -> Done {
        let script = format!("{} && {end}", self.words(call).join(" "));
        self.with_objects(self.lab.script(options, &script)).run()
    }

    fn got(&self) -> String {
        std::fs::read_to_string(self.outside.path("got")).unwrap_or_default()
    }
}

fn of(places: u32) -> impl Iterator<Item = String> {
    cases("outside").into_iter().filter(move |(_, p)| *p == places).map(|(name, _)| name)
}

#[test]
fn what_reaches_out_of_a_command_is_told_of() {
    let reach = Reach::new();
    let mut wrong = Vec::new();
    for call in of(RUN) {
        let natively = reach.natively(&call).expect(0);
        let done = reach.in_a_command(&[], &call, "echo > made");
        let told = done.stderr.matches("warning: ").count() == 1;
        let made = std::fs::remove_file(reach.lab.path("made")).is_ok();
        if done.code() != 0 || !told || !made || done.text() != natively.text() {
            wrong.push(format!("{call}: {done:?}, natively {natively:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    reach.lab.expect_clean();
}

#[test]
fn strictness_stops_a_command_before_each_such_call() {
    let reach = Reach::new();
    let mut wrong = Vec::new();
    for call in of(RUN) {
        let done = reach.in_a_command(&["--strict"], &call, "echo > made");
        if done.code() != 125 || !done.text().is_empty() || reach.lab.path("made").exists() {
            wrong.push(format!("{call}: {done:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    reach.lab.expect_clean();
}

#[test]
fn signals_of_every_kind_wait_for_the_commit() {
    let reach = Reach::new();
    for call in of(INSIDE) {
        let dropped = reach.in_a_command(&[], &call, "exit 3");
        if call == "kill_32" && dropped.code() != 3 {
            continue; // A kernel that runs no 32-bit programs ends this one.
        }
        assert_eq!(dropped.text().trim(), "0", "{call}: {dropped:?}");
        let _ = dropped.expect(3);
        let held = reach.in_a_command(&[], &call, &format!("cat {}", seen(&reach)));
        let mut lines = held.text();
        assert_eq!(lines.drain(..2).as_str(), " 0", "{call}: {held:?}");
        assert_eq!(lines.trim(), "", "{call} was not held: {held:?}");
        let _ = held.expect(0);
        // One signal: the one that was dropped would have been first.
        until("the signal has come", || reach.got().ends_with("usr1\n"));
        reach.listener.signal(Signal::USR2);
        until("another has come", || reach.got().ends_with("usr2\n"));
        assert_eq!(reach.got(), "usr1\nusr2\n", "{call}");
        std::fs::remove_file(reach.outside.path("got")).unwrap();
    }
    reach.lab.expect_clean();
}

#[test]
fn signals_of_every_kind_wait_for_the_commit_of_a_thread() {
    let reach = Reach::new();
    for call in of(INSIDE).filter(|call| call != "kill_32") {
        for end in ["abort", "commit"] {
            let [_, rest @ ..] = reach.words(&call);
            let run = start(&reach.lab, "outside", Linked::WithLibrary).args(rest).arg(end);
            let (reading, writing) = rustix::pipe::pipe().unwrap();
            let running = run.fd(reading, 5).start();
            until("the call was made", || running.stdout().ends_with('\n'));
            assert_eq!(running.stdout().trim(), "0", "{call}");
            assert_eq!(reach.got(), "", "{call} was not held");
            assert_eq!(rustix::io::write(&writing, b"x").unwrap(), 1);
            let _ = running.wait().expect(0);
        }
        // One signal: the one that was dropped would have been first.
        until("the signal has come", || reach.got().ends_with("usr1\n"));
        reach.listener.signal(Signal::USR2);
        until("another has come", || reach.got().ends_with("usr2\n"));
        assert_eq!(reach.got(), "usr1\nusr2\n", "{call}");
        std::fs::remove_file(reach.outside.path("got")).unwrap();
    }
    reach.lab.expect_clean();
}

#[test]
fn signals_of_every_kind_wait_for_the_commit_in_the_librarys_view() {
    let reach = Reach::new();
    for call in of(INSIDE).filter(|call| call != "kill_32") {
        let run = |end: &str| {
            let script = format!("{} && {end}", reach.words(&call).join(" "));
            let words = ["run", "--view", "library", "--strict", "--", "sh", "-c", &script];
            reach.with_objects(reach.lab.txos(words)).run()
        };
        let dropped = run("exit 3").expect(3);
        assert_eq!(dropped.text().trim(), "0", "{call}: {dropped:?}");
        let held = run(&format!("cat {}", seen(&reach))).expect(0);
        assert_eq!(held.text().trim(), "0", "{call} was not held: {held:?}");
        // One signal: the one that was dropped would have been first.
        until("the signal has come", || reach.got().ends_with("usr1\n"));
        reach.listener.signal(Signal::USR2);
        until("another has come", || reach.got().ends_with("usr2\n"));
        assert_eq!(reach.got(), "usr1\nusr2\n", "{call}");
        std::fs::remove_file(reach.outside.path("got")).unwrap();
    }
    reach.lab.expect_clean();
}

/// What the listener has got by now, or nothing: for a script.
fn seen(reach: &Reach) -> String {
    format!("{} 2>/dev/null || true", reach.outside.path("got").display())
}

#[test]
fn what_a_command_can_not_do_is_refused() {
    let reach = Reach::new();
    for call in of(RUN | INSIDE) {
        let errno = match call.as_str() {
            "io_uring_setup" => libc::ENOSYS,
            "open_by_handle_at" => libc::EPERM,
            // File flags are not published.
            _ => libc::EOPNOTSUPP,
        };
        let done = reach.in_a_command(&["--strict"], &call, "echo > made").expect(0);
        assert_eq!(done.text().trim(), format!("E{errno}"), "{call}");
        std::fs::remove_file(reach.lab.path("made")).expect(&call);
    }
    reach.lab.expect_clean();
}
