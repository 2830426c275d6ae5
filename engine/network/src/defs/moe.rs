//! A mixture of experts: gated feed-forward layers of which each token takes some.

use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, NetworkError, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::differ;
use kiln_ir::tensor::Tensor;
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::activation::SIGMOID;
use kiln_ops::pointwise::binary::{ADD, EQUAL, MAX, MIN, MUL};
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::reduce::REDUCE;
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::squeeze::UNSQUEEZE;

impl Network {
    /// A mixture of experts. `experts` [.., K] (i32 or i64) selects experts for each token of `hidden` [.., H]; the results are summed,
    /// times `scores` [.., K]. Other numbers than those of experts select nothing.
    ///
    /// An expert makes (silu(x·gate)·(x·up))·down of a token x. The weights are `[gate, up, down]`: [E, H, I], [E, H, I] and
    /// [E, I, H]. Biases [E, I], [E, I] and [E, H] are inputs 6 to 8. Every expert computes every token.
    pub fn add_moe(
        &mut self,
        hidden: TensorId,
        experts: TensorId,
        scores: TensorId,
        weights: [TensorId; 3],
    ) -> Result<Layer<'_, Moe>, NetworkError> {
        let [gate, up, down] = weights;
        let def = Moe { limit: f64::INFINITY, alpha: 1.0, beta: 0.0 };
        self.add_kind(def, &[hidden, experts, scores, gate, up, down])
    }
}

/// See [`Network::add_moe`]. The gate g and its partner u become g·sigmoid(α·g)·(u + β); before that g is at most the limit, and u at most
/// that far from 0.
#[derive(Clone, Debug)]
pub struct Moe {
    pub limit: f64,
    pub alpha: f64,
    pub beta: f64,
}

setters! { Moe {
    /// Sets the greatest gate, and the greatest distance of its partner from 0; infinite at first.
    set_swiglu_limit(limit: f64) => limit = limit;
    /// Sets the factor inside of the sigmoid, 1 at first.
    set_swiglu_alpha(alpha: f64) => alpha = alpha;
    /// Sets the number that is added to the partner of the gate, 0 at first.
    set_swiglu_beta(beta: f64) => beta = beta;
}}
layer_def!(Moe, "moe", 9, false);

impl Layer<'_, Moe> {
    /// Sets the biases of gate, up and down.
    pub fn set_gated_biases(self, biases: [TensorId; 3]) -> Result<Self, NetworkError> {
        let [gate, up, down] = biases;
        self.set_inputs(&[(GATE_BIAS, gate), (GATE_BIAS + 1, up), (GATE_BIAS + 2, down)])
    }

    /// Sets limit, α and β of the activation.
    pub fn set_swiglu_params(self, limit: f64, alpha: f64, beta: f64) -> Result<Self, NetworkError> {
        self.change(|p| (p.limit, p.alpha, p.beta) = (limit, alpha, beta))
    }
}

const GATE: usize = 3;
const GATE_BIAS: usize = 6;

