//! Engines: plans on a device.

use crate::bytes::kiln_bytes_t;
use crate::callback::kiln_destroy_fn;
use crate::error::{Fail, guard, kiln_error_t, quietly};
use crate::handle::{self, Out};
use crate::io::{self, kiln_io_t};
use crate::options::{self, Choice, kiln_options_t};
use crate::recorder::{kiln_error_fn, recorder};
use crate::{json, shape, text};
use kiln::{Plan, Profile};
use kiln_runtime::{Engine, LoadOptions};
use serde_json::json as object;
use std::ffi::{c_char, c_void};

/// A network on a device, ready to run. Any number of threads may make contexts of it.
pub struct kiln_engine_t {
    /// The engine.
    pub engine: Engine,
    /// Its name, which callers read in place.
    name: String,
}

impl kiln_engine_t {
    /// Loads a plan on the backend that it names.
    pub fn load(plan: Plan, choice: &Choice) -> Result<kiln_engine_t, Fail> {
        let plugins = &choice.plugins;
        for found in kiln::plugin::layers(plugins) {
            if let Err(e) = found.outcome {
                tracing::warn!("{}", e.chain());
            }
        }
        if plugins.embedded {
            kiln::plugin::load_embedded(&plan, &plugins.policy)?;
        }
        let backend = kiln::backends(plugins).0.get(&plan.header.target.backend)?;
        let mut options = LoadOptions::default();
        options.device.clone_from(&choice.device);
        options.weight_budget = choice.weight_budget;
        options.automatic_weight_budget = choice.automatic_weight_budget;
        let engine = Engine::from_plan_with(plan, backend, &options)?;
        Ok(kiln_engine_t { name: engine.name(), engine })
    }
}

/// Loads a plan file. The file may change afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_open(
    path: *const c_char,
    path_length: usize,
    options: *const kiln_options_t,
    engine: *mut *mut kiln_engine_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, path, choice) = unsafe {
            (Out::new(engine, "engine")?, text::path(path, path_length, "path")?, options::choice(options)?)
        };
        out.put(kiln_engine_t::load(Plan::open(&path)?, &choice)?);
        Ok(())
    })
}

/// Loads a plan from memory, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_from_bytes(
    data: *const c_void,
    size: usize,
    options: *const kiln_options_t,
    engine: *mut *mut kiln_engine_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, bytes, choice) = unsafe {
            (Out::new(engine, "engine")?, text::blob(data, size, "data")?, options::choice(options)?)
        };
        out.put(kiln_engine_t::load(Plan::read(bytes.to_vec())?, &choice)?);
        Ok(())
    })
}

/// Frees an engine; contexts and refitters of it stay usable. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_destroy(engine: *mut kiln_engine_t) {
    // SAFETY: an engine of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(engine) });
}

/// The network's name, without a NUL, as long as the engine lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_name(engine: *const kiln_engine_t, length: *mut usize) -> *const c_char {
    // SAFETY: an engine of this library or NULL; a place for a number or NULL.
    unsafe { text_of(engine.as_ref().map(|e| e.name.as_str()), length) }
}

/// The name of the backend that runs it, without a NUL, as long as the engine lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_backend(
    engine: *const kiln_engine_t,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: an engine of this library or NULL; a place for a number or NULL.
    unsafe { text_of(engine.as_ref().map(|e| e.engine.backend()), length) }
}

unsafe fn text_of(text: Option<&str>, length: *mut usize) -> *const c_char {
    // SAFETY: as the callers say.
    unsafe { handle::put(length, text.map_or(0, str::len)) };
    text.map_or(std::ptr::null(), |t| t.as_ptr().cast())
}

/// Number of inputs and outputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_io_count(engine: *const kiln_engine_t) -> usize {
    // SAFETY: an engine of this library, or NULL.
    unsafe { engine.as_ref() }.map_or(0, |e| e.engine.io_tensors().len())
}

/// Describes an input or output: inputs come first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_io(
    engine: *const kiln_engine_t,
    index: usize,
    io: *mut kiln_io_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe { io::describe(handle::shared(engine, "engine")?.engine.io_tensors(), index, io) }
    })
}

/// Number of optimization profiles; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_profile_count(engine: *const kiln_engine_t) -> usize {
    // SAFETY: an engine of this library, or NULL.
    unsafe { engine.as_ref() }.map_or(0, |e| e.engine.profiles().len())
}

/// The least of a profile.
pub const KILN_PROFILE_MIN: i32 = 0;
/// The usual one of a profile, which kernels are chosen for.
pub const KILN_PROFILE_OPT: i32 = 1;
/// The greatest of a profile.
pub const KILN_PROFILE_MAX: i32 = 2;

