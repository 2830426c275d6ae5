//! Objects behind the opaque pointers of the ABI.

use super::{host, panics};
use crate::BackendError;
use kiln_abi::{KILN_LOG_ERROR, kiln_error};
use std::sync::atomic::{AtomicBool, Ordering};

/// An object with a mark that its code has panicked.
pub(super) struct Handle<T> {
    value: T,
    poisoned: AtomicBool,
}

impl<T> Handle<T> {
    /// An object as an opaque pointer.
    pub(super) fn make<O>(value: T) -> *mut O {
        Box::into_raw(Box::new(Handle { value, poisoned: AtomicBool::new(false) })).cast()
    }

    /// Runs the body of a slot on the object, unless it is null or poisoned; a panic poisons it.
    ///
    /// # Safety
    /// `object` is null or came from [`Handle::make`] for the same `T`, and is not destroyed during the call.
    pub(super) unsafe fn call<O, R>(
        object: *mut O,
        f: impl FnOnce(&T) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        // SAFETY: as this function's contract says.
        let Some(handle) = (unsafe { object.cast::<Handle<T>>().as_ref() }) else {
            return Err(BackendError::InvalidArgument("the object is null".into()));
        };
        if handle.poisoned.load(Ordering::Acquire) {
            return Err(BackendError::Panicked(
                "an earlier call on this object panicked; make a new one".into(),
            ));
        }
        let result = panics::contain(|| f(&handle.value));
        if matches!(result, Err(BackendError::Panicked(_))) {
            handle.poisoned.store(true, Ordering::Release);
        }
        result
    }

    /// Calls a function on an object, as a slot that returns a status.
    ///
    /// # Safety
    /// That of [`Handle::call`]; `err` is null or the error sink of the present call.
    pub(super) unsafe fn slot<O>(
        object: *mut O,
        err: *mut kiln_error,
        f: impl FnOnce(&T) -> Result<(), BackendError>,
    ) -> i32 {
        // SAFETY: as this function's contract says.
        match unsafe { Handle::call(object, f) } {
            Ok(()) => kiln_abi::KILN_OK,
            Err(e) => host::report(err, &e),
        }
    }

    /// Destroys the object. A poisoned one is left where it is, its destructor not run.
    ///
    /// # Safety
    /// `object` is null or came from [`Handle::make`] for the same `T`, and is not used again.
    pub(super) unsafe fn destroy<O>(object: *mut O) {
        if object.is_null() {
            return;
        }
        // SAFETY: as this function's contract says.
        let handle = unsafe { Box::from_raw(object.cast::<Handle<T>>()) };
        if handle.poisoned.load(Ordering::Acquire) {
            std::mem::forget(handle);
        } else if let Err(e) = panics::contain(|| {
            drop(handle);
            Ok(())
        }) {
            host::log(KILN_LOG_ERROR, &format!("while an object was destroyed: {e}"));
        }
    }
}

/// Stores a new object where the caller wants it.
///
/// # Safety
/// `out` is null or valid for writing a pointer.
pub(super) unsafe fn give<O>(out: *mut *mut O, make: impl FnOnce() -> *mut O) -> Result<(), BackendError> {
    if out.is_null() {
        return Err(BackendError::InvalidArgument("there is no place for the object".into()));
    }
    // SAFETY: as this function's contract says.
    unsafe { out.write(make()) };
    Ok(())
}
