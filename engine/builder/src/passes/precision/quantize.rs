//! Implicit quantization: layers that were chosen to run in i8 or f8e4m3 get quantization and dequantization around their operands.
//!
//! Codes are symmetric about 0, by the range of a tensor or by the greatest weight of a channel. Patterns make kernels on codes of it,
//! as they do for networks that bring such layers.

use super::super::patterns::constant;
use super::super::writer::Writer;
use super::ranges::{TensorRange, activations, greatest_code, multiplies, range_of};
use super::{PassCx, Types};
use crate::{BuildError, Refit};
use kiln_backend::range_name;
use kiln_ir::{Attrs, DType, Graph, IrError, Node, NodeId, Tensor, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::pointwise::binary::{DIV, MAX};
use kiln_ops::pointwise::unary::ABS;
use kiln_ops::quantize::{DEQUANTIZE, QUANTIZE};
use kiln_ops::reduce::REDUCE;
use std::collections::{BTreeMap, BTreeSet};

/// Steps are at least this, so that weights of zeros have one.
const LEAST_STEP: f64 = 1e-30;

/// Puts codes in front of the layers that run on them. Returns how many operands have them.
pub fn apply(g: &mut Graph, cx: &PassCx<'_>, types: &Types) -> Result<usize, BuildError> {
    codes(types).into_iter().map(|code| apply_type(g, cx, types, code)).sum()
}

/// The types of codes that layers run on.
pub fn codes(types: &Types) -> Vec<Code> {
    let wanted: BTreeSet<DType> = types.values().copied().collect();
    wanted.into_iter().filter_map(|to| Some(Code { to, greatest: greatest_code(to)? })).collect()
}

/// A type of codes, and the greatest.
#[derive(Clone, Copy)]
pub struct Code {
    pub to: DType,
    pub greatest: f64,
}

fn apply_type(g: &mut Graph, cx: &PassCx<'_>, types: &Types, code: Code) -> Result<usize, BuildError> {
    let chosen = |id: &NodeId| types.get(id) == Some(&code.to);
    let nodes: Vec<NodeId> = g.order().iter().copied().filter(chosen).collect();
    let factor = |g: &Graph, v: ValueId| {
        nodes.iter().filter_map(|&n| g.get(n)).any(|n| multiplies(n) && n.inputs.contains(&Some(v)))
    };
    let mut coded: BTreeMap<ValueId, BTreeSet<NodeId>> = BTreeMap::new();
    for &id in &nodes {
        let Some(node) = g.get(id) else { continue };
        for v in activations(g, node) {
            let inside = g.producer(v).is_some_and(|(p, _)| chosen(&p));
            if multiplies(node) || !inside || factor(g, v) {
                coded.entry(v).or_default().insert(id);
            }
        }
    }
    let mut count = 0;
    for (v, readers) in coded {
        let first = g.order().iter().copied().find(|id| readers.contains(id));
        let Some(first) = first else { continue };
        let mut w = Writer::before(g, first);
        w.forget_precision();
        let Some(step) = step_of_range(&mut w, cx, v, code)? else { continue };
        let y = rounded(&mut w, v, step, code.to)?;
        for id in readers {
            replace(g, id, v, y);
            count += 1;
        }
    }
    for &id in &nodes {
        let Some(node) = g.get(id).filter(|n| multiplies(n)).cloned() else { continue };
        for (i, &v) in node.inputs.iter().take(2).enumerate() {
            let Some(v) = v.filter(|&v| constant(g, v) && g.ty(v).dtype == DType::F32) else { continue };
            let axes = summed(g, &node, i, v);
            let mut w = Writer::before(g, id);
            w.forget_precision();
            let step = step_of(&mut w, v, &axes, code.greatest)?;
            let y = rounded(&mut w, v, step, code.to)?;
            replace(g, id, v, y);
            count += 1;
        }
        // Requests for the type are met.
        if let Some(n) = g.get_mut(id) {
            n.meta.precision = None;
        }
    }
    Ok(count)
}

/// The step between codes of a value by its range; `None` where none is known.
pub fn step_of_range(
    w: &mut Writer<'_>,
    cx: &PassCx<'_>,
    v: ValueId,
    code: Code,
) -> Result<Option<ValueId>, BuildError> {
    let Some(TensorRange { tensor, ends, positive }) = range_of(w.g, cx.config, v) else { return Ok(None) };
    let tensor = tensor.to_owned();
    if cx.config.refit == Refit::All {
        return refittable_step(w, &tensor, ends, positive, code).map(Some);
    }
    let [lo, hi] = ends.map(|x| if positive { x.max(0.0) } else { x.abs() });
    let step = (f64::from(lo.max(hi)) / code.greatest).max(LEAST_STEP);
    Ok(Some(w.scalar(step, DType::F32)?))
}

/// The step between codes by the range of a tensor, made of a weight that a refit replaces.
fn refittable_step(
    w: &mut Writer<'_>,
    tensor: &str,
    ends: [f32; 2],
    positive: bool,
    code: Code,
) -> Result<ValueId, BuildError> {
    let range = range_weight(w, tensor, ends)?;
    let size = if positive {
        let zero = w.scalar(0.0, DType::F32)?;
        w.op(MAX, Attrs::new(), &[range, zero])?
    } else {
        w.op(ABS, Attrs::new(), &[range])?
    };
    let axes = w.ints(&[0])?;
    let keep = Attrs::new().with("op", "max").with("keep_dims", false);
    let greatest = w.op(REDUCE, keep, &[size, axes])?;
    Ok(step_above_zero(w, greatest, code.greatest)?)
}

/// The weight that holds the least and the greatest value of a tensor.
fn range_weight(w: &mut Writer<'_>, tensor: &str, ends: [f32; 2]) -> Result<ValueId, BuildError> {
    let name = range_name(tensor);
    let named = |v: &ValueId| w.g.weight(*v).is_some_and(|w| w.name.as_deref() == Some(&*name));
    if let Some(known) = w.g.value_ids().find(named) {
        return Ok(known);
    }
    let elements = Tensor::f32(&[2], &ends);
    let elements = elements.ok_or_else(|| IrError::Structure("a range could not be made".into()))?;
    Ok(w.weight(&name, elements))
}

/// Dimensions of weights that belong to one channel of the result.
fn summed(g: &Graph, node: &Node, i: usize, v: ValueId) -> Vec<i64> {
    let rank = g.ty(v).rank() as i64;
    if node.op.is(CONV) {
        return (1..rank).collect();
    }
    let flag = if i == 0 { "trans_a" } else { "trans_b" };
    let swapped = node.op.attrs().bool(flag).unwrap_or(false);
    // Columns of the second matrix are channels, rows of the first.
    vec![if (i == 1) != swapped { rank - 2 } else { rank - 1 }]
}

/// The step between codes of weights: one for each channel.
fn step_of(w: &mut Writer<'_>, v: ValueId, axes: &[i64], greatest_code: f64) -> Result<ValueId, IrError> {
    let size = w.op(ABS, Attrs::new(), &[v])?;
    let axes = w.ints(axes)?;
    let greatest = w.op(REDUCE, Attrs::new().with("op", "max").with("keep_dims", true), &[size, axes])?;
    step_above_zero(w, greatest, greatest_code)
}

/// The step between codes of which the greatest stands for a value.
fn step_above_zero(w: &mut Writer<'_>, greatest: ValueId, greatest_code: f64) -> Result<ValueId, IrError> {
    let (by, least) = (w.scalar(greatest_code, DType::F32)?, w.scalar(LEAST_STEP, DType::F32)?);
    let step = w.op(DIV, Attrs::new(), &[greatest, by])?;
    w.op(MAX, Attrs::new(), &[step, least])
}

/// The nearest value that a code stands for.
pub fn rounded(w: &mut Writer<'_>, v: ValueId, step: ValueId, to: DType) -> Result<ValueId, IrError> {
    let codes = w.op(QUANTIZE, Attrs::new().with("to", to), &[v, step])?;
    w.op(DEQUANTIZE, Attrs::new(), &[codes, step])
}

/// Lets a layer read another value.
pub fn replace(g: &mut Graph, id: NodeId, from: ValueId, to: ValueId) {
    let inputs = g.get_mut(id).map(|n| n.inputs.iter_mut().flatten());
    inputs.into_iter().flatten().filter(|v| **v == from).for_each(|v| *v = to);
}
