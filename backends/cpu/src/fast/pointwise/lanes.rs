//! Blocks of elements in registers: floats as f32, integers and truth values as i64.

use super::math;
use crate::fast::simd::vectorized;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kiln_ir::expr::{BinOp, CmpOp, Expr, Inst, Num, Scalar, UnOp};
use kiln_ir::float::f8e4m3_to_f64;
use kiln_ir::{DType, Elems, Tensor};

/// Elements of a block.
pub const BLOCK: usize = 512;

/// A widened element.
fn num(f: f64, i: i64, ty: DType) -> Num {
    if ty.is_float() { Num::F(f) } else { Num::I(i) }
}

/// Stores one widened element of a type that the lanes do not convert themselves.
fn encode(ty: DType, x: Num) -> Option<Tensor> {
    let elems = match x {
        Num::F(x) => Elems::F(vec![x]),
        Num::I(x) => Elems::I(vec![x]),
    };
    Tensor::from_elems(ty, &[1], &elems)
}

/// The value of one instruction for a block.
enum Lane {
    F(Box<[f32]>),
    I(Box<[i64]>),
}

/// Registers of one expression, and blocks of its inputs.
pub struct Lanes {
    inputs: Vec<Lane>,
    regs: Vec<Lane>,
    result: usize,
    scratch: Vec<Num>,
}

fn lane(ty: DType) -> Lane {
    if ty.is_float() { Lane::F(vec![0.0; BLOCK].into()) } else { Lane::I(vec![0; BLOCK].into()) }
}

/// Whether [`Lanes::eval`] covers all its instructions. Else [`Lanes::eval_each`] does.
pub fn supported(e: &Expr) -> bool {
    e.insts.iter().all(|i| {
        let float = |r: u16| e.insts[usize::from(r)].ty == DType::F32;
        match i.op {
            Scalar::Input(_) | Scalar::Select(..) => true,
            Scalar::Float(_) => i.ty == DType::F32,
            Scalar::Int(_) => !i.ty.is_float(),
            Scalar::Un(UnOp::IsNan | UnOp::IsInf, a) => float(a),
            Scalar::Un(UnOp::Not, _) => i.ty == DType::Bool,
            Scalar::Un(op, a) => float(a) && unary(op).is_some(),
            Scalar::Bin(op, a, _) if float(a) => binary(op).is_some(),
            Scalar::Bin(BinOp::And | BinOp::Or | BinOp::Xor, ..) => i.ty == DType::Bool,
            Scalar::Bin(op, ..) => matches!(i.ty, DType::I32 | DType::I64) && binary_i(op).is_some(),
            Scalar::Cmp(_, a, _) => float(a) || !e.insts[usize::from(a)].ty.is_float(),
            Scalar::Cast(_) => i.ty != DType::F8E4M3,
        }
    })
}

type F1 = fn(f32) -> f32;
type F2 = fn(f32, f32) -> f32;
type I2 = fn(i64, i64) -> i64;

/// Functions for which a call per element is not a burden; the others are inlined in [`map_unary`].
fn unary(op: UnOp) -> Option<F1> {
    Some(match op {
        UnOp::Neg | UnOp::Abs | UnOp::Recip | UnOp::Sqrt | UnOp::Exp | UnOp::Tanh => |x| x,
        UnOp::Sign => |x| if x == 0.0 || x.is_nan() { x } else { x.signum() },
        UnOp::Floor => f32::floor,
        UnOp::Ceil => f32::ceil,
        UnOp::Round => f32::round_ties_even,
        UnOp::Trunc => f32::trunc,
        UnOp::Log => libm::logf,
        UnOp::Log1p => libm::log1pf,
        UnOp::Erf => libm::erff,
        UnOp::Sin => |x| libm::sin(x.into()) as f32,
        UnOp::Cos => |x| libm::cos(x.into()) as f32,
        _ => return None,
    })
}

vectorized! {
fn map_unary(op: UnOp, x: &[f32], y: &mut [f32]) {
    #[inline(always)]
    fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x));
    }
    match op {
        UnOp::Neg => map(x, y, |x| -x),
        UnOp::Abs => map(x, y, f32::abs),
        UnOp::Recip => map(x, y, |x| 1.0 / x),
        UnOp::Sqrt => map(x, y, f32::sqrt),
        UnOp::Exp => map(x, y, math::exp),
        UnOp::Tanh => map(x, y, math::tanh),
        UnOp::Floor => map(x, y, f32::floor),
        UnOp::Ceil => map(x, y, f32::ceil),
        UnOp::Round => map(x, y, f32::round_ties_even),
        UnOp::Trunc => map(x, y, f32::trunc),
        UnOp::Sign => map(x, y, |x| if x == 0.0 || x.is_nan() { x } else { 1f32.copysign(x) }),
        op => {
            if let Some(f) = unary(op) {
                map(x, y, f);
            }
        }
    }
}
}

