//! Signals of commands in the library's view, and of processes of a program's transaction: those to processes outside are held until the
//! commit, those to processes of the transaction go at once.

use std::fmt::Write;

use rustix::process::Signal;
use txos_testkit::pty::Pty;
use txos_testkit::rendezvous::PAUSE;
use txos_testkit::user::User;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous, Running, require, skip, system};

use super::program::{Linked, program};

/// Options with which `txos` decides when the command has ended. Without one the command's own process does.
const DECIDED: &[&str] = &["--commit-on", "always"];

/// A process outside that says which signals it gets.
pub struct Listener {
    running: Running,
}

impl Listener {
    fn started(invocation: Invocation) -> Listener {
        let running = invocation.start();
        until("the listener is ready", || running.stdout().contains("ready\n"));
        Listener { running }
    }

    pub fn new() -> Listener {
        Listener::started(Invocation::new(program("signalled", Linked::Natively)).arg("listen"))
    }

    pub fn pid(&self) -> i32 {
        self.running.pid().as_raw_nonzero().get()
    }

    /// The signals that it has got by now: one that is sent now comes after all that were sent before. (Real-time signals are
    /// looked for last.)
    pub fn got(&self) -> String {
        let text = || self.running.stdout().trim_start_matches("ready\n").to_owned();
        let before = text().matches(MARK).count();
        let done = Invocation::new(program("signalled", Linked::Natively)).arg("queue");
        let _ = done.args([&self.pid().to_string(), "999999", "999999"]).run().expect(0);
        until("the last has come", || text().matches(MARK).count() > before);
        let mut plain = String::new();
        for line in text().lines().filter(|line| !line.ends_with(" 999999")) {
            let mut words = line.split(' ');
            let number: i32 = words.next().and_then(|n| n.parse().ok()).unwrap_or(0);
            let value = words.next_back().unwrap_or_default();
            let _ = match number {
                libc::SIGUSR1 => write!(plain, "usr1 "),
                libc::SIGUSR2 => write!(plain, "usr2 "),
                34.. => write!(plain, "{value} "),
                _ => write!(plain, "{line} "),
            };
        }
        plain.trim_end().to_owned()
    }
}

/// How a line of the last one ends.
const MARK: &str = " 999999\n";

/// A run of a script in the library's view.
fn run(lab: &Lab, options: &[&str], script: &str) -> Invocation {
    lab.txos([&["run", "--view", "library"], options, &["--", "bash", "-c", script]].concat())
}

#[test]
fn they_wait_for_the_commit() {
    require!(skip::has("/usr/bin/python3"), "no /usr/bin/python3");
    let lab = Lab::in_memory();
    let queue = program("signalled", Linked::Natively).display().to_string();
    for options in [&[][..], DECIDED] {
        let listener = Listener::new();
        let pid = listener.pid();
        // By the shell's own kill, another program, and a child that is one; they are in order.
        let script = format!(
            "set -e; {queue} queue {pid} 1 3; kill -USR2 {pid}; ({queue} queue {pid} 4 5)
             python3 -I -S -c 'import os, signal; os.kill({pid}, 10)
signal.pidfd_send_signal(os.pidfd_open({pid}), 10)' & wait $!
             env kill -n RTMIN {pid}; {queue} queue {pid} 6 300; echo x > made; {PAUSE}"
        );
        let mut meeting = Rendezvous::new();
        let running = run(&lab, options, &script.replace("env kill -n RTMIN", "env kill -USR1"))
            .meeting(&mut meeting)
            .start();
        assert!(meeting.arrived());
        assert_eq!(listener.got(), "");
        meeting.go();
        let _ = running.wait().expect(0);
        let got = listener.got();
        assert!(got.contains("usr1") && got.contains("usr2"), "{got}");
        let values: Vec<&str> = got.split(' ').filter(|word| !word.starts_with("usr")).collect();
        let all: Vec<String> = (1..=300).map(|value| value.to_string()).collect();
        assert_eq!(values, all);
        assert_eq!(lab.read("made"), "x\n");
        lab.expect_clean();
    }
}

