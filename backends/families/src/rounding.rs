//! Which results of an expression of narrow floats need no rounding: those that only smooth functions read go on in f32, closer
//! to the exact value than the type, and for free.

use kiln_ir::DType;
use kiln_ir::expr::{BinOp, Expr, Scalar, UnOp};

/// For each instruction: may its value stay in f32 though its type is narrower? Explicit casts and constants may not, nor
/// what a function reads that jumps: a comparison or a floor would jump elsewhere.
pub fn kept_wide(e: &Expr) -> Vec<bool> {
    let narrow = |t: DType| matches!(t, DType::F16 | DType::BF16);
    let computed =
        |op: &Scalar| matches!(op, Scalar::Input(_) | Scalar::Un(..) | Scalar::Bin(..) | Scalar::Select(..));
    let mut wide: Vec<bool> = e.insts.iter().map(|i| narrow(i.ty) && computed(&i.op)).collect();
    let mut exact = |r: &u16| {
        if let Some(w) = wide.get_mut(usize::from(*r)) {
            *w = false;
        }
    };
    for inst in &e.insts {
        match &inst.op {
            Scalar::Un(op, a) if !smooth(*op) => exact(a),
            Scalar::Bin(op, a, b) if !smooth_of_two(*op) => [a, b].into_iter().for_each(&mut exact),
            Scalar::Cmp(_, a, b) => [a, b].into_iter().for_each(&mut exact),
            Scalar::Select(c, ..) => exact(c),
            Scalar::Cast(a) if inst.ty != DType::F32 => exact(a),
            _ => {}
        }
    }
    wide
}

fn smooth(op: UnOp) -> bool {
    !matches!(
        op,
        UnOp::Sign
            | UnOp::Floor
            | UnOp::Ceil
            | UnOp::Round
            | UnOp::Trunc
            | UnOp::Not
            | UnOp::BitNot
            | UnOp::IsNan
            | UnOp::IsInf
    )
}

fn smooth_of_two(op: BinOp) -> bool {
    matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Pow | BinOp::Min | BinOp::Max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::expr::{CmpOp, Inst};

    fn expr(ty: DType, insts: Vec<Scalar>) -> Expr {
        let result = insts.len() as u16 - 1;
        Expr { inputs: vec![ty], insts: insts.into_iter().map(|op| Inst { op, ty }).collect(), result }
    }

    #[test]
    fn chains_of_smooth_functions_stay_wide() {
        let chain = || vec![Scalar::Input(0), Scalar::Un(UnOp::Exp, 0), Scalar::Bin(BinOp::Add, 1, 0)];
        assert_eq!(kept_wide(&expr(DType::F16, chain())), [true; 3]);
        assert_eq!(kept_wide(&expr(DType::F32, chain())), [false; 3]);
    }

    #[test]
    fn what_a_jump_reads_is_rounded() {
        let found = kept_wide(&expr(
            DType::BF16,
            vec![
                Scalar::Input(0),
                Scalar::Un(UnOp::Exp, 0),
                Scalar::Un(UnOp::Floor, 1),
                Scalar::Bin(BinOp::Mul, 2, 1),
                Scalar::Cmp(CmpOp::Lt, 3, 0),
                Scalar::Cast(4),
            ],
        ));
        assert_eq!(found, [false, false, true, false, false, false]);
    }
}
