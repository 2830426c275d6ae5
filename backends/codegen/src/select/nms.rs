//! Non-maximum suppression, a block a class.

use super::{counting, phases};
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("nms", &["nms"], source, launch)];

/// Sizes and limits of a non-maximum suppression.
pub struct NmsParams {
    /// Batch entries.
    pub batch: usize,
    /// Classes of a batch entry.
    pub classes: usize,
    /// Boxes of a batch entry.
    pub boxes: usize,
    /// Picks of a class at most.
    pub most: usize,
    /// Candidates of a class at most.
    pub limit: usize,
    /// The greatest intersection over union of two picks.
    pub overlap: f32,
    /// The score that candidates exceed, if LEAST_SCORE.
    pub score: f32,
}

crate::params! {
    /// Non-maximum suppression by blocks.
    struct PickParams {
        /// Batch entries.
        batch: u32,
        /// Classes of a batch entry.
        classes: u32,
        /// Boxes of a batch entry.
        boxes: u32,
        /// Picks of a class at most.
        most: u32,
        /// Candidates of a class at most.
        limit: u32,
        /// Words of the bits of a class's candidates.
        words: u32,
        /// Bits of a candidate's number.
        place_bits: u32,
        /// The greatest intersection over union of two picks.
        overlap: f32,
        /// The score that candidates exceed, if LEAST_SCORE.
        score: f32,
    }
}

/// Constants of the kernel: the layout of boxes, and whether candidates have a least score.
pub fn constants(site: &Site<'_>) -> Result<String, BackendError> {
    let center = site.op()?.attrs().bool("center_box").map_err(op_error)?;
    Ok(site.constant("CENTER_BOX", "bool", center)
        + &site.constant("BOXES_OF_CLASSES", "bool", site.rank(0) == Some(4))
        + &site.constant("LEAST_SCORE", "bool", site.input(4).is_some()))
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let block = |name, threads| Entry::blocks(name, threads).silent();
    let entries = vec![
        block("pick_boxes", MANY as u32),
        block("pick_few_boxes", FEW as u32),
        block("count_picks", 256),
        Entry::threads("order_picks").silent(),
        Entry::Element(0, "nms"),
    ];
    let by_score = site.op()?.attrs().bool("by_score").map_err(op_error)?;
    let code = constants(site)?
        + "typedef u32 Key;\n"
        + &site.constant("KEY_BITS", "u32", "32u")
        + &site.constant("BY_SCORE", "bool", by_score);
    Ok(counting(vec!["select/nms"], entries).with(code))
}

/// Threads of a block that picks among many boxes, or few.
const MANY: usize = 1024;
const FEW: usize = 256;
/// The most that are few.
const FEW_BOXES: usize = 2048;

/// The parameters; `None` unless scores have three dimensions.
pub fn params(cx: &Cx<'_>) -> Result<Option<NmsParams>, BackendError> {
    let s = cx.shape(1)?;
    let &[batch, classes, boxes] = &s[..] else { return Ok(None) };
    let one = |v: Option<Vec<f64>>| v.and_then(|v| v.first().copied()).unwrap_or(0.0) as f32;
    let most = cx.ints(2)?.and_then(|v| v.first().copied()).unwrap_or(0).clamp(0, boxes as i64) as usize;
    let topk = cx.op()?.attrs().int("topk_limit").map_err(op_error)?;
    let limit = if topk > 0 { (topk as usize).min(boxes) } else { boxes };
    let (overlap, score) = (one(cx.floats(3)?), one(cx.floats(4)?));
    Ok(Some(NmsParams { batch, classes, boxes, most, limit, overlap, score }))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let Some(p) = params(cx)? else { return Ok(Vec::new()) };
    let (entry, threads) = if p.boxes > FEW_BOXES { (0, MANY) } else { (1, FEW) };
    let words = p.boxes.div_ceil(32 * threads) * threads;
    let place_bits = (usize::BITS - p.boxes.leading_zeros()) as usize;
    let NmsParams { batch, classes, boxes, most, limit, overlap, score } = p;
    let w = PickParams { batch, classes, boxes, most, limit, words, place_bits, overlap, score }.words()?;
    let rows = (batch * classes) as u64;
    let picks = rows * most as u64;
    let by_score = cx.op()?.attrs().bool("by_score").map_err(op_error)?;
    let mut first = vec![
        Launch::map(entry, w.clone()).on(Grid::Groups(rows)),
        Launch::map(2, w.clone()).on(Grid::Groups(1)),
    ];
    if by_score {
        first.push(Launch::map(3, w.clone()).on(Grid::Threads(picks)));
    }
    let order = if by_score { picks } else { 0 };
    phases(cx, first, || Ok(vec![Launch::map(4, w)]), (picks + rows * (2 + words as u64) + order) * 4)
}
