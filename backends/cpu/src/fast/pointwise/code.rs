//! An expression as steps over lanes: without casts that change nothing, with lanes that are used again.

use super::bytes::narrowed;
use kiln_ir::DType;
use kiln_ir::expr::{BinOp, Expr, Inst, Num, Scalar, UnOp};

/// Number types of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Floats, as f32.
    F,
    /// Integers of at most 32 bits and truth values, as i32.
    I,
    /// Integers of 64 bits.
    L,
    /// Bytes, of expressions that need no more of any number.
    B,
}

impl Kind {
    /// The lanes that hold elements of a type.
    pub fn of(t: DType) -> Kind {
        match t {
            t if t.is_float() => Kind::F,
            DType::I64 => Kind::L,
            _ => Kind::I,
        }
    }
}

/// A source of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Input(usize),
    Constant(usize),
    Lane(usize),
}

/// Instructions that one loop computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// An instruction.
    One(Inst),
    /// 1/(1 + e^−x).
    Sigmoid,
    /// The quotient of two floats, rounded, plus a third, cut to a range and converted to i32.
    Quantize { low: f32, high: f32 },
    /// The difference of two i32, converted to f32, times a float.
    Dequantize,
    /// The product of two floats plus a third, rounded twice.
    Affine,
    /// A float raised to a second and lowered to a third.
    Clip,
}

/// Work with its operands and the lane of its result.
#[derive(Debug)]
pub struct Step {
    pub work: Work,
    pub args: [From; 3],
    pub to: usize,
}

/// Steps of an expression.
#[derive(Debug)]
pub struct Code {
    pub steps: Vec<Step>,
    pub constants: Vec<(Kind, Num)>,
    pub lanes: Vec<Kind>,
    pub result: From,
    /// Whether all lanes are bytes.
    pub bytes: bool,
}

/// Registers that an instruction reads; the first again where it reads fewer than three.
fn operands(op: Scalar) -> Option<[u16; 3]> {
    Some(match op {
        Scalar::Input(_) | Scalar::Float(_) | Scalar::Int(_) => return None,
        Scalar::Un(_, a) | Scalar::Cast(a) => [a, a, a],
        Scalar::Bin(_, a, b) | Scalar::Cmp(_, a, b) => [a, b, a],
        Scalar::Select(c, a, b) => [c, a, b],
    })
}

/// The work of an instruction together with earlier ones, and what they read.
fn fused(e: &Expr, inst: Inst) -> Option<(Work, [u16; 3])> {
    let at = |r: u16| e.insts.get(usize::from(r)).copied();
    let number = |r: u16| match at(r)?.op {
        Scalar::Float(x) => Some(x as f32),
        _ => None,
    };
    match inst.op {
        Scalar::Un(UnOp::Recip, below) if inst.ty == DType::F32 => {
            let Scalar::Bin(BinOp::Add, power, one) = at(below)?.op else { return None };
            let Scalar::Un(UnOp::Exp, minus) = at(power)?.op else { return None };
            let Scalar::Un(UnOp::Neg, x) = at(minus)?.op else { return None };
            (number(one) == Some(1.0) && at(x)?.ty == DType::F32).then_some((Work::Sigmoid, [x; 3]))
        }
        Scalar::Cast(cut) if inst.ty == DType::I32 => {
            let Scalar::Bin(BinOp::Min, above, high) = at(cut)?.op else { return None };
            let Scalar::Bin(BinOp::Max, sum, low) = at(above)?.op else { return None };
            let Scalar::Bin(BinOp::Add, rounded, zero) = at(sum)?.op else { return None };
            let Scalar::Un(UnOp::Round, quotient) = at(rounded)?.op else { return None };
            let Scalar::Bin(BinOp::Div, x, scale) = at(quotient)?.op else { return None };
            let all_f32 = [x, scale, zero].iter().all(|&r| at(r).is_some_and(|i| i.ty == DType::F32));
            let (low, high) = (number(low)?, number(high)?);
            // Beyond 2²⁴ the bounds themselves would be rounded.
            let small = low.abs() < 16_777_216.0 && high.abs() < 16_777_216.0;
            (all_f32 && small).then_some((Work::Quantize { low, high }, [x, scale, zero]))
        }
        Scalar::Bin(BinOp::Add, p, q) if inst.ty == DType::F32 => {
            let product = |r: u16| match at(r)?.op {
                Scalar::Bin(BinOp::Mul, a, b) => Some([a, b]),
                _ => None,
            };
            let ([a, b], c) = product(p).map(|ab| (ab, q)).or_else(|| product(q).map(|ab| (ab, p)))?;
            let dequantized = fused(e, at(if c == q { p } else { q })?).is_some();
            (!dequantized).then_some((Work::Affine, [a, b, c]))
        }
        Scalar::Bin(BinOp::Min, raised, high) if inst.ty == DType::F32 => {
            let Scalar::Bin(BinOp::Max, x, low) = at(raised)?.op else { return None };
            Some((Work::Clip, [x, low, high]))
        }
        Scalar::Bin(BinOp::Mul, wide, scale) if inst.ty == DType::F32 => {
            let Scalar::Cast(difference) = at(wide)?.op else { return None };
            let Scalar::Bin(BinOp::Sub, x, zero) = at(difference)?.op else { return None };
            let types = [x, zero, scale].map(|r| at(r).map(|i| i.ty));
            let own = types == [Some(DType::I32), Some(DType::I32), Some(DType::F32)];
            own.then_some((Work::Dequantize, [x, scale, zero]))
        }
        _ => None,
    }
}

