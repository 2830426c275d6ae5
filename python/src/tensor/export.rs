//! Tensors of Kiln for other libraries.

use super::aligned::Aligned;
use super::dlpack::{self, Device};
use crate::dtype;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};

/// The exception for memory that the buffer protocol cannot describe.
pub fn no_buffer(text: &str) -> PyErr {
    PyBufferError::new_err(text.to_owned())
}

/// Calls the function of the package that knows other libraries.
pub fn by_helper<'py>(slf: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    slf.py().import("kiln._arrays")?.call_method1(name, (slf,))
}

/// A NumPy array of the elements.
pub fn array<'py>(
    slf: &Bound<'py, PyAny>,
    dtype: Option<Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    slf.py().import("kiln._arrays")?.call_method1("array", (slf, dtype, copy))
}

/// A capsule of elements in host memory.
pub fn dlpack<'py>(
    py: Python<'py>,
    elements: &kiln::Tensor,
    readonly: bool,
    stream: Option<i64>,
    max_version: Option<(u32, u32)>,
    dl_device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    if stream.is_some() {
        return Err(no_buffer("memory of the host has no stream: leave stream out"));
    }
    if let Some(other) = dl_device.filter(|&(kind, _)| kind != Device::CPU.kind) {
        return Err(no_buffer(&format!("the tensor is in host memory and is not moved to device {other:?}")));
    }
    let versioned = max_version.is_some_and(|(major, _)| major >= 1);
    let copied = match copy == Some(true) {
        true => {
            let bytes = Aligned::copied(elements.bytes()).into_bytes();
            kiln::Tensor::from_bytes(elements.dtype(), elements.shape(), bytes)
        }
        false => None,
    };
    match (versioned, &copied) {
        (true, Some(t)) => dlpack::versioned(py, t, dlpack::IS_COPIED),
        (true, None) => dlpack::versioned(py, elements, if readonly { dlpack::READ_ONLY } else { 0 }),
        (false, Some(t)) => dlpack::legacy(py, t),
        (false, None) if readonly => Err(no_buffer(
            "the tensor is read-only, which capsules of DLPack say from version 1 on: pass max_version, or copy",
        )),
        (false, None) => dlpack::legacy(py, elements),
    }
}

/// Numbers that a view of the buffer protocol points to, and the tensor that keeps its elements.
struct Described {
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

/// Fills a view of the buffer protocol.
///
/// # Safety
/// The view is a structure of the caller's to be filled.
pub unsafe fn fill(
    view: *mut ffi::Py_buffer,
    flags: c_int,
    elements: &kiln::Tensor,
    readonly: bool,
    owner: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if view.is_null() {
        return Err(no_buffer("there is no view to fill"));
    }
    // SAFETY: the caller vouches for the structure; without an owner it counts as not filled.
    unsafe { (*view).obj = std::ptr::null_mut() };
    let Some(format) = dtype::format(elements.dtype()) else {
        let dtype = elements.dtype();
        return Err(no_buffer(&format!(
            "the buffer protocol has no name for {dtype}: use DLPack, numpy() or to(\"f32\")"
        )));
    };
    if readonly && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(no_buffer("the tensor is read-only"));
    }
    let size = elements.dtype().bits() as ffi::Py_ssize_t / 8;
    let shape: Vec<ffi::Py_ssize_t> = elements.shape().iter().map(|&d| d as ffi::Py_ssize_t).collect();
    let mut strides = vec![size; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    let rank = shape.len();
    let mut described = Box::new(Described { shape, strides });
    let asked = |flag: c_int| flags & flag == flag;
    // SAFETY: the caller vouches for the structure. The lists live until `release`, the elements as long as the owner.
    unsafe {
        let v = &mut *view;
        v.buf = elements.bytes().as_ptr().cast_mut().cast();
        v.len = elements.bytes().len() as ffi::Py_ssize_t;
        v.readonly = c_int::from(readonly);
        v.itemsize = size;
        v.format = if asked(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        v.ndim = rank as c_int;
        v.shape = if asked(ffi::PyBUF_ND) { described.shape.as_mut_ptr() } else { std::ptr::null_mut() };
        v.strides =
            if asked(ffi::PyBUF_STRIDES) { described.strides.as_mut_ptr() } else { std::ptr::null_mut() };
        v.suboffsets = std::ptr::null_mut();
        v.internal = Box::into_raw(described).cast::<c_void>();
        v.obj = owner.clone().into_ptr();
    }
    Ok(())
}

/// Frees what `fill` made.
///
/// # Safety
/// The view is one that `fill` filled.
pub unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: as the caller vouches; `fill` put the box there.
    unsafe {
        let described = std::mem::replace(&mut (*view).internal, std::ptr::null_mut());
        if !described.is_null() {
            drop(Box::from_raw(described.cast::<Described>()));
        }
    }
}
