//! Tensor types: element type and dimensions.

use crate::dim::{Dim, DimKind};
use crate::dtype::DType;
use std::fmt;

/// The most dimensions a tensor may have in a network written with the API, as in TensorRT. Graphs hold any rank.
pub const MAX_DIMS: usize = 8;

/// Element type and dimensions of a tensor.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Type of the elements.
    pub dtype: DType,
    /// Outermost first. Empty for a scalar.
    pub dims: Vec<Dim>,
}

impl TensorType {
    /// A type from its parts.
    pub fn new(dtype: DType, dims: impl IntoIterator<Item = impl Into<Dim>>) -> TensorType {
        TensorType { dtype, dims: dims.into_iter().map(Into::into).collect() }
    }

    /// A rank-0 type.
    pub fn scalar(dtype: DType) -> TensorType {
        TensorType { dtype, dims: Vec::new() }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Product of the dimensions.
    pub fn volume(&self) -> Dim {
        self.dims.iter().cloned().product()
    }

    /// A dimension that is certainly negative: its position and size.
    pub fn negative_dim(&self) -> Option<(usize, i64)> {
        let size = |(axis, d): (usize, &Dim)| Some((axis, d.as_const().filter(|n| *n < 0)?));
        self.dims.iter().enumerate().find_map(size)
    }

    /// The dimensions as numbers, if all are static and none is negative.
    pub fn static_dims(&self) -> Option<Vec<usize>> {
        self.dims.iter().map(|d| d.as_const().and_then(|n| usize::try_from(n).ok())).collect()
    }

    /// Number of elements, if static and not overflowing.
    pub fn static_volume(&self) -> Option<usize> {
        volume(&self.static_dims()?)
    }

    /// The least known of the dimensions' kinds.
    pub fn kind(&self) -> DimKind {
        self.dims.iter().map(Dim::kind).max().unwrap_or(DimKind::Static)
    }

    /// The type with another element type.
    pub fn with_dtype(&self, dtype: DType) -> TensorType {
        TensorType { dtype, dims: self.dims.clone() }
    }
}

/// Product of the dimensions; `None` if that of those that are not 0 overflows, whose parts are strides.
pub fn volume(shape: &[usize]) -> Option<usize> {
    let whole = shape.iter().try_fold(1usize, |a, &d| a.checked_mul(d.max(1)))?;
    // Positions are also computed with signs.
    let whole = whole.checked_mul(8).filter(|&n| n <= isize::MAX as usize)? / 8;
    Some(if shape.contains(&0) { 0 } else { whole })
}

/// Dimensions separated by commas, as messages and text print them.
pub fn dims_text(dims: &[Dim]) -> String {
    dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, dims_text(&self.dims))
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
