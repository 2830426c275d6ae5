//! Functions of the caller with a pointer of its own, which the library frees by the caller's function.

use std::ffi::c_void;

/// Frees the pointer of a callback; called once, when the library needs it no longer, also where the function that it was given
/// to failed. NULL: nothing is to be freed.
pub type kiln_destroy_fn = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// A function of the caller with its pointer.
pub struct Callback<F> {
    /// The function.
    pub function: F,
    /// The caller's pointer, its first argument.
    pub user: *mut c_void,
    destroy: kiln_destroy_fn,
}

// SAFETY: callers vouch that their functions and pointers may be used from any thread.
unsafe impl<F> Send for Callback<F> {}
// SAFETY: as above.
unsafe impl<F> Sync for Callback<F> {}

impl<F> Callback<F> {
    /// A callback; none for NULL, whose pointer is freed at once.
    pub fn new(function: Option<F>, user: *mut c_void, destroy: kiln_destroy_fn) -> Option<Callback<F>> {
        let owner = Callback { function: (), user, destroy };
        let function = function?;
        std::mem::forget(owner);
        Some(Callback { function, user, destroy })
    }
}

impl<F> Drop for Callback<F> {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the caller's function for this pointer, called once.
            unsafe { destroy(self.user) };
        }
    }
}
