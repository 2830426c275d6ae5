//! Rotary embeddings of neighbouring parts of one value by the same angles (queries and keys of one product): one for all parts, and a
//! slice of its result for each.

use super::roll::cut;
use super::view::{View, input, same};
use super::{Rule, Writer};
use kiln_ir::{IrError, Node, NodeId, Op, ValueId};
use kiln_ops::attention::rotary::ROTARY_EMBEDDING;

pub struct ParallelRotary {
    /// The value that all parts are slices of, [batch, positions, width].
    whole: ValueId,
    /// Parts one behind the other.
    parts: Vec<Part>,
    /// Tables and positions.
    angles: Vec<Option<ValueId>>,
    op: Op,
}

/// A rotary embedding of a slice.
#[derive(Clone, Copy)]
struct Part {
    id: NodeId,
    y: ValueId,
    whole: ValueId,
    first: i64,
    end: i64,
    heads: i64,
}

impl Part {
    fn of(view: &View<'_>, id: NodeId) -> Option<Part> {
        let node = view.g.get(id).filter(|n| n.op.is(ROTARY_EMBEDDING) && n.meta.precision.is_none())?;
        let x = cut(view, input(node, 0)?).filter(|c| c.axis == 2 && view.g.ty(c.x).rank() == 3)?;
        let heads = node.op.attrs().int("num_heads").ok().filter(|&n| n > 0)?;
        let y = *node.outputs.first()?;
        Some(Part { id, y, whole: x.x, first: x.first, end: x.end, heads })
    }

    /// Elements of a head.
    fn size(&self) -> i64 {
        (self.end - self.first) / self.heads
    }
}

impl Rule for ParallelRotary {
    const NAME: &'static str = "parallel-rotary";
    // The slices cost more than a launch where nobody reads them in place.
    const ALWAYS: bool = false;

    /// The root is the first of them in the order of the graph.
    fn find(view: &View<'_>, root: NodeId) -> Option<ParallelRotary> {
        let own = Part::of(view, root)?;
        let node = view.g.get(root)?;
        let alike = |p: &Part| {
            let fits = |n: &Node| {
                let angles = (1..4).all(|i| same(view.g, input(n, i), input(node, i)));
                angles && of_heads(&n.op, own.heads).as_ref() == Some(&node.op)
            };
            p.size() == own.size() && view.g.get(p.id).is_some_and(fits)
        };
        let slices = view.readers(own.whole).iter().filter_map(|(n, _)| view.g.get(*n)?.outputs.first());
        let readers = slices.flat_map(|&v| view.readers(v)).map(|(n, _)| *n);
        let mut all: Vec<Part> = readers.filter_map(|n| Part::of(view, n)).filter(alike).collect();
        all.sort_by_key(|p| p.first);
        let mut runs = all.chunk_by(|a, b| a.end == b.first);
        let parts = runs.find(|run| run.len() > 1 && run.iter().any(|p| p.id == root))?.to_vec();
        let first = view.g.order().iter().find(|id| parts.iter().any(|p| p.id == **id))?;
        let angles = (1..node.inputs.len()).map(|i| input(node, i)).collect();
        (*first == root).then(|| ParallelRotary { whole: own.whole, parts, angles, op: node.op.clone() })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let [Some(first), Some(last)] = [self.parts.first(), self.parts.last()] else { return Ok(false) };
        let heads = self.parts.iter().map(|p| p.heads).sum();
        let Some(op) = of_heads(&self.op, heads) else { return Ok(false) };
        let x = w.slice(self.whole, 2, first.first, last.end)?;
        let inputs: Vec<Option<ValueId>> = std::iter::once(Some(x)).chain(self.angles).collect();
        let all = w.nodes(op, &inputs)?[0];
        for p in &self.parts {
            let own = w.slice(all, 2, p.first - first.first, p.end - first.first)?;
            w.stand_in(p.y, own);
        }
        self.parts.iter().for_each(|p| w.g.remove_node(p.id));
        Ok(w.g.get(root).is_none())
    }
}

/// The operator with another number of heads.
fn of_heads(op: &Op, heads: i64) -> Option<Op> {
    Op::new(op.name(), op.attrs().clone().with("num_heads", heads)).ok()
}
