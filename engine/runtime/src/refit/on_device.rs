//! Weights that a refit reads from the device.

use super::{Refitter, Subject};
use crate::RuntimeError;
use crate::weights::refused;
use kiln_backend::process::check_process;
use kiln_ir::{Tensor, WeightsRole};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

/// Weights on the device by name, and the stream behind whose work they are read. Addresses and handles are numbers, which may move
/// between threads.
#[derive(Clone, Debug, Default)]
pub(super) struct OnDevice {
    weights: BTreeMap<Arc<str>, usize>,
    stream: usize,
}

impl OnDevice {
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.weights.keys()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.weights.contains_key(name)
    }

    pub(super) fn forget(&mut self, name: &str) -> bool {
        self.weights.remove(name).is_some()
    }
}

impl Refitter {
    /// Sets new elements that are on the engine's device, dense, in type and shape of the weight. [`Refitter::refit`] reads them, behind
    /// the work that is in the stream of [`Refitter::set_stream`] then. Takes the place of what was set before.
    ///
    /// # Errors
    /// As of [`Refitter::set`], for another number of bytes than the weight has, and for a refitter of a plan.
    ///
    /// # Safety
    /// The address is one of the backend's kind on the engine's device (of CUDA a device pointer), with so many bytes behind it. They stay
    /// until the refit is done, is taken back, or the refitter is gone.
    pub unsafe fn set_on_device(
        &mut self,
        name: &str,
        address: *const c_void,
        bytes: u64,
    ) -> Result<(), RuntimeError> {
        let result = self.try_set_on_device(name, address, bytes);
        self.noted(result)
    }

    /// Sets new elements of a layer's weights that are on the device, as [`Refitter::set_on_device`] does.
    ///
    /// # Errors
    /// As of [`Refitter::set_on_device`].
    ///
    /// # Safety
    /// As of [`Refitter::set_on_device`].
    pub unsafe fn set_weights_on_device(
        &mut self,
        layer: &str,
        role: WeightsRole,
        address: *const c_void,
        bytes: u64,
    ) -> Result<(), RuntimeError> {
        let name = self.known.role(layer, role).cloned();
        let result = name.and_then(|name| self.try_set_on_device(&name, address, bytes));
        self.noted(result)
    }

    fn try_set_on_device(
        &mut self,
        name: &str,
        address: *const c_void,
        bytes: u64,
    ) -> Result<(), RuntimeError> {
        if matches!(self.subject, Subject::Plan(_)) {
            return Err(refused("a plan is refitted without a device: set weights of the host".into()));
        }
        let (key, w) = self.known.named(name)?;
        if let Some(why) = &w.fixed {
            return Err(refused(format!("weight \"{name}\" can't be replaced: {why}")));
        }
        let elements: u64 = w.shape.iter().map(|&d| d as u64).product();
        let wanted = w.dtype.bytes_for(elements).unwrap_or(u64::MAX);
        if bytes != wanted || address.is_null() {
            let (d, s) = (w.dtype, &w.shape);
            return Err(refused(format!(
                "weight \"{name}\" is {d}{s:?}, which are {wanted} bytes, was given {bytes} bytes at {address:?}"
            )));
        }
        let key = key.clone();
        self.set.remove(&key);
        self.on_device.weights.insert(key, address as usize);
        Ok(())
    }

    /// Sets the stream of the caller's behind whose work weights on the device are read; null, the default, waits for none.
    ///
    /// # Safety
    /// The handle is null, or a stream of the backend's kind on the engine's device: of CUDA a `CUstream` of its primary context. It captures
    /// nothing, and stays until the refit is done, another one is set, or the refitter is gone.
    pub unsafe fn set_stream(&mut self, stream: *mut c_void) {
        self.on_device.stream = stream as usize;
    }

    /// Reads the weights that are on the device. After an error all stay set.
    pub(super) fn read_device(&mut self) -> Result<(), RuntimeError> {
        let Subject::Engine(shared) = &self.subject else { return Ok(()) };
        if self.on_device.weights.is_empty() {
            return Ok(());
        }
        check_process()?;
        let shared = shared.clone();
        let OnDevice { weights, stream } = self.on_device.clone();
        let mut read = Vec::with_capacity(weights.len());
        for (name, address) in &weights {
            let w = self.known.named(name)?.1;
            let elements: u64 = w.shape.iter().map(|&d| d as u64).product();
            let mut bytes = vec![0; w.dtype.bytes_for(elements).unwrap_or(0) as usize];
            if !bytes.is_empty() {
                let (stream, from) = (stream as *mut c_void, *address as *const c_void);
                // SAFETY: who set the address and the stream vouched for them until the refit is done.
                let copied = unsafe { shared.device.read(stream, from, &mut bytes) };
                copied.map_err(|e| shared.backend_error(e))?;
            }
            let lost = || refused(format!("weight \"{name}\" has other bytes than its type and shape want"));
            let tensor = Tensor::from_bytes(w.dtype, &w.shape, bytes).ok_or_else(lost)?;
            read.push((name.clone(), tensor));
        }
        // Elements are checked as those of the host are; what is refused stays set on the device.
        for (name, tensor) in read {
            let set = self.try_set(&name, tensor);
            if set.is_err() {
                self.on_device.weights = weights;
                return set;
            }
        }
        Ok(())
    }
}
