//! Tests of the realm within one process; those with several processes are in the testkit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use super::status::Status;
use super::*;
use crate::object::FileId;

/// A realm in a directory of its own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("txos-realm-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Place(dir)
    }

    fn join(&self) -> Realm {
        let resolver = |_: &DeadPublish| Err(Unresolved("nobody publishes here".into()));
        Realm::join(&self.0, "test", &self.0, Box::new(resolver)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn page(number: u64) -> Facet<'static> {
    Facet::Page { file: FileId { dev: 1, ino: 1 }, number }
}

fn begin(realm: &Realm) -> TxHandle<'_> {
    realm.begin(&Begin::default()).unwrap()
}

fn nonblocking(realm: &Realm) -> TxHandle<'_> {
    realm.begin(&Begin { nonblock: true, ..Begin::default() }).unwrap()
}

fn is_untouched(realm: &Realm) {
    assert_eq!(realm.statistics().held, 0, "nothing is held");
    assert!(realm.members().is_empty(), "nobody is there");
    for number in 0..SLOTS {
        let slot = realm.table().slot(number);
        assert_eq!(slot.pins.load(Ordering::SeqCst), 0);
        assert_eq!(slot.waiting_for.load(Ordering::SeqCst), 0);
        assert_eq!(slot.owner.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn readers_share_and_inserters_commute() {
    let place = Place::new("share");
    let realm = place.join();
    let (mut a, mut b) = (begin(&realm), nonblocking(&realm));
    a.acquire(&page(1), Access::Read).unwrap();
    b.acquire(&page(1), Access::Read).unwrap();
    a.acquire(&page(2), Access::Insert).unwrap();
    b.acquire(&page(2), Access::Insert).unwrap();
    a.finish().unwrap();
    b.finish().unwrap();
    is_untouched(&realm);
    assert_eq!(realm.statistics().commits, 2);
}

#[test]
fn what_is_acquired_if_free_is_released_unless_something_else_needs_its_record() {
    let place = Place::new("release");
    let realm = place.join();
    let number = |number| Facet::Descriptor { process: realm.this_process(), number };
    let (mut a, mut b) = (begin(&realm), nonblocking(&realm));
    assert!(a.acquire_if_free(&number(5)).unwrap());
    assert!(!b.acquire_if_free(&number(5)).unwrap());
    assert!(b.acquire_if_free(&number(6)).unwrap());
    assert!(a.release(&number(5)) && !a.release(&number(5)));
    assert!(b.acquire_if_free(&number(5)).unwrap());
    // Acquired once more it is needed, as if by something that falls on the same record.
    b.acquire(&number(5), Access::Read).unwrap();
    assert!(!b.release(&number(5)));
    assert!(!a.acquire_if_free(&number(5)).unwrap());
    // What was held before is not released either.
    a.acquire(&number(7), Access::Read).unwrap();
    assert!(a.acquire_if_free(&number(7)).unwrap() && !a.release(&number(7)));
    // From here on nobody can doom it, and it publishes nothing.
    let (names, ended) = (realm.names_published(), realm.publishes_ended());
    b.stays().unwrap();
    assert!(matches!(
        nonblocking(&realm).acquire(&number(5), Access::Read),
        Err(AbortCause::Busy(_))
    ));
    b.finish_validated();
    assert_eq!((realm.names_published(), realm.publishes_ended()), (names, ended));
    assert!(a.acquire_if_free(&number(5)).unwrap() && a.release(&number(5)));
    a.finish().unwrap();
    is_untouched(&realm);
}

#[test]
fn the_older_dooms_the_younger() {
    let place = Place::new("wound");
    let realm = place.join();
    for (mine, theirs) in [
        (Access::Write, Access::Write),
        (Access::Write, Access::Read),
        (Access::Read, Access::Write),
        (Access::Insert, Access::Read),
        (Access::Write, Access::Insert),
    ] {
        let mut older = begin(&realm);
        let mut younger = begin(&realm);
        younger.acquire(&page(1), theirs).unwrap();
        older.acquire(&page(1), mine).unwrap();
        assert!(younger.is_doomed());
        let stop = younger.acquire(&page(2), Access::Read).unwrap_err();
        assert_eq!(stop.opponent().unwrap().pid, std::process::id(), "{stop}");
        assert!(matches!(younger.prepare(), Err(AbortCause::Doomed(_))));
        assert!(matches!(younger.finish(), Err(AbortCause::Doomed(_))));
        assert!(!older.is_doomed());
        older.finish().unwrap();
        is_untouched(&realm);
    }
}

const AT_A_FUTEX: OutsideWait = OutsideWait { call: 202, argument: 0x1000 };

/// Whatever the policy says: the older would win.
#[test]
fn one_that_waits_for_what_the_realm_does_not_know_gives_way_after_a_moment() {
    let place = Place::new("outside");
    let realm = place.join();
    let mut older = begin(&realm);
    older.acquire(&page(1), Access::Write).unwrap();
    let busy = || {
        let stop = nonblocking(&realm).acquire(&page(1), Access::Write).unwrap_err();
        matches!(stop, AbortCause::Busy(_))
    };
    realm.waits_outside(older.place(), AT_A_FUTEX, Duration::from_secs(3600));
    assert!(busy(), "it has only begun to wait");
    realm.waits_outside(older.place(), AT_A_FUTEX, Duration::ZERO);
    realm.goes_on(older.place());
    assert!(busy(), "it has gone on");
    realm.waits_outside(older.place(), AT_A_FUTEX, Duration::ZERO);
    let mut younger = nonblocking(&realm);
    younger.acquire(&page(1), Access::Write).unwrap();
    assert!(older.is_doomed() && !younger.is_doomed());
    let stop = older.acquire(&page(2), Access::Read).unwrap_err();
    assert!(stop.to_string().contains("waited for what no transaction holds"), "{stop}");
    let gone = older.place();
    // What it waited for may be the other's to do: the next attempt, as old, gives way as well.
    let again = Some(older.abort());
    let mut next = realm.begin(&Begin { again, nonblock: true, ..Begin::default() }).unwrap();
    let stop = next.acquire(&page(1), Access::Write).unwrap_err();
    assert!(matches!(stop, AbortCause::Busy(_)) && !younger.is_doomed(), "{stop}");
    assert!(!next.abort().defers);
    // The place may be another one's by then.
    let mut next = begin(&realm);
    next.acquire(&page(2), Access::Write).unwrap();
    realm.waits_outside(gone, AT_A_FUTEX, Duration::ZERO);
    assert!(nonblocking(&realm).acquire(&page(2), Access::Write).is_err());
    // Of several threads one waits.
    next.has_several_threads();
    realm.waits_outside(next.place(), AT_A_FUTEX, Duration::ZERO);
    assert!(nonblocking(&realm).acquire(&page(2), Access::Write).is_err());
    assert!(!next.is_doomed());
    drop((next, younger));
    is_untouched(&realm);
}

#[test]
fn one_whose_turn_is_first_wins_though_it_waits_and_is_known_to_those_after_it() {
    let place = Place::new("outside-turn");
    let realm = place.join();
    let ordered = |sequence, nonblock| {
        let begin = Begin { sequence: Some(sequence), nonblock, ..Begin::default() };
        realm.begin(&begin).unwrap()
    };
    let mut first = ordered(0, false);
    first.acquire(&page(1), Access::Write).unwrap();
    realm.waits_outside(first.place(), AT_A_FUTEX, Duration::ZERO);
    assert!(ordered(1, true).acquire(&page(1), Access::Write).is_err());
    assert!(!first.is_doomed());
    let seen = std::sync::Mutex::new(None);
    let second = ordered(1, false).attended(|info| {
        *seen.lock().unwrap() = Some(info.clone());
        WaitDecision::CallOff
    });
    let stop = second.finish().unwrap_err();
    assert!(stop.to_string().contains("the turn of sequence number 0"), "{stop}");
    let seen = seen.into_inner().unwrap().unwrap();
    assert_eq!((seen.holder.pid, seen.turn_of), (std::process::id(), Some(0)));
    assert_eq!(seen.outside.unwrap().0, AT_A_FUTEX);
    drop(first);
    is_untouched(&realm);
}

/// Whatever the policy says: the older would win.
#[test]
fn one_that_defers_gives_way() {
    let place = Place::new("defer");
    let realm = place.join();
    let mut older = begin(&realm);
    let mut younger = nonblocking(&realm);
    older.defer(true);
    older.acquire(&page(1), Access::Write).unwrap();
    younger.acquire(&page(1), Access::Write).unwrap();
    assert!(older.is_doomed() && !younger.is_doomed());
    drop(older);
    let mut older = nonblocking(&realm);
    drop(younger);
    let mut younger = nonblocking(&realm);
    younger.acquire(&page(1), Access::Write).unwrap();
    older.defer(true);
    let stop = older.acquire(&page(1), Access::Read).unwrap_err();
    assert!(matches!(stop, AbortCause::Busy(_)), "{stop}");
    assert!(!younger.is_doomed());
    drop(older);
    // Of two that defer the policy decides; and one that no longer does is like any other.
    for defers in [true, false] {
        let older = younger;
        older.defer(defers);
        let mut next = nonblocking(&realm);
        next.defer(true);
        next.defer(defers);
        let stop = next.acquire(&page(1), Access::Write).unwrap_err();
        assert!(matches!(stop, AbortCause::Busy(_)), "{stop}");
        assert!(!older.is_doomed());
        younger = older;
    }
    younger.finish().unwrap();
}

/// One that waits for its producers outside of the realm gives way to one that defers, which may be such a producer.
#[test]
fn one_that_stands_back_gives_way_to_one_that_defers() {
    let place = Place::new("stand-back");
    let realm = place.join();
    let (mut older, mut younger) = (begin(&realm), nonblocking(&realm));
    older.defer(true);
    younger.defer(true);
    older.acquire(&page(1), Access::Write).unwrap();
    let stop = younger.acquire(&page(1), Access::Write).unwrap_err();
    assert!(matches!(stop, AbortCause::Busy(_)), "{stop}");
    older.stand_back(true);
    younger.acquire(&page(1), Access::Write).unwrap();
    assert!(older.is_doomed() && !younger.is_doomed());
    younger.finish().unwrap();
}

#[test]
fn the_younger_waits_for_the_older() {
    let place = Place::new("wait");
    let realm = place.join();
    let mut older = begin(&realm);
    older.acquire(&page(1), Access::Write).unwrap();
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (realm, waiting) = (&realm, &tell);
        let waiting = waiting.clone();
        let other = scope.spawn(move || {
            let mut younger = begin(realm).attended(move |info| {
                assert_eq!(info.holder.pid, std::process::id());
                let _ = waiting.send(());
                WaitDecision::Wait
            });
            assert!(younger.acquire(&page(1), Access::Read).unwrap(), "it waited");
            younger.finish().unwrap();
        });
        told.recv().unwrap();
        let shown = realm.members();
        let waits: Vec<_> = shown.iter().filter(|m| m.waits.is_some()).collect();
        assert!(waits.len() <= 1);
        older.finish().unwrap();
        other.join().unwrap();
    });
    is_untouched(&realm);
}

#[test]
fn whoever_must_not_wait_is_told_so() {
    let place = Place::new("nonblock");
    let realm = place.join();
    let mut older = begin(&realm);
    older.acquire(&page(1), Access::Write).unwrap();
    let mut younger = nonblocking(&realm);
    let stop = younger.acquire(&page(1), Access::Read).unwrap_err();
    assert!(matches!(stop, AbortCause::Busy(_)), "{stop:?}");
    drop(younger);
    drop(older);
    is_untouched(&realm);
}

#[test]
fn waiting_can_be_called_off() {
    let place = Place::new("off");
    let realm = place.join();
    let mut older = begin(&realm);
    older.acquire(&page(1), Access::Write).unwrap();
    let mut younger = begin(&realm).attended(|_| WaitDecision::CallOff);
    let stop = younger.acquire(&page(1), Access::Write).unwrap_err();
    assert!(matches!(stop, AbortCause::CalledOff(_)), "{stop:?}");
}

#[test]
fn an_upgrade_excludes_other_readers() {
    let place = Place::new("upgrade");
    let realm = place.join();
    let (mut a, mut b) = (begin(&realm), begin(&realm));
    a.acquire(&page(1), Access::Read).unwrap();
    b.acquire(&page(1), Access::Read).unwrap();
    // Having listed, it inserts.
    a.acquire(&page(1), Access::Insert).unwrap();
    assert!(b.is_doomed());
    drop(b);
    let mut c = nonblocking(&realm);
    assert!(c.acquire(&page(1), Access::Insert).is_err(), "an upgraded insert is alone");
    drop(c);
    a.finish().unwrap();
    is_untouched(&realm);
}

#[test]
fn a_publishing_transaction_is_waited_for_by_everybody() {
    let place = Place::new("publish");
    let realm = place.join();
    let (tell, told) = mpsc::channel();
    let mut older = begin(&realm).attended(move |_| {
        let _ = tell.send(());
        WaitDecision::Wait
    });
    let mut younger = begin(&realm);
    younger.acquire(&page(1), Access::Write).unwrap();
    younger.prepare().unwrap();
    younger.publish().unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            older.acquire(&page(1), Access::Write).unwrap();
            assert_eq!(done.load(Ordering::SeqCst), 1, "it was let in too early");
            older.finish().unwrap();
        });
        told.recv().unwrap();
        done.store(1, Ordering::SeqCst);
        younger.finish().unwrap();
    });
    is_untouched(&realm);
}

