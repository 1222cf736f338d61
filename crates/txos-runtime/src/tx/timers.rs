//! Timers: set at once, and set by an abort as they would be had the transaction never been.
//!
//! | what the transaction does | what an abort does |
//! |---|---|
//! | sets or disarms a timer from before | sets it to the time at which it would have expired; if that is over, it expires at once |
//! | makes one (`timer_create`) | deletes it |
//! | deletes one from before | sets it again: it is disarmed, seems to be gone, and is deleted by the commit |
//!
//! A signal of a timer that the transaction has set, and that still waits, goes with an abort.
//!
//! Another thread may have set the timer since. Then it does not expire when the transaction has said, and is left alone. When a timer
//! expires is known as well as the clock can be read: between a moment before the kernel was asked and one after it.

use super::Tx;
use super::files::File;
use super::kernel::{self, Errno, Info, Left, Nature, OwnedFd, Sys, Timer, drop_pending};
use super::put_back::tell;
use crate::call::Call;

/// When a timer expires, as it was told at some moment.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Its clock before, and after.
    at: [u64; 2],
    left: Left,
}

impl Told {
    fn now(timer: Timer, clock: i32) -> Sys<Told> {
        let before = kernel::clock(clock)?;
        let left = kernel::timer(timer)?;
        Ok(Told { at: [before, kernel::clock(clock)?], left })
    }

    /// Whether a timer of which this was told, and now something else, has not been set in between. `doubt`: how
    /// exactly it is told, in nanoseconds.
    fn has_become(&self, now: &Told, doubt: u64) -> bool {
        let (set, left) = (self.left, now.left);
        if set.interval != left.interval {
            return false;
        }
        let [first, last] = self.at.map(|at| at.saturating_add(set.value));
        match (set.value, left.value) {
            (0, 0) => true,
            // One whose signal waits is not told of until that is taken.
            (0, _) => set.interval != 0,
            (_, 0) => first <= now.at[1].saturating_add(doubt),
            _ => {
                let [from, to] = now.at.map(|at| at.saturating_add(left.value));
                let Some(after) = to.saturating_add(doubt).checked_sub(first) else { return false };
                // The last of its times that may be meant.
                let periods = after.checked_div(set.interval).unwrap_or(0);
                from <= last
                    .saturating_add(periods.saturating_mul(set.interval))
                    .saturating_add(doubt)
            }
        }
    }
}

/// A timer from before that was set.
#[derive(Debug)]
struct Old {
    timer: Timer,
    /// Of one that a descriptor carries.
    file: Option<(File, OwnedFd)>,
    nature: Nature,
    /// Its signal waited when it was first set; of one of `setitimer`, a signal of that number.
    signalled: bool,
    /// How often it had expired, of one that a descriptor carries.
    expirations: u64,
    before: Told,
    set: Told,
}

impl Old {
    fn put_back(&self) -> Sys<()> {
        let (timer, clock) = (self.timer, self.nature.clock);
        let doubt = if is_of_processor(clock) { 10_000_000 } else { 2_000 };
        // Whoever has deleted it has it no more.
        let Ok(now) = Told::now(timer, clock) else { return Ok(()) };
        if !self.set.has_become(&now, doubt) {
            return Ok(());
        }
        // First: each signal that is taken from one that goes on makes it go on.
        if !matches!(timer, Timer::Open(_)) {
            kernel::set_timer(timer, 0, Left::default())?;
        }
        match timer {
            Timer::Interval(_) if !self.signalled => {
                drop_pending(self.nature.signal, |info| code(info) == SI_KERNEL);
            }
            Timer::Made(id) => drop_of_timer(id, self.nature.signal),
            _ => {}
        }
        // One of the time of day that was set to go for a while goes on when somebody sets the clock.
        let is_of_day =
            matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM | libc::CLOCK_TAI);
        let (given, is_interval) = (self.nature.flags, matches!(timer, Timer::Interval(_)));
        let goes_for_a_while = is_interval || is_of_day && given & libc::TFD_TIMER_ABSTIME == 0;
        let Left { value, interval } = self.before.left;
        let end = self.before.at[0].saturating_add(value);
        let (flags, value) = match value {
            // Its signal waited, and went when the transaction set it: it expires once more.
            _ if self.signalled && matches!(timer, Timer::Made(_)) => (0, 1),
            // It does not run, or its signal waits.
            0 => (0, if is_interval { interval } else { 0 }),
            _ if goes_for_a_while => (0, end.saturating_sub(kernel::clock(clock)?).max(1)),
            _ => (given | libc::TFD_TIMER_ABSTIME, end),
        };
        kernel::set_timer(timer, flags, Left { value, interval })?;
        self.give_back_expirations()
    }

    fn give_back_expirations(&self) -> Sys<()> {
        let Timer::Open(fd) = self.timer else { return Ok(()) };
        match self.expirations {
            0 => Ok(()),
            count => {
                let since = kernel::expirations(fd)?;
                kernel::set_expirations(fd, count.saturating_add(since))
            }
        }
    }
}

