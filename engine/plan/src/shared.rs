//! Weights that plans of one process share: those of the same bytes are in memory once.

use kiln_ir::{Bytes, WeakBytes};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The weights of plans that live, by the hash of their table, which has the hashes of all weights.
static KNOWN: Mutex<BTreeMap<[u8; 32], WeakBytes>> = Mutex::new(BTreeMap::new());

/// The weights of a living plan with this table, of which there are so many bytes.
pub(crate) fn find(table: &[u8; 32], len: usize) -> Option<Bytes> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.get(table).and_then(WeakBytes::upgrade).filter(|b| len > 0 && b.as_slice().len() == len)
}

/// The weights of a living plan that are equal to these, else these, which later plans find.
pub(crate) fn share(table: [u8; 32], weights: Bytes) -> Bytes {
    match find(&table, weights.as_slice().len()) {
        // Others with the table are damaged, which is found out when they are taken.
        Some(shared) if shared.as_slice() == weights.as_slice() => shared,
        Some(_) => weights,
        None => {
            let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, w| w.upgrade().is_some());
            known.insert(table, weights.downgrade());
            weights
        }
    }
}
