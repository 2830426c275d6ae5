//! `gather_elements` and `gather_nd`: elements, or slices, picked by an index each.

use crate::indices::{self, Moves, check_index_dtype, wrap_index};
use crate::util::{PLAIN, for_each_index, offset, strides};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ, normalize_axis, unify};
use kiln_ir::op::{Op, OpDef, Port, attr, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::range::{IndexRange, RangeCx, UNKNOWN};
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::{TensorType, dims_text};

const PORTS: &[Port] = &[input("x"), input("indices")];

kiln_ir::op_names! {
    GATHER_ELEMENTS = "gather_elements",
    GATHER_ND = "gather_nd",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: GATHER_ELEMENTS,
        doc: "y[p] = x[p with p[axis] = indices[p]] for every index p of `indices`. Negative indices count from the end; one \
              out of range is an error.",
        inputs: PORTS,
        attrs: &[attr("axis", || Attr::Int(0))],
        infer: infer_elements,
        eval: eval_elements,
        ranges: Some(|cx| Ok(vec![IndexRange::signed(1, cx.size(0, cx.axis("axis", 0)?))])),
        problems: element_problems,
        ..PLAIN
    },
    OpDef {
        name: GATHER_ND,
        doc: "For every index p of all but the last dimension of `indices`: the slice x[indices[p]] (after the first \
              `batch_dims` dimensions, which both share). Negative indices count from the end; one out of range is an error.",
        inputs: PORTS,
        attrs: &[attr("batch_dims", || Attr::Int(0))],
        infer: infer_nd,
        eval: eval_nd,
        ranges: Some(ranges_nd),
        problems: nd_problems,
        ..PLAIN
    },
];

fn infer_elements(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    check_index_dtype(cx, 1)?;
    let x = cx.ty(0)?;
    let axis = cx.axis("axis", x.rank())?;
    cx.check_rank(1, x.rank())?;
    let indices = cx.dims(1)?;
    let larger =
        |i: usize| matches!((x.dims[i].as_const(), indices[i].as_const()), (Some(a), Some(b)) if b > a);
    if let Some(i) = (0..x.rank()).find(|&i| i != axis && larger(i)) {
        return Err(cx.bad_shape(1, &format!("at most {} in dimension {i}, as input 0 has", x.dims[i])));
    }
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims: indices.to_vec() })])
}

fn eval_elements(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let indices = cx.input(1)?.to_i64();
    let axis = normalize_axis(cx.attrs().int("axis")?, cx.input(0)?.shape().len(), "axis")?;
    indices::eval(cx, |from, to| {
        let own = strides(from);
        let mut v = Vec::with_capacity(indices.len());
        for_each_index(to, |at| {
            let i = indices.get(v.len()).and_then(|&i| wrap_index(i, from[axis]));
            v.push(i.map(|i| offset(at, &own) - at[axis] * own[axis] + i * own[axis]));
        });
        Ok(v)
    })
}

/// The number of shared dimensions, and of dimensions that a tuple indexes.
fn split(attrs: &Attrs, x: usize, indices: usize, last: Option<i64>) -> Result<(usize, usize), OpError> {
    let b = attrs.int("batch_dims")?;
    let batch = usize::try_from(b).ok().filter(|&b| b < indices && b <= x).ok_or_else(|| OpError::Attr {
        name: "batch_dims".into(),
        found: b.to_string(),
        wanted: format!("0 to less than the rank of the indices, {indices}, and at most {x}"),
    })?;
    let depth = last.and_then(|d| usize::try_from(d).ok()).filter(|d| d + batch <= x);
    depth.map(|d| (batch, d)).ok_or_else(|| OpError::Shape {
        input: 1,
        found: last.map_or("?".into(), |l| format!("..,{l}")),
        wanted: format!("a last dimension that is known and at most {}", x - batch),
    })
}

