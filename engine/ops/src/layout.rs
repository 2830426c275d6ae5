//! The order of dimensions of images: channels second, or channels last.
//!
//! Operators that treat the channels of x [N, C, ..] by themselves have the attribute [`LAYOUT`]. With "channels_last"
//! their first input and all outputs are [N, .., C], and weights of `conv` [M, .., C]; other weights, statistics and
//! attributes stay as they are. The shape rule and the oracle are those of the linear layout, with dimensions moved
//! before and after.

use crate::transpose;
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{AttrDef, AxesPlace, LayoutRule, NamedAxes, Op, OpDef, choice};
use kiln_ir::problem::Problem;
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;

/// Attribute: where the channels of the first input and of the outputs are; see [`Layout`].
pub const LAYOUT: AttrDef = choice("layout", || "linear".into(), Layout::NAMES);

/// The order of the dimensions of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// [N, C, ..].
    Linear,
    /// [N, .., C].
    ChannelsLast,
}

impl Layout {
    /// Names of the layouts in attributes.
    pub const NAMES: &[&str] = &["linear", "channels_last"];

    /// The attribute "layout", linear if there is none.
    pub fn of(attrs: &Attrs) -> Layout {
        match attrs.str("layout") {
            Ok("channels_last") => Layout::ChannelsLast,
            _ => Layout::Linear,
        }
    }

    /// Name of the layout in attributes.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Linear => "linear",
            Layout::ChannelsLast => "channels_last",
        }
    }

    /// The dimension of the channels.
    pub fn channel_axis(self, rank: usize) -> usize {
        match self {
            Layout::Linear => 1,
            Layout::ChannelsLast => rank.saturating_sub(1),
        }
    }

    /// The spatial part of a list with one entry a dimension; empty if there is none.
    pub fn spatial<T>(self, dims: &[T]) -> &[T] {
        match self {
            Layout::Linear => dims.get(2..).unwrap_or_default(),
            Layout::ChannelsLast => dims.get(1..dims.len().saturating_sub(1)).unwrap_or_default(),
        }
    }

    /// A list with one entry a dimension, from this layout to the linear one.
    pub fn to_linear<T: Clone>(self, dims: &[T]) -> Vec<T> {
        match self {
            Layout::ChannelsLast if dims.len() > 2 => permuted(dims, &to_first(dims.len())),
            _ => dims.to_vec(),
        }
    }

    /// A list with one entry a dimension, from the linear layout to this one.
    pub fn from_linear<T: Clone>(self, dims: &[T]) -> Vec<T> {
        match self {
            Layout::ChannelsLast if dims.len() > 2 => permuted(dims, &to_last(dims.len())),
            _ => dims.to_vec(),
        }
    }
}

/// The permutation (as of `transpose`) that moves the second dimension to the end: [0, 2, .., 1].
pub fn to_last(rank: usize) -> Vec<usize> {
    (0..rank.min(1)).chain(2..rank).chain(1..rank.min(2)).collect()
}

/// The permutation (as of `transpose`) that moves the last dimension to the second place: [0, rank − 1, 1, ..].
pub fn to_first(rank: usize) -> Vec<usize> {
    (0..rank.min(1)).chain(rank.saturating_sub(1).max(1)..rank).chain(1..rank.saturating_sub(1)).collect()
}

fn permuted<T: Clone>(v: &[T], perm: &[usize]) -> Vec<T> {
    perm.iter().filter_map(|&p| v.get(p).cloned()).collect()
}

fn linear_attrs(attrs: &Attrs) -> Attrs {
    attrs.clone().with("layout", Layout::Linear.name())
}

fn with_dims(ty: &TensorType, f: impl FnOnce(&[Dim]) -> Vec<Dim>) -> TensorType {
    TensorType { dtype: ty.dtype, dims: f(&ty.dims) }
}

