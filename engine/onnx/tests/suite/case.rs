//! One case of the suite.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use kiln_ir::{Graph, Tensor};
use kiln_onnx::proto::{ValueInfoProto, type_proto};
use kiln_onnx::{DataType, ImportOptions, Model, ModelFile, OnnxError, TensorData};

use crate::compare::compare;

/// Outcome of a case.
pub struct Outcome {
    /// The operator that the case is about, or `several` if its model has more than one.
    pub op: String,
    /// Reason why it failed, if it did.
    pub error: Option<String>,
}

/// Runs every data set of a case; `open` leaves the sizes of its inputs unknown until the run.
pub fn run(folder: &Path, open: bool) -> Outcome {
    let model = match read(folder, open) {
        Ok(model) => model,
        Err(error) => return Outcome { op: "unreadable".into(), error: Some(error.to_string()) },
    };
    let mut ops: Vec<_> = model.graph.nodes.iter().map(|node| node.op.clone()).collect();
    ops.sort();
    ops.dedup();
    let op = if let [only] = &ops[..] { only.clone() } else { "several".into() };
    let result = catch_unwind(AssertUnwindSafe(|| check(&model, folder)));
    let error: Option<String> = match result {
        Ok(result) => result.err(),
        Err(panic) => Some(format!("panic: {}", message(&*panic))),
    };
    Outcome { op, error: error.map(|text| text.replace('\n', " ")) }
}

fn read(folder: &Path, open: bool) -> Result<Model, OnnxError> {
    let file = ModelFile::open(folder.join("model.onnx"))?;
    if !open {
        return Model::check(&file);
    }
    let mut proto = file.proto().clone();
    proto.graph.iter_mut().flat_map(|graph| &mut graph.input).for_each(forget_sizes);
    Model::check(&ModelFile::from_proto(proto))
}

/// Makes every declared dimension unknown, except the last of integers, which may decide on ranks.
fn forget_sizes(info: &mut ValueInfoProto) {
    let Some(type_proto::Value::TensorType(tensor)) = info.r#type.as_mut().and_then(|ty| ty.value.as_mut())
    else {
        return;
    };
    let integers = [DataType::Int32, DataType::Int64].map(DataType::number);
    let kept = usize::from(integers.contains(&tensor.elem_type));
    let dims = tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim);
    dims.rev().skip(kept).for_each(|dim| dim.value = None);
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn check(model: &Model, folder: &Path) -> Result<(), String> {
    let imported = kiln_onnx::import(model, &ImportOptions::default()).map_err(|e| e.to_string())?;
    let graph = imported.network.lower().map_err(|e| format!("lowering: {e}"))?;
    for i in 0.. {
        let set = folder.join(format!("test_data_set_{i}"));
        if !set.is_dir() {
            return if i > 0 { Ok(()) } else { Err("the case has no data".into()) };
        }
        check_set(&graph, &set)?;
    }
    Ok(())
}

fn check_set(graph: &Graph, set: &Path) -> Result<(), String> {
    let inputs = tensors(set, "input")?;
    let wanted = tensors(set, "output")?;
    let found = graph.eval(&inputs).map_err(|e| format!("evaluation: {e}"))?;
    if found.len() != wanted.len() {
        return Err(format!("{} outputs, wanted {}", found.len(), wanted.len()));
    }
    for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        compare(found, wanted).map_err(|e| format!("output {i}: {e}"))?;
    }
    Ok(())
}

fn tensors(set: &Path, kind: &str) -> Result<Vec<Tensor>, String> {
    let path = |i: usize| -> PathBuf { set.join(format!("{kind}_{i}.pb")) };
    let files = (0..).map(path).take_while(|path| path.is_file());
    let read = |path: PathBuf| TensorData::open(path)?.to_tensor();
    files.map(|path| read(path).map_err(|e| e.to_string())).collect()
}
