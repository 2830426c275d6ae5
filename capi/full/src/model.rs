//! Models: networks that are to be built.

use crate::network::object::{kiln_network_t, with};
use kiln::Model;
use kiln_c_core::bytes::kiln_bytes_t;
use kiln_c_core::error::{guard, kiln_error_t, quietly};
use kiln_c_core::handle::{self, Out};
use kiln_c_core::io::{self, kiln_io_t};
use kiln_c_core::text;
use serde_json::json as object;
use std::ffi::{c_char, c_void};

/// A network that is to be built. Any number of threads may build it.
pub struct kiln_model_t {
    pub(crate) model: Model,
}

/// Opens an ONNX model, a plan that stores its network, or a network as text; the content decides which. External data of a model
/// is looked for in its folder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_model_open(
    path: *const c_char,
    path_length: usize,
    model: *mut *mut kiln_model_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, path) = unsafe { (Out::new(model, "model")?, text::path(path, path_length, "path")?) };
        out.put(kiln_model_t { model: Model::open(path)? });
        Ok(())
    })
}

/// Reads a model from memory, which is copied. External data is looked for in `folder`; NULL: such data is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_model_from_bytes(
    data: *const c_void,
    size: usize,
    folder: *const c_char,
    folder_length: usize,
    model: *mut *mut kiln_model_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, bytes, folder) = unsafe {
            let out = Out::new(model, "model")?;
            let folder =
                if folder.is_null() { None } else { Some(text::path(folder, folder_length, "folder")?) };
            (out, text::blob(data, size, "data")?, folder)
        };
        out.put(kiln_model_t { model: Model::from_bytes(bytes.to_vec(), folder.as_deref())? });
        Ok(())
    })
}

/// Makes a model of a network as it is now. Later changes of the network do not reach it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_model_of_network(
    network: *const kiln_network_t,
    model: *mut *mut kiln_model_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(model, "model")?;
            out.put(kiln_model_t { model: with(network, |n| Ok(Model::try_from(&n.net)?))? });
        }
        Ok(())
    })
}

/// Frees a model. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_model_destroy(model: *mut kiln_model_t) {
    // SAFETY: a model of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(model) });
}

/// Number of inputs and outputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_model_io_count(model: *const kiln_model_t) -> usize {
    // SAFETY: a model of this library, or NULL.
    unsafe { model.as_ref() }.map_or(0, |m| m.model.io_tensors().len())
}

/// Describes an input or output: inputs come first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_model_io(
    model: *const kiln_model_t,
    index: usize,
    io: *mut kiln_io_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe { io::describe(handle::shared(model, "model")?.model.io_tensors(), index, io) }
    })
}

/// Lists as JSON what the importer changed and assumed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_model_notes(
    model: *const kiln_model_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, m) = unsafe { (Out::new(json, "json")?, handle::shared(model, "model")?) };
        out.put(object!(m.model.notes()).into());
        Ok(())
    })
}
