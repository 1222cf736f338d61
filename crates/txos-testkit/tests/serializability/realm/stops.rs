//! A stopped process is not a dead one: what it publishes is waited for, however long that takes.
//! What it has not begun to publish yet is no more in the way than anything else.

use std::sync::mpsc;

use rustix::process::Signal;
use txos_engine::contention::Policy;
use txos_engine::realm::{AbortCause, Access, Begin, State, WaitDecision};
use txos_testkit::realm_stress::Site;
use txos_testkit::realm_stress::cells;
use txos_testkit::realm_stress::points::VARIABLE;
use txos_testkit::realm_stress::site::state_of;
use txos_testkit::wait::until;
use txos_testkit::{Lab, Running};

use crate::WORKER;

fn pid(running: &Running) -> u32 {
    running.pid().as_raw_nonzero().get().cast_unsigned()
}

/// Starts one that stops itself at a point.
fn stopped_at(site: &Site, point: &str, steps: &[&str]) -> Running {
    let running = site.steps(steps).env(VARIABLE, format!("stop:{point}")).in_own_group().start();
    until("it stops itself", || state_of(&running) == Some('T'));
    running
}

const PUBLISHER: [&str; 5] = ["begin", "write:0:1", "write:1:2", "publish", "finish"];

#[test]
fn a_stopped_publisher_is_waited_for_by_everybody() {
    let lab = Lab::in_memory();
    for policy in Policy::ALL {
        for (point, older) in
            [("publish", true), ("publish", false), ("word@1", true), ("word@3", false)]
        {
            let site = Site::new(&lab, &format!("{policy}-{point}-{older}"), WORKER, 4);
            site.realm.set_policy(policy);
            let begin = || site.realm.begin(&Begin::default()).unwrap();
            let before = older.then(begin);
            let victim = stopped_at(&site, point, &PUBLISHER);
            let handle = before.unwrap_or_else(begin);
            let (tell, told) = mpsc::channel();
            let mut handle = handle.attended(move |info| {
                let _ = tell.send((info.holder.pid, info.waited));
                WaitDecision::Wait
            });
            let waited = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    let waited = handle.acquire(&cells::facet(0), Access::Write).unwrap();
                    // Both, or it was let in too early.
                    assert_eq!((site.cells.read(0), site.cells.read(1)), (vec![1], vec![2]));
                    waited
                });
                let mut last = std::time::Duration::ZERO;
                for _ in 0..4 {
                    let (holder, waited) = told.recv().unwrap();
                    assert_eq!(holder, pid(&victim));
                    assert!(waited > last, "{waited:?} after {last:?}");
                    last = waited;
                }
                assert_eq!(site.realm.sweep(), 0, "it was overtaken");
                let members = site.realm.members();
                let shown = members.iter().find(|m| m.pid == pid(&victim)).unwrap();
                assert_eq!((shown.state, shown.dead), (State::Publishing, false));
                let mut third =
                    site.realm.begin(&Begin { nonblock: true, ..Begin::default() }).unwrap();
                let stop = third.acquire(&cells::facet(1), Access::Read).unwrap_err();
                assert!(matches!(&stop, AbortCause::Busy(r) if r.pid == pid(&victim)), "{stop:?}");
                drop(third);
                assert!(!waiting.is_finished());
                victim.signal(Signal::CONT);
                waiting.join().unwrap()
            });
            assert!(waited);
            handle.finish().unwrap();
            let _ = victim.wait().expect(0);
            assert_eq!(site.realm.statistics().takeovers, 0);
            site.expect_idle();
        }
    }
}

