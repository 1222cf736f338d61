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
use txos_engine::realm::{AbortCause, Access, Opponent, TxHandle, WaitDecision, WaitInfo, Watch};
use txos_engine::runs::Predecessors;
use txos_engine::txn::Attendant;

use crate::error::{Result, Step};
use crate::session::channel::{Channel, Order};
use crate::warning::say;

/// A transaction's handle in the realm. The realm lives as long as the process.
pub type Handle = TxHandle<'static>;

/// Facets that a command's reads acquire at the most. What it reads beyond is validated at commit
/// like everything, and not looked at while it is being published, but nobody is kept from changing
/// it: so that one command which reads the whole tree does not seem to be in everybody's way
/// (collisions of hashes: 1 in 128 for each thing somebody else changes).
const READS_MAX: usize = 1 << 13;

/// How often something that may have changed while it was waited for is looked at again. What still
/// changes then is validated at commit like everything.
const LOOKS_MAX: u32 = 4;

/// When it is said for whom a command waits.
pub const REPORT_AFTER: Duration = Duration::from_secs(2);

/// The longest sleep of the thread that watches whether the transaction is doomed.
const WATCH_SLICE: Duration = Duration::from_millis(500);

/// The supervisor's side.
pub struct Participant {
    handle: Option<Handle>,
    reads_count: bool,
    /// It has waited for as long as it may: from now on only publishes are waited for.
    impatient: Arc<AtomicBool>,
    lost: Option<Conflict>,
}

/// A transaction's handle, and why it lost if it did.
#[derive(Debug, Default)]
pub struct Left {
    /// Its handle, to commit from.
    pub handle: Option<Handle>,
    /// What another transaction won.
    pub lost: Option<Conflict>,
}

/// Says once for whom something waits, when it has waited for long; calls the wait off after
/// `patience`, unless it is for one of the runs that it comes `after`, or when `proceed` says no.
#[must_use]
pub fn report_once(
    patience: Duration,
    after: Predecessors,
    mut proceed: impl FnMut(&WaitInfo) -> bool + Send + 'static,
) -> Attendant {
    let mut said = false;
    Box::new(move |info| {
        if !said && info.waited >= REPORT_AFTER {
            said = true;
            say(&format!(
                "waiting for transaction {} (since {} s; `txos top` shows who waits for whom)",
                info.holder,
                info.waited.as_secs()
            ));
        }
        let patient =
            info.publishing || info.waited < patience || after.pids().contains(&info.holder.pid);
        if patient && proceed(info) { WaitDecision::Wait } else { WaitDecision::CallOff }
    })
}

impl Participant {
    /// Takes part with a transaction that may have no handle; no wait is longer than `patience`, or goes
    /// on when `over` is set.
    pub fn new(
        handle: Option<Handle>,
        isolation: Isolation,
        patience: Duration,
        after: Predecessors,
        over: &Arc<AtomicBool>,
    ) -> Self {
        let over = Arc::clone(over);
        let impatient = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&impatient);
        let mut attendant = report_once(patience, after, move |info| {
            let waits = info.publishing || !flag.load(Ordering::Acquire);
            waits && !over.load(Ordering::Acquire)
        });
        let handle = handle.map(|handle| handle.attended(move |info| attendant(info)));
        let reads_count = isolation == Isolation::Serializable;
        Participant { handle, reads_count, impatient, lost: None }
    }

    /// Whether another transaction won, and this one is over.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Acquires what was newly observed. If that had to wait, it is observed anew.
    pub fn acquire_touched(&mut self, reads: &mut ReadSet) {
        let Some(handle) = self.handle.as_mut() else { return };
        for _ in 0..LOOKS_MAX {
            let touches = reads.touched();
            let (mut waited, mut gave_up) = (false, false);
            for touch in &touches {
                match acquire(handle, reads, touch, self.reads_count) {
                    Ok(had_to_wait) => waited |= had_to_wait,
                    Err(AbortCause::Doomed(_)) => {
                        self.lost = Some(explain(&handle.watch(), reads));
                        return;
                    }
                    // It gives way, or has waited for long: it goes on without holding it. The
                    // commit validates what it read, and acquires what it changes.
                    Err(_) => gave_up = true,
                }
            }
            if waited || gave_up {
                reads.look_again(&touches);
            } else {
                reads.keep(touches);
            }
            if gave_up {
                self.impatient.store(true, Ordering::Release);
            }
            if gave_up || !waited {
                break;
            }
        }
    }

    /// Acquires what was observed ahead, if nobody has to be waited for; whether it did.
    pub fn acquire_ahead(
        &mut self,
        reads: &mut ReadSet,
        dir: u32,
        name: &[u8],
        facets: Facets,
    ) -> bool {
        let Some(handle) = self.handle.as_mut() else { return true };
        let only_passes = !self.reads_count || handle.held() >= READS_MAX;
        let acquired = reads.facets_ahead(dir, name, facets, |facet, access| {
            if handle.realm().is_in_use(facet, access) {
                return Err(());
            }
            let waited = match only_passes {
                true => handle.pass(facet, access),
                false => handle.acquire(facet, access),
            };
            // Who came between was waited for: what was observed before may be old.
            if waited == Ok(false) { Ok(()) } else { Err(()) }
        });
        acquired.is_ok()
    }

    /// The command has ended.
    pub fn leave(mut self, reads: &mut ReadSet) -> Left {
        if self.lost.is_none()
            && let Some(handle) = self.handle.as_ref().filter(|p| p.is_doomed())
        {
            self.lost = Some(explain(&handle.watch(), reads));
        }
        Left { handle: self.handle, lost: self.lost }
    }
}

