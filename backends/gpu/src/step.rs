//! One step, ready to be launched.

use crate::device::Device;
use kiln_backend::flow::{self, Decisions};
use kiln_backend::host_layer;
use kiln_backend::launch::{KernelOperands, LaunchProgram, PlanLaunches, RegionValue};
use kiln_backend::{BackendError, CompiledKernel, Program, Region, Step};
use kiln_ir::{DType, NodeId, ValueId};
use kiln_ops::generate::ASSERTION;

/// A device that loads compiled kernels.
pub trait Kernels: Device {
    /// The code of a loaded step.
    type Code: Send + Sync;

    /// The decisions about control flow that the host takes.
    const DECISIONS: Decisions;

    /// Loads what a step was compiled to.
    fn load(&self, region: &Region, step: &Step) -> Result<Compiled<Self::Code>, BackendError>;
}

/// A loaded kernel.
pub struct Compiled<C> {
    /// The form in which plans store it, with its operands; the launches are taken from here if it has any.
    pub stored: CompiledKernel,
    /// The code.
    pub code: C,
    /// Plans launches that are not data; none where the backend has no code for that.
    pub planner: Option<Box<dyn PlanLaunches>>,
}

/// A step with its code, its values named as in the program.
pub struct StepKernel<C> {
    /// The name of the tactic.
    pub name: String,
    /// The code; none of control flow.
    pub code: Option<C>,
    /// The launches as data.
    pub launches: Option<LaunchProgram>,
    /// Plans the launches that are not data.
    pub planner: Option<Box<dyn PlanLaunches>>,
    /// Operands by positions in the region.
    pub operands: KernelOperands,
    /// The output that each entry point maps.
    pub maps: Vec<Option<usize>>,
    /// The anchor.
    pub anchor: Option<NodeId>,
    /// The anchor's inputs.
    pub inputs: Vec<Option<ValueId>>,
    /// The first of the nodes in front of each input that the kernel reads through.
    pub sources: Vec<Option<NodeId>>,
    /// The anchor's outputs.
    pub results: Vec<ValueId>,
    /// Values that the expression reads beside the anchor's result.
    pub extras: Vec<ValueId>,
    /// The value whose shape says how each of them is read.
    pub extra_shapes: Vec<ValueId>,
    /// The slice that each of them is read through.
    pub extra_slices: Vec<Option<NodeId>>,
    /// Values that are stored, with their types.
    pub stored: Vec<(ValueId, DType)>,
    /// The part of stored output 0 that the kernel computes, if that is not all of it.
    pub part: Option<ValueId>,
    /// Whether each result is read by anyone.
    pub wanted: Vec<bool>,
    /// Stored values that the kernel does not write, as nobody reads them.
    pub unwritten: Vec<usize>,
    /// Index inputs that its last entry points check.
    pub checks: Vec<usize>,
    /// Whether its other launches check them, where it has a result.
    pub checking: bool,
    /// Whether each run has other results.
    pub random: bool,
    /// The message of an assertion.
    pub assertion: Option<String>,
    /// Whether only the device knows the sizes of outputs.
    pub data_dependent: bool,
    /// The plug-in layer that the host runs in the place of kernels.
    pub on_host: Option<NodeId>,
}

