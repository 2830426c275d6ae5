//! Layers that only move elements, or pick the greatest, work on codes: dequantization goes behind them, quantization before.

use super::super::view::{View, constant, input, same};
use super::super::{Rule, Writer};
use super::codes::{one_element, scalar};
use kiln_ir::{Attrs, DType, Graph, IrError, Node, NodeId, Op, ValueId};
use kiln_ops::gather::GATHER;
use kiln_ops::pool::POOL;
use kiln_ops::quantize::{DEQUANTIZE, QUANTIZE};
use kiln_ops::sample::resize::RESIZE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::transpose::TRANSPOSE;

/// A layer over dequantized values: the layer over their codes, then the dequantization.
pub struct DequantizeLater {
    op: Op,
    /// Inputs of the layer, codes in the place of what was dequantized.
    inputs: Vec<Option<ValueId>>,
    dequantize: Op,
    scale: ValueId,
    zero: Option<ValueId>,
    /// Order of dimensions of a transpose, which scales a channel follow.
    perm: Option<Vec<i64>>,
}

impl Rule for DequantizeLater {
    const NAME: &'static str = "dequantize-later";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<DequantizeLater> {
        let g = view.g;
        let node = g.get(root).filter(|n| n.meta.precision.is_none())?;
        let data = moved_inputs(g, node)?;
        let source = |i: usize| {
            let (_, d) = view.made_by(input(node, i)?, DEQUANTIZE)?;
            small(g, input(d, 0)?).then_some(d)
        };
        let first = source(*data.first()?)?;
        let (scale, zero) = (input(first, 1)?, input(first, 2));
        let like_first = |i: &usize| {
            source(*i).is_some_and(|d| {
                d.op.attrs() == first.op.attrs()
                    && same(g, input(d, 1), Some(scale))
                    && same(g, input(d, 2), zero)
                    && codes_type(g, d) == codes_type(g, first)
            })
        };
        let single = one_element(g, scale) && zero.is_none_or(|z| one_element(g, z));
        let rank = g.ty(input(first, 0)?).rank();
        let full = |v: ValueId| one_element(g, v) || g.ty(v).rank() == rank;
        let perm = match node.op.is(TRANSPOSE) && !single && full(scale) && zero.is_none_or(full) {
            true => Some(view.perm(node)?.into_iter().map(|p| p as i64).collect()),
            false => None,
        };
        let positive = !node.op.is(POOL) || is_positive(g, scale);
        if !(single || perm.is_some()) || !positive || !data.iter().all(like_first) {
            return None;
        }
        let mut inputs = node.inputs.clone();
        for &i in &data {
            inputs[i] = input(source(i)?, 0);
        }
        Some(DequantizeLater { op: node.op.clone(), inputs, dequantize: first.op.clone(), scale, zero, perm })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let codes = w.node(self.op.id(), self.op.attrs().clone(), &self.inputs)?;
        let mut by = [Some(self.scale), self.zero];
        if let Some(perm) = self.perm {
            for v in by.iter_mut().flatten() {
                if one_element(w.g, *v) {
                    continue;
                }
                *v = w.op(TRANSPOSE, Attrs::new().with("perm", perm.clone()), &[*v])?;
            }
        } else {
            // A single element must not add dimensions.
            for v in by.iter_mut().flatten() {
                *v = scalar(&mut w, *v)?;
            }
        }
        let inputs: Vec<Option<ValueId>> =
            [Some(codes)].into_iter().chain(by).filter(Option::is_some).collect();
        let y = w.node(DEQUANTIZE, self.dequantize.attrs().clone(), &inputs)?;
        Ok(w.replace(root, y))
    }
}

/// A quantization of moved values: the moves of their codes.
pub struct QuantizeEarlier {
    op: Op,
    inputs: Vec<Option<ValueId>>,
    data: Vec<usize>,
    quantize: Op,
    scale: ValueId,
    zero: Option<ValueId>,
    inside: Vec<NodeId>,
}

impl Rule for QuantizeEarlier {
    const NAME: &'static str = "quantize-earlier";

