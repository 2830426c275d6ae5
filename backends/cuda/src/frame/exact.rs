//! Functions of prelude/math.cuh that give the same values by fewer or faster instructions.

use kiln_ir::DType;
use kiln_ir::expr::{BinOp, Expr, Inst, Reg, Scalar, UnOp};

/// An instruction's value by such a function.
pub fn value(e: &Expr, at: usize) -> Option<String> {
    code(e, at)
        .map(|c| c.printed())
        .or_else(|| limited(e, at))
        .or_else(|| quotient(e, at))
        .or_else(|| widened(e, at))
}

/// The inputs of an expression that are the steps of quantizations, as structure `CodeStep` has them.
pub fn steps(e: &Expr) -> Vec<usize> {
    let found = (0..e.insts.len())
        .filter_map(|at| code(e, at).map(|c| c.step).or_else(|| Some(float_code(e, at)?.1)));
    found.filter_map(|step| input(e, usize::from(step))).collect()
}

/// The inputs that are codes of 8 bits and become f32.
pub fn codes(e: &Expr) -> Vec<usize> {
    let wide = (0..e.insts.len()).filter_map(|at| match inst(e, at)?.op {
        Scalar::Cast(x) if inst(e, at)?.ty == DType::F32 && is_code(e, x) => Some(x),
        _ => None,
    });
    let own = wide.filter_map(|x| match inst(e, usize::from(x))?.op {
        Scalar::Cast(narrow) => input(e, usize::from(narrow)),
        _ => input(e, usize::from(x)),
    });
    own.filter(|&i| e.inputs.get(i).is_some_and(|t| matches!(t, DType::I8 | DType::U8))).collect()
}

/// A quantization: the nearest integer to a quotient, perhaps with a zero point, between two integers.
struct Quantized {
    x: Reg,
    step: Reg,
    zero: Option<Reg>,
    lo: f64,
    hi: f64,
}

impl Quantized {
    /// The type whose codes are those between the limits, for hardware to see to.
    fn whole_type(&self) -> Option<DType> {
        match (self.zero, self.lo, self.hi) {
            (None, -128.0, 127.0) => Some(DType::I8),
            (None, 0.0, 255.0) => Some(DType::U8),
            _ => None,
        }
    }

    fn printed(&self) -> String {
        let Quantized { x, step, zero, lo, hi } = self;
        match self.whole_type() {
            Some(t) => format!("code_in<{}>(r{x}, r{step})", super::cell(t)),
            None => {
                let zero = zero.map_or("0.0f".into(), |r| format!("r{r}"));
                format!("code_of(r{x}, r{step}, {zero}, {lo:?}f, {hi:?}f)")
            }
        }
    }
}

/// The quantization that an instruction computes the code of, in i32.
fn code(e: &Expr, at: usize) -> Option<Quantized> {
    let cast = inst(e, at).filter(|i| i.ty == DType::I32)?;
    let Scalar::Cast(limited) = cast.op else { return None };
    let (above, hi) = limit(e, limited, BinOp::Min)?;
    let (whole, lo) = limit(e, above, BinOp::Max)?;
    let (rounded, zero) = match f32_of(e, whole)?.op {
        Scalar::Bin(BinOp::Add, a, b) => (a, Some(b)),
        _ => (whole, None),
    };
    let Scalar::Un(UnOp::Round, quotient) = f32_of(e, rounded)?.op else { return None };
    let Scalar::Bin(BinOp::Div, x, step) = f32_of(e, quotient)?.op else { return None };
    // A zero point is a code, so that the limits less it are integers that f32 holds.
    zero.is_none_or(|zero| small(e, zero)).then_some(Quantized { x, step, zero, lo, hi })
}

/// A code in its type: it is within that type's limits.
fn limited(e: &Expr, at: usize) -> Option<String> {
    let cast = inst(e, at)?;
    let Scalar::Cast(wide) = cast.op else { return None };
    (code(e, usize::from(wide))?.whole_type() == Some(cast.ty)).then(|| format!("r{wide}"))
}

