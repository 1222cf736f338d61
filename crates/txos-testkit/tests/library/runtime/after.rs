//! Producers and consumers: programs' transactions that come after others, and commands among them. See `c/after.c` for the
//! steps of the programs.

use rustix::process::Signal;
use txos_testkit::wait::until;
use txos_testkit::{Done, Lab, Running};

use crate::place::start;
use crate::program::Linked;

fn program(lab: &Lab, steps: &[&str]) -> Running {
    start(lab, "after", Linked::WithLibrary).args(steps).start()
}

/// A command with a name, or after something.
fn command(lab: &Lab, options: &[&str], script: &str) -> Running {
    lab.script(options, script).fd(std::fs::File::open("/dev/null").unwrap().into(), 0).start()
}

fn mark(lab: &Lab, name: &str) {
    std::fs::write(lab.dir().join(name), "").unwrap();
}

fn until_there(lab: &Lab, name: &str) {
    let path = lab.dir().join(name);
    until(name, || path.exists());
}

/// The records of runs that are in the realm.
fn records(lab: &Lab) -> Vec<String> {
    let dir = std::fs::read_dir(lab.realm().join("runs")).into_iter().flatten().flatten();
    dir.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect()
}

fn until_it_is_known(lab: &Lab, text: &str) {
    until(text, || records(lab).iter().any(|record| record.contains(text)));
}

/// In the record of a consumer: it has found its producer.
const FOUND: &str = "\"run\":\"";

fn until_it_has_found(lab: &Lab) {
    until_it_is_known(lab, FOUND);
}

/// How many attempts there were after the first one.
fn restarts(done: &Done) -> u32 {
    done.text().lines().next().unwrap().parse().unwrap()
}

fn is_over(lab: &Lab) {
    assert!(records(lab).is_empty(), "{:?}", records(lab));
}

/// It has changed the file when the consumer looks, which waits until it has committed.
#[test]
fn a_consumer_sees_what_its_producer_commits() {
    let lab = Lab::in_memory();
    let _ = lab.native("printf old > file");
    let p = program(&lab, &["name=p", "begin", "put=file:new", "mark=held", "await=go", "end"]);
    until_there(&lab, "held");
    let c = program(&lab, &["begin=ra:p", "copy=file:result", "end"]);
    until("it waits for the producer", || c.stderr().contains("waiting for transaction"));
    mark(&lab, "go");
    let _ = p.wait().expect(0);
    assert_eq!(restarts(&c.wait().expect(0)), 0);
    assert_eq!(lab.read("result"), "new");
    is_over(&lab);
}

/// Whether it has written when the consumer looks or not.
#[test]
fn a_consumer_sees_what_a_command_commits() {
    for waits in [true, false] {
        let lab = Lab::in_memory();
        let _ = lab.native("printf old > file");
        let wait = "while ! [ -e ../go ]; do sleep 0.01; done";
        let p = match waits {
            true => command(&lab, &["--name", "p"], &format!("printf new > file; {wait}")),
            false => command(&lab, &["--name", "p"], &format!("{wait}; printf new > file")),
        };
        until_it_is_known(&lab, "\"attempt\"");
        let c = program(&lab, &["begin=ra:p", "copy=file:result", "end"]);
        until_it_has_found(&lab);
        mark(&lab, "go");
        let _ = p.wait().expect(0);
        let _ = c.wait().expect(0);
        assert_eq!(lab.read("result"), "new");
        is_over(&lab);
    }
}

#[test]
fn a_consumer_that_has_looked_before_begins_again() {
    for flags in ["ra", "rca"] {
        let lab = Lab::in_memory();
        let _ = lab.native("printf old > file");
        let p =
            program(&lab, &["name=p", "begin", "mark=begun", "await=go", "put=file:new", "end"]);
        until_there(&lab, "begun");
        let begin = format!("begin={flags}:p");
        let steps: &[&str] = match flags {
            "ra" => &[&begin, "copy=file:result", "mark=looked", "end"],
            // Memory that is kept can't be paused.
            _ => &[&begin, "copy=file:result", "end"],
        };
        let c = program(&lab, steps);
        match flags {
            "ra" => until_there(&lab, "looked"),
            _ => until_it_has_found(&lab),
        }
        mark(&lab, "go");
        let _ = p.wait().expect(0);
        let done = c.wait().expect(0);
        assert_eq!(lab.read("result"), "new");
        assert!(flags != "ra" || restarts(&done) >= 1, "{done:?}");
        is_over(&lab);
    }
}

