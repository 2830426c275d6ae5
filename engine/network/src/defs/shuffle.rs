//! Layers that rearrange elements: shuffle, concatenation, squeeze, unsqueeze, padding, reverse sequence.

use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, NetworkError, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::{differ, normalize_axis};
use kiln_ir::ty::{MAX_DIMS, dims_text};
use kiln_ops::cast::IDENTITY;
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::slice::pad::PAD;
use kiln_ops::transpose::rearrange::REVERSE_SEQUENCE;

impl Network {
    /// Transposes, reshapes, transposes; each step does nothing until it is set. A tensor for the new shape is set by
    /// `set_input(1, …)`.
    pub fn add_shuffle(&mut self, input: TensorId) -> Result<Layer<'_, Shuffle>, NetworkError> {
        let def = Shuffle { first: None, reshape: None, second: None, zero_is_placeholder: true };
        self.add_kind(def, &[input])
    }

    /// Joins tensors along an axis: until one is set, the only one in which they differ, else the third from the last,
    /// or the first.
    pub fn add_concatenation(
        &mut self,
        inputs: &[TensorId],
    ) -> Result<Layer<'_, Concatenation>, NetworkError> {
        self.add_kind(Concatenation { axis: None }, inputs)
    }

    /// Drops dimensions of length 1; `axes` is a 1-D constant of i32 or i64.
    pub fn add_squeeze(
        &mut self,
        input: TensorId,
        axes: TensorId,
    ) -> Result<Layer<'_, Squeeze>, NetworkError> {
        self.add_kind(Squeeze, &[input, axes])
    }

    /// Adds dimensions of length 1 at these axes of the result, a 1-D constant of i32 or i64.
    pub fn add_unsqueeze(
        &mut self,
        input: TensorId,
        axes: TensorId,
    ) -> Result<Layer<'_, Unsqueeze>, NetworkError> {
        self.add_kind(Unsqueeze, &[input, axes])
    }

    /// Adds zeros before and after the last two dimensions; negative numbers cut off.
    pub fn add_padding_nd(
        &mut self,
        input: TensorId,
        pre: &[i64],
        post: &[i64],
    ) -> Result<Layer<'_, Padding>, NetworkError> {
        self.add_kind(Padding { pre: pre.to_vec(), post: post.to_vec() }, &[input])
    }

    /// Reverses the first `lengths[b]` elements along the sequence axis (0 at first) for every entry b of the batch
    /// axis (1 at first).
    pub fn add_reverse_sequence(
        &mut self,
        input: TensorId,
        lengths: TensorId,
    ) -> Result<Layer<'_, ReverseSequence>, NetworkError> {
        self.add_reverse_sequence_along(input, lengths, 1, 0)
    }

    /// As [`Network::add_reverse_sequence`], for a batch and a sequence axis of one's own.
    pub fn add_reverse_sequence_along(
        &mut self,
        input: TensorId,
        lengths: TensorId,
        batch_axis: i64,
        sequence_axis: i64,
    ) -> Result<Layer<'_, ReverseSequence>, NetworkError> {
        self.add_kind(ReverseSequence { batch_axis, sequence_axis }, &[input, lengths])
    }
}

/// See [`Network::add_shuffle`].
#[derive(Clone, Debug)]
pub struct Shuffle {
    pub first: Option<Vec<usize>>,
    pub reshape: Option<Vec<i64>>,
    pub second: Option<Vec<usize>>,
    pub zero_is_placeholder: bool,
}

setters! { Shuffle {
    /// The order of axes before the reshape.
    set_first_transpose(perm: &[usize]) => first = Some(perm.to_vec());
    /// The order of axes after the reshape.
    set_second_transpose(perm: &[usize]) => second = Some(perm.to_vec());
    /// Whether a 0 in the new shape copies a dimension (as it does at first).
    set_zero_is_placeholder(placeholder: bool) => zero_is_placeholder = placeholder;
}}
layer_def!(Shuffle, "shuffle", 2, true);

