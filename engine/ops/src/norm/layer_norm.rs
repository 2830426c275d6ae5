//! `layer_norm`, `rms_norm`: normalization over the last axes.

use crate::util::{
    PLAIN, REAL, broadcast_strides, check_fits, for_each_group, for_each_index, is_real, mask_from, offset,
};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{AttrDef, OpDef, OpName, Roles, Tolerance, attr, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

const ATTRS: &[AttrDef] = &[attr("axis", || Attr::Int(-1)), attr("epsilon", || Attr::Float(1e-5))];

kiln_ir::op_names! {
    LAYER_NORM = "layer_norm",
    RMS_NORM = "rms_norm",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: LAYER_NORM,
        doc: "(x − mean)/√(var + epsilon)·scale + bias, mean and (biased) variance over the axes from `axis` to the \
              last; scale and bias broadcast to x. Also gives the mean and 1/√(var + epsilon) as f32, with dimensions \
              of 1 where x was normalized. Computed in f32 at least, rounded once.",
        inputs: &[input("x"), optional("scale"), optional("bias")],
        outputs: &["y", "mean", "inv_std"],
        attrs: ATTRS,
        infer,
        eval: eval_layer,
        tolerance: Tolerance::Conditioned,
        problems: |rng| problems(LAYER_NORM, rng),
        roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: RMS_NORM,
        doc: "x/√(mean(x²) + epsilon)·scale, the mean over the axes from `axis` to the last; scale broadcasts to x. \
              Computed in f32 at least, rounded once.",
        inputs: &[input("x"), optional("scale")],
        attrs: ATTRS,
        infer,
        eval: eval_rms,
        tolerance: Tolerance::Conditioned,
        problems: |rng| problems(RMS_NORM, rng),
        roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
        ..PLAIN
    },
];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    let x = cx.ty(0)?;
    let axis = cx.axis("axis", x.rank())?;
    for i in 1..cx.len() {
        if cx.has(i) {
            cx.same_dtype(0, i)?;
            check_fits(cx, i, &x.dims, true)?;
        }
    }
    let mut out = vec![Fact::of(x.clone())];
    if cx.def.outputs.len() > 1 {
        let dims = x.dims.iter().enumerate().map(|(i, d)| if i < axis { d.clone() } else { Dim::new(1) });
        let stat = TensorType { dtype: DType::F32, dims: dims.collect() };
        out.extend([Fact::of(stat.clone()), Fact::of(stat)]);
    }
    Ok(out)
}

fn mask(cx: &EvalCx<'_>, rank: usize) -> Result<Vec<bool>, OpError> {
    Ok(mask_from(normalize_axis(cx.attrs().int("axis")?, rank, "axis")?, rank))
}

/// The elements of an input as if it were broadcast to a shape, or `default` everywhere if it is absent.
fn spread(t: Option<&Tensor>, to: &[usize], default: f64) -> Vec<f64> {
    let mut out = Vec::new();
    let (v, strides) = match t {
        Some(t) => (t.to_f64(), broadcast_strides(t.shape(), to)),
        None => (vec![default], vec![0; to.len()]),
    };
    for_each_index(to, |at| out.push(v[offset(at, &strides)]));
    out
}

fn eval_layer(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let epsilon = cx.attrs().float("epsilon")?;
    let (v, scale, bias) = (x.to_f64(), spread(cx.get(1), x.shape(), 1.0), spread(cx.get(2), x.shape(), 0.0));
    let (mut y, mut means, mut inverse) = (vec![0.0; v.len()], Vec::new(), Vec::new());
    for_each_group(x.shape(), &mask(cx, x.shape().len())?, |at| {
        let n = at.len() as f64;
        let mean = at.iter().map(|&i| v[i]).sum::<f64>() / n;
        let var = at.iter().map(|&i| (v[i] - mean) * (v[i] - mean)).sum::<f64>() / n;
        let inv_std = 1.0 / (var + epsilon).sqrt();
        for &i in at {
            y[i] = (v[i] - mean) * inv_std * scale[i] + bias[i];
        }
        means.push(mean);
        inverse.push(inv_std);
    });
    Ok(vec![
        cx.make(0, x.shape(), Elems::F(y))?,
        cx.make(1, &cx.out_shape(1)?, Elems::F(means))?,
        cx.make(2, &cx.out_shape(2)?, Elems::F(inverse))?,
    ])
}

