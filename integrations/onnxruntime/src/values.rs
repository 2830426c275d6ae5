//! Tensors of ONNX Runtime as tensors of Kiln, and the other way; types of ONNX that Kiln holds in others.

use crate::error::Fail;
use crate::ort::Ort;
use kiln::{DType, Tensor};
use kiln_ir::{Bytes, Elems};
use ort_sys::{OrtKernelContext, OrtTensorTypeAndShapeInfo, OrtValue};
use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::Arc;

/// Numbers of ONNX's element types, with the bits of an element.
const BITS: &[(i32, u64)] = &[
    (1, 32),
    (2, 8),
    (3, 8),
    (4, 16),
    (5, 16),
    (6, 32),
    (7, 64),
    (9, 8),
    (10, 16),
    (11, 64),
    (12, 32),
    (13, 64),
    (16, 16),
    (17, 8),
    (18, 8),
    (19, 8),
    (20, 8),
    (21, 4),
    (22, 4),
];

/// Bytes of so many elements of a type of ONNX; `None` for texts and unknown types.
pub fn bytes_of(elem: i32, count: usize) -> Option<usize> {
    let (_, bits) = BITS.iter().find(|(e, _)| *e == elem)?;
    usize::try_from((count as u64).checked_mul(*bits)?.div_ceil(8)).ok()
}

/// The element type of Kiln with the same bytes.
pub fn same(elem: i32) -> Option<DType> {
    Some(match elem {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        16 => DType::BF16,
        17 => DType::F8E4M3,
        22 => DType::I4,
        _ => return None,
    })
}

/// A tensor that a value of ONNX Runtime holds: element type, shape, address, bytes, and whether they are on a device.
pub struct View {
    pub elem: i32,
    pub shape: Vec<i64>,
    pub data: *mut c_void,
    pub bytes: usize,
    pub on_device: bool,
}

impl View {
    /// Reads a value that may be in device memory.
    ///
    /// # Safety
    /// The value lives as long as the call.
    pub unsafe fn anywhere(ort: &Ort, value: *const OrtValue) -> Result<View, Fail> {
        let host = ort_sys::OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU as i32;
        // SAFETY: as the caller vouches; tensors have memory.
        unsafe {
            let view = View::of(ort, value)?;
            let memory = (ort.ep.value_memory_device)(value);
            let on_device = !memory.is_null() && (ort.ep.memory_device_type)(memory) != host;
            Ok(View { on_device, ..view })
        }
    }

    /// Reads a value in host memory.
    ///
    /// # Safety
    /// The value lives as long as the call.
    pub unsafe fn of(ort: &Ort, value: *const OrtValue) -> Result<View, Fail> {
        let api = ort.api;
        let mut is_tensor = 0;
        let mut info: *mut OrtTensorTypeAndShapeInfo = std::ptr::null_mut();
        // SAFETY: the table's functions, a value that lives, places for results.
        unsafe {
            ort.check((api.IsTensor)(value, &raw mut is_tensor))?;
            if is_tensor == 0 {
                return Err(Fail::new("a value is not a tensor"));
            }
            ort.check((api.GetTensorTypeAndShape)(value, &raw mut info))?;
        }
        // SAFETY: the description of just now, freed once.
        let read = unsafe { shape_of(ort, info) };
        // SAFETY: as above.
        unsafe { (api.ReleaseTensorTypeAndShapeInfo)(info) };
        let (elem, shape) = read?;
        let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        let bytes = count.and_then(|n| bytes_of(elem, n));
        let bytes = bytes.ok_or_else(|| {
            Fail::new(format!("a tensor of type {elem} and shape {shape:?} has no size here"))
        })?;
        let mut data = std::ptr::null_mut();
        // SAFETY: as above; the data is only read where the value is constant.
        unsafe { ort.check((api.GetTensorMutableData)(value.cast_mut(), &raw mut data)) }?;
        Ok(View { elem, shape, data, bytes, on_device: false })
    }

    /// The bytes.
    ///
    /// # Safety
    /// The value lives as long as they are used.
    pub unsafe fn slice<'a>(&self) -> &'a [u8] {
        if self.bytes == 0 || self.data.is_null() {
            return &[];
        }
        // SAFETY: the tensor has so many bytes.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.bytes) }
    }

    /// The elements of a tensor of integers.
    ///
    /// # Safety
    /// The value lives as long as the call.
    pub unsafe fn integers(&self) -> Option<Vec<i64>> {
        let shape: Vec<usize> = self.shape.iter().map(|&d| d as usize).collect();
        // SAFETY: as the caller vouches.
        let bytes = unsafe { self.slice() };
        match same(self.elem) {
            Some(dtype) => Tensor::from_bytes(dtype, &shape, bytes.to_vec()).map(|t| t.to_i64()),
            None => match widened(self.elem, bytes)? {
                Elems::I(all) => Some(all),
                Elems::F(_) => None,
            },
        }
    }

