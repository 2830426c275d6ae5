//! Reports of layers, profiles, weights, tensors between kernels, inputs and outputs.

use super::export::{self, dims, rows, statistics};
use super::log::Log;
use super::settings::Settings;
use super::stats::decimal;
use super::values::DebugForm;
use super::{drive, engine::Opened};
use crate::arrays;
use crate::cmd::bench::layers::profile;
use crate::failure::Failure;
use kiln::inspect::Layer;
use kiln::{Engine, Profile, Refitter, Tensor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs in which layers are timed at most.
const PROFILED: usize = 1000;

/// Prints the weights that a refit can replace.
pub fn refittable(opened: &Opened, log: &Log) -> Result<(), Failure> {
    let refitter = Refitter::of_plan(opened.plan.clone())?;
    log.head("Refittable weights");
    for w in refitter.weights().filter(|w| w.fixed.is_none()) {
        let uses: Vec<String> =
            w.uses.iter().map(|(layer, role)| format!("{layer} {}", role.name())).collect();
        log.info(format!("{} ({} {}): {}", w.name, w.dtype, dims(&w.shape), uses.join(", ")));
    }
    Ok(())
}

/// Prints the shapes that the engine is for.
pub fn profiles(all: &[Profile], log: &Log) {
    log.head("Optimization profiles");
    for (i, p) in all.iter().enumerate() {
        let of = |kind: &str, (name, r): (&String, &kiln::Range)| {
            let join = |v: &[i64]| v.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
            log.info(format!(
                "profile {i}: {name} {kind}: MIN={}, OPT={}, MAX={}",
                join(&r.min),
                join(&r.opt),
                join(&r.max)
            ));
        };
        p.shapes.iter().for_each(|r| of("dimensions", r));
        p.values.iter().for_each(|r| of("values", r));
    }
}

/// Prints or stores the layers, at the shapes of the run.
pub fn layers(engine: &Engine, inputs: &[(String, Tensor)], s: &Settings, log: &Log) -> Result<(), Failure> {
    let table = drive::context(engine, inputs, s.use_profile)?.inspector()?;
    if s.dump_layers {
        log.head("Layer information");
        log.info(format!("Layers: {}", table.layers.len()));
        for (i, l) in table.layers.iter().enumerate() {
            let line = table.line(i).unwrap_or_default();
            log.info(if matches!(l, Layer::Name(_)) { l.name().to_owned() } else { line });
        }
        log.info(format!("Bindings: {}", table.io.join(", ")));
    }
    match &s.export_layers {
        Some(path) => export::write_json(path, &export::layers(&table)),
        None => Ok(()),
    }
}

/// Times layers in runs of their own, and prints or stores their times.
pub fn layer_times(
    engine: &Engine,
    inputs: &[(String, Tensor)],
    s: &Settings,
    log: &Log,
) -> Result<(), Failure> {
    let runs = s.iterations.clamp(1, PROFILED);
    let mut context = drive::context(engine, inputs, s.use_profile)?;
    let (layers, _) = profile(&mut context, runs)?;
    if layers.is_empty() {
        let backend = engine.backend();
        log.warn(format!(
            "No layer was timed: backend \"{backend}\" cannot on this device, or nothing is launched."
        ));
    }
    let rows = rows(&layers, runs);
    if s.dump_profile {
        log.head(&format!("Profile ({runs} iterations )"));
        log.info("   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer");
        let line = |[time, mean, median, share]: [f64; 4], name: &str| {
            let [time, mean, median] = [time, mean, median].map(decimal);
            log.info(format!("{time:>11}  {mean:>11}  {median:>11}  {share:>8.1}   {name}"));
        };
        rows.iter().for_each(|r| line([r.time, r.mean, r.median, r.share], &r.name));
        let outer = || rows.iter().zip(&layers).filter(|(_, l)| !l.inside).map(|(r, _)| r);
        let sum = |of: fn(&export::Row) -> f64| outer().map(of).sum::<f64>();
        line([sum(|r| r.time), sum(|r| r.mean), sum(|r| r.median), sum(|r| r.share)], "Total");
    }
    match &s.export_profile {
        Some(path) => export::write_json(path, &export::profile(&rows, runs)),
        None => Ok(()),
    }
}

/// Prints or stores outputs, and inputs and outputs as raw files.
pub fn tensors(
    inputs: &[(String, Tensor)],
    outputs: &[(String, Tensor)],
    s: &Settings,
    log: &Log,
) -> Result<(), Failure> {
    if s.dump_output {
        log.info("Output Tensors:");
        for (name, t) in outputs {
            log.info(format!("{name}: ({})", dims(t.shape())));
            log.info(text(t));
        }
    }
    if let Some(path) = &s.export_output {
        export::write_json(path, &export::outputs(outputs))?;
    }
    if s.dump_bindings {
        for (all, kind) in [(inputs, "input"), (outputs, "output")] {
            for (name, t) in all {
                let shape = t.shape().iter().map(|d| format!("{d}.")).collect::<String>();
                let path = PathBuf::from(format!("{}.{kind}.{shape}{}.raw", safe(name), t.dtype()));
                export::write(&path, t.bytes())?;
                log.info(format!("Wrote {}", path.display()));
            }
        }
    }
    Ok(())
}

/// All elements in a line.
fn text(t: &Tensor) -> String {
    match t.elems() {
        kiln::Elems::F(v) => v.iter().map(f64::to_string).collect::<Vec<_>>().join(" "),
        kiln::Elems::I(v) => v.iter().map(i64::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// A name as part of a file's name.
fn safe(name: &str) -> String {
    let kept: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    kept.chars().take(200).collect()
}

/// Stores tensors between kernels of one run.
pub fn debug_tensors(
    engine: &Engine,
    inputs: &[(String, Tensor)],
    s: &Settings,
    log: &Log,
) -> Result<(), Failure> {
    let mut context = drive::context(engine, inputs, s.use_profile)?;
    let marked = context.debug_tensors();
    let files = s.debug_files.iter().map(|spec| debug_file(spec, &marked)).collect::<Result<Vec<_>, _>>()?;
    let found = Arc::new(Mutex::new(Vec::new()));
    let to = found.clone();
    context.set_debug_listener(Some(Box::new(move |name: &str, t: &Tensor| {
        to.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), t.clone()));
        true
    })));
    context.set_all_debug_states(true);
    context.set_unfused_debug_state(!s.debug_forms.is_empty());
    drive::run_once(&mut context)?;
    let found: Vec<(String, Tensor)> =
        std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    for (name, path) in files {
        match found.iter().find(|(n, _)| n == name) {
            Some((_, t)) => export::write(Path::new(path), t.bytes())?,
            None => {
                log.warn(format!("tensor \"{name}\" was not computed in this run; {path} is not written"))
            }
        }
    }
    for form in &s.debug_forms {
        found.iter().try_for_each(|(name, t)| debug_form(*form, name, t, log))?;
    }
    Ok(())
}

/// The marked tensor that a file is for, and the file.
fn debug_file<'a>(spec: &'a str, marked: &'a [String]) -> Result<(&'a str, &'a str), Failure> {
    let fits = |n: &&String| spec.strip_prefix(n.as_str()).is_some_and(|rest| rest.starts_with(':'));
    let found = marked.iter().filter(fits).max_by_key(|n| n.len());
    found.map(|n| (n.as_str(), &spec[n.len() + 1..])).ok_or_else(|| {
        Failure::Input(format!(
            "--saveDebugTensors={spec} names no marked tensor; marked by --markDebug: {}",
            if marked.is_empty() { "none".to_owned() } else { marked.join(", ") }
        ))
    })
}

