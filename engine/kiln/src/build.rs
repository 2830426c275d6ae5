//! Builds of networks to plans.

use crate::{Error, ShapeRequest, best};
use kiln_backend::{Backend, DeviceChoice, Target};
use kiln_builder::TacticRecord;
use kiln_builder::cache::{CacheStore, TimingCache};
use kiln_builder::passes::PassReport;
use kiln_builder::{BuildConfig, BuildError, Builder, Considered, Progress, Refit, Spent, StepReport};
use kiln_ir::Graph;
use kiln_plan::{Plan, Verbosity};
use kiln_runtime::{Backends, HostLayer, graph_io};
use std::path::PathBuf;
use std::sync::Arc;

/// Options of a build. `Engine::builder` sets most of them by name.
///
/// ```
/// let mut options = kiln::BuildOptions::default();
/// options.backend = Some("cpu".to_owned());
/// options.shapes.fixed("input", &[1, 1, 28, 28]);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BuildOptions {
    /// The backend; `None` takes the best one that has a device.
    pub backend: Option<String>,
    /// The backend that takes over the whole network if the first refuses a layer.
    pub fallback: Option<String>,
    /// The backend's device; `None` takes the best one.
    pub device: Option<DeviceChoice>,
    /// Devices beside that of the build that are to run the plan.
    pub hardware_compatibility: HardwareCompatibility,
    /// Target to build for instead of a device of this machine, such as that of another plan. Timing needs the device here.
    pub target: Option<Target>,
    /// Settings of the builder. Its profiles, if there are any, go before `shapes`.
    pub config: BuildConfig,
    /// Shapes of dynamic inputs; dimensions that are not set are 1.
    pub shapes: ShapeRequest,
    /// Shapes of further optimization profiles, behind that of `shapes` (if any are set there).
    pub profiles: Vec<ShapeRequest>,
    /// Greatest batch of a network with an implicit batch, 1 by default: its engine takes batches of 1 to this many entries. Refused for
    /// other networks, and beside `shapes` and `profiles`.
    pub max_batch: Option<i64>,
    /// A file of times: read before the build and added to as times are taken, unless the build is locked. A file that
    /// cannot be read or written is a warning.
    pub timing_cache: Option<PathBuf>,
    /// Times that are known before the build, instead of those of a file. [`Built::times`] has these and new ones.
    pub times: Option<TimingCache>,
    /// Refuse times that are of other devices or settings alone, instead of timing anew.
    pub strict_times: bool,
    /// Choices of another build, which this one makes again without timing anything.
    pub replay: Option<TacticRecord>,
    /// Amount of information on layers in the plan.
    pub verbosity: Verbosity,
    /// Keep the network in the plan, so that it can be built again for another device.
    pub portable: bool,
    /// Put the libraries of plug-in layers that runs call into the plan.
    pub embed_plugins: bool,
    /// Leave weights out of the plan that a refit can supply. Where the settings permit no refit, that is one by identical
    /// weights.
    pub strip_weights: bool,
}

/// Devices that run a plan, beside that of its build and others of the same architecture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HardwareCompatibility {
    /// No others: kernels may use all that the architecture has.
    #[default]
    None,
    /// Every NVIDIA GPU from Ampere (sm_80) on: kernels use what all of them have, and the driver translates them when the plan is
    /// loaded. Such plans are slower on later architectures, and have no FP8.
    AmperePlus,
}

/// A plan, and how it was built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Built {
    /// The plan.
    pub plan: Plan,
    /// Report of the build.
    pub report: BuildReport,
    /// All times that are known after the build.
    pub times: TimingCache,
    /// Choices of the build, to be made again by another one.
    pub record: TacticRecord,
}

/// Report of how a plan was built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuildReport {
    /// The backend that every layer runs on.
    pub backend: String,
    /// The device that it was built for.
    pub target: Target,
    /// The backend that refused, and why, if this is a fallback.
    pub fell_back: Option<(String, String)>,
    /// Steps in execution order, with their kernels.
    pub steps: Vec<StepReport>,
    /// Passes with their changes.
    pub passes: Vec<PassReport>,
    /// Rewrites that the search considered.
    pub considered: Vec<Considered>,
    /// Candidates that were timed; 0 for a warm build.
    pub timed: usize,
    /// Time of the build by phase.
    pub spent: Spent,
    /// Layers at which runs are expected to need the host, and why. What a run did is in
    /// [`kiln_runtime::ExecutionContext::host_layers`].
    pub host_layers: Vec<HostLayer>,
    /// Inputs with dimensions that nobody gave, with the shape that they got.
    pub assumed: Vec<(String, Vec<i64>)>,
    /// Notes of the importer and the builder.
    pub notes: Vec<String>,
}

/// Builds a plan of a network. `progress` receives phase, steps done and steps in all, and cancels by returning false.
pub(crate) fn build(
    graph: Graph,
    notes: Vec<String>,
    options: &BuildOptions,
    backends: &Backends,
    progress: Progress<'_>,
) -> Result<Built, Error> {
    let name = match (&options.backend, &options.target) {
        (Some(name), _) => name.clone(),
        (None, Some(target)) => target.backend.clone(),
        (None, None) => best(backends)?,
    };
    let first = build_on(&name, &graph, options, backends, progress);
    let mut built = match (first, &options.fallback) {
        (Err(e), Some(other)) if refused(&e) && *other != name => {
            let reason = chain(&e);
            tracing::warn!("{name} refuses the network, all of it runs on {other}: {reason}");
            let mut built = build_on(other, &graph, options, backends, progress)?;
            built.report.fell_back = Some((name, reason));
            built
        }
        (result, _) => result?,
    };
    let own = std::mem::replace(&mut built.report.notes, notes);
    built.report.notes.extend(own);
    Ok(built)
}

