//! How long a turn of waiting is, and the pause before a restart.
//!
//! # Invariants
//!
//! - Deterministic: the same arguments give the same pause. No clock, no random source; the caller
//!   brings a seed that differs between contenders (slot and start will do).
//! - [`pause`] doubles from 1 µs to 10 ms, where it stays. Jitter takes off up to a half, no more,
//!   so that a number of turns also means an amount of time: `n` turns up to the 14th are
//!   between `(2^n - 1) / 2` and `2^n - 1` µs. The policies count on that.
//! - [`before_restart`] doubles the *longest* pause from 16 µs to 10 ms; the pause is anywhere
//!   between nothing and that. Here only the spread counts: two that met must not meet again.
//! - A pause is an upper bound: who waits on a transaction is to be woken when that ends.

use std::time::Duration;

/// The first turn, before jitter.
const PAUSE_FIRST: Duration = Duration::from_micros(1);
/// The longest pause before the first restart.
const RESTART_FIRST: Duration = Duration::from_micros(16);
/// No pause is longer.
pub const LONGEST: Duration = Duration::from_millis(10);

/// How long to wait at this turn (0 is the first) before asking again: between a half of and all
/// of 1 µs × 2^turn, at most [`LONGEST`].
pub fn pause(turn: u32, seed: u64) -> Duration {
    let full = doubled(PAUSE_FIRST, turn);
    full - part(full / 2, turn, seed)
}

/// How long to wait before restart number `restarts` (1 is the first; nothing before 0, which is
/// no restart): anything up to 16 µs × 2^(restarts - 1), at most [`LONGEST`].
pub fn before_restart(restarts: u32, seed: u64) -> Duration {
    match restarts.checked_sub(1) {
        None => Duration::ZERO,
        Some(times) => part(doubled(RESTART_FIRST, times), restarts, !seed),
    }
}

/// `first`, doubled `times` times, but not beyond [`LONGEST`].
fn doubled(first: Duration, times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(LONGEST)
}

/// Some part of `whole`, evenly spread over seeds and steps; whole nanoseconds.
fn part(whole: Duration, step: u32, seed: u64) -> Duration {
    // Below 10^7 by LONGEST, so it fits.
    let most = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX - 1);
    Duration::from_nanos(mix(seed ^ mix(u64::from(step))) % (most + 1))
}

/// A number whose every bit depends on every bit of `x` (the finalizer of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: u64 = 200;
    const STEPS: [u32; 10] = [0, 1, 2, 8, 13, 14, 31, 32, 64, u32::MAX];

    #[test]
    fn a_pause_is_between_half_and_all_of_the_doubled_time() {
        for turn in STEPS {
            let micros = if turn < 14 { 1 << turn } else { 10_000 };
            let full = Duration::from_micros(micros);
            for seed in (0..SEEDS).chain([u64::MAX]) {
                let pause = pause(turn, seed);
                assert!(full / 2 <= pause && pause <= full, "turn {turn}, seed {seed}: {pause:?}");
            }
        }
    }

    #[test]
    fn the_turns_that_policies_count_take_as_long_as_they_say() {
        let longest = |turns| (0..turns).map(|turn| doubled(PAUSE_FIRST, turn)).sum::<Duration>();
        assert_eq!(longest(8), Duration::from_micros(255));
        assert_eq!(longest(12), Duration::from_micros(4_095));
        assert_eq!(longest(14), Duration::from_micros(16_383));
        assert_eq!(longest(24), Duration::from_micros(116_383));
        assert_eq!(longest(64), Duration::from_micros(516_383));
    }

    #[test]
    fn a_restart_is_delayed_by_anything_up_to_the_doubled_time() {
        for restarts in STEPS {
            let most = match restarts {
                0 => Duration::ZERO,
                1..=9 => Duration::from_micros(16 << (restarts - 1)),
                _ => LONGEST,
            };
            let all: Vec<Duration> = (0..SEEDS).map(|s| before_restart(restarts, s)).collect();
            assert!(all.iter().all(|p| *p <= most), "restart {restarts}");
            if restarts > 0 {
                assert!(all.iter().any(|p| *p < most / 8), "restart {restarts}: spread to nothing");
                assert!(all.iter().any(|p| *p > most / 8 * 7), "restart {restarts}: and to all");
            }
        }
    }

    #[test]
    fn pauses_repeat_for_a_seed_and_differ_between_seeds() {
        assert_eq!(pause(9, 7), pause(9, 7));
        assert_eq!(before_restart(9, 7), before_restart(9, 7));
        let distinct = |of: fn(u32, u64) -> Duration| {
            (0..SEEDS).map(|s| of(9, s)).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert!(distinct(pause) > 190 && distinct(before_restart) > 190);
    }
}
