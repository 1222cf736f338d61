//! The seccomp filter: the table as a classic BPF program.
//!
//! ```text
//! foreign architecture           → allow, but for 32-bit calls that rows name
//! the number is looked for by halves; there:
//!   made at the recorder's gate, and the row may be → allow
//!   one of `asks`, `unless` holds → allow
//!   otherwise                      → notify, or the errno of a refused call
//! any other number               → allow
//! ```
//!
//! The kernel translates the program when it is installed, and runs it once for each number: .2 ms of a command's start. So
//! it is short (with the instructions of each row written out it took .3 ms), and the search is by halves.
//!
//! Nothing but architecture and number is looked at before the number is known: the kernel tries out
//! which numbers are always allowed, and makes those calls without the filter.

use std::collections::BTreeSet;

use crate::sys::seccomp::Instruction;
use txos_calls::{Handler, OpenFlags, Row, Unless};
use txos_recorder::area::GATE_IP;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const POINTER: u32 = 8;
const ARGS: u32 = 16;

/// `AUDIT_ARCH_*` of this machine.
pub const NATIVE: u32 = 0xc000_003e;

/// `AUDIT_ARCH_*` of the 32-bit programs that this machine also runs.
const OTHER: u32 = 0x4000_0003;

/// Numbers from here on are calls of x32 programs.
const X32_BIT: u32 = 0x4000_0000;

const fn op(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

const ALLOW: Instruction = op(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);

/// The offsets of the low and the high half of an argument (little-endian).
fn halves(index: usize) -> (u32, u32) {
    let base = ARGS + 8 * index as u32;
    (base, base + 4)
}

/// Flags of an open that does more than look.
const OPENS_FOR_MORE: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC).cast_unsigned();

/// The rows of the calls that are stopped.
fn rows() -> impl Iterator<Item = &'static Row> {
    txos_calls::rows().filter(|row| row.handler.stops())
}

/// The program; with the recorder's gate, if it is there.
#[must_use]
pub fn program(recorder: bool) -> Vec<Instruction> {
    let foreign = foreign();
    // Farther than a conditional jump can skip.
    let skip = u32::try_from(foreign.len()).unwrap_or(u32::MAX);
    let mut out = vec![op(LOAD, ARCH, 0, 0), op(EQUAL, NATIVE, 0, 1), op(JUMP, skip, 0, 0)];
    out.extend(foreign);
    out.extend([op(LOAD, NUMBER, 0, 0), op(AT_LEAST, X32_BIT, 0, 1), ALLOW]);
    let number = |row: &Row| u32::try_from(row.number).unwrap_or(u32::MAX);
    out.extend(search(rows().map(|row| (number(row), body(row, recorder))).collect()));
    out
}

/// What becomes of calls of the other architecture; the architecture is loaded.
fn foreign() -> Vec<Instruction> {
    let mut out = vec![op(EQUAL, OTHER, 1, 0), ALLOW, op(LOAD, NUMBER, 0, 0)];
    let all = rows().flat_map(|row| row.i386.iter().map(move |&number| (number, row)));
    out.extend(search(
        all.map(|(number, row)| (number, vec![op(RETURN, verdict(row), 0, 0)])).collect(),
    ));
    out
}

/// How many numbers are compared one after the other.
const LEAF_MAX: usize = 8;

/// Looks for the number that is loaded, and goes on with what belongs to it; any other is let through.
///
/// What belongs to several numbers is there once, behind the search: the kernel translates each instruction when the
/// program is installed.
fn search(mut cases: Vec<(u32, Vec<Instruction>)>) -> Vec<Instruction> {
    cases.sort_by_key(|(number, _)| *number);
    let mut bodies: Vec<Vec<Instruction>> = Vec::new();
    let mut leaves = Vec::new();
    for (number, body) in cases {
        let same = |known: &Vec<Instruction>| {
            known.len() == body.len()
                && known
                    .iter()
                    .zip(&body)
                    .all(|(a, b)| (a.code, a.jt, a.jf, a.k) == (b.code, b.jt, b.jf, b.k))
        };
        let at = bodies.iter().position(same).unwrap_or(bodies.len());
        if at == bodies.len() {
            bodies.push(body);
        }
        leaves.push((number, at));
    }
    let mut starts = Vec::new();
    let mut end = 0;
    for body in &bodies {
        starts.push(end);
        end += body.len();
    }
    let mut out = halves_of(&leaves, &bodies);
    let len = out.len();
    for (at, instruction) in out.iter_mut().enumerate() {
        // Written down as the number of a body: where that is was not known yet.
        if instruction.code == TO_BODY {
            let start = starts.get(instruction.k as usize).copied().unwrap_or_default();
            *instruction = op(JUMP, u32::try_from(len - at - 1 + start).unwrap_or(u32::MAX), 0, 0);
        }
    }
    out.extend(bodies.into_iter().flatten());
    out
}

/// A jump to a body that is named by its number; no instruction of the kernel's.
const TO_BODY: u16 = u16::MAX;

