//! Loops over blocks for each instruction of an expression, typed and compiled for each instruction set.

use super::math::{self, wide};
use crate::fast::short::{self, BLOCK};
use crate::fast::simd::vectorized;
use kiln_ir::DType;
use kiln_ir::expr::{BinOp, CmpOp, UnOp};

// Loops by index with their bodies in place: closures may stay functions of their own, which no vectors are made for.

macro_rules! map {
    ($x:expr, $y:expr, |$a:ident| $body:expr) => {{
        let n = $y.len().min($x.len());
        let (x, y) = (&$x[..n], &mut $y[..n]);
        for i in 0..n {
            let $a = x[i];
            y[i] = $body;
        }
    }};
}

macro_rules! map2 {
    ($p:expr, $q:expr, $y:expr, |$a:ident, $b:ident| $body:expr) => {{
        let n = $y.len().min($p.len()).min($q.len());
        let (p, q, y) = (&$p[..n], &$q[..n], &mut $y[..n]);
        for i in 0..n {
            let ($a, $b) = (p[i], q[i]);
            y[i] = $body;
        }
    }};
}

vectorized! {
    /// A function of every float. False if floats do not have it.
    pub fn unary(op: UnOp, x: &[f32], y: &mut [f32]) -> bool {
        match op {
            UnOp::Neg => map!(x, y, |x| -x),
            UnOp::Abs => map!(x, y, |x| f32::abs(x)),
            UnOp::Recip => map!(x, y, |x| 1.0 / x),
            UnOp::Sqrt => map!(x, y, |x| f32::sqrt(x)),
            UnOp::Exp => map!(x, y, |x| math::exp::<FMA>(x)),
            UnOp::Tanh => map!(x, y, |x| math::tanh::<FMA>(x)),
            UnOp::Erf => map!(x, y, |x| math::erf::<FMA>(x)),
            UnOp::Log => map!(x, y, |x| math::log::<FMA>(x)),
            UnOp::Log1p => map!(x, y, |x| math::log1p::<FMA>(x)),
            UnOp::Floor => map!(x, y, |x| f32::floor(x)),
            UnOp::Ceil => map!(x, y, |x| f32::ceil(x)),
            UnOp::Round => map!(x, y, |x| f32::round_ties_even(x)),
            UnOp::Trunc => map!(x, y, |x| f32::trunc(x)),
            UnOp::Sign => map!(x, y, |x| if x == 0.0 || x.is_nan() { x } else { 1f32.copysign(x) }),
            UnOp::Sin => {
                map!(x, y, |x| wide::sin(x));
                distant(x, y, libm::sin);
            }
            UnOp::Cos => {
                map!(x, y, |x| wide::cos(x));
                distant(x, y, libm::cos);
            }
            UnOp::Tan => {
                map!(x, y, |x| wide::tan(x));
                distant(x, y, libm::tan);
            }
            UnOp::Asin => map!(x, y, |x| math::asin::<FMA>(x)),
            UnOp::Acos => map!(x, y, |x| math::acos::<FMA>(x)),
            UnOp::Atan => map!(x, y, |x| wide::atan(x)),
            UnOp::Sinh => map!(x, y, |x| wide::sinh(x)),
            UnOp::Cosh => map!(x, y, |x| wide::cosh(x)),
            UnOp::Asinh => map!(x, y, |x| wide::asinh(x)),
            UnOp::Acosh => map!(x, y, |x| wide::acosh(x)),
            UnOp::Atanh => map!(x, y, |x| wide::atanh(x)),
            UnOp::Not | UnOp::BitNot | UnOp::IsNan | UnOp::IsInf => return false,
        }
        true
    }
}

vectorized! {
    /// 1/(1 + e^−x).
    pub fn sigmoid(x: &[f32], y: &mut [f32]) {
        map!(x, y, |x| math::sigmoid::<FMA>(x));
    }
}

vectorized! {
    /// Fills memory with a number.
    pub fn fill<T: Copy>(x: T, y: &mut [T]) {
        for y in y {
            *y = x;
        }
    }
}

