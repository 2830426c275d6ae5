//! `gather`: slices picked by an index tensor.

pub mod each;

use crate::indices::{self, Moves, check_index_dtype, wrap_index};
use crate::util::{PLAIN, for_each_index, offset, strides};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, normalize_axis, unify};
use kiln_ir::op::{OpDef, Roles, attr, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::range::IndexRange;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::{TensorType, dims_text};

kiln_ir::op_names! {
    GATHER = "gather",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: GATHER,
    doc: "y[b.., i.., j.., k..] = x[b.., i.., indices[b.., j..], k..]: slices of x along `axis` picked by indices \
              (i32 or i64); the first `batch_dims` dimensions are common to both. Negative indices count from the end; \
              one out of range is an error.",
    inputs: &[input("x"), input("indices")],
    attrs: &[attr("axis", || Attr::Int(0)), attr("batch_dims", || Attr::Int(0))],
    infer,
    eval,
    ranges: Some(|cx| Ok(vec![IndexRange::signed(1, cx.size(0, cx.axis("axis", 0)?))])),
    problems,
    roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
    ..PLAIN
}];

/// The number of leading dimensions that x and indices share, at most `limit`.
fn batch_dims(attrs: &Attrs, limit: usize) -> Result<usize, OpError> {
    let given = attrs.int("batch_dims")?;
    usize::try_from(given).ok().filter(|&b| b <= limit).ok_or_else(|| OpError::Attr {
        name: "batch_dims".into(),
        found: given.to_string(),
        wanted: format!("in 0..={limit}"),
    })
}

fn common_dims(x: &[Dim], indices: &[Dim], batch: usize) -> Result<Vec<Dim>, OpError> {
    let misfit = || OpError::Mismatch {
        a: dims_text(x),
        b: dims_text(indices),
        wanted: format!("the first {batch} dimensions must be equal"),
    };
    x.iter().zip(indices).take(batch).map(|(a, b)| unify(a, b).ok_or_else(misfit)).collect()
}

fn axis_and_batch(attrs: &Attrs, x: usize, indices: usize) -> Result<(usize, usize), OpError> {
    let axis = normalize_axis(attrs.int("axis")?, x, "axis")?;
    Ok((axis, batch_dims(attrs, axis.min(indices))?))
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let (x, i) = (cx.ty(0)?, cx.ty(1)?);
    check_index_dtype(cx, 1)?;
    let (axis, batch) = axis_and_batch(cx.attrs, x.rank(), i.rank())?;
    let mut dims = common_dims(&x.dims, &i.dims, batch)?;
    dims.extend_from_slice(&x.dims[batch..axis]);
    dims.extend_from_slice(&i.dims[batch..]);
    dims.extend_from_slice(&x.dims[axis + 1..]);
    let ty = TensorType { dtype: x.dtype, dims };
    match cx.fact(1).and_then(Fact::as_const) {
        Some(indices) => indices::infer(cx, ty, |from, _| Ok(gathered(from, indices, axis, batch))),
        None => Ok(vec![Fact::of(ty)]),
    }
}

fn gathered(from: &[usize], indices: &Tensor, axis: usize, batch: usize) -> Moves {
    let (own, by) = (strides(from), strides(indices.shape()));
    let values = indices.to_i64();
    let picked = indices.shape().len() - batch;
    let to = [&from[..axis], &indices.shape()[batch..], &from[axis + 1..]].concat();
    let mut out = Vec::new();
    for_each_index(&to, |at| {
        let (before, rest) = at.split_at(axis);
        let (pick, after) = rest.split_at(picked);
        let value = values[offset(&[&before[..batch], pick].concat(), &by)];
        let base = offset(before, &own) + offset(after, &own[axis + 1..]);
        out.push(wrap_index(value, from[axis]).map(|i| base + i * own[axis]));
    });
    out
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let indices = cx.input(1)?;
    let (axis, batch) = axis_and_batch(cx.attrs(), cx.input(0)?.shape().len(), indices.shape().len())?;
    indices::eval(cx, |from, _| Ok(gathered(from, indices, axis, batch)))
}

