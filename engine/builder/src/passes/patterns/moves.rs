//! Composition of chains of moves: reshapes, transposes, and picks of one index of an axis. A value's
//! dimensions are followed as parts of its source's dimensions; so chains can be compared, merged, and seen
//! to undo each other.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::infer::normalize_axis;
use kiln_ir::op::Movement;
use kiln_ir::{Dim, IrError, Node, NodeId, ValueId};
use kiln_ops::gather::GATHER;
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};
use kiln_ops::slice::SLICE;
use kiln_ops::transpose::TRANSPOSE;
use std::collections::VecDeque;

/// A factor of a dimension of the source, never 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub dim: Dim,
    /// The axis of the source, then places of splits: parts lie in the source in the order of their keys.
    pub key: Vec<usize>,
}

/// Order of the parts of a source after some moves.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The parts of each dimension, the slowest first.
    pub dims: Vec<Vec<Part>>,
    /// Parts of which one index was picked, with the index.
    pub picked: Vec<(Part, i64)>,
}

enum Move {
    Reshape(Vec<Dim>),
    Transpose(Vec<usize>),
    /// The axis stays, of size 1, or goes.
    Pick {
        axis: usize,
        index: i64,
        stays: bool,
    },
}

impl Moved {
    /// The moves of a value that nothing moved yet.
    pub fn of(dims: &[Dim]) -> Option<Moved> {
        let part = |(axis, d): (usize, &Dim)| match d.as_const() {
            Some(1) => Some(Vec::new()),
            Some(n) if n < 1 => None,
            _ => Some(vec![Part { dim: d.clone(), key: vec![axis] }]),
        };
        let dims = dims.iter().enumerate().map(part).collect::<Option<_>>()?;
        Some(Moved { dims, picked: Vec::new() })
    }

    /// All parts in the order in which they lie now.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.dims.iter().flatten()
    }

    /// Whether all parts lie as in the source.
    pub fn in_order(&self) -> bool {
        self.parts().map(|p| &p.key).is_sorted()
    }

    fn apply(&mut self, m: &Move) -> Option<()> {
        match m {
            Move::Transpose(perm) => {
                self.dims = perm.iter().map(|&p| self.dims.get(p).cloned()).collect::<Option<_>>()?
            }
            Move::Reshape(to) => self.dims = regroup(self.parts().cloned().collect(), to)?,
            &Move::Pick { axis, index, stays } => {
                let mut index = index;
                let parts = std::mem::take(self.dims.get_mut(axis)?);
                for p in parts.into_iter().rev() {
                    let n = p.dim.as_const().filter(|&n| n > 0)?;
                    self.picked.push((p, index % n));
                    index /= n;
                }
                if !stays {
                    self.dims.remove(axis);
                }
            }
        }
        Some(())
    }

    /// Applies a node that is a move.
    pub fn through(&mut self, view: &View<'_>, node: &Node) -> Option<()> {
        self.apply(&as_move(view, node)?)
    }
}

/// Parts in other groups, split where a group ends within one.
fn regroup(mut parts: VecDeque<Part>, to: &[Dim]) -> Option<Vec<Vec<Part>>> {
    let mut out = Vec::new();
    for d in to {
        let (mut group, mut left) = (Vec::new(), d.clone());
        while !left.is(1) {
            let p = parts.pop_front()?;
            match (p.dim.as_const(), left.as_const()) {
                (Some(n), Some(want)) if want > 0 && n % want == 0 && n != want => {
                    let half = |at: usize, n: i64| {
                        let key = p.key.iter().copied().chain([at]).collect();
                        Part { dim: Dim::new(n), key }
                    };
                    group.push(half(0, want));
                    parts.push_front(half(1, n / want));
                    left = Dim::new(1);
                }
                _ => {
                    left = left.div_exact(&p.dim)?;
                    group.push(p);
                }
            }
        }
        out.push(group);
    }
    parts.is_empty().then_some(out)
}

/// Whether the layer keeps all elements and changes their shape or the order of their dimensions.
pub fn is_move(node: &Node) -> bool {
    matches!(node.op.movement(), Movement::Reshape | Movement::Permutation)
}

fn as_move(view: &View<'_>, node: &Node) -> Option<Move> {
    let x = input(node, 0)?;
    let y = *node.outputs.first()?;
    let rank = view.g.ty(x).rank();
    match node.op.id() {
        RESHAPE | SQUEEZE | UNSQUEEZE => Some(Move::Reshape(view.dims(y).to_vec())),
        TRANSPOSE => view.perm(node).map(Move::Transpose),
        GATHER if view.g.ty(input(node, 1)?).rank() == 0 && node.op.attrs().int("batch_dims").ok()? == 0 => {
            let axis = normalize_axis(node.op.attrs().int("axis").ok()?, rank, "axis").ok()?;
            let n = view.dims(x).get(axis)?.as_const()?;
            let index = *view.ints(input(node, 1)?)?.first()?;
            let index = if index < 0 { index + n } else { index };
            (0..n).contains(&index).then_some(Move::Pick { axis, index, stays: false })
        }
        SLICE => {
            let one = |i| view.ints(input(node, i)?).filter(|v| v.len() == 1).map(|v| v[0]);
            let axis = normalize_axis(one(3)?, rank, "axes").ok()?;
            let (n, step) =
                (view.dims(x).get(axis)?.as_const()?, if node.inputs.len() > 4 { one(4)? } else { 1 });
            let index = one(1)?;
            let single = view.dims(y).get(axis)?.is(1) && step == 1 && (0..n).contains(&index);
            single.then_some(Move::Pick { axis, index, stays: true })
        }
        _ => None,
    }
}

