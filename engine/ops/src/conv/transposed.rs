//! `conv_transpose`: the transpose (gradient) of convolution.

use crate::conv::window::{self, Axis, DILATIONS, PAD_MODE, PADS, STRIDES};
use crate::conv::{GROUPS, check_bias, check_ranks, fma, groups, ints};
use crate::layout::{self, LAYOUT, Layout};
use crate::util::{PLAIN, for_each_index, product_dtype};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{LayoutRule, OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    CONV_TRANSPOSE = "conv_transpose",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: CONV_TRANSPOSE,
    doc: "Transposed convolution of x [N, C, ..] with w [C, M/groups, kernel..] and bias [M], giving [N, M, ..], for \
          one to three spatial dimensions: every element of x adds its multiple of the kernel to the result at its \
          position times the stride, padding cut off. `output_padding` lengthens the end; `output_shape` (spatial) \
          sets the size and derives the padding. Types and layouts as in conv.",
    inputs: &[input("x"), input("w"), optional("bias")],
    attrs: &[
        STRIDES,
        PADS,
        DILATIONS,
        GROUPS,
        attr("output_padding", || Attr::Ints(Vec::new())),
        attr("output_shape", || Attr::Ints(Vec::new())),
        PAD_MODE,
        LAYOUT,
    ],
    infer: |cx| layout::infer(cx, infer),
    eval: |cx| layout::eval(cx, eval),
    tolerance: Tolerance::Sum,
    problems: |rng| layout::both(problems(rng)),
    traits: Traits::heavy(|s| s.volume(0).saturating_mul(s.filter(1))),
    roles: Roles {
        layout: LayoutRule::Attribute(1),
        absorbs_pointwise: true,
        gains_channels_last: true,
        ..Roles::NONE
    },
    ..PLAIN
}];

/// The windows of the convolution that a `conv_transpose` transposes; see [`window::transposed::windows`].
pub fn geometry(attrs: &Attrs, x: &[Dim], w: &[Dim]) -> Result<Vec<Axis<Dim>>, OpError> {
    window::transposed::windows(attrs, Layout::of(attrs).spatial(x), w.get(2..).unwrap_or_default())
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    check_ranks(cx)?;
    let (x, w) = (cx.dims(0)?, cx.dims(1)?);
    let g = groups(cx.attrs, "groups", &x[1], "input channels")?;
    if differ(&x[1], &w[0]) {
        return Err(cx.bad_shape(1, &format!("{} input channels in dimension 0", x[1])));
    }
    let axes = geometry(cx.attrs, x, w)?;
    let mut dims = vec![x[0].clone(), w[1].clone() * g.into()];
    dims.extend(axes.into_iter().map(|a| a.input));
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

struct Job<'a> {
    axes: Vec<Axis<i64>>,
    x: &'a [usize],
    w: &'a [usize],
    y: &'a [usize],
    groups: usize,
}

impl Job<'_> {
    /// Starts from the bias and adds, for every operand element in order, its multiple of the kernel.
    fn run<T: Copy>(&self, x: &[T], w: &[T], bias: impl Fn(usize) -> T, fma: fn(T, T, T) -> T) -> Vec<T> {
        let volume = |s: &[usize]| s.iter().product::<usize>();
        let (inputs, taps, outputs) = (volume(&self.x[2..]), volume(&self.w[2..]), volume(&self.y[2..]));
        let (n, channels, depth, m) = (self.x[0], self.x[1], self.w[1], self.y[1]);
        let group = (channels / self.groups).max(1);
        let mut y: Vec<T> = (0..n * m * outputs).map(|i| bias(i / outputs % m)).collect();
        let mut at_input = 0;
        for_each_index(&self.x[2..], |at| {
            let mut reached = Vec::new();
            window::for_each_tap(&self.axes, at, |tap, position| reached.push((tap, position)));
            for (image, c) in (0..n).flat_map(|image| (0..channels).map(move |c| (image, c))) {
                let value = x[(image * channels + c) * inputs + at_input];
                for k in 0..depth {
                    let to = (image * m + c / group * depth + k) * outputs;
                    for &(tap, position) in &reached {
                        let sum = &mut y[to + position];
                        *sum = fma(*sum, value, w[(c * depth + k) * taps + tap]);
                    }
                }
            }
            at_input += 1;
        });
        y
    }
}

struct Case {
    label: &'static str,
    x: &'static [usize],
    w: &'static [usize],
    strides: &'static [i64],
    pads: &'static [i64],
    dilations: &'static [i64],
    groups: i64,
    extra: &'static [i64],
    size: &'static [i64],
    mode: &'static str,
}

const BASE: Case = Case {
    label: "",
    x: &[],
    w: &[],
    strides: &[],
    pads: &[],
    dilations: &[],
    groups: 1,
    extra: &[],
    size: &[],
    mode: "explicit",
};