/// Indices in `-size..size`, as i64 or i32.
fn indices(rng: &mut Rng, t: DType, shape: &[usize], size: usize) -> Tensor {
    let size = size as i64;
    let v = (0..shape.iter().product()).map(|_| rng.int(-size, size - 1)).collect();
    Tensor::from_elems(t, shape, &kiln_ir::tensor::Elems::I(v)).unwrap_or_else(|| rng.i64s(&[0], &[]))
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], &[usize], i64, i64)] = &[
        ("rows", &[7, 5], &[3], 0, 0),
        ("embedding", &[50, 33], &[2, 9], 0, 0),
        ("columns", &[3, 7], &[2, 2], 1, 0),
        ("scalar index", &[4, 3, 5], &[], -2, 0),
        ("batched", &[2, 3, 7, 5], &[2, 3, 4], 2, 2),
        ("batched rows", &[3, 6], &[3, 2], 1, 1),
        ("no indices", &[4, 3], &[0], 0, 0),
        ("empty slices", &[4, 0], &[3], 0, 0),
        ("vector", &[9], &[5], -1, 0),
    ];
    let mut out = Vec::new();
    for &(label, x, i, axis, batch) in cases {
        for t in DType::ALL {
            let attrs = Attrs::new().with("axis", axis).with("batch_dims", batch);
            let op = kiln_ir::problem::op("gather", attrs);
            let size = x[axis.rem_euclid(x.len() as i64) as usize];
            let index_type = if t == DType::F16 { DType::I32 } else { DType::I64 };
            let ins = [rng.tensor(t, x), indices(rng, index_type, i, size)];
            out.push(Problem::new(&format!("{label} {t}"), op, ins));
        }
    }
    {
        let op = kiln_ir::problem::op("gather", Attrs::new());
        let at = rng.i64s(&[3], &[-1, 2, 0]);
        let exact = rng.exact_tensors(&[4, 3]);
        out.extend(exact.map(|x| Problem::new("exact values", op.clone(), [x, at.clone()])));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, iota, run, run_all};
    use kiln_ir::op::Op;

    fn at(shape: &[usize], v: &[i64]) -> Tensor {
        Tensor::i64(shape, v).unwrap()
    }

    #[test]
    fn slices_by_index() {
        let x = iota(&[3, 2]);
        let y = run("gather", Attrs::new(), &[x.clone(), at(&[2, 2], &[0, 1, 1, -1])]);
        assert_near(&y, &[2, 2, 2], &[0.0, 1.0, 2.0, 3.0, 2.0, 3.0, 4.0, 5.0], 0.0);
        let y = run("gather", Attrs::new().with("axis", 1), &[x.clone(), at(&[], &[1])]);
        assert_near(&y, &[3], &[1.0, 3.0, 5.0], 0.0);
        let e = run_all("gather", Attrs::new(), &[Some(x.clone()), Some(at(&[3], &[2, -4, 3]))]).unwrap_err();
        assert_eq!(e.to_string(), "gather: element 1 of input 1 (\"indices\") is -4, wants -3 to 2");
        let attrs = Attrs::new().with("axis", 1).with("batch_dims", 1);
        let y = run("gather", attrs, &[x, at(&[3, 1], &[1, 0, 1])]);
        assert_near(&y, &[3, 1], &[1.0, 2.0, 5.0], 0.0);
    }

    #[test]
    fn contents_are_picked() {
        let dims = vec![Dim::host("b"), 3.into(), Dim::host("h")];
        let shape = Fact::contents(TensorType::new(DType::I64, [3]), dims);
        let pick = |t: Tensor| {
            let ins = [Some(shape.clone()), Some(Fact::constant(t))];
            Op::new("gather", Attrs::new()).unwrap().infer(&ins, "t").unwrap()[0].as_dims()
        };
        assert_eq!(pick(at(&[], &[0])), Some(vec![Dim::host("b")]));
        assert_eq!(pick(at(&[2], &[-1, 1])), Some(vec![Dim::host("h"), 3.into()]));
    }

    #[test]
    fn mistakes_are_named() {
        let (x, floats) = (iota(&[2, 3]), f32s(&[1], &[0.0]));
        let bad = run_all("gather", Attrs::new(), &[Some(x.clone()), Some(floats)]);
        assert!(matches!(bad, Err(OpError::DType { input: 1, .. })));
        let attrs = Attrs::new().with("batch_dims", 1);
        let bad = run_all("gather", attrs, &[Some(x), Some(at(&[1], &[0]))]);
        assert!(matches!(bad, Err(OpError::Attr { .. })));
    }
}
