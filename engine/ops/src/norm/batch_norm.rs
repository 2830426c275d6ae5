//! `batch_norm`, `group_norm`: normalization of channels, by given statistics or by groups.

use crate::layout::{self, LAYOUT};
use crate::util::{PLAIN, REAL, for_each_group, is_real, mask_from};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{LayoutRule, OpDef, Roles, Tolerance, attr, input, required};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};

kiln_ir::op_names! {
    BATCH_NORM = "batch_norm",
    GROUP_NORM = "group_norm",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: BATCH_NORM,
        doc: "(x − mean)/√(var + epsilon)·scale + bias for x [N, C, ..], the four others [C] of any float type (a \
              vector x has one channel). Computed in f32 at least, rounded once. With channels last x is [N, .., C].",
        inputs: &[input("x"), input("scale"), input("bias"), input("mean"), input("var")],
        attrs: &[attr("epsilon", || Attr::Float(1e-5)), LAYOUT],
        infer: |cx| layout::infer(cx, infer_batch),
        eval: |cx| layout::eval(cx, eval_batch),
        tolerance: Tolerance::Conditioned,
        problems: |rng| layout::both(batch_problems(rng)),
        roles: Roles { layout: LayoutRule::Attribute(1), absorbs_pointwise: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: GROUP_NORM,
        doc: "(x − mean)/√(var + epsilon)·scale + bias for x [N, C, ..], scale and bias [C], mean and (biased) \
              variance over each of `groups` groups of consecutive channels of one image; 0 groups means C, which is \
              instance normalization. Computed in f32 at least, rounded once. With channels last x is [N, .., C].",
        inputs: &[input("x"), input("scale"), input("bias")],
        attrs: &[required("groups", || Attr::Int(1)), attr("epsilon", || Attr::Float(1e-5)), LAYOUT],
        infer: |cx| layout::infer(cx, infer_group),
        eval: |cx| layout::eval(cx, eval_group),
        tolerance: Tolerance::Conditioned,
        problems: |rng| layout::both(group_problems(rng)),
        roles: Roles { layout: LayoutRule::Attribute(1), absorbs_pointwise: true, ..Roles::NONE },
        ..PLAIN
    },
];

/// Inputs from the second on must be vectors of one element a channel.
fn check_channels(cx: &InferCx<'_>, channels: &Dim) -> Result<(), OpError> {
    for i in 1..cx.len() {
        cx.check_dtype(i, is_real, REAL)?;
        cx.check_shape(
            i,
            |d| d.len() == 1 && !differ(&d[0], channels),
            &format!("[{channels}], one a channel"),
        )?;
    }
    Ok(())
}

fn infer_batch(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    cx.check_shape(0, |d| !d.is_empty(), "at least one dimension")?;
    let x = cx.ty(0)?;
    check_channels(cx, x.dims.get(1).unwrap_or(&Dim::new(1)))?;
    Ok(vec![Fact::of(x.clone())])
}

fn eval_batch(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let epsilon = cx.attrs().float("epsilon")?;
    let [scale, bias, mean, var] =
        [cx.input(1)?.to_f64(), cx.input(2)?.to_f64(), cx.input(3)?.to_f64(), cx.input(4)?.to_f64()];
    let channels = x.shape().get(1).copied().unwrap_or(1);
    let inner: usize = x.shape().iter().skip(2).product();
    let one = |(i, x): (usize, f64)| {
        let c = i / inner % channels;
        (x - mean[c]) / (var[c] + epsilon).sqrt() * scale[c] + bias[c]
    };
    let y = x.to_f64().into_iter().enumerate().map(one).collect();
    Ok(vec![cx.make(0, x.shape(), Elems::F(y))?])
}

fn infer_group(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    cx.check_shape(0, |d| d.len() >= 2, "[N, C, ..]")?;
    let x = cx.ty(0)?;
    check_channels(cx, &x.dims[1])?;
    let groups = cx.attrs.int("groups")?;
    let divides = groups == 0 || x.dims[1].as_const().is_none_or(|c| c % groups.max(1) == 0);
    if groups < 0 || !divides {
        return Err(OpError::Attr {
            name: "groups".into(),
            found: groups.to_string(),
            wanted: format!("a divisor of the {} channels, or 0 for each by itself", x.dims[1]),
        });
    }
    Ok(vec![Fact::of(x.clone())])
}

fn eval_group(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let epsilon = cx.attrs().float("epsilon")?;
    let (v, scale, bias) = (x.to_f64(), cx.input(1)?.to_f64(), cx.input(2)?.to_f64());
    let channels = x.shape()[1];
    let inner: usize = x.shape()[2..].iter().product();
    let groups = match cx.attrs().int("groups")? as usize {
        0 => channels,
        n => n,
    };
    let mut y = vec![0.0; v.len()];
    let shape = [x.shape()[0], groups, channels.checked_div(groups).unwrap_or(0) * inner];
    for_each_group(&shape, &mask_from(2, 3), |at| {
        let n = at.len() as f64;
        let mean = at.iter().map(|&i| v[i]).sum::<f64>() / n;
        let var = at.iter().map(|&i| (v[i] - mean) * (v[i] - mean)).sum::<f64>() / n;
        for &i in at {
            let c = i / inner % channels;
            y[i] = (v[i] - mean) / (var + epsilon).sqrt() * scale[c] + bias[c];
        }
    });
    Ok(vec![cx.make(0, x.shape(), Elems::F(y))?])
}

