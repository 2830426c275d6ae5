//! Options that several commands share.

use crate::calibrate::CalibrationOptions;
use crate::element_type::element_type;
use crate::failure::Failure;
use crate::io_formats::IoOptions;
use clap::{ArgGroup, Args, ValueEnum};
use kiln::compare::Tolerance;
use kiln::selection::{TacticRecord, TacticRule};
use kiln::{
    BuildConfig, BuildOptions, Constraints, DType, DeviceChoice, HardwareCompatibility, LayerTypes,
    Narrowing, Sparsity,
};
use kiln::{DeviceLimit, MemoryPool, PlanHeader, Refit, ShapeRequest, Verbosity};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A name with dimensions or values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The input.
    pub name: String,
    /// Dimensions, or elements.
    pub numbers: Vec<i64>,
}

/// Reads `name:1x3x224x224`; nothing after the colon, or `scalar`, is a scalar.
pub fn named(text: &str) -> Result<Named, String> {
    let (name, list) = text.rsplit_once(':').ok_or("wanted NAME:1x3x224x224")?;
    Ok(Named { name: name.to_owned(), numbers: numbers(list)? })
}

/// Reads `1x3x224x224`; nothing, or `scalar`, is a scalar.
fn numbers(list: &str) -> Result<Vec<i64>, String> {
    match list {
        "" | "scalar" => Ok(Vec::new()),
        list => {
            list.split('x').map(|n| n.parse::<i64>().map_err(|_| format!("\"{n}\" is no integer"))).collect()
        }
    }
}

/// Options for the plug-ins to use.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Plug-ins")]
pub struct PluginOptions {
    /// A plug-in library, or a folder of them, that is looked at first [repeatable]
    #[arg(long = "plugin", value_name = "PATH")]
    pub plugin: Vec<PathBuf>,
    /// Plug-ins that may be loaded
    #[arg(long, value_enum, default_value_t = PluginLevel::Any)]
    pub plugins: PluginLevel,
    /// Load the plug-in libraries that an engine holds: code of its author runs in this process
    #[arg(long)]
    pub embedded_plugins: bool,
}

/// Plug-ins that may be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PluginLevel {
    /// None: only what is linked in
    Off,
    /// Libraries with a manifest that has their hash
    Manifest,
    /// Any that only its owner may write
    Any,
}

/// Options for the backend and the device.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Backend")]
pub struct BackendOptions {
    /// The backend to build for; default: the best one with hardware here, else "cpu"
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Number of the backend's device, as in `kiln backends`, or (the first characters of) its UUID; default: the best one
    #[arg(long, value_name = "N|UUID", value_parser = device)]
    pub device: Option<DeviceChoice>,
    /// Build for the device that this engine was built for, which need not be here: with --locked, or --no-timing
    #[arg(long, value_name = "ENGINE", conflicts_with = "device")]
    pub target: Option<PathBuf>,
    /// Devices beside that of the build that are to run the engine
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = CompatibilityOption::None)]
    pub hardware_compatibility: CompatibilityOption,
    /// The backend that takes over the whole network if the first refuses a layer; reported loudly
    #[arg(long, value_name = "NAME")]
    pub fallback: Option<String>,
    /// Refuse any --fallback, and layers that would need the host during runs: contents found by the device,
    /// sizes without a bound, checks, and control flow that the host walks
    #[arg(long, conflicts_with = "fallback")]
    pub strict: bool,
}

/// Devices that run an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompatibilityOption {
    /// Devices of the same architecture
    None,
    /// NVIDIA GPUs of sm_80 and later: the driver translates the kernels when the engine is loaded
    AmperePlus,
}

impl From<CompatibilityOption> for HardwareCompatibility {
    fn from(option: CompatibilityOption) -> HardwareCompatibility {
        match option {
            CompatibilityOption::None => HardwareCompatibility::None,
            CompatibilityOption::AmperePlus => HardwareCompatibility::AmperePlus,
        }
    }
}

