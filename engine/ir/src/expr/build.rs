//! Writing expressions in code.

use super::{BinOp, CmpOp, Expr, Inst, Reg, Scalar, UnOp};
use crate::dtype::{DType, Kind};

/// Builds an [`Expr`]. Values given to [`Builder::un`] and [`Builder::bin`] must be of a compute type: get them from
/// [`Builder::load`], which widens.
#[derive(Debug)]
pub struct Builder {
    inputs: Vec<DType>,
    insts: Vec<Inst>,
}

/// The type that arithmetic on `t` is done in.
pub fn compute_type(t: DType) -> DType {
    match (t.kind(), t) {
        (Kind::Float, _) => DType::F32,
        (Kind::Bool, _) => DType::Bool,
        (_, DType::I64) => DType::I64,
        _ => DType::I32,
    }
}

impl Builder {
    /// A program over inputs of these types.
    pub fn new(inputs: &[DType]) -> Builder {
        Builder { inputs: inputs.to_vec(), insts: Vec::new() }
    }

    fn push(&mut self, op: Scalar, ty: DType) -> Reg {
        self.insts.push(Inst { op, ty });
        (self.insts.len() - 1) as Reg
    }

    /// The type of a register.
    pub fn ty(&self, r: Reg) -> DType {
        self.insts[usize::from(r)].ty
    }

    /// The element of input `i` as it is stored.
    pub fn input(&mut self, i: usize) -> Reg {
        self.push(Scalar::Input(i as u16), self.inputs[i])
    }

    /// The element of input `i`, widened to its compute type.
    pub fn load(&mut self, i: usize) -> Reg {
        let r = self.input(i);
        self.cast(r, compute_type(self.inputs[i]))
    }

    /// A constant of the type of `like`.
    pub fn num(&mut self, x: f64, like: Reg) -> Reg {
        let ty = self.ty(like);
        self.constant(x, ty)
    }

    /// A constant.
    pub fn constant(&mut self, x: f64, ty: DType) -> Reg {
        let op = if ty.is_float() { Scalar::Float(x) } else { Scalar::Int(x as i64) };
        self.push(op, ty)
    }

    /// An integer constant.
    pub fn int(&mut self, x: i64, ty: DType) -> Reg {
        self.push(Scalar::Int(x), ty)
    }

    /// A function of one value.
    pub fn un(&mut self, op: UnOp, a: Reg) -> Reg {
        let ty = if matches!(op, UnOp::IsNan | UnOp::IsInf) { DType::Bool } else { self.ty(a) };
        self.push(Scalar::Un(op, a), ty)
    }

    /// A function of two values of one type.
    pub fn bin(&mut self, op: BinOp, a: Reg, b: Reg) -> Reg {
        self.push(Scalar::Bin(op, a, b), self.ty(a))
    }

    /// A comparison.
    pub fn cmp(&mut self, op: CmpOp, a: Reg, b: Reg) -> Reg {
        self.push(Scalar::Cmp(op, a, b), DType::Bool)
    }

    /// A choice.
    pub fn select(&mut self, c: Reg, a: Reg, b: Reg) -> Reg {
        self.push(Scalar::Select(c, a, b), self.ty(a))
    }

    /// A conversion; none if the type is that already.
    pub fn cast(&mut self, a: Reg, ty: DType) -> Reg {
        if self.ty(a) == ty { a } else { self.push(Scalar::Cast(a), ty) }
    }

    /// Puts another program in, its inputs being these registers (of exactly its input types).
    pub fn inline(&mut self, e: &Expr, args: &[Reg]) -> Reg {
        let mut map: Vec<Reg> = Vec::with_capacity(e.insts.len());
        for inst in &e.insts {
            let at = |r: Reg| map[usize::from(r)];
            let r = match inst.op {
                Scalar::Input(i) => args[usize::from(i)],
                Scalar::Un(o, a) => self.push(Scalar::Un(o, at(a)), inst.ty),
                Scalar::Bin(o, a, b) => self.push(Scalar::Bin(o, at(a), at(b)), inst.ty),
                Scalar::Cmp(o, a, b) => self.push(Scalar::Cmp(o, at(a), at(b)), inst.ty),
                Scalar::Select(c, a, b) => self.push(Scalar::Select(at(c), at(a), at(b)), inst.ty),
                Scalar::Cast(a) => self.push(Scalar::Cast(at(a)), inst.ty),
                c @ (Scalar::Float(_) | Scalar::Int(_)) => self.push(c, inst.ty),
            };
            map.push(r);
        }
        map[usize::from(e.result)]
    }

    /// The program, its result converted to `ty`.
    pub fn finish(mut self, result: Reg, ty: DType) -> Expr {
        let result = self.cast(result, ty);
        Expr { inputs: self.inputs, insts: self.insts, result }
    }
}
