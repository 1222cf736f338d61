//! Atomic instructions, control registers, and the instructions of transactional memory.

use super::bus::{Bus, Stop};
use super::csr;
use super::execute::set;
use super::hart::Hart;
use super::memory::{exclusive, load, store, translate};
use super::mmu::Kind;
use super::trap;
use crate::isa::{Instr, Op};
use crate::tm::Reason;

/// Loads with reservation, conditional stores, read-modify-write.
///
/// # Errors
/// [`Stop`].
pub fn atomic<const MODEL: bool>(hart: &mut Hart, bus: &mut Bus, instr: Instr) -> Result<(), Stop> {
    let at = hart.x[usize::from(instr.rs1 & 31)];
    let b = hart.x[usize::from(instr.rs2 & 31)];
    let len = if matches!(instr.op, Op::LrW | Op::ScW | Op::AmoW) { 4 } else { 8 };
    let lr = matches!(instr.op, Op::LrW | Op::LrD);
    if !at.is_multiple_of(len) {
        return Err(Stop::Trap(if lr { 4 } else { 6 }, at));
    }
    let signed = |value: u64| if len == 4 { i64::from(value as i32) as u64 } else { value };
    match instr.op {
        Op::LrW | Op::LrD => {
            let value = signed(load::<MODEL>(hart, bus, at, len)?);
            let physical = translate(hart, bus, Kind::Read, at)?;
            bus.reserve(hart.id, physical);
            set(hart, instr, value);
        }
        Op::ScW | Op::ScD => {
            let physical = translate(hart, bus, Kind::Write, at)?;
            let had = bus.unreserve(hart.id, physical);
            if had {
                let stored = store::<MODEL>(hart, bus, at, len, b);
                if let Err(stop) = stored {
                    // It is executed again with the reservation that it had.
                    bus.reserve(hart.id, physical);
                    return Err(stop);
                }
            }
            set(hart, instr, u64::from(!had));
        }
        _ => {
            // What can't be written is refused as a store.
            translate(hart, bus, Kind::Write, at)?;
            let old = signed(load::<MODEL>(hart, bus, at, len)?);
            let b = signed(b);
            let unsigned = |value: u64| if len == 4 { value & 0xffff_ffff } else { value };
            let new = match instr.imm {
                0 => old.wrapping_add(b),
                1 => b,
                4 => old ^ b,
                8 => old | b,
                12 => old & b,
                16 => (old as i64).min(b as i64) as u64,
                20 => (old as i64).max(b as i64) as u64,
                24 => unsigned(old).min(unsigned(b)),
                _ => unsigned(old).max(unsigned(b)),
            };
            store::<MODEL>(hart, bus, at, len, new)?;
            set(hart, instr, old);
        }
    }
    Ok(())
}

/// `sstatus` can be changed in a transaction: it is part of its checkpoint.
const SSTATUS: u32 = 0x100;

/// Reads and writes a control register.
///
/// # Errors
/// [`Stop`].
pub fn control(hart: &mut Hart, bus: &mut Bus, instr: Instr) -> Result<(), Stop> {
    let number = instr.imm as u32 & 0xfff;
    let immediate = matches!(instr.op, Op::Csrrwi | Op::Csrrsi | Op::Csrrci);
    let source = if immediate { u64::from(instr.rs1) } else { hart.x[usize::from(instr.rs1 & 31)] };
    let replaces = matches!(instr.op, Op::Csrrw | Op::Csrrwi);
    let writes = replaces || instr.rs1 & 31 != 0;
    if writes && !(1..=3).contains(&number) && number != SSTATUS {
        exclusive(hart, bus)?;
    }
    let illegal = Stop::Trap(2, 0);
    let external = number == 0x144 && bus.plic.asks(hart.id);
    let old = csr::read(hart, number, bus.tick, external).ok_or(illegal)?;
    if writes {
        // The bit of software interrupts alone is changed, not what else waits.
        let new = match instr.op {
            Op::Csrrw | Op::Csrrwi => source,
            Op::Csrrs | Op::Csrrsi => old | source,
            _ => old & !source,
        };
        csr::write(hart, number, new).ok_or(illegal)?;
        if number == 0x144 && !hart.software {
            bus.software &= !(1 << hart.id);
        }
    }
    set(hart, instr, old);
    Ok(())
}

/// The instructions of transactional memory.
///
/// # Errors
/// [`Stop`].
pub fn transactional<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    instr: Instr,
    next: u64,
) -> Result<(), Stop> {
    let a = hart.x[usize::from(instr.rs1 & 31)];
    let b = hart.x[usize::from(instr.rs2 & 31)];
    let value = match instr.op {
        Op::Xbegin => {
            let checkpoint = hart.checkpoint(next, instr.rd);
            let priority = hart.csr.xprio as i32;
            bus.tm.begin(checkpoint, hart.id, hart.clock, hart.in_interrupt(), priority);
            bus.tm.mark(hart.id, hart.mark());
            0
        }
        Op::Xend => {
            let committed = bus
                .tm
                .end(hart.id, hart.clock)
                .ok_or(Stop::Trap(2, u64::from(instr.imm as u32)))?;
            if committed {
                hart.clock += bus.tm.config.commit_cycles;
            }
            hart.pc = next;
            return Ok(());
        }
        Op::Xpush => {
            trap::push(hart, bus);
            hart.pc = next;
            return Ok(());
        }
        Op::Xpop => {
            hart.pc = next;
            trap::pop(hart, bus);
            return Ok(());
        }
        Op::Xrestart => {
            let reason = Reason::Asked((a & 0xff) as u8);
            if bus.tm.doom(&mut bus.ram, hart.id, reason) {
                return Err(Stop::Lost);
            }
            hart.pc = next;
            return Ok(());
        }
        Op::Xid => bus.tm.running(hart.id).map_or(0, |tx| tx.number),
        Op::Xlivesp => bus.tm.live_sp(hart.id, a),
        Op::Xtest => {
            let at = translate(hart, bus, Kind::Read, a)?;
            // A look outside of the sets; what fits is read again, into them.
            if bus.ram.has(at, 4) && bus.ram.load(at, 4) == b & 0xffff_ffff {
                u64::from(load::<MODEL>(hart, bus, a, 4)? == b & 0xffff_ffff)
            } else {
                0
            }
        }
        _ => return cas::<MODEL>(hart, bus, instr, next),
    };
    set(hart, instr, value);
    hart.pc = next;
    Ok(())
}

/// `xcas`: takes a lock for one who can't do with a transaction. Transactions that have looked at the lock may go first for some
/// time; then they start again.
fn cas<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    instr: Instr,
    next: u64,
) -> Result<(), Stop> {
    exclusive(hart, bus)?;
    let a = hart.x[usize::from(instr.rs1 & 31)];
    let b = hart.x[usize::from(instr.rs2 & 31)];
    let at = translate(hart, bus, Kind::Write, a)?;
    let gives_way = bus.tm.live > 0 && bus.tm.holds(at) && hart.cas < bus.tm.config.cas_patience;
    let taken = if gives_way {
        hart.cas += 1;
        false
    } else {
        hart.cas = 0;
        let free = load::<MODEL>(hart, bus, a, 4)? == 0;
        if free {
            store::<MODEL>(hart, bus, a, 4, b)?;
        }
        free
    };
    set(hart, instr, u64::from(taken));
    hart.pc = next;
    Ok(())
}
