//! Element types.

use std::fmt;

/// The type of a tensor's elements, by ONNX's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum DataType {
    Float,
    Uint8,
    Int8,
    Uint16,
    Int16,
    Int32,
    Int64,
    String,
    Bool,
    Float16,
    Double,
    Uint32,
    Uint64,
    Complex64,
    Complex128,
    Bfloat16,
    Float8E4M3Fn,
    Float8E4M3Fnuz,
    Float8E5M2,
    Float8E5M2Fnuz,
    Uint4,
    Int4,
    Float4E2M1,
    Float8E8M0,
    Uint2,
    Int2,
    Float6E2M3,
    Float6E3M2,
}

/// Every type with its name in the schema and its size in bits; its number is its place here, from 1.
const TYPES: [(DataType, &str, u64); 28] = [
    (DataType::Float, "FLOAT", 32),
    (DataType::Uint8, "UINT8", 8),
    (DataType::Int8, "INT8", 8),
    (DataType::Uint16, "UINT16", 16),
    (DataType::Int16, "INT16", 16),
    (DataType::Int32, "INT32", 32),
    (DataType::Int64, "INT64", 64),
    (DataType::String, "STRING", 0),
    (DataType::Bool, "BOOL", 8),
    (DataType::Float16, "FLOAT16", 16),
    (DataType::Double, "DOUBLE", 64),
    (DataType::Uint32, "UINT32", 32),
    (DataType::Uint64, "UINT64", 64),
    (DataType::Complex64, "COMPLEX64", 64),
    (DataType::Complex128, "COMPLEX128", 128),
    (DataType::Bfloat16, "BFLOAT16", 16),
    (DataType::Float8E4M3Fn, "FLOAT8E4M3FN", 8),
    (DataType::Float8E4M3Fnuz, "FLOAT8E4M3FNUZ", 8),
    (DataType::Float8E5M2, "FLOAT8E5M2", 8),
    (DataType::Float8E5M2Fnuz, "FLOAT8E5M2FNUZ", 8),
    (DataType::Uint4, "UINT4", 4),
    (DataType::Int4, "INT4", 4),
    (DataType::Float4E2M1, "FLOAT4E2M1", 4),
    (DataType::Float8E8M0, "FLOAT8E8M0", 8),
    (DataType::Uint2, "UINT2", 2),
    (DataType::Int2, "INT2", 2),
    (DataType::Float6E2M3, "FLOAT6E2M3", 6),
    (DataType::Float6E3M2, "FLOAT6E3M2", 6),
];

impl DataType {
    /// The type of a number in a file.
    pub fn from_number(number: i32) -> Option<Self> {
        let row = usize::try_from(number).ok().and_then(|number| TYPES.get(number.checked_sub(1)?));
        row.map(|row| row.0)
    }

    /// The type of a name in the schema, as `FLOAT16`.
    pub fn from_name(name: &str) -> Option<Self> {
        TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Number of the type in a file.
    pub fn number(self) -> i32 {
        self as i32 + 1
    }

    /// Name of the type in the schema, as `FLOAT16`.
    pub fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// Bits of one element; 0 for strings.
    pub fn bits(self) -> u64 {
        TYPES[self as usize].2
    }

    /// Bytes that so many elements take, the last one padded; nothing if that does not fit.
    pub fn byte_size(self, count: u64) -> Option<u64> {
        let bits = u128::from(count) * u128::from(self.bits());
        u64::try_from(bits.div_ceil(8)).ok()
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::tensor_proto;

    #[test]
    fn numbers_and_names_are_those_of_the_schema() {
        for number in 1..=28 {
            let dtype = DataType::from_number(number).unwrap();
            let schema = tensor_proto::DataType::try_from(number).unwrap();
            assert_eq!((dtype.number(), dtype.name()), (number, schema.as_str_name()));
        }
        for number in [i32::MIN, -1, 0, 29, i32::MAX] {
            assert_eq!(DataType::from_number(number), None);
        }
    }

    #[test]
    fn small_types_are_packed() {
        assert_eq!(DataType::Int4.byte_size(3), Some(2));
        assert_eq!(DataType::Float6E2M3.byte_size(4), Some(3));
        assert_eq!(DataType::Float.byte_size(u64::MAX), None);
    }
}
