//! `nonzero`, `compress` and `unique`: operators whose output sizes depend on the data.

pub mod nms;

use crate::indices::take;
use crate::util::{PLAIN, for_each_index, strides};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::expr::Num;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Traits, attr, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

const BASE: OpDef = OpDef { traits: Traits::DATA_DEPENDENT, ..PLAIN };

kiln_ir::op_names! {
    NONZERO = "nonzero",
    COMPRESS = "compress",
    UNIQUE = "unique",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: NONZERO,
        doc: "Indices of the elements that are not zero (NaN is not), as i64 [rank, n]: one column an element, in \
              row-major order. A scalar gives [0, n] with n 0 or 1.",
        infer: infer_nonzero,
        eval: eval_nonzero,
        problems: nonzero_problems,
        ..BASE
    },
    OpDef {
        name: COMPRESS,
        doc: "The slices along `axis` (or, with `flatten`, the elements) at which the 1-D bool tensor `cond` is true; \
              past its end it is false.",
        inputs: &[input("x"), input("cond")],
        attrs: &[attr("axis", || Attr::Int(0)), attr("flatten", || Attr::Bool(false))],
        infer: infer_compress,
        eval: eval_compress,
        problems: compress_problems,
        ..BASE
    },
    OpDef {
        name: UNIQUE,
        doc: "The different elements (or, unless `flatten`, the different slices along `axis`), ascending if `sorted`, \
              else in the order of first occurrence; with the i64 position of the first occurrence of each, for each \
              element of x its number among them, and how often each occurs. NaNs are all different.",
        outputs: &["y", "indices", "inverse", "counts"],
        attrs: &[
            attr("axis", || Attr::Int(0)),
            attr("flatten", || Attr::Bool(true)),
            attr("sorted", || Attr::Bool(true)),
        ],
        infer: infer_unique,
        eval: eval_unique,
        traits: Traits {
            // Each slice is compared with the different ones in front of it.
            work: Some(|s| {
                let flat = s.attrs.bool("flatten").unwrap_or(true);
                let slices = if flat { s.volume(0) } else { s.dims(0).iter().max().copied().unwrap_or(1) };
                s.volume(0).saturating_mul(slices)
            }),
            ..Traits::DATA_DEPENDENT
        },
        problems: unique_problems,
        ..BASE
    },
];

fn infer_nonzero(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let n = cx.fresh_device("n", Some(x.volume()));
    Ok(vec![Fact::of(TensorType { dtype: DType::I64, dims: vec![Dim::new(x.rank() as i64), n] })])
}

fn eval_nonzero(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let shape = x.shape();
    let set: Vec<bool> = match x.elems() {
        Elems::F(v) => v.iter().map(|&x| x != 0.0).collect(),
        Elems::I(v) => v.iter().map(|&x| x != 0).collect(),
    };
    let n = set.iter().filter(|&&s| s).count();
    let mut out = vec![0; shape.len() * n];
    let (mut i, mut column) = (0, 0);
    for_each_index(shape, |at| {
        if set[i] {
            at.iter().enumerate().for_each(|(d, &a)| out[d * n + column] = a as i64);
            column += 1;
        }
        i += 1;
    });
    Ok(vec![cx.make(0, &[shape.len(), n], Elems::I(out))?])
}

fn infer_compress(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    cx.check_dtype(1, |d| d == DType::Bool, "bool")?;
    cx.check_rank(1, 1)?;
    let cond = cx.dims(1)?[0].clone();
    let dims = if cx.attrs.bool("flatten")? {
        vec![cx.fresh_device("n", Some(x.volume().min_with(&cond)))]
    } else {
        let axis = cx.axis("axis", x.rank())?;
        let mut dims = x.dims.clone();
        dims[axis] = cx.fresh_device("n", Some(dims[axis].min_with(&cond)));
        dims
    };
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

fn eval_compress(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, cond) = (cx.input(0)?, cx.input(1)?.to_i64());
    let flatten = cx.attrs().bool("flatten")?;
    let shape = if flatten { vec![x.len()] } else { x.shape().to_vec() };
    let axis = kiln_ir::infer::normalize_axis(
        if flatten { 0 } else { cx.attrs().int("axis")? },
        shape.len(),
        "axis",
    )?;
    let keep: Vec<usize> = (0..shape[axis]).filter(|&i| cond.get(i).is_some_and(|&c| c != 0)).collect();
    let mut to = shape.clone();
    to[axis] = keep.len();
    let own = strides(&shape);
    let mut from = Vec::new();
    for_each_index(&to, |at| {
        from.push(Some(
            at.iter().enumerate().map(|(d, &a)| own[d] * if d == axis { keep[a] } else { a }).sum(),
        ));
    });
    Ok(vec![cx.make(0, &to, take(&x.elems(), &from, Num::I(0)))?])
}

