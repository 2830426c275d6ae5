//! Normalization.

use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::differ;
use kiln_ops::norm::batch_norm::GROUP_NORM;
use kiln_ops::norm::layer_norm::LAYER_NORM;
use kiln_ops::pointwise::binary::{ADD, DIV, MUL, SUB};
use kiln_ops::pointwise::unary::SQRT;
use kiln_ops::reduce::REDUCE;
use kiln_ops::shape::expand::EXPAND;

/// See [`Network::add_normalization`].
#[derive(Clone, Debug)]
pub struct Normalization {
    pub axes: u32,
    pub epsilon: f64,
    pub groups: i64,
    /// One scale and bias a group, instead of one a channel.
    pub by_group: bool,
}

impl Network {
    /// (x − mean)/√(var + ε)·scale + bias, mean and variance over the axes of a bit mask. Scale and bias broadcast to x
    /// at equal rank; with groups they are [1, groups, 1, …].
    pub fn add_normalization(
        &mut self,
        input: TensorId,
        scale: TensorId,
        bias: TensorId,
        axes: u32,
    ) -> Result<Layer<'_, Normalization>, NetworkError> {
        self.add_norm(input, scale, bias, Normalization { axes, epsilon: 1e-5, groups: 1, by_group: true })
    }

    /// As [`Network::add_normalization`], but with groups scale and bias are [1, C, 1, …].
    pub fn add_normalization_v2(
        &mut self,
        input: TensorId,
        scale: TensorId,
        bias: TensorId,
        axes: u32,
    ) -> Result<Layer<'_, Normalization>, NetworkError> {
        self.add_norm(input, scale, bias, Normalization { axes, epsilon: 1e-5, groups: 1, by_group: false })
    }

    /// Groups of channels, with scale and bias [1, groups, 1, …] that do not fit without them; else
    /// [`Network::add_normalization`] and `set_nb_groups` say the same.
    pub fn add_group_normalization(
        &mut self,
        input: TensorId,
        scale: TensorId,
        bias: TensorId,
        axes: u32,
        groups: i64,
    ) -> Result<Layer<'_, Normalization>, NetworkError> {
        self.add_norm(input, scale, bias, Normalization { axes, epsilon: 1e-5, groups, by_group: true })
    }

    fn add_norm(
        &mut self,
        input: TensorId,
        scale: TensorId,
        bias: TensorId,
        def: Normalization,
    ) -> Result<Layer<'_, Normalization>, NetworkError> {
        self.add_kind(def, &[input, scale, bias])
    }
}

setters! { Normalization {
    /// ε.
    set_epsilon(epsilon: f64) => epsilon = epsilon;
    /// The axes, as a bit mask.
    set_axes(axes: u32) => axes = axes;
    /// Groups of channels that are normalized together.
    set_nb_groups(groups: i64) => groups = groups;
}}
layer_def!(Normalization, "normalization", 3, true);

impl Normalization {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        b.floats(0)?;
        let rank = b.check_rank(0, |r| r > 1, "at least 2 dimensions")?;
        for i in [1, 2] {
            b.same_dtype(0, i)?;
            b.check_rank(i, |r| r == rank, "as many dimensions as input 0")?;
        }
        let rank = rank + b.lead();
        let axes = b.mask("axes", self.axes, rank)?;
        if self.groups != 1 {
            return self.grouped(b, x, &axes);
        }
        let own = b.dims(x);
        for i in [1, 2] {
            let dims = b.dims(b.x(i)?);
            if dims.iter().zip(&own).any(|(a, x)| !a.is(1) && differ(a, x)) {
                return Err(b.bad_shape(i, "the dimensions of input 0, or 1"));
            }
        }
        let first = rank - axes.len();
        if axes == (first..rank).collect::<Vec<_>>() {
            let attrs = Attrs::new().with("axis", first as i64).with("epsilon", self.epsilon);
            let inputs = [Some(x), b.opt(1), b.opt(2)];
            return Ok(b.ops(LAYER_NORM, attrs, &inputs)?.into_iter().take(1).collect());
        }
        self.scattered(b, x, &axes)
    }

    /// Groups of channels: the axes are all behind the channels.
    fn grouped(&self, b: &mut Body<'_>, x: ValueId, axes: &[usize]) -> Result<Vec<ValueId>, OpError> {
        let dims = b.dims(x);
        let behind: Vec<usize> = (2..dims.len()).collect();
        if axes != behind {
            return Err(bad("axes", format!("{axes:?}"), &format!("{behind:?}, as there are groups")));
        }
        let channels = dims[1].as_const();
        let fits = |c: i64| self.groups > 0 && c % self.groups == 0;
        let channels = channels.filter(|&c| fits(c)).ok_or_else(|| {
            bad("groups", self.groups, &format!("a positive divisor of {} channels", dims[1]))
        })?;
        let attrs = Attrs::new().with("groups", self.groups).with("epsilon", self.epsilon);
        let (scale, bias) = (self.a_channel(b, 1, channels)?, self.a_channel(b, 2, channels)?);
        Ok(vec![b.op(GROUP_NORM, attrs, &[x, scale, bias])?])
    }

    /// Scale or bias as one number a channel.
    fn a_channel(&self, b: &mut Body<'_>, i: usize, channels: i64) -> Result<ValueId, OpError> {
        let v = b.x(i)?;
        let n = if self.by_group { self.groups } else { channels };
        let dims = b.dims(v);
        let right = |(k, d): (usize, &Dim)| d.is(if k == 1 { n } else { 1 });
        if !dims.iter().enumerate().all(right) {
            return Err(b.bad_shape(i, &format!("{n} in dimension 1 and 1 in all others")));
        }
        if n == channels {
            return b.reshape(v, &[channels]);
        }
        let column = b.reshape(v, &[n, 1])?;
        let shape = b.ints(&[n, channels / n])?;
        let wide = b.plain(EXPAND, &[column, shape])?;
        b.reshape(wide, &[channels])
    }

    /// Axes that are not the last ones: step by step, in f32.
    fn scattered(&self, b: &mut Body<'_>, x: ValueId, axes: &[usize]) -> Result<Vec<ValueId>, OpError> {
        let dtype = b.dtype(x);
        let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        let axes = b.ints(&axes)?;
        let mean = |b: &mut Body<'_>, v: ValueId| b.op(REDUCE, Attrs::new().with("op", "mean"), &[v, axes]);
        let wide = b.cast(x, kiln_ir::DType::F32)?;
        let centre = mean(b, wide)?;
        let off = b.plain(SUB, &[wide, centre])?;
        let square = b.plain(MUL, &[off, off])?;
        let (var, epsilon) = (mean(b, square)?, b.number(kiln_ir::DType::F32, self.epsilon)?);
        let var = b.plain(ADD, &[var, epsilon])?;
        let deviation = b.plain(SQRT, &[var])?;
        let mut y = b.plain(DIV, &[off, deviation])?;
        for (i, op) in [(1, "mul"), (2, "add")] {
            let v = b.x(i)?;
            let v = b.cast(v, kiln_ir::DType::F32)?;
            y = b.plain(op, &[y, v])?;
        }
        Ok(vec![b.cast(y, dtype)?])
    }
}
