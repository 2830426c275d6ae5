//! Plug-in layers: the examples, compiled with the system's C compiler, in networks and models on every backend.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

#[path = "../abi/mod.rs"]
mod abi;
mod devices;
mod examples;
mod onnx;

use kiln_runtime::plugin::{LayerRecord, Plugin, Policy, load};
use std::path::PathBuf;
use std::sync::Arc;

/// Compiles a C example.
fn compiled(name: &str, more: &[&str]) -> PathBuf {
    let source = abi::root().join(format!("plugins/examples/{name}/{name}.c"));
    let out = abi::folder(&format!("layers-{name}")).join(format!("libkiln_layers_{name}.so"));
    let more: Vec<&str> =
        ["-shared", "-fPIC", "-fvisibility=hidden", "-lm"].iter().chain(more).copied().collect();
    abi::run_compiler("cc", "c11", &[source], &out, &more);
    out
}

fn loaded(path: &std::path::Path) -> Arc<Plugin> {
    load(path, &Policy::default()).unwrap_or_else(|e| panic!("{}", e.chain()))
}

/// Compiles and loads a C example and registers its layers.
fn example(name: &str) -> Vec<Arc<LayerRecord>> {
    let plugin = loaded(&compiled(name, &[]));
    plugin.layers().unwrap_or_else(|e| panic!("{}", e.chain()))
}