fn debug_form(form: DebugForm, name: &str, t: &Tensor, log: &Log) -> Result<(), Failure> {
    let path = |ending: &str| PathBuf::from(format!("0000_{}.{ending}", safe(name)));
    match form {
        DebugForm::Summary => {
            log.info(format!(
                "Debug tensor {name} ({} {}): {}",
                t.dtype(),
                dims(t.shape()),
                statistics(&t.to_f64())
            ));
            Ok(())
        }
        DebugForm::Numpy => {
            let path = path("npy");
            let fail = |source| Failure::Arrays { path: path.clone(), source };
            let bytes = arrays::array(t).and_then(|a| kiln_npz::write_npy(&a)).map_err(fail)?;
            export::write(&path, &bytes)
        }
        DebugForm::Text => export::write(&path("txt"), text(t).as_bytes()),
        DebugForm::Raw => export::write(&path("raw"), t.bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_files_and_longest_names_count() {
        assert_eq!(safe("/conv1/Conv:0"), "_conv1_Conv_0");
        let marked = ["a".to_owned(), "a:b".to_owned()];
        assert_eq!(debug_file("a:b:x.raw", &marked).unwrap(), ("a:b", "x.raw"));
        assert!(debug_file("c:x", &marked).unwrap_err().to_string().contains("a, a:b"));
    }
}
