//! Memory of weights, shared by all engines of the process on one device.

use crate::driver::{Buffer, Gpu};
use kiln_gpu::SharedBuffers;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Buffers by the driver's number of their device, as long as it is open. All that open a device use its primary context, in which
/// addresses are the same.
static DEVICES: Mutex<BTreeMap<i32, Weak<SharedBuffers<Buffer>>>> = Mutex::new(BTreeMap::new());

/// The buffers of a device.
pub fn weights_of(gpu: &Gpu) -> Arc<SharedBuffers<Buffer>> {
    let mut all = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = all.get(&gpu.number()).and_then(Weak::upgrade) {
        return open;
    }
    let new = Arc::default();
    all.insert(gpu.number(), Arc::downgrade(&new));
    new
}
