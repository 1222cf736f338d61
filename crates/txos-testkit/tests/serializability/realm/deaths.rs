//! Processes that die at a known point, or at any: others get on, what they published is whole or
//! absent, and nothing they held or occupied stays so.

use rustix::fs::CWD;
use rustix::process::Signal;
use txos_engine::contention::Policy;
use txos_engine::realm::{AbortCause, Access, Begin, TxHandle, WaitDecision};
use txos_testkit::random::{self, Random};
use txos_testkit::realm_stress::points::VARIABLE;
use txos_testkit::realm_stress::site::state_of;
use txos_testkit::realm_stress::{Site, cells, slots};
use txos_testkit::wait::until;
use txos_testkit::{Lab, Rendezvous, skip};

use crate::WORKER;

/// What the victim does: three cells, so six words.
const VICTIM: [&str; 4] = ["begin", "write:0:11", "write:1:12", "write:2:13"];
/// What is there if it did.
const WHOLE: [&[u64]; 3] = [&[11], &[12], &[13]];
/// And if not.
const ABSENT: [&[u64]; 3] = [&[], &[], &[]];

/// Where it dies, whether the redo record is written early, and whether it is as if it had not died.
const POINTS: [(&str, bool, bool); 20] = [
    ("begun", false, false),
    ("acquired@1", false, false),
    ("acquired@2", false, false),
    ("acquired@3", false, false),
    ("prepared", false, false),
    ("half", true, false),
    ("early", true, false),
    ("publish", true, true),
    ("record", true, true),
    ("word@1", true, true),
    ("publish", false, false),
    ("half", false, false),
    ("record", false, true),
    ("word@1", false, true),
    ("word@2", false, true),
    ("word@3", false, true),
    ("word@4", false, true),
    ("word@5", false, true),
    ("word@6", false, true),
    ("words", false, true),
];

/// Attempts after which nobody is in the way of a single process any more.
const ATTEMPTS_MAX: u32 = 20;

/// A number of sites in one lab.
struct Sites {
    lab: Lab,
    count: u32,
}

impl Sites {
    fn new() -> Sites {
        Sites { lab: Lab::in_memory(), count: 0 }
    }

    fn site(&mut self, policy: Policy) -> Site {
        self.count += 1;
        let site = Site::new(&self.lab, &self.count.to_string(), WORKER, 4);
        site.realm.set_policy(policy);
        site
    }
}

/// Runs the victim to its death.
fn kill_at(site: &Site, point: &str, early: bool) {
    let publish = if early { "publish:early" } else { "publish" };
    let end = [publish, "finish"];
    let steps = VICTIM.iter().chain(&end);
    let done = site.steps(steps).env(VARIABLE, format!("kill:{point}")).run();
    assert!(done.killed(), "{point}: {done:?}");
}

/// Acquires all the victim touched. Whether it could.
fn acquire_all(handle: &mut TxHandle<'_>) -> Result<(), AbortCause> {
    (0..3).try_for_each(|cell| handle.acquire(&cells::facet(cell), Access::Write).map(drop))
}

/// Goes through all the victim touched, with a transaction that begins now; what it found.
fn go_through(site: &Site, context: &str) -> [Vec<u64>; 3] {
    let mut how = Begin::default();
    for _ in 0..ATTEMPTS_MAX {
        let mut handle = site.realm.begin(&how).unwrap();
        match acquire_all(&mut handle) {
            Ok(()) => {
                let found = [0, 1, 2].map(|cell| site.cells.read(cell));
                handle.finish().unwrap();
                return found;
            }
            Err(stop) => {
                how.again = Some(handle.abort());
                if let AbortCause::Lost(opponent) = &stop {
                    site.realm.wait_for(opponent, txos_testkit::realm_stress::worker::PATIENCE);
                }
            }
        }
    }
    panic!("{context}: {ATTEMPTS_MAX} attempts, and the dead is still in the way");
}

