//! A command that has lost a conflict is run again by itself, but only if nobody can have noticed the first
//! time: in both views alike.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use txos_testkit::pty::Pty;
use txos_testkit::wait::until;
use txos_testkit::{Done, Invocation, Lab, binary, require};

const VIEWS: [&str; 2] = ["overlay", "library"];

/// A command whose file an outsider changes in its first run.
struct Conflicting<'a> {
    lab: &'a Lab,
    view: &'a str,
    /// What it does that might be noticed.
    what: &'a str,
}

impl Conflicting<'_> {
    /// Gives how it ended, and how often it was run.
    fn run(&self, options: &[&str], with: impl FnOnce(Invocation) -> Invocation) -> (Done, usize) {
        let lab = self.lab;
        let _ = lab.native("echo old > file; rm -f result ../changed");
        let script = format!(
            "read x < file; {}; \
             while [ $x = old ] && ! [ -e ../changed ]; do sleep 0.01; done; echo $x > result",
            self.what
        );
        let options = [&["--view", self.view], options].concat();
        let running = with(lab.script(&options, &script)).start();
        // The first thing that it starts, and after it has read the file.
        let front = running.pid().as_raw_nonzero().get();
        until("the command waits", || sleeps_below(front));
        std::fs::write(lab.path("file"), "new\n").unwrap();
        std::fs::write(lab.dir().join("changed"), "").unwrap();
        let done = running.wait();
        // The first run's file never gets into the tree.
        let runs = if lab.path("result").exists() { 2 } else { 1 };
        (done, runs)
    }
}

/// Whether a process below this one is `sleep`.
fn sleeps_below(pid: i32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap_or_default().split_whitespace().any(|child| {
        let comm = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        comm.trim() == "sleep" || child.parse().is_ok_and(sleeps_below)
    })
}

fn null() -> OwnedFd {
    File::options().read(true).write(true).open("/dev/null").unwrap().into()
}

fn unseen(invocation: Invocation) -> Invocation {
    invocation.fd(null(), 0).fd(null(), 1).fd(null(), 2)
}

#[test]
fn a_command_of_which_nothing_was_seen_is_run_again() {
    let lab = Lab::in_memory();
    for view in VIEWS {
        // A command of one process as well: the shell's own commands are all that it runs then.
        for what in [":", "/bin/true"] {
            let (done, runs) = Conflicting { lab: &lab, view, what }.run(&[], unseen);
            assert_eq!((done.code(), runs), (0, 2), "{view}: {done:?}");
            assert_eq!(lab.read("result"), "new\n");
        }
        // Not if no retry is wanted.
        let silent = Conflicting { lab: &lab, view, what: ":" };
        let (done, runs) = silent.run(&["--retry", "0"], unseen);
        assert_eq!((done.code(), runs), (75, 1), "{view}: {done:?}");
    }
    lab.expect_clean();
}

/// Whether this process, or one below it, is Python and sleeps.
fn python_sleeps(pid: i32) -> bool {
    let of =
        |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let sleeps = of("syscall").starts_with(&format!("{} ", libc::SYS_clock_nanosleep));
    let children = of(&format!("task/{pid}/children"));
    sleeps && of("comm").starts_with("python")
        || children.split_whitespace().any(|child| child.parse().is_ok_and(python_sleeps))
}

/// A command of one process, which has its transaction itself in the library's view: it loses when it commits, and when it
/// looks once more.
#[test]
fn a_command_of_one_process_is_run_again() {
    let lab = Lab::in_memory();
    for view in VIEWS {
        for again in ["", "x = open('file').read()"] {
            let script = format!(
                "import os, time\nx = open('file').read()\nfirst = x == 'old\\n'\n\
                 while first and not os.path.exists('../changed'): time.sleep(0.01)\n{again}\n\
                 open('result', 'w').write(x)"
            );
            let _ = lab.native("echo old > file; rm -f result ../changed");
            let run = lab.txos(["run", "--view", view, "--scope"]).arg(lab.tree());
            let running = unseen(run.args(["--", "python3", "-c", &script])).start();
            let txos = running.pid().as_raw_nonzero().get();
            until("the command waits", || python_sleeps(txos));
            std::fs::write(lab.path("file"), "new\n").unwrap();
            std::fs::write(lab.dir().join("changed"), "").unwrap();
            let _ = running.wait().expect(0);
            assert_eq!(lab.read("result"), "new\n", "{view}: {again}");
        }
    }
    lab.expect_clean();
}

