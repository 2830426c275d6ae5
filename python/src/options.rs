//! Options of builds: from the package's class `BuildOptions` to the builder.

use crate::callbacks::{Monitor, Selector};
use crate::dtype;
use crate::errors::argument;
use crate::io::Target;
use crate::plugins;
use crate::scope::{Callback, Raised};
use kiln::cache::TimingCache;
use kiln::calibration::CalibrationTable;
use kiln::selection::{TacticRecord, TacticRule};
use kiln::{
    BuildConfig, BuildOptions, Constraints, DType, DeviceChoice, DeviceLimit, Engine, EngineBuilder, Formats,
    HardwareCompatibility, IoSpec, LayerTypes, MemoryPool, Narrowing, Refit, ShapeRequest, Sparsity,
    TensorFormat, Verbosity,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

/// The least, the usual and the greatest of an input, each perhaps absent.
type Three = (Option<Vec<i64>>, Option<Vec<i64>>, Option<Vec<i64>>);

/// Attributes of `BuildOptions`.
#[derive(FromPyObject)]
struct Given<'py> {
    backend: Option<String>,
    fallback: Option<String>,
    device: Option<Bound<'py, PyAny>>,
    target: Option<Bound<'py, Target>>,
    plugins: Vec<PathBuf>,
    plugin_policy: String,
    load_embedded: bool,
    weight_budget: Option<Bound<'py, PyAny>>,
    external_weights: Vec<PathBuf>,
    types: Vec<Bound<'py, PyAny>>,
    narrowing: String,
    ranges: HashMap<String, (f32, f32)>,
    calibration: Option<Bound<'py, PyAny>>,
    calibration_algorithm: String,
    layer_types: Vec<GivenTypes<'py>>,
    constraints: String,
    strong_types: bool,
    tf32: bool,
    sparsity: String,
    io: HashMap<String, GivenIo<'py>>,
    io_type: Option<Bound<'py, PyAny>>,
    direct_io: bool,
    max_batch: Option<i64>,
    optimization_level: Option<usize>,
    search: Option<bool>,
    estimates: Option<bool>,
    share_times: Option<bool>,
    max_tactics: Option<usize>,
    estimate_limit: Option<f64>,
    samples: Option<u32>,
    fold: bool,
    fold_limit: u64,
    fold_budget: u64,
    fuse: bool,
    deterministic: bool,
    excluded_tactics: Vec<String>,
    tactic_rules: Vec<String>,
    tactic_sources: Vec<String>,
    selector: Option<Bound<'py, PyAny>>,
    reject_empty: bool,
    pools: HashMap<String, u64>,
    timing_cache: Option<Bound<'py, PyAny>>,
    strict_times: bool,
    locked: bool,
    replay: Option<String>,
    refit: Bound<'py, PyAny>,
    strip_weights: bool,
    version_compatible: bool,
    hardware_compatibility: String,
    shape_buckets: usize,
    max_aux_streams: usize,
    limit: HashMap<String, u64>,
    portable: bool,
    embed_plugins: bool,
    verbosity: String,
    debug_tensors: Vec<String>,
    strict: bool,
    replace_by_plugins: Vec<String>,
    progress: Bound<'py, PyAny>,
    monitor: Option<Bound<'py, PyAny>>,
    error_recorder: Option<Bound<'py, PyAny>>,
}

/// Attributes of `LayerTypes`.
#[derive(FromPyObject)]
struct GivenTypes<'py> {
    layers: String,
    precision: Option<Bound<'py, PyAny>>,
    outputs: Vec<Bound<'py, PyAny>>,
}

/// Attributes of `IoSpec`.
#[derive(FromPyObject)]
struct GivenIo<'py> {
    dtype: Option<Bound<'py, PyAny>>,
    formats: Vec<String>,
}

/// Options, ready for a build or a load.
pub struct Prepared<'py> {
    /// A builder with all options.
    pub builder: EngineBuilder,
    /// A builder of the same backends and plug-ins, which loads plans.
    pub loader: EngineBuilder,
    /// Backend asked for.
    pub backend: Option<String>,
    /// Function that follows the build.
    pub progress: Option<Arc<Callback>>,
    /// Recorder of errors, of the engine, too.
    pub recorder: Option<Arc<Callback>>,
    /// Exceptions of the build's callbacks.
    pub raised: Raised,
    /// Batches that are to be calibrated on.
    pub batches: Option<Bound<'py, PyAny>>,
    /// Rule of the calibration.
    pub algorithm: String,
    options: BuildOptions,
}

impl Prepared<'_> {
    /// Takes ranges of a calibration, as far as none are set.
    pub fn set_ranges(&mut self, table: &CalibrationTable) {
        for (name, range) in table.ranges() {
            self.options.config.ranges.entry(name).or_insert(range);
        }
        self.builder = self.loader.clone().options(self.options.clone());
    }
}

