//! Conditionals.

mod looping;
mod scan;

use std::sync::Arc;

use kiln_network::IfId;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, unsupported};
use crate::model::Graph;
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("If", &[1, 11, 13, 16, 19, 21, 23, 24, 25], if_),
    Operator::new("Loop", &[1, 11, 13, 16, 19, 21, 23, 24, 25], looping::loop_),
    Operator::new("Scan", &[8, 9, 11, 16, 19, 21, 23, 24, 25], scan::scan),
];

/// A condition that is known picks its branch, which is converted in place; else both become branches of a
/// conditional.
fn if_(cx: &mut Cx<'_>) -> Outs {
    let condition = cx.input(0)?;
    if cx.dtype(condition) != kiln_ir::DType::Bool {
        return unsupported(format!("a condition of type {}, wants bool", cx.dtype(condition)));
    }
    let on_true = cx.require_attr::<&Arc<Graph>>("then_branch")?.clone();
    let on_false = cx.require_attr::<&Arc<Graph>>("else_branch")?.clone();
    let (t, f) = (on_true.outputs.len(), on_false.outputs.len());
    if t != f {
        return Err(cx.bad_attr("else_branch", &format!("has {f} outputs: wanted {t}, as then_branch has")));
    }
    if cx.output_count() > t {
        let n = cx.output_count();
        return Err(cx.bad_attr("then_branch", &format!("has {t} outputs: wanted {n}, as the node has")));
    }
    // A branch that is not taken is not converted, so its declarations are all that is known of it.
    for (a, b) in on_true.outputs.iter().zip(&on_false.outputs) {
        let types = a.ty.dtype().zip(b.ty.dtype());
        if let Some((t, f)) = types.filter(|(t, f)| t != f) {
            let (a, b) = (&a.name, &b.name);
            let why = format!("gives '{b}' as {f}: wanted {t}, as '{a}' of then_branch is");
            return Err(cx.bad_attr("else_branch", &why));
        }
    }
    if let Some(known) = cx.ints_of(condition) {
        return inline(cx, &known, &on_true, &on_false);
    }
    let condition = cx.scalar(condition)?;
    let of = cx.net().add_if_conditional()?;
    let label = cx.label();
    // Another construct may have the name; then the number stays.
    let _ = cx.net().set_conditional_name(of, &label);
    cx.net().set_condition(of, condition)?;
    let (t, f) = (branch(cx, of, &on_true)?, branch(cx, of, &on_false)?);
    t.into_iter().zip(f).map(|(t, f)| cx.result(of, t, f)).collect()
}

fn inline(cx: &mut Cx<'_>, known: &[i64], on_true: &Graph, on_false: &Graph) -> Outs {
    let &[condition] = known else {
        return unsupported(format!("a condition of {} elements", known.len()));
    };
    let (name, graph) = if condition != 0 { ("then_branch", on_true) } else { ("else_branch", on_false) };
    cx.note(format!(
        "node '{}' is its {name}: its condition is constant, a refit does not change it",
        cx.node().label()
    ));
    cx.in_place(graph)
}

/// A branch: what it reads from around it comes through inputs of the conditional, so that it is computed only when it
/// is taken. Constants need none.
fn branch(cx: &mut Cx<'_>, of: IfId, graph: &Graph) -> Outs {
    let mut bound = Vec::new();
    for name in &graph.captures {
        let Some(t) = cx.named(name) else { continue };
        if cx.value(t).is_none() {
            let inside: TensorId = cx.net().add_if_input(of, t)?.output(0)?;
            bound.push((name.clone(), inside));
        }
    }
    cx.region(graph, bound)
}
