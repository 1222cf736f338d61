//! Arithmetic of floating-point numbers (extensions F and D): what the instruction makes of its sources, with the flags
//! that it raises.
//!
//! Numbers of 32 bits lie in registers of 64 with all upper bits set ("boxed"); what is not boxed is taken for the
//! canonical NaN.

use rustc_apfloat::ieee::{Double, Quad, Single};
use rustc_apfloat::{Float, FloatConvert, Round, Status, StatusAnd};

/// What an instruction gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// To a floating-point register.
    Float(u64),
    /// To an integer register.
    Int(u64),
}

/// Invalid operation, in `fflags`.
const NV: u8 = 16;
const DZ: u8 = 8;
const OF: u8 = 4;
const UF: u8 = 2;
const NX: u8 = 1;

const BOX: u64 = 0xffff_ffff_0000_0000;

/// The two widths, with what the library does not say of them.
trait Width: Float {
    const WIDTH: u32;
    const FRACTION: u32;
    const CANONICAL: u64;
    fn of(register: u64) -> u64;
    fn boxed(bits: u64) -> u64;
    /// The same number with more digits.
    fn quad(self) -> Quad;
    /// The power of 2 above the largest number.
    fn beyond() -> Quad {
        Quad::from_u128(1).value.scalbn(Self::MAX_EXP + 1)
    }
}

impl Width for Single {
    const WIDTH: u32 = 32;
    const FRACTION: u32 = 23;
    const CANONICAL: u64 = 0x7fc0_0000;
    fn of(register: u64) -> u64 {
        if register & BOX == BOX { register & !BOX } else { Self::CANONICAL }
    }
    fn boxed(bits: u64) -> u64 {
        bits | BOX
    }
    fn quad(self) -> Quad {
        self.convert(&mut false).value
    }
}

impl Width for Double {
    const WIDTH: u32 = 64;
    const FRACTION: u32 = 52;
    const CANONICAL: u64 = 0x7ff8_0000_0000_0000;
    fn of(register: u64) -> u64 {
        register
    }
    fn boxed(bits: u64) -> u64 {
        bits
    }
    fn quad(self) -> Quad {
        self.convert(&mut false).value
    }
}

fn flags_of(status: Status) -> u8 {
    let table = [
        (Status::INVALID_OP, NV),
        (Status::DIV_BY_ZERO, DZ),
        (Status::OVERFLOW, OF),
        (Status::UNDERFLOW, UF),
        (Status::INEXACT, NX),
    ];
    table.into_iter().filter(|&(s, _)| status.intersects(s)).map(|(_, flag)| flag).sum()
}

fn round(mode: u8) -> Option<Round> {
    Some(match mode {
        0 => Round::NearestTiesToEven,
        1 => Round::TowardZero,
        2 => Round::TowardNegative,
        3 => Round::TowardPositive,
        4 => Round::NearestTiesToAway,
        _ => return None,
    })
}

/// The instruction with its sources.
struct Work {
    word: u32,
    a: u64,
    b: u64,
    c: u64,
    /// The integer register that is named first.
    x: u64,
    frm: u8,
    flags: u8,
}

/// Executes an instruction; `None` if it is none. `frm` is the rounding mode of `fcsr`. Gives what goes to its register
/// and the flags to be added to `fflags`.
#[must_use]
pub fn execute(word: u32, f: &[u64; 32], x: u64, frm: u8) -> Option<(Output, u8)> {
    let register = |low: u32| f[(word >> low & 31) as usize];
    let mut work =
        Work { word, a: register(15), b: register(20), c: register(27), x, frm, flags: 0 };
    let made = match word >> 25 & 3 {
        0 => work.width::<Single>(),
        1 => work.width::<Double>(),
        _ => None,
    };
    made.map(|output| (output, work.flags))
}

