//! Debug tensors: values between layers that are reported to a listener when a run is done.

use super::ExecutionContext;
use crate::engine::unlisted;
use crate::{Engine, RuntimeError};
use kiln_backend::{BackendError, Program};
use kiln_ir::{Source, Tensor, ValueId};
use std::collections::{BTreeSet, HashSet};

/// Receives debug tensors of a context. Functions of name and tensor are listeners.
pub trait DebugListener: Send {
    /// Takes a tensor of a run that is done: name, elements with type and shape. Returning false fails the run.
    fn debug_tensor(&mut self, name: &str, tensor: &Tensor) -> bool;
}

impl<F: FnMut(&str, &Tensor) -> bool + Send> DebugListener for F {
    fn debug_tensor(&mut self, name: &str, tensor: &Tensor) -> bool {
        self(name, tensor)
    }
}

/// The listener of a context, and what it listens to.
#[derive(Default)]
pub(super) struct Debugging {
    listener: Option<Box<dyn DebugListener>>,
    on: BTreeSet<String>,
    unfused: bool,
    /// Whether the run in flight has not been reported.
    due: bool,
}

impl Debugging {
    /// Whether runs keep values for the listener.
    pub(super) fn is_active(&self) -> bool {
        self.listener.is_some() && (self.unfused || !self.on.is_empty())
    }

    /// Notes that a run was started.
    pub(super) fn begin(&mut self) {
        self.due = self.is_active();
    }
}

impl Engine {
    /// Names of the tensors that were marked for debugging when the engine was built.
    pub fn debug_tensors(&self) -> Vec<String> {
        self.program().graph.debug.iter().cloned().collect()
    }
}

impl ExecutionContext {
    /// Reports debug tensors of further runs to this listener, in the order in which they are computed, when
    /// [`outputs`](ExecutionContext::outputs) or [`wait`](ExecutionContext::wait) finds the run done. All tensors are off at first.
    /// While one is on, memory of values is not shared; with none on, or without a listener, runs are as before.
    pub fn set_debug_listener(&mut self, listener: Option<Box<dyn DebugListener>>) {
        self.debugging.listener = listener;
        self.keep_values();
    }

    /// Turns the reports of one debug tensor on or off.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownTensor`] for a tensor that was not marked when the engine was built.
    pub fn set_tensor_debug_state(&mut self, name: &str, on: bool) -> Result<(), RuntimeError> {
        let found = self.check_marked(name);
        self.recorder.note(found)?;
        match on {
            true => self.debugging.on.insert(name.to_owned()),
            false => self.debugging.on.remove(name),
        };
        self.keep_values();
        Ok(())
    }

    /// Turns the reports of all marked tensors on or off.
    pub fn set_all_debug_states(&mut self, on: bool) {
        let graph = &self.loaded.program.graph;
        self.debugging.on = if on { graph.debug.clone() } else { BTreeSet::new() };
        self.keep_values();
    }

    /// Turns the reports of all values between kernels on or off, marked or not. They are those that the engine stores anyway:
    /// values inside of fused kernels are not among them.
    pub fn set_unfused_debug_state(&mut self, on: bool) {
        self.debugging.unfused = on;
        self.keep_values();
    }

    /// Whether a debug tensor is reported.
    ///
    /// # Errors
    /// As of [`set_tensor_debug_state`](ExecutionContext::set_tensor_debug_state).
    pub fn debug_state(&self, name: &str) -> Result<bool, RuntimeError> {
        self.check_marked(name)?;
        Ok(self.debugging.on.contains(name))
    }

    /// Names of the tensors that were marked for debugging when the engine was built.
    pub fn debug_tensors(&self) -> Vec<String> {
        self.loaded.program.graph.debug.iter().cloned().collect()
    }

    fn check_marked(&self, name: &str) -> Result<(), RuntimeError> {
        let marked = &self.loaded.program.graph.debug;
        match marked.contains(name) {
            true => Ok(()),
            false => Err(unlisted(marked.iter().map(String::as_str), "debug tensor", name)),
        }
    }

    /// Lets the backend keep the values that are asked for.
    pub(super) fn keep_values(&mut self) {
        self.context.set_observable(self.observable || self.debugging.is_active());
    }

    /// Reports the run that is done, once.
    pub(super) fn report_debug(&mut self) -> Result<(), RuntimeError> {
        if !std::mem::take(&mut self.debugging.due) {
            return Ok(());
        }
        let Some(mut listener) = self.debugging.listener.take() else { return Ok(()) };
        let reported = self.report_to(&mut *listener);
        self.debugging.listener = Some(listener);
        reported
    }

    fn report_to(&mut self, listener: &mut dyn DebugListener) -> Result<(), RuntimeError> {
        let program = self.loaded.program.clone();
        let border = if self.debugging.unfused { program.border() } else { HashSet::new() };
        for v in in_order(&program) {
            let name = &program.graph.value(v).name;
            let marked = self.debugging.on.contains(name);
            let computed = matches!(program.graph.value(v).source, Source::Node(..));
            if !(marked || computed && border.contains(&v)) {
                continue;
            }
            let tensor = match self.value(v) {
                Ok(tensor) => tensor,
                // A value that is stored nowhere is passed over, unless the listener asked for it by name.
                Err(RuntimeError::Backend { source: BackendError::Unsupported(_), .. }) if !marked => {
                    continue;
                }
                Err(e) => return Err(e),
            };
            if !listener.debug_tensor(name, &tensor) {
                return Err(RuntimeError::DebugListener { tensor: name.clone() });
            }
        }
        Ok(())
    }
}

/// Values in the order in which they are known: inputs, weights, results of steps.
fn in_order(program: &Program) -> Vec<ValueId> {
    let g = &program.graph;
    let weights = g.value_ids().filter(|&v| g.weight(v).is_some());
    let nodes = program.steps.iter().flat_map(|s| &s.nodes).filter_map(|&n| g.get(n));
    let computed = nodes.flat_map(|n| n.outputs.iter().copied());
    g.inputs.iter().copied().chain(weights).chain(computed).collect()
}
