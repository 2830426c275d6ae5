//! Transposed convolutions as ordinary ones. The results at positions that are equal modulo the stride are a phase, and a phase is an
//! ordinary convolution: of x, with every `step`-th element of the kernel. A layout change puts the phases between each other.
//!
//! No product is added that the transposed convolution does not have, so that results are equal for infinities and NaN, too.
//! Phases without taps are zeros, put in after the convolutions. The bias is added last then.

mod axis;
mod weights;

use super::conv_transpose::{apart, paired};
use super::view::{View, constant, input};
use super::{Rule, Writer};
use axis::{Axis, Phase};
use kiln_ir::{Attrs, Dim, IrError, NodeId, ValueId};
use kiln_ops::conv::transposed::{CONV_TRANSPOSE, geometry};
use kiln_ops::conv::{CONV, window};
use kiln_ops::gather::GATHER;
use kiln_ops::layout::Layout;
use kiln_ops::pointwise::binary::ADD;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::slice::pad::PAD;

/// Phases with taps at most.
const TOGETHER: i64 = 64;
/// Convolutions at most.
const APART: usize = 8;
/// Positions of a stride at most, where a gather puts phases in their order.
const PICKED: i64 = 4096;
/// Elements computed for one of the result, at most.
const WASTE: i64 = 8;
/// Spatial results below which the waste does not count.
const SMALL: i64 = 1024;

pub struct Phases {
    x: ValueId,
    weights: ValueId,
    bias: Option<ValueId>,
    /// Size of the batch; -1 if it is not a number.
    batch: i64,
    groups: i64,
    /// Channels of x in a group.
    depth: i64,
    /// Channels of the result in a group.
    channels: i64,
    axes: Vec<Axis>,
    /// For each phase with taps, its parts on all axes. Neighbours with equal windows share a convolution.
    all: Vec<Vec<Phase>>,
    /// Whether these are in the order of positions, the last axis fastest.
    in_order: bool,
}

impl Rule for Phases {
    const NAME: &'static str = "phases-by-conv";
    const WEIGHTS: bool = true;
    const ALWAYS: bool = false;

    fn find(view: &View<'_>, root: NodeId) -> Option<Phases> {
        let node = view.g.get(root).filter(|n| n.op.is(CONV_TRANSPOSE))?;
        let (x, weights, bias) = (input(node, 0)?, input(node, 1)?, input(node, 2));
        let w: Vec<i64> = view.dims(weights).iter().map(Dim::as_const).collect::<Option<_>>()?;
        let (&[depth, channels], kernel) = w.split_at_checked(2)? else { return None };
        let attrs = node.op.attrs();
        let fixed = constant(view.g, weights) && bias.is_none_or(|b| constant(view.g, b));
        let linear = Layout::of(attrs) == Layout::Linear;
        if !fixed || !linear || w.iter().any(|&n| n <= 0) || apart(node, kernel)? {
            return None;
        }
        let groups = attrs.int("groups").ok().filter(|&g| g > 0)?;
        let batch = view.dims(x).first()?.as_const().unwrap_or(-1);
        if batch == 0 || batch.checked_mul(groups).is_none() || channels.checked_mul(groups).is_none() {
            return None;
        }
        let windows = window::numbers(&geometry(attrs, view.dims(x), view.dims(weights)).ok()?)?;
        let axes: Vec<Axis> = windows.iter().map(Axis::of).collect::<Option<_>>()?;
        let kept = product(&axes, |a| a.size)?.max(SMALL);
        if product(&axes, |a| a.count * a.stride)? > kept.checked_mul(WASTE)? {
            return None;
        }
        let (all, in_order) = phases(&axes)?;
        let depth = depth / groups;
        let found = Phases { x, weights, bias, batch, groups, depth, channels, axes, all, in_order };
        (found.gaps_behind() || product(&found.axes, |a| a.stride)? <= PICKED).then_some(found)
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let gaps = self.axes.iter().any(Axis::has_gaps);
        let (before, after) = if gaps { (None, self.bias) } else { (self.bias, None) };
        let mut y = self.computed(&mut w, before)?;
        if self.axes.iter().any(|a| a.stride > 1) {
            y = self.side_by_side(&mut w, y)?;
        }
        y = self.cut(&mut w, y)?;
        if let Some(bias) = after {
            let bias = w.column(bias, 2 + self.axes.len(), 1)?;
            y = w.op(ADD, Attrs::new(), &[y, bias])?;
        }
        Ok(w.replace(root, y))
    }
}