impl Moe {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        for (name, value) in [("limit", self.limit), ("alpha", self.alpha), ("beta", self.beta)] {
            if value.is_nan() || (name == "limit" && value <= 0.0) {
                return Err(bad(name, value, "a number, and a limit above 0"));
            }
        }
        let [experts, size] = self.check(b)?;
        let hidden = b.x(0)?;
        let tokens = b.reshape(hidden, &[1, -1, size])?;
        let gate = self.product(b, tokens, GATE)?;
        let up = self.product(b, tokens, GATE + 1)?;
        let inner = self.activate(b, gate, up)?;
        let results = self.product(b, inner, GATE + 2)?;
        let share = self.shares(b, experts)?;
        let weighted = b.plain(MUL, &[results, share])?;
        // An expert that was not selected does not count, be its output infinite.
        let dtype = b.dtype(hidden);
        let zero = b.number(dtype, 0.0)?;
        let none = b.plain(EQUAL, &[share, zero])?;
        let weighted = b.plain(SELECT, &[none, zero, weighted])?;
        let axis = b.ints(&[0])?;
        let attrs = Attrs::new().with("op", "sum").with("keep_dims", false);
        let sum = b.op(REDUCE, attrs, &[weighted, axis])?;
        let shape = b.shape(hidden)?;
        Ok(vec![b.op(RESHAPE, Attrs::new().with("allow_zero", true), &[sum, shape])?])
    }

    /// The number of experts and the size of a token, if all inputs fit.
    fn check(&self, b: &Body<'_>) -> Result<[i64; 2], OpError> {
        b.check_dtype(0, |d| matches!(d, DType::F32 | DType::F16 | DType::BF16), "f32, f16 or bf16")?;
        b.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
        let rank = b.check_rank(0, |r| r > 1, "at least 2 dimensions")?;
        let own = b.dims(b.x(0)?);
        for i in [1, 2] {
            b.check_rank(i, |r| r == rank, "as many dimensions as input 0")?;
            let dims = b.dims(b.x(i)?);
            if own.iter().zip(&dims).take(rank - 1).any(|(a, b)| differ(a, b)) {
                return Err(b.bad_shape(i, "the dimensions of input 0 but the last"));
            }
        }
        let selected = [1, 2].map(|i| b.opt(i).and_then(|v| b.dims(v).last().cloned()));
        if let [Some(ids), Some(scores)] = &selected
            && (differ(ids, scores) || ids.as_const().is_none())
        {
            return Err(b.bad_shape(2, "one score for each selected expert, a constant number of them"));
        }
        for i in (2..b.len()).filter(|&i| b.has(i)) {
            b.same_dtype(0, i)?;
        }
        let constant = |i: usize, rank: usize| -> Result<Vec<i64>, OpError> {
            b.check_rank(i, |r| r == rank, &format!("{rank} dimensions"))?;
            let dims: Option<Vec<i64>> = b.dims(b.x(i)?).iter().map(Dim::as_const).collect();
            dims.ok_or_else(|| b.bad_shape(i, "constant dimensions"))
        };
        let gate = constant(GATE, 3)?;
        let [experts, size, inner] = gate[..] else { return Err(b.bad_shape(GATE, "3 dimensions")) };
        if own.last().and_then(Dim::as_const) != Some(size) {
            return Err(b.bad_shape(0, &format!("{size} in the last dimension, as the gate has")));
        }
        let wanted: [(usize, &[i64]); 5] = [
            (GATE + 1, &[experts, size, inner]),
            (GATE + 2, &[experts, inner, size]),
            (GATE_BIAS, &[experts, inner]),
            (GATE_BIAS + 1, &[experts, inner]),
            (GATE_BIAS + 2, &[experts, size]),
        ];
        for (i, dims) in wanted {
            if (i < GATE_BIAS || b.has(i)) && constant(i, dims.len())? != dims {
                return Err(b.bad_shape(i, &format!("{dims:?}")));
            }
        }
        Ok([experts, size])
    }

    /// The product of every token with every expert's matrix, input `i`, plus its bias.
    fn product(&self, b: &mut Body<'_>, x: ValueId, i: usize) -> Result<ValueId, OpError> {
        let w = b.x(i)?;
        let y = b.plain(MATMUL, &[x, w])?;
        let Some(bias) = b.opt(i + GATE_BIAS - GATE) else { return Ok(y) };
        let axis = b.ints(&[1])?;
        let bias = b.plain(UNSQUEEZE, &[bias, axis])?;
        b.plain(ADD, &[y, bias])
    }

    fn activate(&self, b: &mut Body<'_>, mut gate: ValueId, mut up: ValueId) -> Result<ValueId, OpError> {
        let dtype = b.dtype(gate);
        if self.limit.is_finite() {
            let (most, least) = (b.number(dtype, self.limit)?, b.number(dtype, -self.limit)?);
            gate = b.plain(MIN, &[gate, most])?;
            up = b.plain(MIN, &[up, most])?;
            up = b.plain(MAX, &[up, least])?;
        }
        let mut inside = gate;
        if self.alpha != 1.0 {
            let alpha = b.number(dtype, self.alpha)?;
            inside = b.plain(MUL, &[gate, alpha])?;
        }
        let sigmoid = b.plain(SIGMOID, &[inside])?;
        let gate = b.plain(MUL, &[gate, sigmoid])?;
        if self.beta != 0.0 {
            let beta = b.number(dtype, self.beta)?;
            up = b.plain(ADD, &[up, beta])?;
        }
        b.plain(MUL, &[gate, up])
    }

    /// Factor of each expert's result for each token, [E, tokens, 1].
    fn shares(&self, b: &mut Body<'_>, experts: i64) -> Result<ValueId, OpError> {
        let (ids, scores) = (b.x(1)?, b.x(2)?);
        let k = b.dims(scores).last().and_then(Dim::as_const).unwrap_or(0);
        let ids = b.cast(ids, DType::I64)?;
        let ids = b.reshape(ids, &[1, -1, k])?;
        let scores = b.reshape(scores, &[1, -1, k])?;
        let numbers: Vec<i64> = (0..experts).collect();
        let numbers = Tensor::i64(&[numbers.len(), 1, 1], &numbers)
            .ok_or_else(|| OpError::TooLarge(format!("i64[{experts},1,1]")))?;
        let numbers = b.constant(numbers);
        let chosen = b.plain(EQUAL, &[ids, numbers])?;
        let dtype = b.dtype(scores);
        let zero = b.number(dtype, 0.0)?;
        let each = b.plain(SELECT, &[chosen, scores, zero])?;
        let axis = b.ints(&[2])?;
        b.op(REDUCE, Attrs::new().with("op", "sum").with("keep_dims", true), &[each, axis])
    }
}