/// Reads the number or the UUID of a device.
pub fn device(text: &str) -> Result<DeviceChoice, String> {
    match text.trim() {
        "" => Err("wants a number or a UUID, as `kiln backends` lists them".into()),
        text => Ok(DeviceChoice::from(text)),
    }
}

/// Element types that layers may run in.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Types", group = ArgGroup::new("codes").multiple(true))]
pub struct TypeOptions {
    /// Layers of f32 may run in f16, where that is faster
    #[arg(long, conflicts_with = "strongly_typed")]
    pub fp16: bool,
    /// Layers of f32 may run in bf16, where that is faster
    #[arg(long, conflicts_with = "strongly_typed")]
    pub bf16: bool,
    /// Layers of f32 may run on codes of 8 bits, where ranges are known and that is faster
    #[arg(long, conflicts_with = "strongly_typed", group = "codes")]
    pub int8: bool,
    /// Layers of f32 may run on floats of 8 bits (e4m3), where ranges are known and that is faster
    #[arg(long, conflicts_with = "strongly_typed", group = "codes")]
    pub fp8: bool,
    /// Choice of layers that run in the permitted types
    #[arg(long, value_enum, default_value_t = NarrowingOption::Faster)]
    pub narrowing: NarrowingOption,
    /// The type that layers compute in: name:fp16,… `*` in a name stands for any characters
    #[arg(long, value_name = "NAME:TYPE", value_delimiter = ',', value_parser = layer_precision)]
    pub layer_precisions: Vec<LayerTypes>,
    /// Types of layers' outputs: name:fp16,… or name:fp16+fp32,… for the first and the second output
    #[arg(long, value_name = "NAME:TYPES", value_delimiter = ',', value_parser = layer_outputs)]
    pub layer_output_types: Vec<LayerTypes>,
    /// Strictness of the types that are asked of layers, by these options or in the network
    #[arg(long, value_enum, default_value_t = ConstraintsOption::None)]
    pub precision_constraints: ConstraintsOption,
    /// Let only casts and Q/DQ of the network change types
    #[arg(long)]
    pub strongly_typed: bool,
    /// The type of inputs and outputs that are f32 in the model
    #[arg(long, value_name = "TYPE", value_parser = io_type)]
    pub io_type: Option<DType>,
    /// Products of f32 in IEEE arithmetic: tensor cores must not round their operands to TF32
    #[arg(long)]
    pub no_tf32: bool,
    /// Use of weights of which two of four neighbours at most are not 0
    #[arg(long, value_enum, default_value_t = SparsityOption::Disable)]
    pub sparsity: SparsityOption,
}

/// Use of 2:4 sparse weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SparsityOption {
    /// They are multiplied as others are
    Disable,
    /// Kernels for such weights, where they are faster
    Enable,
    /// Sparse kernels where they are faster, after the smaller two of four weights become 0 everywhere
    Force,
}

/// Choice of layers that run in the permitted types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NarrowingOption {
    /// Layers that are faster by the times taken, casts included
    Faster,
    /// All layers whose operator and backend permit it, for comparisons
    Everywhere,
}

/// Strictness of the types that are asked of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConstraintsOption {
    /// Taken if permitted and no other type is faster; a note says which are not
    None,
    /// Taken if permitted and there is a kernel; a note says which are not
    Prefer,
    /// Taken, or the build fails
    Obey,
}

impl TypeOptions {
    /// Puts the options into the settings of a build.
    pub fn apply(&self, config: &mut BuildConfig) {
        let reduced = [
            (self.int8, DType::I8),
            (self.fp8, DType::F8E4M3),
            (self.fp16, DType::F16),
            (self.bf16, DType::BF16),
        ];
        config.reduced = reduced.into_iter().filter(|r| r.0).map(|r| r.1).collect();
        config.narrowing = match self.narrowing {
            NarrowingOption::Faster => Narrowing::Faster,
            NarrowingOption::Everywhere => Narrowing::Everywhere,
        };
        config.constraints = match self.precision_constraints {
            ConstraintsOption::None => Constraints::None,
            ConstraintsOption::Prefer => Constraints::Prefer,
            ConstraintsOption::Obey => Constraints::Obey,
        };
        config.layer_types = self.layer_precisions.iter().chain(&self.layer_output_types).cloned().collect();
        config.tf32 = !self.no_tf32;
        config.sparsity = match self.sparsity {
            SparsityOption::Disable => Sparsity::Disable,
            SparsityOption::Enable => Sparsity::Enable,
            SparsityOption::Force => Sparsity::Force,
        };
        config.strong_types = self.strongly_typed;
        config.io_type = self.io_type;
    }
}

