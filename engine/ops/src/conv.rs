//! `conv`: convolution (correlation) in one to three spatial dimensions.

pub mod col2im;
pub mod deformable;

pub mod transposed;
pub mod window;

mod problems;

use crate::conv::window::{Axis, DILATIONS, PAD_MODE, PADS, STRIDES};
use crate::layout::{self, LAYOUT, Layout};
use crate::util::{PLAIN, for_each_index, product_dtype};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{AttrDef, LayoutRule, OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

/// Attribute: groups of channels that are convolved by themselves.
pub const GROUPS: AttrDef = attr("groups", || Attr::Int(1));

kiln_ir::op_names! {
    CONV = "conv",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: CONV,
    doc: "Convolution (correlation: the kernel is not flipped) of x [N, C, ..] with w [M, C/groups, kernel..] and bias \
          [M], giving [N, M, ..], for one to three spatial dimensions. Output channels of group g read the input \
          channels of group g. Floats accumulate in f32 at least and round once to the input type; i8 and u8 (mixed \
          allowed) give i32; f8e4m3 gives f32; i32 and i64 wrap. The bias has the output's type. With channels last x and y \
          are [N, .., C], w is [M, kernel.., C/groups].",
    inputs: &[input("x"), input("w"), optional("bias")],
    attrs: &[STRIDES, PADS, DILATIONS, GROUPS, PAD_MODE, LAYOUT],
    infer: |cx| layout::infer(cx, infer),
    eval: |cx| layout::eval(cx, eval),
    tolerance: Tolerance::Sum,
    problems: |rng| layout::both(problems::problems(rng)),
    traits: Traits::heavy(|s| s.made(0).saturating_mul(s.filter(1))),
    roles: Roles {
        layout: LayoutRule::Attribute(2),
        absorbs_pointwise: true,
        gains_channels_last: true,
        ..Roles::NONE
    },
    ..PLAIN
}];

/// The windows of a `conv` with these attributes over x of dimensions `x` by weights of dimensions `w`,
/// both as the layout has them.
pub fn geometry(attrs: &Attrs, x: &[Dim], w: &[Dim]) -> Result<Vec<Axis<Dim>>, OpError> {
    window::windows(attrs, Layout::of(attrs).spatial(x), Layout::of(attrs).spatial(w))
}

/// The attribute "groups" (or another name for it), which must divide `channels` in `what`.
pub fn groups(attrs: &Attrs, name: &str, channels: &Dim, what: &str) -> Result<i64, OpError> {
    let g = attrs.int(name)?;
    if g >= 1 && channels.as_const().is_none_or(|c| c % g == 0) {
        return Ok(g);
    }
    let wanted = format!("a positive divisor of {channels}, the {what}");
    Err(OpError::Attr { name: name.into(), found: g.to_string(), wanted })
}

/// x must have one to three spatial dimensions, w as many; a bias (input `bias`) one element an output channel.
pub(crate) fn check_ranks(cx: &InferCx<'_>) -> Result<(), OpError> {
    cx.check_shape(0, |d| (3..=5).contains(&d.len()), "[N, C, ..] with one to three spatial dimensions")?;
    cx.check_rank(1, cx.dims(0)?.len())
}