impl Work {
    fn width<T>(&mut self) -> Option<Output>
    where
        T: Width,
        Single: FloatConvert<T>,
        Double: FloatConvert<T>,
    {
        let (a, b, c) = (T::of(self.a), T::of(self.b), T::of(self.c));
        match self.word & 0x7f {
            0x43 => return self.fused::<T>(a, b, c, false, false),
            0x47 => return self.fused::<T>(a, b, c, false, true),
            0x4b => return self.fused::<T>(a, b, c, true, false),
            0x4f => return self.fused::<T>(a, b, c, true, true),
            _ => {}
        }
        let (x, y) = (T::from_bits(a.into()), T::from_bits(b.into()));
        let f3 = self.word >> 12 & 7;
        let rs2 = self.word >> 20 & 31;
        let top = 1 << (T::WIDTH - 1);
        match self.word >> 27 {
            0 => {
                let wide = || x.quad().add_r(y.quad(), Round::TowardZero).value;
                self.rounded(x.add_r(y, self.mode()?), wide)
            }
            1 => {
                let wide = || x.quad().sub_r(y.quad(), Round::TowardZero).value;
                self.rounded(x.sub_r(y, self.mode()?), wide)
            }
            2 => {
                let wide = || x.quad().mul_r(y.quad(), Round::TowardZero).value;
                self.rounded(x.mul_r(y, self.mode()?), wide)
            }
            3 => {
                let wide = || x.quad().div_r(y.quad(), Round::TowardZero).value;
                self.rounded(x.div_r(y, self.mode()?), wide)
            }
            11 if rs2 == 0 => {
                let mode = self.mode()?;
                let root = sqrt::<T>(a, mode, &mut self.flags);
                Some(self.float::<T>(root))
            }
            4 => {
                let sign = match f3 {
                    0 => b & top,
                    1 => !b & top,
                    2 => (a ^ b) & top,
                    _ => return None,
                };
                Some(Output::Float(T::boxed(a & (top - 1) | sign)))
            }
            5 if f3 < 2 => Some(self.least::<T>(x, y, f3 == 1)),
            20 => self.compare(x, y, f3),
            24 if rs2 < 4 => self.int_of(x, rs2),
            26 if rs2 < 4 => {
                let mode = self.mode()?;
                let made = match rs2 {
                    0 => T::from_i128_r((self.x as i32).into(), mode),
                    1 => T::from_u128_r((self.x as u32).into(), mode),
                    2 => T::from_i128_r((self.x as i64).into(), mode),
                    _ => T::from_u128_r(self.x.into(), mode),
                };
                // Integers are smaller than the largest number.
                self.rounded(made, || Quad::from_u128(0).value)
            }
            8 if rs2 < 2 => {
                let mode = self.mode()?;
                let mut lost = false;
                let made = match rs2 {
                    0 => {
                        let from = Single::from_bits(Single::of(self.a).into());
                        self.quiet(&from);
                        FloatConvert::<T>::convert_r(from, mode, &mut lost)
                    }
                    _ => {
                        let from = Double::from_bits(self.a.into());
                        self.quiet(&from);
                        FloatConvert::<T>::convert_r(from, mode, &mut lost)
                    }
                };
                let wide = || match rs2 {
                    0 => Single::from_bits(Single::of(self.a).into()).quad(),
                    _ => Double::from_bits(self.a.into()).quad(),
                };
                let wide = wide();
                self.rounded(made, || wide)
            }
            28 if rs2 == 0 && f3 == 0 => {
                let bits = self.a;
                Some(Output::Int(if T::WIDTH == 32 { i64::from(bits as i32) as u64 } else { bits }))
            }
            28 if rs2 == 0 && f3 == 1 => Some(Output::Int(class(&x))),
            30 if rs2 == 0 && f3 == 0 => {
                Some(Output::Float(T::boxed(self.x & (u64::MAX >> (64 - T::WIDTH)))))
            }
            _ => None,
        }
    }

    fn mode(&self) -> Option<Round> {
        let f3 = (self.word >> 12 & 7) as u8;
        round(if f3 == 7 { self.frm } else { f3 })
    }

    /// A signalling NaN raises the flag.
    fn quiet<T: Float>(&mut self, x: &T) {
        if x.is_signaling() {
            self.flags |= NV;
        }
    }

