//! Debug tensors: values between layers that runs report to a listener.

use crate::{Network, NetworkError, TensorId};

impl Network {
    /// Lets runs report the tensor to a debug listener, if one is set. Engines write it to memory, which may keep layers around
    /// it from being fused; runs without a listener copy nothing. Marking twice changes nothing. Tensors inside of loops and
    /// conditionals are refused.
    pub fn mark_debug(&mut self, tensor: TensorId) -> Result<(), NetworkError> {
        self.known(tensor)?;
        self.check_exterior(tensor)?;
        self.check_closed(tensor)?;
        if !self.debug.contains(&tensor) {
            self.debug.push(tensor);
        }
        Ok(())
    }

    /// Undoes [`Network::mark_debug`]. Returns whether the tensor was marked.
    pub fn unmark_debug(&mut self, tensor: TensorId) -> bool {
        let before = self.debug.len();
        self.debug.retain(|&t| t != tensor);
        self.debug.len() < before
    }

    /// The tensors for debugging.
    pub fn debug_tensors(&self) -> &[TensorId] {
        &self.debug
    }
}
