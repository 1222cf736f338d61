//! The fast way through a program: instructions that compute, jump, or access memory that nobody else cares about.
//!
//! Everything else (a translation that is not remembered, devices, transactions, what is not decoded yet, control registers) is left
//! to [`super::execute`], which can do all instructions. What comes of a program is the same, cycle by cycle.

use super::bus::Bus;
use super::cache::Caches;
use super::hart::{Hart, Mode};
use super::mmu::{Kind, Table};
use super::ram::{BASE, CodePage, PAGE};
use super::watch::{Visit, Watched};
use crate::isa::{Instr, Op};
use crate::tm::Tm;

/// Executes until the hart's clock is at `until`, or an instruction comes that is left to others. Gives whether one does; what its fetch
/// costs is paid already.
pub fn burst<const MODEL: bool>(hart: &mut Hart, bus: &mut Bus, until: u64) -> bool {
    let begun = hart.clock;
    let left = loop {
        match in_page::<MODEL>(hart, bus, until) {
            Leaves::Page => {}
            Leaves::Time => break false,
            Leaves::Instruction => break true,
        }
    };
    if hart.mode == Mode::User {
        hart.user += hart.clock - begun;
    }
    left
}

/// Why a page of instructions is left.
enum Leaves {
    /// Another page comes next.
    Page,
    /// The clock is where it should be.
    Time,
    /// An instruction that is left to others.
    Instruction,
}

/// Memory as one hart sees it, while nobody else looks.
struct View<'a> {
    hart: usize,
    table: &'a Table,
    bytes: &'a mut [u8],
    code: &'a [Option<CodePage>],
    caches: Option<&'a mut Caches>,
    tm: &'a Tm,
    in_tx: bool,
    reserved: bool,
}

impl View<'_> {
    /// Where an aligned access of `N` bytes goes in memory, and the cycles that it takes; `None` if it is left to others.
    #[inline(always)]
    fn place<const MODEL: bool, const N: usize>(
        &mut self,
        kind: Kind,
        address: u64,
    ) -> Option<(usize, u64)> {
        if !address.is_multiple_of(N as u64) {
            return None;
        }
        let at = self.table.look_up(kind, address)?;
        let place = at.wrapping_sub(BASE) as usize;
        if place >= self.bytes.len() {
            return None;
        }
        if self.tm.live > 0 && (self.in_tx || !self.tm.is_quiet(at)) {
            return None;
        }
        if kind == Kind::Write && (self.reserved || self.code[place / PAGE as usize].is_some()) {
            return None;
        }
        let cycles = match &mut self.caches {
            Some(caches) if MODEL => caches.access(self.hart, kind, at),
            _ => 0,
        };
        Some((place, cycles))
    }

    /// What is loaded from `N` bytes, and the cycles that it takes.
    #[inline(always)]
    fn load<const MODEL: bool, const N: usize>(&mut self, address: u64) -> Option<([u8; N], u64)> {
        let (place, cycles) = self.place::<MODEL, N>(Kind::Read, address)?;
        Some((self.bytes.get(place..place + N)?.try_into().ok()?, cycles))
    }

    /// Stores `N` bytes: the cycles that it takes.
    #[inline(always)]
    fn store<const MODEL: bool, const N: usize>(
        &mut self,
        address: u64,
        value: [u8; N],
    ) -> Option<u64> {
        let (place, cycles) = self.place::<MODEL, N>(Kind::Write, address)?;
        self.bytes.get_mut(place..place + N)?.copy_from_slice(&value);
        Some(cycles)
    }
}

#[inline(always)]
fn word(value: u64) -> u64 {
    i64::from(value as i32) as u64
}