/// Reads `name:fp16`.
fn layer_precision(text: &str) -> Result<LayerTypes, String> {
    let (name, ty) = text.rsplit_once(':').ok_or("wanted NAME:TYPE")?;
    Ok(LayerTypes { layers: name.to_owned(), precision: Some(element_type(ty)?), ..LayerTypes::default() })
}

/// Reads `name:fp16+fp32`.
fn layer_outputs(text: &str) -> Result<LayerTypes, String> {
    let (name, list) = text.rsplit_once(':').ok_or("wanted NAME:TYPE+TYPE")?;
    let outputs = list.split('+').map(element_type).collect::<Result<_, _>>()?;
    Ok(LayerTypes { layers: name.to_owned(), outputs, ..LayerTypes::default() })
}

fn io_type(text: &str) -> Result<DType, String> {
    match text {
        "f16" | "fp16" => Ok(DType::F16),
        "bf16" => Ok(DType::BF16),
        _ => Err("wants f16 or bf16".into()),
    }
}

/// Shapes of dynamic inputs. What is left out of min, opt and max is taken from the others.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Shapes")]
pub struct ShapeOptions {
    /// The only shapes of inputs: name:1x3x224x224,…
    #[arg(long, value_name = "NAME:DIMS", value_delimiter = ',', value_parser = named)]
    pub shapes: Vec<Named>,
    /// Least shapes of inputs
    #[arg(long, value_name = "NAME:DIMS", value_delimiter = ',', value_parser = named)]
    pub min_shapes: Vec<Named>,
    /// Usual shapes of inputs, which kernels are chosen for
    #[arg(long, value_name = "NAME:DIMS", value_delimiter = ',', value_parser = named)]
    pub opt_shapes: Vec<Named>,
    /// Greatest shapes of inputs, which memory is planned for
    #[arg(long, value_name = "NAME:DIMS", value_delimiter = ',', value_parser = named)]
    pub max_shapes: Vec<Named>,
    /// One more optimization profile: name:MIN..OPT..MAX,… as input:1x3..4x3..8x3; with two shapes the usual one is the greatest.
    /// Elements of shape inputs stand behind @: sizes@2..4..8 [repeatable]
    #[arg(long, value_name = "RANGES", value_parser = profile)]
    pub opt_profile: Vec<ShapeRequest>,
    /// Least elements of shape inputs: name:1x2x3,…
    #[arg(long, value_name = "NAME:VALUES", value_delimiter = ',', value_parser = named, allow_hyphen_values = true)]
    pub min_values: Vec<Named>,
    /// Usual elements of shape inputs
    #[arg(long, value_name = "NAME:VALUES", value_delimiter = ',', value_parser = named, allow_hyphen_values = true)]
    pub opt_values: Vec<Named>,
    /// Greatest elements of shape inputs
    #[arg(long, value_name = "NAME:VALUES", value_delimiter = ',', value_parser = named, allow_hyphen_values = true)]
    pub max_values: Vec<Named>,
}

/// Reads `input:1x3..4x3..8x3,sizes@2..4..8`.
fn profile(text: &str) -> Result<ShapeRequest, String> {
    let mut request = ShapeRequest::default();
    for part in text.split(',') {
        let at = part.rfind([':', '@']).ok_or("wanted NAME:MIN..OPT..MAX, or NAME@… for elements")?;
        let (name, values) = (&part[..at], part.as_bytes()[at] == b'@');
        let ends = part[at + 1..].split("..").map(numbers).collect::<Result<Vec<_>, _>>()?;
        let [min, opt, max] = match &ends[..] {
            [all] => [all; 3],
            [min, max] => [min, max, max],
            [min, opt, max] => [min, opt, max],
            _ => return Err(format!("\"{part}\" has {} ends, wanted MIN..OPT..MAX", ends.len())),
        };
        match values {
            true => request.min_values(name, min).opt_values(name, opt).max_values(name, max),
            false => request.min(name, min).opt(name, opt).max(name, max),
        };
    }
    Ok(request)
}

