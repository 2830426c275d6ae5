//! Scalar expressions as statements, and what element types are in registers.

use crate::rounding::{kept_wide, seen_narrow};
use kiln_backend::BackendError;
use kiln_ir::expr::eval::{Num, cast as cast_number};
use kiln_ir::expr::{BinOp, CmpOp, Expr, Inst, Reg, Scalar, UnOp, compute_type};
use kiln_ir::{DType, dtype::Kind};
use std::fmt::Write;

/// The type of a value in registers.
pub fn register(t: DType) -> &'static str {
    match compute_type(t) {
        DType::F32 => "f32",
        DType::Bool => "bool",
        DType::I64 => "i64",
        _ => "i32",
    }
}

/// Zero in registers.
pub fn zero(t: DType) -> &'static str {
    match compute_type(t) {
        DType::F32 => "0.0f",
        DType::Bool => "false",
        DType::I64 => "i64(0)",
        _ => "0",
    }
}

/// A register value rounded or wrapped to a type, still in registers.
pub fn narrow(t: DType, v: &str) -> String {
    match t {
        DType::F16 => format!("round_f16({v})"),
        DType::BF16 => format!("round_bf16({v})"),
        DType::F8E4M3 => format!("round_f8e4m3({v})"),
        DType::I8 => format!("(({v} << 24u) >> 24u)"),
        DType::I4 => format!("(({v} << 28u) >> 28u)"),
        DType::U8 => format!("({v} & 255)"),
        _ => v.to_owned(),
    }
}

/// The value `load(at)` as the nearest number of 32 bits and its sign.
pub fn near(load: &str, t: Option<DType>) -> String {
    let v = format!("{load}(at)");
    match t.map_or(DType::I32, compute_type) {
        DType::I64 => format!("i32(clamp({v}, i64(-2147483647), i64(2147483647)))"),
        DType::F32 => format!("f_to_i32({v})"),
        DType::Bool => format!("select(0, 1, {v})"),
        _ => v,
    }
}

/// Functions of a language that take the place of several instructions, or of one.
pub struct Forms {
    /// The value of an instruction, a few units of f32 off.
    pub near: fn(&Expr, usize) -> Option<String>,
    /// The value as it is.
    pub exact: fn(&Expr, usize) -> Option<String>,
}

impl Forms {
    /// No such functions.
    pub const NONE: Forms = Forms { near: |_, _| None, exact: |_, _| None };
}

/// Statements that define `r0`, `r1`, … from inputs `a0`, `a1`, …; the result is `r<expr.result>`. Results
/// that are `wide` ([`kept_wide`], [`stored_wide`], or empty for none) are not rounded; the store rounds the
/// last one. Values that are only seen after a rounding to 16 bits may be those of `near` forms.
pub fn print(e: &Expr, wide: &[bool], forms: &Forms) -> Result<String, BackendError> {
    let mut out = String::new();
    let narrow = seen_narrow(e);
    for (i, inst) in e.insts.iter().enumerate() {
        let rounded = if wide.get(i) == Some(&true) { DType::F32 } else { inst.ty };
        let fine = inst.ty.kind() == Kind::Float && narrow.get(i) == Some(&true);
        let near = fine.then(|| (forms.near)(e, i)).flatten();
        let value = match near.map(|v| self::narrow(rounded, &v)).or_else(|| (forms.exact)(e, i)) {
            Some(form) => form,
            None => value(e, inst, rounded)?,
        };
        let _ = writeln!(out, "    let r{i} = {value};");
    }
    Ok(out)
}

/// May the expression's first input come unrounded?
pub fn takes_wide(e: &Expr) -> bool {
    e.insts.iter().zip(kept_wide(e)).all(|(i, wide)| wide || i.op != Scalar::Input(0))
}

/// A float constant by its bits: not every language has infinities and NaN in constants.
pub fn float(x: f64) -> String {
    format!("cf({:#010x}u)", (x as f32).to_bits())
}