fn eval_rms(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let epsilon = cx.attrs().float("epsilon")?;
    let (v, scale) = (x.to_f64(), spread(cx.get(1), x.shape(), 1.0));
    let mut y = vec![0.0; v.len()];
    for_each_group(x.shape(), &mask(cx, x.shape().len())?, |at| {
        let mean = at.iter().map(|&i| v[i] * v[i]).sum::<f64>() / at.len() as f64;
        for &i in at {
            y[i] = v[i] / (mean + epsilon).sqrt() * scale[i];
        }
    });
    Ok(vec![cx.make(0, x.shape(), Elems::F(y))?])
}

fn problems(name: OpName, rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], i64, &[usize])] = &[
        ("last axis", &[3, 5, 67], -1, &[67]),
        ("two axes", &[2, 3, 4, 5], 2, &[4, 5]),
        ("all axes", &[3, 4], 0, &[3, 4]),
        ("scale over rows", &[2, 3, 4], 1, &[3, 1]),
        ("one long row", &[1, 4099], -1, &[4099]),
        ("rows of one", &[4, 1], 1, &[1]),
        ("batch 0", &[0, 7], 1, &[7]),
        ("empty rows", &[2, 0], 1, &[0]),
    ];
    let mut out = Vec::new();
    let biased = name == LAYER_NORM;
    for &(label, shape, axis, scale) in cases {
        for t in [DType::F32, DType::F16, DType::BF16] {
            let attrs = Attrs::new().with("axis", axis).with("epsilon", 1e-3);
            let mut inputs = vec![Some(rng.tensor(t, shape)), Some(rng.tensor(t, scale))];
            inputs.extend(biased.then(|| Some(rng.tensor(t, scale))));
            out.push(Problem::of(&format!("{label} {t}"), name, attrs, inputs));
        }
    }
    out.push(Problem::of("no scale", name, Attrs::new(), [Some(rng.tensor(DType::F32, &[3, 8]))]));
    let far = rng.tensor_in(DType::F32, &[3, 64], 1000.0, 1001.0, 1);
    out.push(Problem::of("far from zero", name, Attrs::new(), [Some(far)]));
    if biased {
        let inputs = [Some(rng.tensor(DType::F32, &[3, 8])), None, Some(rng.tensor(DType::F32, &[8]))];
        out.push(Problem::of("bias without scale", name, Attrs::new(), inputs));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, run, run_all};

    #[test]
    fn a_row_of_four() {
        // Mean 2.5, variance 1.25; epsilon 1 makes the deviation 1.5.
        let x = f32s(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
        let (scale, bias) = (f32s(&[4], &[3.0, 3.0, 6.0, 3.0]), f32s(&[], &[1.0]));
        let attrs = Attrs::new().with("epsilon", 1.0);
        let out = run_all("layer_norm", attrs, &[Some(x), Some(scale), Some(bias)]).unwrap();
        assert_near(&out[0], &[1, 4], &[-2.0, 0.0, 3.0, 4.0], 1e-6);
        assert_near(&out[1], &[1, 1], &[2.5], 0.0);
        assert_near(&out[2], &[1, 1], &[1.0 / 1.5], 1e-7);
    }

    #[test]
    fn root_mean_square_of_two_rows() {
        let x = f32s(&[2, 2], &[3.0, 4.0, 0.0, 5.0]);
        let eps = Attrs::new().with("epsilon", 0.0);
        let s = 12.5f64.sqrt();
        let want = [3.0 / s, 4.0 / s, 0.0, 5.0 / s];
        assert_near(&run("rms_norm", eps.clone(), std::slice::from_ref(&x)), &[2, 2], &want, 1e-6);
        let all = eps.with("axis", -2i64);
        assert_near(&run("rms_norm", all, &[x]), &[2, 2], &want, 1e-6);
    }

    #[test]
    fn shapes_of_the_statistics_and_a_scale_that_does_not_fit() {
        let dims = |v: &[i64]| v.iter().map(|&d| Dim::new(d)).collect::<Vec<_>>();
        let x = (DType::F16, vec![Dim::host("b"), 3.into(), 4.into()]);
        let attrs = Attrs::new().with("axis", 1i64);
        let out = infer("layer_norm", attrs.clone(), std::slice::from_ref(&x)).unwrap();
        assert_eq!(out[1].ty.to_string(), "f32[b,1,1]");
        let bad = infer("layer_norm", attrs, &[x, (DType::F16, dims(&[5]))]).unwrap_err();
        assert!(bad.to_string().contains("broadcasts to [b,3,4]"), "{bad}");
    }
}
