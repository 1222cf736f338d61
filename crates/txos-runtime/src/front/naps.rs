//! The beginning of a wait that has no descriptor: a sleep, or one at a futex.
//!
//! Most such waits are short. What is only to be done if one is long is done after its beginning: the call is made with less time,
//! and again with what is left.
#![allow(unsafe_code)] // calls with times of ours

use std::time::Duration;

use super::signals::while_waiting;
use crate::call::Call;
use crate::raw::syscall;

/// Seconds and nanoseconds, as the kernel has them.
type Time = [i64; 2];

/// How the beginning of a wait has ended.
pub enum First {
    /// With the wait: its answer.
    Over(i64),
    /// The wait goes on.
    Goes(Rest),
    /// It can't be made in parts, and has not begun.
    Whole,
}

/// What is left of a wait.
pub struct Rest {
    call: Call,
    /// The argument that says how long it is, with what is left.
    time: Option<(usize, Time)>,
}

impl Rest {
    /// The call for it. It is made as long as this is there, and in its place.
    pub fn call(&self) -> Call {
        match &self.time {
            None => self.call,
            // SAFETY: the time lives until the answer, as is said above.
            Some((at, time)) => unsafe { self.call.with_word(*at, time.as_ptr() as u64) },
        }
    }
}

/// What a futex's wait does.
const WAIT: i32 = 0;
const LOCK: i32 = 6;
const WAIT_BITS: i32 = 9;
const LOCK_BY_CLOCK: i32 = 13;
/// `FUTEX_CLOCK_REALTIME`.
const REAL_TIME: i32 = 256;

/// Waits for at most so long.
pub fn first(call: &Call, within: Duration) -> First {
    match call.number() {
        libc::SYS_nanosleep => sleep(call, 0, within),
        libc::SYS_clock_nanosleep if call.int(1) & libc::TIMER_ABSTIME == 0 => {
            sleep(call, 2, within)
        }
        libc::SYS_clock_nanosleep => until(call, 2, call.int(0), within, &[]),
        libc::SYS_futex => match call.int(1) & 0x7f {
            WAIT => at_futex(call, within),
            LOCK => until(call, 3, libc::CLOCK_REALTIME, within, &[libc::ETIMEDOUT]),
            WAIT_BITS | LOCK_BY_CLOCK => {
                let real = call.int(1) & REAL_TIME != 0;
                let clock = if real { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
                until(call, 3, clock, within, &[libc::ETIMEDOUT])
            }
            // What another call makes of it can't be asked for twice.
            _ => First::Whole,
        },
        _ => First::Whole,
    }
}

fn made(call: &Call) -> First {
    First::Over(while_waiting(|| call.make()))
}

/// A time of the program's, if it is one.
fn time_at(call: &Call, at: usize) -> Option<Duration> {
    let [seconds, rest] = call.pointer::<Time>(at).read().ok()?;
    let rest = u32::try_from(rest).ok().filter(|&rest| rest < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(seconds).ok()?, rest))
}

fn words_of(time: Duration) -> Time {
    [i64::try_from(time.as_secs()).unwrap_or(i64::MAX), i64::from(time.subsec_nanos())]
}

/// A sleep of some length.
fn sleep(call: &Call, at: usize, within: Duration) -> First {
    // Without a good one the kernel says what is wrong.
    let Some(length) = time_at(call, at).filter(|&length| length > within) else {
        return made(call);
    };
    let (some, mut left) = (words_of(within), [0_i64; 2]);
    let clock =
        if call.number() == libc::SYS_nanosleep { libc::CLOCK_MONOTONIC } else { call.int(0) };
    let words = [clock as u64, 0, some.as_ptr() as u64, left.as_mut_ptr() as u64, 0, 0];
    // SAFETY: the kernel reads the one time, and writes the other.
    let answer = while_waiting(|| unsafe { syscall(libc::SYS_clock_nanosleep, words) });
    let rest = length.saturating_sub(within);
    if answer == 0 {
        return First::Goes(Rest { call: *call, time: Some((at, words_of(rest))) });
    }
    // Interrupted: the program learns what is left of its own.
    let out = call.pointer::<Time>(at + 1);
    if answer == -i64::from(libc::EINTR) && !out.is_null() {
        let left = Duration::new(left[0].unsigned_abs(), left[1].unsigned_abs() as u32);
        if out.write(words_of(rest + left)).is_err() {
            return First::Over(-i64::from(libc::EFAULT));
        }
    }
    First::Over(answer)
}

/// A wait at a futex for some time, or for ever.
fn at_futex(call: &Call, within: Duration) -> First {
    let length = match call.word(3) {
        0 => None,
        _ => match time_at(call, 3) {
            Some(length) if length > within => Some(length),
            _ => return made(call),
        },
    };
    let some = words_of(within);
    // SAFETY: the time lives until the answer.
    let shorter = unsafe { call.with_word(3, some.as_ptr() as u64) };
    match while_waiting(|| shorter.make()) {
        answer if answer == -i64::from(libc::ETIMEDOUT) => {
            let rest = length.map(|length| (3, words_of(length.saturating_sub(within))));
            First::Goes(Rest { call: *call, time: rest })
        }
        answer => First::Over(answer),
    }
}

