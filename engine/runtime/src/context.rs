//! Execution contexts: one run at a time, inputs and outputs by name.

pub(crate) mod cost;
pub(crate) mod debug;
mod delivery;
mod gone;
mod host_memory;
pub(crate) mod layers;
mod memory_size;
mod native_settings;
mod on_device;
pub(crate) mod output_allocator;
mod output_size;
mod packed;

use self::debug::Debugging;
use self::gone::Gone;
use self::host_memory::HostMemory;
use self::native_settings::NativeSettings;
use self::output_allocator::OutputAllocators;
use crate::cancel::Control;
use crate::engine::{Engine, Loaded, Shared, unknown};
use crate::formats::{format_error, logical_type, unpacked};
use crate::recording::Recorder;
use crate::selection::{RuntimeInput, check, select};
use crate::shapes::{check_shape, check_symbols};
use crate::{Canceller, IoTensor, Outputs, RuntimeError};
use kiln_backend::process::check_process;
use kiln_backend::process::is_forked;
use kiln_backend::{BackendError, Context, Counters, Shapes, stop};
use kiln_ir::format::pack;
use kiln_ir::{Source, Tensor, TensorType, ValueId};
use kiln_plan::{LayerTable, ProfileError, elements};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Runs an engine. Made by [`Engine::create_context`]; may move between threads.
pub struct ExecutionContext {
    engine: Arc<Shared>,
    loaded: Arc<Loaded>,
    context: Box<dyn Context>,
    slots: Vec<Slot>,
    profile: Option<usize>,
    observable: bool,
    counters: RunCounters,
    in_flight: bool,
    control: Arc<Control>,
    limit: Option<Duration>,
    /// Whether each input is in the caller's memory.
    bound: Vec<bool>,
    native: NativeSettings,
    host: HostMemory,
    /// Whether the backend's addresses are those of a device, once that was asked.
    device_memory: Option<bool>,
    /// Whether activations are in memory of the context's own.
    own_memory: bool,
    allocators: OutputAllocators,
    /// Results of a run that `wait` found done, in the order of the outputs, until they are taken.
    results: Option<Vec<Tensor>>,
    debugging: Debugging,
    pub(crate) recorder: Recorder,
}

/// Settings of one input.
#[derive(Clone, Default)]
struct Slot {
    /// Dimensions.
    shape: Option<Vec<usize>>,
    /// Elements in the order of memory.
    tensor: Option<Tensor>,
    /// Whether the tensor stands for memory that is bound to the input.
    stands_in: bool,
}

/// Work that a context has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounters {
    /// Times that shapes were inferred because no run of the engine had the same input shapes.
    pub shape_inferences: u64,
    /// Times that they were known.
    pub shape_hits: u64,
    /// Times that new weights were taken over after a refit.
    pub reloads: u64,
    /// Work of the backend's context since the last reload.
    pub backend: Counters,
}

impl Engine {
    /// A context with memory of its own. Contexts of one engine may run at the same time, each on one thread.
    pub fn create_context(&self) -> Result<ExecutionContext, RuntimeError> {
        self.shared.recorder.note(ExecutionContext::new(self.shared.clone(), true))
    }

    /// A context without memory for activations: [`ExecutionContext::set_memory`] supplies [`Engine::context_memory`] bytes of a
    /// device before it runs. Several contexts may be given the same memory if they run one after another. Loops and conditionals
    /// keep memory of their own.
    ///
    /// # Errors
    /// [`RuntimeError::Backend`] on backends whose contexts always have memory: all but CUDA.
    pub fn create_context_without_memory(&self) -> Result<ExecutionContext, RuntimeError> {
        self.shared.recorder.note(ExecutionContext::new(self.shared.clone(), false))
    }
}

impl ExecutionContext {
    pub(crate) fn new(engine: Arc<Shared>, own_memory: bool) -> Result<ExecutionContext, RuntimeError> {
        check_process()?;
        let loaded = engine.current();
        let context = loaded.context(own_memory).map_err(|e| engine.backend_error(e))?;
        let control = Control::new(context.stop_flag().unwrap_or_default());
        Ok(ExecutionContext {
            control,
            limit: None,
            slots: vec![Slot::default(); engine.inputs],
            bound: vec![false; engine.inputs],
            native: NativeSettings::default(),
            host: HostMemory::default(),
            device_memory: None,
            own_memory,
            allocators: OutputAllocators::default(),
            results: None,
            debugging: Debugging::default(),
            recorder: Recorder::of(engine.recorder.get()),
            engine,
            loaded,
            context,
            profile: None,
            observable: false,
            counters: RunCounters::default(),
            in_flight: false,
        })
    }

