//! Elements by index: gather, scatter, one-hot, non-zero.

use super::reduce::index_type;
use crate::NetworkError;
use crate::body::bad;
use crate::layer::{layer_def, setters};
use crate::{Body, Layer, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ir::infer::differ;
use kiln_ops::gather::GATHER;
use kiln_ops::gather::each::{GATHER_ELEMENTS, GATHER_ND};
use kiln_ops::generate::ONE_HOT;
use kiln_ops::scatter::{SCATTER_ELEMENTS, SCATTER_ND};
use kiln_ops::select::NONZERO;
use kiln_ops::shape::expand::EXPAND;
use kiln_ops::shape::squeeze::SQUEEZE;
use kiln_ops::slice::concat::CONCAT;

/// Meaning of indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GatherMode {
    /// Each is a place along one axis, whose slice is taken.
    Default,
    /// Each is a place along one axis, for the element at its own position.
    Element,
    /// Each last dimension is a place along the first axes.
    Nd,
}

/// Elements that are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterMode {
    /// Each index is a place along one axis, for the element at its own position.
    Element,
    /// Each last dimension is a place along the first axes.
    Nd,
}

impl Network {
    /// Slices of `data` along an axis; see [`Network::add_gather_v2`].
    pub fn add_gather(
        &mut self,
        data: TensorId,
        indices: TensorId,
        axis: i64,
    ) -> Result<Layer<'_, Gather>, NetworkError> {
        self.add_kind(Gather { mode: GatherMode::Default, axis, elementwise_dims: 0 }, &[data, indices])
    }

    /// Elements of `data` by i32 or i64 indices; an index out of bounds reads 0.
    pub fn add_gather_v2(
        &mut self,
        data: TensorId,
        indices: TensorId,
        mode: GatherMode,
    ) -> Result<Layer<'_, Gather>, NetworkError> {
        self.add_kind(Gather { mode, axis: 0, elementwise_dims: 0 }, &[data, indices])
    }

    /// `data` with elements replaced by `updates`, of the same type. Which of several for one place stays is open.
    pub fn add_scatter(
        &mut self,
        data: TensorId,
        indices: TensorId,
        updates: TensorId,
        mode: ScatterMode,
    ) -> Result<Layer<'_, Scatter>, NetworkError> {
        self.add_kind(Scatter { mode, axis: 0 }, &[data, indices, updates])
    }

    /// `values[1]` where the new axis of length `depth` (a constant scalar above 0) equals the index, else `values[0]`.
    pub fn add_one_hot(
        &mut self,
        indices: TensorId,
        values: TensorId,
        depth: TensorId,
        axis: i64,
    ) -> Result<Layer<'_, OneHot>, NetworkError> {
        self.add_kind(OneHot { axis }, &[indices, values, depth])
    }

    /// The positions of elements that are not zero, as [rank, n] columns in row-major order (i32 at first).
    pub fn add_non_zero(&mut self, input: TensorId) -> Result<Layer<'_, NonZero>, NetworkError> {
        self.add_kind(NonZero { indices: DType::I32 }, &[input])
    }
}

/// See [`Network::add_gather_v2`].
#[derive(Clone, Debug)]
pub struct Gather {
    pub mode: GatherMode,
    pub axis: i64,
    pub elementwise_dims: usize,
}

setters! { Gather {
    /// The axis that indices speak of.
    set_gather_axis(axis: i64) => axis = axis;
    /// Sets the number of leading dimensions that data and indices share.
    set_nb_elementwise_dims(dims: usize) => elementwise_dims = dims;
    /// Sets the meaning of indices.
    set_mode(mode: GatherMode) => mode = mode;
}}
layer_def!(Gather, "gather", 2, true);

fn check_indices(b: &Body<'_>, i: usize) -> Result<(), OpError> {
    b.check_dtype(i, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64").map(drop)
}

impl Gather {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        check_indices(b, 1)?;
        let (data, indices, lead) = (b.x(0)?, b.x(1)?, b.lead());
        let rank = b.check_rank(0, |r| r > 0, "at least one dimension")?;
        let most = match self.mode {
            GatherMode::Default => 1,
            GatherMode::Element => 0,
            GatherMode::Nd => rank.min(b.rank(indices) - lead).saturating_sub(1),
        };
        let dims = self.elementwise_dims;
        if dims > most {
            return Err(bad("nb_elementwise_dims", dims, &format!("at most {most} in this mode")));
        }
        if lead > 0 {
            return self.by_entry(b, data, indices);
        }
        let (own, other) = (b.dims(data), b.dims(indices));
        if own.iter().zip(&other).take(dims).any(|(a, b)| differ(a, b)) || other.len() < dims {
            return Err(b.bad_shape(1, &format!("the same first {dims} dimensions as the data")));
        }
        let attrs = Attrs::new();
        let (op, attrs) = match self.mode {
            GatherMode::Default => {
                let axis = b.axis("axis", self.axis, rank)?;
                if axis < dims {
                    return Err(bad("axis", axis, "behind the dimensions that are gone through together"));
                }
                ("gather", attrs.with("axis", axis as i64).with("batch_dims", dims as i64))
            }
            GatherMode::Element => {
                ("gather_elements", attrs.with("axis", b.axis("axis", self.axis, rank)? as i64))
            }
            GatherMode::Nd => {
                if other.last().is_none_or(|d| d.as_const().is_none()) {
                    return Err(b.bad_shape(1, "a constant last dimension"));
                }
                ("gather_nd", attrs.with("batch_dims", dims as i64))
            }
        };
        Ok(vec![b.op(op, attrs, &[data, indices])?])
    }
}