/// An integer or bool constant of a type.
pub fn int(x: i64, ty: DType) -> String {
    match compute_type(ty) {
        DType::Bool => (x != 0).to_string(),
        DType::I64 => format!("ci64({:#x}u, {:#x}u)", (x >> 32) as u32, x as u32),
        _ => format!("bitcast<i32>({:#x}u)", x as u32),
    }
}

/// Expression of an instruction, rounded to a type.
fn value(e: &Expr, inst: &Inst, rounded: DType) -> Result<String, BackendError> {
    let ty = |r: Reg| e.insts.get(usize::from(r)).map_or(DType::F32, |i| i.ty);
    Ok(match inst.op {
        Scalar::Input(i) => format!("a{i}"),
        Scalar::Float(x) => match cast_number(Num::F(x), inst.ty) {
            Num::F(x) => float(x),
            Num::I(x) => int(x, inst.ty),
        },
        Scalar::Int(x) => narrow(inst.ty, &int(x, inst.ty)),
        Scalar::Un(op, a) => {
            let v = unary(op, &format!("r{a}"), ty(a))?;
            if inst.ty.kind() == Kind::Bool { v } else { narrow(rounded, &v) }
        }
        Scalar::Bin(op, a, b) => {
            let v = binary(op, &format!("r{a}"), &format!("r{b}"), inst.ty)?;
            if inst.ty.kind() == Kind::Bool { v } else { narrow(rounded, &v) }
        }
        Scalar::Cmp(op, a, b) => compare(op, &format!("r{a}"), &format!("r{b}"), ty(a)),
        Scalar::Select(c, a, b) => format!("select(r{b}, r{a}, {})", truth(&format!("r{c}"), ty(c))),
        Scalar::Cast(a) => cast(&format!("r{a}"), ty(a), rounded),
    })
}

fn truth(x: &str, t: DType) -> String {
    cast(x, t, DType::Bool)
}

/// Conversion of a register value between any two types.
pub fn cast(x: &str, from: DType, to: DType) -> String {
    let (f, t) = (compute_type(from), compute_type(to));
    let wide = match (f, t) {
        _ if f == t => x.to_owned(),
        (DType::Bool, DType::F32) => format!("select(0.0f, 1.0f, {x})"),
        (DType::Bool, DType::I64) => format!("select(i64(0), i64(1), {x})"),
        (DType::Bool, _) => format!("select(0, 1, {x})"),
        (DType::F32, DType::Bool) => format!("fnonzero({x})"),
        (DType::I64, DType::Bool) => format!("({x} != i64(0))"),
        (_, DType::Bool) => format!("({x} != 0)"),
        (DType::F32, DType::I64) => format!("f_to_i64({x})"),
        (DType::F32, _) => format!("f_to_i32({x})"),
        (_, DType::F32) => format!("f32({x})"),
        (_, DType::I64) => format!("i64({x})"),
        _ => format!("i32({x})"),
    };
    if from == to || to == t { wide } else { narrow(to, &wide) }
}

/// Refuses an expression that [`print`] can't write, without writing it.
pub fn check(e: &Expr) -> Result<(), BackendError> {
    let ty = |r: Reg| e.insts.get(usize::from(r)).map_or(DType::F32, |i| i.ty);
    for inst in &e.insts {
        match inst.op {
            Scalar::Un(op, x) if !has_unary(op, ty(x)) => return no(op.name(), ty(x)),
            Scalar::Bin(op, ..) if !has_binary(op, inst.ty) => return no(op.name(), inst.ty),
            _ => {}
        }
    }
    Ok(())
}

fn has_unary(op: UnOp, t: DType) -> bool {
    match t.kind() {
        Kind::Float => op != UnOp::BitNot,
        Kind::Int => true,
        Kind::Bool => matches!(op, UnOp::Not | UnOp::BitNot | UnOp::IsNan | UnOp::IsInf),
    }
}

