//! One step, ready to be launched.

use super::moves;
use crate::backend::find;
use crate::dialect::CUDA;
use crate::driver::{Conditional, Gpu, Module, at_layer};
use crate::vendor::{self, Library};
use kiln_backend::{BackendError, CompiledKernel, Program, Recent, Step, Target, flow};
use kiln_codegen::compiled::slot;
use kiln_codegen::expression::Slot;
use kiln_codegen::site::Site;
use kiln_codegen::{Body, Kernel};
use kiln_ir::{DType, Node, NodeId, ValueId};
use std::sync::{Arc, Mutex, PoisonError};

/// The kernel of control flow, which the host walks, and of libraries' steps: it launches nothing.
static WALKED: Kernel = Kernel {
    name: flow::INTERPRETED,
    ops: &[],
    epilogue: false,
    tactics: |_| Ok(Vec::new()),
    source: |_, _| Ok(Body::default()),
    launch: |_| Ok(Vec::new()),
};

/// Clusters from this size on have to be allowed: every device of sm_90 has those of 8 blocks.
const PORTABLE_CLUSTER: u32 = 9;

/// Bytes of code that stay loaded, those in use included.
const KEPT_CODE: u64 = 256 << 20;

/// Modules by the hash of their blob: steps of equal regions share one. Those that no executable uses are unloaded beyond
/// [`KEPT_CODE`].
pub struct Modules {
    by_blob: Recent<blake3::Hash, Module>,
    moves: Mutex<Option<Arc<Module>>>,
}

impl Default for Modules {
    fn default() -> Modules {
        Modules { by_blob: Recent::new(KEPT_CODE), moves: Mutex::default() }
    }
}

impl Modules {
    /// The kernel that copies and decides between the bodies of control flow; none where the driver has no conditional nodes,
    /// or does not link the kernel.
    pub fn moves(&self, gpu: &Arc<Gpu>) -> Result<Option<Arc<Module>>, BackendError> {
        if Conditional::get().is_none() {
            return Ok(None);
        }
        let mut loaded = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.is_none() {
            *loaded = match moves::load(gpu).map_err(BackendError::from) {
                Ok(m) => Some(m),
                Err(BackendError::Incompatible(why)) => {
                    tracing::warn!("control flow is left to the host: {why}");
                    return Ok(None);
                }
                Err(e) => return Err(e),
            };
        }
        Ok(loaded.clone())
    }

    fn get(&self, gpu: &Arc<Gpu>, blob: &[u8]) -> Result<(Arc<Module>, CompiledKernel), BackendError> {
        let kernel = CompiledKernel::from_blob(blob)?;
        if !kernel.code.starts_with(b"\x7fELF") {
            return Err(BackendError::Incompatible(
                "the blob is no kernel of the cuda backend; build the plan again".into(),
            ));
        }
        let hash = blake3::hash(blob);
        if let Some(m) = self.by_blob.get(&hash) {
            return Ok((m, kernel));
        }
        let entries: Vec<(String, u32)> =
            kernel.entries.iter().map(|e| (e.name.clone(), e.threads.max(1))).collect();
        let module = Arc::new(Module::load(gpu, &kernel.code, &entries)?);
        self.by_blob.insert(hash, module.clone(), blob.len() as u64);
        Ok((module, kernel))
    }
}

/// A step with its module, its values named as in the program.
pub struct StepKernel {
    pub kernel: &'static Kernel,
    /// None of steps that the host walks or a library runs.
    pub module: Option<Arc<Module>>,
    /// Runs the step in the place of kernels.
    pub library: Option<Arc<dyn Library>>,
    pub slots: Vec<Slot>,
    /// Dynamic shared memory of entry points that map nothing, in bytes.
    pub shared: u32,
    /// For each entry point, the output that it maps.
    pub maps: Vec<Option<usize>>,
    /// For each entry point, whether all of its blocks have to run at once.
    pub together: Vec<bool>,
    /// Slots, by bits, that may be cells.
    pub cells: u32,
    /// The anchor, its inputs and outputs.
    pub anchor: Option<NodeId>,
    pub inputs: Vec<Option<ValueId>>,
    /// Moves in front of the inputs that the kernel sees through; all empty, or one list an input.
    pub moves: Vec<Vec<NodeId>>,
    pub results: Vec<ValueId>,
    /// Values that the expression reads beside the anchor's result.
    pub extras: Vec<ValueId>,
    /// Values that are stored, with their types.
    pub stored: Vec<(ValueId, DType)>,
    /// Is a result read by anyone?
    pub wanted: Vec<bool>,
    /// Stored values that the kernel does not write, as nobody reads them.
    pub unwritten: Vec<usize>,
    /// Index inputs that its last entry points check.
    pub checks: Vec<usize>,
    /// Do pointwise operators follow the anchor?
    pub fused: bool,
    /// Does it give other results at each run?
    pub random: bool,
    /// What an assertion says when it fails.
    pub assertion: Option<String>,
    /// Are the sizes of outputs known to the device only?
    pub data_dependent: bool,
}

/// What runs a region, whatever its values are called.
struct Code {
    kernel: &'static Kernel,
    module: Option<Arc<Module>>,
    library: Option<Arc<dyn Library>>,
    slots: Vec<Slot>,
    shared: u32,
    maps: Vec<Option<usize>>,
    together: Vec<bool>,
    cells: u32,
    unwritten: Vec<usize>,
    checks: Vec<usize>,
}

