//! Faults of one tensor.

use crate::tensor::DataType;

/// Fault of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// A number that names no data type.
    #[error("data type {0} is unknown")]
    UnknownType(i32),
    /// Strings are not numbers.
    #[error("holds strings, which no kernel reads")]
    Strings,
    /// A negative dimension.
    #[error("dimension {axis} is {found}: wanted 0 or more")]
    NegativeDim {
        /// Index of the dimension.
        axis: usize,
        /// Value of the dimension.
        found: i64,
    },
    /// Shape with too many elements to count.
    #[error("the size of shape {0:?} does not fit in 64 bits")]
    Overflow(Vec<u64>),
    /// The payload is shorter or longer than the shape asks for.
    #[error("shape {dims:?} of {dtype} takes {wanted} {unit}, found {found}")]
    Size {
        /// The shape.
        dims: Vec<u64>,
        /// The element type.
        dtype: DataType,
        /// Size that the shape needs.
        wanted: u64,
        /// Size of the data.
        found: u64,
        /// `bytes` or `entries`, as the payload is stored.
        unit: &'static str,
    },
    /// The payload is given in two places.
    #[error("has data both in {first} and in {second}: wanted one")]
    TwoPayloads {
        /// One place.
        first: &'static str,
        /// Second place.
        second: &'static str,
    },
    /// The payload is in a field that belongs to other types.
    #[error("{dtype} data is stored in {found}: wanted raw_data or {wanted}")]
    WrongField {
        /// The element type.
        dtype: DataType,
        /// The field used.
        found: &'static str,
        /// The field for the type.
        wanted: &'static str,
    },
    /// A typed field holds a number that the element type does not.
    #[error("value {value} at {index} does not fit in {dtype}")]
    OutOfRange {
        /// The element type.
        dtype: DataType,
        /// The number.
        value: i128,
        /// Position of the element.
        index: usize,
    },
    /// A number that the type does not reach that holds the element type.
    #[error("value {value} at {index} does not fit in {held}, which holds this element type")]
    NotHeld {
        /// The number.
        value: String,
        /// Position of the element.
        index: usize,
        /// The type that holds it.
        held: &'static str,
    },
    /// Segmented tensors and unknown places.
    #[error("data location {0} is unknown")]
    UnknownLocation(i32),
    /// A read as another type than the tensor has.
    #[error("holds {found}: wanted {wanted}")]
    WrongType {
        /// The type it has.
        found: DataType,
        /// The types wanted.
        wanted: &'static str,
    },
    /// A sparse tensor whose parts do not fit together.
    #[error("is not a sparse tensor: {0}")]
    Sparse(String),
}