/// The values that `v` is a move of, the nearest (`v` itself) first, with the moves in between and their
/// nodes.
pub fn trace(view: &View<'_>, v: ValueId) -> Vec<(ValueId, Moved, Vec<NodeId>)> {
    let mut chain: Vec<(NodeId, Move)> = Vec::new();
    let mut out = Vec::new();
    let mut at = v;
    loop {
        let Some(mut moved) = Moved::of(view.dims(at)) else { return out };
        if chain.iter().rev().try_for_each(|(_, m)| moved.apply(m)).is_some() {
            out.push((at, moved, chain.iter().map(|(id, _)| *id).collect()));
        }
        let before = view.g.producer(at).and_then(|(id, n)| Some((id, as_move(view, n)?, input(n, 0)?)));
        let Some((id, m, x)) = before else { return out };
        chain.push((id, m));
        at = x;
    }
}

/// A chain of reshapes with more than one transpose: one, or none where they undo each other.
pub struct Moves {
    x: ValueId,
    /// Shape before the transpose, the transpose, shape after it; what changes nothing is absent.
    split: Option<Vec<i64>>,
    perm: Option<Vec<usize>>,
    join: Option<Vec<i64>>,
}

impl Rule for Moves {
    const NAME: &'static str = "moves";

    fn find(view: &View<'_>, root: NodeId) -> Option<Moves> {
        let last = view.g.get(root).filter(|n| is_move(n))?;
        let y = *last.outputs.first()?;
        let transposes = |chain: &[NodeId]| {
            let dies = |id: &NodeId| {
                *id == root || view.g.get(*id).is_some_and(|n| n.outputs.iter().all(|&v| view.read_once(v)))
            };
            let all = chain.iter().take_while(|id| dies(id)).filter_map(|&id| view.g.get(id));
            all.filter(|n| n.op.is(TRANSPOSE)).count()
        };
        trace(view, y).into_iter().rev().find_map(|(x, moved, chain)| {
            let new = usize::from(!moved.in_order());
            (moved.picked.is_empty() && transposes(&chain) > new).then(|| Moves::of(view, x, y, &moved))?
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let mut y = self.x;
        if let Some(shape) = &self.split {
            y = w.reshape(y, shape)?;
        }
        if let Some(perm) = &self.perm {
            y = w.transpose(y, perm)?;
        }
        if let Some(shape) = &self.join {
            y = w.reshape(y, shape)?;
        }
        Ok(w.replace(root, y))
    }
}

impl Moves {
    fn of(view: &View<'_>, x: ValueId, y: ValueId, moved: &Moved) -> Option<Moves> {
        let to = view.dims(y);
        let shape = |from: &[Dim], to: &[Dim]| match from == to {
            true => Some(None),
            false => shape_text(to).map(Some),
        };
        if moved.in_order() {
            return Some(Moves { x, split: None, perm: None, join: shape(view.dims(x), to)? });
        }
        let mut sorted: Vec<&Part> = moved.parts().collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        let rank: Vec<usize> =
            moved.parts().filter_map(|p| sorted.iter().position(|s| s.key == p.key)).collect();
        // Dimensions that lie together before and after move as one.
        let mut runs: Vec<(usize, Dim)> = Vec::new();
        for (i, &r) in rank.iter().enumerate() {
            match runs.last_mut() {
                Some((_, dim)) if i > 0 && rank[i - 1] + 1 == r => *dim = dim.clone() * sorted[r].dim.clone(),
                _ => runs.push((r, sorted[r].dim.clone())),
            }
        }
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_key(|&i| runs[i].0);
        let perm = runs.iter().enumerate().filter_map(|(i, _)| order.iter().position(|&o| o == i)).collect();
        let split: Vec<Dim> = order.iter().map(|&i| runs[i].1.clone()).collect();
        let after: Vec<Dim> = runs.iter().map(|r| r.1.clone()).collect();
        let (split, join) = (shape(view.dims(x), &split)?, shape(&after, to)?);
        Some(Moves { x, split, perm: Some(perm), join })
    }
}

/// Dimensions as the contents of a shape, if at most one is not a number and none is 0.
pub fn shape_text(dims: &[Dim]) -> Option<Vec<i64>> {
    let shape: Vec<i64> = dims.iter().map(|d| d.as_const().unwrap_or(-1)).collect();
    (shape.iter().filter(|&&n| n < 0).count() <= 1 && !shape.contains(&0)).then_some(shape)
}
