//! `mel_weight_matrix`: triangular filters on the mel scale.

use crate::util::{PLAIN, REAL, host_scalar};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Roles, Tolerance, attr, input};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    MEL_WEIGHT_MATRIX = "mel_weight_matrix",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: MEL_WEIGHT_MATRIX,
    doc: "A matrix [⌊dft_length/2⌋ + 1, bins] that turns spectra into `bins` mel bands. Edge k of bins + 2 edges is at \
          frequency 700·(10^(m/2595) − 1) hertz with m = low + k·(high − low)/(bins + 2), where low and high are 2595·log₁₀(1 + \
          hertz/700) of the two edges; it falls on spectral bin ⌊(dft_length + 1)·frequency/sample_rate⌋. Band i rises from \
          edge i to 1 at edge i + 1 and falls to 0 at edge i + 2. Spectral bins that the matrix lacks are left out.",
    inputs: &[
        input("bins").on_host(),
        input("dft_length").on_host(),
        input("sample_rate").on_host(),
        input("lower_edge_hertz").on_host(),
        input("upper_edge_hertz").on_host(),
    ],
    attrs: &[attr("to", || Attr::DType(DType::F32))],
    infer,
    eval,
    tolerance: Tolerance::Generated,
    problems,
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let mut sizes = Vec::new();
    for (i, hint) in [(0, "bins"), (1, "dft_length"), (2, "sample_rate")] {
        cx.ty(i)?;
        let n = host_scalar(cx, i, hint, None)?.unwrap_or(Dim::new(0));
        if let Some(n) = n.as_const().filter(|&n| n < i64::from(i == 2)) {
            return Err(OpError::Value(format!("{hint} is {n}; wants {} or more", i64::from(i == 2))));
        }
        sizes.push(n);
    }
    for i in [3, 4] {
        cx.check_dtype(i, DType::is_float, REAL)?;
        cx.check_shape(i, |d| d.iter().all(|d| d.as_const().is_none_or(|n| n == 1)), "one element")?;
    }
    let rows = sizes[1].floor_div(&2.into()) + 1.into();
    Ok(vec![Fact::of(TensorType { dtype: cx.attrs.dtype("to")?, dims: vec![rows, sizes[0].clone()] })])
}

/// The spectral bins on which the edges fall.
pub fn edges(bins: usize, dft_length: f64, sample_rate: f64, lower: f64, upper: f64) -> Vec<i64> {
    let mel = |hertz: f64| 2595.0 * libm::log10(1.0 + hertz / 700.0);
    let (low, high) = (mel(lower), mel(upper));
    let step = (high - low) / (bins + 2) as f64;
    let hertz = |k: usize| 700.0 * (libm::pow(10.0, (low + k as f64 * step) / 2595.0) - 1.0);
    (0..bins + 2).map(|k| ((dft_length + 1.0) * hertz(k) / sample_rate).floor() as i64).collect()
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let shape = cx.out_shape(0)?;
    let (rows, bins) = (shape[0], shape[1]);
    let host = |i: usize| -> Result<f64, OpError> {
        cx.input(i)?.scalar_f64().ok_or_else(|| OpError::Value(format!("input {i} has not one element")))
    };
    let edges = edges(bins, host(1)?, host(2)?, host(3)?, host(4)?);
    let mut y = vec![0.0; rows * bins];
    let mut set = |row: i64, band: usize, value: f64| {
        if let Some(row) = usize::try_from(row).ok().filter(|&r| r < rows) {
            y[row * bins + band] = value;
        }
    };
    // Beyond the matrix there is nothing to set, however far the edges are.
    let within = |from: i64, to: i64| from.max(0)..to.min(rows as i64);
    for (band, e) in edges.windows(3).enumerate() {
        let (low, center, high) = (e[0], e[1], e[2]);
        match center.saturating_sub(low) {
            0 => set(center, band, 1.0),
            rise => within(low, center.saturating_add(1))
                .for_each(|j| set(j, band, (j - low) as f64 / rise as f64)),
        }
        let fall = high.saturating_sub(center);
        within(center, high).for_each(|j| set(j, band, (high - j) as f64 / fall as f64));
    }
    Ok(vec![cx.make(0, &shape, Elems::F(y))?])
}

fn problems(_: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (bins, dft, rate, low, high) in [
        (8i64, 16i64, 8192i64, 0.0f32, 4096.0f32),
        (40, 512, 16000, 20.0, 7600.0),
        (0, 16, 8000, 0.0, 4000.0),
        (3, 0, 8000, 0.0, 4000.0),
    ] {
        let int = |v: i64| Some(made(Tensor::i64(&[], &[v])));
        let float = |v: f32| Some(made(Tensor::f32(&[], &[v])));
        for t in [DType::F32, DType::F16] {
            let ins = [int(bins), int(dft), int(rate), float(low), float(high)];
            let label = format!("{bins} bands of {dft} at {rate} {t}");
            out.push(Problem::of(&label, "mel_weight_matrix", Attrs::new().with("to", t), ins));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, ints, run};

    fn matrix(bins: i64, dft: i64, rate: i64, low: f64, high: f64) -> Tensor {
        let int = |v: i64| ints(DType::I64, &[], &[v]);
        let ins = [int(bins), int(dft), int(rate), f32s(&[], &[low]), f32s(&[], &[high])];
        run("mel_weight_matrix", Attrs::new(), &ins)
    }

    /// Mels 0, 710.9, 1421.9, 2132.8 stand for 0 to 8000 Hz in 2 bands: 0, 615, 1772, 3945 Hz; bins 0, 1, 3,
    /// 8 of 33/16000.
    #[test]
    fn two_bands_by_hand() {
        let y = matrix(2, 32, 16000, 0.0, 8000.0);
        let mut want = vec![0.0; 34];
        want[2] = 1.0; // band 0 peaks at 1, falls over 1..3
        want[4] = 0.5;
        want[5] = 0.5; // band 1 rises over 1..3, peaks at 3
        want[7] = 1.0;
        for (j, v) in [(4, 0.8), (5, 0.6), (6, 0.4), (7, 0.2)] {
            want[2 * j + 1] = v;
        }
        assert_near(&y, &[17, 2], &want, 1e-6);
    }

    #[test]
    fn edges_that_coincide_or_fall_outside() {
        let y = matrix(2, 2, 16000, 0.0, 8000.0);
        assert_near(&y, &[2, 2], &[1.0, 1.0, 0.0, 0.0], 0.0);
        assert_eq!(matrix(1, 8, 10, 0.0, 1e30).shape(), [5, 1]);
    }
}
