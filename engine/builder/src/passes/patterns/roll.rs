//! Two slices that are joined again the other way round, as shifted windows are written: one gather along the axis.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::infer::normalize_axis;
use kiln_ir::{Attrs, IrError, Node, NodeId, ValueId};
use kiln_ops::gather::GATHER;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::slice::window::window;

/// Elements of an axis that are counted out, at most.
const LONGEST: i64 = 1 << 16;

pub struct Roll {
    x: ValueId,
    axis: usize,
    /// Elements of the axis, and which one comes first.
    size: i64,
    first: i64,
}

impl Rule for Roll {
    const NAME: &'static str = "roll";

    fn find(view: &View<'_>, root: NodeId) -> Option<Roll> {
        let node = view.g.get(root).filter(|n| n.op.is(CONCAT) && n.inputs.len() == 2)?;
        let (behind, before) = (cut(view, input(node, 0)?)?, cut(view, input(node, 1)?)?);
        let rank = view.g.ty(behind.x).rank();
        let axis = normalize_axis(node.op.attrs().int("axis").ok()?, rank, "axis").ok()?;
        let same = behind.x == before.x && behind.axis == axis && before.axis == axis;
        let whole = behind.end == behind.size && before.first == 0 && before.end == behind.first;
        let turned = 0 < behind.first && behind.first < behind.size && behind.size <= LONGEST;
        (same && whole && turned).then_some(Roll {
            x: behind.x,
            axis,
            size: behind.size,
            first: behind.first,
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let order: Vec<i64> = (self.first..self.size).chain(0..self.first).collect();
        let order = w.ints(&order)?;
        let y = w.op(GATHER, Attrs::new().with("axis", self.axis as i64), &[self.x, order])?;
        Ok(w.replace(root, y))
    }
}

/// Range that a slice takes of one axis.
pub struct Cut {
    pub x: ValueId,
    pub axis: usize,
    pub size: i64,
    pub first: i64,
    pub end: i64,
}

/// The range that a value is of another, by constant bounds and in steps of one.
pub fn cut(view: &View<'_>, v: ValueId) -> Option<Cut> {
    let (_, node) = view.made_by(v, SLICE)?;
    let x = input(node, 0)?;
    let ints = |i: usize| input(node, i).map(|v| view.ints(v));
    let one = |n: &Node, i: usize| match ints(i) {
        Some(given) => given?.as_slice().try_into().ok().map(|[n]: [i64; 1]| n),
        // Axes and steps that are not given.
        None => (n.inputs.len() <= i || i > 2).then_some(i64::from(i == 4)),
    };
    let (start, end, axis, step) = (one(node, 1)?, one(node, 2)?, one(node, 3)?, one(node, 4)?);
    let axis = normalize_axis(axis, view.g.ty(x).rank(), "axes").ok()?;
    let size = view.dims(x).get(axis)?.as_const()?;
    let w = window(size, start, end, step);
    (step == 1).then_some(Cut { x, axis, size, first: w.first, end: w.first + w.len })
}