#[test]
fn what_is_dropped_aborts() {
    let place = Place::new("drop");
    let realm = place.join();
    let mut a = begin(&realm);
    a.acquire(&page(1), Access::Write).unwrap();
    drop(a);
    is_untouched(&realm);
    assert_eq!(realm.statistics().aborts, 1);
}

#[test]
fn the_next_attempt_keeps_its_age() {
    let place = Place::new("again");
    let realm = place.join();
    let mut a = begin(&realm);
    a.acquire(&page(1), Access::Write).unwrap();
    let again = a.abort();
    assert_eq!((again.work, again.restarts), (1, 1));
    let mut other = begin(&realm);
    other.acquire(&page(1), Access::Write).unwrap();
    let mut a = realm.begin(&Begin { again: Some(again), ..Begin::default() }).unwrap();
    a.acquire(&page(1), Access::Write).unwrap();
    assert!(other.is_doomed(), "the second attempt is the older one");
    drop((a, other));
    is_untouched(&realm);
}

#[test]
fn more_transactions_than_slots() {
    let place = Place::new("full");
    let realm = place.join();
    let mut all: Vec<_> = (0..SLOTS).map(|_| begin(&realm)).collect();
    let how = Begin { nonblock: true, ..Begin::default() };
    assert_eq!(realm.begin(&how).unwrap_err(), BeginError::Full);
    let patience = Some(Duration::from_millis(20));
    let (how, asked) = (Begin { patience, ..Begin::default() }, Instant::now());
    assert_eq!(realm.begin(&how).unwrap_err(), BeginError::Full);
    assert!(asked.elapsed() >= Duration::from_millis(20), "it waited");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| begin(&realm).finish().unwrap());
        // It waits for a slot; one becomes free.
        while realm.table().board().slots_wanted.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        all.pop().unwrap().finish().unwrap();
        waiter.join().unwrap();
    });
    all.clear();
    is_untouched(&realm);
}

