//! Engines: a program on a device, shared by all its contexts.

use crate::RuntimeError;
use crate::automatic_budget::{Budget, automatic, resident};
use crate::backends::Backends;
use crate::plugin_check;
use crate::recording::Recorder;
use crate::shapes::ShapeCache;
use kiln_backend::process::{check_process, is_forked};
use kiln_backend::{
    Backend, BackendError, Context, Device, DeviceChoice, Executable, Place, Program, StreamPlan, Target,
};
use kiln_ir::{Bytes, Graph, ValueId, WeakBytes};
use kiln_plan::LayerTable;
use kiln_plan::ProfileError;
use kiln_plan::profile::Profile;
use kiln_plan::{AbsentWeight, Plan, PlanHeader, Verbosity, shared};
use kiln_plan::{IoMode, IoTensor, io_tensors};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A program loaded on a device. Cloning shares it; any thread may make contexts.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// Options of loading a plan.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LoadOptions {
    /// The device; `None` takes the first that the plan runs on.
    pub device: Option<DeviceChoice>,
    /// Bytes of weights that may be on the device at a time ([`Engine::set_weight_budget`]); `None` keeps all of them there.
    pub weight_budget: Option<u64>,
    /// Without a budget, take the one that leaves room for a context on the device ([`Engine::automatic_weight_budget`]).
    pub automatic_weight_budget: bool,
}

/// Parts of an engine that its contexts share.
pub(crate) struct Shared {
    pub(crate) backend: String,
    pub(crate) target: Target,
    pub(crate) device: Arc<dyn Device>,
    /// Inputs, then outputs.
    pub(crate) io: Vec<IoTensor>,
    /// Number of inputs, the first ones of `io`.
    pub(crate) inputs: usize,
    pub(crate) profiles: Vec<Profile>,
    /// Header of the plan, with the weights that are absent as it was read.
    pub(crate) header: PlanHeader,
    pub(crate) layers: LayerTable,
    /// Network of a portable plan, as it was read.
    network: Option<Graph>,
    /// Plug-in libraries that the plan holds.
    libraries: BTreeMap<String, Bytes>,
    /// Weights of a stripped plan that no refit has supplied yet.
    absent: RwLock<Arc<[AbsentWeight]>>,
    /// Held while a refit makes new weights, so that two do not lose each other's.
    pub(crate) refitting: Mutex<()>,
    /// Told of errors.
    pub(crate) recorder: Recorder,
    /// Bytes of weights that may be on the device at a time; none where all are.
    weight_budget: Mutex<Option<u64>>,
    /// Loaded program of new runs; a refit replaces it.
    current: RwLock<Arc<Loaded>>,
}

/// One state of the weights on the device.
pub(crate) struct Loaded {
    pub(crate) program: Arc<Program>,
    pub(crate) executable: Arc<dyn Executable>,
    pub(crate) shapes: ShapeCache,
}

impl Loaded {
    /// A context with memory for activations of its own, or without.
    pub(crate) fn context(&self, own_memory: bool) -> Result<Box<dyn Context>, BackendError> {
        match own_memory {
            true => self.executable.context(),
            false => self.executable.context_without_memory(),
        }
    }
}

impl Engine {
    /// Loads a program on the backend's best device. `profiles` may be empty if all input shapes are fixed, or if the
    /// program plans no arena.
    pub fn from_program(
        program: Program,
        profiles: Vec<Profile>,
        backend: Arc<dyn Backend>,
    ) -> Result<Engine, RuntimeError> {
        let targets = backend.targets().map_err(|e| backend_error(backend.name(), e))?;
        let none = || BackendError::Unsupported("no device".into());
        let target = targets.into_iter().next().ok_or_else(|| backend_error(backend.name(), none()))?;
        Engine::on_target(program, profiles, backend.as_ref(), target)
    }

    /// Loads a plan on the first of the backend's devices that it runs on. What differs from the device that it was
    /// built for is logged as warnings.
    pub fn from_plan(plan: Plan, backend: Arc<dyn Backend>) -> Result<Engine, RuntimeError> {
        let targets = backend.targets().map_err(|e| backend_error(backend.name(), e))?;
        Engine::on_first(plan, backend.as_ref(), targets, Budget::default())
    }

    /// Loads a plan on this device of the backend. Differences as of [`Engine::from_plan`] are logged.
    ///
    /// # Errors
    /// As of [`Engine::from_plan_with`].
    pub fn from_plan_on(
        plan: Plan,
        backend: Arc<dyn Backend>,
        device: &DeviceChoice,
    ) -> Result<Engine, RuntimeError> {
        let options = LoadOptions { device: Some(device.clone()), ..LoadOptions::default() };
        Engine::from_plan_with(plan, backend, &options)
    }