    /// A tensor of this type for an input of the engine. Memory is used in place where types are the same.
    ///
    /// # Safety
    /// The value lives until the run that reads it is done.
    pub unsafe fn tensor(&self, name: &str, wanted: DType) -> Result<Tensor, Fail> {
        let shape: Vec<usize> = self.shape.iter().map(|&d| d as usize).collect();
        let wrong =
            || Fail::new(format!("input \"{name}\" of type {} is not one of {wanted}{shape:?}", self.elem));
        // SAFETY: as the caller vouches.
        let bytes = unsafe { self.slice() };
        if same(self.elem) == Some(wanted) {
            if self.bytes > 0 && (self.data as usize).is_multiple_of(16) {
                let window = Bytes::window(Arc::new(Borrowed(bytes)), 0, bytes.len()).ok_or_else(wrong)?;
                return Tensor::from_bytes(wanted, &shape, window).ok_or_else(wrong);
            }
            return Tensor::from_bytes(wanted, &shape, bytes.to_vec()).ok_or_else(wrong);
        }
        let mut elems = widened(self.elem, bytes).ok_or_else(wrong)?;
        if let Elems::I(all) = &mut elems {
            // The last byte of narrow elements may have one more.
            all.truncate(shape.iter().product());
        }
        Tensor::from_elems(wanted, &shape, &elems).ok_or_else(wrong)
    }
}

/// Memory of a tensor of ONNX Runtime for the time of a run.
struct Borrowed(&'static [u8]);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

unsafe fn shape_of(ort: &Ort, info: *const OrtTensorTypeAndShapeInfo) -> Result<(i32, Vec<i64>), Fail> {
    let mut elem = ort_sys::ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    let mut count = 0;
    // SAFETY: the table's functions, a description that lives, places for results.
    unsafe {
        ort.check((ort.api.GetTensorElementType)(info, &raw mut elem))?;
        ort.check((ort.api.GetDimensionsCount)(info, &raw mut count))?;
        let mut shape = vec![0; count];
        ort.check((ort.api.GetDimensions)(info, shape.as_mut_ptr(), count))?;
        Ok((elem as i32, shape))
    }
}

fn each<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|c| f(*c)).collect()
}

/// Elements of types that Kiln holds in others, f64 as f32 among them.
fn widened(elem: i32, bytes: &[u8]) -> Option<Elems> {
    Some(match elem {
        11 => Elems::F(each(bytes, f64::from_le_bytes)),
        4 => Elems::I(each(bytes, |b| u16::from_le_bytes(b).into())),
        5 => Elems::I(each(bytes, |b| i16::from_le_bytes(b).into())),
        12 => Elems::I(each(bytes, |b| u32::from_le_bytes(b).into())),
        13 => Elems::I(each(bytes, |b| u64::from_le_bytes(b) as i64)),
        21 => Elems::I(bytes.iter().flat_map(|b| [i64::from(b & 15), i64::from(b >> 4)]).collect()),
        _ => return None,
    })
}

/// The bytes of a result in a type of ONNX.
fn narrowed(tensor: &Tensor, elem: i32) -> Option<Vec<u8>> {
    if same(elem) == Some(tensor.dtype()) {
        return Some(tensor.bytes().to_vec());
    }
    if let Some(dtype) = same(elem) {
        let other = Tensor::from_elems(dtype, tensor.shape(), &tensor.elems())?;
        return Some(other.bytes().to_vec());
    }
    Some(match elem {
        11 => tensor.to_f64().iter().flat_map(|x| x.to_le_bytes()).collect(),
        4 | 5 => tensor.to_i64().iter().flat_map(|x| (*x as u16).to_le_bytes()).collect(),
        12 => tensor.to_i64().iter().flat_map(|x| (*x as u32).to_le_bytes()).collect(),
        13 => tensor.to_i64().iter().flat_map(|x| x.to_le_bytes()).collect(),
        _ => return None,
    })
}

/// The bytes of a result in the type of the tensor that takes it.
pub fn elements<'a>(name: &str, tensor: &'a Tensor, to: &View) -> Result<Cow<'a, [u8]>, Fail> {
    let bytes = match same(to.elem) == Some(tensor.dtype()) {
        true => Some(Cow::Borrowed(tensor.bytes())),
        false => narrowed(tensor, to.elem).map(Cow::Owned),
    };
    let bytes = bytes.ok_or_else(|| {
        let (dtype, elem) = (tensor.dtype(), to.elem);
        Fail::new(format!("output \"{name}\" is {dtype}, the model has type {elem}"))
    })?;
    if bytes.len() != to.bytes {
        let (found, wanted) = (bytes.len(), to.bytes);
        return Err(Fail::new(format!("output \"{name}\" has {found} bytes, wanted {wanted}")));
    }
    Ok(bytes)
}

/// The value that ONNX Runtime makes for an output of this shape; null if nobody wants it.
///
/// # Safety
/// The context is that of the run.
pub unsafe fn output(
    ort: &Ort,
    context: *mut OrtKernelContext,
    index: usize,
    dims: &[usize],
) -> Result<*mut OrtValue, Fail> {
    let shape: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
    let mut value = std::ptr::null_mut();
    // SAFETY: the table's function, the run's context, a place for the value.
    ort.check(unsafe {
        (ort.api.KernelContext_GetOutput)(context, index, shape.as_ptr(), shape.len(), &raw mut value)
    })?;
    Ok(value)
}

/// Hands a result to ONNX Runtime, in the type that the model has for it.
///
/// # Safety
/// The context is that of the run.
pub unsafe fn deliver(
    ort: &Ort,
    context: *mut OrtKernelContext,
    index: usize,
    name: &str,
    tensor: &Tensor,
) -> Result<(), Fail> {
    // SAFETY: the run's context, and the value of its output.
    unsafe {
        let value = output(ort, context, index, tensor.shape())?;
        if value.is_null() {
            return Ok(());
        }
        let to = View::of(ort, value)?;
        let bytes = elements(name, tensor, &to)?;
        if to.bytes > 0 {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.data.cast(), to.bytes);
        }
    }
    Ok(())
}
