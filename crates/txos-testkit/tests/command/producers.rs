//! `txos run --after`: a consumer starts at once, and serializes after its producer.

use txos_testkit::Lab;
use txos_testkit::process::Running;
use txos_testkit::wait::until;

/// What a script does until a file beside the tree is there.
fn until_there(name: &str) -> String {
    format!("while ! [ -e ../{name} ]; do sleep 0.01; done")
}

/// A consumer reads nothing from this process, and its attempts can't be told apart from outside.
fn start(lab: &Lab, options: &[&str], script: &str) -> Running {
    let null = std::fs::File::open("/dev/null").unwrap();
    lab.script(options, script).fd(null.into(), 0).start()
}

fn allow(lab: &Lab, name: &str) {
    std::fs::write(lab.dir().join(name), "").unwrap();
}

/// Whether a process below this one is `sleep`.
fn sleeps_below(pid: i32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap_or_default().split_whitespace().any(|child| {
        let comm = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        comm.trim() == "sleep" || child.parse().is_ok_and(sleeps_below)
    })
}

fn until_it_sleeps(running: &Running) {
    let pid = running.pid().as_raw_nonzero().get();
    until("the command waits", || sleeps_below(pid));
}

/// The record of a run that has named itself.
fn until_it_is_known(lab: &Lab, text: &str) {
    let dir = lab.realm().join("runs");
    until("the run is known", || {
        std::fs::read_dir(&dir).into_iter().flatten().flatten().any(|entry| {
            std::fs::read_to_string(entry.path()).is_ok_and(|record| record.contains(text))
        })
    });
}

/// In the record of a consumer: it has found its producer.
const FOUND: &str = "\"run\":\"";

fn producer(lab: &Lab, script: &str) -> Running {
    let running = start(lab, &["--name", "p"], script);
    until_it_is_known(lab, "\"attempt\"");
    running
}

/// What it looks at was changed before, and it waits; or is changed later, and it runs again.
#[test]
fn a_consumer_sees_what_its_producer_commits() {
    for producer_is_first in [true, false] {
        let lab = Lab::in_memory();
        let _ = lab.native("echo old > file");
        let (go, went) = (until_there("go"), until_there("went"));
        let write = "echo new > file";
        let script = match producer_is_first {
            true => format!("{write}; {go}"),
            false => format!("{go}; {write}"),
        };
        let p = producer(&lab, &script);
        until_it_sleeps(&p);
        let report = lab.dir().join("report");
        let options = ["--after", "p", "--report", report.to_str().unwrap()];
        // The second time nothing is waited for.
        let consumer = start(&lab, &options, &format!("read x < file; {went}; echo $x > result"));
        match producer_is_first {
            true => until("it waits for the producer", || {
                lab.txos(["list"]).run().expect(0).text().contains("waits")
            }),
            false => until_it_sleeps(&consumer),
        }
        allow(&lab, "go");
        let _ = p.wait().expect(0);
        allow(&lab, "went");
        let _ = consumer.wait().expect(0);
        assert_eq!(lab.read("result"), "new\n");
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
        assert_eq!(report["outcome"], "committed");
        if producer_is_first {
            assert_eq!(report["attempts"], 1);
        }
        lab.expect_clean();
    }
}

/// The file that it needs is not there yet. What it printed of that nobody gets to see.
#[test]
fn a_consumer_that_fails_for_want_of_what_comes_runs_again() {
    let lab = Lab::in_memory();
    let p = producer(&lab, &format!("{}; echo made > made", until_there("go")));
    until_it_sleeps(&p);
    let consumer = start(&lab, &["--after", "p"], "echo begun; cat made > result");
    until("it has failed, and waits", || {
        std::fs::read_dir(lab.realm().join("runs")).unwrap().count() == 2
            && !sleeps_below(consumer.pid().as_raw_nonzero().get())
    });
    allow(&lab, "go");
    let _ = p.wait().expect(0);
    let done = consumer.wait().expect(0);
    assert_eq!(done.text(), "begun\n");
    let _ = done.says_not("No such file");
    assert_eq!(lab.read("result"), "made\n");
    lab.expect_clean();
}

/// One that would fail anyway does, with its own status and its own words.
#[test]
fn a_consumer_that_fails_by_itself_fails() {
    let lab = Lab::in_memory();
    let p = producer(&lab, &until_there("go"));
    let consumer = start(&lab, &["--after", "p"], "echo why >&2; exit 3");
    until_it_is_known(&lab, FOUND);
    allow(&lab, "go");
    let _ = p.wait().expect(0);
    let _ = consumer.wait().expect(3).says("why").says("rolled back");
    lab.expect_clean();
}

