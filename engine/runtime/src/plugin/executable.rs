//! Executables and contexts of a library as the engine sees them.

use super::allocator::Hooks;
use super::call;
use super::objects::{DeviceObject, Library, Object};
use super::outgoing::{Payload, Tensors};
use ::kiln_backend::stop::{Stop, StopFlag};
use ::kiln_backend::wire::{self, BlobList, TensorViews};
use ::kiln_backend::{
    BackendError, Bound, Context, Counters, Executable, HostStep, NativeContext, Program, Shapes, StepTime,
    TemporaryAllocator,
};
use kiln_abi::*;
use kiln_ir::{Tensor, ValueId};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

type ExecutableObject = Object<kiln_executable, Arc<DeviceObject>>;

/// Number of shapes that are kept in the form that crosses the ABI.
const SHAPES_KEPT: usize = 64;

/// A program of a library.
pub(super) struct LoadedExecutable {
    inner: Arc<Inner>,
}

struct Inner {
    object: ExecutableObject,
    program: Arc<Program>,
    /// The program's values in the order of the payload.
    values: Vec<ValueId>,
    /// The number of each of the program's values in the payload.
    numbers: Vec<Option<ValueId>>,
    shapes: Mutex<Vec<Arc<Crossing>>>,
}

impl LoadedExecutable {
    /// `numbers` are the payload's numbers of the program's values.
    pub(super) fn new(
        object: ExecutableObject,
        program: Arc<Program>,
        numbers: &[Option<ValueId>],
    ) -> LoadedExecutable {
        let mut values: Vec<(ValueId, ValueId)> = numbers
            .iter()
            .enumerate()
            .filter_map(|(old, new)| Some(((*new)?, ValueId(old as u32))))
            .collect();
        values.sort();
        let values = values.into_iter().map(|(_, old)| old).collect();
        let numbers = numbers.to_vec();
        LoadedExecutable {
            inner: Arc::new(Inner { object, program, values, numbers, shapes: Mutex::default() }),
        }
    }
}

type ContextSlot = unsafe extern "C" fn(*mut kiln_executable, *mut *mut kiln_context, *mut kiln_error) -> i32;

impl Executable for LoadedExecutable {
    fn context(&self) -> Result<Box<dyn Context>, BackendError> {
        let lib = self.inner.object.library();
        self.inner.context(lib.slot(lib.table.executable_context, "executable_context")?)
    }

    fn context_without_memory(&self) -> Result<Box<dyn Context>, BackendError> {
        let lib = self.inner.object.library();
        let f = lib.table.executable_context_without_memory;
        self.inner.context(lib.slot(f, "executable_context_without_memory")?)
    }
}

impl Inner {
    /// Makes a context by this slot.
    fn context(self: &Arc<Inner>, f: ContextSlot) -> Result<Box<dyn Context>, BackendError> {
        let lib = self.object.library();
        // SAFETY: the object is alive; place and sink live for the call.
        let ptr = call::object(|out, err| unsafe { f(self.object.ptr(), out, err) })?;
        let object = Object::new(ptr, lib.table.context_destroy, lib.clone(), self.clone());
        let target = Arc::new(StopTarget::new(&object));
        let to = target.clone();
        let flag = StopFlag::with_listener(move |s| to.pass(s));
        let (allocators, inner) = (Vec::new(), self.clone());
        Ok(Box::new(LoadedContext { target, flag, object, allocators, inner, runs: 0, early: None }))
    }
}

/// Shapes in the form that crosses, under a number of their own.
struct Crossing {
    shapes: Arc<Shapes>,
    id: u64,
    payload: Payload,
    values: Vec<kiln_tensor>,
    _dims: Vec<Vec<i64>>,
}

// SAFETY: the views point into `shapes` and `_dims`, which are not changed while they live.
unsafe impl Send for Crossing {}
// SAFETY: as above.
unsafe impl Sync for Crossing {}