#[test]
fn a_stopped_holder_is_doomed_by_an_older_one_at_once() {
    let lab = Lab::in_memory();
    for policy in [Policy::OsPriority, Policy::Timestamp] {
        for point in ["acquired@2", "prepared"] {
            let site = Site::new(&lab, &format!("{policy}-{point}"), WORKER, 4);
            site.realm.set_policy(policy);
            let mut older = site.realm.begin(&Begin::default()).unwrap().attended(|info| {
                panic!("it waits for {}", info.holder.pid);
            });
            let victim = stopped_at(&site, point, &PUBLISHER);
            let waited = older.acquire(&cells::facet(0), Access::Write).unwrap();
            assert!(!waited, "{policy}, {point}");
            assert_eq!(site.realm.statistics().waits, 0);
            older.finish().unwrap();
            victim.signal(Signal::CONT);
            let done = victim.wait().expect(3);
            assert_eq!(done.text(), format!("stopped doomed {}\n", std::process::id()));
            assert_eq!((site.cells.read(0), site.cells.read(1)), (vec![], vec![]));
            site.expect_idle();
        }
    }
}

/// A younger one waits for a stopped older one, and is told for whom; that one has lost nothing.
#[test]
fn a_stopped_older_holder_is_waited_for() {
    let lab = Lab::in_memory();
    let site = Site::new(&lab, "older", WORKER, 4);
    site.realm.set_policy(Policy::Timestamp);
    let victim = stopped_at(&site, "acquired@2", &PUBLISHER);
    let younger = site.steps(["begin", "write:0:3", "publish", "finish"]).start();
    until("the younger one says for whom it waits", || {
        younger.stdout() == format!("waits {}\n", pid(&victim))
    });
    victim.signal(Signal::CONT);
    let _ = victim.wait().expect(0);
    let _ = younger.wait().expect(0);
    assert_eq!((site.cells.read(0), site.cells.read(1)), (vec![1, 3], vec![2]));
    site.expect_idle();
}

/// Who settles for a dead one and is stopped in the middle of it is waited for as well.
#[test]
fn a_stopped_settler_is_waited_for() {
    let lab = Lab::in_memory();
    for point in ["settling", "settle@1", "settle@3"] {
        let site = Site::new(&lab, point, WORKER, 4);
        site.realm.set_policy(Policy::Timestamp);
        let mut older = site.realm.begin(&Begin::default()).unwrap();
        let dead = site.steps(PUBLISHER).env(VARIABLE, "kill:word@1").run();
        assert!(dead.killed());
        let settler =
            stopped_at(&site, point, &["begin", "write:2:7", "write:1:8", "publish", "finish"]);
        assert_eq!(site.realm.sweep(), 0, "two settle at once");
        let (tell, told) = mpsc::channel();
        older = older.attended(move |info| {
            let _ = tell.send(info.holder.pid);
            WaitDecision::Wait
        });
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                older.acquire(&cells::facet(0), Access::Write).unwrap();
                // The settler's own change of cell 1 may come before this look at it.
                assert_eq!(site.cells.read(0), [1]);
                assert_eq!(site.cells.read(1).first(), Some(&2));
            });
            (0..3).for_each(|_| assert_ne!(told.recv().unwrap(), std::process::id()));
            assert!(!waiting.is_finished());
            // Cell 2, which the settler holds itself, is another matter: it is not publishing.
            settler.signal(Signal::CONT);
            waiting.join().unwrap();
        });
        older.finish().unwrap();
        let _ = settler.wait().expect(0);
        assert_eq!((site.cells.read(1), site.cells.read(2)), (vec![2, 8], vec![7]));
        assert_eq!(site.realm.statistics().takeovers, 1);
        site.expect_idle();
    }
}

/// A settler that is killed while it is stopped is replaced.
#[test]
fn a_stopped_settler_that_is_killed_is_replaced() {
    let lab = Lab::in_memory();
    let site = Site::new(&lab, "killed", WORKER, 4);
    assert!(site.steps(PUBLISHER).env(VARIABLE, "kill:word@1").run().killed());
    let settler = stopped_at(&site, "settle@2", &["sweep"]);
    assert_eq!(site.realm.sweep(), 0);
    settler.signal(Signal::KILL);
    assert!(settler.wait().killed());
    assert_eq!(site.realm.sweep(), 1);
    assert_eq!((site.cells.read(0), site.cells.read(1)), (vec![1], vec![2]));
    site.expect_idle();
}
