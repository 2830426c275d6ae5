//! Tensors of host memory that layers of libraries read and write: aligned, by strides, with guards around.

use kiln_abi::kiln_host_tensor;
use kiln_ir::error::OpError;
use kiln_ir::tensor::{Tensor, volume};
use kiln_ir::{DType, budget};
use kiln_ops::plugin::record::Arrangement;

/// Bytes of a guard at each end.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;
/// Fill of memory that nobody has written: NaN of every float type, -1 of integers.
const UNWRITTEN: u8 = 0xff;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Block(#[expect(dead_code, reason = "read as bytes")] [u8; GUARD]);

/// Memory of a tensor for a call.
pub(super) struct HostTensor {
    dtype: DType,
    dims: Vec<i64>,
    strides: Vec<i64>,
    blocks: Vec<Block>,
    bytes: usize,
}

impl HostTensor {
    /// Unwritten memory of a tensor of these dimensions.
    pub(super) fn new(dtype: DType, shape: &[usize], how: Arrangement) -> Result<HostTensor, OpError> {
        let too_large = || OpError::TooLarge(format!("{dtype}{shape:?}"));
        let size = (dtype.bits() / 8) as usize;
        if size == 0 {
            return Err(OpError::Unsupported(format!(
                "{dtype} in a plug-in layer, whose elements share bytes"
            )));
        }
        let gap = if how == Arrangement::Padded { 3 } else { 0 };
        let mut strides = vec![1i64; shape.len()];
        for i in (0..shape.len().saturating_sub(1)).rev() {
            let row = shape[i + 1].checked_mul(strides[i + 1] as usize).and_then(|n| n.checked_add(gap));
            strides[i] = row.and_then(|n| i64::try_from(n).ok()).ok_or_else(too_large)?;
        }
        let elements = match volume(shape) {
            Some(0) => Some(0),
            _ => shape
                .iter()
                .zip(&strides)
                .try_fold(1usize, |n, (&d, &s)| n.checked_add((d - 1).checked_mul(s as usize)?)),
        };
        let bytes = elements.and_then(|n| n.checked_mul(size)).ok_or_else(too_large)?;
        let count = bytes.div_ceil(GUARD) + 2;
        let _held = budget::reserve(count as u64 * GUARD as u64)?;
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(count).map_err(|_| too_large())?;
        blocks.resize(count, Block([GUARD_BYTE; GUARD]));
        let dims = shape.iter().map(|&d| d as i64).collect();
        let mut t = HostTensor { dtype, dims, strides, blocks, bytes };
        t.data_mut().fill(UNWRITTEN);
        Ok(t)
    }

    /// A copy of a tensor.
    pub(super) fn copy(from: &Tensor, how: Arrangement) -> Result<HostTensor, OpError> {
        let mut t = HostTensor::new(from.dtype(), from.shape(), how)?;
        let (size, shape) = ((from.dtype().bits() / 8) as usize, from.shape().to_vec());
        let strides = t.strides.clone();
        let data = t.data_mut();
        rows(&shape, &strides, |dense, at, n| {
            data[at * size..(at + n) * size].copy_from_slice(&from.bytes()[dense * size..(dense + n) * size]);
        });
        Ok(t)
    }

    fn all(&self) -> &[u8] {
        self.blocks.as_flattened_bytes()
    }

    fn data(&self) -> &[u8] {
        &self.all()[GUARD..GUARD + self.bytes]
    }

    fn data_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        &mut self.blocks.as_flattened_bytes_mut()[GUARD..GUARD + bytes]
    }

    /// View for a call.
    pub(super) fn view(&mut self) -> kiln_host_tensor {
        kiln_host_tensor {
            dtype: self.dtype.code().into(),
            ndim: self.dims.len() as u32,
            dims: self.dims.as_mut_ptr(),
            strides: self.strides.as_ptr(),
            data: self.data_mut().as_mut_ptr().cast(),
            bytes: self.bytes as u64,
        }
    }

    /// Whether nothing was written in front of the memory or behind it.
    pub(super) fn is_guarded(&self) -> bool {
        let all = self.all();
        let around = all[..GUARD].iter().chain(&all[GUARD + self.bytes..]);
        around.into_iter().all(|b| *b == GUARD_BYTE)
    }

    /// The dimensions, which the call may have changed.
    pub(super) fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The elements of the dimensions that the call left, as a dense tensor. These are within those of the memory.
    pub(super) fn finish(&self) -> Result<Tensor, OpError> {
        let shape: Vec<usize> = self.dims.iter().map(|&d| d.max(0) as usize).collect();
        let size = (self.dtype.bits() / 8) as usize;
        let wrong = || OpError::Value(format!("a tensor {}{shape:?} is larger than its memory", self.dtype));
        let mut bytes = vec![0; volume(&shape).and_then(|n| n.checked_mul(size)).ok_or_else(wrong)?];
        let data = self.data();
        let mut fits = true;
        rows(&shape, &self.strides, |dense, at, n| match data.get(at * size..(at + n) * size) {
            Some(row) => bytes[dense * size..(dense + n) * size].copy_from_slice(row),
            None => fits = false,
        });
        if !fits {
            return Err(wrong());
        }
        if self.dtype == DType::Bool
            && let Some(b) = bytes.iter().find(|b| **b > 1)
        {
            return Err(OpError::Value(format!("a truth value is {b}, wants 0 or 1")));
        }
        Tensor::from_bytes(self.dtype, &shape, bytes).ok_or_else(wrong)
    }
}