/// The bias, if present, has one element an output channel, of the output's type.
pub(crate) fn check_bias(cx: &InferCx<'_>, i: usize, out: &TensorType) -> Result<(), OpError> {
    if !cx.has(i) {
        return Ok(());
    }
    cx.check_dtype(i, |d| d == out.dtype, &format!("{}, as the output is", out.dtype))?;
    let channels = &out.dims[1];
    cx.check_shape(
        i,
        |d| d.len() == 1 && !differ(&d[0], channels),
        &format!("[{channels}], one an output channel"),
    )
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    check_ranks(cx)?;
    let (x, w) = (cx.dims(0)?, cx.dims(1)?);
    let g = groups(cx.attrs, "groups", &w[0], "output channels")?;
    if differ(&x[1], &(w[1].clone() * g.into())) {
        return Err(cx.bad_shape(1, &format!("{} channels by {g} groups in dimension 1", x[1])));
    }
    let axes = geometry(cx.attrs, x, w)?;
    let mut dims = vec![x[0].clone(), w[0].clone()];
    dims.extend(axes.into_iter().map(|a| a.output));
    let ty = TensorType { dtype: product_dtype(cx, 0, 1)?, dims };
    check_bias(cx, 2, &ty)?;
    Ok(vec![Fact::of(ty)])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let shape = cx.out_shape(0)?;
    let job = Job {
        axes: window::known(&geometry(cx.attrs(), &window::dims(x.shape()), &window::dims(w.shape()))?)?,
        x: x.shape(),
        w: w.shape(),
        y: &shape,
        groups: cx.attrs().int("groups")? as usize,
    };
    let bias = cx.get(2).map(Tensor::elems);
    let elems = match (x.elems(), w.elems(), &bias) {
        (Elems::F(x), Elems::F(w), Some(Elems::F(b))) => {
            Elems::F(job.run(&x, &w, |m| b[m], |s, a, b| s + a * b))
        }
        (Elems::F(x), Elems::F(w), _) => Elems::F(job.run(&x, &w, |_| 0.0, |s, a, b| s + a * b)),
        (Elems::I(x), Elems::I(w), Some(Elems::I(b))) => Elems::I(job.run(&x, &w, |m| b[m], fma)),
        (x, w, _) => Elems::I(job.run(&ints(x), &ints(w), |_| 0, fma)),
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

/// s + a·b, wrapping.
pub(crate) fn fma(s: i64, a: i64, b: i64) -> i64 {
    s.wrapping_add(a.wrapping_mul(b))
}

/// The integers among widened elements.
pub(crate) fn ints(e: Elems) -> Vec<i64> {
    match e {
        Elems::I(v) => v,
        Elems::F(_) => Vec::new(),
    }
}

struct Job<'a> {
    axes: Vec<Axis<i64>>,
    x: &'a [usize],
    w: &'a [usize],
    y: &'a [usize],
    groups: usize,
}

impl Job<'_> {
    /// Every output element: the bias of its channel, then products in the order of channels and taps.
    fn run<T: Copy>(&self, x: &[T], w: &[T], bias: impl Fn(usize) -> T, fma: fn(T, T, T) -> T) -> Vec<T> {
        let volume = |s: &[usize]| s.iter().product::<usize>();
        let (inputs, taps, outputs) = (volume(&self.x[2..]), volume(&self.w[2..]), volume(&self.y[2..]));
        let (n, channels, m, depth) = (self.x[0], self.x[1], self.w[0], self.w[1]);
        let group = (m / self.groups).max(1);
        let mut y: Vec<T> = (0..n * m * outputs).map(|i| bias(i / outputs % m)).collect();
        let mut at_output = 0;
        for_each_index(&self.y[2..], |at| {
            let mut under = Vec::new();
            window::for_each_tap(&self.axes, at, |tap, position| under.push((tap, position)));
            for (image, o) in (0..n).flat_map(|image| (0..m).map(move |o| (image, o))) {
                kiln_ir::stop::checkpoint();
                let sum = &mut y[(image * m + o) * outputs + at_output];
                for c in 0..depth {
                    let from = (image * channels + o / group * depth + c) * inputs;
                    for &(tap, position) in &under {
                        *sum = fma(*sum, x[from + position], w[(o * depth + c) * taps + tap]);
                    }
                }
            }
            at_output += 1;
        });
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, floats, infer, ints, iota, run, run_all};
    use kiln_ir::dtype::DType;

    #[test]
    fn a_box_filter_with_and_without_padding() {
        let (x, w) = (iota(&[1, 1, 5, 5]), f32s(&[1, 1, 3, 3], &[1.0; 9]));
        let valid = run("conv", Attrs::new(), &[x.clone(), w.clone()]);
        let want = [54.0, 63.0, 72.0, 99.0, 108.0, 117.0, 144.0, 153.0, 162.0];
        assert_near(&valid, &[1, 1, 3, 3], &want, 0.0);
        let same = run("conv", Attrs::new().with("pads", vec![1i64; 4]), &[x, w]);
        assert_eq!(same.shape(), [1, 1, 5, 5]);
        assert_eq!(same.to_f64()[..5], [12.0, 21.0, 27.0, 33.0, 24.0]);
    }

    #[test]
    fn the_kernel_is_not_flipped_and_bias_is_added() {
        let (x, w) = (f32s(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]), f32s(&[2, 1, 2], &[1.0, 10.0, 0.0, 1.0]));
        let b = f32s(&[2], &[0.5, -1.0]);
        let y = run("conv", Attrs::new(), &[x, w, b]);
        assert_near(&y, &[1, 2, 3], &[21.5, 32.5, 43.5, 1.0, 2.0, 3.0], 0.0);
    }

    #[test]
    fn groups_strides_dilations_and_asymmetric_padding() {
        let x = iota(&[1, 2, 5]);
        let w = f32s(&[2, 1, 2], &[1.0, 100.0, 1.0, -1.0]);
        let attrs = Attrs::new()
            .with("groups", 2i64)
            .with("strides", vec![2i64])
            .with("dilations", vec![2i64])
            .with("pads", vec![1i64, 2]);
        // Windows start at −1, 1, 3 and touch two elements apart; channel 1 holds 5..9.
        let want = [100.0, 301.0, 3.0, -6.0, -2.0, 8.0];
        assert_near(&run("conv", attrs, &[x, w]), &[1, 2, 3], &want, 0.0);
    }

    #[test]
    fn three_dimensions_are_sums_over_boxes() {
        let (x, w) = (iota(&[1, 1, 2, 2, 3]), f32s(&[1, 1, 2, 2, 2], &[1.0; 8]));
        let y = run("conv", Attrs::new(), &[x, w]);
        assert_near(&y, &[1, 1, 1, 1, 2], &[40.0, 48.0], 0.0);
    }

    #[test]
    fn bytes_give_i32_and_halves_round_once() {
        let x = ints(DType::U8, &[1, 1, 3], &[255, 255, 255]);
        let w = ints(DType::I8, &[1, 1, 3], &[-128, -128, -128]);
        let y = run("conv", Attrs::new(), &[x, w]);
        assert_eq!((y.dtype(), y.to_i64()), (DType::I32, vec![-97920]));
        let x = floats(DType::F16, &[1, 1, 4097], &[1.0; 4097]);
        let w = floats(DType::F16, &[1, 1, 4097], &[1.0; 4097]);
        assert_eq!(run("conv", Attrs::new(), &[x, w]).to_f64(), [4096.0]);
    }

    #[test]
    fn symbolic_sizes() {
        let (n, h) = (Dim::host("n"), Dim::host("h"));
        let x = (DType::F32, vec![n, 3.into(), h, 8.into()]);
        let w = (DType::F32, window::dims(&[16, 3, 3, 3]));
        let attrs = Attrs::new().with("strides", vec![2i64, 2]).with("pads", vec![1i64; 4]);
        let y = infer("conv", attrs, &[x, w]).unwrap();
        assert_eq!(y[0].ty.to_string(), "f32[n,16,floordiv(h + -1, 2) + 1,4]");
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let go = |x: &[usize], w: &[usize], groups: i64| {
            let attrs = Attrs::new().with("groups", groups);
            run_all("conv", attrs, &[Some(iota(x)), Some(iota(w))]).unwrap_err().to_string()
        };
        assert!(go(&[1, 3, 5], &[4, 2, 3], 1).contains("3 channels by 1 groups"));
        assert!(go(&[1, 4, 5], &[3, 2, 3], 2).contains("a positive divisor of 3"));
        assert!(go(&[1, 4, 5], &[3, 2, 3], 0).contains("attribute \"groups\" is 0"));
        assert!(go(&[1, 4], &[3, 4], 1).contains("one to three spatial dimensions"));
        assert!(go(&[1, 4, 5], &[3, 4, 1, 1], 1).contains("wants 3 dimensions"));
        let bias = [Some(iota(&[1, 1, 3])), Some(iota(&[2, 1, 1])), Some(iota(&[3]))];
        assert!(run_all("conv", Attrs::new(), &bias).is_err());
    }
}
