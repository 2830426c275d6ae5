//! Slots of executables and contexts.

use super::handle::{Handle, give};
use super::{host, import};
use crate::stop::{self, Stop, StopFlag};
use crate::view;
use crate::wire::{host_steps_to_cbor, samples_to_cbor, step_times_to_cbor};
use crate::{BackendError, Bound, Context, Executable, Program, Shapes};
use kiln_abi::*;
use kiln_ir::ValueId;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Number of shapes that an executable remembers.
const SHAPES_KEPT: usize = 64;

/// An executable, with the shapes that it was lately run with.
pub(super) struct Loaded {
    executable: Arc<dyn Executable>,
    run: Arc<RunShapes>,
}

struct RunShapes {
    program: Arc<Program>,
    kept: Mutex<VecDeque<(u64, Arc<Shapes>)>>,
}

impl Loaded {
    pub(super) fn new(executable: Arc<dyn Executable>, program: Arc<Program>) -> Loaded {
        Loaded { executable, run: Arc::new(RunShapes { program, kept: Mutex::default() }) }
    }
}

impl RunShapes {
    /// The shapes of a run: those that came under the same number, or the payload's.
    ///
    /// # Safety
    /// The run is valid for the present call.
    unsafe fn of(&self, run: &kiln_run) -> Result<Arc<Shapes>, BackendError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, shapes)) = kept.iter().find(|(id, _)| *id == run.shapes_id) {
            return Ok(shapes.clone());
        }
        // SAFETY: as this function's contract says.
        let payload = unsafe { import::payload(&run.shapes) }?;
        let shapes = Arc::new(Shapes::from_cbor(payload.cbor, &self.program)?);
        if kept.len() == SHAPES_KEPT {
            kept.pop_front();
        }
        kept.push_back((run.shapes_id, shapes.clone()));
        Ok(shapes)
    }
}

pub(super) struct Running {
    context: Mutex<Box<dyn Context>>,
    stop: Arc<StopFlag>,
    run: Arc<RunShapes>,
}

impl Running {
    /// Runs on the context under its flag.
    fn run<T>(&self, f: impl FnOnce(&mut dyn Context) -> Result<T, BackendError>) -> Result<T, BackendError> {
        let mut context = self.lock()?;
        stop::scope(&self.stop, || f(&mut **context))
    }

    /// The context, unless another thread is using it.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Box<dyn Context>>, BackendError> {
        match self.context.try_lock() {
            Ok(context) => Ok(context),
            // The handle's own mark tells about panics.
            Err(TryLockError::Poisoned(p)) => Ok(p.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err(BackendError::InvalidArgument("another thread is using this context".into()))
            }
        }
    }
}

type ExecutableHandle = Handle<Loaded>;
pub(super) type ContextHandle = Handle<Running>;

pub(super) unsafe extern "C" fn executable_destroy(executable: *mut kiln_executable) {
    // SAFETY: the host destroys what `load` made, once.
    unsafe { ExecutableHandle::destroy(executable) }
}

pub(super) unsafe extern "C" fn create(
    executable: *mut kiln_executable,
    out: *mut *mut kiln_context,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: as this function's contract says.
    unsafe { make(executable, out, err, |e| e.context()) }
}

pub(super) unsafe extern "C" fn create_without_memory(
    executable: *mut kiln_executable,
    out: *mut *mut kiln_context,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: as this function's contract says.
    unsafe { make(executable, out, err, |e| e.context_without_memory()) }
}

/// Makes a context.
///
/// # Safety
/// The host passes what `load` made and a place for a pointer.
unsafe fn make(
    executable: *mut kiln_executable,
    out: *mut *mut kiln_context,
    err: *mut kiln_error,
    f: impl FnOnce(&dyn Executable) -> Result<Box<dyn Context>, BackendError>,
) -> i32 {
    // SAFETY: as this function's contract says.
    unsafe {
        ExecutableHandle::slot(executable, err, |e| {
            let context = f(&*e.executable)?;
            let stop = context.stop_flag().unwrap_or_default();
            give(out, || Handle::make(Running { context: Mutex::new(context), stop, run: e.run.clone() }))
        })
    }
}

pub(super) unsafe extern "C" fn destroy(context: *mut kiln_context) {
    // SAFETY: the host destroys what `create` made, once.
    unsafe { ContextHandle::destroy(context) }
}

pub(super) unsafe extern "C" fn enqueue(
    context: *mut kiln_context,
    run: *const kiln_run,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made and views of the present call.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            let run = view::sized(run, "the run")?;
            let inputs = import::tensors(run.inputs, run.input_count)?;
            let shapes = c.run.of(&run)?;
            c.run(|context| context.enqueue(&inputs, &shapes))
        })
    }
}

pub(super) unsafe extern "C" fn outputs(
    context: *mut kiln_context,
    out: *mut kiln_tensor_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made and sinks of the present call.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            c.run(|context| context.outputs())?.iter().try_for_each(|t| host::write_tensor(out, t))
        })
    }
}

pub(super) unsafe extern "C" fn observe(
    context: *mut kiln_context,
    value: u32,
    out: *mut kiln_tensor_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made and sinks of the present call.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            let values = c.run.program.graph.value_ids().count();
            if value as usize >= values {
                return Err(BackendError::InvalidArgument(format!("value {value} of {values}")));
            }
            host::write_tensor(out, &c.lock()?.observe(ValueId(value))?)
        })
    }
}

