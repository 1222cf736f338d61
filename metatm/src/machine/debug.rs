//! What a debugger needs of the machine: breakpoints, single steps, and looks at memory. The run stays the same, cycle by cycle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::hart::State;
use super::mmu;
use super::{Machine, trap};

/// What a debugger wants, and where the machine has stopped.
#[derive(Debug, Default)]
pub struct Debug {
    /// Virtual addresses at which every hart stops.
    pub breakpoints: BTreeSet<u64>,
    /// The hart that stops after an instruction.
    pub step: Option<usize>,
    /// Set by somebody who wants it to stop.
    pub interrupt: Arc<AtomicBool>,
    /// The hart that stopped last.
    pub stopped: usize,
    /// The rest of a turn that was interrupted.
    pub(super) turn: Option<(usize, u64)>,
    /// The hart that stands at a breakpoint and goes on from there.
    leaves: Option<usize>,
}

impl Debug {
    /// One that wants nothing yet.
    #[must_use]
    pub fn new(interrupt: Arc<AtomicBool>) -> Debug {
        Debug { interrupt, ..Debug::default() }
    }
}

impl Machine {
    /// A turn, instruction by instruction. Gives false if it was interrupted.
    pub(super) fn turn_debugged(&mut self, hart: usize, until: u64) -> bool {
        loop {
            if self.harts[hart].look {
                trap::interrupts(&mut self.harts[hart], &mut self.bus);
                if self.harts[hart].state != State::Runs {
                    return true;
                }
            }
            let pc = self.harts[hart].pc;
            let Some(debug) = &mut self.debug else { return true };
            let leaves = debug.leaves.take_if(|l| *l == hart).is_some();
            let asked = debug.interrupt.swap(false, Ordering::Relaxed);
            if asked || debug.breakpoints.contains(&pc) && !leaves {
                return self.stop(hart, until);
            }
            let now = self.harts[hart].clock;
            let ended = self.execute(hart, now + 1);
            let over = ended || self.harts[hart].clock >= until || self.bus.ending.is_some();
            if self.debug.as_mut().is_some_and(|d| d.step.take_if(|s| *s == hart).is_some()) {
                return self.stop(hart, if over { 0 } else { until });
            }
            if over {
                return true;
            }
        }
    }

    fn stop(&mut self, hart: usize, until: u64) -> bool {
        if let Some(debug) = &mut self.debug {
            debug.stopped = hart;
            debug.leaves = Some(hart);
            debug.turn = (until > 0).then_some((hart, until));
        }
        false
    }

    /// Bytes of memory as a hart sees them; fewer than wanted if what follows is not there.
    #[must_use]
    pub fn peek(&self, hart: usize, address: u64, len: usize) -> Vec<u8> {
        let satp = self.harts[hart].csr.satp;
        (0..len as u64)
            .map_while(|i| {
                let at = mmu::look(&self.bus.ram, satp, address.wrapping_add(i))?;
                self.bus.ram.has(at, 1).then(|| self.bus.ram.load(at, 1) as u8)
            })
            .collect()
    }

    /// Writes memory as a hart sees it. Gives whether all of it was there; else nothing is written.
    pub fn poke(&mut self, hart: usize, address: u64, data: &[u8]) -> bool {
        let satp = self.harts[hart].csr.satp;
        let places: Option<Vec<u64>> = (0..data.len() as u64)
            .map(|i| {
                let at = mmu::look(&self.bus.ram, satp, address.wrapping_add(i))?;
                self.bus.ram.has(at, 1).then_some(at)
            })
            .collect();
        let Some(places) = places else { return false };
        for (at, byte) in places.into_iter().zip(data) {
            // Transactions that have it in their sets start again, as after a write of a device.
            self.bus.tm.device_writes(&mut self.bus.ram, at, 1);
            self.bus.store(at, 1, u64::from(*byte));
        }
        true
    }
}
