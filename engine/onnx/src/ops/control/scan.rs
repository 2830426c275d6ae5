//! `Scan`: a loop over slices of its inputs. In version 8 each entry of a batch is scanned by itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_ir::infer::differ;
use kiln_network::TensorId;
use kiln_network::{LoopId, LoopOutputKind, TripLimitKind};

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::model::Graph;
use crate::ops::control::looping::{Carried, Tried, inside, retry};

/// Parts of a scan: its states, its inputs and outputs, and their axes and directions.
struct Parts {
    body: Arc<Graph>,
    states: Vec<TensorId>,
    /// Tensor, axis, and whether it is read from its end.
    slices: Vec<(TensorId, usize, bool)>,
    /// Axis of each stacked output (negative: from the end), and whether it is written from its end.
    stacked: Vec<(i64, bool)>,
}

/// Length of the scan and of its outputs.
#[derive(Clone, Copy)]
struct Lengths {
    iterations: TensorId,
    /// Length of outputs that are longer than there are iterations.
    outputs: Option<TensorId>,
}

pub(crate) fn scan(cx: &mut Cx<'_>) -> Outs {
    let batched = cx.version() < 9;
    let first = usize::from(batched);
    let body = cx.require_attr::<&Arc<Graph>>("body")?.clone();
    let given = (first..cx.input_count()).map(|i| cx.input(i)).collect::<Result<Vec<_>, _>>()?;
    let slices =
        usize::try_from(cx.int("num_scan_inputs", 0)?).ok().filter(|n| (1..=given.len()).contains(n));
    let Some(slices) = slices else {
        return Err(cx.bad_attr("num_scan_inputs", &format!("wanted 1 to {}", given.len())));
    };
    let states = given.len() - slices;
    if body.inputs.len() != given.len() || body.outputs.len() < states {
        let (i, o, n) = (body.inputs.len(), body.outputs.len(), given.len());
        let why = format!("has {i} inputs and {o} outputs: wanted {n} and at least {states} (the states)");
        return Err(cx.bad_attr("body", &why));
    }
    if cx.output_count() > body.outputs.len() {
        let (n, o) = (cx.output_count(), body.outputs.len());
        return Err(cx.bad_attr("body", &format!("has {o} outputs: wanted {n}, as the node has")));
    }
    let outputs = body.outputs.len() - states;
    let (states, scanned) = given.split_at(states);
    if batched {
        let directions = directions(cx, "directions", slices)?;
        let parts = Batched { body, states, scanned, directions, outputs };
        return parts.convert(cx);
    }
    let axes = list(cx, "scan_input_axes", slices)?;
    let reversed = directions(cx, "scan_input_directions", slices)?;
    let mut all = Vec::with_capacity(slices);
    for ((&t, axis), reverse) in scanned.iter().zip(axes).zip(reversed) {
        all.push((t, cx.axis(axis, cx.rank(t))?, reverse));
    }
    let out_axes = list(cx, "scan_output_axes", outputs)?;
    let out_reversed = directions(cx, "scan_output_directions", outputs)?;
    let stacked = out_axes.into_iter().zip(out_reversed).collect();
    let parts = Parts { body, states: states.to_vec(), slices: all, stacked };
    let scanned: Vec<_> = parts.slices.iter().map(|&(t, axis, _)| (t, axis)).collect();
    let iterations = common_length(cx, &scanned)?;
    let (scans, mut outs) = parts.convert(cx, Lengths { iterations, outputs: None })?;
    outs.extend(scans);
    Ok(outs)
}

/// The length that all of these tensors have along their axes. Lengths that are not known to be equal are compared by the
/// run, before it starts where the host knows them.
fn common_length(cx: &mut Cx<'_>, scanned: &[(TensorId, usize)]) -> Result<TensorId, Refusal> {
    let Some((&(first, axis), others)) = scanned.split_first() else { return unsupported("nothing to scan") };
    let iterations = cx.length(first, axis)?;
    for (i, &(t, own)) in others.iter().enumerate() {
        let (Some(a), Some(b)) = (cx.dim(first, axis), cx.dim(t, own)) else { continue };
        let n = i + 1;
        if differ(&a, &b) {
            let why = format!(
                "scan inputs of different length: {a} in input 0 (axis {axis} of {}), {b} in input {n} (axis {own} of {})",
                cx.ty(first),
                cx.ty(t)
            );
            return Err(Refusal::Sizes(why));
        }
        let length = cx.length(t, own)?;
        let same = cx.bin("equal", iterations, length)?;
        let label = cx.label();
        cx.demand(same, format!("the scan inputs 0 and {n} of '{label}' differ in length: {a} and {b}"))?;
    }
    Ok(iterations)
}

fn list(cx: &Cx<'_>, name: &str, len: usize) -> Result<Vec<i64>, Refusal> {
    match cx.ints(name)? {
        None => Ok(vec![0; len]),
        Some(v) if v.len() == len => Ok(v),
        Some(v) => Err(cx.bad_attr(name, &format!("has {} numbers, wants {len}", v.len()))),
    }
}

