//! `sparse_prune`: weights made 2:4 sparse, the elements of greatest magnitude kept.

use super::pack::GROUP;
use crate::util::{PLAIN, strides};
use kiln_ir::attr::Attr;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Roles, attr, input};
use kiln_ir::tensor::{Elems, Tensor};

kiln_ir::op_names! {
    SPARSE_PRUNE = "sparse_prune",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: SPARSE_PRUNE,
    doc: "Keeps the two elements of greatest magnitude of every four neighbours of w along an axis; the others become 0. Of \
          equal ones the first is kept; NaN counts as greatest.",
    inputs: &[input("w")],
    attrs: &[attr("axis", || Attr::Int(-1))],
    infer: |cx: &mut InferCx<'_>| {
        let rank = cx.dims(0)?.len();
        cx.axis("axis", rank)?;
        Ok(vec![Fact::of(cx.ty(0)?.clone())])
    },
    eval,
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

/// Marks of the elements that stay.
pub fn kept(w: &Tensor, axis: usize) -> Vec<bool> {
    let shape = w.shape();
    let (size, step) = (shape[axis], strides(shape)[axis]);
    let magnitude: Vec<f64> = match w.elems() {
        Elems::F(v) => v.into_iter().map(|x| if x.is_nan() { f64::INFINITY } else { x.abs() }).collect(),
        Elems::I(v) => v.into_iter().map(|x| x.unsigned_abs() as f64).collect(),
    };
    let mut keep = vec![true; magnitude.len()];
    let begins = |i: &usize| (i / step % size.max(1)).is_multiple_of(GROUP);
    for first in (0..magnitude.len()).filter(begins) {
        let here = GROUP.min(size - first / step % size);
        let mut group: Vec<usize> = (0..here).map(|c| first + c * step).collect();
        group.sort_by(|&a, &b| magnitude[b].total_cmp(&magnitude[a]).then(a.cmp(&b)));
        group.into_iter().skip(2).for_each(|i| keep[i] = false);
    }
    keep
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let w = cx.input(0)?;
    let axis = kiln_ir::infer::normalize_axis(cx.attrs().int("axis")?, w.shape().len(), "axis")?;
    let keep = kept(w, axis);
    let elems = match w.elems() {
        Elems::F(v) => Elems::F(v.into_iter().zip(keep).map(|(x, k)| if k { x } else { 0.0 }).collect()),
        Elems::I(v) => Elems::I(v.into_iter().zip(keep).map(|(x, k)| if k { x } else { 0 }).collect()),
    };
    Ok(vec![cx.make(0, w.shape(), elems)?])
}
