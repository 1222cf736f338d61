//! Executes instructions.

use super::burst::{burst, compute, taken};
use super::bus::{Bus, Stop};
use super::hart::{Hart, Mode, State, status};
use super::memory::{exclusive, fetch, load, store};
use super::sbi::{self, Others};
use super::{special, trap};
use crate::isa::{Instr, Op, float};

/// Executes until the hart's clock is at `until`, or the hart waits, stalls or stops. Gives whether its turn has ended before.
pub fn run<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    until: u64,
    others: Others<'_>,
) -> bool {
    if bus.tm.live > 0 && bus.tm.doomed(hart.id).is_some() {
        trap::restart(hart, bus);
    }
    while hart.clock < until {
        if hart.look {
            trap::interrupts(hart, bus);
            if hart.state != State::Runs {
                return true;
            }
        }
        if !burst::<MODEL>(hart, bus, until) {
            return false;
        }
        let before = hart.clock;
        hart.clock += 1;
        let user = hart.mode == Mode::User;
        let pc = hart.pc;
        let done =
            fetch::<MODEL>(hart, bus).and_then(|instr| execute::<MODEL>(hart, bus, instr, others));
        if user {
            hart.user += hart.clock - before;
        } else if MODEL && !bus.watched.ranges.is_empty() {
            let cycles = hart.clock - before;
            hart.visit.instruction(&mut bus.watched, pc, hart.x[1], cycles);
        }
        match done {
            Ok(()) => hart.instret += 1,
            Err(Stop::Trap(cause, value)) => trap::take(hart, bus, cause, value),
            Err(Stop::Lost) => {
                trap::restart(hart, bus);
            }
            Err(Stop::Stall(cycles)) => {
                hart.clock += cycles;
                hart.stalled += cycles;
                return true;
            }
            Err(Stop::Yield) => return true,
        }
    }
    false
}

/// Executes one instruction.
#[inline(always)]
fn execute<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    instr: Instr,
    others: Others<'_>,
) -> Result<(), Stop> {
    use Op::*;
    let next = hart.pc.wrapping_add(instr.bytes());
    let a = hart.x[usize::from(instr.rs1 & 31)];
    let b = hart.x[usize::from(instr.rs2 & 31)];
    let imm = i64::from(instr.imm) as u64;
    let at = a.wrapping_add(imm);
    let jump = |taken: bool| if taken { hart.pc.wrapping_add(imm) } else { next };
    let value = match instr.op {
        Ld => load::<MODEL>(hart, bus, at, 8)?,
        Lw => load::<MODEL>(hart, bus, at, 4)? as i32 as u64,
        Lbu => load::<MODEL>(hart, bus, at, 1)?,
        Lhu => load::<MODEL>(hart, bus, at, 2)?,
        Lwu => load::<MODEL>(hart, bus, at, 4)?,
        Lb => load::<MODEL>(hart, bus, at, 1)? as i8 as u64,
        Lh => load::<MODEL>(hart, bus, at, 2)? as i16 as u64,
        Beq | Bne | Blt | Bge | Bltu | Bgeu => {
            hart.pc = jump(taken(instr.op, a, b));
            return Ok(());
        }
        Sd | Sw | Sh | Sb => {
            let len = match instr.op {
                Sd => 8,
                Sw => 4,
                Sh => 2,
                _ => 1,
            };
            store::<MODEL>(hart, bus, at, len, b)?;
            hart.pc = next;
            return Ok(());
        }
        Jal => {
            hart.pc = hart.pc.wrapping_add(imm);
            set(hart, instr, next);
            return Ok(());
        }
        Jalr => {
            hart.pc = at & !1;
            set(hart, instr, next);
            return Ok(());
        }
        Fence => {
            hart.pc = next;
            return Ok(());
        }
        _ => match compute(instr, hart.pc, a, b) {
            Some(value) => value,
            None => return rare::<MODEL>(hart, bus, instr, next, others),
        },
    };
    set(hart, instr, value);
    hart.pc = next;
    Ok(())
}

/// Sets the register that an instruction names.
#[inline(always)]
pub fn set(hart: &mut Hart, instr: Instr, value: u64) {
    hart.x[usize::from(instr.rd & 31)] = value;
    hart.x[0] = 0;
}