/// What it needs is not there yet: it asks for another attempt, which begins when the producer has ended.
#[test]
fn a_consumer_that_comes_too_early_asks_for_another_attempt() {
    let lab = Lab::in_memory();
    let p = program(&lab, &["name=p", "begin", "mark=begun", "await=go", "put=file:new", "end"]);
    until_there(&lab, "begun");
    let c = program(&lab, &["begin=ra:p", "need=file", "copy=file:result", "end"]);
    until("it waits", || c.stderr().contains("sys_xbegin waits for p (process "));
    mark(&lab, "go");
    let _ = p.wait().expect(0);
    assert_eq!(restarts(&c.wait().expect(0)), 1);
    assert_eq!(lab.read("result"), "new");
    is_over(&lab);
}

/// Without TX_RESTART it has lost a conflict, and nothing of it has happened.
#[test]
fn a_consumer_that_may_not_begin_again_has_lost() {
    let lab = Lab::in_memory();
    let _ = lab.native("printf old > file");
    let p = program(&lab, &["name=p", "begin", "mark=begun", "await=go", "put=file:new", "end"]);
    until_there(&lab, "begun");
    let c = program(
        &lab,
        &["begin=a:p", "copy=file:result", "mark=looked", "end!ECANCELED", "reason=2"],
    );
    until_there(&lab, "looked");
    mark(&lab, "go");
    let _ = p.wait().expect(0);
    let _ = c.wait().expect(0);
    assert!(!lab.path("result").exists());
    is_over(&lab);
}

/// However a producer fails, its consumer does, and has published nothing.
#[test]
fn a_failed_producer_fails_its_consumer() {
    let produce =
        |end: &'static str| vec!["name=p", "begin", "put=file:new", "mark=held", "await=go", end];
    let ways: [(&str, &str); 4] = [
        ("abort", "was rolled back: the program aborted the transaction"),
        ("kill", "was killed"),
        // The program ends within its transaction.
        ("mark=gone", "was rolled back: the thread ended within the transaction"),
        ("command", "was rolled back, with status 3"),
    ];
    for (end, says) in ways {
        let lab = Lab::in_memory();
        let _ = lab.native("printf old > file");
        let p = match end {
            "command" => command(
                &lab,
                &["--name", "p"],
                "printf new > file; while ! [ -e ../go ]; do sleep 0.01; done; exit 3",
            ),
            end => program(&lab, &produce(end)),
        };
        match end {
            "command" => until_it_is_known(&lab, "\"attempt\""),
            _ => until_there(&lab, "held"),
        }
        // (Whether the command has written to the file yet is not known.)
        let change = if end == "command" { "put=result:x" } else { "copy=file:result" };
        let c = program(&lab, &["begin=a:p", change, "end!ECANCELED", "reason=8"]);
        until_it_has_found(&lab);
        mark(&lab, "go");
        let _ = p.wait();
        let done = c.wait().expect(0);
        assert!(done.text().contains("p (process "), "{end}: {done:?}");
        assert!(done.text().contains(&format!("which it comes after, {says}")), "{end}: {done:?}");
        assert!(!lab.path("result").exists());
        assert_eq!(lab.read("file"), "old");
    }
}

/// A child that it has forked, and that goes on, still has the record's descriptor.
#[test]
fn a_killed_producer_is_found_whatever_its_children_hold() {
    let lab = Lab::in_memory();
    let p = program(
        &lab,
        &["name=p", "begin", "put=file:new", "fork", "mark=held", "await=go", "kill"],
    );
    until_there(&lab, "held");
    until_there(&lab, "child");
    let c = program(&lab, &["begin=a:p", "end!ECANCELED", "reason=8"]);
    until_it_has_found(&lab);
    mark(&lab, "go");
    let done = c.wait().expect(0);
    assert!(done.text().contains("was killed"), "{done:?}");
    mark(&lab, "over");
    assert!(p.wait().killed());
}

