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
}

impl Core {
    /// Takes a context of an engine.
    pub fn new(engine: kiln::Engine, context: kiln::ExecutionContext) -> Core {
        Core { context: Mutex::new(context), engine, callbacks: Mutex::default(), shapes: Mutex::default() }
    }

    /// Calls the context without the interpreter's lock.
    pub fn with<T: Send, E: IntoException + Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut kiln::ExecutionContext) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        let mut guard = try_lock(&self.context).ok_or_else(|| in_use("the execution context"))?;
        let context = &mut *guard;
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
