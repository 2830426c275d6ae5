//! Weights that the plan of a build lets a refit replace.

use crate::BuildError;
use kiln_backend::is_shape_data;
use kiln_ir::{Graph, IrError, Op, Source, ValueId, Weight};
use kiln_ops::control::LOOP;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Weights that a refit may replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Refit {
    /// None: the plan keeps neither sources nor recipes of derived weights, and is smaller.
    #[default]
    Off,
    /// All named weights: those of layers, of ONNX initializers, and whatever the network's author named.
    All,
    /// The weights of these names; all others are constants.
    Individual(BTreeSet<String>),
    /// All named weights, by the elements that they have now: fills stripped plans. Conditions and shapes may be decided by
    /// contents, as without refit.
    Identical,
}

impl Refit {
    /// Takes the names of weights that no refit may replace. Others are moved out of bodies of control flow to the graph
    /// around them, where a refit finds them.
    pub(crate) fn prepare(&self, g: &mut Graph) -> Result<(), BuildError> {
        match self {
            // Passes treat weights of the network apart from other constants: names go once they are done.
            Refit::Off => g.weight_uses.clear(),
            Refit::All => {}
            Refit::Identical => {
                forget_names(g, &|w| is_shape_data(&kiln_ir::Fact::constant(w.tensor.clone())))
            }
            Refit::Individual(wanted) => {
                let mut names = BTreeSet::new();
                collect_names(g, &mut names);
                if let Some(name) = wanted.iter().find(|n| !names.contains(n.as_str())) {
                    let known: Vec<&str> = names.iter().map(|n| &**n).take(LISTED).collect();
                    return Err(BuildError::UnknownWeights { name: name.clone(), known: known.join(", ") });
                }
                forget_names(g, &|w| w.name.as_ref().is_none_or(|n| !wanted.contains(&**n)));
            }
        }
        if *self != Refit::Off {
            hoist(g)?;
        }
        let mut left = BTreeSet::new();
        collect_names(g, &mut left);
        g.weight_uses.retain(|u| left.contains(&u.weight));
        Ok(())
    }

    /// Drops what no refit needs of a graph whose passes are done: without refit names, recipes and their sources, and in any
    /// case constants that nothing reads.
    pub(crate) fn finish(&self, g: &mut Graph) {
        if *self == Refit::Off {
            forget_names(g, &|_| true);
        }
        drop_unread(g);
    }
}

/// Names that an error lists.
const LISTED: usize = 10;

/// Drops constants that nothing reads and no refit replaces.
fn drop_unread(g: &mut Graph) {
    let uses = g.uses();
    let unread = |v: &ValueId| {
        g.weight(*v).is_some_and(|w| w.name.is_none()) && uses.of_value(*v).is_empty() && !uses.is_output(*v)
    };
    let gone: Vec<ValueId> = g.value_ids().filter(unread).collect();
    for v in gone {
        let def = g.value_mut(v);
        def.fact.value = None;
        def.source = Source::Dead;
    }
}

fn collect_names(g: &Graph, names: &mut BTreeSet<Arc<str>>) {
    names.extend(g.value_ids().filter_map(|v| g.weight(v)?.name.clone()));
    g.nodes().flat_map(|(_, n)| &n.regions).for_each(|r| collect_names(r, names));
}

fn forget_names(g: &mut Graph, fixed: &dyn Fn(&Weight) -> bool) {
    for v in g.value_ids() {
        if g.weight(v).is_some_and(|w| (w.name.is_some() || w.recipe.is_some()) && fixed(w))
            && let Source::Weight(w) = &mut g.value_mut(v).source
        {
            (w.name, w.recipe) = (None, None);
        }
    }
    for id in g.order().to_vec() {
        if g.get(id).is_some_and(|n| !n.regions.is_empty())
            && let Some(node) = g.get_mut(id)
        {
            node.regions.iter_mut().for_each(|r| forget_names(r, fixed));
        }
    }
}

/// Moves named weights of regions to the graph; the regions capture them.
fn hoist(g: &mut Graph) -> Result<(), IrError> {
    for id in g.order().to_vec() {
        let Some(count) = g.get(id).map(|n| n.regions.len()) else { continue };
        for k in 0..count {
            let Some(node) = g.get_mut(id) else { continue };
            let Some(region) = node.regions.get_mut(k) else { continue };
            hoist(region)?;
            let moved = leave(region);
            if moved.is_empty() {
                continue;
            }
            let at = captures_end(g, id, k)?;
            let values: Vec<ValueId> = moved.into_iter().map(|w| outer(g, w)).collect();
            let Some(node) = g.get_mut(id) else { continue };
            let attribute = match (node.op.is(LOOP), k) {
                (true, 0) => Some("body_captures"),
                (false, 0) => Some("then_captures"),
                _ => None,
            };
            if let Some(name) = attribute {
                let mut attrs = node.op.attrs().clone();
                let captured = attrs.int(name).unwrap_or_default() + values.len() as i64;
                attrs.set(name, captured);
                node.op = Op::new(node.op.name(), attrs)?;
            }
            node.inputs.splice(at..at, values.into_iter().map(Some));
        }
    }
    Ok(())
}

