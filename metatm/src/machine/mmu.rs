//! Translation of addresses: Sv39, and what each hart remembers of it.

use super::hart::{Mode, status};
use super::ram::{PAGE, Ram};

/// What an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// The fetch of an instruction.
    Fetch,
}

impl Kind {
    /// The exception of a translation that fails.
    #[must_use]
    pub fn page_fault(self) -> u64 {
        match self {
            Kind::Fetch => 12,
            Kind::Read => 13,
            Kind::Write => 15,
        }
    }

    /// The exception of an access to what is not there.
    #[must_use]
    pub fn access_fault(self) -> u64 {
        match self {
            Kind::Fetch => 1,
            Kind::Read => 5,
            Kind::Write => 7,
        }
    }
}

const ENTRIES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The number of the virtual page; all bits set for none.
    page: u64,
    /// Physical address of the page.
    at: u64,
}

const NONE: Entry = Entry { page: u64::MAX, at: 0 };

/// Translations of one context, by the kind of access.
#[derive(Clone, Copy, Debug)]
pub struct Table([[Entry; ENTRIES]; 3]);

impl Table {
    const EMPTY: Table = Table([[NONE; ENTRIES]; 3]);

    /// The physical address of a virtual one, if it is remembered.
    #[must_use]
    #[inline(always)]
    pub fn look_up(&self, kind: Kind, address: u64) -> Option<u64> {
        let page = address / PAGE;
        let entry = &self.0[kind as usize][page as usize % ENTRIES];
        if entry.page == page { Some(entry.at | (address % PAGE)) } else { None }
    }
}

/// What a hart remembers of translations: a table for each kind of access and for each context (programs; the kernel; the kernel while
/// it may access programs' pages).
#[derive(Debug)]
pub struct Tlb {
    context: usize,
    entries: Vec<Table>,
    /// The page from which instructions are fetched, and its number in memory.
    pub fetch: (u64, usize),
}

impl Default for Tlb {
    fn default() -> Self {
        Tlb { context: 1, entries: vec![Table::EMPTY; 3], fetch: (u64::MAX, 0) }
    }
}

impl Tlb {
    /// Forgets everything.
    pub fn flush(&mut self) {
        for context in &mut self.entries {
            *context = Table::EMPTY;
        }
        self.fetch = (u64::MAX, 0);
    }

    /// Forgets one page.
    pub fn flush_page(&mut self, address: u64) {
        let page = address / PAGE;
        for kind in self.entries.iter_mut().flat_map(|table| &mut table.0) {
            kind[page as usize % ENTRIES] = NONE;
        }
        self.fetch = (u64::MAX, 0);
    }

    /// The mode or `sstatus` has changed.
    pub fn context(&mut self, mode: Mode, sstatus: u64) {
        let new = match mode {
            Mode::User => 0,
            Mode::Supervisor if sstatus & status::SUM == 0 => 1,
            Mode::Supervisor => 2,
        };
        if new != self.context {
            self.context = new;
            self.fetch = (u64::MAX, 0);
        }
    }

    /// The physical address of a virtual one, if it is remembered.
    #[must_use]
    #[inline(always)]
    pub fn look_up(&self, kind: Kind, address: u64) -> Option<u64> {
        self.table().look_up(kind, address)
    }

    /// The translations of the present context.
    #[must_use]
    #[inline(always)]
    pub fn table(&self) -> &Table {
        &self.entries[self.context]
    }

    /// Remembers a translation.
    pub fn keep(&mut self, kind: Kind, address: u64, physical: u64) {
        let page = address / PAGE;
        let entry = Entry { page, at: physical & !(PAGE - 1) };
        self.entries[self.context].0[kind as usize][page as usize % ENTRIES] = entry;
    }
}

const VALID: u64 = 1;
const READ: u64 = 2;
const WRITE: u64 = 4;
const EXECUTE: u64 = 8;
const USER: u64 = 16;
const ACCESSED: u64 = 64;
const DIRTY: u64 = 128;

/// Walks the page table. Bits "accessed" and "dirty" are set as hardware may.
///
/// # Errors
/// The exception.
pub fn walk(
    ram: &mut Ram,
    satp: u64,
    mode: Mode,
    sstatus: u64,
    kind: Kind,
    address: u64,
) -> Result<u64, u64> {
    if satp >> 60 == 0 {
        return Ok(address);
    }
    let (at, entry, physical) = find(ram, satp, kind, address)?;
    let allowed = match kind {
        Kind::Read => entry & READ != 0 || sstatus & status::MXR != 0 && entry & EXECUTE != 0,
        Kind::Write => entry & WRITE != 0,
        Kind::Fetch => entry & EXECUTE != 0,
    };
    let owned = match (mode, entry & USER != 0) {
        (Mode::User, user) => user,
        (Mode::Supervisor, false) => true,
        (Mode::Supervisor, true) => kind != Kind::Fetch && sstatus & status::SUM != 0,
    };
    if !allowed || !owned {
        return Err(kind.page_fault());
    }
    let marks = ACCESSED | if kind == Kind::Write { DIRTY } else { 0 };
    if entry & marks != marks {
        ram.store(at, 8, entry | marks);
    }
    Ok(physical)
}

/// The physical address of a virtual one, whoever may access it. Nothing is marked.
#[must_use]
pub fn look(ram: &Ram, satp: u64, address: u64) -> Option<u64> {
    match satp >> 60 {
        0 => Some(address),
        _ => find(ram, satp, Kind::Read, address).ok().map(|found| found.2),
    }
}

/// The entry of a page: where it lies, what it is, and the physical address that it gives.
fn find(ram: &Ram, satp: u64, kind: Kind, address: u64) -> Result<(u64, u64, u64), u64> {
    let fault = kind.page_fault();
    if (address as i64) << 25 >> 25 != address as i64 {
        return Err(fault);
    }
    let mut table = (satp & ((1 << 44) - 1)) * PAGE;
    for level in (0..3u32).rev() {
        let shift = 12 + 9 * level;
        let at = table + (address >> shift & 0x1ff) * 8;
        if !ram.has(at, 8) {
            return Err(kind.access_fault());
        }
        let entry = ram.load(at, 8);
        let next = (entry >> 10 & ((1 << 44) - 1)) * PAGE;
        if entry & VALID == 0 || entry & (READ | WRITE) == WRITE || entry >> 54 != 0 {
            return Err(fault);
        }
        if entry & (READ | EXECUTE) == 0 {
            table = next;
            continue;
        }
        let low = (1 << shift) - 1;
        if next & low != 0 {
            return Err(fault);
        }
        return Ok((at, entry, next | address & low));
    }
    Err(fault)
}
