//! `slice`: a box of a tensor, with steps.

pub mod concat;
pub mod insert;
pub mod pad;

pub mod window;

use crate::indices;
use crate::layout::axes_or_first;
use crate::util::{PLAIN, for_each_index, strides};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{LayoutRule, Movement, OpDef, Roles, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;
use window::{Window, length, window};

kiln_ir::op_names! {
    SLICE = "slice",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: SLICE,
    doc: "The elements from `starts` up to but without `ends` along `axes` (all from the first if absent), every \
          `steps`-th (1 if absent). Negative starts and ends count from the end of the axis; then starts are cut to \
          0..=d (0..=d−1 for a negative step) and ends to 0..=d (−1..=d−1). Steps may be negative, not 0.",
    inputs: &[
        input("x"),
        input("starts").on_host(),
        input("ends").on_host(),
        optional("axes").on_host(),
        optional("steps").on_host(),
    ],
    infer,
    eval,
    problems,
    roles: Roles {
        movement: Movement::Slice,
        layout: LayoutRule::Axes(|_, inputs, rank| axes_or_first(inputs, rank, 1)),
        ..Roles::NONE
    },
    ..PLAIN
}];

/// The parameters, each known or not; axes `None` if they are not numbers yet.
struct Params {
    starts: Vec<Option<Dim>>,
    ends: Vec<Option<Dim>>,
    axes: Option<Vec<usize>>,
    steps: Vec<Option<Dim>>,
}

fn params(cx: &InferCx<'_>, rank: usize) -> Result<Params, OpError> {
    let starts = indices::host_list(cx, 1)?;
    let ends = same_length(cx, 2, starts.len())?;
    let steps =
        if cx.has(4) { same_length(cx, 4, starts.len())? } else { vec![Some(Dim::new(1)); starts.len()] };
    let axes = if cx.has(3) {
        same_length(cx, 3, starts.len())?;
        cx.ints(3).map(|a| axes(&a, rank)).transpose()?
    } else {
        Some(axes(&(0..starts.len() as i64).collect::<Vec<_>>(), rank)?)
    };
    if steps.iter().flatten().any(|s| s.is(0)) {
        return Err(OpError::Value("a step is 0; wants any other".into()));
    }
    Ok(Params { starts, ends, axes, steps })
}

fn same_length(cx: &InferCx<'_>, i: usize, n: usize) -> Result<Vec<Option<Dim>>, OpError> {
    let v = indices::host_list(cx, i)?;
    if v.len() == n { Ok(v) } else { Err(cx.bad_shape(i, &format!("{n} elements, as starts has"))) }
}

/// Axes in the order given, each at most once.
fn axes(given: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    let v = given.iter().map(|&a| normalize_axis(a, rank, "axes")).collect::<Result<Vec<_>, _>>()?;
    if v.iter().enumerate().any(|(i, a)| v[..i].contains(a)) {
        return Err(OpError::Value(format!("axes {given:?} name one axis twice")));
    }
    Ok(v)
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let x = cx.ty(0)?;
    let p = params(cx, x.rank())?;
    let mut dims = x.dims.clone();
    let unknown =
        |axis: usize| indices::fresh(cx, &[1, 2, 3, 4], &format!("d{axis}"), Some(x.dims[axis].clone()));
    let Some(axes) = &p.axes else {
        let dims = (0..x.rank()).map(unknown).collect();
        return Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })]);
    };
    for (i, &axis) in axes.iter().enumerate() {
        let known = match (&p.starts[i], &p.ends[i], p.steps[i].as_ref().and_then(Dim::as_const)) {
            (Some(start), Some(end), Some(step)) => length(&x.dims[axis], start, end, step),
            _ => None,
        };
        dims[axis] = known.unwrap_or_else(|| unknown(axis));
    }
    let ty = TensorType { dtype: x.dtype, dims };
    let numbers = |v: &[Option<Dim>]| v.iter().map(|d| d.as_ref()?.as_const()).collect::<Option<Vec<_>>>();
    match (numbers(&p.starts), numbers(&p.ends), numbers(&p.steps)) {
        (Some(starts), Some(ends), Some(steps)) => {
            indices::infer(cx, ty, |from, to| Ok(places(from, to, axes, [&starts, &ends, &steps])))
        }
        _ => Ok(vec![Fact::of(ty)]),
    }
}

