//! Contexts: memory of one run at a time, and its settings.

use crate::callback::kiln_destroy_fn;
use crate::engine::kiln_engine_t;
use crate::error::{Fail, guard, kiln_error_t, quietly};
use crate::handle::{self, Exclusive, Out};
use crate::recorder::{kiln_error_fn, recorder};
use kiln::{Canceller, ExecutionContext, Tensor};
use kiln_runtime::Engine;
use std::ffi::c_void;
use std::time::Duration;

/// Runs an engine, one run at a time. It may move between threads; two calls at once are refused.
pub struct kiln_context_t {
    /// The parts that one call at a time uses.
    pub cell: Exclusive<Run>,
}

/// A context and its last run.
pub struct Run {
    /// The context.
    pub context: ExecutionContext,
    /// Its engine.
    pub engine: Engine,
    /// Stream of the caller's that is set.
    pub stream: *mut c_void,
    /// Whether a run was started and not waited for.
    pub started: bool,
    /// Whether outputs of other formats stay as they are in memory.
    pub packed: bool,
    /// Names of outputs in memory of a device, which nobody copies to the host.
    pub on_device: Vec<String>,
    /// Outputs of the last run.
    pub outputs: Vec<(String, Tensor)>,
}

// SAFETY: the stream is a handle of the caller's, which any thread may use.
unsafe impl Send for Run {}

/// Makes a context. It keeps what it needs of the engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_create(
    engine: *const kiln_engine_t,
    context: *mut *mut kiln_context_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, e) = unsafe { (Out::new(context, "context")?, handle::shared(engine, "engine")?) };
        let run = Run {
            context: e.engine.create_context()?,
            engine: e.engine.clone(),
            stream: std::ptr::null_mut(),
            started: false,
            packed: false,
            on_device: Vec::new(),
            outputs: Vec::new(),
        };
        out.put(kiln_context_t { cell: Exclusive::new("context", run) });
        Ok(())
    })
}

/// Frees a context; a run that is in flight is stopped. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_destroy(context: *mut kiln_context_t) {
    // SAFETY: a context of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(context) });
}

/// The parts of a context, for one call.
///
/// # Safety
/// The pointer is NULL, or of a context that lives as long as the call.
pub unsafe fn with<T>(
    context: *mut kiln_context_t,
    f: impl FnOnce(&mut Run) -> Result<T, Fail>,
) -> Result<T, Fail> {
    // SAFETY: as the caller vouches.
    let c = unsafe { handle::shared(context, "context") }?;
    f(&mut *c.cell.enter()?)
}

/// Lets further runs use this profile only; -1: whichever fits, as at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_profile(
    context: *mut kiln_context_t,
    profile: i64,
) -> *mut kiln_error_t {
    guard(|| {
        let chosen = match profile {
            -1 => None,
            p => Some(usize::try_from(p).map_err(|_| {
                Fail::argument(format!(
                    "the profile is {p}, wanted a number from 0 on, or -1 for whichever fits"
                ))
            })?),
        };
        // SAFETY: pointers as the header wants them.
        unsafe { with(context, |run| Ok(run.context.set_profile(chosen)?)) }
    })
}

/// Stops further runs that take longer, in nanoseconds; 0: no limit, as at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_timeout(
    context: *mut kiln_context_t,
    nanoseconds: u64,
) -> *mut kiln_error_t {
    guard(|| {
        let limit = (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds));
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(context, |run| {
                run.context.set_timeout(limit);
                Ok(())
            })
        }
    })
}

/// Reports errors of a context to a function, instead of that of its engine. NULL ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_set_error_recorder(
    context: *mut kiln_context_t,
    function: kiln_error_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let recorder = recorder(function, user, destroy);
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(context, |run| {
                run.context.set_error_recorder(recorder);
                Ok(())
            })
        }
    })
}

/// Stops runs of a context, from any thread.
pub struct kiln_canceller_t {
    canceller: Canceller,
}

/// Makes a canceller of a context. It may live longer than the context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_context_canceller(
    context: *mut kiln_context_t,
    canceller: *mut *mut kiln_canceller_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(canceller, "canceller")?;
            out.put(kiln_canceller_t { canceller: with(context, |run| Ok(run.context.canceller()))? });
        }
        Ok(())
    })
}

/// Asks the run in flight to stop: the call that started it, or that waits for it, fails, and kiln_error_is_cancelled is true of
/// its error. `stopped`, which may be NULL, becomes whether there is a run that ends so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_canceller_cancel(
    canceller: *const kiln_canceller_t,
    stopped: *mut bool,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let c = handle::shared(canceller, "canceller")?;
            handle::put(stopped, c.canceller.cancel());
        }
        Ok(())
    })
}

/// Frees a canceller. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_canceller_destroy(canceller: *mut kiln_canceller_t) {
    // SAFETY: a canceller of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(canceller) });
}