/// With TX_RESTART it comes after the next run of that name, be it a program's or a command.
#[test]
fn after_a_failed_producer_comes_the_next_of_its_name() {
    for by_command in [false, true] {
        let lab = Lab::in_memory();
        let p =
            program(&lab, &["name=p", "begin", "put=file:bad", "mark=held", "await=go", "abort"]);
        until_there(&lab, "held");
        let c = program(&lab, &["begin=ra:p", "copy=file:result", "end"]);
        until_it_has_found(&lab);
        mark(&lab, "go");
        let _ = p.wait().expect(0);
        // It is there until the consumer has found it: when it has committed, it leaves no trace.
        let next = match by_command {
            false => program(
                &lab,
                &["name=p", "begin", "put=file:good", "mark=next", "await=found", "end"],
            ),
            true => command(&lab, &["--name", "p"], "printf good > file"),
        };
        if !by_command {
            until("it has found both", || {
                records(&lab).iter().any(|record| record.matches(FOUND).count() == 2)
            });
            mark(&lab, "found");
        }
        let _ = next.wait().expect(0);
        let done = c.wait().expect(0);
        assert_eq!(lab.read("result"), "good");
        assert!(restarts(&done) >= 1, "{done:?}");
        is_over(&lab);
    }
}

/// The name of one that is not there, and other things that can't be.
#[test]
fn what_can_t_come_after_another_is_refused() {
    let lab = Lab::in_memory();
    let refused = |steps: &[&str], says: &str| {
        let done = program(&lab, steps).wait().expect(0);
        assert!(done.text().contains(says), "{done:?}");
        is_over(&lab);
    };
    for flags in ["a", "ra", "na"] {
        let begin = format!("begin={flags}:nobody!ESRCH");
        refused(&[&begin], "nobody: no run or transaction that goes on has this name or id");
    }
    refused(&["begin=ao:1!EINVAL"], "both have the second argument");
    refused(&["begin=a!EINVAL"], "names nothing");
    refused(&["nowhere=at-once!EFAULT", "nowhere=end!EFAULT", "begin", "end"], "");
    refused(&["begin", "begin=a:x!EINVAL", "end"], "has begun already");
    refused(&["begin", "name=x!EBUSY", "end"], "");
    refused(&["name=!EINVAL"], "");
    // Its own, which it has paused.
    refused(
        &["name=p", "begin", "pause", "begin=a:p!EDEADLK", "resume", "end"],
        "p is a transaction of this thread",
    );
    // A name is for one transaction, and none of its own.
    refused(&["name=p", "begin", "end", "begin=a:p!ESRCH"], "");
    refused(&["name=p", "begin=a:p!ESRCH"], "");
    let _ = command(&lab, &["--name", "k", "--keep"], "touch k").wait().expect(0);
    refused(&["begin=a:k!EBUSY"], "is pending");
    // What has committed already is nothing to wait for.
    let _ = command(&lab, &["--name", "done"], "touch x").wait().expect(0);
    refused(&["begin=a:done", "copy=x:y", "end"], "");
    assert!(lab.path("y").exists());
}

/// Both name each other: the one that came last is refused, and the other one goes on.
#[test]
fn a_cycle_is_refused() {
    let lab = Lab::in_memory();
    let b = command(&lab, &["--name", "b", "--after", "a"], "cat a > b");
    until_it_is_known(&lab, "\"after\"");
    let done = program(&lab, &["name=a", "begin=a:b!EDEADLK"]).wait().expect(0);
    assert!(done.text().contains("this is a cycle: a (process "), "{done:?}");
    let a = program(&lab, &["name=a", "begin", "put=a:a", "mark=held", "await=go", "end"]);
    until_it_has_found(&lab);
    mark(&lab, "go");
    let _ = a.wait().expect(0);
    let _ = b.wait().expect(0);
    assert_eq!(lab.read("b"), "a");
}

/// One is a program, the other one a command.
#[test]
fn it_comes_after_both_of_two() {
    let lab = Lab::in_memory();
    let wait = "while ! [ -e ../go ]; do sleep 0.01; done; printf 2 > second";
    let p = program(&lab, &["name=p", "begin", "mark=begun", "await=go", "put=first:1", "end"]);
    let q = command(&lab, &["--name", "q"], wait);
    until_there(&lab, "begun");
    until_it_is_known(&lab, "\"attempt\"");
    let c = program(&lab, &["begin=ra:p+q", "copy=first:one", "copy=second:two", "end"]);
    until("it has found both", || {
        records(&lab).iter().any(|record| record.matches(FOUND).count() == 2)
    });
    mark(&lab, "go");
    for running in [p, q, c] {
        let _ = running.wait().expect(0);
    }
    assert_eq!((lab.read("one").as_str(), lab.read("two").as_str()), ("1", "2"));
    is_over(&lab);
}