#[test]
fn every_slot_has_its_own_bit() {
    let place = Place::new("bits");
    let realm = place.join();
    let mut all: Vec<_> = (0..SLOTS).map(|_| nonblocking(&realm)).collect();
    for handle in &mut all {
        handle.acquire(&page(7), Access::Read).unwrap();
    }
    // The oldest wants it alone: it wins against all.
    let oldest = all.first_mut().unwrap();
    oldest.acquire(&page(7), Access::Write).unwrap();
    assert_eq!(all.iter().filter(|t| t.is_doomed()).count(), SLOTS as usize - 1);
    all.clear();
    is_untouched(&realm);
}

#[test]
fn single_calls_wait_and_never_fail() {
    let place = Place::new("single");
    let realm = place.join();
    let counter = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (realm, counter) = (&realm, &counter);
            scope.spawn(move || {
                for _ in 0..500 {
                    if n % 2 == 0 {
                        realm
                            .single(&[(page(1), Access::Write), (page(2), Access::Write)], || {
                                let now = counter.load(Ordering::Relaxed);
                                counter.store(now + 1, Ordering::Relaxed);
                            })
                            .unwrap();
                    } else {
                        add_in_transaction(realm, counter, [page(2), page(1)]);
                    }
                }
            });
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), 2000, "no update was lost");
    is_untouched(&realm);
}

