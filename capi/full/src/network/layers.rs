//! Layers of networks: adding them, their outputs, parameters, types and names.

use super::kinds::{self, fail};
use super::object::{KILN_NO_TENSOR, Numbered, kiln_network_t, with};
use super::params::{self, kiln_params_t};
use super::value;
use crate::precision::element_type;
use kiln::WeightsRole;
use kiln_c_core::bytes::kiln_bytes_t;
use kiln_c_core::dlpack::DLDataType;
use kiln_c_core::error::{Fail, guard, kiln_error_t};
use kiln_c_core::handle::{self, Out};
use kiln_c_core::text;
use kiln_kinds::kiln_network::{Layer, LayerId, NetworkError, PluginSpec, TensorId};
use std::ffi::c_char;

/// The most inputs that a layer is given.
const MOST_INPUTS: usize = 4096;

/// Numbers of tensors in an array of the caller.
///
/// # Safety
/// The pointer is NULL or of so many numbers.
unsafe fn numbers<'a>(inputs: *const i32, count: usize) -> Result<&'a [i32], Fail> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > MOST_INPUTS {
        return Err(Fail::argument(format!("there are {count} inputs, wanted at most {MOST_INPUTS}")));
    }
    // SAFETY: as the caller vouches.
    unsafe {
        handle::shared(inputs, "inputs")?;
        Ok(std::slice::from_raw_parts(inputs, count))
    }
}

fn tensors(n: &Numbered, inputs: &[i32]) -> Result<Vec<Option<TensorId>>, Fail> {
    let one = |&i: &i32| if i == KILN_NO_TENSOR { Ok(None) } else { n.tensor(i).map(Some) };
    inputs.iter().map(one).collect()
}

/// Hands out the numbers of a new layer and of its first output; each may be unwanted.
///
/// # Safety
/// Pointers are NULL or of places that may be written.
pub(crate) unsafe fn hand(
    n: &mut Numbered,
    id: LayerId,
    layer: *mut i32,
    output: *mut i32,
) -> Result<(), Fail> {
    let first = n.net.layer(id).map_err(fail)?.outputs().first().copied();
    // SAFETY: as the caller vouches.
    unsafe {
        handle::put(layer, n.layer_number(id));
        handle::put(output, first.map_or(KILN_NO_TENSOR, |t| n.tensor_number(t)));
    }
    Ok(())
}

/// Adds a layer of a kind, such as "convolution" or "elementwise"; kiln_network_kinds lists kinds and parameters. An input may be
/// KILN_NO_TENSOR. `params` may be NULL. `layer` and `output`, the number of its first output, may be NULL, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_layer(
    network: *mut kiln_network_t,
    kind: *const c_char,
    kind_length: usize,
    inputs: *const i32,
    input_count: usize,
    params: *const kiln_params_t,
    layer: *mut i32,
    output: *mut i32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let kind = text::string(kind, kind_length, "kind")?;
            let (inputs, given) = (numbers(inputs, input_count)?, params::all(params)?);
            with(network, |n| {
                let ids = tensors(n, inputs)?;
                let id = kinds::add(&mut n.net, kind, &ids, &given)?;
                hand(n, id, layer, output)
            })
        }
    })
}

/// Adds a layer that a plug-in defines; `params` are its fields. `version` may be NULL for the greatest one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_add_plugin(
    network: *mut kiln_network_t,
    space: *const c_char,
    space_length: usize,
    name: *const c_char,
    name_length: usize,
    version: *const c_char,
    version_length: usize,
    inputs: *const i32,
    input_count: usize,
    params: *const kiln_params_t,
    layer: *mut i32,
    output: *mut i32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let space = text::string(space, space_length, "space")?;
            let mut spec = PluginSpec::new(space, text::string(name, name_length, "name")?);
            if !version.is_null() {
                spec.version = Some(text::string(version, version_length, "version")?.to_owned());
            }
            spec.fields = value::fields(&params::all(params)?).map_err(Fail::argument)?;
            let inputs = numbers(inputs, input_count)?;
            with(network, |n| {
                let all = inputs.iter().map(|&i| n.tensor(i)).collect::<Result<Vec<_>, _>>()?;
                let id = n.net.add_plugin(&all, spec).map_err(fail)?.id();
                hand(n, id, layer, output)
            })
        }
    })
}

