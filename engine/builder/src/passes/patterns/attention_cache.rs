//! Attention over keys and values that were concatenated after those of a cache. Attention then takes the
//! past and the new ones apart, and returns the grown cache, which others may read.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Dim, IrError, NodeId, ValueId};
use kiln_ops::attention::ATTENTION;
use kiln_ops::slice::concat::CONCAT;

pub struct AttentionCache {
    q: ValueId,
    mask: Option<ValueId>,
    /// The caches of keys and of values.
    parts: [Grown; 2],
    attrs: Attrs,
}

/// A concatenation along positions.
#[derive(Clone, Copy)]
struct Grown {
    id: NodeId,
    y: ValueId,
    past: ValueId,
    new: ValueId,
}

impl Rule for AttentionCache {
    const NAME: &'static str = "attention-cache";
    // Not every backend has a kernel that reads both parts as fast as one.
    const ALWAYS: bool = false;

    fn find(view: &View<'_>, root: NodeId) -> Option<AttentionCache> {
        let node = view.g.get(root).filter(|n| n.op.is(ATTENTION))?;
        let [q, k, v] = [0, 1, 2].map(|i| input(node, i));
        let (q, attrs) = (q?, node.op.attrs().clone());
        let further = node.inputs.iter().skip(4).flatten().count() > 0;
        let read =
            node.outputs.iter().skip(1).any(|&y| !view.readers(y).is_empty() || view.g.outputs.contains(&y));
        // With a past, positions of queries are counted from there on.
        let window = attrs.int("window_left").ok()? >= 0 || attrs.int("window_right").ok()? >= 0;
        if further || read || attrs.bool("causal").ok()? || window || view.g.ty(q).rank() != 4 {
            return None;
        }
        let parts = [grown(view, k?, root)?, grown(view, v?, root)?];
        let length = |p: &Grown| -> Option<&Dim> { view.dims(p.past).get(2) };
        (length(&parts[0]) == length(&parts[1]) && parts[0].id != parts[1].id).then(|| AttentionCache {
            q,
            mask: input(node, 3),
            parts,
            attrs,
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let [k, v] = self.parts;
        let inputs = [Some(self.q), Some(k.new), Some(v.new), self.mask, Some(k.past), Some(v.past)];
        let y = w.node(ATTENTION, self.attrs, &inputs)?;
        let outputs = w.g.producer(y).map(|(_, n)| n.outputs.clone()).unwrap_or_default();
        for (part, new) in self.parts.iter().zip(outputs.iter().skip(1)) {
            let name = std::mem::take(&mut w.g.value_mut(part.y).name);
            w.g.replace_uses(part.y, *new);
            w.g.value_mut(*new).name = name;
        }
        let done = w.replace(root, y);
        Ok(done)
    }
}

/// A value that is the past and then the new keys, or values, whose other readers come after the attention.
fn grown(view: &View<'_>, y: ValueId, attention: NodeId) -> Option<Grown> {
    let (id, node) = view.made_by(y, CONCAT)?;
    let &[Some(past), Some(new)] = &node.inputs[..] else { return None };
    let axis = node.op.attrs().int("axis").ok()?;
    let rank = |n: NodeId| view.g.order().iter().position(|&o| o == n);
    let at = rank(attention)?;
    let later = view.readers(y).iter().all(|(n, _)| rank(*n).is_some_and(|r| r >= at));
    let plain = node.meta.output_types.iter().all(Option::is_none);
    let types = view.g.ty(past).dtype == view.g.ty(y).dtype && view.g.ty(new).dtype == view.g.ty(y).dtype;
    ((axis == 2 || axis == -2) && later && plain && types).then_some(Grown { id, y, past, new })
}
