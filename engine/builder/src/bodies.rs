//! Facts of values inside of loops and conditionals when their bodies are built.

use crate::BuildError;
use crate::points::{Points, Span};
use crate::tuner::concretize;
use kiln_backend::{Region, is_shape_data};
use kiln_ir::{Dim, Fact, Graph, Node, ValueId};
use kiln_ops::cast::IDENTITY;
use std::collections::BTreeSet;

/// The length taken for dimensions of which nothing is known, where kernels are chosen.
const USUAL: i64 = 16;

/// Number of other lengths that are tried.
pub(crate) const GUESSES: usize = 8;

/// Facts of the inputs of each region at one point.
pub(crate) fn region_facts(g: &Graph, node: &Node, facts: &[Fact]) -> Result<Vec<Vec<Fact>>, BuildError> {
    let fact = |v: &ValueId| facts.get(v.0 as usize).unwrap_or(&g.value(*v).fact).clone();
    let ins: Vec<Option<Fact>> = node.inputs.iter().map(|v| v.as_ref().map(fact)).collect();
    Ok(node.region_facts(&ins)?)
}

/// Forgets the contents of weights that a body captures: they are inputs of its program, and a refit changes them.
pub(crate) fn forget_weights(body: &mut Graph) {
    for v in body.inputs.clone() {
        let fact = &body.value(v).fact;
        if fact.as_const().is_some() && !is_shape_data(fact) {
            body.value_mut(v).fact.value = None;
        }
    }
}

/// Lets a body give what layers only hand on, without these: nobody asks for its results by name. Not where a layer writes in
/// place, since what is handed on may be what was there before.
pub(crate) fn hand_on(body: &mut Graph) {
    if in_place(body) {
        return;
    }
    for i in 0..body.outputs.len() {
        while let Some(from) = body.outputs.get(i).and_then(|&v| handed_on(body, v)) {
            body.outputs[i] = from;
        }
    }
    body.remove_dead();
}

/// Source of an identity layer that makes this value, if both have one type.
fn handed_on(g: &Graph, v: ValueId) -> Option<ValueId> {
    let (_, node) = g.producer(v).filter(|(_, n)| n.op.is(IDENTITY))?;
    node.inputs.first().copied().flatten().filter(|&x| g.ty(x) == g.ty(v))
}

/// Whether a layer writes its result into the memory of one of its inputs.
fn in_place(g: &Graph) -> bool {
    let here = |n: &Node| !n.op.def().traits.must_alias.is_empty() || n.regions.iter().any(in_place);
    g.nodes().any(|(_, n)| here(n))
}

/// Facts of all values of a body, from those of its inputs. Sizes that only a run computes are guessed for
/// the choice of kernels, where a guess fits the whole body, branches not taken included. In the memory plan
/// they stay unknown.
pub(crate) fn points(body: &Graph, inputs: &[Fact], spans: &[Span]) -> Result<Points, BuildError> {
    let own = || {
        let inputs: Vec<Fact> = body.inputs.iter().map(|&v| body.value(v).fact.clone()).collect();
        body.infer_from(&inputs)
    };
    // A branch may not fit the shapes at which it is not taken.
    let (inputs, sure) = match body.infer_from(inputs) {
        Ok(facts) => (inputs.to_vec(), facts),
        Err(_) => (body.inputs.iter().map(|&v| body.value(v).fact.clone()).collect(), own()?),
    };
    let mut inside = Vec::with_capacity(spans.len());
    for s in spans {
        // The body's own facts hold for all shapes.
        let facts = match body.infer_from(&s.facts) {
            Ok(facts) => facts,
            Err(_) => own()?,
        };
        inside.push(s.inside(facts));
    }
    let opt = guess(body, &inputs).unwrap_or_else(|| sure.clone());
    Ok(Points { opt, sure, spans: inside })
}

/// Facts of all values with a guess in the place of sizes that only a run computes. A guess is the usual
/// size, or one that stands in the body, which the size may have to equal. `None` where nothing is to be
/// guessed, or no guess fits.
fn guess(body: &Graph, inputs: &[Fact]) -> Option<Vec<Fact>> {
    if inputs.iter().all(|f| f.ty.static_dims().is_some()) {
        return None;
    }
    let mut sizes = BTreeSet::new();
    sizes_in(body, &mut sizes);
    let all = std::iter::once(USUAL).chain(sizes.into_iter().rev().filter(|&n| n > 0).take(GUESSES));
    all.into_iter().find_map(|n| {
        let facts = body.infer_from(&inputs.iter().map(|f| usual(f, n)).collect::<Vec<_>>()).ok()?;
        fits(body, &facts).then_some(facts)
    })
}

/// The sizes that stand in a graph and its regions.
pub(crate) fn sizes_in(g: &Graph, sizes: &mut BTreeSet<i64>) {
    sizes.extend(g.value_ids().flat_map(|v| g.ty(v).dims.iter().filter_map(Dim::as_const)));
    g.nodes().flat_map(|(_, n)| &n.regions).for_each(|r| sizes_in(r, sizes));
}

/// Whether the facts fit every region of control flow, whatever is decided there.
fn fits(body: &Graph, facts: &[Fact]) -> bool {
    body.nodes().filter(|(_, n)| !n.regions.is_empty()).all(|(id, _)| {
        Region::extract(body, &[id]).is_ok_and(|r| {
            let inputs: Vec<Fact> = r.inputs.iter().map(|v| facts[v.0 as usize].clone()).collect();
            concretize(&r.graph, &inputs).is_ok()
        })
    })
}

fn usual(f: &Fact, n: i64) -> Fact {
    let number = |d: &Dim| match d.as_const() {
        Some(n) => n,
        None => d.upper_bound().as_ref().and_then(Dim::as_const).unwrap_or(n),
    };
    let mut guess = f.clone();
    guess.ty.dims = f.ty.dims.iter().map(|d| Dim::new(number(d))).collect();
    if f.as_const().is_none() {
        guess.value = None;
    }
    guess
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(text: &str) -> String {
        let mut g = Graph::from_text(text).unwrap_or_else(|e| panic!("{e}"));
        hand_on(&mut g);
        g.verify().unwrap_or_else(|e| panic!("{e}"));
        let name = |&v: &ValueId| g.value(v).name.clone();
        let given: Vec<String> = g.outputs.iter().map(name).collect();
        format!("{} layers, {}", g.nodes().count(), given.join(" "))
    }

    #[test]
    fn results_are_what_layers_hand_on() {
        let swap = "input %a: f32[2] input %b: f32[2] %c = identity(%b) %d = identity(%c) %e = identity(%a)";
        assert_eq!(handed(&format!("graph \"swap\" {{ {swap} output %d output %e }}")), "0 layers, b a");
        let twice = "input %a: f32[2] %b = exp(%a) %c = identity(%b) %d = neg(%c)";
        let found = handed(&format!("graph \"twice\" {{ {twice} output %b output %c output %d }}"));
        assert_eq!(found, "3 layers, b b d");
    }

    #[test]
    fn what_is_written_in_place_is_copied_before() {
        let cache = "input %a: f32[1,1,4,2] input %x: f32[1,1,1,2] input %at: i64[1] %old = identity(%a)
            %new = kv_cache_update(%a, %x, %at) {axis=2}";
        let found = handed(&format!("graph \"cache\" {{ {cache} output %new output %old }}"));
        assert_eq!(found, "2 layers, new old");
    }
}
