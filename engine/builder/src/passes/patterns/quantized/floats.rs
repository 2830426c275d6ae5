//! A product by weights of 8 bits that stay codes: the product by floats that a build makes of them, where that is faster. Weights of 4
//! bits stay codes, for the memory that they save.

use super::super::view::{View, constant, input};
use super::super::{Rule, Writer};
use super::weights::{FEATURE, FEW};
use kiln_backend::Target;
use kiln_ir::{Attrs, DType, Graph, IrError, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::codes::{MATMUL_CODES, shared};
use kiln_ops::quantize::DEQUANTIZE;

pub struct FloatWeights {
    x: ValueId,
    codes: ValueId,
    /// Scales, and zero points.
    by: Vec<ValueId>,
    /// Outputs and depth, and how many of each share a scale.
    sizes: [i64; 2],
    shared: [i64; 2],
    to: DType,
}

impl Rule for FloatWeights {
    const NAME: &'static str = "codes-to-floats";
    const WEIGHTS: bool = true;
    const ALWAYS: bool = false;

    fn wanted(target: &Target, g: &Graph, root: NodeId) -> bool {
        let rows = g.get(root).and_then(|n| input(n, 0)).and_then(|x| g.ty(x).dims.split_last());
        let rows = rows.and_then(|(_, d)| d.iter().map(|d| d.as_const()).product::<Option<i64>>());
        target.has(FEATURE) && rows.is_none_or(|n| n > FEW)
    }

    fn find(view: &View<'_>, root: NodeId) -> Option<FloatWeights> {
        let g = view.g;
        let node = g.get(root).filter(|n| n.op.is(MATMUL_CODES))?;
        let (x, codes) = (input(node, 0)?, input(node, 1)?);
        let by: Vec<ValueId> = [input(node, 2), input(node, 3)].into_iter().flatten().collect();
        let sizes = [0, 1].map(|i| g.ty(codes).dims.get(i).and_then(|d| d.as_const()));
        let [Some(outputs), Some(depth)] = sizes else { return None };
        let [along, across] = shared(node.op.attrs()).ok()?;
        let shared = [across.min(outputs.max(1)), along.min(depth.max(1))];
        let whole = outputs % shared[0] == 0 && depth % shared[1] == 0;
        let bytes = matches!(g.ty(codes).dtype, DType::I8 | DType::U8);
        let fixed = [codes].iter().chain(&by).all(|&v| constant(g, v));
        let to = g.ty(x).dtype;
        (whole && bytes && fixed).then_some(FloatWeights {
            x,
            codes,
            by,
            sizes: [outputs, depth],
            shared,
            to,
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let ([outputs, depth], [across, along]) = (self.sizes, self.shared);
        let parts = [outputs / across, depth / along];
        let mut inputs = vec![w.reshape(self.codes, &[parts[0], across, parts[1], along])?];
        for v in self.by {
            inputs.push(w.reshape(v, &[parts[0], 1, parts[1], 1])?);
        }
        let weights = w.op(DEQUANTIZE, Attrs::new().with("to", self.to), &inputs)?;
        let weights = w.reshape(weights, &self.sizes)?;
        let y = w.op(MATMUL, Attrs::new().with("trans_b", true), &[self.x, weights])?;
        Ok(w.replace(root, y))
    }
}
