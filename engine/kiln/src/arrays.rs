//! NumPy arrays as tensors.

use crate::Error;
use kiln_ir::{DType, Elems, Tensor};
use kiln_npz::{Array, NpyType};

/// The element type that holds an array's elements: its own, or where Kiln has none the one that importers take for it.
pub fn held_as(t: NpyType) -> DType {
    match t {
        NpyType::F16 => DType::F16,
        NpyType::F32 | NpyType::F64 => DType::F32,
        NpyType::I8 => DType::I8,
        NpyType::I32 | NpyType::I16 | NpyType::U16 => DType::I32,
        NpyType::I64 | NpyType::U32 | NpyType::U64 => DType::I64,
        NpyType::U8 => DType::U8,
        NpyType::Bool => DType::Bool,
    }
}

/// The elements of types that Kiln lacks, f64 rounded to f32; the first that does not fit as an error, with its place.
fn widened(a: &Array) -> Result<Option<Elems>, (String, usize)> {
    fn map<T, U, const N: usize>(
        a: &Array,
        f: impl Fn([u8; N]) -> Result<U, T>,
    ) -> Result<Vec<U>, (String, usize)>
    where
        T: ToString,
    {
        let elements = a.data.as_chunks().0.iter().enumerate();
        elements.map(|(i, bytes)| f(*bytes).map_err(|value| (value.to_string(), i))).collect()
    }
    let exact = |value: i64| Ok::<_, i64>(value);
    let double = |bytes| {
        let value = f64::from_le_bytes(bytes);
        let narrow = f64::from(value as f32);
        if value.is_finite() && !narrow.is_finite() { Err(format!("{value:e}")) } else { Ok(narrow) }
    };
    let long = |bytes| {
        let value = u64::from_le_bytes(bytes);
        i64::try_from(value).map_err(|_| value)
    };
    Ok(Some(match a.dtype {
        NpyType::F64 => Elems::F(map(a, double)?),
        NpyType::I16 => Elems::I(map(a, |b| exact(i16::from_le_bytes(b).into()))?),
        NpyType::U16 => Elems::I(map(a, |b| exact(u16::from_le_bytes(b).into()))?),
        NpyType::U32 => Elems::I(map(a, |b| exact(u32::from_le_bytes(b).into()))?),
        NpyType::U64 => Elems::I(map(a, long)?),
        _ => return Ok(None),
    }))
}

/// Converts an array to a tensor. f64 becomes f32, i2 and u2 become i32, u4 and u8 i64, as in imported models.
///
/// # Errors
/// [`Error::Array`] if a value does not fit, or the array is too large for this machine.
pub fn tensor(name: &str, a: Array) -> Result<Tensor, Error> {
    let dtype = held_as(a.dtype);
    let fail = |message: String| Error::Array { name: name.to_owned(), message };
    let wide = widened(&a).map_err(|(value, at)| {
        fail(format!(
            "element {at} is {value}, which does not fit in {dtype}, the type that holds {}",
            a.dtype
        ))
    })?;
    let shape: Option<Vec<usize>> = a.shape.iter().map(|&d| usize::try_from(d).ok()).collect();
    let found = a.shape.clone();
    let made = shape.and_then(|s| match &wide {
        Some(elems) => Tensor::from_elems(dtype, &s, elems),
        None => Tensor::from_bytes(dtype, &s, a.data),
    });
    made.ok_or_else(|| fail(format!("shape {found:?} is too large for this machine")))
}
