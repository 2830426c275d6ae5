//! Floating-point numbers of all widths: to f64 and back, by each mode of rounding.

use crate::types::Type;
use half::{bf16, f16};

/// Direction of rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// To the nearest, ties away from zero.
    Away,
    Zero,
    Down,
    Up,
}

impl Rounding {
    /// Returns the mode of a part of an instruction's name, and whether the result is a whole number.
    pub fn of(text: &str) -> Option<(Rounding, bool)> {
        Some(match text {
            "rn" => (Rounding::Nearest, false),
            "rna" => (Rounding::Away, false),
            "rz" => (Rounding::Zero, false),
            "rm" => (Rounding::Down, false),
            "rp" => (Rounding::Up, false),
            "rni" => (Rounding::Nearest, true),
            "rzi" => (Rounding::Zero, true),
            "rmi" => (Rounding::Down, true),
            "rpi" => (Rounding::Up, true),
            _ => return None,
        })
    }

    /// Rounds to a whole number.
    pub fn whole(self, x: f64) -> f64 {
        match self {
            Rounding::Nearest => x.round_ties_even(),
            Rounding::Away => x.round(),
            Rounding::Zero => x.trunc(),
            Rounding::Down => x.floor(),
            Rounding::Up => x.ceil(),
        }
    }
}

/// The number that these bits are.
pub fn wide(bits: u64, of: Type) -> f64 {
    match of {
        Type::F16 => f16::from_bits(bits as u16).to_f64(),
        Type::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        Type::F64 => f64::from_bits(bits),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}

/// The bits of a number that is rounded to a type.
pub fn narrow(x: f64, to: Type, rounding: Rounding) -> u64 {
    match to {
        Type::F64 => x.to_bits(),
        Type::F32 => u64::from(to_f32(x, rounding).to_bits()),
        Type::F16 => to_16(x, rounding, |x| f16::from_f64(x).to_bits(), |b| f16::from_bits(b).to_f64()),
        _ => to_16(x, rounding, near_bf16, |b| bf16::from_bits(b).to_f64()),
    }
}

/// f64 to bf16 in one rounding.
fn near_bf16(x: f64) -> u16 {
    // Rounded to odd in f32 first, so that the second rounding sees whether anything was lost.
    let near = x as f32;
    let odd = if f64::from(near) == x || x.is_nan() || near.is_infinite() {
        near
    } else {
        let toward_zero = to_f32(x, Rounding::Zero);
        f32::from_bits(toward_zero.to_bits() | 1)
    };
    bf16::from_f32(odd).to_bits()
}

fn to_16(x: f64, rounding: Rounding, near: impl Fn(f64) -> u16, back: impl Fn(u16) -> f64) -> u64 {
    let mut bits = near(x);
    let found = back(bits);
    if x.is_nan() || found == x {
        return u64::from(bits);
    }
    let too_large = found > x;
    let step = |bits: u16, up: bool| {
        // Bits of the same sign grow with the magnitude.
        if (bits & 0x8000 != 0) != up { bits.wrapping_add(1) } else { bits.wrapping_sub(1) }
    };
    match rounding {
        Rounding::Nearest | Rounding::Away => {}
        Rounding::Zero if found.abs() > x.abs() => bits = step(bits, x < 0.0),
        Rounding::Down if too_large => bits = step(bits, false),
        Rounding::Up if !too_large => bits = step(bits, true),
        _ => {}
    }
    u64::from(bits)
}

/// f64 to f32.
pub fn to_f32(x: f64, rounding: Rounding) -> f32 {
    let near = x as f32;
    let found = f64::from(near);
    if x.is_nan() || found == x {
        return near;
    }
    match rounding {
        Rounding::Nearest | Rounding::Away => near,
        Rounding::Zero if found.abs() > x.abs() => {
            if x > 0.0 {
                near.next_down()
            } else {
                near.next_up()
            }
        }
        Rounding::Down if found > x => near.next_down(),
        Rounding::Up if found < x => near.next_up(),
        _ => near,
    }
}

/// Subnormal numbers of f32 as zero.
pub fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// f32 to TF32, ties away from zero.
pub fn to_tf32(x: f32) -> u32 {
    let bits = x.to_bits();
    if x.is_nan() || x.is_infinite() { bits } else { bits.wrapping_add(0x1000) & 0xffff_e000 }
}

/// The number of an 8-bit code with so many bits of mantissa: e4m3 has no infinities, e5m2 has.
pub fn of_f8(code: u8, mantissa: u32) -> f32 {
    let (exponent_bits, fraction) = (7 - mantissa, u32::from(code) & ((1 << mantissa) - 1));
    let exponent = (u32::from(code) >> mantissa) & ((1 << exponent_bits) - 1);
    let bias = (1 << (exponent_bits - 1)) - 1;
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let all_ones = exponent == (1 << exponent_bits) - 1;
    if mantissa == 3 && code & 0x7f == 0x7f || mantissa == 2 && all_ones && fraction != 0 {
        return f32::NAN;
    }
    if mantissa == 2 && all_ones {
        return sign * f32::INFINITY;
    }
    let scale = |e: i32| 2.0_f32.powi(e);
    let one = (1 << mantissa) as f32;
    if exponent == 0 {
        sign * fraction as f32 / one * scale(1 - bias)
    } else {
        sign * (1.0 + fraction as f32 / one) * scale(exponent as i32 - bias)
    }
}

/// The code of the nearest number; beyond the largest one that one.
pub fn to_f8(x: f32, mantissa: u32) -> u8 {
    if x.is_nan() {
        return 0x7f;
    }
    let largest: u8 = if mantissa == 3 { 0x7e } else { 0x7b };
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = x.abs();
    if magnitude >= of_f8(largest, mantissa) {
        return sign | largest;
    }
    // Codes of one sign are in the order of their numbers.
    let (mut low, mut high) = (0u8, largest);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if of_f8(middle, mantissa) <= magnitude {
            low = middle;
        } else {
            high = middle;
        }
    }
    let (below, above) = (of_f8(low, mantissa), of_f8(high, mantissa));
    let (down, up) = (magnitude - below, above - magnitude);
    sign | if down < up || down == up && low % 2 == 0 { low } else { high }
}
