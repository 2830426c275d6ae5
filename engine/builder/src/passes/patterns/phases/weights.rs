//! Kernels and biases of the convolutions that compute phases.

use super::Phases;
use super::axis::Phase;
use crate::passes::patterns::Writer;
use kiln_ir::{Attrs, IrError, ValueId};
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;

impl Phases {
    /// The kernel [M, C / groups, taps..] of phases whose windows are equal, each with its own output channels in a group.
    pub fn kernel(&self, w: &mut Writer<'_>, run: &[Vec<Phase>]) -> Result<ValueId, IrError> {
        let mut kernels = Vec::with_capacity(run.len());
        for phase in run {
            kernels.push(self.taps(w, phase)?);
        }
        let kernel = self.joined(w, &kernels)?;
        if self.groups == 1 {
            return Ok(kernel);
        }
        let taps = run.iter().take(1).flatten().map(|p| p.taps);
        let made = self.groups * self.channels * run.len() as i64;
        w.reshape(kernel, &[made, self.depth].into_iter().chain(taps).collect::<Vec<_>>())
    }

    /// The kernel of a phase, its taps from the last to the first: [M, C, taps..], or of groups [groups, M / groups, C / groups, taps..].
    fn taps(&self, w: &mut Writer<'_>, phase: &[Phase]) -> Result<ValueId, IrError> {
        let each = || self.axes.iter().zip(phase);
        let starts: Vec<i64> = each().map(|(a, p)| (p.taps - 1) * a.step + p.tap).collect();
        // One before the first element, counted from the end.
        let ends: Vec<i64> = each().map(|(a, _)| -a.kernel - 1).collect();
        let axes: Vec<i64> = (0..phase.len() as i64).map(|i| 2 + i).collect();
        let steps: Vec<i64> = each().map(|(a, _)| -a.step).collect();
        let bounds = [starts, ends, axes, steps].map(|v| w.ints(&v));
        let [starts, ends, axes, steps] = bounds;
        let mut taps = w.op(SLICE, Attrs::new(), &[self.weights, starts?, ends?, axes?, steps?])?;
        let mut perm: Vec<usize> = [1, 0].into_iter().chain(2..2 + phase.len()).collect();
        if self.groups > 1 {
            let split = [self.groups, self.depth, self.channels];
            let shape: Vec<i64> = split.into_iter().chain(phase.iter().map(|p| p.taps)).collect();
            taps = w.reshape(taps, &shape)?;
            perm = [0, 2, 1].into_iter().chain(3..3 + phase.len()).collect();
        }
        w.transpose(taps, &perm)
    }

    /// Tensors one after another along the output channels, which are behind the groups if there are several.
    fn joined(&self, w: &mut Writer<'_>, all: &[ValueId]) -> Result<ValueId, IrError> {
        match all {
            [one] => Ok(*one),
            _ => w.op(CONCAT, Attrs::new().with("axis", i64::from(self.groups > 1)), all),
        }
    }

    /// The bias of so many phases together.
    pub fn repeated(&self, w: &mut Writer<'_>, bias: ValueId, times: usize) -> Result<ValueId, IrError> {
        if times == 1 || self.groups == 1 {
            return self.joined(w, &vec![bias; times]);
        }
        let bias = w.reshape(bias, &[self.groups, self.channels])?;
        let all = self.joined(w, &vec![bias; times])?;
        w.reshape(all, &[-1])
    }
}
