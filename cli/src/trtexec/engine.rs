//! The engine to measure: built of a model, loaded, or refitted.

use super::inputs::{fixed, request};
use super::log::Log;
use super::routes;
use super::settings::Settings;
use super::stats::decimal;
use super::values::Budget;
use crate::failure::Failure;
use crate::options::ModelOptions;
use crate::print::{Printer, bytes as size};
use crate::session::{Session, discover, load_layers};
use crate::subject::{self, remarks, session_for};
use kiln::weights::set_from_file;
use kiln::{Backends, BuildOptions, Built, Engine, EngineBuilder, Model, Plan, Refitter};
use kiln_backend::offer_feature;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Times that loading and refitting are repeated to be timed.
const REPEATS: usize = 10;

/// An engine, and the plan that it was made of.
pub struct Opened {
    pub engine: Engine,
    pub plan: Plan,
    backends: Backends,
}

impl Opened {
    /// Stores the plan.
    ///
    /// # Errors
    /// A file that is there and is not a plan, or that is read as well.
    pub fn save(&self, path: &Path, s: &Settings) -> Result<(), Failure> {
        let from = s.onnx.as_deref().unwrap_or(Path::new(""));
        self.plan.write_into(replacement(path, from, &s.model_options()?)?)?;
        Ok(())
    }
}

/// Builds or loads the engine.
pub fn open(s: &Settings, log: &Log) -> Result<Opened, Failure> {
    let model = s.model_options()?;
    load_layers(&model.plugins)?;
    match (&s.load_engine, &s.onnx) {
        (Some(path), _) => load(path, s, &model, log),
        (None, Some(path)) => build(path, s, &model, log),
        (None, None) => Err(Failure::Input("give a model or an engine".into())),
    }
}

fn build(path: &Path, s: &Settings, model: &ModelOptions, log: &Log) -> Result<Opened, Failure> {
    let printer = Printer::new(false);
    let place = s.save_engine.as_deref().map(|p| replacement(p, path, model)).transpose()?;
    let network = Model::open(path)?;
    let io = network.io_tensors().to_vec();
    let names = [model.backend.backend.as_deref(), None];
    let session = session_for(model, names);
    let mut options = options(s, model)?;
    shapes(s, &io, &mut options);
    sources(s, &session, &mut options, log)?;
    model.io.apply(&io, &mut options.config)?;
    model.calibration.apply(&network, &mut options, &session.backends, &printer)?;
    log.info("Start parsing network model.");
    log.info(format!("Input filename:   {}", path.display()));
    network.notes().iter().for_each(|n| log.explain(n));
    let begin = Instant::now();
    let Built { plan, report, .. } = subject::build(network, &options, &session, &printer)?;
    log.info(format!("Engine built in {} sec.", decimal(begin.elapsed().as_secs_f64())));
    remarks(&report).iter().for_each(|r| log.warn(r));
    log.explain(format!("{} kernels were timed", report.timed));
    let size = plan.write()?.len();
    log.info(format!("Created engine with size: {} MiB", decimal(size as f64 / f64::from(1 << 20))));
    if let Some(place) = place {
        plan.write_into(place)?;
    }
    let engine = builder(s, model, &plan, &session.backends).build(plan.clone())?;
    Ok(Opened { engine, plan, backends: session.backends })
}

/// The builder of an engine of a plan, on the device and with the memory for weights that are asked for.
fn builder(s: &Settings, model: &ModelOptions, plan: &Plan, backends: &Backends) -> EngineBuilder {
    let mut builder = Engine::builder().backends(backends.clone()).plugins(discover(&model.plugins));
    if let Some(device) = &model.backend.device {
        builder = builder.device(device.clone());
    }
    let weights = || plan.program.weights().map(|(_, t)| t.bytes().len() as u64).sum::<u64>();
    match s.weight_budget {
        Some(Budget::Bytes(n)) => builder.weight_budget(n),
        Some(Budget::Percent(p)) => builder.weight_budget((weights() as f64 * p / 100.0) as u64),
        Some(Budget::Automatic) => builder.automatic_weight_budget(),
        None => builder,
    }
}

/// Place for an engine that replaces none of the files that are read.
fn replacement(path: &Path, onnx: &Path, model: &ModelOptions) -> Result<kiln_files::Replacement, Failure> {
    let place = Plan::replacement(path)?;
    let read = [Some(onnx), model.tune.timing_cache.as_deref()];
    let checked = place.refuse_inputs(read.into_iter().flatten());
    checked.map_err(|source| Failure::File { path: path.to_owned(), source })?;
    Ok(place)
}

