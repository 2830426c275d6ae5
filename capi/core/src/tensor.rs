//! Tensors of callers as tensors of the engine, and the other way.

use crate::dlpack::{
    CPU, CUDA_HOST, DLDataType, DLDevice, DLManagedTensorVersioned, DLTensor, PADDED, READ_ONLY, VERSION,
};
use crate::error::Fail;
use crate::handle;
use kiln::{DType, Tensor};
use kiln_ir::Bytes;
use std::ffi::c_void;
use std::sync::Arc;

/// The most dimensions of a tensor.
const MOST_DIMS: i32 = 64;

/// A caller's tensor, checked.
pub struct Given {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Distances in elements, of a tensor that is not dense.
    strides: Option<Vec<isize>>,
    /// Address of the first element.
    pub data: *mut c_void,
    /// Device of the memory.
    pub device: DLDevice,
    /// Bytes of the elements, dense.
    pub bytes: usize,
}

impl Given {
    /// Checks a tensor, which errors name so.
    ///
    /// # Safety
    /// The pointer is NULL or of a tensor whose fields describe its memory.
    pub unsafe fn read(tensor: *const DLTensor, name: &str) -> Result<Given, Fail> {
        let what = format!("the tensor for \"{name}\"");
        let wrong = |text: String| Fail::argument(format!("{what}: {text}"));
        // SAFETY: as the caller vouches.
        let t = unsafe { handle::shared(tensor, &what) }?;
        let dtype = t.dtype.dtype().ok_or_else(|| {
            let DLDataType { code, bits, lanes } = t.dtype;
            wrong(format!("no element type of Kiln has code {code}, {bits} bits and {lanes} lanes"))
        })?;
        if !(0..=MOST_DIMS).contains(&t.ndim) {
            return Err(wrong(format!("it has {} dimensions, wanted 0 to {MOST_DIMS}", t.ndim)));
        }
        let ndim = t.ndim as usize;
        if ndim > 0 && (t.shape.is_null() || !t.shape.is_aligned()) {
            return Err(wrong("shape is NULL or misaligned".into()));
        }
        // SAFETY: the caller's shape has so many dimensions.
        let dims = if ndim == 0 { &[] } else { unsafe { std::slice::from_raw_parts(t.shape, ndim) } };
        let shape: Result<Vec<usize>, _> = dims.iter().map(|&d| usize::try_from(d)).collect();
        let shape = shape.map_err(|_| wrong(format!("its shape {dims:?} has a negative dimension")))?;
        let strides = if t.strides.is_null() || ndim == 0 {
            None
        } else if t.strides.is_aligned() {
            // SAFETY: the caller's strides are as many as its dimensions.
            let strides = unsafe { std::slice::from_raw_parts(t.strides, ndim) };
            if is_dense(&shape, strides) { None } else { Some(strides.iter().map(|&s| s as isize).collect()) }
        } else {
            return Err(wrong("strides are misaligned".into()));
        };
        let volume = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let bytes = volume.and_then(|n| usize::try_from(dtype.bytes_for(n as u64)?).ok());
        let bytes = bytes.filter(|b| *b <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| wrong(format!("its shape {dims:?} is larger than memory can be")))?;
        if bytes > 0 && t.data.is_null() {
            return Err(wrong("data is NULL".into()));
        }
        let data = (t.data as usize).checked_add(t.byte_offset as usize);
        let data = data.ok_or_else(|| wrong(format!("byte_offset {} is too large", t.byte_offset)))?;
        Ok(Given { dtype, shape, strides, data: data as *mut c_void, device: t.device, bytes })
    }

    /// Whether the host reads the memory.
    pub fn is_on_host(&self) -> bool {
        [CPU, CUDA_HOST].contains(&self.device.device_type)
    }

    /// Whether neighbours are next to each other in memory, in the order of rows.
    pub fn is_dense(&self) -> bool {
        self.strides.is_none()
    }

