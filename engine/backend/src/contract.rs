//! The four objects of a backend.

use crate::field;
use crate::stop::StopFlag;
use crate::{BackendError, HostStep, NativeContext, Program, Region, Shapes, Tactic, Target};
use kiln_ir::{Graph, Tensor, ValueId};
use minicbor::{Decode, Encode};
use std::ffi::c_void;
use std::sync::Arc;

/// A backend: proposes tactics, compiles them, opens devices. Callable from any thread.
pub trait Backend: Send + Sync {
    /// Name of the backend: "cpu", "wgpu", "cuda".
    fn name(&self) -> &str;

    /// The devices that it can open, best first. Empty with a reason where there is none.
    fn targets(&self) -> Result<Vec<Target>, BackendError>;

    /// Accepts a region, or refuses it with [`BackendError::Unsupported`] and the reason: whether [`Backend::tactics`] returns
    /// any. Cheap, as each growth of each region and each rewrite asks: no kernel's text is written. By default `tactics` is
    /// asked.
    fn supports(&self, region: &Region, target: &Target) -> Result<(), BackendError> {
        match self.tactics(region, target)?.is_empty() {
            true => Err(BackendError::Unsupported(format!("no tactic for {}", region.label()))),
            false => Ok(()),
        }
    }

    /// The ways to run a region, or a refusal with its reason. A region of a single node is refused only where the
    /// backend lacks the operator or type; a refused larger region is split. Asked once for each different region that is
    /// priced; kernels' texts are written by [`Backend::compile`] only.
    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError>;

    /// The blob that [`Device::load`] needs to run the region by this tactic; empty where nothing is to be stored.
    /// Deterministic.
    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError>;

    /// Opens a device.
    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError>;
}

/// Request to time one blob.
#[derive(Debug)]
pub struct TimeRequest<'a> {
    /// The region, its shapes concrete.
    pub graph: &'a Graph,
    /// The tactic.
    pub tactic: &'a Tactic,
    /// Blob of the tactic.
    pub blob: &'a [u8],
    /// Inputs in the order of the region's, at the shapes to time.
    pub inputs: &'a [Tensor],
    /// Number of samples.
    pub samples: u32,
}

/// A program and what runs it.
pub type LoadedProgram = (Arc<Program>, Arc<dyn Executable>);

/// An open device.
pub trait Device: Send + Sync {
    /// Runs a region several times and returns the time of each run in nanoseconds, without transfers.
    fn time(&self, request: &TimeRequest<'_>) -> Result<Vec<f64>, BackendError>;

    /// Uploads weights and makes the kernels ready.
    fn load(&self, program: Arc<Program>) -> Result<Arc<dyn Executable>, BackendError>;

    /// As [`Device::load`], of a program that nobody else holds, which is returned as well. A backend that keeps weights in a form of its
    /// own lets go of their elements: they are made of that form again where somebody reads them ([`kiln_ir::Bytes::made`]).
    fn load_owned(&self, program: Program) -> Result<LoadedProgram, BackendError> {
        let program = Arc::new(program);
        Ok((program.clone(), self.load(program)?))
    }

    /// Makes the kernels ready with at most so many bytes of weights on the device at a time, by [`StreamPlan`](crate::StreamPlan): the
    /// others are copied before the steps that read them. Results are the same bit for bit. Weights of bodies of control flow all stay
    /// and do not count. By default refused.
    fn load_within(
        &self,
        _program: Arc<Program>,
        _weight_budget: u64,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Err(BackendError::Unsupported("this backend does not stream weights; load without a budget".into()))
    }

    /// Bytes of device memory that nobody uses now. By default refused.
    fn free_memory(&self) -> Result<u64, BackendError> {
        Err(BackendError::Unsupported("this backend does not report how much memory is free".into()))
    }

    /// Copies bytes of the device to the host, behind the work that is in a stream of the caller's (null: of no stream), and waits for
    /// the copy. By default refused.
    ///
    /// # Safety
    /// The address is a device address of the backend's kind, behind which there are as many bytes as `to` has. The stream is null, or a
    /// stream of the backend's kind on this device.
    unsafe fn read(
        &self,
        _stream: *mut c_void,
        _address: *const c_void,
        _to: &mut [u8],
    ) -> Result<(), BackendError> {
        Err(BackendError::Unsupported(
            "this backend reads no device memory of the caller's; pass tensors of the host".into(),
        ))
    }
}

/// A loaded program: kernels and weights, immutable, shared by all contexts.
pub trait Executable: Send + Sync {
    /// A context with an arena of its own.
    fn context(&self) -> Result<Box<dyn Context>, BackendError>;

