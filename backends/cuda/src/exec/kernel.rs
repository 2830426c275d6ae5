//! Loading the kernels of a program.

use super::host::{HostCode, Library};
use super::memory::{PlanNotes, Range, naming};
use super::moves;
use super::queue::CudaQueue;
use crate::driver::{Buffer, Conditional, Gpu, Module, Pinned, at_layer};
use crate::target::{capability, library};
use kiln_backend::flow::Decisions;
use kiln_backend::launch::{NativeKernel, PlanLaunches, PluginKernel};
use kiln_backend::{BackendError, Binding, CompiledKernel, Recent, Region, Step, Target};
use kiln_gpu::{Compiled, Device, Kernels, SharedBuffers};
use kiln_ops::plugin::kernel::Language;
use kiln_ops::plugin::native::NativeDevice;
use std::sync::{Arc, Mutex, PoisonError};

/// Clusters from this size on have to be allowed: every device of sm_90 has those of 8 blocks.
const PORTABLE_CLUSTER: u32 = 9;

/// Iterations that all loops of one thread may make in one launch: launches take any time.
pub const ROUNDS: usize = usize::MAX;

/// Bytes of code that stay loaded, those in use included.
const KEPT_CODE: u64 = 256 << 20;

/// Modules by the hash of their code and entry points: steps of equal code share one. Those that no executable uses are unloaded beyond
/// [`KEPT_CODE`].
pub struct Modules {
    by_code: Recent<blake3::Hash, Module>,
    moves: Mutex<Option<Arc<Module>>>,
}

impl Default for Modules {
    fn default() -> Modules {
        Modules { by_code: Recent::new(KEPT_CODE), moves: Mutex::default() }
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

    /// That kernel, if it was loaded.
    pub fn loaded_moves(&self) -> Option<Arc<Module>> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn get(&self, gpu: &Arc<Gpu>, blob: &[u8]) -> Result<(Arc<Module>, CompiledKernel), BackendError> {
        let kernel = CompiledKernel::from_blob(blob)?;
        // A cubin, or PTX, which is text that ends with a zero.
        let ptx = kernel.arch.ends_with('+') && kernel.code.last() == Some(&0);
        if !(ptx || kernel.code.starts_with(b"\x7fELF")) {
            return Err(BackendError::Incompatible(
                "the blob is no kernel of the cuda backend; build the plan again".into(),
            ));
        }
        let entries: Vec<(String, u32)> =
            kernel.entries.iter().map(|e| (e.name.clone(), e.threads.max(1))).collect();
        // Kernels of several shapes have the same code, and launches of their own.
        let hash = blake3::hash(format!("{entries:?} {}", blake3::hash(&kernel.code)).as_bytes());
        if let Some(m) = self.by_code.get(&hash) {
            return Ok((m, kernel));
        }
        let module = Arc::new(Module::load(gpu, &kernel.code, &entries)?);
        self.by_code.insert(hash, module.clone(), blob.len() as u64);
        Ok((module, kernel))
    }
}

/// An open device with its loaded code.
pub struct CudaGpu {
    pub gpu: Arc<Gpu>,
    pub target: Target,
    pub modules: Modules,
    /// Memory of weights that all programs on the device share.
    pub weights: Arc<SharedBuffers<Buffer>>,
    /// Loads what needs code of the host; none in the run-only form.
    pub host: Option<&'static dyn HostCode>,
}

impl Device for CudaGpu {
    type Buffer = Buffer;
    type Range = Range;
    type Notes = PlanNotes;
    type HostCopy = HostCopy;
    type Queue = CudaQueue;

    const KEEPS_REPLACED: bool = true;
    const BINDS_RANGES: bool = false;
    const ARENA_TAIL: u64 = 0;
    const WEIGHTS_CHUNK: u64 = u64::MAX;

    fn target(&self) -> &Target {
        &self.target
    }

    fn shared_weights(&self) -> &SharedBuffers<Buffer> {
        &self.weights
    }

