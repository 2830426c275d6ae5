//! `nll_loss`: negative log likelihood.

use crate::util::{PLAIN, REAL, REALS, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, attr, choice, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::range::{IndexRange, RangeCx};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::{TensorType, dims_text};

kiln_ir::op_names! {
    NLL_LOSS = "nll_loss",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: NLL_LOSS,
    doc: "Loss −weight[t]·x[n, t, ..] for log-probabilities x [N, C, d..] and classes t = target[n, ..] of shape [N, d..]; \
          weight [C], absent: ones. Targets equal to `ignore_index` (if `use_ignore`) give loss 0 and weight 0; others \
          outside 0..C are an error. reduction: none, sum, or mean: the sum of losses over the sum of weights (NaN if that is 0).",
    inputs: &[input("x"), input("target"), optional("weight")],
    attrs: &[
        choice("reduction", || "mean".into(), &["none", "sum", "mean"]),
        attr("ignore_index", || Attr::Int(0)),
        attr("use_ignore", || Attr::Bool(false)),
    ],
    infer,
    eval,
    ranges: Some(ranges),
    tolerance: Tolerance::Conditioned,
    problems,
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let dtype = cx.check_dtype(0, is_real, REAL)?;
    cx.check_dtype(1, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    cx.check_shape(0, |d| d.len() >= 2, "at least 2 dimensions")?;
    let x = cx.dims(0)?;
    let of_target: Vec<Dim> = [&x[..1], &x[2..]].concat();
    let same = |d: &[Dim]| d.len() == of_target.len() && d.iter().zip(&of_target).all(|(a, b)| !differ(a, b));
    cx.check_shape(1, same, &format!("[{}]", dims_text(&of_target)))?;
    if cx.has(2) {
        cx.same_dtype(0, 2)?;
        cx.check_shape(2, |d| d.len() == 1 && !differ(&d[0], &x[1]), &format!("[{}]", x[1]))?;
    }
    let dims = if cx.attrs.str("reduction")? == "none" { of_target } else { Vec::new() };
    Ok(vec![Fact::of(TensorType { dtype, dims })])
}

fn ranges(cx: &RangeCx<'_>) -> Result<Vec<IndexRange>, OpError> {
    let except = cx.attrs.bool("use_ignore")?.then_some(cx.attrs.int("ignore_index")?);
    Ok(vec![IndexRange { except, ..IndexRange::up_to(1, cx.size(0, 1) - 1) }])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (x, target) = (cx.input(0)?, cx.input(1)?);
    let classes = x.shape().get(1).copied().unwrap_or(0);
    let inner: usize = x.shape().iter().skip(2).product();
    let weight = cx.get(2).map(Tensor::to_f64);
    let ignore = cx.attrs().bool("use_ignore")?.then_some(cx.attrs().int("ignore_index")?);
    let (v, t) = (x.to_f64(), target.to_i64());
    let (mut losses, mut weights) = (Vec::new(), 0.0);
    for (i, &class) in t.iter().enumerate() {
        let known = usize::try_from(class).ok().filter(|&c| c < classes && Some(class) != ignore);
        losses.push(known.map_or(0.0, |c| {
            let w = weight.as_ref().map_or(1.0, |w| w[c]);
            weights += w;
            -w * v[(i / inner * classes + c) * inner + i % inner]
        }));
    }
    let elems = match cx.attrs().str("reduction")? {
        "none" => losses,
        "sum" => vec![losses.iter().sum()],
        _ => vec![losses.iter().sum::<f64>() / weights],
    };
    Ok(vec![cx.make(0, &cx.out_shape(0)?, Elems::F(elems))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let shapes: &[&[usize]] = &[&[3, 5], &[3, 5, 7], &[2, 9, 3, 5, 2], &[0, 4], &[2, 3, 0]];
    for (shape, t) in shapes.iter().flat_map(|s| REALS.map(|t| (s, t))) {
        for reduction in ["none", "sum", "mean"] {
            for (weighted, ignored) in [(false, false), (true, false), (true, true), (false, true)] {
                let attrs = Attrs::new()
                    .with("reduction", reduction)
                    .with("use_ignore", ignored)
                    .with("ignore_index", 1i64);
                let of_target = [&shape[..1], &shape[2..]].concat();
                let n: usize = of_target.iter().product();
                let classes: Vec<i64> = (0..n).map(|_| rng.int(0, shape[1] as i64 - 1)).collect();
                let weight = weighted.then(|| rng.tensor_in(t, &shape[1..2], 0.1, 1.0, 9));
                let ins = [Some(rng.tensor(t, shape)), Some(rng.i64s(&of_target, &classes)), weight];
                let label = format!("{shape:?} {t} {reduction} weighted={weighted} ignored={ignored}");
                out.push(Problem::of(&label, "nll_loss", attrs, ins));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, ints, run};

    fn loss(attrs: Attrs, target: &[i64], weighted: bool) -> Tensor {
        let x = f32s(&[2, 3, 2], &[1.0, 2.0, 2.0, 2.0, 3.0, 2.0, 0.0, 1.0, 2.0, 2.0, 1.0, 2.0]);
        let mut ins = vec![x, ints(DType::I64, &[2, 2], target)];
        if weighted {
            ins.push(f32s(&[3], &[0.2, 0.3, 0.1]));
        }
        run("nll_loss", attrs, &ins)
    }

    #[test]
    fn the_examples_of_the_onnx_specification() {
        let reduce = |r: &str| Attrs::new().with("reduction", r);
        assert_near(&loss(reduce("none"), &[2, 1, 0, 2], false), &[2, 2], &[-3.0, -2.0, 0.0, -2.0], 0.0);
        assert_near(&loss(reduce("sum"), &[2, 1, 0, 2], true), &[], &[-1.1], 1e-6);
        assert_near(&loss(reduce("mean"), &[2, 1, 0, 2], true), &[], &[-1.1 / 0.7], 1e-6);
        assert_near(&loss(reduce("mean"), &[2, 1, 0, 2], false), &[], &[-7.0 / 4.0], 1e-6);
    }

    #[test]
    fn ignored_classes_weigh_nothing() {
        let ignore = |class: i64| Attrs::new().with("use_ignore", true).with("ignore_index", class);
        assert_near(&loss(ignore(1), &[2, 1, 0, 2], false), &[], &[-5.0 / 3.0], 1e-6);
        assert_near(&loss(ignore(-9), &[2, -9, 0, 2], false), &[], &[-5.0 / 3.0], 1e-6);
        assert_near(&loss(ignore(1), &[1; 4], false), &[], &[f64::NAN], 0.0);
    }

    #[test]
    fn a_target_of_another_shape_is_refused() {
        let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
        let ins = [(DType::F32, dims(&[2, 3, 4])), (DType::I64, dims(&[2, 3]))];
        assert!(infer("nll_loss", Attrs::new(), &ins).unwrap_err().to_string().contains("[2,4]"));
    }
}
