//! The first elements of each line in an order: by ranks, or from sorted lines. Sorting of numbers in scratch memory.

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site};
use kiln_codegen::sort::precedes;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};

pub const KERNELS: &[Kernel] = &[Kernel::of("topk", &["topk"], source, launch)];

/// The kernel file that sorts. Files that define `sorted_count`, `sorted_width` and `before` come in front of it.
pub const FILE: &str = "sort/bitonic";

/// Its entries, which come first in a body.
pub const ENTRIES: [Entry; 2] = [Entry::threads("number_all").silent(), Entry::threads("sort_step").silent()];

/// Words of scratch memory of a row of `n` elements.
pub fn width(n: usize) -> usize {
    n.next_power_of_two()
}

/// Launches that sort `rows` rows of `n` numbers.
pub fn launches(words: &[u32], rows: usize, n: usize) -> Result<Vec<Launch>, BackendError> {
    let width = width(n);
    let on = |entry, threads: usize| Launch::map(entry, words.to_vec()).on(Grid::Threads(threads as u64));
    let mut out = vec![on(0, rows * width)];
    let mut run = 2;
    while run <= width {
        let mut apart = run / 2;
        while apart > 0 {
            out.push(on(1, rows * width / 2).span(apart, run)?);
            apart /= 2;
        }
        run *= 2;
    }
    Ok(out)
}

kiln_codegen::params! {
    /// The first elements of lines along an axis, which may be sorted.
    struct SortedTopkParams {
        /// Elements of a line.
        count: u32,
        /// Numbers of a sorted line.
        width: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
        /// Elements of a line of the result.
        kept: u32,
    }
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let entries = ENTRIES.into_iter().chain([Entry::threads("rank"), Entry::threads("take")]).collect();
    Ok(Body {
        code: precedes(site)?,
        files: vec!["sort/topk", FILE],
        entries,
        scratch: true,
        ..Body::default()
    })
}

/// Lines of more elements are sorted.
const RANKED: usize = 4096;

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = cx.axis(x.len())?;
    let (n, count) = (x[axis], x.iter().product::<usize>());
    let inner = x[axis + 1..].iter().product();
    let w = SortedTopkParams { count: n, width: width(n), inner, kept: out[axis] }.words()?;
    if n <= RANKED.min(cx.rounds) {
        return Ok(vec![Launch::map(2, w).on(Grid::Threads(count as u64))]);
    }
    let rows = count / n;
    let mut all = launches(&w, rows, n)?;
    let taken = out.iter().product::<usize>() as u64;
    all.push(Launch::map(3, w).on(Grid::Threads(taken)));
    let bytes = (rows * width(n)) as u64 * 4;
    Ok(all.into_iter().map(|l| l.scratch(bytes)).collect())
}
