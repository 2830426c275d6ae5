//! Intervals of pointwise operators, by following rounding errors through the scalar expression.

use super::interval::{Interval, overflowing};
use super::units::ulp;
use kiln_ir::expr::{BinOp, CmpOp, Expr, Inst, Num, Reg, Scalar, UnOp};
use kiln_ir::op::Tolerance;
use kiln_ir::{DType, Op, Tensor};
use kiln_ops::pointwise::for_each_element;

/// The intervals of the result's elements.
pub fn intervals(op: &Op, inputs: &[Option<Tensor>], wanted: &Tensor) -> Result<Vec<Interval>, String> {
    let functions = if matches!(op.tolerance(), Tolerance::Transcendental) { 16.0 } else { 4.0 };
    let mut out = Vec::with_capacity(wanted.len());
    let mut ranges = Vec::new();
    let walked = for_each_element(op, inputs, wanted.shape(), |expr, args| {
        out.push(follow(expr, args, functions, &mut ranges));
    });
    walked.map_err(|e| format!("the oracle fails: {e}"))?;
    Ok(out)
}

/// A register: the oracle's value, and the least and greatest that a device may have there.
#[derive(Clone, Copy)]
struct Range {
    value: Num,
    low: Num,
    high: Num,
}

impl Range {
    fn exactly(value: Num) -> Range {
        Range { value, low: value, high: value }
    }

    fn is_exact(&self) -> bool {
        self.low == self.high || matches!(self.value, Num::F(x) if x.is_nan())
    }

    /// The values to try: both ends, the oracle's, and zero if it is between the ends.
    fn samples(&self) -> Vec<Num> {
        if self.is_exact() {
            return vec![self.value];
        }
        let mut all = vec![self.value, self.low, self.high];
        if let (Num::F(a), Num::F(b)) = (self.low, self.high)
            && a < 0.0
            && b > 0.0
        {
            all.push(Num::F(0.0));
        }
        all
    }

    /// The least range that holds this and another value. NaN adds nothing.
    fn with(mut self, x: Num) -> Range {
        match (self.low, self.high, x) {
            (Num::F(a), Num::F(b), Num::F(x)) if !x.is_nan() => {
                (self.low, self.high) = (Num::F(a.min(x)), Num::F(b.max(x)));
            }
            (Num::I(a), Num::I(b), Num::I(x)) => {
                (self.low, self.high) = (Num::I(a.min(x)), Num::I(b.max(x)));
            }
            _ => {}
        }
        self
    }

    /// Widened by so many units in the last place of f32.
    fn rounded(mut self, ulps: f64, dtype: DType) -> Range {
        if let (Num::F(a), Num::F(b)) = (self.low, self.high)
            && ulps > 0.0
            && !a.is_nan()
            && !b.is_nan()
        {
            // Subnormal results may be taken as zero.
            let at = |x: f64| ulps * ulp(x, DType::F32) + 2f64.powi(-126);
            if let Interval::Float(lo, hi) = overflowing(a - at(a), b + at(b), dtype) {
                (self.low, self.high) = (Num::F(lo), Num::F(hi));
            }
        }
        self
    }
}

fn follow(expr: &Expr, args: &[Num], functions: f64, ranges: &mut Vec<Range>) -> Interval {
    ranges.clear();
    for inst in &expr.insts {
        let range = step(inst, args, ranges, functions);
        ranges.push(range);
    }
    let Range { value, low, high } = ranges[usize::from(expr.result)];
    match (value, low, high) {
        (Num::F(x), _, _) if x.is_nan() => Interval::Nan,
        (_, Num::F(a), Num::F(b)) => Interval::Float(a, b).stored_as(expr.result_type()),
        (_, Num::I(a), Num::I(b)) => Interval::Int(a, b),
        _ => Interval::exactly(value),
    }
}

fn step(inst: &Inst, args: &[Num], ranges: &[Range], functions: f64) -> Range {
    let at = |r: Reg| ranges[usize::from(r)];
    let start = Range::exactly(inst.value(args, |r| at(r).value));
    match inst.op {
        Scalar::Input(_) | Scalar::Float(_) | Scalar::Int(_) => start,
        Scalar::Un(op, a) => {
            let tried = at(a).samples().into_iter().map(|x| inst.value(args, |_| x));
            tried.fold(start, Range::with).rounded(unary_ulps(op, functions), inst.ty)
        }
        Scalar::Bin(op, a, b) => {
            pairs(inst, args, start, (a, at(a)), (b, at(b))).rounded(binary_ulps(op, functions), inst.ty)
        }
        Scalar::Cmp(op, a, b) => match (a == b, op) {
            // A register is always equal to itself.
            (true, CmpOp::Eq | CmpOp::Ne | CmpOp::Le | CmpOp::Ge) => start,
            _ => pairs(inst, args, start, (a, at(a)), (b, at(b))),
        },
        Scalar::Select(c, a, b) => {
            let both = at(c).low != at(c).high;
            let (taken, other) = if truth(at(c).value) { (at(a), at(b)) } else { (at(b), at(a)) };
            if both { taken.with(other.value).with(other.low).with(other.high) } else { taken }
        }
        Scalar::Cast(a) => {
            let tried = at(a).samples().into_iter().map(|x| inst.value(args, |_| x));
            tried.fold(start, Range::with)
        }
    }
}

fn truth(x: Num) -> bool {
    match x {
        Num::F(x) => x != 0.0,
        Num::I(x) => x != 0,
    }
}

/// The results for all pairs of values that are tried for two registers.
fn pairs(inst: &Inst, args: &[Num], start: Range, a: (Reg, Range), b: (Reg, Range)) -> Range {
    if a.1.is_exact() && b.1.is_exact() {
        return start;
    }
    let mut range = start;
    for x in a.1.samples() {
        if a.0 == b.0 {
            range = range.with(inst.value(args, |_| x));
            continue;
        }
        for y in b.1.samples() {
            range = range.with(inst.value(args, |r| if r == a.0 { x } else { y }));
        }
    }
    range
}

/// Units in the last place by which a device's function may be off.
fn unary_ulps(op: UnOp, functions: f64) -> f64 {
    match op {
        UnOp::Neg | UnOp::Abs | UnOp::Sign | UnOp::Floor | UnOp::Ceil | UnOp::Round | UnOp::Trunc => 0.0,
        UnOp::Not | UnOp::BitNot | UnOp::IsNan | UnOp::IsInf => 0.0,
        UnOp::Sqrt | UnOp::Recip => 4.0,
        _ => functions,
    }
}

fn binary_ulps(op: BinOp, functions: f64) -> f64 {
    match op {
        BinOp::Add | BinOp::Sub | BinOp::Mul => 1.0,
        BinOp::Div | BinOp::FloorDiv | BinOp::Mod | BinOp::Rem => 4.0,
        BinOp::Pow => functions,
        _ => 0.0,
    }
}
