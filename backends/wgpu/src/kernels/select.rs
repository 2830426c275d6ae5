//! Operators whose output sizes depend on data. The first launches list in scratch memory what is kept, and count it; the others
//! run once the host knows the sizes.

pub mod nms;
pub mod unique;

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::select::{
    compress_count, compress_params, compress_test, counting, nonzero_params, nonzero_shape, nonzero_test,
    phases,
};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};

pub const KERNELS: &[Kernel] = &[
    Kernel::alone("nonzero", &["nonzero"], nonzero_source, nonzero),
    Kernel::alone("compress", &["compress"], compress_source, compress),
];

/// The kernel file that lists numbers. Files that define `list_at`, `counts_at` and `is_kept` come in front of it.
const FILE: &str = "select/list";

/// The entries of that file.
const ENTRIES: [Entry; 3] = [
    Entry::threads("count_runs").silent(),
    Entry::blocks("add_up", 64).silent(),
    Entry::threads("write_list").silent(),
];

/// Numbers in a run of `n`.
fn run(cx: &Cx<'_>, n: usize) -> usize {
    // So that one workgroup can add up the counts.
    256.max(n >> 20).min(cx.rounds)
}

/// Launches of [`ENTRIES`], which are entries `entry` and following, over `n` numbers of `cost` iterations each.
fn list(cx: &Cx<'_>, entry: usize, w: &[u32], n: usize, cost: usize) -> Result<Vec<Launch>, BackendError> {
    let each = (run(cx, n) / cost).max(1);
    let runs = n.div_ceil(each);
    if each * cost > cx.rounds || runs.div_ceil(64) * 2 + 64 > cx.rounds {
        return unsupported(format!("{} over {n} elements of {cost} iterations", cx.op()?.name()));
    }
    let grids = [Grid::Threads(runs as u64), Grid::Groups(1), Grid::Threads(runs as u64)];
    let one = |(k, grid)| Launch::map(entry + k, w.to_vec()).on(grid).span(n, each);
    grids.into_iter().enumerate().map(one).collect()
}

/// Words of scratch memory for the counts of the list.
fn counts(cx: &Cx<'_>, n: usize, cost: usize) -> usize {
    n.div_ceil((run(cx, n) / cost).max(1))
}

/// A list at the start of scratch memory, its counts after it, and a map of output 0 by `element`.
fn listed(site: &Site<'_>, file: &'static str, element: &'static str) -> Body {
    let entries = ENTRIES.into_iter().chain([Entry::Element(0, element)]).collect();
    let places = site.function("list_at", &[], "u32", "0u") + &site.function("counts_at", &[], "u32", "lo()");
    counting(vec![file, FILE], entries).with(places)
}

fn nonzero_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(listed(site, "select/nonzero", "nonzero").with(nonzero_test(site)))
}

fn nonzero(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = nonzero_shape(cx)?;
    let n: usize = x.iter().product();
    let first = list(cx, 0, &[], n, 1)?;
    let maps = || Ok(vec![Launch::map(3, nonzero_params(cx, &x)?.words()?)]);
    phases(cx, first, maps, (n + counts(cx, n, 1)) as u64 * 4)
}

fn compress_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let hooks = site.alias("Value", site.out_dtype(0)) + &compress_test(site);
    Ok(listed(site, "select/compress", "compress").with(hooks))
}

fn compress(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let n = compress_count(cx)?;
    let first = list(cx, 0, &[], n, 1)?;
    let maps = || Ok(vec![Launch::map(3, compress_params(cx)?.words()?)]);
    phases(cx, first, maps, (n + counts(cx, n, 1)) as u64 * 4)
}
