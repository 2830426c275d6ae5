//! Derived weights, several at a time.

use super::recipes;
use crate::RuntimeError;
use kiln_ir::{Graph, Recipe, Tensor, ValueId};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A derived weight with its recipe and its name.
pub(super) type Job<'a> = (ValueId, &'a Recipe, &'a str);

/// The results of recipes. Several are evaluated at a time as long as they take no more memory than the largest one alone; each is
/// evaluated by several threads where that is worth it.
pub(super) fn evaluate(
    jobs: Vec<Job<'_>>,
    sources: &BTreeMap<Arc<str>, Tensor>,
) -> Result<HashMap<ValueId, Tensor>, RuntimeError> {
    let mut left: Vec<(u64, Job<'_>)> = jobs.into_iter().map(|job| (bytes(&job.1.graph), job)).collect();
    left.sort_by_key(|(bytes, (v, ..))| (std::cmp::Reverse(*bytes), *v));
    let most = left.first().map_or(0, |(bytes, _)| *bytes);
    let mut done = HashMap::with_capacity(left.len());
    for group in groups(&left, most) {
        let one = |(_, (v, recipe, name)): &(u64, Job<'_>)| {
            recipes::evaluate(recipe, sources, name).map(|tensor| (*v, tensor))
        };
        done.extend(group.par_iter().map(one).collect::<Result<Vec<_>, _>>()?);
    }
    Ok(done)
}

/// Jobs in order, cut where the bytes of a group would be more than those of the largest job.
fn groups<T>(all: &[(u64, T)], most: u64) -> Vec<&[(u64, T)]> {
    let (mut out, mut from, mut sum) = (Vec::new(), 0, 0u64);
    for (i, (bytes, _)) in all.iter().enumerate() {
        if i > from && sum.saturating_add(*bytes) > most {
            out.extend(all.get(from..i));
            (from, sum) = (i, 0);
        }
        sum = sum.saturating_add(*bytes);
    }
    out.extend(all.get(from..).filter(|rest| !rest.is_empty()));
    out
}

/// Bytes of all values that a recipe makes.
fn bytes(recipe: &Graph) -> u64 {
    let made = recipe.nodes().flat_map(|(_, n)| n.outputs.iter());
    let size = |&v: &ValueId| {
        let ty = recipe.ty(v);
        ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64)).unwrap_or(0)
    };
    made.map(size).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::groups;

    #[test]
    fn groups_take_no_more_than_the_largest_job() {
        let jobs: Vec<(u64, ())> = [9, 5, 4, 3, 3, 3, 1].map(|bytes| (bytes, ())).into();
        let found: Vec<Vec<u64>> = groups(&jobs, 9).iter().map(|g| g.iter().map(|j| j.0).collect()).collect();
        assert_eq!(found, [vec![9], vec![5, 4], vec![3, 3, 3], vec![1]]);
        assert!(groups::<()>(&[], 0).is_empty());
    }
}