const SI_KERNEL: i32 = 0x80;

/// `si_code`.
fn code(info: &Info) -> i32 {
    info[1] as i32
}

/// Signals of a timer that wait are there no more.
fn drop_of_timer(id: i32, signal: i32) {
    drop_pending(signal, |info| code(info) == libc::SI_TIMER && info[2] as i32 == id);
}

/// Whether a signal of a timer waits.
fn waits_for_timer(id: i32, signal: i32) -> bool {
    let found = std::cell::Cell::new(false);
    drop_pending(signal, |info| {
        found.set(found.get() || code(info) == libc::SI_TIMER && info[2] as i32 == id);
        false
    });
    found.get()
}

fn is_of_processor(clock: i32) -> bool {
    clock < 0 || clock == libc::CLOCK_PROCESS_CPUTIME_ID
}

/// All of them.
#[derive(Debug, Default)]
pub struct Timers {
    old: Vec<Old>,
    /// Those that the transaction has made, with their signals.
    made: Vec<(i32, i32)>,
    /// Those from before that it has deleted.
    deleted: Vec<i32>,
}

impl Timers {
    /// Whether the transaction has set one that an open file carries.
    #[must_use]
    pub fn has_set(&self, file: File) -> bool {
        self.old.iter().any(|old| old.file.as_ref().is_some_and(|(of, _)| *of == file))
    }

    fn place(&self, timer: Timer, file: Option<File>) -> Option<usize> {
        self.old.iter().position(|old| match (&old.file, file) {
            (Some((of, _)), Some(file)) => *of == file,
            (None, None) => old.timer == timer,
            _ => false,
        })
    }

    /// Sets one. `file`, with a duplicate: what carries it.
    fn set(
        &mut self,
        timer: Timer,
        file: Option<(File, OwnedFd)>,
        taken: u64,
        set: impl FnOnce() -> Sys<u64>,
    ) -> Sys<u64> {
        let known = self.place(timer, file.as_ref().map(|(file, _)| *file));
        let at = known.or_else(|| {
            let nature = kernel::nature(timer)?;
            let before = Told::now(timer, nature.clock).ok()?;
            // In this order: one that expires in between is set to expire again.
            let signalled = match timer {
                Timer::Made(id) => waits_for_timer(id, nature.signal),
                _ => kernel::is_pending(nature.signal),
            };
            let expirations = match timer {
                Timer::Open(fd) => kernel::expirations(fd).ok()?.saturating_add(taken),
                _ => 0,
            };
            let set = before;
            self.old.push(Old { timer, file, nature, signalled, expirations, before, set });
            Some(self.old.len() - 1)
        });
        let answer = set();
        if answer.is_err() {
            // What another thread has set meanwhile is not the transaction's.
            self.old.truncate(if known.is_none() { at } else { None }.unwrap_or(self.old.len()));
        } else if let Some(old) = at.and_then(|at| self.old.get_mut(at))
            && let Ok(told) = Told::now(old.timer, old.nature.clock)
        {
            old.set = told;
        }
        answer
    }

    /// `timer_delete(2)`.
    fn delete(&mut self, call: &Call) -> Sys<u64> {
        let id = call.int(0);
        let timer = Timer::Made(id);
        if self.is_made(id) || kernel::nature(timer).is_none() {
            let answer = call.answer()?;
            self.made.retain(|(made, _)| *made != id);
            return Ok(answer);
        }
        self.set(timer, None, 0, || kernel::set_timer(timer, 0, Left::default()).map(|()| 0))?;
        if self.place(timer, None).is_none() {
            return call.answer(); // How far it was is not known.
        }
        self.deleted.push(id);
        Ok(0)
    }

    fn is_made(&self, id: i32) -> bool {
        self.made.iter().any(|(made, _)| *made == id)
    }

    /// `timer_create(2)`.
    fn make(&mut self, call: &Call) -> Sys<u64> {
        // `struct sigevent`: the value, the signal, how it is told.
        let event = call.pointer::<[i32; 4]>(1);
        let answer = call.answer()?;
        let signal = match event.is_null() {
            true => libc::SIGALRM,
            false => event.read().map_or(0, |event| event[2]),
        };
        if let Ok(id) = call.pointer::<i32>(2).read() {
            self.made.push((id, signal));
        }
        Ok(answer)
    }