/// The backend that is known to be the only one needed, so that none is looked for.
fn only<'a>(given: &'a Given<'_>, plan: Option<&'a kiln::PlanHeader>) -> Option<&'a str> {
    let named = plan.map(|h| h.target.backend.as_str()).or(given.backend.as_deref());
    let linked = |name: &&str| kiln::is_linked(name);
    let alone = given.fallback.as_deref().is_none_or(kiln::is_linked) && given.plugins.is_empty();
    named.filter(linked).filter(|_| alone)
}

/// Options from keywords.
pub fn of_keywords<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
    let changes = given.cloned().unwrap_or_else(|| PyDict::new(py));
    py.import("kiln._options")?.call_method1("options_of", (py.None(), changes))
}

/// Prepares the options of a build, or of the load of a plan.
pub fn prepare<'py>(object: &Bound<'py, PyAny>, plan: Option<&kiln::PlanHeader>) -> PyResult<Prepared<'py>> {
    let py = object.py();
    let given: Given<'py> = object.extract()?;
    let raised = Raised::default();
    let callback = |o: &Bound<'py, PyAny>| Callback::of_build(o.clone(), raised.clone());
    let search = plugins::discover(&given.plugins, &given.plugin_policy, given.load_embedded)?;
    let mut loader = Engine::builder().plugins(search);
    if only(&given, plan).is_some() {
        loader = loader.backends(kiln::backends(&kiln::DiscoverOptions::linked()).0);
    }
    if let Some(budget) = &given.weight_budget {
        loader = match budget.extract::<u64>() {
            Ok(bytes) => loader.weight_budget(bytes),
            Err(_) if budget.extract::<String>().is_ok_and(|t| t == "auto") => {
                loader.automatic_weight_budget()
            }
            Err(_) => {
                return Err(argument(format!(
                    "weight_budget is a number of bytes or \"auto\", found {budget}"
                )));
            }
        };
    }
    for path in &given.external_weights {
        loader = loader.external_weights(path);
    }
    let recorder = given.error_recorder.as_ref().map(|r| Callback::new(r.clone()));
    if let Some(recorder) = &recorder {
        loader = loader.error_recorder(recorder.clone());
    }
    let mut options = BuildOptions::default();
    options.backend = given.backend.clone();
    options.fallback = given.fallback.clone();
    options.device = given.device.as_ref().map(device).transpose()?;
    options.target = given.target.as_ref().map(|t| t.get().0.clone());
    options.config = config(&given)?;
    options.config.monitor =
        given.monitor.as_ref().map(|m| kiln::Monitor::new(Arc::new(Mutex::new(Monitor(callback(m))))));
    options.config.selector = given
        .selector
        .as_ref()
        .map(|s| kiln::selection::Selector::new(Arc::new(Mutex::new(Selector(callback(s))))));
    shapes(object, &mut options)?;
    times(&given, &mut options)?;
    options.replay =
        given.replay.as_deref().map(|t| parsed("replay", TacticRecord::from_text(t))).transpose()?;
    options.strict_times = given.strict_times;
    options.verbosity = choice(
        "verbosity",
        &given.verbosity,
        &[("none", Verbosity::None), ("names", Verbosity::Names), ("detailed", Verbosity::Detailed)],
    )?;
    options.max_batch = given.max_batch;
    options.hardware_compatibility = choice(
        "hardware_compatibility",
        &given.hardware_compatibility,
        &[("none", HardwareCompatibility::None), ("ampere_plus", HardwareCompatibility::AmperePlus)],
    )?;
    options.portable = given.portable;
    options.embed_plugins = given.embed_plugins;
    options.strip_weights = given.strip_weights;
    let shown = given.progress.extract::<bool>();
    let progress = match shown {
        Ok(true) => Some(callback(&py.import("kiln._progress")?.getattr("Bar")?.call0()?)),
        Ok(false) => None,
        Err(_) => Some(callback(&given.progress)),
    };
    if let Some(device) = &options.device {
        loader = loader.device(device.clone());
    }
    let mut batches = None;
    if let Some(calibration) = &given.calibration {
        match calibration.cast::<PyString>() {
            Ok(table) => {
                let table = parsed("calibration", CalibrationTable::parse(&table.to_cow()?))?;
                for (name, range) in table.ranges() {
                    options.config.ranges.entry(name).or_insert(range);
                }
            }
            Err(_) => batches = Some(calibration.clone()),
        }
    }
    let builder = loader.clone().options(options.clone());
    let (algorithm, backend) = (given.calibration_algorithm, given.backend);
    Ok(Prepared { builder, loader, backend, progress, recorder, raised, batches, algorithm, options })
}

