//! Rotary embedding and cache updates.

use crate::site::{Cx, Site, op_error};
use crate::template::{fill, sections};
use crate::{Body, Entry, Grid, Kernel, Launch, plain, words};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;
use kiln_ir::infer::normalize_axis;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "rotary_embedding",
        ops: &["rotary_embedding"],
        epilogue: true,
        tactics: |_| plain("rotary_embedding"),
        source: rotary_source,
        launch: rotary,
    },
    Kernel {
        name: "kv_cache_update",
        ops: &["kv_cache_update"],
        epilogue: false,
        tactics: |_| plain("kv_cache_update"),
        source: cache_source,
        launch: cache,
    },
];

fn rotary_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let row = if site.dtype(3).is_some() {
        "let id = near3(row);\n    return u32(select(id, id + i32(m(4u)), id < 0));"
    } else {
        "return row;"
    };
    Ok(Body::map(fill(&sections(site.text("sequence"), &["rotary"]), &[("ROW", row)])))
}

fn rotary(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, table) = (cx.shape(0)?, cx.shape(1)?);
    let attrs = cx.op()?.attrs();
    let (heads, positions, size, flat) = match x[..] {
        [_, h, s, d] => (h, s, d, 0),
        [_, s, hidden] => {
            let heads = attrs.int("num_heads").map_err(op_error)?.max(1) as usize;
            (heads, s, hidden / heads, 1)
        }
        _ => return Err(BackendError::Internal("rotary embedding of neither 3-D nor 4-D".into())),
    };
    let half = table.last().copied().unwrap_or(0);
    let rows = table[..table.len() - 1].iter().product();
    let mixed = usize::from(attrs.bool("interleaved").map_err(op_error)?);
    Ok(vec![Launch::map(0, words([heads, positions, size, half, rows, flat, mixed])?)])
}

fn cache_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let circular = site.op()?.attrs().str("mode").map_err(op_error)? == "circular";
    let start = match (site.dtype(2), circular) {
        (None, _) => "0",
        (Some(DType::I64), true) => "i32(x2(b) % i64(max(m(0u), 1u)))",
        _ => "near2(b)",
    };
    let code = fill(&sections(site.text("sequence"), &["cache"]), &[("START", start)]);
    Ok(Body { code, entries: vec![Entry::Free("update"), Entry::Free("keep")], ..Body::default() })
}

fn cache(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (cache, update) = (cx.shape(0)?, cx.shape(1)?);
    let attrs = cx.op()?.attrs();
    let axis = normalize_axis(attrs.int("axis").map_err(op_error)?, cache.len(), "axis").map_err(op_error)?;
    let circular = usize::from(attrs.str("mode").map_err(op_error)? == "circular");
    let inside = cache[axis + 1..].iter().product();
    let entry = update[1..].iter().product();
    let w = words([cache[axis], update[axis], inside, entry, circular])?;
    let count = |s: &[usize]| Grid::Threads(s.iter().map(|&d| d as u64).product());
    let mut out = Vec::new();
    if !cx.aliased.contains(&(0, 0)) {
        out.push(Launch::map(1, w.clone()).on(count(&cache)));
    }
    out.push(Launch::map(0, w).on(count(&update)));
    Ok(out)
}
