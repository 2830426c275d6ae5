//! Runs: inputs, shapes, memory that is bound, start and end.

use crate::bytes::kiln_bytes_t;
use crate::context::{Run, kiln_context_t, with};
use crate::dlpack::{CUDA, CUDA_MANAGED, DLManagedTensorVersioned, DLTensor};
use crate::error::{Fail, guard, kiln_error_t};
use crate::handle::{self, Out};
use crate::tensor::{Given, Owned};
use crate::{json, shape, text};
use kiln::{IoMode, IoTensor, RuntimeError};
use serde_json::json as object;
use std::ffi::{c_char, c_void};

/// The backend whose memory is that of CUDA devices; others take host memory.
const ON_CUDA: &str = "cuda";

/// Sets an input, which is copied; it stays set for the following runs. The tensor is in host memory, with any strides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_input(
    context: *mut kiln_context_t,
    name: *const c_char,
    name_length: usize,
    tensor: *const DLTensor,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (name, tensor) = unsafe {
            let name = text::string(name, name_length, "name")?;
            (name, Given::read(tensor, name)?.copy(name)?)
        };
        // SAFETY: as above.
        unsafe { with(context, |run| Ok(run.context.set_input(name, tensor)?)) }
    })
}

/// Sets an input, which the library takes over: its deleter is called when it is needed no longer, or at once if the call fails.
/// Memory that is dense and aligned to 16 bytes is used in place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_give_input(
    context: *mut kiln_context_t,
    name: *const c_char,
    name_length: usize,
    tensor: *mut DLManagedTensorVersioned,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let owned = unsafe { Owned::take(tensor, "the input") }?;
        // SAFETY: as above.
        let (name, tensor) = unsafe {
            let name = text::string(name, name_length, "name")?;
            (name, owned.tensor(name)?)
        };
        // SAFETY: as above.
        unsafe { with(context, |run| Ok(run.context.set_input(name, tensor)?)) }
    })
}

/// Sets an input from its memory, in the format of the input: as many bytes as that has for these dimensions. They are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_packed_input(
    context: *mut kiln_context_t,
    name: *const c_char,
    name_length: usize,
    dims: *const i64,
    ndim: usize,
    data: *const c_void,
    size: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (name, dims, bytes) = unsafe {
            let name = text::string(name, name_length, "name")?;
            (name, shape::sizes(dims, ndim, "the shape")?, text::blob(data, size, "data")?)
        };
        // SAFETY: as above.
        unsafe { with(context, |run| Ok(run.context.set_packed_input(name, &dims, bytes.to_vec())?)) }
    })
}

/// Sets the shape of an input, to ask for shapes of outputs before there are elements. Elements of another shape are forgotten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_input_shape(
    context: *mut kiln_context_t,
    name: *const c_char,
    name_length: usize,
    dims: *const i64,
    ndim: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (name, dims) =
            unsafe { (text::string(name, name_length, "name")?, shape::sizes(dims, ndim, "the shape")?) };
        // SAFETY: as above.
        unsafe { with(context, |run| Ok(run.context.set_input_shape(name, &dims)?)) }
    })
}

/// Forgets all inputs and shapes; memory that is bound stays bound.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_clear_inputs(context: *mut kiln_context_t) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(context, |run| {
                run.context.clear_inputs();
                Ok(())
            })
        }
    })
}

/// Lists as JSON the inputs whose shape, or of shape inputs whose elements, must still be set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_missing_inputs(
    context: *mut kiln_context_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(json, "json")?;
            out.put(with(context, |run| Ok(object!(run.context.underspecified())))?.into());
        }
        Ok(())
    })
}

/// Writes the shape that an output will have with the shapes that are set; -1 where the run determines a dimension. `ndim` holds
/// the room of `dims` before the call, and the number of dimensions after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_infer_shape(
    context: *mut kiln_context_t,
    output: *const c_char,
    output_length: usize,
    dims: *mut i64,
    ndim: *mut usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(output, output_length, "output")?;
            let found = with(context, |run| {
                let all = run.context.infer_shapes()?;
                let found = all.into_iter().find(|(n, _)| n == name);
                found.map(|(_, ty)| ty).ok_or_else(|| unknown(run, IoMode::Output, name))
            })?;
            let numbers: Vec<i64> = found.dims.iter().map(|d| d.as_const().unwrap_or(-1)).collect();
            shape::write(&numbers, dims, ndim, "the shape")
        }
    })
}

