//! Timers of the process, and counters that descriptors carry.

use super::signals::number_in;
use super::{Errno, Sys, sys};

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// One of `setitimer(2)`, by its number.
    Interval(i32),
    /// One of `timer_create(2)`, by its number.
    Made(i32),
    /// One of `timerfd_create(2)`, by a descriptor.
    Open(i32),
}

/// When a timer expires, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// From now; 0: it does not run.
    pub value: u64,
    /// From then on, again and again; 0: once.
    pub interval: u64,
}

/// How a timer goes.
#[derive(Clone, Copy, Debug)]
pub struct Nature {
    /// Its clock.
    pub clock: i32,
    /// Of one that a descriptor carries: with which flags it was set.
    pub flags: i32,
    /// The signal that it sends; 0: none.
    pub signal: i32,
}

const SECOND: u64 = 1_000_000_000;

/// How far a timer is.
///
/// # Errors
/// As `getitimer(2)`, `timer_gettime(2)`, `timerfd_gettime(2)`.
pub fn timer(timer: Timer) -> Sys<Left> {
    // Interval and value: seconds, and nanoseconds or microseconds.
    let mut told = [0_u64; 4];
    let at = told.as_mut_ptr();
    // SAFETY: the kernel writes the two times.
    unsafe {
        match timer {
            Timer::Interval(which) => sys!(SYS_getitimer, which, at),
            Timer::Made(id) => sys!(SYS_timer_gettime, id, at),
            Timer::Open(fd) => sys!(SYS_timerfd_gettime, fd, at),
        }
    }?;
    let [interval, value] = [[told[0], told[1]], [told[2], told[3]]].map(|[seconds, rest]| {
        let rest = if let Timer::Interval(_) = timer { rest * 1000 } else { rest };
        seconds.saturating_mul(SECOND).saturating_add(rest)
    });
    Ok(Left { value, interval })
}

/// Sets a timer; with the flag `TIMER_ABSTIME`, to a time of its clock.
///
/// # Errors
/// As `setitimer(2)`, `timer_settime(2)`, `timerfd_settime(2)`.
pub fn set_timer(timer: Timer, flags: i32, to: Left) -> Sys<()> {
    let unit = if let Timer::Interval(_) = timer { 1000 } else { 1 };
    // What is left of a time is some time.
    let [[a, b], [c, d]] = [to.interval, to.value].map(|time| {
        let time = time.div_ceil(unit);
        [time / (SECOND / unit), time % (SECOND / unit)]
    });
    let new = [a, b, c, d];
    // SAFETY: the kernel reads the two times, and tells nothing.
    unsafe {
        match timer {
            Timer::Interval(which) => sys!(SYS_setitimer, which, new.as_ptr(), 0),
            Timer::Made(id) => sys!(SYS_timer_settime, id, flags, new.as_ptr(), 0),
            Timer::Open(fd) => sys!(SYS_timerfd_settime, fd, flags, new.as_ptr(), 0),
        }
    }
    .map(drop)
}

/// `timer_delete(2)`.
///
/// # Errors
/// EINVAL.
pub fn delete_timer(id: i32) -> Sys<()> {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_timer_delete, id) }.map(drop)
}

/// What a clock says, in nanoseconds.
///
/// # Errors
/// As `clock_gettime(2)`.
pub fn clock(clock: i32) -> Sys<u64> {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes the time.
    unsafe { sys!(SYS_clock_gettime, clock, time.as_mut_ptr()) }?;
    Ok(time[0].saturating_mul(SECOND).saturating_add(time[1]))
}

