//! Products of few rows, as in the decoding of tokens: every element of B is read once, by words.

use crate::kernels::cost::Work;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::state;
use kiln_codegen::matmul::product;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;

const NAME: &str = "matmul.rows";

pub const KERNELS: &[Kernel] = &[Kernel {
    name: NAME,
    ops: &["matmul"],
    epilogue: true,
    views: Views::Framed,
    side_results: false,
    tactics,
    source,
    launch,
}];

/// Rows at most.
const ROWS: usize = 4;
/// Workgroups that keep a large device busy.
const BUSY: usize = 512;
/// Threads of a workgroup.
const THREADS: usize = 256;
/// The fewest products of a thread of a part.
const PRODUCTS: usize = 16;

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if !site.out_dtype(0).is_float() || [0, 1].iter().any(|&i| !site.dtype(i).is_some_and(DType::is_float)) {
        return unsupported("products of few rows of integers");
    }
    if site.target.numbers.get("workgroup_threads").is_none_or(|&n| n < THREADS as u64) {
        return unsupported("workgroups of fewer than 256 threads");
    }
    match Work::of(site) {
        Some(w) if w.rows <= ROWS => {
            let estimate_ns = Some(w.rows_ns(site.target.has("software")));
            Ok(vec![Tactic { estimate_ns, ..Tactic::plain(NAME) }])
        }
        Some(w) => unsupported(format!("{} rows, {ROWS} are few", w.rows)),
        None => unsupported("products of an unknown number of rows"),
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    // A vector has no columns: its depth is along it.
    let vector = site.rank(1) == Some(1);
    let turned = site.op()?.attrs().bool("trans_b").map_err(op_error)?;
    let code = site.constant("ALONG_B", "bool", turned || vector) + &state(site, DType::F32);
    let entries = vec![Entry::blocks("product_of_rows", THREADS as u32), Entry::threads("join_rows")];
    Ok(Body { code, scratch: true, ..Body::of("matmul/rows", entries) })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let p = product(cx)?;
    let vector = cx.shape(1)?.len() == 1;
    let along_b = vector || cx.op()?.attrs().bool("trans_b").map_err(op_error)?;
    let share = if along_b { 32 } else { 8 };
    let strips = p.n.div_ceil(THREADS / share * 4) * p.batch;
    let most = p.k.div_ceil(share * PRODUCTS).max(1);
    let parts = BUSY.div_ceil(strips.max(1)).min(most);
    // Parts begin with whole fours.
    let part = p.k.div_ceil(parts).max(1).next_multiple_of(4);
    let parts = p.k.div_ceil(part).max(1);
    let longest = (part.div_ceil(share) + 64).max(parts);
    if p.m > ROWS || longest > cx.rounds {
        return unsupported(format!("{} rows of {} products", p.m, p.k));
    }
    let w = p.params.words()?;
    let results = (p.m * p.n * p.batch) as u64;
    let bytes = if parts > 1 { results * parts as u64 * 4 } else { 4 };
    let groups = Grid::Groups((strips * parts) as u64);
    let mut all = vec![Launch::map(0, w.clone()).on(groups).scratch(bytes).span(part, parts)?];
    if parts > 1 {
        all.push(Launch::map(1, w).on(Grid::Threads(results)).scratch(bytes).span(part, parts)?);
    }
    Ok(all)
}