/// Also of a command that is one process, and of one that is ended, with whatever it has started.
#[test]
fn they_are_dropped_with_the_transaction() {
    let lab = Lab::in_memory();
    let listener = Listener::new();
    let pid = listener.pid();
    let send = format!("kill -USR1 {pid}; (kill -USR1 {pid}); /bin/true; kill -USR1 {pid}");
    for (options, end, status) in [
        (&[][..], "exit 3", 3),
        (&["--retry", "0"], "exit 3", 3),
        (&["--dry-run"], "exit 0", 0),
        (&["--keep", "-q"], "echo kept > kept", 0),
        (&[], "kill -9 $$", 137),
        (DECIDED, "kill -9 $$", 137),
    ] {
        let _ = run(&lab, options, &format!("{send}; {end}")).run().expect(status);
        let _ = run(&lab, options, &format!("kill -USR1 {pid}; {end}")).run().expect(status);
        assert_eq!(listener.got(), "", "{options:?} {end}");
    }
    // A transaction that is kept holds no signals.
    let _ = lab.txos(["commit", "@"]).run().expect(0);
    let _ = lab.txos(["abort", "--all"]).run();
    assert_eq!(listener.got(), "");
    let _ = run(&lab, DECIDED, &format!("{send}; exit 4")).run().expect(4);
    assert!(listener.got().starts_with("usr1"));
}

/// What was decided by somebody: he is asked with the signals held.
#[test]
fn they_wait_for_an_answer() {
    let lab = Lab::in_memory();
    for (answer, status, got) in [("n\n", 1, ""), ("y\n", 0, "usr1")] {
        let listener = Listener::new();
        let (mut pty, inner) = Pty::open(200, 60);
        let script = format!("kill -USR1 {}; echo new > a", listener.pid());
        let running = run(&lab, &["--review"], &script).terminal(inner).start();
        pty.expect("[y/n/d/l/c/s/k/?]");
        assert_eq!(listener.got(), "");
        pty.type_in(answer);
        let _ = pty.rest();
        let _ = running.wait().expect(status);
        assert_eq!(listener.got(), got);
        lab.expect_clean();
    }
}

/// What a command that is run again has sent the first time is never sent.
#[test]
fn each_attempt_has_its_own() {
    let lab = Lab::in_memory();
    let listener = Listener::new();
    std::fs::write(lab.path("f"), "1").unwrap();
    let queue = program("signalled", Linked::Natively).display().to_string();
    let script =
        format!("n=$(cat f); {queue} queue {} $n $n; {PAUSE}; echo $n > g", listener.pid());
    let mut meeting = Rendezvous::new();
    let running = run(&lab, &["--retry", "1"], &script).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    std::fs::write(lab.path("f"), "2").unwrap();
    meeting.go();
    assert!(meeting.arrived());
    assert_eq!(listener.got(), "");
    meeting.go();
    let _ = running.wait().expect(0);
    assert_eq!((lab.read("g").as_str(), listener.got().as_str()), ("2\n", "2"));
    lab.expect_clean();
}

/// A strict command sends them: they are not live.
#[test]
fn they_are_not_live() {
    let lab = Lab::in_memory();
    let listener = Listener::new();
    let pid = listener.pid();
    let script = format!("kill -USR1 {pid}; kill -0 {pid}; (kill -USR1 {pid}) & wait; echo x > f");
    let done = run(&lab, &["--strict", "-q"], &script).run().expect(0);
    assert_eq!(done.stderr, "");
    assert_eq!(listener.got().split(' ').next(), Some("usr1"));
    let done = run(&lab, &[], &format!("kill -USR1 {pid}; /bin/kill -USR1 {pid}; exit 1")).run();
    let _ = done.expect(1).says("rolled back, nothing changed");
    lab.expect_clean();
}

