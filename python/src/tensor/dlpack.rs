//! The structures of DLPack, and tensors of Kiln in them.

use crate::dtype;
use kiln::DType;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};

/// A device: type and number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    pub kind: i32,
    pub id: i32,
}

impl Device {
    /// The host.
    pub const CPU: Device = Device { kind: 1, id: 0 };
    const CUDA: i32 = 2;
    const CUDA_HOST: i32 = 3;
    const CUDA_MANAGED: i32 = 13;

    /// The CUDA device of this number.
    pub fn cuda(id: i32) -> Device {
        Device { kind: Device::CUDA, id }
    }

    /// Whether the host may read the memory as its own.
    pub fn is_host(self) -> bool {
        [Device::CPU.kind, Device::CUDA_HOST].contains(&self.kind)
    }

    /// Whether addresses are those of CUDA.
    pub fn is_cuda(self) -> bool {
        [Device::CUDA, Device::CUDA_MANAGED].contains(&self.kind)
    }

    /// Name of the device.
    pub fn name(self) -> String {
        match self {
            d if d.is_host() => "cpu".into(),
            d if d.is_cuda() => format!("cuda:{}", d.id),
            d => format!("device {} of DLPack's kind {}", d.id, d.kind),
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Debug)]
pub struct DlTensor {
    pub data: *mut c_void,
    pub device: Device,
    pub ndim: i32,
    pub dtype: DataType,
    pub shape: *mut i64,
    /// Distances in elements; null: dense.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct Managed {
    pub tensor: DlTensor,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
#[derive(Debug)]
pub struct Versioned {
    pub version: (u32, u32),
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub flags: u64,
    pub tensor: DlTensor,
}

/// The elements must not be written.
pub const READ_ONLY: u64 = 1;
/// The elements are a copy that nobody else has.
pub const IS_COPIED: u64 = 2;

pub const NAME: &CStr = c"dltensor";
pub const USED: &CStr = c"used_dltensor";
pub const VERSIONED: &CStr = c"dltensor_versioned";
pub const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// Versions that are read and written.
pub const VERSION: (u32, u32) = (1, 1);

/// Content of a capsule of Kiln's. It holds no object of Python, so that it is freed on any thread at any time.
struct Held<M> {
    managed: M,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _elements: kiln::Tensor,
}

fn dense(shape: &[usize]) -> (Vec<i64>, Vec<i64>) {
    let shape: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
    let mut strides = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    (shape, strides)
}

fn describe(t: &kiln::Tensor, dtype: DType, shape: &mut [i64], strides: &mut [i64]) -> PyResult<DlTensor> {
    let (code, bits) = dtype::dlpack(dtype)
        .ok_or_else(|| PyBufferError::new_err(format!("DLPack has no name for elements of {dtype}")))?;
    Ok(DlTensor {
        data: t.bytes().as_ptr().cast_mut().cast(),
        device: Device::CPU,
        ndim: shape.len() as i32,
        dtype: DataType { code, bits, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    })
}

unsafe extern "C" fn free(managed: *mut Managed) {
    // SAFETY: DLPack calls the deleter once, with the structure that `legacy` made.
    unsafe { drop(Box::from_raw((*managed).context.cast::<Held<Managed>>())) };
}

unsafe extern "C" fn free_versioned(managed: *mut Versioned) {
    // SAFETY: DLPack calls the deleter once, with the structure that `versioned` made.
    unsafe { drop(Box::from_raw((*managed).context.cast::<Held<Versioned>>())) };
}

/// Frees what a capsule holds that nobody took.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a capsule, which has this name unless somebody took its content.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast::<Managed>();
            if let Some(deleter) = managed.as_ref().and_then(|m| m.deleter) {
                deleter(managed);
            }
        }
    }
}

/// Frees what a versioned capsule holds that nobody took.
unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as of `destroy`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast::<Versioned>();
            if let Some(deleter) = managed.as_ref().and_then(|m| m.deleter) {
                deleter(managed);
            }
        }
    }
}

/// A capsule of the first form of DLPack.
pub fn legacy<'py>(py: Python<'py>, t: &kiln::Tensor) -> PyResult<Bound<'py, PyAny>> {
    let (mut shape, mut strides) = dense(t.shape());
    let tensor = describe(t, t.dtype(), &mut shape, &mut strides)?;
    let managed = Managed { tensor, context: std::ptr::null_mut(), deleter: Some(free) };
    let held = Box::into_raw(Box::new(Held { managed, shape, strides, _elements: t.clone() }));
    // SAFETY: `held` is a box of this function's; moving the vectors into it left their elements in place.
    unsafe {
        (*held).managed.context = held.cast();
        debug_assert_eq!((*held).shape.len(), (*held).strides.len());
        capsule(py, (&raw mut (*held).managed).cast(), NAME, destroy, || drop(Box::from_raw(held)))
    }
}

/// A capsule of the versioned form.
pub fn versioned<'py>(py: Python<'py>, t: &kiln::Tensor, flags: u64) -> PyResult<Bound<'py, PyAny>> {
    let (mut shape, mut strides) = dense(t.shape());
    let tensor = describe(t, t.dtype(), &mut shape, &mut strides)?;
    let managed = Versioned {
        version: VERSION,
        context: std::ptr::null_mut(),
        deleter: Some(free_versioned),
        flags,
        tensor,
    };
    let held = Box::into_raw(Box::new(Held { managed, shape, strides, _elements: t.clone() }));
    // SAFETY: as of `legacy`.
    unsafe {
        (*held).managed.context = held.cast();
        debug_assert_eq!((*held).shape.len(), (*held).strides.len());
        capsule(py, (&raw mut (*held).managed).cast(), VERSIONED, destroy_versioned, || {
            drop(Box::from_raw(held))
        })
    }
}

/// Makes a capsule, or frees its content.
///
/// # Safety
/// The destructor fits the content.
unsafe fn capsule<'py>(
    py: Python<'py>,
    content: *mut c_void,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
    free: impl FnOnce(),
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the content is not null, and the name lives as long as the process.
    let made = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(content, name.as_ptr(), Some(destructor)))
    };
    if made.is_err() {
        free();
    }
    made
}
