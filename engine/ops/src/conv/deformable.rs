//! `deform_conv`: convolution whose taps are moved by data.

use crate::conv::window::{self, Axis, DILATIONS, PADS, STRIDES};
use crate::conv::{GROUPS, check_bias, check_ranks, geometry, groups};
use crate::sample::{self, Interpolation, Padding};
use crate::util::{PLAIN, REAL, check_fits, for_each_index, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    DEFORM_CONV = "deform_conv",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: DEFORM_CONV,
    doc: "Convolution as `conv`, of floats, each tap moved by its offset and multiplied by its mask. offset [N, \
          offset_groups·kernel volume·r, out..] holds, for each group of input channels and tap, a distance in \
          elements for each of the r spatial dimensions, outermost first; mask [N, offset_groups·kernel volume, \
          out..] one factor. Values between elements are interpolated linearly, outside there are zeros.",
    inputs: &[input("x"), input("w"), input("offset"), optional("bias"), optional("mask")],
    attrs: &[STRIDES, PADS, DILATIONS, GROUPS, attr("offset_groups", || Attr::Int(1))],
    infer,
    eval,
    tolerance: Tolerance::Sampled,
    problems,
    traits: Traits::heavy(|s| s.made(0).saturating_mul(s.filter(1)).saturating_mul(4)),
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    for i in 1..cx.len() {
        if cx.has(i) {
            cx.same_dtype(0, i)?;
        }
    }
    check_ranks(cx)?;
    let (x, w) = (cx.ty(0)?, cx.dims(1)?);
    let g = groups(cx.attrs, "groups", &w[0], "output channels")?;
    let moved = groups(cx.attrs, "offset_groups", &x.dims[1], "input channels")?;
    if differ(&x.dims[1], &(w[1].clone() * g.into())) {
        return Err(cx.bad_shape(1, &format!("{} channels by {g} groups in dimension 1", x.dims[1])));
    }
    let out: Vec<Dim> = geometry(cx.attrs, &x.dims, w)?.into_iter().map(|a| a.output).collect();
    let taps = w[2..].iter().cloned().product::<Dim>() * moved.into();
    let placed = |channels: Dim| [&[x.dims[0].clone(), channels][..], &out].concat();
    check_fits(cx, 2, &placed(taps.clone() * (x.rank() as i64 - 2).into()), false)?;
    check_fits(cx, 4, &placed(taps), false)?;
    let ty = TensorType { dtype: x.dtype, dims: [&[x.dims[0].clone(), w[0].clone()][..], &out].concat() };
    check_bias(cx, 3, &ty)?;
    Ok(vec![Fact::of(ty)])
}

/// Elements (`None`: zero) and weights for a tap at `base` moved by an offset; NaN weights for an offset that is none.
pub fn taps_at(base: i64, offset: f32, size: i64) -> Vec<(Option<i64>, f64)> {
    let at = |i| sample::element(i, size, Padding::Zeros, true);
    // One addition in f32, as on every backend.
    sample::taps(Interpolation::Linear, base as f32 + offset).into_iter().map(|(i, w)| (at(i), w)).collect()
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, w, a) = (cx.input(0)?, cx.input(1)?, cx.attrs());
    let shape = cx.out_shape(0)?;
    let job = Job {
        axes: window::known(&geometry(a, &window::dims(x.shape()), &window::dims(w.shape()))?)?,
        x: x.to_f64(),
        w: w.to_f64(),
        offset: cx.input(2)?.to_f64(),
        mask: cx.get(4).map(Tensor::to_f64),
        x_shape: x.shape(),
        w_shape: w.shape(),
        y_shape: &shape,
        groups: a.int("groups")? as usize,
        offset_groups: a.int("offset_groups")? as usize,
    };
    let bias = cx.get(3).map_or(vec![0.0; shape[1]], Tensor::to_f64);
    Ok(vec![cx.make(0, &shape, Elems::F(job.run(&bias)))?])
}