/// A quotient that becomes a float of 8 bits, and nothing else.
fn quotient(e: &Expr, at: usize) -> Option<String> {
    let Scalar::Bin(BinOp::Div, ..) = f32_of(e, Reg::try_from(at).ok()?)?.op else { return None };
    let own = |x: Reg| usize::from(x) == at;
    let mut readers = (0..e.insts.len()).filter(|&n| inst(e, n).is_some_and(|i| i.op.reads().any(own)));
    let (x, step) = float_code(e, readers.next()?)?;
    (readers.next().is_none() && usize::from(e.result) != at).then(|| format!("code_quotient(r{x}, r{step})"))
}

/// Operands of the quotient that an instruction makes a float of 8 bits.
fn float_code(e: &Expr, at: usize) -> Option<(Reg, Reg)> {
    let cast = inst(e, at).filter(|i| i.ty == DType::F8E4M3)?;
    let Scalar::Cast(wide) = cast.op else { return None };
    match f32_of(e, wide)?.op {
        Scalar::Bin(BinOp::Div, x, step) => Some((x, step)),
        _ => None,
    }
}

/// The number of an input, where an instruction is one, or the same number in f32.
fn input(e: &Expr, at: usize) -> Option<usize> {
    let inst = inst(e, at)?;
    match inst.op {
        Scalar::Input(i) => Some(usize::from(i)),
        Scalar::Cast(x) if inst.ty == DType::F32 => {
            let narrow =
                self::inst(e, usize::from(x)).is_some_and(|i| matches!(i.ty, DType::F16 | DType::BF16));
            input(e, usize::from(x)).filter(|_| narrow)
        }
        _ => None,
    }
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

    fn expr(op: kiln_ir::OpName, attrs: Attrs, types: &[DType]) -> Expr {
        let op = kiln_ir::Op::new(op, attrs).unwrap_or_else(|e| panic!("{e}"));
        let e = op.def().expr.map(|f| f(op.attrs(), types)).and_then(Result::ok);
        e.unwrap_or_else(|| panic!("an expression"))
    }

    /// The forms of an operator's instructions that have one.
    fn printed(op: kiln_ir::OpName, attrs: Attrs, types: &[DType]) -> Vec<String> {
        let e = expr(op, attrs, types);
        (0..e.insts.len()).filter_map(|i| value(&e, i)).collect()
    }

    #[test]
    fn steps_and_codes_are_found_among_the_inputs() {
        let to = |t: DType| Attrs::new().with("to", t);
        let f = DType::F32;
        assert_eq!(steps(&expr(QUANTIZE, to(DType::I8), &[f, f])), [1]);
        assert_eq!(steps(&expr(QUANTIZE, to(DType::F8E4M3), &[f, f])), [1]);
        assert_eq!(steps(&expr(QUANTIZE, to(DType::I8), &[DType::F16, DType::F16])), [1]);
        assert_eq!(codes(&expr(DEQUANTIZE, Attrs::new(), &[DType::I8, f])), [0]);
        assert!(codes(&expr(DEQUANTIZE, Attrs::new(), &[DType::I32, f])).is_empty());
    }

    #[test]
    fn quantizations_are_found_with_their_limits() {
        let to = |t: DType| Attrs::new().with("to", t);
        let f = DType::F32;
        let found = printed(QUANTIZE, to(DType::I8), &[f, f]);
        assert!(
            matches!(&found[..], [one, same] if one.starts_with("code_in<i8>(") && same.starts_with('r')),
            "{found:?}"
        );
        let found = printed(QUANTIZE, to(DType::U8), &[f, f, DType::U8]);
        assert!(
            matches!(&found[..], [zero, one] if zero.starts_with("code_to_f32(") && one.ends_with("0.0f, 255.0f)")),
            "{found:?}"
        );
        let found = printed(QUANTIZE, to(DType::F8E4M3), &[f, f]);
        assert!(matches!(&found[..], [one] if one.starts_with("code_quotient(")), "{found:?}");
        let found = printed(DEQUANTIZE, Attrs::new(), &[DType::I8, f]);
        assert!(matches!(&found[..], [one] if one.starts_with("code_to_f32(")), "{found:?}");
        assert!(printed(DEQUANTIZE, Attrs::new(), &[DType::I32, f]).is_empty());
    }
}
