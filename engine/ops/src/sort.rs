//! `topk`: the largest or smallest elements along an axis.

use crate::indices::take;
use crate::util::{PLAIN, for_each_group, mask_of};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::Num;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{OpDef, attr, input};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use std::cmp::Ordering;

kiln_ir::op_names! {
    TOPK = "topk",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: TOPK,
    doc: "The k largest (or smallest) elements along an axis with their i64 positions. Sorted; of equal elements the \
              one at the lower position comes first. NaN counts as larger than everything.",
    inputs: &[input("x"), input("k").on_host()],
    outputs: &["values", "indices"],
    attrs: &[
        attr("axis", || Attr::Int(-1)),
        attr("largest", || Attr::Bool(true)),
        attr("sorted", || Attr::Bool(true)),
    ],
    infer: infer_topk,
    eval: eval_topk,
    problems: topk_problems,
    ..PLAIN
}];

fn infer_topk(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    cx.check_dtype(0, |d| d != DType::Bool, "a number type")?;
    cx.check_dtype(1, |d| d.is_int(), "an integer type")?;
    cx.check_shape(1, |d| d.iter().all(|d| d.is(1)), "a scalar or one element")?;
    cx.check_shape(0, |d| !d.is_empty(), "at least one dimension")?;
    let axis = cx.axis("axis", x.rank())?;
    let k = cx.contents(1).and_then(|v| v.first().cloned()).filter(|k| !k.has_content());
    let k = k.unwrap_or_else(|| cx.fresh_from(1, "k", Some(x.dims[axis].clone())));
    if let (Some(k), Some(n)) = (k.as_const(), x.dims[axis].as_const())
        && (k < 0 || k > n)
    {
        return Err(OpError::Value(format!("k is {k}; axis {axis} has {n} elements")));
    }
    let mut dims = x.dims.clone();
    dims[axis] = k;
    Ok(vec![
        Fact::of(TensorType { dtype: x.dtype, dims: dims.clone() }),
        Fact::of(TensorType { dtype: DType::I64, dims }),
    ])
}

/// NaN above everything else.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn eval_topk(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let shape = cx.out_shape(0)?;
    let axis = normalize_axis(cx.attrs().int("axis")?, shape.len(), "axis")?;
    let largest = cx.attrs().bool("largest")?;
    let e = x.elems();
    let order = |a: usize, b: usize| {
        let o = match &e {
            Elems::F(v) => compare(v[a], v[b]),
            Elems::I(v) => v[a].cmp(&v[b]),
        };
        if largest { o.reverse() } else { o }.then(a.cmp(&b))
    };
    // Groups come in the order of the other axes; write them back along the axis.
    let k = shape[axis];
    let inner: usize = shape[axis + 1..].iter().product();
    let n = shape.iter().product();
    let (mut from, mut index) = (vec![None; n], vec![0i64; n]);
    let mut g = 0;
    for_each_group(x.shape(), &mask_of(axis, shape.len()), |group| {
        let mut order_of: Vec<usize> = (0..group.len()).collect();
        order_of.sort_by(|&a, &b| order(group[a], group[b]));
        let base = g / inner.max(1) * k * inner + g % inner.max(1);
        for (j, &i) in order_of.iter().take(k).enumerate() {
            from[base + j * inner] = Some(group[i]);
            index[base + j * inner] = i as i64;
        }
        g += 1;
    });
    Ok(vec![cx.make(0, &shape, take(&e, &from, Num::I(0)))?, cx.make(1, &shape, Elems::I(index))?])
}

