//! Traps: exceptions, interrupts, the return, and what they do to a transaction.

use super::bus::{Bus, Stop};
use super::csr;
use super::hart::{Hart, Mode, State, status};
use super::memory::exclusive;
use crate::tm::Reason;

/// Bit of `scause` that says interrupt.
const INTERRUPT: u64 = 1 << 63;

/// Takes a trap.
pub fn take(hart: &mut Hart, bus: &mut Bus, cause: u64, value: u64) {
    if bus.tm.live > 0 && bus.tm.in_tx(hart.id) {
        match hart.mode {
            // A program's transaction ends here: the kernel may run another program before it returns.
            Mode::User => {
                bus.tm.doom(&mut bus.ram, hart.id, Reason::Trap);
                restart(hart, bus);
                bus.tm.abandon(hart.id);
            }
            Mode::Supervisor if bus.tm.config.traps_push => push(hart, bus),
            Mode::Supervisor => {}
        }
    } else if bus.tm.config.traps_push {
        bus.tm.push(hart.id, None);
    }
    let was = hart.csr.sstatus;
    let mut now = was & !(status::SIE | status::SPIE | status::SPP);
    if was & status::SIE != 0 {
        now |= status::SPIE;
    }
    if hart.mode == Mode::Supervisor {
        now |= status::SPP;
    }
    hart.csr.sstatus = now;
    hart.csr.scause = cause;
    hart.csr.sepc = hart.pc;
    hart.csr.stval = value;
    hart.mode = Mode::Supervisor;
    let interrupt = cause & INTERRUPT != 0;
    let base = hart.csr.stvec & !3;
    hart.pc =
        if interrupt && hart.csr.stvec & 1 == 1 { base + 4 * (cause & !INTERRUPT) } else { base };
    hart.tlb.context(hart.mode, hart.csr.sstatus);
    hart.interrupts += u64::from(interrupt);
    // What it is in, to tell transactions of interrupts; threads that end in a trap leave some behind.
    if hart.traps.len() > 256 {
        hart.traps.clear();
    }
    hart.traps.push(interrupt);
}

/// Suspends the transaction.
pub fn push(hart: &mut Hart, bus: &mut Bus) {
    let dead = bus.tm.running(hart.id).and_then(|tx| {
        let sp = hart.x[2].min(tx.checkpoint.x[2]);
        let bottom = sp & !(bus.tm.config.stack_bytes - 1);
        // Kernel stacks lie in one piece.
        let physical = hart.tlb.look_up(super::mmu::Kind::Write, sp)?;
        let page_bottom = physical.checked_sub((sp - bottom).min(physical % super::ram::PAGE))?;
        Some((page_bottom, physical))
    });
    bus.tm.push(hart.id, dead);
}

/// Takes up what was suspended; what is doomed starts again.
pub fn pop(hart: &mut Hart, bus: &mut Bus) {
    bus.tm.pop(hart.id);
    restart(hart, bus);
}

/// Starts the hart's transaction again, if it is doomed. Gives whether it was.
pub fn restart(hart: &mut Hart, bus: &mut Bus) -> bool {
    let Some((checkpoint, status, cycles)) = bus.tm.restart(hart.id, hart.clock, hart.mark())
    else {
        return false;
    };
    hart.go_back(&checkpoint, status);
    hart.clock += cycles;
    true
}

/// Returns from a trap.
///
/// # Errors
/// [`Stop::Trap`] in user mode.
pub fn sret(hart: &mut Hart, bus: &mut Bus, bits: u64) -> Result<(), Stop> {
    if hart.mode == Mode::User {
        return Err(Stop::Trap(2, bits));
    }
    if bus.tm.config.traps_push {
        exclusive(hart, bus)?;
    }
    let was = hart.csr.sstatus;
    hart.mode = if was & status::SPP != 0 { Mode::Supervisor } else { Mode::User };
    let mut now = was & !(status::SIE | status::SPP) | status::SPIE;
    if was & status::SPIE != 0 {
        now |= status::SIE;
    }
    hart.csr.sstatus = now;
    hart.pc = hart.csr.sepc;
    hart.tlb.context(hart.mode, hart.csr.sstatus);
    hart.look = true;
    hart.traps.pop();
    if bus.tm.config.traps_push {
        pop(hart, bus);
    }
    Ok(())
}

/// Takes an interrupt, if one waits and is enabled; a hart that waits for one wakes up.
pub fn interrupts(hart: &mut Hart, bus: &mut Bus) {
    hart.look = false;
    let external = !bus.plic.is_quiet() && bus.plic.asks(hart.id);
    let waiting = csr::pending(hart, bus.tick, external) & hart.csr.sie;
    if waiting == 0 {
        return;
    }
    if hart.state == State::Waits {
        hart.state = State::Runs;
    }
    let enabled = hart.mode == Mode::User || hart.csr.sstatus & status::SIE != 0;
    if !enabled {
        return;
    }
    // External first, then software, then the timer.
    let number = [9, 1, 5].into_iter().find(|n| waiting >> n & 1 == 1).unwrap_or(5);
    take(hart, bus, INTERRUPT | number, 0);
}
