//! `kiln trtexec`: the flags, the text and the files of TensorRT's tool, over Kiln's builds and runs.

mod accuracy;
mod drive;
mod dumps;
mod engine;
mod export;
mod flags;
mod help;
mod inputs;
mod log;
mod parse;
mod routes;
mod settings;
mod stats;
mod summary;
mod tuner;
mod values;

use self::drive::{Measured, Residence};
use self::engine::Opened;
use self::log::Log;
use self::parse::Given;
use self::settings::Settings;
use crate::failure::Failure;
use crate::signals;
use kiln::{PlanHeader, Tensor};

/// Exit code of wrong usage.
const USAGE: u8 = 2;

/// Runs the command with these words behind its name, and returns its exit code.
pub fn run(words: &[String]) -> u8 {
    let parsed = parse::parse(words).and_then(|given| Ok((parse::settings(&given)?, given)));
    let verbose = parsed.as_ref().is_ok_and(|(s, _)| s.verbose);
    if let Some(text) = parsed.as_ref().ok().and_then(|(s, _)| help::asked(s)) {
        crate::print::Printer::new(false).line(text);
        return 0;
    }
    crate::log(u8::from(verbose));
    signals::install();
    let log = Log::start(words, verbose);
    let (s, given) = match parsed {
        Ok(parsed) => parsed,
        Err(e) => {
            log.error(e);
            log.verdict("FAILED");
            return USAGE;
        }
    };
    match measure(&s, &given, &log) {
        Ok(()) => {
            log.verdict("PASSED");
            0
        }
        Err(e) => {
            causes(&e).iter().for_each(|c| log.error(c));
            log.verdict("FAILED");
            signals::received().map_or(1, signals::exit_code)
        }
    }
}

/// An error and its causes, one a line; causes that the message above repeats are left out.
fn causes(e: &dyn std::error::Error) -> Vec<String> {
    let mut all = vec![e.to_string()];
    let mut cause = e.source();
    while let Some(c) = cause {
        let text = c.to_string();
        if !all.iter().any(|a| a.contains(&text)) {
            all.push(text);
        }
        cause = c.source();
    }
    all
}

fn measure(s: &Settings, given: &[Given], log: &Log) -> Result<(), Failure> {
    if let (true, Some(path)) = (s.plan_version_only, &s.load_engine) {
        let target = PlanHeader::peek(path)?.target;
        log.info(format!(
            "Engine was built by Kiln with backend \"{}\" version {}",
            target.backend, target.version
        ));
        return Ok(());
    }
    log.head("Options");
    let shown = |g: &Given| if g.value.is_empty() { "yes".to_owned() } else { g.value.clone() };
    given.iter().for_each(|g| log.info(format!("{}: {}", g.flag.name, shown(g))));
    s.notes.iter().for_each(|n| log.warn(n));
    let opened = match s.tuning.choices.is_empty() {
        true => engine::open(s, log)?,
        false => match tuner::tune(s, log)? {
            Some(opened) => opened,
            None => return Ok(()),
        },
    };
    device(&opened, log);
    if s.dump_refit {
        dumps::refittable(&opened, log)?;
    }
    if s.dump_profiles {
        dumps::profiles(opened.engine.profiles(), log);
    }
    if s.time_refit {
        engine::time_refit(&opened, s, log)?;
    }
    if s.time_deserialize {
        return engine::time_deserialize(&opened, log);
    }
    if s.skip_inference {
        log.info("Skipped inference phase since --skipInference is added.");
        return skipped(&opened, s, log);
    }
    infer(&opened, s, log)
}

/// Layers are described without a run, too; flags that need one are named.
fn skipped(opened: &Opened, s: &Settings, log: &Log) -> Result<(), Failure> {
    let idle = [
        (s.export_times.is_some(), "--exportTimes"),
        (s.export_profile.is_some() || s.dump_profile, "--dumpProfile or --exportProfile"),
        (s.export_output.is_some() || s.dump_output, "--dumpOutput or --exportOutput"),
        (s.dump_bindings, "--dumpRawBindingsToFile"),
        (
            !s.debug_files.is_empty() || !s.debug_forms.is_empty(),
            "--saveDebugTensors or --saveAllDebugTensors",
        ),
        (s.accuracy.threshold.is_some(), "--loadRefOutputs"),
    ];
    for (_, flags) in idle.iter().filter(|i| i.0) {
        log.warn(format!("{flags} has no effect: --skipInference leaves runs out."));
    }
    if !s.dump_layers && s.export_layers.is_none() {
        return Ok(());
    }
    let inputs = inputs::read(&[], &opened.engine, s, log)?;
    dumps::layers(&opened.engine, &inputs, s, log)
}