/// A limit of the device.
#[derive(Clone, Copy)]
enum Limited {
    Sms,
    Memory,
}

impl Limited {
    fn of(self, limit: &mut DeviceLimit) -> &mut Option<u64> {
        match self {
            Limited::Sms => &mut limit.sms,
            Limited::Memory => &mut limit.memory,
        }
    }
}

/// Refuses options that say how to build, where a plan is loaded.
pub fn check_load(options: &Bound<'_, PyAny>, plan: &kiln::PlanHeader) -> PyResult<()> {
    let py = options.py();
    let found = py.import("kiln._options")?.call_method1("build_option", (options,))?;
    let Some(option) = found.extract::<Option<String>>()? else { return Ok(()) };
    Err(crate::errors::InvalidConfig::new_err(format!(
        "\"{}\" is a plan for the backend \"{}\": the option {option} says how to build and does not apply; leave it out, or pass it \
         when the plan is built",
        plan.name, plan.target.backend
    )))
}

/// A device by number or UUID.
fn device(given: &Bound<'_, PyAny>) -> PyResult<DeviceChoice> {
    match given.cast::<PyString>() {
        Ok(uuid) => Ok(DeviceChoice::from(&*uuid.to_cow()?)),
        Err(_) => Ok(DeviceChoice::from(given.extract::<usize>()?)),
    }
}

/// A value by its name.
fn choice<T: Clone>(option: &str, given: &str, known: &[(&str, T)]) -> PyResult<T> {
    let found = known.iter().find(|(name, _)| *name == given).map(|(_, value)| value.clone());
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        argument(format!("the option {option} is \"{given}\"; there are {}", names.join(", ")))
    })
}

fn parsed<T, E: Display>(option: &str, result: Result<T, E>) -> PyResult<T> {
    result.map_err(|e| argument(format!("the option {option}: {e}")))
}

fn each<T: FromStr>(option: &str, texts: &[String]) -> PyResult<Vec<T>>
where
    T::Err: Display,
{
    texts.iter().map(|t| parsed(option, t.parse::<T>())).collect()
}

