//! Floats of 4 and 8 bits that Kiln has no type for: values on a grid, which wider floats hold exactly.
//!
//! FLOAT4E2M1 and FLOAT8E5M2 are held as f16, FLOAT8E8M0, powers of two, as f32. Networks read all of them. They make values of
//! FLOAT4E2M1, rounded by layers; those of the others are not made.

use kiln_ir::DType;

use crate::tensor::DataType;

/// The type that holds the values of such a float.
pub(crate) fn held(of: DataType) -> Option<DType> {
    match of {
        DataType::Float4E2M1 | DataType::Float8E5M2 => Some(DType::F16),
        DataType::Float8E8M0 => Some(DType::F32),
        _ => None,
    }
}

/// Magnitudes of FLOAT4E2M1, whose fourth bit is the sign.
const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The values of a tensor of such floats, of `count` elements; empty for other types.
pub(super) fn values(of: DataType, bytes: &[u8], count: usize) -> Vec<f64> {
    let e2m1 = |code: u8| {
        let size = E2M1[usize::from(code & 7)];
        if code & 8 == 0 { size } else { -size }
    };
    match of {
        DataType::Float4E2M1 => {
            let both = bytes.iter().flat_map(|b| [b & 15, b >> 4]);
            both.take(count).map(e2m1).collect()
        }
        // The upper byte of an f16.
        DataType::Float8E5M2 => {
            bytes.iter().map(|b| half::f16::from_bits(u16::from(*b) << 8).to_f64()).collect()
        }
        DataType::Float8E8M0 => {
            let power = |b: &u8| if *b == 255 { f64::NAN } else { 2f64.powi(i32::from(*b) - 127) };
            bytes.iter().map(power).collect()
        }
        _ => Vec::new(),
    }
}
