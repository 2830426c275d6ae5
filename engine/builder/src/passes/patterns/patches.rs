//! Convolutions whose windows are adjacent and have few channels, as the first layer of a vision transformer.
//! A move makes every window a row, and one product with the weights computes all results.

use super::conv_transpose::side_by_side;
use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_backend::Target;
use kiln_ir::{Attrs, Dim, Graph, IrError, NodeId, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::ADD;

/// A target of this feature multiplies rows faster than it finds windows of so few channels.
const FEATURE: &str = "patches_as_rows";
/// Channels of which windows are found well enough: they fill a vector.
const VECTOR: i64 = 8;

pub struct Patches {
    x: ValueId,
    weights: ValueId,
    bias: Option<ValueId>,
    /// Sizes of the weights: outputs, channels, the window.
    outputs: i64,
    channels: i64,
    kernel: Vec<i64>,
    /// Windows along each axis.
    counts: Vec<i64>,
}

impl Rule for Patches {
    const NAME: &'static str = "patches-by-matmul";
    const WEIGHTS: bool = true;
    const ALWAYS: bool = false;

    fn wanted(target: &Target, _: &Graph, _: NodeId) -> bool {
        target.has(FEATURE)
    }

    fn find(view: &View<'_>, root: NodeId) -> Option<Patches> {
        let node = view.g.get(root).filter(|n| n.op.is(CONV))?;
        let (x, weights, bias) = (input(node, 0)?, input(node, 1)?, input(node, 2));
        let known = |d: &[Dim]| d.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
        let w = known(view.dims(weights))?;
        let (&[outputs, channels], kernel) = w.split_at_checked(2)? else { return None };
        let sides = known(view.dims(x).get(2..)?)?;
        let whole = sides.len() == kernel.len()
            && sides.iter().zip(kernel).all(|(s, k)| *k > 0 && *s > 0 && s % k == 0);
        let few = channels > 0 && channels % VECTOR != 0 && outputs > 0 && kernel.iter().product::<i64>() > 1;
        let fixed = constant(view.g, weights) && bias.is_none_or(|b| constant(view.g, b));
        (whole && few && fixed && side_by_side(node, kernel)?).then(|| Patches {
            x,
            weights,
            bias,
            outputs,
            channels,
            counts: sides.iter().zip(kernel).map(|(s, k)| s / k).collect(),
            kernel: kernel.to_vec(),
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let n = self.kernel.len();
        // [N, C, counts and windows in turns] becomes [N, counts.., C, windows..], then a row for each window.
        let pairs = self.counts.iter().zip(&self.kernel).flat_map(|(c, k)| [*c, *k]);
        let cut: Vec<i64> = [-1, self.channels].into_iter().chain(pairs).collect();
        let x = w.reshape(self.x, &cut)?;
        let axes = (0..n).map(|i| 2 + 2 * i);
        let perm: Vec<usize> =
            [0].into_iter().chain(axes.clone()).chain([1]).chain(axes.map(|a| a + 1)).collect();
        let x = w.transpose(x, &perm)?;
        let depth = self.channels * self.kernel.iter().product::<i64>();
        let rows: Vec<i64> = [-1].into_iter().chain(self.counts).chain([depth]).collect();
        let x = w.reshape(x, &rows)?;
        let weights = w.reshape(self.weights, &[self.outputs, depth])?;
        let mut y = w.op(MATMUL, Attrs::new().with("trans_b", true), &[x, weights])?;
        if let Some(bias) = self.bias {
            y = w.op(ADD, Attrs::new(), &[y, bias])?;
        }
        let perm: Vec<usize> = [0, n + 1].into_iter().chain(1..=n).collect();
        let y = w.transpose(y, &perm)?;
        Ok(w.replace(root, y))
    }
}
