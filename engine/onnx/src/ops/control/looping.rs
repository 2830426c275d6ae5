//! `Loop`: an iteration count, a condition, or both; carried values and stacked outputs.

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_ir::{DType, Elems};
use kiln_network::TensorId;
use kiln_network::{LayerId, LoopId, LoopOutputKind, TripLimitKind};

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::model::Graph;

/// Result of an attempt to convert a loop.
pub(crate) enum Tried {
    /// The outputs of the body that follow the carried ones, and the final carried values.
    Done(Vec<TensorId>, Vec<TensorId>),
    /// Axes of carried values that iterations change: for each value.
    Varies(Vec<BTreeSet<usize>>),
}

/// Values carried from iteration to iteration: their layers and what they are inside.
pub(crate) struct Carried {
    layers: Vec<LayerId>,
    pub(crate) values: Vec<TensorId>,
}

impl Carried {
    /// Recurrences from initial values; `varying` are the axes of each whose length iterations change.
    pub(crate) fn add(
        cx: &mut Cx<'_>,
        of: LoopId,
        initial: &[TensorId],
        varying: &[BTreeSet<usize>],
    ) -> Result<Carried, Refusal> {
        let (mut layers, mut values) = (Vec::new(), Vec::new());
        for (i, &t) in initial.iter().enumerate() {
            let mut layer = cx.net().add_recurrence(of, t)?;
            if let Some(axes) = varying.get(i).filter(|a| !a.is_empty()) {
                layer = layer.set_varying(&axes.iter().copied().collect::<Vec<_>>())?;
            }
            values.push(layer.output(0)?);
            layers.push(layer.id());
        }
        Ok(Carried { layers, values })
    }

    /// Closes the recurrences by the values of the next iteration, unless a length changes that was not allowed to.
    pub(crate) fn close(
        &self,
        cx: &mut Cx<'_>,
        next: &[TensorId],
        varying: &[BTreeSet<usize>],
    ) -> Result<Option<Vec<BTreeSet<usize>>>, Refusal> {
        let mut more = varying.to_vec();
        more.resize(self.values.len(), BTreeSet::new());
        for (i, (&a, &b)) in self.values.iter().zip(next).enumerate() {
            let (a, b) = (cx.ty(a).clone(), cx.ty(b).clone());
            if a.dtype != b.dtype || a.rank() != b.rank() {
                return unsupported(format!("carried value {i}: it starts as {a} and goes on as {b}"));
            }
            let changed = (0..a.rank()).filter(|&d| a.dims[d] != b.dims[d]);
            more[i].extend(changed);
        }
        if more.iter().zip(varying).any(|(m, v)| m != v) {
            return Ok(Some(more));
        }
        for (&layer, &t) in self.layers.iter().zip(next) {
            cx.net().set_input(layer, 1, t)?;
        }
        Ok(None)
    }

    /// The values after the last iteration.
    pub(crate) fn last(&self, cx: &mut Cx<'_>, of: LoopId) -> Outs {
        let last =
            |&t: &TensorId| Ok(cx.net().add_loop_output(of, t, LoopOutputKind::LastValue, 0)?.output(0)?);
        self.values.iter().map(last).collect()
    }
}

/// A value as one inside of the loop: a value that does not depend on its iterations is carried unchanged.
pub(crate) fn inside(cx: &mut Cx<'_>, of: LoopId, t: TensorId) -> Result<TensorId, Refusal> {
    if cx.net().is_inside(t, of)? {
        return Ok(t);
    }
    let layer = cx.net().add_recurrence(of, t)?;
    let (id, value) = (layer.id(), layer.output(0)?);
    cx.net().set_input(id, 1, value)?;
    Ok(value)
}