/// A method of [`ShapeRequest`] that sets one thing of one input.
type Setter = for<'a> fn(&'a mut ShapeRequest, &str, &[i64]) -> &'a mut ShapeRequest;

impl ShapeOptions {
    /// Shapes that the options ask for.
    pub fn request(&self) -> ShapeRequest {
        let mut r = ShapeRequest::default();
        let mut put = |all: &[Named], set: Setter| {
            for n in all {
                set(&mut r, &n.name, &n.numbers);
            }
        };
        put(&self.shapes, ShapeRequest::fixed);
        put(&self.min_shapes, ShapeRequest::min);
        put(&self.opt_shapes, ShapeRequest::opt);
        put(&self.max_shapes, ShapeRequest::max);
        put(&self.min_values, ShapeRequest::min_values);
        put(&self.opt_values, ShapeRequest::opt_values);
        put(&self.max_values, ShapeRequest::max_values);
        r
    }
}

/// Options for the choice of kernels.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Optimization")]
pub struct TuneOptions {
    /// A file of measured times: read before the build, added to as times are taken
    #[arg(long, value_name = "FILE")]
    pub timing_cache: Option<PathBuf>,
    /// Time nothing: fail where the timing cache has no answer
    #[arg(long, requires = "timing_cache")]
    pub locked: bool,
    /// Time nothing: where the timing cache has no answer take what the backend expects to be best. Needs no device
    #[arg(long, conflicts_with = "locked")]
    pub no_timing: bool,
    /// Libraries that kernels may come from beside the backend's own: cublaslt, cudnn. The engine then needs them, too
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tactic_sources: Vec<String>,
    /// Tactics that are not taken, by name ("matmul.tiled") or by its first part ("cublaslt")
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude_tactics: Vec<String>,
    /// Neither read nor write a timing cache, and time equal layers each on its own
    #[arg(long, conflicts_with_all = ["timing_cache", "locked"])]
    pub no_timing_cache: bool,
    /// Refuse a timing cache that has times, but none of this device and these settings
    #[arg(long, requires = "timing_cache")]
    pub strict_timing_cache: bool,
    /// Force tactics for layers, or forbid them: layer=tactic,layer=!tactic,…; "*" stands for all layers
    #[arg(long, value_name = "LAYER=TACTIC", value_parser = tactic_rules)]
    pub tactics: Option<TacticRules>,
    /// Take only tactics that yield the same bits every time
    #[arg(long)]
    pub deterministic: bool,
    /// Write the choices of the build, and the times that decided, to this file
    #[arg(long, value_name = "FILE")]
    pub record_tactics: Option<PathBuf>,
    /// Choose as the build that wrote this file, without timing anything
    #[arg(long, value_name = "FILE", conflicts_with_all = ["timing_cache", "locked", "no_timing", "no_timing_cache"])]
    pub replay_tactics: Option<PathBuf>,
    /// Tensors between layers that runs can report: `kiln run --save-debug-tensors`
    #[arg(long, value_name = "TENSORS", value_delimiter = ',')]
    pub mark_debug: Vec<String>,
    /// Do not compute constant layers at build time
    #[arg(long)]
    pub no_fold: bool,
    /// Operations that the build may spend on computing constant layers; a layer may take a quarter [default: 2^34]
    #[arg(long, value_name = "N", conflicts_with = "no_fold")]
    pub fold_budget: Option<u64>,
    /// Trouble that the build takes, from 0 (the fastest build) to 5 (the fastest engine) [default: 3]
    #[arg(long, value_name = "N", alias = "builder-optimization-level")]
    pub optimization_level: Option<usize>,
    /// Tactics timed for a layer at most [default: 6, as the optimization level says]
    #[arg(long, value_name = "N", value_parser = count)]
    pub max_tactics: Option<usize>,
    /// Times taken of each tactic [default: 5, as the optimization level says]
    #[arg(long, value_name = "N", value_parser = count)]
    pub timing_samples: Option<usize>,
    /// Shapes of each profile that kernels are chosen for: the usual ones; with 3 the least and the greatest, too; with 5 or 9 also some
    /// between them
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub shape_buckets: usize,
    /// Streams beside the main one that layers may be put into, 15 at most: branches run at the same time on devices that can (CUDA)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_aux_streams: usize,
    /// Limits of the memory that kernels may use: workspace:64,tactic-dram:1024M,tactic-shared-memory:64K; in MiB without a unit
    #[arg(long, value_name = "POOL:SIZE,…", value_parser = pools)]
    pub mem_pool_size: Option<Pools>,
    /// Build for a part of the device: sms=16,memory=4G. Multiprocessors, and bytes (or with the unit K, M or G) of weights and the
    /// activations of a context. Under a limit of multiprocessors nothing is timed
    #[arg(long, value_name = "sms=N,memory=BYTES", value_parser = limit)]
    pub limit: Option<DeviceLimit>,
    /// Replace what the patterns of this plug-in layer describe by it: NAME or NAMESPACE::NAME [repeatable]
    #[arg(long, value_name = "LAYER")]
    pub replace_by_plugin: Vec<String>,
    /// Do not fuse layers into larger kernels
    #[arg(long)]
    pub no_fuse: bool,
    /// Do not try other formats and cuts of layers
    #[arg(long)]
    pub no_search: bool,
}

