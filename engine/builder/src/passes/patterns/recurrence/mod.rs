//! Loops over the elements of a sequence become the recurrent operators if their body is an LSTM, GRU or RNN
//! cell, or several in layers. Other work of the body is done for all elements at once, in front of the cells
//! or after them.
//!
//! Sequences lie along a first dimension here, in the order of the loop's tensors: iteration `k` takes element `k`, or the last
//! but `k` where the loop goes backward.

/// Unwraps a value, or leaves the site as it is.
macro_rules! take {
    ($e:expr) => {
        match $e {
            Some(v) => v,
            None => return Ok(None),
        }
    };
}

mod cells;
mod lift;
mod sums;
mod write;

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::infer::Value;
use kiln_ir::{
    Attrs, Dim, Fact, Graph, IrError, LoopOut, LoopOutputKind, LoopShape, Node, NodeId, OpName, Tensor,
    ValueId,
};
use kiln_ops::control::LOOP;
use kiln_ops::slice::SLICE;
use kiln_ops::transpose::TRANSPOSE;
use std::collections::HashMap;

pub struct Recurrence;

impl Rule for Recurrence {
    const NAME: &'static str = "recurrence";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<Recurrence> {
        view.g.get(root).filter(|n| n.op.is(LOOP))?;
        let mut tried = view.g.clone();
        let found = Walk::new(&tried, root)?.run(Writer::before(&mut tried, root), root);
        found.is_ok_and(|f| f.is_some()).then_some(Recurrence)
    }

    fn write(self, w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        match Walk::new(w.g, root) {
            Some(walk) => Ok(walk.run(w, root)?.is_some()),
            None => Ok(false),
        }
    }
}

/// Dependence of a body's value on the iteration.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    /// A value that is the same in all iterations.
    Fixed(ValueId),
    /// One element an iteration, along a new first dimension.
    Each(ValueId),
}

/// A cell that was written: its sequence of states, and the last ones.
struct Cell {
    h: usize,
    c: Option<usize>,
    last: [Option<ValueId>; 2],
}

struct Walk {
    body: Graph,
    shape: LoopShape,
    /// Whether it goes from the last element to the first.
    backward: bool,
    inputs: Vec<ValueId>,
    known: HashMap<ValueId, Option<Class>>,
    cells: Vec<Cell>,
}

/// Layers of a body at most: it is gone through by recursion.
const MOST_LAYERS: usize = 1000;

type Found<T> = Result<Option<T>, IrError>;

/// The number that a fact's only element is, as a dimension.
fn number(f: &Fact) -> Option<Dim> {
    match f.value.as_ref()? {
        Value::Const(t) => Some(Dim::new(t.scalar_i64()?)),
        Value::Dims(d) => d.first().cloned().filter(|_| d.len() == 1),
    }
}

impl Walk {
    /// A loop that goes through all elements of its tensors, all in one direction.
    fn new(g: &Graph, root: NodeId) -> Option<Walk> {
        let node = g.get(root)?;
        let shape = node.loop_shape(node.inputs.len()).ok()?;
        let inputs: Vec<ValueId> = node.inputs.iter().copied().collect::<Option<_>>()?;
        let backward = shape.iterated.first()?.1;
        let iterations = number(&g.value(*inputs.first()?).fact)?;
        let whole = |(v, &(axis, reverse)): (&ValueId, &(usize, bool))| {
            reverse == backward && g.ty(*v).dims.get(axis) == Some(&iterations)
        };
        let exact = |v: &ValueId| number(&g.value(*v).fact).as_ref() == Some(&iterations);
        let body = node.regions.first()?.clone();
        let fits = shape.count
            && !shape.condition
            && body.order().len() <= MOST_LAYERS
            && inputs.get(shape.iterables())?.iter().zip(&shape.iterated).all(whole)
            && inputs.get(shape.lengths())?.iter().all(exact);
        let (known, cells) = (HashMap::new(), Vec::new());
        fits.then_some(Walk { body, shape, backward, inputs, known, cells })
    }

    /// Writes everything; nothing where something does not fit.
    fn run(mut self, mut w: Writer<'_>, root: NodeId) -> Found<()> {
        take!(self.know_inputs(&mut w)?);
        for i in 0..self.shape.carried {
            self.cell(&mut w, i)?;
        }
        if self.cells.is_empty() {
            return Ok(None);
        }
        let mut results = Vec::new();
        for o in self.shape.outs.clone() {
            results.push(take!(match o.kind {
                LoopOutputKind::LastValue => self.last(o.index),
                _ => self.stacked(&mut w, &o)?,
            }));
        }
        Ok(put(w.g, root, &results).then_some(()))
    }