/// Adds one to the counter, as often tried as needed.
fn add_in_transaction(realm: &Realm, counter: &AtomicU64, facets: [Facet<'_>; 2]) {
    let mut how = Begin::default();
    loop {
        let mut handle = realm.begin(&how).unwrap();
        let ready = facets
            .iter()
            .try_for_each(|f| handle.acquire(f, Access::Write).map(drop))
            .and_then(|()| handle.publish());
        if ready.is_ok() {
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            handle.finish().unwrap();
            return;
        }
        let again = handle.abort();
        how.again = Some(again);
        std::thread::sleep(crate::contention::backoff::before_restart(again.restarts, 7));
    }
}

#[test]
fn opposite_orders_under_every_policy() {
    for policy in Policy::ALL {
        let place = Place::new(policy.name());
        let realm = place.join();
        realm.set_policy(policy);
        assert_eq!(place.join().policy(), policy, "it holds for everybody");
        let counter = AtomicU64::new(0);
        let began = Instant::now();
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (realm, counter) = (&realm, &counter);
                scope.spawn(move || {
                    let facets = if n % 2 == 0 { [page(1), page(2)] } else { [page(2), page(1)] };
                    (0..300).for_each(|_| add_in_transaction(realm, counter, facets));
                });
            }
        });
        assert_eq!(counter.load(Ordering::Relaxed), 1200, "{policy}");
        assert!(began.elapsed() < Duration::from_secs(60), "{policy} gets on");
        is_untouched(&realm);
    }
}

