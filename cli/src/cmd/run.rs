//! `kiln run`: one run, its outputs shown, stored or checked.

use crate::arrays::{self, ArrayPath, array_path};
use crate::cmd::host::{host_json, print_host};
use crate::diff::{HEAD, row};
use crate::failure::Failure;
use crate::given::InputOptions;
use crate::options::{LimitOptions, ModelOptions, ToleranceOptions};
use crate::print::{Printer, dims, number};
use crate::{signals, subject};
use kiln::compare::{Diff, Tolerance};
use kiln::{Elems, ExecutionContext, Tensor};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of elements of an output that are shown.
const SHOWN: usize = 6;

/// Run an engine, or a model that is built first, once
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An engine that `kiln build` wrote, or an ONNX model
    #[arg(value_name = "MODEL_OR_ENGINE")]
    subject: PathBuf,
    /// Store all outputs in an archive, by name
    #[arg(long, value_name = "OUT.npz")]
    save_outputs: Option<PathBuf>,
    /// Store the tensors that the build marked with --mark-debug in an archive, by name
    #[arg(long, value_name = "OUT.npz")]
    save_debug_tensors: Option<PathBuf>,
    /// Store all tensors between kernels in an archive, marked or not, by name
    #[arg(long, value_name = "OUT.npz", conflicts_with = "save_debug_tensors")]
    save_all_debug_tensors: Option<PathBuf>,
    /// Compare the outputs with those of an archive, by name; exit code 1 if they differ
    #[arg(long, value_name = "OUT.npz")]
    expect: Option<PathBuf>,
    /// Compare the greatest element of each row of the only output with labels: the accuracy
    #[arg(long, value_name = "FILE.npy|FILE.npz:ARRAY", value_parser = array_path)]
    accuracy: Option<ArrayPath>,
    #[command(flatten)]
    inputs: InputOptions,
    #[command(flatten)]
    tolerance: ToleranceOptions,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    model: ModelOptions,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    let s = subject::open(&args.subject, &args.model, &args.inputs, out)?;
    let inputs: Vec<(&str, Tensor)> = s.inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let mut context = s.engine.create_context()?;
    context.set_profile(args.inputs.use_profile)?;
    context.set_timeout(args.limits.timeout);
    let debugged = debug(args, &mut context)?;
    let stop = signals::CancelOnSignal::new(&context);
    let outputs = context.run(&inputs)?;
    drop(stop);
    if let Some((path, tensors)) = debugged {
        let tensors = std::mem::take(&mut *tensors.lock().unwrap_or_else(PoisonError::into_inner));
        arrays::write_archive(path, &tensors)?;
        out.line(format!("wrote {} tensors to {}", tensors.len(), path.display()));
    }
    let host = context.host_layers().ok();
    if let Some(path) = &args.save_outputs {
        arrays::write_archive(path, &outputs)?;
    }
    let accuracy = args.accuracy.as_ref().map(|p| accuracy(&outputs, p)).transpose()?;
    let diffs = match &args.expect {
        Some(path) => expect(path, &outputs, &args.tolerance.tolerance(), out)?,
        None => Vec::new(),
    };
    out.value(&json!({
        "backend": s.engine.backend(),
        "device": s.engine.target().device,
        "outputs": outputs.iter().map(|(n, t)| output_json(n, t)).collect::<Vec<_>>(),
        "expected": diffs.iter().map(Diff::to_json).collect::<Vec<_>>(),
        "accuracy": accuracy.map(|(correct, of)| json!({
            "correct": correct, "of": of, "accuracy": correct as f64 / of.max(1) as f64,
        })),
        "host_layers": host_json(host.as_deref()),
        "build": s.report.as_ref().map(kiln::BuildReport::to_json),
    }));
    out.line(format!("{} on {} ({})", s.engine.name(), s.engine.backend(), s.engine.target().device));
    let head = ["output", "type", "shape", "min", "max", "mean", "elements"];
    out.table(&head, outputs.iter().map(|(n, t)| output_row(n, t)).collect());
    out.table(&HEAD, diffs.iter().map(row).collect());
    if let Some((correct, of)) = accuracy {
        out.line(format!("accuracy: {correct} of {of} ({:.1} %)", 100.0 * correct as f64 / of.max(1) as f64));
    }
    print_host(&host.unwrap_or_default(), out);
    match diffs.iter().filter(|d| !d.ok()).count() {
        0 => Ok(()),
        n => Err(Failure::Mismatch(format!("{n} of {} outputs are not as expected", diffs.len()))),
    }
}

/// Tensors by name, as a listener finds them.
type Found = Arc<Mutex<Vec<(String, Tensor)>>>;

