//! `pool`, `max_pool_indices`: the greatest, the mean or a norm of every window.

pub mod max_unpool;

mod problems;
#[cfg(test)]
mod tests;

use crate::conv::window::{self, Axis, DILATIONS, PAD_MODE, PADS, STRIDES};
use crate::layout::{self, LAYOUT, Layout};
use crate::reduce::ReduceOp;
use crate::util::{PLAIN, REAL, for_each_index, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{AttrDef, LayoutRule, OpDef, Roles, Tolerance, Traits, attr, choice, required};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use kiln_ir::work::Shapes;

/// Attribute: taps of a window, one number a spatial dimension.
pub const KERNEL: AttrDef = required("kernel", || Attr::Ints(Vec::new()));
const CEIL_MODE: AttrDef = attr("ceil_mode", || Attr::Bool(false));

/// Maxima keep their bits.
fn tolerance(attrs: &Attrs) -> Tolerance {
    match PoolOp::of(attrs) {
        PoolOp::Max | PoolOp::Sum => Tolerance::Exact,
        PoolOp::Average => Tolerance::Sum,
        PoolOp::Lp => Tolerance::Conditioned,
    }
}

kiln_ir::op_names! {
    POOL = "pool",
    MAX_POOL_INDICES = "max_pool_indices",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: POOL,
        doc: "One value for every window over the one to three spatial dimensions of x [N, C, ..]. max: the greatest \
              element, NaN if there is one, −∞ (integers: the least value) for a window of padding only. average: the \
              mean of the elements or, with `count_include_pad`, their sum divided by the taps on elements and \
              padding; 0 for a window of padding only. lp: (Σ|x|^p)^(1/p). sum: the sum of the elements, i8 or u8, in i32. \
              Sizes as pad_mode and ceil_mode say. Integers only for max and sum. Floats accumulate in f32 at least. With channels last x and y are [N, .., C].",
        attrs: &[
            choice("op", || "max".into(), PoolOp::NAMES),
            KERNEL,
            STRIDES,
            PADS,
            DILATIONS,
            CEIL_MODE,
            attr("count_include_pad", || Attr::Bool(false)),
            attr("p", || Attr::Int(2)),
            PAD_MODE,
            LAYOUT,
        ],
        infer: |cx| layout::infer(cx, infer),
        eval: |cx| layout::eval(cx, eval),
        tolerance: Tolerance::ByAttrs(tolerance),
        problems: |rng| layout::both(problems::pool(rng)),
        traits: Traits::heavy(taps),
        roles: Roles {
            layout: LayoutRule::Attribute(1),
            absorbs_pointwise: true,
            gains_channels_last: true,
            ..Roles::NONE
        },
        ..PLAIN
    },
    OpDef {
        name: MAX_POOL_INDICES,
        doc: "Max pooling as `pool`, and for every window the i64 position of the greatest element (the first of \
              equals, the first NaN) in x flattened; with `storage_order` 1 the spatial dimensions are flattened with \
              the first fastest. A window of padding only has position −1.",
        outputs: &["y", "indices"],
        attrs: &[
            KERNEL,
            STRIDES,
            PADS,
            DILATIONS,
            CEIL_MODE,
            attr("storage_order", || Attr::Int(0)),
            PAD_MODE,
        ],
        infer,
        eval: eval_indices,
        problems: problems::indices,
        traits: Traits::heavy(taps),
        ..PLAIN
    },
];

/// One operation for each element of each window.
fn taps(s: &Shapes<'_>) -> u64 {
    let kernel = s.attrs.ints("kernel").unwrap_or_default();
    kernel.iter().fold(s.made(0), |n, k| n.saturating_mul(k.unsigned_abs()))
}

/// Function of a window that a `pool` computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolOp {
    /// The greatest element.
    Max,
    /// The mean.
    Average,
    /// (Σ|x|^p)^(1/p).
    Lp,
    /// The sum, of codes in i32.
    Sum,
}

