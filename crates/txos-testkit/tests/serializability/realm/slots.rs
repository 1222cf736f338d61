//! More processes than slots: those beyond wait, and none fails.

use rustix::process::Signal;
use txos_engine::realm::{Begin, BeginError, SLOTS};
use txos_testkit::realm_stress::Site;
use txos_testkit::wait::until;
use txos_testkit::{Lab, Rendezvous};

use crate::WORKER;

const BEYOND: usize = 10;

#[test]
fn those_beyond_the_slots_wait() {
    let lab = Lab::in_memory();
    let site = Site::new(&lab, "full", WORKER, 4);
    let mut all = Vec::new();
    for _ in 0..SLOTS as usize + BEYOND {
        let mut meeting = Rendezvous::new();
        let running = site.steps(["begin", "meet", "finish"]).meeting(&mut meeting).start();
        all.push((running, meeting));
    }
    until("all slots are taken, and the others have noticed", || {
        site.realm.members().len() == SLOTS as usize
            && site.realm.statistics().full >= BEYOND as u64
    });
    assert_eq!(site.realm.statistics().full, BEYOND as u64);
    let how = Begin { nonblock: true, ..Begin::default() };
    assert_eq!(site.realm.begin(&how).unwrap_err(), BeginError::Full);
    let done = site.steps(["begin:nonblock", "finish"]).run().expect(3);
    assert_eq!(done.text(), "full\n");

    let inside: Vec<u32> = site.realm.members().iter().map(|m| m.pid).collect();
    let is_inside =
        |pid: rustix::process::Pid| inside.contains(&pid.as_raw_nonzero().get().cast_unsigned());
    let (first, second): (Vec<_>, Vec<_>) = all.into_iter().partition(|(r, _)| is_inside(r.pid()));
    assert_eq!((first.len(), second.len()), (SLOTS as usize, BEYOND));
    // Half of the places come free by a kill, half by an end.
    let mut kept = Vec::new();
    for (n, (running, meeting)) in first.into_iter().enumerate() {
        assert!(meeting.arrived());
        match n {
            0..5 => {
                running.signal(Signal::KILL);
                assert!(running.wait().killed());
            }
            5..10 => {
                meeting.go();
                let _ = running.wait().expect(0);
            }
            _ => kept.push((running, meeting)),
        }
    }
    for (running, meeting) in &second {
        assert!(meeting.arrived(), "{}", running.stderr());
    }
    kept.extend(second);
    assert_eq!(site.realm.members().len(), SLOTS as usize);
    assert_eq!(site.realm.statistics().takeovers, 5);
    for (running, meeting) in kept {
        meeting.go();
        let _ = running.wait().expect(0);
    }
    site.expect_idle();
}
