//! `max_unpool`: puts maxima back where they came from.

use crate::conv::window::{self, Axis, PADS, STRIDES};
use crate::pool::{KERNEL, kernel};
use crate::util::{PLAIN, host_dims, strides};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::range::{IndexRange, RangeCx, UNKNOWN};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    MAX_UNPOOL = "max_unpool",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: MAX_UNPOOL,
    doc: "The inverse of max_pool_indices for x [N, C, ..] and i64 indices of the same shape: zeros, and every element \
          of x at its index in the pooled tensor flattened. That tensor has spatial sizes (I−1)·stride + kernel − pads. \
          With `shape` (all dimensions of the result) it lies at the start of a tensor of that shape, cut off where \
          that is smaller. Indices that are not of the pooled tensor are an error; of equal ones the last wins.",
    inputs: &[input("x"), input("indices"), optional("shape").on_host()],
    attrs: &[KERNEL, STRIDES, PADS],
    infer,
    eval,
    ranges: Some(ranges),
    problems,
    ..PLAIN
}];

/// The windows of the pooling that made x: they slide over the unpooled tensor (`Axis::input`).
pub fn geometry(attrs: &Attrs, x: &[Dim]) -> Result<Vec<Axis<Dim>>, OpError> {
    let spatial = x.get(2..).unwrap_or_default();
    window::transposed::windows(attrs, spatial, &kernel(attrs, spatial.len())?)
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_shape(0, |d| (3..=5).contains(&d.len()), "[N, C, ..] with one to three spatial dimensions")?;
    let x = cx.ty(0)?;
    let same = |d: &[Dim]| d.len() == x.rank() && !d.iter().zip(&x.dims).any(|(a, b)| differ(a, b));
    cx.check_dtype(0, |d| !matches!(d, DType::I4), "a type of whole bytes")?;
    cx.check_dtype(1, |d| d == DType::I64, "i64")?;
    cx.check_shape(1, same, "the shape of x")?;
    let axes = geometry(cx.attrs, &x.dims)?;
    let dims = if cx.has(2) {
        let rank = x.rank() as i64;
        cx.check_shape(
            2,
            |d| d.len() == 1 && !differ(&d[0], &rank.into()),
            &format!("[{rank}], one a dimension"),
        )?;
        host_dims(cx, 2, "shape")?
    } else {
        x.dims[..2].iter().cloned().chain(axes.into_iter().map(|a| a.input)).collect()
    };
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

/// Indices are positions in the pooled tensor flattened.
fn ranges(cx: &RangeCx<'_>) -> Result<Vec<IndexRange>, OpError> {
    let x = cx.dims(0);
    if x.contains(&UNKNOWN) {
        return Ok(vec![IndexRange::up_to(1, UNKNOWN)]);
    }
    let axes = geometry(cx.attrs, &x.iter().map(|&n| n.into()).collect::<Vec<_>>())?;
    let sizes = axes.into_iter().map(|a| a.input.as_const());
    let volume = x.iter().take(2).copied().map(Some).chain(sizes);
    let volume = volume.map(|n| n.map(|n| n.max(0))).try_fold(1i64, |v, n| v.checked_mul(n?));
    Ok(vec![IndexRange::up_to(1, volume.unwrap_or(UNKNOWN) - 1)])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let indices = cx.input(1)?.to_i64();
    let shape = cx.out_shape(0)?;
    let axes = window::known(&geometry(cx.attrs(), &window::dims(x.shape()))?)?;
    let pooled: Vec<usize> =
        x.shape()[..2].iter().copied().chain(axes.iter().map(|a| a.input as usize)).collect();
    let place = |i: i64| position(usize::try_from(i).ok()?, &pooled, &shape);
    let volume = shape.iter().product();
    let elems = match x.elems() {
        Elems::F(v) => Elems::F(scatter(&v, &indices, 0.0, volume, place)),
        Elems::I(v) => Elems::I(scatter(&v, &indices, 0, volume, place)),
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

/// Index in a tensor of shape `to` of element `i` of a flattened tensor of shape `from`, if it has that
/// position.
fn position(i: usize, from: &[usize], to: &[usize]) -> Option<usize> {
    let mut rest = i;
    let mut at = 0;
    for ((step, to_step), (&d, &limit)) in strides(from).iter().zip(strides(to)).zip(from.iter().zip(to)) {
        let index = rest.checked_div(*step)?;
        (index < d && index < limit).then_some(())?;
        rest -= index * step;
        at += index * to_step;
    }
    Some(at)
}

fn scatter<T: Copy>(
    v: &[T],
    indices: &[i64],
    zero: T,
    n: usize,
    place: impl Fn(i64) -> Option<usize>,
) -> Vec<T> {
    let mut y = vec![zero; n];
    for (&x, &i) in v.iter().zip(indices) {
        if let Some(y) = place(i).and_then(|at| y.get_mut(at)) {
            *y = x;
        }
    }
    y
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], &[i64], &[i64], &[i64], &[i64])] = &[
        ("2x2", &[2, 3, 3, 4], &[2, 2], &[2, 2], &[], &[]),
        ("larger shape", &[1, 2, 2, 3], &[2, 2], &[2, 2], &[], &[1, 2, 5, 8]),
        ("smaller shape", &[1, 2, 3, 3], &[2, 2], &[2, 2], &[], &[1, 2, 5, 4]),
        ("padded", &[1, 2, 3, 3], &[3, 3], &[2, 2], &[1, 0, 0, 1], &[]),
        ("1-D", &[2, 3, 5], &[3], &[3], &[], &[]),
        ("3-D", &[1, 2, 2, 2, 2], &[2, 2, 2], &[2, 2, 2], &[], &[]),
        ("batch 0", &[0, 3, 2, 2], &[2, 2], &[2, 2], &[], &[]),
    ];
    let mut out = Vec::new();
    for &(label, x, kernel, strides, pads, shape) in cases {
        for t in [DType::F32, DType::F16, DType::I8] {
            let attrs = Attrs::new().with("kernel", kernel).with("strides", strides).with("pads", pads);
            let Ok(axes) = geometry(&attrs, &window::dims(x)) else { continue };
            let pooled: Dim = axes.into_iter().map(|a| a.input).product();
            let (planes, window) = (x[0] * x[1], pooled.as_const().unwrap_or(0).max(1));
            // Distinct indices, so that the result does not depend on an order: each in a stripe of its own.
            let n: usize = x.iter().product();
            let each = (n / planes.max(1)) as i64;
            let index = |i: i64| i / each * window + i % each * (window / each.max(1));
            let indices: Vec<i64> = (0..n as i64).map(index).collect();
            let shape = (!shape.is_empty()).then(|| rng.i64s(&[shape.len()], shape));
            let inputs = [Some(rng.tensor(t, x)), Some(rng.i64s(x, &indices)), shape];
            out.push(Problem::of(&format!("{label} {t}"), "max_unpool", attrs, inputs));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, ints, run, run_all};

    fn attrs() -> Attrs {
        Attrs::new().with("kernel", vec![2i64, 2]).with("strides", vec![2i64, 2])
    }

    #[test]
    fn elements_return_to_their_places() {
        let x = f32s(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let i = ints(DType::I64, &[1, 1, 2, 2], &[5, 7, 13, 15]);
        let y = run("max_unpool", attrs(), &[x.clone(), i.clone()]);
        let row = |a: f64, b: f64| [0.0, 0.0, 0.0, 0.0, 0.0, a, 0.0, b];
        assert_near(&y, &[1, 1, 4, 4], &[row(1.0, 2.0), row(3.0, 4.0)].concat(), 0.0);
        let shape = ints(DType::I64, &[4], &[1, 1, 5, 5]);
        let y = run("max_unpool", attrs(), &[x, i, shape]);
        let mut want = [0.0; 25];
        (want[6], want[8], want[16], want[18]) = (1.0, 2.0, 3.0, 4.0);
        assert_near(&y, &[1, 1, 5, 5], &want, 0.0);
    }

    #[test]
    fn it_undoes_max_pooling() {
        let mut rng = Rng::new(5);
        let x = rng.tensor(DType::F32, &[2, 3, 6, 4]);
        let pooled = run_all("max_pool_indices", attrs(), &[Some(x.clone())]).unwrap();
        let y = run("max_unpool", attrs(), &pooled);
        assert_eq!(y.shape(), x.shape());
        let kept = y.to_f64().iter().zip(x.to_f64()).filter(|&(a, b)| *a == b).count();
        assert_eq!(kept, pooled[0].len());
        assert_eq!(y.to_f64().iter().filter(|&&a| a == 0.0).count(), x.len() - kept);
    }

    #[test]
    fn indices_outside_and_bad_shapes_are_refused() {
        let x = f32s(&[1, 1, 1, 2], &[1.0, 2.0]);
        let i = ints(DType::I64, &[1, 1, 1, 2], &[0, 8]);
        let e = run_all("max_unpool", attrs(), &[Some(x.clone()), Some(i.clone())]).unwrap_err();
        assert!(matches!(e, OpError::Index { at: 1, found: 8, least: 0, greatest: 7, .. }), "{e}");
        let bad = |v: &[i64]| {
            let shape = ints(DType::I64, &[v.len()], v);
            run_all("max_unpool", attrs(), &[Some(x.clone()), Some(i.clone()), Some(shape)]).is_err()
        };
        assert!(bad(&[1, 1, -1, 2]) && bad(&[2, 4]) && bad(&[1, 1, 1 << 40, 1 << 40]));
    }
}
