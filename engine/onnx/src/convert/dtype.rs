//! Element types and tensors of ONNX as those of Kiln.

use bytes::Bytes;
use kiln_ir::{DType, Elems, Tensor};

use super::refusal::{Refusal, unsupported};
use crate::error::{OnnxError, TensorFault};
use crate::tensor::{DataType, TensorData};

/// The type of a network's tensor, if Kiln has it.
pub(crate) fn dtype(of: DataType) -> Option<DType> {
    Some(match of {
        DataType::Float => DType::F32,
        DataType::Float16 => DType::F16,
        DataType::Bfloat16 => DType::BF16,
        DataType::Float8E4M3Fn => DType::F8E4M3,
        DataType::Int8 => DType::I8,
        DataType::Uint8 => DType::U8,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Bool => DType::Bool,
        DataType::Int4 => DType::I4,
        _ => return None,
    })
}

/// The type of a number in an attribute, as in `to`.
pub(crate) fn dtype_of_number(number: i64) -> Result<DType, Refusal> {
    let known = i32::try_from(number).ok().and_then(|n| DataType::from_number(n).ok());
    match known.map(|found| (found, dtype(found))) {
        Some((_, Some(dtype))) => Ok(dtype),
        Some((found, None)) => unsupported(format!("element type {found}")),
        None => unsupported(format!("element type number {number}")),
    }
}

/// Bytes of a model as the storage of a tensor.
struct Shared(Bytes);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A tensor of a model. Types that Kiln has are shared without a copy; DOUBLE, INT16, UINT16, UINT32 and UINT64
/// become the nearest type that holds their values (`true` beside the result), or are refused.
pub(crate) fn tensor(data: &TensorData) -> Result<(Tensor, bool), Refusal> {
    if dtype(data.dtype).is_some() {
        return Ok((data.to_tensor()?, false));
    }
    let made = match shape(data) {
        Some(shape) => converted(data, &shape)?,
        None => None,
    };
    match made {
        Some(tensor) => Ok((tensor, true)),
        None => unsupported(format!("tensor '{}': {} of shape {:?}", data.name, data.dtype, data.dims)),
    }
}

fn shape(data: &TensorData) -> Option<Vec<usize>> {
    data.dims.iter().map(|d| usize::try_from(*d).ok()).collect()
}

fn shared(dtype: DType, shape: &[usize], bytes: Bytes) -> Option<Tensor> {
    let len = bytes.len();
    let window = kiln_ir::Bytes::window(std::sync::Arc::new(Shared(bytes)), 0, len)?;
    Tensor::from_bytes(dtype, shape, window)
}

fn converted(data: &TensorData, shape: &[usize]) -> Result<Option<Tensor>, Refusal> {
    Ok(match data.dtype {
        DataType::Double => {
            let values = data.to_f32()?.into_iter().map(f64::from).collect();
            Tensor::from_elems(DType::F32, shape, &Elems::F(values))
        }
        DataType::Int16 | DataType::Uint16 => {
            Tensor::from_elems(DType::I32, shape, &Elems::I(data.to_i64()?))
        }
        DataType::Uint32 | DataType::Uint64 => {
            Tensor::from_elems(DType::I64, shape, &Elems::I(data.to_i64()?))
        }
        _ => None,
    })
}

impl TensorData {
    /// The tensor as Kiln has it, its bytes shared. Types that Kiln lacks are refused.
    pub fn to_tensor(&self) -> Result<Tensor, OnnxError> {
        let bad = |fault| OnnxError::BadTensor { tensor: self.name.clone(), fault };
        let wrong = TensorFault::WrongType { found: self.dtype, wanted: "a type that Kiln has" };
        let dtype = dtype(self.dtype).ok_or_else(|| bad(wrong))?;
        let tensor = shape(self).and_then(|shape| shared(dtype, &shape, self.bytes.clone()));
        tensor.ok_or_else(|| bad(TensorFault::Overflow(self.dims.clone())))
    }
}