    fn float<T: Width>(&mut self, bits: u64) -> Output {
        let nan = T::from_bits(bits.into()).is_nan();
        Output::Float(T::boxed(if nan { T::CANONICAL } else { bits }))
    }

    /// `wide` is the result with more digits, cut off. The library does not say that a result overflows if it is rounded to
    /// the largest number.
    fn rounded<T: Width>(&mut self, made: StatusAnd<T>, wide: impl Fn() -> Quad) -> Option<Output> {
        self.flags |= flags_of(made.status);
        let inexact = made.status.intersects(Status::INEXACT);
        let most = T::largest();
        let least = T::smallest_normalized();
        if inexact && made.value.abs().bitwise_eq(most) && wide().abs() >= T::beyond() {
            self.flags |= OF;
        } else if inexact && made.value.abs().bitwise_eq(least) {
            // Nor does it say that a result underflows which is rounded to the least normal number, and would not be with all the
            // digits of a normal one.
            let nearest =
                matches!(self.mode()?, Round::NearestTiesToEven | Round::NearestTiesToAway);
            let digits = T::FRACTION as i32 + 1 + i32::from(nearest);
            let one = Quad::from_u128(1).value;
            let exponent = T::MIN_EXP;
            let edge = (one.scalbn(exponent) - one.scalbn(exponent - digits)).value;
            let wide = wide().abs();
            if wide < edge || wide == edge && !nearest {
                self.flags |= UF;
            }
        }
        Some(self.float::<T>(made.value.to_bits() as u64))
    }

    fn fused<T: Width>(
        &mut self,
        a: u64,
        b: u64,
        c: u64,
        negative: bool,
        minus: bool,
    ) -> Option<Output> {
        let mode = self.mode()?;
        let (a, b, c) = (T::from_bits(a.into()), T::from_bits(b.into()), T::from_bits(c.into()));
        for x in [&a, &b, &c] {
            self.quiet(x);
        }
        // 0 times infinity is invalid even if NaN is added.
        if a.is_infinite() && b.is_zero() || a.is_zero() && b.is_infinite() {
            self.flags |= NV;
        }
        let a = if negative { -a } else { a };
        let c = if minus { -c } else { c };
        let wide = || a.quad().mul_add_r(b.quad(), c.quad(), Round::TowardZero).value;
        self.rounded(a.mul_add_r(b, c, mode), wide)
    }

    fn least<T: Width>(&mut self, x: T, y: T, greatest: bool) -> Output {
        self.quiet(&x);
        self.quiet(&y);
        let less = x < y || x == y && x.is_negative() && !y.is_negative();
        let picked = match (x.is_nan(), y.is_nan()) {
            (true, _) => y,
            (_, true) => x,
            _ if less != greatest => x,
            _ => y,
        };
        self.float::<T>(picked.to_bits() as u64)
    }

    fn compare<T: Float>(&mut self, x: T, y: T, f3: u32) -> Option<Output> {
        let unordered = x.is_nan() || y.is_nan();
        let holds = match f3 {
            0 => x <= y,
            1 => x < y,
            2 => x == y,
            _ => return None,
        };
        if f3 < 2 && unordered {
            self.flags |= NV;
        }
        self.quiet(&x);
        self.quiet(&y);
        Some(Output::Int(u64::from(holds)))
    }

    fn int_of<T: Float>(&mut self, x: T, kind: u32) -> Option<Output> {
        let mode = self.mode()?;
        let mut exact = false;
        let (min, max, width) = [
            (i128::from(i32::MIN), i128::from(i32::MAX), 32),
            (0, i128::from(u32::MAX), 32),
            (i128::from(i64::MIN), i128::from(i64::MAX), 64),
            (0, i128::from(u64::MAX), 64),
        ][kind as usize];
        let got = x.to_i128_r(100, mode, &mut exact);
        let value = if x.is_nan() {
            self.flags |= NV;
            max
        } else if got.status.intersects(Status::INVALID_OP) || got.value < min || got.value > max {
            self.flags |= NV;
            if x.is_negative() { min } else { max }
        } else {
            self.flags |= if exact { 0 } else { NX };
            got.value
        };
        Some(Output::Int(if width == 32 { i64::from(value as i32) as u64 } else { value as u64 }))
    }
}

