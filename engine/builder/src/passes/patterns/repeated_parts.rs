//! Products of joined values of which some are the same at every position, as a feature of a whole image beside local ones: the product of
//! the others, and a product of what is repeated, made once and added.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attr, Attrs, Dim, IrError, Node, NodeId, Op, ValueId};
use kiln_ops::conv::window::{PAD_MODE, PADS, STRIDES};
use kiln_ops::conv::{CONV, GROUPS};
use kiln_ops::layout::Layout;
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::shape::expand::{EXPAND, TILE};
use kiln_ops::slice::concat::CONCAT;

pub struct RepeatedParts {
    op: Op,
    weights: ValueId,
    bias: Option<ValueId>,
    /// The axis of the inputs that is summed over, and that of the weights.
    axes: [i64; 2],
    varied: Vec<Part>,
    repeated: Vec<Part>,
}

/// A part of the joined input, as wide as its rows of the weights; without its repetitions.
struct Part {
    v: ValueId,
    start: i64,
    width: i64,
}

impl Rule for RepeatedParts {
    const NAME: &'static str = "products-of-repeated-parts";
    const WEIGHTS: bool = true;
    // It is one kernel more.
    const ALWAYS: bool = false;

    fn find(view: &View<'_>, root: NodeId) -> Option<RepeatedParts> {
        let node = view.g.get(root)?;
        let x = input(node, 0)?;
        let rank = view.g.ty(x).rank();
        let axes = summed(view, node, rank)?;
        let weights =
            input(node, 1).filter(|&v| view.g.weight(v).is_some() && view.g.ty(v).dtype.is_float())?;
        let (_, joined) = view.made_by(x, CONCAT).filter(|_| view.read_once(x))?;
        let along = joined.op.attrs().int("axis").ok()?;
        if (if along < 0 { along + rank as i64 } else { along }) != axes[0] {
            return None;
        }
        let (mut varied, mut repeated, mut start) = (Vec::new(), Vec::new(), 0);
        for &v in joined.inputs.iter().flatten() {
            let width = view.dims(v).get(axes[0] as usize)?.as_const()?;
            match same_everywhere(view, v, node.op.is(CONV)) {
                Some(source) => repeated.push(Part { v: source, start, width }),
                None => varied.push(Part { v, start, width }),
            }
            start += width;
        }
        let plain = node.meta.output_types.iter().all(Option::is_none);
        (plain && !varied.is_empty() && !repeated.is_empty()).then(|| RepeatedParts {
            op: node.op.clone(),
            weights,
            bias: input(node, 2),
            axes,
            varied,
            repeated,
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let [along, rows] = self.axes;
        let joined = |w: &mut Writer<'_>, all: Vec<ValueId>, axis: i64| match all[..] {
            [one] => Ok(one),
            _ => w.op(CONCAT, Attrs::new().with("axis", axis), &all),
        };
        let of = |w: &mut Writer<'_>, p: &Part| w.slice(self.weights, rows, p.start, p.start + p.width);
        let weights = self.varied.iter().map(|p| of(&mut w, p)).collect::<Result<Vec<_>, _>>()?;
        let weights = joined(&mut w, weights, rows)?;
        let x = joined(&mut w, self.varied.iter().map(|p| p.v).collect(), along)?;
        let mut y = w.op(self.op.id(), self.op.attrs().clone(), &[x, weights])?;
        let mut once = self.op.attrs().clone();
        if let Ok(strides) = once.ints(STRIDES.name).map(<[i64]>::len)
            && self.op.is(CONV)
        {
            once.set(STRIDES.name, Attr::Ints(vec![1; strides]));
        }
        let mut bias = self.bias;
        for p in &self.repeated {
            let weights = of(&mut w, p)?;
            let inputs: Vec<Option<ValueId>> = [Some(p.v), Some(weights), bias.take()].into();
            let inputs: Vec<Option<ValueId>> = inputs.into_iter().filter(Option::is_some).collect();
            let part = w.node(self.op.id(), once.clone(), &inputs)?;
            y = w.op(ADD, Attrs::new(), &[y, part])?;
        }
        Ok(w.replace(root, y))
    }
}

/// The axes of input and weights that a product sums over, if each position of the result reads one of the input.
fn summed(view: &View<'_>, node: &Node, rank: usize) -> Option<[i64; 2]> {
    let attrs = node.op.attrs();
    let weights = view.dims(input(node, 1)?);
    if node.op.is(MATMUL) {
        let whole = !attrs.bool("trans_a").ok()? && weights.len() == 2 && rank >= 2;
        return whole.then_some([rank as i64 - 1, i64::from(attrs.bool("trans_b").ok()?)]);
    }
    let alone = weights.iter().skip(2).all(|d| d.is(1));
    let unpadded = attrs.ints(PADS.name).ok()?.iter().all(|&n| n == 0);
    let explicit = matches!(attrs.str(PAD_MODE.name).ok()?, "explicit" | "valid");
    let whole = Layout::of(attrs) == Layout::Linear && attrs.int(GROUPS.name).ok()? == 1;
    (node.op.is(CONV) && alone && unpadded && explicit && whole).then_some([1, 1])
}

/// The value that another repeats at every position: of an image at all pixels, of a matrix in all rows.
fn same_everywhere(view: &View<'_>, v: ValueId, image: bool) -> Option<ValueId> {
    let (_, node) = view.g.producer(v).filter(|(_, n)| n.op.is(EXPAND) || n.op.is(TILE))?;
    let source = input(node, 0)?;
    let (from, to) = (view.dims(source), view.dims(v));
    let positions = if image { 2..to.len() } else { to.len().checked_sub(2)?..to.len() - 1 };
    let kept = |i: usize, d: &Dim| positions.contains(&i) || *d == to[i];
    let whole = from.len() == to.len() && from.iter().enumerate().all(|(i, d)| kept(i, d));
    let once = positions.clone().all(|i| from.get(i).is_some_and(|d| d.is(1)));
    let many = positions.clone().any(|i| !to[i].is(1));
    (whole && once && many).then_some(source)
}
