//! Functions of prelude/math.cuh that give the same values by fewer or faster instructions.

use kiln_ir::DType;
use kiln_ir::expr::{BinOp, Expr, Inst, Reg, Scalar, UnOp};

/// An instruction's value by such a function.
pub fn value(e: &Expr, at: usize) -> Option<String> {
    code(e, at).or_else(|| widened(e, at))
}

/// The code of a quantization: the nearest integer to a quotient, perhaps with a zero point, between two integers.
fn code(e: &Expr, at: usize) -> Option<String> {
    let cast = inst(e, at).filter(|i| i.ty == DType::I32)?;
    let Scalar::Cast(limited) = cast.op else { return None };
    let (above, hi) = limit(e, limited, BinOp::Min)?;
    let (whole, lo) = limit(e, above, BinOp::Max)?;
    let (rounded, zero) = match f32_of(e, whole)?.op {
        Scalar::Bin(BinOp::Add, a, b) => (a, format!("r{b}")),
        _ => (whole, "0.0f".into()),
    };
    let Scalar::Un(UnOp::Round, quotient) = f32_of(e, rounded)?.op else { return None };
    let Scalar::Bin(BinOp::Div, x, step) = f32_of(e, quotient)?.op else { return None };
    // A zero point is a code, so that the limits less it are integers that f32 holds.
    let code = |r: &str| r == "0.0f" || r[1..].parse().is_ok_and(|r: Reg| small(e, r));
    code(&zero).then(|| format!("code_of(r{x}, r{step}, {zero}, {lo:?}f, {hi:?}f)"))
}

/// An operand of a minimum or maximum with a constant that a code may be.
fn limit(e: &Expr, at: Reg, op: BinOp) -> Option<(Reg, f64)> {
    match f32_of(e, at)?.op {
        Scalar::Bin(found, x, by) if found == op => match inst(e, usize::from(by))?.op {
            Scalar::Float(c) if c.fract() == 0.0 && c.abs() < 1024.0 => Some((x, c)),
            _ => None,
        },
        _ => None,
    }
}

/// A code in f32.
fn widened(e: &Expr, at: usize) -> Option<String> {
    let Scalar::Cast(x) = inst(e, at).filter(|i| i.ty == DType::F32)?.op else { return None };
    is_code(e, x).then(|| format!("code_to_f32(r{x})"))
}

/// Whether a value of f32 is a code.
fn small(e: &Expr, at: Reg) -> bool {
    matches!(f32_of(e, at).map(|i| &i.op), Some(&Scalar::Cast(x)) if is_code(e, x))
}

/// Whether a value is of a small integer type, or was before it was widened to i32.
fn is_code(e: &Expr, at: Reg) -> bool {
    let small = |i: &Inst| matches!(i.ty, DType::I8 | DType::U8 | DType::I4);
    inst(e, usize::from(at)).is_some_and(|i| match i.op {
        Scalar::Cast(x) if i.ty == DType::I32 => inst(e, usize::from(x)).is_some_and(small),
        _ => small(i),
    })
}

fn f32_of(e: &Expr, at: Reg) -> Option<&Inst> {
    inst(e, usize::from(at)).filter(|i| i.ty == DType::F32)
}

fn inst(e: &Expr, at: usize) -> Option<&Inst> {
    e.insts.get(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::Attrs;
    use kiln_ops::quantize::{DEQUANTIZE, QUANTIZE};

    /// The forms of an operator's instructions that have one.
    fn printed(op: kiln_ir::OpName, attrs: Attrs, types: &[DType]) -> Vec<String> {
        let op = kiln_ir::Op::new(op, attrs).unwrap_or_else(|e| panic!("{e}"));
        let e = op
            .def()
            .expr
            .map(|f| f(op.attrs(), types))
            .and_then(Result::ok)
            .unwrap_or_else(|| panic!("an expression"));
        (0..e.insts.len()).filter_map(|i| value(&e, i)).collect()
    }

    #[test]
    fn quantizations_are_found_with_their_limits() {
        let to = |t: DType| Attrs::new().with("to", t);
        let f = DType::F32;
        let found = printed(QUANTIZE, to(DType::I8), &[f, f]);
        assert!(
            matches!(&found[..], [one] if one.starts_with("code_of(") && one.ends_with("0.0f, -128.0f, 127.0f)")),
            "{found:?}"
        );
        let found = printed(QUANTIZE, to(DType::U8), &[f, f, DType::U8]);
        assert!(
            matches!(&found[..], [zero, one] if zero.starts_with("code_to_f32(") && one.ends_with("0.0f, 255.0f)")),
            "{found:?}"
        );
        assert!(printed(QUANTIZE, to(DType::F8E4M3), &[f, f]).is_empty());
        let found = printed(DEQUANTIZE, Attrs::new(), &[DType::I8, f]);
        assert!(matches!(&found[..], [one] if one.starts_with("code_to_f32(")), "{found:?}");
        assert!(printed(DEQUANTIZE, Attrs::new(), &[DType::I32, f]).is_empty());
    }
}
