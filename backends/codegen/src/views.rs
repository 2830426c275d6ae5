//! Moves in front of an anchor that need no kernel: the anchor reads their source in place.

use crate::refusal::{op_error, unsupported};
use kiln_backend::BackendError;
use kiln_backend::launch::words;
use kiln_ir::infer::normalize_axis;
use kiln_ir::op::Movement;
use kiln_ir::{Dim, Fact, Graph, Node, Op, ValueId};
use kiln_ops::slice::window::window;
use kiln_ops::util::strides;

/// Offsets and strides of a value's elements in the one that is bound for it. The last dimension is
/// contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Elements before the first one.
    pub offset: usize,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Elements from one to the next, for each dimension.
    pub strides: Vec<usize>,
}

impl View {
    /// The whole of a contiguous value.
    pub fn whole(shape: &[usize]) -> View {
        View { offset: 0, shape: shape.to_vec(), strides: strides(shape) }
    }

    /// The view after an operator of an addressable [`Movement`]; `inputs` are facts of the operator's inputs, `to` its result's shape.
    pub fn through(mut self, op: &Op, inputs: &[Option<&Fact>], to: &[usize]) -> Result<View, BackendError> {
        match op.movement() {
            Movement::Permutation => {
                let order = order(op, self.shape.len())?;
                self.strides = order.iter().filter_map(|&p| self.strides.get(p).copied()).collect();
            }
            Movement::Slice => {
                for cut in cuts(inputs, self.shape.len())? {
                    let w = window(self.shape[cut.axis] as i64, cut.start, cut.end, cut.step);
                    if w.len > 0 {
                        self.offset += w.first as usize * self.strides[cut.axis];
                    }
                    self.strides[cut.axis] *= if w.len > 1 { w.step as usize } else { 1 };
                }
            }
            _ => self.strides = split(&self.shape, &self.strides, to)?,
        }
        self.shape = to.to_vec();
        Ok(self)
    }
}

/// One axis of a slice.
struct Cut {
    axis: usize,
    start: i64,
    end: i64,
    step: i64,
}

/// The axes of a slice whose bounds are known and that goes forward.
fn cuts(inputs: &[Option<&Fact>], rank: usize) -> Result<Vec<Cut>, BackendError> {
    let ints = |i: usize| inputs.get(i).copied().flatten().and_then(|f| f.as_const()).map(|t| t.to_i64());
    let (Some(starts), Some(ends)) = (ints(1), ints(2)) else {
        return unsupported("a view by unknown bounds");
    };
    let axes = ints(3).unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = ints(4).unwrap_or_else(|| vec![1; starts.len()]);
    let mut out = Vec::new();
    for (((&axis, &start), &end), &step) in axes.iter().zip(&starts).zip(&ends).zip(&steps) {
        if step < 1 {
            return unsupported("a view that goes backward");
        }
        out.push(Cut { axis: normalize_axis(axis, rank, "axes").map_err(op_error)?, start, end, step });
    }
    Ok(out)
}

/// The order of a transpose.
fn order(op: &Op, rank: usize) -> Result<Vec<usize>, BackendError> {
    let perm = op.attrs().ints("perm").map_err(op_error)?;
    if perm.is_empty() {
        return Ok((0..rank).rev().collect());
    }
    perm.iter().map(|&p| normalize_axis(p, rank, "perm").map_err(op_error)).collect()
}

/// Strides of the same elements in other dimensions.
fn split(shape: &[usize], by: &[usize], to: &[usize]) -> Result<Vec<usize>, BackendError> {
    if to.contains(&0) {
        return Ok(vec![0; to.len()]);
    }
    let signed: Vec<i64> = by.iter().map(|&s| s as i64).collect();
    let (dims, steps) = coalesce(shape, &signed);
    let mut groups = dims.into_iter().zip(steps).rev();
    let mut out = vec![0; to.len()];
    let (mut left, mut step) = (1, 1);
    for (d, n) in to.iter().enumerate().rev().filter(|(_, n)| **n != 1) {
        if left == 1 {
            (left, step) = groups.next().map_or((0, 0), |(n, s)| (n, s as usize));
        }
        if left == 0 || !left.is_multiple_of(*n) {
            return Err(BackendError::Internal(format!(
                "{shape:?} with strides {by:?} is no view as {to:?}"
            )));
        }
        out[d] = step;
        step *= n;
        left /= n;
    }
    Ok(out)
}

/// The moves in front of an operand of a region's anchor.
#[derive(Debug, PartialEq, Eq)]
pub struct Chain {
    /// Their positions among the nodes, the first one first.
    pub moves: Vec<usize>,
    /// Whether the last dimension of the operand is contiguous in the value that they begin with.
    pub rows: bool,
}