fn class<T: Float>(x: &T) -> u64 {
    let minus = x.is_negative();
    let bit = if x.is_nan() {
        if x.is_signaling() { 8 } else { 9 }
    } else if x.is_infinite() {
        if minus { 0 } else { 7 }
    } else if x.is_zero() {
        if minus { 3 } else { 4 }
    } else if x.is_denormal() {
        if minus { 2 } else { 5 }
    } else if minus {
        1
    } else {
        6
    };
    1 << bit
}

/// The square root, of integers: the fraction is shifted until its root has two bits more than fit, and what remains
/// counts as a last bit.
fn sqrt<T: Width>(bits: u64, mode: Round, flags: &mut u8) -> u64 {
    let x = T::from_bits(bits.into());
    if x.is_nan() || x.is_negative() && !x.is_zero() {
        *flags |= if x.is_nan() && !x.is_signaling() { 0 } else { NV };
        return T::CANONICAL;
    }
    if x.is_zero() || x.is_infinite() {
        return bits;
    }
    let bias = (1i32 << (T::WIDTH - T::FRACTION - 2)) - 1;
    let mut fraction = bits & ((1 << T::FRACTION) - 1);
    let mut exponent = (bits >> T::FRACTION) as i32;
    if exponent == 0 {
        exponent = 1;
        while fraction >> T::FRACTION == 0 {
            fraction <<= 1;
            exponent -= 1;
        }
    } else {
        fraction |= 1 << T::FRACTION;
    }
    // x = fraction * 2^power, with an even power.
    let mut power = exponent - bias - T::FRACTION as i32;
    let mut wide = u128::from(fraction);
    let mut shift = T::FRACTION + 4;
    if (power - shift as i32) % 2 != 0 {
        shift += 1;
    }
    wide <<= shift;
    power -= shift as i32;
    let root = wide.isqrt();
    let rest = wide != root * root;
    // The root has FRACTION + 1 bits and some more; its value is root * 2^(power / 2).
    let extra = 128 - root.leading_zeros() - (T::FRACTION + 1);
    let (kept, cut) = ((root >> extra) as u64, (root & ((1 << extra) - 1)) as u64);
    let half = 1u64 << (extra - 1);
    let up = match mode {
        Round::NearestTiesToEven => cut > half || cut == half && (rest || kept & 1 == 1),
        Round::NearestTiesToAway => cut >= half,
        Round::TowardPositive => cut != 0 || rest,
        Round::TowardZero | Round::TowardNegative => false,
    };
    if cut != 0 || rest {
        *flags |= NX;
    }
    let exponent = (power / 2 + extra as i32 + T::FRACTION as i32 + bias) as u64;
    (exponent << T::FRACTION) + (kept & ((1 << T::FRACTION) - 1)) + u64::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn square_roots_are_the_processor_s() {
        let mut bits = 0x3ff0_1234_5678_9abcu64;
        for _ in 0..20_000 {
            bits = bits
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let x = bits >> 1;
            let wanted = f64::from_bits(x).sqrt();
            let got = f64::from_bits(sqrt::<Double>(x, Round::NearestTiesToEven, &mut 0));
            assert!(got == wanted || got.is_nan() && wanted.is_nan(), "{x:#x}: {got:?} {wanted:?}");
            let x = (bits >> 33) as u32;
            let wanted = f32::from_bits(x).sqrt();
            let got = sqrt::<Single>(x.into(), Round::NearestTiesToEven, &mut 0) as u32;
            let got = f32::from_bits(got);
            assert!(got == wanted || got.is_nan() && wanted.is_nan(), "{x:#x}: {got:?} {wanted:?}");
        }
    }
}