impl Gather {
    /// Each entry of an implicit batch by itself. Data or indices may be the same for all of them.
    fn by_entry(&self, b: &mut Body<'_>, data: ValueId, indices: ValueId) -> Result<Vec<ValueId>, OpError> {
        let shared = [data, indices].map(|v| b.dims(v).first().is_some_and(|d| d.is(1)));
        let (dims, rank) = (self.elementwise_dims as i64, b.rank(data));
        let op = match self.mode {
            GatherMode::Default => GATHER,
            GatherMode::Element => GATHER_ELEMENTS,
            GatherMode::Nd => GATHER_ND,
        };
        let axis = match self.mode {
            GatherMode::Nd => None,
            _ => Some(b.axis("axis", self.axis, rank)? as i64),
        };
        if axis.is_some_and(|a| a <= dims) {
            return Err(bad("axis", self.axis, "behind the dimensions that are gone through together"));
        }
        // Nothing is repeated for indices into one table, and for the same indices into all entries.
        if let (GatherMode::Default, 0, Some(axis)) = (self.mode, dims, axis) {
            let first = b.ints(&[0])?;
            match shared {
                [true, false] if axis == 1 => {
                    let table = b.plain(SQUEEZE, &[data, first])?;
                    return Ok(vec![b.op(op, Attrs::new().with("axis", 0i64), &[table, indices])?]);
                }
                [_, true] => {
                    let indices = b.plain(SQUEEZE, &[indices, first])?;
                    return Ok(vec![b.op(op, Attrs::new().with("axis", axis), &[data, indices])?]);
                }
                _ => (),
            }
        }
        let operands = match shared {
            [true, false] => [repeated(b, data, indices)?, indices],
            [false, true] => [data, repeated(b, indices, data)?],
            _ => [data, indices],
        };
        let attrs = match (self.mode, axis) {
            (GatherMode::Element, Some(axis)) => Attrs::new().with("axis", axis),
            (_, Some(axis)) => Attrs::new().with("axis", axis).with("batch_dims", dims + 1),
            (_, None) => Attrs::new().with("batch_dims", dims + 1),
        };
        Ok(vec![b.op(op, attrs, &operands)?])
    }
}

/// A value with a first dimension of 1, as often as another one has entries.
fn repeated(b: &mut Body<'_>, v: ValueId, like: ValueId) -> Result<ValueId, OpError> {
    let rank = b.rank(v);
    let entries = b.dim(like, 0)?;
    let ones = b.ints(&vec![1; rank.saturating_sub(1)])?;
    let shape = b.op(CONCAT, Attrs::new().with("axis", 0i64), &[entries, ones])?;
    b.plain(EXPAND, &[v, shape])
}

/// See [`Network::add_scatter`].
#[derive(Clone, Debug)]
pub struct Scatter {
    pub mode: ScatterMode,
    pub axis: i64,
}

setters! { Scatter {
    /// The axis that indices speak of, element by element.
    set_axis(axis: i64) => axis = axis;
    /// Sets the elements that are replaced.
    set_mode(mode: ScatterMode) => mode = mode;
}}
layer_def!(Scatter, "scatter", 3, false);

impl Scatter {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        check_indices(b, 1)?;
        b.same_dtype(0, 2)?;
        let all = b.all()?;
        let rank = b.check_rank(0, |r| r > 0, "at least one dimension")?;
        Ok(vec![match self.mode {
            ScatterMode::Nd => b.plain(SCATTER_ND, &all)?,
            ScatterMode::Element => {
                let axis = b.axis("axis", self.axis, rank)? as i64;
                b.op(SCATTER_ELEMENTS, Attrs::new().with("axis", axis), &all)?
            }
        }])
    }
}

/// See [`Network::add_one_hot`].
#[derive(Clone, Debug)]
pub struct OneHot {
    pub axis: i64,
}

setters! { OneHot {
    /// Sets the position of the new axis.
    set_axis(axis: i64) => axis = axis;
}}
layer_def!(OneHot, "one_hot", 3, true);

impl OneHot {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        check_indices(b, 0)?;
        check_indices(b, 2)?;
        b.check_rank(1, |r| r == 1, "[2], the values for off and on")?;
        b.check_rank(2, |r| r == 0, "no dimensions (a scalar)")?;
        match b.need_ints(2, "depth")?[..] {
            [n] if n > 0 => (),
            ref found => return Err(bad("depth", format!("{found:?}"), "greater than 0")),
        }
        let (indices, mut values, mut depth) = (b.x(0)?, b.x(1)?, b.x(2)?);
        let mut axis = self.axis;
        if b.lead() > 0 {
            if !b.dims(values).first().is_some_and(|d| d.is(1)) {
                return Err(b.bad_shape(1, "values that are the same for the whole batch"));
            }
            axis = b.axis("axis", axis, b.rank(indices) + 1)? as i64;
            values = b.reshape(values, &[2])?;
            depth = b.reshape(depth, &[])?;
        }
        Ok(vec![b.op(ONE_HOT, Attrs::new().with("axis", axis), &[indices, depth, values])?])
    }
}

/// See [`Network::add_non_zero`].
#[derive(Clone, Debug)]
pub struct NonZero {
    pub indices: DType,
}

setters! { NonZero {
    /// The type of the indices, i32 or i64.
    set_indices_type(indices: DType) => indices = indices;
}}
layer_def!(NonZero, "non_zero", 1, false);

impl NonZero {
    fn write(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let x = b.x(0)?;
        let y = b.plain(NONZERO, &[x])?;
        Ok(vec![index_type(b, y, self.indices)?])
    }
}