/// Sets `bytes` to the most bytes that an output can have with the shapes that are set, or with any of the profile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_max_output_size(
    context: *mut kiln_context_t,
    output: *const c_char,
    output_length: usize,
    bytes: *mut u64,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let bytes = handle::place(bytes, "bytes")?;
            let name = text::string(output, output_length, "output")?;
            *bytes = with(context, |run| Ok(run.context.max_output_size(name)?))?;
        }
        Ok(())
    })
}

fn unknown(run: &Run, mode: IoMode, name: &str) -> Fail {
    let io = run.engine.io_tensors().iter().filter(|t| t.mode == mode);
    let known: Vec<&str> = io.map(|t| t.name.as_str()).collect();
    let mode = if mode == IoMode::Input { "input" } else { "output" };
    RuntimeError::UnknownTensor { name: name.to_owned(), mode, known: known.join(", ") }.into()
}

/// Lets further runs use the caller's memory for an input or output, until another is bound: NULL ends it. The struct itself is
/// only read during the call.
///
/// The memory is dense. With the backend cuda it is memory of the device, aligned to 16 bytes; with others it is host memory. An
/// input is read when a run is started; its shape is the input's. An output is written when the run is waited for, or by the device
/// on CUDA; its shape only says how much room there is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_bind(
    context: *mut kiln_context_t,
    name: *const c_char,
    name_length: usize,
    tensor: *const DLTensor,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (name, given) = unsafe {
            let name = text::string(name, name_length, "name")?;
            (name, if tensor.is_null() { None } else { Some(Given::read(tensor, name)?) })
        };
        // SAFETY: as above.
        unsafe { with(context, |run| bind(run, name, given)) }
    })
}

/// Binds memory that `given` describes.
///
/// # Safety
/// The caller vouched for the memory.
unsafe fn bind(run: &mut Run, name: &str, given: Option<Given>) -> Result<(), Fail> {
    let engine = run.engine.clone();
    // The runtime takes the output where an input has the same name.
    let t = engine.io_tensors().iter().rev().find(|t| t.name == name);
    let t = t.ok_or_else(|| unknown(run, IoMode::Input, name))?;
    let output = t.mode == IoMode::Output;
    run.on_device.retain(|n| !output || n != name);
    let Some(given) = given else {
        // SAFETY: NULL ends a binding.
        return Ok(unsafe { run.context.bind(name, std::ptr::null_mut(), 0) }?);
    };
    check_memory(t, &given, engine.backend() == ON_CUDA)?;
    if given.data.is_null() {
        return Err(Fail::argument(format!(
            "the tensor for \"{name}\" has no memory to bind: set the input, or give room"
        )));
    }
    if !output {
        run.context.set_input_shape(name, &given.shape)?;
    }
    // SAFETY: the caller vouched for as many bytes.
    unsafe { run.context.bind(name, given.data, given.bytes as u64) }?;
    if output && engine.backend() == ON_CUDA {
        run.on_device.push(name.to_owned());
    }
    Ok(())
}

/// Whether memory can be bound to an input or output.
fn check_memory(t: &IoTensor, given: &Given, cuda: bool) -> Result<(), Fail> {
    let name = &t.name;
    if given.dtype != t.dtype {
        return Err(RuntimeError::DType { name: name.clone(), found: given.dtype, wanted: t.dtype }.into());
    }
    if !given.is_dense() {
        return Err(Fail::argument(format!(
            "the tensor for \"{name}\" has strides, wanted dense memory to bind"
        )));
    }
    let kind = given.device.device_type;
    if cuda && ![CUDA, CUDA_MANAGED].contains(&kind) {
        return Err(Fail::argument(format!(
            "the tensor for \"{name}\" is on a device of type {kind}, wanted memory of the CUDA device (type {CUDA}): set inputs by \
             kiln_context_set_input, read outputs by kiln_context_output"
        )));
    }
    if !cuda { given.on_host(name) } else { Ok(()) }
}