    /// The transaction is aborted.
    pub fn put_back(&mut self) {
        for (id, signal) in std::mem::take(&mut self.made) {
            // Another thread may have deleted it.
            let _ = kernel::delete_timer(id);
            drop_of_timer(id, signal);
        }
        for old in std::mem::take(&mut self.old).into_iter().rev() {
            tell(old.put_back(), "a timer");
        }
        self.deleted.clear();
    }

    /// The transaction is committed.
    pub fn committed(&mut self) {
        for id in self.deleted.drain(..) {
            let _ = kernel::delete_timer(id);
        }
        (self.old, self.made) = (Vec::new(), Vec::new());
    }
}

/// Whether a call is about a timer that no descriptor carries.
#[must_use]
pub fn is_of_timer(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if number == libc::SYS_alarm {
        return true;
    }
    matches!(
        number,
        libc::SYS_setitimer
            | libc::SYS_timer_create
            | libc::SYS_timer_settime
            | libc::SYS_timer_gettime
            | libc::SYS_timer_getoverrun
            | libc::SYS_timer_delete
    )
}

impl Tx {
    /// A call about a timer that no descriptor carries.
    ///
    /// # Errors
    /// As the call.
    pub fn timer_call(&mut self, call: &Call) -> Sys<u64> {
        if !self.puts_back() {
            return call.answer();
        }
        let timers = &mut self.held.put_back_mut().timers;
        let id = call.int(0);
        match call.number() {
            libc::SYS_setitimer => timers.set(Timer::Interval(id), None, 0, || call.answer()),
            libc::SYS_timer_create => timers.make(call),
            libc::SYS_timer_settime
            | libc::SYS_timer_gettime
            | libc::SYS_timer_getoverrun
            | libc::SYS_timer_delete
                if timers.deleted.contains(&id) =>
            {
                Err(Errno::INVAL)
            }
            libc::SYS_timer_settime if !timers.is_made(id) => {
                timers.set(Timer::Made(id), None, 0, || call.answer())
            }
            libc::SYS_timer_delete => timers.delete(call),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_alarm => {
                let real = Timer::Interval(libc::ITIMER_REAL);
                timers.set(real, None, 0, || call.answer())
            }
            _ => call.answer(),
        }
    }

    /// `timerfd_settime(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn set_open_timer(&mut self, call: &Call) -> Sys<u64> {
        let number = call.int(0);
        let file = self.file(number)?;
        let real = self.real(number)?;
        let natively = call.with_descriptor(0, real);
        if self.fds.get(file).older.is_none() || !self.puts_back() {
            return natively.answer();
        }
        let Ok(copy) = kernel::copy_high(real) else { return natively.answer() };
        let put_back = self.held.put_back_mut();
        let taken = match put_back.timers.has_set(file) {
            true => 0,
            false => put_back.has_taken(file),
        };
        let (timer, copy) = (Timer::Open(copy), OwnedFd::of(copy));
        let answer = put_back.timers.set(timer, Some((file, copy)), taken, || natively.answer())?;
        put_back.forget_taken(file);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(from: u64, to: u64, value: u64, interval: u64) -> Told {
        Told { at: [from, to], left: Left { value, interval } }
    }

    #[test]
    fn a_timer_that_nobody_has_set_expires_when_it_was_to() {
        let set = told(100, 110, 1000, 0);
        assert!(set.has_become(&told(500, 505, 600, 0), 0));
        assert!(!set.has_become(&told(500, 505, 700, 0), 0), "it was set to a later time");
        assert!(!set.has_become(&told(500, 505, 500, 0), 0), "it was set to an earlier time");
        assert!(!set.has_become(&told(500, 505, 600, 7), 0), "it goes on now");
        assert!(!set.has_become(&told(500, 505, 0, 0), 0), "it was disarmed");
        assert!(set.has_become(&told(1200, 1205, 0, 0), 0), "it has expired");
        assert!(!set.has_become(&told(1200, 1205, 5, 0), 0), "it has expired and was set");
    }

    #[test]
    fn one_that_goes_on_expires_at_one_of_its_times() {
        let set = told(100, 101, 1000, 300);
        assert!(set.has_become(&told(200, 201, 900, 300), 0));
        assert!(set.has_become(&told(1500, 1501, 200, 300), 0));
        assert!(!set.has_become(&told(1500, 1501, 100, 300), 0));
        assert!(set.has_become(&told(1500, 1501, 150, 300), 60));
        assert!(!set.has_become(&told(200, 201, 600, 300), 0), "not before its first");
    }

    #[test]
    fn one_that_does_not_run_stays_so() {
        let none = told(1, 2, 0, 0);
        assert!(none.has_become(&told(5, 6, 0, 0), 0));
        assert!(!none.has_become(&told(5, 6, 1, 0), 0));
    }
}