/// Listens to the debug tensors that the options ask for.
fn debug<'a>(args: &'a Args, context: &mut ExecutionContext) -> Result<Option<(&'a Path, Found)>, Failure> {
    let all = args.save_all_debug_tensors.as_deref();
    let Some(path) = all.or(args.save_debug_tensors.as_deref()) else { return Ok(None) };
    if all.is_none() && context.debug_tensors().is_empty() {
        return Err(Failure::Input(
            "no tensor is marked for debugging: build with --mark-debug, or give --save-all-debug-tensors"
                .into(),
        ));
    }
    let found = Found::default();
    let to = found.clone();
    context.set_debug_listener(Some(Box::new(move |name: &str, t: &Tensor| {
        to.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), t.clone()));
        true
    })));
    context.set_all_debug_states(true);
    context.set_unfused_debug_state(all.is_some());
    Ok(Some((path, found)))
}

/// Least, greatest and mean of all elements that are numbers, and how many are not.
fn summary(t: &Tensor) -> (Option<[f64; 3]>, usize) {
    let all = t.to_f64();
    let numbers: Vec<f64> = all.iter().copied().filter(|x| !x.is_nan()).collect();
    let nans = all.len() - numbers.len();
    let Some(&first) = numbers.first() else { return (None, nans) };
    let (min, max) = numbers.iter().fold((first, first), |(a, b), &x| (a.min(x), b.max(x)));
    (Some([min, max, numbers.iter().sum::<f64>() / numbers.len() as f64]), nans)
}

fn output_row(name: &str, t: &Tensor) -> Vec<String> {
    let (s, nans) = summary(t);
    let show = |i: usize| s.map_or_else(|| "–".into(), |s| number(s[i]));
    let mut first: Vec<String> = match t.elems() {
        Elems::F(v) => v.iter().take(SHOWN).map(|&x| number(x)).collect(),
        Elems::I(v) => v.iter().take(SHOWN).map(i64::to_string).collect(),
    };
    if t.len() > SHOWN {
        first.push("…".into());
    }
    if nans > 0 {
        first.push(format!("({nans} NaN)"));
    }
    vec![name.to_owned(), t.dtype().to_string(), dims(t.shape()), show(0), show(1), show(2), first.join(" ")]
}

fn output_json(name: &str, t: &Tensor) -> Value {
    let (s, nans) = summary(t);
    let first = match t.elems() {
        Elems::F(v) => json!(v.into_iter().take(SHOWN).collect::<Vec<_>>()),
        Elems::I(v) => json!(v.into_iter().take(SHOWN).collect::<Vec<_>>()),
    };
    json!({
        "name": name, "type": t.dtype().name(), "shape": t.shape(),
        "min": s.map(|s| s[0]), "max": s.map(|s| s[1]), "mean": s.map(|s| s[2]),
        "nan": nans, "first": first,
    })
}

/// Compares with the arrays of an archive. Arrays that are not outputs are named in a note.
fn expect(
    path: &Path,
    outputs: &[(String, Tensor)],
    tolerance: &Tolerance,
    out: &Printer,
) -> Result<Vec<Diff>, Failure> {
    let mut wanted = arrays::read_archive(path)?;
    let mut diffs = Vec::new();
    for (name, found) in outputs {
        match wanted.remove(name) {
            Some(a) => diffs.push(Diff::of(name, found, &arrays::tensor(name, a)?, tolerance)),
            None => {
                out.note(format!("{} has no array \"{name}\"; this output is not compared", path.display()))
            }
        }
    }
    let others: Vec<&str> = wanted.keys().map(String::as_str).collect();
    if diffs.is_empty() {
        let names: Vec<&str> = outputs.iter().map(|(n, _)| n.as_str()).collect();
        return Err(Failure::Input(format!(
            "{} has arrays {}, none of the outputs {}",
            path.display(),
            others.join(", "),
            names.join(", ")
        )));
    }
    if !others.is_empty() {
        out.note(format!("{}: no outputs are named {}; not used", path.display(), others.join(", ")));
    }
    Ok(diffs)
}

/// Number of rows of the only output whose greatest element is the label's, and number of rows.
fn accuracy(outputs: &[(String, Tensor)], labels: &ArrayPath) -> Result<(usize, usize), Failure> {
    let fail = |m: String| Err(Failure::Input(format!("--accuracy: {m}")));
    let [(name, output)] = outputs else {
        return fail(format!("the network has {} outputs, wanted one", outputs.len()));
    };
    let labels = arrays::tensor("labels", labels.read()?)?;
    if !labels.dtype().is_int() {
        return fail(format!("labels are {}, wanted integers", labels.ty()));
    }
    let labels = labels.to_i64();
    let classes = output.shape().last().copied().unwrap_or(0);
    let values = output.to_f64();
    if classes == 0 || values.len() / classes != labels.len() {
        return fail(format!("output \"{name}\" is {}, and there are {} labels", output.ty(), labels.len()));
    }
    let greatest = |row: &[f64]| {
        let best = row.iter().enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a });
        best.map_or(-1, |(i, _)| i as i64)
    };
    let correct = values.chunks(classes).zip(&labels).filter(|(row, l)| greatest(row) == **l).count();
    Ok((correct, labels.len()))
}
