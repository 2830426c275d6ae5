//! Options of the provider, and what they mean for builds.

use kiln::{DType, HardwareCompatibility, MemoryPool, ShapeRequest, Sparsity};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::PathBuf;

/// Name of the provider.
pub const NAME: &CStr = c"KilnExecutionProvider";

/// Start of the names of options in sessions.
pub const PREFIX: &str = "ep.kilnexecutionprovider.";

/// Options of a session.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub backend: Option<String>,
    pub fallback: Option<String>,
    pub device: Option<String>,
    pub types: Vec<DType>,
    pub level: Option<usize>,
    pub workspace: Option<u64>,
    pub sparsity: bool,
    pub min_subgraph: usize,
    pub engine_cache: bool,
    pub engine_cache_path: Option<PathBuf>,
    pub engine_cache_prefix: String,
    pub timing_cache: bool,
    pub timing_cache_path: Option<PathBuf>,
    pub min: Shapes,
    pub opt: Shapes,
    pub max: Shapes,
    pub plugins: Option<PathBuf>,
    /// Libraries of layers.
    pub layers: Vec<PathBuf>,
    /// Ranges of tensors for codes of 8 bits.
    pub ranges: BTreeMap<String, [f32; 2]>,
    pub strict_times: bool,
    pub compatible: bool,
    pub tactic_sources: Vec<String>,
    /// Operators that stay with others.
    pub excluded: Vec<String>,
    pub dump_subgraphs: bool,
    /// Options that have no effect, with the reason.
    pub notes: Vec<String>,
    pub detailed_log: bool,
    pub context_enable: bool,
    pub context_embed: bool,
    pub context_path: Option<PathBuf>,
    /// Options that change what is built, as text: part of the key of a stored engine.
    pub key: String,
}

/// Shapes by input.
pub type Shapes = BTreeMap<String, Vec<i64>>;

impl Options {
    /// The shapes that the options give for these inputs.
    pub fn shapes(&self, inputs: &[String]) -> ShapeRequest {
        let mut request = ShapeRequest::default();
        for name in inputs {
            self.min.get(name).map(|d| request.min(name, d));
            self.opt.get(name).map(|d| request.opt(name, d));
            self.max.get(name).map(|d| request.max(name, d));
        }
        request
    }

    /// Sets what a build of Kiln needs to know.
    pub fn apply(&self, build: &mut kiln::BuildOptions) {
        build.backend.clone_from(&self.backend);
        build.fallback.clone_from(&self.fallback);
        build.config.reduced.clone_from(&self.types);
        if let Some(level) = self.level {
            build.config.set_optimization_level(level);
        }
        if let Some(bytes) = self.workspace {
            build.config.pools.insert(MemoryPool::Workspace, bytes);
        }
        if self.sparsity {
            build.config.sparsity = Sparsity::Enable;
        }
        if self.compatible {
            build.hardware_compatibility = HardwareCompatibility::AmperePlus;
        }
        build.strict_times = self.strict_times;
        build.config.ranges.extend(self.ranges.clone());
        build.config.tactic_sources.clone_from(&self.tactic_sources);
        if self.timing_cache {
            let folder = self.timing_cache_path.clone().unwrap_or_else(|| self.folder());
            build.timing_cache = Some(folder.join("kiln.timing"));
        }
    }

    /// The folder of stored engines.
    pub fn folder(&self) -> PathBuf {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let cache =
            std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute()).or_else(home);
        let usual = cache.unwrap_or_else(std::env::temp_dir).join("kiln").join("onnxruntime");
        self.engine_cache_path.clone().unwrap_or(usual)
    }
}
