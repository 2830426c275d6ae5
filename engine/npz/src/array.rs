//! An array: type, shape and bytes.

use crate::NpzError;
use crate::dtype::NpyType;

/// An array in C order, its elements little-endian. `data` is exactly as long as type and shape ask for when the array
/// comes from this crate; `write_npy` refuses one where it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The type of the elements.
    pub dtype: NpyType,
    /// The dimensions; none for a scalar.
    pub shape: Vec<u64>,
    /// The elements.
    pub data: Vec<u8>,
}

impl Array {
    /// An array of the given bytes; an error if they are not as many as the shape takes.
    pub fn new(dtype: NpyType, shape: Vec<u64>, data: Vec<u8>) -> Result<Self, NpzError> {
        let array = Self { dtype, shape, data };
        array.check()?;
        Ok(array)
    }

    /// An f32 array of the given values.
    pub fn from_f32(shape: &[u64], values: &[f32]) -> Result<Self, NpzError> {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::new(NpyType::F32, shape.to_vec(), data)
    }

    /// An i64 array of the given values.
    pub fn from_i64(shape: &[u64], values: &[i64]) -> Result<Self, NpzError> {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::new(NpyType::I64, shape.to_vec(), data)
    }

    /// The values of an f32 array.
    pub fn to_f32(&self) -> Result<Vec<f32>, NpzError> {
        self.wants(NpyType::F32, "f4")?;
        Ok(self.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// The values of an i64 array.
    pub fn to_i64(&self) -> Result<Vec<i64>, NpzError> {
        self.wants(NpyType::I64, "i8")?;
        Ok(self.data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
    }

    fn wants(&self, dtype: NpyType, wanted: &'static str) -> Result<(), NpzError> {
        self.check()?;
        if self.dtype == dtype { Ok(()) } else { Err(NpzError::WrongType { found: self.dtype, wanted }) }
    }

    /// An error unless `data` is as long as type and shape ask for.
    pub(crate) fn check(&self) -> Result<(), NpzError> {
        let wanted = byte_size(self.dtype, &self.shape)?;
        let found = self.data.len() as u64;
        if wanted == found {
            return Ok(());
        }
        Err(NpzError::Size { shape: self.shape.clone(), dtype: self.dtype, wanted, found })
    }
}

/// Bytes that an array takes. Dimensions are multiplied one by one, so that a zero does not excuse an overflow before it.
pub(crate) fn byte_size(dtype: NpyType, shape: &[u64]) -> Result<u64, NpzError> {
    let count = shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
    count.and_then(|count| count.checked_mul(dtype.size())).ok_or_else(|| NpzError::TooLarge(shape.to_vec()))
}
