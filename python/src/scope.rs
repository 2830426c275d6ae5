//! Calls without the interpreter's lock, and callbacks from inside of them.
//!
//! An exception of a callback is kept until the call that caused it ends, and raised there in place of the call's own error.

use crate::errors::IntoException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

thread_local! {
    /// Exceptions of callbacks by the calls that this thread is in, the innermost last.
    static CALLS: RefCell<Vec<Option<PyErr>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` without the interpreter's lock. An exception of a callback on this thread goes before the result.
pub fn detached<T: Send, E: IntoException + Send>(
    py: Python<'_>,
    f: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    CALLS.with_borrow_mut(|calls| calls.push(None));
    let result = py.detach(f);
    let raised = CALLS.with_borrow_mut(Vec::pop).flatten();
    match (raised, result) {
        (Some(e), _) => Err(e),
        (None, result) => result.map_err(|e| e.into_exception(py)),
    }
}

/// Keeps an exception for the call that this thread is in, if there is one.
pub fn keep_for_call(e: PyErr) {
    CALLS.with_borrow_mut(|calls| {
        if let Some(slot) = calls.last_mut() {
            slot.get_or_insert(e);
        }
    });
}

/// Keeps an exception of a callback for the call that caused it; prints it where no call of this thread did.
fn keep(py: Python<'_>, e: PyErr) {
    let left = CALLS.with_borrow_mut(|calls| match calls.last_mut() {
        Some(slot) => {
            slot.get_or_insert(e);
            None
        }
        None => Some(e),
    });
    if let Some(e) = left {
        e.write_unraisable(py, None);
    }
}

/// A Python object that Kiln calls, shared by the object that it was given to and by what Kiln holds.
#[derive(Debug)]
pub struct Callback {
    object: Mutex<Option<Py<PyAny>>>,
    /// Receives exceptions that other threads than the caller's may meet; `None`: the calls of this thread.
    raised: Option<Raised>,
}

/// First exception of the callbacks of a build, whichever thread calls them.
#[derive(Clone, Debug, Default)]
pub struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Keeps an exception unless there is one.
    pub fn keep(&self, e: PyErr) {
        lock(&self.0).get_or_insert(e);
    }

    /// The exception that was kept.
    pub fn take(&self) -> Option<PyErr> {
        lock(&self.0).take()
    }
}

/// Locks, whatever a panic left behind.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks unless another thread holds it.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Callback {
    /// A callback whose exceptions go to the call of the thread that met them.
    pub fn new(object: Bound<'_, PyAny>) -> Arc<Callback> {
        Arc::new(Callback { object: Mutex::new(Some(object.unbind())), raised: None })
    }

    /// A callback whose exceptions go to a build.
    pub fn of_build(object: Bound<'_, PyAny>, raised: Raised) -> Arc<Callback> {
        Arc::new(Callback { object: Mutex::new(Some(object.unbind())), raised: Some(raised) })
    }

    /// Calls `f` with the object and the interpreter's lock. `None` if the object is gone, the interpreter ends, or `f` raised, which
    /// the call that caused it then does.
    pub fn call<T>(&self, f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Option<T> {
        Python::try_attach(|py| {
            let object = lock(&self.object).as_ref().map(|o| o.clone_ref(py))?;
            match f(object.bind(py)) {
                Ok(value) => Some(value),
                Err(e) => {
                    match &self.raised {
                        Some(raised) => raised.keep(e),
                        None => keep(py, e),
                    }
                    None
                }
            }
        })
        .flatten()
    }

    /// Visits the object for the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match try_lock(&self.object) {
            Some(object) => visit.call(&*object),
            None => Ok(()),
        }
    }

    /// Lets go of the object.
    pub fn clear(&self) {
        let object = lock(&self.object).take();
        drop(object);
    }
}

impl kiln::ErrorRecorder for Callback {
    fn report(&self, code: kiln::ErrorCode, description: &str) {
        self.call(|f| f.call1((code.number(), description)).map(drop));
    }
}