/// What is said of a conflict is the same in both views, but for the time.
#[test]
fn a_conflict_is_told_alike() {
    let lab = Lab::in_memory();
    for what in [":", "echo printed; echo more >> file", "echo printed"] {
        let told = VIEWS.map(|view| {
            let (ours, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            let input = match what {
                // Nothing can be told from the first: in the library's view `txos` becomes the command.
                ":" => ours.into(),
                _ => null(),
            };
            let (done, runs) = Conflicting { lab: &lab, view, what }.run(&[], |i| i.fd(input, 0));
            assert_eq!((done.code(), runs), (75, 1), "{view}: {done:?}");
            let mut said: Vec<&str> = done.stderr.split(" at 20").next().unwrap().lines().collect();
            said.sort_unstable();
            said.join("\n")
        });
        assert_eq!(told[0], told[1], "{what}");
        assert!(told[0].contains("it was not run again"), "{}", told[0]);
    }
    lab.expect_clean();
}

#[test]
fn a_command_that_printed_is_not_run_twice() {
    let lab = Lab::in_memory();
    for view in VIEWS {
        // A file, a terminal.
        let (done, runs) = Conflicting { lab: &lab, view, what: "echo printed" }.run(&[], |i| i);
        assert_eq!((done.code(), runs), (75, 1), "{done:?}");
        assert_eq!(done.text(), "printed\n");
        let _ = done
            .says("it was not run again, because it may have printed something")
            .says("--retry N");
        for (number, what) in [(1, "echo printed"), (2, "echo printed >&2")] {
            let path = lab.dir().join("output");
            let file = File::create(&path).unwrap();
            let (done, runs) = Conflicting { lab: &lab, view, what }
                .run(&["-q"], |i| unseen(i).fd(file.into(), number));
            assert_eq!((done.code(), runs), (75, 1), "{done:?}");
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.matches("printed\n").count(), 1, "{text}");
        }
        let (mut pty, inner) = Pty::open(80, 24);
        let (done, runs) = Conflicting { lab: &lab, view, what: "echo printed" }
            .run(&[], |i| unseen(i).fd(inner, 1));
        assert_eq!((done.code(), runs), (75, 1), "{done:?}");
        pty.expect("printed");
        assert!(!pty.rest().contains("printed"));
    }
    lab.expect_clean();
}

/// Reads what is written to a pipe, on a thread; the first line makes the file `../read`.
fn reader(lab: &Lab) -> (OwnedFd, JoinHandle<Vec<u8>>) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let sign = lab.dir().join("read");
    let _ = std::fs::remove_file(&sign);
    let thread = std::thread::spawn(move || {
        let (mut read, mut bytes) = (File::from(read), vec![0u8; 8]);
        read.read_exact(&mut bytes).unwrap();
        std::fs::write(sign, "").unwrap();
        read.read_to_end(&mut bytes).unwrap();
        bytes
    });
    (write, thread)
}