fn infer_unique(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let flatten = cx.attrs.bool("flatten")?;
    let axis = if flatten { 0 } else { cx.axis("axis", x.rank())? };
    let whole = if flatten { x.volume() } else { x.dims[axis].clone() };
    let n = cx.fresh_device("n", Some(whole.clone()));
    let mut dims = if flatten { vec![n.clone()] } else { x.dims.clone() };
    dims[axis] = n.clone();
    let index = |d: &Dim| Fact::of(TensorType { dtype: DType::I64, dims: vec![d.clone()] });
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims }), index(&n), index(&whole), index(&n)])
}

fn eval_unique(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let flatten = cx.attrs().bool("flatten")?;
    let shape = if flatten { vec![x.len()] } else { x.shape().to_vec() };
    let axis = kiln_ir::infer::normalize_axis(
        if flatten { 0 } else { cx.attrs().int("axis")? },
        shape.len(),
        "axis",
    )?;
    let slices = Slices::of(x, &shape, axis);
    // Numbers of the different slices in the order of first occurrence, and the number of each slice.
    let (mut first, mut number): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    for i in 0..shape[axis] {
        let k = first.iter().position(|&f| slices.equal(f, i)).unwrap_or(first.len());
        if k == first.len() {
            first.push(i);
        }
        number.push(k);
    }
    let mut order: Vec<usize> = (0..first.len()).collect();
    if cx.attrs().bool("sorted")? {
        order.sort_by(|&a, &b| slices.compare(first[a], first[b]));
    }
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(r, &k)| rank[k] = r);
    let mut counts = vec![0i64; order.len()];
    number.iter().for_each(|&k| counts[rank[k]] += 1);
    let n = order.len();
    let mut to = shape.clone();
    to[axis] = n;
    let own = strides(&shape);
    let mut from = Vec::new();
    for_each_index(&to, |at| {
        let source = |d: usize, a: usize| if d == axis { first[order[a]] } else { a };
        from.push(Some(at.iter().enumerate().map(|(d, &a)| own[d] * source(d, a)).sum()));
    });
    let ints = |v: Vec<usize>| Elems::I(v.into_iter().map(|i| i as i64).collect());
    Ok(vec![
        cx.make(0, &to, take(&x.elems(), &from, Num::I(0)))?,
        cx.make(1, &[n], ints(order.iter().map(|&k| first[k]).collect()))?,
        cx.make(2, &[number.len()], ints(number.iter().map(|&k| rank[k]).collect()))?,
        cx.make(3, &[n], Elems::I(counts))?,
    ])
}

/// The slices of a tensor along an axis, each as the list of its elements' positions.
struct Slices {
    elems: Elems,
    positions: Vec<Vec<usize>>,
}

impl Slices {
    fn of(x: &Tensor, shape: &[usize], axis: usize) -> Slices {
        let mut positions = vec![Vec::new(); shape[axis]];
        let own = strides(shape);
        for_each_index(shape, |at| positions[at[axis]].push(crate::util::offset(at, &own)));
        Slices { elems: x.elems(), positions }
    }

    fn pairs(&self, a: usize, b: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.positions[a].iter().copied().zip(self.positions[b].iter().copied())
    }

    fn equal(&self, a: usize, b: usize) -> bool {
        self.pairs(a, b).all(|(i, j)| match &self.elems {
            Elems::F(v) => v[i] == v[j],
            Elems::I(v) => v[i] == v[j],
        })
    }

    fn compare(&self, a: usize, b: usize) -> std::cmp::Ordering {
        let order = |(i, j): (usize, usize)| match &self.elems {
            Elems::F(v) => v[i].partial_cmp(&v[j]).unwrap_or_else(|| v[i].is_nan().cmp(&v[j].is_nan())),
            Elems::I(v) => v[i].cmp(&v[j]),
        };
        self.pairs(a, b).map(order).find(|o| o.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    }
}

const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::I64, DType::U8, DType::Bool];

fn nonzero_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let op = kiln_ir::problem::op("nonzero", Attrs::new());
    for shape in [&[3, 7, 5][..], &[], &[0, 3], &[70]] {
        for t in TYPES {
            out.push(Problem::new(
                &format!("{shape:?} {t}"),
                op.clone(),
                [rng.tensor_in(t, shape, 0.0, 2.0, 1)],
            ));
        }
    }
    let long = rng.tensor_in(DType::U8, &[21, 1001], 0.0, 2.0, 3);
    out.push(Problem::new("several runs", op.clone(), [long]));
    out.push(Problem::new("special values", op, [rng.edge_floats(DType::F32, 19)]));
    out
}

