//! Tensors of networks: inputs, constants, outputs, and what is known of them.

use super::kinds::fail;
use super::object::{kiln_network_t, with};
use crate::precision::element_type;
use kiln::{Network, TensorType};
use kiln_c_core::dlpack::{DLDataType, DLTensor};
use kiln_c_core::error::{Fail, guard, kiln_error_t};
use kiln_c_core::tensor::Given;
use kiln_c_core::{handle, shape, text};
use kiln_kinds::kiln_network::TensorId;
use std::ffi::c_char;

/// Does something with the tensor of a number.
///
/// # Safety
/// The pointer is NULL, or of a network that lives as long as the call.
unsafe fn of<T>(
    network: *const kiln_network_t,
    tensor: i32,
    f: impl FnOnce(&mut Network, TensorId) -> Result<T, Fail>,
) -> Result<T, Fail> {
    // SAFETY: as the caller vouches.
    unsafe {
        with(network, |n| {
            let id = n.tensor(tensor)?;
            f(&mut n.net, id)
        })
    }
}

/// Adds an input. A dimension of -1 is not known before a run; kiln_builder_set_shape sets its bounds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_input(
    network: *mut kiln_network_t,
    name: *const c_char,
    name_length: usize,
    dtype: DLDataType,
    dims: *const i64,
    ndim: usize,
    tensor: *mut i32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let to = handle::place(tensor, "tensor")?;
            let name = text::string(name, name_length, "name")?;
            let ty = TensorType::new(element_type(dtype)?, shape::numbers(dims, ndim, "dims")?.to_vec());
            *to = with(network, |n| {
                let id = n.net.add_input(name, ty).map_err(fail)?;
                Ok(n.tensor_number(id))
            })?;
        }
        Ok(())
    })
}

/// Adds a constant, which is copied. A name, which may be NULL, makes it one that a refit can replace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_weights(
    network: *mut kiln_network_t,
    name: *const c_char,
    name_length: usize,
    weights: *const DLTensor,
    tensor: *mut i32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let to = handle::place(tensor, "tensor")?;
            let name = if name.is_null() { None } else { Some(text::string(name, name_length, "name")?) };
            let label = name.unwrap_or("weights");
            let weights = Given::read(weights, label)?.copy(label)?;
            *to = with(network, |n| {
                let id = n.net.add_weights(name, weights).map_err(fail)?;
                Ok(n.tensor_number(id))
            })?;
        }
        Ok(())
    })
}

/// Makes a tensor an output, under this name; NULL: under its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_mark_output(
    network: *mut kiln_network_t,
    tensor: i32,
    name: *const c_char,
    name_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = if name.is_null() { "" } else { text::string(name, name_length, "name")? };
            of(network, tensor, |net, id| net.mark_output(id, name).map_err(fail))
        }
    })
}

/// Lets runs report a tensor to a debug listener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_mark_debug(
    network: *mut kiln_network_t,
    tensor: i32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe { of(network, tensor, |net, id| net.mark_debug(id).map_err(fail)) }
    })
}

/// Renames a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_tensor_name(
    network: *mut kiln_network_t,
    tensor: i32,
    name: *const c_char,
    name_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(name, name_length, "name")?;
            of(network, tensor, |net, id| net.set_tensor_name(id, name).map_err(fail))
        }
    })
}

/// Sets the element type of an input, or that of an output as the program has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_tensor_type(
    network: *mut kiln_network_t,
    tensor: i32,
    dtype: DLDataType,
) -> *mut kiln_error_t {
    guard(|| {
        let dtype = element_type(dtype)?;
        // SAFETY: pointers as the header wants them.
        unsafe { of(network, tensor, |net, id| net.set_tensor_type(id, dtype).map_err(fail)) }
    })
}

/// Sets the least and the greatest value of a tensor: codes of 8 bits stand for values between them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_range(
    network: *mut kiln_network_t,
    tensor: i32,
    least: f32,
    greatest: f32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe { of(network, tensor, |net, id| net.set_dynamic_range(id, least, greatest).map_err(fail)) }
    })
}

/// Names a dimension of an input; equal names are equal in runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_dimension_name(
    network: *mut kiln_network_t,
    tensor: i32,
    dimension: usize,
    name: *const c_char,
    name_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(name, name_length, "name")?;
            of(network, tensor, |net, id| {
                let rank = net.ty(id).rank();
                if dimension >= rank {
                    return Err(Fail::argument(format!(
                        "there is no dimension {dimension}; the tensor has {rank}"
                    )));
                }
                net.set_dimension_name(id, dimension, name).map_err(fail)
            })
        }
    })
}

/// Returns type and dimensions of a tensor, -1 where they are not known yet. `count` holds the room of `dims`, then the number of
/// dimensions. `dtype` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_tensor_type(
    network: *const kiln_network_t,
    tensor: i32,
    dtype: *mut DLDataType,
    dims: *mut i64,
    count: *mut usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let ty = of(network, tensor, |net, id| Ok(net.ty(id).clone()))?;
            handle::put(dtype, DLDataType::of(ty.dtype));
            let known: Vec<i64> = ty.dims.iter().map(|d| d.as_const().unwrap_or(-1)).collect();
            shape::write(&known, dims, count, "the tensor")
        }
    })
}
