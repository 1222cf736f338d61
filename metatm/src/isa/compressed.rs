//! Instructions of 16 bits (extension C), each as the instruction that it stands for.

use super::{Instr, Op};

fn bit(word: u16, at: u32, to: u32) -> i32 {
    i32::from(word >> at & 1) << to
}

fn field(word: u16, low: u32, count: u32, to: u32) -> i32 {
    i32::from(word >> low & ((1 << count) - 1)) << to
}

/// A sign in bit 12, which goes to bit `to` and above.
fn sign(word: u16, to: u32) -> i32 {
    if word >> 12 & 1 == 1 { -1 << to } else { 0 }
}

/// Decodes an instruction of 16 bits, whose lowest two bits are not both set.
#[must_use]
pub fn decode(word: u16) -> Instr {
    let illegal = Instr { op: Op::Illegal, rd: 0, rs1: 0, rs2: 0, imm: i32::from(word) };
    let made = match word & 3 {
        0 => quadrant_0(word),
        1 => quadrant_1(word),
        _ => quadrant_2(word),
    };
    made.unwrap_or(illegal).short()
}

fn i(op: Op, rd: u8, rs1: u8, imm: i32) -> Option<Instr> {
    Some(Instr { op, rd, rs1, rs2: 0, imm })
}

fn r(op: Op, rd: u8, rs1: u8, rs2: u8) -> Option<Instr> {
    Some(Instr { op, rd, rs1, rs2, imm: 0 })
}

fn s(op: Op, rs1: u8, rs2: u8, imm: i32) -> Option<Instr> {
    Some(Instr { op, rd: 0, rs1, rs2, imm })
}

fn low(word: u16) -> u8 {
    (word >> 2 & 7) as u8 + 8
}

fn high(word: u16) -> u8 {
    (word >> 7 & 7) as u8 + 8
}

fn quadrant_0(word: u16) -> Option<Instr> {
    let (rd, rs1) = (low(word), high(word));
    let words = field(word, 10, 3, 3) | bit(word, 6, 2) | bit(word, 5, 6);
    let doubles = field(word, 10, 3, 3) | field(word, 5, 2, 6);
    match word >> 13 {
        0 => {
            let imm =
                field(word, 11, 2, 4) | field(word, 7, 4, 6) | bit(word, 6, 2) | bit(word, 5, 3);
            if imm == 0 { None } else { i(Op::Addi, rd, 2, imm) }
        }
        1 => i(Op::Fld, rd, rs1, doubles),
        2 => i(Op::Lw, rd, rs1, words),
        3 => i(Op::Ld, rd, rs1, doubles),
        5 => s(Op::Fsd, rs1, rd, doubles),
        6 => s(Op::Sw, rs1, rd, words),
        7 => s(Op::Sd, rs1, rd, doubles),
        _ => None,
    }
}