impl Layer<'_, Shuffle> {
    /// The new shape: 0 copies a dimension, one -1 takes what is left. Refused once the shape comes from a tensor.
    pub fn set_reshape_dimensions(self, dims: &[i64]) -> Result<Self, NetworkError> {
        if self.inputs().len() > 1 {
            let what = "the new shape".into();
            return Err(NetworkError::Irreversible { layer: self.name().to_owned(), what });
        }
        self.change(|p| p.reshape = Some(dims.to_vec()))
    }
}

impl Shuffle {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let mut y = b.x(0)?;
        if let Some(perm) = &self.first {
            y = transpose(b, y, perm)?;
        }
        let shape = match (b.opt(1), &self.reshape) {
            (Some(shape), _) => Some(shape),
            (None, Some(dims)) => Some(self.shape(b, y, dims)?),
            (None, None) => None,
        };
        if let Some(shape) = shape {
            let attrs = Attrs::new().with("allow_zero", !self.zero_is_placeholder);
            y = b.op(RESHAPE, attrs, &[y, shape])?;
        }
        if let Some(perm) = &self.second {
            y = transpose(b, y, perm)?;
        }
        if y == b.x(0)? {
            y = b.plain(IDENTITY, &[y])?;
        }
        Ok(vec![y])
    }

    /// The new shape as a tensor, the implicit batch before it.
    fn shape(&self, b: &mut Body<'_>, x: ValueId, dims: &[i64]) -> Result<ValueId, OpError> {
        let own = &b.dims(x)[b.lead()..];
        let copied = |(i, &d): (usize, &i64)| match own.get(i).and_then(|d| d.as_const()) {
            Some(n) if d == 0 && self.zero_is_placeholder => n,
            _ => d,
        };
        if b.lead() == 0 {
            return b.ints(dims);
        }
        let rest: Vec<i64> = dims.iter().enumerate().map(copied).collect();
        let (batch, rest) = (b.dim(x, 0)?, b.ints(&rest)?);
        b.op(CONCAT, Attrs::new().with("axis", 0i64), &[batch, rest])
    }
}

/// Transposes by an order of the layer's own axes.
fn transpose(b: &mut Body<'_>, v: ValueId, perm: &[usize]) -> Result<ValueId, OpError> {
    let rank = b.rank(v);
    let full: Vec<usize> = (0..b.lead()).chain(perm.iter().map(|p| p + b.lead())).collect();
    let mut sorted = full.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(bad(
            "transpose",
            format!("{perm:?}"),
            &format!("every axis of {} once", rank - b.lead()),
        ));
    }
    b.transpose(v, &full)
}

/// See [`Network::add_concatenation`].
#[derive(Clone, Debug)]
pub struct Concatenation {
    pub axis: Option<i64>,
}

setters! { Concatenation {
    /// Along which axis.
    set_axis(axis: i64) => axis = Some(axis);
}}
layer_def!(Concatenation, "concatenation", usize::MAX, true);

impl Concatenation {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let all = b.all()?;
        let rank = b.rank(b.x(0)?);
        b.check_rank(0, |r| r > 0, "at least one dimension")?;
        let axis = match self.axis {
            Some(a) => b.axis("axis", a, rank)?,
            None => default_axis(b, &all, (rank - b.lead()).saturating_sub(3) + b.lead()),
        };
        Ok(vec![b.op(CONCAT, Attrs::new().with("axis", axis as i64), &all)?])
    }
}

/// The axis until one is set: the usual one, unless exactly one other axis is the only one that fits.
fn default_axis(b: &Body<'_>, all: &[ValueId], usual: usize) -> usize {
    let first = b.dims(all[0]);
    let apart = |axis: usize| {
        let other = |v: &ValueId| b.dims(*v).get(axis).is_some_and(|d| differ(d, &first[axis]));
        all.iter().any(other)
    };
    match (0..first.len()).filter(|&a| apart(a)).collect::<Vec<_>>()[..] {
        [axis] if axis >= b.lead() => axis,
        _ => usual,
    }
}

/// See [`Network::add_squeeze`].
#[derive(Clone, Debug)]
pub struct Squeeze;
layer_def!(Squeeze, "squeeze", 2, true);

