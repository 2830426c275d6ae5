//! Updates of caches of keys and values.

use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::DType;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("kv_cache_update", &["kv_cache_update"], source, launch)];

crate::params! {
    /// Updates of a cache.
    struct KvCacheParams {
        /// Rows of the cache.
        rows: u32,
        /// Rows of the update.
        updates: u32,
        /// Elements of a row.
        inside: u32,
        /// Elements of a batch entry of the update.
        entry: u32,
        /// Whether rows go on at the start of the cache.
        circular: u32,
    }
}

fn circular(op: &kiln_ir::Op) -> Result<bool, BackendError> {
    Ok(op.attrs().str("mode").map_err(op_error)? == "circular")
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let start = match (site.dtype(2), circular(site.op()?)?) {
        (None, _) => "0",
        (Some(DType::I64), true) => "i32(x2(b) % i64(max(rows, 1u)))",
        _ => "near2(b)",
    };
    let code = site.function("start", &[("b", "u32"), ("rows", "u32")], "i32", start);
    let entries = ["update_rows", "copy_cache"].map(Entry::threads);
    Ok(Body::of("attention/kv_cache", entries.into()).with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (cache, update) = (cx.shape(0)?, cx.shape(1)?);
    let axis = cx.axis(cache.len())?;
    let params = KvCacheParams {
        rows: cache[axis],
        updates: update[axis],
        inside: cache[axis + 1..].iter().product(),
        entry: update[1..].iter().product(),
        circular: usize::from(circular(cx.op()?)?),
    };
    let words = params.words()?;
    let count = |s: &[usize]| Grid::Threads(s.iter().map(|&d| d as u64).product());
    let mut out = Vec::new();
    if !cx.aliased(0, 0) {
        out.push(Launch::map(1, words.clone()).on(count(&cache)));
    }
    out.push(Launch::map(0, words).on(count(&update)));
    Ok(out)
}
