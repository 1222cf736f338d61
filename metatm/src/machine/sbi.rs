//! The firmware: the part of the Supervisor Binary Interface that Linux needs, answered by the simulator.
//!
//! Source: RISC-V Supervisor Binary Interface Specification, version 1.0.

use super::bus::{Bus, Ending, Stop};
use super::hart::{Hart, State};
use super::ram::Ram;

const NOT_SUPPORTED: i64 = -2;
const INVALID_PARAM: i64 = -3;
const ALREADY_AVAILABLE: i64 = -6;

/// States of other harts, as far as the firmware must know them.
#[derive(Clone, Copy, Debug)]
pub struct Others<'a> {
    /// The state of each hart at the last change of turns.
    pub states: &'a [State],
}

/// Answers a call.
///
/// # Errors
/// [`Stop::Yield`] if the hart or the machine stops.
pub fn call(hart: &mut Hart, bus: &mut Bus, others: Others<'_>) -> Result<(), Stop> {
    let (extension, function) = (hart.x[17], hart.x[16]);
    let (a0, a1, a2) = (hart.x[10], hart.x[11], hart.x[12]);
    let harts = others.states.len() as u64;
    let mask = |bits: u64, base: u64| -> u32 {
        if base == u64::MAX {
            return u32::MAX >> (32 - harts as u32);
        }
        (0..64)
            .filter(|n| bits >> n & 1 == 1 && base + n < harts)
            .fold(0, |m, n| m | 1 << (base + n))
    };
    let answer: Result<u64, i64> = match (extension, function) {
        // Base.
        (0x10, 0) => Ok(1 << 24),
        (0x10, 1) => Ok(0x4d54),
        (0x10, 2) => Ok(1),
        (0x10, 3) => Ok(u64::from(matches!(
            a0,
            0x10 | 0x5449_4d45 | 0x73_5049 | 0x5246_4e43 | 0x48_534d | 0x5352_5354
        ))),
        (0x10, 4..=6) => Ok(0),
        // Time.
        (0x5449_4d45, 0) => {
            // The turn ends: the next one is no longer than until the timer fires.
            hart.csr.timer = a0;
            (hart.x[10], hart.x[11]) = (0, 0);
            hart.instret += 1;
            return Err(Stop::Yield);
        }
        // Interrupts between harts.
        (0x73_5049, 0) => {
            bus.software |= mask(a0, a1);
            Ok(0)
        }
        // Fences on other harts; instructions are decoded anew when they are written.
        (0x5246_4e43, 0) => Ok(0),
        (0x5246_4e43, 1 | 2) => {
            bus.flush |= mask(a0, a1);
            Ok(0)
        }
        // Harts.
        (0x48_534d, 0) => match others.states.get(a0 as usize) {
            Some(State::Stopped) if bus.start[a0 as usize].is_none() => {
                bus.start[a0 as usize] = Some((a1, a2));
                Ok(0)
            }
            Some(_) => Err(ALREADY_AVAILABLE),
            None => Err(INVALID_PARAM),
        },
        (0x48_534d, 1) => {
            hart.state = State::Stopped;
            return Err(Stop::Yield);
        }
        (0x48_534d, 2) => match others.states.get(a0 as usize) {
            Some(State::Stopped) if bus.start[a0 as usize].is_some() => Ok(2),
            Some(State::Stopped) => Ok(1),
            Some(_) => Ok(0),
            None => Err(INVALID_PARAM),
        },
        // Reset.
        (0x5352_5354, 0) => {
            bus.ending = Some(match (a0, a1) {
                (_, 1) => Ending::Failed,
                (0, _) => Ending::PowerOff,
                _ => Ending::Reboot,
            });
            hart.state = State::Stopped;
            return Err(Stop::Yield);
        }
        // The console of version 0.1, for early messages.
        (1, _) => {
            bus.uart.output.push(a0 as u8);
            hart.x[10] = 0;
            return Ok(());
        }
        _ => Err(NOT_SUPPORTED),
    };
    (hart.x[10], hart.x[11]) = match answer {
        Ok(value) => (0, value),
        Err(code) => (code as u64, 0),
    };
    Ok(())
}

/// Where the kernel, the initial file system and the device tree are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// The kernel.
    pub kernel: u64,
    /// The initial file system.
    pub initrd: u64,
    /// The device tree.
    pub tree: u64,
}

/// Where a kernel is put.
pub const KERNEL: u64 = super::ram::BASE + 0x20_0000;

/// Finds places in memory for images of these sizes; `None` if they don't fit.
#[must_use]
pub fn places(ram: &Ram, kernel: u64, initrd: u64, tree: u64) -> Option<Places> {
    let end = super::ram::BASE + ram.size();
    let tree_at = end.checked_sub(tree)? & !0xfff;
    let initrd_at = tree_at.checked_sub(initrd)? & !0xfff;
    // The kernel's own data without contents lies behind it.
    (KERNEL + kernel + (8 << 20) <= initrd_at).then_some(Places {
        kernel: KERNEL,
        initrd: initrd_at,
        tree: tree_at,
    })
}
