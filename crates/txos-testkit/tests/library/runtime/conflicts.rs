//! Processes in transactions that meet each other, and outsiders: nothing is lost, nothing is seen
//! half done. See `c/conflicts.c` for the roles.

use txos_testkit::{Done, Invocation, Lab, Running, skip};

use crate::place::{start, strays};
use crate::program::Linked;

fn role(lab: &Lab, linked: Linked, role: &str, arguments: &[&str]) -> Invocation {
    start(lab, "conflicts", linked).arg(role).arg(lab.tree()).args(arguments)
}

fn in_transactions(lab: &Lab, name: &str, arguments: &[&str]) -> Invocation {
    role(lab, Linked::WithLibrary, name, arguments)
}

fn all_well(running: Vec<Running>) {
    let done: Vec<Done> = running.into_iter().map(Running::wait).collect();
    for done in done {
        let _ = done.expect(0);
    }
}

/// Rounds of the short mode, and of the long.
fn rounds(short: u32) -> String {
    (if skip::long("conflicts") { short * 20 } else { short }).to_string()
}

/// One process by itself, with a counter to play with.
fn alone(name: &str) -> Lab {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 1 > counter");
    let _ = in_transactions(&lab, name, &[]).run().expect(0);
    lab
}

#[test]
fn no_increment_is_lost() {
    let lab = Lab::in_memory();
    let _ = lab.native("echo 0 > counter");
    let n = rounds(150);
    all_well((0..4).map(|_| in_transactions(&lab, "count", &[&n]).start()).collect());
    let total = 4 * n.parse::<u32>().unwrap();
    assert_eq!(lab.read("counter"), format!("{total}\n"));
    assert!(strays(&lab, |name| name == "counter").is_empty());
}

#[test]
fn amounts_move_and_sums_hold() {
    let lab = Lab::in_memory();
    let _ = lab.native("for i in 0 1 2 3 4; do echo 1000 > $i; done");
    let n = rounds(100);
    let mut running: Vec<_> =
        (0..3).map(|_| in_transactions(&lab, "move", &[&n, "5"]).start()).collect();
    running.push(in_transactions(&lab, "audit", &[&n, "5", "5000"]).start());
    all_well(running);
    let sum: i64 = (0..5).map(|i| lab.read(&i.to_string()).trim().parse::<i64>().unwrap()).sum();
    assert_eq!(sum, 5000);
    let expected = |name: &str| name.len() == 1 || name.starts_with("receipt-");
    assert!(strays(&lab, expected).is_empty());
}

/// Each file is in one of two directories and, whoever moves it, never in both and never in none.
#[test]
fn what_is_moved_by_two_calls_is_moved_once() {
    const FILES: &str = "6";
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir in out; for i in 0 1 2 3 4 5; do echo $i > in/$i; done");
    let n = rounds(400);
    let mut running: Vec<_> =
        (0..3).map(|_| in_transactions(&lab, "shift", &[&n, FILES]).start()).collect();
    running.push(in_transactions(&lab, "roll-call", &[&rounds(60), FILES]).start());
    running.push(role(&lab, Linked::Natively, "shift-plain", &[&n, FILES]).start());
    all_well(running);
    for i in 0..6 {
        let there: Vec<_> = ["in", "out"]
            .iter()
            .filter_map(|dir| std::fs::read_to_string(lab.path(format!("{dir}/{i}"))).ok())
            .collect();
        assert_eq!(there, [format!("{i}\n")]);
    }
    let links = lab.native("find in out -type f -links +1").stdout;
    assert!(links.is_empty());
}

#[test]
fn letters_of_an_outsider_arrive_once() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir in out; echo 0 > counter");
    let n = rounds(200);
    let sender = role(&lab, Linked::Natively, "send", &[&n]).start();
    let forwarder = in_transactions(&lab, "forward", &[&n]).start();
    all_well(vec![sender, forwarder]);
    assert_eq!(lab.read("counter"), format!("{n}\n"));
    let count = |dir: &str| std::fs::read_dir(lab.path(dir)).unwrap().count();
    assert_eq!((count("in"), count("out")), (0, n.parse().unwrap()));
}

#[test]
fn appended_bytes_of_all_are_there() {
    let lab = Lab::in_memory();
    let _ = lab.native(": > log");
    let n = rounds(150);
    all_well(vec![
        in_transactions(&lab, "append", &[&n, "a"]).start(),
        in_transactions(&lab, "append", &[&n, "b"]).start(),
        role(&lab, Linked::Natively, "append-plain", &[&n, "o"]).start(),
        in_transactions(&lab, "append-plain", &[&n, "p"]).start(),
    ]);
    let log = lab.read("log");
    for byte in ["a", "b", "o", "p"] {
        assert_eq!(log.matches(byte).count().to_string(), n, "of {byte} in {log:?}");
    }
    assert_eq!(log.len().to_string(), (4 * n.parse::<usize>().unwrap()).to_string());
}

#[test]
fn a_turn_of_one_look_is_over_with_it() {
    let _ = alone("order-looks");
}

#[test]
fn ordered_ones_come_in_their_order() {
    let lab = Lab::in_memory();
    let _ = in_transactions(&lab, "order", &["4"]).run().expect(0);
    let numbers: Vec<u32> = lab.read("log").lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (1001..1041).collect::<Vec<_>>());
}

#[test]
fn who_may_not_wait_is_aborted() {
    let lab = alone("nonblock");
    assert_eq!(lab.read("counter"), "77\n");
}

#[test]
fn nobody_changes_what_is_opened_to_be_read() {
    let lab = alone("opened");
    assert_eq!(lab.read("counter"), "1\n");
}

#[test]
fn what_an_outsider_writes_between_the_opening_and_the_first_read_aborts() {
    let lab = alone("opened-before");
    assert_eq!(lab.read("counter"), "500\n");
}

#[test]
fn what_it_has_lost_by_is_named_and_not_what_it_wanted_next() {
    let lab = alone("named");
    assert_eq!(lab.read("counter"), "77\n");
}

#[test]
fn an_outsiders_change_aborts() {
    let lab = alone("doomed");
    assert_eq!(lab.read("counter"), "500\n");
}

#[test]
fn who_comes_and_goes_between_two_listings_is_noticed() {
    let lab = Lab::in_memory();
    let _ = lab.native("mkdir hall; : > hall/host");
    let _ = in_transactions(&lab, "passing", &[]).run().expect(0);
}

#[test]
fn what_functions_answer() {
    let _ = alone("errors");
}

#[test]
fn a_strict_one_with_a_fork_is_aborted() {
    let lab = alone("strict");
    assert_eq!(lab.read("counter"), "1\n");
}

#[test]
fn a_pause_is_outside() {
    let lab = alone("pause");
    assert_eq!((lab.read("counter"), lab.read("outside")), ("11\n".into(), "1\n".into()));
}

#[test]
fn nested_ones_are_one() {
    let lab = alone("nested");
    assert_eq!((lab.read("counter"), lab.read("result")), ("20\n".into(), "21\n".into()));
}
