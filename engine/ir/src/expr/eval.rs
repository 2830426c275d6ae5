//! The meaning of an expression: every instruction computed in `f64` or `i64` and rounded to its type.

use super::{BinOp, CmpOp, Expr, Inst, Reg, Scalar, UnOp};
use crate::dtype::{DType, Kind};
use crate::float;
use half::{bf16, f16};

/// One scalar, widened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Num {
    /// A float.
    F(f64),
    /// An integer or truth value.
    I(i64),
}

impl Num {
    fn f(self) -> f64 {
        match self {
            Num::F(x) => x,
            Num::I(x) => x as f64,
        }
    }
    fn i(self) -> i64 {
        match self {
            Num::F(x) => x as i64,
            Num::I(x) => x,
        }
    }
}

impl Expr {
    /// The result for one element of each input. `scratch` is reused between calls.
    pub fn eval(&self, inputs: &[Num], scratch: &mut Vec<Num>) -> Num {
        scratch.clear();
        for inst in &self.insts {
            let v = inst.value(inputs, |r| scratch[usize::from(r)]);
            scratch.push(v);
        }
        scratch[usize::from(self.result)]
    }
}

impl Inst {
    /// The instruction's value, from one element of each input and the values of earlier instructions.
    pub fn value(&self, inputs: &[Num], at: impl Fn(Reg) -> Num) -> Num {
        match self.op {
            Scalar::Input(i) => inputs[usize::from(i)],
            Scalar::Float(x) => round_to(Num::F(x), self.ty),
            Scalar::Int(x) => round_to(Num::I(x), self.ty),
            Scalar::Un(op, a) => round_to(unary(op, at(a)), self.ty),
            Scalar::Bin(op, a, b) => round_to(binary(op, at(a), at(b), self.ty), self.ty),
            Scalar::Cmp(op, a, b) => Num::I(compare(op, at(a), at(b)).into()),
            Scalar::Select(c, a, b) => at(if at(c).i() != 0 { a } else { b }),
            Scalar::Cast(a) => cast(at(a), self.ty),
        }
    }
}

/// Rounds a float to a float type, wraps an integer to an integer type.
fn round_to(x: Num, ty: DType) -> Num {
    match (x, ty) {
        (Num::F(x), DType::F32) => Num::F((x as f32).into()),
        (Num::F(x), DType::F16) => Num::F(f16::from_bits(float::f16_bits(x)).into()),
        (Num::F(x), DType::BF16) => Num::F(bf16::from_bits(float::bf16_bits(x)).into()),
        (Num::F(x), DType::F8E4M3) => Num::F(float::f8e4m3_to_f64(float::f8e4m3_bits(x))),
        (Num::I(x), DType::I32) => Num::I((x as i32).into()),
        (Num::I(x), DType::I8) => Num::I((x as i8).into()),
        (Num::I(x), DType::U8) => Num::I((x as u8).into()),
        (Num::I(x), DType::I4) => Num::I((((x << 4) as i8) >> 4).into()),
        (Num::I(x), DType::Bool) => Num::I((x != 0).into()),
        _ => x,
    }
}

/// Converts between any two types.
pub fn cast(x: Num, ty: DType) -> Num {
    match (x, ty.kind()) {
        (Num::I(x), _) if ty == DType::F32 => Num::F((x as f32).into()),
        (x, Kind::Float) => round_to(Num::F(x.f()), ty),
        (Num::F(x), Kind::Bool) => Num::I((x != 0.0).into()),
        // Saturates at the width of i32 or i64; narrower types then wrap.
        (Num::F(x), _) if ty == DType::I64 => Num::I(x as i64),
        (Num::F(x), _) => round_to(Num::I((x as i32).into()), ty),
        (x, _) => round_to(x, ty),
    }
}

fn unary(op: UnOp, x: Num) -> Num {
    match (op, x) {
        (UnOp::IsNan, x) => Num::I(x.f().is_nan().into()),
        (UnOp::IsInf, x) => Num::I(x.f().is_infinite().into()),
        (UnOp::Not, x) => Num::I((x.i() == 0).into()),
        (UnOp::BitNot, x) => Num::I(!x.i()),
        (_, Num::I(x)) => Num::I(match op {
            UnOp::Neg => x.wrapping_neg(),
            UnOp::Abs => x.wrapping_abs(),
            UnOp::Sign => x.signum(),
            UnOp::Recip => 1i64.checked_div(x).unwrap_or(0),
            _ => x,
        }),
        (_, Num::F(x)) => Num::F(unary_f(op, x)),
    }
}