/// Whether the backend lacks a kernel or a device.
fn refused(e: &Error) -> bool {
    matches!(e, Error::Devices { .. } | Error::Build { source: BuildError::NoTactic { .. }, .. })
}

fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

fn build_on(
    name: &str,
    graph: &Graph,
    options: &BuildOptions,
    backends: &Backends,
    progress: Progress<'_>,
) -> Result<Built, Error> {
    let backend = backends.get(name).map_err(|_| Error::UnknownBackend {
        name: name.to_owned(),
        known: backends.names().collect::<Vec<_>>().join(", "),
    })?;
    let target = match &options.target {
        Some(t) if t.backend == name => t.clone(),
        Some(t) => {
            return Err(Error::OtherTarget { backend: name.to_owned(), found: t.backend.clone() });
        }
        None => pick(backend.as_ref(), options.device.clone().unwrap_or_default())?,
    };
    let target = match options.hardware_compatibility {
        HardwareCompatibility::None => target,
        HardwareCompatibility::AmperePlus => {
            let (backend, arch) = (name.to_owned(), target.arch.clone());
            target.ampere_plus().ok_or(Error::HardwareCompatibility { backend, arch })?
        }
    };
    let mut config = options.config.clone();
    let mut assumed = Vec::new();
    if config.profiles.is_empty() {
        let io = graph_io(graph);
        let varies = io.iter().any(|t| t.is_shape_input || t.ty().static_dims().is_none());
        let only = options.profiles.is_empty();
        let first = std::iter::once(&options.shapes).filter(|s| !s.is_empty() || only && varies);
        for request in first.chain(&options.profiles) {
            let shaped = request.profile(&io, &|_, _| 1)?;
            shaped.profile.check(&io)?;
            config.profiles.push(shaped.profile);
            assumed.extend(shaped.assumed);
        }
    }
    if options.strip_weights && config.refit == Refit::Off {
        config.refit = Refit::Identical;
    }
    let (profiles, identical) = (config.profiles.clone(), config.refit == Refit::Identical);
    let (version_compatible, limit) = (config.version_compatible, config.limit);
    let (built, times) = run_builder(backend, &target, graph.clone(), config, options, progress)?;
    let estimates = options.config.estimates;
    let mut record = TacticRecord::of(
        &built.steps,
        &built.times,
        &target,
        options.replay.as_ref().map_or(estimates, |r| r.estimates),
    );
    record = match options.replay.as_ref().and_then(|r| r.effort.clone()) {
        Some(effort) => TacticRecord { effort: Some(effort), ..record },
        None => record.with_effort(&options.config),
    };
    let mut part = target.clone();
    limit.apply(&mut part);
    let mut plan = Plan::new(built.program, profiles, part).with_verbosity(options.verbosity);
    if options.portable {
        plan = plan.with_network(graph.clone());
    }
    if options.embed_plugins {
        plan = kiln_runtime::plugin::embed(plan)?;
    }
    plan.header.identical = identical;
    plan.header.version_compatible = version_compatible;
    plan.header.limit = limit;
    if options.strip_weights {
        plan = kiln_runtime::strip(plan)?;
    }
    let report = BuildReport {
        backend: name.to_owned(),
        target,
        fell_back: None,
        steps: built.steps,
        passes: built.passes,
        considered: built.considered,
        timed: built.timed,
        spent: built.spent,
        host_layers: built.host_layers,
        assumed,
        notes: built.notes,
    };
    Ok(Built { plan, report, times, record })
}

fn pick(backend: &dyn Backend, device: DeviceChoice) -> Result<Target, Error> {
    let name = || backend.name().to_owned();
    let mut targets = backend.targets().map_err(|source| Error::Devices { backend: name(), source })?;
    match device.find(&targets) {
        Some(at) => Ok(targets.swap_remove(at)),
        None => Err(Error::NoDevice { backend: name(), wanted: device, count: targets.len() }),
    }
}

/// Runs the builder with the timing cache of the options. Times are in the file as soon as they are taken, whatever
/// becomes of the build; a file that cannot be used is a warning.
fn run_builder(
    backend: Arc<dyn Backend>,
    target: &Target,
    graph: Graph,
    config: BuildConfig,
    options: &BuildOptions,
    progress: Progress<'_>,
) -> Result<(kiln_builder::Built, TimingCache), Error> {
    let (network, name, locked) = (graph.name.clone(), backend.name().to_owned(), config.locked);
    let mut builder = Builder::new(backend, target.clone());
    builder.config = config;
    let sharing = builder.config.share_times;
    if let Some(times) = options.times.as_ref().filter(|_| sharing) {
        builder.cache = times.clone();
    }
    if let Some(path) = options.timing_cache.as_ref().filter(|_| sharing) {
        let (store, known) = CacheStore::open(path);
        builder.cache.merge(&known);
        builder.store = Some(store).filter(|_| !locked);
    }
    let checked = if options.strict_times { builder.check_cache() } else { Ok(()) };
    let replayed = checked.and_then(|()| match &options.replay {
        Some(record) => {
            builder.store = None;
            builder.replay(record)
        }
        None => Ok(()),
    });
    let result = replayed.and_then(|()| builder.build_graph(graph, progress));
    if let Some(store) = builder.store.take() {
        store.finish(&builder.cache);
    }
    let built = result.map_err(|source| Error::Build { network, backend: name, source })?;
    Ok((built, builder.cache))
}
