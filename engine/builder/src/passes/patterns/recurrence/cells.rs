//! Cells: what their equations look like in the body of a loop.

use super::{Found, Walk};
use crate::passes::patterns::Writer;
use crate::passes::patterns::view::input;
use kiln_ir::{Attr, Attrs, Dim, OpName, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::activation::SIGMOID;
use kiln_ops::pointwise::binary::{ADD, MUL, SUB};
use kiln_ops::pointwise::clip::RELU;
use kiln_ops::pointwise::unary::TANH;
use kiln_ops::recurrent::{GRU, LSTM, RNN};
use kiln_ops::slice::SLICE;

/// A gate is a function of a sum; behind a reset gate there are two: what is added to the product with the gate, and what
/// the gate multiplies.
pub(super) struct Gate {
    pub sums: Vec<ValueId>,
    /// State that its recurrent weights multiply.
    pub state: ValueId,
}

/// A cell of a loop, in the terms of the operator that it becomes.
pub(super) struct Form {
    pub op: OpName,
    pub gates: Vec<Gate>,
    /// The numbers of the carried values: state, and cell of an LSTM.
    pub carried: (usize, Option<usize>),
    pub attrs: Attrs,
    pub size: i64,
}

impl Walk {
    /// Writes the cell whose new state is carried value `i`, if it is one.
    pub(super) fn cell(&mut self, w: &mut Writer<'_>, i: usize) -> Found<()> {
        let found = take!(self.find(i));
        self.write(w, &found)
    }

    fn find(&self, i: usize) -> Option<Form> {
        let (h, old) = (*self.body.outputs.get(i)?, *self.body.inputs.get(i)?);
        let ty = self.body.ty(old);
        let size = ty.dims.get(1).and_then(Dim::as_const);
        let size = size.filter(|_| ty.rank() == 2 && ty.dtype.is_float())?;
        let plain = |sums: Vec<ValueId>| Gate { sums, state: old };
        let direction = if self.backward { "reverse" } else { "forward" };
        let attrs = Attrs::new().with("direction", direction);
        if let Some((sums, c)) = self.lstm(h) {
            let gates = sums.into_iter().map(|s| plain(vec![s])).collect();
            return Some(Form { op: LSTM, gates, carried: (i, Some(c)), attrs, size });
        }
        if let Some([z, n]) = self.update(h, old) {
            let (gates, late) = match self.reset_behind(n) {
                Some((r, sums)) => (vec![plain(vec![z]), plain(vec![r]), plain(sums.to_vec())], true),
                None => {
                    let (r, state) = self.reset_before(n, old)?;
                    let new = Gate { sums: vec![n], state };
                    (vec![plain(vec![z]), plain(vec![r]), new], false)
                }
            };
            let attrs = attrs.with("linear_before_reset", late);
            return Some(Form { op: GRU, gates, carried: (i, None), attrs, size });
        }
        [TANH, RELU].into_iter().find_map(|f| {
            let gates = vec![plain(vec![self.single(h, f)?])];
            let attrs = attrs.clone().with("activations", Attr::Strs(vec![f.as_str().to_owned()]));
            Some(Form { op: RNN, gates, carried: (i, None), attrs, size })
        })
    }

    /// h = σ(o) tanh(c), c = σ(f) c₀ + σ(i) tanh(g): the sums i o f g, and which carried value c is.
    fn lstm(&self, h: ValueId) -> Option<([ValueId; 4], usize)> {
        self.either(h, MUL)?.into_iter().find_map(|[o, tanh]| {
            let (o, c) = (self.single(o, SIGMOID)?, self.single(tanh, TANH)?);
            let at = self.body.outputs.get(..self.shape.carried)?.iter().position(|&v| v == c)?;
            let before = *self.body.inputs.get(at)?;
            self.either(c, ADD)?.into_iter().find_map(|[keep, add]| {
                let f = self.either(keep, MUL)?.into_iter().find(|p| p[1] == before)?[0];
                let f = self.single(f, SIGMOID)?;
                self.either(add, MUL)?.into_iter().find_map(|[i, g]| {
                    let (i, g) = (self.single(i, SIGMOID)?, self.single(g, TANH)?);
                    Some(([i, o, f, g], at))
                })
            })
        })
    }

    /// h = (1 − σ(z)) tanh(n) + σ(z) h₀: the sums z and n.
    fn update(&self, h: ValueId, old: ValueId) -> Option<[ValueId; 2]> {
        self.either(h, ADD)?.into_iter().find_map(|[new, keep]| {
            let gate = self.either(keep, MUL)?.into_iter().find(|p| p[1] == old)?[0];
            let n = self.either(new, MUL)?.into_iter().find_map(|[rest, n]| {
                let [one, z] = self.pair(rest, SUB)?;
                (z == gate && self.one(one)).then_some(n)
            })?;
            Some([self.single(gate, SIGMOID)?, self.single(n, TANH)?])
        })
    }

    /// n = x + σ(r) y: the sum r, then x and y.
    fn reset_behind(&self, n: ValueId) -> Option<(ValueId, [ValueId; 2])> {
        self.either(n, ADD)?.into_iter().find_map(|[x, product]| {
            let mut either = self.either(product, MUL)?.into_iter();
            either.find_map(|[r, y]| Some((self.single(r, SIGMOID)?, [x, y])))
        })
    }

    /// n = … + (σ(r) h₀) R + …: the sum r, and the product that the weights multiply.
    fn reset_before(&self, n: ValueId, old: ValueId) -> Option<(ValueId, ValueId)> {
        if let Some([a, b]) = self.pair(n, ADD) {
            return self.reset_before(a, old).or_else(|| self.reset_before(b, old));
        }
        let product = self.single(n, MATMUL).or_else(|| {
            // Columns of a product.
            self.columns(n).and_then(|(x, ..)| self.single(x, MATMUL))
        })?;
        let gate = self.either(product, MUL)?.into_iter().find(|p| p[1] == old)?[0];
        Some((self.single(gate, SIGMOID)?, product))
    }

    fn one(&self, v: ValueId) -> bool {
        self.constant(v).is_some_and(|t| t.len() == 1 && t.scalar_f64() == Some(1.0))
    }

    /// Columns of a value that a slice along its last dimension takes: the source, the first column, and
    /// their number.
    pub(super) fn columns(&self, v: ValueId) -> Option<(ValueId, i64, i64)> {
        let n = self.producer(v).filter(|n| n.op.is(SLICE))?;
        let ints = |i: usize| Some(self.constant(input(n, i)?)?.to_i64());
        let x = input(n, 0)?;
        let (rank, all) = (self.body.ty(x).rank() as i64, self.body.ty(x).dims.last()?.as_const()?);
        let (&[from], &[to], &[axis]) = (&ints(1)?[..], &ints(2)?[..], &ints(3)?[..]) else { return None };
        let step = if input(n, 4).is_some() { ints(4)? } else { vec![1] };
        let fits = (axis == rank - 1 || axis == -1) && step == [1] && (0..=all).contains(&from) && from <= to;
        fits.then_some((x, from, to.min(all) - from))
    }
}
