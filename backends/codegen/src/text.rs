//! Counts of n-grams.

use crate::long::{continued, long_sum};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::text::counted;
use std::collections::BTreeMap;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::of("tfidf", &["tfidf"], source, launch)];

crate::params! {
    /// Counts of n-grams.
    struct TfidfParams {
        /// Items of a row.
        len: u32,
        /// Counts of a row.
        counts: u32,
        /// The most items between two of an n-gram.
        skips: u32,
        /// Number of n-grams.
        gram_count: u32,
        /// Output and length of every n-gram, and the halves of its items, the lower ones first.
        grams: [u32],
        /// A weight for each output, if there are weights.
        weights: [f32],
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let same = match site.dtype(0) {
        Some(DType::I64) => "x0(at) == ci64(high, low)",
        // An item beyond 32 bits is none of the row.
        _ => "bitcast<u32>(x0(at)) == low && bitcast<u32>(x0(at) >> 31u) == high",
    };
    let result = match site.op()?.attrs().str("mode").map_err(op_error)? {
        "tf" => "f32(found)",
        "idf" => "select(0.0f, weight, found > 0u)",
        _ => "weight * f32(found)",
    };
    let code = site.function("same", &[("at", "u32"), ("low", "u32"), ("high", "u32")], "bool", same)
        + &site.function("result", &[("found", "u32"), ("weight", "f32")], "f32", result);
    Ok(long_sum(site, "text/tfidf", ("tfidf", "tfidf_count"), DType::I32).with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out, a) = (cx.shape(0)?, cx.out_shape(0)?, cx.op()?.attrs());
    let last = |s: &[usize]| s.last().copied().unwrap_or(0);
    let skips = a.int("max_skip").map_err(op_error)?.clamp(0, 1 << 30);
    let grams = counted(a).map_err(op_error)?;
    let weights = a.floats("weights").map_err(op_error)?;
    let (each, once) = cost(&grams, last(&x), skips as usize);
    if once.saturating_mul(cx.lanes) > cx.rounds / 2 {
        return unsupported(format!(
            "a loop of {once} iterations over n-grams, {} are possible",
            cx.rounds / 2
        ));
    }
    let mut params = TfidfParams {
        len: last(&x),
        counts: last(&out),
        skips: skips as usize,
        gram_count: grams.len(),
        grams: Vec::new(),
        weights: weights.iter().map(|&x| x as f32).collect(),
    };
    for (items, slot) in grams {
        params.grams.extend([slot, items.len()]);
        params.grams.extend(items.iter().flat_map(|&i| [i as u32 as usize, (i >> 32) as u32 as usize]));
    }
    // Half of a launch may be spent on looking at all n-grams.
    continued(cx, params.words()?, last(&x), each * 2)
}

/// Iterations of one output: for each place of a row, and for each launch.
fn cost(grams: &[(&[i64], usize)], len: usize, skips: usize) -> (usize, usize) {
    let mut of_slot: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (items, slot) in grams {
        let n = items.len();
        let distances = if n == 1 { 1 } else { (skips + 1).min(len / (n - 1).max(1) + 1) };
        let (each, once) = of_slot.entry(*slot).or_default();
        *each += distances * (2 + n);
        *once += distances * 2;
    }
    let most = of_slot.values().fold((1, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    (most.0, most.1 + grams.len())
}
