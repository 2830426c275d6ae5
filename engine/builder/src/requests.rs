//! Types that a build asks of layers by name, beside those that the network sets on them.

use crate::{BuildConfig, BuildError, LayerTypes};
use kiln_ir::{DType, Graph, Node};

/// Sets the types that the settings ask of layers, also of those inside of loops and conditionals. They replace what the network
/// asked for. A name without `*` that no layer has is an error.
pub fn apply(g: &mut Graph, config: &BuildConfig) -> Result<(), BuildError> {
    if config.layer_types.is_empty() {
        return Ok(());
    }
    let mut used = vec![false; config.layer_types.len()];
    visit(g, &config.layer_types, &mut used);
    let unused = config.layer_types.iter().zip(used).find(|(r, used)| !used && !r.layers.contains('*'));
    match unused {
        Some((request, _)) => Err(BuildError::Precision {
            layer: request.layers.clone(),
            message: "is asked to have a type, but the network has no layer of this name (`*` stands for any characters)".into(),
        }),
        None => Ok(()),
    }
}

fn visit(g: &mut Graph, requests: &[LayerTypes], used: &mut [bool]) {
    for id in g.order().to_vec() {
        let Some(node) = g.get(id) else { continue };
        let floats = computes_floats(g, node);
        let fits = |r: &LayerTypes| matches(&r.layers, &node.name) && (floats || !r.layers.contains('*'));
        let fitting = || requests.iter().enumerate().filter(|(_, r)| fits(r));
        // The most exact pattern counts, of equal ones the last.
        let exactness = |r: &LayerTypes| r.layers.len() - r.layers.matches('*').count();
        let best = |has: fn(&LayerTypes) -> bool| {
            fitting().filter(|(_, r)| has(r)).max_by_key(|(i, r)| (!r.layers.contains('*'), exactness(r), *i))
        };
        let precision = best(|r| r.precision.is_some()).and_then(|(_, r)| r.precision);
        let outputs = best(|r| !r.outputs.is_empty()).map(|(_, r)| of_outputs(r, node.outputs.len()));
        fitting().for_each(|(i, _)| used[i] = true);
        let Some(node) = g.get_mut(id) else { continue };
        if precision.is_some() {
            node.meta.precision = precision;
        }
        if let Some(types) = outputs {
            node.meta.output_types = types;
        }
        for body in &mut node.regions {
            visit(body, requests, used);
        }
    }
}

/// Types of outputs by position; a single one counts for all.
fn of_outputs(request: &LayerTypes, count: usize) -> Vec<Option<DType>> {
    match request.outputs[..] {
        [one] => vec![Some(one); count],
        ref all => all.iter().copied().map(Some).collect(),
    }
}

/// Whether a layer without bodies reads or makes floats, so that patterns may speak of its type.
fn computes_floats(g: &Graph, node: &Node) -> bool {
    let values = node.inputs.iter().flatten().chain(&node.outputs);
    node.regions.is_empty() && values.into_iter().any(|&v| g.ty(v).dtype.is_float())
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let Some(last) = pattern.contains('*').then(|| pattern.rsplit('*').next().unwrap_or("")) else {
        return rest.is_empty();
    };
    let middle: Vec<&str> = parts.collect();
    for part in middle.iter().take(middle.len().saturating_sub(1)) {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name, fits) in [
            ("conv1", "conv1", true),
            ("conv1", "conv10", false),
            ("*", "", true),
            ("*", "anything", true),
            ("conv*", "conv10", true),
            ("*.conv*", "a.b.conv1", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("*b", "bab", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
