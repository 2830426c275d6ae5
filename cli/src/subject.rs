//! Engine that a command runs: from a file, or of a model that is built first.

use crate::failure::Failure;
use crate::given::{InputOptions, ask_for_given, round_to_inputs};
use crate::options::ModelOptions;
use crate::print::{Printer, dims};
use crate::progress::Bar;
use crate::session::{Session, discover, load_layers};
use crate::signals;
use kiln::{BuildOptions, BuildReport, Built, Engine, Model, Profile, Progress, ShapeRequest, Tensor};
use std::path::Path;

/// An engine with the inputs to run it with.
#[derive(Debug)]
pub struct Subject {
    /// Ready to run.
    pub engine: Engine,
    /// Report of the build, if it was built now.
    pub report: Option<BuildReport>,
    /// All inputs in order.
    pub inputs: Vec<(String, Tensor)>,
}

/// Loads or builds, and reads or makes the inputs.
pub fn open(
    path: &Path,
    model: &ModelOptions,
    inputs: &InputOptions,
    out: &Printer,
) -> Result<Subject, Failure> {
    load_layers(&model.plugins)?;
    let opened = Model::open(path)?;
    match opened.plan().map(|header| header.target.backend.clone()) {
        Some(backend) => open_plan(path, opened, &backend, model, inputs, out),
        None => open_model(opened, model, inputs, out),
    }
}

fn open_plan(
    path: &Path,
    plan: Model,
    backend: &str,
    model: &ModelOptions,
    inputs: &InputOptions,
    out: &Printer,
) -> Result<Subject, Failure> {
    if let Some(option) = model.building() {
        return Err(Failure::Input(format!(
            "{option} says how to build, and {} is built: give it to `kiln build`",
            path.display()
        )));
    }
    if let Some(asked) = model.backend.backend.as_ref().filter(|b| *b != backend) {
        return Err(Failure::Input(format!(
            "{} was built for the backend \"{backend}\", not \"{asked}\": build the model for it, or the engine itself if it is portable: \
             kiln build {} --backend {asked}",
            path.display(),
            path.display()
        )));
    }
    let session = Session::with(&model.plugins, [backend]);
    let mut builder = Engine::builder().backends(session.backends.clone()).plugins(discover(&model.plugins));
    if let Some(device) = &model.backend.device {
        builder = builder.device(device.clone());
    }
    let builder = inputs.load.apply(builder);
    let engine = builder.build(plan).inspect_err(|_| tell_refusals(&session, out))?;
    let given = inputs.read(engine.io_tensors(), out)?;
    let mut request = model.shapes.request();
    ask_for_given(&mut request, &given, engine.io_tensors());
    let profile = run_profile(&engine, &request, inputs.use_profile)?;
    let inputs = inputs.complete(given, engine.io_tensors(), &profile)?;
    let inputs = round_to_inputs(inputs, engine.io_tensors(), out);
    Ok(Subject { engine, report: None, inputs })
}

/// Shapes to run an engine with: those that are asked for, else the usual ones of its profile.
pub fn run_profile(
    engine: &Engine,
    request: &ShapeRequest,
    profile: Option<usize>,
) -> Result<Profile, Failure> {
    let built = engine.profiles().get(profile.unwrap_or(0));
    let usual = |name: &str, axis: usize| {
        built.and_then(|p| p.shapes.get(name)).and_then(|r| r.opt.get(axis)).copied().unwrap_or(1)
    };
    let mut profile = request.profile(engine.io_tensors(), &usual)?.profile;
    for (name, values) in built.iter().flat_map(|p| &p.values) {
        profile.values.entry(name.clone()).or_insert_with(|| values.clone());
    }
    Ok(profile)
}