fn compress_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let cases: &[(&[usize], usize, Option<i64>)] = &[
        (&[3, 7, 5], 7, Some(1)),
        (&[3, 7], 2, Some(-2)),
        (&[3, 4], 9, None),
        (&[4, 0], 4, Some(0)),
        (&[5], 0, Some(0)),
        (&[9000, 3], 8999, Some(0)),
    ];
    for &(shape, n, axis) in cases {
        let attrs = Attrs::new().with("axis", axis.unwrap_or(0)).with("flatten", axis.is_none());
        let op = kiln_ir::problem::op("compress", attrs);
        for t in TYPES {
            let ins = [rng.tensor(t, shape), rng.tensor(DType::Bool, &[n])];
            out.push(Problem::new(&format!("{shape:?} by {n} {t}"), op.clone(), ins));
        }
    }
    out
}

fn unique_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let cases: &[(&[usize], Option<i64>)] =
        &[(&[3, 7], None), (&[6, 2], Some(0)), (&[2, 9], Some(-1)), (&[0], None), (&[700], None)];
    for &(shape, axis) in cases {
        for sorted in [true, false] {
            let attrs = Attrs::new()
                .with("axis", axis.unwrap_or(0))
                .with("flatten", axis.is_none())
                .with("sorted", sorted);
            let op = kiln_ir::problem::op("unique", attrs);
            let most = if shape[0] > 99 { 99 } else { 2 };
            for t in [DType::F32, DType::I64, DType::U8] {
                let whole = rng.tensor_in(DType::I64, shape, 0.0, 0.0, most).to_i64();
                let x = Tensor::from_elems(t, shape, &Elems::I(whole.iter().map(|x| x.abs()).collect()));
                out.extend(x.map(|x| Problem::new(&format!("{shape:?} {t}"), op.clone(), [x])));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, ints, run, run_all};

    #[test]
    fn nonzero_lists_columns() {
        let y = run("nonzero", Attrs::new(), &[ints(DType::Bool, &[2, 2], &[1, 0, 1, 1])]);
        assert_eq!((y.shape(), y.to_i64()), (&[2, 3][..], vec![0, 1, 1, 0, 0, 1]));
        for (x, n) in [(0.0, 0), (f64::NAN, 1)] {
            assert_eq!(run("nonzero", Attrs::new(), &[f32s(&[], &[x])]).shape(), [0, n]);
        }
    }

    #[test]
    fn compress_keeps_marked_slices() {
        let x = f32s(&[3, 2], &[1., 2., 3., 4., 5., 6.]);
        let c = ints(DType::Bool, &[3], &[0, 1, 1]);
        assert_eq!(run("compress", Attrs::new(), &[x.clone(), c]).to_f64(), [3., 4., 5., 6.]);
        let c = ints(DType::Bool, &[5], &[0, 1, 0, 0, 1]);
        assert_eq!(run("compress", Attrs::new().with("flatten", true), &[x, c]).to_f64(), [2., 5.]);
    }

    #[test]
    fn unique_gives_all_four_outputs() {
        let x = f32s(&[6], &[2., 1., 1., 3., 4., 3.]);
        let out = run_all("unique", Attrs::new().with("sorted", false), &[Some(x.clone())]).unwrap();
        assert_eq!(out[0].to_f64(), [2., 1., 3., 4.]);
        assert_eq!(out[1].to_i64(), [0, 1, 3, 4]);
        assert_eq!(out[2].to_i64(), [0, 1, 1, 2, 3, 2]);
        assert_eq!(out[3].to_i64(), [1, 2, 2, 1]);
        let out = run_all("unique", Attrs::new(), &[Some(x)]).unwrap();
        assert_eq!((out[0].to_f64(), out[1].to_i64()), (vec![1., 2., 3., 4.], vec![1, 0, 3, 4]));
    }

    #[test]
    fn unique_rows() {
        let x = f32s(&[3, 3], &[1., 0., 0., 1., 0., 0., 2., 3., 4.]);
        let out = run_all("unique", Attrs::new().with("flatten", false), &[Some(x)]).unwrap();
        assert_eq!((out[0].to_f64(), out[0].shape()), (vec![1., 0., 0., 2., 3., 4.], &[2, 3][..]));
        assert_eq!((out[2].to_i64(), out[3].to_i64()), (vec![0, 0, 1], vec![2, 1]));
    }
}
