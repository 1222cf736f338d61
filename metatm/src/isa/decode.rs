//! Decoding of instructions of 32 bits.

use super::{Instr, Op};

fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & ((1 << count) - 1)
}

/// Immediate of loads and of arithmetic.
fn imm_i(word: u32) -> i32 {
    word as i32 >> 20
}

fn imm_s(word: u32) -> i32 {
    (word as i32 >> 25) << 5 | bits(word, 7, 5) as i32
}

fn imm_b(word: u32) -> i32 {
    let low = bits(word, 8, 4) << 1 | bits(word, 25, 6) << 5 | bits(word, 7, 1) << 11;
    (word as i32 >> 31) << 12 | low as i32
}

fn imm_j(word: u32) -> i32 {
    let low = bits(word, 21, 10) << 1 | bits(word, 20, 1) << 11 | bits(word, 12, 8) << 12;
    (word as i32 >> 31) << 20 | low as i32
}

/// Decodes an instruction of 32 bits.
#[must_use]
pub fn decode(word: u32) -> Instr {
    let (rd, rs1, rs2) = (bits(word, 7, 5) as u8, bits(word, 15, 5) as u8, bits(word, 20, 5) as u8);
    let f3 = bits(word, 12, 3);
    let make = |op: Op, imm: i32| Instr { op, rd, rs1, rs2, imm };
    let illegal = make(Op::Illegal, word as i32);
    let pick = |table: [Option<Op>; 8], imm: i32| match table[f3 as usize] {
        Some(op) => make(op, imm),
        None => illegal,
    };
    use Op::*;
    match word & 0x7f {
        0x37 => make(Lui, (word & 0xffff_f000) as i32),
        0x17 => make(Auipc, (word & 0xffff_f000) as i32),
        0x6f => make(Jal, imm_j(word)),
        0x67 if f3 == 0 => make(Jalr, imm_i(word)),
        0x63 => pick(
            [Some(Beq), Some(Bne), None, None, Some(Blt), Some(Bge), Some(Bltu), Some(Bgeu)],
            imm_b(word),
        ),
        0x03 => pick(
            [Some(Lb), Some(Lh), Some(Lw), Some(Ld), Some(Lbu), Some(Lhu), Some(Lwu), None],
            imm_i(word),
        ),
        0x23 => pick([Some(Sb), Some(Sh), Some(Sw), Some(Sd), None, None, None, None], imm_s(word)),
        0x13 => match (f3, word >> 26) {
            (1, 0) => make(Slli, bits(word, 20, 6) as i32),
            (5, 0) => make(Srli, bits(word, 20, 6) as i32),
            (5, 0x10) => make(Srai, bits(word, 20, 6) as i32),
            (1 | 5, _) => illegal,
            _ => pick(
                [
                    Some(Addi),
                    None,
                    Some(Slti),
                    Some(Sltiu),
                    Some(Xori),
                    None,
                    Some(Ori),
                    Some(Andi),
                ],
                imm_i(word),
            ),
        },
        0x1b => match (f3, word >> 25) {
            (0, _) => make(Addiw, imm_i(word)),
            (1, 0) => make(Slliw, i32::from(rs2)),
            (5, 0) => make(Srliw, i32::from(rs2)),
            (5, 0x20) => make(Sraiw, i32::from(rs2)),
            _ => illegal,
        },
        0x33 => match (word >> 25, f3) {
            (0, _) => pick(
                [
                    Some(Add),
                    Some(Sll),
                    Some(Slt),
                    Some(Sltu),
                    Some(Xor),
                    Some(Srl),
                    Some(Or),
                    Some(And),
                ],
                0,
            ),
            (0x20, 0) => make(Sub, 0),
            (0x20, 5) => make(Sra, 0),
            (1, _) => pick(
                [
                    Some(Mul),
                    Some(Mulh),
                    Some(Mulhsu),
                    Some(Mulhu),
                    Some(Div),
                    Some(Divu),
                    Some(Rem),
                    Some(Remu),
                ],
                0,
            ),
            _ => illegal,
        },
        0x3b => match (word >> 25, f3) {
            (0, _) => pick([Some(Addw), Some(Sllw), None, None, None, Some(Srlw), None, None], 0),
            (0x20, 0) => make(Subw, 0),
            (0x20, 5) => make(Sraw, 0),
            (1, _) => pick(
                [Some(Mulw), None, None, None, Some(Divw), Some(Divuw), Some(Remw), Some(Remuw)],
                0,
            ),
            _ => illegal,
        },
        0x0f => pick([Some(Fence), Some(FenceI), None, None, None, None, None, None], imm_i(word)),
        0x73 => system(word, f3, &make),
        0x2f => atomic(word, f3, &make),
        0x07 => pick([None, None, Some(Flw), Some(Fld), None, None, None, None], imm_i(word)),
        0x27 => pick([None, None, Some(Fsw), Some(Fsd), None, None, None, None], imm_s(word)),
        0x43 | 0x47 | 0x4b | 0x4f | 0x53 => make(Float, word as i32),
        0x0b => transactional(word, f3, &make),
        _ => illegal,
    }
}

