//! Expressions of many elements at a time: each instruction is one loop. What has no loop of its own is computed element by element, as
//! the oracle does it.

use kiln_ir::dtype::Kind;
use kiln_ir::expr::{BinOp, Expr, Inst, Num, Reg, Scalar, UnOp};
use kiln_ir::{DType, float};

/// Elements at a time.
pub const LANES: usize = 512;

/// Values of the instructions of an expression, for so many elements.
pub struct Lanes<'a> {
    expr: &'a Expr,
    /// Whether the value of each instruction is a float.
    floats: Vec<bool>,
    f: Vec<[f64; LANES]>,
    i: Vec<[i64; LANES]>,
}

/// Whether the value of each instruction is a float; none where that depends on the elements.
pub fn floats(expr: &Expr) -> Option<Vec<bool>> {
    let mut all: Vec<bool> = Vec::with_capacity(expr.insts.len());
    for inst in &expr.insts {
        let of = |r: Reg| all.get(usize::from(r)).copied();
        all.push(match inst.op {
            Scalar::Input(i) => expr.inputs.get(usize::from(i))?.kind() == Kind::Float,
            Scalar::Float(_) => true,
            Scalar::Int(_) | Scalar::Cmp(..) | Scalar::Un(UnOp::IsNan | UnOp::IsInf, _) => false,
            Scalar::Un(_, a) => of(a)?,
            Scalar::Bin(_, a, b) => of(a)? && of(b)?,
            Scalar::Select(_, a, b) => of(a).filter(|f| Some(*f) == of(b))?,
            Scalar::Cast(_) => inst.ty.kind() == Kind::Float,
        });
    }
    Some(all)
}