/// What is printed into a pipe is held for a moment: a short command is run again, and prints once. One that prints
/// for longer, or more, is not run twice.
#[test]
fn output_into_a_pipe_is_held_for_a_moment() {
    let lab = Lab::in_memory();
    for view in VIEWS {
        let until_read = "echo printed; while ! [ -e ../read ]; do sleep 0.01; done";
        let more = "echo printed; head -c 70000 /dev/zero";
        for (what, expected, length) in
            [("echo printed", (0, 2), 8), (until_read, (75, 1), 8), (more, (75, 1), 70_008)]
        {
            let mut attempts = 0;
            let (found, bytes, done) = loop {
                let (write, reader) = reader(&lab);
                let began = Instant::now();
                let (done, runs) = Conflicting { lab: &lab, view, what }
                    .run(&[], |i| i.fd(null(), 0).fd(write, 1).fd(null(), 2));
                let found = (done.code(), runs);
                attempts += 1;
                // Output is held for a second. A first run that took longer, on a busy machine, has shown it.
                let too_slow = began.elapsed() > Duration::from_secs(1) && attempts < 20;
                if !(too_slow && expected == (0, 2) && found == (75, 1)) {
                    break (found, reader.join().unwrap(), done);
                }
            };
            assert_eq!(found, expected, "{what}: {done:?}");
            assert!(bytes.starts_with(b"printed\n"), "{what}");
            assert_eq!(bytes.len(), length, "{what}");
        }
        // Both into one pipe, in their order; and of a command that fails, all of it.
        for (end, status) in [("true", 0), ("exit 3", 3)] {
            let script = format!(
                "exec 2>&1; {} run --view {view} --scope . -- sh -c 'for i in 1 2 3; do echo o$i; echo e$i >&2; done; {end}' 2>&1 < /dev/null | cat; exit ${{PIPESTATUS[0]}}",
                binary::txos().display()
            );
            let run = Invocation::new("bash").args(["-c", &script]).dir(lab.tree());
            let run = run.env("TXOS_STORE", lab.store()).env("TXOS_REALM", lab.realm());
            let text = run.run().expect(status).text();
            assert!(text.starts_with("o1\ne1\no2\ne2\no3\ne3\ntxos: "), "{text}");
        }
        // Who prints without an end is told when nobody reads any more.
        let script = format!(
            "{} run --view {view} --scope . -- yes < /dev/null | head -n 1; echo ${{PIPESTATUS[0]}}",
            binary::txos().display()
        );
        let run = Invocation::new("bash").args(["-c", &script]).dir(lab.tree());
        let run = run.env("TXOS_STORE", lab.store()).env("TXOS_REALM", lab.realm());
        assert_eq!(run.run().expect(0).text(), "y\n141\n");
    }
    lab.expect_clean();
}

#[test]
fn a_silent_command_on_a_terminal_is_run_again() {
    let lab = Lab::in_memory();
    for view in VIEWS {
        let (_pty, inner) = Pty::open(80, 24);
        let (done, runs) =
            Conflicting { lab: &lab, view, what: ":" }.run(&[], |i| unseen(i).fd(inner, 1));
        assert_eq!((done.code(), runs), (0, 2), "{done:?}");
    }
    lab.expect_clean();
}

