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
    /// The most memory of the device for weights: 64 is MiB, units are B, K, M and G; auto leaves room for a context. Weights beyond it are
    /// copied from the host in each run
    #[arg(long, value_name = "SIZE|auto", value_parser = budget)]
    pub weight_budget: Option<WeightBudget>,
}

/// Memory of the device for weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightBudget {
    /// So many bytes.
    Bytes(u64),
    /// All but what a context wants.
    Automatic,
}

fn budget(text: &str) -> Result<WeightBudget, String> {
    match text {
        "auto" => Ok(WeightBudget::Automatic),
        size => bytes(size).map(WeightBudget::Bytes).map_err(|e| format!("{e}, or auto")),
    }
}

impl LoadOptions {
    /// Sets the options on a builder.
    pub fn apply(&self, mut builder: EngineBuilder) -> EngineBuilder {
        for path in &self.external_weights {
            builder = builder.external_weights(path);
        }
        match self.weight_budget {
            Some(WeightBudget::Bytes(bytes)) => builder.weight_budget(bytes),
            Some(WeightBudget::Automatic) => builder.automatic_weight_budget(),
            None => builder,
        }
    }
}
