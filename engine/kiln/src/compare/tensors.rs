//! Tensors between layers or kernels, compared.

use super::diff::{Diff, Tolerance};
use super::side::Side;
use crate::bisect::own_name;
use kiln_backend::{Program, Step};
use kiln_builder::passes::layout::channels_last;
use kiln_ir::ValueId;
use std::collections::BTreeSet;

/// Differences of tensors.
#[derive(Default)]
pub(super) struct Tensors {
    /// By layer or kernel.
    pub(super) layers: Vec<(String, Diff)>,
    /// Tensors that cannot be compared, with the reason.
    pub(super) hidden: Vec<(String, String)>,
    /// Names of those that agree.
    pub(super) agreed: BTreeSet<String>,
}

impl Tensors {
    /// Compares the tensors of all layers of the right side, or those between the kernels of the other side.
    pub(super) fn of(
        wanted: &mut Side,
        found: &mut Side,
        tolerance: &Tolerance,
        each_layer: bool,
    ) -> Tensors {
        let program = if each_layer { wanted.engine.program() } else { found.engine.program() };
        let mut all = Tensors::default();
        for (step, name) in names(&program, each_layer) {
            let mut hide = |why: String| all.hidden.push((name.to_owned(), why));
            let (own, last) = own_name(name);
            let right = wanted.context.observe(name).or_else(|e| match last {
                true => wanted.context.observe(own).map(|t| channels_last(&t).unwrap_or(t)),
                false => Err(e),
            });
            match (right, found.context.observe(name)) {
                (Err(e), _) => hide(format!("{}: {e}", wanted.backend)),
                (_, Err(e)) => hide(format!("{}: {e}", found.backend)),
                (Ok(w), Ok(f)) if f.ty() != w.ty() && !each_layer => {
                    hide(format!("it is {} in the engine, {} without optimizations", f.ty(), w.ty()));
                }
                (Ok(w), Ok(f)) => {
                    let d = Diff::of(name, &f, &w, tolerance);
                    if d.ok() {
                        all.agreed.insert(name.to_owned());
                    }
                    all.layers.push((step.to_owned(), d));
                }
            }
        }
        all
    }
}

/// Tensors with the steps that compute them: all, or those that leave their step.
fn names(program: &Program, all: bool) -> Vec<(&str, &str)> {
    let (g, border) = (&program.graph, program.border());
    let of_step = |s: &Step| -> Vec<ValueId> {
        s.nodes.iter().filter_map(|&n| g.get(n)).flat_map(|n| n.outputs.iter().copied()).collect()
    };
    let mut found = Vec::new();
    for step in &program.steps {
        let leaving = of_step(step).into_iter().filter(|v| all || border.contains(v));
        found.extend(leaving.map(|v| (step.name.as_str(), g.value(v).name.as_str())));
    }
    found
}
