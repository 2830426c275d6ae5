//! The state of a context, shared by its object and by runs of its engine.

use crate::errors::{IntoException, in_use};
use crate::scope::{Callback, detached, lock, try_lock};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A context that one thread uses at a time.
pub struct Core {
    pub context: Mutex<kiln::ExecutionContext>,
    /// Engine of the context.
    pub engine: kiln::Engine,
    /// Objects that the context calls, by what for.
    pub callbacks: Mutex<HashMap<String, Arc<Callback>>>,
    /// Shapes of inputs that were set.
    pub shapes: Mutex<HashMap<String, Vec<usize>>>,
    /// Stream and memory of the last run on tensors of a device, which stay set for another one on the same.
    pub lent: Mutex<Lent>,
}

/// A stream and memory of the caller's on a device, set for runs that name them. A change of either costs a context its recorded graph.
#[derive(Default)]
pub struct Lent {
    pub stream: Option<u64>,
    /// Address and bytes by the name of the tensor.
    pub bound: HashMap<String, (usize, u64)>,
}

impl Lent {
    /// Takes back what is set, so that nothing else runs on it.
    pub fn end(&mut self, context: &mut kiln::ExecutionContext) -> Result<(), kiln::RuntimeError> {
        let Lent { stream, bound } = std::mem::take(self);
        for name in bound.keys() {
            // SAFETY: null ends a binding.
            unsafe { context.bind(name, std::ptr::null_mut(), 0) }?;
        }
        match stream {
            // SAFETY: null stands for the context's own stream.
            Some(_) => unsafe { context.set_stream(std::ptr::null_mut()) },
            None => Ok(()),
        }
    }
}

impl Core {
    /// Takes a context of an engine.
    pub fn new(engine: kiln::Engine, context: kiln::ExecutionContext) -> Core {
        let (callbacks, shapes, lent) = (Mutex::default(), Mutex::default(), Mutex::default());
        Core { context: Mutex::new(context), engine, callbacks, shapes, lent }
    }

    /// Calls the context without the interpreter's lock.
    pub fn with<T: Send, E: IntoException + Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut kiln::ExecutionContext) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        let mut guard = try_lock(&self.context).ok_or_else(|| in_use("the execution context"))?;
        let context = &mut *guard;
        let mut lent = std::mem::take(&mut *lock(&self.lent));
        if lent.stream.is_some() || !lent.bound.is_empty() {
            detached(py, || lent.end(context))?;
        }
        detached(py, || f(context))
    }

    /// Remembers an object that the context calls, or forgets it.
    pub fn keep(&self, what: &str, callback: Option<Arc<Callback>>) {
        let mut all = lock(&self.callbacks);
        let old = match callback {
            Some(callback) => all.insert(what.to_owned(), callback),
            None => all.remove(what),
        };
        drop(all);
        drop(old);
    }
}
