//! Tensors: type, shape and bytes.

mod dtype;
mod extract;
mod typed;
mod values;

pub use dtype::DataType;
pub(crate) use extract::check_dims;

use bytes::Bytes;

/// A tensor whose bytes fit its type and shape.
///
/// `bytes` are little-endian, in C order, at any alignment, and usually a slice of the mapped file. Types smaller than
/// a byte are packed, the first element in the lowest bits. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorData {
    /// The name; empty for a tensor inside an attribute.
    pub name: String,
    /// The type of the elements.
    pub dtype: DataType,
    /// The dimensions; none for a scalar.
    pub dims: Vec<u64>,
    /// The elements.
    pub bytes: Bytes,
}

impl TensorData {
    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }
}
