//! Transposed convolutions whose windows do not overlap. Every element of x makes a block of the result by
//! itself: a convolution of 1 x 1 computes all blocks, and a move puts them side by side.

use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Dim, IrError, Node, NodeId, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::conv::transposed::CONV_TRANSPOSE;
use kiln_ops::layout::Layout;
use kiln_ops::slice::concat::CONCAT;

pub struct ConvTranspose {
    x: ValueId,
    weights: ValueId,
    bias: Option<ValueId>,
    /// Output channels.
    channels: i64,
    /// Sizes of x: batch, spatial ones; -1 for at most one that is not a number.
    batch: i64,
    spatial: Vec<i64>,
    kernel: Vec<i64>,
}

impl Rule for ConvTranspose {
    const NAME: &'static str = "blocks-by-conv";
    const WEIGHTS: bool = true;
    const ALWAYS: bool = false;

    fn find(view: &View<'_>, root: NodeId) -> Option<ConvTranspose> {
        let node = view.g.get(root).filter(|n| n.op.is(CONV_TRANSPOSE))?;
        let (x, weights, bias) = (input(node, 0)?, input(node, 1)?, input(node, 2));
        let known = |v: ValueId| view.dims(v).iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
        let w = known(weights)?;
        let (&[_, channels], kernel) = w.split_at_checked(2)? else { return None };
        let sizes: Vec<i64> = view.dims(x).iter().map(|d| d.as_const().unwrap_or(-1)).collect();
        let (&[batch, _], spatial) = sizes.split_at_checked(2)? else { return None };
        let fixed = constant(view.g, weights) && bias.is_none_or(|b| constant(view.g, b));
        let countable = sizes.iter().filter(|&&n| n < 0).count() <= 1 && spatial.iter().all(|&n| n > 0);
        let apart = apart(node, kernel)?;
        (fixed && countable && apart && batch != 0 && w.iter().all(|&n| n > 0)).then(|| ConvTranspose {
            x,
            weights,
            bias,
            channels,
            batch,
            spatial: spatial.to_vec(),
            kernel: kernel.to_vec(),
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let n = self.kernel.len() as i64;
        let taps: i64 = self.kernel.iter().product();
        // [C, M, kernel..] becomes [kernel.. M, C, 1..], channels of a tap together.
        let perm: Vec<usize> = (2..2 + n as usize).chain([1, 0]).collect();
        let weights = w.transpose(self.weights, &perm)?;
        let flat: Vec<i64> =
            [taps * self.channels, -1].into_iter().chain(self.kernel.iter().map(|_| 1)).collect();
        let weights = w.reshape(weights, &flat)?;
        let mut inputs = vec![self.x, weights];
        if let Some(bias) = self.bias {
            inputs.push(w.op(CONCAT, Attrs::new().with("axis", 0i64), &vec![bias; taps as usize])?);
        }
        let y = w.op(CONV, Attrs::new(), &inputs)?;
        let y = interleaved(&mut w, y, [self.batch, self.channels], &self.spatial, &self.kernel)?;
        Ok(w.replace(root, y))
    }
}

/// Puts the elements of blocks side by side: [batch, block.. * channels, places..] becomes [batch, channels, place * block, ..].
pub fn interleaved(
    w: &mut Writer<'_>,
    y: ValueId,
    [batch, channels]: [i64; 2],
    places: &[i64],
    block: &[i64],
) -> Result<ValueId, IrError> {
    let y = paired(w, y, [batch, channels], places, block)?;
    let joined = places.iter().zip(block).map(|(a, b)| a * b);
    let shape: Vec<i64> = [batch, channels].into_iter().chain(joined).collect();
    w.reshape(y, &shape)
}

/// Puts each axis of a block next to its places: [batch, block.. * channels, places..] becomes [batch, channels, place, block, ..].
pub fn paired(
    w: &mut Writer<'_>,
    y: ValueId,
    [batch, channels]: [i64; 2],
    places: &[i64],
    block: &[i64],
) -> Result<ValueId, IrError> {
    let n = block.len();
    let split = [&[batch], block, &[channels], places].concat();
    let y = w.reshape(y, &split)?;
    let pairs = (0..n).flat_map(|i| [2 + n + i, 1 + i]);
    let perm: Vec<usize> = [0, 1 + n].into_iter().chain(pairs).collect();
    w.transpose(y, &perm)
}

/// Whether every element of the result comes from one element of x, nothing cut off and nothing added.
pub fn apart(node: &Node, kernel: &[i64]) -> Option<bool> {
    let list = |name: &str| node.op.attrs().ints(name).ok();
    Some(
        side_by_side(node, kernel)?
            && list("output_shape")?.is_empty()
            && list("output_padding")?.iter().all(|&n| n == 0),
    )
}

/// Whether windows follow each other without gaps, overlaps, padding or groups.
pub fn side_by_side(node: &Node, kernel: &[i64]) -> Option<bool> {
    let a = node.op.attrs();
    let list = |name: &str| a.ints(name).ok();
    let strides = list("strides")?;
    let steps = if strides.is_empty() { vec![1; kernel.len()] } else { strides.to_vec() };
    Some(
        a.int("groups").ok()? == 1
            && Layout::of(a) == Layout::Linear
            && steps == kernel
            && list("dilations")?.iter().all(|&n| n == 1)
            && a.str("pad_mode").is_ok_and(|m| m == "explicit")
            && list("pads")?.iter().all(|&n| n == 0),
    )
}
