//! Element types.

use std::fmt;
use std::str::FromStr;

/// The type of a tensor's elements.
///
/// The set is open: codes are stable, never reused, and a code that this build does not know is a refusal
/// ([`DType::from_code`] returns `None`), not a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 binary32.
    F32 = 1,
    /// IEEE 754 binary16.
    F16 = 2,
    /// The upper half of a binary32.
    BF16 = 3,
    /// OCP FP8 E4M3: finite and NaN only, largest value 448.
    F8E4M3 = 4,
    /// Signed 8-bit integer.
    I8 = 5,
    /// Unsigned 8-bit integer.
    U8 = 6,
    /// Signed 32-bit integer.
    I32 = 7,
    /// Signed 64-bit integer.
    I64 = 8,
    /// One byte, 0 or 1.
    Bool = 9,
    /// Signed 4-bit integer, two to a byte, the first in the low half.
    I4 = 10,
}

/// Kind of number that a [`DType`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Floating point.
    Float,
    /// Integer.
    Int,
    /// Truth value.
    Bool,
}

impl DType {
    /// All types of this build, by code.
    pub const ALL: [DType; 10] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8E4M3,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::I64,
        DType::Bool,
        DType::I4,
    ];

    /// The stable number of this type in files and across the ABI.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The type of a stored number; `None` where this build has no such type.
    pub fn from_code(code: u8) -> Option<DType> {
        Self::ALL.into_iter().find(|t| t.code() == code)
    }

    /// Size of one element in bits.
    pub fn bits(self) -> u32 {
        match self {
            DType::F32 | DType::I32 => 32,
            DType::F16 | DType::BF16 => 16,
            DType::F8E4M3 | DType::I8 | DType::U8 | DType::Bool => 8,
            DType::I64 => 64,
            DType::I4 => 4,
        }
    }

    /// Bytes that `n` densely packed elements take; `None` on overflow.
    pub fn bytes_for(self, n: u64) -> Option<u64> {
        Some(n.checked_mul(u64::from(self.bits()))?.div_ceil(8))
    }

    /// The kind of number.
    pub fn kind(self) -> Kind {
        match self {
            DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 => Kind::Float,
            DType::Bool => Kind::Bool,
            DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::I4 => Kind::Int,
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        self.kind() == Kind::Float
    }

    /// Whether it is an integer type (bool is none).
    pub fn is_int(self) -> bool {
        self.kind() == Kind::Int
    }

    /// The least and the greatest value of an integer type; `None` for floats and bool.
    pub fn int_range(self) -> Option<(i64, i64)> {
        match self {
            DType::I4 => Some((-8, 7)),
            DType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
            DType::U8 => Some((0, u8::MAX.into())),
            DType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
            DType::I64 => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }

    /// The name used in text and messages.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3 => "f8e4m3",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
            DType::I4 => "i4",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|t| t.name() == s).ok_or_else(|| format!("\"{s}\" is no element type"))
    }
}