fn options(s: &Settings, model: &ModelOptions) -> Result<BuildOptions, Failure> {
    let mut options = model.build()?;
    options.verbosity = s.verbosity;
    options.embed_plugins = s.embed_plugins;
    let config = &mut options.config;
    config.version_compatible = s.version_compatible;
    config.samples = s.samples.unwrap_or(config.samples);
    config.max_tactics = s.max_tactics.unwrap_or(config.max_tactics);
    routes::apply(&s.route, &mut options);
    Ok(options)
}

/// Profiles, or the shapes to run with as the only ones.
fn shapes(s: &Settings, io: &[kiln::IoTensor], options: &mut BuildOptions) {
    match s.profiles.is_empty() {
        true => options.shapes = fixed(&s.shapes, io),
        false => options.profiles = s.profiles.values().map(|p| request(p, io)).collect(),
    }
}

/// Libraries that kernels may come from, as far as the backend offers them.
fn sources(s: &Settings, session: &Session, options: &mut BuildOptions, log: &Log) -> Result<(), Failure> {
    if s.tactic_sources.is_empty() {
        return Ok(());
    }
    let name = match &options.backend {
        Some(name) => name.clone(),
        None => kiln::best(&session.backends)?,
    };
    let backend = session.backends.get(&name)?;
    let targets = backend.targets().unwrap_or_default();
    for source in &s.tactic_sources {
        let offered = |library: &str| targets.iter().any(|t| t.has(&offer_feature(library)));
        let library = source.library.filter(|l| offered(l));
        match (library, source.on) {
            (Some(l), true) => options.config.tactic_sources.push(l.to_owned()),
            (Some(l), false) => options.config.excluded_tactics.push(l.to_owned()),
            (None, on) => {
                let sign = if on { '+' } else { '-' };
                let from = &source.name;
                log.warn(format!(
                    "--tacticSources={sign}{from} has no effect: backend \"{name}\" takes no kernels from there."
                ));
            }
        }
    }
    Ok(())
}

fn load(path: &Path, s: &Settings, model: &ModelOptions, log: &Log) -> Result<Opened, Failure> {
    if let Some(option) = model.building() {
        log.warn(format!("{option} has no effect: it says how to build, and --loadEngine is built."));
    }
    let begin = Instant::now();
    let mut plan = Plan::open(path)?;
    log.info(format!("Engine loaded in {} sec.", decimal(begin.elapsed().as_secs_f64())));
    let session = Session::with(&model.plugins, [plan.header.target.backend.as_str()]);
    if let Some(weights) = refit_source(s) {
        let begin = Instant::now();
        plan = refitted(plan, &weights, log)?;
        log.info(format!("Engine refitted in {} sec.", decimal(begin.elapsed().as_secs_f64())));
    }
    if let Some(to) = &s.save_engine {
        plan.write_into(replacement(to, path, model)?)?;
    }
    let begin = Instant::now();
    let engine = builder(s, model, &plan, &session.backends).build(plan.clone())?;
    log.info(format!("Engine deserialized in {} sec.", decimal(begin.elapsed().as_secs_f64())));
    Ok(Opened { engine, plan, backends: session.backends })
}

/// The model that weights come from.
fn refit_source(s: &Settings) -> Option<PathBuf> {
    let from = s.refit_from.as_ref()?;
    if from.as_os_str().is_empty() { s.onnx.clone() } else { Some(from.clone()) }
}

fn refitted(plan: Plan, weights: &Path, log: &Log) -> Result<Plan, Failure> {
    let mut refitter = Refitter::of_plan(plan)?;
    set_from_file(&mut refitter, weights)?;
    let report = refitter.refit()?;
    report.warnings.iter().for_each(|w| log.warn(w));
    log.info(format!("Refitted {} weights from {}", report.replaced, weights.display()));
    Ok(refitter.into_plan())
}

/// Milliseconds of several repetitions.
fn repeated(what: &str, mut once: impl FnMut() -> Result<f64, Failure>, log: &Log) -> Result<(), Failure> {
    let times = (0..REPEATS).map(|_| once()).collect::<Result<Vec<f64>, _>>()?;
    let total: f64 = times.iter().sum();
    log.info(format!(
        "Total {what} time = {} milliseconds in {REPEATS} iterations, average time = {}, first time = {}.",
        decimal(total),
        decimal(total / REPEATS as f64),
        decimal(times.first().copied().unwrap_or(0.0)),
    ));
    Ok(())
}

