//! Transposed convolutions whose windows overlap. The results at positions that are equal modulo the stride are a phase, and a phase is
//! an ordinary convolution: of x, with every `stride`-th element of the kernel. A move puts the phases between each other.

use super::conv_transpose::{apart, interleaved};
use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Dim, IrError, NodeId, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::conv::transposed::CONV_TRANSPOSE;
use kiln_ops::layout::Layout;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;

/// Phases that one convolution computes together at most.
const TOGETHER: i64 = 64;
/// Phases that have convolutions of their own at most.
const APART: i64 = 8;

pub struct Phases {
    x: ValueId,
    weights: ValueId,
    bias: Option<ValueId>,
    /// Size of the batch; -1 if it is not a number.
    batch: i64,
    /// Output channels.
    channels: i64,
    axes: Vec<Axis>,
}

/// A spatial axis. Result `q * stride + phase` is the sum over taps t of `x[q - t] * kernel[t * stride + phase]`.
#[derive(Clone, Copy)]
struct Axis {
    kernel: i64,
    stride: i64,
    /// Elements of the result that are cut off in front.
    cut: i64,
    /// Size of the result.
    size: i64,
    /// The first q, and how many there are.
    first: i64,
    count: i64,
    /// Elements of x behind the end that the last q reads.
    after: i64,
}

impl Axis {
    fn of(n: i64, kernel: i64, stride: i64, cut: [i64; 2], more: i64) -> Option<Axis> {
        let full = n.checked_sub(1)?.checked_mul(stride)?.checked_add(kernel)?;
        let size = full.checked_sub(cut[0])?.checked_sub(cut[1])?.checked_add(more)?;
        let (first, end) = (cut[0] / stride, (cut[0] + size + stride - 1) / stride);
        let axis = Axis { kernel, stride, cut: cut[0], size, first, count: end - first, after: end - n };
        // Each phase has a tap, and nothing of x is left out.
        let whole = size > 0 && axis.after >= 0 && (0..stride).all(|r| axis.taps(r) > first);
        (n > 0 && kernel >= stride && stride > 0 && cut.iter().all(|&c| c >= 0) && whole).then_some(axis)
    }

    fn taps(&self, phase: i64) -> i64 {
        (self.kernel - phase + self.stride - 1) / self.stride
    }
}

impl Rule for Phases {
    const NAME: &'static str = "phases-by-conv";
    const WEIGHTS: bool = true;
    const ALWAYS: bool = false;

