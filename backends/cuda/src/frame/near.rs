//! Functions of prelude/math.cuh that take fewer instructions and are a few units of f32 off.

use kiln_ir::expr::{BinOp, Expr, Inst, Reg, Scalar, UnOp};
use std::f64::consts::FRAC_1_SQRT_2;

/// An instruction's value by such a function.
pub fn value(e: &Expr, at: usize) -> Option<String> {
    if let Some(x) = gelu(e, at) {
        return Some(format!("kgelu_near(r{x})"));
    }
    if let Some(x) = sigmoid(e, at) {
        return Some(format!("ksigmoid_near(r{x})"));
    }
    let Scalar::Un(op, x) = &e.insts.get(at)?.op else { return None };
    let function = match op {
        UnOp::Exp => "kexp_near",
        UnOp::Tanh => "ktanh_near",
        UnOp::Erf => "kerf_near",
        UnOp::Recip => "krecip_near",
        _ => return None,
    };
    Some(format!("{function}(r{x})"))
}

/// Operand of an instruction that is the GELU, as the operator of this name computes it: x/2 * (1 + erf(x *
/// sqrt(1/2))).
fn gelu(e: &Expr, at: usize) -> Option<Reg> {
    let (half, gate) = operands(inst(e, at)?, BinOp::Mul)?;
    let x = scaled(e, half, BinOp::Mul, 0.5)?;
    let curve = scaled(e, gate, BinOp::Add, 1.0)?;
    let inner = unary(e, usize::from(curve), UnOp::Erf)?;
    (scaled(e, inner, BinOp::Mul, FRAC_1_SQRT_2)? == x).then_some(x)
}

/// Operand of an instruction that is the sigmoid, as the operator of this name computes it: 1 / (1 + exp(-x)).
fn sigmoid(e: &Expr, at: usize) -> Option<Reg> {
    let below = unary(e, at, UnOp::Recip)?;
    let power = scaled(e, below, BinOp::Add, 1.0)?;
    let minus = unary(e, usize::from(power), UnOp::Exp)?;
    unary(e, usize::from(minus), UnOp::Neg)
}

fn unary(e: &Expr, at: usize, op: UnOp) -> Option<Reg> {
    match inst(e, at)?.op {
        Scalar::Un(found, x) if found == op => Some(x),
        _ => None,
    }
}

fn inst(e: &Expr, at: usize) -> Option<&Inst> {
    e.insts.get(at)
}

fn operands(inst: &Inst, op: BinOp) -> Option<(Reg, Reg)> {
    match inst.op {
        Scalar::Bin(found, a, b) if found == op => Some((a, b)),
        _ => None,
    }
}

/// The other operand, where the second one is this constant.
fn scaled(e: &Expr, at: Reg, op: BinOp, by: f64) -> Option<Reg> {
    let (x, constant) = operands(inst(e, usize::from(at))?, op)?;
    match inst(e, usize::from(constant))?.op {
        Scalar::Float(c) if c == by => Some(x),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::DType;

    /// x/2 * (1 + erf(x * scale)).
    fn curve(scale: f64) -> Expr {
        let ops = [
            Scalar::Input(0),
            Scalar::Float(scale),
            Scalar::Bin(BinOp::Mul, 0, 1),
            Scalar::Un(UnOp::Erf, 2),
            Scalar::Float(1.0),
            Scalar::Bin(BinOp::Add, 3, 4),
            Scalar::Float(0.5),
            Scalar::Bin(BinOp::Mul, 0, 6),
            Scalar::Bin(BinOp::Mul, 7, 5),
        ];
        let insts = ops.map(|op| Inst { op, ty: DType::F32 }).to_vec();
        Expr { inputs: vec![DType::F32], insts, result: 8 }
    }

    #[test]
    fn a_sigmoid_is_one_function() {
        let gate = |power: UnOp| {
            let ops = [
                Scalar::Input(0),
                Scalar::Un(UnOp::Neg, 0),
                Scalar::Un(power, 1),
                Scalar::Float(1.0),
                Scalar::Bin(BinOp::Add, 2, 3),
                Scalar::Un(UnOp::Recip, 4),
            ];
            let insts = ops.map(|op| Inst { op, ty: DType::F32 }).to_vec();
            Expr { inputs: vec![DType::F32], insts, result: 5 }
        };
        assert_eq!(value(&gate(UnOp::Exp), 5).as_deref(), Some("ksigmoid_near(r0)"));
        assert_eq!(value(&gate(UnOp::Tanh), 5).as_deref(), Some("krecip_near(r4)"));
    }

    #[test]
    fn gelu_is_one_function_and_what_resembles_it_is_not() {
        assert_eq!(value(&curve(FRAC_1_SQRT_2), 8).as_deref(), Some("kgelu_near(r0)"));
        assert_eq!(value(&curve(0.7), 8), None);
        assert_eq!(value(&curve(0.7), 3).as_deref(), Some("kerf_near(r2)"));
        let mut other = curve(FRAC_1_SQRT_2);
        other.insts[7].op = Scalar::Bin(BinOp::Mul, 1, 6);
        assert_eq!(value(&other, 8), None);
    }
}
