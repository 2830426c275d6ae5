//! Planning: the launches of a step at the shapes of a run.

use crate::checks;
use crate::device::{Device, Range};
use crate::extras::{Extra, Part, extra_words};
use crate::loaded::Loaded;
use crate::memory::Memory;
use crate::step::{Kernels, StepKernel};
use kiln_backend::launch::{Condition, Grid, Launch, LaunchSite};
use kiln_backend::limits::check_sizes;
use kiln_backend::{BackendError, Binding, Shapes};
use kiln_ir::{Dim, Fact, ValueId};
use std::sync::Arc;

/// A device that turns what kernels ask for into launches.
pub trait Launches: Kernels {
    /// A launch with all that it needs.
    type Launch: Clone + Send;

    /// Threads of a workgroup of an entry point that maps.
    const MAP_THREADS: u64;

    /// Iterations that all loops of one thread may make in one launch.
    fn rounds(&self) -> usize;

    /// The launches of a step that is not a kernel; none of a kernel. `counts` picks those before or after sizes are read.
    fn library(
        _plan: &mut Planner<'_, Self>,
        _step: usize,
        _operands: &Operands<Self>,
        _counts: bool,
    ) -> Result<Option<Vec<Self::Launch>>, BackendError> {
        Ok(None)
    }

    /// The launch that copies a weight before the first step that reads it; none where the host has to copy it.
    fn copy_weight(
        _step: usize,
        _weight: ValueId,
        _from: &Arc<Self::HostCopy>,
        _to: Self::Range,
    ) -> Option<Self::Launch> {
        None
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

/// Size of a launch.
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

impl<'a, D: Launches> Planner<'a, D> {
    /// The kernel of a step at the shapes of the run.
    pub fn kernel(&self, step: usize) -> &'a StepKernel<D::Code> {
        &self.loaded.steps[self.loaded.kernel(step, self.shapes.case())]
    }

    /// The memory of a value.
    pub fn place(&mut self, v: ValueId) -> Result<D::Range, BackendError> {
        let bytes = self.shapes.bytes(&self.loaded.program, v)?;
        self.memory.place(self.queue, &self.loaded.program, &self.loaded.weights, v, bytes)
    }

    /// Scratch memory of a step, which no step has that runs at the same time.
    pub fn scratch(&mut self, step: usize, bytes: u64) -> Result<D::Range, BackendError> {
        let stream = self.loaded.program.streams.get(step).map_or(0, |&s| s as usize);
        self.memory.scratch(self.queue, stream, bytes.max(16))
    }

    /// The launches of a step; `counts` picks those before or after sizes are read.
    pub fn step(&mut self, index: usize, counts: bool) -> Result<Vec<D::Launch>, BackendError> {
        let loaded = self.loaded;
        let Some(step) = loaded.program.steps.get(index) else { return Ok(Vec::new()) };
        let k = self.kernel(index);
        let operands = self.operands(k, counts)?;
        if let Some(launches) = D::library(self, index, &operands, counts)? {
            return Ok(launches);
        }
        let graph = &loaded.program.graph;
        let holds = |c: Condition| match c {
            Condition::Weight(i) => {
                let v = k.inputs.get(i as usize).copied().flatten();
                v.is_some_and(|v| graph.weight(v).is_some())
            }
            Condition::Aliased(i, j) => operands.aliased(i as usize, j as usize),
            Condition::Given(i) => k
                .source(&loaded.program, i as usize)
                .flatten()
                .is_some_and(|v| graph.weight(v).is_some() || !loaded.is_body && graph.inputs.contains(&v)),
        };
        let site = LaunchSite {
            graph,
            nodes: &step.nodes,
            operands: &k.operands,
            tactic: step.tactic_in(self.shapes.case()),
            fact: &|v| self.shapes.fact(v),
            wanted: &k.wanted,
            rounds: loaded.device.rounds(),
            holds: &holds,
        };
        let layer = k.layer(&loaded.program, index);
        let mut read = site.inputs();
        for i in 0..k.inputs.len() {
            let from = k.source(&loaded.program, i).flatten();
            read.extend(from.map(|v| Some(self.shapes.fact(v))));
        }
        let mut written = site.outputs();
        written.extend(k.stored.iter().filter(|_| k.part.is_some()).map(|(v, _)| self.shapes.fact(*v)));
        check_sizes(&read, &written, site.tactic, layer)?;
        let mut launches = checks::launches(&site, k, layer)?;
        if !site.computes_nothing() {
            launches.extend(of_kernel(k, &site, layer)?);
        }
        let mut out = Vec::new();
        for (number, launch) in launches.into_iter().enumerate().filter(|(_, l)| l.counts == counts) {
            let work = self.work(k, &launch)?;
            if work.groups > 0 {
                out.extend(D::launch(self, (index, number), launch, &operands, work)?);
            }
        }
        Ok(out)
    }

    /// The memory of the operands.
    fn operands(&mut self, k: &StepKernel<D::Code>, counts: bool) -> Result<Operands<D>, BackendError> {
        let (mut outputs, mut inputs) = (Vec::new(), Vec::new());
        for (j, &(v, _)) in k.stored.iter().enumerate() {
            // The sizes of data-dependent outputs are not known when they are counted.
            let open = counts && self.shapes.shape(v).is_none();
            let stored = !open && !k.unwritten.contains(&j);
            outputs.push(if stored { Some(self.place(v)?) } else { None });
        }
        for (i, v) in k.inputs.iter().enumerate() {
            let v = v.map(|v| self.source(k, i, v)).transpose()?;
            let on_device = v.filter(|&v| self.shapes.shape(v).is_some());
            inputs.push(on_device.map(|v| self.place(v)).transpose()?);
        }
        let extras = k.extras.iter().map(|&v| self.place(v)).collect::<Result<_, _>>()?;
        Ok(Operands { inputs, outputs, extras })
    }

    /// The value that is bound for input `i`: that which the nodes in front of it begin with.
    fn source(&self, k: &StepKernel<D::Code>, i: usize, v: ValueId) -> Result<ValueId, BackendError> {
        let Some(first) = k.source(&self.loaded.program, i) else { return Ok(v) };
        first.ok_or_else(|| BackendError::Internal("a layout change without an input".into()))
    }

    fn work(&self, k: &StepKernel<D::Code>, launch: &Launch) -> Result<Work, BackendError> {
        Ok(match launch.grid {
            Grid::Threads(n) => Work { threads: n, elements: n, groups: n.div_ceil(D::MAP_THREADS) },
            Grid::Groups(n) => Work { threads: n, elements: n, groups: n },
            Grid::Output => {
                let output = k.maps.get(launch.entry).copied().flatten();
                let stored = output.and_then(|j| Some((j, k.computed(j)?)));
                let (j, v) = stored.ok_or_else(|| lost(k))?;
                let n = self.shapes.fact(v).ty.static_volume().ok_or_else(|| lost(k))? as u64;
                let threads = n.div_ceil(k.lanes(j));
                Work { threads, elements: n, groups: threads.div_ceil(D::MAP_THREADS) }
            }
        })
    }

    /// The memory of a binding.
    pub fn bound(
        &mut self,
        step: usize,
        binding: Binding,
        launch: &Launch,
        operands: &Operands<D>,
    ) -> Result<D::Range, BackendError> {
        let k = self.kernel(step);
        let lost = || lost(k);
        match binding {
            Binding::Input(i, _) => {
                let i = i as usize;
                let i = launch.swap.filter(|s| s.0 == i).map_or(i, |s| s.1);
                operands.inputs.get(i).cloned().flatten().ok_or_else(lost)
            }
            Binding::Extra(e, _) => operands.extras.get(e as usize).cloned().ok_or_else(lost),
            Binding::Output(j, _) => match operands.outputs.get(j as usize).cloned().flatten() {
                Some(range) => Ok(range),
                // Nothing is written there: sizes are counted, or nobody reads it.
                None => self.memory.sizes(self.queue),
            },
            Binding::Scratch => self.scratch(step, launch.scratch),
            Binding::Sizes => self.memory.sizes(self.queue),
            Binding::Faults => self.memory.record(step),
            Binding::Arguments => Err(lost()),
        }
    }

    /// The words by which a fused expression finds its operands.
    pub fn extra_words(&self, step: usize) -> Result<Vec<u32>, BackendError> {
        let k = self.kernel(step);
        let Some(out) = k.computed(0).filter(|_| !k.extras.is_empty()) else {
            return Ok(Vec::new());
        };
        let shape = |v| {
            let s = self.shapes.shape(v);
            s.ok_or_else(|| BackendError::Internal("the shape of an operand is not known".into()))
        };
        let mut own = Vec::with_capacity(k.extra_shapes.len());
        for (i, &v) in k.extra_shapes.iter().enumerate() {
            let slice =
                k.extra_slices.get(i).copied().flatten().and_then(|n| self.loaded.program.graph.get(n));
            let part = slice.map(|node| {
                let facts: Vec<Option<&Fact>> =
                    node.inputs.iter().map(|v| v.map(|v| self.shapes.fact(v))).collect();
                Part::of(&facts)
            });
            own.push(Extra { shape: shape(v)?, part: part.transpose()? });
        }
        extra_words(&shape(out)?, &own)
    }
}

impl<D: Device> Operands<D> {
    /// Whether an input and an output share memory.
    fn aliased(&self, input: usize, output: usize) -> bool {
        let input = self.inputs.get(input).and_then(Option::as_ref);
        let output = self.outputs.get(output).and_then(Option::as_ref);
        input.zip(output).is_some_and(|(a, b)| a.same_start(b))
    }
}

/// Refuses to launch stored launches where shapes, or contents that the host needs, are not those that the build knew.
fn check_known(site: &LaunchSite<'_>, layer: &str) -> Result<(), BackendError> {
    for node in site.nodes.iter().filter_map(|&n| site.graph.get(n)) {
        let inputs =
            node.inputs.iter().enumerate().filter_map(|(i, v)| Some((*v.as_ref()?, node.op.port(i))));
        let inputs = inputs.map(|(v, port)| (v, port.is_some_and(|p| p.host)));
        for (v, host) in inputs.chain(node.outputs.iter().map(|&v| (v, false))) {
            let (built, run) = (&site.graph.value(v).fact, (site.fact)(v));
            if !agrees(built, run, host) {
                return Err(BackendError::InvalidArgument(format!(
                    "layer \"{layer}\": \"{}\" is {} in this run, and the plan was built for {}{}; build the network for such inputs",
                    site.graph.value(v).name,
                    run.ty,
                    built.ty,
                    if host { ", or for other contents" } else { "" }
                )));
            }
        }
    }
    Ok(())
}

/// Whether a run's fact is that of the build, or says more; its contents too where the host needs them.
fn agrees(built: &Fact, run: &Fact, contents: bool) -> bool {
    let same = |(b, r): (&Dim, &Dim)| b.as_const().is_none() || b.as_const() == r.as_const();
    let dims = built.ty.rank() == run.ty.rank() && built.ty.dims.iter().zip(&run.ty.dims).all(same);
    dims && (!contents || built.as_const().is_none_or(|t| run.as_const() == Some(t)))
}

/// The launches of a kernel, checks of its index inputs left out: those that are stored with it, else those that the host's
/// code plans.
fn of_kernel<C>(k: &StepKernel<C>, site: &LaunchSite<'_>, layer: &str) -> Result<Vec<Launch>, BackendError> {
    if let Some(stored) = &k.launches {
        if stored.is_of_one_shape() && stored.fits(site.rounds) {
            check_known(site, layer)?;
        }
        if let Some(launches) = stored.evaluate(site).map_err(|e| at_layer(e, layer))? {
            // Launches of a table are read here for the first time.
            return match launches.iter().all(|l| l.entry < k.maps.len()) {
                true => Ok(launches),
                false => Err(lost(k)),
            };
        }
    }
    match &k.planner {
        Some(planner) => planner.launches(site),
        None => Err(BackendError::Unsupported(format!(
            "layer \"{layer}\": the launches of its kernel (tactic \"{}\") depend on sizes that only a run knows, so that the plan \
             does not hold them, and this backend is run-only; build the plan version-compatible or with fixed shapes, or run it on \
             the backend with code generation",
            k.name
        ))),
    }
}

/// An error of a layer with its name.
fn at_layer(e: BackendError, layer: &str) -> BackendError {
    match e {
        BackendError::InvalidArgument(why) => {
            BackendError::InvalidArgument(format!("layer \"{layer}\": {why}"))
        }
        e => e,
    }
}

/// The error of a launch that refers to an operand that the step does not have.
pub fn lost<C>(k: &StepKernel<C>) -> BackendError {
    BackendError::Internal(format!(
        "{}: a launch refers to an operand that the step does not have ({} inputs, {} extras, {} outputs)",
        k.name,
        k.inputs.len(),
        k.extras.len(),
        k.stored.len()
    ))
}