/// One `match` of an operation: those that only compute, with what they give, and the arms that are added to them.
macro_rules! operation {
    ($instr:ident, $pc:ident, $a:ident, $b:ident, $imm:ident; $($pattern:pat => $arm:expr),+ $(,)?) => {{
        use Op::*;
        match $instr.op {
            Addi => $a.wrapping_add($imm),
            Add => $a.wrapping_add($b),
            Sub => $a.wrapping_sub($b),
            Addiw => word($a.wrapping_add($imm)),
            Addw => word($a.wrapping_add($b)),
            Subw => word($a.wrapping_sub($b)),
            Andi => $a & $imm,
            Ori => $a | $imm,
            Xori => $a ^ $imm,
            And => $a & $b,
            Or => $a | $b,
            Xor => $a ^ $b,
            Slli => $a << ($imm & 63),
            Srli => $a >> ($imm & 63),
            Srai => ($a as i64 >> ($imm & 63)) as u64,
            Slliw => word($a << ($imm & 31)),
            Srliw => word(($a as u32 >> ($imm & 31)).into()),
            Sraiw => (i64::from($a as i32 >> ($imm & 31))) as u64,
            Sll => $a << ($b & 63),
            Srl => $a >> ($b & 63),
            Sra => ($a as i64 >> ($b & 63)) as u64,
            Sllw => word($a << ($b & 31)),
            Srlw => word(($a as u32 >> ($b & 31)).into()),
            Sraw => (i64::from($a as i32 >> ($b & 31))) as u64,
            Slt => u64::from(($a as i64) < $b as i64),
            Sltu => u64::from($a < $b),
            Slti => u64::from(($a as i64) < $imm as i64),
            Sltiu => u64::from($a < $imm),
            Lui => $imm,
            Auipc => $pc.wrapping_add($imm),
            Mul => $a.wrapping_mul($b),
            Mulw => word($a.wrapping_mul($b)),
            Mulh => ((i128::from($a as i64) * i128::from($b as i64)) >> 64) as u64,
            Mulhsu => ((i128::from($a as i64) * i128::from($b)) >> 64) as u64,
            Mulhu => ((u128::from($a) * u128::from($b)) >> 64) as u64,
            Div if $b == 0 => u64::MAX,
            Div => ($a as i64).wrapping_div($b as i64) as u64,
            Divu => $a.checked_div($b).unwrap_or(u64::MAX),
            Rem if $b == 0 => $a,
            Rem => ($a as i64).wrapping_rem($b as i64) as u64,
            Remu => $a.checked_rem($b).unwrap_or($a),
            Divw if $b as i32 == 0 => u64::MAX,
            Divw => i64::from(($a as i32).wrapping_div($b as i32)) as u64,
            Divuw => ($a as u32).checked_div($b as u32).map_or(u64::MAX, |v| word(v.into())),
            Remw if $b as i32 == 0 => word($a),
            Remw => i64::from(($a as i32).wrapping_rem($b as i32)) as u64,
            Remuw => word(($a as u32).checked_rem($b as u32).unwrap_or($a as u32).into()),
            $($pattern => $arm,)+
        }
    }};
}

/// The instruction that runs, where its cycles are watched.
struct Clocked<'a> {
    visit: &'a mut Visit,
    watched: &'a mut Watched,
    /// Whether the page has what is watched.
    here: bool,
    pc: u64,
    clock: u64,
}

impl Clocked<'_> {
    /// An instruction begins: the one before it has ended.
    #[inline(always)]
    fn next(&mut self, pc: u64, clock: u64, ra: u64) {
        if !self.here {
            return;
        }
        if clock > self.clock {
            self.visit.instruction(self.watched, self.pc, ra, clock - self.clock);
        }
        (self.pc, self.clock) = (pc, clock);
    }
}

/// Keeps a branch one: a processor predicts it, while an address that the compiler computes instead has to wait for what it is computed of.
#[inline(always)]
fn predicted() {
    std::hint::black_box(());
}

