//! Backends and plug-ins that are here.

use crate::bytes::kiln_bytes_t;
use crate::error::{Fail, guard, kiln_error_t};
use crate::handle::Out;
use crate::options::{self, kiln_options_t};
use crate::{json, text};
use serde_json::{Map, Value, json as object};
use std::ffi::c_char;

/// Lists the backends as JSON: `best`, `backends` with their devices, and `plugins` with the reasons why some were refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_backends(
    options: *const kiln_options_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, choice) = unsafe { (Out::new(json, "json")?, options::choice(options)?) };
        let (all, found) = kiln::backends(&choice.plugins);
        let named = |name: &str| Ok(json::backend(name, &all.get(name)?.targets()));
        let list = all.names().map(named).collect::<Result<Vec<Value>, Fail>>()?;
        let plugins: Vec<Value> = found.iter().map(json::found).collect();
        out.put(object!({"best": kiln::best(&all).ok(), "backends": list, "plugins": plugins}).into());
        Ok(())
    })
}

/// Lists, as JSON, how each device of a backend runs each operator on each element type: "fast", "emulated" or "none". Types that an
/// operator has on no device are left out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_backend_types(
    name: *const c_char,
    name_length: usize,
    options: *const kiln_options_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, name, choice) = unsafe {
            (Out::new(json, "json")?, text::string(name, name_length, "name")?, options::choice(options)?)
        };
        let backend = kiln::backends(&choice.plugins).0.get(name)?;
        let device = |t: &kiln::Target| {
            let types = |all: Vec<(kiln::DType, kiln::Capability)>| {
                all.into_iter().map(|(t, c)| (t.name().to_owned(), c.name().into())).collect::<Map<_, _>>()
            };
            let operators = kiln::capabilities(backend.as_ref(), t).into_iter();
            let operators: Map<String, Value> =
                operators.map(|(name, all)| (name.to_owned(), types(all).into())).collect();
            object!({"device": t.device, "operators": operators})
        };
        let refused = |source| kiln::RuntimeError::Backend { backend: name.to_owned(), source };
        let devices: Vec<Value> = backend.targets().map_err(refused)?.iter().map(device).collect();
        out.put(object!(devices).into());
        Ok(())
    })
}

/// Registers the layers of a library, for models and plans of this process, and lists their names as JSON. `layers` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_load_layers(
    path: *const c_char,
    path_length: usize,
    options: *const kiln_options_t,
    layers: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (path, choice, out) = unsafe {
            let out = if layers.is_null() { None } else { Some(Out::new(layers, "layers")?) };
            (text::path(path, path_length, "path")?, options::choice(options)?, out)
        };
        let records = kiln::plugin::load_layers(path, &choice.plugins.policy)?;
        if let Some(out) = out {
            let one = |r: &std::sync::Arc<kiln::plugin::LayerRecord>| object!({"namespace": r.name.space, "name": r.name.name, "version": r.name.version});
            let names: Vec<Value> = records.iter().map(one).collect();
            out.put(object!(names).into());
        }
        Ok(())
    })
}
