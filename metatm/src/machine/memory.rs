//! Loads, stores and fetches of a hart.

use super::bus::{Bus, Stop};
use super::hart::Hart;
use super::mmu::{Kind, walk};
use super::ram::{PAGE, Ram};
use crate::isa::{Instr, Op, compressed, decode};
use crate::tm::{Access, Reason};

/// Translates an address.
///
/// # Errors
/// The exception.
#[inline(always)]
pub fn translate(hart: &mut Hart, bus: &mut Bus, kind: Kind, address: u64) -> Result<u64, Stop> {
    match hart.tlb.look_up(kind, address) {
        Some(at) => Ok(at),
        None => walk_and_keep(hart, bus, kind, address),
    }
}

#[cold]
fn walk_and_keep(hart: &mut Hart, bus: &mut Bus, kind: Kind, address: u64) -> Result<u64, Stop> {
    let at = walk(&mut bus.ram, hart.csr.satp, hart.mode, hart.csr.sstatus, kind, address)
        .map_err(|cause| Stop::Trap(cause, address))?;
    hart.tlb.keep(kind, address, at);
    Ok(at)
}

/// Loads 1, 2, 4 or 8 bytes, without a sign.
///
/// # Errors
/// [`Stop`].
#[inline(always)]
pub fn load<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    address: u64,
    len: u64,
) -> Result<u64, Stop> {
    if address % PAGE + len > PAGE {
        return load_across::<MODEL>(hart, bus, address, len);
    }
    let at = translate(hart, bus, Kind::Read, address)?;
    if !bus.ram.has(at, len) {
        return device_load(hart, bus, at, address, len);
    }
    let access = Access { hart: hart.id, at, len, write: false, pc: hart.pc, now: hart.clock };
    hart.clock += bus.before::<MODEL>(&access)?;
    Ok(bus.ram.load(at, len))
}

#[cold]
fn load_across<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    address: u64,
    len: u64,
) -> Result<u64, Stop> {
    let mut value = 0;
    for i in 0..len {
        value |= load::<MODEL>(hart, bus, address.wrapping_add(i), 1)? << (8 * i);
    }
    Ok(value)
}

#[cold]
fn device_load(
    hart: &mut Hart,
    bus: &mut Bus,
    at: u64,
    address: u64,
    len: u64,
) -> Result<u64, Stop> {
    exclusive(hart, bus)?;
    hart.look = true;
    bus.device_read(at, len, hart.clock).ok_or(Stop::Trap(Kind::Read.access_fault(), address))
}

/// Stores 1, 2, 4 or 8 bytes.
///
/// # Errors
/// [`Stop`].
#[inline(always)]
pub fn store<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    address: u64,
    len: u64,
    value: u64,
) -> Result<(), Stop> {
    if address % PAGE + len > PAGE {
        return store_across::<MODEL>(hart, bus, address, len, value);
    }
    let at = translate(hart, bus, Kind::Write, address)?;
    if !bus.ram.has(at, len) {
        return device_store(hart, bus, at, address, value);
    }
    let access = Access { hart: hart.id, at, len, write: true, pc: hart.pc, now: hart.clock };
    hart.clock += bus.before::<MODEL>(&access)?;
    bus.store(at, len, value);
    Ok(())
}

#[cold]
fn store_across<const MODEL: bool>(
    hart: &mut Hart,
    bus: &mut Bus,
    address: u64,
    len: u64,
    value: u64,
) -> Result<(), Stop> {
    // Both pages can be written, or none is.
    translate(hart, bus, Kind::Write, address)?;
    translate(hart, bus, Kind::Write, address.wrapping_add(len - 1))?;
    for i in 0..len {
        store::<MODEL>(hart, bus, address.wrapping_add(i), 1, value >> (8 * i) & 0xff)?;
    }
    Ok(())
}

#[cold]
fn device_store(
    hart: &mut Hart,
    bus: &mut Bus,
    at: u64,
    address: u64,
    value: u64,
) -> Result<(), Stop> {
    exclusive(hart, bus)?;
    hart.look = true;
    bus.device_write(at, value, hart.clock).ok_or(Stop::Trap(Kind::Write.access_fault(), address))
}

/// What follows can't be rolled back: a transaction starts again, to do it otherwise.
///
/// # Errors
/// [`Stop::Lost`] within a transaction.
pub fn exclusive(hart: &mut Hart, bus: &mut Bus) -> Result<(), Stop> {
    if bus.tm.live > 0 && bus.tm.doom(&mut bus.ram, hart.id, Reason::Exclusive) {
        return Err(Stop::Lost);
    }
    Ok(())
}

/// Gives the instruction at `pc`.
///
/// # Errors
/// [`Stop::Trap`].
#[inline(always)]
pub fn fetch<const MODEL: bool>(hart: &mut Hart, bus: &mut Bus) -> Result<Instr, Stop> {
    let pc = hart.pc;
    if hart.tlb.fetch.0 != pc / PAGE {
        turn_page(hart, bus)?;
    }
    let page = hart.tlb.fetch.1;
    if MODEL && let Some(caches) = &mut bus.caches {
        let at = super::ram::BASE + page as u64 * PAGE + pc % PAGE;
        hart.clock += caches.access(hart.id, Kind::Fetch, at);
    }
    let instr = bus.ram.instr(page, (pc % PAGE) as usize);
    if instr.op == Op::Undecoded { decode_at(hart, bus, page) } else { Ok(instr) }
}

#[cold]
fn turn_page(hart: &mut Hart, bus: &mut Bus) -> Result<(), Stop> {
    let pc = hart.pc;
    let at = translate(hart, bus, Kind::Fetch, pc)?;
    if !bus.ram.has(at & !(PAGE - 1), PAGE) {
        return Err(Stop::Trap(Kind::Fetch.access_fault(), pc));
    }
    hart.tlb.fetch = (pc / PAGE, Ram::page(at));
    Ok(())
}

#[cold]
fn decode_at(hart: &mut Hart, bus: &mut Bus, page: usize) -> Result<Instr, Stop> {
    let offset = hart.pc % PAGE;
    let at = super::ram::BASE + page as u64 * PAGE + offset;
    let low = bus.ram.load(at, 2) as u16;
    if low & 3 != 3 {
        let instr = compressed::decode(low);
        bus.ram.keep(page, offset as usize, instr);
        return Ok(instr);
    }
    if offset + 4 <= PAGE {
        let instr = decode::decode(bus.ram.load(at, 4) as u32);
        bus.ram.keep(page, offset as usize, instr);
        return Ok(instr);
    }
    // The second half lies in another page, which may be another one next time.
    let next = translate(hart, bus, Kind::Fetch, hart.pc + 2)?;
    if !bus.ram.has(next, 2) {
        return Err(Stop::Trap(Kind::Fetch.access_fault(), hart.pc + 2));
    }
    Ok(decode::decode(u32::from(low) | (bus.ram.load(next, 2) as u32) << 16))
}