impl PoolOp {
    /// Names of the functions in attributes.
    pub const NAMES: &[&str] = &["max", "average", "lp", "sum"];

    /// The attribute "op"; max if there is none, as in `max_pool_indices`.
    pub fn of(attrs: &Attrs) -> PoolOp {
        match attrs.str("op") {
            Ok("average") => PoolOp::Average,
            Ok("lp") => PoolOp::Lp,
            Ok("sum") => PoolOp::Sum,
            _ => PoolOp::Max,
        }
    }
}

/// The windows of a pooling with these attributes over x of dimensions `x`.
pub fn geometry(attrs: &Attrs, x: &[Dim]) -> Result<Vec<Axis<Dim>>, OpError> {
    let spatial = Layout::of(attrs).spatial(x);
    window::windows(attrs, spatial, &kernel(attrs, spatial.len())?)
}

/// The attribute "kernel", one number a spatial dimension.
pub(crate) fn kernel(attrs: &Attrs, rank: usize) -> Result<Vec<Dim>, OpError> {
    let kernel = attrs.ints("kernel")?;
    if kernel.len() == rank {
        return Ok(kernel.iter().map(|&k| k.into()).collect());
    }
    let wanted = format!("{rank} numbers, one a spatial dimension");
    Err(OpError::Attr { name: "kernel".into(), found: format!("{kernel:?}"), wanted })
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_shape(0, |d| (3..=5).contains(&d.len()), "[N, C, ..] with one to three spatial dimensions")?;
    match PoolOp::of(cx.attrs) {
        PoolOp::Max => {
            let ok = |d| !matches!(d, DType::F8E4M3 | DType::I4 | DType::Bool);
            cx.check_dtype(0, ok, "f32, f16, bf16, i8, u8, i32 or i64")?
        }
        PoolOp::Sum => cx.check_dtype(0, |d| matches!(d, DType::I8 | DType::U8), "i8 or u8")?,
        _ => cx.check_dtype(0, is_real, REAL)?,
    };
    check_range(cx.attrs, "p", 1, i64::from(i32::MAX))?;
    check_range(cx.attrs, "storage_order", 0, 1)?;
    let x = cx.ty(0)?;
    let mut dims = x.dims[..2].to_vec();
    dims.extend(geometry(cx.attrs, &x.dims)?.into_iter().map(|a| a.output));
    let dtype = if PoolOp::of(cx.attrs) == PoolOp::Sum { DType::I32 } else { x.dtype };
    let mut out = vec![Fact::of(TensorType { dtype, dims: dims.clone() })];
    if cx.def.outputs.len() > 1 {
        out.push(Fact::of(TensorType { dtype: DType::I64, dims }));
    }
    Ok(out)
}

/// An integer attribute, if the operator has it, must lie in a range.
fn check_range(attrs: &Attrs, name: &str, least: i64, greatest: i64) -> Result<(), OpError> {
    match attrs.int(name) {
        Ok(x) if !(least..=greatest).contains(&x) => Err(OpError::Attr {
            name: name.into(),
            found: x.to_string(),
            wanted: format!("in {least}..={greatest}"),
        }),
        _ => Ok(()),
    }
}

