//! The sums under the gates: products of the state and of elements with matrices, and vectors.

use super::{Class, Found, Walk};
use crate::passes::patterns::Writer;
use crate::passes::patterns::view::input;
use kiln_ir::ValueId;

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
        if let Some([a, b]) = self.pair(v, "add") {
            let last = |v: ValueId| self.body.ty(v).dims.last().cloned();
            if last(a) != last(v) || last(b) != last(v) {
                return Ok(None);
            }
            take!(self.terms(w, state, a, (from, width), out)?);
            return self.terms(w, state, b, (from, width), out);
        }
        let what = take!(self.term(w, state, v)?);
        out.push(Term { what, from, width });
        Ok(Some(()))
    }

    fn term(&mut self, w: &mut Writer<'_>, state: ValueId, v: ValueId) -> Found<What> {
        let Some(n) = self.producer(v).filter(|n| n.op.is("matmul")).cloned() else {
            return Ok(match self.class(w, v)? {
                Some(Class::Fixed(b)) if w.g.ty(b).rank() == 1 => Some(What::Bias(b)),
                _ => None,
            });
        };
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
