//! Weights of programs and networks.

use crate::RuntimeError;
use kiln_backend::Program;
use kiln_ir::{Fact, Graph, Source, Tensor, ValueId, Weight};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The error of a refit that is refused.
pub(crate) fn refused(message: String) -> RuntimeError {
    RuntimeError::Refit(message)
}

/// All constants of a program.
pub(crate) fn weights(p: &Program) -> impl Iterator<Item = (ValueId, &Weight)> {
    p.graph.value_ids().filter_map(|v| Some((v, p.graph.weight(v)?)))
}

/// Elements of the named weights that the program holds.
pub(crate) fn held(p: &Program) -> BTreeMap<Arc<str>, Tensor> {
    weights(p).filter_map(|(_, w)| Some((w.name.clone()?, w.tensor.clone()))).collect()
}

/// Puts the weights that a program holds in the place of those of the same name of its network.
pub(crate) fn renew_network(network: &mut Graph, program: &Program) {
    renew_named(network, &held(program));
}

fn renew_named(g: &mut Graph, held: &BTreeMap<Arc<str>, Tensor>) {
    for v in g.value_ids() {
        let name = g.weight(v).and_then(|w| w.name.clone());
        let Some(tensor) = name.and_then(|n| held.get(&n)).filter(|t| t.ty() == *g.ty(v)) else { continue };
        replace(g, v, tensor);
    }
    for id in g.order().to_vec() {
        if g.get(id).is_some_and(|n| !n.regions.is_empty())
            && let Some(node) = g.get_mut(id)
        {
            node.regions.iter_mut().for_each(|r| renew_named(r, held));
        }
    }
}

/// Replaces the elements of a constant.
pub(crate) fn replace(g: &mut Graph, v: ValueId, tensor: &Tensor) {
    let def = g.value_mut(v);
    def.fact = Fact::constant(tensor.clone());
    if let Source::Weight(w) = &mut def.source {
        w.tensor = tensor.clone();
    }
}
