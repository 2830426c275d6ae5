//! Monitors of builds: nested phases of steps, of which each may cancel the build.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Follows builds phase by phase. Phases nest: a phase starts while its parent is open, and is finished before it. Phases that
/// are open when a build fails or is cancelled are finished, too, the innermost first.
pub trait ProgressMonitor: Send {
    /// Called when a phase of so many steps starts; `parent` is the phase around it, if there is one.
    fn phase_start(&mut self, phase: &str, parent: Option<&str>, steps: usize);

    /// Called when a step, counted from 0, is done. Returning false cancels the build. A phase may skip its last steps.
    fn step_complete(&mut self, phase: &str, step: usize) -> bool;

    /// Called when a phase ends.
    fn phase_finish(&mut self, phase: &str);
}

/// A monitor that builds share.
#[derive(Clone)]
pub struct Monitor(Arc<Mutex<dyn ProgressMonitor>>);

impl Monitor {
    /// Shares a monitor. The caller may keep a clone of the handle, to read what it noted.
    pub fn new<M: ProgressMonitor + 'static>(monitor: Arc<Mutex<M>>) -> Monitor {
        Monitor(monitor)
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut dyn ProgressMonitor) -> T) -> T {
        f(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Monitor")
    }
}
