//! Non-maximum suppression, a thread a class.

use super::{counting, phases};
use crate::site::{Cx, Site, op_error};
use crate::{Body, Entry, Grid, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel::alone("nms", &["nms"], source, launch)];

crate::params! {
    /// Non-maximum suppression.
    pub struct NmsParams {
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
    let first = ["pick_boxes", "count_picks"].map(|name| Entry::threads(name).silent());
    let entries = first.into_iter().chain([Entry::Element(0, "nms")]).collect();
    Ok(counting(vec!["select/nms"], entries).with(constants(site)?))
}

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
    let (w, all) = (p.words()?, (p.batch * p.classes) as u64);
    let first = vec![
        Launch::map(0, w.clone()).on(Grid::Threads(all)),
        Launch::map(1, w.clone()).on(Grid::Threads(1)),
    ];
    phases(cx, first, || Ok(vec![Launch::map(2, w)]), all * (p.most as u64 + 2) * 4)
}