/// Between the processes of a command, and within groups that it has made.
#[test]
fn those_to_the_transaction_go_at_once() {
    let lab = Lab::in_memory();
    let script = "set -e; trap 'echo first >> log' USR1
        (kill -USR1 $$) & wait $! || :; wait; sh -c 'kill -USR1 $PPID'; grep -q first log; set -m
        for i in 1 2 3 4 5 6 7 8; do sleep 1000 | (sleep 1000 & : > $i; wait) & until [ -e $i ]; do :; done; kill -- -$!; wait %% || echo $? >> log; done
        for i in 1 2 3 4 5 6 7 8; do sleep 1000 & (kill $!); wait $! || echo $? >> log; done; echo all >> log";
    let _ = run(&lab, &["--strict"], script).run().expect(0);
    assert_eq!(lab.read("log"), format!("first\nfirst\n{}all\n", "143\n".repeat(16)));
    lab.expect_clean();
}

/// A group in which others are as well: the members get it at once, the others with the commit.
#[test]
fn a_group_of_both_is_divided() {
    let lab = Lab::in_memory();
    let listen = program("signalled", Linked::Natively).display().to_string();
    let txos = txos_testkit::binary::txos().display().to_string();
    for (end, others) in [("exit 0", true), ("exit 3", false)] {
        // A shell that is about to open the other end of a FIFO would not see that a signal has come.
        let inner = format!(
            "trap 'echo first >> log' USR1; mkfifo to from
             (trap 'echo child >> log; exit 0' USR1; echo > to; while :; do read -t .05 _ <> from; done) & read _ < to
             kill -USR1 0; wait; wait; cat log >&2; rm to from; cat ../heard >&2; {end}"
        );
        let script = format!(
            "cd {tree}; rm -f log; trap : USR1; {listen} listen > ../heard & 
             until grep -q ready ../heard; do sleep .01; done
             {txos} run --view library -- bash -c \"$INNER\"; echo $?
             {listen} queue $! 999999 999999; until grep -q ' 999999$' ../heard; do sleep .01; done; kill $!; cat ../heard",
            tree = lab.tree().display()
        );
        let done =
            Invocation::new("bash").args(["-c", &script]).env("INNER", &inner).in_own_group();
        let done =
            done.env("TXOS_STORE", lab.store()).env("TXOS_REALM", lab.realm()).run().expect(0);
        let said = done.stderr.lines().filter(|line| ["first", "child"].contains(line));
        let mut said: Vec<&str> = said.collect();
        said.sort_unstable();
        assert_eq!(said, ["child", "first"], "{done:?}");
        // By then nobody else had.
        assert!(!done.stderr.contains(&format!("\n{} ", libc::SIGUSR1)), "{done:?}");
        let heard = done.text();
        assert_eq!(heard.contains(&format!("\n{} ", libc::SIGUSR1)), others, "{done:?}");
    }
    lab.expect_clean();
}

/// A group of others is held as a whole.
#[test]
fn a_group_of_others_waits() {
    let lab = Lab::in_memory();
    let listener = Listener::started(
        Invocation::new("setsid").arg(program("signalled", Linked::Natively)).arg("listen"),
    );
    let pid = listener.pid();
    for (options, end, status, got) in [
        (&[][..], "exit 3", 3, ""),
        (&["--strict"], "exit 0", 0, "usr1"),
        (DECIDED, "exit 5", 5, "usr1 usr1"),
    ] {
        let _ = run(&lab, options, &format!("kill -USR1 -- -{pid}; {end}")).run().expect(status);
        assert_eq!(listener.got(), got);
    }
    lab.expect_clean();
}