fn binary(op: BinOp) -> Option<F2> {
    Some(match op {
        BinOp::Add => |a, b| a + b,
        BinOp::Sub => |a, b| a - b,
        BinOp::Mul => |a, b| a * b,
        BinOp::Div => |a, b| a / b,
        BinOp::Min => |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) },
        BinOp::Max => |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) },
        BinOp::Pow => |a, b| libm::pow(a.into(), b.into()) as f32,
        _ => return None,
    })
}

vectorized! {
fn map_binary(op: BinOp, a: &[f32], b: &[f32], y: &mut [f32]) {
    #[inline(always)]
    fn map(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32) {
        y.iter_mut().zip(a).zip(b).for_each(|((y, &a), &b)| *y = f(a, b));
    }
    match op {
        BinOp::Add => map(a, b, y, |a, b| a + b),
        BinOp::Sub => map(a, b, y, |a, b| a - b),
        BinOp::Mul => map(a, b, y, |a, b| a * b),
        BinOp::Div => map(a, b, y, |a, b| a / b),
        BinOp::Min => map(a, b, y, |a, b| if a < b || a.is_nan() { a } else { b }),
        BinOp::Max => map(a, b, y, |a, b| if a > b || a.is_nan() { a } else { b }),
        op => {
            if let Some(f) = binary(op) {
                map(a, b, y, f);
            }
        }
    }
}
}

fn binary_i(op: BinOp) -> Option<I2> {
    Some(match op {
        BinOp::Add => i64::wrapping_add,
        BinOp::Sub => i64::wrapping_sub,
        BinOp::Mul => i64::wrapping_mul,
        BinOp::Min => i64::min,
        BinOp::Max => i64::max,
        BinOp::And | BinOp::BitAnd => |a, b| a & b,
        BinOp::Or | BinOp::BitOr => |a, b| a | b,
        BinOp::Xor | BinOp::BitXor => |a, b| a ^ b,
        _ => return None,
    })
}

fn compare<T: PartialOrd + Copy>(op: CmpOp, a: &[T], b: &[T], y: &mut [i64]) {
    let f: fn(&T, &T) -> bool = match op {
        CmpOp::Eq => |a, b| a == b,
        CmpOp::Ne => |a, b| a != b,
        CmpOp::Lt => |a, b| a < b,
        CmpOp::Le => |a, b| a <= b,
        CmpOp::Gt => |a, b| a > b,
        CmpOp::Ge => |a, b| a >= b,
    };
    y.iter_mut().zip(a.iter().zip(b)).for_each(|(y, (a, b))| *y = f(a, b).into());
}

/// An integer as its type wraps it.
fn wrap(x: i64, ty: DType) -> i64 {
    match ty {
        DType::I32 => (x as i32).into(),
        DType::I8 => (x as i8).into(),
        DType::U8 => (x as u8).into(),
        DType::Bool => (x != 0).into(),
        _ => x,
    }
}

/// Rounds floats to those of a narrower type.
fn round(x: &mut [f32], ty: DType) {
    match ty {
        DType::F16 => {
            let mut narrow = [f16::ZERO; BLOCK];
            let narrow = &mut narrow[..x.len()];
            narrow.convert_from_f32_slice(x);
            narrow.convert_to_f32_slice(x);
        }
        DType::BF16 => {
            let mut narrow = [bf16::ZERO; BLOCK];
            let narrow = &mut narrow[..x.len()];
            narrow.convert_from_f32_slice(x);
            narrow.convert_to_f32_slice(x);
        }
        _ => {}
    }
}

impl Lanes {
    /// Room for the registers of an expression.
    pub fn new(e: &Expr) -> Lanes {
        Lanes {
            inputs: e.inputs.iter().map(|&t| lane(t)).collect(),
            regs: e.insts.iter().map(|i| lane(i.ty)).collect(),
            result: e.result.into(),
            scratch: Vec::new(),
        }
    }

    /// Loads `n` consecutive elements of an input to the start of its block.
    pub fn load(&mut self, i: usize, ty: DType, bytes: &[u8], from: usize, n: usize) {
        self.load_at(i, ty, bytes, 0, from, n);
    }

    /// Loads consecutive elements to a place in the block.
    pub fn load_at(&mut self, i: usize, ty: DType, bytes: &[u8], at: usize, from: usize, n: usize) {
        let size = ty.bits() as usize / 8;
        let bytes = bytes.get(from * size..(from + n) * size).unwrap_or_default();
        match &mut self.inputs[i] {
            Lane::F(v) => load_f(ty, bytes, &mut v[at..at + n]),
            Lane::I(v) => load_i(ty, bytes, &mut v[at..at + n]),
        }
    }

