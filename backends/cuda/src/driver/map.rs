//! Tensor maps: descriptions of tensors for the copy engine of sm_90 and later.

use super::device::Gpu;
use super::library::{DriverError, cu};
use cudarc::driver::sys::{self, CUtensorMapDataType as DataType};
use kiln_backend::launch::Map;
use std::ffi::c_void;

/// Bytes of a tensor map.
pub const MAP_BYTES: usize = size_of::<sys::CUtensorMap>();
/// Alignment of a tensor map in bytes.
pub const MAP_ALIGNMENT: usize = align_of::<sys::CUtensorMap>();

const INTERLEAVE: sys::CUtensorMapInterleave = sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
const PROMOTION: sys::CUtensorMapL2promotion =
    sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
const ZEROS_OUTSIDE: sys::CUtensorMapFloatOOBfill =
    sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
/// Bytes below which a bit of a map of windows must be cleared, or drivers refuse accesses near the end.
const SMALL_TENSOR: u64 = 131_072;
const SMALL_TENSOR_BIT: (usize, u8) = (8 + 2, 1 << 5);

/// The swizzle of boxes of this many bytes in a row: of 64 if that is a row, else of 128.
fn swizzle(row: u64) -> sys::CUtensorMapSwizzle {
    match row {
        64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

/// The map of a tensor at this address. Boxes are swizzled by their rows, outside are zeros.
pub fn encode(gpu: &Gpu, address: u64, map: &Map) -> Result<[u8; MAP_BYTES], DriverError> {
    let mut out = sys::CUtensorMap { opaque: [0; 16] };
    let rank = map.dims.len() as u32;
    let kind = match map.size {
        1 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        2 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        // The copy rounds floats to the nearest TF32. Instructions that read them would cut bits off, and all sums would come
        // out too small.
        _ => DataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    };
    let strides: Vec<u64> = map.strides.iter().map(|s| s * map.size as u64).collect();
    let mut steps = vec![1u32; map.dims.len()];
    let at = address as *mut c_void;
    let (api, dims) = (gpu.api, map.dims.as_ptr());
    let swizzle = swizzle(u64::from(map.block.first().copied().unwrap_or(0)) * map.size as u64);
    let Some(w) = &map.windows else {
        // SAFETY: the lists have `rank` (strides one fewer) entries; the address is only stored.
        unsafe {
            cu!(
                api,
                cuTensorMapEncodeTiled(
                    &mut out,
                    kind,
                    rank,
                    at,
                    dims,
                    strides.as_ptr(),
                    map.block.as_ptr(),
                    steps.as_ptr(),
                    INTERLEAVE,
                    swizzle,
                    PROMOTION,
                    ZEROS_OUTSIDE,
                )
            )
        }?;
        return Ok(bytes(&out));
    };
    steps.iter_mut().skip(1).zip(w.steps).for_each(|(to, s)| *to = s);
    let block = |i: usize| map.block.get(i).copied().unwrap_or(1);
    // SAFETY: as above; corners have two entries, as the tensor has two spatial dimensions.
    unsafe {
        cu!(
            api,
            cuTensorMapEncodeIm2col(
                &mut out,
                kind,
                rank,
                at,
                dims,
                strides.as_ptr(),
                w.lower.as_ptr(),
                w.upper.as_ptr(),
                block(0),
                block(1),
                steps.as_ptr(),
                INTERLEAVE,
                swizzle,
                PROMOTION,
                ZEROS_OUTSIDE,
            )
        )
    }?;
    let mut out = bytes(&out);
    if map.dims.iter().product::<u64>() * (map.size as u64) < SMALL_TENSOR {
        let (byte, bit) = SMALL_TENSOR_BIT;
        out[byte] &= !bit;
    }
    Ok(out)
}

fn bytes(map: &sys::CUtensorMap) -> [u8; MAP_BYTES] {
    bytemuck::cast(map.opaque)
}
