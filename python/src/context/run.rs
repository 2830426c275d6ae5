//! One run from inputs to outputs.

use super::core::{Core, Lent};
use crate::errors::{Failed, argument, in_use};
use crate::scope::{detached, lock, try_lock};
use crate::tensor::{Stream, Tensor, View, view};
use kiln::{Engine, ExecutionContext, IoMode, IoTensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use std::ffi::c_void;

/// Alignment of memory on a device.
const DEVICE_ALIGNMENT: usize = 16;
/// Handle of the default stream of CUDA.
const DEFAULT_STREAM: u64 = 1;

/// Tensors by name.
type Named = Vec<(String, View)>;

fn views(given: &Bound<'_, PyAny>, stream: Stream) -> PyResult<Named> {
    if let Ok(dict) = given.cast::<PyDict>() {
        return dict.iter().map(|(name, data)| Ok((name.extract()?, view(&data, stream)?))).collect();
    }
    let items = given.cast::<PyMapping>()?.items()?;
    items
        .iter()
        .map(|item| item.extract::<(String, Bound<'_, PyAny>)>())
        .map(|pair| {
            let (name, data) = pair?;
            Ok((name, view(&data, stream)?))
        })
        .collect()
}

/// Runs once, with all inputs by name. Outputs in `out` are written there.
pub fn run<'py>(
    py: Python<'py>,
    core: &Core,
    inputs: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
    stream: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut guard = try_lock(&core.context).ok_or_else(|| in_use("the execution context"))?;
    let context = &mut *guard;
    let asked = Stream(Some(stream.unwrap_or(DEFAULT_STREAM)));
    let given = views(inputs, asked)?;
    let wanted = out.map(|out| views(out, asked)).transpose()?.unwrap_or_default();
    lock(&core.shapes).clear();
    let engine = &core.engine;
    let mut lent = lock(&core.lent);
    let lent = &mut *lent;
    let results = detached(py, || {
        Run { engine, context: &mut *context, lent: &mut *lent }.whole(given, &wanted, stream)
    });
    // Here, as buffers of Python are given back with the interpreter's lock, which would be taken and left for each one.
    context.clear_inputs();
    let results = results?;
    let all = PyDict::new(py);
    for (name, result) in results {
        match (result, out) {
            (Some(tensor), _) => all.set_item(name, Bound::new(py, tensor)?)?,
            (None, Some(out)) => all.set_item(&name, out.get_item(&name)?)?,
            (None, None) => {}
        }
    }
    Ok(all)
}

/// A run, and the stream and memory that are set for it and for runs like it.
struct Run<'a> {
    engine: &'a Engine,
    context: &'a mut ExecutionContext,
    lent: &'a mut Lent,
}

impl Run<'_> {
    /// Runs with stream and memory of this run, which stay set. After an error they are taken back.
    fn whole(
        mut self,
        given: Named,
        wanted: &Named,
        stream: Option<u64>,
    ) -> Result<Vec<(String, Option<Tensor>)>, Failed> {
        let devices = given.iter().chain(wanted).any(|(_, v)| !v.device.is_host());
        let stream = stream.or(devices.then_some(DEFAULT_STREAM));
        let result = self.set(&given, wanted, stream).and_then(|()| self.once(given, wanted));
        if result.is_err() {
            self.lent.end(self.context)?;
        }
        result
    }

    /// Sets the stream if it is another one, and takes back memory of tensors that this run has elsewhere.
    fn set(&mut self, given: &Named, wanted: &Named, stream: Option<u64>) -> Result<(), Failed> {
        let on_device =
            |name: &str| given.iter().chain(wanted).any(|(n, v)| n == name && !v.device.is_host());
        let stale: Vec<String> = self.lent.bound.keys().filter(|n| !on_device(n)).cloned().collect();
        for name in stale {
            // SAFETY: null ends a binding.
            unsafe { self.context.bind(&name, std::ptr::null_mut(), 0) }?;
            self.lent.bound.remove(&name);
        }
        if stream != self.lent.stream {
            let handle = stream.unwrap_or_default() as usize as *mut c_void;
            // SAFETY: the caller vouches for the stream until the run is done; null is the context's own.
            unsafe { self.context.set_stream(handle) }?;
            self.lent.stream = stream;
        }
        Ok(())
    }

    /// Binds memory of the caller's, unless it is bound from a run before.
    fn bind(&mut self, name: &str, view: &View, bytes: u64) -> Result<(), Failed> {
        let place = (view.address, bytes);
        if self.lent.bound.get(name) != Some(&place) {
            // SAFETY: the caller's tensor has these bytes, which nothing else uses during the run.
            unsafe { self.context.bind(name, view.address as *mut c_void, bytes) }?;
            self.lent.bound.insert(name.to_owned(), place);
        }
        Ok(())
    }

    fn once(&mut self, given: Named, wanted: &Named) -> Result<Vec<(String, Option<Tensor>)>, Failed> {
        self.context.clear_inputs();
        // Memory of devices is kept until the run is done.
        let mut kept = Vec::new();
        for (name, view) in given {
            if view.device.is_host() {
                self.context.set_input(&name, view.into_tensor()?)?;
            } else {
                self.bind_input(&name, &view)?;
                kept.push(view);
            }
        }
        if !wanted.is_empty() {
            self.check_outputs(wanted)?;
        }
        let on_device = wanted.iter().filter(|(_, v)| !v.device.is_host()).count();
        self.context.enqueue()?;
        let outputs = self.engine.io_tensors().iter().filter(|t| t.mode == IoMode::Output);
        if on_device > 0 && on_device == outputs.clone().count() {
            self.context.wait()?;
            return Ok(outputs.map(|t| (t.name.clone(), None)).collect());
        }
        let results = self.context.outputs()?.into_vec();
        results
            .into_iter()
            .map(|(name, result)| {
                let target = wanted.iter().find(|(n, _)| *n == name).map(|(_, v)| v);
                let Some(target) = target else { return Ok((name, Some(Tensor::copied(&result)))) };
                if target.device.is_host() {
                    check_like(&name, target, result.dtype(), result.shape())?;
                    target.fill(result.bytes())?;
                }
                Ok((name, None))
            })
            .collect()
    }

    /// Refuses outputs that are not the engine's, and binds those on a device.
    fn check_outputs(&mut self, wanted: &Named) -> Result<(), Failed> {
        let shapes = self.context.infer_shapes()?;
        for (name, target) in wanted {
            let found = shapes.iter().find(|(n, _)| n == name);
            let (_, ty) = found.ok_or_else(|| {
                let known: Vec<&str> = shapes.iter().map(|(n, _)| n.as_str()).collect();
                argument(format!("out has \"{name}\", which is no output; there are {}", known.join(", ")))
            })?;
            if target.readonly {
                return Err(argument(format!("out \"{name}\" is read-only")).into());
            }
            if let Some(shape) = ty.static_dims() {
                check_like(name, target, ty.dtype, &shape)?;
            }
            if !target.device.is_host() {
                let io = self.engine.io_tensor(name)?.clone();
                let bytes = self.check_device(&io, target)?;
                self.bind(name, target, bytes)?;
            }
        }
        Ok(())
    }

    fn bind_input(&mut self, name: &str, view: &View) -> Result<(), Failed> {
        let io = self.engine.io_tensor(name)?.clone();
        if view.dtype != io.dtype {
            let (name, found, wanted) = (name.to_owned(), view.dtype, io.dtype);
            return Err(kiln::RuntimeError::DType { name, found, wanted }.into());
        }
        self.context.set_input_shape(name, &view.shape)?;
        let bytes = self.check_device(&io, view)?;
        self.bind(name, view, bytes)
    }

    /// Refuses memory of a device that the engine cannot use where it is; returns its bytes.
    fn check_device(&mut self, io: &IoTensor, view: &View) -> Result<u64, Failed> {
        let (name, device) = (&io.name, view.device.name());
        let wrong = |why: &str| Failed::from(argument(format!("\"{name}\" is on {device}: {why}")));
        if !view.device.is_cuda() || !self.context.takes_device_memory() {
            let backend = self.engine.backend();
            return Err(wrong(&format!(
                "the backend {backend} takes tensors in host memory, so copy it there"
            )));
        }
        if !view.is_dense() {
            return Err(wrong("its elements do not follow each other; pass x.contiguous()"));
        }
        if !view.address.is_multiple_of(DEVICE_ALIGNMENT) {
            return Err(wrong("its address is no multiple of 16; pass x.clone()"));
        }
        if !io.packing.is_linear() {
            return Err(wrong(
                "the engine wants it in another format than the linear one; bind its memory by address",
            ));
        }
        Ok(view.bytes()? as u64)
    }
}

/// Refuses memory of another type or shape than the output's.
fn check_like(name: &str, view: &View, dtype: kiln::DType, shape: &[usize]) -> Result<(), Failed> {
    if view.dtype == dtype && view.shape == shape {
        return Ok(());
    }
    let (found, dims) = (view.dtype, &view.shape);
    Err(argument(format!("out \"{name}\" is {found}{dims:?}, the output {dtype}{shape:?}")).into())
}