fn unary_f(op: UnOp, x: f64) -> f64 {
    match op {
        UnOp::Neg => -x,
        UnOp::Abs => x.abs(),
        UnOp::Sign if x == 0.0 || x.is_nan() => x,
        UnOp::Sign => x.signum(),
        UnOp::Floor => x.floor(),
        UnOp::Ceil => x.ceil(),
        UnOp::Round => x.round_ties_even(),
        UnOp::Trunc => x.trunc(),
        UnOp::Sqrt => x.sqrt(),
        UnOp::Recip => 1.0 / x,
        UnOp::Exp => libm::exp(x),
        UnOp::Log => libm::log(x),
        UnOp::Log1p => libm::log1p(x),
        UnOp::Sin => libm::sin(x),
        UnOp::Cos => libm::cos(x),
        UnOp::Tan => libm::tan(x),
        UnOp::Asin => libm::asin(x),
        UnOp::Acos => libm::acos(x),
        UnOp::Atan => libm::atan(x),
        UnOp::Sinh => libm::sinh(x),
        UnOp::Cosh => libm::cosh(x),
        UnOp::Tanh => libm::tanh(x),
        UnOp::Asinh => libm::asinh(x),
        UnOp::Acosh => libm::acosh(x),
        UnOp::Atanh => libm::atanh(x),
        UnOp::Erf => libm::erf(x),
        UnOp::Not | UnOp::BitNot | UnOp::IsNan | UnOp::IsInf => x,
    }
}

fn binary(op: BinOp, a: Num, b: Num, ty: DType) -> Num {
    match (a, b) {
        (Num::F(a), Num::F(b)) => Num::F(binary_f(op, a, b)),
        _ => Num::I(binary_i(op, a.i(), b.i(), ty)),
    }
}

fn binary_f(op: BinOp, a: f64, b: f64) -> f64 {
    match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a * b,
        BinOp::Div => a / b,
        BinOp::FloorDiv => (a / b).floor(),
        BinOp::Mod => {
            let r = libm::fmod(a, b);
            match r {
                0.0 => 0f64.copysign(b),
                r if (r < 0.0) != (b < 0.0) => r + b,
                r => r,
            }
        }
        BinOp::Rem => libm::fmod(a, b),
        BinOp::Pow => libm::pow(a, b),
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        _ => f64::NAN,
    }
}

fn binary_i(op: BinOp, a: i64, b: i64, ty: DType) -> i64 {
    let width = i64::from(ty.bits());
    match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        _ if b == 0 && matches!(op, BinOp::Div | BinOp::FloorDiv | BinOp::Mod | BinOp::Rem) => 0,
        BinOp::Div => a.wrapping_div(b),
        BinOp::Rem => a.wrapping_rem(b),
        BinOp::FloorDiv => {
            a.wrapping_div(b).wrapping_sub(i64::from(a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)))
        }
        BinOp::Mod => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        }
        BinOp::Pow => pow_i(a, b),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::And | BinOp::BitAnd => a & b,
        BinOp::Or | BinOp::BitOr => a | b,
        BinOp::Xor | BinOp::BitXor => a ^ b,
        BinOp::Shl if (0..width).contains(&b) => a.wrapping_shl(b as u32),
        BinOp::Shr if (0..width).contains(&b) => a.wrapping_shr(b as u32),
        BinOp::Shl => 0,
        BinOp::Shr => {
            if a < 0 {
                -1
            } else {
                0
            }
        }
    }
}

fn pow_i(a: i64, b: i64) -> i64 {
    if b >= 0 {
        let (mut power, mut square, mut rest) = (1i64, a, b);
        while rest > 0 {
            if rest & 1 == 1 {
                power = power.wrapping_mul(square);
            }
            square = square.wrapping_mul(square);
            rest >>= 1;
        }
        return power;
    }
    match a {
        1 => 1,
        -1 => {
            if b % 2 == 0 {
                1
            } else {
                -1
            }
        }
        _ => 0,
    }
}

fn compare(op: CmpOp, a: Num, b: Num) -> bool {
    let ord = match (a, b) {
        (Num::I(a), Num::I(b)) => Some(a.cmp(&b)),
        _ => a.f().partial_cmp(&b.f()),
    };
    match op {
        CmpOp::Eq => ord.is_some_and(|o| o.is_eq()),
        CmpOp::Ne => !ord.is_some_and(|o| o.is_eq()),
        CmpOp::Lt => ord.is_some_and(|o| o.is_lt()),
        CmpOp::Le => ord.is_some_and(|o| o.is_le()),
        CmpOp::Gt => ord.is_some_and(|o| o.is_gt()),
        CmpOp::Ge => ord.is_some_and(|o| o.is_ge()),
    }
}
