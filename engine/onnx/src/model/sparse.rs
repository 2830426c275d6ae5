//! Sparse tensors, kept as they are.

use crate::error::{OnnxError, TensorFault};
use crate::load::External;
use crate::proto::{SparseTensorProto, TensorProto};
use crate::tensor::{DataType, TensorData, check_dims};

/// A sparse tensor: `values` of shape [n], and `indices` of shape [n] (linear) or [n, rank] into `dims`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SparseTensor {
    /// The values that are not zero; their name is that of the tensor.
    pub values: TensorData,
    /// Positions of the elements, as INT64, all inside `dims`.
    pub indices: TensorData,
    /// The dimensions of the dense tensor. Their product can be far larger than the file.
    pub dims: Vec<u64>,
}

impl SparseTensor {
    /// Reads a sparse tensor; `label` names it in errors.
    pub(super) fn read(
        proto: &SparseTensorProto,
        label: &str,
        external: &External,
    ) -> Result<Self, OnnxError> {
        let bad = |fault| OnnxError::BadTensor { tensor: label.to_owned(), fault };
        let part = |part: &Option<TensorProto>, what: &str| {
            let part = part.as_ref().ok_or_else(|| bad(TensorFault::Sparse(format!("it has no {what}"))))?;
            TensorData::read(part, label, external)
        };
        let values = part(&proto.values, "values")?;
        let indices = part(&proto.indices, "indices")?;
        let dims = check_dims(&proto.dims).map_err(bad)?;
        let sparse = Self { values, indices, dims };
        sparse.check().map_err(|reason| bad(TensorFault::Sparse(reason)))?;
        Ok(sparse)
    }

    fn check(&self) -> Result<(), String> {
        let (values, indices) = (&self.values.dims[..], &self.indices.dims[..]);
        let &[count] = values else {
            return Err(format!("its values have shape {values:?}, wanted one dimension"));
        };
        let linear = indices == [count];
        if !linear && indices != [count, self.dims.len() as u64] {
            return Err(format!("its indices have shape {indices:?} for {count} values of {:?}", self.dims));
        }
        if self.indices.dtype != DataType::Int64 {
            return Err(format!("its indices are {}, wanted INT64", self.indices.dtype));
        }
        let volume = self.dims.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
        let volume = [volume.ok_or_else(|| format!("the size of shape {:?} does not fit", self.dims))?];
        let bounds = if linear { &volume[..] } else { &self.dims[..] };
        let all = self.indices.bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        for (index, bound) in all.zip(bounds.iter().cycle()) {
            if u64::try_from(index).is_ok_and(|index| index < *bound) {
                continue;
            }
            return Err(format!("index {index} is outside 0..{bound}"));
        }
        Ok(())
    }
}
