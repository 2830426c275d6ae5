//! Inputs and outputs of models, plans and engines, as structs.

use crate::dlpack::DLDataType;
use crate::error::Fail;
use crate::options::{self, Sized};
use kiln::{IoMode, IoTensor};
use std::ffi::c_char;

/// Mode of a tensor that goes in.
pub const KILN_INPUT: i32 = 0;
/// Mode of a tensor that comes out.
pub const KILN_OUTPUT: i32 = 1;

/// The most dimensions that kiln_io_t holds.
pub const KILN_MAX_DIMS: usize = 16;

/// Description of an input or output. Set struct_size before a call. Texts live as long as the object that was asked.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_io_t {
    /// `sizeof(kiln_io_t)`.
    pub struct_size: usize,
    /// The name, without a NUL.
    pub name: *const c_char,
    /// Bytes of the name.
    pub name_length: usize,
    /// KILN_INPUT or KILN_OUTPUT.
    pub mode: i32,
    /// Number of dimensions.
    pub ndim: i32,
    /// Dimensions, -1 where they vary.
    pub dims: [i64; KILN_MAX_DIMS],
    /// Element type.
    pub dtype: DLDataType,
    /// Whether its elements decide shapes, so that they are read on the host.
    pub is_shape_input: i32,
    /// Name of the format in memory, such as "linear" or "hwc8", without a NUL.
    pub format: *const c_char,
    /// Bytes of the format's name.
    pub format_length: usize,
}

// SAFETY: numbers and pointers behind the size.
unsafe impl Sized for kiln_io_t {}

/// Describes the tensor at an index.
///
/// # Safety
/// As [`options::write`].
pub unsafe fn describe(all: &[IoTensor], index: usize, io: *mut kiln_io_t) -> Result<(), Fail> {
    let t = all.get(index).ok_or_else(|| {
        Fail::argument(format!(
            "there is no input or output {index}; there are {}, counted from 0",
            all.len()
        ))
    })?;
    let given = t.dims_or_minus_one();
    if given.len() > KILN_MAX_DIMS {
        return Err(Fail::argument(format!(
            "\"{}\" has {} dimensions, the struct has room for {KILN_MAX_DIMS}",
            t.name,
            given.len()
        )));
    }
    let mut dims = [0; KILN_MAX_DIMS];
    dims.iter_mut().zip(&given).for_each(|(to, d)| *to = *d);
    let format = t.format().name();
    let value = kiln_io_t {
        struct_size: size_of::<kiln_io_t>(),
        name: t.name.as_ptr().cast(),
        name_length: t.name.len(),
        mode: if t.mode == IoMode::Input { KILN_INPUT } else { KILN_OUTPUT },
        ndim: given.len() as i32,
        dims,
        dtype: DLDataType::of(t.dtype),
        is_shape_input: t.is_shape_input.into(),
        format: format.as_ptr().cast(),
        format_length: format.len(),
    };
    // SAFETY: as the caller vouches.
    unsafe { options::write(io, value, "io") }
}
