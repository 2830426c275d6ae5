//! Progress of builds: functions of the caller, which may cancel them.

use crate::wishes::{Tell, change, kiln_builder_t};
use kiln::{Monitor, ProgressMonitor};
use kiln_c_core::callback::{Callback, kiln_destroy_fn};
use kiln_c_core::error::{guard, kiln_error_t};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

/// Receives the phase of a build, its steps that are done, and all its steps. Returning false cancels the build.
pub type kiln_progress_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        phase: *const c_char,
        phase_length: usize,
        done: usize,
        steps: usize,
    ) -> bool,
>;

/// Tells a function of the progress of builds, which it can cancel; kiln_error_is_cancelled is true of the error then. NULL ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_progress(
    builder: *mut kiln_builder_t,
    function: kiln_progress_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let progress = Callback::new(function, user, destroy).map(|c| -> Arc<Tell> {
            Arc::new(move |phase: &str, done, steps| {
                let Callback { function, user, .. } = &c;
                // SAFETY: the caller's function for its pointer.
                unsafe { function(*user, phase.as_ptr().cast(), phase.len(), done, steps) }
            })
        });
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.progress = progress;
                Ok(())
            })
        }
    })
}

/// Takes the start of a phase of so many steps; `parent` is the phase around it, or NULL.
pub type kiln_phase_start_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        phase: *const c_char,
        phase_length: usize,
        parent: *const c_char,
        parent_length: usize,
        steps: usize,
    ),
>;

/// Takes the end of a step, counted from 0. Returning false cancels the build.
pub type kiln_step_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, phase: *const c_char, phase_length: usize, step: usize) -> bool,
>;

/// Takes the end of a phase.
pub type kiln_phase_finish_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, phase: *const c_char, phase_length: usize)>;

type Step = unsafe extern "C" fn(*mut c_void, *const c_char, usize, usize) -> bool;

struct Watcher {
    step: Callback<Step>,
    start: kiln_phase_start_fn,
    finish: kiln_phase_finish_fn,
}

impl ProgressMonitor for Watcher {
    fn phase_start(&mut self, phase: &str, parent: Option<&str>, steps: usize) {
        let (around, length) = parent.map_or((std::ptr::null(), 0), |p| (p.as_ptr().cast(), p.len()));
        if let Some(function) = self.start {
            // SAFETY: the caller's function for its pointer.
            unsafe { function(self.step.user, phase.as_ptr().cast(), phase.len(), around, length, steps) };
        }
    }

    fn step_complete(&mut self, phase: &str, step: usize) -> bool {
        let Callback { function, user, .. } = &self.step;
        // SAFETY: the caller's function for its pointer.
        unsafe { function(*user, phase.as_ptr().cast(), phase.len(), step) }
    }

    fn phase_finish(&mut self, phase: &str) {
        if let Some(function) = self.finish {
            // SAFETY: the caller's function for its pointer.
            unsafe { function(self.step.user, phase.as_ptr().cast(), phase.len()) };
        }
    }
}

/// Tells functions of the nested phases of builds. `start` and `finish` may be NULL; `step` of NULL ends it. Phases that are open
/// when a build fails are finished, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_monitor(
    builder: *mut kiln_builder_t,
    start: kiln_phase_start_fn,
    step: kiln_step_fn,
    finish: kiln_phase_finish_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let step = Callback::new(step, user, destroy);
        let monitor = step.map(|step| Monitor::new(Arc::new(Mutex::new(Watcher { step, start, finish }))));
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.config.monitor = monitor;
                Ok(())
            })
        }
    })
}