/// Whether it had to wait.
fn acquire(
    handle: &mut Handle,
    reads: &mut ReadSet,
    touch: &Touch,
    reads_count: bool,
) -> std::result::Result<bool, AbortCause> {
    let passes = handle.held() >= READS_MAX && !touch.facets().intersects(Facets::WRITE);
    let mut waited = false;
    reads.facets_of(touch, true, |facet, access| {
        let only_passes = access == Access::Read && (passes || !reads_count);
        waited |= match only_passes {
            true => handle.pass(facet, access)?,
            false => handle.acquire(facet, access)?,
        };
        Ok(())
    })?;
    Ok(waited)
}

/// What a doomed transaction lost, for people.
fn explain(watch: &Watch<'_>, reads: &mut ReadSet) -> Conflict {
    txos_engine::commit::explain(watch, reads)
        .unwrap_or_else(|| conflict(b"/", &AbortCause::Doomed(watch.winner())))
}

/// The thread that has a command stopped as soon as its transaction is doomed.
pub struct Watcher {
    watch: Watch<'static>,
    thread: JoinHandle<Option<Opponent>>,
    over: Arc<AtomicBool>,
}

impl Watcher {
    /// Starts it.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(handle: &Handle, over: &Arc<AtomicBool>, orders: Channel) -> Result<Watcher> {
        let (watch, flag) = (handle.watch(), Arc::clone(over));
        let thread = std::thread::Builder::new()
            .name("txos-watcher".into())
            .spawn(move || {
                while !flag.load(Ordering::Acquire) {
                    if watch.is_doomed() {
                        // A reaper that is gone has nothing left to stop.
                        let _ = orders.send(&Order::Kill);
                        return Some(watch.winner());
                    }
                    watch.listen(WATCH_SLICE);
                }
                None
            })
            .step("starting the thread that watches for conflicts")?;
        Ok(Watcher { watch, thread, over: Arc::clone(over) })
    }

    /// Ends it. Gives the conflict for which it had the command stopped, if it had.
    ///
    /// The realm may no longer say so: a process that may write to the realm may have written over the
    /// word. The command was stopped for a conflict all the same, and not by a stranger's signal.
    pub fn finish(self) -> Option<Conflict> {
        self.over.store(true, Ordering::Release);
        while !self.thread.is_finished() {
            self.watch.ring();
            std::thread::yield_now();
        }
        let winner = self.thread.join().ok().flatten()?;
        Some(conflict(b"/", &AbortCause::Doomed(winner)))
    }
}

#[cfg(test)]
mod tests {
    use txos_engine::object::FileId;
    use txos_engine::realm::{Begin, DeadPublish, Facet, Realm, Unresolved};

    use super::*;
    use crate::session::channel;

    #[test]
    fn the_watcher_remembers_why_it_had_the_command_stopped() {
        let dir = std::env::temp_dir().join(format!("txos-watcher-{}", std::process::id()));
        let nobody = |_: &DeadPublish| Err(Unresolved("nobody publishes here".into()));
        let realm: &'static Realm =
            Box::leak(Box::new(Realm::join(&dir, "test", &dir, Box::new(nobody)).unwrap()));
        let begin = || realm.begin(&Begin::default()).unwrap();
        let page = Facet::Page { file: FileId { dev: 1, ino: 1 }, number: 0 };
        for loses in [true, false] {
            let (mut older, mut command) = (begin(), begin());
            let (monitor, reaper) = channel::pair().unwrap();
            let over = Arc::new(AtomicBool::new(false));
            let watcher = Watcher::start(&command, &over, monitor).unwrap();
            if loses {
                command.acquire(&page, Access::Write).unwrap();
                older.acquire(&page, Access::Write).unwrap();
                let order = reaper.receive::<Order>(true).unwrap().map(|(order, _)| order);
                assert!(matches!(order, Some(Order::Kill)), "{order:?}");
            }
            // The realm no longer says that the command is doomed.
            drop(command);
            let conflict = watcher.finish();
            assert_eq!(conflict.is_some(), loses);
            if let Some(conflict) = conflict {
                let winner = format!("process {}", std::process::id());
                assert!(conflict.to_string().contains(&winner), "{conflict}");
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
