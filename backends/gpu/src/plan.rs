//! From a step and the shapes of a run to launches.

use crate::device::{Device, Range};
use crate::loaded::Loaded;
use crate::memory::Memory;
use crate::step::{Kernels, StepKernel};
use kiln_backend::{BackendError, Shapes};
use kiln_codegen::expression::{Slot, extra_words};
use kiln_codegen::site::{Cx, check_sizes};
use kiln_codegen::views::View;
use kiln_codegen::{Grid, Launch};
use kiln_ir::{NodeId, ValueId};

/// A device that turns what kernels ask for into launches.
pub trait Launches: Kernels {
    /// A launch with all that it needs.
    type Launch: Clone + Send;

    /// Threads of a workgroup of an entry point that maps.
    const MAP_THREADS: u64;

    /// Iterations that all loops of one thread may make in one launch.
    fn rounds(&self) -> usize;

    /// Elements of an output that one thread of a map computes.
    fn lanes(step: &StepKernel<Self::Code>, output: usize) -> u64;

    /// The launches of a step that is no kernel; none of a kernel.
    fn library(
        _plan: &mut Planner<'_, Self>,
        _step: usize,
        _operands: &Operands<Self>,
    ) -> Result<Option<Vec<Self::Launch>>, BackendError> {
        Ok(None)
    }

    /// Makes launch `number` of a step.
    fn launch(
        plan: &mut Planner<'_, Self>,
        at: (usize, usize),
        launch: Launch,
        operands: &Operands<Self>,
        work: Work,
    ) -> Result<Option<Self::Launch>, BackendError>;
}

/// Memory of the operands of a step; none for those that the kernel does not touch.
pub struct Operands<D: Device> {
    /// Inputs of the anchor.
    pub inputs: Vec<Option<D::Range>>,
    /// Stored outputs.
    pub outputs: Vec<Option<D::Range>>,
    /// Further operands of the fused expression.
    pub extras: Vec<D::Range>,
}

/// How large a launch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Threads, or workgroups where the kernel counts these.
    pub threads: u64,
    /// Elements; threads where the kernel maps nothing.
    pub elements: u64,
    /// Workgroups.
    pub groups: u64,
}

/// Plans the launches of one step.
pub struct Planner<'a, D: Launches> {
    /// The program.
    pub loaded: &'a Loaded<D>,
    /// Memory of its values.
    pub memory: &'a mut Memory<D>,
    /// Allocates.
    pub queue: &'a mut D::Queue,
    /// The shapes of the run.
    pub shapes: &'a Shapes,
}