/// How a timer goes; `None`: there is no such timer, or the kernel does not tell.
#[must_use]
pub fn nature(timer: Timer) -> Option<Nature> {
    /// The process's time on processors: of its own code, and all of it.
    const OWN: i32 = -7;
    const ALL: i32 = -8;
    match timer {
        Timer::Interval(which) => {
            let (clock, signal) = match which {
                libc::ITIMER_REAL => (libc::CLOCK_MONOTONIC, libc::SIGALRM),
                libc::ITIMER_VIRTUAL => (OWN, libc::SIGVTALRM),
                libc::ITIMER_PROF => (ALL, libc::SIGPROF),
                _ => return None,
            };
            Some(Nature { clock, flags: 0, signal })
        }
        Timer::Made(id) => {
            let text = std::fs::read_to_string("/proc/self/timers").ok()?;
            let mut lines = text.lines().skip_while(|line| *line != format!("ID: {id}")).skip(1);
            let mut after = |name| lines.next()?.strip_prefix(name);
            let signal = after("signal: ")?.split('/').next()?.parse().ok()?;
            let notice = after("notify: ")?;
            let clock = after("ClockID: ")?.parse().ok()?;
            let signal = if notice.starts_with("none") { 0 } else { signal };
            // It is that of the thread that has made it, whichever that is.
            (clock != libc::CLOCK_THREAD_CPUTIME_ID).then_some(Nature { clock, flags: 0, signal })
        }
        Timer::Open(fd) => {
            let info = info_of(fd);
            let clock = number_in(&info, "clockid:")?;
            Some(Nature { clock, flags: number_in(&info, "settime flags:")?, signal: 0 })
        }
    }
}

/// Where the kernel tells of an open file.
fn info_of(fd: i32) -> String {
    format!("/proc/thread-self/fdinfo/{fd}")
}

/// How often a timer that a descriptor carries has expired since somebody has read that.
///
/// # Errors
/// As `timerfd_gettime(2)`; EIO if /proc can't be read.
pub fn expirations(fd: i32) -> Sys<u64> {
    // It is only counted when somebody asks.
    timer(Timer::Open(fd))?;
    number_in(&info_of(fd), "ticks:").ok_or(Errno::IO)
}

/// The same, to be set; not 0.
///
/// # Errors
/// ENOTTY if the kernel has no such request.
pub fn set_expirations(fd: i32, count: u64) -> Sys<()> {
    const TFD_IOC_SET_TICKS: u64 = 0x4008_5400;
    // SAFETY: the kernel reads the one number.
    unsafe { sys!(SYS_ioctl, fd, TFD_IOC_SET_TICKS, &raw const count) }.map(drop)
}

/// Adds to a counter of `eventfd(2)`, without waiting.
///
/// # Errors
/// EAGAIN if the counter can't take it.
pub fn add_to_counter(fd: i32, value: u64) -> Sys<()> {
    let text = std::fs::read_to_string(info_of(fd)).map_err(|_| Errno::IO)?;
    let count = text.lines().find_map(|line| line.strip_prefix("eventfd-count:"));
    let count = count.and_then(|count| u64::from_str_radix(count.trim(), 16).ok());
    match count.and_then(|count| count.checked_add(value)) {
        Some(sum) if sum < u64::MAX => super::write(fd, &value.to_ne_bytes()).map(drop),
        _ => Err(Errno::AGAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::kernel::OwnedFd;

    #[test]
    fn a_timer_is_set_to_what_it_was() {
        // SAFETY: they have no pointers.
        let fd =
            unsafe { OwnedFd::of(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC)) };
        let open = Timer::Open(fd.number());
        assert_eq!(timer(open), Ok(Left::default()));
        let hour = Left { value: 3600 * SECOND, interval: 7 };
        set_timer(open, 0, hour).unwrap();
        let left = timer(open).unwrap();
        assert!(left.value <= hour.value && left.value > hour.value - 100 * SECOND, "{left:?}");
        assert_eq!(left.interval, 7);
        let nature = nature(open).unwrap();
        assert_eq!((nature.clock, nature.flags), (libc::CLOCK_MONOTONIC, 0));
        assert_eq!(expirations(fd.number()), Ok(0));
        set_timer(open, libc::TFD_TIMER_ABSTIME, Left { value: 1, interval: 0 }).unwrap();
        assert_eq!(expirations(fd.number()), Ok(1));
    }

    #[test]
    fn a_counter_takes_no_more_than_it_can() {
        // SAFETY: it has no pointers.
        let fd = unsafe { OwnedFd::of(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        assert_eq!(add_to_counter(fd.number(), u64::MAX - 1), Ok(()));
        assert_eq!(add_to_counter(fd.number(), 1), Err(Errno::AGAIN));
    }

    #[test]
    fn clocks_of_timers_are_known() {
        for which in [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF] {
            let one = Timer::Interval(which);
            assert!(clock(nature(one).unwrap().clock).is_ok(), "{which}");
        }
        assert!(nature(Timer::Interval(3)).is_none());
        assert!(nature(Timer::Made(0x3fff_ffff)).is_none());
    }
}
