//! Rotary embedding by vectors, where the halves of heads have whole ones.

use crate::frame::element;
use crate::kernels::shape::{from_end, input, moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::attention::rotary::{ids, params};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::views::View;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};

/// The name of the tactic.
const NAME: &str = "rotary_embedding.vectors";
/// Elements of a vector.
const WIDTH: usize = 8;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: NAME,
    ops: &["rotary_embedding"],
    epilogue: true,
    views: Views::Rows,
    side_results: false,
    tactics,
    source: |site, _| {
        let code = ids(site) + &element("Cell", "wide", site.first_dtype());
        Ok(Body::of("attention/rotary_vectors", vec![Entry::threads("rotary_vectors")]).with(code))
    },
    launch,
}];

kiln_codegen::params! {
    /// A rotary embedding by vectors. Distances count elements.
    struct RotaryVectorsParams {
        /// Number of heads.
        heads: u32,
        /// Number of positions.
        positions: u32,
        /// Elements of a head.
        size: u32,
        /// Pairs of a head that turn.
        pairs: u32,
        /// Rows of the table.
        rows: u32,
        /// Whether heads are behind positions.
        flat: u32,
        /// The first element of x.
        first: u32,
        /// From one of the batch to the next.
        batch_step: u32,
        /// From one head to the next.
        head_step: u32,
        /// From one position to the next.
        position_step: u32,
        /// The first cosine.
        cosines: u32,
        /// From the cosines of one of the batch to the next.
        cosine_batch: u32,
        /// From one row of cosines to the next.
        cosine_row: u32,
        /// The first sine.
        sines: u32,
        /// From the sines of one of the batch to the next.
        sine_batch: u32,
        /// From one row of sines to the next.
        sine_row: u32,
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let attrs = site.op()?.attrs();
    if attrs.bool("interleaved").map_err(op_error)? || site.first_dtype().bits() < 16 {
        return unsupported("vectors of pairs that are neighbours, or of bytes");
    }
    let (Some(x), Some(table)) = (input(site, 0), input(site, 1)) else {
        return unsupported("a rotary embedding without angles");
    };
    let heads = attrs.int("num_heads").map_err(op_error)?.max(1) as usize;
    let size = from_end(x, 0).map(|n| if x.rank() == 3 { n / heads } else { n });
    let whole = |n: Option<usize>| n.is_some_and(|n| n > 0 && n.is_multiple_of(WIDTH));
    if !whole(size) || !whole(from_end(table, 0)) {
        return unsupported("halves of heads that are not known to be whole vectors");
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.1));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(NAME) }])
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let p = params(cx)?;
    let all: usize = cx.shape(0)?.iter().product();
    let x = cx.view(0)?;
    let [batch_step, head_step, position_step] = match x.strides[..] {
        [b, s, _] => [b, p.size, s],
        [b, h, s, _] => [b, h, s],
        _ => return unsupported("a rotary embedding of neither 3-D nor 4-D"),
    };
    let (cos, sin) = (table(&cx.view(1)?)?, table(&cx.view(2)?)?);
    let words = RotaryVectorsParams {
        heads: p.heads,
        positions: p.positions,
        size: p.size,
        pairs: p.pairs,
        rows: p.rows,
        flat: p.flat,
        first: x.offset,
        batch_step,
        head_step,
        position_step,
        cosines: cos[0],
        cosine_batch: cos[1],
        cosine_row: cos[2],
        sines: sin[0],
        sine_batch: sin[1],
        sine_row: sin[2],
    }
    .words()?;
    let threads = all / p.size.max(1) * ((p.size - p.pairs) / WIDTH);
    Ok(vec![Launch::map(0, words).on(Grid::Threads(threads as u64))])
}

/// The first element of a table, and the distances of the batch and of rows.
fn table(view: &View) -> Result<[usize; 3], BackendError> {
    match (&view.shape[..], &view.strides[..]) {
        (_, &[row, _]) => Ok([view.offset, 0, row]),
        (&[1, ..], &[_, row, _]) => Ok([view.offset, 0, row]),
        (_, &[batch, row, _]) => Ok([view.offset, batch, row]),
        _ => unsupported("angles of neither 2-D nor 3-D"),
    }
}
