//! Runs of fused nodes.

use crate::abi::{ComputeInfo, VERSION};
use crate::compiled::{Built, Given, Part};
use crate::device::{self, Device};
use crate::error::{Fail, quietly};
use crate::ort::{Ort, guard};
use crate::values::{View, deliver};
use kiln::{IoMode, IoTensor, Tensor};
use ort_sys::{OrtKernelContext, OrtStatusPtr, OrtValue};
use std::ffi::c_void;
use std::sync::Arc;

/// A fused node. ONNX Runtime sees its first field.
#[repr(C)]
pub struct Node {
    info: ComputeInfo,
    pub ort: Ort,
    pub part: Part,
    /// The device whose memory holds inputs and outputs; `None` for host memory.
    device: Option<&'static Device>,
}

impl Node {
    /// A node for a part.
    pub fn new(ort: Ort, part: Part, device: Option<&'static Device>) -> Node {
        let info = ComputeInfo { version: VERSION, create_state, compute, release_state };
        Node { info, ort, part, device }
    }

    /// Hands it to ONNX Runtime.
    pub fn into_raw(self) -> *mut ComputeInfo {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Frees what `into_raw` made.
    ///
    /// # Safety
    /// NULL, or such a pointer that nobody uses any more.
    pub unsafe fn free(info: *mut ComputeInfo) {
        if !info.is_null() {
            // SAFETY: as the caller vouches.
            quietly(|| drop(unsafe { Box::from_raw(info.cast::<Node>()) }));
        }
    }
}

unsafe extern "C" fn create_state(
    info: *mut ComputeInfo,
    _: *mut c_void,
    state: *mut *mut c_void,
) -> OrtStatusPtr {
    // SAFETY: a place for a pointer. The node itself is all that a run needs.
    unsafe { state.write(info.cast()) };
    OrtStatusPtr::default()
}

unsafe extern "C" fn release_state(_: *mut ComputeInfo, _: *mut c_void) {}

unsafe extern "C" fn compute(
    info: *mut ComputeInfo,
    _: *mut c_void,
    context: *mut OrtKernelContext,
) -> OrtStatusPtr {
    // SAFETY: the node that `into_raw` handed over; any number of threads may run it.
    let node = unsafe { &*info.cast::<Node>() };
    // SAFETY: the run's context.
    guard(&node.ort, || unsafe {
        match node.device {
            Some(device) => device::run(node, context, device),
            None => run(node, context),
        }
    })
}

/// Reads the tensors of all inputs; `None` for those that are absent.
///
/// # Safety
/// The context is that of the run.
pub unsafe fn read_inputs(
    ort: &Ort,
    part: &Part,
    context: *mut OrtKernelContext,
    read: unsafe fn(&Ort, *const OrtValue) -> Result<View, Fail>,
) -> Result<Vec<Option<View>>, Fail> {
    let mut views = Vec::with_capacity(part.inputs.len());
    for i in 0..part.inputs.len() {
        let mut value = std::ptr::null();
        // SAFETY: the run's context, and values that live as long as the run.
        unsafe {
            ort.check((ort.api.KernelContext_GetInput)(context, i, &raw mut value))?;
            views.push(if value.is_null() { None } else { Some(read(ort, value)?) });
        }
    }
    Ok(views)
}

/// The inputs of an engine, each with its tensor.
pub fn inputs_of<'a>(
    built: &'a Built,
    part: &'a Part,
    views: &'a [Option<View>],
) -> impl Iterator<Item = Result<(&'a IoTensor, &'a View), Fail>> {
    let inputs = built.engine.io_tensors().iter().filter(|t| t.mode == IoMode::Input);
    inputs.map(|t| {
        let view = part.inputs.iter().position(|n| *n == t.name).and_then(|i| views[i].as_ref());
        Ok((t, view.ok_or_else(|| Fail::new(format!("input \"{}\" is missing", t.name)))?))
    })
}

unsafe fn run(node: &Node, context: *mut OrtKernelContext) -> Result<(), Fail> {
    let (ort, part) = (&node.ort, &node.part);
    // SAFETY: the run's context.
    let views = unsafe { read_inputs(ort, part, context, View::of) }?;
    let built = engine(part, &views)?;
    let mut inputs: Vec<(&str, Tensor)> = Vec::with_capacity(part.inputs.len());
    for input in inputs_of(&built, part, &views) {
        let (t, view) = input?;
        // SAFETY: values live as long as the run, and the context forgets them behind it.
        inputs.push((t.name.as_str(), unsafe { view.tensor(&t.name, t.dtype) }?));
    }
    let mut run = built.take()?;
    let outputs = run.run(&inputs);
    run.clear_inputs();
    let outputs = outputs?;
    built.put(run);
    for (i, name) in part.outputs.iter().enumerate() {
        // SAFETY: the run's context.
        unsafe { deliver(ort, context, i, name, outputs.get(name)?) }?;
    }
    Ok(())
}

/// The engine for these inputs.
pub fn engine(part: &Part, views: &[Option<View>]) -> Result<Arc<Built>, Fail> {
    let ranks =
        part.inputs.iter().zip(views).filter_map(|(n, v)| Some((n.as_str(), v.as_ref()?.shape.len())));
    let ranks: Vec<(&str, usize)> = ranks.collect();
    let state = part.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let shape_inputs: Vec<String> = match &state.built {
        Some(built) if part.is_fixed(built) && Part::has_ranks(built, &ranks) => return Ok(built.clone()),
        Some(built) => {
            built.engine.io_tensors().iter().filter(|t| t.is_shape_input).map(|t| t.name.clone()).collect()
        }
        None => part.shape_inputs.clone(),
    };
    drop(state);
    let mut given = Vec::with_capacity(views.len());
    for (name, view) in part.inputs.iter().zip(views) {
        let Some(view) = view else { continue };
        let values = match shape_inputs.contains(name) {
            // SAFETY: the value lives as long as the run.
            true => unsafe { view.integers() },
            false => None,
        };
        given.push(Given { name: name.clone(), shape: view.shape.clone(), values });
    }
    part.engine(&given)
}
