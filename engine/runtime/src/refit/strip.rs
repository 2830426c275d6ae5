//! Plans without the weights that a refit supplies.

use super::known::Known;
use crate::RuntimeError;
use crate::weights::{refused, replace, weights};
use kiln_ir::{Bytes, DType, Graph, Tensor, ValueId};
use kiln_plan::{AbsentWeight, Plan};
use std::collections::BTreeSet;

/// Takes the weights out of a plan that a refit can supply, and those that are derived of them. The plan keeps names, types and
/// hashes. An engine of it runs once a refit has supplied all of them.
///
/// # Errors
/// [`RuntimeError::Refit`] if the plan was built without refit, or is stripped already.
pub fn strip(plan: Plan) -> Result<Plan, RuntimeError> {
    let mut plan = plan;
    if !plan.header.refittable {
        let why = "the plan was built without refit, so that nothing could supply weights that are left out; build it again \
                   with refit enabled";
        return Err(refused(why.into()));
    }
    if !plan.header.absent.is_empty() {
        return Err(refused("the plan is stripped already".into()));
    }
    let known = Known::of(&plan.program);
    let open = |name: &str| known.all.get(name).is_some_and(|w| w.fixed.is_none());
    let mut absent = BTreeSet::new();
    let mut left_out: Vec<ValueId> = Vec::new();
    for (v, w) in weights(&plan.program) {
        let own = w.name.as_ref().filter(|n| open(n));
        if let Some(name) = own {
            let hash = *blake3::hash(w.tensor.bytes()).as_bytes();
            absent.insert(AbsentWeight { name: name.to_string(), hash });
        }
        let derived = w.recipe.as_ref().is_some_and(|r| r.sources.iter().any(|s| open(s)));
        if own.is_some() || derived {
            left_out.push(v);
        }
    }
    clear(&mut plan.program.graph, &left_out)?;
    if let Some(network) = &mut plan.network {
        clear_named(network, &|name| absent.iter().any(|a| a.name == name))?;
    }
    plan.header.absent = absent.into_iter().collect();
    Ok(plan)
}

/// Puts zeros in the place of constants; all share the same bytes.
fn clear(g: &mut Graph, values: &[ValueId]) -> Result<(), RuntimeError> {
    let size = |v: &ValueId| g.weight(*v).map_or(0, |w| w.tensor.bytes().len());
    let most = values.iter().map(size).max().unwrap_or_default();
    let zeros = Tensor::zeros(DType::U8, &[most]).map_err(|e| refused(e.to_string()))?.shared_bytes();
    for &v in values {
        if let Some(tensor) = g.weight(v).and_then(|w| zeroed(&w.tensor, &zeros)) {
            replace(g, v, &tensor);
        }
    }
    Ok(())
}

fn zeroed(t: &Tensor, zeros: &Bytes) -> Option<Tensor> {
    Tensor::from_bytes(t.dtype(), t.shape(), zeros.slice(0, t.bytes().len())?)
}

/// Puts zeros in the place of named weights of a network and of the bodies in it.
fn clear_named(g: &mut Graph, absent: &dyn Fn(&str) -> bool) -> Result<(), RuntimeError> {
    let named = |v: &ValueId| g.weight(*v).and_then(|w| w.name.as_deref()).is_some_and(absent);
    let values: Vec<ValueId> = g.value_ids().filter(named).collect();
    clear(g, &values)?;
    for id in g.order().to_vec() {
        if g.get(id).is_some_and(|n| !n.regions.is_empty())
            && let Some(node) = g.get_mut(id)
        {
            node.regions.iter_mut().try_for_each(|r| clear_named(r, absent))?;
        }
    }
    Ok(())
}