/// Turns the named weights of a region into its last inputs.
fn leave(region: &mut Graph) -> Vec<(String, Weight)> {
    let named = |v: &ValueId| region.weight(*v).is_some_and(|w| w.name.is_some());
    let all: Vec<ValueId> = region.value_ids().filter(named).collect();
    let mut moved = Vec::with_capacity(all.len());
    for v in all {
        let def = region.value_mut(v);
        if let Source::Weight(w) = std::mem::replace(&mut def.source, Source::Input) {
            moved.push((def.name.clone(), w));
        }
        region.inputs.push(v);
    }
    moved
}

/// The position after the last input of a node that one of its regions captures.
fn captures_end(g: &Graph, id: kiln_ir::NodeId, region: usize) -> Result<usize, IrError> {
    let Some(node) = g.get(id) else { return Ok(0) };
    let inputs = node.inputs.len();
    if let Some(captures) = node.branches(inputs)? {
        return Ok(captures.get(region).map_or(inputs, |c| c.end));
    }
    Ok(if region == 0 { node.loop_shape(inputs)?.captures().end } else { inputs })
}

/// The weight in the graph around a region; one of the same name serves all.
fn outer(g: &mut Graph, (label, weight): (String, Weight)) -> ValueId {
    let same = g.value_ids().find(|&v| g.weight(v).is_some_and(|w| w.name == weight.name));
    same.unwrap_or_else(|| {
        let label = g.unique_name(&label);
        g.add_weight(&label, weight)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]
mod tests {
    use super::*;

    const BRANCHES: &str = r#"graph "g" { input %p: bool[] input %x: f32[2]
        role "fc" kernel "w"
        weight %u: f32[2] = [5, 6] name "u"
        %y: f32[2] = if(%p, %x, %x) {then_captures=1}
            graph "then" { input %a: f32[2] weight %w: f32[2] = [1, 2] name "w" %b = mul(%a, %w) output %b }
            graph "else" { input %c: f32[2] weight %v: f32[2] = [3, 4] name "w" %d = add(%c, %v) output %d }
        %z: f32[2] = add(%y, %u)
        output %z }"#;

    fn prepared(refit: Refit) -> Graph {
        let mut g = Graph::from_text(BRANCHES).unwrap_or_else(|e| panic!("{e}"));
        refit.prepare(&mut g).unwrap_or_else(|e| panic!("{e}"));
        g.refresh().unwrap_or_else(|e| panic!("{e}"));
        g.verify().unwrap_or_else(|e| panic!("{e}"));
        g
    }

    fn names(g: &Graph) -> Vec<String> {
        let mut all = BTreeSet::new();
        collect_names(g, &mut all);
        all.iter().map(|n| n.to_string()).collect()
    }

    #[test]
    fn weights_of_bodies_are_moved_out_once() {
        let g = prepared(Refit::All);
        assert_eq!(names(&g), ["u", "w"]);
        let outer = g.value_ids().filter(|&v| g.weight(v).is_some()).count();
        assert_eq!(outer, 2, "both branches share the weight");
        let (_, node) = g.nodes().next().unwrap();
        assert_eq!(node.inputs.len(), 5);
        assert!(node.regions.iter().all(|r| r.value_ids().all(|v| r.weight(v).is_none())));
        assert_eq!(g.weight_uses.len(), 1);
    }

    #[test]
    fn names_of_weights_that_stay_are_forgotten() {
        let mut g = prepared(Refit::Off);
        Refit::Off.finish(&mut g);
        assert!(names(&g).is_empty() && g.weight_uses.is_empty());
        let g = prepared(Refit::Individual(["u".to_owned()].into()));
        assert_eq!(names(&g), ["u"]);
        assert!(g.weight_uses.is_empty());
        let mut g = Graph::from_text(BRANCHES).unwrap();
        let e = Refit::Individual(["x".to_owned()].into()).prepare(&mut g).unwrap_err();
        assert!(e.to_string().contains("\"x\"") && e.to_string().contains("u, w"), "{e}");
    }
}