/// Executes instructions of the page that the hart is in.
fn in_page<const MODEL: bool>(hart: &mut Hart, bus: &mut Bus, until: u64) -> Leaves {
    let page = hart.pc / PAGE;
    let table = hart.tlb.table();
    let Some(start) = table.look_up(Kind::Fetch, page * PAGE) else { return Leaves::Instruction };
    let (in_tx, reserved) = (bus.tm.in_tx(hart.id), bus.is_reserved());
    let (bytes, code) = bus.ram.parts();
    let number = (start.wrapping_sub(BASE) / PAGE) as usize;
    let Some(Some(decoded)) = code.get(number) else { return Leaves::Instruction };
    let (caches, tm) = (bus.caches.as_mut(), &bus.tm);
    let mut view = View { hart: hart.id, table, bytes, code, caches, tm, in_tx, reserved };
    let (mut pc, mut clock, mut done) = (hart.pc, hart.clock, 0);
    let (visit, watched) = (&mut hart.visit, &mut bus.watched);
    let here = MODEL
        && hart.mode != Mode::User
        && watched.has_page(page * PAGE, page.wrapping_add(1).wrapping_mul(PAGE));
    let mut clocked = Clocked { visit, watched, here, pc, clock };
    let x = &mut hart.x;
    let leaves = loop {
        if clock >= until {
            break Leaves::Time;
        }
        let offset = pc.wrapping_sub(page * PAGE);
        let Some(&instr) = decoded.get(offset as usize >> 1) else { break Leaves::Page };
        if MODEL {
            clocked.next(pc, clock, x[1]);
            if let Some(caches) = &mut view.caches {
                clock += caches.access(view.hart, Kind::Fetch, start + offset);
            }
        }
        let (a, b) = (x[usize::from(instr.rs1 & 31)], x[usize::from(instr.rs2 & 31)]);
        let imm = i64::from(instr.imm) as u64;
        let next = if instr.bytes() == 2 {
            predicted();
            pc.wrapping_add(2)
        } else {
            pc.wrapping_add(4)
        };
        let mut target = next;
        macro_rules! branch {
            ($taken:expr) => {{
                pc = if $taken {
                    predicted();
                    pc.wrapping_add(imm)
                } else {
                    next
                };
                clock += 1;
                done += 1;
                continue;
            }};
        }
        macro_rules! load {
            ($type:ty) => {{
                let loaded = view.load::<MODEL, { size_of::<$type>() }>(a.wrapping_add(imm));
                let Some((bytes, cycles)) = loaded else { break Leaves::Instruction };
                clock += cycles;
                <$type>::from_le_bytes(bytes) as i64 as u64
            }};
        }
        macro_rules! store {
            ($type:ty) => {{
                let value = (b as $type).to_le_bytes();
                let Some(cycles) = view.store::<MODEL, _>(a.wrapping_add(imm), value) else {
                    break Leaves::Instruction;
                };
                pc = next;
                clock += 1 + cycles;
                done += 1;
                continue;
            }};
        }
        let value = operation!(instr, pc, a, b, imm;
            Ld => load!(u64),
            Lw => load!(i32),
            Lwu => load!(u32),
            Lbu => load!(u8),
            Lb => load!(i8),
            Lhu => load!(u16),
            Lh => load!(i16),
            Sd => store!(u64),
            Sw => store!(u32),
            Sh => store!(u16),
            Sb => store!(u8),
            Beq => branch!(a == b),
            Bne => branch!(a != b),
            Blt => branch!((a as i64) < b as i64),
            Bge => branch!(a as i64 >= b as i64),
            Bltu => branch!(a < b),
            Bgeu => branch!(a >= b),
            Jal => {
                target = pc.wrapping_add(imm);
                next
            },
            Jalr => {
                target = a.wrapping_add(imm) & !1;
                next
            },
            _ => break Leaves::Instruction,
        );
        x[usize::from(instr.rd & 31)] = value;
        x[0] = 0;
        pc = target;
        clock += 1;
        done += 1;
    };
    clocked.next(pc, clock, x[1]);
    (hart.pc, hart.clock) = (pc, clock);
    hart.instret += done;
    leaves
}

/// Whether a branch is taken.
#[inline(always)]
pub fn taken(op: Op, a: u64, b: u64) -> bool {
    match op {
        Op::Beq => a == b,
        Op::Bne => a != b,
        Op::Blt => (a as i64) < b as i64,
        Op::Bge => a as i64 >= b as i64,
        Op::Bltu => a < b,
        _ => a >= b,
    }
}

/// What an instruction gives that only computes; `None` for another one.
#[inline(always)]
pub fn compute(instr: Instr, pc: u64, a: u64, b: u64) -> Option<u64> {
    let imm = i64::from(instr.imm) as u64;
    Some(operation!(instr, pc, a, b, imm; _ => return None))
}