fn topk_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let cases: &[(&[usize], i64, i64)] =
        &[(&[3, 7, 5], 1, 3), (&[17], -1, 17), (&[4, 6], 0, 1), (&[2, 5], 1, 0), (&[0, 3], 1, 2)];
    for &(shape, axis, k) in cases {
        for largest in [true, false] {
            for t in [DType::F32, DType::F16, DType::I32, DType::I64, DType::U8] {
                let op =
                    kiln_ir::problem::op("topk", Attrs::new().with("axis", axis).with("largest", largest));
                let k = rng.i64s(&[1], &[k]);
                out.push(Problem::new(&format!("{shape:?} {t}"), op, [rng.tensor(t, shape), k]));
            }
        }
    }
    // Rows that one block holds, that several do, and that none does; many elements are equal.
    let long: &[(&[usize], i64, i64, DType)] = &[
        (&[3, 700], 1, 700, DType::F16),
        (&[2, 2500], 1, 40, DType::F32),
        (&[2, 2500], 1, 2500, DType::BF16),
        (&[2, 2500, 2], 1, 9, DType::I64),
        (&[4200, 2], 0, 30, DType::F32),
        (&[1, 9001], 1, 17, DType::F16),
        (&[9001], 0, 17, DType::I32),
        (&[9001], 0, 9001, DType::I64),
        (&[9001], 0, 600, DType::U8),
        (&[20_001], 0, 3000, DType::F16),
        (&[8200, 2], 0, 8199, DType::BF16),
    ];
    for &(shape, axis, k, t) in long {
        let largest = k % 2 == 0;
        let op = kiln_ir::problem::op("topk", Attrs::new().with("axis", axis).with("largest", largest));
        let k = rng.i64s(&[1], &[k]);
        out.push(Problem::new(&format!("long {shape:?} {t}"), op, [rng.tensor(t, shape), k]));
    }
    for largest in [true, false] {
        let op = kiln_ir::problem::op("topk", Attrs::new().with("largest", largest));
        let k = rng.i64s(&[1], &[12]);
        out.push(Problem::new("special values", op, [rng.edge_floats(DType::F32, 19), k]));
    }
    // Special values, each many times.
    const VALUES: [f64; 8] = [f64::NAN, 1.0, -0.0, f64::INFINITY, 0.0, f64::NEG_INFINITY, 0.5, -2.0];
    for (t, largest) in [(DType::F32, false), (DType::F16, true)] {
        let op = kiln_ir::problem::op("topk", Attrs::new().with("largest", largest));
        let x = Elems::F((0..8193).map(|i| VALUES[i * i / 7 % VALUES.len()]).collect());
        let x = made(Tensor::from_elems(t, &[8193], &x));
        out.push(Problem::new(&format!("long special values {t}"), op, [x, rng.i64s(&[1], &[8193])]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, ints, run_all};
    use kiln_ir::dim::Dim;
    use kiln_ir::infer::differ;

    #[test]
    fn topk_breaks_ties_by_position() {
        let x = f32s(&[2, 4], &[1., 3., 3., 0., -1., -1., 5., 2.]);
        let k = ints(DType::I64, &[1], &[2]);
        let out = run_all("topk", Attrs::new(), &[Some(x), Some(k)]).unwrap();
        assert_near(&out[0], &[2, 2], &[3., 3., 5., 2.], 0.0);
        assert_eq!(out[1].to_i64(), [1, 2, 2, 3]);
    }

    #[test]
    fn topk_works_along_an_inner_axis() {
        let x = ints(DType::I32, &[3, 2], &[1, 6, 3, 4, 2, 5]);
        let attrs = Attrs::new().with("axis", 0i64).with("largest", false);
        let out = run_all("topk", attrs, &[Some(x), Some(ints(DType::I64, &[1], &[2]))]).unwrap();
        assert_eq!((out[0].to_i64(), out[1].to_i64()), (vec![1, 4, 2, 5], vec![0, 1, 2, 2]));
    }

    #[test]
    fn an_unknown_k_is_a_new_dimension() {
        let f = infer(
            "topk",
            Attrs::new(),
            &[(DType::F32, vec![3.into(), 5.into()]), (DType::I64, vec![1.into()])],
        )
        .unwrap();
        assert_eq!(f[0].ty.dims[0], Dim::new(3));
        assert!(f[0].ty.dims[1].as_const().is_none() && !differ(&f[0].ty.dims[1], &f[1].ty.dims[1]));
    }
}