/// Returns the number of an output of a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_layer_output(
    network: *const kiln_network_t,
    layer: i32,
    index: usize,
    tensor: *mut i32,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let to = handle::place(tensor, "tensor")?;
            *to = with(network, |n| {
                let id = n.layer(layer)?;
                let id = n.net.layer(id).map_err(fail)?.output(index).map_err(fail)?;
                Ok(n.tensor_number(id))
            })?;
        }
        Ok(())
    })
}

/// Changes parameters and inputs of a layer at once; on an error nothing has changed. Pairs of `indices` and `inputs` say which
/// inputs are replaced. `params` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_layer(
    network: *mut kiln_network_t,
    layer: i32,
    params: *const kiln_params_t,
    indices: *const i32,
    inputs: *const i32,
    input_count: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let given = params::all(params)?;
            let (places, inputs) = (numbers(indices, input_count)?, numbers(inputs, input_count)?);
            with(network, |n| {
                let id = n.layer(layer)?;
                let mut new = Vec::with_capacity(input_count);
                for (&place, &input) in places.iter().zip(inputs) {
                    let place = usize::try_from(place)
                        .map_err(|_| Fail::argument(format!("there is no input {place}")))?;
                    new.push((place, n.tensor(input)?));
                }
                kinds::check_taken_over(&mut n.net, id, &given)?;
                kinds::set(&mut n.net, id, &given, &new)
            })
        }
    })
}

/// Calls `f` with a layer.
///
/// # Safety
/// The pointer is NULL, or of a network that lives as long as the call.
unsafe fn change(
    network: *mut kiln_network_t,
    layer: i32,
    f: impl FnOnce(Layer<'_>) -> Result<(), NetworkError>,
) -> Result<(), Fail> {
    // SAFETY: as the caller vouches.
    unsafe {
        with(network, |n| {
            let id = n.layer(layer)?;
            f(n.net.layer(id).map_err(fail)?).map_err(fail)
        })
    }
}

/// Renames a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_layer_name(
    network: *mut kiln_network_t,
    layer: i32,
    name: *const c_char,
    name_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(name, name_length, "name")?;
            change(network, layer, |l| l.set_name(name).map(drop))
        }
    })
}

/// Asks for the type that a layer computes in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_layer_precision(
    network: *mut kiln_network_t,
    layer: i32,
    dtype: DLDataType,
) -> *mut kiln_error_t {
    guard(|| {
        let dtype = element_type(dtype)?;
        // SAFETY: pointers as the header wants them.
        unsafe { change(network, layer, |l| l.set_precision(dtype).map(drop)) }
    })
}

/// Asks for the type of an output of a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_layer_output_type(
    network: *mut kiln_network_t,
    layer: i32,
    index: usize,
    dtype: DLDataType,
) -> *mut kiln_error_t {
    guard(|| {
        let dtype = element_type(dtype)?;
        // SAFETY: pointers as the header wants them.
        unsafe { change(network, layer, |l| l.set_output_type(index, dtype).map(drop)) }
    })
}

/// Names weights that a layer holds in a role (KILN_ROLE_KERNEL to KILN_ROLE_POWER), for refits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_set_weights_name(
    network: *mut kiln_network_t,
    layer: i32,
    role: i32,
    name: *const c_char,
    name_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        let found = usize::try_from(role).ok().and_then(|n| WeightsRole::ALL.get(n).copied());
        let found = found.ok_or_else(|| {
            Fail::argument(format!("the role is {role}, wanted KILN_ROLE_KERNEL to KILN_ROLE_POWER"))
        })?;
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(name, name_length, "name")?;
            change(network, layer, |l| l.set_weights_name(found, name).map(drop))
        }
    })
}

/// Lists as JSON the kinds of layers with the names of their parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_network_kinds(json: *mut *mut kiln_bytes_t) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let out = unsafe { Out::new(json, "json") }?;
        out.put(kinds::list().into());
        Ok(())
    })
}