    /// Loads a plan as these options say. Differences as of [`Engine::from_plan`] are logged.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`] with the devices that there are, [`RuntimeError::Incompatible`] if the plan does not run on the
    /// device, and [`RuntimeError::Backend`] for a budget as of [`Engine::set_weight_budget`].
    pub fn from_plan_with(
        plan: Plan,
        backend: Arc<dyn Backend>,
        options: &LoadOptions,
    ) -> Result<Engine, RuntimeError> {
        let mut targets = backend.targets().map_err(|e| backend_error(backend.name(), e))?;
        if let Some(device) = &options.device {
            let at = device.find(&targets).ok_or_else(|| RuntimeError::NoDevice {
                backend: backend.name().to_owned(),
                wanted: device.clone(),
                known: device_list(&targets),
            })?;
            targets = vec![targets.swap_remove(at)];
        }
        let budget = Budget { given: options.weight_budget, automatic: options.automatic_weight_budget };
        Engine::on_first(plan, backend.as_ref(), targets, budget)
    }

    fn on_first(
        plan: Plan,
        backend: &dyn Backend,
        targets: Vec<Target>,
        budget: Budget,
    ) -> Result<Engine, RuntimeError> {
        let header = &plan.header;
        let mut refusal = format!("the backend \"{}\" has no device", backend.name());
        for target in targets {
            let c = header.check_compatibility(&target);
            match c.refusal {
                Some(reason) => refusal = reason,
                None => {
                    c.warnings.iter().for_each(|w| tracing::warn!("plan \"{}\": {w}", header.name));
                    return Engine::build(plan, backend, target, budget);
                }
            }
        }
        Err(RuntimeError::Incompatible(refusal))
    }

    /// Reads a plan file and loads it on the backend that it names. The file may change afterwards; see [`Plan::open`].
    pub fn load(path: &Path, backends: &Backends) -> Result<Engine, RuntimeError> {
        let header = PlanHeader::peek(path)?;
        let backend = backends.get(&header.target.backend)?;
        Engine::from_plan(Plan::open(path)?, backend)
    }

    /// Maps a plan file and loads it on the backend that it names.
    ///
    /// # Safety
    /// As of [`Plan::open_mapped`]: nobody truncates or writes the file in place while the engine or a context lives.
    pub unsafe fn load_mapped(path: &Path, backends: &Backends) -> Result<Engine, RuntimeError> {
        let header = PlanHeader::peek(path)?;
        let backend = backends.get(&header.target.backend)?;
        // SAFETY: the caller says so.
        Engine::from_plan(unsafe { Plan::open_mapped(path) }?, backend)
    }

    /// Loads a program on one of the backend's devices.
    pub fn on_target(
        program: Program,
        profiles: Vec<Profile>,
        backend: &dyn Backend,
        target: Target,
    ) -> Result<Engine, RuntimeError> {
        let plan = Plan::new(program, profiles, target.clone()).with_verbosity(Verbosity::Detailed);
        Engine::build(plan, backend, target, Budget::default())
    }

    fn build(
        plan: Plan,
        backend: &dyn Backend,
        target: Target,
        budget: Budget,
    ) -> Result<Engine, RuntimeError> {
        check_process()?;
        let Plan { header, program, layers, network, libraries } = plan;
        let mut profiles = header.profiles.clone();
        plugin_check::check(&program, &header)?;
        let io = io_tensors(&program);
        if profiles.is_empty() {
            profiles.extend(Profile::fixed(&io));
        }
        let planned = program.memory.places.iter().any(|p| matches!(p, Place::Arena { .. }));
        if profiles.is_empty() && planned {
            return Err(RuntimeError::Profile(ProfileError(
                "the network has dynamic inputs; the engine wants at least one profile".into(),
            )));
        }
        profiles.iter().try_for_each(|p| p.check(&io))?;
        let name = backend.name().to_owned();
        // Launches that code of the backend plans keep to the part of the device that the plan is for.
        let mut part = target.clone();
        header.limit.apply(&mut part);
        let device = backend.open(&part).map_err(|e| backend_error(&name, e))?;
        let weight_budget = budget.of(&program, &part, device.as_ref());
        let current = RwLock::new(load(&name, device.as_ref(), program, weight_budget)?);
        let inputs = io.iter().filter(|t| t.mode == IoMode::Input).count();
        let shared = Shared {
            backend: name,
            target,
            device,
            io,
            inputs,
            profiles,
            absent: RwLock::new(header.absent.as_slice().into()),
            header,
            layers,
            network,
            libraries,
            refitting: Mutex::new(()),
            recorder: Recorder::default(),
            weight_budget: Mutex::new(weight_budget),
            current,
        };
        Ok(Engine { shared: Arc::new(shared) })
    }

