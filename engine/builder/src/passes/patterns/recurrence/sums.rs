//! The sums under the gates: products of the state and of elements with matrices, and vectors.

use super::{Class, Found, Walk};
use crate::passes::patterns::Writer;
use crate::passes::patterns::view::input;
use kiln_ir::{Graph, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::ADD;

/// A part of a sum, of which the columns of a gate.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub what: What,
    pub from: i64,
    pub width: i64,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum What {
    /// A product of the state: matrix, and whether its rows are the columns of the product.
    State(ValueId, bool),
    /// A product of these elements.
    Input(ValueId, ValueId, bool),
    Bias(ValueId),
}

/// Terms of a sum at most.
const MOST: usize = 16;

impl Walk {
    /// The terms of a sum, of these columns (first, how many).
    pub(super) fn terms(
        &mut self,
        w: &mut Writer<'_>,
        state: ValueId,
        v: ValueId,
        (from, width): (i64, i64),
        out: &mut Vec<Term>,
    ) -> Found<()> {
        if out.len() > MOST {
            return Ok(None);
        }
        if let Some((x, start, n)) = self.columns(v) {
            return match from + width <= n {
                true => self.terms(w, state, x, (start + from, width), out),
                false => Ok(None),
            };
        }
        if let Some([a, b]) = self.pair(v, ADD) {
            let last = |v: ValueId| self.body.ty(v).dims.last().cloned();
            if last(a) != last(v) || last(b) != last(v) {
                return Ok(None);
            }
            take!(self.terms(w, state, a, (from, width), out)?);
            return self.terms(w, state, b, (from, width), out);
        }
        let what = match self.producer(v).is_some_and(|n| n.op.is(MATMUL)) {
            true => take!(self.product(w, state, v)?),
            false => match self.class(w, v)? {
                Some(Class::Fixed(b)) if w.g.ty(b).rank() == 1 => What::Bias(b),
                Some(Class::Each(all)) => return Ok(before(w.g, all, (from, width), MOST, out)),
                _ => return Ok(None),
            },
        };
        out.push(Term { what, from, width });
        Ok(Some(()))
    }

    /// A product of the state, or of elements, with a matrix.
    fn product(&mut self, w: &mut Writer<'_>, state: ValueId, v: ValueId) -> Found<What> {
        let n = take!(self.producer(v)).clone();
        let (a, m) = (take!(input(&n, 0)), take!(input(&n, 1)));
        let attrs = n.op.attrs();
        let flat = self.body.ty(m).rank() == 2 && self.body.ty(a).rank() == 2;
        if attrs.bool("trans_a") != Ok(false) || !flat {
            return Ok(None);
        }
        let across = attrs.bool("trans_b") == Ok(true);
        let Some(Class::Fixed(m)) = self.class(w, m)? else { return Ok(None) };
        if a == state {
            return Ok(Some(What::State(m, across)));
        }
        Ok(match self.class(w, a)? {
            Some(Class::Each(all)) => Some(What::Input(all, m, across)),
            _ => None,
        })
    }
}

/// The terms of a sum, of these columns, that is there for all elements before the loop begins: a product of all elements with
/// a matrix, and vectors. Sums lie in each other `depth` deep at most.
fn before(
    g: &Graph,
    all: ValueId,
    (from, width): (i64, i64),
    depth: usize,
    out: &mut Vec<Term>,
) -> Option<()> {
    let (_, node) = g.producer(all)?;
    let parts = [input(node, 0)?, input(node, 1)?];
    let rank = |v: ValueId| g.ty(v).rank();
    let last = |v: ValueId| g.ty(v).dims.last();
    if node.op.is(MATMUL) {
        let [x, m] = parts;
        let attrs = node.op.attrs();
        let fits = rank(x) == 3 && rank(m) == 2 && attrs.bool("trans_a") == Ok(false);
        let what = What::Input(x, m, attrs.bool("trans_b") == Ok(true));
        return fits.then(|| out.push(Term { what, from, width }));
    }
    if !node.op.is(ADD) || parts.iter().any(|v| last(*v) != last(all)) {
        return None;
    }
    parts.into_iter().try_for_each(|v| match rank(v) {
        1 => {
            out.push(Term { what: What::Bias(v), from, width });
            Some(())
        }
        _ => before(g, v, (from, width), depth.checked_sub(1)?, out),
    })
}