const CASES: &[Case] = &[
    Case { label: "3x3", x: &[2, 3, 5, 4], w: &[3, 5, 3, 3], ..BASE },
    Case {
        label: "strides, asymmetric pads",
        x: &[1, 2, 4, 5],
        w: &[2, 3, 3, 4],
        strides: &[2, 3],
        pads: &[1, 0, 2, 1],
        ..BASE
    },
    Case {
        label: "output padding, groups",
        x: &[1, 4, 3, 3],
        w: &[4, 2, 3, 3],
        strides: &[2, 3],
        extra: &[1, 2],
        groups: 2,
        ..BASE
    },
    Case { label: "dilated", x: &[1, 2, 4, 4], w: &[2, 2, 2, 3], dilations: &[3, 2], ..BASE },
    Case {
        label: "output shape",
        x: &[1, 1, 3, 3],
        w: &[1, 2, 3, 3],
        strides: &[3, 2],
        size: &[8, 5],
        ..BASE
    },
    Case {
        label: "same_upper",
        x: &[1, 2, 3, 4],
        w: &[2, 3, 3, 4],
        strides: &[2, 2],
        mode: "same_upper",
        ..BASE
    },
    Case {
        label: "same_lower",
        x: &[1, 2, 3, 4],
        w: &[2, 3, 3, 4],
        strides: &[2, 1],
        mode: "same_lower",
        ..BASE
    },
    Case { label: "stride over the kernel", x: &[1, 2, 3, 3], w: &[2, 2, 1, 2], strides: &[3, 3], ..BASE },
    Case { label: "depthwise", x: &[2, 5, 4, 4], w: &[5, 1, 2, 2], strides: &[2, 2], groups: 5, ..BASE },
    Case { label: "1-D", x: &[2, 3, 7], w: &[3, 4, 5], strides: &[2], pads: &[2, 1], ..BASE },
    Case { label: "3-D", x: &[1, 2, 3, 2, 3], w: &[2, 3, 2, 3, 2], strides: &[1, 2, 2], ..BASE },
    Case { label: "batch 0", x: &[0, 2, 3, 3], w: &[2, 3, 2, 2], ..BASE },
    Case { label: "no input channels", x: &[1, 0, 3, 3], w: &[0, 3, 2, 2], ..BASE },
];

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for c in CASES {
        for (t, bias) in [(DType::F32, false), (DType::F32, true), (DType::F16, true), (DType::BF16, false)] {
            let attrs = Attrs::new()
                .with("strides", c.strides)
                .with("pads", c.pads)
                .with("dilations", c.dilations)
                .with("groups", c.groups)
                .with("output_padding", c.extra)
                .with("output_shape", c.size)
                .with("pad_mode", c.mode);
            let b = bias.then(|| rng.tensor(t, &[c.w[1] * c.groups as usize]));
            let inputs = [Some(rng.tensor(t, c.x)), Some(rng.tensor(t, c.w)), b];
            out.push(Problem::of(&format!("{} {t}", c.label), "conv_transpose", attrs, inputs));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, iota, run, run_all};

    #[test]
    fn a_row_spreads_over_its_neighbours() {
        let (x, w) = (f32s(&[1, 1, 3], &[0.0, 1.0, 2.0]), f32s(&[1, 2, 3], &[1.0; 6]));
        let row = [0.0, 1.0, 3.0, 3.0, 2.0];
        let y = run("conv_transpose", Attrs::new(), &[x.clone(), w.clone()]);
        assert_near(&y, &[1, 2, 5], &[row, row].concat(), 0.0);
        let cut = Attrs::new().with("pads", vec![1i64, 2]);
        assert_near(&run("conv_transpose", cut, &[x, w]), &[1, 2, 2], &[1.0, 3.0, 1.0, 3.0], 0.0);
    }

    #[test]
    fn strides_leave_zeros_that_hold_the_bias() {
        let (x, w) = (f32s(&[1, 1, 2], &[1.0, 2.0]), f32s(&[1, 1, 2], &[10.0, 1.0]));
        let attrs = Attrs::new().with("strides", vec![3i64]).with("output_padding", vec![1i64]);
        let y = run("conv_transpose", attrs, &[x, w, f32s(&[1], &[0.5])]);
        assert_near(&y, &[1, 1, 6], &[10.5, 1.5, 0.5, 20.5, 2.5, 0.5], 0.0);
    }

    #[test]
    fn groups_do_not_mix() {
        let (x, w) = (f32s(&[1, 2, 1], &[2.0, 3.0]), f32s(&[2, 2, 1], &[1.0, 10.0, 100.0, 1000.0]));
        let y = run("conv_transpose", Attrs::new().with("groups", 2i64), &[x, w]);
        assert_near(&y, &[1, 4, 1], &[2.0, 20.0, 300.0, 3000.0], 0.0);
    }

    /// ⟨conv(a), b⟩ = ⟨a, conv_transpose(b)⟩ for the same weights and geometry.
    #[test]
    fn it_is_the_transpose_of_conv() {
        let mut rng = Rng::new(3);
        let attrs = Attrs::new()
            .with("strides", vec![2i64, 1])
            .with("pads", vec![1i64, 2, 0, 1])
            .with("dilations", vec![1i64, 2])
            .with("groups", 2i64);
        let (a, w) = (rng.tensor(DType::F32, &[2, 4, 6, 7]), rng.tensor(DType::F32, &[6, 2, 3, 2]));
        let y = run("conv", attrs.clone(), &[a.clone(), w.clone()]);
        let b = rng.tensor(DType::F32, y.shape());
        let x = run("conv_transpose", attrs, &[b.clone(), w]);
        assert_eq!(x.shape(), a.shape());
        let dot = |p: &Tensor, q: &Tensor| p.to_f64().iter().zip(q.to_f64()).map(|(x, y)| x * y).sum::<f64>();
        assert!((dot(&y, &b) - dot(&a, &x)).abs() < 1e-3);
    }

    #[test]
    fn weights_of_other_channels_are_refused() {
        let e = run_all("conv_transpose", Attrs::new(), &[Some(iota(&[1, 3, 4])), Some(iota(&[2, 3, 1]))]);
        assert!(e.unwrap_err().to_string().contains("3 input channels in dimension 0"));
    }
}