/// A signal to all processes is held as a whole, and is not for the command itself.
#[test]
fn all_others_wait() {
    let lab = Lab::in_memory();
    let listen = program("signalled", Linked::Natively).display().to_string();
    let txos = txos_testkit::binary::txos().display().to_string();
    for (options, end, status, got) in [("", "exit 3", 3, false), ("--strict", "exit 0", 0, true)] {
        // It is sent when the command has ended, which is not to get it.
        let comes = if got {
            format!("until grep -q '^{} ' ../heard; do sleep .01; done", libc::SIGUSR1)
        } else {
            ":".into()
        };
        // None but these can be reached from the namespace of the first.
        let script = format!(
            "test $$ = 1 || exit 9; trap '' USR1; cd {}; {listen} listen > ../heard & 
             until grep -q ready ../heard; do sleep .01; done
             {txos} run --view library {options} -- bash -c 'trap \"echo hit >&2\" USR1; kill -USR1 -1; {end}'; echo $?
             {comes}
             {listen} queue $! 999999 999999; until grep -q ' 999999$' ../heard; do sleep .01; done; cat ../heard",
            lab.tree().display()
        );
        let how = ["--pid", "--fork", "--mount-proc", "--propagation", "private", "bash", "-c"];
        let done = Invocation::new("unshare").args(how).arg(&script);
        let done = done.env("TXOS_STORE", lab.store()).env("TXOS_REALM", lab.realm()).run();
        require!(!done.stderr.contains("unshare: "), "there are no namespaces of processes");
        let heard = done.text();
        assert!(heard.starts_with(&format!("{status}\n")), "{done:?}");
        let hit = heard.contains(&format!("\n{} ", libc::SIGUSR1));
        assert_eq!((hit, done.stderr.contains("hit")), (got, false), "{done:?}");
    }
}

/// What the kernel refuses is refused in the call, with its errno; what only asks is answered.
#[test]
fn errors_are_the_kernels() {
    let lab = Lab::in_memory();
    let listener = Listener::new();
    let (pid, gone) = (listener.pid().to_string(), "4194303");
    let program = program("signalled", Linked::Natively);
    let natively = Invocation::new(&program).args(["errors", &pid, gone]).run().expect(0);
    assert!(natively.text().contains("no process 3\n"), "{natively:?}");
    for options in [&["--strict"][..], DECIDED] {
        let script = format!("{} errors {pid} {gone}; /bin/true", program.display());
        let done = run(&lab, options, &script).run().expect(0);
        assert_eq!(done.text(), natively.text());
    }
    assert_eq!(listener.got(), "");
}

/// With an ordinary user's rights, for whom root's processes are out of reach.
#[test]
fn an_ordinary_users_wait_as_well() {
    require!(skip::is_root(), "only root starts processes of other users");
    let user = User::new();
    let lab = Lab::in_memory();
    for dir in [lab.dir(), lab.tree()] {
        std::os::unix::fs::chown(dir, Some(user.uid), Some(user.gid)).unwrap();
    }
    let roots = Listener::new();
    let listen = Invocation::new(program("signalled", Linked::Natively)).arg("listen");
    let theirs = Listener::started(user.runs(listen));
    let script = format!(
        "kill -USR1 {}; echo $?; (kill -USR1 {} 2> /dev/null; echo $?); kill -USR2 {}",
        theirs.pid(),
        roots.pid(),
        theirs.pid()
    );
    for (options, end, status, got) in
        [(&[][..], "exit 3", 3, ""), (&["--strict"], "exit 0", 0, "usr1 usr2")]
    {
        let done = user.runs(run(&lab, options, &format!("{script}; {end}"))).run().expect(status);
        assert_eq!(done.text(), "0\n1\n");
        assert_eq!((theirs.got().as_str(), roots.got().as_str()), (got, ""));
    }
}

