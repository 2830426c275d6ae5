//! One case of the suite on one backend.

use super::{Tolerance, compare};
use kiln_backend::{Backend, Device, Target};
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::Tensor;
use kiln_onnx::{ImportOptions, Model, TensorData};
use kiln_runtime::{Profile, graph_io};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Backend and options that cases run with.
#[derive(Clone)]
pub struct Setting {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The target of its open device.
    pub target: Target,
    /// The device.
    pub device: Arc<dyn Device>,
    /// Fold constants?
    pub fold: bool,
    /// Refuse what needs the host during runs, and check that no run waited for it, but for sizes?
    pub strict: bool,
}

impl Setting {
    /// The first device of a backend.
    pub fn of(backend: Arc<dyn Backend>, fold: bool) -> Result<Setting, String> {
        let targets = backend.targets().map_err(|e| e.to_string())?;
        let target = targets.into_iter().next().ok_or("no device")?;
        let device = backend.open(&target).map_err(|e| e.to_string())?;
        Ok(Setting { backend, target, device, fold, strict: false })
    }
}

/// Runs all data sets of a case under the suite's comparison; the error says what went wrong first.
pub fn run_case(s: &Setting, folder: &Path) -> Result<(), String> {
    let tolerance = Tolerance::of_case(folder)?;
    run_case_by(s, folder, |found, wanted| compare(found, wanted, tolerance))
}

/// Runs all data sets of a case; `same` compares each output with the case's.
pub fn run_case_by(
    s: &Setting,
    folder: &Path,
    same: impl Fn(&Tensor, &Tensor) -> Result<(), String>,
) -> Result<(), String> {
    let model = Model::open(folder.join("model.onnx")).map_err(|e| e.to_string())?;
    let names: Vec<String> = model.graph.required_inputs().map(|i| i.name.clone()).collect();
    let sets = data_sets(folder)?;
    for set in sets {
        let inputs = tensors(&set, "input")?;
        let wanted = tensors(&set, "output")?;
        let found = run(s, &model, &names, &inputs)?;
        if found.len() != wanted.len() {
            return Err(format!("{} outputs for {}", found.len(), wanted.len()));
        }
        for (i, (f, w)) in found.iter().zip(&wanted).enumerate() {
            same(f, w).map_err(|e| format!("output {i}: {e}"))?;
        }
    }
    Ok(())
}

fn run(s: &Setting, model: &Model, names: &[String], inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let network = kiln_onnx::import(model, &ImportOptions::default()).map_err(|e| e.to_string())?.network;
    let graph = network.lower().map_err(|e| e.to_string())?;
    let by_name = |name: &str| names.iter().position(|n| n == name).and_then(|i| inputs.get(i)).cloned();
    let inputs: Option<Vec<Tensor>> = graph.inputs.iter().map(|&v| by_name(&graph.value(v).name)).collect();
    run_graph(s, graph, &inputs.ok_or("an input of the network has no data")?)
}

/// Builds a graph for these inputs and runs it; its outputs in order.
pub fn run_graph(s: &Setting, graph: kiln_ir::Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let mut builder = Builder::new(s.backend.clone(), s.target.clone());
    builder.config = BuildConfig {
        fold: s.fold,
        strict: s.strict,
        profiles: vec![profile(&graph, inputs)?],
        samples: 1,
        max_tactics: 1,
        ..BuildConfig::default()
    };
    let built = builder.build_graph(graph, &mut |_, _, _| true).map_err(|e| e.to_string())?;
    let program = Arc::new(built.program);
    let shapes = Arc::new(program.shapes(inputs).map_err(|e| e.to_string())?);
    let executable = s.device.load(program).map_err(|e| e.to_string())?;
    let mut context = executable.context().map_err(|e| e.to_string())?;
    context.enqueue(inputs, &shapes).map_err(|e| e.to_string())?;
    let outputs = context.outputs().map_err(|e| e.to_string())?;
    if s.strict {
        let mut steps = context.host_steps().map_err(|e| e.to_string())?;
        let all = steps.len() as u64;
        steps.retain(|s| !s.reads_sizes());
        let syncs = context.counters().host_syncs;
        if syncs > all || !steps.is_empty() {
            return Err(format!("a strict build waited for the host {syncs} times: {steps:?}"));
        }
    }
    Ok(outputs)
}

/// The profile that holds these inputs and no others.
fn profile(graph: &kiln_ir::Graph, inputs: &[Tensor]) -> Result<Profile, String> {
    let mut p = Profile::new();
    for (io, t) in graph_io(graph).iter().zip(inputs) {
        let shape: Vec<i64> = t.shape().iter().map(|&d| d as i64).collect();
        p.set_shape(&io.name, &shape, &shape, &shape).map_err(|e| e.to_string())?;
        if io.is_shape_input && !t.dtype().is_float() {
            let v = t.to_i64();
            p.set_values(&io.name, &v, &v, &v).map_err(|e| e.to_string())?;
        }
    }
    Ok(p)
}

fn data_sets(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut sets: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("test_data_set_")))
        .collect();
    sets.sort();
    if sets.is_empty() { Err("has no data".into()) } else { Ok(sets) }
}

fn tensors(set: &Path, kind: &str) -> Result<Vec<Tensor>, String> {
    let mut out = Vec::new();
    for i in 0.. {
        let path = set.join(format!("{kind}_{i}.pb"));
        if !path.exists() {
            break;
        }
        let data = TensorData::open(&path).map_err(|e| e.to_string())?;
        out.push(data.to_tensor().map_err(|e| e.to_string())?);
    }
    Ok(out)
}
