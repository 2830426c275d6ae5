//! Equal pointwise layers behind several values, which can be one layer once the values are one.

use super::view::{View, constant};
use super::{Writer, view};
use kiln_ir::{Attrs, DType, Graph, IrError, Node, NodeId, Op, ValueId};
use kiln_ops::shape::expand::EXPAND;
use kiln_ops::slice::concat::CONCAT;

/// Layers that are looked for behind each value.
const MOST: usize = 4;

/// The layers behind the values.
#[derive(Default)]
pub struct Tail {
    /// The layers, in order.
    steps: Vec<Step>,
    /// Their nodes, the last first.
    pub nodes: Vec<NodeId>,
}

/// An equal layer behind each of the values.
struct Step {
    op: Op,
    /// The position of the value among its inputs.
    at: usize,
    /// Constants that the layers read beside the values.
    others: Vec<Other>,
}

/// A constant that layers read beside the values.
enum Other {
    /// One for all.
    Same(ValueId),
    /// One for each value, with an element for each of its columns, or with a single one.
    Columns(Vec<ValueId>),
}

impl Tail {
    /// Moves values behind pointwise layers of one input that are equal for all, and that alone read them.
    pub fn behind(view: &View<'_>, ends: &mut [ValueId]) -> Tail {
        Tail::with(view, ends, &[])
    }

    /// Moves values behind such layers that may read constants, too: equal ones, or others for the columns of each value. `widths` are
    /// numbers of columns.
    pub fn with_columns(view: &View<'_>, ends: &mut [ValueId], widths: &[i64]) -> Tail {
        Tail::with(view, ends, widths)
    }

    fn with(view: &View<'_>, ends: &mut [ValueId], widths: &[i64]) -> Tail {
        let mut tail = Tail::default();
        while tail.steps.len() < MOST {
            let next: Option<Vec<(NodeId, usize, &Node)>> = ends.iter().map(|&v| next(view, v)).collect();
            let Some(step) = next.as_ref().and_then(|next| step(view.g, next, widths)) else { break };
            for (end, (id, _, n)) in ends.iter_mut().zip(next.into_iter().flatten()) {
                tail.nodes.insert(0, id);
                *end = n.outputs.first().copied().unwrap_or(*end);
            }
            tail.steps.push(step);
        }
        tail
    }

    /// Writes the layers behind a value that has the columns of all; `widths` are those of each.
    pub fn write(&self, w: &mut Writer<'_>, mut y: ValueId, widths: &[i64]) -> Result<ValueId, IrError> {
        for Step { op, at, others } in &self.steps {
            let mut inputs = Vec::with_capacity(others.len() + 1);
            for other in others {
                inputs.push(match other {
                    Other::Same(v) => *v,
                    Other::Columns(all) => joined(w, all, widths)?,
                });
            }
            inputs.insert(*at, y);
            y = w.op(op.id(), op.attrs().clone(), &inputs)?;
        }
        Ok(y)
    }
}

/// Constants of columns, one behind the other.
fn joined(w: &mut Writer<'_>, all: &[ValueId], widths: &[i64]) -> Result<ValueId, IrError> {
    let mut parts = Vec::with_capacity(all.len());
    for (&v, &width) in all.iter().zip(widths) {
        let dims: Vec<i64> = w.g.ty(v).dims.iter().map(|d| d.as_const().unwrap_or(1)).collect();
        let rest = dims.split_last().map_or(&[][..], |(_, rest)| rest);
        let wanted = [rest, &[width]].concat();
        parts.push(match dims == wanted {
            true => v,
            false => {
                let to = w.ints(&wanted)?;
                w.op(EXPAND, Attrs::new(), &[v, to])?
            }
        });
    }
    w.op(CONCAT, Attrs::new().with("axis", -1i64), &parts)
}

/// The equal layer behind each value, if they are equal.
fn step(g: &Graph, next: &[(NodeId, usize, &Node)], widths: &[i64]) -> Option<Step> {
    let &(_, at, first) = next.first()?;
    let commutative = is_commutative(g, first);
    let fits = |i: usize, n: &Node| {
        (i == at || commutative) && n.op == first.op && n.inputs.len() == first.inputs.len()
    };
    if !next.iter().all(|(_, i, n)| fits(*i, n)) {
        return None;
    }
    let beside = (0..first.inputs.len()).filter(|&i| i != at);
    let others = beside.map(|i| {
        // Both operands of a commutative layer may have changed places.
        let other = |&(_, of, n): &(NodeId, usize, &Node)| view::input(n, if of == at { i } else { at });
        let all: Vec<ValueId> = next.iter().map(other).collect::<Option<_>>()?;
        if all.iter().all(|v| *v == all[0]) && one_element(g, all[0]) {
            return Some(Other::Same(all[0]));
        }
        let like = g.ty(all[0]);
        let fits = |(&v, &width): (&ValueId, &i64)| {
            let t = g.ty(v);
            let column = |(k, d): (usize, &kiln_ir::Dim)| d.is(1) || k + 1 == t.rank() && d.is(width);
            t.dtype == like.dtype && t.rank() == like.rank() && t.dims.iter().enumerate().all(column)
        };
        let columns = all.len() == widths.len() && all.iter().zip(widths).all(fits);
        columns.then_some(Other::Columns(all))
    });
    Some(Step { op: first.op.clone(), at, others: others.collect::<Option<_>>()? })
}

fn is_commutative(g: &Graph, n: &Node) -> bool {
    let types: Option<Vec<DType>> = n.inputs.iter().map(|v| Some(g.ty((*v)?).dtype)).collect();
    let expr = n.op.def().expr.zip(types).and_then(|(make, types)| make(n.op.attrs(), &types).ok());
    expr.is_some_and(|e| e.is_commutative())
}

fn one_element(g: &Graph, v: ValueId) -> bool {
    g.ty(v).dims.iter().all(|d| d.is(1))
}

/// The pointwise layer that alone reads a value, beside constants, in the precision of the layer that made it.
fn next<'g>(view: &View<'g>, v: ValueId) -> Option<(NodeId, usize, &'g Node)> {
    let &[(id, at)] = view.readers(v) else { return None };
    let n = view.g.get(id).filter(|n| n.op.is_pointwise() && n.outputs.len() == 1)?;
    let (_, maker) = view.g.producer(v)?;
    let beside = n.inputs.iter().enumerate().filter(|(i, _)| *i != at);
    let constants = beside.map(|(_, v)| *v).all(|v| v.is_some_and(|v| constant(view.g, v)));
    let plain = n.meta.precision == maker.meta.precision && n.meta.output_types.iter().all(Option::is_none);
    let same = view.g.ty(*n.outputs.first()?).dims == view.g.ty(v).dims;
    (constants && plain && same && view.read_once(v)).then_some((id, at, n))
}
