//! Sorting the numbers of elements in scratch memory.

use kiln_backend::BackendError;
use kiln_codegen::template::section;
use kiln_codegen::{Entry, Grid, Launch};

/// The functions: they call `before(row, a, b)`.
pub fn text() -> &'static str {
    section(include_str!("../../../../shaders/sort.wgsl"), "sort")
}

/// The entries, which come first in a body.
pub const ENTRIES: [Entry; 2] = [Entry::Partial("number_all"), Entry::Partial("sort_step")];

/// Words of scratch memory of a row of `n` elements.
pub fn width(n: usize) -> usize {
    n.next_power_of_two()
}

/// Launches that sort `rows` rows of `n` elements; `words` starts with n and its width.
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
