//! Weights that plans of one process share: those of the same bytes are in memory once.

use kiln_ir::{Bytes, BytesId, WeakBytes};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A weight: the hash of the table of its file, which has the hashes of all weights, and its number there.
type Name = ([u8; 32], u64);

/// The weights of plans that live.
static KNOWN: Mutex<BTreeMap<Name, WeakBytes>> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, BTreeMap<Name, WeakBytes>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A weight of a living plan, of which there are so many bytes.
pub(crate) fn find(name: &Name, len: usize) -> Option<Bytes> {
    known().get(name).and_then(WeakBytes::upgrade).filter(|b| len > 0 && b.len() == len)
}

/// Lets later plans find a weight, whose hash is right.
pub(crate) fn share(name: Name, bytes: &Bytes) {
    known().insert(name, bytes.downgrade());
}

/// Forgets weights that nobody has any more.
pub(crate) fn forget_dropped() {
    known().retain(|_, w| w.upgrade().is_some());
}

/// Lets later plans find other storage of weights: `moved` has that of each weight whose bytes a backend replaced by equal ones.
pub fn replace(moved: &HashMap<BytesId, Bytes>) {
    if moved.is_empty() {
        return;
    }
    for weak in known().values_mut() {
        if let Some(new) = moved.get(&weak.id()) {
            *weak = new.downgrade();
        }
    }
}