fn types(given: &[Bound<'_, PyAny>]) -> PyResult<Vec<DType>> {
    given.iter().map(dtype::of_object).collect()
}

fn config(given: &Given<'_>) -> PyResult<BuildConfig> {
    let least = [
        ("max_tactics", given.max_tactics.map(|n| n as f64)),
        ("samples", given.samples.map(f64::from)),
        ("estimate_limit", given.estimate_limit),
    ];
    if let Some((option, Some(n))) = least.into_iter().find(|(_, n)| n.is_some_and(|n| n.is_nan() || n < 1.0))
    {
        return Err(argument(format!("the option {option} is {n}; it is 1 or more")));
    }
    let mut config = BuildConfig::default();
    if let Some(level) = given.optimization_level {
        config.set_optimization_level(level);
    }
    config.search = given.search.unwrap_or(config.search);
    config.estimates = given.estimates.unwrap_or(config.estimates);
    config.share_times = given.share_times.unwrap_or(config.share_times);
    config.max_tactics = given.max_tactics.unwrap_or(config.max_tactics);
    config.estimate_limit = given.estimate_limit.unwrap_or(config.estimate_limit);
    config.samples = given.samples.unwrap_or(config.samples);
    config.reduced = types(&given.types)?;
    config.ranges = given.ranges.iter().map(|(name, (lo, hi))| (name.clone(), [*lo, *hi])).collect();
    config.narrowing = choice(
        "narrowing",
        &given.narrowing,
        &[("faster", Narrowing::Faster), ("everywhere", Narrowing::Everywhere)],
    )?;
    let layer_types = given.layer_types.iter().map(|t| {
        Ok(LayerTypes {
            layers: t.layers.clone(),
            precision: t.precision.as_ref().map(dtype::of_object).transpose()?,
            outputs: types(&t.outputs)?,
        })
    });
    config.layer_types = layer_types.collect::<PyResult<_>>()?;
    config.constraints = choice(
        "constraints",
        &given.constraints,
        &[("none", Constraints::None), ("prefer", Constraints::Prefer), ("obey", Constraints::Obey)],
    )?;
    config.sparsity = choice(
        "sparsity",
        &given.sparsity,
        &[("disable", Sparsity::Disable), ("enable", Sparsity::Enable), ("force", Sparsity::Force)],
    )?;
    config.io =
        given.io.iter().map(|(name, spec)| Ok((name.clone(), io_spec(spec)?))).collect::<PyResult<_>>()?;
    config.io_type = given.io_type.as_ref().map(dtype::of_object).transpose()?;
    config.tactic_rules = each::<TacticRule>("tactic_rules", &given.tactic_rules)?;
    let pools =
        given.pools.iter().map(|(name, &bytes)| Ok((parsed("pools", name.parse::<MemoryPool>())?, bytes)));
    config.pools = pools.collect::<PyResult<BTreeMap<_, _>>>()?;
    config.refit = refit(&given.refit)?;
    config.strong_types = given.strong_types;
    config.tf32 = given.tf32;
    config.direct_io = given.direct_io;
    config.fold = given.fold;
    config.fold_limit = given.fold_limit;
    config.fold_budget = given.fold_budget;
    config.fuse = given.fuse;
    config.deterministic = given.deterministic;
    config.excluded_tactics = given.excluded_tactics.clone();
    config.tactic_sources = given.tactic_sources.clone();
    config.reject_empty = given.reject_empty;
    config.locked = given.locked;
    config.version_compatible = given.version_compatible;
    config.shape_buckets = given.shape_buckets;
    config.max_aux_streams = given.max_aux_streams;
    for (name, &n) in &given.limit {
        let limit = &mut config.limit;
        *choice("limit", name, &[("sms", Limited::Sms), ("memory", Limited::Memory)])?.of(limit) = Some(n);
    }
    config.debug_tensors = given.debug_tensors.clone();
    config.strict = given.strict;
    config.replace_by_plugins = given.replace_by_plugins.clone();
    Ok(config)
}

fn io_spec(given: &GivenIo<'_>) -> PyResult<IoSpec> {
    let formats = each::<TensorFormat>("io", &given.formats)?;
    let formats = (!formats.is_empty()).then(|| formats.into_iter().collect::<Formats>());
    Ok(IoSpec { dtype: given.dtype.as_ref().map(dtype::of_object).transpose()?, formats })
}

fn refit(given: &Bound<'_, PyAny>) -> PyResult<Refit> {
    if let Ok(name) = given.cast::<PyString>() {
        return choice(
            "refit",
            &name.to_cow()?,
            &[("off", Refit::Off), ("all", Refit::All), ("identical", Refit::Identical)],
        );
    }
    let names = given.try_iter()?.map(|n| n?.extract::<String>());
    Ok(Refit::Individual(names.collect::<PyResult<_>>()?))
}

/// Shapes and profiles, which the package brings into one form.
fn shapes(object: &Bound<'_, PyAny>, options: &mut BuildOptions) -> PyResult<()> {
    let helper = object.py().import("kiln._options")?.getattr("native_profile")?;
    let request = |profile: &Bound<'_, PyAny>| -> PyResult<ShapeRequest> {
        let (shapes, values): (HashMap<String, Three>, HashMap<String, Three>) =
            helper.call1((profile,))?.extract()?;
        let mut r = ShapeRequest::default();
        for (name, (min, opt, max)) in &shapes {
            if let Some(dims) = min {
                r.min(name, dims);
            }
            if let Some(dims) = opt {
                r.opt(name, dims);
            }
            if let Some(dims) = max {
                r.max(name, dims);
            }
        }
        for (name, (min, opt, max)) in &values {
            if let Some(values) = min {
                r.min_values(name, values);
            }
            if let Some(values) = opt {
                r.opt_values(name, values);
            }
            if let Some(values) = max {
                r.max_values(name, values);
            }
        }
        Ok(r)
    };
    // The options have the attributes of a profile.
    options.shapes = request(object)?;
    for profile in object.getattr("profiles")?.try_iter()? {
        options.profiles.push(request(&profile?)?);
    }
    Ok(())
}

/// A timing cache in memory or in a file.
fn times(given: &Given<'_>, options: &mut BuildOptions) -> PyResult<()> {
    let Some(cache) = &given.timing_cache else { return Ok(()) };
    if let Ok(path) = cache.extract::<PathBuf>() {
        options.timing_cache = Some(path);
        return Ok(());
    }
    let bytes = crate::tensor::bytes(cache)?;
    // No bytes are a cache that is to be filled.
    let times = if bytes.is_empty() { Ok(TimingCache::new()) } else { TimingCache::from_bytes(&bytes) };
    options.times = Some(parsed("timing_cache", times)?);
    Ok(())
}

/// The rule of a calibration by name.
pub fn calibration_algorithm(name: &str) -> PyResult<kiln::calibration::Algorithm> {
    use kiln::calibration::Algorithm;
    let (rule, number) = name.split_once(':').unwrap_or((name, "0.9999"));
    let quantile: f64 = parsed("calibration_algorithm", number.parse())?;
    choice(
        "calibration_algorithm",
        rule,
        &[
            ("entropy", Algorithm::Entropy),
            ("minmax", Algorithm::MinMax),
            ("percentile", Algorithm::Percentile(quantile)),
            ("legacy", Algorithm::Legacy { quantile, cutoff: 1.0 }),
        ],
    )
}