    /// Refuses memory that is not the host's.
    pub fn on_host(&self, name: &str) -> Result<(), Fail> {
        match self.is_on_host() {
            true => Ok(()),
            false => Err(Fail::argument(format!(
                "the tensor for \"{name}\" is on a device of type {}, wanted host memory (type {CPU}): bind device memory by \
                 kiln_context_bind, or copy it",
                self.device.device_type
            ))),
        }
    }

    /// A copy of the elements in dense order.
    ///
    /// # Safety
    /// The memory is the host's and can be read.
    pub unsafe fn copy(&self, name: &str) -> Result<Tensor, Fail> {
        self.on_host(name)?;
        let wrong = |text: String| Fail::argument(format!("the tensor for \"{name}\": {text}"));
        let mut bytes = Vec::new();
        let no_memory =
            |_| Fail::new(kiln::ErrorCode::FailedAllocation, format!("no memory for {} bytes", self.bytes));
        bytes.try_reserve_exact(self.bytes).map_err(no_memory)?;
        match &self.strides {
            None if self.bytes > 0 => {
                // SAFETY: the caller's memory has so many bytes.
                bytes.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(self.data.cast::<u8>(), self.bytes)
                });
            }
            None => {}
            Some(_) if self.dtype.bits() < 8 => {
                return Err(wrong(format!("elements of {} must be dense", self.dtype)));
            }
            // SAFETY: as above, at the places that shape and strides describe.
            Some(strides) => unsafe { self.gather(strides, &mut bytes) },
        }
        let size = bytes.len();
        Tensor::from_bytes(self.dtype, &self.shape, bytes)
            .ok_or_else(|| wrong(format!("it has {size} bytes")))
    }

    unsafe fn gather(&self, strides: &[isize], bytes: &mut Vec<u8>) {
        let width = (self.dtype.bits() / 8) as usize;
        let mut index = vec![0usize; self.shape.len()];
        for _ in 0..self.bytes / width {
            let offset =
                index.iter().zip(strides).map(|(&i, &s)| (i as isize).wrapping_mul(s)).sum::<isize>();
            let at = self.data.cast::<u8>().wrapping_offset(offset.wrapping_mul(width as isize));
            // SAFETY: an element of the caller's tensor.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, width) });
            for (i, &d) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < d {
                    break;
                }
                *i = 0;
            }
        }
    }
}

/// Whether strides are those of dense rows; strides of dimensions of 1 do not matter.
fn is_dense(shape: &[usize], strides: &[i64]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut wanted = 1i64;
    for (&d, &s) in shape.iter().zip(strides).rev() {
        if d != 1 && s != wanted {
            return false;
        }
        wanted = wanted.saturating_mul(d as i64);
    }
    true
}

/// A caller's tensor that the library frees.
pub struct Owned(*mut DLManagedTensorVersioned);

// SAFETY: DLPack lets any thread free a tensor.
unsafe impl Send for Owned {}
// SAFETY: its memory is only read.
unsafe impl Sync for Owned {}

impl Owned {
    /// Takes a tensor over, which is freed even if it is refused.
    ///
    /// # Safety
    /// The pointer is NULL, or of a tensor that nobody else frees.
    pub unsafe fn take(tensor: *mut DLManagedTensorVersioned, name: &str) -> Result<Owned, Fail> {
        // SAFETY: as the caller vouches.
        let t = unsafe { handle::shared(tensor, &format!("the tensor for \"{name}\"")) }?;
        let (version, owned) = (t.version, Owned(tensor));
        match version.major == VERSION.major {
            true => Ok(owned),
            false => Err(Fail::argument(format!(
                "the tensor for \"{name}\" is of DLPack {}, wanted {}",
                version.major, VERSION.major
            ))),
        }
    }