pub(super) unsafe extern "C" fn set_observable(context: *mut kiln_context, on: u32) {
    // SAFETY: the host passes what `create` made.
    let done = unsafe {
        ContextHandle::call(context, |c| {
            c.lock()?.set_observable(on != 0);
            Ok(())
        })
    };
    if let Err(e) = done {
        host::log(KILN_LOG_WARN, &format!("set_observable: {e}"));
    }
}

/// Writes a payload that a context makes to a sink.
///
/// # Safety
/// The host passes what `create` made and sinks of the present call.
unsafe fn told(
    context: *mut kiln_context,
    out: *mut kiln_sink,
    err: *mut kiln_error,
    payload: impl FnOnce(&mut dyn Context) -> Result<Vec<u8>, BackendError>,
) -> i32 {
    // SAFETY: as this function's contract says.
    unsafe { ContextHandle::slot(context, err, |c| host::write(out, &payload(&mut **c.lock()?)?)) }
}

pub(super) unsafe extern "C" fn step_times(
    context: *mut kiln_context,
    out: *mut kiln_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: as this slot's contract says.
    unsafe { told(context, out, err, |c| step_times_to_cbor(&c.step_times()?)) }
}

pub(super) unsafe extern "C" fn counters(
    context: *mut kiln_context,
    out: *mut kiln_counters,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made and a structure of `struct_size` bytes.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            let size = view::sized(out.cast_const(), "the place for the counters")?.struct_size;
            let n = c.lock()?.counters();
            let full = kiln_counters {
                struct_size: size,
                reserved: 0,
                runs: n.runs,
                allocations: n.allocations,
                compilations: n.compilations,
                pipelines: n.pipelines,
                host_syncs: n.host_syncs,
            };
            let len = (size as usize).min(size_of::<kiln_counters>());
            std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), out.cast::<u8>(), len);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn time_runs(
    context: *mut kiln_context,
    runs: u32,
    out: *mut kiln_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: as this slot's contract says.
    unsafe { told(context, out, err, |c| samples_to_cbor(&c.time_runs(runs)?)) }
}

pub(super) unsafe extern "C" fn set_stream(
    context: *mut kiln_context,
    stream: *mut std::ffi::c_void,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and a stream that stays as the slot's contract says.
    unsafe { ContextHandle::slot(context, err, |c| c.lock()?.require_native()?.set_stream(stream)) }
}

pub(super) unsafe extern "C" fn bind(
    context: *mut kiln_context,
    output: u32,
    index: u32,
    address: *mut std::ffi::c_void,
    bytes: u64,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and memory that stays as the slot's contract says.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            c.lock()?.require_native()?.bind(port(output, index), address, bytes)
        })
    }
}

fn port(output: u32, index: u32) -> Bound {
    match output {
        0 => Bound::Input(index as usize),
        _ => Bound::Output(index as usize),
    }
}

pub(super) unsafe extern "C" fn set_memory(
    context: *mut kiln_context,
    address: *mut std::ffi::c_void,
    bytes: u64,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and memory that stays as the slot's contract says.
    unsafe { ContextHandle::slot(context, err, |c| c.lock()?.require_native()?.set_memory(address, bytes)) }
}

pub(super) unsafe extern "C" fn set_consumed_event(
    context: *mut kiln_context,
    event: *mut std::ffi::c_void,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and an event that stays as the slot's contract says.
    unsafe { ContextHandle::slot(context, err, |c| c.lock()?.require_native()?.set_consumed_event(event)) }
}

pub(super) unsafe extern "C" fn set_aux_streams(
    context: *mut kiln_context,
    streams: *const *mut std::ffi::c_void,
    count: u32,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and so many streams that stay as the slot's contract says.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            let all = match streams.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(streams, count as usize),
            };
            c.lock()?.require_native()?.set_aux_streams(all)
        })
    }
}

pub(super) unsafe extern "C" fn wait(context: *mut kiln_context, moment: u32, err: *mut kiln_error) -> i32 {
    // SAFETY: the host passes what `create` made.
    unsafe {
        ContextHandle::slot(context, err, |c| match moment {
            KILN_WAIT_CONSUMED => c.run(|context| context.wait_consumed()),
            KILN_WAIT_DONE => c.run(|context| context.wait()),
            _ => Err(BackendError::Unsupported(format!("moment {moment} of a run; there are 0 and 1"))),
        })
    }
}

pub(super) unsafe extern "C" fn address(
    context: *mut kiln_context,
    output: u32,
    index: u32,
    address: *mut *mut std::ffi::c_void,
    bytes: *mut u64,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: the host passes what `create` made, and places for a pointer and a number.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            if address.is_null() || bytes.is_null() {
                return Err(BackendError::InvalidArgument("no place for an address and its size".into()));
            }
            let (at, n) = c.lock()?.require_native()?.address(port(output, index))?;
            (*address, *bytes) = (at, n);
            Ok(())
        })
    }
}

pub(super) unsafe extern "C" fn host_steps(
    context: *mut kiln_context,
    out: *mut kiln_sink,
    err: *mut kiln_error,
) -> i32 {
    // SAFETY: as this slot's contract says.
    unsafe { told(context, out, err, |c| host_steps_to_cbor(&c.host_steps()?)) }
}

pub(super) unsafe extern "C" fn stop(context: *mut kiln_context, state: u32, err: *mut kiln_error) -> i32 {
    // SAFETY: the host passes what `create` made, and does not destroy it during the call.
    unsafe {
        ContextHandle::slot(context, err, |c| {
            c.stop.set(Stop::of(state));
            Ok(())
        })
    }
}
