//! Norms and softmax of rows along the last axes, whole rows in registers.

use super::shape::{from_end, input, moving, product, traffic};
use crate::frame::{cell, load};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::template::{fill, section, sections};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, words};
use kiln_ir::Dim;
use kiln_ir::infer::normalize_axis;

const TEXT: &str = include_str!("../../../../kernels/rows/rows.cuh");

pub const KERNELS: &[Kernel] = &[
    kernel("softmax.rows", &["softmax"]),
    kernel("log_softmax.rows", &["log_softmax"]),
    kernel("layer_norm.rows", &["layer_norm"]),
    kernel("rms_norm.rows", &["rms_norm"]),
];

const fn kernel(name: &'static str, ops: &'static [&'static str]) -> Kernel {
    Kernel { name, ops, epilogue: true, tactics, source: |site, _| source(site), launch }
}

/// Who has a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Neighbouring threads of one row.
    threads: usize,
    /// Chunks of a thread.
    chunks: usize,
    /// Elements of a chunk.
    width: usize,
}

/// Threads and chunks, for chunks of eight elements and of one; the smallest that holds a row is taken.
const EIGHTS: &[(usize, usize)] =
    &[(4, 1), (8, 1), (16, 1), (32, 1), (32, 2), (32, 3), (32, 4), (128, 2), (256, 2), (256, 4)];
const ONES: &[(usize, usize)] =
    &[(4, 2), (8, 2), (16, 2), (32, 2), (32, 4), (32, 8), (128, 4), (256, 4), (256, 8), (256, 16)];

impl Tile {
    /// For rows of `n` elements in tensors whose last dimension is `last`.
    fn of(n: usize, last: usize) -> Option<Tile> {
        let (list, width) = if last.is_multiple_of(8) { (EIGHTS, 8) } else { (ONES, 1) };
        let &(threads, chunks) = list.iter().find(|(t, k)| t * k * width >= n)?;
        (n > 0).then_some(Tile { threads, chunks, width })
    }

    fn block(self) -> usize {
        self.threads.max(64)
    }

    fn params(self) -> [(String, i64); 3] {
        [("threads", self.threads), ("chunks", self.chunks), ("width", self.width)]
            .map(|(name, n)| (name.to_owned(), n as i64))
    }
}

/// The first axis of a row, if rows lie along the last axes: of `dims`, by the attribute "axis".
fn first_axis(dims: &[Dim], axis: i64, one: bool) -> Option<usize> {
    let axis = normalize_axis(axis, dims.len(), "axis").ok()?;
    let rest = dims.get(axis + 1..)?;
    (!one || rest.iter().all(|d| d.is(1))).then_some(axis)
}

/// Elements of a row, and the last dimension.
fn row(site: &Site<'_>) -> Option<(usize, usize)> {
    let (x, attrs) = (input(site, 0)?, site.op().ok()?.attrs());
    let one = !matches!(site.op().ok()?.name(), "layer_norm" | "rms_norm");
    let axis = first_axis(&x.dims, attrs.int("axis").ok()?, one)?;
    Some((product(&x.dims[axis..])?, from_end(x, 0)?))
}

/// Does a scale or bias have an element for each of a row, in order?
fn along_row(site: &Site<'_>, i: usize) -> Option<bool> {
    let Some(own) = input(site, i) else { return Some(true) };
    let (x, attrs) = (input(site, 0)?, site.op().ok()?.attrs());
    let axis = first_axis(&x.dims, attrs.int("axis").ok()?, false)?;
    let lead = own.dims.iter().take_while(|d| d.is(1)).count();
    let own = &own.dims[lead..];
    let row = &x.dims[axis..];
    let skipped = row.iter().take_while(|d| d.is(1)).count();
    Some(own == &row[skipped..])
}

fn tile(site: &Site<'_>) -> Result<Tile, BackendError> {
    let Some((n, last)) = row(site) else {
        return unsupported("rows in registers that are not known or not along the last axes");
    };
    let fits = [1, 2].iter().all(|&i| along_row(site, i) == Some(true));
    match Tile::of(n, last) {
        _ if site.op()?.attrs().int("axis").is_err() || !fits => {
            unsupported("rows in registers with a scale or bias that is not that of a row")
        }
        _ if site.first_dtype().bits() < 8 || !site.first_dtype().is_float() => {
            unsupported(format!("rows of {} in registers", site.first_dtype()))
        }
        None => unsupported(format!("rows of {n} elements in registers")),
        Some(t) => Ok(t),
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let tile = tile(site)?;
    let name = format!("{}.rows", site.op()?.name());
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.2));
    Ok(vec![Tactic { estimate_ns, params: tile.params().into(), ..Tactic::plain(&name) }])
}