#[test]
fn killed_at_a_known_point_and_met_by_a_younger_one() {
    let mut sites = Sites::new();
    for policy in Policy::ALL {
        for (point, early, whole) in POINTS {
            let context = format!("{policy}, {point}, early: {early}");
            let site = sites.site(policy);
            kill_at(&site, point, early);
            let found = go_through(&site, &context);
            assert_eq!(found, if whole { WHOLE } else { ABSENT }, "{context}");
            site.expect_idle();
        }
    }
}

#[test]
fn killed_at_a_known_point_and_met_by_an_older_one() {
    let mut sites = Sites::new();
    for policy in Policy::ALL {
        for (point, early, whole) in POINTS {
            let context = format!("{policy}, {point}, early: {early}");
            let site = sites.site(policy);
            let mut older = site.realm.begin(&Begin::default()).unwrap();
            kill_at(&site, point, early);
            let found = match acquire_all(&mut older) {
                Ok(()) => {
                    let found = [0, 1, 2].map(|cell| site.cells.read(cell));
                    older.finish().unwrap();
                    found
                }
                // Older, but with less to lose.
                Err(stop) => {
                    assert!(policy == Policy::SizeMatters, "{context}: {stop}");
                    drop(older);
                    go_through(&site, &context)
                }
            };
            assert_eq!(found, if whole { WHOLE } else { ABSENT }, "{context}");
            site.expect_idle();
        }
    }
}

/// Nobody needs what it held: a sweep finds it.
#[test]
fn killed_at_a_known_point_and_swept() {
    let mut sites = Sites::new();
    for (point, early, whole) in POINTS {
        let site = sites.site(Policy::default());
        kill_at(&site, point, early);
        let dead = site.realm.members();
        assert!(dead.len() == 1 && dead[0].dead, "{point}: {dead:?}");
        let done = site.steps(["sweep", "sweep"]).run().expect(0);
        assert_eq!(done.text(), "swept 1\nswept 0\n", "{point}");
        let found = [0, 1, 2].map(|cell| site.cells.read(cell));
        assert_eq!(found, if whole { WHOLE } else { ABSENT }, "{point}");
        site.expect_idle();
    }
}

/// Who settles for a dead one may die of it, and who settles for both as well.
#[test]
fn killed_while_it_settles_for_another() {
    let mut sites = Sites::new();
    let mut points = vec!["settling".to_owned()];
    points.extend((1..=6).map(|n| format!("settle@{n}")));
    for (n, point) in points.iter().enumerate() {
        let site = sites.site(Policy::ALL[n % 6]);
        kill_at(&site, "word@3", false);
        for _ in 0..2 {
            let second = site.steps(["begin", "write:2:31", "publish", "finish"]);
            let done = second.env(VARIABLE, format!("kill:{point}")).run();
            assert!(done.killed(), "{point}: {done:?}");
        }
        let found = go_through(&site, point);
        assert_eq!(found, WHOLE, "{point}");
        site.expect_idle();
    }
}

/// A zombie is dead, although its process number is still taken.
#[test]
fn a_zombie_is_taken_over_from() {
    let mut sites = Sites::new();
    let site = sites.site(Policy::default());
    let steps = VICTIM.iter().chain(&["publish", "finish"]);
    let zombie = site.steps(steps).env(VARIABLE, "kill:word@2").start();
    until("it is a zombie", || state_of(&zombie) == Some('Z'));
    assert_eq!(go_through(&site, "zombie"), WHOLE);
    assert!(zombie.wait().killed());
    site.expect_idle();
}

