//! Softmax: two numbers of a row, then a result for each of its elements. Hardmax: lines in spans.

use super::norm::{by_fours, row_body, row_launches};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::{long_sum, repeated};
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::softmax::{axis_lines, log, ragged};
use kiln_codegen::{Body, Grid, Kernel, Launch};
use kiln_ir::DType;

pub const KERNELS: &[Kernel] = &[
    Kernel::of("softmax", &["softmax"], |s, _| Ok(softmax(s, false)), along_axis).framed(),
    Kernel::of("log_softmax", &["log_softmax"], |s, _| Ok(softmax(s, true)), along_axis).framed(),
    Kernel::of("ragged_softmax", &["ragged_softmax"], ragged_source, |cx| {
        let (params, rows) = ragged(cx)?;
        row_launches(cx, params.words()?, (rows, params.count), 0, false)
    })
    .framed(),
    // Moves in front of it run by themselves: through them, lines of many launches had another place.
    Kernel::of(
        "hardmax",
        &["hardmax"],
        |s, _| Ok(long_sum(s, "softmax/hardmax", ("hardmax", "hardmax_place"), DType::I32)),
        hardmax,
    ),
];

fn softmax(site: &Site<'_>, of: bool) -> Body {
    let near = matches!(site.out_dtype(0), DType::F16 | DType::BF16);
    by_fours(site, row_body(site, &["softmax/softmax", "norm/lines", "norm/rows"]))
        .with(log(site, of) + &site.constant("NEAR", "bool", near))
}

/// Launches for rows along the attribute "axis".
fn along_axis(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (params, rows) = axis_lines(cx)?;
    let whole = params.inner == 1;
    row_launches(cx, params.words()?, (rows, params.count), 0, whole)
}

fn ragged_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(row_body(site, &["softmax/ragged_softmax", "norm/contiguous", "norm/rows"]))
}

fn hardmax(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (params, lines) = axis_lines(cx)?;
    let (w, bytes) = (params.words()?, lines as u64 * 4);
    let find = Launch::map(1, w.clone()).on(Grid::Threads(lines as u64)).scratch(bytes);
    let mut out = repeated(cx, &find, (params.count, 1), 0)?;
    out.push(Launch::map(0, w).scratch(bytes));
    Ok(out)
}
