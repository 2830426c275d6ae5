//! Pads with eight neighbouring results a thread, and divisions by factors.

use crate::dialect::CUDA;
use crate::kernels::divisor::{Divisors, WIDTH, cells};
use crate::kernels::shape::{moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::slice::{Frame, pad_body, pad_frame};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "pad.lines",
    ops: &["pad"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics,
    source: |site, _| source(site),
    launch,
}];

kiln_codegen::params! {
    /// A part of x with more around it; lists begin with the innermost dimension.
    struct PadLinesParams {
        /// Elements of the result.
        total: u32,
        /// Dimensions of the result.
        dims: [u32],
        /// Factors of divisions by them.
        factors: [u32],
        /// Shifts of divisions by them.
        shifts: [u32],
        /// Dimensions of x.
        sizes: [u32],
        /// Strides of x.
        strides: [u32],
        /// Position of x in the result.
        before: [i32],
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let t = site.out_dtype(0);
    if t.bits() < 8 {
        return unsupported(format!("vectors of {t}, which shares bytes"));
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 1.6));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("pad.lines") }])
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let entries = ["pad_lines_8", "pad_lines_1"].map(Entry::threads).into();
    let gap = if site.dtype(2).is_some() { "bx2[0u]" } else { "Cell(0)" };
    let code = cells(site) + &(CUDA.function)("gap_cell", &[], "Cell", gap);
    Ok(Body { files: vec!["slice/pad_lines"], entries, ..pad_body(site)? }.with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Frame { dims, sizes, strides, before } = joined(pad_frame(cx)?);
    let total: usize = dims.iter().product();
    if total == 0 {
        return Ok(Vec::new());
    }
    let vectors = dims.last().is_some_and(|&n| n >= WIDTH);
    let lists = Divisors::new(dims.into_iter().rev(), total)?;
    let params = PadLinesParams {
        total,
        dims: lists.sizes,
        factors: lists.factors,
        shifts: lists.shifts,
        sizes: sizes.into_iter().rev().collect(),
        strides: strides.into_iter().rev().collect(),
        before: before.into_iter().rev().collect(),
    };
    let threads = if vectors { total.div_ceil(WIDTH) } else { total };
    let entry = usize::from(!vectors);
    Ok(vec![Launch::map(entry, params.words()?).on(Grid::Threads(threads as u64))])
}

/// The frame with neighbouring dimensions joined that are not padded; it has at least one dimension.
fn joined(f: Frame) -> Frame {
    let whole = |d: usize| f.before[d] == 0 && f.dims[d] == f.sizes[d];
    let mut out = Frame::default();
    for d in 0..f.dims.len() {
        if d > 0 && whole(d) && whole(d - 1) {
            let last = out.dims.len() - 1;
            out.dims[last] *= f.dims[d];
            out.sizes[last] *= f.sizes[d];
            out.strides[last] = f.strides[d];
        } else {
            out.dims.push(f.dims[d]);
            out.sizes.push(f.sizes[d]);
            out.strides.push(f.strides[d]);
            out.before.push(f.before[d]);
        }
    }
    if out.dims.is_empty() {
        out = Frame { dims: vec![1], sizes: vec![1], strides: vec![1], before: vec![0] };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_are_not_padded_join() {
        let f = joined(Frame {
            dims: vec![2, 3, 9, 5, 4],
            sizes: vec![2, 3, 7, 5, 4],
            strides: vec![420, 140, 20, 4, 1],
            before: vec![0, 0, 1, 0, 0],
        });
        assert_eq!((f.dims, f.sizes), (vec![6, 9, 20], vec![6, 7, 20]));
        assert_eq!((f.strides, f.before), (vec![140, 20, 1], vec![0, 1, 0]));
        assert_eq!(joined(Frame::default()).dims, vec![1]);
    }
}
