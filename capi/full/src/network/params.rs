//! Parameters of a layer by name, as C programs set them.

use kiln::Tensor;
use kiln_c_core::dlpack::{DLDataType, DLTensor};
use kiln_c_core::error::{Fail, guard, kiln_error_t, quietly};
use kiln_c_core::handle::{self, Exclusive, Out};
use kiln_c_core::tensor::Given;
use kiln_c_core::{shape, text};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};

/// A value of a parameter.
#[derive(Clone, Debug)]
pub enum Param {
    /// A number without fraction.
    Int(i64),
    /// A number.
    Float(f64),
    /// A switch.
    Bool(bool),
    /// A text, or the name of one of several choices.
    Text(String),
    /// A list of numbers without fraction.
    Ints(Vec<i64>),
    /// A list of numbers.
    Floats(Vec<f64>),
    /// An element type.
    Type(kiln::DType),
    /// Weights.
    Tensor(Tensor),
}

impl Param {
    /// A value's description, for errors.
    pub fn describe(&self) -> String {
        match self {
            Param::Int(v) => format!("the integer {v}"),
            Param::Float(v) => format!("the number {v}"),
            Param::Bool(v) => format!("the switch {v}"),
            Param::Text(v) => format!("the text \"{v}\""),
            Param::Ints(v) => format!("the integers {v:?}"),
            Param::Floats(v) => format!("the numbers {v:?}"),
            Param::Type(v) => format!("the element type {v}"),
            Param::Tensor(v) => format!("a tensor of {}{:?}", v.dtype(), v.shape()),
        }
    }
}

/// Parameters of a layer, or fields of a plug-in layer, by name.
pub struct kiln_params_t {
    cell: Exclusive<BTreeMap<String, Param>>,
}

/// The parameters, none for NULL.
///
/// # Safety
/// The pointer is NULL, or of parameters that live as long as the call.
pub unsafe fn all(params: *const kiln_params_t) -> Result<BTreeMap<String, Param>, Fail> {
    if params.is_null() {
        return Ok(BTreeMap::new());
    }
    // SAFETY: as the caller vouches.
    let p = unsafe { handle::shared(params, "params") }?;
    Ok(p.cell.enter()?.clone())
}

/// Makes an empty set of parameters. It can be used for any number of layers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_create(params: *mut *mut kiln_params_t) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let out = unsafe { Out::new(params, "params") }?;
        out.put(kiln_params_t { cell: Exclusive::new("set of parameters", BTreeMap::new()) });
        Ok(())
    })
}

/// Frees parameters. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_destroy(params: *mut kiln_params_t) {
    // SAFETY: parameters of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(params) });
}

/// Sets one parameter.
///
/// # Safety
/// Pointers as the header wants them.
unsafe fn set(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    value: impl FnOnce(&str) -> Result<Param, Fail>,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: as the caller vouches.
        let (p, name) =
            unsafe { (handle::shared(params, "params")?, text::string(name, name_length, "name")?) };
        let value = value(name)?;
        p.cell.enter()?.insert(name.to_owned(), value);
        Ok(())
    })
}

/// Sets a parameter that is a number without fraction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_set_int(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    value: i64,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe { set(params, name, name_length, |_| Ok(Param::Int(value))) }
}

/// Sets a parameter that is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_set_float(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    value: f64,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe { set(params, name, name_length, |_| Ok(Param::Float(value))) }
}

/// Sets a parameter that is a switch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_set_bool(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    value: bool,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe { set(params, name, name_length, |_| Ok(Param::Bool(value))) }
}

/// Sets a parameter that is a text, such as the name of an operation: kiln_network_kinds lists names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_set_text(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    value: *const c_char,
    value_length: usize,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        set(params, name, name_length, |name| {
            Ok(Param::Text(text::string(value, value_length, name)?.to_owned()))
        })
    }
}

/// Sets a parameter that is a list of numbers without fraction, such as a window. At most 64 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_set_ints(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    values: *const i64,
    count: usize,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        set(params, name, name_length, |name| Ok(Param::Ints(shape::numbers(values, count, name)?.to_vec())))
    }
}

/// Sets a parameter that is a list of numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_set_floats(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    values: *const f64,
    count: usize,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe {
        set(params, name, name_length, |name| {
            if count == 0 {
                return Ok(Param::Floats(Vec::new()));
            }
            handle::shared(values, name)?;
            let bytes = text::blob(values.cast::<c_void>(), count.saturating_mul(size_of::<f64>()), name)?;
            let each = bytes.as_chunks::<8>().0.iter().map(|b| f64::from_ne_bytes(*b));
            Ok(Param::Floats(each.collect()))
        })
    }
}

/// Sets a parameter that is an element type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_set_type(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    value: DLDataType,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe { set(params, name, name_length, |_| Ok(Param::Type(crate::precision::element_type(value)?))) }
}

/// Sets a parameter that holds weights, which are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_params_set_tensor(
    params: *mut kiln_params_t,
    name: *const c_char,
    name_length: usize,
    value: *const DLTensor,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    unsafe { set(params, name, name_length, |name| Ok(Param::Tensor(Given::read(value, name)?.copy(name)?))) }
}