    /// Fills a part of the block with one element.
    pub fn fill(&mut self, i: usize, ty: DType, bytes: &[u8], at: usize, from: usize, n: usize) {
        self.load_at(i, ty, bytes, at, from, 1);
        match &mut self.inputs[i] {
            Lane::F(v) => {
                let x = v[at];
                v[at..at + n].fill(x);
            }
            Lane::I(v) => {
                let x = v[at];
                v[at..at + n].fill(x);
            }
        }
    }

    /// Evaluates the first `n` lanes, instruction by instruction.
    pub fn eval(&mut self, e: &Expr, n: usize) {
        for (k, inst) in e.insts.iter().enumerate() {
            let (before, now) = self.regs.split_at_mut(k);
            if let Some(now) = now.first_mut() {
                step(inst, &self.inputs, before, now, n);
            }
        }
    }

    /// Evaluates lane by lane by the meaning of the expression.
    pub fn eval_each(&mut self, e: &Expr, n: usize) {
        let mut args = Vec::with_capacity(e.inputs.len());
        for k in 0..n {
            args.clear();
            args.extend(self.inputs.iter().map(|l| match l {
                Lane::F(v) => Num::F(v[k].into()),
                Lane::I(v) => Num::I(v[k]),
            }));
            let x = e.eval(&args, &mut self.scratch);
            match (&mut self.regs[self.result], x) {
                (Lane::F(v), Num::F(x)) => v[k] = x as f32,
                (Lane::I(v), Num::I(x)) => v[k] = x,
                (Lane::F(v), Num::I(x)) => v[k] = x as f32,
                (Lane::I(v), Num::F(x)) => v[k] = x as i64,
            }
        }
    }

    /// Writes the result to as many elements as `out` holds.
    pub fn store(&self, ty: DType, out: &mut [u8]) {
        match (&self.regs[self.result], ty) {
            (Lane::F(v), DType::F32) => put(out, v, f32::to_le_bytes),
            (Lane::F(v), DType::F16) => match bytemuck::try_cast_slice_mut::<u8, f16>(out) {
                Ok(out) => out.convert_from_f32_slice(&v[..out.len()]),
                Err(_) => put(out, v, |x| f16::from_f32(x).to_le_bytes()),
            },
            (Lane::F(v), DType::BF16) => match bytemuck::try_cast_slice_mut::<u8, bf16>(out) {
                Ok(out) => out.convert_from_f32_slice(&v[..out.len()]),
                Err(_) => put(out, v, |x| bf16::from_f32(x).to_le_bytes()),
            },
            (Lane::I(v), DType::I64) => put(out, v, i64::to_le_bytes),
            (Lane::I(v), DType::I32) => put(out, v, |x| (x as i32).to_le_bytes()),
            (Lane::I(v), DType::I8 | DType::U8) => put(out, v, |x| [x as u8]),
            (Lane::I(v), DType::Bool) => put(out, v, |x| [u8::from(x != 0)]),
            (Lane::F(v), ty) => out.iter_mut().zip(v.iter()).for_each(|(o, &x)| {
                *o = encode(ty, num(x.into(), 0, ty)).map_or(0, |t| t.bytes()[0]);
            }),
            (Lane::I(_), _) => {}
        }
    }
}

fn put<const N: usize, T: Copy>(out: &mut [u8], v: &[T], f: impl Fn(T) -> [u8; N]) {
    out.as_chunks_mut::<N>().0.iter_mut().zip(v).for_each(|(o, &x)| *o = f(x));
}

fn get<const N: usize, T>(bytes: &[u8], v: &mut [T], f: impl Fn([u8; N]) -> T) {
    v.iter_mut().zip(bytes.as_chunks::<N>().0).for_each(|(v, b)| *v = f(*b));
}

fn load_f(ty: DType, b: &[u8], v: &mut [f32]) {
    match ty {
        DType::F32 => get(b, v, f32::from_le_bytes),
        DType::F16 => match bytemuck::try_cast_slice::<u8, f16>(b) {
            Ok(b) => b.convert_to_f32_slice(v),
            Err(_) => get(b, v, |c| f16::from_le_bytes(c).to_f32()),
        },
        DType::BF16 => match bytemuck::try_cast_slice::<u8, bf16>(b) {
            Ok(b) => b.convert_to_f32_slice(v),
            Err(_) => get(b, v, |c| bf16::from_le_bytes(c).to_f32()),
        },
        _ => get(b, v, |[c]: [u8; 1]| f8e4m3_to_f64(c) as f32),
    }
}