#[test]
fn ordered_transactions_commit_in_their_order() {
    let place = Place::new("order");
    let realm = place.join();
    let done = std::sync::Mutex::new(Vec::new());
    let all_there = Barrier::new(5);
    std::thread::scope(|scope| {
        for sequence in (0..5).rev() {
            let (realm, done, all_there) = (&realm, &done, &all_there);
            scope.spawn(move || {
                let mut how = Begin { sequence: Some(sequence), ..Begin::default() };
                all_there.wait();
                loop {
                    let mut handle = realm.begin(&how).unwrap();
                    let ready =
                        handle.acquire(&page(1), Access::Write).and_then(|_| handle.publish());
                    if ready.is_ok() {
                        done.lock().unwrap().push(sequence);
                        return handle.finish().unwrap();
                    }
                    how.again = Some(handle.abort());
                }
            });
        }
    });
    assert_eq!(*done.lock().unwrap(), [0, 1, 2, 3, 4]);
    let over = Begin { sequence: Some(3), ..Begin::default() };
    assert_eq!(realm.begin(&over).unwrap_err(), BeginError::TurnOver { asked: 3, next: 5 });
    let reset = Begin { sequence: Some(3), reset_sequence: true, ..Begin::default() };
    realm.begin(&reset).unwrap().finish().unwrap();
    let early = Begin { sequence: Some(9), nonblock: true, ..Begin::default() };
    assert!(matches!(realm.begin(&early).unwrap().finish(), Err(AbortCause::Busy(_))));
    is_untouched(&realm);
}

#[test]
fn what_is_in_use() {
    let place = Place::new("glance");
    let realm = place.join();
    assert!(!realm.is_in_use(&page(1), Access::Write));
    let mut a = begin(&realm);
    a.acquire(&page(1), Access::Read).unwrap();
    assert!(!realm.is_in_use(&page(1), Access::Read));
    assert!(realm.is_in_use(&page(1), Access::Write));
    drop(a);
    assert!(!realm.is_in_use(&page(1), Access::Write));
}

/// Two pages with one record.
fn colliding(realm: &Realm) -> (Facet<'static>, Facet<'static>) {
    let index = realm.index_of(&page(0));
    let other = (1..).map(page).find(|other| realm.index_of(other) == index).unwrap();
    (page(0), other)
}

fn soft(realm: &Realm) -> TxHandle<'_> {
    realm.begin(&Begin { nonblock: true, soft: true, ..Begin::default() }).unwrap()
}