impl Phases {
    /// Whether phases are in the order of positions, and none is missing between two of them.
    fn gaps_behind(&self) -> bool {
        self.in_order && self.axes.iter().all(Axis::gaps_behind)
    }

    /// Batch and groups as one dimension.
    fn rows(&self) -> i64 {
        if self.batch < 0 { -1 } else { self.batch * self.groups }
    }

    fn counts(&self) -> Vec<i64> {
        self.axes.iter().map(|a| a.count).collect()
    }

    fn strides(&self) -> Vec<i64> {
        self.axes.iter().map(|a| a.stride).collect()
    }

    /// The results of all phases, channels in the order (group, phase, channel of the group).
    fn computed(&self, w: &mut Writer<'_>, bias: Option<ValueId>) -> Result<ValueId, IrError> {
        let runs: Vec<&[Vec<Phase>]> = runs(&self.all).collect();
        let mut kernels = Vec::with_capacity(runs.len());
        for run in &runs {
            kernels.push(self.kernel(w, run)?);
        }
        let mut parts = Vec::with_capacity(runs.len());
        for (&kernel, run) in kernels.iter().zip(&runs) {
            let bias = bias.map(|b| self.repeated(w, b, run.len())).transpose()?;
            let y = self.conv(w, kernel, bias, run)?;
            let of_group = [&[self.rows(), run.len() as i64 * self.channels], &self.counts()[..]].concat();
            parts.push(if self.groups > 1 && runs.len() > 1 { w.reshape(y, &of_group)? } else { y });
        }
        match parts[..] {
            [one] => Ok(one),
            _ => w.op(CONCAT, Attrs::new().with("axis", 1i64), &parts),
        }
    }

    fn conv(
        &self,
        w: &mut Writer<'_>,
        kernel: ValueId,
        bias: Option<ValueId>,
        run: &[Vec<Phase>],
    ) -> Result<ValueId, IrError> {
        let phase = || run.iter().take(1).flatten();
        let pads: Vec<i64> = phase().map(|p| p.pads[0]).chain(phase().map(|p| p.pads[1])).collect();
        let apart = self.axes.iter().zip(phase());
        let dilations: Vec<i64> = apart.map(|(a, p)| if p.taps == 1 { 1 } else { a.dilation }).collect();
        let mut attrs = Attrs::new().with("pads", pads);
        if dilations.iter().any(|&d| d != 1) {
            attrs.set("dilations", dilations);
        }
        if self.groups > 1 {
            attrs.set("groups", self.groups);
        }
        let inputs: Vec<ValueId> = [self.x, kernel].into_iter().chain(bias).collect();
        w.op(CONV, attrs, &inputs)
    }

    /// Puts phases between each other, zeros where there are none.
    fn side_by_side(&self, w: &mut Writer<'_>, mut y: ValueId) -> Result<ValueId, IrError> {
        let (counts, strides) = (self.counts(), self.strides());
        let mut block = strides.clone();
        if self.gaps_behind() {
            block = self.axes.iter().map(|a| a.phases.len() as i64).collect();
        } else {
            y = self.picked(w, y)?;
        }
        y = paired(w, y, [self.rows(), self.channels], &counts, &block)?;
        let short: Vec<usize> = (0..block.len()).filter(|&i| block[i] < strides[i]).collect();
        if !short.is_empty() {
            let missing = short.iter().map(|&i| strides[i] - block[i]);
            let amounts: Vec<i64> = short.iter().map(|_| 0).chain(missing).collect();
            let axes: Vec<i64> = short.iter().map(|&i| 3 + 2 * i as i64).collect();
            let (amounts, axes) = (w.ints(&amounts)?, w.ints(&axes)?);
            y = w.node(PAD, Attrs::new(), &[Some(y), Some(amounts), None, Some(axes)])?;
        }
        let whole = counts.iter().zip(&strides).map(|(n, s)| n * s);
        w.reshape(y, &[self.batch, self.groups * self.channels].into_iter().chain(whole).collect::<Vec<_>>())
    }