fn load_i(ty: DType, b: &[u8], v: &mut [i64]) {
    match ty {
        DType::I64 => get(b, v, i64::from_le_bytes),
        DType::I32 => get(b, v, |c| i32::from_le_bytes(c).into()),
        DType::I8 => get(b, v, |[c]: [u8; 1]| (c as i8).into()),
        DType::Bool => get(b, v, |[c]: [u8; 1]| (c != 0).into()),
        _ => get(b, v, |[c]: [u8; 1]| c.into()),
    }
}

fn step(inst: &Inst, inputs: &[Lane], before: &[Lane], now: &mut Lane, n: usize) {
    let at = |r: u16| &before[usize::from(r)];
    match (inst.op, now) {
        (Scalar::Input(i), now) => copy(&inputs[usize::from(i)], now, n),
        (Scalar::Float(x), Lane::F(y)) => y[..n].fill(x as f32),
        (Scalar::Int(x), Lane::I(y)) => y[..n].fill(wrap(x, inst.ty)),
        (Scalar::Un(op, a), Lane::F(y)) => {
            if let Lane::F(x) = at(a) {
                map_unary(op, &x[..n], &mut y[..n]);
            }
        }
        (Scalar::Un(op, a), Lane::I(y)) => match (op, at(a)) {
            (UnOp::IsNan, Lane::F(x)) => test(&x[..n], y, f32::is_nan),
            (UnOp::IsInf, Lane::F(x)) => test(&x[..n], y, f32::is_infinite),
            (_, Lane::I(x)) => test(&x[..n], y, |x| x == 0),
            _ => {}
        },
        (Scalar::Bin(op, a, b), Lane::F(y)) => {
            if let (Lane::F(a), Lane::F(b)) = (at(a), at(b)) {
                map_binary(op, &a[..n], &b[..n], &mut y[..n]);
            }
        }
        (Scalar::Bin(op, a, b), Lane::I(y)) => {
            if let (Lane::I(a), Lane::I(b), Some(f)) = (at(a), at(b), binary_i(op)) {
                let pairs = y[..n].iter_mut().zip(a.iter().zip(b.iter()));
                pairs.for_each(|(y, (&a, &b))| *y = wrap(f(a, b), inst.ty));
            }
        }
        (Scalar::Cmp(op, a, b), Lane::I(y)) => match (at(a), at(b)) {
            (Lane::F(a), Lane::F(b)) => compare(op, &a[..n], &b[..n], &mut y[..n]),
            (Lane::I(a), Lane::I(b)) => compare(op, &a[..n], &b[..n], &mut y[..n]),
            _ => {}
        },
        (Scalar::Select(c, a, b), now) => {
            let Lane::I(c) = at(c) else { return };
            match (at(a), at(b), now) {
                (Lane::F(a), Lane::F(b), Lane::F(y)) => select(&c[..n], &a[..], &b[..], &mut y[..]),
                (Lane::I(a), Lane::I(b), Lane::I(y)) => select(&c[..n], &a[..], &b[..], &mut y[..]),
                _ => {}
            }
        }
        (Scalar::Cast(a), now) => convert(at(a), now, inst.ty, n),
        _ => {}
    }
}

fn test<T: Copy>(x: &[T], y: &mut [i64], f: impl Fn(T) -> bool) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x).into());
}

fn select<T: Copy>(c: &[i64], a: &[T], b: &[T], y: &mut [T]) {
    let pairs = y.iter_mut().zip(c).zip(a.iter().zip(b));
    pairs.for_each(|((y, &c), (&a, &b))| *y = if c != 0 { a } else { b });
}

fn copy(from: &Lane, to: &mut Lane, n: usize) {
    match (from, to) {
        (Lane::F(x), Lane::F(y)) => y[..n].copy_from_slice(&x[..n]),
        (Lane::I(x), Lane::I(y)) => y[..n].copy_from_slice(&x[..n]),
        _ => {}
    }
}

fn convert(from: &Lane, to: &mut Lane, ty: DType, n: usize) {
    match (from, to) {
        (Lane::F(x), Lane::F(y)) => {
            y[..n].copy_from_slice(&x[..n]);
            round(&mut y[..n], ty);
        }
        (Lane::I(x), Lane::F(y)) => {
            y[..n].iter_mut().zip(&x[..]).for_each(|(y, &x)| *y = x as f32);
            round(&mut y[..n], ty);
        }
        (Lane::I(x), Lane::I(y)) => y[..n].iter_mut().zip(&x[..]).for_each(|(y, &x)| *y = wrap(x, ty)),
        (Lane::F(x), Lane::I(y)) => y[..n].iter_mut().zip(&x[..]).for_each(|(y, &x)| {
            *y = match ty {
                DType::Bool => (x != 0.0).into(),
                DType::I64 => x as i64,
                ty => wrap((x as i32).into(), ty),
            };
        }),
    }
}