fn halves_of(leaves: &[(u32, usize)], bodies: &[Vec<Instruction>]) -> Vec<Instruction> {
    if leaves.len() > LEAF_MAX
        && let (low, high) = leaves.split_at(leaves.len() / 2)
        && let Some((middle, _)) = high.first()
    {
        let low = halves_of(low, bodies);
        let mut out = match u8::try_from(low.len()) {
            Ok(skip) => vec![op(AT_LEAST, *middle, skip, 0)],
            // Farther than a conditional jump can skip.
            Err(_) => {
                let skip = u32::try_from(low.len()).unwrap_or(u32::MAX);
                vec![op(AT_LEAST, *middle, 0, 1), op(JUMP, skip, 0, 0)]
            }
        };
        out.extend(low);
        out.extend(halves_of(high, bodies));
        return out;
    }
    let mut out = Vec::new();
    for at in leaves.iter().map(|(_, body)| *body).collect::<BTreeSet<_>>() {
        let numbers: Vec<u32> =
            leaves.iter().filter(|(_, body)| *body == at).map(|(number, _)| *number).collect();
        for (i, number) in numbers.iter().enumerate() {
            // Past the others; the last one past what belongs to all of them.
            let others = u8::try_from(numbers.len() - i - 1).unwrap_or(u8::MAX);
            out.push(op(EQUAL, *number, others, u8::from(others == 0)));
        }
        match bodies.get(at).map(Vec::as_slice) {
            Some([only]) => out.push(*only),
            _ => out.push(op(TO_BODY, u32::try_from(at).unwrap_or(u32::MAX), 0, 0)),
        }
    }
    out.push(ALLOW);
    out
}

/// What is answered to a call that is not let through.
fn verdict(row: &Row) -> u32 {
    match row.handler {
        Handler::Refuse(errno) => libc::SECCOMP_RET_ERRNO | (errno.cast_unsigned() & 0xffff),
        _ => libc::SECCOMP_RET_USER_NOTIF,
    }
}

/// Lets the call through if it is made at the gate.
fn gate(row: &Row) -> Vec<Instruction> {
    let mut then = Vec::new();
    if let Handler::Open(_, OpenFlags::Arg(index)) = row.handler {
        then.push(op(LOAD, halves(index).0, 0, 0));
        then.push(op(ANY_BIT, OPENS_FOR_MORE, 1, 0));
    }
    then.push(ALLOW);
    // As short as the body of a row.
    let skip = u8::try_from(then.len()).unwrap_or(u8::MAX);
    let (low, high) = (GATE_IP as u32, (GATE_IP >> 32) as u32);
    let mut gate = vec![
        op(LOAD, POINTER, 0, 0),
        op(EQUAL, low, 0, skip + 2),
        op(LOAD, POINTER + 4, 0, 0),
        op(EQUAL, high, 0, skip),
    ];
    gate.extend(then);
    gate
}

