//! Along axes: reduce, softmax, ragged softmax, topk, cumulative.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ops::reduce::REDUCE;
use kiln_ops::reduce::cumulative::CUMULATIVE;
use kiln_ops::softmax::SOFTMAX;
use kiln_ops::softmax::ragged::RAGGED_SOFTMAX;
use kiln_ops::sort::TOPK;

/// Operation that combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum; 0 for no elements.
    Sum,
    /// Product; 1 for no elements.
    Prod,
    /// The greatest; the least value of the type for no elements.
    Max,
    /// The least; the greatest value of the type for no elements.
    Min,
    /// The mean; NaN (integers: 0) for no elements.
    Avg,
}

impl ReduceOp {
    pub(super) fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Avg => "mean",
        }
    }
}

/// Elements that [`Network::add_topk`] picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopKOp {
    /// The greatest.
    Max,
    /// The least.
    Min,
}

/// The most elements that [`Network::add_topk`] picks.
pub const MAX_TOPK: i64 = 3840;

impl Network {
    /// Combines elements along the axes of a bit mask; `keep_dims` leaves them as dimensions of length 1.
    pub fn add_reduce(
        &mut self,
        input: TensorId,
        op: ReduceOp,
        axes: u32,
        keep_dims: bool,
    ) -> Result<Layer<'_, Reduce>, NetworkError> {
        self.add_kind(Reduce { op, axes, keep_dims }, &[input])
    }

    /// Softmax along one axis, at first the third from the last, or the first.
    pub fn add_softmax(&mut self, input: TensorId) -> Result<Layer<'_, Softmax>, NetworkError> {
        self.add_kind(Softmax { axes: None }, &[input])
    }

    /// Softmax of the first `bounds` elements of every row: input [Z, R, S], bounds [Z, R, 1] of i32 or i64; the other
    /// elements become 0.
    pub fn add_ragged_softmax(
        &mut self,
        input: TensorId,
        bounds: TensorId,
    ) -> Result<Layer<'_, RaggedSoftmax>, NetworkError> {
        self.add_kind(RaggedSoftmax, &[input, bounds])
    }

    /// The k greatest or least elements along the one axis of a bit mask, sorted, and their indices (i32 at first). A
    /// tensor for k is set by `set_input(1, …)`.
    pub fn add_topk(
        &mut self,
        input: TensorId,
        op: TopKOp,
        k: i64,
        axes: u32,
    ) -> Result<Layer<'_, TopK>, NetworkError> {
        self.add_kind(TopK { op, k, axes, indices: DType::I32 }, &[input])
    }

    /// Running sums along an axis, a constant scalar.
    pub fn add_cumulative(
        &mut self,
        input: TensorId,
        axis: TensorId,
        exclusive: bool,
        reverse: bool,
    ) -> Result<Layer<'_, Cumulative>, NetworkError> {
        self.add_kind(Cumulative { exclusive, reverse }, &[input, axis])
    }
}

/// See [`Network::add_reduce`].
#[derive(Clone, Debug)]
pub struct Reduce {
    pub op: ReduceOp,
    pub axes: u32,
    pub keep_dims: bool,
}

setters! { Reduce {
    /// Sets the operation that combines elements.
    set_operation(op: ReduceOp) => op = op;
    /// The axes, as a bit mask.
    set_reduce_axes(axes: u32) => axes = axes;
    /// Whether the axes stay as dimensions of length 1.
    set_keep_dimensions(keep: bool) => keep_dims = keep;
}}
layer_def!(Reduce, "reduce", 1, true);

impl Reduce {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.check_dtype(0, |d| d != DType::Bool, "a number")?;
        let axes: Vec<i64> = b.mask("axes", self.axes, b.rank(x))?.into_iter().map(|a| a as i64).collect();
        let axes = b.ints(&axes)?;
        let attrs = Attrs::new().with("op", self.op.name()).with("keep_dims", self.keep_dims);
        Ok(vec![b.op(REDUCE, attrs, &[x, axes])?])
    }
}

/// See [`Network::add_softmax`].
#[derive(Clone, Debug)]
pub struct Softmax {
    pub axes: Option<u32>,
}

setters! { Softmax {
    /// The axis, as a bit mask of exactly one bit.
    set_axes(axes: u32) => axes = Some(axes);
}}
layer_def!(Softmax, "softmax", 1, true);

/// The one axis of a bit mask.
fn one_axis(b: &Body<'_>, mask: u32, rank: usize) -> Result<usize, OpError> {
    match b.mask("axes", mask, rank)?[..] {
        [axis] => Ok(axis),
        _ => Err(bad("axes", format!("{mask:#b}"), "exactly one bit")),
    }
}

