//! Ordered transactions of the processes of a group.

use txos_engine::contention::Policy;
use txos_testkit::random::{self, Random};
use txos_testkit::realm_stress::Site;
use txos_testkit::realm_stress::points::VARIABLE;
use txos_testkit::wait::until;
use txos_testkit::{Invocation, Lab, Rendezvous, Running, skip};

use crate::WORKER;

/// A process group, kept by a process that does nothing.
struct Group {
    keeper: Running,
    meeting: Rendezvous,
}

impl Group {
    fn new(site: &Site) -> Group {
        let mut meeting = Rendezvous::new();
        let keeper = site.steps(["group:0", "meet"]).meeting(&mut meeting).start();
        assert!(meeting.arrived());
        Group { keeper, meeting }
    }

    /// A process in it.
    fn steps(&self, site: &Site, steps: &[&str]) -> Invocation {
        let join = format!("group:{}", self.keeper.pid().as_raw_nonzero());
        site.steps(std::iter::once(join.as_str()).chain(steps.iter().copied()))
    }

    fn end(self) {
        self.meeting.go();
        let _ = self.keeper.wait().expect(0);
    }
}

#[test]
fn commits_come_in_the_order_of_their_numbers() {
    const END: u64 = 64;
    let lab = Lab::in_memory();
    for policy in Policy::ALL {
        let site = Site::new(&lab, policy.name(), WORKER, 2);
        site.realm.set_policy(policy);
        let group = Group::new(&site);
        let all: Vec<Running> = (0..4)
            .rev()
            .map(|n| group.steps(&site, &[&format!("ordered:{n}:4:{END}:0")]).start())
            .collect();
        for running in all {
            let _ = running.wait().expect(0);
        }
        assert_eq!(site.cells.read(0), (0..END).collect::<Vec<_>>(), "{policy}");
        group.end();
        site.expect_idle();
    }
}

/// Where it dies, and whether its turn is over then.
const POINTS: [(&str, bool); 8] = [
    ("begun", false),
    ("acquired", false),
    ("prepared", false),
    ("publish", false),
    ("half", false),
    ("record", true),
    ("word@1", true),
    ("words", true),
];

#[test]
fn the_number_of_a_killed_one_is_begun_again() {
    let lab = Lab::in_memory();
    for (point, over) in POINTS {
        let site = Site::new(&lab, point, WORKER, 4);
        let group = Group::new(&site);
        // The next one waits already.
        let next = ["begin:ordered=1", "write:1:8", "publish", "finish"];
        let next = group.steps(&site, &next).start();
        until("it waits for its turn", || site.realm.members().iter().any(|m| m.waits.is_some()));
        let first = ["begin:ordered=0", "write:0:7", "publish", "finish"];
        let victim = group.steps(&site, &first).env(VARIABLE, format!("kill:{point}")).run();
        assert!(victim.killed(), "{point}: {victim:?}");
        if over {
            let _ = next.wait().expect(0);
            let again = group.steps(&site, &first).run().expect(3);
            assert_eq!(again.text(), "turn-over 2\n", "{point}");
        } else {
            let _ = group.steps(&site, &first).run().expect(0);
            let _ = next.wait().expect(0);
        }
        assert_eq!((site.cells.read(0), site.cells.read(1)), (vec![7], vec![8]), "{point}");
        group.end();
        site.expect_idle();
    }
}

/// All of them are killed again and again, and start over where the counter is.
#[test]
fn killed_again_and_again_they_still_come_in_order() {
    let lab = Lab::in_memory();
    let site = Site::new(&lab, "again", WORKER, 2);
    let group = Group::new(&site);
    let points = ["begun", "acquired", "publish", "half", "record", "word@2", "words"];
    for number in 0..21 {
        let steps = [format!("ordered:{number}:1:{}:0", number + 1)];
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        let point = points[number % points.len()];
        let victim = group.steps(&site, &steps).env(VARIABLE, format!("kill:{point}")).run();
        assert!(victim.killed(), "{point}: {victim:?}");
        let second = group.steps(&site, &steps).run();
        let said = second.text();
        // Every third one writes its record before it begins to publish.
        let over = match point {
            "publish" => number % 3 == 0,
            point => ["record", "word@2", "words"].contains(&point),
        };
        assert_eq!(second.code(), if over { 3 } else { 0 }, "{point}: {second:?}");
        assert!(said.contains("turn-over") == over, "{point}: {said}");
    }
    assert_eq!(site.cells.read(0), (0..21).collect::<Vec<_>>());
    group.end();
    site.expect_idle();
}

/// They kill themselves here and there, and others go on with their numbers.
#[test]
fn whoever_takes_the_place_of_a_killed_one_goes_on() {
    // The cell has room for more: who is late meets the end of its turn there, not a full cell.
    const END: u64 = 60;
    let lab = Lab::in_memory();
    let seed = random::seed();
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut killed = 0;
    for round in 0..if skip::long("realm") { 200 } else { 10 } {
        let site = Site::new(&lab, &round.to_string(), WORKER, 2);
        site.realm.set_policy(*random.pick(&Policy::ALL));
        let group = Group::new(&site);
        let mut start = |n: u64| {
            let (point, _) = *random.pick(&POINTS);
            let point = point.split('@').next().unwrap();
            let at = format!("kill:{point}@{}", 1 + random.below(6));
            let at = if random.below(4) == 0 { String::new() } else { at };
            let steps = format!("onward:{n}:3:{END}:0");
            group.steps(&site, &[&steps]).env(VARIABLE, at).start()
        };
        let mut all: Vec<(u64, Running)> = (0..3).map(|n| (n, start(n))).collect();
        until("all have got through", || {
            for (n, mut running) in std::mem::take(&mut all) {
                if !running.ended() {
                    all.push((n, running));
                    continue;
                }
                let done = running.wait();
                if done.killed() {
                    killed += 1;
                    all.push((n, start(n)));
                } else {
                    let _ = done.expect(0);
                }
            }
            all.is_empty()
        });
        assert_eq!(site.cells.read(0), (0..END).collect::<Vec<_>>());
        group.end();
        site.expect_idle();
    }
    println!("{killed} were killed");
    assert!(killed > 0);
}

