//! Memory of other libraries that tensors of Kiln use without a copy.

use super::dlpack::{Managed, Versioned};
use pyo3::ffi;
use pyo3::prelude::*;

/// Keeper of memory.
pub enum Owner {
    /// An object of the buffer protocol that was asked for its memory.
    Buffer(Box<ffi::Py_buffer>),
    /// A tensor that came in a capsule of the first form.
    Legacy(*mut Managed),
    /// A tensor that came in a versioned capsule.
    Versioned(*mut Versioned),
    /// An object that keeps its memory as long as it lives.
    Object(Py<PyAny>),
    /// A tensor of Kiln.
    Kiln(kiln::Tensor),
}

// SAFETY: the pointers are used once, to give the memory back, which is done with the interpreter's lock held.
unsafe impl Send for Owner {}
// SAFETY: as of `Send`; shared references use nothing of it.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        if matches!(self, Owner::Kiln(_) | Owner::Object(_)) {
            return;
        }
        // If the interpreter is gone, so are those who could take the memory back.
        Python::try_attach(|_| match self {
            // SAFETY: the view was filled by `PyObject_GetBuffer`, and is released once.
            Owner::Buffer(view) => unsafe { ffi::PyBuffer_Release(&raw mut **view) },
            // SAFETY: the consumer of a capsule calls the deleter once.
            Owner::Legacy(managed) => unsafe {
                if let Some(deleter) = (**managed).deleter {
                    deleter(*managed);
                }
            },
            // SAFETY: as of the first form.
            Owner::Versioned(managed) => unsafe {
                if let Some(deleter) = (**managed).deleter {
                    deleter(*managed);
                }
            },
            Owner::Kiln(_) | Owner::Object(_) => {}
        });
    }
}

/// Bytes in host memory with their owner.
pub struct Lent {
    address: usize,
    len: usize,
    _owner: Owner,
}

impl Lent {
    /// Takes memory over.
    ///
    /// # Safety
    /// The owner keeps so many bytes at the address, which is not null unless there are none.
    pub unsafe fn new(address: usize, len: usize, owner: Owner) -> Lent {
        Lent { address, len, _owner: owner }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `new` was given memory that lives as long as the owner.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}
