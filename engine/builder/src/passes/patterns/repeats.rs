//! Layers of elements over values that repeat along an axis: what is expanded, or a constant that is the same there. They compute
//! once, and their result is expanded. Readers that repeat operands themselves read what was not expanded.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{DType, Dim, IrError, Node, NodeId, Tensor, ValueId, Weight};
use kiln_ops::attention::ATTENTION;
use kiln_ops::shape::expand::EXPAND;
use std::borrow::Cow;

/// The input of attention that is the mask.
const MASK: usize = 3;
/// Layers that an expansion moves behind, one after the other, at most.
const FAR: usize = 8;
/// Readers that are looked at for an expansion, at most.
const MOST_READERS: usize = 64;
/// Constants of more bytes are not looked at.
const MOST_BYTES: usize = 1 << 26;

/// A layer with operands that repeat less.
pub struct Repeats {
    operands: Vec<Option<Operand>>,
    /// Repetitions of the result: for each axis the number, or 1. None where the result stays as it was.
    expand: Option<Vec<i64>>,
}

/// An operand without repetitions.
struct Operand {
    v: ValueId,
    /// The constant without its repetitions, if it has any.
    cut: Option<Tensor>,
    dims: Vec<Dim>,
}

impl Rule for Repeats {
    const NAME: &'static str = "repeats";

    fn find(view: &View<'_>, root: NodeId) -> Option<Repeats> {
        let node = view.g.get(root)?;
        if node.op.is(ATTENTION) {
            return of_mask(view, node);
        }
        node.op.is_pointwise().then_some(())?;
        let &[y] = &node.outputs[..] else { return None };
        let computed = |v: &ValueId| view.g.weight(*v).is_none();
        node.inputs.iter().flatten().any(computed).then_some(())?;
        let whole = view.dims(y);
        let operands: Vec<Option<Operand>> =
            node.inputs.iter().map(|v| v.map(|v| operand(view, v))).collect();
        let once = |axis: usize| operands.iter().flatten().all(|o| o.at(axis, whole.len()).is_none());
        let spared: Vec<usize> = (0..whole.len()).filter(|&a| !whole[a].is(1) && once(a)).collect();
        if spared.is_empty() {
            let changes = operands.iter().flatten().zip(node.inputs.iter().flatten()).any(|(o, v)| o.v != *v);
            return changes.then_some(Repeats { operands, expand: None });
        }
        let counts = |axis: usize| if spared.contains(&axis) { whole[axis].as_const() } else { Some(1) };
        let expand = (0..whole.len()).map(counts).collect::<Option<Vec<_>>>()?;
        let rank = whole.len();
        let behind: Vec<usize> = spared.iter().map(|a| rank - 1 - a).collect();
        absorbed(view, y, &behind).then_some(Repeats { operands, expand: Some(expand) })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let Some(op) = w.g.get(root).map(|n| n.op.clone()) else { return Ok(false) };
        // Constants stay as they are where the result does.
        let spares = self.expand.is_some();
        let mut given = |o: Operand| match o.cut.filter(|_| spares) {
            Some(t) => w.constant(t),
            None => o.v,
        };
        let inputs: Vec<Option<ValueId>> = self.operands.into_iter().map(|o| o.map(&mut given)).collect();
        let (old, made) = (w.g.get(root).map(|n| n.outputs.clone()), w.nodes(op, &inputs)?);
        let (Some(old), Some(&first)) = (old, made.first()) else { return Ok(false) };
        for (&from, &to) in old.iter().zip(&made).skip(1) {
            w.stand_in(from, to);
        }
        let y = match &self.expand {
            None => first,
            Some(counts) => {
                let counts = w.ints(counts)?;
                w.op(EXPAND, Default::default(), &[first, counts])?
            }
        };
        Ok(w.replace(root, y))
    }
}

impl Operand {
    /// An operand as it is.
    fn plain(view: &View<'_>, v: ValueId) -> Operand {
        Operand { v, cut: None, dims: view.dims(v).to_vec() }
    }

    /// The dimension at an axis of a result of so many axes, if it is not 1.
    fn at(&self, axis: usize, rank: usize) -> Option<&Dim> {
        let own = (axis + self.dims.len()).checked_sub(rank)?;
        self.dims.get(own).filter(|d| !d.is(1))
    }
}