/// Whether a cast leaves the numbers of lanes as they are.
fn is_void(from: DType, to: DType) -> bool {
    let (a, b) = (Kind::of(from), Kind::of(to));
    from == to || a == b && (to == DType::F32 || to == DType::I32 || from == DType::Bool)
}

/// Whether loops have the instruction.
fn covered(inst: Inst, args: [DType; 3]) -> bool {
    let [a, b, c] = args.map(Kind::of);
    let to = Kind::of(inst.ty);
    match inst.op {
        Scalar::Un(UnOp::IsNan | UnOp::IsInf, _) => a == Kind::F && inst.ty == DType::Bool,
        Scalar::Un(UnOp::Not, _) => a == Kind::I && to == Kind::I,
        Scalar::Un(UnOp::BitNot, _) => a == to && matches!(inst.ty, DType::I32 | DType::I64),
        Scalar::Un(..) => a == to && matches!(inst.ty, DType::F32 | DType::I32 | DType::I64),
        Scalar::Bin(BinOp::And | BinOp::Or | BinOp::Xor, ..) => [a, b, to] == [Kind::I; 3],
        Scalar::Bin(BinOp::BitAnd | BinOp::BitOr | BinOp::BitXor | BinOp::Shl | BinOp::Shr, ..) => {
            a == to && b == to && matches!(inst.ty, DType::I32 | DType::I64)
        }
        Scalar::Bin(..) => a == to && b == to && matches!(inst.ty, DType::F32 | DType::I32 | DType::I64),
        Scalar::Cmp(..) => a == b && inst.ty == DType::Bool,
        Scalar::Select(..) => a == Kind::I && b == to && c == to,
        Scalar::Cast(_) | Scalar::Input(_) | Scalar::Float(_) | Scalar::Int(_) => true,
    }
}

/// A sum of at most two inputs that is raised to a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Short {
    /// Whether there are two inputs.
    pub sum: bool,
    /// The bound; negative infinity if there is none.
    pub bound: f32,
}

impl Short {
    const ALONE: Short = Short { sum: false, bound: f32::NEG_INFINITY };
    const SUM: Short = Short { sum: true, ..Short::ALONE };
}

