//! Derived weights: made again from their sources, with the bits of the oracle.

use crate::RuntimeError;
use crate::weights::{held, refused, weights};
use kiln_backend::Program;
use kiln_ir::{Graph, IrError, Recipe, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Result of [`verify_recipes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecipeReport {
    /// Derived weights that came out bit for bit as stored.
    pub same: usize,
    /// Derived weights that came out otherwise.
    pub different: Vec<String>,
    /// Derived weights of which the program lacks a source.
    pub unknown: Vec<String>,
}

/// Makes every derived weight of a program again, on the oracle, and compares all bytes.
pub fn verify_recipes(program: &Program) -> Result<RecipeReport, RuntimeError> {
    let sources = held(program);
    let mut report = RecipeReport::default();
    for (v, w) in weights(program) {
        let Some(recipe) = &w.recipe else { continue };
        let name = program.graph.value(v).name.clone();
        if recipe.sources.iter().any(|s| !sources.contains_key(s)) {
            report.unknown.push(name);
        } else if evaluate_by(recipe, &sources, &name, Graph::eval)? == w.tensor {
            report.same += 1;
        } else {
            report.different.push(name);
        }
    }
    Ok(report)
}

/// The result of a recipe.
pub(super) fn evaluate(
    recipe: &Recipe,
    sources: &BTreeMap<Arc<str>, Tensor>,
    name: &str,
) -> Result<Tensor, RuntimeError> {
    evaluate_by(recipe, sources, name, kiln_recipes::evaluate)
}

fn evaluate_by(
    recipe: &Recipe,
    sources: &BTreeMap<Arc<str>, Tensor>,
    name: &str,
    by: fn(&Graph, &[Tensor]) -> Result<Vec<Tensor>, IrError>,
) -> Result<Tensor, RuntimeError> {
    let fail = |m: &str| refused(format!("derived weight \"{name}\": {m}"));
    let mut inputs = Vec::with_capacity(recipe.sources.len());
    for (s, &v) in recipe.sources.iter().zip(&recipe.graph.inputs) {
        let t = sources.get(s).ok_or_else(|| fail(&format!("its source \"{s}\" is not known")))?;
        let wanted = recipe.graph.ty(v);
        if &t.ty() != wanted {
            return Err(fail(&format!("its source \"{s}\" is {}, wants {wanted}", t.ty())));
        }
        inputs.push(t.clone());
    }
    let mut outs = by(&recipe.graph, &inputs).map_err(|e| fail(&e.to_string()))?;
    match outs.len() {
        1 => Ok(outs.swap_remove(0)),
        n => Err(fail(&format!("its recipe has {n} results, wants one"))),
    }
}
