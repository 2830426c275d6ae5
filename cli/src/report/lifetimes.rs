//! The memory plan over time: which value is where in the arena, from which step to which.

use kiln_backend::{Place, Program};
use std::collections::HashMap;

/// A value's place and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub name: String,
    pub offset: u64,
    pub size: u64,
    /// The steps that write it first and read it last.
    pub first: usize,
    pub last: usize,
}

/// Lifetimes of all values in the arena of a program, in the order in which they begin.
pub fn of(program: &Program) -> Vec<Lifetime> {
    let g = &program.graph;
    let end = program.steps.len().saturating_sub(1);
    let mut step_of = HashMap::new();
    for (i, step) in program.steps.iter().enumerate() {
        step_of.extend(step.nodes.iter().map(|&n| (n, i)));
    }
    let (mut first, mut last) = (HashMap::new(), HashMap::new());
    for (id, node) in g.nodes() {
        let Some(&i) = step_of.get(&id) else { continue };
        for &v in &node.outputs {
            first.entry(v).or_insert(i);
        }
        for &v in node.inputs.iter().flatten() {
            let at = last.entry(v).or_insert(i);
            *at = (*at).max(i);
        }
    }
    for v in g.kept() {
        last.insert(v, end);
    }
    let mut all = Vec::new();
    for v in g.value_ids() {
        let Some(&Place::Arena { offset, size }) = program.memory.places.get(v.0 as usize) else { continue };
        let first = first.get(&v).copied().unwrap_or(0);
        let last = last.get(&v).copied().unwrap_or(first).max(first);
        all.push(Lifetime { name: g.value(v).name.clone(), offset, size, first, last });
    }
    all.sort_by_key(|l| (l.first, l.offset));
    all
}
