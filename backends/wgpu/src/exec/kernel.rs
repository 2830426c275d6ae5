//! One step, ready to be launched.

use crate::backend::find;
use crate::dialect::WGSL;
use crate::gpu::{Gpu, Module};
use crate::wgsl::{Head, Slot, types};
use kiln_backend::{BackendError, CompiledKernel, Program, Step, flow};
use kiln_codegen::site::Site;
use kiln_codegen::{Body, Kernel};
use kiln_ir::{DType, Node, NodeId, ValueId};
use std::sync::Arc;

/// The kernel of control flow, which the host walks: it launches nothing.
static WALKED: Kernel = Kernel {
    name: flow::INTERPRETED,
    ops: &[],
    epilogue: false,
    tactics: |_| Ok(Vec::new()),
    source: |_, _| Ok(Body::default()),
    launch: |_| Ok(Vec::new()),
};

/// How many bindings a module's text declares.
fn bindings(text: &str) -> Option<usize> {
    Some(Head::parse(text)?.bindings as usize)
}

/// A step with its pipelines, its values named as in the program.
pub struct StepKernel {
    pub kernel: &'static Kernel,
    pub module: Arc<Module>,
    pub slots: Vec<Slot>,
    /// For each entry point, the output that it maps.
    pub maps: Vec<Option<usize>>,
    /// The anchor, its inputs and outputs.
    pub anchor: Option<NodeId>,
    pub inputs: Vec<Option<ValueId>>,
    pub results: Vec<ValueId>,
    /// Values that the expression reads beside the anchor's result.
    pub extras: Vec<ValueId>,
    /// For each of them, the value whose shape tells how it is read.
    pub lies: Vec<ValueId>,
    /// Values that are stored, with their types.
    pub stored: Vec<(ValueId, DType)>,
    /// Do pointwise operators follow the anchor?
    pub fused: bool,
    /// Does it give other results at each run?
    pub random: bool,
    /// Index inputs that its last entry points check.
    pub checks: Vec<usize>,
    /// What an assertion says when it fails.
    pub assertion: Option<String>,
}

impl StepKernel {
    pub fn load(gpu: &Gpu, program: &Program, step: &Step) -> Result<StepKernel, BackendError> {
        if let Some(node) = flow::node(&program.graph, step) {
            return StepKernel::walked(gpu, program, node);
        }
        let region = program.region(step)?;
        let site = Site::of(&region.graph, &gpu.target, &WGSL)?;
        let kernel = find(&step.tactic.name, &site)?;
        let compiled = CompiledKernel::from_blob(step.blob.as_slice())?;
        let text = std::str::from_utf8(&compiled.code).map_err(|_| {
            BackendError::Incompatible(format!("step \"{}\": the blob has no text", step.name))
        })?;
        let module = gpu.module(text)?;
        let anchor = site.anchor.and_then(|(k, _)| step.nodes.get(k).copied());
        let node = anchor.and_then(|n| program.graph.get(n));
        let results: Vec<ValueId> = node.map(|n| n.outputs.clone()).unwrap_or_default();
        let stored = if site.fused.is_some() { region.outputs.clone() } else { results.clone() };
        let outer = |inner: &ValueId| {
            let at = region.graph.inputs.iter().position(|v| v == inner);
            at.and_then(|i| region.inputs.get(i).copied())
        };
        let extras: Option<Vec<ValueId>> = site.extras.iter().map(outer).collect();
        let inside = |inner: &ValueId| {
            let found = region
                .graph
                .nodes()
                .enumerate()
                .find_map(|(k, (_, n))| Some((k, n.outputs.iter().position(|v| v == inner)?)));
            let (k, output) = found?;
            program.graph.get(*step.nodes.get(k)?)?.outputs.get(output).copied()
        };
        let lies: Option<Vec<ValueId>> = site.lies.iter().map(|v| outer(v).or_else(|| inside(v))).collect();
        let slots: Vec<Slot> = compiled.bindings.iter().map(Slot::of).collect();
        if module.pipelines.len() != compiled.entries.len() || Some(slots.len()) != bindings(text) {
            return Err(BackendError::Incompatible(format!(
                "step \"{}\": its blob is of another version of \"{}\"; build the plan again",
                step.name, kernel.name
            )));
        }
        Ok(StepKernel {
            kernel,
            module,
            slots,
            maps: compiled.entries.iter().map(|e| e.maps.map(|j| j as usize)).collect(),
            anchor,
            inputs: node.map(|n| n.inputs.clone()).unwrap_or_default(),
            results,
            extras: extras.ok_or_else(|| BackendError::Internal("an extra that is no input".into()))?,
            lies: lies.ok_or_else(|| BackendError::Internal("a view that is no value".into()))?,
            stored: stored.into_iter().map(|v| (v, program.graph.ty(v).dtype)).collect(),
            fused: site.fused.is_some(),
            random: node.is_some_and(|n| kiln_ops::generate::random::is_fresh(&n.op)),
            checks: compiled.checks.into_iter().map(|i| i as usize).collect(),
            assertion: node
                .filter(|n| n.op.is("assertion"))
                .map(|n| n.op.attrs().str("message").unwrap_or_default().to_owned()),
        })
    }

    /// How many pieces the tensor of a slot is bound in.
    pub fn pieces(&self, slot: Slot) -> usize {
        let same = |s: &&Slot| match (slot, **s) {
            (Slot::Input(a, _), Slot::Input(b, _))
            | (Slot::Extra(a, _), Slot::Extra(b, _))
            | (Slot::Output(a, _), Slot::Output(b, _)) => a == b,
            (a, b) => a == b,
        };
        self.slots.iter().filter(same).count()
    }

    /// The name that errors of the step give: of the anchor, else of the step.
    pub fn layer<'p>(&self, program: &'p Program, step: usize) -> &'p str {
        let anchor = self.anchor.and_then(|n| program.graph.get(n)).map(|n| &*n.name);
        anchor.or_else(|| program.steps.get(step).map(|s| &*s.name)).unwrap_or_default()
    }

    /// Of control flow: nothing to launch, but outputs to keep.
    fn walked(gpu: &Gpu, program: &Program, node: &Node) -> Result<StepKernel, BackendError> {
        Ok(StepKernel {
            kernel: &WALKED,
            module: gpu.nothing()?,
            slots: Vec::new(),
            maps: Vec::new(),
            anchor: None,
            inputs: node.inputs.clone(),
            results: node.outputs.clone(),
            extras: Vec::new(),
            lies: Vec::new(),
            stored: node.outputs.iter().map(|&v| (v, program.graph.ty(v).dtype)).collect(),
            fused: false,
            random: false,
            checks: Vec::new(),
            assertion: None,
        })
    }

    /// Elements of an output that one thread of a map makes.
    pub fn lanes(&self, output: usize) -> u64 {
        self.stored.get(output).map_or(1, |&(_, t)| types::lanes(t).into())
    }
}
