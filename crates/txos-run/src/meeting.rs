//! The transaction in the realm, while its command runs: what is looked at is acquired, and if
//! another transaction wins, the command is stopped at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use txos_engine::Conflict;
use txos_engine::commit::{Isolation, conflict};
use txos_engine::object::Facets;
use txos_engine::readset::{ReadSet, Touch};
use txos_engine::realm::{Onward, Standstill, Stop, Ticket, Watch};

use crate::error::{Result, Step};
use crate::session::channel::{Channel, Order};
use crate::warning::say;

/// A transaction's place in the realm. The realm lives as long as the process.
pub type Place = Ticket<'static>;

/// Facets that a command's reads acquire at the most. What it reads beyond is validated at commit
/// like everything, but nobody is kept from changing it meanwhile: so that one command which reads
/// the whole tree does not seem to be in everybody's way (collisions of hashes).
const READS_MAX: usize = 1 << 17;

/// How often something that changed while it was waited for is looked at again.
const RENEWALS_MAX: u32 = 16;

/// When it is said for whom a command waits.
pub const TELL_AFTER: Duration = Duration::from_secs(2);

/// The longest sleep of the thread that watches whether the transaction is doomed.
const WATCH_SLICE: Duration = Duration::from_millis(500);

/// The supervisor's side.
pub struct Meeting {
    place: Option<Place>,
    reads_count: bool,
    lost: Option<Conflict>,
}

/// A transaction's place, and why it lost if it did.
#[derive(Debug, Default)]
pub struct Left {
    /// Its place, to commit from.
    pub place: Option<Place>,
    /// What another transaction won.
    pub lost: Option<Conflict>,
}

/// Says once for whom something waits, when it has waited for long.
#[must_use]
pub fn tell_once(mut proceed: impl FnMut() -> bool + Send + 'static) -> Attendant {
    let mut told = false;
    Box::new(move |standstill| {
        if !told && standstill.waited >= TELL_AFTER {
            told = true;
            say(&format!(
                "waiting for transaction {} (since {} s; `txos top` shows who waits for whom)",
                standstill.holder,
                standstill.waited.as_secs()
            ));
        }
        if proceed() { Onward::Wait } else { Onward::CallOff }
    })
}

/// Is told of waiting, and decides whether to go on with it.
pub type Attendant = Box<dyn FnMut(&Standstill) -> Onward + Send>;

impl Meeting {
    /// A meeting of a transaction that may have no place; waits end when `over` is set.
    pub fn new(place: Option<Place>, isolation: Isolation, over: &Arc<AtomicBool>) -> Self {
        let over = Arc::clone(over);
        let mut attendant = tell_once(move || !over.load(Ordering::Acquire));
        let place = place.map(|place| place.attended(move |standstill| attendant(standstill)));
        Meeting { place, reads_count: isolation == Isolation::Serializable, lost: None }
    }

    /// Acquires what was newly observed. `false`: another transaction won, and this one is over.
    pub fn acquire_touched(&mut self, reads: &mut ReadSet) -> bool {
        let Some(place) = self.place.as_mut() else { return true };
        for touch in reads.take_touched() {
            if let Err(stop) = acquire(place, reads, &touch, self.reads_count) {
                let lost = match &stop {
                    Stop::Doomed(_) => explain(&place.watch(), reads),
                    _ => conflict(&reads.path_of(&touch), &stop),
                };
                self.lost = Some(lost);
                return false;
            }
        }
        true
    }

    /// The command has ended.
    pub fn leave(mut self, reads: &mut ReadSet) -> Left {
        if self.lost.is_none()
            && let Some(place) = self.place.as_ref().filter(|p| p.is_doomed())
        {
            self.lost = Some(explain(&place.watch(), reads));
        }
        Left { place: self.place, lost: self.lost }
    }
}

fn acquire(
    place: &mut Place,
    reads: &mut ReadSet,
    touch: &Touch,
    reads_count: bool,
) -> std::result::Result<(), Stop> {
    if place.held() >= READS_MAX && !touch.facets().intersects(Facets::WRITE) {
        return Ok(());
    }
    for _ in 0..RENEWALS_MAX {
        let mut waited = false;
        reads.facets_of(touch, reads_count, |facet, access| {
            waited |= place.acquire(facet, access)?;
            Ok(())
        })?;
        if !waited {
            break;
        }
        // It may be something else by now: nothing of it has been seen yet.
        reads.renew(touch);
    }
    Ok(())
}

/// What a doomed transaction lost: the first thing it looked at that is what the winner wanted.
#[must_use]
pub fn explain(watch: &Watch<'_>, reads: &mut ReadSet) -> Conflict {
    let all: Vec<Touch> = reads.all_touches().collect();
    let at = all.iter().find(|touch| {
        let found = reads
            .facets_of(touch, true, |facet, _| if watch.lost_at(facet) { Err(()) } else { Ok(()) });
        found.is_err()
    });
    let path = at.map_or_else(|| b"/".to_vec(), |touch| reads.path_of(touch));
    conflict(&path, &Stop::Doomed(watch.winner()))
}

/// The thread that has a command stopped as soon as its transaction is doomed.
pub struct Watcher {
    watch: Watch<'static>,
    thread: JoinHandle<()>,
    over: Arc<AtomicBool>,
}

impl Watcher {
    /// Starts it.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(place: &Place, over: &Arc<AtomicBool>, orders: Channel) -> Result<Watcher> {
        let (watch, flag) = (place.watch(), Arc::clone(over));
        let thread = std::thread::Builder::new()
            .name("txos-watcher".into())
            .spawn(move || {
                while !flag.load(Ordering::Acquire) {
                    if watch.is_doomed() {
                        // A keeper that is gone has nothing left to stop.
                        let _ = orders.send(&Order::Kill);
                        return;
                    }
                    watch.listen(WATCH_SLICE);
                }
            })
            .step("starting the thread that watches for conflicts")?;
        Ok(Watcher { watch, thread, over: Arc::clone(over) })
    }

    /// Ends it.
    pub fn finish(self) {
        self.over.store(true, Ordering::Release);
        while !self.thread.is_finished() {
            self.watch.ring();
            std::thread::yield_now();
        }
        let _ = self.thread.join();
    }
}
