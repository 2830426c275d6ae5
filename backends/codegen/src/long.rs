//! Loops that are too long for one launch: several launches, each of which goes on where the one before it ended.
//!
//! A driver may silently end loops after some number of iterations. llvmpipe does after 65,535 of all loops
//! of one thread together, and counts for every loop one more than it has rounds. [`Cx::rounds`] bounds the
//! rounds of a thread in one launch. Where a dialect has no [spans](crate::Dialect::spans), one launch does
//! all.

use crate::scalar::register;
use crate::site::{Cx, Site, unsupported};
use crate::{Body, Entry, Grid, Launch, word};
use kiln_backend::BackendError;
use kiln_ir::DType;

/// The most launches of one loop.
const MAX_LAUNCHES: usize = 1 << 16;

/// Spans of `count` rounds of `cost` iterations each; the last one ends at `count`. There is always one.
pub fn spans(cx: &Cx<'_>, count: usize, cost: usize) -> Result<Vec<(u32, u32)>, BackendError> {
    if !cx.cut() {
        return Ok(vec![(0, 0)]);
    }
    let each = cx.rounds / cost.max(1);
    if each == 0 || count.div_ceil(each) > MAX_LAUNCHES {
        let op = cx.op.map_or("a region", |o| o.name());
        return unsupported(format!(
            "{op}: a loop of {count} rounds of {cost} iterations; one launch can do {} iterations, there can be \
             {MAX_LAUNCHES} launches",
            cx.rounds
        ));
    }
    let starts = (0..count.max(1)).step_by(each);
    starts.map(|from| Ok((word(from)?, word((from + each).min(count))?))).collect()
}

/// A map of output 0 by the function `element` of a kernel file that sums up in a long loop, keeping numbers of type `t`;
/// launched by [`continued`]. Where there are spans, the file's function `total` goes from `lo()` to `hi()` and starts from
/// `resume(at, ..)`; `element` calls it, and so does a second entry, which keeps the sum.
pub fn long_sum(
    site: &Site<'_>,
    file: &'static str,
    (element, total): (&'static str, &str),
    t: DType,
) -> Body {
    let body = Body::element(file, element);
    match site.dialect.spans {
        None => body,
        Some(write) => {
            let sum = site.function("part_of_sum", &[("at", "u32")], register(t), &format!("{total}(at)"));
            let entries = vec![Entry::Element(0, element), Entry::threads("keep_part_of_sum").silent()];
            Body { code: write(t) + &sum, entries, scratch: true, ..body }
        }
    }
}

/// Launches of the map of output 0 (entry 0) over spans; those in front of the last are of entry 1, which keeps the
/// sums in scratch memory.
pub fn continued(
    cx: &Cx<'_>,
    words: Vec<u32>,
    count: usize,
    cost: usize,
) -> Result<Vec<Launch>, BackendError> {
    let elements: usize = cx.out_shape(0)?.iter().product();
    let mut spans = spans(cx, count, cost.saturating_mul(cx.lanes))?;
    let last = spans.pop().unwrap_or_default();
    let bytes = if spans.is_empty() { 0 } else { elements as u64 * 8 };
    let launch = Launch::map(1, words.clone()).on(Grid::Threads(elements as u64)).scratch(bytes);
    let mut out: Vec<Launch> = spans.into_iter().map(|span| Launch { span, ..launch.clone() }).collect();
    out.push(Launch { span: last, ..Launch::map(0, words).scratch(bytes) });
    Ok(out)
}

/// Launches of a free entry over spans, with `state` bytes kept between them if there are several.
pub fn repeated(
    cx: &Cx<'_>,
    launch: &Launch,
    (count, cost): (usize, usize),
    state: u64,
) -> Result<Vec<Launch>, BackendError> {
    let spans = spans(cx, count, cost)?;
    let bytes = if spans.len() > 1 { launch.scratch + state } else { launch.scratch };
    Ok(spans.into_iter().map(|span| Launch { span, scratch: bytes, ..launch.clone() }).collect())
}

/// `keep(at, v)`, `kept(at)`: numbers of type `t` in scratch memory, number `at` of them; `resume(at, start)`: what is
/// kept by the launch before this one, if there is one. Empty where there are no spans.
pub fn state(site: &Site<'_>, t: DType) -> String {
    site.dialect.spans.map_or_else(String::new, |write| write(t))
}
