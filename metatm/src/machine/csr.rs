//! Control registers: which there are, and what reading and writing them does.

use super::hart::{Hart, Mode, interrupt, status};

/// Number of the custom register that holds the priority of the thread that runs.
pub const XPRIO: u32 = 0x5c0;

/// Time as `time` shows it.
#[must_use]
pub fn time(hart: &Hart, tick: u64) -> u64 {
    hart.clock / tick
}

/// Interrupts that wait. `external` says whether a device asks this hart.
#[must_use]
pub fn pending(hart: &Hart, tick: u64, external: bool) -> u64 {
    let mut bits = 0;
    if hart.software {
        bits |= interrupt::SOFTWARE;
    }
    if time(hart, tick) >= hart.csr.timer {
        bits |= interrupt::TIMER;
    }
    if external {
        bits |= interrupt::EXTERNAL;
    }
    bits
}

/// Reads one; `None` if there is none that this mode may read.
#[must_use]
pub fn read(hart: &Hart, number: u32, tick: u64, external: bool) -> Option<u64> {
    if (number >> 8 & 3) > hart.mode as u32 {
        return None;
    }
    let c = &hart.csr;
    let float = || (c.sstatus & status::FS != 0).then_some(c.fcsr);
    Some(match number {
        0x001 => float()? & 31,
        0x002 => float()? >> 5 & 7,
        0x003 => float()?,
        0x100 => hart.sstatus(),
        0x104 => c.sie,
        0x105 => c.stvec,
        0x106 => c.scounteren,
        0x140 => c.sscratch,
        0x141 => c.sepc,
        0x142 => c.scause,
        0x143 => c.stval,
        0x144 => pending(hart, tick, external),
        0x180 => c.satp,
        XPRIO => c.xprio,
        0xc00..=0xc02 => {
            if hart.mode == Mode::User && c.scounteren >> (number & 3) & 1 == 0 {
                return None;
            }
            match number {
                0xc00 => hart.clock,
                0xc01 => time(hart, tick),
                _ => hart.instret,
            }
        }
        _ => return None,
    })
}

/// Writes one; `None` if there is none that this mode may write.
pub fn write(hart: &mut Hart, number: u32, value: u64) -> Option<()> {
    if number >> 10 == 3 || (number >> 8 & 3) > hart.mode as u32 {
        return None;
    }
    if (1..=3).contains(&number) {
        if hart.csr.sstatus & status::FS == 0 {
            return None;
        }
        hart.csr.sstatus |= status::FS;
    }
    let c = &mut hart.csr;
    match number {
        0x001 => c.fcsr = c.fcsr & !31 | value & 31,
        0x002 => c.fcsr = c.fcsr & 31 | (value & 7) << 5,
        0x003 => c.fcsr = value & 0xff,
        0x100 => {
            c.sstatus = value & status::WRITABLE;
            hart.tlb.context(hart.mode, hart.csr.sstatus);
            hart.look = true;
        }
        0x104 => {
            c.sie = value & (interrupt::SOFTWARE | interrupt::TIMER | interrupt::EXTERNAL);
            hart.look = true;
        }
        // Only direct and vectored.
        0x105 => c.stvec = value & !2,
        0x106 => c.scounteren = value & 7,
        0x140 => c.sscratch = value,
        0x141 => c.sepc = value & !1,
        0x142 => c.scause = value,
        0x143 => c.stval = value,
        0x144 => {
            hart.software = value & interrupt::SOFTWARE != 0;
            hart.look = true;
        }
        0x180 => {
            // Bare or Sv39, without address space identifiers; another mode is not taken.
            if matches!(value >> 60, 0 | 8) {
                c.satp = value & !(0xffff << 44);
                hart.tlb.flush();
            }
        }
        XPRIO => c.xprio = value,
        _ => return None,
    }
    Some(())
}