struct Job<'a> {
    axes: Vec<Axis<i64>>,
    x: Vec<f64>,
    w: Vec<f64>,
    offset: Vec<f64>,
    mask: Option<Vec<f64>>,
    x_shape: &'a [usize],
    w_shape: &'a [usize],
    y_shape: &'a [usize],
    groups: usize,
    offset_groups: usize,
}

impl Job<'_> {
    fn run(&self, bias: &[f64]) -> Vec<f64> {
        let (n, m) = (self.y_shape[0], self.y_shape[1]);
        let outputs: usize = self.y_shape[2..].iter().product();
        let mut y: Vec<f64> = (0..n * m * outputs).map(|i| bias[i / outputs % m]).collect();
        for image in 0..n {
            let mut o = 0;
            for_each_index(&self.y_shape[2..], |at| {
                let column = self.column(image, at, o, outputs);
                for k in 0..m {
                    y[(image * m + k) * outputs + o] += self.product(k, &column);
                }
                o += 1;
            });
        }
        y
    }

    /// The values under all taps of all input channels for one window: channel by channel, tap by tap.
    fn column(&self, image: usize, at: &[usize], o: usize, outputs: usize) -> Vec<f64> {
        let kernel = &self.w_shape[2..];
        let (taps, r): (usize, usize) = (kernel.iter().product(), kernel.len());
        let channels = self.x_shape[1];
        let (spatial, per_group) = (&self.x_shape[2..], channels.div_ceil(self.offset_groups).max(1));
        let volume: usize = spatial.iter().product();
        let mut column = Vec::with_capacity(channels * taps);
        for c in 0..channels {
            let mut tap = 0;
            for_each_index(kernel, |k| {
                let slot = (image * self.offset_groups + c / per_group) * taps + tap;
                let around: Vec<_> = (0..r)
                    .map(|d| {
                        let a = &self.axes[d];
                        let base = at[d] as i64 * a.stride + k[d] as i64 * a.dilation - a.begin;
                        taps_at(base, self.offset[(slot * r + d) * outputs + o] as f32, a.input)
                    })
                    .collect();
                let plane = &self.x[(image * channels + c) * volume..][..volume];
                let mut value = 0.0;
                sample::for_each_combination(&around, spatial, |p, w| value += w * plane[p]);
                column.push(value * self.mask.as_ref().map_or(1.0, |m| m[slot * outputs + o]));
                tap += 1;
            });
        }
        column
    }

    /// The weights of output channel `k` times the part of a column that its group reads.
    fn product(&self, k: usize, column: &[f64]) -> f64 {
        let size = self.w_shape[1..].iter().product::<usize>();
        let group = k / (self.w_shape[0] / self.groups).max(1);
        let part = column.iter().skip(group * size).take(size);
        part.zip(&self.w[k * size..]).map(|(a, b)| a * b).sum()
    }
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    struct Case(&'static str, &'static [usize], &'static [usize], [i64; 2], [&'static [i64]; 3]);
    let cases = [
        Case("3x3, padded", &[2, 3, 6, 5], &[4, 3, 3, 3], [1, 1], [&[], &[1, 1, 1, 1], &[]]),
        Case("groups", &[1, 4, 7, 6], &[4, 2, 3, 2], [2, 2], [&[2, 1], &[1, 0, 0, 1], &[1, 2]]),
        Case("offset groups", &[1, 6, 5, 5], &[2, 6, 2, 2], [1, 3], [&[], &[], &[]]),
        Case("1-D", &[2, 2, 9], &[3, 2, 3], [1, 1], [&[2], &[1, 1], &[]]),
        Case("3-D", &[1, 2, 3, 4, 3], &[2, 2, 2, 2, 2], [1, 1], [&[], &[], &[]]),
        Case("batch 0", &[0, 2, 4, 4], &[2, 2, 2, 2], [1, 1], [&[], &[], &[]]),
    ];
    let mut out = Vec::new();
    for Case(label, x, w, [g, moved], [strides, pads, dilations]) in cases {
        let attrs = Attrs::new()
            .with("groups", g)
            .with("offset_groups", moved)
            .with("strides", strides)
            .with("pads", pads)
            .with("dilations", dilations);
        let Ok(axes) = geometry(&attrs, &window::dims(x), &window::dims(w)) else { continue };
        let sizes = axes.into_iter().filter_map(|a| a.output.as_const()).map(|o| o as usize);
        let sizes: Vec<usize> = sizes.collect();
        let slots = w[2..].iter().product::<usize>() * moved as usize;
        for (t, full) in [(DType::F32, false), (DType::F32, true), (DType::F16, true)] {
            let placed = |channels: usize| [&[x[0], channels][..], &sizes].concat();
            let inputs = [
                Some(rng.tensor(t, x)),
                Some(rng.tensor(t, w)),
                Some(rng.tensor(t, &placed(slots * sizes.len()))),
                full.then(|| rng.tensor(t, &w[..1])),
                full.then(|| rng.tensor_in(t, &placed(slots), 0.0, 1.0, 1)),
            ];
            out.push(Problem::of(
                &format!("{label}, full {full}, {t}"),
                "deform_conv",
                attrs.clone(),
                inputs,
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, iota, run, run_all};

    #[test]
    fn without_offsets_it_is_conv() {
        let mut rng = Rng::new(9);
        let attrs = Attrs::new()
            .with("strides", vec![2i64, 1])
            .with("pads", vec![1i64, 0, 2, 1])
            .with("groups", 2i64);
        let (x, w) = (rng.tensor(DType::F32, &[2, 4, 5, 6]), rng.tensor(DType::F32, &[6, 2, 3, 2]));
        let y = run("conv", attrs.clone(), &[x.clone(), w.clone()]);
        let offset = f32s(&[2, 12, y.shape()[2], y.shape()[3]], &vec![0.0; 24 * y.len() / 12]);
        let moved = run("deform_conv", attrs, &[x, w, offset]);
        assert_near(&moved, y.shape(), &y.to_f64(), 1e-5);
    }

    /// Example of the ONNX documentation: 2×2 ones over 0..9; in the first window the first tap is moved 0.5 down, in
    /// the second the third 0.1 left.
    #[test]
    fn moved_taps_interpolate() {
        let mut offset = [0.0; 32];
        (offset[0], offset[21]) = (0.5, -0.1);
        let inputs = [iota(&[1, 1, 3, 3]), f32s(&[1, 1, 2, 2], &[1.0; 4]), f32s(&[1, 8, 2, 2], &offset)];
        let y = run("deform_conv", Attrs::new(), &inputs);
        assert_near(&y, &[1, 1, 2, 2], &[9.5, 11.9, 20.0, 24.0], 1e-5);
    }

    #[test]
    fn masks_and_bias_and_what_lies_outside() {
        let (x, w) = (f32s(&[1, 1, 3], &[1.0, 2.0, 4.0]), f32s(&[1, 1, 1], &[10.0]));
        let offset = f32s(&[1, 1, 3], &[-0.5, 0.5, 9.0]);
        let (bias, mask) = (f32s(&[1], &[1.0]), f32s(&[1, 1, 3], &[1.0, 0.5, 1.0]));
        let inputs = [x, w, offset, bias, mask].map(Some);
        let y = run_all("deform_conv", Attrs::new(), &inputs).unwrap().remove(0);
        assert_near(&y, &[1, 1, 3], &[6.0, 16.0, 1.0], 1e-6);
    }

    #[test]
    fn offsets_of_another_shape_are_refused() {
        let inputs = [iota(&[1, 1, 3, 3]), iota(&[1, 1, 2, 2]), iota(&[1, 4, 2, 2])].map(Some);
        let e = run_all("deform_conv", Attrs::new(), &inputs).unwrap_err();
        assert_eq!(e.to_string(), "input 2 has shape [1,4,2,2], wants [1,8,2,2]");
    }
}
