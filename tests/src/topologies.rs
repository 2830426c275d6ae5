//! Whole networks with the answers of an independent peer: what `tests/topologies/make.py` made.

use crate::models::{Outcome, tensor};
use crate::suite::root;
use kiln_backend::{Backend, Program};
use kiln_builder::{BuildConfig, Builder, Built};
use kiln_ir::Tensor;
use kiln_onnx::{ImportOptions, parse_file};
use kiln_runtime::Engine;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Names of the networks.
pub const NAMES: [&str; 9] = [
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
];

/// A network with an input, and the outputs that the peer has for it.
#[derive(Debug)]
pub struct Topology {
    /// The ONNX file.
    pub path: PathBuf,
    /// Inputs by name.
    pub inputs: BTreeMap<String, Tensor>,
    /// Outputs by name.
    pub outputs: BTreeMap<String, Tensor>,
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Topology {
    /// Reads one. The error says what to run where the files were not made.
    pub fn open(name: &str) -> Outcome<Topology> {
        let folder = root().join(".cache/topologies");
        let path = folder.join(format!("{name}.onnx"));
        if !path.is_file() {
            return Err(format!("{} is missing: run scripts/setup.sh", path.display()));
        }
        let (mut inputs, mut outputs) = (BTreeMap::new(), BTreeMap::new());
        for (key, array) in kiln_npz::read_npz(folder.join(format!("{name}.npz"))).map_err(text)? {
            match key.split_once(':') {
                Some(("in", n)) => inputs.insert(n.to_owned(), tensor(&array)?),
                Some(("out", n)) => outputs.insert(n.to_owned(), tensor(&array)?),
                _ => return Err(format!("{name}.npz has an array {key}")),
            };
        }
        Ok(Topology { path, inputs, outputs })
    }

    /// Builds it for the first device of a backend.
    pub fn build(&self, backend: &Arc<dyn Backend>, config: BuildConfig) -> Outcome<(Builder, Built)> {
        let network = parse_file(&self.path, &ImportOptions::default()).map_err(text)?.network;
        let target = backend.targets().map_err(text)?.into_iter().next().ok_or("no device")?;
        let mut builder = Builder::new(backend.clone(), target);
        builder.config = config;
        let built = builder.build(&network).map_err(text)?;
        Ok((builder, built))
    }

    /// Runs a program of it on its input. Outputs by name.
    pub fn run(&self, backend: &Arc<dyn Backend>, program: Program) -> Outcome<BTreeMap<String, Tensor>> {
        let target = backend.targets().map_err(text)?.into_iter().next().ok_or("no device")?;
        let engine = Engine::on_target(program, Vec::new(), backend.as_ref(), target).map_err(text)?;
        let inputs: Vec<(&str, Tensor)> = self.inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let mut context = engine.create_context().map_err(text)?;
        Ok(context.run(&inputs).map_err(text)?.into_iter().collect())
    }
}