fn infer_nd(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    check_index_dtype(cx, 1)?;
    cx.check_shape(1, |d| !d.is_empty(), "at least one dimension")?;
    let (x, indices) = (cx.ty(0)?, cx.dims(1)?);
    let last = indices.last().and_then(|d| d.as_const());
    let (batch, depth) = split(cx.attrs, x.rank(), indices.len(), last)?;
    let mut dims = Vec::new();
    for (a, b) in x.dims[..batch].iter().zip(indices) {
        dims.push(unify(a, b).filter(|_| !differ(a, b)).ok_or_else(|| OpError::Mismatch {
            a: dims_text(&x.dims),
            b: dims_text(indices),
            wanted: format!("the first {batch} dimensions must be equal"),
        })?);
    }
    dims.extend_from_slice(&indices[batch..indices.len() - 1]);
    dims.extend_from_slice(&x.dims[batch + depth..]);
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

fn eval_nd(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let indices = cx.input(1)?;
    let shape = indices.shape();
    let last = shape.last().map(|&d| d as i64);
    let (batch, depth) = split(cx.attrs(), cx.input(0)?.shape().len(), shape.len(), last)?;
    let values = indices.to_i64();
    let per_batch: usize = shape[batch..shape.len() - 1].iter().product();
    let batches: usize = shape[..batch].iter().product();
    indices::eval(cx, |from, _| {
        let own = strides(from);
        let slice: usize = from[batch + depth..].iter().product();
        let batch_size: usize = from[batch..].iter().product();
        let mut v: Moves = Vec::new();
        for t in 0..batches * per_batch {
            let tuple = (0..depth)
                .map(|d| Some(wrap_index(values[t * depth + d], from[batch + d])? * own[batch + d]));
            let base = tuple.sum::<Option<usize>>().map(|o| o + t / per_batch.max(1) * batch_size);
            v.extend((0..slice).map(|i| base.map(|b| b + i)));
        }
        Ok(v)
    })
}

fn ranges_nd(cx: &RangeCx<'_>) -> Result<Vec<IndexRange>, OpError> {
    let (x, indices) = (cx.dims(0), cx.dims(1));
    let last = indices.last().copied().filter(|&n| n != UNKNOWN);
    let (batch, depth) = split(cx.attrs, x.len(), indices.len(), last)?;
    Ok(vec![IndexRange::tuples(1, &x[batch..batch + depth])])
}

const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::I64, DType::U8, DType::Bool];

fn problems(rng: &mut Rng, op: &Op, x: &[usize], indices: &[usize], most: i64) -> Vec<Problem> {
    let n = indices.iter().product();
    let mut one = |t: DType| {
        let v: Vec<i64> = (0..n).map(|_| rng.int(-most, most - 1)).collect();
        Problem::new(
            &format!("{x:?} by {indices:?} {t}"),
            op.clone(),
            [rng.tensor(t, x), rng.i64s(indices, &v)],
        )
    };
    TYPES.into_iter().map(&mut one).collect()
}

fn element_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (x, indices, axis) in [
        (&[5, 7][..], &[3, 7][..], 0),
        (&[4, 6], &[4, 9], 1),
        (&[3, 2, 5], &[3, 2, 4], -1),
        (&[4, 6], &[4, 0], 1),
        (&[9, 24], &[6, 24], 0),
        (&[3, 5, 16], &[3, 5, 40], -1),
        (&[2, 7, 8], &[2, 4, 8], 1),
        (&[4, 6, 10], &[3, 9, 5], 1),
        (&[2, 9, 6, 16], &[2, 5, 3, 8], 1),
    ] {
        let op = kiln_ir::problem::op("gather_elements", Attrs::new().with("axis", axis as i64));
        let n = x[if axis < 0 { x.len() - 1 } else { axis as usize }];
        out.extend(problems(rng, &op, x, indices, n as i64));
    }
    out
}

fn nd_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (x, indices, batch) in [
        (&[4, 4, 3][..], &[5, 2][..], 0),
        (&[4, 3], &[6, 1], 0),
        (&[2, 4, 3], &[2, 5, 1], 1),
        (&[3, 3], &[0, 2], 0),
    ] {
        let op = kiln_ir::problem::op("gather_nd", Attrs::new().with("batch_dims", batch as i64));
        out.extend(problems(rng, &op, x, indices, 3));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, ints, iota, run, run_all};

    #[test]
    fn elements_along_an_axis() {
        let ins = [f32s(&[2, 2], &[1., 2., 3., 4.]), ints(DType::I64, &[2, 2], &[0, 0, 1, 0])];
        assert_eq!(run("gather_elements", Attrs::new().with("axis", 1i64), &ins).to_f64(), [1., 1., 4., 3.]);
    }

    #[test]
    fn slices_by_tuples() {
        let y =
            run("gather_nd", Attrs::new(), &[iota(&[2, 2, 2]), ints(DType::I64, &[2, 1, 2], &[0, 1, 1, 0])]);
        assert_eq!((y.shape(), y.to_f64()), (&[2, 1, 2][..], vec![2., 3., 4., 5.]));
        let attrs = Attrs::new().with("batch_dims", 1i64);
        let y = run("gather_nd", attrs, &[iota(&[2, 2, 2]), ints(DType::I64, &[2, 1], &[1, 0])]);
        assert_eq!((y.shape(), y.to_f64()), (&[2, 2][..], vec![2., 3., 4., 5.]));
    }

    #[test]
    fn too_deep_a_tuple_is_refused() {
        let ins = [iota(&[2, 2]), ints(DType::I64, &[1, 3], &[0, 0, 0])];
        assert!(run_all("gather_nd", Attrs::new(), &ins.map(Some)).is_err());
    }
}