    /// A context without an arena: [`NativeContext::set_memory`] supplies one before the first run. Arenas of bodies of control flow
    /// are still the context's own. By default refused.
    fn context_without_memory(&self) -> Result<Box<dyn Context>, BackendError> {
        Err(BackendError::Unsupported(
            "contexts of this backend have memory of their own; create one with memory".into(),
        ))
    }
}

/// One run in flight at a time.
pub trait Context: Send {
    /// Starts a run: inputs in the order of the program's, `shapes` for exactly these (from [`Program::shapes`]).
    /// Does not wait for the device, unless sizes are needed that only the device knows, or the run may be stopped and takes
    /// long. A run that is stopped ends with [`BackendError::Cancelled`], here or where it is waited for; the next run is
    /// right.
    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError>;

    /// Waits for the run and returns its outputs in the order of the program's.
    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError>;

    /// A value of the last run that a step reads or writes as a whole. `Unsupported` for values inside
    /// kernels.
    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError>;

    /// Keeps all border values until they are observed (memory is not reused), from the next run on.
    fn set_observable(&mut self, on: bool);

    /// Time of each step of the last run, where the device can tell; enables timing for the following runs.
    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError>;

    /// The steps at which the last run waited for the host, and why; empty where it did not. Of runs whose steps are timed
    /// the backend may tell what it found before.
    fn host_steps(&mut self) -> Result<Vec<HostStep>, BackendError> {
        Err(BackendError::Unsupported("this backend does not tell where a run needs the host".into()))
    }

    /// Repeats the kernels of the last run so many times, without transfers. Returns the time of each run on
    /// the device in nanoseconds. `Unsupported` where a run needs the host in between, or the device has no
    /// clock.
    fn time_runs(&mut self, _runs: u32) -> Result<Vec<f64>, BackendError> {
        Err(BackendError::Unsupported("this backend does not time runs without transfers".into()))
    }

    /// Waits until the inputs of the last run may be overwritten. By default at once: a backend that does not use memory of
    /// the caller's has copied the inputs, or keeps them.
    fn wait_consumed(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Waits until the last run is done; its outputs can still be taken. By default at once, for backends that are done when
    /// `enqueue` returns.
    fn wait(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// The context's native handles, of a backend whose device has any: streams, addresses, events. By default none.
    fn native(&mut self) -> Option<&mut dyn NativeContext> {
        None
    }

    /// The native interface, or an error if the backend has none.
    fn require_native(&mut self) -> Result<&mut dyn NativeContext, BackendError> {
        const NONE: &str = "this backend takes no streams, device memory or events of the caller's; pass tensors of the host";
        self.native().ok_or_else(|| BackendError::Unsupported(NONE.into()))
    }

    /// The flag that stops the run in flight, where the backend has one of its own: of a device that reads it, say. By
    /// default none: whoever runs the context makes one, and works under it ([`crate::stop::scope`]).
    fn stop_flag(&self) -> Option<Arc<StopFlag>> {
        None
    }

    /// Work that this context has done so far.
    fn counters(&self) -> Counters;
}

/// Time of one step, or of a step inside of a step of control flow.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct StepTime {
    /// Index of the step.
    #[n(0)]
    pub step: usize,
    /// Path of a step inside of it, from the outermost in: the body, and the step's index in it. Empty for
    /// the step itself, whose time includes those inside.
    #[cbor(n(2), with = "field::pairs", has_nil)]
    pub inside: Vec<(usize, usize)>,
    /// Number of runs of the step: in a body once an iteration.
    #[cbor(n(3), with = "field::once", has_nil)]
    pub runs: u64,
    /// Nanoseconds on the device, of all runs.
    #[n(1)]
    pub ns: f64,
}

impl StepTime {
    /// The time of a step of the program that ran once.
    pub fn new(step: usize, ns: f64) -> StepTime {
        StepTime { step, inside: Vec::new(), runs: 1, ns }
    }

    /// Adds times of one more run to those of others.
    pub fn add(all: &mut Vec<StepTime>, more: Vec<StepTime>) {
        for t in more {
            match all.iter_mut().find(|o| o.step == t.step && o.inside == t.inside) {
                Some(o) => (o.ns, o.runs) = (o.ns + t.ns, o.runs + t.runs),
                None => all.push(t),
            }
        }
    }

    /// Times of the steps of a body, as times inside of a step.
    pub fn within(times: Vec<StepTime>, step: usize, body: usize) -> impl Iterator<Item = StepTime> {
        times.into_iter().map(move |t| {
            let inside = std::iter::once((body, t.step)).chain(t.inside).collect();
            StepTime { step, inside, ..t }
        })
    }
}

/// Work that a context has done since it was made. After warm-up only `runs` may grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Finished runs.
    pub runs: u64,
    /// Buffers allocated on the device.
    pub allocations: u64,
    /// Kernels compiled.
    pub compilations: u64,
    /// Pipelines, graphs or similar objects made.
    pub pipelines: u64,
    /// Times that the host had to wait inside a run for a size or a content.
    pub host_syncs: u64,
}