    /// The elements, in the caller's memory if it is dense and aligned to elements, otherwise copied.
    ///
    /// # Safety
    /// The memory stays as it is until the deleter is called.
    pub unsafe fn tensor(self, name: &str) -> Result<Tensor, Fail> {
        // SAFETY: it lives as long as `self`.
        let (given, flags) = unsafe { (Given::read(&raw const (*self.0).dl_tensor, name)?, (*self.0).flags) };
        if flags & PADDED != 0 && given.dtype.bits() < 8 {
            return Err(Fail::argument(format!(
                "the tensor for \"{name}\" has a byte an element, wanted packed elements"
            )));
        }
        let aligned = (given.data as usize).is_multiple_of(ALIGNMENT);
        if !given.is_dense() || !aligned || given.bytes == 0 || !given.is_on_host() {
            // SAFETY: as the caller vouches.
            return unsafe { given.copy(name) };
        }
        let (dtype, shape, len) = (given.dtype, given.shape.clone(), given.bytes);
        let memory = Memory { start: given.data.cast(), len, _owner: self };
        Bytes::window(Arc::new(memory), 0, len)
            .and_then(|bytes| Tensor::from_bytes(dtype, &shape, bytes))
            .ok_or_else(|| Fail::argument(format!("the tensor for \"{name}\" has {len} bytes")))
    }
}

/// Alignment of memory that is used in place.
const ALIGNMENT: usize = 16;

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: nobody else frees it, and it is freed once.
        if let Some(deleter) = unsafe { (*self.0).deleter } {
            // SAFETY: as above.
            unsafe { deleter(self.0) };
        }
    }
}

/// Memory of a caller's tensor.
struct Memory {
    start: *const u8,
    len: usize,
    _owner: Owned,
}

// SAFETY: the memory is only read, and `Owned` may be freed by any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the owner keeps so many bytes.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// A tensor of the engine with the arrays that a DLPack tensor points to.
pub struct Exported {
    _tensor: Tensor,
    numbers: Vec<i64>,
    managed: DLManagedTensorVersioned,
}

impl Exported {
    /// A tensor that shares the memory of this one, to be freed by its deleter.
    pub fn export(tensor: Tensor) -> *mut DLManagedTensorVersioned {
        let (device, dtype, shape) =
            (DLDevice { device_type: CPU, device_id: 0 }, tensor.dtype(), tensor.shape());
        let ndim = shape.len();
        let mut numbers: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        numbers.resize(2 * ndim, 1);
        for i in (1..ndim).rev() {
            numbers[ndim + i - 1] = numbers[ndim + i].saturating_mul(numbers[i].max(1));
        }
        let data = tensor.bytes().as_ptr().cast_mut().cast();
        let dl_tensor = DLTensor {
            data,
            device,
            ndim: ndim as i32,
            dtype: DLDataType::of(dtype),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let manager_ctx = std::ptr::null_mut();
        let managed = DLManagedTensorVersioned {
            version: VERSION,
            manager_ctx,
            deleter: Some(free),
            flags: READ_ONLY,
            dl_tensor,
        };
        let exported = Box::into_raw(Box::new(Exported { _tensor: tensor, numbers, managed }));
        // SAFETY: just made, and nobody else has it.
        unsafe {
            let e = &mut *exported;
            e.managed.manager_ctx = exported.cast();
            e.managed.dl_tensor.shape = e.numbers.as_mut_ptr();
            e.managed.dl_tensor.strides = e.numbers.as_mut_ptr().add(ndim);
            &raw mut e.managed
        }
    }
}

unsafe extern "C" fn free(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the owner calls it once, with the tensor that `Exported::export` made.
    crate::error::quietly(|| unsafe { handle::free((*managed).manager_ctx.cast::<Exported>()) });
}

/// Frees a tensor that the library returned, as its deleter does. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_tensor_destroy(tensor: *mut DLManagedTensorVersioned) {
    if !tensor.is_null() {
        // SAFETY: the caller's tensor, which nobody else frees.
        drop(Owned(tensor));
    }
}
