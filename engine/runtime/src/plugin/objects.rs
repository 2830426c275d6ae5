//! Objects of a library: destroyed when nobody uses them, in the reverse order of their making.

use super::library::Plugin;
use ::kiln_backend::BackendError;
use kiln_abi::*;
use std::ptr::NonNull;
use std::sync::Arc;

/// A library in use: its functions.
pub(super) struct Library {
    pub(super) plugin: Arc<Plugin>,
    pub(super) table: kiln_backend_v1,
}

/// An object of a library with the function that destroys it and what it was made from, which outlives it.
pub(super) struct Object<O, P> {
    ptr: NonNull<O>,
    destroy: Option<unsafe extern "C" fn(*mut O)>,
    library: Arc<Library>,
    _parent: P,
}

pub(super) type BackendObject = Object<kiln_backend, ()>;
pub(super) type DeviceObject = Object<kiln_device, Arc<BackendObject>>;

// SAFETY: the ABI lets objects be called from any thread; contexts are used through `&mut` only.
unsafe impl<O, P: Send> Send for Object<O, P> {}
// SAFETY: as above.
unsafe impl<O, P: Sync> Sync for Object<O, P> {}

impl<O, P> Object<O, P> {
    pub(super) fn new(
        ptr: NonNull<O>,
        destroy: Option<unsafe extern "C" fn(*mut O)>,
        library: Arc<Library>,
        parent: P,
    ) -> Object<O, P> {
        Object { ptr, destroy, library, _parent: parent }
    }

    pub(super) fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// The object, for a call.
    pub(super) fn ptr(&self) -> *mut O {
        self.ptr.as_ptr()
    }
}

impl<O, P> Drop for Object<O, P> {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy.filter(|_| self.library.plugin.is_alive()) {
            // SAFETY: the object was made by this library, nobody uses it any more, and the library has not ended.
            unsafe { destroy(self.ptr.as_ptr()) }
        }
    }
}

impl Library {
    /// A function of the table; refused after the library has ended.
    pub(super) fn slot<F>(&self, slot: Option<F>, name: &str) -> Result<F, BackendError> {
        if !self.plugin.is_alive() {
            return Err(BackendError::DeviceLost("the process ends; plug-ins are no longer called".into()));
        }
        slot.ok_or_else(|| {
            let plugin = self.plugin.info();
            BackendError::Unsupported(format!(
                "{name}: backend \"{}\" {} was built with version {}.{} of the plug-in ABI and lacks it",
                plugin.name, plugin.version, plugin.abi.0, plugin.abi.1
            ))
        })
    }
}
