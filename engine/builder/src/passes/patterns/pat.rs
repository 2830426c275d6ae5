//! A small matcher: shapes of subgraphs as data.

use super::view::View;
use kiln_ir::OpName;
use kiln_ir::{DType, Graph, Node, NodeId, ValueId};
use kiln_ops::pointwise::binary::{ADD, MAX, MUL};
use kiln_ops::reduce::REDUCE;

/// A pattern of a value and of the layers behind it.
pub enum Pat {
    /// Any value; the same name is the same value everywhere in a pattern.
    Any(&'static str),
    /// A constant of one element that is this number, as far as its type holds it.
    Number(f64),
    /// A constant of one element, which is kept under the name.
    Scalar(&'static str),
    /// The single output of a layer of this operator on these inputs. Inputs of `add`, `mul` and `max` may be swapped.
    Op(OpName, &'static [Pat]),
    /// A `reduce` of this kind that keeps dimensions. All reductions of a pattern are over the same constant axes.
    Reduce(&'static str, &'static Pat),
    /// The first of these that matches.
    Or(&'static [Pat]),
    /// Keeps the value that matches under a name.
    As(&'static str, &'static Pat),
}

/// Values and nodes that a pattern matched.
#[derive(Clone, Debug, Default)]
pub struct Found {
    values: Vec<(&'static str, ValueId)>,
    numbers: Vec<(&'static str, f64)>,
    /// The axes of its reductions, from 0 on, sorted.
    pub axes: Option<Vec<usize>>,
    /// The layers that it covers.
    pub inside: Vec<NodeId>,
}

impl Found {
    /// The value under a name.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.values.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    /// The number under a name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.iter().find(|(n, _)| *n == name).map(|(_, x)| *x)
    }

    fn bind(&mut self, name: &'static str, v: ValueId) -> bool {
        match self.value(name) {
            Some(old) => old == v,
            None => {
                self.values.push((name, v));
                true
            }
        }
    }
}

impl Pat {
    /// Matches at a value.
    pub fn at(&self, view: &View<'_>, v: ValueId) -> Option<Found> {
        let mut found = Found::default();
        self.matches(view, v, &mut found).then_some(found)
    }

    /// Matches at the single output of a node.
    pub fn at_node(&self, view: &View<'_>, node: NodeId) -> Option<Found> {
        match view.g.get(node)?.outputs[..] {
            [y] => self.at(view, y),
            _ => None,
        }
    }

    fn matches(&self, view: &View<'_>, v: ValueId, found: &mut Found) -> bool {
        match self {
            Pat::Any(name) => found.bind(name, v),
            Pat::As(name, p) => p.matches(view, v, found) && found.bind(name, v),
            Pat::Number(want) => view.scalar(v).is_some_and(|x| near(x, *want, view.g.ty(v).dtype)),
            Pat::Scalar(name) => match view.scalar(v) {
                Some(x) => {
                    found.numbers.push((name, x));
                    true
                }
                None => false,
            },
            Pat::Or(list) => list.iter().any(|p| attempt(found, |f| p.matches(view, v, f))),
            Pat::Op(op, args) => {
                let Some((id, node)) = layer(view.g, v, *op) else { return false };
                found.inside.push(id);
                match (&node.inputs[..], args) {
                    ([Some(a), Some(b)], [p, q]) if matches!(*op, ADD | MUL | MAX) => {
                        let both = |a: ValueId, b: ValueId| {
                            move |f: &mut Found| p.matches(view, a, f) && q.matches(view, b, f)
                        };
                        attempt(found, both(*a, *b)) || attempt(found, both(*b, *a))
                    }
                    (given, args) => {
                        given.len() == args.len()
                            && given
                                .iter()
                                .zip(*args)
                                .all(|(v, p)| v.is_some_and(|v| p.matches(view, v, found)))
                    }
                }
            }
            Pat::Reduce(kind, of) => {
                let Some((id, node)) = layer(view.g, v, REDUCE) else { return false };
                let (Some(x), Some(axes)) =
                    (node.inputs.first().copied().flatten(), view.reduced(node, kind))
                else {
                    return false;
                };
                found.inside.push(id);
                found.axes.get_or_insert_with(|| axes.clone()) == &axes && of.matches(view, x, found)
            }
        }
    }
}

/// Tries; what was found stays only after a success.
fn attempt(found: &mut Found, f: impl FnOnce(&mut Found) -> bool) -> bool {
    let before = found.clone();
    let ok = f(found);
    if !ok {
        *found = before;
    }
    ok
}

/// The layer of this operator whose only output is `v`.
fn layer(g: &Graph, v: ValueId, op: OpName) -> Option<(NodeId, &Node)> {
    g.producer(v).filter(|(_, n)| n.op.is(op) && n.outputs.len() == 1)
}

/// Whether `x` is the number, as rounded to this type.
fn near(x: f64, want: f64, dtype: DType) -> bool {
    let rounding = match dtype {
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        _ => 1e-6,
    };
    (x - want).abs() <= rounding * want.abs()
}
