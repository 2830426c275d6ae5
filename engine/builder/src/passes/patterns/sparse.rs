//! A product by 2:4 sparse weights: the product by packed ones. A convolution with windows of one element is a product of the rows
//! of its image.

use super::view::{View, input};
use super::{Rule, Writer};
use crate::passes::sparsity::{Weights, weights};
use kiln_backend::{SPARSE_WEIGHTS, Target};
use kiln_ir::{Attrs, Graph, IrError, NodeId, ValueId};
use kiln_ops::matmul::sparse::MATMUL_SPARSE;
use kiln_ops::matmul::sparse::pack::SPARSE_PACK;
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::transpose::TRANSPOSE;

pub struct Sparse {
    x: ValueId,
    weights: Weights,
    bias: Option<ValueId>,
}

impl Rule for Sparse {
    const NAME: &'static str = super::SPARSE;
    const WEIGHTS: bool = true;
    const ALWAYS: bool = false;
    const LATE: bool = true;

    fn wanted(target: &Target, _: &Graph, _: NodeId) -> bool {
        target.has(SPARSE_WEIGHTS)
    }

    fn find(view: &View<'_>, root: NodeId) -> Option<Sparse> {
        let node = view.g.get(root)?;
        let weights = weights(view.g, node)?.ok()?;
        Some(Sparse { x: input(node, 0)?, weights, bias: input(node, 2) })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        w.forget_precision();
        let Weights { value, depth, conv } = self.weights;
        let mut rows = value;
        if conv {
            let sizes: Vec<i64> = w.g.ty(value).dims.iter().filter_map(|d| d.as_const()).collect();
            let (Some(&outputs), Some(&channels)) = (sizes.first(), sizes.last()) else { return Ok(false) };
            rows = w.reshape(value, &[outputs, channels])?;
        } else if depth == 0 {
            rows = w.op(TRANSPOSE, Attrs::new().with("perm", vec![1i64, 0]), &[value])?;
        }
        let values = w.op(SPARSE_PACK, Attrs::new(), &[rows])?;
        let places = w.g.producer(values).and_then(|(_, n)| n.outputs.get(1).copied());
        let Some(places) = places else { return Ok(false) };
        let mut y = w.op(MATMUL_SPARSE, Attrs::new(), &[self.x, values, places])?;
        if let Some(bias) = self.bias {
            y = w.op(ADD, Attrs::new(), &[y, bias])?;
        }
        Ok(w.replace(root, y))
    }
}
