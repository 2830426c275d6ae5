//! Counts of n-grams.

use crate::long::{continued, summed};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::template::{fill, section};
use crate::{Body, Kernel, Launch, plain, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ops::text::counted;
use std::collections::BTreeMap;

/// The kernels.
pub const KERNELS: &[Kernel] =
    &[Kernel { name: "tfidf", ops: &["tfidf"], epilogue: true, tactics: |_| plain("tfidf"), source, launch }];

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let same = match site.dtype(0) {
        Some(DType::I64) => "return x0(at) == ci64(high, low);",
        // An item beyond 32 bits is none of the row.
        _ => "let x = x0(at);\n    return bitcast<u32>(x) == low && bitcast<u32>(x >> 31u) == high;",
    };
    let result = match site.op()?.attrs().str("mode").map_err(op_error)? {
        "tf" => "f32(found)",
        "idf" => "select(0.0f, weight, found > 0u)",
        _ => "weight * f32(found)",
    };
    let code = fill(section(site.text("text"), "tfidf"), &[("SAME", same), ("RESULT", result)]);
    Ok(summed(site, code, DType::I32))
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
    let mut w =
        words([last(&x), last(&out), skips as usize, grams.len(), usize::from(!weights.is_empty()), 0])?;
    for (items, slot) in grams {
        w.extend(words([slot, items.len()])?);
        w.extend(items.iter().flat_map(|&i| [i as u32, (i >> 32) as u32]));
    }
    w[5] = word(w.len())?;
    w.extend(weights.iter().map(|&x| (x as f32).to_bits()));
    // Half of a launch may be spent on looking at all n-grams.
    continued(cx, w, last(&x), each * 2)
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