/// Reads a number from 1 to a million.
fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| (1..=1_000_000).contains(n))
        .ok_or_else(|| "wanted a number from 1 on".into())
}

/// Limits of pools of memory in bytes, as one option has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools(pub Vec<(MemoryPool, u64)>);

/// Reads `workspace:64,tactic-shared-memory:64K`.
fn pools(text: &str) -> Result<Pools, String> {
    let one = |part: &str| {
        let (pool, size) = part.split_once(':').ok_or("wanted POOL:SIZE, as workspace:64")?;
        Ok((pool.parse()?, bytes(size)?))
    };
    let all: Vec<(MemoryPool, u64)> = text.split(',').map(one).collect::<Result<_, String>>()?;
    let twice = all.iter().enumerate().find(|(i, (pool, _))| all[..*i].iter().any(|(p, _)| p == pool));
    match twice {
        Some((_, (pool, _))) => Err(format!("{pool} is given twice")),
        None => Ok(Pools(all)),
    }
}

/// Reads `sms=16,memory=4G`.
fn limit(text: &str) -> Result<DeviceLimit, String> {
    let mut limit = DeviceLimit::default();
    for part in text.split(',') {
        let (name, number) = part.split_once('=').ok_or("wanted sms=N, memory=BYTES or both")?;
        let (at, n) = match name {
            "sms" => (&mut limit.sms, number.parse().map_err(|_| format!("\"{number}\" is no number"))?),
            "memory" if number.bytes().all(|b| b.is_ascii_digit()) => {
                (&mut limit.memory, bytes(&format!("{number}B"))?)
            }
            "memory" => (&mut limit.memory, bytes(number)?),
            other => return Err(format!("\"{other}\" has no limit; there are sms and memory")),
        };
        if at.replace(n).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    Ok(limit)
}

/// Reads a number of bytes: `64` MiB, or with the unit B, K, M or G.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wanted =
        || format!("\"{text}\" is no size; wanted a number of MiB, or one with the unit B, K, M or G");
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, c)) if c.is_ascii_alphabetic() => (&text[..at], c.to_ascii_uppercase()),
        _ => (text, 'M'),
    };
    let shift = match unit {
        'B' => 0,
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => return Err(wanted()),
    };
    let n: f64 = number.parse().map_err(|_| wanted())?;
    let bytes = n * (1u64 << shift) as f64;
    (bytes.fract() == 0.0 && (0.0..1e18).contains(&bytes)).then_some(bytes as u64).ok_or_else(wanted)
}