fn directions(cx: &Cx<'_>, name: &str, len: usize) -> Result<Vec<bool>, Refusal> {
    let v = list(cx, name, len)?;
    match v.iter().find(|d| !matches!(d, 0 | 1)) {
        Some(d) => Err(cx.bad_attr(name, &format!("has {d}, wants 0 (forward) or 1 (backward)"))),
        None => Ok(v.into_iter().map(|d| d == 1).collect()),
    }
}

impl Parts {
    /// Stacked outputs and final states.
    fn convert(&self, cx: &mut Cx<'_>, n: Lengths) -> Result<(Vec<TensorId>, Vec<TensorId>), Refusal> {
        retry(cx, self.states.len(), |cx, varying| self.attempt(cx, n, varying))
    }

    fn attempt(&self, cx: &mut Cx<'_>, n: Lengths, varying: &[BTreeSet<usize>]) -> Result<Tried, Refusal> {
        let of = cx.net().add_loop()?;
        let label = cx.label();
        // Another construct may have the name; then the number stays.
        let _ = cx.net().set_loop_name(of, &label);
        cx.net().add_trip_limit(of, n.iterations, TripLimitKind::Count)?;
        let states = Carried::add(cx, of, &self.states, varying)?;
        let mut given = states.values.clone();
        for &(t, axis, reverse) in &self.slices {
            given.push(cx.net().add_iterator(of, t, axis, reverse)?.output(0)?);
        }
        let bound = self.body.inputs.iter().map(|i| i.name.clone()).zip(given).collect();
        let outs = cx.region(&self.body, bound)?;
        let (next, scans) = outs.split_at(self.states.len().min(outs.len()));
        if let Some(more) = states.close(cx, next, varying)? {
            return Ok(Tried::Varies(more));
        }
        let last = states.last(cx, of)?;
        let mut stacked = Vec::with_capacity(scans.len());
        for (&t, &(axis, reverse)) in scans.iter().zip(&self.stacked) {
            let axis = cx.axis(axis, cx.rank(t) + 1)?;
            stacked.push(stack(cx, of, t, axis, reverse, n.outputs)?);
        }
        Ok(Tried::Done(stacked, last))
    }
}

fn stack(
    cx: &mut Cx<'_>,
    of: LoopId,
    t: TensorId,
    axis: usize,
    reverse: bool,
    length: Option<TensorId>,
) -> Result<TensorId, Refusal> {
    let t = inside(cx, of, t)?;
    let kind = if reverse { LoopOutputKind::Reverse } else { LoopOutputKind::Concatenate };
    let layer = cx.net().add_loop_output(of, t, kind, axis)?;
    let layer = match length {
        Some(length) => layer.set_input(1, length)?,
        None => layer.set_exact_length()?,
    };
    Ok(layer.output(0)?)
}

/// Version 8: every state and scanned tensor has a batch in front, and lengths may be given for each of its entries.
struct Batched<'a> {
    body: Arc<Graph>,
    states: &'a [TensorId],
    scanned: &'a [TensorId],
    directions: Vec<bool>,
    outputs: usize,
}

impl Batched<'_> {
    fn convert(&self, cx: &mut Cx<'_>) -> Outs {
        let along = |axis| self.scanned.iter().map(|&t| (t, axis)).collect::<Vec<_>>();
        let batches = self.states.iter().map(|&t| (t, 0));
        let entries = common_length(cx, &along(0).into_iter().chain(batches).collect::<Vec<_>>())?;
        let longest = common_length(cx, &along(1))?;
        let lengths = cx.opt(0);
        let outer = cx.net().add_loop()?;
        cx.net().add_trip_limit(outer, entries, TripLimitKind::Count)?;
        let entry = |cx: &mut Cx<'_>, t: TensorId| {
            Ok::<_, Refusal>(cx.net().add_iterator(outer, t, 0, false)?.output(0)?)
        };
        let states = self.states.iter().map(|&t| entry(cx, t)).collect::<Result<Vec<_>, _>>()?;
        let mut slices = Vec::with_capacity(self.scanned.len());
        for (&t, &reverse) in self.scanned.iter().zip(&self.directions) {
            slices.push((entry(cx, t)?, 0, reverse));
        }
        let own = match lengths {
            Some(t) => Lengths { iterations: entry(cx, t)?, outputs: Some(longest) },
            None => Lengths { iterations: longest, outputs: None },
        };
        let stacked = vec![(0, false); self.outputs];
        let parts = Parts { body: self.body.clone(), states, slices, stacked };
        let (scans, mut outs) = parts.convert(cx, own)?;
        outs.extend(scans);
        outs.into_iter().map(|t| stack(cx, outer, t, 0, false, None)).collect()
    }
}
