//! Expressions of bytes alone, evaluated in bytes: a vector has four times as many of them as of the numbers that they are computed in.

use kiln_ir::DType;
use kiln_ir::expr::{BinOp, Expr, Inst, Reg, Scalar, UnOp};

/// Knowledge of a register by its lowest byte.
#[derive(Clone, Copy)]
struct Known {
    reg: Reg,
    /// The type whose number the byte is; `None` where only the lowest byte of the number is known.
    exact: Option<DType>,
    /// The number, of a constant.
    constant: Option<i64>,
}

/// The expression with instructions whose types are those of bytes, if inputs and results are bytes and no other byte matters. Comparisons
/// have the type of their operands.
pub fn narrowed(e: &Expr) -> Option<Expr> {
    let is_byte = |t: DType| matches!(t, DType::I8 | DType::U8 | DType::Bool);
    if !e.inputs.iter().copied().all(is_byte) || !is_byte(e.result_type()) {
        return None;
    }
    let mut insts: Vec<Inst> = Vec::with_capacity(e.insts.len());
    let mut known: Vec<Known> = Vec::with_capacity(e.insts.len());
    for inst in &e.insts {
        let at = |r: Reg| known.get(usize::from(r)).copied();
        let mut push = |op: Scalar, ty: DType| {
            insts.push(Inst { op, ty });
            (insts.len() - 1) as Reg
        };
        known.push(match inst.op {
            Scalar::Input(i) => {
                let ty = *e.inputs.get(usize::from(i))?;
                Known { reg: push(Scalar::Input(i), ty), exact: Some(ty), constant: None }
            }
            Scalar::Int(x) => Known { reg: push(Scalar::Int(x), DType::U8), exact: None, constant: Some(x) },
            Scalar::Float(_) => return None,
            Scalar::Cast(a) => cast(at(a)?, inst.ty, push)?,
            Scalar::Un(op, a) => {
                let a = at(a)?;
                let (exact, ty) = match op {
                    UnOp::Not => (Some(DType::Bool), DType::Bool),
                    UnOp::Neg | UnOp::BitNot => (None, DType::U8),
                    UnOp::Abs | UnOp::Sign => (None, a.exact?),
                    _ => return None,
                };
                let exact_bool = op != UnOp::Not || a.exact == Some(DType::Bool);
                exact_bool.then(|| Known { reg: push(Scalar::Un(op, a.reg), ty), exact, constant: None })?
            }
            Scalar::Bin(op, a, b) => {
                let (a, b) = (at(a)?, at(b)?);
                let (exact, ty) = match op {
                    BinOp::Add | BinOp::Sub | BinOp::Mul => (None, DType::U8),
                    BinOp::BitAnd | BinOp::BitOr | BinOp::BitXor => (None, DType::U8),
                    BinOp::And | BinOp::Or | BinOp::Xor => {
                        (Some(DType::Bool), shared(a, b).filter(|t| *t == DType::Bool)?)
                    }
                    BinOp::Min | BinOp::Max => (Some(shared(a, b)?), shared(a, b)?),
                    _ => return None,
                };
                Known { reg: push(Scalar::Bin(op, a.reg, b.reg), ty), exact, constant: None }
            }
            Scalar::Cmp(op, a, b) => {
                let (a, b) = (at(a)?, at(b)?);
                let ty = shared(a, b)?;
                Known {
                    reg: push(Scalar::Cmp(op, a.reg, b.reg), ty),
                    exact: Some(DType::Bool),
                    constant: None,
                }
            }
            Scalar::Select(c, a, b) => {
                let (c, a, b) = (at(c)?, at(a)?, at(b)?);
                let exact = shared(a, b);
                (c.exact == Some(DType::Bool)).then_some(())?;
                let op = Scalar::Select(c.reg, a.reg, b.reg);
                Known { reg: push(op, exact.unwrap_or(DType::U8)), exact, constant: None }
            }
        });
    }
    let result = known.get(usize::from(e.result))?;
    let fits = result.exact == Some(e.result_type());
    fits.then(|| Expr { inputs: e.inputs.clone(), result: result.reg, insts })
}

/// A conversion, which mostly only says what the byte means.
fn cast(a: Known, to: DType, mut push: impl FnMut(Scalar, DType) -> Reg) -> Option<Known> {
    match to {
        DType::I32 | DType::I64 => Some(a),
        _ if a.exact == Some(to) => Some(a),
        DType::I8 | DType::U8 => Some(Known { exact: Some(to), ..a }),
        DType::Bool => {
            a.exact?;
            Some(Known { reg: push(Scalar::Cast(a.reg), to), exact: Some(to), constant: None })
        }
        _ => None,
    }
}