impl Crossing {
    fn new(shapes: &Arc<Shapes>, program: &Program, values: &[ValueId]) -> Result<Crossing, BackendError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let cbor = shapes.to_cbor(program, values)?;
        let dims: Vec<Vec<i64>> = values
            .iter()
            .map(|&v| {
                shapes
                    .fact(v)
                    .ty
                    .dims
                    .iter()
                    .map(|d| d.as_const().filter(|n| *n >= 0).unwrap_or(-1))
                    .collect()
            })
            .collect();
        let views = values.iter().zip(&dims).map(|(&v, dims)| {
            let fact = shapes.fact(v);
            let bytes = fact.as_const().map(Tensor::bytes);
            kiln_tensor {
                dtype: fact.ty.dtype.code().into(),
                ndim: dims.len() as u32,
                dims: dims.as_ptr(),
                data: bytes.map_or(std::ptr::null(), |b| b.as_ptr().cast()),
                len: bytes.map_or(0, |b| b.len() as u64),
                owner: std::ptr::null_mut(),
            }
        });
        Ok(Crossing {
            shapes: shapes.clone(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            payload: Payload::new(cbor, &TensorViews::default(), BlobList::default()),
            values: views.collect(),
            _dims: dims,
        })
    }
}

impl Inner {
    /// The form of these shapes that crosses: made once while they are among the last used.
    fn crossing(&self, shapes: &Arc<Shapes>) -> Result<Arc<Crossing>, BackendError> {
        let mut kept = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.iter().position(|c| Arc::ptr_eq(&c.shapes, shapes)) {
            Some(at) => kept[..=at].rotate_right(1),
            None => {
                let new = Arc::new(Crossing::new(shapes, &self.program, &self.values)?);
                kept.truncate(SHAPES_KEPT - 1);
                kept.insert(0, new);
            }
        }
        Ok(kept[0].clone())
    }
}

type StopSlot = unsafe extern "C" fn(*mut kiln_context, u32, *mut kiln_error) -> i32;

/// Context that requests to stop go to while it exists; other threads send them.
struct StopTarget(Mutex<Option<(*mut kiln_context, StopSlot, Arc<Library>)>>);

// SAFETY: the slot may be called from any thread, beside others, and the context is not destroyed while the lock is held.
unsafe impl Send for StopTarget {}
// SAFETY: as above.
unsafe impl Sync for StopTarget {}

impl StopTarget {
    fn new(object: &Object<kiln_context, Arc<Inner>>) -> StopTarget {
        let lib = object.library();
        StopTarget(Mutex::new(lib.table.context_stop.map(|f| (object.ptr(), f, lib.clone()))))
    }

    fn pass(&self, state: Stop) {
        let target = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((context, f, _)) = target.as_ref().filter(|t| t.2.plugin.is_alive()) {
            // SAFETY: the context lives as long as it stands here.
            let done = call::status(|err| unsafe { f(*context, state as u32, err) });
            done.unwrap_or_else(|e| tracing::debug!("a context could not be told to stop: {e}"));
        }
    }
}

struct LoadedContext {
    target: Arc<StopTarget>,
    flag: Arc<StopFlag>,
    object: Object<kiln_context, Arc<Inner>>,
    inner: Arc<Inner>,
    runs: u64,
    /// Outputs that were taken to wait for the run.
    early: Option<Vec<Tensor>>,
    /// Allocators that were set: memory of each may be given back until the object, which goes before them, is destroyed.
    allocators: Vec<Hooks>,
}

/// A port as the slots name it: is it an output, and its position.
fn numbered(port: Bound) -> Result<(u32, u32), BackendError> {
    let (output, i) = match port {
        Bound::Input(i) => (0, i),
        Bound::Output(i) => (1, i),
    };
    let index = u32::try_from(i);
    Ok((output, index.map_err(|_| BackendError::InvalidArgument(format!("there is no tensor {i}")))?))
}