/// It has changed nothing that the consumer looks at, or nothing at all.
#[test]
fn a_producer_that_changes_nothing_is_waited_for() {
    let lab = Lab::in_memory();
    let _ = lab.native("printf old > file");
    let p = program(&lab, &["name=p", "begin", "mark=begun", "await=go", "end"]);
    until_there(&lab, "begun");
    let c = program(&lab, &["begin=a:p", "copy=file:result", "mark=looked", "end", "mark=done"]);
    until_there(&lab, "looked");
    until("it waits", || waits_long_enough(&c));
    assert!(!lab.path("result").exists() && !lab.dir().join("done").exists());
    mark(&lab, "go");
    let _ = p.wait().expect(0);
    let done = c.wait().expect(0).says("sys_xend waits for p (process ");
    assert_eq!((lab.read("result").as_str(), restarts(&done)), ("old", 0));
    is_over(&lab);
}

/// It says after 2 s what it waits for.
fn waits_long_enough(running: &Running) -> bool {
    running.stderr().contains("sys_xend waits for")
}

/// A command comes after a program's transaction, and another program after that.
#[test]
fn commands_come_after_programs() {
    let lab = Lab::in_memory();
    let p = program(&lab, &["name=p", "begin", "put=file:1", "mark=held", "await=go", "end"]);
    until_there(&lab, "held");
    let second = command(&lab, &["--after", "p", "--name", "second"], "cat file file > second");
    until_it_has_found(&lab);
    let third = program(&lab, &["begin=ra:second", "copy=second:third", "end"]);
    until("it has found that", || {
        records(&lab).iter().filter(|record| record.contains(FOUND)).count() == 2
    });
    mark(&lab, "go");
    for running in [p, second, third] {
        let _ = running.wait().expect(0);
    }
    assert_eq!(lab.read("third"), "11");
    is_over(&lab);
}

/// By the id of a command's transaction. There is no next run of that.
#[test]
fn by_an_id_there_is_no_next() {
    let lab = Lab::in_memory();
    let script = "while ! [ -e ../go ]; do sleep 0.01; done; exit 3";
    let p = command(&lab, &[], script);
    until_it_is_known(&lab, "\"attempt\"");
    let id = lab.txos(["-q", "list"]).run().expect(0).text();
    let begin = format!("begin=ra:{}", id.trim());
    let c = program(&lab, &[&begin, "put=result:x", "end!ECANCELED", "reason=8"]);
    until_it_has_found(&lab);
    mark(&lab, "go");
    let _ = p.wait().expect(3);
    let _ = c.wait().expect(0);
    assert!(!lab.path("result").exists());
}

#[test]
fn with_nonblock_it_does_not_wait() {
    let lab = Lab::in_memory();
    let p = program(&lab, &["name=p", "begin", "put=file:new", "mark=held", "await=go", "end"]);
    until_there(&lab, "held");
    let done = program(&lab, &["begin=na:p", "put=other:x", "end!ECANCELED", "reason=2"]).wait();
    let done = done.expect(0);
    assert!(done.text().contains("TX_NONBLOCK"), "{done:?}");
    mark(&lab, "go");
    let _ = p.wait().expect(0);
    assert!(!lab.path("other").exists());
}

/// Ctrl-C ends a wait for a producer, and nothing of the consumer has happened.
#[test]
fn a_signal_ends_the_wait() {
    let lab = Lab::in_memory();
    let p = program(&lab, &["name=p", "begin", "mark=begun", "await=go", "end"]);
    until_there(&lab, "begun");
    let c = program(&lab, &["begin=ra:p", "put=result:x", "end"]);
    until("it waits", || waits_long_enough(&c));
    c.signal(Signal::INT);
    assert!(!c.wait().stdout.is_empty() || !lab.path("result").exists());
    mark(&lab, "go");
    let _ = p.wait().expect(0);
    assert!(!lab.path("result").exists());
}