    /// The network's name.
    pub fn name(&self) -> String {
        self.program().graph.name.clone()
    }

    /// Inputs in order, then outputs in order.
    pub fn io_tensors(&self) -> &[IoTensor] {
        &self.shared.io
    }

    /// The input or output of this name (the input, if both have it).
    pub fn io_tensor(&self, name: &str) -> Result<&IoTensor, RuntimeError> {
        let found = self.shared.io.iter().find(|t| t.name == name);
        self.shared.recorder.note(found.ok_or_else(|| unknown(&self.shared.io, "tensor", name)))
    }

    /// Optimization profiles of the engine.
    pub fn profiles(&self) -> &[Profile] {
        &self.shared.profiles
    }

    /// The name of the backend that runs it.
    pub fn backend(&self) -> &str {
        &self.shared.backend
    }

    /// The device that it runs on.
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    /// The engine's layers, in the detail that the plan stores.
    pub fn inspector(&self) -> &LayerTable {
        &self.shared.layers
    }

    /// The program with the weights in use now.
    pub fn program(&self) -> Arc<Program> {
        self.shared.current().program.clone()
    }

    /// The plan with the weights in use now, to be written to a file: after a refit it is that of the refitted engine.
    pub fn plan(&self) -> Plan {
        let shared = &self.shared;
        let program = shared.current().program.clone();
        let header = PlanHeader { absent: shared.absent().to_vec(), ..shared.header.clone() };
        let mut network = shared.network.clone();
        if let Some(network) = &mut network {
            crate::weights::renew_network(network, &program);
        }
        let (layers, libraries) = (shared.layers.clone(), shared.libraries.clone());
        Plan { header, program: (*program).clone(), layers, network, libraries }
    }

    /// Bytes of weights that can be streamed: copied to the device before the layers that read them, instead of staying there.
    pub fn streamable_weights(&self) -> u64 {
        StreamPlan::streamable(&self.program(), self.shared.target.memory.alignment)
    }

    /// The least budget of [`Engine::set_weight_budget`], in bytes: weights that cannot be streamed, and memory for those that are.
    pub fn least_weight_budget(&self) -> u64 {
        StreamPlan::least(&self.program(), self.shared.target.memory.alignment)
    }

    /// The budget that leaves room for the activations of one context in the memory of the device that is free now. That of this engine's
    /// weights counts as free. Where the device does not report it, its memory in all counts. `None` where all weights fit, or nothing is
    /// reported.
    pub fn automatic_weight_budget(&self) -> Option<u64> {
        let (program, shared) = (self.program(), &self.shared);
        let held = resident(&program, &shared.target, self.weight_budget());
        automatic(&program, &shared.target, shared.device.as_ref(), held)
    }

    /// Bytes of weights that may be on the device at a time; `None` where all of them stay there.
    pub fn weight_budget(&self) -> Option<u64> {
        *self.shared.weight_budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the engine anew with at most so many bytes of weights on the device at a time. `None`, the default, keeps all of them there.
    /// Weights beyond the budget are copied from the host in each run. Results are the same bit for bit. Each context has memory of its
    /// own for such weights. Contexts follow at their next run, and runs in flight finish as they began. Both states of the weights are
    /// on the device until the call returns. Where there is no room for that, load the plan with a budget.
    ///
    /// # Errors
    /// [`RuntimeError::Backend`] for a budget that is too small, with the least one, and where memory is short. Backends whose weights
    /// are in host memory anyway (cpu, reference) refuse budgets. The engine is as before then.
    pub fn set_weight_budget(&self, bytes: Option<u64>) -> Result<(), RuntimeError> {
        let result = self.shared.stream_weights(bytes);
        self.shared.recorder.note(result)
    }

    /// Streams beside the main one that layers are in.
    pub fn aux_streams(&self) -> u32 {
        self.program().streams.iter().max().copied().unwrap_or(0)
    }

    /// Bytes of activations that one context wants, as planned.
    pub fn context_memory(&self) -> u64 {
        self.program().memory.arena
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?} on {})", self.name(), self.shared.target.device)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if is_forked() {
            // Devices of the process that was forked cannot be closed in this one.
            std::mem::forget((self.device.clone(), self.current()));
        }
    }
}