/// A process of the command that is another user: it signals as that, also at the commit, and whom that may not signal by then is
/// not signalled.
#[test]
fn no_sender_has_more_rights_at_the_commit() {
    require!(skip::is_root() && skip::has("setpriv"), "only root starts processes of other users");
    // Programs look for the names of users.
    let _stable = system::stable();
    let lab = Lab::in_memory();
    let listen = |how: &[&str]| {
        let program = program("signalled", Linked::Natively);
        Listener::started(Invocation::new("setpriv").args(how).arg(program).arg("listen"))
    };
    let as_nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    for options in [&[][..], DECIDED] {
        let roots = Listener::new();
        let nobodys = listen(&["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        // Its real user is nobody: until it becomes root.
        let turns = Invocation::new("setpriv").args(["--ruid", "65534"]);
        let turns = turns.arg(program("signalled", Linked::Natively)).args(["listen", "turns"]);
        let turns = Listener::started(turns);
        let script = format!(
            "{as_nobody} bash -c 'kill -USR1 {0} 2> /dev/null; echo $?; kill -USR1 {1}; echo $?; kill -USR1 {2}; echo $?'
             kill -USR2 {1}; kill -HUP {2}; {PAUSE}; echo x > f",
            roots.pid(),
            nobodys.pid(),
            turns.pid()
        );
        let mut meeting = Rendezvous::new();
        let running =
            run(&lab, options, &script.replace(&format!("kill -HUP {};", turns.pid()), ""))
                .meeting(&mut meeting)
                .start();
        assert!(meeting.arrived());
        turns.running.signal(Signal::HUP);
        until("it is root", || turns.running.stdout().contains("turned 0"));
        meeting.go();
        let done = running.wait().expect(0);
        assert_eq!(done.text(), "1\n0\n0\n");
        let lost = format!("could not be sent to process {}: Operation not permitted", turns.pid());
        assert_eq!(done.stderr.matches(&lost).count(), 1, "{done:?}");
        assert_eq!(roots.got(), "");
        assert_eq!(turns.got(), "turned 0");
        assert_eq!(nobodys.got(), "usr1 usr2");
        let text = nobodys.running.stdout();
        assert!(text.contains("10 0 65534 ") && text.contains("12 0 0 "), "{text}");
        lab.expect_clean();
    }
}

/// One that has ended before the commit can't be reached, and that is said.
#[test]
fn one_that_has_ended_is_told_of() {
    let lab = Lab::in_memory();
    for options in [&[][..], DECIDED] {
        let listener = Listener::new();
        let pid = listener.pid();
        let mut meeting = Rendezvous::new();
        let running = run(&lab, options, &format!("kill -USR1 {pid}; {PAUSE}; echo x > f"))
            .meeting(&mut meeting)
            .start();
        assert!(meeting.arrived());
        listener.running.signal(Signal::TERM);
        let _ = listener.running.wait().expect(0);
        meeting.go();
        let done = running.wait().expect(0);
        let lost = format!("could not be sent to process {pid}: it is there no more");
        let _ = done.says(&lost);
    }
    lab.expect_clean();
}

/// Whatever is killed before the commit: nothing was sent. What a process has sent that is killed stays part of the transaction.
#[test]
fn who_is_killed_has_sent_nothing() {
    let lab = Lab::in_memory();
    // The server is the one child that is no program of the command's.
    let server = "for s in /proc/[0-9]*/stat; do read -r pid name state parent rest < $s || true; \
                  if [ \"$name $parent\" = \"(txos) $$\" ]; then kill -9 $pid; fi; done; ls; exit 0";
    let listener = Listener::new();
    let pid = listener.pid();
    let _ = run(&lab, &[], &format!("kill -USR1 {pid}; /bin/true; {server}")).run().expect(125);
    let done = run(&lab, DECIDED, &format!("kill -USR1 {pid}; {server}")).run();
    // It is told, or is killed first.
    assert!([125, 137].contains(&done.code()), "{done:?}");
    let _ = done.says("rolled back");
    assert_eq!(listener.got(), "");
    let _ = run(&lab, &[], &format!("bash -c 'kill -USR1 {pid}; kill -9 $$'; echo x > f"))
        .run()
        .expect(0);
    assert_eq!(listener.got(), "usr1");
    // When the command has ended, and it is not decided yet.
    let (mut pty, inner) = Pty::open(200, 60);
    let script = format!("kill -USR1 {pid}; echo new > a");
    let running = run(&lab, &["--review"], &script).terminal(inner).start();
    pty.expect("[y/n/d/l/c/s/k/?]");
    let txos = running.pid().as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{txos}/task/{txos}/children")).unwrap();
    let _ = Invocation::new("kill").arg("-9").args(children.split_whitespace()).run().expect(0);
    pty.type_in("y\n");
    let said = pty.rest();
    let _ = running.wait().expect(0);
    assert!(said.contains("the process that held them is gone"), "{said}");
    assert_eq!((lab.read("a").as_str(), listener.got().as_str()), ("new\n", "usr1"));
    // Who is to decide.
    let (mut pty, inner) = Pty::open(200, 60);
    let running = run(&lab, &["--review"], &script).terminal(inner).start();
    pty.expect("[y/n/d/l/c/s/k/?]");
    let txos = running.pid().as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{txos}/task/{txos}/children")).unwrap();
    running.signal(Signal::KILL);
    assert!(running.wait().killed());
    for child in children.split_whitespace() {
        let stat = format!("/proc/{child}/stat");
        until("nobody holds anything", || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            !stat.contains("(txos)") || stat.contains(") Z")
        });
    }
    assert_eq!(listener.got(), "usr1");
}

/// Programs that signal others for a living.
#[test]
fn programs_that_signal_wait() {
    require!(
        skip::has("pkill") && skip::has("start-stop-daemon"),
        "no pkill, or no start-stop-daemon"
    );
    let lab = Lab::in_memory();
    let daemon = lab.dir().join("txos-daemon");
    let _ = lab.native(&format!("cp /bin/sleep {}", daemon.display()));
    let start = || {
        let running = Invocation::new(&daemon).arg("1000").start();
        let pid = running.pid().as_raw_nonzero();
        let exe = format!("/proc/{pid}/exe");
        until("it runs", || std::fs::read_link(&exe).is_ok_and(|exe| exe == daemon));
        (running, pid.get())
    };
    for options in [&[][..], DECIDED] {
        for by in [
            "pkill -x txos-daemon",
            "killall txos-daemon",
            "start-stop-daemon --stop --pidfile pid",
        ] {
            let (mut running, pid) = start();
            let script = format!("echo {pid} > pid; {by} > /dev/null || exit 1");
            let _ = run(&lab, &["--strict"], &format!("{script}; exit 3")).run().expect(3);
            assert!(!running.ended(), "{by}");
            let mut meeting = Rendezvous::new();
            let ends =
                run(&lab, options, &format!("{script}; {PAUSE}")).meeting(&mut meeting).start();
            assert!(meeting.arrived(), "{by}");
            assert!(!running.ended(), "{by}");
            meeting.go();
            let _ = ends.wait().expect(0);
            until("the daemon has ended", || running.ended());
        }
    }
    // One that waits for what it has asked for waits in vain.
    for view in ["library", "overlay"] {
        let (mut running, pid) = start();
        let stop = [
            "start-stop-daemon",
            "--stop",
            "--quiet",
            "--pid",
            &pid.to_string(),
            "--retry",
            "TERM/1",
        ];
        let words = [&["run", "--view", view, "--"][..], &stop].concat();
        let done = lab.txos(words).run();
        if view == "overlay" && done.code() == 125 {
            continue; // Mounts are refused here.
        }
        let _ = done.expect(2);
        assert!(!running.ended(), "{view}");
        running.signal(Signal::KILL);
    }
}

/// Processes of a program's own transaction.
#[test]
fn those_of_a_programs_processes_wait() {
    for (end, got) in [("abort", &[][..]), ("commit", &["7", "usr1", "usr2"])] {
        let lab = Lab::in_memory();
        let listener = Listener::new();
        let (reading, writing) = rustix::pipe::pipe().unwrap();
        let run = Invocation::new(program("signalling", Linked::WithLibrary));
        let run = run.args([&listener.pid().to_string(), end]).dir(lab.tree()).fd(reading, 5);
        let run = run.env("TXOS_STORE", lab.store()).env("TXOS_REALM", lab.realm());
        let running = run.start();
        until("all is done", || running.stdout().ends_with("done\n"));
        assert_eq!(listener.got(), "");
        assert_eq!(rustix::io::write(&writing, b"x").unwrap(), 1);
        let done = running.wait().expect(0);
        // One child had left.
        assert_eq!(done.stderr.lines().count(), 1, "{done:?}");
        let _ = done.says("signal").says("(kill) is not part of the transaction");
        let all = listener.got();
        // The kernel gives those that wait together by their numbers.
        let mut all: Vec<&str> = all.split(' ').filter(|word| !word.is_empty()).collect();
        all.sort_unstable();
        assert_eq!(all, got);
    }
}