/// A wait until a time of a clock. `late`: what is answered when it has come, if that is an error.
fn until(call: &Call, at: usize, clock: i32, within: Duration, late: &[i32]) -> First {
    let mut now = [0_i64; 2];
    let words = [clock as u64, now.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes the time.
    if unsafe { syscall(libc::SYS_clock_gettime, words) } != 0 {
        return made(call);
    }
    let end = Duration::new(now[0].unsigned_abs(), now[1].unsigned_abs() as u32) + within;
    let is_null = call.word(at) == 0 && !late.is_empty();
    if !is_null && time_at(call, at).is_none_or(|asked| asked <= end) {
        return made(call);
    }
    let end = words_of(end);
    // SAFETY: the time lives until the answer.
    let shorter = unsafe { call.with_word(at, end.as_ptr() as u64) };
    let answer = while_waiting(|| shorter.make());
    let goes_on = match late {
        [] => answer == 0,
        late => late.iter().any(|&errno| answer == -i64::from(errno)),
    };
    if goes_on { First::Goes(Rest { call: *call, time: None }) } else { First::Over(answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: i64, words: [u64; 6]) -> Call {
        // SAFETY: what the pointers lead to lives until the answers.
        unsafe { Call::new(number, words) }
    }

    fn at<T>(value: &T) -> u64 {
        std::ptr::from_ref(value) as u64
    }

    const SHORT: Duration = Duration::from_millis(2);

    fn answer(first: First) -> i64 {
        match first {
            First::Over(answer) => answer,
            First::Goes(_) | First::Whole => panic!("it goes on"),
        }
    }

    fn rest(first: First) -> Rest {
        match first {
            First::Over(answer) => panic!("it is over: {answer}"),
            First::Whole => panic!("it has not begun"),
            First::Goes(rest) => rest,
        }
    }

    #[test]
    fn what_is_shorter_is_made_as_it_is() {
        let time: Time = [0, 1_000_000];
        assert_eq!(answer(first(&call(libc::SYS_nanosleep, [at(&time), 0, 0, 0, 0, 0]), SHORT)), 0);
        let wrong: Time = [0, -1];
        let sleep = call(libc::SYS_nanosleep, [at(&wrong), 0, 0, 0, 0, 0]);
        assert_eq!(answer(first(&sleep, SHORT)), -i64::from(libc::EINVAL));
        let word = 0_u32;
        let wait = call(libc::SYS_futex, [at(&word), 0, 0, at(&time), 0, 0]);
        assert_eq!(answer(first(&wait, SHORT)), -i64::from(libc::ETIMEDOUT));
        // Nobody waits for a word that has changed.
        let wait = call(libc::SYS_futex, [at(&word), 0, 1, 0, 0, 0]);
        assert_eq!(answer(first(&wait, SHORT)), -i64::from(libc::EAGAIN));
    }

    #[test]
    fn what_is_longer_goes_on_for_what_is_left() {
        let time: Time = [0, 5_000_000];
        let since = std::time::Instant::now();
        let sleep = call(libc::SYS_nanosleep, [at(&time), 0, 0, 0, 0, 0]);
        assert_eq!(rest(first(&sleep, SHORT)).call().make(), 0);
        assert!(since.elapsed() >= Duration::from_millis(5));
        let word = 0_u32;
        let wait = call(libc::SYS_futex, [at(&word), 0, 0, at(&time), 0, 0]);
        assert_eq!(rest(first(&wait, SHORT)).call().make(), -i64::from(libc::ETIMEDOUT));
        let mut now: Time = [0; 2];
        let clock = call(
            libc::SYS_clock_gettime,
            [libc::CLOCK_MONOTONIC as u64, (&raw mut now) as u64, 0, 0, 0, 0],
        );
        assert_eq!(clock.make(), 0);
        let end: Time = [now[0], now[1] + 5_000_000];
        let end = if end[1] < 1_000_000_000 { end } else { [end[0] + 1, end[1] - 1_000_000_000] };
        let bits = call(libc::SYS_futex, [at(&word), 9, 0, at(&end), 0, u64::from(u32::MAX)]);
        assert_eq!(rest(first(&bits, SHORT)).call().make(), -i64::from(libc::ETIMEDOUT));
        let again = call(
            libc::SYS_clock_nanosleep,
            [libc::CLOCK_MONOTONIC as u64, libc::TIMER_ABSTIME as u64, at(&end), 0, 0, 0],
        );
        assert_eq!(answer(first(&again, SHORT)), 0);
    }
}