    /// Runs once: all inputs by name in any order, outputs by name in the engine's order. Inputs set before are
    /// forgotten.
    pub fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Outputs, RuntimeError> {
        let result = self.try_run(inputs);
        self.recorder.note(result)
    }

    fn try_run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Outputs, RuntimeError> {
        self.clear_inputs();
        let mut seen = HashSet::new();
        for (name, tensor) in inputs {
            if !seen.insert(*name) {
                return Err(RuntimeError::DuplicateInput { name: (*name).to_owned() });
            }
            self.try_set_input(name, tensor.clone())?;
        }
        self.try_enqueue()?;
        self.try_outputs()
    }

    /// Forgets all inputs and shapes.
    pub fn clear_inputs(&mut self) {
        self.slots.fill(Slot::default());
    }

    /// Sets an input; it stays set for the following runs. The tensor is linear: for an input of another format it is packed
    /// here. [`ExecutionContext::set_packed_input`] takes elements in the input's format.
    pub fn set_input(&mut self, name: &str, tensor: Tensor) -> Result<(), RuntimeError> {
        let result = self.try_set_input(name, tensor);
        self.recorder.note(result)
    }

    fn try_set_input(&mut self, name: &str, tensor: Tensor) -> Result<(), RuntimeError> {
        let i = self.engine.input(name)?;
        let io = &self.engine.io[i];
        if tensor.dtype() != io.dtype {
            return Err(RuntimeError::DType {
                name: name.to_owned(),
                found: tensor.dtype(),
                wanted: io.dtype,
            });
        }
        check_shape(io, tensor.shape())?;
        let shape = tensor.shape().to_vec();
        let tensor = pack(&tensor, io.format()).map_err(|source| format_error(io, source))?;
        self.slots[i] = Slot { shape: Some(shape), tensor: Some(tensor), stands_in: false };
        Ok(())
    }

    /// Sets the shape of an input, to ask for output shapes before there is data. Data of another shape is forgotten.
    pub fn set_input_shape(&mut self, name: &str, shape: &[usize]) -> Result<(), RuntimeError> {
        let result = self.try_set_input_shape(name, shape);
        self.recorder.note(result)
    }

    fn try_set_input_shape(&mut self, name: &str, shape: &[usize]) -> Result<(), RuntimeError> {
        let i = self.engine.input(name)?;
        check_shape(&self.engine.io[i], shape)?;
        let physical = self.engine.io[i].packing.physical_shape(shape);
        let slot = &mut self.slots[i];
        slot.tensor.take_if(|t| t.shape() != physical);
        slot.shape = Some(shape.to_vec());
        Ok(())
    }

    /// Runs only within this profile from now on; `None` (the default) takes whichever fits.
    pub fn set_profile(&mut self, profile: Option<usize>) -> Result<(), RuntimeError> {
        let result = self.try_set_profile(profile);
        self.recorder.note(result)
    }

    fn try_set_profile(&mut self, profile: Option<usize>) -> Result<(), RuntimeError> {
        let count = self.engine.profiles.len();
        if let Some(p) = profile.filter(|&p| p >= count) {
            return Err(RuntimeError::Profile(ProfileError(format!(
                "there is no profile {p}; the engine has {count}"
            ))));
        }
        self.profile = profile;
        Ok(())
    }

    /// Inputs of which the shape (or, of shape inputs, the elements) must still be set.
    pub fn underspecified(&self) -> Vec<&str> {
        let open = |(i, (t, s)): &(usize, (&IoTensor, &Slot))| {
            let sized = s.shape.is_some() || t.ty().static_dims().is_some();
            let known = s.tensor.is_some() || self.host.has_input(*i);
            !sized || t.is_shape_input && !known
        };
        let pairs = self.engine.input_tensors().iter().zip(&self.slots).enumerate();
        pairs.filter(open).map(|(_, (t, _))| t.name.as_str()).collect()
    }

    /// Types of the outputs for the shapes set so far. Dimensions that only the run determines are symbols; their
    /// [`kiln_ir::Dim::upper_bound`] is the most that they can be.
    pub fn infer_shapes(&mut self) -> Result<Vec<(String, TensorType)>, RuntimeError> {
        let result = self.try_infer_shapes();
        self.recorder.note(result)
    }

    fn try_infer_shapes(&mut self) -> Result<Vec<(String, TensorType)>, RuntimeError> {
        self.read_bound_inputs(true)?;
        let shapes = self.shapes()?;
        let outs = &self.loaded.program.graph.outputs;
        let named = self.engine.output_tensors().iter().zip(outs);
        Ok(named.map(|(t, &v)| (t.name.clone(), logical_type(t, &shapes.fact(v).ty))).collect())
    }

    /// Handle that stops this context's runs from other threads.
    pub fn canceller(&self) -> Canceller {
        Canceller::new(&self.control)
    }

