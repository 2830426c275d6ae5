//! One step, ready to be launched.

use crate::device::Device;
use kiln_backend::flow::{self, Decisions};
use kiln_backend::{BackendError, CompiledKernel, Program, Step};
use kiln_codegen::site::Site;
use kiln_codegen::{Body, Dialect, Kernel};
use kiln_ir::{DType, NodeId, ValueId};

/// The kernel of steps that launch nothing by themselves: control flow, and steps that a library runs.
pub static NO_KERNEL: Kernel = Kernel {
    name: flow::INTERPRETED,
    ops: &[],
    epilogue: false,
    tactics: |_| Ok(Vec::new()),
    source: |_, _| Ok(Body::default()),
    launch: |_| Ok(Vec::new()),
};

/// A device that loads compiled kernels.
pub trait Kernels: Device {
    /// The code of a loaded step.
    type Code: Send + Sync;

    /// The decisions about control flow that the host takes.
    const DECISIONS: Decisions;

    /// The language of the kernels.
    fn dialect() -> &'static Dialect;

    /// Loads what a step was compiled to.
    fn load(&self, site: &Site<'_>, step: &Step) -> Result<Compiled<Self::Code>, BackendError>;
}

/// The kernel of a tactic's name.
pub fn find(name: &str, site: &Site<'_>) -> Result<&'static Kernel, BackendError> {
    site.kernels().find(|k| k.name == name).ok_or_else(|| {
        BackendError::Incompatible(format!(
            "this backend has no tactic \"{name}\" for the region; build the plan again"
        ))
    })
}

/// A loaded kernel.
pub struct Compiled<C> {
    /// Plans its launches.
    pub kernel: &'static Kernel,
    /// The form in which plans store it.
    pub stored: CompiledKernel,
    /// The code.
    pub code: C,
}

/// A step with its code, its values named as in the program.
pub struct StepKernel<C> {
    /// Plans the launches.
    pub kernel: &'static Kernel,
    /// The code; none of control flow.
    pub code: Option<C>,
    /// The output that each entry point maps.
    pub maps: Vec<Option<usize>>,
    /// The anchor.
    pub anchor: Option<NodeId>,
    /// The anchor's inputs.
    pub inputs: Vec<Option<ValueId>>,
    /// Nodes in front of the inputs that the kernel reads through; all empty, or one list an input.
    pub moves: Vec<Vec<NodeId>>,
    /// The anchor's outputs.
    pub results: Vec<ValueId>,
    /// Values that the expression reads beside the anchor's result.
    pub extras: Vec<ValueId>,
    /// The value whose shape says how each of them is read.
    pub extra_shapes: Vec<ValueId>,
    /// Values that are stored, with their types.
    pub stored: Vec<(ValueId, DType)>,
    /// Whether each result is read by anyone.
    pub wanted: Vec<bool>,
    /// Stored values that the kernel does not write, as nobody reads them.
    pub unwritten: Vec<usize>,
    /// Index inputs that its last entry points check.
    pub checks: Vec<usize>,
    /// Whether pointwise operators follow the anchor.
    pub fused: bool,
    /// Whether each run has other results.
    pub random: bool,
    /// The message of an assertion.
    pub assertion: Option<String>,
    /// Whether only the device knows the sizes of outputs.
    pub data_dependent: bool,
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
        let region = program.region(step)?;
        let site = Site::of(&region.graph, device.target(), D::dialect())?;
        let Compiled { kernel, stored, code } = device.load(&site, step)?;
        let positions = |all: &[u32]| all.iter().map(|&n| n as usize).collect();
        let anchor = site.anchor.and_then(|(k, _)| step.nodes.get(k).copied());
        let node = anchor.and_then(|n| graph.get(n));
        let results: Vec<ValueId> = node.map(|n| n.outputs.clone()).unwrap_or_default();
        let outer = |inner: &ValueId| {
            let at = region.graph.inputs.iter().position(|v| v == inner);
            at.and_then(|i| region.inputs.get(i).copied())
        };
        let inside = |inner: &ValueId| {
            let mut nodes = region.graph.nodes().enumerate();
            let (k, output) =
                nodes.find_map(|(k, (_, n))| Some((k, n.outputs.iter().position(|v| v == inner)?)))?;
            graph.get(*step.nodes.get(k)?)?.outputs.get(output).copied()
        };
        let extras: Option<Vec<ValueId>> = site.extras.iter().map(outer).collect();
        let shapes: Option<Vec<ValueId>> = site.lies.iter().map(|v| outer(v).or_else(|| inside(v))).collect();
        let lost = || BackendError::Internal(format!("step \"{}\": an operand is no value of it", step.name));
        let nodes = |at: &Vec<usize>| at.iter().filter_map(|&k| step.nodes.get(k).copied()).collect();
        Ok(StepKernel {
            kernel,
            code: Some(code),
            maps: stored.entries.iter().map(|e| e.maps.map(|j| j as usize)).collect(),
            anchor,
            inputs: node.map(|n| n.inputs.clone()).unwrap_or_default(),
            moves: site.moves.iter().map(nodes).collect(),
            wanted: results.iter().map(|v| region.outputs.contains(v)).collect(),
            unwritten: positions(&stored.unwritten),
            checks: positions(&stored.checks),
            stored: typed(if site.fused.is_some() { region.outputs.clone() } else { results.clone() }),
            results,
            extras: extras.ok_or_else(lost)?,
            extra_shapes: shapes.ok_or_else(lost)?,
            fused: site.fused.is_some(),
            random: node.is_some_and(|n| kiln_ops::generate::random::is_fresh(&n.op)),
            assertion: node
                .filter(|n| n.op.is("assertion"))
                .map(|n| n.op.attrs().str("message").unwrap_or_default().to_owned()),
            data_dependent: node.is_some_and(|n| n.op.def().traits.data_dependent),
        })
    }

    fn empty() -> StepKernel<C> {
        StepKernel {
            kernel: &NO_KERNEL,
            code: None,
            maps: Vec::new(),
            anchor: None,
            inputs: Vec::new(),
            moves: Vec::new(),
            results: Vec::new(),
            extras: Vec::new(),
            extra_shapes: Vec::new(),
            stored: Vec::new(),
            wanted: Vec::new(),
            unwritten: Vec::new(),
            checks: Vec::new(),
            fused: false,
            random: false,
            assertion: None,
            data_dependent: false,
        }
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