/// Calls `f(window, elements)` for every window of every channel in row-major order: its index and the positions of
/// its elements in x flattened.
fn for_each_window(x: &[usize], axes: &[Axis<i64>], mut f: impl FnMut(&[usize], &[usize])) {
    let windows: Vec<usize> = axes.iter().map(|a| a.output as usize).collect();
    let volume: usize = x[2..].iter().product();
    let mut positions = Vec::new();
    for plane in 0..x[0] * x[1] {
        for_each_index(&windows, |at| {
            positions.clear();
            window::for_each_tap(axes, at, |_, p| positions.push(plane * volume + p));
            f(at, &positions);
        });
    }
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let shape = cx.out_shape(0)?;
    let a = cx.attrs();
    let axes = window::known(&geometry(a, &window::dims(x.shape()))?)?;
    let (op, p, include) = (PoolOp::of(a), a.int("p")? as f64, a.bool("count_include_pad")?);
    let elems = match x.elems() {
        Elems::I(v) => {
            let mut y = Vec::new();
            for_each_window(x.shape(), &axes, |_, at| {
                let elements = at.iter().map(|&i| v[i]);
                y.push(match op {
                    PoolOp::Sum => elements.sum(),
                    _ => ReduceOp::Max.of_ints(&elements.collect::<Vec<_>>(), x.dtype()),
                });
            });
            Elems::I(y)
        }
        Elems::F(v) => {
            let mut y = Vec::new();
            for_each_window(x.shape(), &axes, |window, at| {
                let elements: Vec<f64> = at.iter().map(|&i| v[i]).collect();
                y.push(match op {
                    PoolOp::Max => ReduceOp::Max.of_floats(&elements),
                    PoolOp::Average => {
                        average(&elements, if include { padded(&axes, window) } else { at.len() })
                    }
                    PoolOp::Lp => norm(&elements, p),
                    // Sums are of codes: see `infer`.
                    PoolOp::Sum => elements.iter().sum(),
                });
            });
            Elems::F(y)
        }
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

/// Taps of a window that lie on elements or padding.
fn padded(axes: &[Axis<i64>], window: &[usize]) -> usize {
    axes.iter().zip(window).map(|(a, &o)| a.padded_taps(o as i64) as usize).product()
}

fn average(v: &[f64], count: usize) -> f64 {
    if count == 0 { 0.0 } else { v.iter().fold(0.0, |a, b| a + b) / count as f64 }
}

fn norm(v: &[f64], p: f64) -> f64 {
    libm::pow(v.iter().map(|x| libm::pow(x.abs(), p)).fold(0.0, |a, b| a + b), 1.0 / p)
}

fn eval_indices(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let shape = cx.out_shape(0)?;
    let axes = window::known(&geometry(cx.attrs(), &window::dims(x.shape()))?)?;
    let columns = cx.attrs().int("storage_order")? == 1;
    let elems = x.elems();
    let mut best = Vec::new();
    for_each_window(x.shape(), &axes, |_, at| {
        best.push(at.iter().copied().reduce(|a, b| if better(&elems, b, a) { b } else { a }));
    });
    let index = |i: &Option<usize>| match *i {
        Some(i) if columns => by_columns(x.shape(), i) as i64,
        Some(i) => i as i64,
        None => -1,
    };
    let indices = Elems::I(best.iter().map(index).collect());
    let y = match &elems {
        Elems::F(v) => Elems::F(best.iter().map(|i| i.map_or(f64::NEG_INFINITY, |i| v[i])).collect()),
        Elems::I(v) => {
            let least = ReduceOp::Max.of_ints(&[], x.dtype());
            Elems::I(best.iter().map(|i| i.map_or(least, |i| v[i])).collect())
        }
    };
    Ok(vec![cx.make(0, &shape, y)?, cx.make(1, &shape, indices)?])
}

/// Whether element `a` replaces the greatest so far, `b`.
fn better(elems: &Elems, a: usize, b: usize) -> bool {
    match elems {
        Elems::F(v) => !v[b].is_nan() && (v[a].is_nan() || v[a] > v[b]),
        Elems::I(v) => v[a] > v[b],
    }
}

/// The position of element `i` (row-major) where the spatial dimensions are flattened with the first fastest.
fn by_columns(shape: &[usize], i: usize) -> usize {
    let spatial = &shape[2..];
    let volume: usize = spatial.iter().product();
    let mut rest = i % volume;
    let mut scale = volume;
    let mut column = 0;
    for &d in spatial.iter().rev() {
        scale /= d;
        column += rest % d * scale;
        rest /= d;
    }
    i / volume * volume + column
}
