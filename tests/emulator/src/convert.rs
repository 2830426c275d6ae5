//! Conversions between types.

use crate::arithmetic::{one, three, two};
use crate::float::{Rounding, flushed, narrow, of_f8, to_f8, to_tf32, wide};
use crate::instruction::{Body, Compute};
use crate::text::Text;
use crate::types::{Type, signed};

/// The conversion that an instruction is; none for other instructions.
pub fn body(t: &Text<'_>) -> Result<Option<Body>, String> {
    if t.parts[0] != "cvt" {
        return Ok(None);
    }
    let types = t.types();
    if t.has("pack") {
        return packed(t, &types).map(Some);
    }
    let [to, from] = types[..] else { return Err("a conversion without two types".into()) };
    let f = conversion(t, to, from)?;
    Ok(Some(Body::Compute { d: t.destination(0)?, s: t.sources(1, from)?, f }))
}

/// Two integers, limited to a type of 8 bits, in front of the low half of a word: the first operand is the higher byte.
fn packed(t: &Text<'_>, types: &[Type]) -> Result<Body, String> {
    let &[to, from @ Type::Signed(32), Type::Bits(32)] = types else {
        return Err("integers packed otherwise".into());
    };
    if to.bits() != 8 || !t.has("sat") {
        return Err("integers packed otherwise".into());
    }
    let (low, high) = if to.is_signed() { (-128, 127) } else { (0, 255) };
    let byte = move |x: u64| signed(x, 32).clamp(low, high) as u64 & 255;
    let f = three(move |a, b, c| (c & 0xffff) << 16 | byte(a) << 8 | byte(b));
    Ok(Body::Compute { d: t.destination(0)?, s: t.sources(1, from)?, f })
}

fn conversion(t: &Text<'_>, to: Type, from: Type) -> Result<Compute, String> {
    let rounding = t.parts.iter().find_map(|p| Rounding::of(p));
    let (rounding, whole) = rounding.unwrap_or((Rounding::Nearest, false));
    let (flush, saturate, relu) = (t.has("ftz"), t.has("sat"), t.has("relu"));
    let single = |bits: u64| f32::from_bits(bits as u32);
    Ok(match (to, from) {
        // The first operand becomes the high half.
        (Type::F16x2 | Type::Bf16x2, Type::F32) => {
            let half = if to == Type::F16x2 { Type::F16 } else { Type::Bf16 };
            let of = move |x: u64| {
                let bits = narrow(wide(x, Type::F32), half, rounding);
                if relu && wide(bits, half) < 0.0 { 0 } else { bits }
            };
            two(move |high, low| of(high) << 16 | of(low))
        }
        (Type::E4m3x2 | Type::E5m2x2, Type::F32) => {
            let mantissa = if to == Type::E4m3x2 { 3 } else { 2 };
            two(move |high, low| {
                u64::from(to_f8(single(high), mantissa)) << 8 | u64::from(to_f8(single(low), mantissa))
            })
        }
        (Type::E4m3x2 | Type::E5m2x2, Type::F16x2) => {
            let mantissa = if to == Type::E4m3x2 { 3 } else { 2 };
            let of = move |x: u64| u64::from(to_f8(wide(x & 0xffff, Type::F16) as f32, mantissa));
            one(move |x| of(x >> 16) << 8 | of(x))
        }
        (Type::F16x2, Type::E4m3x2 | Type::E5m2x2) => {
            let mantissa = if from == Type::E4m3x2 { 3 } else { 2 };
            let of = move |x: u64| narrow(f64::from(of_f8(x as u8, mantissa)), Type::F16, Rounding::Nearest);
            one(move |x| of(x >> 8) << 16 | of(x))
        }
        (Type::Tf32, Type::F32) => match rounding {
            Rounding::Away => one(move |x| u64::from(to_tf32(single(x)))),
            _ => one(move |x| {
                let near = x.wrapping_add(0xfff + (x >> 13 & 1));
                if single(x).is_finite() { near & 0xffff_e000 } else { x }
            }),
        },
        (to, from) if to.is_float() && from.is_float() => one(move |x| {
            let mut v = wide(x, from);
            if flush && from == Type::F32 {
                v = f64::from(flushed(v as f32));
            }
            if whole || to == from && rounding != Rounding::Nearest {
                v = rounding.whole(v);
            }
            let mut bits = narrow(v, to, if whole { Rounding::Nearest } else { rounding });
            if flush && to == Type::F32 {
                bits = u64::from(flushed(single(bits)).to_bits());
            }
            let found = wide(bits, to);
            if saturate {
                bits =
                    narrow(if found.is_nan() { 0.0 } else { found.clamp(0.0, 1.0) }, to, Rounding::Nearest);
            }
            if relu && found < 0.0 { 0 } else { bits }
        }),
        (to, from) if from.is_float() => {
            let bits = to.bits();
            let (low, high) = match to.is_signed() {
                true => (-(2.0_f64.powi(bits as i32 - 1)), 2.0_f64.powi(bits as i32 - 1)),
                false => (0.0, 2.0_f64.powi(bits as i32)),
            };
            let (least, most) = match to.is_signed() {
                true => (1u64 << (bits - 1), to.mask() >> 1),
                false => (0, to.mask()),
            };
            one(move |x| {
                let v = rounding.whole(wide(x, from));
                if v.is_nan() {
                    // 64 bits: only the highest one is set; fewer: zero.
                    return if bits == 64 { 1 << 63 } else { 0 };
                }
                if v < low {
                    least
                } else if v >= high {
                    most
                } else if v < 0.0 {
                    (v as i64) as u64 & to.mask()
                } else {
                    v as u64 & to.mask()
                }
            })
        }
        (to, from) if to.is_float() => one(move |x| {
            let exact = if from.is_signed() {
                i128::from(signed(x, from.bits()))
            } else {
                i128::from(x & from.mask())
            };
            whole_number(exact, to, rounding)
        }),
        (to, from) => {
            let bits = to.bits();
            one(move |x| {
                let v = if from.is_signed() {
                    i128::from(signed(x, from.bits()))
                } else {
                    i128::from(x & from.mask())
                };
                let v = match (saturate, to.is_signed()) {
                    (false, _) => v,
                    (true, true) => v.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
                    (true, false) => v.clamp(0, (1 << bits) - 1),
                };
                v as u64 & to.mask()
            })
        }
    })
}

/// An integer as a floating-point number, rounded once.
fn whole_number(x: i128, to: Type, rounding: Rounding) -> u64 {
    let near = x as f64;
    if near as i128 == x || to == Type::F64 {
        return narrow(near, to, rounding);
    }
    // Rounded to odd, so that the next rounding sees that something was lost.
    let toward_zero = if (near as i128).abs() > x.abs() { f64::from_bits(near.to_bits() - 1) } else { near };
    narrow(f64::from_bits(toward_zero.to_bits() | 1), to, rounding)
}