/// The text for a load of scale or bias, and its use.
fn parameter(site: &Site<'_>, i: usize, tile: Tile) -> (String, String) {
    let Some(t) = site.dtype(i) else { return Default::default() };
    let step = if i == 1 { "*" } else { "+" };
    match tile.width {
        1 => (String::new(), format!("y[j] = y[j] {step} x{i}(i);")),
        _ => (
            format!("const auto p{i} = Run<{}>::of(bx{i} + i, 1u);", cell(t)),
            format!("y[j] = y[j] {step} {};", load(t, &format!("p{i}.v"), "j")),
        ),
    }
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let tile = tile(site)?;
    let mut code = String::new();
    for (name, n) in [("T", tile.threads), ("CHUNKS", tile.chunks), ("V", tile.width)] {
        code += &format!("static constexpr u32 {name} = {n}u;\n");
    }
    code += TEXT.split_once("// ---- ").map_or("", |p| p.0);
    let tree = if tile.threads > 32 { "block" } else { "segment" };
    let (loader, put) = match tile.width {
        1 => ("load_one", "emit0(base + i, y[0]);"),
        _ => ("load_run", "emit0_run(base + i, y);"),
    };
    let name = site.op()?.name();
    let kind = if name.ends_with("softmax") { "softmax" } else { name };
    code += &sections(TEXT, &[tree, loader, kind]);
    let ((p1, a1), (p2, a2)) = (parameter(site, 1, tile), parameter(site, 2, tile));
    let (parameters, affine) = (p1 + &p2, a1 + &a2);
    let (keep, last, result) = match name {
        "log_softmax" => ("", "const f32 below = klog(sum);", "v[k][j] - below"),
        _ => ("v[k][j] = e;", "", "v[k][j] / sum"),
    };
    let statistics = match site.stored().len() {
        1 => "",
        _ => "if (n > 0u && l % T == 0u) { emit1(row, mean); emit2(row, factor); }",
    };
    let block = tile.block().to_string();
    let value = load(site.first_dtype(), "r.v", "j");
    let code = fill(
        &code,
        &[
            ("STORE", section(TEXT, "store")),
            ("STATISTICS", statistics),
            ("PARAMETERS", &parameters),
            ("AFFINE", &affine),
            ("PUT", put),
            ("KEEP", keep),
            ("LAST", last),
            ("RESULT", result),
            ("THREADS_OF_BLOCK", &block),
            ("CELL", cell(site.first_dtype())),
            ("VALUE", &value),
        ],
    );
    Ok(Body { code, entries: vec![Entry::Free("rows")], ..Body::default() })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, attrs) = (cx.shape(0)?, cx.op()?.attrs());
    let axis = normalize_axis(attrs.int("axis").map_err(op_error)?, x.len(), "axis").map_err(op_error)?;
    let n: usize = x[axis..].iter().product();
    let softmax = cx.op()?.name().ends_with("softmax");
    let Some(tile) = Tile::of(n, x.last().copied().unwrap_or(1)) else { return Ok(Vec::new()) };
    let rows: usize = x[..axis].iter().product();
    let mut w = words([n, rows])?;
    let epsilon = if softmax { 0.0 } else { attrs.float("epsilon").map_err(op_error)? };
    w.push((epsilon as f32).to_bits());
    let groups = rows.div_ceil(tile.block() / tile.threads);
    Ok(vec![Launch::map(0, w).on(Grid::Groups(groups as u64))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_hold_rows_and_leave_no_thread_without_a_warp() {
        for n in 1..=4096 {
            for last in [n, 8, 7] {
                let t = Tile::of(n, last).unwrap_or_else(|| panic!("{n}"));
                assert!(
                    t.threads * t.chunks * t.width >= n && t.block().is_multiple_of(t.threads),
                    "{n}: {t:?}"
                );
            }
        }
        assert_eq!(Tile::of(0, 8), None);
        assert_eq!(Tile::of(768, 768), Some(Tile { threads: 32, chunks: 3, width: 8 }));
    }
}
