//! Loading the kernels of a program.

use super::memory::{Range, RefusedCells};
use super::moves;
use super::queue::CudaQueue;
use crate::dialect::CUDA;
use crate::driver::{Buffer, Conditional, Gpu, Module, at_layer};
use crate::vendor::{self, Library};
use kiln_backend::flow::Decisions;
use kiln_backend::{BackendError, CompiledKernel, Recent, Step, Target};
use kiln_codegen::Dialect;
use kiln_codegen::compiled::slot;
use kiln_codegen::expression::Slot;
use kiln_codegen::site::Site;
use kiln_gpu::{Compiled, Device, Kernels, NO_KERNEL, find};
use std::sync::{Arc, Mutex, PoisonError};

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

    /// That kernel, if it was loaded.
    pub fn loaded_moves(&self) -> Option<Arc<Module>> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

/// An open device with its loaded code.
pub struct CudaGpu {
    pub gpu: Arc<Gpu>,
    pub target: Target,
    pub modules: Modules,
}

impl Device for CudaGpu {
    type Buffer = Buffer;
    type Range = Range;
    type Notes = RefusedCells;
    type Queue = CudaQueue;

    const KEEPS_REPLACED: bool = true;
    const ARENA_TAIL: u64 = 0;
    const WEIGHTS_CHUNK: u64 = u64::MAX;

    fn target(&self) -> &Target {
        &self.target
    }
}

/// The code of a step.
pub struct Code {
    /// None of steps that a library runs.
    pub module: Option<Arc<Module>>,
    /// Runs the step in the place of kernels.
    pub library: Option<Arc<dyn Library>>,
    pub slots: Vec<Slot>,
    /// Dynamic shared memory of entry points that map nothing, in bytes.
    pub shared: u32,
    /// Whether all blocks of an entry point have to run at once.
    pub together: Vec<bool>,
    /// Slots, by bits, that may be cells.
    pub cells: u32,
}

impl CudaGpu {
    fn code(&self, site: &Site<'_>, step: &Step) -> Result<Compiled<Code>, BackendError> {
        if let Some(library) = vendor::load(site, &step.tactic, step.blob.as_slice(), &self.gpu) {
            let (slots, together) = (Vec::new(), Vec::new());
            let code = Code { module: None, library: Some(library?), slots, shared: 0, together, cells: 0 };
            return Ok(Compiled { kernel: &NO_KERNEL, stored: CompiledKernel::of(Vec::new()), code });
        }
        let kernel = find(&step.tactic.name, site)?;
        let (module, stored) = self.modules.get(&self.gpu, step.blob.as_slice())?;
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
        let together = stored.entries.iter().map(|e| e.together).collect();
        let (shared, cells) = (stored.shared, stored.parameter.cells);
        let code = Code { module: Some(module), library: None, slots, shared, together, cells };
        Ok(Compiled { kernel, stored, code })
    }
}

impl Kernels for CudaGpu {
    type Code = Code;

    const DECISIONS: Decisions = Decisions::Sizes;

    fn dialect() -> &'static Dialect {
        &CUDA
    }

    fn load(&self, site: &Site<'_>, step: &Step) -> Result<Compiled<Code>, BackendError> {
        self.code(site, step).map_err(|e| at_layer(e, &step.name))
    }
}