fn quadrant_1(word: u16) -> Option<Instr> {
    let rd = (word >> 7 & 31) as u8;
    let imm = sign(word, 5) | field(word, 2, 5, 0);
    let shift = bit(word, 12, 5) | field(word, 2, 5, 0);
    match word >> 13 {
        0 => i(Op::Addi, rd, rd, imm),
        1 if rd != 0 => i(Op::Addiw, rd, rd, imm),
        2 => i(Op::Addi, rd, 0, imm),
        3 if rd == 2 => {
            let imm = sign(word, 9)
                | bit(word, 6, 4)
                | bit(word, 5, 6)
                | field(word, 3, 2, 7)
                | bit(word, 2, 5);
            if imm == 0 { None } else { i(Op::Addi, 2, 2, imm) }
        }
        3 if imm != 0 => i(Op::Lui, rd, 0, imm << 12),
        4 => {
            let (rd, rs2) = (high(word), low(word));
            match (word >> 10 & 3, word >> 12 & 1, word >> 5 & 3) {
                (0, ..) => i(Op::Srli, rd, rd, shift),
                (1, ..) => i(Op::Srai, rd, rd, shift),
                (2, ..) => i(Op::Andi, rd, rd, imm),
                (_, 0, 0) => r(Op::Sub, rd, rd, rs2),
                (_, 0, 1) => r(Op::Xor, rd, rd, rs2),
                (_, 0, 2) => r(Op::Or, rd, rd, rs2),
                (_, 0, _) => r(Op::And, rd, rd, rs2),
                (_, _, 0) => r(Op::Subw, rd, rd, rs2),
                (_, _, 1) => r(Op::Addw, rd, rd, rs2),
                _ => None,
            }
        }
        5 => {
            let imm = sign(word, 11)
                | bit(word, 11, 4)
                | field(word, 9, 2, 8)
                | bit(word, 8, 10)
                | bit(word, 7, 6)
                | bit(word, 6, 7)
                | field(word, 3, 3, 1)
                | bit(word, 2, 5);
            i(Op::Jal, 0, 0, imm)
        }
        top @ (6 | 7) => {
            let imm = sign(word, 8)
                | field(word, 10, 2, 3)
                | field(word, 5, 2, 6)
                | field(word, 3, 2, 1)
                | bit(word, 2, 5);
            s(if top == 6 { Op::Beq } else { Op::Bne }, high(word), 0, imm)
        }
        _ => None,
    }
}

fn quadrant_2(word: u16) -> Option<Instr> {
    let (rd, rs2) = ((word >> 7 & 31) as u8, (word >> 2 & 31) as u8);
    let shift = bit(word, 12, 5) | field(word, 2, 5, 0);
    let doubles = bit(word, 12, 5) | field(word, 5, 2, 3) | field(word, 2, 3, 6);
    let words = bit(word, 12, 5) | field(word, 4, 3, 2) | field(word, 2, 2, 6);
    match word >> 13 {
        0 => i(Op::Slli, rd, rd, shift),
        1 => i(Op::Fld, rd, 2, doubles),
        2 if rd != 0 => i(Op::Lw, rd, 2, words),
        3 if rd != 0 => i(Op::Ld, rd, 2, doubles),
        4 => match (word >> 12 & 1, rd, rs2) {
            (0, 0, 0) => None,
            (0, _, 0) => i(Op::Jalr, 0, rd, 0),
            (0, ..) => r(Op::Add, rd, 0, rs2),
            (_, 0, 0) => i(Op::Ebreak, 0, 0, 0),
            (_, _, 0) => i(Op::Jalr, 1, rd, 0),
            _ => r(Op::Add, rd, rd, rs2),
        },
        5 => s(Op::Fsd, 2, rs2, field(word, 10, 3, 3) | field(word, 7, 3, 6)),
        6 => s(Op::Sw, 2, rs2, field(word, 9, 4, 2) | field(word, 7, 2, 6)),
        7 => s(Op::Sd, 2, rs2, field(word, 10, 3, 3) | field(word, 7, 3, 6)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_gnu_as_encodes_them() {
        let table: [(u16, Instr); 6] = [
            // c.addi16sp sp, -64; c.sdsp ra, 56(sp); c.jr ra; c.li a0, -1; c.lui a5, 0xfffff; c.mv a0, a1
            (0x7139, Instr { op: Op::Addi, rd: 2, rs1: 2, rs2: 0, imm: -64 }),
            (0xfc06, Instr { op: Op::Sd, rd: 0, rs1: 2, rs2: 1, imm: 56 }),
            (0x8082, Instr { op: Op::Jalr, rd: 0, rs1: 1, rs2: 0, imm: 0 }),
            (0x557d, Instr { op: Op::Addi, rd: 10, rs1: 0, rs2: 0, imm: -1 }),
            (0x77fd, Instr { op: Op::Lui, rd: 15, rs1: 0, rs2: 0, imm: -4096 }),
            (0x852e, Instr { op: Op::Add, rd: 10, rs1: 0, rs2: 11, imm: 0 }),
        ];
        for (word, wanted) in table {
            assert_eq!(decode(word), wanted.short(), "{word:#x}");
        }
        assert_eq!(decode(0).op, Op::Illegal);
    }
}
