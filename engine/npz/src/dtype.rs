//! Element types of NumPy arrays.

use std::fmt;

/// The type of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum NpyType {
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

/// Every type with NumPy's code for it and its size in bytes.
const TYPES: [(NpyType, &str, u64); 12] = [
    (NpyType::F16, "f2", 2),
    (NpyType::F32, "f4", 4),
    (NpyType::F64, "f8", 8),
    (NpyType::I8, "i1", 1),
    (NpyType::I16, "i2", 2),
    (NpyType::I32, "i4", 4),
    (NpyType::I64, "i8", 8),
    (NpyType::U8, "u1", 1),
    (NpyType::U16, "u2", 2),
    (NpyType::U32, "u4", 4),
    (NpyType::U64, "u8", 8),
    (NpyType::Bool, "b1", 1),
];

impl NpyType {
    /// NumPy's code without the byte order, as `f4`.
    pub fn code(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// Bytes of one element.
    pub fn size(self) -> u64 {
        TYPES[self as usize].2
    }

    /// The type of a NumPy `descr`, as `<f4` or `|b1`.
    pub(crate) fn from_descr(descr: &str) -> Option<Self> {
        let (order, code) = descr.split_at_checked(1)?;
        let (dtype, _, size) = *TYPES.iter().find(|row| row.1 == code)?;
        (order == "<" || (order == "|" && size == 1)).then_some(dtype)
    }

    pub(crate) fn descr(self) -> String {
        format!("{}{}", if self.size() == 1 { '|' } else { '<' }, self.code())
    }
}

impl fmt::Display for NpyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