/// One that never waits is not refused on behalf of the dead.
#[test]
fn the_dead_do_not_keep_those_out_that_never_wait() {
    let mut sites = Sites::new();
    let how = Begin { nonblock: true, ..Begin::default() };
    let mut wrong = Vec::new();
    for policy in Policy::ALL {
        for (point, early, whole) in POINTS {
            let site = sites.site(policy);
            kill_at(&site, point, early);
            let mut handle = site.realm.begin(&how).unwrap();
            if let Err(stop) = acquire_all(&mut handle) {
                wrong.push(format!("{policy}, {point}: {stop:?}"));
                continue;
            }
            let found = [0, 1, 2].map(|cell| site.cells.read(cell));
            assert_eq!(found, if whole { WHOLE } else { ABSENT }, "{policy}, {point}");
            handle.finish().unwrap();
            site.expect_idle();
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Kills a process while it waits; it holds cell 1, and waits for cell 0.
fn kill_a_waiting_one(site: &Site) {
    let mut holder = site.realm.begin(&Begin::default()).unwrap();
    holder.acquire(&cells::facet(0), Access::Write).unwrap();
    until("it dies while its slot says that it waits", || {
        let victim = site.steps(["begin", "write:1:1", "write:0:1"]).start();
        let pid = victim.pid().as_raw_nonzero().get().cast_unsigned();
        let waits = || {
            let slots = slots::read(site.realm.path());
            slots.iter().any(|slot| slot.pid() == pid && slot.waiting_for != 0)
        };
        until("it waits", waits);
        victim.signal(Signal::KILL);
        assert!(victim.wait().killed());
        let dead_waits = waits();
        if !dead_waits {
            assert_eq!(site.realm.sweep(), 1);
        }
        dead_waits
    });
    holder.finish().unwrap();
}

#[test]
fn killed_while_it_waits() {
    let mut sites = Sites::new();
    // Under the others it would not wait for long.
    for policy in [Policy::OsPriority, Policy::Timestamp] {
        for nonblock in [false, true] {
            let site = sites.site(policy);
            kill_a_waiting_one(&site);
            let how = Begin { nonblock, ..Begin::default() };
            let mut handle = site.realm.begin(&how).unwrap();
            let got = handle.acquire(&cells::facet(1), Access::Write);
            assert!(got.is_ok(), "{policy}, nonblock {nonblock}: {got:?}");
            handle.finish().unwrap();
            site.expect_idle();
        }
    }
}

#[test]
fn killed_when_it_is_told_that_it_waits() {
    let mut sites = Sites::new();
    let site = sites.site(Policy::default());
    let mut holder = site.realm.begin(&Begin::default()).unwrap();
    holder.acquire(&cells::facet(0), Access::Write).unwrap();
    let victim = site.steps(["begin", "write:1:1", "write:0:1"]);
    assert!(victim.env(VARIABLE, "kill:wait@2").run().killed());
    holder.acquire(&cells::facet(1), Access::Write).unwrap();
    holder.finish().unwrap();
    site.expect_idle();
}

/// As if it had been killed after it had taken its slot, and before it had begun.
#[test]
fn killed_right_after_it_took_a_slot() {
    let mut sites = Sites::new();
    let site = sites.site(Policy::default());
    for _ in 0..10 {
        assert!(site.steps(["begin"]).env(VARIABLE, "kill:begun").run().killed());
    }
    let taken = |site: &Site| {
        let all = slots::read(site.realm.path());
        all.into_iter().filter(|slot| slot.owner != 0).collect::<Vec<_>>()
    };
    let all = taken(&site);
    assert_eq!(all.len(), 10);
    all.iter().for_each(|slot| slots::make_claimed(site.realm.path(), slot));
    assert_eq!(site.realm.members(), []);
    // All the other slots, and then those.
    let how = Begin { nonblock: true, ..Begin::default() };
    let handles: Vec<_> = (0..txos_engine::realm::SLOTS)
        .map(|n| site.realm.begin(&how).unwrap_or_else(|error| panic!("{n}: {error}")))
        .collect();
    assert_eq!(site.realm.statistics().takeovers, 10);
    drop(handles);
    site.expect_idle();
}

/// SIGKILL at any instant of a loop that does nothing but take slots and give them back.
#[test]
fn killed_at_any_instant_it_leaves_no_slot_behind() {
    let mut sites = Sites::new();
    let site = sites.site(Policy::default());
    let seed = random::seed();
    println!("TXOS_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let rounds = if skip::long("realm") { 5000 } else { 200 };
    let mut left = std::collections::BTreeMap::<&str, u32>::new();
    for _ in 0..rounds {
        let progress = || site.cells.progress().load(std::sync::atomic::Ordering::Relaxed);
        let before = progress();
        let victims = [0, 1].map(|_| site.worker().arg("spin").start());
        until("both are at it", || progress() == before + 2);
        for victim in victims {
            (0..random.below(20_000)).for_each(|_| std::hint::spin_loop());
            victim.signal(Signal::KILL);
            let pid = victim.pid().as_raw_nonzero().get().cast_unsigned();
            assert!(victim.wait().killed());
            let slots = slots::read(site.realm.path());
            let slot = slots.iter().find(|slot| slot.pid() == pid);
            *left.entry(slot.map_or("nothing", |slot| slot.state())).or_default() += 1;
        }
    }
    println!("{rounds} rounds left: {left:?}");
    assert!(left.len() > 1, "they all died alike: {left:?}");
    site.expect_idle();
    assert!(site.realm.begin(&Begin::default()).is_ok());
}

/// A dead process's pipe ends: the test is told, and nobody waits for it.
#[test]
fn killed_by_the_test_at_a_meeting() {
    let mut sites = Sites::new();
    let site = sites.site(Policy::Timestamp);
    let mut meeting = Rendezvous::new();
    let steps = ["begin", "write:0:11", "write:1:12", "write:2:13", "meet"];
    let victim = site.steps(steps).meeting(&mut meeting).start();
    assert!(meeting.arrived());
    assert_eq!(site.realm.statistics().held, 3);
    let mut handle = site.realm.begin(&Begin::default()).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire_all(&mut handle));
        until("it is waited for", || site.realm.statistics().waits > 0);
        victim.signal(Signal::KILL);
        waiting.join().unwrap().unwrap();
    });
    handle.finish().unwrap();
    assert!(victim.wait().killed());
    site.expect_idle();
}

/// Where the journal can't be read for now, nobody decides anything: all wait on until it can.
#[test]
fn what_can_not_be_settled_is_waited_for() {
    let mut sites = Sites::new();
    let site = sites.site(Policy::Timestamp);
    kill_at(&site, "word@1", false);
    let journal = site.dir().join("journal-1");
    let (aside, nonblock) = (site.dir().join("aside"), true);
    std::fs::rename(&journal, &aside).unwrap();
    std::fs::create_dir(&journal).unwrap();
    assert_eq!(site.realm.sweep(), 0);
    let mut handle = site.realm.begin(&Begin { nonblock, ..Begin::default() }).unwrap();
    let stop = acquire_all(&mut handle).unwrap_err();
    assert!(matches!(stop, AbortCause::Busy(_)), "{stop:?}");
    drop(handle);
    let mut told = 0;
    let mut handle = site.realm.begin(&Begin::default()).unwrap().attended(|_| {
        told += 1;
        if told < 5 { WaitDecision::Wait } else { WaitDecision::CallOff }
    });
    let stop = acquire_all(&mut handle).unwrap_err();
    assert!(matches!(stop, AbortCause::CalledOff(_)), "{stop:?}");
    drop(handle);
    let (tell, told) = std::sync::mpsc::channel();
    let mut handle = site.realm.begin(&Begin::default()).unwrap().attended(move |_| {
        let _ = tell.send(());
        WaitDecision::Wait
    });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire_all(&mut handle));
        (0..3).for_each(|_| told.recv().unwrap());
        assert_eq!(site.realm.statistics().takeovers, 0);
        // In one step: absent it would say that nothing was published.
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, &aside, CWD, &journal, exchange).unwrap();
        waiting.join().unwrap().unwrap();
    });
    handle.finish().unwrap();
    assert_eq!([0, 1, 2].map(|cell| site.cells.read(cell)), WHOLE);
    site.expect_idle();
}