/// The axes that input `at` names, for an operator's [`LayoutRule::Axes`]: `Some(None)` if it is absent.
pub(crate) fn listed_axes(inputs: &[Option<&Fact>], at: usize, rank: usize) -> Option<Option<Vec<usize>>> {
    let Some(list) = inputs.get(at).copied().flatten() else { return Some(None) };
    let axis = |a| normalize_axis(a, rank, "axes").ok();
    list.as_const()?.to_i64().into_iter().map(axis).collect::<Option<Vec<_>>>().map(Some)
}

/// The axes that input 3 names, for an operator's [`LayoutRule::Axes`]: without it the first ones, as many as input 1 has
/// groups of `each` numbers.
pub(crate) fn axes_or_first(inputs: &[Option<&Fact>], rank: usize, each: i64) -> Option<NamedAxes> {
    let numbers = inputs.get(1).copied().flatten()?.ty.dims.first()?.as_const()?;
    let first = || (0..usize::try_from(numbers / each).unwrap_or(0)).collect();
    let axes = listed_axes(inputs, 3, rank)?.unwrap_or_else(first);
    Some(NamedAxes { place: AxesPlace::Input(3), axes })
}

/// Number of an operator's inputs, from the first on, that have the layout of images.
pub fn moved_inputs(def: &OpDef) -> usize {
    match def.roles.layout {
        LayoutRule::Attribute(inputs) => inputs,
        _ => 1,
    }
}

