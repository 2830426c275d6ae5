//! Options of a build.

use crate::{MemoryPool, Monitor, Refit, Selector, TacticRule};
use kiln_ir::{DType, Formats};
use kiln_plan::{DeviceLimit, Profile};
use std::collections::BTreeMap;

/// Called as a build goes on: phase, steps done, steps in all. Returning false cancels the build.
pub type Progress<'a> = &'a mut dyn FnMut(&str, usize, usize) -> bool;

/// Strictness of the types that layers ask for (`set_precision`, `set_output_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Constraints {
    /// Wishes: met if [`BuildConfig::reduced`] permits the type and no other type is faster. The build notes which are not.
    #[default]
    None,
    /// Preferences: met, faster or not, if the type is permitted and there is a kernel. The build notes which are not.
    Prefer,
    /// Constraints: a type that cannot be had fails the build. No permission is needed.
    Obey,
}

/// Choice of layers that run in the types of [`BuildConfig::reduced`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Narrowing {
    /// Layers that are faster by the times taken, casts included.
    #[default]
    Faster,
    /// All layers whose operator and backend permit it, without timing: for comparisons between backends.
    Everywhere,
}

/// Use of weights of which two of four neighbours along the depth at most are not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparsity {
    /// None: such weights are multiplied as others are.
    #[default]
    Disable,
    /// Kernels on packed weights for layers whose weights are so, where they are faster. They skip the zeros, so that infinities and
    /// NaN in the other operand are not seen there.
    Enable,
    /// Sparse kernels where they are faster, after all products and convolutions are pruned: of four neighbouring weights the two of
    /// greatest magnitude stay. The build notes what that takes from each layer's weights.
    Force,
}

/// Types asked of layers by name, like `Layer::set_precision` and `Layer::set_output_type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerTypes {
    /// The name of a layer, or a pattern in which `*` stands for any characters. Of several that fit a layer, a name comes before
    /// patterns and a longer pattern before shorter ones. Patterns leave layers without floats alone.
    pub layers: String,
    /// The type to compute in.
    pub precision: Option<DType>,
    /// Types of the outputs, by position; a single one counts for all outputs.
    pub outputs: Vec<DType>,
}

/// Type and formats of one input or output, as the caller has it in memory. What is left out stays as the network has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoSpec {
    /// Element type: f32, f16 or bf16 for each other, i8 for them where a range is known, i32 or i64 for each other.
    pub dtype: Option<DType>,
    /// Allowed formats, of which the build takes the fastest; dimensions stay those of the linear format.
    pub formats: Option<Formats>,
}

