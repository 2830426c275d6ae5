//! Objects of Python that a context calls.

use crate::scope::Callback;
use crate::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_void;
use std::sync::Arc;

/// A function that receives debug tensors.
pub struct Listener(pub Arc<Callback>);

impl kiln::DebugListener for Listener {
    fn debug_tensor(&mut self, name: &str, tensor: &kiln::Tensor) -> bool {
        let heard = self.0.call(|f| {
            let answer = f.call1((name, Tensor::copied(tensor)))?;
            if answer.is_none() { Ok(true) } else { answer.is_truthy() }
        });
        heard.unwrap_or(false)
    }
}

/// An object that supplies the memory of an output.
pub struct Allocator(pub Arc<Callback>);

// SAFETY: the object vouches for its addresses, as the documentation of `set_output_allocator` asks of it; 0 stands for none.
unsafe impl kiln::OutputAllocator for Allocator {
    fn allocate(&mut self, output: &str, current: *mut c_void, bytes: u64, alignment: u64) -> *mut c_void {
        let current = current as usize;
        let address = self.0.call(|o| {
            let answer = o.call_method1("allocate", (output, current, bytes, alignment))?;
            if answer.is_none() { Ok(0) } else { answer.extract::<usize>() }
        });
        address.unwrap_or(0) as *mut c_void
    }

    fn shape(&mut self, output: &str, shape: &[usize]) {
        self.0.call(|o| o.call_method1("shape", (output, PyTuple::new(o.py(), shape)?)).map(drop));
    }
}
