//! Non-maximum suppression.

use super::reduce::index_type;
use crate::NetworkError;
use crate::body::bad;
use crate::layer::setters;
use crate::{Body, Layer, LayerDef, Network, TensorId};
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::ValueId;
use kiln_ops::select::nms::NMS;

/// The most candidates that [`Network::add_nms`] takes of every class.
pub const MAX_TOPK_BOXES: i64 = 5000;

/// Format of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoundingBoxFormat {
    /// Two opposite corners.
    CornerPairs,
    /// The centre, width and height.
    CenterSizes,
}

/// See [`Network::add_nms`].
#[derive(Clone, Debug)]
pub struct Nms {
    pub format: BoundingBoxFormat,
    pub topk: i64,
    pub indices: DType,
}

impl Network {
    /// Picks boxes of every class by descending score, leaving out those that overlap a picked one. It stops
    /// at `max_output_boxes` (a scalar of i32 or i64). Boxes are [B, N, 4] or [B, N, C, 4], scores [B, N, C].
    /// Scalars for the overlap (0 at first) and the least score are inputs 3 and 4. Returns [n, 3] (batch
    /// entry, class and box, by batch entry and score), and n.
    pub fn add_nms(
        &mut self,
        boxes: TensorId,
        scores: TensorId,
        max_output_boxes: TensorId,
    ) -> Result<Layer<'_, Nms>, NetworkError> {
        let def = Nms { format: BoundingBoxFormat::CornerPairs, topk: 0, indices: DType::I32 };
        self.add_kind(def, &[boxes, scores, max_output_boxes])
    }
}

setters! { Nms {
    /// Sets the format of a box.
    set_bounding_box_format(format: BoundingBoxFormat) => format = format;
    /// Sets the number of candidates of every class that take part, at most 5000; 0 for all.
    set_topk_box_limit(limit: i64) => topk = limit;
    /// The type of the indices, i32 or i64.
    set_indices_type(indices: DType) => indices = indices;
}}

impl LayerDef for Nms {
    fn kind(&self) -> &'static str {
        "nms"
    }
    fn max_inputs(&self) -> usize {
        5
    }
    fn output_name(&self, index: usize) -> String {
        if index == 0 { "indices".into() } else { "count".into() }
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        if !(0..=MAX_TOPK_BOXES).contains(&self.topk) {
            return Err(bad("topk_box_limit", self.topk, &format!("0 to {MAX_TOPK_BOXES}")));
        }
        b.check_rank(1, |r| r == 3, "[batch, boxes, classes]")?;
        for i in 2..b.len() {
            if b.has(i) {
                b.check_rank(i, |r| r == 0, "no dimensions (a scalar)")?;
            }
        }
        let scores = b.x(1)?;
        let scores = b.transpose(scores, &[0, 2, 1])?;
        let attrs = Attrs::new()
            .with("center_box", self.format == BoundingBoxFormat::CenterSizes)
            .with("topk_limit", self.topk)
            .with("by_score", true);
        let inputs = [b.opt(0), Some(scores), b.opt(2), b.opt(3), b.opt(4)];
        let picked = b.ops(NMS, attrs, &inputs)?;
        let picked = picked.first().copied().ok_or_else(|| OpError::Value("nms has no output".into()))?;
        let count = b.dim(picked, 0)?;
        let count = b.reshape(count, &[])?;
        Ok(vec![index_type(b, picked, self.indices)?, b.cast(count, DType::I32)?])
    }
}