impl<D: Launches> Planner<'_, D> {
    /// The memory of a value.
    pub fn place(&mut self, v: ValueId) -> Result<D::Range, BackendError> {
        let bytes = self.shapes.bytes(&self.loaded.program, v)?;
        self.memory.place(self.queue, &self.loaded.program, &self.loaded.weights, v, bytes)
    }

    /// The launches of a step; `counts` picks those before or after sizes are read.
    pub fn step(&mut self, index: usize, counts: bool) -> Result<Vec<D::Launch>, BackendError> {
        let loaded = self.loaded;
        let (Some(k), Some(step)) = (loaded.steps.get(index), loaded.program.steps.get(index)) else {
            return Ok(Vec::new());
        };
        let (operands, views) = self.operands(k, counts)?;
        if let Some(launches) = D::library(self, index, &operands)? {
            return Ok(if counts { Vec::new() } else { launches });
        }
        let graph = &loaded.program.graph;
        let cx = Cx {
            op: k.anchor.and_then(|n| graph.get(n)).map(|n| &n.op),
            tactic: &step.tactic,
            inputs: k.inputs.iter().map(|v| v.map(|v| self.shapes.fact(v))).collect(),
            outputs: k.results.iter().map(|&v| self.shapes.fact(v)).collect(),
            fused: k.fused,
            constant: k.inputs.iter().map(|v| v.is_some_and(|v| graph.weight(v).is_some())).collect(),
            aliased: operands.aliased(),
            views,
            wanted: k.wanted.clone(),
            rounds: loaded.device.rounds(),
            lanes: D::lanes(k, 0) as usize,
            dialect: D::dialect(),
        };
        let layer = k.layer(&loaded.program, index);
        check_sizes(&cx, layer)?;
        let launches = k.kernel.launches(&cx, k.maps.len(), &k.checks, layer)?;
        let mut out = Vec::new();
        for (number, launch) in launches.into_iter().enumerate().filter(|(_, l)| l.counts == counts) {
            let work = self.work(k, &launch)?;
            if work.groups > 0 {
                out.extend(D::launch(self, (index, number), launch, &operands, work)?);
            }
        }
        Ok(out)
    }

    /// The operands, and views of the inputs that the kernel reads through other nodes.
    fn operands(
        &mut self,
        k: &StepKernel<D::Code>,
        counts: bool,
    ) -> Result<(Operands<D>, Vec<Option<View>>), BackendError> {
        let (mut outputs, mut inputs, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for (j, &(v, _)) in k.stored.iter().enumerate() {
            // The sizes of data-dependent outputs are not known when they are counted.
            let open = counts && self.shapes.shape(v).is_none();
            let stored = !open && !k.unwritten.contains(&j);
            outputs.push(if stored { Some(self.place(v)?) } else { None });
        }
        for (i, v) in k.inputs.iter().enumerate() {
            let moves = k.moves.get(i).map_or(&[][..], Vec::as_slice);
            let v = v.map(|v| self.source(moves, v)).transpose()?;
            let on_device = v.filter(|&v| self.shapes.shape(v).is_some());
            inputs.push(on_device.map(|v| self.place(v)).transpose()?);
            let view = v.filter(|_| !moves.is_empty()).map(|v| self.view(moves, v));
            views.push(view.transpose()?);
        }
        let extras = k.extras.iter().map(|&v| self.place(v)).collect::<Result<_, _>>()?;
        Ok((Operands { inputs, outputs, extras }, views))
    }

    /// The value that the nodes in front of an input begin with.
    fn source(&self, moves: &[NodeId], v: ValueId) -> Result<ValueId, BackendError> {
        let Some(&first) = moves.first() else { return Ok(v) };
        let from = self.loaded.program.graph.get(first).and_then(|n| n.inputs.first().copied().flatten());
        from.ok_or_else(|| BackendError::Internal("a layout change without an input".into()))
    }

    /// The view of an input in the value that is bound for it.
    fn view(&self, moves: &[NodeId], from: ValueId) -> Result<View, BackendError> {
        let lost = || BackendError::Internal("a layout change whose shapes are not known".into());
        let mut view = View::whole(&self.shapes.shape(from).ok_or_else(lost)?);
        for &id in moves {
            let node = self.loaded.program.graph.get(id).ok_or_else(lost)?;
            let facts: Vec<_> = node.inputs.iter().map(|v| v.map(|v| self.shapes.fact(v))).collect();
            let to = node.outputs.first().and_then(|&v| self.shapes.shape(v)).ok_or_else(lost)?;
            view = view.through(&node.op, &facts, &to)?;
        }
        Ok(view)
    }

    fn work(&self, k: &StepKernel<D::Code>, launch: &Launch) -> Result<Work, BackendError> {
        Ok(match launch.grid {
            Grid::Threads(n) => Work { threads: n, elements: n, groups: n.div_ceil(D::MAP_THREADS) },
            Grid::Groups(n) => Work { threads: n, elements: n, groups: n },
            Grid::Output => {
                let output = k.maps.get(launch.entry).copied().flatten();
                let stored = output.and_then(|j| Some((j, k.stored.get(j)?.0)));
                let (j, v) = stored.ok_or_else(|| lost(k))?;
                let n = self.shapes.fact(v).ty.static_volume().ok_or_else(|| lost(k))? as u64;
                let threads = n.div_ceil(D::lanes(k, j));
                Work { threads, elements: n, groups: threads.div_ceil(D::MAP_THREADS) }
            }
        })
    }

    /// The memory of a binding.
    pub fn bound(
        &mut self,
        step: usize,
        slot: Slot,
        launch: &Launch,
        operands: &Operands<D>,
    ) -> Result<D::Range, BackendError> {
        let lost = || lost(&self.loaded.steps[step]);
        match slot {
            Slot::Input(i) => {
                let i = launch.swap.filter(|s| s.0 == i).map_or(i, |s| s.1);
                operands.inputs.get(i).cloned().flatten().ok_or_else(lost)
            }
            Slot::Extra(e) => operands.extras.get(e).cloned().ok_or_else(lost),
            Slot::Output(j) => match operands.outputs.get(j).cloned().flatten() {
                Some(range) => Ok(range),
                // Nothing is written there: sizes are counted, or nobody reads it.
                None => self.memory.sizes(self.queue),
            },
            Slot::Scratch => self.memory.scratch(self.queue, launch.scratch.max(16)),
            Slot::Sizes => self.memory.sizes(self.queue),
            Slot::Faults => self.memory.record(step),
        }
    }

    /// The words by which a fused expression finds its operands.
    pub fn extra_words(&self, step: usize) -> Result<Vec<u32>, BackendError> {
        let k = &self.loaded.steps[step];
        let Some(&(out, _)) = k.stored.first().filter(|_| !k.extras.is_empty()) else {
            return Ok(Vec::new());
        };
        let shape = |v| {
            let s = self.shapes.shape(v);
            s.ok_or_else(|| BackendError::Internal("the shape of an operand is not known".into()))
        };
        let own = k.extra_shapes.iter().map(|&v| shape(v)).collect::<Result<Vec<_>, _>>()?;
        extra_words(&shape(out)?, &own)
    }
}

impl<D: Device> Operands<D> {
    /// Pairs of inputs and outputs that share memory.
    fn aliased(&self) -> Vec<(usize, usize)> {
        let pairs = (0..self.inputs.len()).flat_map(|i| (0..self.outputs.len()).map(move |j| (i, j)));
        let shared = |&(i, j): &(usize, usize)| match (&self.inputs[i], &self.outputs[j]) {
            (Some(a), Some(b)) => a.same_start(b),
            _ => false,
        };
        pairs.filter(shared).collect()
    }
}

/// The error of a launch that refers to an operand that the step does not have.
pub fn lost<C>(k: &StepKernel<C>) -> BackendError {
    BackendError::Internal(format!(
        "{}: a launch refers to an operand that the step does not have ({} inputs, {} extras, {} outputs)",
        k.kernel.name,
        k.inputs.len(),
        k.extras.len(),
        k.stored.len()
    ))
}