fn places(
    from: &[usize],
    to: &[usize],
    axes: &[usize],
    [starts, ends, steps]: [&[i64]; 3],
) -> indices::Moves {
    let mut windows = vec![Window { first: 0, step: 1, len: 0 }; from.len()];
    for (i, &axis) in axes.iter().enumerate() {
        windows[axis] = window(from[axis] as i64, starts[i], ends[i], steps[i]);
    }
    let own = strides(from);
    let mut out = Vec::new();
    for_each_index(to, |at| {
        let place = |(k, w): (usize, &Window)| {
            w.first.saturating_add(w.step.saturating_mul(at[k] as i64)) as usize * own[k]
        };
        out.push(Some(windows.iter().enumerate().map(place).sum()));
    });
    out
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let rank = cx.input(0)?.shape().len();
    let (starts, ends) = (cx.input(1)?.to_i64(), cx.input(2)?.to_i64());
    let axes = match cx.get(3) {
        Some(a) => axes(&a.to_i64(), rank)?,
        None => (0..starts.len()).collect(),
    };
    let steps = cx.get(4).map_or_else(|| vec![1; starts.len()], Tensor::to_i64);
    indices::eval(cx, |from, to| Ok(places(from, to, &axes, [&starts, &ends, &steps])))
}

type Case = (&'static str, &'static [usize], [&'static [i64]; 4]);

const CASES: &[Case] = &[
    ("box", &[7, 9], [&[1, 2], &[5, 8], &[0, 1], &[1, 1]]),
    ("steps", &[7, 9], [&[1, 0], &[7, 9], &[0, 1], &[2, 4]]),
    ("reversed", &[5, 3], [&[-1], &[i64::MIN], &[0], &[-1]]),
    ("negative step of 3", &[20, 2], [&[18], &[1], &[0], &[-3]]),
    ("from the end", &[5, 6], [&[-3], &[-1], &[-1], &[1]]),
    ("beyond the end", &[5, 6], [&[2, -100], &[1000, i64::MAX], &[0, 1], &[1, 1]]),
    ("nothing left", &[5, 6], [&[4], &[2], &[1], &[1]]),
    ("empty", &[0, 6], [&[0], &[3], &[0], &[1]]),
    ("middle axis", &[3, 8, 5], [&[2], &[7], &[1], &[2]]),
    ("odd rows", &[5, 61], [&[1, 3], &[5, 60], &[0, 1], &[1, 1]]),
    ("odd rows by a step", &[4, 61], [&[60], &[2], &[1], &[-3]]),
];

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let op = kiln_ir::problem::op("slice", Attrs::new());
    for &(label, shape, params) in CASES {
        for t in DType::ALL {
            let mut ins = vec![rng.tensor(t, shape)];
            ins.extend(params.map(|v| rng.i64s(&[v.len()], v)));
            out.push(Problem::new(&format!("{label} {t}"), op.clone(), ins));
        }
    }
    let ins = [rng.tensor(DType::F32, &[4, 5]), rng.i64s(&[1], &[1]), rng.i64s(&[1], &[3])];
    out.push(Problem::new("axes and steps absent", op.clone(), ins));
    let params =
        [rng.i64s(&[1], &[11]), rng.i64s(&[1], &[i64::MIN]), rng.i64s(&[1], &[0]), rng.i64s(&[1], &[-1])];
    for x in rng.exact_tensors(&[13]) {
        out.push(Problem::new("exact values", op.clone(), [vec![x], params.to_vec()].concat()));
    }
    out
}

#[cfg(test)]
mod tests;
