//! Computations of each thread: integers, floating-point numbers, bits, comparisons.

use crate::addresses::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, of_rank, window};
use crate::float::{Rounding, flushed, narrow, wide};
use crate::instruction::{Body, Compute, Register, Source, constant};
use crate::text::{Text, number};
use crate::types::{LANES, Lanes, Type, mask, signed};

/// A computation of one operand.
pub fn one(f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Compute {
    Box::new(move |s| std::array::from_fn(|i| f(s[0][i])))
}

/// A computation of two operands.
pub fn two(f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Compute {
    Box::new(move |s| {
        let mut out: Lanes = [0; LANES];
        for i in 0..LANES {
            out[i] = f(s[0][i], s[1][i]);
        }
        out
    })
}

/// A computation of three operands.
pub fn three(f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static) -> Compute {
    Box::new(move |s| {
        let mut out: Lanes = [0; LANES];
        for i in 0..LANES {
            out[i] = f(s[0][i], s[1][i], s[2][i]);
        }
        out
    })
}

fn four(f: impl Fn(u64, u64, u64, u64) -> u64 + Send + Sync + 'static) -> Compute {
    Box::new(move |s| std::array::from_fn(|i| f(s[0][i], s[1][i], s[2][i], s[3][i])))
}

/// An integer of a type in 128 bits, where no product overflows.
fn exact(x: u64, of: Type) -> i128 {
    if of.is_signed() { i128::from(signed(x, of.bits())) } else { i128::from(x & of.mask()) }
}

/// An operation on integers by their exact values; the lowest bits of the result count.
fn integers(of: Type, f: impl Fn(i128, i128) -> i128 + Send + Sync + 'static) -> Compute {
    let m = of.mask();
    two(move |a, b| f(exact(a, of), exact(b, of)) as u64 & m)
}

/// Rounding, flushing and saturation of floating-point operations.
#[derive(Clone, Copy)]
struct Mode {
    of: Type,
    rounding: Rounding,
    flush: bool,
    saturate: bool,
    relu: bool,
    exact: bool,
}

impl Mode {
    fn of(t: &Text<'_>, of: Type) -> Mode {
        let rounding = t.parts.iter().find_map(|p| Rounding::of(p)).map_or(Rounding::Nearest, |r| r.0);
        Mode {
            of,
            rounding,
            flush: t.has("ftz"),
            saturate: t.has("sat"),
            relu: t.has("relu"),
            exact: rounding == Rounding::Nearest,
        }
    }

    fn read(self, bits: u64) -> f64 {
        let x = wide(bits, self.of);
        if self.flush && self.of == Type::F32 { f64::from(flushed(x as f32)) } else { x }
    }

    fn write(self, x: f64) -> u64 {
        let mut bits = narrow(x, self.of, self.rounding);
        if self.flush && self.of == Type::F32 {
            bits = u64::from(flushed(f32::from_bits(bits as u32)).to_bits());
        }
        if self.saturate {
            let found = wide(bits, self.of);
            bits =
                narrow(if found.is_nan() { 0.0 } else { found.clamp(0.0, 1.0) }, self.of, Rounding::Nearest);
        }
        if self.relu && wide(bits, self.of) < 0.0 {
            bits = 0;
        }
        bits
    }
}

/// Both halves of a word by an operation on one.
fn halves(f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static) -> Compute {
    three(move |a, b, c| {
        let low = f(a & 0xffff, b & 0xffff, c & 0xffff) & 0xffff;
        low | (f(a >> 16 & 0xffff, b >> 16 & 0xffff, c >> 16 & 0xffff) & 0xffff) << 16
    })
}

fn scalar_of(of: Type) -> Type {
    match of {
        Type::F16x2 => Type::F16,
        Type::Bf16x2 => Type::Bf16,
        other => other,
    }
}

/// An operation on floating-point numbers in f64. Sums and products of f32 and of narrower types are exact there or rounded
/// twice without harm.
fn floats(m: Mode, packed: bool, f: impl Fn(f64, f64, f64) -> f64 + Send + Sync + 'static) -> Compute {
    let g = move |a: u64, b: u64, c: u64| m.write(f(m.read(a), m.read(b), m.read(c)));
    if packed { halves(g) } else { three(g) }
}

/// A sum of products that is rounded once.
fn fused(m: Mode, packed: bool) -> Compute {
    if m.of == Type::F32 && m.exact && !m.flush && !m.saturate {
        return three(|a, b, c| {
            let (a, b, c) = (f32::from_bits(a as u32), f32::from_bits(b as u32), f32::from_bits(c as u32));
            u64::from(single_fused(a, b, c).to_bits())
        });
    }
    if m.of == Type::F64 {
        return three(|a, b, c| f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits());
    }
    floats(m, packed, |a, b, c| odd_sum(a * b, c))
}

/// `a * b + c` with one rounding: the product is exact in f64, and the sum is rounded to odd there.
fn single_fused(a: f32, b: f32, c: f32) -> f32 {
    odd_sum(f64::from(a) * f64::from(b), f64::from(c)) as f32
}

/// The sum in f64; where it is not exact its last bit is set, so that a second rounding sees that.
fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    // The error of a sum, exactly.
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    if (error > 0.0) == (sum > 0.0) {
        f64::from_bits(sum.to_bits() + 1)
    } else {
        f64::from_bits(sum.to_bits() - 1)
    }
}

fn smaller(a: f64, b: f64, nan: bool) -> f64 {
    if a.is_nan() || b.is_nan() {
        return if nan || a.is_nan() && b.is_nan() {
            f64::NAN
        } else if a.is_nan() {
            b
        } else {
            a
        };
    }
    if a == b { if a.is_sign_negative() { a } else { b } } else { a.min(b) }
}

fn larger(a: f64, b: f64, nan: bool) -> f64 {
    -smaller(-a, -b, nan)
}

/// The bits of NaN as the device writes them.
fn usual_nan(of: Type, bits: u64) -> u64 {
    if !wide(bits, of).is_nan() {
        return bits;
    }
    match of {
        Type::F32 => 0x7fff_ffff,
        Type::F16 | Type::Bf16 => 0x7fff,
        _ => bits,
    }
}

type Compare = Box<dyn Fn(u64, u64) -> bool + Send + Sync>;

fn comparison(name: &str, of: Type) -> Result<Compare, String> {
    let unknown = || format!("a comparison {name}");
    if of.is_float() {
        let (name, unordered) = match name {
            "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" => (&name[..2], true),
            "num" => return Ok(Box::new(move |a, b| !wide(a, of).is_nan() && !wide(b, of).is_nan())),
            "nan" => return Ok(Box::new(move |a, b| wide(a, of).is_nan() || wide(b, of).is_nan())),
            n => (n, false),
        };
        let test: fn(f64, f64) -> bool = match name {
            "eq" => |a, b| a == b,
            "ne" => |a, b| a != b,
            "lt" => |a, b| a < b,
            "le" => |a, b| a <= b,
            "gt" => |a, b| a > b,
            "ge" => |a, b| a >= b,
            _ => return Err(unknown()),
        };
        return Ok(Box::new(move |a, b| {
            let (a, b) = (wide(a, of), wide(b, of));
            if a.is_nan() || b.is_nan() { unordered } else { test(a, b) }
        }));
    }
    let test: fn(i128, i128) -> bool = match name {
        "eq" => |a, b| a == b,
        "ne" => |a, b| a != b,
        "lt" | "lo" => |a, b| a < b,
        "le" | "ls" => |a, b| a <= b,
        "gt" | "hi" => |a, b| a > b,
        "ge" | "hs" => |a, b| a >= b,
        _ => return Err(unknown()),
    };
    Ok(Box::new(move |a, b| test(exact(a, of), exact(b, of))))
}

/// A comparison, with the value of a predicate combined.
fn set_predicate(t: &Text<'_>, d: Register, negated: bool) -> Result<Body, String> {
    let of = t.last_type()?;
    let compare = comparison(t.parts[1], of)?;
    let mut s = vec![t.source(1, of)?, t.source(2, of)?];
    let combine: fn(bool, bool) -> bool = match t.parts[2] {
        "and" => |a, b| a && b,
        "or" => |a, b| a || b,
        "xor" => |a, b| a != b,
        _ => |a, _| a,
    };
    let mut inverted = false;
    if let Some(c) = t.operands.get(3) {
        inverted = c.starts_with('!');
        s.push(Source::Register(t.names.register(c.trim_start_matches('!'))?));
    } else {
        s.push(constant(0));
    }
    let f = three(move |a, b, c| u64::from(combine(compare(a, b) != negated, (c != 0) != inverted)));
    Ok(Body::Compute { d, s, f })
}

/// Statements that have several results.
pub fn several(t: &Text<'_>) -> Result<Option<Vec<Body>>, String> {
    let first = t.operands.first().copied().unwrap_or_default();
    if t.parts[0] == "setp" {
        if let Some((p, q)) = first.split_once('|') {
            let (p, q) = (t.names.register(p.trim())?, t.names.register(q.trim())?);
            return Ok(Some(vec![set_predicate(t, p, false)?, set_predicate(t, q, true)?]));
        }
        return Ok(Some(vec![set_predicate(t, t.destination(0)?, false)?]));
    }
    if t.parts[0] == "mov" && first.starts_with('{') {
        let names: Vec<&str> = first.trim_matches(['{', '}']).split(',').map(str::trim).collect();
        let width = t.last_type()?.bits() / names.len() as u32;
        let s = t.source(1, t.last_type()?)?;
        let mut all = Vec::new();
        for (i, name) in names.iter().enumerate().filter(|(_, n)| **n != "_") {
            let (shift, m) = (width * i as u32, mask(width));
            let f = one(move |x| x >> shift & m);
            all.push(Body::Compute { d: t.names.register(name)?, s: vec![s.clone()], f });
        }
        return Ok(Some(all));
    }
    Ok(None)
}

/// The name of an operation without its type.
pub fn body(t: &Text<'_>) -> Result<Body, String> {
    let of = t.last_type()?;
    let d = t.destination(0)?;
    let s = |from: Type| t.sources(1, from);
    let compute = |f: Compute| -> Result<Body, String> { Ok(Body::Compute { d, s: s(of)?, f }) };
    let bits = of.bits();
    let m = of.mask();
    if matches!(of, Type::F16 | Type::Bf16 | Type::F32 | Type::F64 | Type::F16x2 | Type::Bf16x2)
        && let Some(f) = float(t, of)?
    {
        return compute(f);
    }
    let f = match t.parts[0] {
        "mov" => {
            let text = t.operands.get(1).copied().unwrap_or_default();
            if text.starts_with('{') {
                return packed(t, d, of);
            }
            one(move |x| x & m)
        }
        "add" => integers(of, |a, b| a + b),
        "sub" => integers(of, |a, b| a - b),
        "min" => integers(of, i128::min),
        "max" => integers(of, i128::max),
        // The device returns all ones for a division by zero.
        "div" => integers(of, |a, b| if b == 0 { -1 } else { a / b }),
        "rem" => integers(of, |a, b| if b == 0 { a } else { a % b }),
        "abs" => one(move |x| signed(x, bits).unsigned_abs() & m),
        "neg" => one(move |x| x.wrapping_neg() & m),
        "mul" if t.has("hi") => integers(of, move |a, b| (a * b) >> bits),
        "mul" if t.has("wide") => {
            let wide = mask(bits * 2);
            two(move |a, b| (exact(a, of) * exact(b, of)) as u64 & wide)
        }
        "mul" | "mul24" => integers(of, |a, b| a * b),
        "mad" if t.has("wide") => {
            let wide = mask(bits * 2);
            let f = three(move |a, b, c| ((exact(a, of) * exact(b, of)) as u64).wrapping_add(c) & wide);
            let c =
                t.source(3, if of.is_signed() { Type::Signed(bits * 2) } else { Type::Unsigned(bits * 2) })?;
            return Ok(Body::Compute { d, s: vec![t.source(1, of)?, t.source(2, of)?, c], f });
        }
        "mad" if t.has("hi") => {
            three(move |a, b, c| (((exact(a, of) * exact(b, of)) >> bits) as u64).wrapping_add(c) & m)
        }
        "mad" => three(move |a, b, c| a.wrapping_mul(b).wrapping_add(c) & m),
        "sad" => {
            three(move |a, b, c| ((exact(a, of) - exact(b, of)).unsigned_abs() as u64).wrapping_add(c) & m)
        }
        "and" => two(|a, b| a & b),
        "or" => two(|a, b| a | b),
        "xor" => two(|a, b| a ^ b),
        "not" => one(move |x| !x & m),
        "cnot" => one(|x| u64::from(x == 0)),
        "shl" => {
            let f = two(move |a, n| if n >= u64::from(bits) { 0 } else { a << n & m });
            return Ok(Body::Compute { d, s: vec![t.source(1, of)?, t.source(2, Type::Bits(32))?], f });
        }
        "shr" => {
            let f = two(move |a, n| {
                let n = n.min(u64::from(bits));
                if of.is_signed() {
                    (signed(a, bits) >> n.min(63)) as u64 & m
                } else if n >= 64 {
                    0
                } else {
                    (a & m) >> n
                }
            });
            return Ok(Body::Compute { d, s: vec![t.source(1, of)?, t.source(2, Type::Bits(32))?], f });
        }
        "shf" => {
            let (left, wrap) = (t.has("l"), t.has("wrap"));
            three(move |a, b, n| {
                let n = if wrap { n & 31 } else { n.min(32) };
                let both = b << 32 | a;
                if left { (((u128::from(both)) << n) >> 32) as u64 & m } else { both >> n & m }
            })
        }
        "selp" => {
            let mut s = vec![t.source(1, of)?, t.source(2, of)?];
            s.push(t.source(3, Type::Pred)?);
            return Ok(Body::Compute { d, s, f: three(move |a, b, p| if p != 0 { a & m } else { b & m }) });
        }
        "slct" => three(move |a, b, c| if (c as u32 as i32) >= 0 { a } else { b }),
        "popc" => one(move |x| u64::from((x & m).count_ones())),
        "clz" => one(move |x| u64::from((x & m).leading_zeros()) + u64::from(bits) - 64),
        "brev" => one(move |x| (x & m).reverse_bits() >> (64 - bits)),
        "bfind" => {
            let shift = t.has("shiftamt");
            one(move |x| {
                let x = if of.is_signed() && signed(x, bits) < 0 { !x & m } else { x & m };
                match (63u32.checked_sub(x.leading_zeros()), shift) {
                    (None, _) => 0xffff_ffff,
                    (Some(n), false) => u64::from(n),
                    (Some(n), true) => u64::from(bits - 1 - n),
                }
            })
        }
        "bfe" => {
            let f = three(move |a, at, n| {
                let (at, n) = (at & 255, (n & 255).min(u64::from(bits)));
                if of.is_signed() {
                    let x = if at >= 64 { signed(a, bits) >> 63 } else { signed(a, bits) >> at };
                    if n == 0 { 0 } else { signed(x as u64, n as u32) as u64 & m }
                } else {
                    let x = if at >= 64 { 0 } else { (a & m) >> at };
                    x & mask(n as u32) & if n == 0 { 0 } else { u64::MAX }
                }
            });
            let b32 = Type::Bits(32);
            return Ok(Body::Compute {
                d,
                s: vec![t.source(1, of)?, t.source(2, b32)?, t.source(3, b32)?],
                f,
            });
        }
        "bfi" => {
            let f = four(move |a, b, at, n| {
                let (at, n) = (at & 255, (n & 255).min(64));
                if at >= u64::from(bits) || n == 0 {
                    return b;
                }
                let field = mask(n as u32) << at & m;
                b & !field | a << at & field
            });
            let b32 = Type::Bits(32);
            let s = vec![t.source(1, of)?, t.source(2, of)?, t.source(3, b32)?, t.source(4, b32)?];
            return Ok(Body::Compute { d, s, f });
        }
        "prmt" => {
            if t.parts.len() > 2 {
                return Err("a permutation by mode".into());
            }
            three(|a, b, by| {
                let bytes = b << 32 | a & 0xffff_ffff;
                (0..4).fold(0, |out, i| {
                    let pick = by >> (4 * i) & 15;
                    let byte = bytes >> (8 * (pick & 7)) & 255;
                    let byte = if pick & 8 != 0 { if byte & 128 != 0 { 255 } else { 0 } } else { byte };
                    out | byte << (8 * i)
                })
            })
        }
        "lop3" => {
            let table = t.operands.get(4).and_then(|n| number(n)).ok_or("no table")?;
            let f = three(move |a, b, c| {
                let mut out = 0;
                for k in 0..8u64 {
                    if table >> k & 1 == 1 {
                        let pick = |x: u64, bit: u64| if k >> bit & 1 == 1 { x } else { !x };
                        out |= pick(a, 2) & pick(b, 1) & pick(c, 0);
                    }
                }
                out & m
            });
            return Ok(Body::Compute { d, s: (1..4).map(|i| t.source(i, of)).collect::<Result<_, _>>()?, f });
        }
        "dp4a" => {
            let types = t.types();
            let [a_type, b_type] = types[..] else { return Err("types are missing".into()) };
            three(move |a, b, c| {
                let byte = |x: u64, i: u32, of: Type| {
                    let x = x >> (8 * i) & 255;
                    if of.is_signed() { signed(x, 8) } else { x as i64 }
                };
                let sum: i64 = (0..4).map(|i| byte(a, i, a_type) * byte(b, i, b_type)).sum();
                c.wrapping_add(sum as u64) & 0xffff_ffff
            })
        }
        // The bits of an address say which memory it is in.
        "cvta" => {
            let window =
                match t.parts.iter().find(|p| ["shared", "local", "param", "global", "const"].contains(p)) {
                    Some(&"shared") => SHARED_WINDOW,
                    Some(&"local") => LOCAL_WINDOW,
                    Some(&"param") => PARAM_WINDOW,
                    _ => 0,
                };
            match t.has("to") {
                true => one(move |x| x.wrapping_sub(window)),
                false => one(move |x| x.wrapping_add(window)),
            }
        }
        "mapa" => {
            let f = two(of_rank);
            return Ok(Body::Compute { d, s: vec![t.source(1, of)?, t.source(2, Type::Bits(32))?], f });
        }
        "isspacep" => {
            let wanted = match t.parts[1] {
                "shared" | "shared::cta" => SHARED_WINDOW,
                "local" => LOCAL_WINDOW,
                _ => 0,
            };
            one(move |x| u64::from(window(x) == wanted))
        }
        other => return Err(format!("an unknown instruction {other}")),
    };
    compute(f)
}

/// Several registers in one.
fn packed(t: &Text<'_>, d: Register, of: Type) -> Result<Body, String> {
    let text = t.operands.get(1).copied().unwrap_or_default();
    let names: Vec<&str> = text.trim_matches(['{', '}']).split(',').map(str::trim).collect();
    let width = of.bits() / names.len() as u32;
    let part = |n: &str| match number(n) {
        Some(n) => Ok(constant(n & mask(width))),
        None => t.names.register(n).map(Source::Register),
    };
    let s = names.iter().map(|n| part(n)).collect::<Result<Vec<_>, _>>()?;
    let count = s.len();
    if count > 4 {
        return Err("more than four parts".into());
    }
    let f: Compute = Box::new(move |s| {
        std::array::from_fn(|i| {
            (0..count).fold(0, |out, k| out | (s[k][i] & mask(width)) << (width * k as u32))
        })
    });
    Ok(Body::Compute { d, s, f })
}

/// Operations on floating-point numbers.
fn float(t: &Text<'_>, of: Type) -> Result<Option<Compute>, String> {
    let packed = matches!(of, Type::F16x2 | Type::Bf16x2);
    let scalar = scalar_of(of);
    let m = Mode::of(t, scalar);
    let nan = t.has("NaN");
    let approximate = |f: fn(f64) -> f64| floats(m, packed, move |a, _, _| f(a));
    Ok(Some(match t.parts[0] {
        "add" if of == Type::F32 && m.exact && !m.flush && !m.saturate => {
            two(|a, b| u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits()))
        }
        "mul" if of == Type::F32 && m.exact && !m.flush && !m.saturate => {
            two(|a, b| u64::from((f32::from_bits(a as u32) * f32::from_bits(b as u32)).to_bits()))
        }
        "add" if of == Type::F64 => two(|a, b| (f64::from_bits(a) + f64::from_bits(b)).to_bits()),
        "sub" if of == Type::F64 => two(|a, b| (f64::from_bits(a) - f64::from_bits(b)).to_bits()),
        "add" => floats(m, packed, |a, b, _| odd_sum(a, b)),
        "sub" => floats(m, packed, |a, b, _| odd_sum(a, -b)),
        "mul" => floats(m, packed, |a, b, _| a * b),
        "fma" | "mad" => fused(m, packed),
        "div" if of == Type::F32 && m.exact && !m.flush => {
            two(|a, b| u64::from((f32::from_bits(a as u32) / f32::from_bits(b as u32)).to_bits()))
        }
        "div" => floats(m, packed, |a, b, _| a / b),
        "abs" => one(match of {
            Type::F16x2 | Type::Bf16x2 => |x| x & 0x7fff_7fff,
            Type::F16 | Type::Bf16 => |x| x & 0x7fff,
            Type::F32 => |x| x & 0x7fff_ffff,
            _ => |x| x & (u64::MAX >> 1),
        }),
        "neg" => one(match of {
            Type::F16x2 | Type::Bf16x2 => |x| x ^ 0x8000_8000,
            Type::F16 | Type::Bf16 => |x| x ^ 0x8000,
            Type::F32 => |x| x ^ 0x8000_0000,
            _ => |x| x ^ (1 << 63),
        }),
        "min" | "max" => {
            let pick = if t.parts[0] == "min" { smaller } else { larger };
            let g = move |a: u64, b: u64, _| usual_nan(scalar, m.write(pick(m.read(a), m.read(b), nan)));
            if packed { halves(g) } else { three(g) }
        }
        "copysign" => {
            let sign = 1 << (of.bits() - 1);
            // The sign is that of the first operand.
            two(move |a, b| b & !sign & of.mask() | a & sign)
        }
        "rcp" => approximate(|x| 1.0 / x),
        "sqrt" => approximate(f64::sqrt),
        "rsqrt" => approximate(|x| 1.0 / x.sqrt()),
        "ex2" => approximate(f64::exp2),
        "lg2" => approximate(f64::log2),
        "sin" => approximate(f64::sin),
        "cos" => approximate(f64::cos),
        "tanh" => approximate(f64::tanh),
        "testp" => {
            let test: fn(f64) -> bool = match t.parts[1] {
                "finite" => f64::is_finite,
                "infinite" => f64::is_infinite,
                "number" => |x| !x.is_nan(),
                "notanumber" => f64::is_nan,
                _ => return Err("an unknown question".into()),
            };
            one(move |x| u64::from(test(wide(x, scalar))))
        }
        _ => return Ok(None),
    }))
}
