//! Test problems: an operator with inputs, made from a seed.

use crate::attr::Attrs;
use crate::dtype::DType;
use crate::op::Op;
use crate::tensor::{Elems, Tensor};

/// One application of an operator to check on a backend against the oracle.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Name of the special case: "odd sizes", "empty", "NaN".
    pub label: String,
    /// The operator.
    pub op: Op,
    /// Inputs of the problem.
    pub inputs: Vec<Option<Tensor>>,
}

impl Problem {
    /// A problem whose inputs are all present.
    pub fn new(label: &str, op: Op, inputs: impl IntoIterator<Item = Tensor>) -> Problem {
        Problem { label: label.into(), op, inputs: inputs.into_iter().map(Some).collect() }
    }

    /// A problem by the operator's name, some optional inputs perhaps absent. Panics as [`op`] does.
    pub fn of(
        label: &str,
        name: impl AsRef<str>,
        attrs: Attrs,
        inputs: impl IntoIterator<Item = Option<Tensor>>,
    ) -> Problem {
        Problem { label: label.into(), op: op(name, attrs), inputs: inputs.into_iter().collect() }
    }
}

/// The operator of a problem. Only tests make problems: one that is not made is coverage that is lost silently, so refused
/// attributes are a panic that names operator and attribute.
#[expect(clippy::panic, reason = "only tests make problems, and their attributes are constants")]
pub fn op(name: impl AsRef<str>, attrs: Attrs) -> Op {
    let name = name.as_ref();
    Op::new(name, attrs.clone()).unwrap_or_else(|e| panic!("a test problem of {name} with {attrs:?}: {e}"))
}

/// A small deterministic generator of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator from a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `lo..=hi`.
    pub fn int(&mut self, lo: i64, hi: i64) -> i64 {
        let span = (hi.wrapping_sub(lo) as u64).wrapping_add(1);
        lo.wrapping_add(if span == 0 { self.bits() } else { self.bits() % span } as i64)
    }

    /// Uniform in `[lo, hi)`.
    pub fn float(&mut self, lo: f64, hi: f64) -> f64 {
        lo + (hi - lo) * (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One of a list.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.int(0, of.len() as i64 - 1) as usize])
    }

    /// A tensor of random elements in a range that suits most operators: floats in `[-2, 2)`, signed integers in
    /// `-9..=9`, unsigned ones in `0..=9`, both truth values.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        self.tensor_in(dtype, shape, -2.0, 2.0, 9)
    }

    /// A tensor of floats in `[lo, hi)`, or of integers up to `mag` in size.
    pub fn tensor_in(&mut self, dtype: DType, shape: &[usize], lo: f64, hi: f64, mag: i64) -> Tensor {
        let n: usize = shape.iter().product();
        let elems = match dtype {
            t if t.is_float() => Elems::F((0..n).map(|_| self.float(lo, hi)).collect()),
            DType::Bool => Elems::I((0..n).map(|_| self.int(0, 1)).collect()),
            DType::U8 => Elems::I((0..n).map(|_| self.int(0, mag)).collect()),
            DType::I4 => Elems::I((0..n).map(|_| self.int(-8, 7)).collect()),
            _ => Elems::I((0..n).map(|_| self.int(-mag, mag)).collect()),
        };
        made(Tensor::from_elems(dtype, shape, &elems))
    }

    /// An i64 tensor with these elements.
    pub fn i64s(&mut self, shape: &[usize], v: &[i64]) -> Tensor {
        made(Tensor::i64(shape, v))
    }

    /// Tensors whose elements must arrive bit for bit: integers that need all 64 bits, and floats with special values.
    pub fn exact_tensors(&mut self, shape: &[usize]) -> [Tensor; 2] {
        let n = shape.iter().product();
        let ints: Vec<i64> = (0..n).map(|_| self.bits() as i64).collect();
        let floats = self.edge_floats(DType::F32, n);
        [made(Tensor::i64(shape, &ints)), made(floats.reshaped(shape))]
    }

    /// Floats with NaN, infinities, signed zeros, subnormals and huge values among random ones.
    pub fn edge_floats(&mut self, dtype: DType, n: usize) -> Tensor {
        const EDGES: [f64; 10] =
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, -1e-40, 3.0e38, -3.0e38, 0.5];
        let v = (0..n).map(|i| EDGES.get(i).copied().unwrap_or_else(|| self.float(-100.0, 100.0))).collect();
        made(Tensor::from_elems(dtype, &[n], &Elems::F(v)))
    }
}

/// A tensor of a problem. Generators give as many elements as the shape has; anything else is a mistake of theirs, and a panic.
#[expect(clippy::panic, reason = "only tests make problems")]
pub fn made(t: Option<Tensor>) -> Tensor {
    t.unwrap_or_else(|| panic!("a generator of test problems gives elements that do not fit its shape"))
}

/// An empty list, for operators that a suite of their own covers (control flow, plug-ins).
pub fn none(_: &mut Rng) -> Vec<Problem> {
    Vec::new()
}