    fn find(view: &View<'_>, root: NodeId) -> Option<Phases> {
        let node = view.g.get(root).filter(|n| n.op.is(CONV_TRANSPOSE))?;
        let (x, weights, bias) = (input(node, 0)?, input(node, 1)?, input(node, 2));
        let w: Vec<i64> = view.dims(weights).iter().map(Dim::as_const).collect::<Option<_>>()?;
        let (&[_, channels], kernel) = w.split_at_checked(2)? else { return None };
        let ([batch, _], spatial) = view.dims(x).split_at_checked(2)? else { return None };
        let spatial: Vec<i64> = spatial.iter().map(Dim::as_const).collect::<Option<_>>()?;
        let (a, rank) = (node.op.attrs(), kernel.len());
        let list = |name: &str, usual: i64, count: usize| {
            let given = a.ints(name).ok()?;
            (given.is_empty() || given.len() == count)
                .then(|| if given.is_empty() { vec![usual; count] } else { given.to_vec() })
        };
        let (strides, pads) = (list("strides", 1, rank)?, list("pads", 0, 2 * rank)?);
        let more = list("output_padding", 0, rank)?;
        let plain = a.int("groups").ok()? == 1
            && Layout::of(a) == Layout::Linear
            && list("dilations", 1, rank)?.iter().all(|&d| d == 1)
            && a.str("pad_mode").is_ok_and(|m| m == "explicit")
            && a.ints("output_shape").ok()?.is_empty();
        let fixed = constant(view.g, weights) && bias.is_none_or(|b| constant(view.g, b));
        if !plain || !fixed || w.iter().any(|&n| n <= 0) || batch.is(0) || apart(node, kernel)? {
            return None;
        }
        let axis = |i: usize| Axis::of(spatial[i], kernel[i], strides[i], [pads[i], pads[rank + i]], more[i]);
        let axes: Vec<Axis> = (0..rank).map(axis).collect::<Option<_>>()?;
        let phases = axes.iter().try_fold(1i64, |n, a| n.checked_mul(a.stride))?;
        let equal = axes.iter().all(|a| a.kernel % a.stride == 0);
        let batch = batch.as_const().unwrap_or(-1);
        (phases <= if equal { TOGETHER } else { APART }).then_some(Phases {
            x,
            weights,
            bias,
            batch,
            channels,
            axes,
        })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let n = self.axes.len();
        let phases = phases(&self.axes);
        let mut kernels = Vec::with_capacity(phases.len());
        for phase in &phases {
            kernels.push(self.kernel(&mut w, phase)?);
        }
        let equal = self.axes.iter().all(|a| a.kernel % a.stride == 0);
        let y = match (&kernels[..], equal) {
            ([one], _) => self.conv(&mut w, *one, self.bias, &phases[0])?,
            (all, true) => {
                let along = || Attrs::new().with("axis", 0i64);
                let weights = w.op(CONCAT, along(), all)?;
                let bias = match self.bias {
                    Some(b) => Some(w.op(CONCAT, along(), &vec![b; all.len()])?),
                    None => None,
                };
                self.conv(&mut w, weights, bias, &phases[0])?
            }
            (all, false) => {
                let mut parts = Vec::with_capacity(all.len());
                for (&kernel, phase) in all.iter().zip(&phases) {
                    parts.push(self.conv(&mut w, kernel, self.bias, phase)?);
                }
                w.op(CONCAT, Attrs::new().with("axis", 1i64), &parts)?
            }
        };
        let (strides, counts): (Vec<i64>, Vec<i64>) = self.axes.iter().map(|a| (a.stride, a.count)).unzip();
        let mut y = interleaved(&mut w, y, [self.batch, self.channels], &counts, &strides)?;
        let start = |a: &Axis| a.cut - a.first * a.stride;
        let kept: Vec<usize> = (0..n)
            .filter(|&i| start(&self.axes[i]) > 0 || counts[i] * strides[i] > self.axes[i].size)
            .collect();
        if !kept.is_empty() {
            let of = |f: &dyn Fn(usize) -> i64| kept.iter().map(|&i| f(i)).collect::<Vec<_>>();
            let starts = w.ints(&of(&|i| start(&self.axes[i])))?;
            let ends = w.ints(&of(&|i| start(&self.axes[i]) + self.axes[i].size))?;
            let axes = w.ints(&of(&|i| 2 + i as i64))?;
            y = w.op(SLICE, Attrs::new(), &[y, starts, ends, axes])?;
        }
        Ok(w.replace(root, y))
    }
}

impl Phases {
    /// The kernel [M, C, taps..] of a phase: its taps from the last to the first.
    fn kernel(&self, w: &mut Writer<'_>, phase: &[i64]) -> Result<ValueId, IrError> {
        let each = || self.axes.iter().zip(phase);
        let starts: Vec<i64> = each().map(|(a, &r)| (a.taps(r) - 1) * a.stride + r).collect();
        // One before the first element, counted from the end.
        let ends: Vec<i64> = each().map(|(a, _)| -a.kernel - 1).collect();
        let axes: Vec<i64> = (0..phase.len() as i64).map(|i| 2 + i).collect();
        let steps: Vec<i64> = each().map(|(a, _)| -a.stride).collect();
        let bounds = [starts, ends, axes, steps].map(|v| w.ints(&v));
        let [starts, ends, axes, steps] = bounds;
        let taps = w.op(SLICE, Attrs::new(), &[self.weights, starts?, ends?, axes?, steps?])?;
        let perm: Vec<usize> = [1, 0].into_iter().chain(2..2 + phase.len()).collect();
        w.transpose(taps, &perm)
    }

    fn conv(
        &self,
        w: &mut Writer<'_>,
        kernel: ValueId,
        bias: Option<ValueId>,
        phase: &[i64],
    ) -> Result<ValueId, IrError> {
        let before = self.axes.iter().zip(phase).map(|(a, &r)| a.taps(r) - 1 - a.first);
        let pads: Vec<i64> = before.chain(self.axes.iter().map(|a| a.after)).collect();
        let inputs: Vec<ValueId> = [self.x, kernel].into_iter().chain(bias).collect();
        w.op(CONV, Attrs::new().with("pads", pads), &inputs)
    }
}

/// All phases, the last axis fastest.
fn phases(axes: &[Axis]) -> Vec<Vec<i64>> {
    axes.iter().fold(vec![Vec::new()], |all, a| {
        all.iter().flat_map(|p| (0..a.stride).map(move |r| [&p[..], &[r]].concat())).collect()
    })
}
