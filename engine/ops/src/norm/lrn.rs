//! `lrn`, `lp_norm`: division by local energy and by a norm.

use crate::layout::{self, LAYOUT};
use crate::util::{PLAIN, REAL, for_each_group, is_real, mask_of};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, normalize_axis};
use kiln_ir::op::{LayoutRule, OpDef, Roles, Tolerance, Traits, attr, required};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::{Elems, Tensor};

kiln_ir::op_names! {
    LRN = "lrn",
    LP_NORM = "lp_norm",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: LRN,
        doc: "Local response normalization across channels of x [N, C, ..]: x/(bias + alpha/size·Σx²)^beta, the sum \
              over the channels from ⌊(size−1)/2⌋ before to ⌈(size−1)/2⌉ after, as far as they exist. Computed in \
              f32 at least. With channels last x is [N, .., C].",
        attrs: &[
            required("size", || Attr::Int(1)),
            attr("alpha", || Attr::Float(1e-4)),
            attr("beta", || Attr::Float(0.75)),
            attr("bias", || Attr::Float(1.0)),
            LAYOUT,
        ],
        infer: |cx| layout::infer(cx, infer_lrn),
        eval: |cx| layout::eval(cx, eval_lrn),
        tolerance: Tolerance::Conditioned,
        problems: |rng| layout::both(lrn_problems(rng)),
        traits: Traits::heavy(|s| s.made(0).saturating_mul(s.attrs.int("size").unwrap_or(1).unsigned_abs())),
        roles: Roles { layout: LayoutRule::Attribute(1), ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: LP_NORM,
        doc: "x/(Σ|x|^p)^(1/p) along one axis, p 1 or 2. A row whose norm is 0 gives zeros. Computed in f32 at least.",
        attrs: &[attr("axis", || Attr::Int(-1)), attr("p", || Attr::Int(2))],
        infer: infer_lp,
        eval: eval_lp,
        tolerance: Tolerance::Conditioned,
        problems: lp_problems,
        ..PLAIN
    },
];

fn infer_lrn(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    cx.check_shape(0, |d| d.len() >= 2, "[N, C, ..]")?;
    let size = cx.attrs.int("size")?;
    if size < 1 {
        return Err(OpError::Attr {
            name: "size".into(),
            found: size.to_string(),
            wanted: "1 or more".into(),
        });
    }
    Ok(vec![Fact::of(cx.ty(0)?.clone())])
}

fn eval_lrn(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let a = cx.attrs();
    let size = a.int("size")? as usize;
    let (alpha, beta, bias) = (a.float("alpha")?, a.float("beta")?, a.float("bias")?);
    let (before, after) = ((size - 1) / 2, size / 2);
    let v = x.to_f64();
    let mut y = vec![0.0; v.len()];
    for_each_group(x.shape(), &mask_of(1, x.shape().len()), |at| {
        for (c, &i) in at.iter().enumerate() {
            let near = &at[c.saturating_sub(before)..c.saturating_add(after).saturating_add(1).min(at.len())];
            let energy: f64 = near.iter().map(|&k| v[k] * v[k]).sum();
            y[i] = v[i] / libm::pow(bias + alpha / size as f64 * energy, beta);
        }
    });
    Ok(vec![cx.make(0, x.shape(), Elems::F(y))?])
}

fn infer_lp(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    let x = cx.ty(0)?;
    cx.axis("axis", x.rank())?;
    match cx.attrs.int("p")? {
        1 | 2 => Ok(vec![Fact::of(x.clone())]),
        p => Err(OpError::Attr { name: "p".into(), found: p.to_string(), wanted: "1 or 2".into() }),
    }
}

fn eval_lp(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let axis = normalize_axis(cx.attrs().int("axis")?, x.shape().len(), "axis")?;
    let square = cx.attrs().int("p")? == 2;
    let v = x.to_f64();
    let mut y = vec![0.0; v.len()];
    for_each_group(x.shape(), &mask_of(axis, x.shape().len()), |at| {
        let norm = if square {
            at.iter().map(|&i| v[i] * v[i]).sum::<f64>().sqrt()
        } else {
            at.iter().map(|&i| v[i].abs()).sum::<f64>()
        };
        for &i in at {
            y[i] = if norm == 0.0 { 0.0 } else { v[i] / norm };
        }
    });
    Ok(vec![cx.make(0, x.shape(), Elems::F(y))?])
}