impl<'a> Lanes<'a> {
    /// Room for the values; none where [`floats`] has none.
    pub fn new(expr: &'a Expr) -> Option<Lanes<'a>> {
        let n = expr.insts.len();
        Some(Lanes { expr, floats: floats(expr)?, f: vec![[0.0; LANES]; n], i: vec![[0; LANES]; n] })
    }

    /// Fills the instructions that load an input.
    pub fn load(&mut self, input: usize, mut fill: impl FnMut(&mut [f64; LANES], &mut [i64; LANES])) {
        for (k, inst) in self.expr.insts.iter().enumerate() {
            if inst.op == Scalar::Input(input as u16) {
                fill(&mut self.f[k], &mut self.i[k]);
            }
        }
    }

    /// Computes all other instructions for the first `n` elements. Which NaN comes of two is left open by processors and compilers: where
    /// there is one, the oracle's own code computes the result.
    pub fn run(&mut self, n: usize) {
        self.instructions(n);
        let (floats, _) = self.result(n);
        if floats.iter().fold(false, |any, x| any | x.is_nan()) {
            self.exactly(n);
        }
    }

    fn exactly(&mut self, n: usize) {
        let mut loads = vec![None; self.expr.inputs.len()];
        for (k, inst) in self.expr.insts.iter().enumerate() {
            if let Scalar::Input(i) = inst.op {
                loads[usize::from(i)] = Some(k);
            }
        }
        let (mut given, mut scratch) = (vec![Num::I(0); loads.len()], Vec::new());
        for e in 0..n {
            for (to, k) in given.iter_mut().zip(&loads) {
                *to = k.map_or(Num::I(0), |k| self.at(k, e));
            }
            if let Num::F(x) = self.expr.eval(&given, &mut scratch) {
                self.f[usize::from(self.expr.result)][e] = x;
            }
        }
    }

    /// The value of an instruction for one element.
    fn at(&self, k: usize, e: usize) -> Num {
        match self.floats.get(k) {
            Some(true) => Num::F(self.f[k][e]),
            _ => Num::I(self.i[k][e]),
        }
    }

    fn instructions(&mut self, n: usize) {
        for (k, inst) in self.expr.insts.iter().enumerate() {
            if !matches!(inst.op, Scalar::Input(_)) && !self.quick(k, inst, n) {
                self.slow(k, inst, n);
            }
        }
    }

    /// The result: floats or integers, by the other list being empty.
    pub fn result(&self, n: usize) -> (&[f64], &[i64]) {
        let at = usize::from(self.expr.result);
        match self.floats.get(at) {
            Some(true) => (&self.f[at][..n], &[]),
            _ => (&[], &self.i[at][..n]),
        }
    }

    /// Arithmetic in f32, which is that in f64 rounded once.
    fn quick(&mut self, k: usize, inst: &Inst, n: usize) -> bool {
        if inst.ty != DType::F32 || !self.floats[k] {
            return false;
        }
        let float = |r: Reg| self.floats[usize::from(r)];
        let (before, rest) = self.f.split_at_mut(k);
        let Some(out) = rest.first_mut() else { return false };
        let out = &mut out[..n];
        let at = |r: Reg| before.get(usize::from(r)).map_or(&[][..], |v| &v[..n]);
        let round = |x: f64| f64::from(x as f32);
        match inst.op {
            Scalar::Float(x) => out.fill(round(x)),
            Scalar::Cast(a) if float(a) => each(out, at(a), round),
            Scalar::Un(op, a) => match op {
                UnOp::Neg => each(out, at(a), |x| round(-x)),
                UnOp::Abs => each(out, at(a), |x| round(x.abs())),
                UnOp::Sqrt => each(out, at(a), |x| round(x.sqrt())),
                UnOp::Recip => each(out, at(a), |x| round(1.0 / x)),
                _ => return false,
            },
            Scalar::Bin(op, a, b) => match op {
                BinOp::Add => both(out, at(a), at(b), |x, y| round(x + y)),
                BinOp::Sub => both(out, at(a), at(b), |x, y| round(x - y)),
                BinOp::Mul => both(out, at(a), at(b), |x, y| round(x * y)),
                BinOp::Div => both(out, at(a), at(b), |x, y| round(x / y)),
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    fn slow(&mut self, k: usize, inst: &Inst, n: usize) {
        for e in 0..n {
            let value = inst.value(&[], |r| self.at(usize::from(r), e));
            match value {
                Num::F(x) => self.f[k][e] = x,
                Num::I(x) => self.i[k][e] = x,
            }
        }
    }
}

fn each(out: &mut [f64], a: &[f64], f: impl Fn(f64) -> f64) {
    out.iter_mut().zip(a).for_each(|(y, &x)| *y = f(x));
}

fn both(out: &mut [f64], a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) {
    out.iter_mut().zip(a).zip(b).for_each(|((z, &x), &y)| *z = f(x, y));
}

/// Stores floats as elements of a type.
pub fn store(dtype: DType, floats: &[f64], to: &mut [u8]) {
    match dtype {
        DType::F32 => put(floats, to, |x| (x as f32).to_le_bytes()),
        DType::F16 => put(floats, to, |x| float::f16_bits(x).to_le_bytes()),
        DType::BF16 => put(floats, to, |x| float::bf16_bits(x).to_le_bytes()),
        _ => put(floats, to, |x| [float::f8e4m3_bits(x)]),
    }
}

/// Stores integers as elements of a type: wrapped to its width.
pub fn store_integers(dtype: DType, integers: &[i64], to: &mut [u8]) {
    match dtype {
        DType::I64 => put(integers, to, i64::to_le_bytes),
        DType::I32 => put(integers, to, |x| (x as i32).to_le_bytes()),
        DType::Bool => put(integers, to, |x| [u8::from(x != 0)]),
        _ => put(integers, to, |x| [x as u8]),
    }
}

fn put<T: Copy, const N: usize>(from: &[T], to: &mut [u8], f: impl Fn(T) -> [u8; N]) {
    to.as_chunks_mut::<N>().0.iter_mut().zip(from).for_each(|(y, &x)| *y = f(x));
}
