//! Products of matrices in blocks of registers, whose sizes are constants of `matmul/registers.wgsl`.
//!
//! A thread loads `m + n` operands for `m * n` products, from global memory and without barriers. Drivers that run threads
//! as the lanes of a vector load lane by lane, for which large blocks pay; see [`super::cost`].

use super::cost::Work;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::state;
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::{Body, Entry};

/// Rows and columns of the result that one thread computes.
pub const BLOCKS: &[(usize, usize)] = &[(4, 4), (8, 4), (8, 8), (16, 8), (1, 4), (1, 8), (8, 1)];

/// The block that a tactic names.
pub fn block_of(t: &Tactic) -> Result<(usize, usize), BackendError> {
    let param = |name| t.params.get(name).map_or(0, |&v| v.max(0) as usize);
    let wanted = (param("m"), param("n"));
    let found = BLOCKS.iter().find(|b| **b == wanted).copied();
    found.map_or_else(|| unsupported(format!("{}: no such block", t.id())), Ok)
}

/// A tactic for every block that fits the result; always one of the first block. `share` is what a product costs of one of
/// a plain block.
pub fn block_tactics(site: &Site<'_>, name: &str, work: Option<Work>, share: f64) -> Vec<Tactic> {
    let software = site.target.has("software");
    let fits = |&(k, &(m, n)): &(usize, &(usize, usize))| {
        let part = |of: usize, size: Option<usize>| of == 1 || size.is_none_or(|s| s > of / 2);
        // Single rows and columns are for results that have few.
        let single = |of: usize, size: Option<usize>| of > 1 || size.is_some_and(|s| s < 4);
        let (rows, cols) = (work.map(|w| w.rows), work.map(|w| w.cols));
        k == 0 || part(m, rows) && part(n, cols) && single(m, rows) && single(n, cols)
    };
    let tactic = |&(m, n): &(usize, usize)| {
        let t = Tactic::plain(name).with("m", m as i64).with("n", n as i64);
        Tactic { estimate_ns: work.map(|w| w.block_ns(software, m, n) * share), ..t }
    };
    BLOCKS.iter().enumerate().filter(fits).map(|(_, b)| tactic(b)).collect()
}

/// Products that are summed by themselves before they join the sum of all: so rounding errors of long sums stay small.
pub const RUN: usize = 128;

/// A body of blocks by an entry of a kernel file, whose operands are of type `operand` in registers.
pub fn block_body(
    site: &Site<'_>,
    file: &'static str,
    entry: &'static str,
    (m, n): (usize, usize),
    operand: &str,
) -> Body {
    let t = site.out_dtype(0);
    let number = |name: &str, n: usize| site.constant(name, "u32", format_args!("{n}u"));
    let code = state(site, t)
        + &site.alias("Value", t)
        + &(site.dialect.alias)("Operand", operand)
        + &number("BLOCK_M", m)
        + &number("BLOCK_N", n)
        + &number("RUN", RUN);
    let files = vec![file, "matmul/registers", "matmul/quads"];
    Body { code, files, entries: vec![Entry::threads(entry)], scratch: true, ..Body::default() }
}