/// Who only shares a record with a command does not wait for it, and the command is not doomed; it
/// acquires anew what it publishes.
#[test]
fn a_collision_with_a_command_is_no_conflict() {
    let place = Place::new("collision");
    let realm = place.join();
    let (mine, other) = colliding(&realm);
    for access in [Access::Read, Access::Insert, Access::Write] {
        let mut command = soft(&realm);
        command.acquire(&mine, Access::Write).unwrap();
        // The very same is a conflict: the command is the older.
        let mut opponent = nonblocking(&realm);
        assert!(matches!(opponent.acquire(&mine, access), Err(AbortCause::Busy(_))));
        drop(opponent);
        let mut passer = nonblocking(&realm);
        assert_eq!(passer.acquire(&other, access), Ok(false));
        assert!(!command.is_doomed());
        // What is held firmly is a conflict, whatever it is.
        command.prepare().unwrap();
        let met = command.acquire(&mine, Access::Write);
        match access {
            _ if met.is_ok() => assert!(passer.is_doomed()),
            _ => assert!(matches!(met, Err(AbortCause::Busy(_) | AbortCause::Lost(_))), "{met:?}"),
        }
        drop((passer, command));
        is_untouched(&realm);
    }
    // Commands with each other, both of which read.
    let (mut a, mut b, mut c) = (soft(&realm), soft(&realm), soft(&realm));
    a.acquire(&mine, Access::Read).unwrap();
    b.acquire(&other, Access::Read).unwrap();
    // One of the two holds the very thing that is to be written, and is met; the other is not.
    assert!(matches!(c.acquire(&other, Access::Write), Err(AbortCause::Busy(_))));
    drop(b);
    c.acquire(&other, Access::Write).unwrap();
    assert!(!a.is_doomed());
    a.prepare().unwrap();
    a.publish().unwrap();
    // A command that publishes has made firm what it publishes, and nothing else.
    c.prepare().unwrap();
    c.acquire(&other, Access::Write).unwrap();
    assert_eq!(realm.statistics().collisions, 4);
    drop((a, c));
    is_untouched(&realm);
}

/// What a command is about to publish is waited for by those who share its record, too.
#[test]
fn what_is_about_to_be_published_is_held_firmly() {
    let place = Place::new("firm");
    let realm = place.join();
    let (mine, other) = colliding(&realm);
    let mut command = soft(&realm);
    command.acquire(&mine, Access::Write).unwrap();
    command.prepare().unwrap();
    command.acquire(&mine, Access::Write).unwrap();
    let mut passer = nonblocking(&realm);
    assert!(matches!(passer.acquire(&other, Access::Read), Err(AbortCause::Busy(_))));
    assert_eq!(realm.statistics().collisions, 0);
    drop((passer, command));
    is_untouched(&realm);
}

#[test]
fn a_segment_full_of_garbage_breaks_nothing() {
    let place = Place::new("garbage");
    let realm = place.join();
    for number in 0..SLOTS {
        let slot = realm.table().slot(number);
        for (i, word) in slot.label.iter().chain(&slot.home).enumerate() {
            word.store(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i as u64 + 1), Ordering::SeqCst);
        }
        slot.status.store((u64::from(number) * 0x1111_1111_1111) | 7, Ordering::SeqCst);
        slot.waiting_for.store(number * 77, Ordering::SeqCst);
        slot.id.store(u64::MAX, Ordering::SeqCst);
        slot.group.store(u32::MAX, Ordering::SeqCst);
        slot.owner.store(realm.me().word(), Ordering::SeqCst);
    }
    realm.table().board().policy.store(99, Ordering::SeqCst);
    assert_eq!(realm.policy(), Policy::OsPriority);
    let _ = (realm.members(), realm.statistics(), realm.sweep());
    let how = Begin { nonblock: true, ..Begin::default() };
    assert_eq!(realm.begin(&how).unwrap_err(), BeginError::Full);
}

/// Pins that nobody set, as after a segment was scribbled on, keep nobody out for ever.
#[test]
fn pins_of_nobody_are_taken_off() {
    let place = Place::new("pins");
    let realm = place.join();
    let running = begin(&realm);
    for number in 0..SLOTS {
        let all_but_running = !(1 << running.slot);
        realm.table().slot(number).pins.store(all_but_running, Ordering::SeqCst);
    }
    drop(nonblocking(&realm));
    drop(running);
    is_untouched(&realm);
}

