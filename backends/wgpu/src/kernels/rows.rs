//! Operators on rows: greatest elements, orders, determinants.

use super::sort;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::lines::along;
use kiln_codegen::long::{repeated, summed};
use kiln_codegen::rows::precedes;
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::template::sections;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, moves, word, words};
use kiln_ir::DType;

fn text(names: &[&str]) -> String {
    sections(include_str!("../../../../shaders/rows.wgsl"), names)
}

pub const KERNELS: &[Kernel] = &[
    Kernel::of("hardmax", &["hardmax"], |s, _| Ok(summed(s, text(&["hardmax"]), DType::I32)), hardmax),
    Kernel::of("topk", &["topk"], topk_source, topk),
    Kernel::of("det", &["det"], det_source, det),
];

fn hardmax(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let axis = moves::axis(cx, x.len())?;
    let (w, lines) = along(&x, axis)?;
    let bytes = lines as u64 * 4;
    let find = Launch::map(1, w.clone()).on(Grid::Threads(lines as u64)).scratch(bytes);
    let mut out = repeated(cx, &find, (x[axis], 1), 0)?;
    out.push(Launch::map(0, w).scratch(bytes));
    Ok(out)
}

fn topk_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let r = register(site.out_dtype(0));
    let order = site.function("precedes", &[("a", r), ("b", r)], "bool", precedes(site)?);
    let text = sort::text().to_owned() + &text(&["topk", "topk_sorted"]);
    let entries = sort::ENTRIES.into_iter().chain([Entry::Free("rows"), Entry::Free("take")]).collect();
    Ok(Body { code: order + &text, entries, scratch: true, ..Body::default() })
}

/// Rows of more elements are sorted.
const RANKED: usize = 4096;

fn topk(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = moves::axis(cx, x.len())?;
    let (n, count) = (x[axis], x.iter().product::<usize>());
    let w = words([n, sort::width(n), x[axis + 1..].iter().product(), out[axis]])?;
    if n <= RANKED.min(cx.rounds) {
        return Ok(vec![Launch::map(2, w).on(Grid::Threads(count as u64))]);
    }
    let rows = count / n;
    let mut all = sort::launches(&w, rows, n)?;
    let taken = out.iter().product::<usize>() as u64;
    all.push(Launch::map(3, w).on(Grid::Threads(taken)));
    let bytes = (rows * sort::width(n)) as u64 * 4;
    Ok(all.into_iter().map(|l| l.scratch(bytes)).collect())
}

fn det_source(_: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(Body {
        code: text(&["det"]),
        entries: vec![Entry::Free("determinants")],
        scratch: true,
        ..Body::default()
    })
}

fn det(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let x = cx.shape(0)?;
    let count: usize = cx.out_shape(0)?.iter().product();
    let n = x.last().copied().unwrap_or(0);
    let bytes = (x.iter().product::<usize>() + count) as u64 * 4;
    let launch = Launch::map(0, vec![word(n)?]).on(Grid::Groups(count as u64)).scratch(bytes);
    // A column takes a search, a swap, and the rows of a thread; the copy before the first one takes less.
    let cost = n + n / 64 + 2 + n.div_ceil(64) * (n + 1);
    repeated(cx, &launch, (n, cost * 2), 0)
}
