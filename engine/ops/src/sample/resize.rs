//! `resize`: interpolation to another size, with every convention of ONNX.

pub mod coord;
pub mod plan;
mod problems;
#[cfg(test)]
mod tests;

use self::coord::{Filter, ResizeAxis};
use self::plan::Given;
use crate::sample::{self, for_each_combination};
use crate::util::{PLAIN, for_each_index, strides};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{
    AttrDef, AxesPlace, LayoutRule, NamedAxes, OpDef, Roles, Tolerance, Traits, attr, choice, input, optional,
};
use kiln_ir::tensor::{Elems, Tensor};

kiln_ir::op_names! {
    RESIZE = "resize",
}

/// Attribute: whether codes give results in f32.
pub const TO_F32: AttrDef = attr("to_f32", || Attr::Bool(false));

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: RESIZE,
    doc: "x resized along `axes` (empty: all) by `scales` (each output size is ⌊size·scale⌋ in f32) or to `sizes`; \
          exactly one of them is given, with one number an axis. `policy` with sizes: stretch to them, or keep the \
          aspect ratio with the largest size that is not_larger, or the smallest that is not_smaller, rounded half \
          up. `coord` takes an output index to a place of the input: half_pixel (i + ½)/scale − ½; \
          half_pixel_symmetric the same, centred where the exact output size is a fraction; pytorch_half_pixel 0 for \
          an output of one; align_corners i·(size − 1)/(size·scale − 1); asymmetric i/scale; tf_crop_and_resize the \
          region `roi` (all starts, then all ends, as fractions of size − 1), outside of which the output is \
          `extrapolation`. mode: nearest, rounded by `nearest_mode`; linear; cubic with coefficient `cubic_a`. \
          `antialias` stretches linear and cubic filters when shrinking. Elements outside repeat the border or, with \
          `exclude_outside`, have no weight. Integers are rounded to even and saturate; with `to_f32` those of 8 bits \
          give f32 instead.",
    inputs: &[
        input("x"),
        optional("roi").on_host(),
        optional("scales").on_host(),
        optional("sizes").on_host(),
    ],
    attrs: &[
        choice("mode", || "nearest".into(), &["nearest", "linear", "cubic"]),
        choice("coord", || "half_pixel".into(), coord::Coord::NAMES),
        choice("nearest_mode", || "round_prefer_floor".into(), coord::Rounding::NAMES),
        attr("cubic_a", || Attr::Float(-0.75)),
        attr("antialias", || Attr::Bool(false)),
        attr("exclude_outside", || Attr::Bool(false)),
        attr("extrapolation", || Attr::Float(0.0)),
        attr("axes", || Attr::Ints(Vec::new())),
        TO_F32,
        choice("policy", || "stretch".into(), &["stretch", "not_larger", "not_smaller"]),
    ],
    infer,
    eval,
    tolerance: Tolerance::ByAttrs(sample::tolerance),
    problems: problems::problems,
    traits: Traits::heavy(work),
    roles: Roles {
        absorbs_pointwise: true,
        keeps_f32: true,
        layout: LayoutRule::Axes(named_axes),
        ..Roles::NONE
    },
    ..PLAIN
}];

/// Neighbours of each result along all axes that change.
fn named_axes(attrs: &Attrs, inputs: &[Option<&Fact>], rank: usize) -> Option<NamedAxes> {
    inputs.first().copied().flatten().filter(|x| x.ty.rank() == rank)?;
    Some(NamedAxes { place: AxesPlace::List("axes"), axes: plan::resized(attrs, rank).ok()? })
}

fn work(s: &kiln_ir::work::Shapes<'_>) -> u64 {
    let near = match s.attrs.str("mode") {
        Ok("nearest") => return 0,
        Ok("cubic") => 4,
        _ => 2,
    };
    let wide = s.attrs.bool("antialias").unwrap_or(false);
    let axes = s.dims(0).iter().zip(s.made_dims(0)).filter(|(x, y)| x != y);
    let along = |(x, y): (&u64, &u64)| if wide { near * (1 + x / (*y).max(1)) } else { near };
    axes.map(along).fold(s.made(0), u64::saturating_mul)
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let ok = |d| !matches!(d, DType::F8E4M3 | DType::I4 | DType::Bool);
    cx.check_dtype(0, ok, "f32, f16, bf16, i8, u8, i32 or i64")?;
    Filter::of(cx.attrs)?;
    let mut found = plan::infer(cx)?;
    if cx.attrs.bool(TO_F32.name)? {
        cx.check_dtype(0, |d| matches!(d, DType::I8 | DType::U8), "i8 or u8")?;
        found.dtype = DType::F32;
    }
    Ok(vec![Fact::of(found)])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let shape = cx.out_shape(0)?;
    let filter = Filter::of(cx.attrs())?;
    let floats = |i: usize| cx.get(i).map(Tensor::to_f64);
    let given = Given { roi: floats(1), scales: floats(2), sizes: cx.get(3).map(Tensor::to_i64) };
    let axes = plan::axes(cx.attrs(), x.shape(), &shape, &given)?;
    let extrapolation = cx.attrs().float("extrapolation")?;
    // Dimensions of which every output element is the input's are left out of the sums.
    let (kept, moved): (Vec<usize>, Vec<usize>) = (0..axes.len()).partition(|&d| axes[d].is_identity());
    let tables: Vec<Vec<_>> =
        moved.iter().map(|&d| (0..axes[d].output).map(|o| taps(&filter, &axes[d], o)).collect()).collect();
    let (steps, inner) = (strides(x.shape()), moved.iter().map(|&d| axes[d].input).collect::<Vec<_>>());
    let inner_steps: Vec<usize> = moved.iter().map(|&d| steps[d]).collect();
    let values = x.to_f64();
    let mut y = Vec::new();
    for_each_index(&shape, |at| {
        let taps: Option<Vec<&Vec<_>>> = moved.iter().zip(&tables).map(|(&d, t)| t[at[d]].as_ref()).collect();
        let Some(taps) = taps else { return y.push(extrapolation) };
        let base: usize = kept.iter().map(|&d| at[d] * steps[d]).sum();
        let mut sum = 0.0;
        for_each_combination(&taps, &inner, |p, w| sum += w * values[base + place(p, &inner, &inner_steps)]);
        y.push(sum);
    });
    let range = x.dtype().int_range().filter(|_| !cx.attrs().bool(TO_F32.name).unwrap_or(false));
    let elems = match range {
        Some((lo, hi)) => Elems::I(y.iter().map(|v| (v.round_ties_even() as i64).clamp(lo, hi)).collect()),
        None => Elems::F(y),
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

/// The elements that make output index `o` of one dimension; `None` outside the region.
fn taps(filter: &Filter, axis: &ResizeAxis, o: usize) -> Option<Vec<(Option<i64>, f64)>> {
    Some(filter.taps(axis, o)?.into_iter().map(|(i, w)| (Some(i as i64), w)).collect())
}

/// Position `p`, row-major in a shape, under other strides.
fn place(mut p: usize, shape: &[usize], strides: &[usize]) -> usize {
    let mut at = 0;
    for (n, stride) in shape.iter().zip(strides).rev() {
        at += p % n * stride;
        p /= n;
    }
    at
}
