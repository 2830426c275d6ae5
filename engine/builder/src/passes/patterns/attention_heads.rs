//! Splitting and merging of heads around attention: attention reads and writes [batch, length, heads·size] itself.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Dim, IrError, NodeId, ValueId};

/// [batch, length, heads, size] to [batch, heads, length, size], and back.
const SWAP: [usize; 4] = [0, 2, 1, 3];

pub struct AttentionHeads {
    /// q, k and v with heads and sizes in one dimension.
    whole: [ValueId; 3],
    mask: Option<ValueId>,
    attrs: Attrs,
    inside: Vec<NodeId>,
}

impl Rule for AttentionHeads {
    const NAME: &'static str = "attention-heads";

    fn find(view: &View<'_>, root: NodeId) -> Option<AttentionHeads> {
        let merge = view.g.get(root).filter(|n| n.op.is("reshape"))?;
        let (t, swap) = view.made_by(input(merge, 0)?, "transpose")?;
        let (a, node) = view.made_by(input(swap, 0)?, "attention")?;
        if view.perm(swap)? != SWAP || node.inputs.len() > 4 {
            return None;
        }
        // Only the first result is read: the others have the same layout in both forms, but inner results must be closed.
        let mut whole = Vec::new();
        let mut heads = Vec::new();
        for i in 0..3 {
            let (x, n) = split(view, input(node, i)?)?;
            whole.push(x);
            heads.push(n);
        }
        let y = view.dims(*merge.outputs.first()?);
        let (q, v) = (view.dims(whole[0]), view.dims(whole[2]));
        let width = Dim::new(heads[0]) * size_of(v.get(2)?, heads[2])?;
        let fits = y.len() == 3 && y[0] == q[0] && y[1] == q[1] && y[2] == width && heads[1] == heads[2];
        let attrs = node.op.attrs().clone().with("q_heads", heads[0]).with("kv_heads", heads[1]);
        let whole = [*whole.first()?, *whole.get(1)?, *whole.get(2)?];
        fits.then(|| AttentionHeads { whole, mask: input(node, 3), attrs, inside: vec![root, t, a] })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let mut inputs: Vec<Option<ValueId>> = self.whole.map(Some).to_vec();
        inputs.extend(self.mask.map(Some));
        let y = w.node("attention", self.attrs, &inputs)?;
        Ok(w.replace(root, y))
    }
}

/// For [batch, heads, length, size] that comes of [batch, length, heads·size]: that, and the number of heads.
fn split(view: &View<'_>, v: ValueId) -> Option<(ValueId, i64)> {
    let (_, swap) = view.made_by(v, "transpose").filter(|(_, n)| view.perm(n).is_some_and(|p| p == SWAP))?;
    let parts = input(swap, 0)?;
    let (_, reshape) = view.made_by(parts, "reshape")?;
    let x = input(reshape, 0)?;
    let (from, to) = (view.dims(x), view.dims(parts));
    let ([b, s, width], [b2, s2, heads, size]) = (from, to) else { return None };
    let n = heads.as_const().filter(|&n| n > 0)?;
    (b == b2 && s == s2 && *width == Dim::new(n) * size.clone()).then_some((x, n))
}

fn size_of(width: &Dim, heads: i64) -> Option<Dim> {
    (heads > 0).then(|| width.floor_div(&Dim::new(heads)))
}
