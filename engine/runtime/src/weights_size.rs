//! Bytes of the weights of an engine.

use crate::engine::Engine;
use crate::weights::weights;
use std::collections::HashSet;

impl Engine {
    /// Bytes of all weights that layers or callers read. Sources of derived weights, which are kept for refit, do not count. A stripped
    /// plan has as many as the filled one.
    pub fn weights_size(&self) -> u64 {
        self.program().weights().map(|(_, t)| t.shared_bytes().len() as u64).sum()
    }

    /// Bytes of those weights that the plan left out as it was read: weights that a refit has to supply, and those that are derived of
    /// them. `None` for a plan that was not stripped.
    pub fn stripped_weights_size(&self) -> Option<u64> {
        let header = &self.shared.header;
        if header.absent.is_empty() {
            return None;
        }
        let absent: HashSet<&str> = header.absent.iter().map(|a| a.name.as_str()).collect();
        let program = self.program();
        let read: HashSet<_> = program.weights().map(|(v, _)| v).collect();
        let left_out = weights(&program).filter(|(v, w)| {
            let own = w.name.iter().any(|n| absent.contains(&**n));
            let derived = w.recipe.iter().flat_map(|r| &r.sources).any(|s| absent.contains(&**s));
            read.contains(v) && (own || derived)
        });
        Some(left_out.map(|(_, w)| w.tensor.shared_bytes().len() as u64).sum())
    }
}
