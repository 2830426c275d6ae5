//! The plug-in layers of a plan, and the libraries that they come from.

use crate::header::Requirement;
use kiln_backend::{Program, Step};
use kiln_ir::Graph;
use kiln_ops::plugin::record::LayerName;
use kiln_ops::plugin::{self, PLUGIN, PLUGIN_POINTWISE};
use std::collections::BTreeMap;

/// A plug-in layer of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginLayer {
    /// Name of the layer in the plan.
    pub label: String,
    /// The layer.
    pub layer: LayerName,
    /// Name of the library.
    pub library: String,
    /// Version of the library.
    pub version: String,
    /// BLAKE3 hash of the library, in hexadecimal.
    pub digest: String,
    /// Whether runs call the library: expressions and compiled kernels are in the plan.
    pub called: bool,
}

/// The plug-in layers of a program, those in bodies of control flow included.
pub fn plugin_layers(program: &Program) -> Vec<PluginLayer> {
    let mut all = Vec::new();
    for step in &program.steps {
        of_step(&program.graph, step, &mut all);
        step.bodies.iter().for_each(|b| all.extend(plugin_layers(b)));
    }
    all
}

fn of_step(graph: &Graph, step: &Step, all: &mut Vec<PluginLayer>) {
    // Tactics of compiled kernels have names of their own.
    let compiled = step.tactics().all(|t| t.name.starts_with(kiln_backend::launch::PLUGIN_TACTICS));
    for node in step.nodes.iter().filter_map(|&n| graph.get(n)) {
        let reference = node.op.is(PLUGIN);
        if !reference && !node.op.is(PLUGIN_POINTWISE) {
            continue;
        }
        let attrs = node.op.attrs();
        let (Ok(layer), Ok([library, version, digest])) = (plugin::name(attrs), plugin::library(attrs))
        else {
            continue;
        };
        all.push(PluginLayer {
            label: node.name.clone(),
            layer,
            library: library.into(),
            version: version.into(),
            digest: digest.into(),
            called: reference && !compiled,
        });
    }
}

/// The libraries of a program's plug-in layers.
pub(crate) fn requirements(program: &Program) -> Vec<Requirement> {
    let mut all: BTreeMap<(String, String, String), (Vec<String>, bool)> = BTreeMap::new();
    for l in plugin_layers(program) {
        let (layers, called) = all.entry((l.library, l.version, l.digest)).or_default();
        layers.push(l.layer.to_string());
        *called |= l.called;
    }
    let of =
        |((name, version, digest), (mut layers, called)): ((String, String, String), (Vec<String>, bool))| {
            layers.sort();
            layers.dedup();
            Requirement { name, version, digest, layers, called, embedded: 0 }
        };
    all.into_iter().map(of).collect()
}