const SHAPES: &[(&str, &[usize])] = &[
    ("image", &[2, 6, 5, 7]),
    ("sequence", &[3, 6, 11]),
    ("volume", &[1, 6, 2, 3, 5]),
    ("matrix", &[4, 6]),
    ("batch 0", &[0, 6, 3, 3]),
    ("empty image", &[2, 6, 0, 3]),
];

fn batch_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let mut add = |label: String, t: DType, p: DType, shape: &[usize]| {
        let c = [shape.get(1).copied().unwrap_or(1)];
        let mut inputs = vec![Some(rng.tensor(t, shape))];
        inputs.extend((0..3).map(|_| Some(rng.tensor(p, &c))));
        inputs.push(Some(rng.tensor_in(p, &c, 0.1, 3.0, 1)));
        out.push(Problem::of(&label, "batch_norm", Attrs::new().with("epsilon", 1e-3), inputs));
    };
    for (label, shape) in SHAPES {
        for t in [DType::F32, DType::F16, DType::BF16] {
            add(format!("{label} {t}"), t, t, shape);
        }
    }
    add("f16 with f32 statistics".into(), DType::F16, DType::F32, &[2, 3, 4]);
    add("vector".into(), DType::F32, DType::F32, &[9]);
    out
}

fn group_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (label, shape) in SHAPES {
        for (groups, t) in
            [(2i64, DType::F32), (0, DType::F32), (1, DType::F32), (3, DType::F16), (6, DType::BF16)]
        {
            let attrs = Attrs::new().with("groups", groups).with("epsilon", 1e-3);
            let inputs = [rng.tensor(t, shape), rng.tensor(t, &[6]), rng.tensor(t, &[6])].map(Some);
            out.push(Problem::of(&format!("{label}, {groups} groups, {t}"), "group_norm", attrs, inputs));
        }
    }
    for (shape, groups, t) in LARGE {
        let attrs = Attrs::new().with("groups", *groups).with("epsilon", 1e-3);
        let inputs = [rng.tensor(*t, shape), rng.tensor(*t, &shape[1..2]), rng.tensor(*t, &shape[1..2])];
        let label = format!("{shape:?}, {groups} groups, {t}");
        out.push(Problem::of(&label, "group_norm", attrs, inputs.map(Some)));
    }
    out
}

/// Shapes, groups and types. There are long groups, many channels, and channels that are not whole vectors.
const LARGE: &[(&[usize], i64, DType)] = &[
    (&[1, 6, 73, 64], 1, DType::F16),
    (&[2, 6, 4801], 1, DType::F32),
    (&[1, 2, 26_001], 2, DType::BF16),
    (&[2, 40, 9, 5], 4, DType::F16),
    (&[1, 16, 24, 8], 8, DType::F32),
    (&[3, 24, 8], 0, DType::F16),
    (&[1, 4104, 3], 3, DType::F32),
    (&[120, 8, 5], 2, DType::F16),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, iota, run, run_all};

    #[test]
    fn each_channel_by_its_statistics() {
        let x = f32s(&[1, 2, 1, 3], &[-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
        let v = |a: f64, b: f64| f32s(&[2], &[a, b]);
        // Channel 1: (x − 3)/√(3 + 1)·1.5 + 1.
        let inputs = [x, v(1.0, 1.5), v(0.0, 1.0), v(0.0, 3.0), v(0.0, 3.0)];
        let y = run("batch_norm", Attrs::new().with("epsilon", 1.0), &inputs);
        assert_near(&y, &[1, 2, 1, 3], &[-1.0, 0.0, 1.0, 0.25, 1.0, 1.75], 1e-6);
    }

    #[test]
    fn groups_of_channels_share_statistics() {
        let ones = f32s(&[4], &[1.0; 4]);
        let bias = f32s(&[4], &[0.0, 10.0, 0.0, 0.0]);
        let go = |groups: i64| {
            let attrs = Attrs::new().with("groups", groups).with("epsilon", 0.0);
            run("group_norm", attrs, &[iota(&[1, 4, 2]), ones.clone(), bias.clone()])
        };
        // Two groups of 0, 1, 2, 3: mean 1.5, deviation √1.25.
        let d = 1.25f64.sqrt();
        let [a, b] = [1.5 / d, 0.5 / d];
        assert_near(&go(2), &[1, 4, 2], &[-a, -b, 10.0 + b, 10.0 + a, -a, -b, b, a], 1e-6);
        assert_near(&go(0), &[1, 4, 2], &[-1.0, 1.0, 9.0, 11.0, -1.0, 1.0, -1.0, 1.0], 1e-6);
        assert_near(&go(4), &[1, 4, 2], &[-1.0, 1.0, 9.0, 11.0, -1.0, 1.0, -1.0, 1.0], 1e-6);
        let bad = Attrs::new().with("groups", 3i64);
        let inputs = [iota(&[1, 4, 2]), ones.clone(), bias.clone()].map(Some);
        assert!(run_all("group_norm", bad, &inputs).is_err());
    }

    #[test]
    fn statistics_of_another_length_are_refused() {
        let c = f32s(&[3], &[1.0; 3]);
        let inputs = [f32s(&[1, 2], &[1.0; 2]), c.clone(), c.clone(), c.clone(), c].map(Some);
        let e = run_all("batch_norm", Attrs::new(), &inputs).unwrap_err();
        assert_eq!(e.to_string(), "input 1 has shape [3], wants [2], one a channel");
    }
}