#[test]
fn each_process_group_begins_at_zero_and_can_begin_again() {
    let lab = Lab::in_memory();
    let site = Site::new(&lab, "groups", WORKER, 2);
    let group = Group::new(&site);
    let run = |group: &Group, how: &str| group.steps(&site, &[how, "finish"]).run();
    for number in 0..3 {
        let _ = run(&group, &format!("begin:ordered={number}")).expect(0);
    }
    assert_eq!(run(&group, "begin:ordered=2").expect(3).text(), "turn-over 3\n");
    let other = Group::new(&site);
    let _ = run(&other, "begin:ordered=0").expect(0);
    assert_eq!(run(&other, "begin:ordered=0").expect(3).text(), "turn-over 1\n");
    assert_eq!(run(&group, "begin:ordered=5:nonblock").expect(3).text(), "stopped busy 0\n");
    let _ = run(&group, "begin:ordered=3").expect(0);
    // Back to an earlier one, and on to a later one.
    let _ = run(&group, "begin:ordered=0:reset").expect(0);
    let _ = run(&group, "begin:ordered=1").expect(0);
    let _ = run(&group, "begin:ordered=9:reset").expect(0);
    assert_eq!(run(&group, "begin:ordered=1").expect(3).text(), "turn-over 10\n");
    assert_eq!(run(&other, "begin:ordered=0").expect(3).text(), "turn-over 1\n");
    group.end();
    other.end();
    site.expect_idle();
}

/// More groups than there are places, one after the other: those of groups that are gone are used.
#[test]
fn places_of_process_groups_that_are_gone_are_used_again() {
    let lab = Lab::in_memory();
    let site = Site::new(&lab, "many", WORKER, 2);
    for _ in 0..80 {
        let _ = site.steps(["group:0", "begin:ordered=0", "finish"]).run().expect(0);
    }
    site.expect_idle();
}

/// A whole group dies in the middle of a commit. Its place is used again before anybody has found
/// that out: what becomes of that commit is no turn of the next group's.
#[test]
fn the_place_of_a_group_that_died_in_a_commit_is_used_again() {
    let lab = Lab::in_memory();
    for (point, whole) in [("publish", false), ("record", true), ("words", true)] {
        let site = Site::new(&lab, point, WORKER, 2);
        let steps = |value| ["group:0", "begin:ordered=0", value, "publish", "finish"];
        let victim = site.steps(steps("write:0:7")).env(VARIABLE, format!("kill:{point}")).run();
        assert!(victim.killed(), "{point}: {victim:?}");
        let _ = site.steps(steps("write:0:8")).run().expect(0);
        assert_eq!(site.cells.read(0), if whole { vec![7, 8] } else { vec![8] }, "{point}");
        site.expect_idle();
    }
}

/// Process number, and when it started, in ticks (proc(5)).
fn identity(running: &Running) -> (i32, String) {
    let pid = running.pid().as_raw_nonzero().get();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = &stat[stat.rfind(')').unwrap() + 2..];
    (pid, after.split(' ').nth(19).unwrap().to_owned())
}

/// Starts a process that gets the number of an earlier one, in a later tick; `None` if others are in
/// the way.
fn after(earlier: &(i32, String), start: impl Fn() -> Running) -> Option<Running> {
    let last = std::path::Path::new("/proc/sys/kernel/ns_last_pid");
    (0..1000).find_map(|_| {
        std::fs::write(last, (earlier.0 - 1).to_string()).ok()?;
        let running = start();
        let (pid, started) = identity(&running);
        (pid == earlier.0 && started != earlier.1).then_some(running)
    })
}

/// Process numbers come around: a group with the number of one that is gone is another one.
#[test]
fn a_group_with_a_number_that_was_used_before_begins_at_zero() {
    let lab = Lab::in_memory();
    let site = Site::new(&lab, "reused", WORKER, 2);
    let steps = ["begin:ordered=0", "finish", "begin:ordered=1", "finish"];
    let start = |meeting: &mut Rendezvous| {
        let all = ["group:0", "meet"].iter().chain(&steps);
        site.steps(all).meeting(meeting).start()
    };
    let mut meeting = Rendezvous::new();
    let mut running = start(&mut meeting);
    for _ in 0..3 {
        assert!(meeting.arrived());
        meeting.go();
        let earlier = identity(&running);
        let _ = running.wait().expect(0);
        let next = std::cell::RefCell::new(Rendezvous::new());
        let found = after(&earlier, || {
            next.replace(Rendezvous::new());
            start(&mut next.borrow_mut())
        });
        txos_testkit::require!(found.is_some(), "this kernel does not give out chosen numbers");
        running = found.unwrap();
        meeting = next.into_inner();
    }
    drop(running);
    site.expect_idle();
}