    fn host_copy(&self, queue: &mut CudaQueue, bytes: &[u8]) -> Result<Option<HostCopy>, BackendError> {
        let what = "page-locked memory of a streamed weight";
        let mut pinned = naming(what, bytes.len() as u64, Pinned::new(&queue.stream, bytes.len()))?;
        pinned.fill(bytes);
        Ok(Some(HostCopy { pinned: Arc::new(pinned), bytes: bytes.len() }))
    }
}

/// A weight in page-locked memory of the host.
pub struct HostCopy {
    pub pinned: Arc<Pinned>,
    pub bytes: usize,
}

/// The code of a step.
#[derive(Default)]
pub struct Code {
    /// None of steps that a library runs.
    pub module: Option<Arc<Module>>,
    /// Runs the step in the place of kernels.
    pub library: Option<Arc<dyn Library>>,
    /// Runs the step in the place of kernels, by a plug-in's library.
    pub native: Option<Arc<NativeKernel>>,
    /// Bindings, in the order in which the parameter has their addresses.
    pub bindings: Vec<Binding>,
    /// Dynamic shared memory of entry points that map nothing, in bytes.
    pub shared: u32,
    /// Whether all blocks of an entry point have to run at once.
    pub together: Vec<bool>,
    /// Whether an entry point has work that does not depend on the kernel in front.
    pub early: Vec<bool>,
    /// Bindings, by bits, that may be cells.
    pub cells: u32,
    /// Whether kernels wait for those in front of them before they touch what these write: code for sm_90 and later.
    pub waits: bool,
}

/// Refusal of a feature that the run-only form lacks, with advice.
fn run_only(lacks: &str, or: &str) -> BackendError {
    BackendError::Unsupported(format!(
        "{lacks}; this CUDA backend is run-only (built without the feature \"compile\" of kiln-backend-cuda): {or}, or load the \
         plan with the backend that has the feature (the default)"
    ))
}

impl CudaGpu {
    fn code(&self, region: &Region, step: &Step) -> Result<Compiled<Code>, BackendError> {
        if let Some(name) = library(&step.tactic) {
            let or = "build the plan without this tactic source";
            let host = self.host.ok_or_else(|| run_only(&format!("it is run by the library {name}"), or))?;
            let library = host.library(region, step, &self.target, &self.gpu)?;
            let operands = host.operands(region, &self.target)?;
            let stored = CompiledKernel { operands: Some(operands), ..CompiledKernel::of(Vec::new()) };
            let code = Code { library: Some(library), ..Code::default() };
            return Ok(Compiled { stored, code, planner: None });
        }
        if let Some(native) = NativeKernel::find(&region.graph, &step.tactic, NativeDevice::Cuda)? {
            let code = Code { native: Some(Arc::new(native)), ..Code::default() };
            return Ok(Compiled { stored: NativeKernel::store(), code, planner: None });
        }
        let (module, stored) = self.modules.get(&self.gpu, step.blob.as_slice())?;
        let planner = self.planner(region, step, &stored)?;
        if stored.shared > 0 {
            (0..stored.entries.len()).try_for_each(|e| module.allow_shared(e, stored.shared))?;
        }
        for (e, entry) in stored.entries.iter().enumerate() {
            if entry.cluster >= PORTABLE_CLUSTER {
                module.allow_large_clusters(e)?;
            }
        }
        let bindings = stored.bindings.clone();
        let other = |b: &&Binding| {
            use Binding::{Arguments, Extra, Input, Output};
            matches!(b, Arguments | Input(_, 1..) | Extra(_, 1..) | Output(_, 1..))
        };
        if bindings.iter().find(other).is_some() {
            return Err(BackendError::Incompatible(format!(
                "its blob binds what no kernel of this backend does (\"{}\"); build the plan again",
                step.tactic.name
            )));
        }
        let together = stored.entries.iter().map(|e| e.together).collect();
        let early = stored.entries.iter().map(|e| e.early).collect();
        let (shared, cells) = (stored.shared, stored.parameter.cells);
        let module = Some(module);
        let waits = capability(&stored.arch) >= 90;
        let code = Code { module, bindings, shared, together, early, cells, waits, ..Code::default() };
        Ok(Compiled { stored, code, planner })
    }

    /// The planner of launches that are not data.
    fn planner(
        &self,
        region: &Region,
        step: &Step,
        stored: &CompiledKernel,
    ) -> Result<Option<Box<dyn PlanLaunches>>, BackendError> {
        if stored.launches.as_ref().is_some_and(|p| p.fits(ROUNDS)) {
            return Ok(None);
        }
        if let Some(kernel) = PluginKernel::find(&region.graph, &step.tactic, Language::Cuda)? {
            return Ok(Some(Box::new(kernel)));
        }
        let host = self.host.ok_or_else(|| {
            run_only(
                "its launches depend on what only a run knows (sizes, contents, a fresh random key), so that the plan does not hold \
                 them",
                "build the plan version-compatible or with fixed shapes",
            )
        })?;
        // The kernel was made for the target of many architectures, by whose numbers its launches are planned.
        let later = self.target.ampere_plus().filter(|t| t.arch == stored.arch);
        host.planner(stored, region, step, later.as_ref().unwrap_or(&self.target)).map(Some)
    }
}

impl Kernels for CudaGpu {
    type Code = Code;

    const DECISIONS: Decisions = Decisions::Sizes;

    fn load(&self, region: &Region, step: &Step) -> Result<Compiled<Code>, BackendError> {
        self.code(region, step).map_err(|e| at_layer(e, &step.name))
    }
}
