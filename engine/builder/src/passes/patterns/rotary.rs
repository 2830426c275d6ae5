//! Rotary embeddings that are written as x·cos + rotated·sin, where the rotated halves of x are (−x2, x1). Heads are turned before
//! they are split, where they are split by a transpose, so that attention finds the transpose and reads through it.

use super::roll::cut;
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::infer::normalize_axis;
use kiln_ir::{Attrs, DType, IrError, NodeId, Op, ValueId};
use kiln_ops::attention::rotary::ROTARY_EMBEDDING;
use kiln_ops::cast::CAST;
use kiln_ops::pointwise::binary::{ADD, MUL};
use kiln_ops::pointwise::unary::{COS, NEG, SIN};
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::transpose::TRANSPOSE;

/// Layers that are looked through for the halves of an angle.
const FAR: usize = 8;

pub struct Rotary {
    x: ValueId,
    /// The tables, [positions, size] but for dimensions of one, and the dimensions in front that become the batch.
    tables: [ValueId; 2],
    half: i64,
    heads: Option<Heads>,
    inside: Vec<NodeId>,
}

/// The layers that split heads: what they read, [batch, positions, heads·size].
struct Heads {
    whole: ValueId,
    count: i64,
    reshape: (Op, ValueId),
    transpose: Op,
}

impl Rule for Rotary {
    const NAME: &'static str = "rotary";

    fn find(view: &View<'_>, root: NodeId) -> Option<Rotary> {
        let (x, cos, sin, inside) = sum(view, root)?;
        let dims = view.dims(x);
        let size = dims.last()?.as_const()?;
        let fits = |table: ValueId| {
            let d = view.dims(table);
            let lead = d.len().checked_sub(2)?;
            let one = |i: usize| d[i].as_const() == Some(1);
            // The dimension of heads is one, that of the batch one or the batch.
            let in_front = match lead {
                0 => true,
                1 => one(0),
                2 => one(1) && (one(0) || d[0] == dims[0]),
                _ => false,
            };
            let whole = d[lead] == dims[2] && d[lead + 1].as_const() == Some(size);
            (in_front && whole && twice(view, table, size / 2, FAR)).then_some(())
        };
        if dims.len() != 4
            || size < 2
            || size % 2 != 0
            || !matches!(view.g.ty(x).dtype, DType::F32 | DType::F16 | DType::BF16)
        {
            return None;
        }
        fits(cos)?;
        fits(sin)?;
        Some(Rotary { x, tables: [cos, sin], half: size / 2, heads: heads(view, x, size), inside })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let mut tables = Vec::new();
        for table in self.tables {
            let mut t = table;
            match w.g.ty(t).rank() {
                2 => {
                    let axis = w.ints(&[0])?;
                    t = w.op(UNSQUEEZE, Attrs::new(), &[t, axis])?;
                }
                4 => {
                    let axis = w.ints(&[1])?;
                    t = w.op(SQUEEZE, Attrs::new(), &[t, axis])?;
                }
                _ => {}
            }
            tables.push(w.slice(t, 2, 0, self.half)?);
        }
        let inputs = |x: ValueId| [x, tables[0], tables[1]];
        let y = match &self.heads {
            None => w.op(ROTARY_EMBEDDING, Attrs::new(), &inputs(self.x))?,
            Some(h) => {
                let attrs = Attrs::new().with("num_heads", h.count);
                let y = w.op(ROTARY_EMBEDDING, attrs, &inputs(h.whole))?;
                let y = w.nodes(h.reshape.0.clone(), &[Some(y), Some(h.reshape.1)])?[0];
                w.nodes(h.transpose.clone(), &[Some(y)])?[0]
            }
        };
        Ok(w.replace(root, y))
    }
}

/// The operand, the tables and the layers of x·cos + rotated·sin.
fn sum(view: &View<'_>, root: NodeId) -> Option<(ValueId, ValueId, ValueId, Vec<NodeId>)> {
    let node = view.g.get(root).filter(|n| n.op.is(ADD))?;
    let product = |i: usize| {
        let (id, n) = view.made_by(input(node, i)?, MUL)?;
        Some((id, [input(n, 0)?, input(n, 1)?]))
    };
    let products = [product(0)?, product(1)?];
    // All orders of the operands of the sum and of its products.
    for (plain, turned) in [(0, 1), (1, 0)] {
        for (x, cos) in [(0, 1), (1, 0)].map(|(i, j)| (products[plain].1[i], products[plain].1[j])) {
            for (r, sin) in [(0, 1), (1, 0)].map(|(i, j)| (products[turned].1[i], products[turned].1[j])) {
                if let Some(mut inside) = rotated(view, r, x) {
                    inside.extend([root, products[0].0, products[1].0]);
                    return Some((x, cos, sin, inside));
                }
            }
        }
    }
    None
}