impl<C> StepKernel<C> {
    /// Loads a step.
    pub fn load<D: Kernels<Code = C>>(
        device: &D,
        program: &Program,
        step: &Step,
    ) -> Result<StepKernel<C>, BackendError> {
        let graph = &program.graph;
        let typed = |all: Vec<ValueId>| all.into_iter().map(|v| (v, graph.ty(v).dtype)).collect();
        if let Some(node) = flow::node(graph, step) {
            return Ok(StepKernel {
                inputs: node.inputs.clone(),
                results: node.outputs.clone(),
                stored: typed(node.outputs.clone()),
                ..StepKernel::empty()
            });
        }
        if let Some((id, node)) = host_layer::node(graph, step) {
            return Ok(StepKernel {
                name: host_layer::ON_HOST.to_owned(),
                anchor: Some(id),
                on_host: Some(id),
                inputs: node.inputs.clone(),
                results: node.outputs.clone(),
                stored: typed(node.outputs.clone()),
                ..StepKernel::empty()
            });
        }
        let region = program.region(step)?;
        let Compiled { stored, code, planner } = device.load(&region, step)?;
        let operands = stored.operands.ok_or_else(|| lost(step))?;
        let positions = |all: &[u32]| all.iter().map(|&n| n as usize).collect();
        let id = |at: u32| step.nodes.get(at as usize).copied().ok_or_else(|| lost(step));
        let anchor = operands.anchor.map(id).transpose()?;
        operands.moves.iter().flatten().try_for_each(|&at| id(at).map(drop))?;
        let sources = operands.moves.iter().map(|m| m.first().copied().map(id).transpose());
        let sources = sources.collect::<Result<_, _>>()?;
        let node = anchor.and_then(|n| graph.get(n));
        let results: Vec<ValueId> = node.map(|n| n.outputs.clone()).unwrap_or_default();
        let input = |at: u32| region.inputs.get(at as usize).copied();
        let value = |v: &RegionValue| match *v {
            RegionValue::Input(at) => input(at),
            RegionValue::Result(node, output) => {
                graph.get(id(node).ok()?)?.outputs.get(output as usize).copied()
            }
        };
        let extras: Option<Vec<ValueId>> = operands.extras.iter().map(|&at| input(at)).collect();
        let shapes: Option<Vec<ValueId>> = operands.extra_shapes.iter().map(value).collect();
        let slices = operands.extra_slices.iter().map(|at| at.map(id).transpose());
        let extra_slices = slices.collect::<Result<_, _>>()?;
        let insert = operands.insert.map(id).transpose()?.and_then(|n| graph.get(n));
        let part =
            insert.map(|n| n.inputs.get(1).copied().flatten().ok_or_else(|| lost(step))).transpose()?;
        let written =
            if operands.fused || operands.side.is_some() { region.outputs.clone() } else { results.clone() };
        Ok(StepKernel {
            name: step.tactic.name.clone(),
            code: Some(code),
            launches: stored.launches,
            planner,
            maps: stored.entries.iter().map(|e| e.maps.map(|j| j as usize)).collect(),
            anchor,
            inputs: node.map(|n| n.inputs.clone()).unwrap_or_default(),
            sources,
            wanted: results.iter().map(|v| region.outputs.contains(v)).collect(),
            unwritten: positions(&stored.unwritten),
            checks: positions(&stored.checks),
            checking: stored.checking,
            stored: typed(written),
            part,
            results,
            extras: extras.ok_or_else(|| lost(step))?,
            extra_shapes: shapes.ok_or_else(|| lost(step))?,
            extra_slices,
            operands,
            random: node.is_some_and(|n| kiln_ops::generate::random::is_fresh(&n.op)),
            assertion: node
                .filter(|n| n.op.is(ASSERTION))
                .map(|n| n.op.attrs().str("message").unwrap_or_default().to_owned()),
            data_dependent: node.is_some_and(|n| n.op.def().traits.data_dependent),
            on_host: None,
        })
    }

    /// A step that launches nothing by itself.
    pub(crate) fn empty() -> StepKernel<C> {
        StepKernel {
            name: flow::INTERPRETED.to_owned(),
            code: None,
            launches: None,
            planner: None,
            operands: KernelOperands::default(),
            maps: Vec::new(),
            anchor: None,
            inputs: Vec::new(),
            sources: Vec::new(),
            results: Vec::new(),
            extras: Vec::new(),
            extra_shapes: Vec::new(),
            extra_slices: Vec::new(),
            stored: Vec::new(),
            part: None,
            wanted: Vec::new(),
            unwritten: Vec::new(),
            checks: Vec::new(),
            checking: false,
            random: false,
            assertion: None,
            data_dependent: false,
            on_host: None,
        }
    }

    /// The value whose elements the kernel computes for a stored output.
    pub fn computed(&self, output: usize) -> Option<ValueId> {
        let whole = self.stored.get(output).map(|(v, _)| *v);
        self.part.filter(|_| output == 0).or(whole)
    }

    /// Elements of a stored output that one thread of a map computes.
    pub fn lanes(&self, output: usize) -> u64 {
        self.operands.lanes.get(output).copied().unwrap_or(1).max(1).into()
    }

    /// The first input of the nodes in front of an input that the kernel reads through; none where there are no nodes.
    pub fn source(&self, program: &Program, input: usize) -> Option<Option<ValueId>> {
        let first = self.sources.get(input).copied().flatten()?;
        Some(program.graph.get(first).and_then(|n| n.inputs.first().copied().flatten()))
    }

    /// Whether the kernel stores a value.
    pub fn writes(&self, value: ValueId) -> bool {
        self.stored.iter().enumerate().any(|(j, (v, _))| *v == value && !self.unwritten.contains(&j))
    }

    /// The name that errors of the step give: of the anchor, else of the step.
    pub fn layer<'p>(&self, program: &'p Program, step: usize) -> &'p str {
        let anchor = self.anchor.and_then(|n| program.graph.get(n)).map(|n| &*n.name);
        anchor.or_else(|| program.steps.get(step).map(|s| &*s.name)).unwrap_or_default()
    }
}

fn lost(step: &Step) -> BackendError {
    BackendError::Incompatible(format!(
        "step \"{}\": its blob has operands that are no values of the step; build the plan again",
        step.name
    ))
}
