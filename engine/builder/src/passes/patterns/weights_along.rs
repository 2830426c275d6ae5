//! Constant matrices on the right of a product that are stored across the depth. Each is transposed once, and
//! the product's flag is set. This pays where a backend's instructions want both operands along the depth.

use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_backend::Target;
use kiln_ir::{Attrs, DType, Graph, IrError, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::transpose::TRANSPOSE;

/// Feature of targets that read constant weights better along the depth: all types without 16 bits. Types of 16 bits
/// are read better where rows of columns are not multiples of 16 bytes, as those of vocabularies.
const FEATURE: &str = "weights_along_depth";
/// Feature of targets that store many rows of a product faster where weights of 16 bits lie along the depth.
const HALVES: &str = "halves_along_depth";
/// Rows that are many.
const MANY: i64 = 256;

pub struct WeightsAlong {
    x: ValueId,
    weights: ValueId,
    attrs: Attrs,
}

impl Rule for WeightsAlong {
    const NAME: &'static str = "weights-along";
    const WEIGHTS: bool = true;
    const ALWAYS: bool = false;

    fn wanted(target: &Target, g: &Graph, root: NodeId) -> bool {
        let operand = |i: usize| g.get(root).and_then(|n| input(n, i)).map(|v| g.ty(v));
        let columns = operand(1).and_then(|t| t.dims.last()?.as_const());
        let rows = operand(0).and_then(|t| {
            let (_, rows) = t.dims.split_last()?;
            rows.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?))
        });
        let many = target.has(HALVES) && rows.is_none_or(|n| n >= MANY);
        target.has(FEATURE)
            && match operand(0).map(|t| t.dtype) {
                Some(DType::F32) => target.has("tf32"),
                Some(DType::I8 | DType::U8 | DType::F8E4M3) => true,
                Some(DType::F16 | DType::BF16) => many || columns.is_some_and(|n| n % 8 != 0),
                _ => false,
            }
    }

    fn find(view: &View<'_>, root: NodeId) -> Option<WeightsAlong> {
        let node = view.g.get(root).filter(|n| n.op.is(MATMUL))?;
        let (x, weights) = (input(node, 0)?, input(node, 1)?);
        let attrs = node.op.attrs().clone();
        let across = view.g.ty(weights).rank() == 2 && !attrs.bool("trans_b").ok()?;
        let wide =
            view.g.ty(x).rank() > 1 && view.dims(weights).iter().all(|d| d.as_const().is_none_or(|n| n > 1));
        (across && wide && constant(view.g, weights)).then_some(WeightsAlong { x, weights, attrs })
    }

    fn write(mut self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let turned = w.op(TRANSPOSE, Attrs::new().with("perm", vec![1i64, 0]), &[self.weights])?;
        self.attrs.set("trans_b", true);
        let y = w.op(MATMUL, self.attrs, &[self.x, turned])?;
        Ok(w.replace(root, y))
    }
}
