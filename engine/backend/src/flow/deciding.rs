//! Inputs whose elements decide control flow: how often loops go round, how long their outputs are, which branch is taken.
//! Where such an input is in the host's memory, the host plans by its elements instead of waiting for the device.

use super::node;
use crate::Program;
use kiln_ir::infer::MAX_CONTENT;
use kiln_ir::{Node, ValueId};
use std::collections::HashSet;

/// Decisions that a backend's host takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decisions {
    /// Sizes alone: iteration counts of loops that take elements or stack values, and lengths of outputs. For backends that leave
    /// every other decision to the device.
    Sizes,
    /// Every iteration count, every length and the condition of every conditional: for backends whose host walks control flow.
    All,
}

/// Positions of the inputs of a program from which these decisions follow, directly or through small tensors.
pub fn deciding_inputs(program: &Program, decisions: Decisions) -> Vec<usize> {
    let g = &program.graph;
    let mut needed: HashSet<ValueId> = HashSet::new();
    for (_, node) in g.nodes().rev() {
        let wanted = match node.regions.is_empty() {
            true => made_of(node, &needed),
            false => asked(program, node, decisions),
        };
        let small = |v: &ValueId| g.ty(*v).static_volume().is_some_and(|n| n <= MAX_CONTENT);
        needed.extend(wanted.into_iter().filter(small));
    }
    (0..g.inputs.len()).filter(|&i| needed.contains(&g.inputs[i])).collect()
}

/// Values that a number is computed from, if a layer makes it; of the operands of `shape` and `size` only the
/// dimensions matter.
fn made_of(node: &Node, needed: &HashSet<ValueId>) -> Vec<ValueId> {
    let makes = node.outputs.iter().any(|v| needed.contains(v)) && !node.op.roles().host_known;
    if makes { node.inputs.iter().flatten().copied().collect() } else { Vec::new() }
}

/// The inputs of a node of control flow that decide it, or something in its bodies.
fn asked(program: &Program, control: &Node, decisions: Decisions) -> Vec<ValueId> {
    let step = program.steps.iter().find(|s| {
        node(&program.graph, s).is_some_and(|n| n.outputs == control.outputs && n.name == control.name)
    });
    let bodies = step.map_or(&[][..], |s| &s.bodies);
    let n = control.inputs.len();
    let mut at = Vec::new();
    if let Ok(Some(captures)) = control.branches(n) {
        at.extend((decisions == Decisions::All).then_some(0));
        for (range, body) in captures.into_iter().zip(bodies) {
            at.extend(deciding_inputs(body, decisions).into_iter().map(|i| range.start + i));
        }
    } else if let Ok(s) = control.loop_shape(n) {
        if s.has_slices() || decisions == Decisions::All {
            at.extend((0..usize::from(s.count)).chain(s.lengths()));
        }
        let own = s.carried + s.iterated.len();
        let inner = bodies.first().map(|b| deciding_inputs(b, decisions)).unwrap_or_default();
        at.extend(inner.into_iter().filter_map(|i| Some(s.captures().start + i.checked_sub(own)?)));
    }
    at.into_iter().filter_map(|i| control.inputs.get(i).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tactic, flow};
    use kiln_ir::Graph;

    fn found(text: &str) -> Vec<usize> {
        found_for(text, Decisions::Sizes)
    }

    fn found_for(text: &str, decisions: Decisions) -> Vec<usize> {
        let g = Graph::from_text(text).unwrap_or_else(|e| panic!("{e}"));
        deciding_inputs(&interpreted(g), decisions)
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

    /// A loop of %n iterations over %x that stacks its values or returns the last one.
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

    #[test]
    fn a_host_that_walks_control_flow_reads_every_count_and_condition() {
        let last = looped("%k", "%a", false, 0, "%y = exp(%x) output %y");
        let text = format!("{HEAD} %o: f32[4] = {last} output %o }}");
        assert_eq!(found_for(&text, Decisions::All), [1]);
        let made = looped("%m", "%a", false, 0, "%y = exp(%x) output %y");
        let float =
            format!("{HEAD} input %j: f32[] %m = cast(%j) {{to=i64}} %o: f32[4] = {made} output %o }}");
        assert_eq!(found_for(&float, Decisions::All), [2], "a count may be made of floats");
        assert!(found(&float).is_empty());
        let body = "%y = exp(%x) %z = neg(%x) output %y output %z";
        let all = looped("%m", "%a", true, 0, body);
        let stacked =
            format!("{HEAD} input %j: f32[] %m = cast(%j) {{to=i64}} %o: f32[?n,4] = {all} output %o }}");
        assert_eq!(found(&stacked), [2], "so may the count of what is stacked");
        let branches = "if(%c, %a, %a) {then_captures=1} @i graph \"t\" { input %x: f32[4] %y = exp(%x) output %y } \
                        graph \"f\" { input %x: f32[4] %y = neg(%x) output %y }";
        let asked = format!("{HEAD} input %c: bool[] %o: f32[4] = {branches} output %o }}");
        assert_eq!((found_for(&asked, Decisions::All), found(&asked)), (vec![2], vec![]));
    }
}