impl Shared {
    /// Loaded program of new runs.
    pub(crate) fn current(&self) -> Arc<Loaded> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads another program of the same inputs and outputs and lets the next runs use it; running ones finish with
    /// the old. Nothing changes if loading fails.
    pub(crate) fn swap(&self, program: Program) -> Result<(), RuntimeError> {
        let budget = *self.weight_budget.lock().unwrap_or_else(PoisonError::into_inner);
        let new = load(&self.backend, self.device.as_ref(), program, budget)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Loads the program in use with another budget for weights.
    fn stream_weights(&self, bytes: Option<u64>) -> Result<(), RuntimeError> {
        check_process()?;
        // A refit that runs at the same time would load its weights under the old budget.
        let _refit = self.refitting.lock().unwrap_or_else(PoisonError::into_inner);
        let program = (*self.current().program).clone();
        let new = load(&self.backend, self.device.as_ref(), program, bytes)?;
        *self.weight_budget.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Weights of a stripped plan that no refit has supplied yet.
    pub(crate) fn absent(&self) -> Arc<[AbsentWeight]> {
        self.absent.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that a refit supplied all weights.
    pub(crate) fn set_complete(&self) {
        *self.absent.write().unwrap_or_else(PoisonError::into_inner) = [].into();
    }

    /// Inputs in order.
    pub(crate) fn input_tensors(&self) -> &[IoTensor] {
        self.io.get(..self.inputs).unwrap_or_default()
    }

    /// Outputs in order.
    pub(crate) fn output_tensors(&self) -> &[IoTensor] {
        self.io.get(self.inputs..).unwrap_or_default()
    }

    /// Position of an input.
    pub(crate) fn input(&self, name: &str) -> Result<usize, RuntimeError> {
        let ins = self.input_tensors();
        ins.iter().position(|t| t.name == name).ok_or_else(|| unknown(ins, "input", name))
    }

    pub(crate) fn backend_error(&self, e: BackendError) -> RuntimeError {
        backend_error(&self.backend, e)
    }
}

fn load(
    backend: &str,
    device: &dyn Device,
    program: Program,
    weight_budget: Option<u64>,
) -> Result<Arc<Loaded>, RuntimeError> {
    let loaded = match weight_budget {
        Some(bytes) => {
            let program = Arc::new(program);
            device.load_within(program.clone(), bytes).map(|executable| (program, executable))
        }
        None => {
            let before: Vec<_> = program.weights().map(|(v, t)| (v, t.shared_bytes().downgrade())).collect();
            device.load_owned(program).inspect(|(program, _)| share_moved(program, &before))
        }
    };
    let (program, executable) = loaded.map_err(|e| backend_error(backend, e))?;
    Ok(Arc::new(Loaded { program, executable, shapes: ShapeCache::default() }))
}

/// Lets plans find the weights that a backend gave other storage of the same bytes.
fn share_moved(program: &Program, before: &[(ValueId, WeakBytes)]) {
    let storage = |v: ValueId| Some(program.graph.weight(v)?.tensor.shared_bytes());
    let moved = before.iter().filter_map(|(v, old)| Some((old.id(), storage(*v)?)));
    shared::replace(&moved.filter(|(old, new)| *old != new.id()).collect());
}

pub(crate) fn backend_error(backend: &str, source: BackendError) -> RuntimeError {
    RuntimeError::Backend { backend: backend.to_owned(), source }
}

/// Devices for an error: number, name and identity of each.
fn device_list(targets: &[Target]) -> String {
    let one = |(i, t): (usize, &Target)| {
        let uuid = if t.uuid.is_empty() { String::new() } else { format!(" ({})", t.uuid) };
        format!("{i}: {}{uuid}", t.device)
    };
    let all: Vec<String> = targets.iter().enumerate().map(one).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

pub(crate) fn unknown(io: &[IoTensor], mode: &'static str, name: &str) -> RuntimeError {
    unlisted(io.iter().map(|t| t.name.as_str()), mode, name)
}

/// The error for a name that is not among these.
pub(crate) fn unlisted<'a>(
    names: impl Iterator<Item = &'a str>,
    mode: &'static str,
    name: &str,
) -> RuntimeError {
    let names: Vec<&str> = names.collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    RuntimeError::UnknownTensor { name: name.to_owned(), mode, known }
}