/// What is prepared goes on until it is decided; and to prepare is to wait for producers.
#[test]
fn a_prepared_transaction_is_waited_for() {
    for (decide, expected) in [("commit", "new"), ("finish", "old")] {
        let lab = Lab::in_memory();
        let _ = lab.native("printf old > file");
        let steps =
            ["name=p", "begin", "put=file:new", "prepare", "mark=prepared", "await=go", decide];
        let p = program(&lab, &steps);
        until_there(&lab, "prepared");
        let committed = decide == "commit";
        let steps: &[&str] = match committed {
            true => &["begin=ra:p", "copy=file:result", "prepare", "commit"],
            false => &["begin=a:p", "put=result:x", "prepare!ECANCELED", "reason=8"],
        };
        let c = program(&lab, steps);
        until_it_has_found(&lab);
        mark(&lab, "go");
        let _ = p.wait().expect(0);
        let _ = c.wait().expect(0);
        assert_eq!(lab.read("file"), expected);
        assert_eq!(lab.path("result").exists(), committed);
        if committed {
            assert_eq!(lab.read("result"), "new");
        }
        is_over(&lab);
    }
}

/// A producer that the program itself begins again is one with its next attempt; if it gives up, it has failed.
#[test]
fn a_producer_that_is_begun_again_goes_on() {
    let ways: [(&[&str], bool); 4] = [
        (&["begin=t", "put=file:new", "end"], true),
        (&["unname"], false),
        (&["name=other"], false),
        // The program ends.
        (&[], false),
    ];
    for (then, is_committed) in ways {
        let lab = Lab::in_memory();
        let _ = lab.native("printf old > file");
        let first = ["name=p", "begin=t", "copy=file:copy", "mark=looked", "await=changed"];
        let lost = ["end!ECANCELED", "reason=2", "mark=lost", "await=again"];
        let p = program(&lab, &[&first[..], &lost, then, &["mark=done", "await=over"]].concat());
        until_there(&lab, "looked");
        let end: &[&str] = match is_committed {
            true => &["begin=a:p", "put=result:x", "end"],
            false => &["begin=a:p", "put=result:x", "end!ECANCELED", "reason=8"],
        };
        let c = program(&lab, end);
        until_it_has_found(&lab);
        let _ = lab.native("printf changed > file");
        mark(&lab, "changed");
        until_there(&lab, "lost");
        // Between the two attempts as well.
        until("it waits", || waits_long_enough(&c));
        mark(&lab, "again");
        if then.is_empty() {
            mark(&lab, "over");
        }
        let _ = c.wait().expect(0);
        mark(&lab, "over");
        let _ = p.wait().expect(0);
        assert_eq!(lab.path("result").exists(), is_committed, "{then:?}");
        // What a process has left that said nothing is removed by the next run.
        if !then.is_empty() {
            is_over(&lab);
        }
    }
}

/// A consumer that the program itself begins again comes after the same producer, which has ended by then.
#[test]
fn a_consumer_that_is_begun_again_comes_after_the_same() {
    for (produce, is_committed) in [("end", true), ("abort", false)] {
        let lab = Lab::in_memory();
        let _ = lab.native("printf old > file");
        let steps =
            ["name=p", "begin", "mark=begun", "await=go", "put=file:new", "await=over", produce];
        let p = program(&lab, &steps);
        until_there(&lab, "begun");
        let lost = ["begin=ta:p", "copy=file:result", "mark=looked", "end!ECANCELED", "reason=2"];
        let then: &[&str] = match is_committed {
            true => &["mark=lost", "await=again", "begin=ta:p", "copy=file:result", "end"],
            false => &["mark=lost", "await=again", "begin=ta:p!ECANCELED", "begin=ta:p!ESRCH"],
        };
        let c = program(&lab, &[&lost[..], then].concat());
        until_there(&lab, "looked");
        mark(&lab, "go");
        until_there(&lab, "lost");
        mark(&lab, "over");
        let _ = p.wait().expect(0);
        mark(&lab, "again");
        let _ = c.wait().expect(0);
        match is_committed {
            true => assert_eq!(lab.read("result"), "new"),
            false => assert!(!lab.path("result").exists()),
        }
        is_over(&lab);
    }
}

/// The places that a program keeps for its next transactions go when it exits, also in the middle of one: these calls are not part
/// of it.
#[test]
fn an_exit_in_a_transaction_leaves_no_places() {
    let lab = Lab::in_memory();
    let steps = ["begin", "put=a:1", "put=b:2", "put=c:3", "end", "begin=r", "need=a"];
    let _ = program(&lab, &steps).wait().expect(0);
    let names = |dir: std::path::PathBuf| -> Vec<_> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).collect()
    };
    for dir in ["tx", "staging", "trash"] {
        assert_eq!(names(lab.store().join(dir)), [""; 0], "{dir}");
    }
}