/// Calls `f` with the place of each row: in a dense tensor, by strides, and its length.
fn rows(shape: &[usize], strides: &[i64], mut f: impl FnMut(usize, usize, usize)) {
    let (outer, inner) = match shape.split_last() {
        Some((&inner, outer)) => (outer, inner),
        None => (shape, 1),
    };
    let count: usize = outer.iter().product();
    if inner == 0 {
        return;
    }
    for row in 0..count {
        let (mut rest, mut at) = (row, 0);
        for (d, s) in outer.iter().zip(strides).rev() {
            at += (rest % d) * *s as usize;
            rest /= d;
        }
        f(row * inner, at, inner);
    }
}

/// Blocks as bytes.
trait Flat {
    fn as_flattened_bytes(&self) -> &[u8];
    fn as_flattened_bytes_mut(&mut self) -> &mut [u8];
}

impl Flat for Vec<Block> {
    fn as_flattened_bytes(&self) -> &[u8] {
        // SAFETY: a block is its bytes, without padding.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len() * GUARD) }
    }

    fn as_flattened_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len() * GUARD) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_copied_in_and_out() {
        let t = Tensor::i64(&[2, 3, 2], &(0..12).collect::<Vec<_>>()).unwrap();
        for how in [Arrangement::Dense, Arrangement::Padded] {
            let mut h = HostTensor::copy(&t, how).unwrap();
            assert_eq!(h.finish().unwrap(), t);
            assert_eq!(h.view().bytes % 8, 0);
            assert!(h.is_guarded());
            h.dims[1] = 1;
            assert_eq!(h.finish().unwrap(), Tensor::i64(&[2, 1, 2], &[0, 1, 6, 7]).unwrap(), "{how:?}");
            h.dims[1] = 9;
            assert!(h.finish().is_err());
        }
        let empty = Tensor::i64(&[2, 0], &[]).unwrap();
        assert_eq!(HostTensor::copy(&empty, Arrangement::Padded).unwrap().finish().unwrap(), empty);
        let scalar = Tensor::i64(&[], &[7]).unwrap();
        assert_eq!(HostTensor::copy(&scalar, Arrangement::Dense).unwrap().finish().unwrap(), scalar);
    }

    #[test]
    fn writes_around_the_memory_are_seen() {
        for at in [GUARD - 1, GUARD + 12] {
            let mut h = HostTensor::new(DType::F32, &[3], Arrangement::Dense).unwrap();
            h.blocks.as_flattened_bytes_mut()[at] = 0;
            assert!(!h.is_guarded(), "{at}");
        }
        assert!(HostTensor::new(DType::I4, &[3], Arrangement::Dense).is_err());
        assert!(HostTensor::new(DType::F32, &[usize::MAX, 2], Arrangement::Dense).is_err());
        let mut flag = HostTensor::new(DType::Bool, &[1], Arrangement::Dense).unwrap();
        flag.data_mut()[0] = 2;
        assert!(flag.finish().unwrap_err().to_string().contains("truth value is 2"));
    }
}