fn open_model(
    network: Model,
    model: &ModelOptions,
    inputs: &InputOptions,
    out: &Printer,
) -> Result<Subject, Failure> {
    let io = network.io_tensors().to_vec();
    let given = inputs.read(&io, out)?;
    let mut options = model.build()?;
    let asked = &model.backend;
    let usual = match options.profiles.first().filter(|_| options.shapes.is_empty()) {
        Some(first) => first.clone(),
        None => {
            ask_for_given(&mut options.shapes, &given, &io);
            options.shapes.clone()
        }
    };
    let profile = usual.profile(&io, &|_, _| 1)?.profile;
    inputs.complete(given.clone(), &io, &profile)?;
    let session = session_for(model, [asked.backend.as_deref(), asked.fallback.as_deref()]);
    model.io.apply(&io, &mut options.config)?;
    model.calibration.apply(&network, &mut options, &session.backends, out)?;
    let built = build(network, &options, &session, out)?;
    tell(&built.report, out);
    let mut builder = Engine::builder().backends(session.backends);
    if let (Some(device), None) = (&asked.device, &built.report.fell_back) {
        builder = builder.device(device.clone());
    }
    let engine = inputs.load.apply(builder).build(built.plan)?;
    // Random inputs are drawn in the types that the engine takes.
    let inputs = inputs.complete(given, engine.io_tensors(), &profile)?;
    let inputs = round_to_inputs(inputs, engine.io_tensors(), out);
    Ok(Subject { engine, report: Some(built.report), inputs })
}

/// The backends for a build: all, unless those that are asked for are linked in.
pub fn session_for(model: &ModelOptions, names: [Option<&str>; 2]) -> Session {
    match names {
        [None, _] => Session::all(&model.plugins),
        [Some(first), other] => Session::with(&model.plugins, [Some(first), other].into_iter().flatten()),
    }
}

/// Builds, with a progress bar.
pub fn build(
    network: Model,
    options: &BuildOptions,
    session: &Session,
    out: &Printer,
) -> Result<Built, Failure> {
    let builder = Engine::builder().options(options.clone()).backends(session.backends.clone());
    watched(session, out, |progress| builder.build_plan_with_progress(network, progress))
}

/// Shows a progress bar for work that builds. Signals end the work.
pub fn watched<T>(
    session: &Session,
    out: &Printer,
    work: impl FnOnce(Progress<'_>) -> Result<T, kiln::Error>,
) -> Result<T, Failure> {
    let mut bar = Bar::default();
    // Signals end long layers that are computed at build, too.
    let result = signals::scope(|| {
        work(&mut |phase, done, total| {
            bar.set(phase, done, total);
            signals::received().is_none()
        })
    });
    drop(bar);
    Ok(result.inspect_err(|_| tell_refusals(session, out))?)
}

/// Says once what was assumed or left to another backend.
pub fn tell(report: &BuildReport, out: &Printer) {
    remarks(report).iter().for_each(|r| out.note(r));
}

/// Assumptions of a build, its notes, and whether another backend took over.
pub fn remarks(report: &BuildReport) -> Vec<String> {
    let mut all = Vec::new();
    if !report.assumed.is_empty() {
        let assumed: Vec<String> = report.assumed.iter().map(|(n, s)| format!("{n}:{}", dims(s))).collect();
        all.push(format!(
            "dynamic dimensions that were not given are taken as 1 ({}); give --shapes, or --min-shapes, --opt-shapes \
             and --max-shapes",
            assumed.join(", ")
        ));
    }
    all.extend(report.notes.iter().cloned());
    let said = report.steps.iter().filter(|s| !s.note.is_empty());
    all.extend(said.map(|s| format!("layer \"{}\": {}", s.name, s.note)));
    if let Some((backend, reason)) = &report.fell_back {
        all.push(format!("{backend} REFUSED THE NETWORK, ALL OF IT RUNS ON {}: {reason}", report.backend));
    }
    all
}

fn tell_refusals(session: &Session, out: &Printer) {
    session.refusals().iter().for_each(|r| out.note(format!("plug-in not used: {r}")));
}