    /// Puts phases in the order of positions, zeros where there are none: [batch * groups, positions, M / groups, counts..].
    fn picked(&self, w: &mut Writer<'_>, y: ValueId) -> Result<ValueId, IrError> {
        let live = self.all.len() as i64;
        let shape = [&[self.rows(), live, self.channels], &self.counts()[..]].concat();
        let mut y = w.reshape(y, &shape)?;
        if self.axes.iter().any(Axis::has_gaps) {
            let (amounts, axes) = (w.ints(&[0, 1])?, w.ints(&[1])?);
            y = w.node(PAD, Attrs::new(), &[Some(y), Some(amounts), None, Some(axes)])?;
        }
        let mut from = vec![live; self.strides().iter().product::<i64>() as usize];
        for (phase, i) in self.all.iter().zip(0..) {
            let at = self.axes.iter().zip(phase).fold(0, |at, (a, p)| at * a.stride + p.at);
            if let Some(place) = from.get_mut(at as usize) {
                *place = i;
            }
        }
        let from = w.ints(&from)?;
        w.op(GATHER, Attrs::new().with("axis", 1i64), &[y, from])
    }

    /// The elements of the result among those that were computed.
    fn cut(&self, w: &mut Writer<'_>, y: ValueId) -> Result<ValueId, IrError> {
        let more = |a: &Axis| a.start > 0 || a.count * a.stride > a.size;
        let kept: Vec<(&Axis, i64)> = self.axes.iter().zip(2..).filter(|(a, _)| more(a)).collect();
        if kept.is_empty() {
            return Ok(y);
        }
        let starts = w.ints(&kept.iter().map(|(a, _)| a.start).collect::<Vec<_>>())?;
        let ends = w.ints(&kept.iter().map(|(a, _)| a.start + a.size).collect::<Vec<_>>())?;
        let axes = w.ints(&kept.iter().map(|(_, i)| *i).collect::<Vec<_>>())?;
        w.op(SLICE, Attrs::new(), &[y, starts, ends, axes])
    }
}

/// Product of a number of all axes.
fn product(axes: &[Axis], of: impl Fn(&Axis) -> i64) -> Option<i64> {
    axes.iter().try_fold(1i64, |n, a| n.checked_mul(of(a)))
}

/// All phases with taps, and whether they are in the order of positions, the last axis fastest. Others have those with equal windows
/// next to each other, where there would be too many convolutions otherwise.
fn phases(axes: &[Axis]) -> Option<(Vec<Vec<Phase>>, bool)> {
    if product(axes, |a| a.phases.len() as i64)? > TOGETHER {
        return None;
    }
    let mut all = axes.iter().fold(vec![Vec::new()], |all, a| {
        all.iter().flat_map(|p| a.phases.iter().map(move |&r| [&p[..], &[r]].concat())).collect()
    });
    let in_order = runs(&all).count() <= APART;
    if !in_order {
        all.sort_by_key(|phase| windows(phase));
    }
    (runs(&all).count() <= APART).then_some((all, in_order))
}

/// Neighbours whose windows are equal.
fn runs(all: &[Vec<Phase>]) -> impl Iterator<Item = &[Vec<Phase>]> {
    all.chunk_by(|a, b| windows(a) == windows(b))
}

fn windows(phase: &[Phase]) -> Vec<(i64, [i64; 2])> {
    phase.iter().map(Phase::windows).collect()
}
