//! Inputs that say how often loops go round, or how long their outputs are: where such a number is given to the host, it plans by
//! it, instead of waiting for the device.

use kiln_backend::{Program, flow};
use kiln_ir::infer::MAX_CONTENT;
use kiln_ir::{Node, ValueId};
use std::collections::HashSet;

/// Positions of these inputs of a program.
pub(super) fn counts(program: &Program) -> Vec<usize> {
    let g = &program.graph;
    let mut needed: HashSet<ValueId> = HashSet::new();
    for (_, node) in g.nodes().rev() {
        let wanted = match node.regions.is_empty() {
            true => made_of(node, &needed),
            false => asked(program, node),
        };
        let small = |v: &ValueId| {
            let ty = g.ty(*v);
            !ty.dtype.is_float() && ty.static_volume().is_some_and(|n| n <= MAX_CONTENT)
        };
        needed.extend(wanted.into_iter().filter(small));
    }
    (0..g.inputs.len()).filter(|&i| needed.contains(&g.inputs[i])).collect()
}

/// What a number is made of, if a layer makes one; of what `shape` and `size` read only the dimensions matter.
fn made_of(node: &Node, needed: &HashSet<ValueId>) -> Vec<ValueId> {
    let makes =
        node.outputs.iter().any(|v| needed.contains(v)) && !(node.op.is("shape") || node.op.is("size"));
    if makes { node.inputs.iter().flatten().copied().collect() } else { Vec::new() }
}

/// The numbers that control flow asks for: for itself, where they say how much a loop reads or gives, and for its bodies.
fn asked(program: &Program, node: &Node) -> Vec<ValueId> {
    let step = program.steps.iter().find(|s| {
        flow::node(&program.graph, s).is_some_and(|n| n.outputs == node.outputs && n.name == node.name)
    });
    let bodies = step.map_or(&[][..], |s| &s.bodies);
    let n = node.inputs.len();
    let mut at = Vec::new();
    if let Ok(Some(captures)) = node.branches(n) {
        for (range, body) in captures.into_iter().zip(bodies) {
            at.extend(counts(body).into_iter().map(|i| range.start + i));
        }
    } else if let Ok(s) = node.loop_shape(n) {
        if s.has_slices() {
            at.extend((0..usize::from(s.count)).chain(s.lengths()));
        }
        let own = s.carried + s.iterated.len();
        let inner = bodies.first().map(counts).unwrap_or_default();
        at.extend(inner.into_iter().filter_map(|i| Some(s.captures().start + i.checked_sub(own)?)));
    }
    at.into_iter().filter_map(|i| node.inputs.get(i).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_backend::Tactic;
    use kiln_ir::Graph;

    fn found(text: &str) -> Vec<usize> {
        let g = Graph::from_text(text).unwrap_or_else(|e| panic!("{e}"));
        counts(&interpreted(g))
    }

    /// A program whose control flow is walked.
    fn interpreted(g: Graph) -> Program {
        let mut p = Program::step_per_node(g, &Tactic::plain(flow::INTERPRETED));
        for i in 0..p.steps.len() {
            let node = p.steps[i].nodes.first().and_then(|&n| p.graph.get(n));
            let regions = node.map(|n| n.regions.clone()).unwrap_or_default();
            p.steps[i].bodies = regions.into_iter().map(interpreted).collect();
        }
        p
    }

    const HEAD: &str = "graph \"g\" { input %a: f32[4] input %k: i64[] ";

    /// A loop of %n trips over %x that stacks its values or gives the last one.
    fn looped(n: &str, x: &str, stacks: bool, captures: usize, body: &str) -> String {
        let kind = if stacks { "concat" } else { "last" };
        format!(
            "loop({n}, {x}) {{body_captures={captures},carried=1,count=true,iter_axes=[],iter_reverse=[],\
             out_axes=[0],out_index=[0],out_kinds=s[\"{kind}\"],out_length=[0]}} @l graph \"body\" {{ \
             input %x: f32[4] {body} }}"
        )
    }

    #[test]
    fn a_count_that_bounds_what_is_stacked_is_read() {
        let body = "%y = exp(%x) %z = neg(%x) output %y output %z";
        let last = looped("%k", "%a", false, 0, "%y = exp(%x) output %y");
        assert!(found(&format!("{HEAD} %o: f32[4] = {last} output %o }}")).is_empty());
        let all = looped("%k", "%a", true, 0, body);
        assert_eq!(found(&format!("{HEAD} %o: f32[?n,4] = {all} output %o }}")), [1]);
        let two = looped("%m", "%a", true, 0, body);
        let made = format!("{HEAD} input %j: i64[] %m = add(%k, %j) %o: f32[?n,4] = {two} output %o }}");
        assert_eq!(found(&made), [1, 2]);
    }

    #[test]
    fn a_count_of_a_loop_inside_is_read_where_it_comes_from() {
        let inner = looped("%c", "%x", true, 0, "%y = exp(%x) %z = neg(%x) output %y output %z");
        let body = format!("input %c: i64[] %s: f32[?n,4] = {inner} %y = neg(%x) output %y");
        let outer = looped("%k", "%a, %j", false, 1, &body);
        assert_eq!(found(&format!("{HEAD} input %j: i64[] %o: f32[4] = {outer} output %o }}")), [2]);
    }
}