fn has_binary(op: BinOp, t: DType) -> bool {
    use BinOp::{Add, And, BitAnd, BitOr, BitXor, Div, FloorDiv, Max, Min, Mod, Mul, Or, Pow, Rem, Sub, Xor};
    match t.kind() {
        Kind::Float => matches!(op, Add | Sub | Mul | Div | FloorDiv | Mod | Rem | Pow | Min | Max),
        Kind::Int => true,
        Kind::Bool => matches!(op, And | BitAnd | Min | Mul | Or | BitOr | Max | Add | Xor | BitXor),
    }
}

fn no<T>(what: &str, t: DType) -> Result<T, BackendError> {
    Err(BackendError::Unsupported(format!("{what} of {t} in an expression")))
}

fn unary(op: UnOp, x: &str, t: DType) -> Result<String, BackendError> {
    match (op, t.kind()) {
        (UnOp::Not, _) => Ok(format!("(!{})", truth(x, t))),
        (UnOp::BitNot, Kind::Bool) => Ok(format!("(!{x})")),
        (UnOp::BitNot, Kind::Int) => Ok(format!("(~{x})")),
        (UnOp::IsNan | UnOp::IsInf, Kind::Int | Kind::Bool) => Ok("false".into()),
        (_, Kind::Float) => unary_f(op, x, t),
        (_, Kind::Int) => Ok(unary_i(op, x, t)),
        _ => no(op.name(), t),
    }
}

fn unary_i(op: UnOp, x: &str, t: DType) -> String {
    let tag = tag(t);
    match op {
        UnOp::Neg => format!("({} - {x})", int(0, t)),
        UnOp::Abs => format!("{tag}_abs({x})"),
        UnOp::Sign => format!("{tag}_sign({x})"),
        UnOp::Recip => format!("{tag}_div({}, {x})", int(1, t)),
        _ => x.to_owned(),
    }
}

fn unary_f(op: UnOp, x: &str, t: DType) -> Result<String, BackendError> {
    let f = match op {
        UnOp::Neg => return Ok(format!("(-{x})")),
        UnOp::Recip => return Ok(format!("(1.0f / {x})")),
        UnOp::Abs => "abs",
        UnOp::Sign => "fsign",
        UnOp::Floor => "floor",
        UnOp::Ceil => "ceil",
        UnOp::Round => "nearest",
        UnOp::Trunc => "trunc",
        UnOp::Sqrt => "ksqrt",
        UnOp::Exp => "kexp",
        UnOp::Log => "klog",
        UnOp::Log1p => "klog1p",
        UnOp::Sin => "ksin",
        UnOp::Cos => "kcos",
        UnOp::Tan => "ktan",
        UnOp::Asin => "kasin",
        UnOp::Acos => "kacos",
        UnOp::Atan => "katan",
        UnOp::Sinh => "ksinh",
        UnOp::Cosh => "kcosh",
        UnOp::Tanh => "ktanh",
        UnOp::Asinh => "kasinh",
        UnOp::Acosh => "kacosh",
        UnOp::Atanh => "katanh",
        UnOp::Erf => "kerf",
        UnOp::IsNan => "is_nan",
        UnOp::IsInf => "is_inf",
        UnOp::Not | UnOp::BitNot => return no(op.name(), t),
    };
    Ok(format!("{f}({x})"))
}

fn tag(t: DType) -> &'static str {
    if t == DType::I64 { "l" } else { "i" }
}

fn binary(op: BinOp, a: &str, b: &str, t: DType) -> Result<String, BackendError> {
    match t.kind() {
        Kind::Float => binary_f(op, a, b, t),
        Kind::Int => Ok(binary_i(op, a, b, t)),
        Kind::Bool => match op {
            BinOp::And | BinOp::BitAnd | BinOp::Min | BinOp::Mul => Ok(format!("({a} && {b})")),
            BinOp::Or | BinOp::BitOr | BinOp::Max | BinOp::Add => Ok(format!("({a} || {b})")),
            BinOp::Xor | BinOp::BitXor => Ok(format!("({a} != {b})")),
            _ => no(op.name(), t),
        },
    }
}

