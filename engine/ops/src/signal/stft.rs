//! `stft`: Fourier transforms of overlapping frames.

use crate::signal::dft::{bins, check_parts, complex, transform};
use crate::util::{PLAIN, REAL, REALS, host_scalar, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    STFT = "stft",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: STFT,
    doc: "Transforms of frames of a signal [B, L, 1] (real) or [B, L, 2] (complex): frame f starts at f·frame_step, is \
          multiplied by `window` [W] and transformed with length N = `frame_length` (absent: W, or L without a window), \
          cut or padded with zeros at its end to N. Gives [B, frames, K, 2] with 1 + ⌊(L − N)/frame_step⌋ frames and K = \
          ⌊N/2⌋ + 1 if `onesided` (real signals only), else N.",
    inputs: &[
        input("signal"),
        input("frame_step").on_host(),
        optional("window"),
        optional("frame_length").on_host(),
    ],
    attrs: &[attr("onesided", || Attr::Bool(true))],
    infer,
    eval,
    tolerance: Tolerance::Transform,
    problems,
    traits: Traits::heavy(|s| {
        // Frames are at most as long as the signal, and twice as long as there are frequencies.
        let bins = s.made_from_last(0, 1);
        s.made(0)
            .saturating_mul(s.from_last(0, 1).min(bins.saturating_mul(2)))
            .saturating_mul(crate::signal::dft::TURN)
    }),
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let dtype = cx.check_dtype(0, is_real, REAL)?;
    let onesided = cx.attrs.bool("onesided")?;
    cx.check_rank(0, 3)?;
    check_parts(cx, onesided)?;
    let [batch, len, _] = cx.dims(0)? else { return Err(cx.bad_shape(0, "3 dimensions")) };
    if cx.has(2) {
        cx.same_dtype(0, 2)?;
        cx.check_rank(2, 1)?;
    }
    let size = match host_scalar(cx, 3, "frame_length", Some(len.clone()))? {
        Some(n) => n,
        None if cx.has(2) => cx.dims(2)?[0].clone(),
        None => len.clone(),
    };
    let step = host_scalar(cx, 1, "frame_step", None)?.unwrap_or(Dim::new(1));
    for (what, n) in [("frame_step", &step), ("frame_length", &size)] {
        if let Some(n) = n.as_const().filter(|&n| n < 1) {
            return Err(OpError::Value(format!("{what} is {n}; wants 1 or more")));
        }
    }
    let frames = match step.as_const() {
        Some(_) => ((len.clone() - size.clone()).floor_div(&step) + 1.into()).max_with(&0.into()),
        None => cx.fresh_from(1, "frames", Some(len.clone())),
    };
    let dims = vec![batch.clone(), frames, bins(&size, onesided), 2.into()];
    Ok(vec![Fact::of(TensorType { dtype, dims })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let (len, parts) = (x.shape()[1], x.shape()[2]);
    let host = |i| cx.get(i).and_then(Tensor::scalar_i64).and_then(|n| usize::try_from(n).ok());
    let step = host(1).unwrap_or(1);
    let window = cx.get(2).map(Tensor::to_f64);
    let size = host(3).unwrap_or(window.as_ref().map_or(len, Vec::len));
    let shape = cx.out_shape(0)?;
    let signal = complex(&x.to_f64(), parts);
    let mut y = Vec::new();
    for b in 0..shape[0] {
        for f in 0..shape[1] {
            let begin = (b * len + f * step).min(signal.len());
            let end = (begin + size).min((b + 1) * len);
            let weight = |i: usize| window.as_ref().map_or(1.0, |w| w.get(i).copied().unwrap_or(0.0));
            let frame: Vec<(f64, f64)> = signal[begin..end.max(begin)]
                .iter()
                .enumerate()
                .map(|(i, (re, im))| (re * weight(i), im * weight(i)))
                .collect();
            y.extend(transform(&frame, size, shape[2], false).into_iter().flat_map(|(re, im)| [re, im]));
        }
    }
    Ok(vec![cx.make(0, &shape, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, [usize; 3], i64, Option<usize>, Option<i64>, bool)] = &[
        ("window", [2, 37, 1], 4, Some(8), None, true),
        ("window and length", [1, 40, 1], 5, Some(12), Some(12), true),
        ("short window, odd step", [2, 31, 1], 7, Some(5), Some(9), true),
        ("long window", [2, 31, 1], 3, Some(15), Some(9), true),
        ("no window", [1, 64, 1], 8, None, Some(16), true),
        ("complex", [2, 33, 2], 6, Some(11), None, false),
        ("no frames", [1, 4, 1], 2, None, Some(8), true),
        ("whole signal", [1, 21, 1], 1, None, None, false),
    ];
    let mut out = Vec::new();
    for &(label, shape, step, window, length, onesided) in cases {
        for t in REALS {
            let scalar = |v: i64| Some(made(Tensor::i64(&[], &[v])));
            let ins = [
                Some(rng.tensor(t, &shape)),
                scalar(step),
                window.map(|w| rng.tensor_in(t, &[w], 0.0, 1.0, 1)),
                length.and_then(scalar),
            ];
            let attrs = Attrs::new().with("onesided", onesided);
            out.push(Problem::of(&format!("{label} {t}"), "stft", attrs, ins));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, ints, run};
    use kiln_ir::{DType, Op};

    fn scalar(v: i64) -> Tensor {
        ints(DType::I64, &[], &[v])
    }

    #[test]
    fn frames_are_weighted_and_transformed() {
        let x = f32s(&[1, 5, 1], &[1.0, 2.0, 3.0, 4.0, 5.0]);
        let window = f32s(&[2], &[1.0, 0.5]);
        let y = run("stft", Attrs::new(), &[x.clone(), scalar(2), window]);
        // Frames (1, 1) and (3, 2): sums and differences.
        assert_near(&y, &[1, 2, 2, 2], &[2.0, 0.0, 0.0, 0.0, 5.0, 0.0, 1.0, 0.0], 1e-6);
        let op = Op::new("stft", Attrs::new().with("onesided", false)).unwrap();
        let y = op.eval(&[Some(x), Some(scalar(3)), None, Some(scalar(2))]).unwrap();
        let want = [3.0, 0.0, -1.0, 0.0, 9.0, 0.0, -1.0, 0.0];
        assert_near(&y[0], &[1, 2, 2, 2], &want, 1e-6);
    }

    #[test]
    fn shapes_follow_symbols_and_misfits_are_named() {
        let (b, n) = (Dim::host("b"), Dim::host("n"));
        let f = DType::F32;
        let signal = kiln_ir::Fact::of(TensorType { dtype: f, dims: vec![b.clone(), n.clone(), 1.into()] });
        let step = kiln_ir::Fact::constant(scalar(4));
        let window = kiln_ir::Fact::of(TensorType::new(f, [16]));
        let op = Op::new("stft", Attrs::new()).unwrap();
        let out = op.infer(&[Some(signal), Some(step), Some(window)], "t").unwrap();
        let frames = ((n - 16.into()).floor_div(&4.into()) + 1.into()).max_with(&0.into());
        assert_eq!(out[0].ty.dims, [b, frames, 9.into(), 2.into()]);
        let zero = op.eval(&[Some(f32s(&[1, 4, 1], &[0.0; 4])), Some(scalar(0))]);
        assert!(zero.unwrap_err().to_string().contains("frame_step is 0"));
        let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
        let bad = infer("stft", Attrs::new(), &[(f, dims(&[1, 4, 3])), (DType::I64, vec![])]);
        assert!(bad.unwrap_err().to_string().contains("1 or 2"));
    }
}