fn lrn_problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], i64)] = &[
        ("size 3", &[2, 7, 3, 5], 3),
        ("even size", &[1, 9, 4], 4),
        ("size beyond the channels", &[2, 3, 5], 11),
        ("size 1", &[2, 3], 1),
        ("batch 0", &[0, 4, 2, 2], 3),
        ("no channels", &[2, 0, 2, 2], 3),
    ];
    let mut out = Vec::new();
    for &(label, shape, size) in cases {
        for t in [DType::F32, DType::F16, DType::BF16] {
            let attrs =
                Attrs::new().with("size", size).with("alpha", 0.5).with("beta", 0.6).with("bias", 2.0);
            out.push(Problem::of(&format!("{label} {t}"), "lrn", attrs, [Some(rng.tensor(t, shape))]));
        }
    }
    out
}

fn lp_problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], i64)] = &[
        ("last axis", &[3, 5, 7], -1),
        ("first axis", &[6, 3], 0),
        ("long row", &[1, 1025], 1),
        ("batch 0", &[0, 3], 1),
        ("empty rows", &[3, 0], 1),
        ("a row of zeros", &[1, 3], 1),
    ];
    let mut out = Vec::new();
    for &(label, shape, axis) in cases {
        for (p, t) in [(1i64, DType::F32), (2, DType::F32), (2, DType::F16), (1, DType::BF16)] {
            let attrs = Attrs::new().with("axis", axis).with("p", p);
            let x = match label {
                "a row of zeros" => made(Tensor::from_elems(t, shape, &Elems::F(vec![0.0; 3]))),
                _ => rng.tensor(t, shape),
            };
            out.push(Problem::of(&format!("{label}, p {p}, {t}"), "lp_norm", attrs, [Some(x)]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, run, run_all};

    #[test]
    fn an_even_size_reaches_further_forward() {
        let x = f32s(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
        // Size 2: each channel and the next; alpha/size = 1, beta = 1, bias = 0.
        let attrs = Attrs::new().with("size", 2i64).with("alpha", 2.0).with("beta", 1.0).with("bias", 0.0);
        let y = run("lrn", attrs, &[x]);
        assert_near(&y, &[1, 4], &[1.0 / 5.0, 2.0 / 13.0, 3.0 / 25.0, 4.0 / 16.0], 1e-7);
    }

    #[test]
    fn an_odd_size_is_centred_and_raised_to_beta() {
        let x = f32s(&[1, 3, 1], &[1.0, 2.0, 2.0]);
        let attrs = Attrs::new().with("size", 3i64).with("alpha", 3.0).with("beta", 0.5).with("bias", 7.0);
        let want = [1.0 / 12f64.sqrt(), 2.0 / 16f64.sqrt(), 2.0 / 15f64.sqrt()];
        assert_near(&run("lrn", attrs, &[x]), &[1, 3, 1], &want, 1e-7);
    }

    #[test]
    fn norms_of_one_and_two() {
        let x = f32s(&[2, 2], &[3.0, -4.0, 6.0, 8.0]);
        let p = |p: i64, axis: i64| Attrs::new().with("p", p).with("axis", axis);
        let go = |p| run("lp_norm", p, std::slice::from_ref(&x));
        assert_near(&go(p(2, -1)), &[2, 2], &[0.6, -0.8, 0.6, 0.8], 1e-7);
        assert_near(&go(p(1, 0)), &[2, 2], &[3.0 / 9.0, -4.0 / 12.0, 6.0 / 9.0, 8.0 / 12.0], 1e-7);
        assert!(run_all("lp_norm", p(3, 0), &[Some(x.clone())]).is_err());
        let zeros = f32s(&[2, 2], &[0.0, 0.0, -2.0, 0.0]);
        for order in [1, 2] {
            let y = run("lp_norm", p(order, -1), std::slice::from_ref(&zeros));
            assert_near(&y, &[2, 2], &[0.0, 0.0, -1.0, 0.0], 0.0);
        }
    }
}