/// Times reading the engine's bytes and making it ready.
pub fn time_deserialize(opened: &Opened, log: &Log) -> Result<(), Failure> {
    let bytes = opened.plan.write()?;
    log.info(format!("Engine size: {}", size(bytes.len() as u64)));
    let once = || {
        let begin = Instant::now();
        let plan = Plan::read(bytes.clone())?;
        let engine = Engine::builder().backends(opened.backends.clone()).build(plan)?;
        let time = begin.elapsed().as_secs_f64() * 1e3;
        drop(engine);
        Ok(time)
    };
    repeated("deserialization", once, log)
}

/// Times replacing all weights by those of a model.
pub fn time_refit(opened: &Opened, s: &Settings, log: &Log) -> Result<(), Failure> {
    let from = refit_source(s).or_else(|| s.onnx.clone());
    let Some(weights) = from else {
        return Err(Failure::Input("--timeRefit needs weights: give --refitFromOnnx=FILE".into()));
    };
    let once = || {
        let mut refitter = opened.engine.refitter()?;
        set_from_file(&mut refitter, &weights)?;
        let begin = Instant::now();
        refitter.refit()?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    repeated("refit", once, log)
}

/// The memory of a context, for people.
pub fn memory(engine: &Engine) -> String {
    size(engine.context_memory())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trtexec::parse::{parse, settings};

    /// The build's options of a command line, as text.
    fn of(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let s = settings(&parse(&words).unwrap()).unwrap();
        let text = format!("{:?}", options(&s, &s.model_options().unwrap()).unwrap());
        format!("{text} {:?}", s.weight_budget)
    }

    #[test]
    fn each_flag_of_the_build_is_in_its_options() {
        let none = of(&["--onnx=m"]);
        for (flags, wanted) in [
            ("--fp16", "reduced: [F16]"),
            ("--bf16", "reduced: [BF16]"),
            ("--int8", "reduced: [I8]"),
            ("--fp8", "reduced: [F8E4M3]"),
            ("--best", "reduced: [I8, F8E4M3, F16, BF16]"),
            ("--noTF32", "tf32: false"),
            ("--stronglyTyped", "strong_types: true"),
            ("--precisionConstraints=obey", "constraints: Obey"),
            ("--precisionConstraints=prefer", "constraints: Prefer"),
            ("--layerPrecisions='a':fp16", "layers: \"a\", precision: Some(F16)"),
            ("--layerOutputTypes=a:fp16+fp32", "outputs: [F16, F32]"),
            ("--sparsity=enable", "sparsity: Enable"),
            ("--sparsity=force", "sparsity: Force"),
            (
                "--memPoolSize=workspace:64,tacticDRAM:1G",
                "pools: {Workspace: 67108864, TacticDram: 1073741824}",
            ),
            ("--workspace=16", "pools: {Workspace: 16777216}"),
            ("--timingCacheFile=c", "timing_cache: Some(\"c\")"),
            ("--timingCacheFile=c --errorOnTimingCacheMiss", "locked: true"),
            ("--noBuilderCache", "share_times: false"),
            ("--avgTiming=3", "samples: 3"),
            ("--maxTactics=2", "max_tactics: 2"),
            ("--builderOptimizationLevel=0", "search: false"),
            ("--refit", "refit: All"),
            ("--stripWeights", "strip_weights: true"),
            ("--weightless", "strip_weights: true"),
            ("--stripAllWeights", "refit: All"),
            ("--versionCompatible", "version_compatible: true"),
            ("--vc", "version_compatible: true"),
            ("--setPluginsToSerialize=x.so", "embed_plugins: true"),
            ("--markDebug=a,b", "debug_tensors: [\"a\", \"b\"]"),
            ("--cpuOnly", "estimates: true"),
            ("--profilingVerbosity=none", "verbosity: None"),
            ("--profilingVerbosity=detailed", "verbosity: Detailed"),
            ("--backend=cpu", "backend: Some(\"cpu\")"),
            ("--weightStreamingBudget=1K", "Some(Bytes(1024))"),
            ("--setBuildRoute=-fuse=off", "fuse: false"),
        ] {
            let words: Vec<&str> = std::iter::once("--onnx=m").chain(flags.split(' ')).collect();
            let found = of(&words);
            assert!(!none.contains(wanted) && found.contains(wanted), "{flags}: no {wanted} in {found}");
        }
    }
}