/// Rules for tactics, as one option has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TacticRules(pub Vec<TacticRule>);

/// Reads rules that commas separate; commas between the parentheses of a tactic's parameters do not.
fn tactic_rules(text: &str) -> Result<TacticRules, String> {
    let mut depth = 0usize;
    let parts = text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::parse).collect::<Result<_, _>>().map(TacticRules)
}

/// Options for weights that change after the build.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Weights")]
pub struct RefitOptions {
    /// Weights that `kiln refit` and programs may replace: all with names, or all by the same elements only [all if no value is
    /// given]
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub refit: Option<RefitChoice>,
    /// Only the weights of these names may be replaced
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "refit")]
    pub refit_weights: Vec<String>,
    /// Leave weights out of the engine that a refit supplies before the first run
    #[arg(long)]
    pub strip_weights: bool,
}

/// Weights that a refit may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RefitChoice {
    /// All named weights
    All,
    /// All named weights, by the elements of the build: as fast as without, and fills stripped engines
    Identical,
}

impl RefitOptions {
    /// The builder's setting.
    pub fn choice(&self) -> Refit {
        match self.refit {
            _ if !self.refit_weights.is_empty() => {
                Refit::Individual(self.refit_weights.iter().cloned().collect())
            }
            Some(RefitChoice::All) => Refit::All,
            Some(RefitChoice::Identical) => Refit::Identical,
            None => Refit::Off,
        }
    }
}

/// Options of how a model is built.
#[derive(Clone, Debug, Args)]
pub struct ModelOptions {
    #[command(flatten)]
    pub backend: BackendOptions,
    #[command(flatten)]
    pub shapes: ShapeOptions,
    #[command(flatten)]
    pub types: TypeOptions,
    #[command(flatten)]
    pub io: IoOptions,
    #[command(flatten)]
    pub calibration: CalibrationOptions,
    #[command(flatten)]
    pub tune: TuneOptions,
    #[command(flatten)]
    pub weights: RefitOptions,
    #[command(flatten)]
    pub plugins: PluginOptions,
}

impl ModelOptions {
    /// The façade's options.
    pub fn build(&self) -> Result<BuildOptions, Failure> {
        let target = self.backend.target.as_deref().map(PlanHeader::peek).transpose()?.map(|h| h.target);
        let mut defaults = BuildConfig::default();
        if let Some(level) = self.tune.optimization_level {
            defaults.set_optimization_level(level);
        }
        defaults.max_tactics = self.tune.max_tactics.unwrap_or(defaults.max_tactics);
        let samples = self.tune.timing_samples.and_then(|n| u32::try_from(n).ok());
        defaults.samples = samples.unwrap_or(defaults.samples);
        let mut config = BuildConfig {
            refit: self.weights.choice(),
            fold: !self.tune.no_fold,
            fold_budget: self.tune.fold_budget.unwrap_or(defaults.fold_budget),
            replace_by_plugins: self.tune.replace_by_plugin.clone(),
            fuse: !self.tune.no_fuse,
            search: defaults.search && !self.tune.no_search,
            locked: self.tune.locked,
            estimates: self.tune.no_timing || defaults.estimates && !self.tune.locked,
            pools: self.tune.mem_pool_size.iter().flat_map(|p| p.0.iter().copied()).collect(),
            strict: self.backend.strict,
            tactic_sources: self.tune.tactic_sources.clone(),
            excluded_tactics: self.tune.exclude_tactics.clone(),
            tactic_rules: self.tune.tactics.clone().unwrap_or_default().0,
            deterministic: self.tune.deterministic,
            debug_tensors: self.tune.mark_debug.clone(),
            shape_buckets: self.tune.shape_buckets,
            max_aux_streams: self.tune.max_aux_streams,
            limit: self.tune.limit.unwrap_or_default(),
            share_times: defaults.share_times && !self.tune.no_timing_cache,
            ..defaults
        };
        self.types.apply(&mut config);
        let mut options = BuildOptions::default();
        options.target = target;
        options.backend = self.backend.backend.clone();
        options.fallback = self.backend.fallback.clone();
        options.device = self.backend.device.clone();
        options.hardware_compatibility = self.backend.hardware_compatibility.into();
        options.config = config;
        options.shapes = self.shapes.request();
        options.profiles = self.shapes.opt_profile.clone();
        options.timing_cache = self.tune.timing_cache.clone();
        options.verbosity = Verbosity::Detailed;
        options.strip_weights = self.weights.strip_weights;
        options.strict_times = self.tune.strict_timing_cache;
        options.replay = self.tune.replay_tactics.as_deref().map(read_record).transpose()?;
        Ok(options)
    }

