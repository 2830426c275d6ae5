//! Options of how an engine is loaded, for commands that run it.

use crate::options::bytes;
use clap::Args;
use kiln::EngineBuilder;
use std::path::PathBuf;

/// Options for the weights of the engine that runs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Weights at run time")]
pub struct LoadOptions {
    /// Take weights from this file before the first run: of a stripped engine all that it leaves out, of a refittable one those that the
    /// file has. An archive of NumPy, safetensors, or the model [repeatable]
    #[arg(long, value_name = "W.npz|W.safetensors|M.onnx")]
    pub external_weights: Vec<PathBuf>,
    /// The most memory of the device for weights: 64 is MiB, units are B, K, M and G. Weights beyond it are copied from the host in each run
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub weight_budget: Option<u64>,
}

impl LoadOptions {
    /// Sets the options on a builder.
    pub fn apply(&self, mut builder: EngineBuilder) -> EngineBuilder {
        for path in &self.external_weights {
            builder = builder.external_weights(path);
        }
        match self.weight_budget {
            Some(bytes) => builder.weight_budget(bytes),
            None => builder,
        }
    }
}
