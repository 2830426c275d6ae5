//! `dft`: discrete Fourier transforms.

use crate::util::{PLAIN, REAL, REALS, for_each_group, host_scalar, is_real, mask_of};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use std::f64::consts::PI;

/// Operations of a sine and a cosine.
pub(crate) const TURN: u64 = 16;

kiln_ir::op_names! {
    DFT = "dft",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: DFT,
    doc: "y[k] = Σₙ x[n]·e^(−2πi·kn/N) along `axis` (default −2; not the last), or with `inverse` 1/N·Σₙ x[n]·e^(2πi·kn/N). \
          The last dimension of x is 1 (real) or 2 (real and imaginary part), that of y is 2. N is `length`, or the \
          dimension of x; x is cut or padded with zeros at its end to N. `onesided`, for real x: only k = 0..=⌊N/2⌋. Both \
          attributes take x, which is complex, as those k of a real signal's transform: y is the signal, its last dimension \
          is 1, and N is `length`, or 2·(d − 1) for d elements of x.",
    inputs: &[input("x"), optional("length").on_host(), optional("axis").on_host()],
    attrs: &[attr("inverse", || Attr::Bool(false)), attr("onesided", || Attr::Bool(false))],
    infer,
    eval,
    tolerance: Tolerance::Transform,
    problems,
    traits: Traits::heavy(|s| {
        // The axis is known at run time: a sine and a cosine for each product of the longest.
        let longest = s.dims(0).iter().max().copied().unwrap_or(1);
        s.made(0).saturating_mul(longest).saturating_mul(TURN)
    }),
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

/// Whether the transform takes the onesided spectrum of a real signal back to the signal.
pub fn to_real(attrs: &Attrs) -> Result<bool, OpError> {
    Ok(attrs.bool("inverse")? && attrs.bool("onesided")?)
}

/// Checks that the last dimension is 1 or 2, and 1 for a onesided transform.
pub(crate) fn check_parts(cx: &InferCx<'_>, onesided: bool) -> Result<(), OpError> {
    let last = |d: &[Dim]| d.last().and_then(Dim::as_const);
    cx.check_shape(0, |d| last(d).is_none_or(|n| n == 1 || n == 2), "a last dimension of 1 or 2")?;
    let real = |d: &[Dim]| !onesided || last(d) != Some(2);
    cx.check_shape(0, real, "a last dimension of 1 (real numbers), as `onesided` is set")
}

/// Number of frequencies of a transform of length `n`.
pub(crate) fn bins(n: &Dim, onesided: bool) -> Dim {
    if onesided { n.floor_div(&2.into()) + 1.into() } else { n.clone() }
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let dtype = cx.check_dtype(0, is_real, REAL)?;
    let onesided = cx.attrs.bool("onesided")?;
    cx.check_shape(0, |d| d.len() >= 2, "at least 2 dimensions")?;
    let to_real = to_real(cx.attrs)?;
    if to_real {
        let complex = |d: &[Dim]| d.last().and_then(Dim::as_const).is_none_or(|n| n == 2);
        cx.check_shape(
            0,
            complex,
            "a last dimension of 2 (complex numbers), as `inverse` and `onesided` are set",
        )?;
    } else {
        check_parts(cx, onesided)?;
    }
    let mut dims = cx.dims(0)?.to_vec();
    let rank = dims.len();
    dims[rank - 1] = Dim::new(if to_real { 1 } else { 2 });
    // The length of the transform where none is given.
    let natural = |d: &Dim| if to_real { (d.clone() - 1.into()) * 2.into() } else { d.clone() };
    let length = host_scalar(cx, 1, "length", None)?;
    match host_scalar(cx, 2, "axis", None)?.map(|d| d.as_const()) {
        // The axis that changes is not known, so that any may.
        Some(None) => {
            let bound = |d: &Dim| d.max_with(length.as_ref().unwrap_or(&natural(d)));
            for (i, d) in dims[..rank - 1].iter_mut().enumerate() {
                *d = cx.fresh_from(2, &format!("d{i}"), Some(bound(d)));
            }
        }
        axis => {
            let axis = axis_of(axis.flatten().unwrap_or(-2), rank)?;
            let n = length.unwrap_or_else(|| natural(&dims[axis]));
            if n.as_const().is_some_and(|n| n < 1) {
                return Err(OpError::Value(format!("a transform of length {n}; wants 1 or more")));
            }
            dims[axis] = bins(&n, onesided && !to_real);
        }
    }
    Ok(vec![Fact::of(TensorType { dtype, dims })])
}

fn axis_of(a: i64, rank: usize) -> Result<usize, OpError> {
    let r = rank as i64;
    match if a < 0 { a.saturating_add(r) } else { a } {
        k if (0..r - 1).contains(&k) => Ok(k as usize),
        _ => Err(OpError::Value(format!("axis {a}; wants one in -{r}..={} that is not the last", r - 2))),
    }
}

/// The first `bins` coefficients of the transform of length `n` of a signal, which is cut or padded to it.
pub(crate) fn transform(signal: &[(f64, f64)], n: usize, bins: usize, inverse: bool) -> Vec<(f64, f64)> {
    let sign = if inverse { 1.0 } else { -1.0 };
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    let coefficient = |k: usize| {
        kiln_ir::stop::checkpoint();
        let (mut re, mut im) = (0.0, 0.0);
        for (t, &(x, y)) in signal.iter().take(n).enumerate() {
            // The product modulo n keeps the angle exact for long signals.
            let angle = sign * 2.0 * PI * ((k as u128 * t as u128) % n as u128) as f64 / n as f64;
            let (c, s) = (libm::cos(angle), libm::sin(angle));
            re += x * c - y * s;
            im += x * s + y * c;
        }
        (re * scale, im * scale)
    };
    (0..bins).map(coefficient).collect()
}

/// The real signal of length `n` whose transform begins with these coefficients; those that are missing are 0. The
/// imaginary part of the first one, and of that in the middle, has no meaning.
fn signal_of(spectrum: &[(f64, f64)], n: usize) -> Vec<f64> {
    let sample = |t: usize| {
        let terms = spectrum.iter().take(n / 2 + 1).enumerate().map(|(k, &(re, im))| {
            let angle = 2.0 * PI * ((k as u128 * t as u128) % n as u128) as f64 / n as f64;
            match k == 0 || 2 * k == n {
                true => re * libm::cos(angle),
                // With its conjugate at n − k.
                false => 2.0 * (re * libm::cos(angle) - im * libm::sin(angle)),
            }
        });
        terms.sum::<f64>() / n as f64
    };
    (0..n).map(sample).collect()
}

/// Complex numbers from elements of which each has one part or two.
pub(crate) fn complex(v: &[f64], parts: usize) -> Vec<(f64, f64)> {
    v.chunks_exact(parts.max(1)).map(|c| (c[0], c.get(1).copied().unwrap_or(0.0))).collect()
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let (rank, shape) = (x.shape().len(), cx.out_shape(0)?);
    let axis = axis_of(cx.get(2).and_then(Tensor::scalar_i64).unwrap_or(-2), rank)?;
    let parts = x.shape()[rank - 1];
    let length = cx.get(1).and_then(Tensor::scalar_i64).and_then(|n| usize::try_from(n).ok());
    let inverse = cx.attrs().bool("inverse")?;
    let to_real = to_real(cx.attrs())?;
    let n = if to_real { shape[axis] } else { length.unwrap_or(x.shape()[axis]) };
    let signal = complex(&x.to_f64(), parts);
    let mask = mask_of(axis, rank - 1);
    let mut results = Vec::new();
    for_each_group(&x.shape()[..rank - 1], &mask, |at| {
        let line: Vec<_> = at.iter().map(|&i| signal[i]).collect();
        results.push(match to_real {
            true => signal_of(&line, n).into_iter().map(|x| (x, 0.0)).collect(),
            false => transform(&line, n, shape[axis], inverse),
        });
    });
    let mut y = vec![0.0; shape.iter().product()];
    let mut results = results.into_iter();
    for_each_group(&shape[..rank - 1], &mask, |at| {
        for (&i, (re, im)) in at.iter().zip(results.next().unwrap_or_default()) {
            if to_real {
                y[i] = re;
            } else {
                (y[2 * i], y[2 * i + 1]) = (re, im);
            }
        }
    });
    Ok(vec![cx.make(0, &shape, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let cases: &[(&str, &[usize], Option<i64>, Option<i64>, bool, bool)] = &[
        ("real", &[2, 7, 1], None, None, false, false),
        ("complex, first axis", &[9, 3, 2], None, Some(0), false, false),
        ("inverse", &[2, 3, 8, 2], None, Some(-3), true, false),
        ("onesided, padded", &[3, 5, 1], Some(12), Some(1), false, true),
        ("cut", &[2, 11, 2], Some(4), None, false, false),
        ("onesided, odd", &[13, 1], None, Some(0), false, true),
        ("empty batch", &[0, 5, 1], None, None, false, false),
        ("larger", &[2, 257, 1], None, Some(1), false, false),
        ("to real", &[2, 6, 3, 2], None, Some(1), true, true),
        ("to real, odd", &[2, 6, 2], Some(11), None, true, true),
        ("to real, padded", &[4, 5, 2], Some(17), Some(0), true, true),
        ("to real, cut", &[3, 9, 2], Some(6), None, true, true),
        ("to real, one element", &[3, 1, 2], Some(1), None, true, true),
        ("to real, empty batch", &[0, 5, 2], None, None, true, true),
        ("to real, larger", &[2, 130, 2], None, Some(1), true, true),
    ];
    let mut out = Vec::new();
    for &(label, shape, length, axis, inverse, onesided) in cases {
        for t in REALS {
            let attrs = Attrs::new().with("inverse", inverse).with("onesided", onesided);
            let scalar = |v: i64| made(Tensor::i64(&[], &[v]));
            let ins = [Some(rng.tensor(t, shape)), length.map(scalar), axis.map(scalar)];
            out.push(Problem::of(&format!("{label} {t}"), "dft", attrs, ins));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, ints, run, run_all};
    use kiln_ir::DType;

    #[test]
    fn four_points_by_hand() {
        let x = f32s(&[1, 4, 1], &[1.0, 2.0, 3.0, 4.0]);
        let y = [10.0, 0.0, -2.0, 2.0, -2.0, 0.0, -2.0, -2.0];
        assert_near(&run("dft", Attrs::new(), std::slice::from_ref(&x)), &[1, 4, 2], &y, 1e-6);
        let half = run("dft", Attrs::new().with("onesided", true), &[x]);
        assert_near(&half, &[1, 3, 2], &y[..6], 1e-6);
        let back = run("dft", Attrs::new().with("inverse", true), &[f32s(&[1, 4, 2], &y)]);
        assert_near(&back, &[1, 4, 2], &[1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0], 1e-6);
    }

    /// Compares with the definition of the full inverse transform, of the spectrum with its conjugate half
    /// written out.
    #[test]
    fn a_onesided_spectrum_goes_back_to_its_signal() {
        let both = Attrs::new().with("inverse", true).with("onesided", true);
        // Elements of x, length: even, odd, cut and padded.
        for (d, n) in
            [(4usize, None), (4, Some(7usize)), (5, Some(4)), (3, Some(9)), (1, Some(1)), (2, Some(2))]
        {
            let x: Vec<f64> = (0..2 * d).map(|i| (i * i % 7) as f64 - 2.0).collect();
            let length = n.map(|n| ints(DType::I64, &[], &[n as i64]));
            let y = run_all("dft", both.clone(), &[Some(f32s(&[1, d, 2], &x)), length, None]).unwrap();
            let n = n.unwrap_or(2 * (d - 1));
            let mut whole = vec![(0.0, 0.0); n];
            for k in (0..d).filter(|k| *k <= n / 2) {
                let im = if k == 0 || 2 * k == n { 0.0 } else { x[2 * k + 1] };
                whole[k] = (x[2 * k], im);
                whole[(n - k) % n] = (x[2 * k], if (n - k) % n == k { im } else { -im });
            }
            let want: Vec<f64> = transform(&whole, n, n, true).iter().map(|(re, _)| *re).collect();
            assert_near(&y[0], &[1, n, 1], &want, 1e-6);
        }
        let real = infer("dft", both.clone(), &[(DType::F32, vec![4.into(), 1.into()])]);
        assert!(real.unwrap_err().to_string().contains("complex"));
        let none = run_all("dft", both.clone(), &[Some(f32s(&[1, 1, 2], &[1.0, 0.0]))]);
        assert!(none.unwrap_err().to_string().contains("length 0"));
        let s = Dim::host("s");
        let out = infer("dft", both, &[(DType::F32, vec![s.clone(), 2.into()])]).unwrap();
        assert_eq!(out[0].ty.dims, [(s - 1.into()) * 2.into(), 1.into()]);
    }

    #[test]
    fn lengths_cut_and_pad_along_any_axis() {
        let scalar = |v: i64| ints(DType::I64, &[], &[v]);
        let x = f32s(&[3, 2, 1], &[1.0, 5.0, 2.0, 6.0, 9.0, 9.0]);
        let cut = run("dft", Attrs::new(), &[x.clone(), scalar(2), scalar(0)]);
        assert_near(&cut, &[2, 2, 2], &[3.0, 0.0, 11.0, 0.0, -1.0, 0.0, -1.0, 0.0], 1e-6);
        let y = run_all("dft", Attrs::new(), &[Some(x), Some(scalar(4)), None]).unwrap();
        assert_eq!(y[0].shape(), [3, 4, 2]);
        // 1 + 5·(−i) for k = 1.
        assert!((y[0].to_f64()[2] - 1.0).abs() < 1e-6 && (y[0].to_f64()[3] + 5.0).abs() < 1e-6);
    }

    #[test]
    fn shapes_follow_symbols_and_misfits_are_named() {
        let s = Dim::host("s");
        let out =
            infer("dft", Attrs::new().with("onesided", true), &[(DType::F32, vec![s.clone(), 1.into()])]);
        assert_eq!(out.unwrap()[0].ty.dims, [s.floor_div(&2.into()) + 1.into(), 2.into()]);
        let unknown =
            [(DType::F32, vec![2.into(), 3.into(), 1.into()]), (DType::I64, vec![]), (DType::I64, vec![])];
        assert_eq!(infer("dft", Attrs::new(), &unknown).unwrap()[0].ty.rank(), 3);
        let complex =
            infer("dft", Attrs::new().with("onesided", true), &[(DType::F32, vec![4.into(), 2.into()])]);
        assert!(complex.unwrap_err().to_string().contains("onesided"));
        let op = kiln_ir::Op::new("dft", Attrs::new()).unwrap();
        let axis = op.eval(&[Some(f32s(&[2, 1], &[0.0; 2])), None, Some(ints(DType::I64, &[], &[1]))]);
        assert!(axis.unwrap_err().to_string().contains("axis 1"));
    }
}