/// An operand of a layer of elements, without its repetitions.
fn operand(view: &View<'_>, v: ValueId) -> Operand {
    if let Some(source) = expanded(view, v) {
        return Operand::plain(view, source);
    }
    let plain = Operand::plain(view, v);
    // A refit may replace numbers that have a name, or come from what has one; what is true or false is no trained weight.
    let fixed = |w: &&Weight| (w.name.is_none() && w.recipe.is_none()) || w.tensor.dtype() == DType::Bool;
    let Some(w) = view.g.weight(v).filter(fixed) else { return plain };
    match without_repeats(&w.tensor) {
        Some(t) => {
            Operand { dims: t.shape().iter().map(|&n| Dim::new(n as i64)).collect(), cut: Some(t), ..plain }
        }
        None => plain,
    }
}

/// Whether no reader of a value needs its repetitions along these axes, counted from the last: attention repeats its mask, and a layer of
/// elements what others of its operands have. A layer that has nothing else there is computed once, too.
fn absorbed(view: &View<'_>, y: ValueId, behind: &[usize]) -> bool {
    let (mut values, mut left) = (vec![(y, FAR)], MOST_READERS);
    while let Some((v, far)) = values.pop() {
        let readers = view.readers(v);
        if readers.is_empty() || readers.len() > left || view.g.outputs.contains(&v) {
            return false;
        }
        left -= readers.len();
        for &(n, i) in readers {
            let Some(reader) = view.g.get(n) else { return false };
            if reader.op.is(ATTENTION) {
                if i != MASK || behind.contains(&0) {
                    return false;
                }
                continue;
            }
            let (true, &[z]) = (reader.op.is_pointwise(), &reader.outputs[..]) else { return false };
            if has_others(view, reader, v, behind) {
                continue;
            }
            let Some(far) = far.checked_sub(1) else { return false };
            values.push((z, far));
        }
    }
    true
}

/// Whether a layer of elements has other operands than `v` that are longer than 1 along all these axes, counted from the last.
fn has_others(view: &View<'_>, reader: &Node, v: ValueId, behind: &[usize]) -> bool {
    let rank = reader.outputs.first().map_or(0, |&z| view.g.ty(z).rank());
    let others: Vec<Operand> =
        reader.inputs.iter().flatten().filter(|o| **o != v).map(|&o| operand(view, o)).collect();
    let along =
        |e: usize| rank.checked_sub(e + 1).is_some_and(|a| others.iter().any(|o| o.at(a, rank).is_some()));
    behind.iter().all(|&e| along(e))
}

/// The value that another is the expansion of.
fn expanded(view: &View<'_>, v: ValueId) -> Option<ValueId> {
    input(view.made_by(v, EXPAND)?.1, 0)
}

/// Attention whose mask is expanded, but not along the keys.
fn of_mask(view: &View<'_>, node: &Node) -> Option<Repeats> {
    let mask = input(node, MASK)?;
    let source = expanded(view, mask).filter(|&s| view.dims(s).last() == view.dims(mask).last())?;
    let mut operands: Vec<_> = node.inputs.iter().map(|v| v.map(|v| Operand::plain(view, v))).collect();
    operands[MASK] = Some(Operand::plain(view, source));
    Some(Repeats { operands, expand: None })
}

/// A tensor with one position of each axis along which all its elements are the same, if there is such an axis.
fn without_repeats(t: &Tensor) -> Option<Tensor> {
    let (mut bytes, mut shape) = (Cow::from(t.bytes()), t.shape().to_vec());
    // Elements of less than a byte may share one.
    let bits = (bytes.len() * 8).checked_div(t.len())?;
    if bits % 8 != 0 || bytes.len() > MOST_BYTES {
        return None;
    }
    for axis in 0..shape.len() {
        let line = shape[axis + 1..].iter().product::<usize>() * bits / 8;
        let blocks = || bytes.chunks_exact(line * shape[axis]);
        if shape[axis] > 1 && blocks().all(|b| b.chunks_exact(line).all(|one| one == &b[..line])) {
            bytes = Cow::from(blocks().flat_map(|b| &b[..line]).copied().collect::<Vec<u8>>());
            shape[axis] = 1;
        }
    }
    match bytes {
        Cow::Borrowed(_) => None,
        Cow::Owned(bytes) => Tensor::from_bytes(t.dtype(), &shape, bytes),
    }
}
