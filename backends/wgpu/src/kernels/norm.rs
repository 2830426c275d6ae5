//! Norms: two numbers of a row, then a result for each of its elements.

use kiln_backend::BackendError;
use kiln_codegen::norm::{Rows, affine, group_places, group_rows, layer_rows, square};
use kiln_codegen::site::{Cx, unsupported};
use kiln_codegen::softmax::axis_lines;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};

pub const KERNELS: &[Kernel] =
    &[
        Kernel::of(
            "lp_norm",
            &["lp_norm"],
            |s, _| Ok(row_body(&["norm/lp_norm", "norm/lines", "norm/rows"]).with(square(s)?)),
            along_axis,
        )
        .framed(),
        Kernel::of(
            "layer_norm",
            &["layer_norm"],
            |s, _| {
                Ok(row_body(&["norm/affine", "norm/contiguous", "norm/layer_norm", "norm/rows"])
                    .with(affine(s)))
            },
            layer,
        )
        .framed(),
        Kernel::of(
            "rms_norm",
            &["rms_norm"],
            |s, _| {
                Ok(row_body(&["norm/affine", "norm/contiguous", "norm/rms_norm", "norm/rows"])
                    .with(affine(s)))
            },
            layer,
        )
        .framed(),
        Kernel::of(
            "group_norm",
            &["group_norm"],
            |s, _| Ok(row_body(&["norm/group_norm", "norm/rows"]).with(group_places(s)?)),
            |cx| norm(cx, group_rows(cx)?, 0),
        )
        .framed(),
    ];

/// A body of `norm/rows`, which comes last of the files: what they define is taken instead of its stand-ins.
pub fn row_body(files: &[&'static str]) -> Body {
    let entries = ["rows", "part_first", "join_first", "part_second", "join_second", "apply"];
    let entries = entries.map(|name| Entry::blocks(name, 64)).into();
    Body { files: files.to_vec(), entries, scratch: true, ..Body::default() }
}

/// Elements of a part of a row at most.
const PART: usize = 64 * 4096;

/// Launches for `rows` rows of `n` elements; `cost` counts the iterations that an element takes in the functions of its
/// result.
pub fn row_launches(
    cx: &Cx<'_>,
    w: Vec<u32>,
    rows: usize,
    n: usize,
    cost: usize,
) -> Result<Vec<Launch>, BackendError> {
    // Three loops over the elements, and two trees.
    let trees = 32;
    if n.div_ceil(64) * (3 + cost) + trees <= cx.rounds {
        return Ok(vec![Launch::map(0, w).on(Grid::Groups(rows as u64))]);
    }
    let lane = cx.rounds.saturating_sub(trees).clamp(1, PART / 64);
    let parts = n.div_ceil(lane * 64);
    if parts.div_ceil(64) + trees > cx.rounds {
        return unsupported(format!("{} of {n} elements in {parts} parts", cx.op()?.name()));
    }
    let all = (rows * parts) as u64;
    let grids = [
        Grid::Groups(all),
        Grid::Groups(rows as u64),
        Grid::Groups(all),
        Grid::Groups(rows as u64),
        Grid::Threads((rows * n) as u64),
    ];
    let one = |(k, grid): (usize, Grid)| {
        let launch = Launch::map(k + 1, w.clone()).on(grid).scratch((rows as u64 * 2 + all) * 4);
        launch.span(lane * 64, parts)
    };
    grids.into_iter().enumerate().map(one).collect()
}

/// Launches for rows along the attribute "axis".
pub fn along_axis(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (params, rows) = axis_lines(cx)?;
    row_launches(cx, params.words()?, rows, params.count, 0)
}

fn norm(cx: &Cx<'_>, rows: Rows, cost: usize) -> Result<Vec<Launch>, BackendError> {
    row_launches(cx, rows.words, rows.count, rows.n, cost)
}

fn layer(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    norm(cx, layer_rows(cx)?, 2 * (cx.shape(0)?.len() + 1))
}