    /// Stops further runs that take longer than this, from `enqueue` until their outputs are taken (or `wait` returns), with
    /// [`RuntimeError::TimedOut`]. `None`, the default: no limit.
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Starts a run with the inputs set. Everything about them is checked before anything runs.
    pub fn enqueue(&mut self) -> Result<(), RuntimeError> {
        let result = self.try_enqueue();
        self.recorder.note(result)
    }

    fn try_enqueue(&mut self) -> Result<(), RuntimeError> {
        check_process()?;
        let absent = self.engine.absent();
        if !absent.is_empty() {
            return Err(RuntimeError::stripped(&absent));
        }
        self.follow_refit()?;
        self.stand_in()?;
        let missing = |(t, s): (&IoTensor, &Slot)| {
            s.tensor.clone().ok_or_else(|| RuntimeError::MissingInput {
                name: t.name.clone(),
                wanted: t.ty().to_string(),
            })
        };
        let inputs: Vec<Tensor> =
            self.engine.input_tensors().iter().zip(&self.slots).map(missing).collect::<Result<_, _>>()?;
        let shapes = self.shapes()?;
        self.check_room(&shapes)?;
        self.results = None;
        if std::mem::take(&mut self.in_flight) && self.control.is_stopped() {
            // What the last run left on the device ends before the next one may run.
            self.under_flag(|context| context.wait()).unwrap_or_default();
        }
        self.allocate_outputs(&shapes)?;
        self.control.begin(self.limit)?;
        let started = self.under_flag(|context| context.enqueue(&inputs, &shapes));
        started.map_err(|e| self.ended(e))?;
        self.in_flight = true;
        self.debugging.begin();
        Ok(())
    }

    /// A call of the backend's context that a stop of the run in flight ends.
    fn under_flag<T>(
        &mut self,
        f: impl FnOnce(&mut dyn Context) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        stop::scope(&self.control.flag(), || f(&mut *self.context))
    }

    /// The error of a call that ended the run in flight.
    fn ended(&mut self, e: BackendError) -> RuntimeError {
        self.in_flight = false;
        match self.control.error(e) {
            Ok(e) => self.engine.backend_error(e),
            Err(stopped) => stopped,
        }
    }

    /// Waits for the run and returns its outputs, once. Those of other formats than the linear one are unpacked here;
    /// [`ExecutionContext::packed_outputs`] leaves them as they are.
    pub fn outputs(&mut self) -> Result<Outputs, RuntimeError> {
        let result = self.try_outputs();
        self.recorder.note(result)
    }

    fn try_outputs(&mut self) -> Result<Outputs, RuntimeError> {
        let outs = self.try_packed_outputs()?;
        let linear = self.engine.output_tensors().iter().zip(outs.into_vec());
        linear.map(|(t, (name, packed))| Ok((name, unpacked(t, packed)?))).collect()
    }

    /// Waits for the run and returns its outputs, once, as they are in memory: of the shapes that their formats have there.
    pub fn packed_outputs(&mut self) -> Result<Outputs, RuntimeError> {
        let result = self.try_packed_outputs();
        self.recorder.note(result)
    }

    fn try_packed_outputs(&mut self) -> Result<Outputs, RuntimeError> {
        if !std::mem::take(&mut self.in_flight) {
            return Err(RuntimeError::State(
                "there is no run whose outputs were not taken; call enqueue".into(),
            ));
        }
        check_process()?;
        let delivered = self.results.take();
        let known = delivered.is_some();
        let outs = match delivered {
            Some(outs) => outs,
            None => self.under_flag(|context| context.outputs()).map_err(|e| self.ended(e))?,
        };
        // A run that was asked to stop may have ended early: its outputs count as incomplete.
        if let Some(cause) = self.control.end() {
            return Err(cause.error(String::new()));
        }
        if !known {
            self.deliver(&outs)?;
        }
        self.report_debug()?;
        Ok(self.engine.output_tensors().iter().map(|t| t.name.clone()).zip(outs).collect())
    }

    /// Keeps values between layers so that [`ExecutionContext::observe`] can read them, from the next run on.
    pub fn set_observable(&mut self, on: bool) {
        self.observable = on;
        self.keep_values();
    }

    /// A tensor of the last run by name: an input, weight, output or value between layers.
    pub fn observe(&mut self, name: &str) -> Result<Tensor, RuntimeError> {
        let result = self.try_observe(name);
        self.recorder.note(result)
    }

    fn try_observe(&mut self, name: &str) -> Result<Tensor, RuntimeError> {
        let found = self.loaded.program.graph.find(name);
        self.value(found.ok_or_else(|| unknown(&self.engine.io, "tensor", name))?)
    }