impl Softmax {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.floats(0)?;
        let rank = b.rank(x);
        b.check_rank(0, |r| r > 0, "at least one dimension")?;
        let axis = match self.axes {
            Some(mask) => one_axis(b, mask, rank)?,
            None => (rank - b.lead()).saturating_sub(3) + b.lead(),
        };
        Ok(vec![b.op(SOFTMAX, Attrs::new().with("axis", axis as i64), &[x])?])
    }
}

/// See [`Network::add_ragged_softmax`].
#[derive(Clone, Debug)]
pub struct RaggedSoftmax;
layer_def!(RaggedSoftmax, "ragged_softmax", 2, true);

impl RaggedSoftmax {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        b.floats(0)?;
        let rank = 3 - b.lead();
        for i in 0..2 {
            b.check_rank(i, |r| r == rank, &format!("{rank} dimensions"))?;
        }
        let known = b.dims(b.x(1)?).last().is_some_and(|d| d.is(1));
        if !known {
            return Err(b.bad_shape(1, "a last dimension of 1"));
        }
        let all = b.all()?;
        Ok(vec![b.plain(RAGGED_SOFTMAX, &all)?])
    }
}

/// See [`Network::add_topk`].
#[derive(Clone, Debug)]
pub struct TopK {
    pub op: TopKOp,
    pub k: i64,
    pub axes: u32,
    pub indices: DType,
}

setters! { TopK {
    /// Greatest or least.
    set_operation(op: TopKOp) => op = op;
    /// Sets the number of elements.
    set_k(k: i64) => k = k;
    /// The axis, as a bit mask of exactly one bit.
    set_reduce_axes(axes: u32) => axes = axes;
    /// The type of the indices, i32 or i64.
    set_indices_type(indices: DType) => indices = indices;
}}

impl crate::LayerDef for TopK {
    fn kind(&self) -> &'static str {
        "topk"
    }
    fn max_inputs(&self) -> usize {
        2
    }
    fn implicit_batch(&self) -> bool {
        true
    }
    fn output_name(&self, index: usize) -> String {
        if index == 0 { "values".into() } else { "indices".into() }
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.check_dtype(0, |d| d != DType::Bool, "a number")?;
        let rank = b.rank(x);
        let axis = one_axis(b, self.axes, rank)?;
        if axis + 4 < rank {
            return Err(bad("axes", format!("{:#b}", self.axes), "one of the last four dimensions"));
        }
        let k = match b.opt(1) {
            Some(k) => {
                b.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
                b.check_rank(1, |r| r == 0, "no dimensions (a scalar)")?;
                k
            }
            None => b.int(self.k)?,
        };
        let known = b.fact(k).as_const().and_then(|t| t.scalar_i64());
        let extent = b.dims(x)[axis].as_const().unwrap_or(MAX_TOPK);
        if let Some(n) = known.filter(|n| !(0..=MAX_TOPK.min(extent)).contains(n)) {
            return Err(bad("k", n, &format!("in 0 to {}", MAX_TOPK.min(extent))));
        }
        let attrs = Attrs::new().with("axis", axis as i64).with("largest", self.op == TopKOp::Max);
        let outs = b.ops(TOPK, attrs, &[Some(x), Some(k)])?;
        let indices = index_type(b, outs[1], self.indices)?;
        Ok(vec![outs[0], indices])
    }
}

/// Indices in the type that the user wants.
pub(super) fn index_type(b: &mut Body<'_>, v: ValueId, to: DType) -> Result<ValueId, OpError> {
    if !matches!(to, DType::I32 | DType::I64) {
        return Err(bad("indices_type", to, "i32 or i64"));
    }
    b.cast(v, to)
}

/// See [`Network::add_cumulative`].
#[derive(Clone, Debug)]
pub struct Cumulative {
    pub exclusive: bool,
    pub reverse: bool,
}

setters! { Cumulative {
    /// Whether an element does not count in its own sum.
    set_exclusive(exclusive: bool) => exclusive = exclusive;
    /// Sets whether elements are accumulated from the end.
    set_reverse(reverse: bool) => reverse = reverse;
}}
layer_def!(Cumulative, "cumulative", 2, true);

impl Cumulative {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let wanted = "a float type, i32 or i64";
        b.check_dtype(0, |d| d.is_float() || matches!(d, DType::I32 | DType::I64), wanted)?;
        b.check_rank(1, |r| r == 0, "no dimensions (a scalar)")?;
        let given = b.need_ints(1, "axis")?;
        let attrs = Attrs::new().with("exclusive", self.exclusive).with("reverse", self.reverse);
        let (x, mut axis) = (b.x(0)?, b.x(1)?);
        if let (1, Some(&own)) = (b.lead(), given.first()) {
            let own = b.axis("axis", own, b.rank(x))?;
            axis = b.int(own as i64)?;
        }
        Ok(vec![b.op(CUMULATIVE, attrs, &[x, axis])?])
    }
}