/// The type whose numbers both are.
fn shared(a: Known, b: Known) -> Option<DType> {
    let holds =
        |t: DType, x: i64| t.int_range().unwrap_or((0, 1)).0 <= x && x <= t.int_range().unwrap_or((0, 1)).1;
    match (a.exact, b.exact, a.constant, b.constant) {
        (Some(t), Some(u), ..) if t == u => Some(t),
        (Some(t), None, _, Some(x)) | (None, Some(t), Some(x), _) if holds(t, x) => Some(t),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast::pointwise::block::Made;
    use crate::fast::pointwise::lanes::Lanes;
    use kiln_ir::expr::{Builder, CmpOp, Num};

    /// All pairs of bytes by an expression of two inputs, and by its meaning.
    fn check(e: Expr, bytes: bool) {
        assert_eq!(narrowed(&e).is_some(), bytes, "{e:?}");
        let made = Made::new(e);
        let e = &made.expr;
        let mut lanes = Lanes::new(e, made.code.as_ref());
        let all: Vec<u8> = (0..=255).collect();
        for b in 0..=255u8 {
            let second = [b; 256];
            let number = |t: DType, x: u8| match t {
                DType::I8 => i64::from(x as i8),
                DType::Bool => i64::from(x != 0),
                _ => i64::from(x),
            };
            for (i, x) in [&all[..], &second].into_iter().enumerate().take(e.inputs.len()) {
                lanes.load(i, e.inputs[i], x, 0, 0, 256);
            }
            let mut out = [0u8; 256];
            lanes.eval(e, 256, &mut out);
            for (x, y) in all.iter().zip(out) {
                let args: Vec<Num> =
                    e.inputs.iter().zip([*x, b]).map(|(&t, x)| Num::I(number(t, x))).collect();
                let wanted = match e.eval(&args, &mut Vec::new()) {
                    Num::I(x) => x as u8,
                    Num::F(_) => 0,
                };
                assert_eq!(y, wanted, "{x} and {b} by {e:?}");
            }
        }
    }

    #[test]
    fn bytes_have_the_meaning_of_the_expression() {
        for ty in [DType::I8, DType::U8] {
            let binary = |op: BinOp| {
                let mut b = Builder::new(&[ty, ty]);
                let (x, y) = (b.load(0), b.load(1));
                let r = b.bin(op, x, y);
                b.finish(r, ty)
            };
            for op in [
                BinOp::Add,
                BinOp::Sub,
                BinOp::Mul,
                BinOp::Min,
                BinOp::Max,
                BinOp::BitAnd,
                BinOp::BitOr,
                BinOp::BitXor,
            ] {
                check(binary(op), true);
            }
            check(binary(BinOp::Div), false);
            for op in CmpOp::ALL {
                let mut b = Builder::new(&[ty, ty]);
                let (x, y) = (b.load(0), b.load(1));
                let r = b.cmp(*op, x, y);
                check(b.finish(r, DType::Bool), true);
            }
            for op in [UnOp::Neg, UnOp::Abs, UnOp::Sign, UnOp::BitNot] {
                let mut b = Builder::new(&[ty]);
                let x = b.load(0);
                let r = b.un(op, x);
                check(b.finish(r, ty), true);
            }
            // A bound inside of the type, and one beyond it.
            for (bound, bytes) in [(5, true), (300, false)] {
                let mut b = Builder::new(&[ty]);
                let x = b.load(0);
                let c = b.constant(f64::from(bound), DType::I32);
                let r = b.bin(BinOp::Max, x, c);
                check(b.finish(r, ty), bytes);
            }
        }
    }

    #[test]
    fn truth_values_are_bytes_that_are_zero_or_not() {
        for op in [BinOp::And, BinOp::Or, BinOp::Xor] {
            let mut b = Builder::new(&[DType::Bool, DType::Bool]);
            let (x, y) = (b.load(0), b.load(1));
            let r = b.bin(op, x, y);
            check(b.finish(r, DType::Bool), true);
        }
        let mut b = Builder::new(&[DType::Bool, DType::U8]);
        let (c, x) = (b.load(0), b.load(1));
        let doubled = b.bin(BinOp::Add, x, x);
        let r = b.select(c, doubled, x);
        check(b.finish(r, DType::U8), true);
        let mut b = Builder::new(&[DType::I8]);
        let x = b.load(0);
        let truth = b.cast(x, DType::Bool);
        let r = b.un(UnOp::Not, truth);
        check(b.finish(r, DType::Bool), true);
    }
}
