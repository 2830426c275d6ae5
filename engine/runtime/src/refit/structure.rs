//! Weights that decided the structure of the engine and can't be replaced.

use crate::weights::weights;
use kiln_backend::Program;
use kiln_ir::{ValueId, Weight};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The names of weights that can't be replaced, with the reason. Shapes and other numbers of the host are
/// computed from some; others no layer or recipe reads any more, because the builder folded them away.
pub(super) fn fixed(p: &Program) -> BTreeMap<Arc<str>, String> {
    let host = host_values(p);
    let mut out = BTreeMap::new();
    let mut used: HashSet<Arc<str>> = HashSet::new();
    let read: HashSet<ValueId> =
        p.graph.uses().read().map(|(v, _)| v).chain(p.graph.outputs.iter().copied()).collect();
    for (v, w) in weights(p) {
        for name in names(w) {
            if host.contains(&v) {
                out.insert(name.clone(), "shapes or other numbers of the engine are made of it".to_owned());
            }
            if read.contains(&v) {
                used.insert(name.clone());
            }
        }
    }
    for (_, w) in weights(p) {
        if let Some(name) = w.name.as_ref().filter(|n| !used.contains(*n)) {
            let reason = "no layer reads it: the builder folded it into the structure, or dropped it";
            out.entry(name.clone()).or_insert_with(|| reason.to_owned());
        }
    }
    out
}

/// Names of a weight and of its sources.
fn names(w: &Weight) -> impl Iterator<Item = &Arc<str>> {
    w.name.iter().chain(w.recipe.iter().flat_map(|r| &r.sources))
}

/// Values that host ports read, directly or through small computations.
fn host_values(p: &Program) -> HashSet<ValueId> {
    let g = &p.graph;
    let mut needed: HashSet<ValueId> = HashSet::new();
    for (_, n) in g.nodes().rev() {
        let wanted = n.outputs.iter().any(|v| needed.contains(v)) && !n.op.roles().host_known;
        for (i, v) in n.inputs.iter().enumerate() {
            if let Some(v) = v.filter(|_| wanted || n.op.port(i).is_some_and(|p| p.host)) {
                needed.insert(v);
            }
        }
    }
    needed
}
