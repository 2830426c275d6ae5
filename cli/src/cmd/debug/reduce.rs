//! `kiln debug reduce`: the least part of an ONNX model that still fails a check.

use crate::debug::checker::CheckOptions;
use crate::debug::extract::Parts;
use crate::failure::Failure;
use crate::print::Printer;
use clap::ValueEnum;
use kiln::{DType, Dim, IoMode, IoTensor, Model};
use kiln_onnx::ModelFile;
use kiln_onnx::proto::tensor_proto::DataType;
use kiln_onnx::proto::{
    ModelProto, TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto,
};
use prost::Message;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Find the least part of an ONNX model that fails a check
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The ONNX model, which fails the check
    #[arg(value_name = "MODEL.onnx")]
    model: PathBuf,
    /// The part that fails
    #[arg(short, long, value_name = "OUT.onnx")]
    output: PathBuf,
    /// The file that each part is written to for the check
    #[arg(long, value_name = "FILE", default_value = "kiln_debug.onnx")]
    artifact: PathBuf,
    /// Store the smallest part that passed, too
    #[arg(long, value_name = "OUT.onnx")]
    min_good: Option<PathBuf>,
    /// Order of the search
    #[arg(long, value_enum, default_value_t = Mode::Bisect)]
    mode: Mode,
    /// Leave the model's inputs as they are
    #[arg(long)]
    no_reduce_inputs: bool,
    /// Leave the model's outputs as they are
    #[arg(long, conflicts_with = "no_reduce_inputs")]
    no_reduce_outputs: bool,
    #[command(flatten)]
    check: CheckOptions,
}

/// Order of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Halves: few checks, right where all larger parts fail as well
    Bisect,
    /// One node after the other
    Linear,
}

/// The search: checks of parts, and the smallest that failed and passed.
struct Search<'a> {
    args: &'a Args,
    parts: &'a Parts,
    folder: PathBuf,
    checks: usize,
    bad: Option<(usize, ModelProto)>,
    good: Option<(usize, ModelProto)>,
}

/// Runs the command.
pub fn run(args: &Args, out: &Printer) -> Result<(), Failure> {
    if args.check.check.is_empty() {
        return Err(Failure::Input("give the command that decides by --check COMMAND".into()));
    }
    let fail = |source| kiln::Error::Import { path: args.model.clone(), source: Box::new(source) };
    let model = ModelFile::open(&args.model).map_err(fail)?.proto().clone();
    let parts = Parts::of(model);
    let folder =
        args.model.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let places = [Some(&args.artifact), Some(&args.output), args.min_good.as_ref()];
    if let Some(place) =
        places.into_iter().flatten().find(|p| parts.has_external_data() && !beside(p, &folder))
    {
        return Err(Failure::Input(format!(
            "{} has weights in other files of its folder: give --artifact, --output and --min-good there, not {}",
            args.model.display(),
            place.display()
        )));
    }
    let mut search = Search { args, parts: &parts, folder, checks: 0, bad: None, good: None };
    let outputs = parts.outputs();
    if search.is_good(parts.between(&[], &outputs))? {
        return Err(Failure::Input(format!(
            "{} passes the check as a whole: there is nothing to reduce",
            args.model.display()
        )));
    }
    let outputs = if args.no_reduce_outputs { outputs } else { search.outputs()? };
    if !args.no_reduce_inputs {
        search.inputs(&outputs)?;
    }
    drop(std::fs::remove_file(&args.artifact));
    let Search { checks, bad, good, .. } = search;
    let Some((nodes, model)) = bad else { return Ok(()) };
    write(&args.output, &model)?;
    if let (Some(path), Some((_, model))) = (&args.min_good, &good) {
        write(path, model)?;
    }
    let labels: Vec<String> = Parts::of(model).labels();
    out.value(&json!({
        "model": args.output.display().to_string(), "nodes": labels, "of": parts.len(), "checks": checks,
        "good": good.as_ref().map(|g| g.0),
    }));
    out.line(format!(
        "{nodes} of {} nodes fail, found by {checks} checks: {}",
        parts.len(),
        labels.join(", ")
    ));
    out.line(format!("wrote {}", args.output.display()));
    Ok(())
}

