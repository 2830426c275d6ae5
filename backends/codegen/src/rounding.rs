//! Results in expressions of narrow floats that need no rounding. Those that only smooth functions read stay
//! in f32, closer to the exact value than the type, and for free.

use kiln_ir::DType;
use kiln_ir::dtype::Kind;
use kiln_ir::expr::{BinOp, Expr, Inst, Reg, Scalar, UnOp};

/// For each instruction: may its value stay in f32 though its type is narrower? Constants may not, nor casts of what is f32 by itself, nor
/// what a function reads that jumps: a comparison or a floor would jump elsewhere. Operators of narrow floats compute in f32: the cast
/// behind them may stay wide.
pub fn kept_wide(e: &Expr) -> Vec<bool> {
    let from = widened_from(e);
    let computed = |inst: &Inst| match inst.op {
        Scalar::Input(_) | Scalar::Un(..) | Scalar::Bin(..) | Scalar::Select(..) => true,
        Scalar::Cast(a) => from.get(usize::from(a)) == Some(&Some(Some(inst.ty))),
        _ => false,
    };
    let mut wide: Vec<bool> = e.insts.iter().map(|i| narrow(i.ty) && computed(i)).collect();
    let mut jumped = vec![false; e.insts.len()];
    let mut exact = |r: &u16, jumped: &mut Vec<bool>| {
        if let (Some(w), Some(j)) = (wide.get_mut(usize::from(*r)), jumped.get_mut(usize::from(*r))) {
            (*w, *j) = (false, true);
        }
    };
    // Operands stand before what reads them.
    for (at, inst) in e.insts.iter().enumerate().rev() {
        let read: &[u16] = match &inst.op {
            Scalar::Un(op, a) if !smooth(*op) => &[*a],
            Scalar::Bin(op, a, b) if !smooth_of_two(*op) => &[*a, *b],
            Scalar::Cmp(_, a, b) => &[*a, *b],
            Scalar::Select(c, ..) => &[*c],
            // The same value in f32.
            Scalar::Cast(a) if inst.ty != DType::F32 || jumped[at] => &[*a],
            _ => &[],
        };
        read.iter().for_each(|r| exact(r, &mut jumped));
    }
    wide
}

fn narrow(t: DType) -> bool {
    matches!(t, DType::F16 | DType::BF16)
}

/// For each instruction of f32: the narrow float that all operands of its computation were cast from; `Some(None)` for constants, `None`
/// where there is no such type.
fn widened_from(e: &Expr) -> Vec<Option<Option<DType>>> {
    let mut from: Vec<Option<Option<DType>>> = Vec::with_capacity(e.insts.len());
    for inst in &e.insts {
        let of = |r: &u16| from.get(usize::from(*r)).copied().flatten();
        let both = |a: &u16, b: &u16| match (of(a)?, of(b)?) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => Some(a.or(b)),
        };
        let ty = |r: &u16| e.insts.get(usize::from(*r)).map(|i| i.ty);
        let found = match &inst.op {
            _ if inst.ty != DType::F32 => None,
            Scalar::Float(_) | Scalar::Int(_) => Some(None),
            Scalar::Un(_, a) => of(a),
            Scalar::Bin(_, a, b) => both(a, b),
            Scalar::Cast(a) => ty(a).filter(|t| narrow(*t)).map(Some),
            Scalar::Input(_) | Scalar::Select(..) | Scalar::Cmp(..) => None,
        };
        from.push(found);
    }
    from
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
    e.insts.iter().any(|i| i.op.reads().any(|r| usize::from(r) == at))
}