impl Drop for LoadedContext {
    fn drop(&mut self) {
        *self.target.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Context for LoadedContext {
    fn stop_flag(&self) -> Option<Arc<StopFlag>> {
        Some(self.flag.clone())
    }

    fn enqueue(&mut self, inputs: &[Tensor], shapes: &Arc<Shapes>) -> Result<(), BackendError> {
        self.early = None;
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_enqueue, "context_enqueue")?;
        let (inputs, crossing) = (Tensors::new(inputs), self.inner.crossing(shapes)?);
        let run = kiln_run {
            struct_size: size_of::<kiln_run>() as u32,
            reserved: 0,
            inputs: inputs.as_ptr(),
            input_count: inputs.len(),
            values: crossing.values.as_ptr(),
            value_count: crossing.values.len() as u64,
            shapes_id: crossing.id,
            shapes: crossing.payload.view(),
        };
        // SAFETY: the object is alive and used by this thread alone; views and sink live for the call.
        call::status(|err| unsafe { f(self.object.ptr(), &run, err) })
    }

    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        if let Some(outputs) = self.early.take() {
            return Ok(outputs);
        }
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_outputs, "context_outputs")?;
        let count = self.inner.program.graph.outputs.len();
        // SAFETY: the object is alive and used by this thread alone; the sinks live for the call.
        let outputs = call::tensors(count, |out, err| unsafe { f(self.object.ptr(), out, err) })?;
        self.check_types(&outputs)?;
        self.runs += 1;
        Ok(outputs)
    }

    fn observe(&mut self, value: ValueId) -> Result<Tensor, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_observe, "observe")?;
        let number = self.inner.numbers.get(value.0 as usize).copied().flatten();
        let number = number
            .ok_or_else(|| BackendError::InvalidArgument(format!("{value:?} is no value of the program")))?;
        // SAFETY: the object is alive and used by this thread alone; the sinks live for the call.
        let mut one = call::tensors(1, |out, err| unsafe { f(self.object.ptr(), number.0, out, err) })?;
        one.pop().ok_or_else(|| BackendError::Internal("no tensor".into()))
    }

    fn set_observable(&mut self, on: bool) {
        let lib = self.object.library();
        if let Ok(f) = lib.slot(lib.table.context_set_observable, "set_observable") {
            // SAFETY: the object is alive and used by this thread alone.
            unsafe { f(self.object.ptr(), on.into()) }
        }
    }

    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_step_times, "step_times")?;
        // SAFETY: the object is alive and used by this thread alone; the sinks live for the call.
        let bytes = call::bytes(|out, err| unsafe { f(self.object.ptr(), out, err) })?;
        wire::step_times_from_cbor(&bytes)
    }

    fn host_steps(&mut self) -> Result<Vec<HostStep>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_host_steps, "host_steps")?;
        // SAFETY: the object is alive and used by this thread alone; the sinks live for the call.
        let bytes = call::bytes(|out, err| unsafe { f(self.object.ptr(), out, err) })?;
        wire::host_steps_from_cbor(&bytes)
    }

    fn time_runs(&mut self, runs: u32) -> Result<Vec<f64>, BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_time_runs, "time_runs")?;
        // SAFETY: the object is alive and used by this thread alone; the sinks live for the call.
        let bytes = call::bytes(|out, err| unsafe { f(self.object.ptr(), runs, out, err) })?;
        wire::samples_from_cbor(&bytes)
    }

    fn native(&mut self) -> Option<&mut dyn NativeContext> {
        Some(self)
    }

    fn wait_consumed(&mut self) -> Result<(), BackendError> {
        self.wait_for(KILN_WAIT_CONSUMED)
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        self.wait_for(KILN_WAIT_DONE)
    }

    fn counters(&self) -> Counters {
        self.read_counters().unwrap_or(Counters { runs: self.runs, ..Counters::default() })
    }
}

