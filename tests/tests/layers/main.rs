//! Plug-in layers: the examples, compiled with the system's C compiler, in networks and models on every backend.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failed test panics, and times are printed"
)]

#[path = "../abi/mod.rs"]
mod abi;
mod attacks;
mod choices;
mod costs;
mod devices;
mod examples;
mod exceptions;
mod fields;
mod forms;
mod kernels;
mod natives;
mod onnx;
mod plans;
mod replaced;

use kiln_runtime::plugin::{LayerRecord, Plugin, Policy, load};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Compiles an example in C or C++.
fn compiled(name: &str, more: &[&str]) -> PathBuf {
    let folder = abi::root().join(format!("plugins/examples/{name}"));
    let (c, cpp) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.cpp")));
    library(name, if cpp.is_file() { &cpp } else { &c }, more)
}

/// Compiles a library of layers. Other tests may compile and load it at this time.
fn library(name: &str, source: &Path, more: &[&str]) -> PathBuf {
    let folder = abi::folder(&format!("layers-{name}"));
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let own = folder.join(format!("{}-{}.so", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let out = folder.join(format!("libkiln_layers_{name}.so"));
    let more: Vec<&str> =
        ["-shared", "-fPIC", "-fvisibility=hidden", "-lm"].iter().chain(more).copied().collect();
    let (compiler, std) = match source.extension().is_some_and(|e| e == "cpp") {
        true => ("c++", "c++17"),
        false => ("cc", "c11"),
    };
    abi::run_compiler(compiler, std, &[source.to_owned()], &own, &more);
    std::fs::rename(own, &out).unwrap();
    out
}

fn loaded(path: &Path) -> Arc<Plugin> {
    load(path, &Policy::default()).unwrap_or_else(|e| panic!("{}", e.chain()))
}

fn layers_of(path: &Path) -> Vec<Arc<LayerRecord>> {
    loaded(path).layers().unwrap_or_else(|e| panic!("{}", e.chain()))
}

/// Compiles and loads a C example and registers its layers.
fn example(name: &str) -> Vec<Arc<LayerRecord>> {
    layers_of(&compiled(name, &[]))
}

/// Compiles and loads a C example as one without kernels, in the namespace "hosted".
fn hosted(name: &str) -> Vec<Arc<LayerRecord>> {
    let source = abi::root().join(format!("plugins/examples/{name}/{name}.c"));
    layers_of(&library(&format!("{name}_hosted"), &source, &["-DHOST_ONLY", "-DSPACE=\"hosted\""]))
}

/// Loads the Rust example, which cargo builds beside the tests, and registers its layers.
fn row_norm() -> Vec<Arc<LayerRecord>> {
    let exe = std::env::current_exe().unwrap();
    let file = format!("libkiln_layers_row_norm{}", std::env::consts::DLL_SUFFIX);
    let found = exe.ancestors().skip(1).take(3).map(|d| d.join(&file)).find(|p| p.is_file());
    layers_of(
        &found.unwrap_or_else(|| panic!("{file} is not built: run cargo build -p kiln-example-row-norm")),
    )
}