/// What is executed less often.
fn rare<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    instr: Instr,
    next: u64,
    others: Others<'_>,
) -> Result<(), Stop> {
    use Op::*;
    match instr.op {
        Flw | Fld | Fsw | Fsd => float_memory::<MODEL>(hart, bus, instr)?,
        Float => float_arithmetic(hart, instr)?,
        LrW | LrD | ScW | ScD | AmoW | AmoD => special::atomic::<MODEL>(hart, bus, instr)?,
        Csrrw | Csrrs | Csrrc | Csrrwi | Csrrsi | Csrrci => special::control(hart, bus, instr)?,
        // Instructions are decoded anew when they are written.
        FenceI => exclusive(hart, bus)?,
        SfenceVma if hart.mode == Mode::Supervisor => {
            exclusive(hart, bus)?;
            match instr.rs1 & 31 {
                0 => hart.tlb.flush(),
                register => hart.tlb.flush_page(hart.x[usize::from(register)]),
            }
        }
        Wfi if hart.mode == Mode::Supervisor => {
            exclusive(hart, bus)?;
            hart.pc = next;
            hart.state = State::Waits;
            hart.look = true;
            trap::interrupts(hart, bus);
            return if hart.state == State::Waits { Err(Stop::Yield) } else { Ok(()) };
        }
        Sret => return trap::sret(hart, bus, imm_bits(instr)),
        Ecall => {
            if hart.mode == Mode::User {
                return Err(Stop::Trap(8, 0));
            }
            exclusive(hart, bus)?;
            hart.pc = next;
            return sbi::call(hart, bus, others);
        }
        Ebreak => return Err(Stop::Trap(3, hart.pc)),
        Xbegin | Xend | Xpush | Xpop | Xrestart | Xid | Xlivesp | Xtest | Xcas => {
            return special::transactional::<MODEL>(hart, bus, instr, next);
        }
        _ => return Err(Stop::Trap(2, imm_bits(instr))),
    }
    hart.pc = next;
    Ok(())
}

fn imm_bits(instr: Instr) -> u64 {
    u64::from(instr.imm as u32)
}

fn float_memory<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    instr: Instr,
) -> Result<(), Stop> {
    if hart.csr.sstatus & status::FS == 0 {
        return Err(Stop::Trap(2, 0));
    }
    let at = hart.x[usize::from(instr.rs1 & 31)].wrapping_add(i64::from(instr.imm) as u64);
    match instr.op {
        Op::Flw => {
            let value = load::<MODEL>(hart, bus, at, 4)?;
            hart.f[usize::from(instr.rd & 31)] = value | 0xffff_ffff_0000_0000;
        }
        Op::Fld => hart.f[usize::from(instr.rd & 31)] = load::<MODEL>(hart, bus, at, 8)?,
        Op::Fsw => {
            let value = hart.f[usize::from(instr.rs2 & 31)] & 0xffff_ffff;
            store::<MODEL>(hart, bus, at, 4, value)?;
            return Ok(());
        }
        _ => {
            let value = hart.f[usize::from(instr.rs2 & 31)];
            store::<MODEL>(hart, bus, at, 8, value)?;
            return Ok(());
        }
    }
    hart.csr.sstatus |= status::FS;
    Ok(())
}

fn float_arithmetic(hart: &mut Hart, instr: Instr) -> Result<(), Stop> {
    let bits = imm_bits(instr);
    if hart.csr.sstatus & status::FS == 0 {
        return Err(Stop::Trap(2, bits));
    }
    let x = hart.x[usize::from(instr.rs1 & 31)];
    let frm = (hart.csr.fcsr >> 5 & 7) as u8;
    let Some((output, flags)) = float::execute(bits as u32, &hart.f, x, frm) else {
        return Err(Stop::Trap(2, bits));
    };
    match output {
        float::Output::Float(value) => hart.f[usize::from(instr.rd & 31)] = value,
        float::Output::Int(value) => set(hart, instr, value),
    }
    hart.csr.fcsr |= u64::from(flags);
    hart.csr.sstatus |= status::FS;
    Ok(())
}
