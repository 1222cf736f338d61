//! The instruction set: RV64GC, and the custom instructions of transactional memory.
//!
//! | module | what lives there |
//! |---|---|
//! | [`decode`] | 16 and 32 bits to an [`Instr`] |
//! | [`compressed`] | the 16-bit instructions |
//! | [`float`] | arithmetic of floating-point numbers, with flags and rounding modes |
//!
//! Source: The RISC-V Instruction Set Manual, volume I, version 20191213; volume II, version 20211203.

pub mod compressed;
pub mod decode;
pub mod float;

/// What an instruction does. Names are the manual's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the manual's names")]
pub enum Op {
    /// Not decoded yet.
    Undecoded,
    /// No instruction: raises an exception with the bits in `imm`.
    Illegal,
    Lui,
    Auipc,
    Jal,
    Jalr,
    Beq,
    Bne,
    Blt,
    Bge,
    Bltu,
    Bgeu,
    Lb,
    Lh,
    Lw,
    Ld,
    Lbu,
    Lhu,
    Lwu,
    Sb,
    Sh,
    Sw,
    Sd,
    Addi,
    Slti,
    Sltiu,
    Xori,
    Ori,
    Andi,
    Slli,
    Srli,
    Srai,
    Addiw,
    Slliw,
    Srliw,
    Sraiw,
    Add,
    Sub,
    Sll,
    Slt,
    Sltu,
    Xor,
    Srl,
    Sra,
    Or,
    And,
    Addw,
    Subw,
    Sllw,
    Srlw,
    Sraw,
    Mul,
    Mulh,
    Mulhsu,
    Mulhu,
    Div,
    Divu,
    Rem,
    Remu,
    Mulw,
    Divw,
    Divuw,
    Remw,
    Remuw,
    Fence,
    FenceI,
    Ecall,
    Ebreak,
    /// Register forms of the CSR instructions; the number of the CSR is in `imm`.
    Csrrw,
    Csrrs,
    Csrrc,
    /// Immediate forms: the value is in `rs1`.
    Csrrwi,
    Csrrsi,
    Csrrci,
    Sret,
    Mret,
    Wfi,
    SfenceVma,
    LrW,
    LrD,
    ScW,
    ScD,
    /// Atomic operations: what is done is in `imm` (the manual's funct5).
    AmoW,
    AmoD,
    Flw,
    Fld,
    Fsw,
    Fsd,
    /// Arithmetic of floating-point numbers; the whole instruction is in `imm`.
    Float,
    /// Begins a transaction, or one level more; `rd` is 0, or why it was restarted.
    Xbegin,
    /// Ends a level; the outermost commits.
    Xend,
    /// Suspends the transaction, if there is one.
    Xpush,
    /// Takes up what the last `xpush` suspended.
    Xpop,
    /// Restarts the transaction with the reason in `rs1`.
    Xrestart,
    /// `rd` is the number of the transaction that runs, or 0.
    Xid,
    /// `rd` is the lower of `rs1` and the stack pointer to which the suspended transaction would restart.
    Xlivesp,
    /// `rd` is 1 if the word at `rs1` is `rs2`; only then it is in the read set.
    Xtest,
    /// Compares the word at `rs1` with 0 and sets it to `rs2`, outside of transactions; `rd` is 1 if it did. A
    /// transaction that has the word in its sets may win against it.
    Xcas,
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instr {
    /// What it does.
    pub op: Op,
    /// Destination; the top bit is set in instructions of 16 bits.
    pub rd: u8,
    /// First source.
    pub rs1: u8,
    /// Second source.
    pub rs2: u8,
    /// The immediate, or what [`Op`] says.
    pub imm: i32,
}

const _: () = assert!(size_of::<Instr>() == 8);

impl Instr {
    /// What stands in a place that nobody has executed yet.
    pub const UNDECODED: Instr = Instr { op: Op::Undecoded, rd: 0, rs1: 0, rs2: 0, imm: 0 };

    /// Marks it as one of 16 bits.
    #[must_use]
    pub fn short(self) -> Instr {
        Instr { rd: self.rd | 0x80, ..self }
    }

    /// Its length in bytes.
    #[must_use]
    #[inline(always)]
    pub fn bytes(self) -> u64 {
        4 - u64::from(self.rd >> 6 & 2)
    }
}