impl Code {
    fn load(gpu: &Arc<Gpu>, modules: &Modules, site: &Site<'_>, step: &Step) -> Result<Code, BackendError> {
        if let Some(library) = vendor::load(site, &step.tactic, step.blob.as_slice(), gpu) {
            let (slots, maps) = (Vec::new(), Vec::new());
            return Ok(Code {
                kernel: &WALKED,
                module: None,
                library: Some(library?),
                slots,
                shared: 0,
                maps,
                together: Vec::new(),
                cells: 0,
                unwritten: Vec::new(),
                checks: Vec::new(),
            });
        }
        let kernel = find(&step.tactic.name, site)?;
        let (module, stored) = modules.get(gpu, step.blob.as_slice())?;
        if stored.shared > 0 {
            (0..stored.entries.len()).try_for_each(|e| module.allow_shared(e, stored.shared))?;
        }
        for (e, entry) in stored.entries.iter().enumerate() {
            if entry.cluster >= PORTABLE_CLUSTER {
                module.allow_large_clusters(e)?;
            }
        }
        let slots: Option<Vec<Slot>> = stored.bindings.iter().map(slot).collect();
        let slots = slots.ok_or_else(|| {
            BackendError::Incompatible(format!(
                "its blob binds what no kernel of this backend does (\"{}\"); build the plan again",
                kernel.name
            ))
        })?;
        let numbers = |all: Vec<u32>| all.into_iter().map(|n| n as usize).collect();
        Ok(Code {
            kernel,
            module: Some(module),
            library: None,
            slots,
            shared: stored.shared,
            maps: stored.entries.iter().map(|e| e.maps.map(|j| j as usize)).collect(),
            together: stored.entries.iter().map(|e| e.together).collect(),
            cells: stored.parameter.cells,
            unwritten: numbers(stored.unwritten),
            checks: numbers(stored.checks),
        })
    }
}

impl StepKernel {
    pub fn load(
        gpu: &Arc<Gpu>,
        modules: &Modules,
        target: &Target,
        program: &Program,
        step: &Step,
    ) -> Result<StepKernel, BackendError> {
        if let Some(node) = flow::node(&program.graph, step) {
            return Ok(StepKernel::walked(program, node));
        }
        let region = program.region(step)?;
        let site = Site::of(&region.graph, target, &CUDA)?;
        let code = Code::load(gpu, modules, &site, step).map_err(|e| at_layer(e, &step.name))?;
        let anchor = site.anchor.and_then(|(k, _)| step.nodes.get(k).copied());
        let node = anchor.and_then(|n| program.graph.get(n));
        let results: Vec<ValueId> = node.map(|n| n.outputs.clone()).unwrap_or_default();
        let stored = if site.fused.is_some() { region.outputs.clone() } else { results.clone() };
        let outer = |inner: &ValueId| {
            let at = region.graph.inputs.iter().position(|v| v == inner);
            at.and_then(|i| region.inputs.get(i).copied())
        };
        let extras: Option<Vec<ValueId>> = site.extras.iter().map(outer).collect();
        let nodes = |at: &Vec<usize>| at.iter().filter_map(|&k| step.nodes.get(k).copied()).collect();
        let wanted = results.iter().map(|v| region.outputs.contains(v)).collect();
        Ok(StepKernel {
            kernel: code.kernel,
            module: code.module,
            library: code.library,
            slots: code.slots,
            shared: code.shared,
            maps: code.maps,
            together: code.together,
            cells: code.cells,
            anchor,
            inputs: node.map(|n| n.inputs.clone()).unwrap_or_default(),
            moves: site.moves.iter().map(nodes).collect(),
            wanted,
            unwritten: code.unwritten,
            checks: code.checks,
            results,
            extras: extras.ok_or_else(|| BackendError::Internal("an extra that is no input".into()))?,
            stored: stored.into_iter().map(|v| (v, program.graph.ty(v).dtype)).collect(),
            fused: site.fused.is_some(),
            random: node.is_some_and(|n| kiln_ops::generate::random::is_fresh(&n.op)),
            assertion: node
                .filter(|n| n.op.is("assertion"))
                .map(|n| n.op.attrs().str("message").unwrap_or_default().to_owned()),
            data_dependent: node.is_some_and(|n| n.op.def().traits.data_dependent),
        })
    }

    /// Is a value stored by the kernel?
    pub fn writes(&self, value: ValueId) -> bool {
        self.stored.iter().enumerate().any(|(j, (v, _))| *v == value && !self.unwritten.contains(&j))
    }

    /// The name that errors of the step give: of the anchor, else of the step.
    pub fn layer<'p>(&self, program: &'p Program, step: usize) -> &'p str {
        let anchor = self.anchor.and_then(|n| program.graph.get(n)).map(|n| &*n.name);
        anchor.or_else(|| program.steps.get(step).map(|s| &*s.name)).unwrap_or_default()
    }

    /// Of control flow: nothing to launch, but outputs to keep.
    fn walked(program: &Program, node: &Node) -> StepKernel {
        StepKernel {
            kernel: &WALKED,
            module: None,
            library: None,
            slots: Vec::new(),
            shared: 0,
            maps: Vec::new(),
            together: Vec::new(),
            cells: 0,
            anchor: None,
            inputs: node.inputs.clone(),
            moves: Vec::new(),
            wanted: Vec::new(),
            unwritten: Vec::new(),
            checks: Vec::new(),
            results: node.outputs.clone(),
            extras: Vec::new(),
            stored: node.outputs.iter().map(|&v| (v, program.graph.ty(v).dtype)).collect(),
            fused: false,
            random: false,
            assertion: None,
            data_dependent: false,
        }
    }
}