    fn find(view: &View<'_>, root: NodeId) -> Option<QuantizeEarlier> {
        let g = view.g;
        let node = g.get(root).filter(|n| n.op.is(QUANTIZE) && n.meta.precision.is_none())?;
        let (x, scale, zero) = (input(node, 0)?, input(node, 1)?, input(node, 2));
        let (id, moving) = g.producer(x)?;
        // A pool picks codes, which take fewer bytes than what they stand for.
        let greatest = moving.op.is(POOL) && is_positive(g, scale);
        let keeps_all = greatest || moving.op.is(CONCAT) || super::super::moves::is_move(moving);
        let data = moved_inputs(g, moving).filter(|_| keeps_all && view.read_once(x))?;
        // The layers that make the elements can quantize them, if nobody else reads these.
        let own = |i: &usize| input(moving, *i).is_some_and(|v| g.producer(v).is_some() && view.read_once(v));
        let single = one_element(g, scale) && zero.is_none_or(|z| one_element(g, z));
        let small = node.op.attrs().dtype("to").is_ok_and(|t| matches!(t, DType::I8 | DType::U8));
        let fits = single && small && data.iter().all(own) && moving.meta.precision.is_none();
        fits.then(|| QuantizeEarlier {
            op: moving.op.clone(),
            inputs: moving.inputs.clone(),
            data,
            quantize: node.op.clone(),
            scale,
            zero,
            inside: vec![id, root],
        })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let scale = scalar(&mut w, self.scale)?;
        let zero = self.zero.map(|z| scalar(&mut w, z)).transpose()?;
        let mut inputs = self.inputs;
        for i in self.data {
            let by = [inputs[i], Some(scale), zero].into_iter().filter(Option::is_some);
            let quantized: Vec<Option<ValueId>> = by.collect();
            inputs[i] = Some(w.node(QUANTIZE, self.quantize.attrs().clone(), &quantized)?);
        }
        let y = w.node(self.op.id(), self.op.attrs().clone(), &inputs)?;
        Ok(w.replace(root, y))
    }
}

/// A quantization of values that were dequantized in the same way: their codes.
pub struct SameCodes(ValueId);

impl Rule for SameCodes {
    const NAME: &'static str = "same-codes";

    fn find(view: &View<'_>, root: NodeId) -> Option<SameCodes> {
        let g = view.g;
        let q = g.get(root).filter(|n| n.op.is(QUANTIZE) && n.meta.precision.is_none())?;
        let (_, d) = view.made_by(input(q, 0)?, DEQUANTIZE)?;
        let codes = input(d, 0)?;
        let to = q.op.attrs().dtype("to").ok()?;
        let exact = to.is_int() && g.ty(codes).dtype == to && d.op.attrs().dtype("to").ok()? == DType::F32;
        let by_same = same(g, input(q, 1), input(d, 1)) && same(g, input(q, 2), input(d, 2));
        let shape = g.ty(codes).dims == g.ty(*q.outputs.first()?).dims;
        (exact && by_same && shape && is_positive(g, input(q, 1)?)).then_some(SameCodes(codes))
    }

    fn write(self, w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        Ok(w.replace(root, self.0))
    }
}

/// Inputs whose elements a layer moves, or picks the greatest of, without computing.
fn moved_inputs(g: &Graph, node: &Node) -> Option<Vec<usize>> {
    let count = node.inputs.len();
    match node.op.id() {
        CONCAT => Some((0..count).collect()),
        GATHER => g.ty(input(node, 0)?).dtype.is_float().then(|| vec![0]),
        RESIZE => {
            let text = |name| node.op.attrs().str(name).ok();
            let copies = text("mode")? == "nearest" && text("coord")? != "tf_crop_and_resize";
            copies.then(|| vec![0])
        }
        POOL => (node.op.attrs().str("op").ok()? == "max" && fills_no_window(node)).then(|| vec![0]),
        _ => (node.op.movement().is_addressable() && g.ty(input(node, 0)?).dtype.is_float()).then(|| vec![0]),
    }
}

/// Whether every window of a pool has an element: one of padding only has another least value in codes.
fn fills_no_window(node: &Node) -> bool {
    let ints = |name| node.op.attrs().ints(name).map(<[i64]>::to_vec).unwrap_or_default();
    let (kernel, pads) = (ints("kernel"), ints("pads"));
    let sides = pads.len() / 2;
    pads.iter().enumerate().all(|(i, &p)| kernel.get(i % sides.max(1)).is_some_and(|&k| p < k))
}

fn codes_type(g: &Graph, dequantize: &Node) -> Option<DType> {
    input(dequantize, 0).map(|v| g.ty(v).dtype)
}

fn small(g: &Graph, v: ValueId) -> bool {
    matches!(g.ty(v).dtype, DType::I8 | DType::U8)
}

/// Whether a scale is a constant above 0.
fn is_positive(g: &Graph, v: ValueId) -> bool {
    constant(g, v) && g.weight(v).is_some_and(|w| w.tensor.to_f64().iter().all(|&s| s > 0.0 && s.is_finite()))
}