#[test]
fn a_command_that_read_its_input_is_not_run_twice() {
    let lab = Lab::in_memory();
    for view in VIEWS {
        let input = lab.dir().join("input");
        std::fs::write(&input, "one\ntwo\n").unwrap();
        let read = Conflicting { lab: &lab, view, what: "read line" };
        let (done, runs) = read.run(&[], |i| unseen(i).fd(File::open(&input).unwrap().into(), 0));
        assert_eq!((done.code(), runs), (75, 1), "{done:?}");
        let pipe = || {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
            File::from(write).write_all(b"one\ntwo\n").unwrap();
            read
        };
        let (done, runs) = read.run(&[], |i| unseen(i).fd(pipe(), 0));
        assert_eq!((done.code(), runs), (75, 1), "{done:?}");
        let (pty, inner) = Pty::open(80, 24);
        pty.type_in("one\n");
        let (done, runs) = read.run(&[], |i| unseen(i).fd(inner, 0));
        assert_eq!((done.code(), runs), (75, 1), "{done:?}");
        // A socket can't be told of.
        let (ours, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let silent = Conflicting { lab: &lab, view, what: ":" };
        let (done, runs) = silent.run(&[], |i| unseen(i).fd(ours.into(), 0));
        assert_eq!((done.code(), runs), (75, 1), "{done:?}");
    }
    lab.expect_clean();
}

#[test]
fn a_command_that_was_live_somewhere_is_not_run_twice() {
    let lab = Lab::in_memory();
    for view in VIEWS {
        let name = format!("/run/txos-test-{}", std::process::id());
        let what = format!("echo x >> {name}");
        let (done, runs) = Conflicting { lab: &lab, view, what: &what }.run(&[], unseen);
        let text = std::fs::read_to_string(&name);
        std::fs::remove_file(&name).unwrap();
        assert_eq!((done.code(), runs), (75, 1), "{done:?}");
        assert_eq!(text.unwrap(), "x\n");
    }
}

#[test]
fn held_output_is_not_printed_output() {
    let lab = Lab::in_memory();
    for view in VIEWS {
        let held = Conflicting { lab: &lab, view, what: "echo out; echo err >&2" };
        let (done, runs) = held.run(&["--hold-output"], |i| i.fd(null(), 0));
        assert_eq!((done.code(), runs), (0, 2), "{done:?}");
        assert_eq!(done.text(), "out\n");
        assert_eq!(done.stderr.matches("err\n").count(), 1, "{done:?}");
    }
    lab.expect_clean();
}

/// Pairs of the same commands in one repository take turns, whichever is first.
#[test]
fn concurrent_commits_in_one_repository() {
    txos_testkit::require!(txos_testkit::skip::has("git"), "git");
    let lab = Lab::in_memory();
    for view in VIEWS {
        let _ = lab.native(
            "rm -rf .git ./*; git init -q .; git config user.name t; git config user.email t@example.org; \
             git config gc.auto 0; git config maintenance.auto false; \
             echo 0 > base; git add base; git commit -qm base",
        );
        for pair in 0..10 {
            let start = |who: &str| {
                let script = format!(
                    "echo {pair} > {who}{pair}; git add {who}{pair}; git commit -qm {who}{pair}"
                );
                unseen(lab.script(&["--view", view, "--no-durable"], &script)).start()
            };
            let (one, two) = (start("a"), start("b"));
            let _ = (one.wait().expect(0), two.wait().expect(0));
        }
        let log = lab
            .native("git log --oneline | wc -l; git fsck --strict 2>&1 | grep -v dangling || true");
        assert_eq!(log.text().trim(), "21");
        assert_eq!(lab.native("git status --porcelain").text(), "");
    }
    lab.expect_clean();
}

/// Real git: several commits in one repository at once, each of its own file. All are made, one after the other,
/// although each prints what it has done: into a pipe, or held until it has committed.
#[test]
fn commits_of_git_in_one_repository_at_once() {
    let git = Invocation::new("git").arg("--version").run();
    require!(git.code() == 0, "git is not installed");
    let lab = Lab::in_memory();
    let both = [(&[][..], false), (&["--hold-output"], true)];
    for (view, (options, held)) in VIEWS.into_iter().flat_map(|view| both.map(|how| (view, how))) {
        let place = lab.nested(&format!("{view}-{held}"));
        let _ = place
            .native(
                "git init -q . && git config user.name n && git config user.email e && git config gc.auto 0
                 for i in 1 2 3 4 5 6; do echo 0 > f$i; done; git add . && git commit -qm first
                 for i in 1 2 3 4 5 6; do echo $i > f$i; done",
            )
            .expect(0);
        let commit = |n: usize| {
            let run = place
                .txos(["run", "--view", view, "--scope"])
                .arg(place.tree())
                .args(options)
                .arg("--");
            let run = run.args(["git", "commit", "-m"]).args([format!("c{n}"), format!("f{n}")]);
            let run = run.dir(place.tree()).env("HOME", place.dir());
            let (write, reader) = reader(&place);
            (run.fd(null(), 0).fd(write, 1).start(), reader)
        };
        let mut running: VecDeque<_> = (1..=6).map(|n| (n, commit(n))).collect();
        while let Some((n, (one, reader))) = running.pop_front() {
            let done = one.wait();
            let text = String::from_utf8(reader.join().unwrap()).unwrap();
            // On a busy machine what it printed may be out before it loses. It says so, and its user runs it again.
            if !held && done.code() == 75 && done.stderr.contains("it may have printed") {
                running.push_back((n, commit(n)));
                continue;
            }
            assert_eq!(done.code(), 0, "{options:?}: {done:?}");
            assert_eq!(text.matches("1 file changed").count(), 1, "{text}");
        }
        let found =
            place.native("git log --oneline | wc -l; git status --porcelain; git fsck 2>&1").text();
        assert_eq!(found.trim(), "7", "{options:?}");
    }
    lab.expect_clean();
}
