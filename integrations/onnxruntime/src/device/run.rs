//! Runs whose inputs and outputs are in device memory.

use super::driver::Device;
use crate::compiled::Part;
use crate::error::Fail;
use crate::ort::Ort;
use crate::run::{Node, engine, inputs_of, read_inputs};
use crate::values::{self, View, elements, same};
use kiln::ExecutionContext;
use ort_sys::OrtKernelContext;

/// Runs a node. Tensors of the device are bound where they are; those whose elements the host must know, or whose type is none of
/// Kiln's, are copied.
///
/// # Safety
/// The context is that of the run.
pub unsafe fn run(node: &Node, context: *mut OrtKernelContext, device: &'static Device) -> Result<(), Fail> {
    let (ort, part) = (&node.ort, &node.part);
    // SAFETY: as the caller vouches.
    let mut views = unsafe { read_inputs(ort, part, context, View::anywhere) }?;
    let needed = on_host(part);
    let mut fetched = Vec::new();
    for (name, view) in part.inputs.iter().zip(&mut views) {
        if let Some(view) =
            view.as_mut().filter(|v| v.on_device && (needed.contains(name) || same(v.elem).is_none()))
        {
            let mut bytes = vec![0; view.bytes];
            // SAFETY: the tensor has so many bytes, and what wrote them is done: this provider waits for its runs and copies.
            unsafe { device.read(&mut bytes, view.data as u64) }?;
            view.data = bytes.as_mut_ptr().cast();
            view.on_device = false;
            fetched.push(bytes);
        }
    }
    let built = engine(part, &views)?;
    let mut run = built.take()?;
    let mut bound = Vec::new();
    for input in inputs_of(&built, part, &views) {
        let (t, view) = input?;
        if view.on_device && same(view.elem) == Some(t.dtype) && view.bytes > 0 {
            let shape: Vec<usize> = view.shape.iter().map(|&d| d as usize).collect();
            run.set_input_shape(&t.name, &shape)?;
            // SAFETY: the tensor lives as long as the run, and is unbound behind it.
            unsafe { run.bind(&t.name, view.data, view.bytes as u64) }?;
            bound.push(t.name.clone());
            continue;
        }
        if view.on_device && view.bytes > 0 {
            return Err(Fail::new(format!(
                "input \"{}\" of type {} is not one of {}",
                t.name, view.elem, t.dtype
            )));
        }
        // SAFETY: as above.
        run.set_input(&t.name, unsafe { view.tensor(&t.name, t.dtype) }?)?;
    }
    // SAFETY: as the caller vouches.
    let done = unsafe { outputs(ort, part, context, device, &mut run, &mut bound) };
    for name in &bound {
        // SAFETY: null takes the caller's memory away.
        unsafe { run.bind(name, std::ptr::null_mut(), 0) }?;
    }
    run.clear_inputs();
    done?;
    built.put(run);
    Ok(())
}

/// Inputs whose elements the host must know.
fn on_host(part: &Part) -> Vec<String> {
    let mut needed = part.shape_inputs.clone();
    let state = part.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(built) = &state.built {
        let io = built.engine.io_tensors().iter();
        needed.extend(io.filter(|t| t.is_shape_input).map(|t| t.name.clone()));
    }
    needed
}

/// Binds outputs whose size is known, runs, and copies the others.
///
/// # Safety
/// The context is that of the run.
unsafe fn outputs(
    ort: &Ort,
    part: &Part,
    context: *mut OrtKernelContext,
    device: &'static Device,
    run: &mut ExecutionContext,
    bound: &mut Vec<String>,
) -> Result<(), Fail> {
    let mut rest = Vec::new();
    let types = run.infer_shapes()?;
    for (i, name) in part.outputs.iter().enumerate() {
        let known = types.iter().find(|(n, _)| n == name).map(|(_, t)| t);
        let known = known.ok_or_else(|| Fail::new(format!("the engine has no output \"{name}\"")))?;
        let Some(dims) = known.static_dims() else {
            rest.push((i, name));
            continue;
        };
        // SAFETY: as the caller vouches.
        let Some(to) = (unsafe { output(ort, context, i, &dims) })? else { continue };
        if to.on_device && same(to.elem) == Some(known.dtype) && to.bytes > 0 {
            // SAFETY: the tensor lives as long as the run, and is unbound behind it.
            unsafe { run.bind(name, to.data, to.bytes as u64) }?;
            bound.push(name.clone());
        } else {
            rest.push((i, name));
        }
    }
    run.enqueue()?;
    if rest.is_empty() {
        return Ok(run.wait()?);
    }
    let found = run.outputs()?;
    for (i, name) in rest {
        let tensor = found.get(name)?;
        // SAFETY: as the caller vouches.
        let Some(to) = (unsafe { output(ort, context, i, tensor.shape()) })? else { continue };
        let bytes = elements(name, tensor, &to)?;
        match to.on_device {
            // SAFETY: the tensor has so many bytes.
            true => unsafe { device.write(to.data as u64, &bytes) }?,
            // SAFETY: as above.
            false => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.data.cast(), bytes.len()) },
        }
    }
    Ok(())
}

/// The tensor of an output; `None` if nobody wants it.
///
/// # Safety
/// The context is that of the run.
unsafe fn output(
    ort: &Ort,
    context: *mut OrtKernelContext,
    index: usize,
    dims: &[usize],
) -> Result<Option<View>, Fail> {
    // SAFETY: the run's context, and the value of its output.
    unsafe {
        let value = values::output(ort, context, index, dims)?;
        if value.is_null() { Ok(None) } else { View::anywhere(ort, value).map(Some) }
    }
}
