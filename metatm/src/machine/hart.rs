//! A hart: registers, control registers, and its view of memory.

use super::mmu::Tlb;
use super::watch::Visit;
use crate::tm::Mark;

/// Privilege. There is no machine mode: the simulator is the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Programs.
    User,
    /// The kernel.
    Supervisor,
}

/// What a hart does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Executes.
    Runs,
    /// Waits for an interrupt.
    Waits,
    /// Was not started, or was stopped.
    Stopped,
}

/// Bits of `sstatus`.
pub mod status {
    /// Interrupts are enabled.
    pub const SIE: u64 = 1 << 1;
    /// They were before the trap.
    pub const SPIE: u64 = 1 << 5;
    /// The trap came from supervisor mode.
    pub const SPP: u64 = 1 << 8;
    /// State of the floating-point registers.
    pub const FS: u64 = 3 << 13;
    /// The supervisor may access pages of programs.
    pub const SUM: u64 = 1 << 18;
    /// Executable pages may be read.
    pub const MXR: u64 = 1 << 19;
    /// Some state is dirty.
    pub const SD: u64 = 1 << 63;
    /// What software can write.
    pub const WRITABLE: u64 = SIE | SPIE | SPP | FS | SUM | MXR;
}

/// Interrupts, as bits of `sip` and `sie`.
pub mod interrupt {
    /// From another hart.
    pub const SOFTWARE: u64 = 1 << 1;
    /// The timer.
    pub const TIMER: u64 = 1 << 5;
    /// A device.
    pub const EXTERNAL: u64 = 1 << 9;
}

/// Control registers of the supervisor.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the manual's names")]
pub struct Csrs {
    pub sstatus: u64,
    pub sie: u64,
    pub stvec: u64,
    pub scounteren: u64,
    pub sscratch: u64,
    pub sepc: u64,
    pub scause: u64,
    pub stval: u64,
    pub satp: u64,
    pub fcsr: u64,
    /// When the timer fires, in ticks.
    pub timer: u64,
    /// Priority of the thread that runs, as the kernel has set it (a custom register).
    pub xprio: u64,
}

/// Where a transaction starts again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The integer registers.
    pub x: [u64; 32],
    /// Address after the `xbegin`.
    pub pc: u64,
    /// The register that it sets.
    pub rd: u8,
    /// `sstatus`.
    pub sstatus: u64,
    /// Traps that the hart is in.
    pub traps: usize,
    /// Floating-point registers, of a program.
    pub f: Option<Box<([u64; 32], u64)>>,
}

/// A hart.
#[derive(Debug)]
pub struct Hart {
    /// Its number.
    pub id: usize,
    /// Integer registers.
    pub x: [u64; 32],
    /// Floating-point registers.
    pub f: [u64; 32],
    /// Address of the next instruction.
    pub pc: u64,
    /// Privilege.
    pub mode: Mode,
    /// What it does.
    pub state: State,
    /// Control registers.
    pub csr: Csrs,
    /// Cycles so far.
    pub clock: u64,
    /// Cycles in which it waited for an interrupt.
    pub idle: u64,
    /// Cycles in user mode.
    pub user: u64,
    /// Cycles in which it waited for locks.
    pub visit: Visit,
    /// Cycles in which accesses of transactions stalled.
    pub stalled: u64,
    /// Instructions so far.
    pub instret: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// Interrupts that software has raised.
    pub software: bool,
    /// Whether an interrupt may have become possible.
    pub look: bool,
    /// Causes of the traps that it is in: true for an interrupt.
    pub traps: Vec<bool>,
    /// Attempts of the present `xcas`.
    pub cas: u32,
    /// What was translated.
    pub tlb: Tlb,
}

impl Hart {
    /// One that is stopped.
    #[must_use]
    pub fn new(id: usize) -> Hart {
        Hart {
            id,
            x: [0; 32],
            f: [0; 32],
            pc: 0,
            mode: Mode::Supervisor,
            state: State::Stopped,
            csr: Csrs { timer: u64::MAX, ..Csrs::default() },
            clock: 0,
            idle: 0,
            user: 0,
            visit: Visit::default(),
            stalled: 0,
            instret: 0,
            interrupts: 0,
            software: false,
            look: true,
            traps: Vec::new(),
            cas: 0,
            tlb: Tlb::default(),
        }
    }

    /// Starts it at an address, with its number in `a0` and a word in `a1`.
    pub fn start(&mut self, pc: u64, a1: u64) {
        self.x[10] = self.id as u64;
        self.x[11] = a1;
        self.pc = pc;
        self.mode = Mode::Supervisor;
        self.csr.sstatus = 0;
        self.csr.satp = 0;
        // Firmware lets programs read the counters.
        self.csr.scounteren = 7;
        self.state = State::Runs;
        self.tlb.flush();
    }

    /// `sstatus` as it is read.
    #[must_use]
    pub fn sstatus(&self) -> u64 {
        let dirty = self.csr.sstatus & status::FS == status::FS;
        // UXL says that programs have 64 bits.
        self.csr.sstatus | 2 << 32 | if dirty { status::SD } else { 0 }
    }

    /// What it has done so far.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { waited: self.visit.cycles + self.stalled, instructions: self.instret }
    }

    /// Whether it is in a handler of an interrupt.
    #[must_use]
    pub fn in_interrupt(&self) -> bool {
        self.traps.last().copied().unwrap_or(false)
    }

    /// What a transaction that begins now goes back to.
    #[must_use]
    pub fn checkpoint(&self, next: u64, rd: u8) -> Checkpoint {
        let f = (self.mode == Mode::User).then(|| Box::new((self.f, self.csr.fcsr)));
        let (sstatus, traps) = (self.csr.sstatus, self.traps.len());
        Checkpoint { x: self.x, pc: next, rd, sstatus, traps, f }
    }

    /// Goes back to a checkpoint.
    pub fn go_back(&mut self, to: &Checkpoint, status: u64) {
        self.x = to.x;
        self.pc = to.pc;
        self.csr.sstatus = to.sstatus;
        self.x[usize::from(to.rd & 31)] = status;
        self.x[0] = 0;
        // A transaction that `xpop` takes up skips the return from the trap that suspended it.
        self.traps.truncate(to.traps);
        if let Some(f) = &to.f {
            (self.f, self.csr.fcsr) = **f;
        }
        self.tlb.context(self.mode, self.csr.sstatus);
        self.look = true;
    }
}