    /// A value of the last run.
    fn value(&mut self, v: ValueId) -> Result<Tensor, RuntimeError> {
        let graph = &self.loaded.program.graph;
        if let Source::Weight(w) = &graph.value(v).source {
            return Ok(w.tensor.clone());
        }
        let input = graph.inputs.iter().position(|&i| i == v).and_then(|i| self.slots.get(i));
        let found = match input.and_then(|s| s.tensor.clone()) {
            Some(t) => t,
            None => self.context.observe(v).map_err(|e| self.engine.backend_error(e))?,
        };
        let name = &self.loaded.program.graph.value(v).name;
        match self.engine.io.iter().find(|t| t.name == *name) {
            Some(t) => unpacked(t, found),
            None => Ok(found),
        }
    }

    /// Runs the kernels of the last run again so many times, without transfers: the time of each run on the device in
    /// nanoseconds. Refused where a run needs the host in between, or the device can't tell.
    pub fn time_runs(&mut self, runs: u32) -> Result<Vec<f64>, RuntimeError> {
        let result = self.try_time_runs(runs);
        self.recorder.note(result)
    }

    fn try_time_runs(&mut self, runs: u32) -> Result<Vec<f64>, RuntimeError> {
        self.context.time_runs(runs).map_err(|e| self.engine.backend_error(e))
    }

    /// The layers at the shapes set, in the detail that the plan stores.
    pub fn inspector(&mut self) -> Result<LayerTable, RuntimeError> {
        let result = self.try_inspector();
        self.recorder.note(result)
    }

    fn try_inspector(&mut self) -> Result<LayerTable, RuntimeError> {
        let shapes = self.shapes()?;
        let verbosity = self.engine.header.verbosity;
        Ok(LayerTable::with_shapes(&self.loaded.program, verbosity, Some(&shapes)))
    }

    /// Work that this context has done.
    pub fn counters(&self) -> RunCounters {
        RunCounters { backend: self.context.counters(), ..self.counters }
    }

    /// Takes over new weights, between runs.
    fn follow_refit(&mut self) -> Result<(), RuntimeError> {
        let current = self.engine.current();
        if Arc::ptr_eq(&current, &self.loaded) {
            return Ok(());
        }
        let mut context = current.context(self.own_memory).map_err(|e| self.engine.backend_error(e))?;
        context.set_observable(self.observable || self.debugging.is_active());
        self.native.apply(&mut *context).map_err(|e| self.engine.backend_error(e))?;
        self.control.replace(context.stop_flag().unwrap_or_default());
        let old = std::mem::replace(&mut self.context, context);
        self.native.retire(old);
        self.loaded = current;
        self.in_flight = false;
        self.counters.reloads += 1;
        Ok(())
    }

    /// Shapes for the inputs set, after all checks.
    fn shapes(&mut self) -> Result<Arc<Shapes>, RuntimeError> {
        let io = self.engine.input_tensors();
        let given: Vec<RuntimeInput> =
            io.iter().zip(&self.slots).map(|(t, s)| given(t, s)).collect::<Result<_, _>>()?;
        check_symbols(io, &given)?;
        let profile = match self.profile {
            Some(p) => self.engine.profiles.get(p).map_or(Ok(p), |x| check(x, p, io, &given).map(|()| p))?,
            None if self.engine.profiles.is_empty() => 0,
            None => select(&self.engine.profiles, io, &given)?,
        };
        let program = &self.loaded.program;
        let case =
            program.case_of(profile, elements(given.iter().map(|g| g.shape.iter().map(|&d| d as u64))));
        let (shapes, inferred) = self.loaded.shapes.get(program, io, &given, case)?;
        let count =
            if inferred { &mut self.counters.shape_inferences } else { &mut self.counters.shape_hits };
        *count += 1;
        Ok(shapes)
    }
}

fn given(t: &IoTensor, s: &Slot) -> Result<RuntimeInput, RuntimeError> {
    let missing = || RuntimeError::MissingInput { name: t.name.clone(), wanted: t.ty().to_string() };
    let shape = s.shape.clone().or_else(|| t.ty().static_dims()).ok_or_else(missing)?;
    let content = if t.is_shape_input { Some(s.tensor.clone().ok_or_else(missing)?) } else { None };
    Ok(RuntimeInput { shape, content })
}

impl Drop for ExecutionContext {
    fn drop(&mut self) {
        if is_forked() {
            let context = std::mem::replace(&mut self.context, Box::new(Gone));
            return std::mem::forget(context);
        }
        // Nobody is left to take the outputs: the device need not come to an end.
        self.control.abandon();
    }
}

impl std::fmt::Debug for ExecutionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExecutionContext({:?}, {:?})", self.loaded.program.graph.name, self.counters())
    }
}