/// Writes the shape of an input in a profile: KILN_PROFILE_MIN, KILN_PROFILE_OPT or KILN_PROFILE_MAX. `ndim` holds the room of
/// `dims` before the call, and the number of dimensions after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_profile_shape(
    engine: *const kiln_engine_t,
    profile: usize,
    input: *const c_char,
    input_length: usize,
    which: i32,
    dims: *mut i64,
    ndim: *mut usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (e, input) =
            unsafe { (handle::shared(engine, "engine")?, text::string(input, input_length, "input")?) };
        let numbers = range(e.engine.profiles(), profile, input, which, |p| &p.shapes)?;
        // SAFETY: as above.
        unsafe { shape::write(&numbers, dims, ndim, "the shape") }
    })
}

/// Writes the elements of a shape input in a profile, as kiln_engine_profile_shape does shapes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_profile_values(
    engine: *const kiln_engine_t,
    profile: usize,
    input: *const c_char,
    input_length: usize,
    which: i32,
    values: *mut i64,
    count: *mut usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (e, input) =
            unsafe { (handle::shared(engine, "engine")?, text::string(input, input_length, "input")?) };
        let numbers = range(e.engine.profiles(), profile, input, which, |p| &p.values)?;
        // SAFETY: as above.
        unsafe { shape::write(&numbers, values, count, "the input") }
    })
}

fn range(
    profiles: &[Profile],
    profile: usize,
    input: &str,
    which: i32,
    of: impl Fn(&Profile) -> &std::collections::BTreeMap<String, kiln::Range>,
) -> Result<Vec<i64>, Fail> {
    let count = profiles.len();
    let p = profiles.get(profile);
    let p =
        p.ok_or_else(|| Fail::argument(format!("there is no profile {profile}; the engine has {count}")))?;
    let r = of(p).get(input).ok_or_else(|| {
        let known: Vec<&str> = of(p).keys().map(String::as_str).collect();
        Fail::argument(format!(
            "profile {profile} has nothing of an input \"{input}\"; it has {}",
            known.join(", ")
        ))
    })?;
    match which {
        KILN_PROFILE_MIN => Ok(r.min.clone()),
        KILN_PROFILE_OPT => Ok(r.opt.clone()),
        KILN_PROFILE_MAX => Ok(r.max.clone()),
        other => Err(Fail::argument(format!(
            "which is {other}, wanted KILN_PROFILE_MIN, KILN_PROFILE_OPT or KILN_PROFILE_MAX"
        ))),
    }
}

/// Describes the engine as JSON: name, target, inputs, outputs, profiles, debug tensors, absent weights, bytes of weights and contexts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_describe(
    engine: *const kiln_engine_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, e) = unsafe { (Out::new(json, "json")?, handle::shared(engine, "engine")?) };
        let mut value = json::header(&e.engine.plan().header);
        value["target"] = json::target(e.engine.target());
        value["weights_size"] = object!(e.engine.weights_size());
        value["stripped_weights_size"] = object!(e.engine.stripped_weights_size());
        value["streamable_weights"] = object!(e.engine.streamable_weights());
        value["least_weight_budget"] = object!(e.engine.least_weight_budget());
        value["weight_budget"] = object!(e.engine.weight_budget());
        value["debug_tensors"] = object!(e.engine.debug_tensors());
        out.put(value.into());
        Ok(())
    })
}

/// Describes the layers as JSON, with TensorRT's keys, in the detail that the plan stores.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_inspect(
    engine: *const kiln_engine_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, e) = unsafe { (Out::new(json, "json")?, handle::shared(engine, "engine")?) };
        out.put(e.engine.inspector().to_json().into());
        Ok(())
    })
}

/// Writes the engine as a plan, with the weights in use now: after a refit it is that of the refitted engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_plan(
    engine: *const kiln_engine_t,
    plan: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, e) = unsafe { (Out::new(plan, "plan")?, handle::shared(engine, "engine")?) };
        out.put(e.engine.plan().write()?.into());
        Ok(())
    })
}

/// Reports errors of the engine, its refits and contexts made from now on to a function, beside returning them. NULL ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_set_error_recorder(
    engine: *mut kiln_engine_t,
    function: kiln_error_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let recorder = recorder(function, user, destroy);
        // SAFETY: pointers as the header wants them.
        unsafe { handle::shared(engine, "engine") }?.engine.set_error_recorder(recorder);
        Ok(())
    })
}

/// Keeps at most so many bytes of weights on the device at a time; 0: all of them, as at first. Others are copied there in each run.
/// kiln_engine_describe has the least budget. Backends whose weights are in host memory refuse budgets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_set_weight_budget(
    engine: *mut kiln_engine_t,
    bytes: u64,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let e = unsafe { handle::shared(engine, "engine") }?;
        Ok(e.engine.set_weight_budget((bytes != 0).then_some(bytes))?)
    })
}