/// A rounded quotient plus a zero point, cut to bounds below 2²⁴; 0 for NaN.
#[inline(always)]
fn quantized(x: f32, scale: f32, zero: f32, [low, high]: [f32; 2]) -> i32 {
    let q = (x / scale).round_ties_even() + zero;
    let q = if q < low { low } else { q };
    let q = if q > high { high } else { q };
    let q = if q.is_nan() { 0.0 } else { q };
    // SAFETY: the number is between the bounds, or 0.
    unsafe { q.to_int_unchecked() }
}

vectorized! {
    /// Codes of floats by their scales and zero points, within bounds.
    pub fn quantize(x: &[f32], scale: &[f32], zero: &[f32], bounds: [f32; 2], y: &mut [i32]) {
        let n = y.len().min(x.len()).min(scale.len()).min(zero.len());
        let (x, scale, zero, y) = (&x[..n], &scale[..n], &zero[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = quantized(x[i], scale[i], zero[i], bounds);
        }
    }
}

vectorized! {
    /// As [`quantize`], the low byte of each code.
    pub fn quantize_bytes(x: &[f32], scale: &[f32], zero: &[f32], bounds: [f32; 2], y: &mut [u8]) {
        let n = y.len().min(x.len()).min(scale.len()).min(zero.len());
        let (x, scale, zero, y) = (&x[..n], &scale[..n], &zero[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = quantized(x[i], scale[i], zero[i], bounds) as u8;
        }
    }
}

vectorized! {
    /// Differences as floats, times scales.
    pub fn dequantize(x: &[i32], scale: &[f32], zero: &[i32], y: &mut [f32]) {
        let n = y.len().min(x.len()).min(scale.len()).min(zero.len());
        let (x, scale, zero, y) = (&x[..n], &scale[..n], &zero[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = x[i].wrapping_sub(zero[i]) as f32 * scale[i];
        }
    }
}

vectorized! {
    /// Products plus others, both rounded.
    pub fn affine(a: &[f32], b: &[f32], c: &[f32], y: &mut [f32]) {
        let n = y.len().min(a.len()).min(b.len()).min(c.len());
        let (a, b, c, y) = (&a[..n], &b[..n], &c[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = a[i] * b[i] + c[i];
        }
    }
}

vectorized! {
    /// Floats times a factor plus a term, both rounded.
    pub fn affine_of(x: &[f32], factor: f32, term: f32, y: &mut [f32]) {
        map!(x, y, |x| x * factor + term);
    }
}

vectorized! {
    /// As [`affine_of`], in the place of the floats.
    pub fn affine_own(factor: f32, term: f32, y: &mut [f32]) {
        for y in y {
            *y = *y * factor + term;
        }
    }
}

vectorized! {
    /// Bytes with a sign less a zero point, times a scale.
    pub fn signed_codes(x: &[u8], scale: f32, zero: i32, y: &mut [f32]) {
        map!(x, y, |x| i32::from(x as i8).wrapping_sub(zero) as f32 * scale);
    }
}

vectorized! {
    /// Bytes without a sign less a zero point, times a scale.
    pub fn unsigned_codes(x: &[u8], scale: f32, zero: i32, y: &mut [f32]) {
        map!(x, y, |x| i32::from(x).wrapping_sub(zero) as f32 * scale);
    }
}

vectorized! {
    /// The lesser of a bound and of the greater of another one and an element; NaN if one is.
    pub fn clip(x: &[f32], low: &[f32], high: &[f32], y: &mut [f32]) {
        let n = y.len().min(x.len()).min(low.len()).min(high.len());
        let (x, low, high, y) = (&x[..n], &low[..n], &high[..n], &mut y[..n]);
        for i in 0..n {
            let (a, b) = (x[i], low[i]);
            let raised = if a > b || a.is_nan() { a } else { b };
            let b = high[i];
            y[i] = if raised < b || raised.is_nan() { raised } else { b };
        }
    }
}

vectorized! {
    /// Raises floats to a bound; NaN stays.
    pub fn raise(y: &mut [f32], bound: f32) {
        let (blocks, rest) = y.as_chunks_mut::<BLOCK>();
        for y in blocks {
            let x = short::old(y);
            for l in 0..BLOCK {
                y[l] = if bound > x[l] { bound } else { x[l] };
            }
        }
        for y in rest {
            *y = if bound > *y { bound } else { *y };
        }
    }
}

vectorized! {
    /// Adds as many others to floats, and raises the sums to a bound; NaN stays.
    pub fn raise_sum(y: &mut [f32], others: &[f32], bound: f32) {
        let n = y.len().min(others.len());
        let (blocks, rest) = y[..n].as_chunks_mut::<BLOCK>();
        let (summands, last) = others[..n].as_chunks::<BLOCK>();
        for (y, x) in blocks.iter_mut().zip(summands) {
            let old = short::old(y);
            for l in 0..BLOCK {
                let sum = old[l] + x[l];
                y[l] = if bound > sum { bound } else { sum };
            }
        }
        for (y, x) in rest.iter_mut().zip(last) {
            let sum = *y + x;
            *y = if bound > sum { bound } else { sum };
        }
    }
}

/// A periodic function of numbers that are too far for the fast one.
#[inline(always)]
fn distant(x: &[f32], y: &mut [f32], f: fn(f64) -> f64) {
    let mut any = false;
    for x in x {
        any |= x.abs() > wide::PERIODIC;
    }
    if any {
        let all = y.iter_mut().zip(x).filter(|(_, x)| x.abs() > wide::PERIODIC);
        all.for_each(|(y, &x)| *y = f(x.into()) as f32);
    }
}

vectorized! {
    /// A function of pairs of floats. False if floats do not have it.
    pub fn binary(op: BinOp, a: &[f32], b: &[f32], y: &mut [f32]) -> bool {
        match op {
            BinOp::Add => map2!(a, b, y, |a, b| a + b),
            BinOp::Sub => map2!(a, b, y, |a, b| a - b),
            BinOp::Mul => map2!(a, b, y, |a, b| a * b),
            BinOp::Div => map2!(a, b, y, |a, b| a / b),
            BinOp::Min => map2!(a, b, y, |a, b| if a < b || a.is_nan() { a } else { b }),
            BinOp::Max => map2!(a, b, y, |a, b| if a > b || a.is_nan() { a } else { b }),
            BinOp::Pow => power(a, b, y),
            BinOp::FloorDiv => map2!(a, b, y, |a, b| wide::floor_div(a, b)),
            BinOp::Rem => {
                map2!(a, b, y, |a, b| wide::rem(a, b) as f32);
                far(a, b, y, |a, b| libm::fmod(a.into(), b.into()) as f32);
            }
            BinOp::Mod => {
                map2!(a, b, y, |a, b| wide::modulo(wide::rem(a, b), b));
                far(a, b, y, |a, b| wide::modulo(libm::fmod(a.into(), b.into()), b));
            }
            _ => return false,
        }
        true
    }
}

/// Powers; one exponent of a whole block is often one whose power is a product.
#[inline(always)]
fn power(a: &[f32], b: &[f32], y: &mut [f32]) {
    let first = b.first().copied().unwrap_or_default();
    let mut same = true;
    for &b in b {
        same &= b == first;
    }
    match first {
        2.0 if same => map!(a, y, |x| x * x),
        3.0 if same => map!(a, y, |x| (f64::from(x) * f64::from(x) * f64::from(x)) as f32),
        _ => map2!(a, b, y, |a, b| wide::pow(a, b)),
    }
}

/// Remainders of quotients that are too great for the exact one.
#[inline(always)]
fn far(a: &[f32], b: &[f32], y: &mut [f32], f: fn(f32, f32) -> f32) {
    let beyond = |a: f32, b: f32| (a / b).abs() >= wide::EXACT;
    let mut any = false;
    for (&a, &b) in a.iter().zip(b) {
        any |= (a / b).abs() >= wide::EXACT;
    }
    if any {
        let all = y.iter_mut().zip(a.iter().zip(b));
        all.filter(|(_, (a, b))| beyond(**a, **b)).for_each(|(y, (&a, &b))| *y = f(a, b));
    }
}

/// An integer type of lanes.
pub trait Int: Copy + Ord + Default {
    /// Whether numbers of the type are zero, negative.
    fn is(self) -> (bool, bool);
    /// A small number.
    fn of(x: i8) -> Self;
    /// Functions that wrap.
    fn neg(self) -> Self;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    /// Quotient cut off, and 0 by 0.
    fn div(self, b: Self) -> Self;
    fn not(self) -> Self;
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
    /// Shifts; by the width or more, or by negative numbers, all bits leave.
    fn shl(self, b: Self) -> Self;
    fn shr(self, b: Self) -> Self;
    /// Powers, which wrap.
    fn pow(self, b: Self) -> Self;
}

macro_rules! int {
    ($t:ident, $u:ident, $div:expr) => {
        impl Int for $t {
            #[inline(always)]
            fn is(self) -> (bool, bool) {
                (self == 0, self < 0)
            }
            #[inline(always)]
            fn of(x: i8) -> $t {
                x.into()
            }
            #[inline(always)]
            fn neg(self) -> $t {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn add(self, b: $t) -> $t {
                self.wrapping_add(b)
            }
            #[inline(always)]
            fn sub(self, b: $t) -> $t {
                self.wrapping_sub(b)
            }
            #[inline(always)]
            fn mul(self, b: $t) -> $t {
                self.wrapping_mul(b)
            }
            #[inline(always)]
            fn div(self, b: $t) -> $t {
                $div(self, b)
            }
            #[inline(always)]
            fn not(self) -> $t {
                !self
            }
            #[inline(always)]
            fn and(self, b: $t) -> $t {
                self & b
            }
            #[inline(always)]
            fn or(self, b: $t) -> $t {
                self | b
            }
            #[inline(always)]
            fn xor(self, b: $t) -> $t {
                self ^ b
            }
            #[inline(always)]
            fn shl(self, b: $t) -> $t {
                let all = b as $u >= $t::BITS as $u;
                if all { 0 } else { self.wrapping_shl(b as u32) }
            }
            #[inline(always)]
            fn shr(self, b: $t) -> $t {
                let most = $t::BITS as $t - 1;
                let b = if b as $u > most as $u { most } else { b };
                self.wrapping_shr(b as u32)
            }
            #[inline(always)]
            fn pow(self, b: $t) -> $t {
                if b < 0 {
                    return match self {
                        1 => 1,
                        -1 => 1 - 2 * (b & 1),
                        _ => 0,
                    };
                }
                let (mut power, mut square, mut rest) = (1 as $t, self, b);
                while rest > 0 {
                    let factor = if rest & 1 == 1 { square } else { 1 };
                    power = power.wrapping_mul(factor);
                    square = square.wrapping_mul(square);
                    rest >>= 1;
                }
                power
            }
        }
    };
}
// Quotients of 32 bits are exact in f64, which vectors divide.
int!(i32, u32, |a: i32, b: i32| {
    let divisor = if b == 0 || b == -1 { 1 } else { b };
    // SAFETY: the quotient is no greater than the dividend.
    let q: i32 = unsafe { (f64::from(a) / f64::from(divisor)).to_int_unchecked() };
    let q = if b == -1 { a.wrapping_neg() } else { q };
    if b == 0 { 0 } else { q }
});
int!(i64, u64, |a: i64, b: i64| if b == 0 { 0 } else { a.wrapping_div(b) });

/// The remainder, with the sign of the dividend; by 0 it is 0.
#[inline(always)]
fn rem<T: Int>(a: T, b: T) -> T {
    let r = a.sub(a.div(b).mul(b));
    if b.is().0 { T::default() } else { r }
}

/// Whether a remainder has not the sign of the divisor.
#[inline(always)]
fn crosses<T: Int>(r: T, b: T) -> bool {
    !r.is().0 && r.is().1 != b.is().1
}

vectorized! {
    /// A function of every integer.
    pub fn unary_int<T: Int>(op: UnOp, x: &[T], y: &mut [T]) {
        match op {
            UnOp::Neg => map!(x, y, |x| T::neg(x)),
            UnOp::Abs => map!(x, y, |x| if x.is().1 { x.neg() } else { x }),
            UnOp::Sign => map!(x, y, |x| {
                let low = if x.is().1 { T::of(-1) } else { T::of(1) };
                if x.is().0 { x } else { low }
            }),
            UnOp::Recip => map!(x, y, |x| T::of(1).div(x)),
            UnOp::BitNot => map!(x, y, |x| T::not(x)),
            UnOp::Not => map!(x, y, |x| if x.is().0 { T::of(1) } else { T::default() }),
            UnOp::IsNan | UnOp::IsInf => y.fill(T::default()),
            _ => y.copy_from_slice(x),
        }
    }
}

vectorized! {
    /// A function of pairs of integers.
    pub fn binary_int<T: Int>(op: BinOp, a: &[T], b: &[T], y: &mut [T]) {
        match op {
            BinOp::Add => map2!(a, b, y, |a, b| T::add(a, b)),
            BinOp::Sub => map2!(a, b, y, |a, b| T::sub(a, b)),
            BinOp::Mul => map2!(a, b, y, |a, b| T::mul(a, b)),
            BinOp::Div => map2!(a, b, y, |a, b| T::div(a, b)),
            BinOp::Rem => map2!(a, b, y, |a, b| rem(a, b)),
            BinOp::FloorDiv => map2!(a, b, y, |a, b| {
                let (q, r) = (a.div(b), rem(a, b));
                if crosses(r, b) { q.sub(T::of(1)) } else { q }
            }),
            BinOp::Mod => map2!(a, b, y, |a, b| {
                let r = rem(a, b);
                if crosses(r, b) { r.add(b) } else { r }
            }),
            BinOp::Pow => map2!(a, b, y, |a, b| T::pow(a, b)),
            BinOp::Min => map2!(a, b, y, |a, b| if b < a { b } else { a }),
            BinOp::Max => map2!(a, b, y, |a, b| if b > a { b } else { a }),
            BinOp::And | BinOp::BitAnd => map2!(a, b, y, |a, b| T::and(a, b)),
            BinOp::Or | BinOp::BitOr => map2!(a, b, y, |a, b| T::or(a, b)),
            BinOp::Xor | BinOp::BitXor => map2!(a, b, y, |a, b| T::xor(a, b)),
            BinOp::Shl => map2!(a, b, y, |a, b| T::shl(a, b)),
            BinOp::Shr => map2!(a, b, y, |a, b| T::shr(a, b)),
        }
    }
}

/// A type that lanes compare, and choose by masks.
pub trait Ordered: Copy + PartialOrd {
    /// `a` where the condition holds, else `b`. Bits are masked: of a choice between two loads the compiler makes one load from a chosen
    /// address, which vectors gather.
    fn choose(c: bool, a: Self, b: Self) -> Self;
}
macro_rules! ordered {
    ($($t:ident, $bits:ident, $to:expr, $from:expr;)*) => {$(
        impl Ordered for $t {
            #[inline(always)]
            fn choose(c: bool, a: $t, b: $t) -> $t {
                let mask = $bits::from(c).wrapping_neg();
                $from($to(a) & mask | $to(b) & !mask)
            }
        }
    )*};
}
ordered! {
    f32, u32, f32::to_bits, f32::from_bits;
    i32, u32, |x: i32| x as u32, |x: u32| x as i32;
    i64, u64, |x: i64| x as u64, |x: u64| x as i64;
    u8, u8, |x: u8| x, |x: u8| x;
}

vectorized! {
    /// Compares pairs.
    pub fn compare<T: Ordered>(op: CmpOp, a: &[T], b: &[T], y: &mut [i32]) {
        match op {
            CmpOp::Eq => map2!(a, b, y, |a, b| i32::from(a == b)),
            CmpOp::Ne => map2!(a, b, y, |a, b| i32::from(a != b)),
            CmpOp::Lt => map2!(a, b, y, |a, b| i32::from(a < b)),
            CmpOp::Le => map2!(a, b, y, |a, b| i32::from(a <= b)),
            CmpOp::Gt => map2!(a, b, y, |a, b| i32::from(a > b)),
            CmpOp::Ge => map2!(a, b, y, |a, b| i32::from(a >= b)),
        }
    }
}

vectorized! {
    /// Takes a where c is not zero, else b.
    pub fn select<T: Ordered>(c: &[i32], a: &[T], b: &[T], y: &mut [T]) {
        let n = y.len().min(c.len()).min(a.len()).min(b.len());
        let (c, a, b, y) = (&c[..n], &a[..n], &b[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = T::choose(c[i] != 0, a[i], b[i]);
        }
    }
}

vectorized! {
    /// Whether floats are NaN, or else infinite.
    pub fn test(nan: bool, x: &[f32], y: &mut [i32]) {
        match nan {
            true => map!(x, y, |x| i32::from(x.is_nan())),
            false => map!(x, y, |x| i32::from(x.abs() == f32::INFINITY)),
        }
    }
}

/// A conversion between element types of lanes and memory.
pub trait Convert<U>: Copy {
    /// The converted element.
    fn convert(self) -> U;
}

macro_rules! convert {
    ($($t:ident to $u:ident: |$x:ident| $body:expr;)*) => {$(
        impl Convert<$u> for $t {
            #[inline(always)]
            fn convert(self) -> $u {
                let $x = self;
                $body
            }
        }
    )*};
}
convert! {
    f32 to i32: |x| {
        // Saturates, as `as` does, by comparisons that vectors have.
        let (low, high) = (x < -2_147_483_648.0, x >= 2_147_483_648.0);
        let inside = if low | high | x.is_nan() { 0.0 } else { x };
        // SAFETY: the number is between the least and the greatest of i32.
        let y: i32 = unsafe { inside.to_int_unchecked() };
        let y = if low { i32::MIN } else { y };
        if high { i32::MAX } else { y }
    };
    f32 to i64: |x| {
        let (low, high) = (x < -9_223_372_036_854_775_808.0, x >= 9_223_372_036_854_775_808.0);
        let inside = if low | high | x.is_nan() { 0.0 } else { x };
        // SAFETY: the number is between the least and the greatest of i64.
        let y: i64 = unsafe { inside.to_int_unchecked() };
        let y = if low { i64::MIN } else { y };
        if high { i64::MAX } else { y }
    };
    i32 to f32: |x| x as f32;
    i64 to f32: |x| x as f32;
    i32 to i64: |x| x.into();
    i64 to i32: |x| x as i32;
    i8 to i32: |x| x.into();
    u8 to i32: |x| x.into();
    i32 to i8: |x| x as i8;
    i32 to u8: |x| x as u8;
}

vectorized! {
    /// Converts every element.
    pub fn convert<T: Convert<U>, U: Copy>(x: &[T], y: &mut [U]) {
        map!(x, y, |x| T::convert(x));
    }
}

/// A number whose truth is asked for.
pub trait Truth: Copy {
    /// Whether it is not zero.
    fn truth(self) -> bool;
}
macro_rules! truth {
    ($($t:ident $zero:literal),*) => {$(
        impl Truth for $t {
            #[inline(always)]
            fn truth(self) -> bool {
                self != $zero
            }
        }
    )*};
}
truth!(f32 0.0, i32 0, i64 0, u8 0);

vectorized! {
    /// 1 where an element is not zero, else 0.
    pub fn truths<T: Truth>(x: &[T], y: &mut [i32]) {
        map!(x, y, |x| x.truth().into());
    }
}

vectorized! {
    /// 1 where an element is not zero, else 0, as bytes.
    pub fn store_truths(x: &[i32], y: &mut [u8]) {
        map!(x, y, |x| u8::from(x != 0));
    }
}

vectorized! {
    /// Wraps integers as a narrower type does.
    pub fn wrap(ty: DType, x: &mut [i32]) {
        match ty {
            DType::I8 => {
                for x in x {
                    *x = (*x as i8).into();
                }
            }
            DType::U8 => {
                for x in x {
                    *x &= 0xff;
                }
            }
            DType::I4 => {
                for x in x {
                    *x = *x << 28 >> 28;
                }
            }
            _ => {}
        }
    }
}
