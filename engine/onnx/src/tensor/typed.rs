//! The typed payload fields: the types of each, and their packing.

use super::DataType;
use crate::error::TensorFault;
use crate::proto::TensorProto;

/// The payload fields that hold anything, `raw_data` aside.
pub(super) fn filled_fields(proto: &TensorProto) -> Vec<&'static str> {
    let fields = [
        ("float_data", proto.float_data.len()),
        ("int32_data", proto.int32_data.len()),
        ("string_data", proto.string_data.len()),
        ("int64_data", proto.int64_data.len()),
        ("double_data", proto.double_data.len()),
        ("uint64_data", proto.uint64_data.len()),
    ];
    fields.iter().filter(|(_, len)| *len > 0).map(|(name, _)| *name).collect()
}

/// The field that a type's payload may lie in.
pub(super) fn field_of(dtype: DataType) -> &'static str {
    match dtype {
        DataType::Float | DataType::Complex64 => "float_data",
        DataType::Double | DataType::Complex128 => "double_data",
        DataType::Int64 => "int64_data",
        DataType::Uint32 | DataType::Uint64 => "uint64_data",
        DataType::String => "string_data",
        _ => "int32_data",
    }
}

/// Number of entries that the type's field needs for so many elements, and the number that it has.
pub(super) fn entry_counts(proto: &TensorProto, dtype: DataType, count: u64) -> (u64, u64) {
    let found = match field_of(dtype) {
        "float_data" => proto.float_data.len(),
        "double_data" => proto.double_data.len(),
        "int64_data" => proto.int64_data.len(),
        "uint64_data" => proto.uint64_data.len(),
        "string_data" => proto.string_data.len(),
        _ => proto.int32_data.len(),
    };
    let entries = match dtype {
        DataType::Complex64 | DataType::Complex128 => count.saturating_mul(2),
        _ => count.div_ceil(elements_per_entry(dtype)),
    };
    (entries, found as u64)
}

/// Types of 2 and 4 bits fill the low byte of an entry; all others take an entry an element.
fn elements_per_entry(dtype: DataType) -> u64 {
    match dtype.bits() {
        2 => 4,
        4 => 2,
        _ => 1,
    }
}

/// The bytes of a typed field.
pub(super) fn pack(proto: &TensorProto, dtype: DataType) -> Result<Vec<u8>, TensorFault> {
    match dtype {
        DataType::Float | DataType::Complex64 => Ok(flatten(&proto.float_data, |v| v.to_le_bytes())),
        DataType::Double | DataType::Complex128 => Ok(flatten(&proto.double_data, |v| v.to_le_bytes())),
        DataType::Int64 => Ok(flatten(&proto.int64_data, |v| v.to_le_bytes())),
        DataType::Uint64 => Ok(flatten(&proto.uint64_data, |v| v.to_le_bytes())),
        DataType::Uint32 => pack_u32(&proto.uint64_data),
        DataType::Int32 => Ok(flatten(&proto.int32_data, |v| v.to_le_bytes())),
        DataType::Float6E2M3 | DataType::Float6E3M2 => pack_six_bits(&proto.int32_data, dtype),
        _ if dtype.bits() == 16 => Ok(flatten(&narrow(&proto.int32_data, dtype, 16)?, |v| v.to_le_bytes())),
        _ => Ok(narrow(&proto.int32_data, dtype, 8)?.iter().map(|v| *v as u8).collect()),
    }
}

fn flatten<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

fn pack_u32(values: &[u64]) -> Result<Vec<u8>, TensorFault> {
    let mut packed = Vec::with_capacity(values.len() * 4);
    for (index, value) in values.iter().enumerate() {
        let narrow = u32::try_from(*value).map_err(|_| TensorFault::OutOfRange {
            dtype: DataType::Uint32,
            value: i128::from(*value),
            index,
        })?;
        packed.extend_from_slice(&narrow.to_le_bytes());
    }
    Ok(packed)
}

/// Entries as the low bits of 16. Writers store small types sign-extended or not, so both ranges are taken.
fn narrow(values: &[i32], dtype: DataType, bits: u32) -> Result<Vec<u16>, TensorFault> {
    let range = -(1 << (bits - 1))..1 << bits;
    let fits = |(index, value): (usize, &i32)| {
        if range.contains(value) {
            return Ok(*value as u16);
        }
        Err(TensorFault::OutOfRange { dtype, value: i128::from(*value), index })
    };
    values.iter().enumerate().map(fits).collect()
}

/// One element an entry, packed four to three bytes from the lowest bit up.
fn pack_six_bits(values: &[i32], dtype: DataType) -> Result<Vec<u8>, TensorFault> {
    if let Some(index) = values.iter().position(|value| !(0..64).contains(value)) {
        return Err(TensorFault::OutOfRange { dtype, value: i128::from(values[index]), index });
    }
    let mut packed = Vec::with_capacity(values.len());
    for group in values.chunks(4) {
        let bits = group.iter().rev().fold(0u32, |bits, value| bits << 6 | *value as u32);
        packed.extend_from_slice(&bits.to_le_bytes()[..(group.len() * 6).div_ceil(8)]);
    }
    Ok(packed)
}