/// A shape rule of the linear layout for both.
pub(crate) fn infer(
    cx: &mut InferCx<'_>,
    rule: fn(&mut InferCx<'_>) -> Result<Vec<Fact>, OpError>,
) -> Result<Vec<Fact>, OpError> {
    let layout = Layout::of(cx.attrs);
    if layout == Layout::Linear {
        return rule(cx);
    }
    let moved = moved_inputs(cx.def);
    let mut facts: Vec<Option<Fact>> = (0..cx.len()).map(|i| cx.fact(i).cloned()).collect();
    for (i, fact) in facts.iter_mut().enumerate().take(moved) {
        *fact = Some(Fact::of(with_dims(cx.ty(i)?, |d| layout.to_linear(d))));
    }
    let attrs = linear_attrs(cx.attrs);
    let out = rule(&mut cx.reordered(&attrs, &facts)).map_err(|e| said_of_linear(e, moved))?;
    Ok(out.into_iter().map(|f| Fact::of(with_dims(&f.ty, |d| layout.from_linear(d)))).collect())
}

/// A complaint about the shape of an input that was moved names its linear form.
fn said_of_linear(e: OpError, moved: usize) -> OpError {
    match e {
        OpError::Shape { input, found, wanted } if input < moved => {
            OpError::Shape { input, found: format!("{found} (channels moved second)"), wanted }
        }
        other => other,
    }
}

/// An oracle of the linear layout for both.
pub(crate) fn eval(
    cx: &EvalCx<'_>,
    oracle: fn(&EvalCx<'_>) -> Result<Vec<Tensor>, OpError>,
) -> Result<Vec<Tensor>, OpError> {
    let layout = Layout::of(cx.attrs());
    if layout == Layout::Linear {
        return oracle(cx);
    }
    let mut inputs: Vec<Option<Tensor>> = (0..cx.len()).map(|i| cx.get(i).cloned()).collect();
    for (i, x) in inputs.iter_mut().enumerate().take(moved_inputs(cx.op.def())) {
        *x = Some(transpose::permute(cx.input(i)?, &to_first(cx.input(i)?.shape().len()))?);
    }
    let op = Op::from_def(cx.op.def(), linear_attrs(cx.attrs()))?;
    let types: Vec<TensorType> =
        cx.out_types().iter().map(|t| with_dims(t, |d| layout.to_linear(d))).collect();
    let out = oracle(&EvalCx::new(&op, &inputs, &types))?;
    out.iter().map(|t| transpose::permute(t, &to_last(t.shape().len()))).collect()
}

/// The problems of an operator, and those of rank 3 and more again with channels last.
pub(crate) fn both(problems: Vec<Problem>) -> Vec<Problem> {
    let last: Vec<Problem> = problems.iter().filter_map(channels_last).collect();
    problems.into_iter().chain(last).collect()
}

fn channels_last(p: &Problem) -> Option<Problem> {
    p.inputs.first()?.as_ref().filter(|x| x.shape().len() > 2)?;
    let attrs = p.op.attrs().clone().with("layout", Layout::ChannelsLast.name());
    let mut inputs = p.inputs.clone();
    for x in inputs.iter_mut().take(moved_inputs(p.op.def())).flatten() {
        *x = transpose::permute(x, &to_last(x.shape().len())).ok()?;
    }
    Some(Problem::of(&format!("{}, channels last", p.label), p.op.name(), attrs, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, iota, run, run_all};
    use kiln_ir::{DType, Dim};

    fn last() -> Attrs {
        Attrs::new().with("layout", "channels_last")
    }

    #[test]
    fn permutations_invert_each_other() {
        for (rank, back) in
            [(0, vec![]), (1, vec![0]), (2, vec![0, 1]), (3, vec![0, 2, 1]), (5, vec![0, 4, 1, 2, 3])]
        {
            assert_eq!(to_first(rank), back);
            let there = to_last(rank);
            let both: Vec<usize> = to_first(rank).iter().map(|&p| there[p]).collect();
            assert_eq!(both, (0..rank).collect::<Vec<_>>());
        }
        assert_eq!(to_last(4), [0, 2, 3, 1]);
    }

    #[test]
    fn a_convolution_of_interleaved_channels() {
        // Two channels a and b at each of three places; the kernel takes a + 10·b of the place to the right.
        let x = f32s(&[1, 3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let w = f32s(&[2, 2, 2], &[0.0, 0.0, 1.0, 10.0, 1.0, 0.0, 0.0, 0.0]);
        let b = f32s(&[2], &[0.0, 100.0]);
        let y = run("conv", last(), &[x, w, b]);
        assert_near(&y, &[1, 2, 2], &[52.0, 101.0, 63.0, 102.0], 0.0);
    }

    #[test]
    fn pooling_and_norms_keep_channels_apart() {
        let x = f32s(&[1, 2, 2, 2], &[1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0]);
        let y = run("pool", last().with("kernel", vec![2i64, 2]), std::slice::from_ref(&x));
        assert_near(&y, &[1, 1, 1, 2], &[4.0, -1.0], 0.0);
        let c = |a: f64, b: f64| f32s(&[2], &[a, b]);
        let inputs = [x, c(1.0, 10.0), c(0.5, 0.0), c(0.0, 0.0), c(1.0, 1.0)];
        let y = run("batch_norm", last().with("epsilon", 0.0), &inputs);
        assert_near(&y, &[1, 2, 2, 2], &[1.5, -10.0, 2.5, -20.0, 3.5, -30.0, 4.5, -40.0], 1e-6);
    }

    #[test]
    fn sizes_are_symbols_in_their_places() {
        let x = (DType::F32, vec![Dim::host("n"), Dim::host("h"), 8.into(), 3.into()]);
        let w = (DType::F32, [16, 3, 3, 3].map(Dim::new).to_vec());
        let y = infer("conv", last().with("strides", vec![2i64, 2]).with("pads", vec![1i64; 4]), &[x, w])
            .unwrap();
        assert_eq!(y[0].ty.to_string(), "f32[n,floordiv(h + -1, 2) + 1,4,16]");
    }

    #[test]
    fn unknown_layouts_and_wrong_channels_are_refused() {
        assert!(Op::new("conv", Attrs::new().with("layout", "nchw")).is_err());
        let e = run_all("conv", last(), &[Some(iota(&[1, 3, 5])), Some(iota(&[4, 3, 1]))]).unwrap_err();
        assert!(e.to_string().contains("5 channels by 1 groups"), "{e}");
        let e = run_all("conv", last(), &[Some(iota(&[1, 3])), Some(iota(&[4, 3]))]).unwrap_err();
        assert!(e.to_string().contains("spatial dimensions"), "{e}");
    }
}
