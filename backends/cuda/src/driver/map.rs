//! Tensor maps: what the copy engine of sm_90 and later knows of a tensor.

use super::device::Gpu;
use super::library::DriverError;
use kiln_families::Map;
use std::ffi::{c_int, c_void};

/// Bytes of a tensor map, and what its address must be a multiple of.
pub const MAP_BYTES: usize = 128;
/// What a tensor map's address must be a multiple of.
pub const MAP_ALIGNMENT: usize = 64;

/// `CUtensorMap`.
#[repr(C, align(64))]
struct Encoded([u8; MAP_BYTES]);

const BITS_OF_8: c_int = 0;
const BITS_OF_16: c_int = 1;
/// Floats of 32 bits, which the copy rounds to TF32, to the nearest: the instructions that read them would cut bits off, and
/// all sums would come out too small.
const TF32: c_int = 11;
const NO_INTERLEAVE: c_int = 0;
const SWIZZLE_128_BYTES: c_int = 3;
const PROMOTE_TO_256_BYTES: c_int = 3;
const ZEROS_OUTSIDE: c_int = 0;
/// Of smaller tensors, a bit of the map of windows must be cleared, or drivers refuse accesses near the end.
const SMALL_TENSOR: u64 = 131_072;
const SMALL_TENSOR_BIT: (usize, u8) = (8 + 2, 1 << 5);

/// The map of a tensor at this address. Boxes are swizzled by 128 bytes, outside are zeros.
pub fn encode(gpu: &Gpu, address: u64, map: &Map) -> Result<[u8; MAP_BYTES], DriverError> {
    let mut out = Encoded([0; MAP_BYTES]);
    let rank = map.dims.len() as u32;
    let kind = match map.size {
        1 => BITS_OF_8,
        2 => BITS_OF_16,
        _ => TF32,
    };
    let strides: Vec<u64> = map.strides.iter().map(|s| s * map.size as u64).collect();
    let mut steps = vec![1u32; map.dims.len()];
    let at = address as *mut c_void;
    let to = (&raw mut out).cast::<c_void>();
    let (api, dims) = (gpu.api, map.dims.as_ptr());
    let Some(w) = &map.windows else {
        // SAFETY: the lists have `rank` (strides one fewer) entries, the result has the size and alignment that the
        // driver's header tells; the address is only stored.
        let code = unsafe {
            (api.map_tiles)(
                to,
                kind,
                rank,
                at,
                dims,
                strides.as_ptr(),
                map.block.as_ptr(),
                steps.as_ptr(),
                NO_INTERLEAVE,
                SWIZZLE_128_BYTES,
                PROMOTE_TO_256_BYTES,
                ZEROS_OUTSIDE,
            )
        };
        api.check("cuTensorMapEncodeTiled", code)?;
        return Ok(out.0);
    };
    steps.iter_mut().skip(1).zip(w.steps).for_each(|(to, s)| *to = s);
    let block = |i: usize| map.block.get(i).copied().unwrap_or(1);
    // SAFETY: as above; corners have two entries, as the tensor has two spatial dimensions.
    let code = unsafe {
        (api.map_windows)(
            to,
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
            NO_INTERLEAVE,
            SWIZZLE_128_BYTES,
            PROMOTE_TO_256_BYTES,
            ZEROS_OUTSIDE,
        )
    };
    api.check("cuTensorMapEncodeIm2col", code)?;
    if map.dims.iter().product::<u64>() * (map.size as u64) < SMALL_TENSOR {
        let (byte, bit) = SMALL_TENSOR_BIT;
        out.0[byte] &= !bit;
    }
    Ok(out.0)
}
