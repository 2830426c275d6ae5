//! Norms: two numbers of a row, then a result for each of its elements.

use kiln_backend::BackendError;
use kiln_codegen::norm::{Rows, affine, group_places, group_rows, layer_rows, square};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::softmax::axis_lines;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ops::layout::Layout;

pub const KERNELS: &[Kernel] = &[
    Kernel::of(
        "lp_norm",
        &["lp_norm"],
        |s, _| Ok(row_body(s, &["norm/lp_norm", "norm/lines", "norm/rows"]).with(square(s)?)),
        along_axis,
    )
    .framed(),
    Kernel::of(
        "layer_norm",
        &["layer_norm"],
        |s, _| {
            let files = ["norm/affine", "norm/contiguous", "norm/layer_norm", "norm/rows"];
            Ok(by_fours(s, row_body(s, &files)).with(affine(s)))
        },
        layer,
    )
    .framed(),
    Kernel::of(
        "rms_norm",
        &["rms_norm"],
        |s, _| {
            let files = ["norm/affine", "norm/contiguous", "norm/rms_norm", "norm/rows"];
            Ok(by_fours(s, row_body(s, &files)).with(affine(s)))
        },
        layer,
    )
    .framed(),
    Kernel::of(
        "group_norm",
        &["group_norm"],
        |s, _| Ok(by_fours(s, row_body(s, &["norm/group_norm", "norm/rows"])).with(group_places(s)?)),
        |cx| {
            let whole = Layout::of(cx.op()?.attrs()) == Layout::Linear;
            norm(cx, group_rows(cx)?, 0, whole)
        },
    )
    .framed(),
];

/// A body of `norm/rows`, which comes last of the files: what they define is taken instead of its stand-ins.
pub fn row_body(site: &Site<'_>, files: &[&'static str]) -> Body {
    // Numbers of rows may be outputs, behind the first one.
    let alone = site.stored().len() == 1;
    let find = ["numbers", "part_first", "join_first", "part_second", "join_second"];
    let find = find.map(|name| Entry::blocks(name, 64)).map(|e| if alone { e.silent() } else { e });
    let entries = find.into_iter().chain([Entry::Element(0, "apply")]).collect();
    Body { files: files.to_vec(), entries, scratch: true, ..Body::default() }
}

/// The body whose rows may be loaded and stored in fours: its files define `first_of`, `second_of` and `results_of`.
pub fn by_fours(site: &Site<'_>, mut body: Body) -> Body {
    body.entries.push(Entry::blocks("whole_rows", 64));
    body.with(site.constant("BY_FOURS", "bool", true))
}

/// The entry that makes the results.
const APPLY: usize = 5;
/// The entry of [`by_fours`].
const WHOLE: usize = 6;
/// Elements of a thread of [`WHOLE`] up to which rows are not cut.
const KEPT: usize = 64;
/// Workgroups that keep a large device busy, and the fewest elements of a thread for which rows are cut to have as many.
const BUSY: usize = 1024;
const ELEMENTS: usize = 8;
/// The most elements of a thread of a part.
const MOST: usize = 4096;

/// Launches for `rows` rows of `n` elements; `cost` counts the iterations that an element takes in the functions of its
/// result. `whole` says that rows are neighbours of a body [`by_fours`].
pub fn row_launches(
    cx: &Cx<'_>,
    w: Vec<u32>,
    (rows, n): (usize, usize),
    cost: usize,
    whole: bool,
) -> Result<Vec<Launch>, BackendError> {
    // Two loops over the elements, and two trees.
    let trees = 32;
    let most = cx.rounds.saturating_sub(trees) / (2 + cost);
    let whole = whole && n.is_multiple_of(4) && n.div_ceil(64) * (3 + cost) + trees <= cx.rounds;
    if whole && (n <= 64 * KEPT || rows >= BUSY && n <= 64 * MOST) {
        return Ok(vec![Launch::map(WHOLE, w).on(Grid::Groups(rows as u64)).scratch(rows as u64 * 8)]);
    }
    let wanted = BUSY.div_ceil(rows.max(1)).min(n.div_ceil(64 * ELEMENTS)).max(1);
    let lane = n.div_ceil(64 * wanted).clamp(1, MOST.min(most.max(1)));
    let parts = n.div_ceil(lane * 64).max(1);
    if parts.div_ceil(64) + trees > cx.rounds {
        return unsupported(format!("{} of {n} elements in {parts} parts", cx.op()?.name()));
    }
    let all = (rows * parts) as u64;
    let bytes = (rows as u64 * 2 + if parts > 1 { all } else { 0 }) * 4;
    let each = Grid::Groups(rows as u64);
    let find = match parts {
        1 => vec![(0, each)],
        _ => vec![(1, Grid::Groups(all)), (2, each), (3, Grid::Groups(all)), (4, each)],
    };
    let one = |(entry, grid): (usize, Grid)| {
        Launch::map(entry, w.clone()).on(grid).scratch(bytes).span(lane * 64, parts)
    };
    let mut launches = find.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    launches.push(Launch::map(APPLY, w).scratch(bytes));
    Ok(launches)
}

/// Launches for rows along the attribute "axis".
pub fn along_axis(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (params, rows) = axis_lines(cx)?;
    row_launches(cx, params.words()?, (rows, params.count), 0, false)
}

fn norm(cx: &Cx<'_>, rows: Rows, cost: usize, whole: bool) -> Result<Vec<Launch>, BackendError> {
    row_launches(cx, rows.words, (rows.count, rows.n), cost, whole)
}

fn layer(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    norm(cx, layer_rows(cx)?, 2 * (cx.shape(0)?.len() + 1), true)
}
