//! 2:4 sparsity: weights of products and convolutions of which two of four neighbours along the depth at most are not 0.
//!
//! A pattern takes kernels on packed weights where they are faster (`patterns/sparse.rs`). [`weights`] says which layers it may
//! take, [`PRUNE`] makes weights sparse where the build forces that, [`report`] notes what became of it.

mod prune;
mod report;

pub use prune::PASS as PRUNE;
pub use report::report;

use super::patterns::constant;
use kiln_ir::{DType, Graph, Node, Tensor, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::conv::window::{DILATIONS, PADS, STRIDES};
use kiln_ops::layout::Layout;
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::sparse::pack::{GROUP, packable, too_dense};

/// Weights of a layer that multiplies by constants, and their dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The weights.
    pub value: ValueId,
    /// Dimension that sums run along; groups of four are neighbours in it.
    pub depth: usize,
    /// Whether the layer is a convolution.
    pub conv: bool,
}

/// The weights of a product or convolution whose shapes suit 2:4 sparsity, whatever their elements. The reason if not; `None` for
/// other layers.
pub fn shaped(g: &Graph, node: &Node) -> Option<Result<Weights, String>> {
    let conv = node.op.is(CONV);
    if !conv && !node.op.is(MATMUL) {
        return None;
    }
    let operand = |i: usize| node.inputs.get(i).copied().flatten();
    let (x, value) = (operand(0)?, operand(1)?);
    let attrs = node.op.attrs();
    let flag = |name| attrs.bool(name).unwrap_or(false);
    let (wx, rank) = (g.ty(x).rank(), g.ty(value).rank());
    let depth = match conv {
        true if Layout::of(attrs) == Layout::Linear => 1,
        true => rank.saturating_sub(1),
        false => usize::from(flag("trans_b")),
    };
    let refused = |why: &str| Some(Err(why.to_owned()));
    if !constant(g, value) {
        return refused("its weights are no constants");
    }
    if conv && attrs.int("groups").is_ok_and(|n| n != 1) {
        return refused("its channels are in groups");
    }
    if !conv && (rank != 2 || wx < 2 || flag("trans_a")) {
        return refused("it is no product of rows by one matrix of weights");
    }
    match g.ty(value).dims.get(depth).and_then(|d| d.as_const()) {
        Some(k) if k > 0 && k % GROUP as i64 == 0 => Some(Ok(Weights { value, depth, conv })),
        Some(k) => Some(Err(format!("its depth of {k} is no multiple of {GROUP}"))),
        None => refused("its depth is not known"),
    }
}

/// The weights of a layer that can be multiplied in packed form. The reason if not; `None` for layers without weights.
pub fn weights(g: &Graph, node: &Node) -> Option<Result<Weights, String>> {
    let found = match shaped(g, node)? {
        Ok(found) => found,
        Err(why) => return Some(Err(why)),
    };
    let t = g.ty(found.value).dtype;
    let own = g.ty(node.inputs.first().copied().flatten()?).dtype;
    let integer = |t| matches!(t, DType::I8 | DType::U8);
    if !(integer(own) && integer(t)) && (own != t || !packable(t)) {
        return Some(Err(format!(
            "it multiplies {own} by {t}; sparse kernels take f16, bf16, f8e4m3 and integers of 8 bits"
        )));
    }
    if found.conv && !by_rows(g, node) {
        return Some(Err("sparse kernels take windows of one element with channels last only".into()));
    }
    let Some(w) = g.weight(found.value) else {
        return Some(Err("its weights are computed in each run".into()));
    };
    match first_dense(&w.tensor, found.depth) {
        None => Some(Ok(found)),
        Some(at) => {
            Some(Err(format!("more than two of four neighbours of its weights are not 0, at {at:?} for one")))
        }
    }
}

/// Whether a convolution is a product of the rows of its image: windows of one element, channels last.
fn by_rows(g: &Graph, node: &Node) -> bool {
    let attrs = node.op.attrs();
    let all = |name: &str, n: i64| attrs.ints(name).is_ok_and(|v| v.iter().all(|&x| x == n));
    let Some(w) = node.inputs.get(1).copied().flatten() else { return false };
    let dims = &g.ty(w).dims;
    let taps = dims.get(1..dims.len().saturating_sub(1)).unwrap_or_default();
    let explicit = attrs.str("pad_mode").is_ok_and(|m| m == "explicit" || m == "valid");
    Layout::of(attrs) != Layout::Linear
        && taps.iter().all(|d| d.is(1))
        && all(STRIDES.name, 1)
        && all(PADS.name, 0)
        && all(DILATIONS.name, 1)
        && explicit
}

/// Indices of the first element of a group of four along an axis of which more than two are not 0.
fn first_dense(w: &Tensor, axis: usize) -> Option<Vec<usize>> {
    let shape = w.shape();
    let steps = kiln_ops::util::strides(shape);
    too_dense(w, axis).map(|at| steps.iter().zip(shape).map(|(s, n)| at / s % n).collect())
}
