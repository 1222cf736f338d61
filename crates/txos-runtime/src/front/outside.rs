//! Waits for what the realm does not know: while one lasts, the thread's transaction gives way to others
//! ([`txos_engine::realm::Realm::waits_outside`]).
#![allow(unsafe_code)] // the realm, by the address that is kept for the thread

use std::time::{Duration, Instant};

use txos_engine::realm::{OutsideWait, Place, Realm};

use super::tls::{Tls, here};
use crate::call::Call;

/// Most waits are shorter, and cost nobody anything.
const SHORT: Duration = Duration::from_millis(10);

/// One that has sent what an abort can't take back is worth more. And the threads of a managed runtime stop for each other, as
/// for a collection of garbage, whatever the program waits for.
const LONG: Duration = Duration::from_secs(1);

/// So often it is doubled at the most.
const DOUBLED_MAX: u64 = 7;

/// A sleep ends by itself, and many programs sleep a little between two looks for something: only the sum counts.
const SLEEPS: Duration = Duration::from_millis(500);

/// The thread's transaction has taken a place in a realm. `managed`: as one of a managed runtime.
pub fn takes_part(realm: &'static Realm, place: Place, managed: bool) {
    let tls = here();
    if managed {
        tls.gives_way_late.set(1);
    }
    tls.realm.set(std::ptr::from_ref(realm));
    tls.place.set(place.word());
}

/// The thread's transaction has lost because it waited. Two that wait and want the same would take turns in that for ever: each
/// time it gives way later.
pub fn has_lost() {
    let lost = &here().lost;
    lost.set(lost.get() + 1);
}

/// It has committed.
pub fn has_committed() {
    here().lost.set(0);
}

/// It has sent something.
pub fn has_sent() {
    here().gives_way_late.set(1);
}

/// A call begins, which may wait several times.
#[inline]
pub fn begins(call: &Call) {
    let tls = here();
    tls.call.set(call.number() as u64);
    tls.argument.set(call.word(0));
    tls.waits_since.set(0);
}

/// How long the transaction has slept since it last found something new.
pub fn has_slept(time: Duration) {
    here().slept.set(as_ns(time));
}

/// Whether a call only lets time pass.
pub fn is_sleep(number: i64) -> bool {
    matches!(number, libc::SYS_nanosleep | libc::SYS_clock_nanosleep)
}

/// Waits, as one that gives way if that lasts.
#[inline]
pub fn waiting<R>(tls: &Tls, work: impl FnOnce() -> R) -> R {
    let Some((realm, place)) = part(tls) else { return work() };
    let call = tls.call.get();
    let wait = OutsideWait { call: u32::try_from(call).unwrap_or(0), argument: tls.argument.get() };
    let now = as_ns(since_start());
    if tls.waits_since.get() == 0 {
        tls.waits_since.set(now.max(1));
    }
    let waited = Duration::from_nanos(now.saturating_sub(tls.waits_since.get()));
    let patience = match is_sleep(call as i64) {
        true => SLEEPS.saturating_sub(Duration::from_nanos(tls.slept.get())),
        false if tls.gives_way_late.get() != 0 => LONG,
        false => SHORT * (1 << tls.lost.get().min(DOUBLED_MAX)),
    };
    realm.waits_outside(place, wait, patience.saturating_sub(waited));
    let answer = work();
    realm.goes_on(place);
    answer
}

fn part(tls: &Tls) -> Option<(&'static Realm, Place)> {
    let place = Place::from_word(tls.place.get())?;
    // SAFETY: null, or a realm that stays: it was put there by `takes_part`.
    let realm = unsafe { tls.realm.get().as_ref() }?;
    Some((realm, place))
}

fn since_start() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
