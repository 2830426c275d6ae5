//! Heads of keys and values that were repeated for groups of query heads: attention reads each at its own
//! place.

use super::super::view::{View, input};
use kiln_ir::infer::normalize_axis;
use kiln_ir::{Dim, Node, ValueId};
use kiln_ops::gather::GATHER;
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::expand::{EXPAND, TILE};
use kiln_ops::shape::squeeze::UNSQUEEZE;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;

/// Heads, at most, and layers between repeated heads and their source.
const MOST: usize = 4096;
const FAR: usize = 8;

/// Origin of a value's heads.
#[derive(Clone, PartialEq)]
pub struct Groups {
    /// [batch, heads, length, size], after this axis of 1 is left out.
    pub x: ValueId,
    /// The axis.
    pub squeeze: Option<usize>,
    /// The source's head for each head.
    of: Vec<usize>,
}

impl Groups {
    /// The source of heads [B, H, T, D] of which equal numbers are the same, one group after the other; `v` has these
    /// dimensions, or is [B, A, G, T, D] of which A and G make H.
    pub fn of(view: &View<'_>, v: ValueId) -> Option<Groups> {
        let found = match view.g.ty(v).rank() {
            4 => heads(view, v, FAR)?,
            5 => pairs(view, v, FAR)?,
            _ => return None,
        };
        let (all, own) = (found.of.len(), found.count(view)?);
        let each = all.checked_div(own).filter(|n| n * own == all && *n > 1)?;
        let in_order = found.of.iter().enumerate().all(|(h, &of)| of == h / each);
        in_order.then_some(found)
    }

    /// Dimensions of the source.
    pub fn dims(&self, view: &View<'_>) -> Vec<Dim> {
        let all = view.dims(self.x).iter().enumerate();
        all.filter(|(i, _)| Some(*i) != self.squeeze).map(|(_, d)| d.clone()).collect()
    }

    fn count(&self, view: &View<'_>) -> Option<usize> {
        count(self.dims(view).get(1)?)
    }

    fn pick(self, indices: impl Iterator<Item = usize>) -> Option<Groups> {
        let of = indices.map(|i| self.of.get(i).copied()).collect::<Option<Vec<_>>>()?;
        Some(Groups { of, ..self })
    }
}

fn count(d: &Dim) -> Option<usize> {
    usize::try_from(d.as_const()?).ok().filter(|n| (1..=MOST).contains(n))
}

/// The heads of [B, H, T, D].
fn heads(view: &View<'_>, v: ValueId, far: usize) -> Option<Groups> {
    let n = count(view.dims(v).get(1)?)?;
    let leaf = || Groups { x: v, squeeze: None, of: (0..n).collect() };
    let Some(far) = far.checked_sub(1) else { return Some(leaf()) };
    let Some((_, node)) = view.g.producer(v) else { return Some(leaf()) };
    let found = || match node.op.id() {
        RESHAPE => {
            let e = input(node, 0)?;
            let (from, to) = (view.dims(e), view.dims(v));
            let splits = from.len() == 5 && from[0] == to[0] && from[3..] == to[2..];
            pairs(view, e, far).filter(|p| splits && p.of.len() == n)
        }
        GATHER => {
            let (x, at) = (input(node, 0)?, input(node, 1)?);
            let axis = normalize_axis(node.op.attrs().int("axis").ok()?, 4, "axis").ok()?;
            let plain =
                axis == 1 && view.g.ty(at).rank() == 1 && node.op.attrs().int("batch_dims").ok()? == 0;
            let all = count(view.dims(x).get(1)?).filter(|_| plain)? as i64;
            let at = view.ints(at)?;
            let wrap = |i: i64| usize::try_from(if i < 0 { i + all } else { i }).unwrap_or(MOST);
            Groups { x, squeeze: None, of: (0..all as usize).collect() }.pick(at.into_iter().map(wrap))
        }
        SLICE => {
            let one = |i| view.ints(input(node, i)?).filter(|v| v.len() == 1).map(|v| v[0]);
            let (x, axis) = (input(node, 0)?, normalize_axis(one(3)?, 4, "axes").ok()?);
            let step = if node.inputs.len() > 4 { one(4)? } else { 1 };
            let from = usize::try_from(one(1)?).ok().filter(|f| axis == 1 && step == 1 && *f < MOST)?;
            let all = count(view.dims(x).get(1)?)?;
            Groups { x, squeeze: None, of: (0..all).collect() }.pick(from..from + n)
        }
        CONCAT => {
            let axis = normalize_axis(node.op.attrs().int("axis").ok()?, 4, "axis").ok()?;
            let mut parts = node.inputs.iter().flatten();
            let mut all = heads(view, *parts.next().filter(|_| axis == 1)?, far)?;
            for part in parts {
                let more = heads(view, *part, far)?;
                (more.x == all.x && more.squeeze == all.squeeze).then_some(())?;
                all.of.extend(more.of);
            }
            Some(all)
        }
        _ => {
            let x = repeated(view, node, 1)?;
            let own = heads(view, x, far)?;
            let all = own.of.len();
            own.pick((0..n).map(|i| i % all))
        }
    };
    Some(found().filter(|f| f.of.len() == n && f.of.len() <= MOST).unwrap_or_else(leaf))
}

/// The heads of [B, A, G, T, D], A or G of which repeats one.
fn pairs(view: &View<'_>, e: ValueId, far: usize) -> Option<Groups> {
    let far = far.checked_sub(1)?;
    let (a, g) = (count(view.dims(e).get(1)?)?, count(view.dims(e).get(2)?)?);
    let (_, node) = view.g.producer(e)?;
    let (axis, u) = [2, 1].into_iter().find_map(|axis| {
        let u = repeated(view, node, axis)?;
        view.dims(u).get(axis)?.is(1).then_some((axis, u))
    })?;
    let own = Groups { x: u, squeeze: Some(axis), of: (0..if axis == 2 { a } else { g }).collect() };
    let dims = own.dims(view);
    let plain = || {
        let (_, n) = view.g.producer(u).filter(|(_, n)| matches!(n.op.id(), UNSQUEEZE | RESHAPE))?;
        let x = input(n, 0).filter(|&x| view.dims(x) == dims)?;
        heads(view, x, far)
    };
    let own = plain().unwrap_or(own);
    let all = a.checked_mul(g).filter(|&n| n <= MOST)?;
    own.pick((0..all).map(|i| if axis == 2 { i / g } else { i % g }))
}

/// Value that a layer repeats along one axis as a whole, and along no other.
fn repeated(view: &View<'_>, node: &Node, axis: usize) -> Option<ValueId> {
    let (x, y) = (input(node, 0)?, *node.outputs.first()?);
    let (from, to) = (view.dims(x), view.dims(y));
    let others = || from.iter().zip(to).enumerate().all(|(i, (a, b))| i == axis || a == b);
    let fits = match node.op.id() {
        EXPAND => from.get(axis)?.is(1),
        // Dimensions that stay may be 1 repeated once, or 0 repeated at will.
        TILE => view.ints(input(node, 1)?)?.iter().enumerate().all(|(i, &n)| n == 1 || i == axis),
        CONCAT => {
            let along = normalize_axis(node.op.attrs().int("axis").ok()?, from.len(), "axis").ok()?;
            along == axis && node.inputs.iter().all(|v| *v == Some(x))
        }
        _ => false,
    };
    (fits && from.len() == to.len() && others()).then_some(x)
}