impl Code {
    /// The steps; `None` where an instruction has no loop.
    pub fn of(e: &Expr) -> Option<Code> {
        let narrow = narrowed(e);
        let bytes = narrow.is_some();
        let e = narrow.as_ref().unwrap_or(e);
        let kind = |t: DType| if bytes { Kind::B } else { Kind::of(t) };
        let last = live(e);
        let (steps, constants, lanes) = (Vec::new(), Vec::new(), Vec::new());
        let mut code = Code { steps, constants, lanes, result: From::Input(0), bytes };
        // Lanes with the number of values that still need them.
        let mut needed: Vec<usize> = Vec::new();
        let mut at: Vec<From> = Vec::with_capacity(e.insts.len());
        for (k, inst) in e.insts.iter().enumerate() {
            let ty = |r: u16| e.insts.get(usize::from(r)).map(|i| i.ty);
            let from = match (inst.op, operands(inst.op)) {
                // Nothing reads it.
                _ if last[k] == 0 => From::Input(0),
                (Scalar::Input(i), _) => From::Input(i.into()),
                (_, None) => {
                    code.constants.push((kind(inst.ty), inst.value(&[], |_| Num::I(0))));
                    From::Constant(code.constants.len() - 1)
                }
                _ if fused(e, *inst).is_some() => {
                    let (work, regs) = fused(e, *inst)?;
                    let args = regs.map(|r| at[usize::from(r)]);
                    let to = code.lane(kind(inst.ty), &mut needed, &args, last[k]);
                    code.steps.push(Step { work, args, to });
                    From::Lane(to)
                }
                (op, Some(regs)) => {
                    let types = [ty(regs[0])?, ty(regs[1])?, ty(regs[2])?];
                    let stored = k + 1 == e.insts.len() && Kind::of(types[0]) == Kind::of(inst.ty);
                    let void = is_void(types[0], inst.ty) || stored;
                    let skipped = matches!(op, Scalar::Cast(_)) && void && !bytes;
                    if !bytes && !covered(*inst, types) {
                        return None;
                    }
                    let args = regs.map(|r| at[usize::from(r)]);
                    match skipped {
                        true => args[0],
                        false => {
                            let to = code.lane(kind(inst.ty), &mut needed, &args, last[k]);
                            code.steps.push(Step { work: Work::One(*inst), args, to });
                            From::Lane(to)
                        }
                    }
                }
            };
            // A value under another name is needed as long as that is.
            if let (From::Lane(lane), Scalar::Cast(_)) = (from, inst.op) {
                needed[lane] = needed[lane].max(last[k]);
            }
            at.push(from);
            needed.iter_mut().filter(|n| **n <= k).for_each(|n| *n = 0);
        }
        code.result = *at.get(usize::from(e.result))?;
        Some(code)
    }

    /// The sum or bound of floats that all steps come to, if that is all.
    pub fn short(&self) -> Option<Short> {
        let of = |s: &Step| match s.work {
            Work::One(Inst { op: Scalar::Bin(op, ..), ty: DType::F32 }) => Some((op, s.args[0], s.args[1])),
            _ => None,
        };
        let (first, rest) = self.steps.split_first()?;
        let (short, rest, from) = match of(first)? {
            (BinOp::Add, From::Input(_), From::Input(_)) => (Short::SUM, rest, From::Lane(first.to)),
            (BinOp::Max, own @ From::Input(_), From::Constant(_)) => (Short::ALONE, &self.steps[..], own),
            _ => return None,
        };
        let (bound, result) = match rest {
            [] => (f32::NEG_INFINITY, from),
            [last] => match of(last)? {
                (BinOp::Max, own, From::Constant(c)) if own == from => match self.constants.get(c)? {
                    (Kind::F, Num::F(x)) => (*x as f32, From::Lane(last.to)),
                    _ => return None,
                },
                _ => return None,
            },
            _ => return None,
        };
        (self.result == result).then_some(Short { bound, ..short })
    }

    /// A lane that no later step reads, nor this one.
    fn lane(&mut self, kind: Kind, needed: &mut Vec<usize>, args: &[From; 3], until: usize) -> usize {
        let free = |i: usize| needed[i] == 0 && self.lanes[i] == kind && !args.contains(&From::Lane(i));
        let found = (0..needed.len()).find(|&i| free(i)).unwrap_or_else(|| {
            needed.push(0);
            self.lanes.push(kind);
            needed.len() - 1
        });
        needed[found] = until;
        found
    }
}

/// The number of the last instruction that reads each one, its own at least; 0 of those that the result does not need.
fn live(e: &Expr) -> Vec<usize> {
    let mut last = vec![0; e.insts.len()];
    if let Some(l) = last.get_mut(usize::from(e.result)) {
        *l = e.insts.len();
    }
    for (k, inst) in e.insts.iter().enumerate().rev() {
        let used = last[k] > 0;
        let read = fused(e, *inst).map(|(_, regs)| regs).or_else(|| operands(inst.op));
        for r in read.into_iter().flatten().filter(|_| used) {
            if let Some(l) = last.get_mut(usize::from(r)) {
                *l = (*l).max(k);
            }
        }
    }
    last
}
