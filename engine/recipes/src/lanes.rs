//! Expressions of many elements at a time: each instruction is one loop. What has no loop of its own is computed element by element, as
//! the oracle does it.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
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
    /// The instruction whose value is rounded as it is stored, where the result is a rounding of it.
    unrounded: Option<usize>,
    f: Vec<[f64; LANES]>,
    i: Vec<[i64; LANES]>,
    /// Whether the result was computed by the oracle's code.
    exact: bool,
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
        let (n, floats) = (expr.insts.len(), floats(expr)?);
        let unrounded = expr.insts.get(usize::from(expr.result)).and_then(|inst| match inst.op {
            Scalar::Cast(a) if matches!(inst.ty, DType::F16 | DType::BF16) => Some(usize::from(a)),
            _ => None,
        });
        let single = |&a: &usize| floats[a] && expr.insts.get(a).is_some_and(|i| i.ty == DType::F32);
        let unrounded = unrounded.filter(single);
        let (f, i) = (vec![[0.0; LANES]; n], vec![[0; LANES]; n]);
        Some(Lanes { expr, floats, unrounded, f, i, exact: false })
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
        self.exact = false;
        self.instructions(n);
        if self.result(n).iter().fold(false, |any, x| any | x.is_nan()) {
            self.exactly(n);
        }
    }

    fn exactly(&mut self, n: usize) {
        self.exact = true;
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
            let left = self.unrounded.is_some() && k == usize::from(self.expr.result);
            if !left && !matches!(inst.op, Scalar::Input(_)) && !self.quick(k, inst, n) {
                self.slow(k, inst, n);
            }
        }
    }

    /// Floats of the result, or those that are rounded to it; none where it is integers.
    fn result(&self, n: usize) -> &[f64] {
        let at = self.unrounded.filter(|_| !self.exact).unwrap_or(usize::from(self.expr.result));
        match self.floats.get(at) {
            Some(true) => &self.f[at][..n],
            _ => &[],
        }
    }

    /// Stores the result of the first `n` elements.
    pub fn store(&self, n: usize, to: &mut [u8]) {
        let (at, dtype) = (usize::from(self.expr.result), self.expr.result_type());
        match self.floats.get(at) {
            Some(true) => store(dtype, self.result(n), to),
            _ => store_integers(dtype, &self.i[at][..n], to),
        }
    }

    /// Arithmetic in f32, which is that in f64 rounded once, and roundings of f32.
    fn quick(&mut self, k: usize, inst: &Inst, n: usize) -> bool {
        if !self.floats[k] {
            return false;
        }
        let float = |r: Reg| self.floats[usize::from(r)];
        let single = |r: Reg| self.expr.insts.get(usize::from(r)).is_some_and(|i| i.ty == DType::F32);
        let (before, rest) = self.f.split_at_mut(k);
        let Some(out) = rest.first_mut() else { return false };
        let out = &mut out[..n];
        let at = |r: Reg| before.get(usize::from(r)).map_or(&[][..], |v| &v[..n]);
        let round = |x: f64| f64::from(x as f32);
        match inst.op {
            // Another name of a value.
            Scalar::Select(c, a, b) if c == a && a == b => {
                out.copy_from_slice(at(a));
                return true;
            }
            Scalar::Cast(a) if inst.ty == DType::F16 && float(a) && single(a) => {
                each(out, at(a), |x| f16::from_f32(x as f32).into());
                return true;
            }
            Scalar::Cast(a) if inst.ty == DType::BF16 && float(a) && single(a) => {
                each(out, at(a), |x| bf16::from_f32(x as f32).into());
                return true;
            }
            _ if inst.ty != DType::F32 => return false,
            _ => {}
        }
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
fn store(dtype: DType, floats: &[f64], to: &mut [u8]) {
    match dtype {
        DType::F32 => put(floats, to, |x| (x as f32).to_le_bytes()),
        DType::F16 => store_halves(floats, to),
        DType::BF16 => put(floats, to, |x| float::bf16_bits(x).to_le_bytes()),
        _ => put(floats, to, |x| [float::f8e4m3_bits(x)]),
    }
}

/// Stores values of f32 as f16, several at a time.
fn store_halves(floats: &[f64], to: &mut [u8]) {
    let (mut single, mut half) = ([0f32; LANES], [f16::ZERO; LANES]);
    for (floats, to) in floats.chunks(LANES).zip(to.chunks_mut(LANES * 2)) {
        let n = floats.len();
        single.iter_mut().zip(floats).for_each(|(x, &wide)| *x = wide as f32);
        half[..n].convert_from_f32_slice(&single[..n]);
        to.copy_from_slice(bytemuck::cast_slice(&half[..n]));
    }
}

/// Stores integers as elements of a type: wrapped to its width.
fn store_integers(dtype: DType, integers: &[i64], to: &mut [u8]) {
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