    /// The first option given that says how to build, which an engine cannot obey.
    pub fn building(&self) -> Option<&'static str> {
        let (b, t, w) = (&self.backend, &self.tune, &self.weights);
        let set = [
            (b.hardware_compatibility != CompatibilityOption::None, "--hardware-compatibility"),
            (b.fallback.is_some(), "--fallback"),
            (b.target.is_some(), "--target"),
            (b.strict, "--strict"),
            (self.types.fp16, "--fp16"),
            (self.types.bf16, "--bf16"),
            (self.types.int8, "--int8"),
            (self.types.fp8, "--fp8"),
            (self.types.strongly_typed, "--strongly-typed"),
            (self.types.io_type.is_some(), "--io-type"),
            (self.types.narrowing != NarrowingOption::Faster, "--narrowing"),
            (self.types.sparsity != SparsityOption::Disable, "--sparsity"),
            (!self.types.layer_precisions.is_empty(), "--layer-precisions"),
            (!self.types.layer_output_types.is_empty(), "--layer-output-types"),
            (self.types.precision_constraints != ConstraintsOption::None, "--precision-constraints"),
            (self.types.no_tf32, "--no-tf32"),
            (t.timing_cache.is_some(), "--timing-cache"),
            (t.no_timing, "--no-timing"),
            (t.shape_buckets != 1, "--shape-buckets"),
            (t.max_aux_streams != 0, "--max-aux-streams"),
            (t.limit.is_some(), "--limit"),
            (!t.tactic_sources.is_empty(), "--tactic-sources"),
            (!t.exclude_tactics.is_empty(), "--exclude-tactics"),
            (t.no_timing_cache, "--no-timing-cache"),
            (t.tactics.is_some(), "--tactics"),
            (t.deterministic, "--deterministic"),
            (t.record_tactics.is_some(), "--record-tactics"),
            (t.replay_tactics.is_some(), "--replay-tactics"),
            (!t.mark_debug.is_empty(), "--mark-debug"),
            (t.no_fold, "--no-fold"),
            (t.fold_budget.is_some(), "--fold-budget"),
            (t.optimization_level.is_some(), "--optimization-level"),
            (t.max_tactics.is_some(), "--max-tactics"),
            (t.timing_samples.is_some(), "--timing-samples"),
            (t.mem_pool_size.is_some(), "--mem-pool-size"),
            (!self.shapes.opt_profile.is_empty(), "--opt-profile"),
            (!t.replace_by_plugin.is_empty(), "--replace-by-plugin"),
            (t.no_fuse, "--no-fuse"),
            (t.no_search, "--no-search"),
            (w.refit.is_some(), "--refit"),
            (!w.refit_weights.is_empty(), "--refit-weights"),
            (w.strip_weights, "--strip-weights"),
        ];
        set.into_iter().find(|s| s.0).map(|s| s.1).or_else(|| self.io.building())
    }
}

/// The largest file of recorded tactics that is read.
const MAX_RECORD: u64 = 1 << 30;

fn read_record(path: &Path) -> Result<TacticRecord, Failure> {
    let bytes = kiln_files::read_regular(path, MAX_RECORD)
        .map_err(|source| Failure::File { path: path.to_owned(), source })?;
    TacticRecord::from_text(&String::from_utf8_lossy(&bytes))
        .map_err(|message| Failure::Input(format!("{}: {message}", path.display())))
}