/// Starts a run with the inputs set or bound; everything about them is checked before. `stream` is one of the caller's that the
/// run goes into, a CUstream with the backend cuda; NULL: the context's own. The outputs of the run before are forgotten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_enqueue(
    context: *mut kiln_context_t,
    stream: *mut c_void,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    guard(|| unsafe { with(context, |run| enqueue(run, stream)) })
}

unsafe fn enqueue(run: &mut Run, stream: *mut c_void) -> Result<(), Fail> {
    run.outputs.clear();
    if stream != run.stream {
        // SAFETY: the caller vouches for the stream.
        unsafe { run.context.set_stream(stream) }?;
        run.stream = stream;
    }
    run.started = false;
    run.context.enqueue()?;
    run.started = true;
    Ok(())
}

/// Puts layers of further runs that are in auxiliary streams of the engine into `count` streams of the caller's, CUstreams with the backend
/// cuda: those of the first auxiliary stream into the first. Where there are fewer, the rest are in streams of the backend's own. Each run
/// begins behind the work of its main stream, which ends behind all others. Such runs are launched kernel by kernel, not as one graph. A
/// `count` of 0: no streams of the caller's. Backends without streams refuse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_aux_streams(
    context: *mut kiln_context_t,
    streams: *const *mut c_void,
    count: usize,
) -> *mut kiln_error_t {
    guard(|| {
        if streams.is_null() && count > 0 {
            return Err(Fail::argument(format!("streams is NULL, and count is {count}")));
        }
        let all = match count {
            0 => &[],
            // SAFETY: the caller has so many.
            _ => unsafe { std::slice::from_raw_parts(streams, count) },
        };
        // SAFETY: pointers as the header wants them; the caller vouches for the streams.
        unsafe { with(context, |run| Ok(run.context.set_aux_streams(all)?)) }
    })
}

/// Waits for the run that was started. Outputs are in memory that was bound, and kiln_context_output returns them. Without a run
/// it returns at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_wait(context: *mut kiln_context_t) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    guard(|| unsafe { with(context, wait) })
}

fn wait(run: &mut Run) -> Result<(), Fail> {
    if !std::mem::take(&mut run.started) {
        return Ok(());
    }
    let outputs = run.engine.io_tensors().iter().filter(|t| t.mode == IoMode::Output);
    let mut copied = outputs.filter(|t| !run.on_device.contains(&t.name));
    if copied.next().is_none() {
        return Ok(run.context.wait()?);
    }
    let outputs = if run.packed { run.context.packed_outputs() } else { run.context.outputs() };
    run.outputs = outputs?.into_vec();
    Ok(())
}

/// Runs once: kiln_context_enqueue with the context's own stream, or the one that was set, and kiln_context_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_run(context: *mut kiln_context_t) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(context, |run| {
                enqueue(run, run.stream)?;
                wait(run)
            })
        }
    })
}

/// Lists as JSON the time of each layer in the last run, in nanoseconds; layers are timed from the first call on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_layer_times(
    context: *mut kiln_context_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(json, "json")?;
            let times = with(context, |run| Ok(run.context.layer_times()?))?;
            let one = |t: &kiln::LayerTime| object!({"name": t.name, "tactic": t.tactic, "runs": t.runs, "inside": t.inside, "ns": t.ns});
            out.put(times.iter().map(one).collect::<serde_json::Value>().into());
        }
        Ok(())
    })
}

/// Lists as JSON the layers at which the last run waited for the host, and why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_host_layers(
    context: *mut kiln_context_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(json, "json")?;
            out.put(json::host_layers(&with(context, |run| Ok(run.context.host_layers()?))?).into());
        }
        Ok(())
    })
}

/// Describes the layers at the shapes that are set, as kiln_engine_inspect does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_inspect(
    context: *mut kiln_context_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(json, "json")?;
            out.put(with(context, |run| Ok(run.context.inspector()?))?.to_json().into());
        }
        Ok(())
    })
}