/// Axes given as a constant, in range of `rank` and unique.
fn axes(b: &Body<'_>, rank: usize) -> Result<Vec<i64>, OpError> {
    b.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    b.check_rank(1, |r| r == 1, "one dimension")?;
    let v = kiln_ir::infer::normalize_axes(&b.need_ints(1, "axes")?, rank - b.lead().min(rank), "axes")?;
    Ok(v.into_iter().map(|a| (a + b.lead()) as i64).collect())
}

impl Squeeze {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        let axes = axes(b, b.rank(x))?;
        let dims = b.dims(x);
        if let Some(a) = axes.iter().find(|&&a| differ(&dims[a as usize], &1.into())) {
            return Err(b.bad_shape(0, &format!("1 in dimension {a}")));
        }
        let axes = b.ints(&axes)?;
        Ok(vec![b.plain(SQUEEZE, &[x, axes])?])
    }
}

/// See [`Network::add_unsqueeze`].
#[derive(Clone, Debug)]
pub struct Unsqueeze;
layer_def!(Unsqueeze, "unsqueeze", 2, true);

impl Unsqueeze {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        let more = b.dims(b.x(1)?).last().and_then(|d| d.as_const()).unwrap_or(0);
        let rank = b.rank(x) + usize::try_from(more).unwrap_or(0);
        if rank > MAX_DIMS + b.lead() {
            return Err(b.bad_shape(0, &format!("at most {MAX_DIMS} dimensions with those added")));
        }
        let axes = axes(b, rank)?;
        let axes = b.ints(&axes)?;
        Ok(vec![b.plain(UNSQUEEZE, &[x, axes])?])
    }
}

/// See [`Network::add_padding_nd`].
#[derive(Clone, Debug)]
pub struct Padding {
    pub pre: Vec<i64>,
    pub post: Vec<i64>,
}

setters! { Padding {
    /// Sets the padding in front of each dimension.
    set_pre_padding_nd(padding: &[i64]) => pre = padding.to_vec();
    /// Sets the padding after each dimension.
    set_post_padding_nd(padding: &[i64]) => post = padding.to_vec();
}}
layer_def!(Padding, "padding", 1, true);

impl Padding {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.check_rank(0, |r| r >= 2, "at least 2 dimensions")?;
        for (name, v) in [("pre_padding", &self.pre), ("post_padding", &self.post)] {
            if v.len() != 2 {
                return Err(bad(
                    name,
                    format!("{v:?}"),
                    "2 numbers; use a slice layer that fills for other axes",
                ));
            }
        }
        let pads: Vec<i64> = self.pre.iter().chain(&self.post).copied().collect();
        let rank = b.rank(x) as i64;
        let (pads, axes) = (b.ints(&pads)?, b.ints(&[rank - 2, rank - 1])?);
        b.ops(PAD, Attrs::new(), &[Some(x), Some(pads), None, Some(axes)])
    }
}

/// See [`Network::add_reverse_sequence`].
#[derive(Clone, Debug)]
pub struct ReverseSequence {
    pub batch_axis: i64,
    pub sequence_axis: i64,
}

setters! { ReverseSequence {
    /// The axis of the batch.
    set_batch_axis(axis: i64) => batch_axis = axis;
    /// The axis that is reversed.
    set_sequence_axis(axis: i64) => sequence_axis = axis;
}}
layer_def!(ReverseSequence, "reverse_sequence", 2, false);

impl ReverseSequence {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        let rank = b.check_rank(0, |r| r >= 2, "at least 2 dimensions")?;
        b.check_rank(1, |r| r == 1, "one dimension")?;
        let batch = normalize_axis(self.batch_axis, rank, "batch_axis")?;
        let sequence = normalize_axis(self.sequence_axis, rank, "sequence_axis")?;
        if batch == sequence {
            return Err(bad("sequence_axis", sequence, "another than the batch axis"));
        }
        let (own, lens) = (&b.dims(x)[batch], &b.dims(b.x(1)?));
        if differ(own, &lens[0]) {
            return Err(
                b.bad_shape(1, &format!("[{own}], one length for each entry, not [{}]", dims_text(lens)))
            );
        }
        let (lens, attrs) = (b.x(1)?, Attrs::new().with("batch_axis", batch as i64));
        Ok(vec![b.op(REVERSE_SEQUENCE, attrs.with("time_axis", sequence as i64), &[x, lens])?])
    }
}