fn body(row: &Row, recorder: bool) -> Vec<Instruction> {
    let mut body = if recorder && row.gated { gate(row) } else { Vec::new() };
    for unless in row.asks.iter().chain(row.unless) {
        match *unless {
            Unless::Int(index, value) => {
                body.push(op(LOAD, halves(index).0, 0, 0));
                body.push(op(EQUAL, value, 0, 1));
                body.push(ALLOW);
            }
            Unless::NoneOf(index, values) => {
                body.push(op(LOAD, halves(index).0, 0, 0));
                for (i, &value) in values.iter().enumerate() {
                    // Past the others, and past the end of the search.
                    let skip = u8::try_from(values.len() - i).unwrap_or(u8::MAX);
                    body.push(op(EQUAL, value, skip, 0));
                }
                body.push(ALLOW);
            }
            Unless::Null(index) => {
                let (low, high) = halves(index);
                body.push(op(LOAD, low, 0, 0));
                body.push(op(EQUAL, 0, 0, 3));
                body.push(op(LOAD, high, 0, 0));
                body.push(op(EQUAL, 0, 0, 1));
                body.push(ALLOW);
            }
        }
    }
    body.push(op(RETURN, verdict(row), 0, 0));
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use txos_calls::Aspects;

    /// Runs the program as the kernel would.
    fn evaluate(program: &[Instruction], arch: u32, number: u32, args: [u64; 6]) -> u32 {
        evaluate_at(program, arch, number, args, 0x7fff_0000_1234)
    }

    fn evaluate_at(
        program: &[Instruction],
        arch: u32,
        number: u32,
        args: [u64; 6],
        pointer: u64,
    ) -> u32 {
        let mut data = Vec::new();
        data.extend(number.to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend(pointer.to_le_bytes());
        for a in args {
            data.extend(a.to_le_bytes());
        }
        let (mut a, mut pc) = (0u32, 0usize);
        loop {
            let i = program[pc];
            pc += 1;
            let jump = |hit: bool| usize::from(if hit { i.jt } else { i.jf });
            match i.code {
                LOAD => {
                    let at = i.k as usize;
                    a = u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
                }
                EQUAL => pc += jump(a == i.k),
                AT_LEAST => pc += jump(a >= i.k),
                ANY_BIT => pc += jump(a & i.k != 0),
                JUMP => pc += i.k as usize,
                RETURN => return i.k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    const BUSY: [u64; 6] = [u64::MAX; 6];

    /// Arguments with which a row stops its call.
    fn busy(row: &Row) -> [u64; 6] {
        let mut args = BUSY;
        for unless in row.unless {
            if let Unless::NoneOf(i, values) = *unless {
                args[i] = u64::from(values[values.len() - 1]) | 0xdead_0000_0000;
            }
        }
        args
    }

    #[test]
    fn every_row_stops_its_call() {
        let program = program(true);
        assert!(program.len() < 700, "{} instructions", program.len());
        for row in rows() {
            let number = u32::try_from(row.number).unwrap();
            let want = match row.handler {
                Handler::Refuse(e) => libc::SECCOMP_RET_ERRNO | e.cast_unsigned(),
                _ => libc::SECCOMP_RET_USER_NOTIF,
            };
            assert_eq!(evaluate(&program, NATIVE, number, busy(row)), want, "{row:?}");
            if txos_calls::row_of_32_bits(number).is_none() {
                assert_eq!(evaluate(&program, OTHER, number, BUSY), libc::SECCOMP_RET_ALLOW);
            }
        }
    }

    #[test]
    fn calls_of_32_bit_programs_are_stopped_as_native_ones() {
        let program = program(false);
        let foreign = rows().flat_map(|row| row.i386.iter().map(move |number| (row, *number)));
        for (row, number) in foreign {
            assert_eq!(evaluate(&program, OTHER, number, BUSY), verdict(row), "{row:?}");
            assert_eq!(evaluate(&program, 0xc000_00ff, number, BUSY), libc::SECCOMP_RET_ALLOW);
        }
        assert_eq!(evaluate(&program, OTHER, 3, BUSY), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn every_exception_lets_through() {
        let program = program(true);
        for row in rows() {
            let number = u32::try_from(row.number).unwrap();
            for unless in row.asks.iter().chain(row.unless) {
                let mut args = busy(row);
                match *unless {
                    // The upper half of an int is whatever the register held.
                    Unless::Int(i, v) => args[i] = u64::from(v) | 0xdead_0000_0000,
                    Unless::Null(i) => args[i] = 0,
                    Unless::NoneOf(i, _) => args[i] = 1,
                }
                let verdict = evaluate(&program, NATIVE, number, args);
                assert_eq!(verdict, libc::SECCOMP_RET_ALLOW, "{row:?} {unless:?}");
                if let Unless::Null(i) = *unless {
                    args[i] = 1 << 32;
                    assert_ne!(evaluate(&program, NATIVE, number, args), libc::SECCOMP_RET_ALLOW);
                }
            }
        }
    }

    #[test]
    fn the_gate_is_for_looks_only() {
        let (with, without) = (program(true), program(false));
        for row in rows() {
            let number = u32::try_from(row.number).unwrap();
            let args = busy(row);
            let told = evaluate(&with, NATIVE, number, args);
            for near in [GATE_IP - 1, GATE_IP + 1, GATE_IP & 0xffff_ffff, GATE_IP ^ 1 << 40] {
                assert_eq!(evaluate_at(&with, NATIVE, number, args, near), told, "{row:?}");
            }
            assert_eq!(evaluate_at(&without, NATIVE, number, args, GATE_IP), told, "{row:?}");
            let looks = match row.handler {
                Handler::Look(_, _, aspects) => aspects.0 & Aspects::WRITE.0 == 0,
                Handler::Open(_, OpenFlags::Arg(flags)) => {
                    // The bits of BUSY open for writing.
                    assert_eq!(evaluate_at(&with, NATIVE, number, BUSY, GATE_IP), told);
                    let mut args = BUSY;
                    for flag in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC] {
                        args[flags] = flag as u64;
                        assert_eq!(evaluate_at(&with, NATIVE, number, args, GATE_IP), told);
                    }
                    args[flags] = (libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
                    let read = evaluate_at(&with, NATIVE, number, args, GATE_IP);
                    assert_eq!(read == libc::SECCOMP_RET_ALLOW, row.gated, "{row:?}");
                    continue;
                }
                _ => false,
            };
            assert!(looks || !row.gated, "{row:?}");
            let passes = evaluate_at(&with, NATIVE, number, args, GATE_IP);
            assert_eq!(passes == libc::SECCOMP_RET_ALLOW, row.gated, "{row:?}");
        }
    }

    #[test]
    fn other_calls_and_x32_go_unseen() {
        let program = program(true);
        let read = u32::try_from(libc::SYS_read).unwrap();
        let openat = u32::try_from(libc::SYS_openat).unwrap();
        assert_eq!(evaluate(&program, NATIVE, read, BUSY), libc::SECCOMP_RET_ALLOW);
        assert_eq!(evaluate(&program, NATIVE, openat | X32_BIT, BUSY), libc::SECCOMP_RET_ALLOW);
    }
}
