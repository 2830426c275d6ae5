//! Backends and plug-ins that are here.

use crate::bytes::kiln_bytes_t;
use crate::error::{Fail, guard, kiln_error_t};
use crate::handle::Out;
use crate::options::{self, kiln_options_t};
use crate::{json, text};
use serde_json::{Value, json as object};
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