/// Limits of a run.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Stop a run that takes longer than so many seconds, with exit code 1
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub timeout: Option<Duration>,
}

fn positive(text: &str) -> Result<Duration, String> {
    let wanted = || "wanted seconds, more than 0".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wanted())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero()).ok_or_else(wanted)
}

/// Tolerance of results: |found − wanted| ≤ atol + rtol·|wanted|; integers: |found − wanted| ≤ atol.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Tolerance")]
pub struct ToleranceOptions {
    /// Relative tolerance
    #[arg(long, value_name = "X", default_value_t = 1e-3)]
    pub rtol: f64,
    /// Absolute tolerance
    #[arg(long, value_name = "X", default_value_t = 1e-5)]
    pub atol: f64,
}

impl ToleranceOptions {
    /// The tolerance.
    pub fn tolerance(&self) -> Tolerance {
        Tolerance { rtol: self.rtol, atol: self.atol }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_positive() {
        assert_eq!(positive("0.25"), Ok(Duration::from_millis(250)));
        assert!(["0", "-1", "inf", "nan", "x", "1e-30"].iter().all(|s| positive(s).is_err()));
    }

    #[test]
    fn rules_are_cut_at_commas_outside_of_parameters() {
        let rules = tactic_rules("a=conv.tiled(m=1,n=2),*=!cublaslt").unwrap().0;
        let found: Vec<_> = rules.iter().map(|r| (&*r.layer, &*r.tactic, r.forbidden)).collect();
        assert_eq!(found, [("a", "conv.tiled(m=1,n=2)", false), ("*", "cublaslt", true)]);
        assert!(tactic_rules("a").is_err() && tactic_rules("a=b,").is_err());
    }

    #[test]
    fn sizes_of_pools_are_read() {
        let read = |text: &str| pools(text).map(|p| p.0);
        let wanted = vec![(MemoryPool::Workspace, 64 << 20), (MemoryPool::TacticSharedMemory, 64 << 10)];
        assert_eq!(read("workspace:64,tactic-shared-memory:64K"), Ok(wanted));
        assert_eq!(read("tactic-dram:0.5G"), Ok(vec![(MemoryPool::TacticDram, 512 << 20)]));
        assert_eq!(read("workspace:7B"), Ok(vec![(MemoryPool::Workspace, 7)]));
        for wrong in [
            "workspace:1,workspace:2",
            "workspace",
            "workspace:",
            "workspace:-1",
            "workspace:1T",
            "workspace:0.3B",
            "dla:1",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_of_a_device_are_read() {
        let read = |text: &str| limit(text).map(|l| (l.sms, l.memory));
        assert_eq!(read("sms=16,memory=1024"), Ok((Some(16), Some(1024))));
        assert_eq!(read("memory=2G"), Ok((None, Some(2 << 30))));
        for wrong in ["", "sms", "sms=x", "sms=1,sms=2", "memory=1T", "cores=4"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn profiles_are_read() {
        let request = profile("a:0:1x3..4x3..8x3,s@2..8").unwrap();
        let mut wanted = ShapeRequest::default();
        wanted.min("a:0", &[1, 3]).opt("a:0", &[4, 3]).max("a:0", &[8, 3]);
        wanted.min_values("s", &[2]).opt_values("s", &[8]).max_values("s", &[8]);
        assert_eq!(request, wanted);
        assert!(profile("a").is_err() && profile("a:1..2..3..4").is_err() && profile("a:x").is_err());
    }

    #[test]
    fn shapes_are_read() {
        let ok = |s: &str| named(s).map(|n| (n.name, n.numbers));
        assert_eq!(ok("a:1x3"), Ok(("a".into(), vec![1, 3])));
        assert_eq!(ok("model/x:0:5"), Ok(("model/x:0".into(), vec![5])));
        assert_eq!(ok("s:-1x6"), Ok(("s".into(), vec![-1, 6])));
        assert_eq!(ok("s:"), Ok(("s".into(), vec![])));
        assert!(named("1x3").is_err() && named("a:1xb").is_err());
    }
}