/// Whether each instruction's result is seen only after a rounding to 16 bits or to a code of 8. A function may then be off
/// by some units of f32. That holds for narrow floats, and for f32 that only lead to narrow ones by sums, products and the like. It
/// also holds for what becomes a code by a quotient that is rounded.
pub fn seen_narrow(e: &Expr) -> Vec<bool> {
    let not_last = |at: usize| usize::from(e.result) != at;
    let mut seen: Vec<bool> =
        e.insts.iter().enumerate().map(|(at, i)| narrow(i.ty) || not_last(at)).collect();
    // What becomes nothing but a code: a number that is rounded to a whole one first.
    let (mut coded, whole): (Vec<bool>, _) = ((0..e.insts.len()).map(not_last).collect(), whole_numbers(e));
    // Operands stand before what reads them, whose own answer is therefore known.
    for (at, inst) in e.insts.iter().enumerate().rev() {
        let (passes, code) = (seen.get(at) == Some(&true), coded.get(at) == Some(&true));
        let integer = matches!(inst.ty, DType::I8 | DType::U8) || inst.ty == DType::I32 && code;
        let (read, fine, becomes): (&[u16], bool, bool) = match &inst.op {
            Scalar::Cast(a) => {
                let wide = inst.ty == DType::F32 && passes;
                let to_code =
                    inst.ty == DType::F8E4M3 || integer && whole.get(usize::from(*a)) == Some(&true);
                (&[*a], narrow(inst.ty) || to_code || wide, to_code || wide && code)
            }
            Scalar::Un(op, a) => {
                (&[*a], passes && (matches!(op, UnOp::Neg | UnOp::Abs) || *op == UnOp::Round && code), code)
            }
            Scalar::Bin(op, a, b) => (&[*a, *b], passes && (linear(*op) || *op == BinOp::Div && code), code),
            Scalar::Select(c, a, b) => (&[*c, *a, *b], passes, false),
            Scalar::Cmp(_, a, b) => (&[*a, *b], false, false),
            Scalar::Input(_) | Scalar::Float(_) | Scalar::Int(_) => (&[], true, true),
        };
        for &r in read {
            let wide = e.insts.get(usize::from(r)).is_some_and(|i| !narrow(i.ty));
            if let Some(s) = seen.get_mut(usize::from(r)).filter(|_| wide && !fine) {
                *s = false;
            }
            if let Some(c) = coded.get_mut(usize::from(r)).filter(|_| !becomes) {
                *c = false;
            }
        }
    }
    seen
}

/// For each instruction: is its value a whole number, or none?
fn whole_numbers(e: &Expr) -> Vec<bool> {
    let mut whole: Vec<bool> = Vec::with_capacity(e.insts.len());
    for inst in &e.insts {
        let of = |r: &Reg| whole.get(usize::from(*r)) == Some(&true);
        let found = match &inst.op {
            _ if matches!(inst.ty.kind(), Kind::Int | Kind::Bool) => true,
            Scalar::Float(x) => x.fract() == 0.0,
            Scalar::Un(op, a) => {
                matches!(op, UnOp::Round | UnOp::Floor | UnOp::Ceil | UnOp::Trunc)
                    || of(a) && *op == UnOp::Neg
            }
            Scalar::Bin(BinOp::Add | BinOp::Sub | BinOp::Min | BinOp::Max, a, b) => of(a) && of(b),
            Scalar::Cast(a) => of(a),
            _ => false,
        };
        whole.push(found);
    }
    whole
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
    use kiln_ir::expr::CmpOp;

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

    /// An instruction of f32.
    fn wide(op: Scalar) -> Inst {
        Inst { op, ty: DType::F32 }
    }

    #[test]
    fn sums_of_narrow_floats_stay_wide_for_what_is_computed_of_them() {
        let f16 = |op| Inst { op, ty: DType::F16 };
        let chain = |first: Inst, last: Scalar| Expr {
            inputs: vec![first.ty],
            insts: vec![
                first,
                wide(Scalar::Cast(0)),
                wide(Scalar::Bin(BinOp::Add, 1, 1)),
                f16(Scalar::Cast(2)),
                wide(Scalar::Cast(3)),
                wide(last),
            ],
            result: 5,
        };
        let kept = |first, last| kept_wide(&chain(first, last))[3];
        assert!(kept(f16(Scalar::Input(0)), Scalar::Un(UnOp::Exp, 4)));
        assert!(!kept(f16(Scalar::Input(0)), Scalar::Un(UnOp::Floor, 4)), "a floor would jump elsewhere");
        assert!(!kept(wide(Scalar::Input(0)), Scalar::Un(UnOp::Exp, 4)), "a cast of f32 rounds");
        let bf16 = Inst { op: Scalar::Input(0), ty: DType::BF16 };
        assert!(!kept(bf16, Scalar::Un(UnOp::Exp, 4)), "another type is rounded to");
    }

    #[test]
    fn what_becomes_a_code_may_be_some_units_off() {
        let coded = |round: UnOp, last: DType| {
            let insts = vec![
                wide(Scalar::Input(0)),
                wide(Scalar::Un(UnOp::Erf, 0)),
                wide(Scalar::Float(0.5)),
                wide(Scalar::Bin(BinOp::Div, 1, 2)),
                wide(Scalar::Un(round, 3)),
                wide(Scalar::Float(127.0)),
                wide(Scalar::Bin(BinOp::Min, 4, 5)),
                Inst { op: Scalar::Cast(6), ty: DType::I32 },
                Inst { op: Scalar::Cast(7), ty: last },
            ];
            seen_narrow(&Expr { inputs: vec![DType::F32], insts, result: 8 })[1]
        };
        assert!(coded(UnOp::Round, DType::I8));
        assert!(!coded(UnOp::Round, DType::I64), "a large number is no code");
        assert!(!coded(UnOp::Exp, DType::I8), "a cast that cuts off jumps at whole numbers");
    }
}