    /// Classifies the body's inputs: states, elements and captures.
    fn know_inputs(&mut self, w: &mut Writer<'_>) -> Found<()> {
        let s = self.shape.clone();
        for (i, &v) in self.body.inputs.clone().iter().enumerate() {
            let class = match i.checked_sub(s.carried) {
                None => None,
                Some(k) => Some(match s.iterated.get(k) {
                    Some(&(axis, _)) => {
                        let all = *take!(self.inputs.get(s.iterables().start + k));
                        Class::Each(moved(w, all, axis, 0)?)
                    }
                    None => Class::Fixed(*take!(self.inputs.get(s.captures().start + k - s.iterated.len()))),
                }),
            };
            self.known.insert(v, class);
        }
        Ok(Some(()))
    }

    /// A carried value after the last iteration.
    fn last(&self, i: usize) -> Option<ValueId> {
        self.cells.iter().find_map(|cell| match i {
            _ if cell.h == i => cell.last[0],
            _ if cell.c == Some(i) => cell.last[1],
            _ => None,
        })
    }

    /// The elements of an output, in its order and along its axis.
    fn stacked(&mut self, w: &mut Writer<'_>, o: &LoopOut) -> Found<ValueId> {
        let v = *take!(self.body.outputs.get(self.shape.carried + o.index));
        let Some(Class::Each(all)) = self.class(w, v)? else { return Ok(None) };
        let all = match (o.kind == LoopOutputKind::Reverse) == self.backward {
            true => all,
            false => flipped(w, all)?,
        };
        Ok(Some(moved(w, all, 0, o.axis)?))
    }

    fn producer(&self, v: ValueId) -> Option<&Node> {
        self.body.producer(v).map(|p| p.1).filter(|n| n.outputs.len() == 1)
    }

    /// The two inputs of an operator, in both orders.
    fn either(&self, v: ValueId, op: OpName) -> Option<[[ValueId; 2]; 2]> {
        self.pair(v, op).map(|[a, b]| [[a, b], [b, a]])
    }

    /// The two inputs of an operator.
    fn pair(&self, v: ValueId, op: OpName) -> Option<[ValueId; 2]> {
        let n = self.producer(v).filter(|n| n.op.is(op))?;
        Some([input(n, 0)?, input(n, 1)?])
    }

    fn single(&self, v: ValueId, op: OpName) -> Option<ValueId> {
        self.producer(v).filter(|n| n.op.is(op)).and_then(|n| input(n, 0))
    }

    /// A constant of the body.
    fn constant(&self, v: ValueId) -> Option<&Tensor> {
        self.body.weight(v).map(|w| &w.tensor).or_else(|| self.body.value(v).fact.as_const())
    }
}

/// Moves one axis of a value to another place, the others in their order.
fn moved(w: &mut Writer<'_>, v: ValueId, from: usize, to: usize) -> Result<ValueId, IrError> {
    if from == to {
        return Ok(v);
    }
    let mut perm: Vec<i64> = (0..w.g.ty(v).rank() as i64).filter(|&a| a != from as i64).collect();
    perm.insert(to.min(perm.len()), from as i64);
    w.op(TRANSPOSE, Attrs::new().with("perm", perm), &[v])
}

/// The elements of the first dimension from the last to the first.
fn flipped(w: &mut Writer<'_>, v: ValueId) -> Result<ValueId, IrError> {
    let bounds = [w.ints(&[-1])?, w.ints(&[i64::MIN])?, w.ints(&[0])?, w.ints(&[-1])?];
    w.op(SLICE, Attrs::new(), &[v, bounds[0], bounds[1], bounds[2], bounds[3]])
}

/// Puts values in the place of a node's outputs; not where one would stand for two outputs of the graph.
fn put(g: &mut Graph, root: NodeId, results: &[ValueId]) -> bool {
    let Some(old) = g.get(root).map(|n| n.outputs.clone()) else { return false };
    let taken = |k: usize, v: &ValueId| results.iter().take(k).any(|r| r == v) || g.producer(*v).is_none();
    let shared = results.iter().enumerate().any(|(k, v)| taken(k, v));
    let alike = old
        .iter()
        .zip(results)
        .all(|(a, b)| (g.ty(*a).dtype, g.ty(*a).rank()) == (g.ty(*b).dtype, g.ty(*b).rank()));
    if old.len() != results.len() || shared || !alike {
        return false;
    }
    for (&y, &new) in old.iter().zip(results) {
        let dims = g.ty(y).dims.clone();
        g.value_mut(new).fact.ty.dims = dims;
        g.replace_uses(y, new);
    }
    g.remove_node(root);
    for (&y, &new) in old.iter().zip(results) {
        let name = std::mem::take(&mut g.value_mut(y).name);
        g.value_mut(new).name = name;
    }
    true
}
