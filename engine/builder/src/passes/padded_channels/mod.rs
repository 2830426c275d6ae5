//! Channels padded to whole vectors.
//!
//! Tensor cores are fed by copies of whole rows that begin at multiples of 16 bytes. Rows of 921 channels, say, keep a convolution or a
//! product with constant weights from those kernels. Here such values get more channels. Weights of the layers that make them get
//! rows of zeros, weights of the layers that read them columns of zeros. Layers in between that keep channels apart
//! compute the added ones along. A value that enters such a set is padded, one that leaves it is cut.
//!
//! Added channels meet weights of zero only, so that they must hold finite numbers: [`added`] computes them.
//!
//! Sets are found and rewritten one by one by the search, which keeps those that are faster; the pass rewrites all.

mod added;
mod anchors;
mod rewrite;
mod set;
#[cfg(test)]
mod tests;

pub use rewrite::apply;
pub use set::Set;

use super::patterns::constant;
use super::{Pass, PassCx};
use crate::BuildError;
use added::Added;
use anchors::{Anchor, Pads, keeps_channels};
use kiln_backend::Target;
use kiln_ir::graph::Uses;
use kiln_ir::{DType, Graph, Node, NodeId, ValueId};
use set::channels;
use std::collections::{BTreeSet, HashMap};

/// The pass; not among those of every build.
pub const PASS: Pass = Pass { name: "padded-channels", run };

/// Feature of targets whose fast kernels want rows that begin at multiples of 16 bytes.
const FEATURE: &str = "aligned_rows";

/// Bytes that rows begin at multiples of.
const VECTOR: usize = 16;

/// Weights of fewer bytes are too little work for the padding to be worth a measurement.
const LEAST_WEIGHTS: u64 = 2 << 10;

/// A set has no more values than these.
const MOST_VALUES: usize = 4096;

fn run(g: &mut Graph, cx: &PassCx<'_>) -> Result<usize, BuildError> {
    let mut count = 0;
    while let Some(set) = sets(g, cx.target).into_iter().next() {
        if !apply(g, &set)? {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// The sets whose padding may pay, in the order of the first layer that reads one.
pub fn sets(g: &Graph, target: &Target) -> Vec<Set> {
    if !target.has(FEATURE) {
        return Vec::new();
    }
    let uses = g.uses();
    let mut seen: BTreeSet<ValueId> = BTreeSet::new();
    let mut found = Vec::new();
    for (_, node) in g.nodes() {
        let Some((x, axis)) = worth(g, node, target) else { continue };
        if seen.contains(&x) {
            continue;
        }
        let Some(set) = set_of(g, &uses, x, axis) else { continue };
        seen.extend(set.values.keys());
        found.push(set);
    }
    found
}

/// The value that a layer with weights reads and the axis of its channels, if their number keeps it from fast kernels.
fn worth(g: &Graph, node: &Node, target: &Target) -> Option<(ValueId, usize)> {
    let anchor = Anchor::of(g, node)?;
    let x = anchor.x;
    let unit = unit(g.ty(x).dtype, target)?;
    let weights = super::bytes(g, anchor.weights)?;
    let channels = channels(g, x, anchor.x_axis)?;
    let padded = channels.next_multiple_of(unit);
    let fits =
        padded != channels && 2 * padded <= 3 * channels && weights >= LEAST_WEIGHTS && !constant(g, x);
    fits.then_some((x, anchor.x_axis))
}

/// Channels of a whole vector.
fn unit(dtype: DType, target: &Target) -> Option<usize> {
    match dtype {
        DType::F16 | DType::BF16 => Some(VECTOR / 2),
        DType::F32 if target.has("tf32") => Some(VECTOR / 4),
        _ => None,
    }
}

/// The set around a value that a layer reads along an axis.
fn set_of(g: &Graph, uses: &Uses, seed: ValueId, axis: usize) -> Option<Set> {
    let channels = channels(g, seed, axis)?;
    let padded = channels.next_multiple_of(VECTOR / g.ty(seed).dtype.bytes_for(1)? as usize);
    let mut barred = BTreeSet::new();
    loop {
        let mut set = flood(g, uses, Set::empty(channels, padded), (seed, axis), &barred)?;
        match Added::of(g, &set) {
            Ok(added) => {
                set.through = added;
                let of_set = |id: &&NodeId| {
                    set.through.contains_key(id) || set.makers.contains(id) || set.readers.contains(id)
                };
                set.nodes = g.order().iter().filter(of_set).copied().collect();
                return Some(set);
            }
            // The set ends in front of a layer that would make something else than a finite number of added channels.
            Err(node) => barred.insert(node).then_some(())?,
        }
    }
}

/// All that is connected with a value by layers that keep channels apart. `None` if it is too much, or channels lie
/// along two axes of one value.
fn flood(
    g: &Graph,
    uses: &Uses,
    mut set: Set,
    seed: (ValueId, usize),
    barred: &BTreeSet<NodeId>,
) -> Option<Set> {
    let mut todo = vec![seed];
    let mut known: HashMap<NodeId, bool> = HashMap::new();
    while let Some((v, axis)) = todo.pop() {
        match set.values.insert(v, axis) {
            Some(other) if other != axis => return None,
            Some(_) => continue,
            None if set.values.len() > MOST_VALUES => return None,
            None => {}
        }
        let mut through = |id: NodeId, node: &Node, set: &mut Set| {
            *known.entry(id).or_insert_with(|| {
                let keeps = !barred.contains(&id) && keeps_channels(g, node, axis, set.channels);
                if keeps {
                    set.through.insert(id, Pads::default());
                    todo.extend(node.outputs.iter().map(|&y| (y, axis)));
                    let inputs = anchors::images(g, node).into_iter();
                    todo.extend(inputs.filter(|&x| !constant(g, x)).map(|x| (x, axis)));
                }
                keeps
            })
        };
        if let Some((id, node)) = g.producer(v)
            && !through(id, node, &mut set)
            && !barred.contains(&id)
            && Anchor::of(g, node).is_some_and(|a| a.y_axis == axis)
        {
            set.makers.insert(id);
        }
        for &(id, at) in uses.of_value(v) {
            let Some(node) = g.get(id) else { continue };
            if !through(id, node, &mut set)
                && at == 0
                && Anchor::of(g, node).is_some_and(|a| a.x == v && a.x_axis == axis)
            {
                set.readers.insert(id);
            }
        }
    }
    Some(set)
}