/// However the producer fails, and whatever the consumer does meanwhile.
#[test]
fn a_failed_producer_fails_its_consumer() {
    let endless = "echo x > result; while :; do sleep 0.01; done";
    for script in ["echo x > result", endless] {
        for (kill, says) in [(true, "was killed"), (false, "was rolled back, with status 3")] {
            let lab = Lab::in_memory();
            let p = producer(&lab, &format!("{}; exit 3", until_there("go")));
            let consumer = start(&lab, &["--after", "p"], script);
            until_it_is_known(&lab, FOUND);
            match kill {
                true => p.signal(rustix::process::Signal::KILL),
                false => allow(&lab, "go"),
            }
            let _ = consumer.wait().expect(125).says("which it comes after").says(says);
            let done = p.wait();
            assert!(if kill { done.killed() } else { done.code() == 3 }, "{done:?}");
            assert!(!lab.path("result").exists());
        }
    }
}

#[test]
fn with_retry_a_consumer_comes_after_the_next_run_of_that_name() {
    let lab = Lab::in_memory();
    let p = producer(&lab, &format!("{}; exit 3", until_there("go")));
    // (It may lose a conflict with the next run before it finds that the first has failed.)
    let consumer = start(&lab, &["--after", "p", "--retry", "5"], "cat made > result");
    until_it_is_known(&lab, FOUND);
    allow(&lab, "go");
    let _ = p.wait().expect(3);
    let next = start(&lab, &["--name", "p"], "echo made > made");
    let _ = next.wait().expect(0);
    let _ = consumer.wait().expect(0).says(" of 5, after the next run of that name");
    assert_eq!(lab.read("result"), "made\n");
    lab.expect_clean();
}

/// Both name each other: the one that came last is refused, and the other one goes on.
#[test]
fn a_cycle_is_refused() {
    let lab = Lab::in_memory();
    let a = start(&lab, &["--name", "a", "--after", "b"], "echo a > a");
    until_it_is_known(&lab, "\"after\"");
    let b = start(&lab, &["--name", "b", "--after", "a"], "echo b > b");
    let _ =
        b.wait().expect(125).says("this is a cycle: b (process ").says("comes after a (process ");
    let b = start(&lab, &["--name", "b"], "echo b > b");
    let _ = b.wait().expect(0);
    let _ = a.wait().expect(0);
    assert_eq!((lab.read("a"), lab.read("b")), ("a\n".into(), "b\n".into()));
    lab.expect_clean();
}

/// By its id; after it has ended; with others between.
#[test]
fn producers_are_found_by_id_in_the_history_and_in_chains() {
    let lab = Lab::in_memory();
    let p = producer(&lab, &format!("{}; echo 1 > chain", until_there("go")));
    until_it_sleeps(&p);
    let listed = lab.txos(["-q", "list"]).run().expect(0).text();
    let second =
        start(&lab, &["--after", listed.trim(), "--name", "second"], "cat chain chain > second");
    until_it_is_known(&lab, "\"name\":\"second\"");
    let third = start(&lab, &["--after", "second"], "cat second second > third");
    allow(&lab, "go");
    for running in [p, second, third] {
        let _ = running.wait().expect(0);
    }
    assert_eq!(lab.read("third"), "1\n1\n1\n1\n");
    let _ = start(&lab, &["--after", "p"], "cat chain > again").wait().expect(0);
    assert_eq!(lab.read("again"), "1\n");
    lab.expect_clean();
}

#[test]
fn what_can_t_come_after_another_is_refused() {
    let lab = Lab::in_memory();
    let _ = start(&lab, &["--after", "nobody", "--wait", "0"], "touch x")
        .wait()
        .expect(125)
        .says("no run has this name or id");
    let _ = start(&lab, &["--name", "k", "--keep"], "touch k").wait().expect(0);
    let _ = start(&lab, &["--after", "k"], "touch x").wait().expect(125).says("is pending");
    let _ = start(&lab, &["--after", "k", "--keep"], "touch x").wait().expect(125);
    let _ = start(&lab, &["--after", "k", "--isolation", "snapshot"], "touch x")
        .wait()
        .expect(125)
        .says("--isolation snapshot");
    assert!(!lab.path("x").exists());
}