/// The moves in front of the operand `v` of the node at position `anchor`. Refuses those that give no view for all shapes.
pub fn chain(g: &Graph, nodes: &[&Node], anchor: usize, mut v: ValueId) -> Result<Chain, BackendError> {
    let mut moves = Vec::new();
    let moved = |v: ValueId| {
        let found = |n: &&Node| n.outputs.contains(&v) && n.op.movement().is_addressable();
        nodes[..anchor].iter().position(found)
    };
    while let Some(at) = moved(v) {
        let Some(Some(from)) = nodes[at].inputs.first() else { return unsupported("a move of nothing") };
        moves.push(at);
        v = *from;
    }
    moves.reverse();
    let rank = g.ty(v).rank();
    let mut lie = Lie { regular: vec![true; rank.saturating_sub(1)], rows: true };
    for &at in &moves {
        lie.after(g, nodes[at])?;
    }
    Ok(Chain { moves, rows: lie.rows })
}

/// Order of elements in the value that moves begin with, whatever the shapes.
struct Lie {
    /// For each dimension but the last: whether its steps are as long as the whole next dimension, so that both can be walked as one.
    regular: Vec<bool>,
    /// Elements are one behind the other along the last dimension.
    rows: bool,
}

impl Lie {
    fn after(&mut self, g: &Graph, node: &Node) -> Result<(), BackendError> {
        let dims = |v: Option<&ValueId>| v.map_or(&[][..], |&v| &g.ty(v).dims);
        let from = dims(node.inputs.first().and_then(Option::as_ref));
        let to = dims(node.outputs.first());
        let facts: Vec<Option<&Fact>> = node.inputs.iter().map(|v| v.map(|v| &g.value(v).fact)).collect();
        match node.op.movement() {
            Movement::Permutation => self.permuted(&order(&node.op, from.len())?),
            Movement::Slice => {
                cuts(&facts, from.len())?.iter().for_each(|cut| self.cut(cut.axis, cut.step, from.len()));
            }
            _ => self.reshaped(from, to)?,
        }
        Ok(())
    }

    fn permuted(&mut self, order: &[usize]) {
        self.rows &= order.last() == order.len().checked_sub(1).as_ref();
        self.regular = order.windows(2).map(|p| p[0] + 1 == p[1] && self.regular[p[0]]).collect();
    }

    fn cut(&mut self, axis: usize, step: i64, rank: usize) {
        self.rows &= axis + 1 != rank || step == 1;
        let (before, behind) = (axis.checked_sub(1), Some(axis).filter(|_| step != 1));
        for at in [before, behind].into_iter().flatten() {
            self.regular.get_mut(at).into_iter().for_each(|r| *r = false);
        }
    }

    /// Other dimensions for the same elements. Those that begin or end both lists stay; the others have to be walked as one.
    fn reshaped(&mut self, from: &[Dim], to: &[Dim]) -> Result<(), BackendError> {
        let wide = |dims: &[Dim]| -> Vec<usize> { (0..dims.len()).filter(|&i| !dims[i].is(1)).collect() };
        let (old, new) = (wide(from), wide(to));
        // Between two neighbours of more than one element.
        let joined: Vec<bool> = old.windows(2).map(|p| self.regular[p[0]..p[1]].iter().all(|&r| r)).collect();
        let equal = |(a, b): &(&usize, &usize)| from[**a] == to[**b];
        let head = old.iter().zip(&new).take_while(equal).count();
        let most = old.len().min(new.len()) - head;
        let tail = old.iter().rev().zip(new.iter().rev()).take(most).take_while(equal).count();
        let changed = head..old.len() - tail;
        let inner = changed.start..changed.end.saturating_sub(1);
        if joined.get(inner).is_some_and(|all| all.contains(&false)) {
            return unsupported("a reshape of what does not lie in order");
        }
        // Dimensions of unknown size that come or go alone have one element; what is beside them is not looked at.
        let whole = changed.is_empty() == (head + tail == new.len());
        let ones_behind = old.last().is_none_or(|&at| self.regular[at..].iter().all(|&r| r));
        let last_one = |dims: &[Dim]| dims.last().is_none_or(|d| d.is(1));
        self.rows &= whole && ones_behind && (!last_one(to) || last_one(from));
        self.regular = vec![true; to.len().saturating_sub(1)];
        for (k, pair) in new.windows(2).enumerate() {
            let before = if k < head {
                Some(k)
            } else if k + 1 >= new.len() - tail {
                (k + old.len()).checked_sub(new.len())
            } else {
                None
            };
            let as_before = before.is_none_or(|at| joined.get(at).copied().unwrap_or(false));
            self.regular[pair[1] - 1] = whole && as_before;
        }
        Ok(())
    }
}

/// Argument words by which a frame reads an operand of this rank through moves.
pub fn words_of_view(rank: usize) -> usize {
    2 + 2 * rank
}

