//! Views of elements of other libraries: the buffer protocol, DLPack, the array interfaces.

use super::dlpack::{self, Device, DlTensor, Managed, Versioned};
use super::lent::Owner;
use super::view::View;
use crate::dtype;
use crate::errors::argument;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};
use std::ffi::CStr;

/// The stream that a run will use, for producers of device memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream(pub Option<u64>);

/// The elements of an object of another library.
pub fn foreign(object: &Bound<'_, PyAny>, stream: Stream) -> PyResult<View> {
    // SAFETY: the object is alive.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0
        && let Some(view) = buffer(object)?
    {
        return Ok(view);
    }
    if object.hasattr(intern!(object.py(), "__dlpack__"))? {
        return from_dlpack(object, stream);
    }
    if let Ok(interface) = object.getattr(intern!(object.py(), "__cuda_array_interface__")) {
        return interface_view(object, &interface, Device::cuda(0));
    }
    if let Ok(interface) = object.getattr(intern!(object.py(), "__array_interface__")) {
        return interface_view(object, &interface, Device::CPU);
    }
    let class = object.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "{class} has no elements in memory: wanted a tensor with __dlpack__, a buffer, or an array"
    )))
}

/// Sizes of a producer as numbers that are not negative.
fn sizes(shape: impl Iterator<Item = i64>) -> PyResult<Vec<usize>> {
    let all =
        shape.map(|d| usize::try_from(d).map_err(|_| argument(format!("a tensor has the dimension {d}"))));
    all.collect()
}

/// A view of the buffer protocol; `None` where the object has elements that it cannot describe.
fn buffer(object: &Bound<'_, PyAny>) -> PyResult<Option<View>> {
    let mut raw = Box::new(ffi::Py_buffer::new());
    let mut readonly = false;
    // SAFETY: the object is alive, and the view is released by its owner.
    let mut rc = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, ffi::PyBUF_FULL) };
    if rc != 0 {
        drop(PyErr::take(object.py()));
        readonly = true;
        // SAFETY: as above.
        rc = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, ffi::PyBUF_FULL_RO) };
    }
    if rc != 0 {
        drop(PyErr::take(object.py()));
        return Ok(None);
    }
    let owner = Owner::Buffer(raw);
    let Owner::Buffer(raw) = &owner else { return Ok(None) };
    let format = match raw.format.is_null() {
        true => "B".into(),
        // SAFETY: the producer's format is a text that lives as long as the view.
        false => unsafe { CStr::from_ptr(raw.format) }.to_string_lossy(),
    };
    let Some(dtype) = dtype::of_format(&format, usize::try_from(raw.itemsize).unwrap_or(0)) else {
        // Other ways may know the type by name.
        if object.hasattr(intern!(object.py(), "__array_interface__"))? {
            return Ok(None);
        }
        return dtype::of_name(&format!("format {format:?} of the buffer")).map(|_| None);
    };
    let rank = usize::try_from(raw.ndim).unwrap_or(0);
    let list = |p: *const ffi::Py_ssize_t| match p.is_null() || rank == 0 {
        true => None,
        // SAFETY: the producer lists one number a dimension.
        false => Some(unsafe { std::slice::from_raw_parts(p, rank) }.to_vec()),
    };
    let shape = match list(raw.shape) {
        Some(shape) => sizes(shape.into_iter().map(|d| d as i64))?,
        None if rank == 0 => Vec::new(),
        None => sizes(std::iter::once((raw.len / raw.itemsize.max(1)) as i64))?,
    };
    if list(raw.suboffsets).is_some_and(|s| s.iter().any(|&o| o >= 0)) {
        return Err(argument("a buffer of pointers to rows is not a tensor: copy it into one piece"));
    }
    let (strides, address) = (list(raw.strides), raw.buf as usize);
    let readonly = readonly || raw.readonly != 0;
    Ok(Some(View { dtype, shape, strides, address, device: Device::CPU, readonly, owner }))
}

/// A view of a producer of DLPack.
fn from_dlpack(object: &Bound<'_, PyAny>, stream: Stream) -> PyResult<View> {
    let py = object.py();
    let device = match object.call_method0(intern!(py, "__dlpack_device__")) {
        Ok(pair) => {
            let (kind, id) = pair.extract::<(Bound<'_, PyAny>, i32)>()?;
            Device { kind: kind.call_method0(intern!(py, "__index__"))?.extract()?, id }
        }
        Err(e) => return Err(e),
    };
    let arguments = PyDict::new(py);
    if device.is_cuda() {
        arguments.set_item(intern!(py, "stream"), stream.0)?;
    }
    let method = object.getattr(intern!(py, "__dlpack__"))?;
    arguments.set_item(intern!(py, "max_version"), dlpack::VERSION)?;
    let capsule = match method.call((), Some(&arguments)) {
        Err(e) if e.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item(intern!(py, "max_version"))?;
            method.call((), Some(&arguments))?
        }
        other => other?,
    };
    capsule_view(&capsule)
}

