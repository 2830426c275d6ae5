//! Concatenations whose inputs are written in place: a chain of `insert_slice`, one for each input. Such a layer joins the region
//! of the layer that computes its part. That one then stores its result where the concatenation has it.

use super::view::View;
use super::{Rule, Writer};
use kiln_backend::Target;
use kiln_backend::assisted::HOST_IS_DEVICE;
use kiln_ir::infer::normalize_axis;
use kiln_ir::{Attr, Attrs, Graph, IrError, Node, NodeId, ValueId};
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::slice::insert::INSERT_SLICE;

/// More inputs than these are left to one copy.
const MOST_PARTS: usize = 32;

/// The inputs with their first slice in the result, in the order in which they are computed.
pub struct ConcatInPlace {
    axis: i64,
    size: i64,
    parts: Vec<(ValueId, i64)>,
}

impl Rule for ConcatInPlace {
    const NAME: &'static str = "concat-in-place";
    // Kernels store parts more slowly than whole tensors, and inputs that are read elsewhere are copied one by one.
    const ALWAYS: bool = false;
    // Channels last changes the order in which parts lie.
    const LATE: bool = true;

    fn wanted(target: &Target, _: &Graph, _: NodeId) -> bool {
        // There layers run one by one, and a part is written into a copy of the rest.
        !target.has(HOST_IS_DEVICE)
    }

    fn find(view: &View<'_>, root: NodeId) -> Option<ConcatInPlace> {
        let node = view.g.get(root).filter(|n| n.op.is(CONCAT))?;
        let y = *node.outputs.first()?;
        // A result of varying size has no fixed memory, and the user may bind an output to memory of his own.
        let fixed = !view.g.outputs.contains(&y);
        let dims = view.g.ty(y).static_dims().filter(|d| fixed && !d.contains(&0))?;
        let axis = normalize_axis(node.op.attrs().int("axis").ok()?, dims.len(), "axis").ok()?;
        let mut parts = Vec::new();
        let mut start = 0;
        for v in node.inputs.iter().copied() {
            let n = view.g.ty(v?).static_dims()?.get(axis).copied()? as i64;
            parts.extend((n > 0).then_some((v?, start)));
            start += n;
        }
        let alone = |v: ValueId| {
            let computes = |n: &Node| n.op.roles().absorbs_pointwise || n.op.is_pointwise();
            view.g.producer(v).is_some_and(|(_, n)| computes(n)) && view.read_once(v)
        };
        let fits = (2..=MOST_PARTS).contains(&parts.len()) && parts.iter().any(|&(v, _)| alone(v));
        if !fits {
            return None;
        }
        let order = view.g.order();
        let made = |v: ValueId| view.g.producer(v).and_then(|(p, _)| order.iter().position(|&n| n == p));
        parts.sort_by_key(|&(v, start)| (made(v), start));
        Some(ConcatInPlace { axis: axis as i64, size: dims[axis] as i64, parts })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let mut into = None;
        for (part, start) in self.parts {
            let mut attrs = Attrs::new().with("axis", self.axis).with("start", start);
            if into.is_none() {
                attrs = attrs.with("size", self.size).with("unset", Attr::Bool(true));
            }
            into = Some(w.node(INSERT_SLICE, attrs, &[into, Some(part)])?);
        }
        Ok(into.is_some_and(|y| w.replace(root, y)))
    }
}