/// A record that names a slot which is about to begin, and stays so: whoever does not wait is told, and
/// whoever waits is asked.
#[test]
fn a_slot_that_never_begins_is_not_waited_for_unasked() {
    let place = Place::new("never-begins");
    let realm = place.join();
    let index = realm.index_of(&page(1));
    let mut handle = nonblocking(&realm);
    let number = (handle.slot + 1) % SLOTS;
    realm.table().slot(number).owner.store(realm.me().word(), Ordering::SeqCst);
    realm.table().orec(index).store(1 << number, Ordering::SeqCst);
    assert!(matches!(handle.acquire(&page(1), Access::Write), Err(AbortCause::Busy(_))));
    drop(handle);
    let mut asked = begin(&realm).attended(|_| WaitDecision::CallOff);
    assert!(matches!(asked.acquire(&page(1), Access::Write), Err(AbortCause::CalledOff(_))));
    drop(asked);
    realm.table().orec(index).store(0, Ordering::SeqCst);
    realm.table().slot(number).owner.store(0, Ordering::SeqCst);
    is_untouched(&realm);
}

/// What is waited for without a bound is a publish: a living one that waits for nobody. A slot that only
/// says so, because it was scribbled on or its dead owner's journal can't be asked, is waited for as any
/// other.
#[test]
fn what_only_says_that_it_publishes_is_waited_for_like_others() {
    let place = Place::new("says-publishing");
    let realm = place.join();
    let index = realm.index_of(&page(1));
    let dead = {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let stat = std::fs::read(format!("/proc/{}/stat", child.id())).unwrap();
        let start = super::identity::start_and_state(&stat).unwrap().0;
        child.wait().unwrap();
        Identity::new(child.id(), start)
    };
    for (owner, waits_for, expected) in
        [(realm.me(), 0, Some(true)), (realm.me(), 5, Some(false)), (dead, 0, Some(false))]
    {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(None));
        let asked = std::sync::Arc::clone(&seen);
        let mut handle = begin(&realm).attended(move |info| {
            *asked.lock().unwrap() = Some(info.publishing);
            WaitDecision::CallOff
        });
        let number = (handle.slot + 1) % SLOTS;
        let slot = realm.table().slot(number);
        slot.owner.store(owner.word(), Ordering::SeqCst);
        slot.waiting_for.store(waits_for, Ordering::SeqCst);
        slot.status.store(Status::new(9, State::Publishing).0, Ordering::SeqCst);
        realm.table().orec(index).store(1 << number, Ordering::SeqCst);
        let stopped = handle.acquire(&page(1), Access::Write);
        assert!(matches!(stopped, Err(AbortCause::CalledOff(_))), "{stopped:?}");
        assert_eq!(*seen.lock().unwrap(), expected, "{owner:?} that waits for {waits_for}");
        drop(handle);
        slot.owner.store(0, Ordering::SeqCst);
        slot.waiting_for.store(0, Ordering::SeqCst);
        slot.waiters.store(0, Ordering::SeqCst);
        realm.table().orec(index).store(0, Ordering::SeqCst);
    }
    // Nobody's: it is not waited for at all.
    let mut handle = begin(&realm).attended(|_| WaitDecision::CallOff);
    let number = (handle.slot + 1) % SLOTS;
    realm.table().slot(number).status.store(Status::new(9, State::Publishing).0, Ordering::SeqCst);
    realm.table().orec(index).store(1 << number, Ordering::SeqCst);
    assert_eq!(handle.pass(&page(1), Access::Write), Ok(false));
    assert_eq!(handle.acquire(&page(1), Access::Write), Ok(false));
    drop(handle);
    is_untouched(&realm);
}

/// Counters and numbers that no participant writes are shown, not summed up to a crash.
#[test]
fn nonsense_in_a_slot_is_shown() {
    let place = Place::new("nonsense");
    let realm = place.join();
    let handle = begin(&realm);
    let slot = realm.table().slot(handle.slot);
    for count in [&slot.commits, &slot.aborts, &slot.work, &slot.size, &slot.start_ns] {
        count.store(u64::MAX, Ordering::SeqCst);
    }
    let other = realm.table().slot((handle.slot + 1) % SLOTS);
    other.commits.store(u64::MAX, Ordering::SeqCst);
    slot.thread.store(u32::MAX, Ordering::SeqCst);
    slot.waiting_for.store(u32::MAX - 1, Ordering::SeqCst);
    assert_eq!(realm.members().len(), 1);
    let _ = (realm.statistics(), realm.quiet());
}