/// The layers of (−x2, x1), if that is what a value is.
fn rotated(view: &View<'_>, v: ValueId, x: ValueId) -> Option<Vec<NodeId>> {
    let (id, node) = view.made_by(v, CONCAT).filter(|(_, n)| n.inputs.len() == 2)?;
    let rank = view.g.ty(x).rank();
    let last = |axis: i64| normalize_axis(axis, rank, "axis").ok() == rank.checked_sub(1);
    let size = view.dims(x).last()?.as_const()?;
    let (negated, negation) = view.made_by(input(node, 0)?, NEG)?;
    let (upper, lower) = (half(view, input(negation, 0)?, x)?, half(view, input(node, 1)?, x)?);
    let halves = upper.1 == (size / 2, size) && lower.1 == (0, size / 2);
    (last(node.op.attrs().int("axis").ok()?) && halves).then(|| vec![id, negated, upper.0, lower.0])
}

/// The slice of the last dimension of `x` that a value is, and what it takes.
fn half(view: &View<'_>, v: ValueId, x: ValueId) -> Option<(NodeId, (i64, i64))> {
    let cut = cut(view, v).filter(|cut| cut.x == x && cut.axis + 1 == view.g.ty(x).rank())?;
    Some((view.g.producer(v)?.0, (cut.first, cut.end)))
}

/// Whether the two halves of a table's last dimension are equal: by its elements, or by the layers that make it.
fn twice(view: &View<'_>, v: ValueId, half: i64, far: usize) -> bool {
    if let Some(w) = view.g.weight(v) {
        let bytes = w.tensor.dtype().bits() as usize / 8;
        let halves = usize::try_from(half).unwrap_or(0).saturating_mul(bytes);
        let mut rows = w.tensor.bytes().chunks(2 * halves.max(1));
        return halves > 0 && rows.all(|row| row.len() == 2 * halves && row[..halves] == row[halves..]);
    }
    let Some((_, node)) = view.g.producer(v).filter(|_| far > 0) else { return false };
    let rank = view.g.ty(v).rank();
    match node.op.id() {
        CONCAT => {
            let axis = node.op.attrs().int("axis").ok().and_then(|a| normalize_axis(a, rank, "axis").ok());
            node.inputs.len() == 2 && node.inputs[0] == node.inputs[1] && axis.map(|a| a + 1) == Some(rank)
        }
        COS | SIN | CAST => input(node, 0).is_some_and(|x| twice(view, x, half, far - 1)),
        // A factor of one element keeps both halves.
        MUL => {
            let scalar = |v: ValueId| view.scalar(v).is_some();
            match (input(node, 0), input(node, 1)) {
                (Some(x), Some(by)) if scalar(by) => twice(view, x, half, far - 1),
                (Some(by), Some(x)) if scalar(by) => twice(view, x, half, far - 1),
                _ => false,
            }
        }
        UNSQUEEZE | SQUEEZE | RESHAPE => {
            let x =
                input(node, 0).filter(|&x| view.dims(x).last().and_then(|d| d.as_const()) == Some(2 * half));
            x.is_some_and(|x| {
                view.dims(v).last().and_then(|d| d.as_const()) == Some(2 * half)
                    && twice(view, x, half, far - 1)
            })
        }
        _ => false,
    }
}

/// The layers that split [batch, positions, heads·size] into heads.
fn heads(view: &View<'_>, x: ValueId, size: i64) -> Option<Heads> {
    let (_, transpose) = view.made_by(x, TRANSPOSE)?;
    if view.perm(transpose)? != [0, 2, 1, 3] {
        return None;
    }
    let (_, reshape) = view.made_by(input(transpose, 0)?, RESHAPE)?;
    let (whole, shape) = (input(reshape, 0)?, input(reshape, 1)?);
    let (from, count) = (view.dims(whole), view.dims(x)[1].as_const()?);
    let fits = from.len() == 3 && from[0] == view.dims(x)[0] && from[1] == view.dims(x)[2];
    let width = from.last()?.as_const() == size.checked_mul(count);
    (fits && width && count > 0).then(|| Heads {
        whole,
        count,
        reshape: (reshape.op.clone(), shape),
        transpose: transpose.op.clone(),
    })
}
