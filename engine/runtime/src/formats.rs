//! Tensors between their dimensions and their shapes in memory.

use crate::{IoTensor, RuntimeError};
use kiln_ir::format::unpack;
use kiln_ir::{Dim, FormatError, Tensor, TensorType};

/// The error of an input or output whose format does not fit.
pub(crate) fn format_error(t: &IoTensor, source: FormatError) -> RuntimeError {
    RuntimeError::Format { name: t.name.clone(), source }
}

/// Type and dimensions of a tensor whose shape in memory is known.
pub(crate) fn logical_type(t: &IoTensor, physical: &TensorType) -> TensorType {
    let number = |n: u64| Dim::new(i64::try_from(n).unwrap_or(i64::MAX));
    let dims = t.packing.logical(&physical.dims, number);
    TensorType { dtype: physical.dtype, dims: dims.unwrap_or_else(|| physical.dims.clone()) }
}

/// The linear tensor of one in memory.
pub(crate) fn unpacked(t: &IoTensor, packed: Tensor) -> Result<Tensor, RuntimeError> {
    if t.packing.is_linear() {
        return Ok(packed);
    }
    let shape = t.packing.logical_shape(packed.shape()).unwrap_or_else(|| packed.shape().to_vec());
    unpack(&packed, t.format(), &shape).map_err(|source| format_error(t, source))
}
