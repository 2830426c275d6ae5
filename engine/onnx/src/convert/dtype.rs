//! Element types and tensors of ONNX as those of Kiln.

use bytes::Bytes;
use kiln_ir::{DType, Elems, Tensor};

use super::grids;
use crate::error::{OnnxError, TensorFault};
use crate::error::{Refusal, unsupported};
use crate::tensor::{DataType, TensorData};

/// The type of a network's tensor that has the same elements, if there is one.
fn exact(of: DataType) -> Option<DType> {
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

/// The type of a network's tensor that holds values of a type of the model: its own, or the nearest.
pub(crate) fn held(of: DataType) -> Option<DType> {
    exact(of).or(match of {
        DataType::Double => Some(DType::F32),
        DataType::Uint4 => Some(DType::U8),
        DataType::Int16 | DataType::Uint16 => Some(DType::I32),
        DataType::Uint32 | DataType::Uint64 => Some(DType::I64),
        _ => grids::held(of),
    })
}

/// Whether the importer keeps the type of the model in mind where another one holds its values.
pub(crate) fn followed(of: DataType) -> bool {
    range(of).is_some() || grids::held(of).is_some()
}

/// The least and the greatest value of an integer type that is held in a wider one.
pub(crate) fn range(of: DataType) -> Option<(i64, i64)> {
    Some(match of {
        DataType::Uint4 => (0, 15),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Uint16 => (0, u16::MAX.into()),
        DataType::Uint32 => (0, u32::MAX.into()),
        DataType::Uint64 => (0, i64::MAX),
        _ => return None,
    })
}

/// Note for users on a type that is held in another one; `None` for types that Kiln has.
pub(crate) fn caution(of: DataType) -> Option<String> {
    let to = held(of)?;
    let loss = match (of, range(of)) {
        (DataType::Double, _) => "values are rounded to 24 bits".to_owned(),
        (DataType::Uint64, _) => "values from 2^63 on are not represented".to_owned(),
        (_, Some((low, high))) => format!("values are {low} to {high}"),
        _ if grids::held(of).is_some() => "values are the same".to_owned(),
        _ => return None,
    };
    Some(format!("{of} in the model, {to} in the network: {loss}"))
}

/// The type of a number in an attribute, as in `to`.
pub(crate) fn dtype_of_number(number: i64) -> Result<DType, Refusal> {
    let known = i32::try_from(number).ok().and_then(DataType::from_number);
    match known.map(|found| (found, held(found))) {
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

/// A tensor of a model in the type that holds its values, with what users should know if that is another type. A
/// constant that does not fit is refused.
pub(crate) fn tensor(data: &TensorData, label: &str) -> Result<(Tensor, Option<String>), Refusal> {
    if exact(data.dtype).is_some() {
        return Ok((data.to_tensor()?, None));
    }
    let (tensor, changed) = data.to_held()?;
    let mut text = caution(data.dtype).unwrap_or_default();
    if data.dtype == DataType::Double {
        let loss = if changed == 0 {
            "no value changes".into()
        } else {
            format!("{changed} of {} values are rounded", data.len())
        };
        text = format!("DOUBLE in the model, f32 in the network: {loss}");
    }
    Ok((tensor, Some(format!("constant '{label}' is {text}"))))
}

fn shape(data: &TensorData) -> Option<Vec<usize>> {
    data.dims.iter().map(|d| usize::try_from(*d).ok()).collect()
}

fn shared(dtype: DType, shape: &[usize], bytes: Bytes) -> Option<Tensor> {
    let len = bytes.len();
    let window = kiln_ir::Bytes::window(std::sync::Arc::new(Shared(bytes)), 0, len)?;
    Tensor::from_bytes(dtype, shape, window)
}

impl TensorData {
    /// The tensor as Kiln has it, its bytes shared. Types that Kiln lacks are refused.
    pub fn to_tensor(&self) -> Result<Tensor, OnnxError> {
        let wrong = TensorFault::WrongType { found: self.dtype, wanted: "a type that Kiln has" };
        let dtype = exact(self.dtype).ok_or_else(|| self.fault(wrong))?;
        let tensor = shape(self).and_then(|shape| shared(dtype, &shape, self.bytes.clone()));
        tensor.ok_or_else(|| self.fault(TensorFault::Overflow(self.dims.clone())))
    }

    /// The tensor in the type that holds its values, and how many values are rounded on the way: DOUBLE becomes f32,
    /// UINT4 u8, INT16 and UINT16 i32, UINT32 and UINT64 i64, FLOAT4E2M1 and FLOAT8E5M2 f16, FLOAT8E8M0 f32. Finite values beyond f32 and UINT64 values from 2⁶³ on
    /// are refused, as are types that nothing holds.
    pub fn to_held(&self) -> Result<(Tensor, usize), OnnxError> {
        if exact(self.dtype).is_some() {
            return Ok((self.to_tensor()?, 0));
        }
        let wrong = TensorFault::WrongType { found: self.dtype, wanted: "a type whose values Kiln can hold" };
        let dtype = held(self.dtype).ok_or_else(|| self.fault(wrong))?;
        let (elems, rounded) = match self.dtype {
            DataType::Double => {
                let (values, rounded) = self.doubles()?;
                (Elems::F(values), rounded)
            }
            DataType::Uint4 => (Elems::I(self.nibbles()), 0),
            of if grids::held(of).is_some() => {
                let count = usize::try_from(self.len()).unwrap_or(usize::MAX);
                (Elems::F(grids::values(of, &self.bytes, count)), 0)
            }
            _ => (Elems::I(self.to_i64()?), 0),
        };
        let tensor = shape(self).and_then(|shape| Tensor::from_elems(dtype, &shape, &elems));
        Ok((tensor.ok_or_else(|| self.fault(TensorFault::Overflow(self.dims.clone())))?, rounded))
    }

    fn fault(&self, fault: TensorFault) -> OnnxError {
        OnnxError::BadTensor { tensor: self.name.clone(), fault }
    }

    /// The values of a DOUBLE tensor rounded to f32, and how many of them changed.
    fn doubles(&self) -> Result<(Vec<f64>, usize), OnnxError> {
        let (mut rounded, mut values) = (0, Vec::with_capacity(self.bytes.len() / 8));
        for (index, bytes) in self.bytes.as_chunks().0.iter().enumerate() {
            let value = f64::from_le_bytes(*bytes);
            let narrow = f64::from(value as f32);
            if value.is_finite() && !narrow.is_finite() {
                return Err(self.fault(TensorFault::NotHeld {
                    value: format!("{value:e}"),
                    index,
                    held: "f32",
                }));
            }
            rounded += usize::from(narrow != value && !value.is_nan());
            values.push(narrow);
        }
        Ok((values, rounded))
    }

    /// The values of a UINT4 tensor.
    fn nibbles(&self) -> Vec<i64> {
        let both = self.bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
        both.take(usize::try_from(self.len()).unwrap_or(usize::MAX)).map(i64::from).collect()
    }
}