fn system(word: u32, f3: u32, make: &dyn Fn(Op, i32) -> Instr) -> Instr {
    use Op::*;
    let csr = (word >> 20) as i32;
    match f3 {
        0 => match word {
            0x0000_0073 => make(Ecall, 0),
            0x0010_0073 => make(Ebreak, 0),
            0x1020_0073 => make(Sret, word as i32),
            0x3020_0073 => make(Mret, word as i32),
            0x1050_0073 => make(Wfi, word as i32),
            _ if word >> 25 == 9 && word >> 7 & 0x1f == 0 => make(SfenceVma, word as i32),
            _ => make(Illegal, word as i32),
        },
        1 => make(Csrrw, csr),
        2 => make(Csrrs, csr),
        3 => make(Csrrc, csr),
        5 => make(Csrrwi, csr),
        6 => make(Csrrsi, csr),
        7 => make(Csrrci, csr),
        _ => make(Illegal, word as i32),
    }
}

fn atomic(word: u32, f3: u32, make: &dyn Fn(Op, i32) -> Instr) -> Instr {
    use Op::*;
    let does = word >> 27;
    let rs2 = word >> 20 & 0x1f;
    match (does, f3) {
        (2, 2) if rs2 == 0 => make(LrW, 0),
        (2, 3) if rs2 == 0 => make(LrD, 0),
        (3, 2) => make(ScW, 0),
        (3, 3) => make(ScD, 0),
        (0 | 1 | 4 | 8 | 12 | 16 | 20 | 24 | 28, 2) => make(AmoW, does as i32),
        (0 | 1 | 4 | 8 | 12 | 16 | 20 | 24 | 28, 3) => make(AmoD, does as i32),
        _ => make(Illegal, word as i32),
    }
}

/// The custom instructions: opcode custom-0, R-type; which one is in funct7, funct3 is 0.
fn transactional(word: u32, f3: u32, make: &dyn Fn(Op, i32) -> Instr) -> Instr {
    use Op::*;
    let table = [Xbegin, Xend, Xpush, Xpop, Xrestart, Xid, Xlivesp, Xtest, Xcas];
    match table.get((word >> 25) as usize) {
        Some(&op) if f3 == 0 => make(op, word as i32),
        _ => make(Illegal, word as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediates_have_the_sign() {
        // addi a0, a0, -1; sd ra, -8(sp); beq a0, a1, .-4; jal ra, .-4 (from GNU as)
        assert_eq!(decode(0xfff5_0513).imm, -1);
        assert_eq!(decode(0xfe11_3c23).imm, -8);
        assert_eq!(decode(0xfeb5_0ee3).imm, -4);
        assert_eq!(decode(0xffdf_f0ef).imm, -4);
    }

    #[test]
    fn what_is_no_instruction_keeps_its_bits() {
        let word = 0xffff_ffff;
        assert_eq!(decode(word).op, Op::Illegal);
        assert_eq!(decode(word).imm as u32, word);
    }
}
