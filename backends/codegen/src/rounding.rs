//! Results in expressions of narrow floats that need no rounding. Those that only smooth functions read stay
//! in f32, closer to the exact value than the type, and for free.

use kiln_ir::DType;
use kiln_ir::dtype::Kind;
use kiln_ir::expr::{BinOp, Expr, Reg, Scalar, UnOp};

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

/// Results that need no rounding, if the expression's result is rounded as it is stored: it is rounded before
/// only if others read it, too.
pub fn stored_wide(e: &Expr) -> Vec<bool> {
    let mut wide = kept_wide(e);
    let result = usize::from(e.result);
    let float = e.insts.get(result).is_some_and(|i| i.ty.kind() == Kind::Float);
    if let Some(w) = wide.get_mut(result).filter(|_| float && !read_again(e, result)) {
        *w = true;
    }
    wide
}

/// Whether an instruction reads this one.
fn read_again(e: &Expr, at: usize) -> bool {
    let is = |r: &Reg| usize::from(*r) == at;
    e.insts.iter().any(|i| match &i.op {
        Scalar::Un(_, a) | Scalar::Cast(a) => is(a),
        Scalar::Bin(_, a, b) | Scalar::Cmp(_, a, b) => is(a) || is(b),
        Scalar::Select(c, a, b) => is(c) || is(a) || is(b),
        Scalar::Input(_) | Scalar::Float(_) | Scalar::Int(_) => false,
    })
}

/// Whether each instruction's result is seen only after a rounding to 16 bits, so that a function may be off
/// by some units of f32. That holds for narrow floats, and for f32 that only lead to narrow ones by sums,
/// products and the like.
pub fn seen_narrow(e: &Expr) -> Vec<bool> {
    let narrow = |t: DType| matches!(t, DType::F16 | DType::BF16);
    let mut seen: Vec<bool> =
        e.insts.iter().enumerate().map(|(at, i)| narrow(i.ty) || usize::from(e.result) != at).collect();
    // Operands stand before what reads them, whose own answer is therefore known.
    for (at, inst) in e.insts.iter().enumerate().rev() {
        let passes = seen.get(at) == Some(&true);
        let (read, fine): (&[u16], bool) = match &inst.op {
            Scalar::Cast(a) => (&[*a], narrow(inst.ty) || inst.ty == DType::F32 && passes),
            Scalar::Un(op, a) => (&[*a], passes && matches!(op, UnOp::Neg | UnOp::Abs)),
            Scalar::Bin(op, a, b) => (&[*a, *b], passes && linear(*op)),
            Scalar::Select(c, a, b) => (&[*c, *a, *b], passes),
            Scalar::Cmp(_, a, b) => (&[*a, *b], false),
            Scalar::Input(_) | Scalar::Float(_) | Scalar::Int(_) => (&[], true),
        };
        for &r in read.iter().filter(|_| !fine) {
            let wide = e.insts.get(usize::from(r)).is_some_and(|i| !narrow(i.ty));
            if let Some(s) = seen.get_mut(usize::from(r)).filter(|_| wide) {
                *s = false;
            }
        }
    }
    seen
}

fn linear(op: BinOp) -> bool {
    matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Min | BinOp::Max)
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
    fn f32_is_seen_narrow_where_products_lead_to_a_narrow_float() {
        let gelu = |last: DType| {
            let f32 = |op| Inst { op, ty: DType::F32 };
            let insts = vec![
                Inst { op: Scalar::Input(0), ty: DType::F16 },
                f32(Scalar::Cast(0)),
                f32(Scalar::Un(UnOp::Erf, 1)),
                f32(Scalar::Bin(BinOp::Mul, 2, 1)),
                Inst { op: Scalar::Cast(3), ty: last },
            ];
            seen_narrow(&Expr { inputs: vec![DType::F16], insts, result: 4 })
        };
        assert_eq!(gelu(DType::F16), [true, false, true, true, true]);
        assert_eq!(gelu(DType::F32), [true, false, false, false, false]);
    }

    #[test]
    fn a_result_that_is_stored_is_rounded_there() {
        let ops = |more: &[Scalar]| {
            let first = [Scalar::Input(0), Scalar::Un(UnOp::Exp, 0), Scalar::Cast(1)];
            Expr { result: 2, ..expr(DType::F16, first.iter().chain(more).cloned().collect()) }
        };
        assert_eq!(kept_wide(&ops(&[])), [true, false, false]);
        assert_eq!(stored_wide(&ops(&[])), [true, false, true]);
        assert_eq!(stored_wide(&ops(&[Scalar::Un(UnOp::Neg, 2)])), [true, false, false, true]);
    }

    #[test]
    fn what_magnifies_errors_sees_f32() {
        let ops = vec![Scalar::Input(0), Scalar::Un(UnOp::Tanh, 0), Scalar::Un(UnOp::Exp, 1)];
        assert_eq!(seen_narrow(&expr(DType::F32, ops.clone())), [false; 3]);
        assert_eq!(seen_narrow(&expr(DType::F16, ops)), [true; 3]);
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