/// The words of a view: number of dimensions after neighbours are joined, offset in elements, dimensions, strides. Both lists are
/// padded to the rank of the operand.
pub fn view_words(view: &View) -> Result<Vec<u32>, BackendError> {
    let strides: Vec<i64> = view.strides.iter().map(|&s| s as i64).collect();
    let (mut dims, strides) = coalesce(&view.shape, &strides);
    let mut strides: Vec<usize> = strides.into_iter().map(|s| s as usize).collect();
    let rank = dims.len();
    dims.resize(view.shape.len(), 1);
    strides.resize(view.shape.len(), 0);
    words([rank, view.offset].into_iter().chain(dims).chain(strides))
}

/// Joins neighbouring dimensions that are walked as one, and drops those of size 1.
pub fn coalesce(dims: &[usize], strides: &[i64]) -> (Vec<usize>, Vec<i64>) {
    let mut out: (Vec<usize>, Vec<i64>) = (Vec::new(), Vec::new());
    for (&n, &s) in dims.iter().zip(strides).filter(|(n, _)| **n != 1) {
        match (out.0.last_mut(), out.1.last_mut()) {
            (Some(m), Some(t)) if *t == s * n as i64 => {
                *m *= n;
                *t = s;
            }
            _ => {
                out.0.push(n);
                out.1.push(s);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::problem::Rng;

    #[test]
    fn dimensions_split_and_join_where_strides_allow_it() {
        assert_eq!(split(&[2, 6], &[6, 1], &[2, 3, 2]), Ok(vec![6, 2, 1]));
        assert_eq!(split(&[4, 1, 6], &[12, 3, 1], &[2, 2, 6]), Ok(vec![24, 12, 1]));
        assert_eq!(split(&[2, 3], &[1, 2], &[2, 1, 3]), Ok(vec![1, 0, 2]));
        assert_eq!(split(&[2, 0], &[1, 2], &[0]), Ok(vec![0]));
        assert!(split(&[2, 3], &[1, 2], &[6]).is_err());
    }

    /// Random moves: where the lie of elements allows a reshape, strides do, and what it says of them holds.
    #[test]
    fn strides_hold_what_the_lie_says() {
        let mut rng = Rng::new(31);
        let mut below = |n: usize| rng.bits() as usize % n;
        let (mut allowed, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut shape: Vec<usize> = (0..1 + below(4)).map(|_| [1, 2, 2, 3, 4, 6][below(6)]).collect();
            let mut by = strides(&shape);
            let mut lie = Lie { regular: vec![true; shape.len() - 1], rows: true };
            for _ in 0..3 {
                match below(3) {
                    0 => {
                        let mut order: Vec<usize> = (0..shape.len()).collect();
                        order.swap(below(shape.len()), below(shape.len()));
                        lie.permuted(&order);
                        shape = order.iter().map(|&p| shape[p]).collect();
                        by = order.iter().map(|&p| by[p]).collect();
                    }
                    1 => {
                        let (axis, step) = (below(shape.len()), 1 + below(2));
                        lie.cut(axis, step as i64, shape.len());
                        shape[axis] = (1 + below(shape[axis])).div_ceil(step);
                        by[axis] *= step;
                    }
                    _ => {
                        let (mut left, mut to) = (shape.iter().product::<usize>(), Vec::new());
                        while left > 1 || below(3) == 0 {
                            let divisors: Vec<usize> =
                                (1..=left).filter(|n| left.is_multiple_of(*n)).collect();
                            to.push(divisors[below(divisors.len())]);
                            left /= to.last().expect("a dimension");
                        }
                        to.extend(to.is_empty().then_some(1));
                        let dims =
                            |s: &[usize]| -> Vec<Dim> { s.iter().map(|&n| Dim::new(n as i64)).collect() };
                        if lie.reshaped(&dims(&shape), &dims(&to)).is_err() {
                            refused += 1;
                            break;
                        }
                        by = split(&shape, &by, &to).expect("a view");
                        shape = to;
                        allowed += 1;
                    }
                }
                let last = shape.len() - 1;
                assert!(
                    !lie.rows || shape[last] == 1 || by[last] == 1,
                    "{shape:?} by {by:?}: {:?}",
                    lie.regular
                );
                let wide: Vec<usize> = (0..shape.len()).filter(|&i| shape[i] > 1).collect();
                for p in wide.windows(2).filter(|p| lie.regular[p[0]..p[1]].iter().all(|&r| r)) {
                    assert_eq!(by[p[0]], by[p[1]] * shape[p[1]], "{shape:?} by {by:?}: {:?}", lie.regular);
                }
            }
        }
        assert!(allowed > 5_000 && refused > 1_000, "{allowed} allowed, {refused} refused");
    }

    #[test]
    fn contiguous_dimensions_join() {
        assert_eq!(coalesce(&[2, 3, 1, 4], &[12, 4, 9, 1]), (vec![24], vec![1]));
        assert_eq!(coalesce(&[2, 3], &[1, 2]), (vec![2, 3], vec![1, 2]));
        assert_eq!(coalesce(&[4, 3], &[0, 0]), (vec![12], vec![0]));
    }
}