/// Settings of a build.
#[derive(Clone, Debug)]
pub struct BuildConfig {
    /// Types that layers of f32 may run in instead: f16, bf16, and i8 and f8e4m3 where ranges are known. Of equally fast ones the first is taken.
    /// Empty: only f32.
    pub reduced: Vec<DType>,
    /// Ranges of tensors of f32 by name, the least and the greatest value: codes of 8 bits stand for values in them.
    pub ranges: BTreeMap<String, [f32; 2]>,
    /// Choice of layers that run in these types.
    pub narrowing: Narrowing,
    /// Types asked of layers by name; they replace those that the network set.
    pub layer_types: Vec<LayerTypes>,
    /// Products and convolutions of f32 may round their operands to TF32 (10 bits of fraction) where the backend gains
    /// by it. Off: IEEE f32. The variable `NVIDIA_TF32_OVERRIDE=0` turns it off, whatever stands here.
    pub tf32: bool,
    /// Libraries that tactics may come from beside the backend's own: "cublaslt", "cudnn". Engines then need them, too.
    pub tactic_sources: Vec<String>,
    /// Build a plan that other versions of the backend run, and backends without code generation: it holds all launches of its
    /// kernels, for every shape of the profiles. Refused by name are layers whose launches depend on more than shapes, and
    /// `tactic_sources`.
    pub version_compatible: bool,
    /// Use of 2:4 sparse weights.
    pub sparsity: Sparsity,
    /// Let only casts and Q/DQ of the network change types; `reduced` and per-layer types are refused.
    pub strong_types: bool,
    /// The type of the network's inputs and outputs of f32, if not that. Casts do it, in a strongly typed network, too.
    pub io_type: Option<DType>,
    /// Types and formats of inputs and outputs by name; they go before `io_type` and what the network allows.
    pub io: BTreeMap<String, IoSpec>,
    /// Refuse networks with inputs or outputs that only a kernel of its own can bring into their type and format. Fewer
    /// such kernels count more than time.
    pub direct_io: bool,
    /// Strictness of the types that layers ask for.
    pub constraints: Constraints,
    /// Tensors of the network by name that runs can report to a debug listener, beside those that the network marks.
    pub debug_tensors: Vec<String>,
    /// Weights that a refit may replace.
    pub refit: Refit,
    /// Fold constants.
    pub fold: bool,
    /// Constants larger than this, in bytes, are not made by folding.
    pub fold_limit: u64,
    /// Operations that folding may spend in all, counted by the operators' records; a layer may take a quarter of it. What
    /// takes more is computed in each run, and reported. Layers that only pass over weights of the network always fold.
    pub fold_budget: u64,
    /// Fuse layers into larger kernels.
    pub fuse: bool,
    /// Try formats of values and cuts of regions, and keep what is faster.
    pub search: bool,
    /// Fail where the timing cache lacks an answer instead of timing.
    pub locked: bool,
    /// Time nothing where the timing cache lacks an answer: take what the backend expects to be best. Needs no device.
    pub estimates: bool,
    /// Tactics that are not taken, by name or by the part of it in front of a dot: to do without a kernel that is suspected. A layer
    /// that has no other tactic fails the build.
    pub excluded_tactics: Vec<String>,
    /// Tactics that are forced or forbidden for layers of given names.
    pub tactic_rules: Vec<TacticRule>,
    /// Take only tactics that yield the same bits every time.
    pub deterministic: bool,
    /// Asked for the algorithms that the build may take for each layer.
    pub selector: Option<Selector>,
    /// Fail where the selector chooses no algorithm, instead of taking any.
    pub reject_empty: bool,
    /// Let equal layers share times, and use those of the timing cache. Off: each layer is timed on its own.
    pub share_times: bool,
    /// Limits in bytes of the memory that kernels may use. What is not named has the limit of the device.
    pub pools: BTreeMap<MemoryPool, u64>,
    /// The part of the device that the plan is for. Under a limit of multiprocessors nothing is timed.
    pub limit: DeviceLimit,
    /// Candidates timed for a region at most.
    pub max_tactics: usize,
    /// A candidate whose estimate is more than this many times the best one is not timed. Values below 1 count as 1.
    pub estimate_limit: f64,
    /// Samples taken of each candidate.
    pub samples: u32,
    /// Shapes of each profile that kernels are chosen for: 1, the usual ones; 3, also the least and the greatest; or 5 or 9, also shapes
    /// between these ([`BUCKETS`](crate::BUCKETS)). A run takes the kernels of the shapes that are nearest by the elements of all inputs.
    pub shape_buckets: usize,
    /// Streams beside the main one that layers may be put into, 0 by default and 15 at most: branches that read no results of each other
    /// then run at the same time on devices that can (CUDA). Their values share no memory, so that the arena may be larger.
    pub max_aux_streams: usize,
    /// Ranges of input shapes. Empty: the network's own shapes, which must be static.
    pub profiles: Vec<Profile>,
    /// Told of the phases of the build; may cancel it.
    pub monitor: Option<Monitor>,
    /// Refuse networks whose runs would need the host in between: for contents that only the device knows, for checks, to
    /// decide control flow, or for sizes that nothing bounds. Errors name every layer with the reason. A layer whose results
    /// have a size within bounds is computed on the device, and only reported (`Built::host_layers`): the host reads the size.
    pub strict: bool,
    /// Plug-in layers, by name or by namespace and name (`acme::Swish`), that replace what their patterns describe. An error where
    /// no layer with a pattern has the name.
    pub replace_by_plugins: Vec<String>,
}

impl BuildConfig {
    /// Whether the user decides which tactics a layer may have. A form of the network may then lack one that another form has.
    pub(crate) fn selects(&self) -> bool {
        let rules = !self.tactic_rules.is_empty() || !self.excluded_tactics.is_empty();
        self.selector.is_some() || rules || self.deterministic
    }
}

impl Default for BuildConfig {
    fn default() -> Self {
        BuildConfig {
            reduced: Vec::new(),
            ranges: BTreeMap::new(),
            narrowing: Narrowing::Faster,
            layer_types: Vec::new(),
            tf32: true,
            tactic_sources: Vec::new(),
            version_compatible: false,
            sparsity: Sparsity::Disable,
            strong_types: false,
            io_type: None,
            io: BTreeMap::new(),
            direct_io: false,
            constraints: Constraints::None,
            debug_tensors: Vec::new(),
            refit: Refit::Off,
            fold: true,
            fold_limit: 1 << 30,
            fold_budget: 1 << 34,
            fuse: true,
            search: true,
            locked: false,
            estimates: false,
            excluded_tactics: Vec::new(),
            tactic_rules: Vec::new(),
            deterministic: false,
            selector: None,
            reject_empty: false,
            share_times: true,
            pools: BTreeMap::new(),
            limit: DeviceLimit::default(),
            max_tactics: 6,
            estimate_limit: 8.0,
            samples: 5,
            shape_buckets: 1,
            max_aux_streams: 0,
            profiles: Vec::new(),
            monitor: None,
            strict: false,
            replace_by_plugins: Vec::new(),
        }
    }
}
