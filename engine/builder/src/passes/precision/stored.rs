//! Values that layers on codes leave in f32 and that go through memory: codes or floats of 16 bits take their place.
//!
//! A layer on codes dequantizes its sums in registers. What follows in the same kernel reads them there; other readers go through memory.
//! Those are layers that have no form on codes, and sums of several such results, of which a kernel holds but the last.

use super::quantize::{Code, codes, replace, rounded, step_of_range};
use super::ranges::{activations, multiplies, range_of};
use super::{PassCx, Types, host};
use crate::BuildError;
use crate::passes::writer::Writer;
use kiln_ir::{Attrs, DType, Graph, Node, NodeId, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::quantize::QUANTIZE;
use std::collections::BTreeMap;

/// The rounding of a stored value.
#[derive(Clone, Copy)]
enum Form {
    Codes,
    Half(DType),
}

/// Rounds what layers on codes leave in memory. Returns the number of values.
pub fn apply(g: &mut Graph, cx: &PassCx<'_>, types: &Types) -> Result<usize, BuildError> {
    codes(types).into_iter().map(|code| round(g, cx, types, code)).sum()
}

fn round(g: &mut Graph, cx: &PassCx<'_>, types: &Types, code: Code) -> Result<usize, BuildError> {
    let permitted = &cx.config.reduced;
    let half = permitted.iter().copied().find(|t| matches!(t, DType::F16 | DType::BF16)).map(Form::Half);
    let chosen = |id: &NodeId| types.get(id) == Some(&code.to);
    let as_is = |id: &NodeId, n: &Node| {
        let other = types.contains_key(id) || n.op.is(CAST) || n.op.is(QUANTIZE);
        !other && n.meta.precision.is_none()
    };
    let (uses, places) = (g.uses(), places(g));
    let mut found: Vec<(ValueId, Form, Vec<NodeId>)> = Vec::new();
    for node in g.order().iter().filter(|id| chosen(id)).filter_map(|&id| g.get(id)) {
        for &v in node.outputs.iter().filter(|&&v| g.ty(v).dtype == DType::F32 && !uses.is_output(v)) {
            let mut form = None;
            for (id, i) in uses.of_value(v) {
                let Some(n) = g.get(*id).filter(|n| !host(n, *i)) else { continue };
                if !chosen(id) {
                    form = form.or(half.filter(|_| as_is(id, n)));
                } else if n.op.is_pointwise() && !in_registers(g, &places, n, v) {
                    form = range_of(g, cx.config, v).map(|_| Form::Codes).or(form).or(half);
                }
            }
            let readers = uses.of_value(v).iter().map(|(n, _)| *n).collect();
            found.extend(form.map(|f| (v, f, readers)));
        }
    }
    let count = found.len();
    for (v, form, readers) in found {
        let Some(&first) = g.order().iter().find(|id| readers.contains(id)) else { continue };
        let mut w = Writer::before(g, first);
        w.forget_precision();
        let y = match form {
            Form::Codes => match step_of_range(&mut w, cx, v, code)? {
                Some(step) => rounded(&mut w, v, step, code.to)?,
                None => continue,
            },
            Form::Half(t) => {
                let narrow = w.in_type(v, t)?;
                w.op(CAST, Attrs::new().with("to", DType::F32), &[narrow])?
            }
        };
        readers.into_iter().for_each(|id| replace(g, id, v, y));
    }
    Ok(count)
}

/// The place of a value before it is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In registers of the product or convolution at this position of the order.
    Product(usize),
    /// In registers of any kernel: a function of stored values, element by element.
    Anywhere,
    /// In memory.
    Memory,
}

fn places(g: &Graph) -> BTreeMap<ValueId, Place> {
    let mut all: BTreeMap<ValueId, Place> = BTreeMap::new();
    for (at, node) in g.order().iter().filter_map(|&id| g.get(id)).enumerate() {
        let own = match node.op.is_pointwise() {
            _ if multiplies(node) => Place::Product(at),
            true => {
                let last = activations(g, node).filter_map(|v| match all.get(&v) {
                    Some(Place::Product(at)) => Some(*at),
                    _ => None,
                });
                last.max().map_or(Place::Anywhere, Place::Product)
            }
            false => Place::Memory,
        };
        all.extend(node.outputs.iter().map(|&y| (y, own)));
    }
    all
}

/// Whether a pointwise layer can read `v` in registers: nothing that it reads comes from a later product.
fn in_registers(g: &Graph, places: &BTreeMap<ValueId, Place>, node: &Node, v: ValueId) -> bool {
    let of = |v: ValueId| places.get(&v).copied().unwrap_or(Place::Anywhere);
    match of(v) {
        Place::Product(own) => !activations(g, node).any(|x| matches!(of(x), Place::Product(at) if at > own)),
        Place::Anywhere => true,
        Place::Memory => false,
    }
}