/// Tries until no carried value changes a length that was not allowed to: the body sees lengths that change as unknown.
pub(crate) fn retry(
    cx: &mut Cx<'_>,
    carried: usize,
    mut attempt: impl FnMut(&mut Cx<'_>, &[BTreeSet<usize>]) -> Result<Tried, Refusal>,
) -> Result<(Vec<TensorId>, Vec<TensorId>), Refusal> {
    let mut varying = vec![BTreeSet::new(); carried];
    loop {
        let before = cx.save();
        match attempt(cx, &varying)? {
            Tried::Done(scans, last) => return Ok((scans, last)),
            // Each attempt adds an axis, so that this ends.
            Tried::Varies(more) => varying = more,
        }
        cx.restore(before);
    }
}

/// The node's inputs and body.
struct Parts {
    body: Arc<Graph>,
    count: Option<TensorId>,
    condition: Option<TensorId>,
    initial: Vec<TensorId>,
}

pub(crate) fn loop_(cx: &mut Cx<'_>) -> Outs {
    let body = cx.require_attr::<&Arc<Graph>>("body")?.clone();
    let initial = (2..cx.input_count()).map(|i| cx.input(i)).collect::<Result<Vec<_>, _>>()?;
    let (ins, outs) = (initial.len() + 2, initial.len() + 1);
    if body.inputs.len() != ins || body.outputs.len() < outs {
        let (i, o) = (body.inputs.len(), body.outputs.len());
        let why = format!(
            "has {i} inputs and {o} outputs: wanted {ins} and at least {outs} (the condition and {} carried values)",
            initial.len()
        );
        return Err(cx.bad_attr("body", &why));
    }
    if cx.output_count() + 1 > body.outputs.len() {
        let (n, o) = (cx.output_count() + 1, body.outputs.len());
        let why = format!("has {o} outputs: wanted {n}, the condition and one for each output of the node");
        return Err(cx.bad_attr("body", &why));
    }
    let count = cx.opt(0).map(|t| cx.scalar(t)).transpose()?;
    let condition = cx.opt(1).map(|t| cx.scalar(t)).transpose()?;
    let parts = Parts { body, count, condition, initial };
    let (scans, mut outs) = retry(cx, parts.initial.len(), |cx, varying| attempt(cx, &parts, varying))?;
    outs.extend(scans);
    Ok(outs)
}

fn attempt(cx: &mut Cx<'_>, p: &Parts, varying: &[BTreeSet<usize>]) -> Result<Tried, Refusal> {
    let of = cx.net().add_loop()?;
    let label = cx.label();
    // Another construct may have the name; then the number stays.
    let _ = cx.net().set_loop_name(of, &label);
    if let Some(count) = p.count {
        cx.net().add_trip_limit(of, count, TripLimitKind::Count)?;
    }
    let yes = truth(cx)?;
    let first = p.condition.unwrap_or(yes);
    let known = cx.ints_of(first).and_then(|v| v.first().copied());
    // A condition that the body passes on never changes.
    let asked = !(known == Some(1) && passes_condition(&p.body));
    let mut go = None;
    let mut asked_inside = first;
    if asked {
        let layer = cx.net().add_recurrence(of, first)?;
        (asked_inside, go) = (layer.output(0)?, Some(layer.id()));
        cx.net().add_trip_limit(of, asked_inside, TripLimitKind::While)?;
    }
    if p.count.is_none() && !asked {
        return unsupported("neither an iteration count nor a condition that ends it");
    }
    let zero = cx.elems(DType::I64, &[], Elems::I(vec![0]))?;
    let counter = Carried::add(cx, of, &[zero], &[])?;
    let one = cx.elems(DType::I64, &[], Elems::I(vec![1]))?;
    let next = cx.bin("add", counter.values[0], one)?;
    counter.close(cx, &[next], &[BTreeSet::new()])?;
    let carried = Carried::add(cx, of, &p.initial, varying)?;
    let given = [counter.values[0], asked_inside].into_iter().chain(carried.values.iter().copied());
    let bound = p.body.inputs.iter().map(|i| i.name.clone()).zip(given).collect();
    let outs = cx.region(&p.body, bound)?;
    let (&goes_on, rest) = match outs.split_first() {
        Some(split) => split,
        None => return unsupported("a body without a condition"),
    };
    let (next, scans) = rest.split_at(p.initial.len().min(rest.len()));
    if let Some(more) = carried.close(cx, next, varying)? {
        return Ok(Tried::Varies(more));
    }
    if let Some(go) = go {
        let goes_on = cx.scalar(goes_on)?;
        cx.net().set_input(go, 1, goes_on)?;
    }
    let last = carried.last(cx, of)?;
    let mut stacked = Vec::with_capacity(scans.len());
    for &t in scans {
        let t = inside(cx, of, t)?;
        let out = cx.net().add_loop_output(of, t, LoopOutputKind::Concatenate, 0)?;
        stacked.push(out.set_exact_length()?.output(0)?);
    }
    Ok(Tried::Done(stacked, last))
}

fn truth(cx: &mut Cx<'_>) -> Result<TensorId, Refusal> {
    cx.elems(DType::Bool, &[], Elems::I(vec![1]))
}

/// Whether the condition that a body yields is the one that it was given, or a constant true.
fn passes_condition(body: &Graph) -> bool {
    let Some(mut name) = body.outputs.first().map(|o| o.name.as_str()) else { return false };
    let own = body.inputs.get(1).map(|i| i.name.as_str());
    // Nodes come after what they read, so that each is passed once.
    for node in body.nodes.iter().rev().filter(|n| n.op == "Identity") {
        if node.outputs.first().is_some_and(|o| o == name) {
            name = node.inputs.first().map_or(name, String::as_str);
        }
    }
    Some(name) == own
}