fn binary_f(op: BinOp, a: &str, b: &str, t: DType) -> Result<String, BackendError> {
    Ok(match op {
        BinOp::Add => format!("({a} + {b})"),
        BinOp::Sub => format!("({a} - {b})"),
        BinOp::Mul => format!("({a} * {b})"),
        BinOp::Div if t == DType::F16 => format!("fquotient({a}, {b})"),
        BinOp::Div => format!("kquotient({a}, {b})"),
        BinOp::FloorDiv => format!("ffloordiv({a}, {b})"),
        BinOp::Mod => format!("fmodulo({a}, {b})"),
        BinOp::Rem => format!("ffmod({a}, {b})"),
        BinOp::Pow => format!("kpow({a}, {b})"),
        BinOp::Min => format!("kmin({a}, {b})"),
        BinOp::Max => format!("kmax({a}, {b})"),
        _ => return no(op.name(), t),
    })
}

fn binary_i(op: BinOp, a: &str, b: &str, t: DType) -> String {
    let tag = tag(t);
    let f = match op {
        BinOp::Add => return format!("({a} + {b})"),
        BinOp::Sub => return format!("({a} - {b})"),
        BinOp::Mul => return format!("({a} * {b})"),
        BinOp::And | BinOp::BitAnd => return format!("({a} & {b})"),
        BinOp::Or | BinOp::BitOr => return format!("({a} | {b})"),
        BinOp::Xor | BinOp::BitXor => return format!("({a} ^ {b})"),
        BinOp::Shl => return format!("{tag}_shl({a}, {b}, {})", int(t.bits().into(), t)),
        BinOp::Shr => return format!("{tag}_shr({a}, {b}, {})", int(t.bits().into(), t)),
        BinOp::Div => "div",
        BinOp::FloorDiv => "floordiv",
        BinOp::Mod => "mod",
        BinOp::Rem => "rem",
        BinOp::Pow => "pow",
        BinOp::Min => "min",
        BinOp::Max => "max",
    };
    format!("{tag}_{f}({a}, {b})")
}

fn compare(op: CmpOp, a: &str, b: &str, t: DType) -> String {
    match (t.kind(), op) {
        (Kind::Float, CmpOp::Eq) => format!("feq({a}, {b})"),
        (Kind::Float, CmpOp::Ne) => format!("(!feq({a}, {b}))"),
        (Kind::Float, CmpOp::Lt) => format!("flt({a}, {b})"),
        (Kind::Float, CmpOp::Le) => format!("fle({a}, {b})"),
        (Kind::Float, CmpOp::Gt) => format!("flt({b}, {a})"),
        (Kind::Float, CmpOp::Ge) => format!("fle({b}, {a})"),
        (Kind::Bool, CmpOp::Lt) => format!("(!{a} && {b})"),
        (Kind::Bool, CmpOp::Le) => format!("(!{a} || {b})"),
        (Kind::Bool, CmpOp::Gt) => format!("({a} && !{b})"),
        (Kind::Bool, CmpOp::Ge) => format!("({a} || !{b})"),
        (_, op) => {
            let sign = match op {
                CmpOp::Eq => "==",
                CmpOp::Ne => "!=",
                CmpOp::Lt => "<",
                CmpOp::Le => "<=",
                CmpOp::Gt => ">",
                CmpOp::Ge => ">=",
            };
            format!("({a} {sign} {b})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_refused_where_they_cannot_be_printed() {
        for t in [DType::F32, DType::F16, DType::I32, DType::I64, DType::U8, DType::I4, DType::Bool] {
            for &op in UnOp::ALL {
                assert_eq!(has_unary(op, t), unary(op, "x", t).is_ok(), "{op:?} of {t}");
            }
            for &op in BinOp::ALL {
                assert_eq!(has_binary(op, t), binary(op, "a", "b", t).is_ok(), "{op:?} of {t}");
            }
        }
    }
}
