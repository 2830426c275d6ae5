//! Counts of n-grams.

use crate::site::{Cx, Site, op_error};
use crate::template::{fill, section};
use crate::{Body, Kernel, Launch, plain, word, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ir::ops::tfidf::counted;

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
    Ok(Body::map(fill(section(site.text("text"), "tfidf"), &[("SAME", same), ("RESULT", result)])))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out, a) = (cx.shape(0)?, cx.out_shape(0)?, cx.op()?.attrs());
    let last = |s: &[usize]| s.last().copied().unwrap_or(0);
    let skips = a.int("max_skip").map_err(op_error)?.clamp(0, 1 << 30);
    let grams = counted(a).map_err(op_error)?;
    let weights = a.floats("weights").map_err(op_error)?;
    let mut w =
        words([last(&x), last(&out), skips as usize, grams.len(), usize::from(!weights.is_empty()), 0])?;
    for (items, slot) in grams {
        w.extend(words([slot, items.len()])?);
        w.extend(items.iter().flat_map(|&i| [i as u32, (i >> 32) as u32]));
    }
    w[5] = word(w.len())?;
    w.extend(weights.iter().map(|&x| (x as f32).to_bits()));
    Ok(vec![Launch::map(0, w)])
}
