//! Recurrent operators in the place of cells.

use super::cells::{Form, Gate};
use super::sums::{Term, What};
use super::{Cell, Class, Found, Walk};
use crate::passes::patterns::Writer;
use kiln_ir::{Attrs, Dim, IrError, ValueId};
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::shape::expand::EXPAND;
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::transpose::TRANSPOSE;

/// Operands of a recurrent operator, gate by gate.
#[derive(Default)]
struct Parts {
    /// The elements, the same for all gates.
    x: Option<ValueId>,
    /// Rows of the weights of elements and of the state.
    ws: Vec<ValueId>,
    rs: Vec<ValueId>,
    /// Vectors that are added, those behind a reset gate apart.
    biases: Vec<Vec<ValueId>>,
    late: Vec<Vec<ValueId>>,
}

impl Walk {
    /// Writes the operator of a cell.
    pub(super) fn write(&mut self, w: &mut Writer<'_>, form: &Form) -> Found<()> {
        let mut parts = Parts::default();
        for gate in &form.gates {
            take!(self.gate(w, gate, form.size, &mut parts)?);
        }
        let x = take!(parts.x);
        let inputs = take!(self.operands(w, form, &parts, x)?);
        let dtype = w.g.ty(x).dtype;
        let same = inputs.iter().flatten().all(|&v| w.g.ty(v).dtype == dtype) && w.g.ty(x).rank() == 3;
        if !same {
            return Ok(None);
        }
        let y = w.node(form.op, form.attrs.clone(), &inputs)?;
        let outputs = w.g.producer(y).map(|(_, n)| n.outputs.clone()).unwrap_or_default();
        let each = without(w, y, 1)?;
        let mut last = [None, None];
        for (to, &v) in last.iter_mut().zip(outputs.iter().skip(1)) {
            *to = Some(without(w, v, 0)?);
        }
        let (h, c) = form.carried;
        if let Some(&new) = self.body.outputs.get(h) {
            self.known.insert(new, Some(Class::Each(each)));
        }
        self.cells.push(Cell { h, c, last });
        Ok(Some(()))
    }

    /// Adds what a gate is made of: one product of the state, one of elements, vectors.
    fn gate(&mut self, w: &mut Writer<'_>, gate: &Gate, size: i64, parts: &mut Parts) -> Found<()> {
        let mut sums = Vec::new();
        for &v in &gate.sums {
            let mut terms = Vec::new();
            take!(self.terms(w, gate.state, v, (0, size), &mut terms)?);
            sums.push(terms);
        }
        // Behind a reset gate the state's product must be alone with its bias.
        let apart = sums.len() == 2;
        let of_state = |t: &Term| matches!(t.what, What::State(..));
        let of_input = |t: &Term| matches!(t.what, What::Input(..));
        if apart && (sums[0].iter().any(of_state) || sums[1].iter().any(of_input)) {
            return Ok(None);
        }
        let (mut biases, mut late) = (Vec::new(), Vec::new());
        let wanted = (parts.ws.len() + 1, parts.rs.len() + 1);
        for (k, t) in sums.iter().enumerate().flat_map(|(k, p)| p.iter().map(move |t| (k, t))) {
            match t.what {
                What::State(m, across) => parts.rs.push(rows(w, m, across, t)?),
                What::Input(all, m, across) => {
                    if parts.x.is_some_and(|x| x != all) {
                        return Ok(None);
                    }
                    parts.x = Some(all);
                    parts.ws.push(rows(w, m, across, t)?);
                }
                What::Bias(b) => {
                    let b = slice(w, b, 0, t)?;
                    if apart && k == 1 { late.push(b) } else { biases.push(b) }
                }
            }
        }
        parts.biases.push(biases);
        parts.late.push(late);
        Ok(((parts.ws.len(), parts.rs.len()) == wanted).then_some(()))
    }

    /// The operator's inputs.
    fn operands(
        &self,
        w: &mut Writer<'_>,
        form: &Form,
        parts: &Parts,
        x: ValueId,
    ) -> Found<Vec<Option<ValueId>>> {
        let mut vectors = Vec::new();
        for part in parts.biases.iter().chain(&parts.late) {
            vectors.push(sum(w, part, form.size, x)?);
        }
        let stacked = [&parts.ws, &parts.rs, &vectors].map(|p| stack(w, p));
        let [weights, recurrent, bias] = stacked;
        let start = self.shape.initials().start;
        let initial = |i: usize| self.inputs.get(start + i).copied();
        let (h, c) = form.carried;
        let h0 = first(w, take!(initial(h)))?;
        let mut inputs = vec![Some(x), Some(weights?), Some(recurrent?), Some(bias?), None, Some(h0)];
        if let Some(c) = c {
            inputs.push(Some(first(w, take!(initial(c)))?));
        }
        Ok(Some(inputs))
    }
}

/// The sum of vectors of one length, zeros of the type of `x` where there are none.
fn sum(w: &mut Writer<'_>, parts: &[ValueId], size: i64, x: ValueId) -> Result<ValueId, IrError> {
    let Some((&one, more)) = parts.split_first() else {
        let zero = w.scalar(0.0, w.g.ty(x).dtype)?;
        let shape = w.ints(&[size])?;
        return w.op(EXPAND, Attrs::new(), &[zero, shape]);
    };
    more.iter().try_fold(one, |all, &b| w.op(ADD, Attrs::new(), &[all, b]))
}

/// Rows under each other, with a first dimension of 1.
fn stack(w: &mut Writer<'_>, parts: &[ValueId]) -> Result<ValueId, IrError> {
    let one = match parts {
        [one] => *one,
        _ => w.op(CONCAT, Attrs::new().with("axis", 0i64), parts)?,
    };
    first(w, one)
}

/// The rows of a gate of a matrix [columns, depth], or the columns of its transpose, as rows.
fn rows(w: &mut Writer<'_>, m: ValueId, across: bool, t: &Term) -> Result<ValueId, IrError> {
    let part = slice(w, m, i64::from(!across), t)?;
    match across {
        true => Ok(part),
        false => w.op(TRANSPOSE, Attrs::new().with("perm", vec![1i64, 0]), &[part]),
    }
}

fn slice(w: &mut Writer<'_>, v: ValueId, axis: i64, t: &Term) -> Result<ValueId, IrError> {
    let whole = w.g.ty(v).dims.get(axis as usize).and_then(Dim::as_const) == Some(t.width);
    if whole && t.from == 0 {
        return Ok(v);
    }
    w.slice(v, axis, t.from, t.from + t.width)
}

/// Adds a first dimension of 1.
fn first(w: &mut Writer<'_>, v: ValueId) -> Result<ValueId, IrError> {
    let axes = w.ints(&[0])?;
    w.op(UNSQUEEZE, Attrs::new(), &[v, axes])
}

/// Removes a dimension of 1.
fn without(w: &mut Writer<'_>, v: ValueId, axis: i64) -> Result<ValueId, IrError> {
    let axes = w.ints(&[axis])?;
    w.op(SQUEEZE, Attrs::new(), &[v, axes])
}