/// Takes what a capsule holds.
pub fn capsule_view(capsule: &Bound<'_, PyAny>) -> PyResult<View> {
    let raw = capsule.as_ptr();
    // SAFETY: the calls check that this is a capsule of the name, whose content is as DLPack says; once it is renamed, the
    // content is this function's.
    unsafe {
        if ffi::PyCapsule_IsValid(raw, dlpack::VERSIONED.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(raw, dlpack::VERSIONED.as_ptr()).cast::<Versioned>();
            if ffi::PyCapsule_SetName(raw, dlpack::USED_VERSIONED.as_ptr()) != 0 {
                return Err(PyErr::fetch(capsule.py()));
            }
            let owner = Owner::Versioned(managed);
            let (major, minor) = (*managed).version;
            if major != dlpack::VERSION.0 {
                return Err(argument(format!("DLPack {major}.{minor} is not read, only 1.x")));
            }
            return described(&(*managed).tensor, (*managed).flags & dlpack::READ_ONLY != 0, owner);
        }
        if ffi::PyCapsule_IsValid(raw, dlpack::NAME.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(raw, dlpack::NAME.as_ptr()).cast::<Managed>();
            if ffi::PyCapsule_SetName(raw, dlpack::USED.as_ptr()) != 0 {
                return Err(PyErr::fetch(capsule.py()));
            }
            let owner = Owner::Legacy(managed);
            return described(&(*managed).tensor, false, owner);
        }
    }
    Err(argument("the capsule holds no tensor of DLPack, or somebody took it"))
}

/// A view of what DLPack describes.
///
/// # Safety
/// The lists of the description have as many numbers as it has dimensions.
unsafe fn described(t: &DlTensor, readonly: bool, owner: Owner) -> PyResult<View> {
    let dtype = dtype::of_dlpack(t.dtype.code, t.dtype.bits, t.dtype.lanes)?;
    let rank =
        usize::try_from(t.ndim).map_err(|_| argument(format!("a tensor has {} dimensions", t.ndim)))?;
    let list = |p: *const i64| match p.is_null() || rank == 0 {
        true => None,
        // SAFETY: as the caller vouches.
        false => Some(unsafe { std::slice::from_raw_parts(p, rank) }.to_vec()),
    };
    let shape = match list(t.shape) {
        Some(shape) => sizes(shape.into_iter())?,
        None if rank == 0 => Vec::new(),
        None => return Err(argument("a tensor of DLPack has no list of dimensions")),
    };
    let size = dtype.bits() as isize / 8;
    let strides = list(t.strides).map(|s| s.into_iter().map(|n| (n as isize).saturating_mul(size)).collect());
    let strides = strides.filter(|_| size > 0);
    let address = (t.data as usize).wrapping_add(t.byte_offset as usize);
    Ok(View { dtype, shape, strides, address, device: t.device, readonly, owner })
}

/// A view of `__array_interface__` or `__cuda_array_interface__`.
fn interface_view(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>, device: Device) -> PyResult<View> {
    let get = |key: &str| interface.get_item(key);
    let typestr: String = get("typestr")?.extract()?;
    let dtype = match dtype::of_typestr(&typestr) {
        Some(dtype) => dtype,
        // Types that NumPy knows as so many bytes have a name of their own.
        None => match object.getattr(intern!(object.py(), "dtype")) {
            Ok(own) if typestr.contains('V') => dtype::of_object(&own)?,
            _ => dtype::of_name(&typestr)?,
        },
    };
    let shape = sizes(get("shape")?.extract::<Vec<i64>>()?.into_iter())?;
    let data = get("data").ok().filter(|d| !d.is_none());
    let data = data.ok_or_else(|| argument("an array interface without an address is not read"))?;
    let (address, readonly): (usize, bool) = data.extract()?;
    let strides = get("strides").ok().and_then(|s| s.extract::<Option<Vec<isize>>>().ok()).flatten();
    let owner = Owner::Object(object.clone().unbind());
    Ok(View { dtype, shape, strides, address, device, readonly, owner })
}
