//! Evaluation of expressions over blocks of elements.
//!
//! Inputs that are stored as lanes hold them are read where they are, and the last step writes to the result's memory if it can.

use super::code::{Code, From, Kind, Step, Work};
use super::{byte_loops, loops};
use crate::fast::narrow;
use half::{bf16, f16};
use kiln_ir::DType;
use kiln_ir::expr::{Expr, Inst, Num, Scalar, UnOp};
use kiln_ir::float::{bf16_bits, f8e4m3_bits, f8e4m3_to_f64};

/// Elements of a block.
pub const BLOCK: usize = 1024;
/// Elements that a lane has room for: lanes that are whole pages apart would wait for each other's stores, as processors compare addresses
/// within a page first.
const ROOM: usize = BLOCK + 160;

/// A block of numbers.
enum Lane {
    F(Box<[f32]>),
    I(Box<[i32]>),
    L(Box<[i64]>),
    B(Box<[u8]>),
}

/// Numbers that are read.
#[derive(Clone, Copy)]
pub enum View<'a> {
    F(&'a [f32]),
    I(&'a [i32]),
    L(&'a [i64]),
    B(&'a [u8]),
}

/// Numbers that are written.
enum Target<'a> {
    F(&'a mut [f32]),
    I(&'a mut [i32]),
    L(&'a mut [i64]),
    B(&'a mut [u8]),
}

/// Calls the same function of a lane's elements, whatever their type.
macro_rules! each {
    ($lane:expr, $kind:ident, $v:ident => $call:expr) => {
        match $lane {
            $kind::F($v) => $call,
            $kind::I($v) => $call,
            $kind::L($v) => $call,
            $kind::B($v) => $call,
        }
    };
}

impl Lane {
    fn filled(kind: Kind, x: Num) -> Lane {
        let (f, i) = match x {
            Num::F(x) => (x as f32, 0),
            Num::I(x) => (x as f32, x),
        };
        match kind {
            Kind::F => Lane::F(vec![f; ROOM].into()),
            Kind::I => Lane::I(vec![i as i32; ROOM].into()),
            Kind::L => Lane::L(vec![i; ROOM].into()),
            Kind::B => Lane::B(vec![i as u8; ROOM].into()),
        }
    }

    fn view(&self, n: usize) -> View<'_> {
        match self {
            Lane::F(v) => View::F(&v[..n]),
            Lane::I(v) => View::I(&v[..n]),
            Lane::L(v) => View::L(&v[..n]),
            Lane::B(v) => View::B(&v[..n]),
        }
    }

    fn target(&mut self, n: usize) -> Target<'_> {
        match self {
            Lane::F(v) => Target::F(&mut v[..n]),
            Lane::I(v) => Target::I(&mut v[..n]),
            Lane::L(v) => Target::L(&mut v[..n]),
            Lane::B(v) => Target::B(&mut v[..n]),
        }
    }
}

/// Blocks of an expression's inputs, constants and values.
pub struct Lanes<'a> {
    code: Option<&'a Code>,
    inputs: Vec<Lane>,
    /// Memory of an input's block, read in place of its lane.
    direct: Vec<Option<View<'a>>>,
    /// The element that fills an input's lane, and how far from its beginning.
    filled: Vec<Option<(usize, usize)>>,
    /// The place in its line where a lane of elements that come again begins, and the number of its elements.
    held: Vec<Option<(usize, usize)>>,
    constants: Vec<Lane>,
    values: Vec<Lane>,
    scratch: Vec<Num>,
}

impl<'a> Lanes<'a> {
    /// No room, for expressions that need none.
    pub fn none() -> Lanes<'a> {
        Lanes {
            code: None,
            inputs: Vec::new(),
            direct: Vec::new(),
            filled: Vec::new(),
            held: Vec::new(),
            constants: Vec::new(),
            values: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Room for the inputs and values of an expression.
    pub fn new(e: &Expr, code: Option<&'a Code>) -> Lanes<'a> {
        let zeros = |kind: Kind| Lane::filled(kind, Num::I(0));
        let result = || vec![zeros(Kind::of(e.result_type()))];
        let bytes = code.is_some_and(|c| c.bytes);
        Lanes {
            inputs: e.inputs.iter().map(|&t| zeros(if bytes { Kind::B } else { Kind::of(t) })).collect(),
            direct: vec![None; e.inputs.len()],
            filled: vec![None; e.inputs.len()],
            held: vec![None; e.inputs.len()],
            constants: code
                .into_iter()
                .flat_map(|c| &c.constants)
                .map(|&(k, x)| Lane::filled(k, x))
                .collect(),
            values: code.map_or_else(result, |c| c.lanes.iter().map(|&k| zeros(k)).collect()),
            scratch: Vec::new(),
            code,
        }
    }

    /// Reads `n` elements of an input where they are, if they are stored as lanes hold them.
    pub fn refer(&mut self, i: usize, ty: DType, bytes: &'a [u8], from: usize, n: usize) -> bool {
        let size = ty.bits() as usize / 8;
        let Some(bytes) = bytes.get(from * size..(from + n) * size) else { return false };
        self.direct[i] = match ty {
            _ if self.code.is_none() => None,
            DType::F32 => bytemuck::try_cast_slice(bytes).ok().map(View::F),
            DType::I32 => bytemuck::try_cast_slice(bytes).ok().map(View::I),
            DType::I64 => bytemuck::try_cast_slice(bytes).ok().map(View::L),
            DType::I8 | DType::U8 if self.in_bytes() => Some(View::B(bytes)),
            _ => None,
        };
        self.direct[i].is_some()
    }

    fn in_bytes(&self) -> bool {
        self.code.is_some_and(|c| c.bytes)
    }

    /// Whether a lane has `n` elements of a line that comes again, from a place on; if not, it will.
    pub fn holds(&mut self, i: usize, place: usize, n: usize) -> bool {
        let found = self.held[i].is_some_and(|(first, many)| first == place && n <= many);
        if !found {
            self.held[i] = Some((place, n));
        }
        found
    }

    /// Loads consecutive elements to a place in the block.
    pub fn load(&mut self, i: usize, ty: DType, bytes: &[u8], at: usize, from: usize, n: usize) {
        let size = ty.bits() as usize / 8;
        let bytes = bytes.get(from * size..(from + n) * size).unwrap_or_default();
        (self.direct[i], self.filled[i]) = (None, None);
        match &mut self.inputs[i] {
            Lane::F(v) => load_f(ty, bytes, &mut v[at..at + n]),
            Lane::I(v) => load_i(ty, bytes, &mut v[at..at + n]),
            Lane::L(v) => get(bytes, &mut v[at..at + n], i64::from_le_bytes),
            Lane::B(v) if ty == DType::Bool => byte_loops::truths(bytes, &mut v[at..at + n]),
            Lane::B(v) => v[at..at + n].copy_from_slice(bytes),
        }
    }

    /// Fills a part of the block with one element.
    pub fn fill(&mut self, i: usize, ty: DType, bytes: &[u8], at: usize, from: usize, n: usize) {
        let until =
            self.filled[i].filter(|(own, until)| *own == from && *until >= at).map(|(_, until)| until);
        if until.is_some_and(|until| until >= at + n) {
            self.direct[i] = None;
            return;
        }
        self.load(i, ty, bytes, at, from, 1);
        each!(&mut self.inputs[i], Lane, v => {
            let x = v[at];
            loops::fill(x, &mut v[at..at + n]);
        });
        self.filled[i] = (at == 0 || until.is_some()).then_some((from, at + n));
    }

    /// Computes a block and writes it to `out`, whose elements are of the result's type.
    pub fn eval(&mut self, e: &Expr, n: usize, out: &mut [u8]) {
        let Some(code) = self.code else {
            self.eval_each(e, n);
            return store(self.values[0].view(n), e.result_type(), out);
        };
        let result = e.result_type();
        let (last, steps) = match code.steps.split_last() {
            Some((last, steps)) if code.result == From::Lane(last.to) => (Some(last), steps),
            _ => (None, &code.steps[..]),
        };
        steps.iter().for_each(|s| self.step(s, n, None));
        if let Some(last) = last {
            let direct = match result {
                DType::F32 => bytemuck::try_cast_slice_mut(out).ok().map(Target::F),
                DType::I32 => bytemuck::try_cast_slice_mut(out).ok().map(Target::I),
                DType::I64 => bytemuck::try_cast_slice_mut(out).ok().map(Target::L),
                _ if code.bytes => Some(Target::B(&mut *out)),
                DType::I8 | DType::U8 if matches!(last.work, Work::Quantize { .. }) => {
                    Some(Target::B(&mut *out))
                }
                _ => None,
            };
            let done = direct.is_some();
            self.step(last, n, direct);
            if done {
                return;
            }
        }
        store(self.view(code.result, n), result, out);
    }

    fn view(&self, from: From, n: usize) -> View<'_> {
        match from {
            From::Input(i) => self.direct[i].unwrap_or_else(|| self.inputs[i].view(n)),
            From::Constant(i) => self.constants[i].view(n),
            From::Lane(i) => self.values[i].view(n),
        }
    }

    fn step(&mut self, s: &Step, n: usize, to: Option<Target<'_>>) {
        // No operand is in the result's lane, which is out of its place meanwhile.
        let mut own = std::mem::replace(&mut self.values[s.to], Lane::I(Box::default()));
        let args = s.args.map(|a| self.view(a, n));
        let to = to.unwrap_or_else(|| own.target(n));
        match (s.work, args, to) {
            (Work::One(inst), args, to) => run(inst, args, to),
            (Work::Sigmoid, [View::F(x), ..], Target::F(y)) => loops::sigmoid(x, y),
            (Work::Quantize { low, high }, [View::F(x), View::F(scale), View::F(zero)], Target::I(y)) => {
                loops::quantize(x, scale, zero, [low, high], y);
            }
            (Work::Quantize { low, high }, [View::F(x), View::F(scale), View::F(zero)], Target::B(y)) => {
                loops::quantize_bytes(x, scale, zero, [low, high], y);
            }
            (Work::Affine, [View::F(a), View::F(b), View::F(c)], Target::F(y)) => loops::affine(a, b, c, y),
            (Work::Clip, [View::F(x), View::F(low), View::F(high)], Target::F(y)) => {
                loops::clip(x, low, high, y);
            }
            (Work::Dequantize, [View::I(x), View::F(scale), View::I(zero)], Target::F(y)) => {
                loops::dequantize(x, scale, zero, y);
            }
            _ => {}
        }
        self.values[s.to] = own;
    }

    /// Evaluates lane by lane by the meaning of the expression.
    fn eval_each(&mut self, e: &Expr, n: usize) {
        let mut args = Vec::with_capacity(e.inputs.len());
        for k in 0..n {
            args.clear();
            args.extend(self.inputs.iter().map(|l| match l {
                Lane::F(v) => Num::F(v[k].into()),
                Lane::I(v) => Num::I(v[k].into()),
                Lane::L(v) => Num::I(v[k]),
                Lane::B(v) => Num::I(v[k].into()),
            }));
            match (&mut self.values[0], e.eval(&args, &mut self.scratch)) {
                (Lane::F(v), Num::F(x)) => v[k] = x as f32,
                (Lane::I(v), Num::I(x)) => v[k] = x as i32,
                (Lane::L(v), Num::I(x)) => v[k] = x,
                (Lane::F(v), Num::I(x)) => v[k] = x as f32,
                (Lane::I(v), Num::F(x)) => v[k] = x as i32,
                (Lane::L(v), Num::F(x)) => v[k] = x as i64,
                (Lane::B(v), Num::I(x)) => v[k] = x as u8,
                (Lane::B(v), Num::F(x)) => v[k] = x as u8,
            }
        }
    }
}

/// One instruction over views. The code has only instructions whose types are of these pairs.
fn run(inst: Inst, [a, b, c]: [View<'_>; 3], y: Target<'_>) {
    use View::{B, F, I, L};
    match (inst.op, a, b, y) {
        (Scalar::Un(op, _), B(x), _, Target::B(y)) => byte_loops::unary(op, inst.ty, x, y),
        (Scalar::Bin(op, ..), B(a), B(b), Target::B(y)) => byte_loops::binary(op, inst.ty, a, b, y),
        (Scalar::Cmp(op, ..), B(a), B(b), Target::B(y)) => byte_loops::compare(op, inst.ty, a, b, y),
        (Scalar::Cast(_), B(x), _, Target::B(y)) => byte_loops::truths(x, y),
        (Scalar::Select(..), B(s), B(a), Target::B(y)) => {
            if let B(b) = c {
                byte_loops::select(s, a, b, y);
            }
        }
        (Scalar::Un(op @ (UnOp::IsNan | UnOp::IsInf), _), F(x), _, Target::I(y)) => {
            loops::test(op == UnOp::IsNan, x, y);
        }
        (Scalar::Un(op, _), F(x), _, Target::F(y)) => {
            loops::unary(op, x, y);
        }
        (Scalar::Un(op, _), I(x), _, Target::I(y)) => loops::unary_int(op, x, y),
        (Scalar::Un(op, _), L(x), _, Target::L(y)) => loops::unary_int(op, x, y),
        (Scalar::Bin(op, ..), F(a), F(b), Target::F(y)) => {
            loops::binary(op, a, b, y);
        }
        (Scalar::Bin(op, ..), I(a), I(b), Target::I(y)) => loops::binary_int(op, a, b, y),
        (Scalar::Bin(op, ..), L(a), L(b), Target::L(y)) => loops::binary_int(op, a, b, y),
        (Scalar::Cmp(op, ..), F(a), F(b), Target::I(y)) => loops::compare(op, a, b, y),
        (Scalar::Cmp(op, ..), I(a), I(b), Target::I(y)) => loops::compare(op, a, b, y),
        (Scalar::Cmp(op, ..), L(a), L(b), Target::I(y)) => loops::compare(op, a, b, y),
        (Scalar::Select(..), I(s), F(a), Target::F(y)) => {
            if let F(b) = c {
                loops::select(s, a, b, y);
            }
        }
        (Scalar::Select(..), I(s), I(a), Target::I(y)) => {
            if let I(b) = c {
                loops::select(s, a, b, y);
            }
        }
        (Scalar::Select(..), I(s), L(a), Target::L(y)) => {
            if let L(b) = c {
                loops::select(s, a, b, y);
            }
        }
        (Scalar::Cast(_), x, _, y) => cast(x, y, inst.ty),
        _ => {}
    }
}

fn cast(x: View<'_>, y: Target<'_>, ty: DType) {
    use View::{F, I, L};
    match (x, y) {
        (I(x), Target::F(y)) if ty == DType::BF16 => each_bf16(x, y, f64::from),
        (L(x), Target::F(y)) if ty == DType::BF16 => each_bf16(x, y, |x| x as f64),
        (F(x), Target::F(y)) => {
            y.copy_from_slice(x);
            round(y, ty);
        }
        (I(x), Target::F(y)) => {
            loops::convert(x, y);
            round(y, ty);
        }
        (L(x), Target::F(y)) => {
            loops::convert(x, y);
            round(y, ty);
        }
        (x, Target::I(y)) if ty == DType::Bool => each!(x, View, x => loops::truths(x, y)),
        (F(x), Target::I(y)) => {
            loops::convert(x, y);
            loops::wrap(ty, y);
        }
        (I(x), Target::I(y)) => {
            y.copy_from_slice(x);
            loops::wrap(ty, y);
        }
        (L(x), Target::I(y)) => {
            loops::convert(x, y);
            loops::wrap(ty, y);
        }
        (F(x), Target::L(y)) => loops::convert(x, y),
        (I(x), Target::L(y)) => loops::convert(x, y),
        (L(x), Target::L(y)) => y.copy_from_slice(x),
        _ => {}
    }
}

/// Integers rounded once: through f32 they would be rounded twice.
fn each_bf16<T: Copy>(x: &[T], y: &mut [f32], wide: impl Fn(T) -> f64) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = bf16::from_bits(bf16_bits(wide(x))).to_f32());
}

/// Rounds floats to those of a narrower type.
fn round(x: &mut [f32], ty: DType) {
    match ty {
        DType::F16 => {
            let mut short = [f16::ZERO; BLOCK];
            let short = &mut short[..x.len()];
            narrow::to_f16(x, short);
            narrow::of_f16(short, x);
        }
        DType::BF16 => {
            let mut short = [bf16::ZERO; BLOCK];
            let short = &mut short[..x.len()];
            narrow::to_bf16(x, short);
            narrow::of_bf16(short, x);
        }
        DType::F8E4M3 => x.iter_mut().for_each(|x| *x = f8e4m3_to_f64(f8e4m3_bits((*x).into())) as f32),
        _ => {}
    }
}

/// Writes numbers as elements of a type.
fn store(x: View<'_>, ty: DType, out: &mut [u8]) {
    match (x, ty) {
        (View::F(v), DType::F32) => put(out, v, f32::to_le_bytes),
        (View::F(v), DType::F16) => match bytemuck::try_cast_slice_mut::<u8, f16>(out) {
            Ok(out) => narrow::to_f16(v, out),
            Err(_) => put(out, v, |x| f16::from_f32(x).to_le_bytes()),
        },
        (View::F(v), DType::BF16) => match bytemuck::try_cast_slice_mut::<u8, bf16>(out) {
            Ok(out) => narrow::to_bf16(v, out),
            Err(_) => put(out, v, |x| bf16::from_f32(x).to_le_bytes()),
        },
        (View::F(v), _) => put(out, v, |x| [f8e4m3_bits(x.into())]),
        (View::L(v), _) => put(out, v, i64::to_le_bytes),
        (View::B(v), _) => out.copy_from_slice(v),
        (View::I(v), DType::I32) => put(out, v, i32::to_le_bytes),
        (View::I(v), DType::Bool) => loops::store_truths(v, out),
        (View::I(v), _) => loops::convert(v, out),
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
            Ok(b) => narrow::of_f16(b, v),
            Err(_) => get(b, v, |c| f16::from_le_bytes(c).to_f32()),
        },
        DType::BF16 => match bytemuck::try_cast_slice::<u8, bf16>(b) {
            Ok(b) => narrow::of_bf16(b, v),
            Err(_) => get(b, v, |c| bf16::from_le_bytes(c).to_f32()),
        },
        _ => get(b, v, |[c]: [u8; 1]| f8e4m3_to_f64(c) as f32),
    }
}

fn load_i(ty: DType, b: &[u8], v: &mut [i32]) {
    match ty {
        DType::I32 => get(b, v, i32::from_le_bytes),
        DType::I8 => loops::convert(bytemuck::cast_slice::<u8, i8>(b), v),
        DType::Bool => loops::truths(b, v),
        _ => loops::convert(b, v),
    }
}