/// Whether a file is in this folder.
fn beside(path: &Path, folder: &Path) -> bool {
    let of = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    matches!((of.canonicalize(), folder.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn write(path: &Path, model: &ModelProto) -> Result<(), Failure> {
    let written = kiln_files::replace(path, None, &model.encode_to_vec());
    written.map_err(|source| Failure::File { path: path.to_owned(), source })
}

impl Search<'_> {
    /// Checks a part, and keeps it if it is the smallest of its kind.
    fn is_good(&mut self, model: ModelProto) -> Result<bool, Failure> {
        write(&self.args.artifact, &model)?;
        self.checks += 1;
        let good = self.args.check.is_good()?;
        let nodes = model.graph.as_ref().map_or(0, |g| g.node.len());
        tracing::info!("{nodes} nodes {}", if good { "pass" } else { "fail" });
        let best = if good { &mut self.good } else { &mut self.bad };
        if best.as_ref().is_none_or(|(n, _)| nodes < *n) {
            *best = Some((nodes, model));
        }
        Ok(good)
    }

    /// The outputs of the first node behind which the model fails.
    fn outputs(&mut self) -> Result<Vec<String>, Failure> {
        let parts = self.parts;
        let at = self.first_bad(parts.len(), |s, node| {
            let made = parts.made(node);
            if made.is_empty() { Ok(true) } else { s.is_good(parts.between(&[], &made)) }
        })?;
        Ok(at.map_or_else(|| parts.outputs(), |node| parts.made(node)))
    }

    /// Takes away nodes from the front as long as the rest fails.
    fn inputs(&mut self, outputs: &[String]) -> Result<(), Failure> {
        let parts = self.parts;
        let nodes = parts.needed(outputs, &BTreeSet::new());
        // Counted from behind: the first number of nodes that fails is the least.
        self.first_bad(nodes.len(), |s, kept| {
            let cut = parts.crossing(&nodes, nodes.len() - kept - 1);
            match s.typed(&cut)? {
                Some(inputs) => s.is_good(parts.between(&inputs, outputs)),
                None => Ok(true),
            }
        })?;
        Ok(())
    }

    /// The first of so many numbers that is bad; the last one is.
    fn first_bad(
        &mut self,
        count: usize,
        mut is_good: impl FnMut(&mut Self, usize) -> Result<bool, Failure>,
    ) -> Result<Option<usize>, Failure> {
        let Some(last) = count.checked_sub(1) else { return Ok(None) };
        if self.args.mode == Mode::Linear {
            for i in 0..last {
                if !is_good(self, i)? {
                    return Ok(Some(i));
                }
            }
            return Ok(Some(last));
        }
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = (low + high) / 2;
            if is_good(self, middle)? { low = middle + 1 } else { high = middle }
        }
        Ok(Some(high))
    }

    /// Tensors as inputs with types: those that the model declares, else those that the part in front of them has.
    /// `None` if a type is not known.
    fn typed(&self, names: &BTreeSet<String>) -> Result<Option<Vec<ValueInfoProto>>, Failure> {
        let open: Vec<String> = names.iter().filter(|n| self.parts.declared(n).is_none()).cloned().collect();
        let mut found = Vec::new();
        if !open.is_empty() {
            let bytes = self.parts.between(&[], &open).encode_to_vec();
            match Model::from_bytes(bytes, Some(&self.folder)) {
                Ok(model) => found = model.io_tensors().to_vec(),
                Err(e) => tracing::info!("the types of {} are not known: {e}", open.join(", ")),
            }
        }
        let typed = |name: &String| {
            let io = found.iter().find(|t| t.mode == IoMode::Output && t.name == *name);
            self.parts.declared(name).or_else(|| io.and_then(value_info))
        };
        Ok(names.iter().map(typed).collect())
    }
}

/// A tensor as an input of a model.
fn value_info(t: &IoTensor) -> Option<ValueInfoProto> {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let code = match t.dtype {
        DType::F32 => DataType::Float,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::I8 => DataType::Int8,
        DType::U8 => DataType::Uint8,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::Bool => DataType::Bool,
        _ => return None,
    };
    let dim = |d: &Dim| {
        let value = d.as_const().map_or_else(|| Value::DimParam(d.to_string()), Value::DimValue);
        Dimension { value: Some(value), ..Default::default() }
    };
    let shape = TensorShapeProto { dim: t.dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: code as i32, shape: Some(shape) };
    let r#type = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    Some(ValueInfoProto { name: t.name.clone(), r#type: Some(r#type), ..Default::default() })
}
