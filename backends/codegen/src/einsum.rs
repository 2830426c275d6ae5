//! Sums of products under labels, and Fourier transforms.

use crate::long::{continued, summed};
use crate::scalar::{register, zero};
use crate::site::{Cx, Site, op_error};
use crate::template::{fill, sections};
use crate::{Body, Kernel, Launch, plain, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::matmul::einsum::walk;
use kiln_ops::signal::dft::to_real;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel { name: "einsum", ops: &["einsum"], epilogue: true, tactics: |_| plain("einsum"), source, launch },
    Kernel {
        name: "dft",
        ops: &["dft"],
        epilogue: true,
        tactics: |_| plain("dft"),
        source: dft_source,
        launch: dft,
    },
    Kernel {
        name: "stft",
        ops: &["stft"],
        epilogue: true,
        tactics: |_| plain("stft"),
        source: stft_source,
        launch: stft,
    },
];

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let n = site.device_inputs().len();
    let t = site.out_dtype(0);
    let product: Vec<String> = (0..n).map(|k| format!("x{k}(src[{k}])")).collect();
    let pairs = [
        ("INPUTS", &*n.to_string()),
        ("INPUTSu", &*format!("{n}u")),
        ("ACC", register(t)),
        ("ZERO", zero(t)),
        ("PRODUCT", &*product.join(" * ")),
    ];
    Ok(summed(site, fill(&sections(site.text("einsum"), &["einsum"]), &pairs), t))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let shapes = (0..cx.inputs.len()).map(|i| cx.shape(i)).collect::<Result<Vec<_>, _>>()?;
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let equation = cx.op()?.attrs().str("equation").map_err(op_error)?;
    let plan = walk(equation, &shapes).map_err(op_error)?;
    let y = cx.out_shape(0)?;
    let mut w = vec![word(y.len())?];
    w.extend(words(y)?);
    w.extend(words(plan.outer.into_iter().flatten())?);
    w.push(word(plan.inner.len())?);
    w.extend(words(plan.inner.iter().copied())?);
    w.extend(words(plan.within.into_iter().flatten())?);
    let trips = plan.inner.iter().product();
    w.push(word(trips)?);
    // A round, and a loop over dimensions with one over inputs in it.
    continued(cx, w, trips, 2 + plan.inner.len() * (2 + shapes.len()))
}

fn dft_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let attrs = site.op()?.attrs();
    if to_real(attrs).map_err(op_error)? {
        return Ok(summed(site, sections(site.text("spectrum"), &["fourier", "dft_real"]), DType::F32));
    }
    let inverse = attrs.bool("inverse").map_err(op_error)?;
    let (sign, scaled) = if inverse { ("1.0f", "r / f32(n)") } else { ("-1.0f", "r") };
    let code =
        fill(&sections(site.text("spectrum"), &["fourier", "dft"]), &[("SIGN", sign), ("SCALED", scaled)]);
    Ok(summed(site, code, DType::F32))
}

/// Iterations for an element of a transform of length `n`: products of large numbers modulo n take a loop.
fn turn(n: usize) -> usize {
    if n <= 1 << 16 { 1 } else { 34 }
}

fn dft(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let one = |v: Option<Vec<i64>>| v.and_then(|v| v.first().copied());
    let axis = one(cx.ints(2)?).unwrap_or(-2);
    let axis = kiln_ir::infer::normalize_axis(axis, x.len(), "axis").map_err(op_error)?;
    let real = to_real(cx.op()?.attrs()).map_err(op_error)?;
    let n = if real { y[axis] } else { one(cx.ints(1)?).map_or(x[axis], |n| n.max(0) as usize) };
    let last = x.len() - 1;
    let inner = x[axis + 1..last].iter().product();
    let counted = if real { n / 2 + 1 } else { n }.min(x[axis]);
    continued(cx, words([n, counted, x[axis], y[axis], inner, x[last]])?, counted, turn(n))
}

fn stft_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let window = if site.dtype(2).is_some() { "select(0.0f, x2(t), t < m(7u))" } else { "1.0f" };
    let code = fill(&sections(site.text("spectrum"), &["fourier", "stft"]), &[("WINDOW", window)]);
    Ok(summed(site, code, DType::F32))
}

fn stft(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let one = |v: Option<Vec<i64>>| v.and_then(|v| v.first().copied()).map(|n| n.max(0) as usize);
    let step = one(cx.ints(1)?).unwrap_or(1);
    let window = if cx.has(2) { cx.shape(2)?[0] } else { 0 };
    let n = one(cx.ints(3)?).unwrap_or(if cx.has(2) { window } else { x[1] });
    continued(cx, words([n, n, x[1], y[2], y[1], x[2], step, window])?, n, turn(n))
}
