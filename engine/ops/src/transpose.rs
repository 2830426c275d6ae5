//! `transpose`: axes in another order.

pub mod rearrange;

use crate::indices;
use crate::util::{PLAIN, for_each_index, offset, strides};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::Num;
use kiln_ir::infer::normalize_axis;
use kiln_ir::op::{Movement, OpDef, Roles, attr};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    TRANSPOSE = "transpose",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: TRANSPOSE,
    doc: "Axis i of the output is axis perm[i] of the input. Without `perm` (empty) the order is reversed.",
    attrs: &[attr("perm", || Attr::Ints(vec![]))],
    infer: |cx| {
        let x = cx.ty(0)?;
        let perm = order(cx.attrs, x.rank())?;
        let dims = perm.iter().map(|&p| x.dims[p].clone()).collect();
        indices::infer(cx, TensorType { dtype: x.dtype, dims }, |from, to| Ok(places(&perm, from, to)))
    },
    eval: |cx| {
        let perm = order(cx.attrs(), cx.input(0)?.shape().len())?;
        indices::eval(cx, |from, to| Ok(places(&perm, from, to)))
    },
    problems,
    roles: Roles { absorbs_pointwise: true, movement: Movement::Permutation, ..Roles::NONE },
    ..PLAIN
}];

/// The permutation, checked.
fn order(attrs: &Attrs, rank: usize) -> Result<Vec<usize>, OpError> {
    let given = attrs.ints("perm")?;
    if given.is_empty() {
        return Ok((0..rank).rev().collect());
    }
    let perm = given.iter().map(|&p| normalize_axis(p, rank, "perm")).collect::<Result<Vec<_>, _>>()?;
    if perm.len() != rank || (0..rank).any(|a| !perm.contains(&a)) {
        return Err(OpError::Attr {
            name: "perm".into(),
            found: format!("{given:?}"),
            wanted: format!("each axis of 0..{rank} once"),
        });
    }
    Ok(perm)
}

/// A tensor with its axes in this order.
pub(crate) fn permute(t: &Tensor, perm: &[usize]) -> Result<Tensor, OpError> {
    let shape: Vec<usize> = perm.iter().filter_map(|&p| t.shape().get(p).copied()).collect();
    let elems = indices::take(&t.elems(), &places(perm, t.shape(), &shape), Num::I(0));
    Tensor::from_elems(t.dtype(), &shape, &elems)
        .ok_or_else(|| OpError::Value(format!("{:?} can't be reordered by {perm:?}", t.shape())))
}

fn places(perm: &[usize], from: &[usize], to: &[usize]) -> indices::Moves {
    let own = strides(from);
    let by: Vec<_> = perm.iter().map(|&p| own[p]).collect();
    let mut out = Vec::new();
    for_each_index(to, |at| out.push(Some(offset(at, &by))));
    out
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&[usize], &[i64])] = &[
        (&[5, 7], &[]),
        (&[3, 5, 7], &[0, 2, 1]),
        (&[2, 3, 5, 7], &[0, 2, 3, 1]),
        (&[2, 3, 5, 7], &[-1, 0, -2, 1]),
        (&[33, 65], &[1, 0]),
        (&[3, 40, 72], &[0, 2, 1]),
        (&[2, 3, 24, 24], &[0, 2, 3, 1]),
        (&[3, 2, 16], &[0, 2, 1]),
        (&[3, 16, 4], &[0, 2, 1]),
        (&[2, 6, 128], &[0, 2, 1]),
        (&[128, 6], &[1, 0]),
        (&[2, 7, 67], &[0, 2, 1]),
        (&[2, 67, 7], &[0, 2, 1]),
        (&[2, 24, 24, 3], &[0, 3, 1, 2]),
        (&[2, 5, 64, 17], &[3, 1, 2, 0]),
        (&[2, 1027, 3], &[0, 2, 1]),
        (&[2, 5, 1025], &[0, 2, 1]),
        (&[2, 72, 136], &[0, 2, 1]),
        (&[2, 75, 72], &[0, 2, 1]),
        (&[2, 72, 75], &[0, 2, 1]),
        (&[3, 40, 2, 19], &[3, 1, 0, 2]),
        (&[1, 5, 1], &[2, 0, 1]),
        (&[0, 3], &[1, 0]),
        (&[], &[]),
        (&[2, 1, 3, 2, 3, 2], &[5, 3, 1, 0, 2, 4]),
    ];
    let mut out = Vec::new();
    for &(shape, perm) in cases {
        for t in DType::ALL {
            let op = kiln_ir::problem::op("transpose", Attrs::new().with("perm", perm));
            out.push(Problem::new(&format!("{shape:?} by {perm:?} {t}"), op, [rng.tensor(t, shape)]));
        }
    }
    {
        let op = kiln_ir::problem::op("transpose", Attrs::new());
        let exact = rng.exact_tensors(&[5, 3, 2]);
        out.extend(exact.map(|x| Problem::new("exact values", op.clone(), [x])));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, iota, run, run_all};

    #[test]
    fn axes_move() {
        let x = iota(&[2, 1, 3]);
        let y = run("transpose", Attrs::new().with("perm", vec![2i64, 0, 1]), std::slice::from_ref(&x));
        assert_near(&y, &[3, 2, 1], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0], 0.0);
        let y = run("transpose", Attrs::new(), &[x]);
        assert_near(&y, &[3, 1, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0], 0.0);
    }

    #[test]
    fn what_is_no_permutation_is_refused() {
        for perm in [vec![0i64, 0], vec![0], vec![0, 2]] {
            let attrs = Attrs::new().with("perm", perm);
            assert!(matches!(run_all("transpose", attrs, &[Some(iota(&[2, 2]))]), Err(OpError::Attr { .. })));
        }
    }
}