fn device(opened: &Opened, log: &Log) {
    let target = opened.engine.target();
    log.head("Device Information");
    log.info(format!("Selected Device: {}", target.device));
    log.info(format!("Compute Capability: {}", target.arch));
    log.info(format!("Backend: {} {}", target.backend, target.version));
    log.info(format!(
        "Created execution context with device memory size: {}",
        engine::memory(&opened.engine)
    ));
}

fn infer(opened: &Opened, s: &Settings, log: &Log) -> Result<(), Failure> {
    let engine = &opened.engine;
    let none = settings::Pair::default();
    let first = s.pairs.values().next().unwrap_or(&none);
    let inputs = inputs::read(&first.inputs, engine, s, log)?;
    if s.dump_layers || s.export_layers.is_some() {
        dumps::layers(engine, &inputs, s, log)?;
    }
    log.info("Starting inference");
    let m = drive::measure(engine, &inputs, s)?;
    report(&m, engine.backend(), s, log);
    if let Some(path) = &s.export_times {
        export::write_json(path, &export::times(&m.runs))?;
    }
    if s.dump_profile || s.export_profile.is_some() {
        dumps::layer_times(engine, &inputs, s, log)?;
    }
    if s.dump_output || s.dump_bindings || s.export_output.is_some() {
        let outputs = drive::run_once(&mut drive::context(engine, &inputs, s.use_profile)?)?;
        dumps::tensors(&inputs, &outputs, s, log)?;
    }
    if !s.debug_files.is_empty() || !s.debug_forms.is_empty() {
        dumps::debug_tensors(engine, &inputs, s, log)?;
    }
    accuracy(opened, &inputs, s, log)
}

fn report(m: &Measured, backend: &str, s: &Settings, log: &Log) {
    log.info(format!("Warmup completed {} queries over {} ms", m.warm_ups, m.warm_up.as_millis()));
    log.info(format!("Timing trace has {} queries over {} s", m.runs.len(), stats::decimal(m.wall / 1e9)));
    log.head("Trace details");
    log.info(format!("Trace averages of {} runs:", s.avg_runs));
    summary::averages(&m.runs, s.avg_runs).iter().for_each(|l| log.info(l));
    log.head("Performance summary");
    let text = summary::summary(&m.runs, m.wall, &m.device, s);
    text.lines.iter().for_each(|l| log.info(l));
    let copied = m.residence == Residence::Copied;
    let place = if m.residence == Residence::Host { "the host's processor" } else { "a device of its own" };
    let copies = if copied { ", whose copies of inputs are part of it" } else { "" };
    log.info(format!("GPU Compute Time is that of backend \"{backend}\" on {place}{copies}"));
    text.warnings.iter().for_each(|w| log.warn(w));
    if s.streams > 1 {
        log.warn("* Contexts that run at once wait for each other: read the throughput, not the latencies.");
    }
    log.info("Explanations of the performance metrics are printed in the verbose logs.");
    summary::definitions(backend, s.transfers, copied).iter().for_each(|l| log.explain(l));
}

/// Compares the outputs of each pair of files with those that are wanted.
fn accuracy(opened: &Opened, first: &[(String, Tensor)], s: &Settings, log: &Log) -> Result<(), Failure> {
    let Some(threshold) = s.accuracy.threshold else { return Ok(()) };
    let mut beyond = Vec::new();
    for (i, (n, pair)) in s.pairs.iter().enumerate() {
        let inputs = match i {
            0 => first.to_vec(),
            _ => inputs::read(&pair.inputs, &opened.engine, s, log)?,
        };
        let found = drive::run_once(&mut drive::context(&opened.engine, &inputs, s.use_profile)?)?;
        log.head(&format!("Accuracy of pair {n}"));
        for (f, w, name) in inputs::wanted(&pair.outputs, opened.engine.io_tensors(), &found)? {
            let loss = s.accuracy.loss(&f, &w);
            log.info(format!("Accuracy loss ({}) for tensor {name}: {loss}", s.accuracy.algorithm));
            if loss > threshold {
                beyond.push(format!("{name} of pair {n}: {loss}"));
            }
        }
    }
    match beyond.is_empty() {
        true => Ok(()),
        false => {
            Err(Failure::Mismatch(format!("beyond --accuracyThreshold={threshold}: {}", beyond.join("; "))))
        }
    }
}