/// A library without one of these slots answers with an error that names it.
impl NativeContext for LoadedContext {
    unsafe fn set_stream(&mut self, stream: *mut c_void) -> Result<(), BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_set_stream, "set_stream")?;
        // SAFETY: the object is alive and used by this thread alone; the caller vouches for the stream.
        call::status(|err| unsafe { f(self.object.ptr(), stream, err) })
    }

    unsafe fn bind(&mut self, port: Bound, address: *mut c_void, bytes: u64) -> Result<(), BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_bind, "bind")?;
        let (output, index) = numbered(port)?;
        // SAFETY: the object is alive and used by this thread alone; the caller vouches for the memory.
        call::status(|err| unsafe { f(self.object.ptr(), output, index, address, bytes, err) })
    }

    unsafe fn set_consumed_event(&mut self, event: *mut c_void) -> Result<(), BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_set_consumed_event, "set_consumed_event")?;
        // SAFETY: the object is alive and used by this thread alone; the caller vouches for the event.
        call::status(|err| unsafe { f(self.object.ptr(), event, err) })
    }

    unsafe fn set_memory(&mut self, address: *mut c_void, bytes: u64) -> Result<(), BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_set_memory, "set_memory")?;
        // SAFETY: the object is alive and used by this thread alone; the caller vouches for the memory.
        call::status(|err| unsafe { f(self.object.ptr(), address, bytes, err) })
    }

    unsafe fn set_allocator(
        &mut self,
        allocator: Option<Arc<dyn TemporaryAllocator>>,
    ) -> Result<(), BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_set_allocator, "set_allocator")?;
        let hooks = allocator.map(Hooks::new);
        let view = hooks.as_ref().map(Hooks::view);
        let view = view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the object is alive and used by this thread alone; the allocator stays as long as it; the caller vouches for the memory.
        let set = call::status(|err| unsafe { f(self.object.ptr(), view, err) });
        self.allocators.extend(hooks);
        set
    }

    unsafe fn set_aux_streams(&mut self, streams: &[*mut c_void]) -> Result<(), BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_set_aux_streams, "set_aux_streams")?;
        let count = u32::try_from(streams.len())
            .map_err(|_| BackendError::InvalidArgument(format!("{} auxiliary streams", streams.len())))?;
        // SAFETY: the object is alive and used by this thread alone; the caller vouches for the streams.
        call::status(|err| unsafe { f(self.object.ptr(), streams.as_ptr(), count, err) })
    }

    fn address(&mut self, port: Bound) -> Result<(*mut c_void, u64), BackendError> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_address, "address")?;
        let (output, index) = numbered(port)?;
        let (mut at, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: the object is alive and used by this thread alone; both places live for the call.
        call::status(|err| unsafe { f(self.object.ptr(), output, index, &mut at, &mut bytes, err) })?;
        Ok((at, bytes))
    }
}

impl LoadedContext {
    /// Waits for a moment of the last run; of a library that can't tell, for its outputs, which are kept.
    fn wait_for(&mut self, moment: u32) -> Result<(), BackendError> {
        let lib = self.object.library();
        let Some(f) = lib.table.context_wait else {
            self.early = Some(self.outputs()?);
            return Ok(());
        };
        // SAFETY: the object is alive and used by this thread alone.
        call::status(|err| unsafe { f(self.object.ptr(), moment, err) })
    }

    /// Refuses outputs of other element types or ranks than the program's.
    fn check_types(&self, outputs: &[Tensor]) -> Result<(), BackendError> {
        let graph = &self.inner.program.graph;
        for (i, (t, &v)) in outputs.iter().zip(&graph.outputs).enumerate() {
            let wanted = graph.ty(v);
            if t.dtype() != wanted.dtype || t.shape().len() != wanted.rank() {
                let name = &graph.value(v).name;
                let found = t.ty();
                return Err(BackendError::Internal(format!(
                    "output {i} (\"{name}\") is {found}, wanted {wanted}"
                )));
            }
        }
        Ok(())
    }

    fn read_counters(&self) -> Option<Counters> {
        let lib = self.object.library();
        let f = lib.slot(lib.table.context_counters, "counters").ok()?;
        let mut c = kiln_counters { struct_size: size_of::<kiln_counters>() as u32, ..Default::default() };
        // SAFETY: the object is alive; `&self` of a context that is not `Sync` is used by one thread at a time.
        call::status(|err| unsafe { f(self.object.ptr(), &mut c, err) }).ok()?;
        Some(Counters {
            runs: c.runs,
            allocations: c.allocations,
            compilations: c.compilations,
            pipelines: c.pipelines,
            host_syncs: c.host_syncs,
        })
    }
}
