//! What is known inside of loops and conditionals when their bodies are built.

use crate::BuildError;
use crate::points::Points;
use kiln_backend::is_shape_data;
use kiln_ir::{Dim, Fact, Graph, Node, ValueId};

/// The length taken for dimensions of which nothing is known, where kernels are chosen.
const USUAL: i64 = 16;

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

/// Facts of all values of a body, from those of its inputs. Dimensions that only a run tells are guessed for the choice
/// of kernels; in the memory plan they stay unknown.
pub(crate) fn points(body: &Graph, opt: &[Fact], ends: &[&[Fact]]) -> Result<Points, BuildError> {
    let guess: Vec<Fact> = opt.iter().map(usual).collect();
    let opt = match body.infer_from(&guess) {
        Ok(facts) => facts,
        // What was guessed does not fit together.
        Err(_) => body.infer_from(opt)?,
    };
    let ends = ends.iter().map(|e| body.infer_from(e)).collect::<Result<_, _>>()?;
    Ok(Points { opt, ends })
}

fn usual(f: &Fact) -> Fact {
    let number = |d: &Dim| match d.as_const() {
        Some(n) => n,
        None => d.upper_bound().as_ref().and_then(Dim::as_const).unwrap_or(USUAL),
    };
    let mut guess = f.clone();
    guess.ty.dims = f.ty.dims.iter().map(|d| Dim::new(number(d))).collect();
    if f.as_const().is_none() {
        guess.value = None;
    }
    guess
}
