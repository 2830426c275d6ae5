//! Elements as Rust numbers, for the small tensors that say something about shapes.

use half::{bf16, f16};

use super::{DataType, TensorData};
use crate::error::{OnnxError, TensorFault};

impl TensorData {
    /// The values of any integer or bool tensor of 8 bits or more, widened.
    pub fn to_i64(&self) -> Result<Vec<i64>, OnnxError> {
        let wide = |value: u64| i64::try_from(value).ok();
        let values = match self.dtype {
            DataType::Int64 => self.map(i64::from_le_bytes),
            DataType::Int32 => self.map(|bytes| i64::from(i32::from_le_bytes(bytes))),
            DataType::Int16 => self.map(|bytes| i64::from(i16::from_le_bytes(bytes))),
            DataType::Int8 => self.map(|bytes| i64::from(i8::from_le_bytes(bytes))),
            DataType::Uint32 => self.map(|bytes| i64::from(u32::from_le_bytes(bytes))),
            DataType::Uint16 => self.map(|bytes| i64::from(u16::from_le_bytes(bytes))),
            DataType::Uint8 | DataType::Bool => self.map(|bytes| i64::from(u8::from_le_bytes(bytes))),
            DataType::Uint64 => {
                let values = self.map(u64::from_le_bytes);
                if let Some(index) = values.iter().position(|value| wide(*value).is_none()) {
                    let fault = TensorFault::NotHeld { value: values[index].to_string(), index, held: "i64" };
                    return Err(OnnxError::BadTensor { tensor: self.name.clone(), fault });
                }
                values.into_iter().filter_map(wide).collect()
            }
            _ => return Err(self.wrong("an integer type of 8 bits or more")),
        };
        Ok(values)
    }

    /// The values of a FLOAT, FLOAT16, BFLOAT16 or DOUBLE tensor, the last rounded.
    pub fn to_f32(&self) -> Result<Vec<f32>, OnnxError> {
        match self.dtype {
            DataType::Float => Ok(self.map(f32::from_le_bytes)),
            DataType::Float16 => Ok(self.map(|bytes| f16::from_le_bytes(bytes).to_f32())),
            DataType::Bfloat16 => Ok(self.map(|bytes| bf16::from_le_bytes(bytes).to_f32())),
            DataType::Double => Ok(self.map(|bytes| f64::from_le_bytes(bytes) as f32)),
            _ => Err(self.wrong("FLOAT, FLOAT16, BFLOAT16 or DOUBLE")),
        }
    }

    fn map<T, const N: usize>(&self, value: impl Fn([u8; N]) -> T) -> Vec<T> {
        self.bytes.as_chunks().0.iter().map(|bytes| value(*bytes)).collect()
    }

    fn wrong(&self, wanted: &'static str) -> OnnxError {
        let fault = TensorFault::WrongType { found: self.dtype, wanted };
        OnnxError::BadTensor { tensor: self.name.clone(), fault }
    }
}
