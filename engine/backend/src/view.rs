//! Views of the C ABI as values of Rust, for both sides of the border.

use crate::BackendError;
use kiln_abi::{kiln_str, kiln_tensor};
use kiln_ir::{Bytes, DType, Tensor};

/// The most dimensions of a tensor that are taken.
const MAX_RANK: u32 = 64;

fn invalid(message: impl Into<String>) -> BackendError {
    BackendError::InvalidArgument(message.into())
}

/// A slice of `len` elements.
///
/// # Safety
/// `ptr` is null or valid for reading `len` elements during `'a`.
pub unsafe fn slice<'a, T>(ptr: *const T, len: u64) -> Result<&'a [T], BackendError> {
    match usize::try_from(len) {
        Ok(0) => Ok(&[]),
        Ok(_) if ptr.is_null() => Err(invalid(format!("a null view of {len} elements"))),
        Ok(n) if n.checked_mul(size_of::<T>()).is_some_and(|b| b <= isize::MAX as usize) => {
            // SAFETY: as this function's contract says; the size fits the address space.
            Ok(unsafe { std::slice::from_raw_parts(ptr, n) })
        }
        _ => Err(invalid(format!("a view of {len} elements does not fit the address space"))),
    }
}

/// Bytes of a view.
///
/// # Safety
/// `ptr` is null or valid for reading `len` bytes during `'a`.
pub unsafe fn bytes<'a>(ptr: *const u8, len: u64) -> Result<&'a [u8], BackendError> {
    // SAFETY: as this function's contract says.
    unsafe { slice(ptr, len) }
}

/// A structure behind a pointer that must not be null.
///
/// # Safety
/// `ptr` is null or valid during `'a`.
pub unsafe fn required<'a, T>(ptr: *const T, what: &str) -> Result<&'a T, BackendError> {
    // SAFETY: as this function's contract says.
    unsafe { ptr.as_ref() }.ok_or_else(|| invalid(format!("{what} is null")))
}

/// Text of a view; `what` names it in the refusal of text that is not UTF-8 or longer than `most` bytes.
///
/// # Safety
/// The view is valid during `'a`.
pub unsafe fn text<'a>(s: kiln_str, what: &str, most: u64) -> Result<&'a str, BackendError> {
    if s.len > most {
        return Err(invalid(format!("{what} has {} bytes, at most {most} are taken", s.len)));
    }
    // SAFETY: as this function's contract says.
    let bytes = unsafe { bytes(s.ptr.cast(), s.len) }?;
    std::str::from_utf8(bytes).map_err(|e| invalid(format!("{what} is not UTF-8: {e}")))
}

/// The tensor of a view; `hold` makes shared bytes of its data.
///
/// # Safety
/// The view is valid for the present call.
pub unsafe fn tensor(view: &kiln_tensor, hold: impl FnOnce(&[u8]) -> Bytes) -> Result<Tensor, BackendError> {
    let code = u8::try_from(view.dtype).ok().and_then(DType::from_code);
    let dtype = code.ok_or_else(|| {
        BackendError::Incompatible(format!("element type {} is none that is known here", view.dtype))
    })?;
    if view.ndim > MAX_RANK {
        return Err(invalid(format!("a tensor has {} dimensions, at most {MAX_RANK} are taken", view.ndim)));
    }
    // SAFETY: as this function's contract says.
    let dims = unsafe { slice(view.dims, view.ndim.into()) }?;
    let shape: Option<Vec<usize>> = dims.iter().map(|&d| usize::try_from(d).ok()).collect();
    let shape = shape.ok_or_else(|| invalid(format!("a tensor has the dimensions {dims:?}")))?;
    let wanted = kiln_ir::tensor::volume(&shape).and_then(|n| dtype.bytes_for(n as u64));
    if wanted != Some(view.len) {
        return Err(invalid(format!("{} bytes are not those of a tensor {dtype}{shape:?}", view.len)));
    }
    // SAFETY: as this function's contract says.
    let data = unsafe { bytes(view.data.cast(), view.len) }?;
    Tensor::from_bytes(dtype, &shape, hold(data))
        .ok_or_else(|| invalid(format!("a tensor {dtype}{shape:?} does not fit its bytes")))
}

/// A structure that may be shorter or longer than this version's: what it lacks is zero.
///
/// # Safety
/// `ptr` is valid for as many bytes as its first four, a `struct_size`, say; all-zero bytes are a valid `T`.
pub unsafe fn sized<T: Copy>(ptr: *const T, what: &str) -> Result<T, BackendError> {
    if ptr.is_null() {
        return Err(invalid(format!("{what} is null")));
    }
    let mut copy = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: as this function's contract says.
    unsafe {
        let len = (ptr.cast::<u32>().read() as usize).min(size_of::<T>());
        std::ptr::copy_nonoverlapping(ptr.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), len);
        Ok(copy.assume_init())
    }
}
