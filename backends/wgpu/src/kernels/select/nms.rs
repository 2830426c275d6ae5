//! Non-maximum suppression among sorted candidates, a block a class.

use crate::kernels::sort;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::long::repeated;
use kiln_codegen::select::nms::{constants, params};
use kiln_codegen::select::{counting, phases};
use kiln_codegen::site::{Cx, Site, op_error};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};

pub const KERNELS: &[Kernel] = &[Kernel::alone("nms", &["nms"], source, launch)];

kiln_codegen::params! {
    /// Non-maximum suppression among sorted candidates.
    struct SortedNmsParams {
        /// Numbers of a sorted list.
        count: u32,
        /// Words of a sorted list in scratch memory.
        width: u32,
        /// Batch entries.
        batch: u32,
        /// Classes of a batch entry.
        classes: u32,
        /// Boxes of a batch entry.
        boxes: u32,
        /// Picks of a class at most.
        most: u32,
        /// Words of all sorted lists.
        lists: u32,
        /// Whether the lists are those of the picks of batch entries, by score, not of the candidates of classes.
        by_score: u32,
        /// The greatest intersection over union of two picks.
        overlap: f32,
        /// The score that candidates exceed, if LEAST_SCORE.
        score: f32,
    }
}

/// Positions of entries: those that sort come first.
const PICK: usize = sort::ENTRIES.len();

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let own = [
        Entry::blocks("pick_boxes", 64).silent(),
        Entry::threads("count_picks").silent(),
        Entry::Element(0, "nms"),
    ];
    let entries = sort::ENTRIES.into_iter().chain(own).collect();
    Ok(counting(vec!["select/nms", sort::FILE], entries).with(constants(site)?))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some(p) = params(cx)? else { return Ok(Vec::new()) };
    let rows = p.batch * p.classes;
    let by_score = cx.op()?.attrs().bool("by_score").map_err(op_error)?;
    let of_entry = if by_score { p.classes * p.most } else { 0 };
    let lists = (rows * sort::width(p.boxes)).max(p.batch * sort::width(of_entry));
    let candidates = SortedNmsParams {
        count: p.boxes,
        width: sort::width(p.boxes),
        batch: p.batch,
        classes: p.classes,
        boxes: p.boxes,
        most: p.most,
        lists,
        by_score: 0,
        overlap: p.overlap,
        score: p.score,
    };
    let mut w = candidates.words()?;
    let mut first = sort::launches(cx, &w, (rows, p.boxes), 0)?;
    let pick = Launch::map(PICK, w.clone()).on(Grid::Groups(rows as u64));
    // A candidate takes a round, and those of a thread over the picks.
    first.extend(repeated(cx, &pick, (p.limit, 2 + p.most.div_ceil(64)), 0)?);
    let add = Launch::map(PICK + 1, w.clone()).on(Grid::Threads(1));
    first.extend(repeated(cx, &add, (rows, 1), 0)?);
    if by_score {
        w = SortedNmsParams { count: of_entry, width: sort::width(of_entry), by_score: 1, ..candidates }
            .words()?;
        first.extend(sort::launches(cx, &w, (p.batch, of_entry), 0)?);
    }
    let scratch = lists + rows * (p.most + 2);
    phases(cx, first, || Ok(vec![Launch::map(PICK + 2, w)]), scratch as u64 * 4)
}
