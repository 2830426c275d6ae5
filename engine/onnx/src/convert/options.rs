//! Options and report of an import.

use std::collections::{BTreeMap, HashSet};

use kiln_network::{Network, TensorId};

/// Options of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Dimensions of inputs, by name, in place of what the model declares; −1 keeps the declared one.
    pub shapes: BTreeMap<String, Vec<i64>>,
}

/// An imported model.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The network. Layers carry the names of their nodes, inputs, outputs and weights those of the model's values.
    pub network: Network,
    /// Report of the import.
    pub report: Report,
    /// Tensors of the values of the main graph, by the names that they have in the model, in alphabetical order.
    pub values: BTreeMap<String, TensorId>,
}

/// Report of an import.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Number of converted nodes of each operator, those in inlined branches included.
    pub nodes: BTreeMap<String, usize>,
    /// Number of named weights of the network.
    pub weights: usize,
    /// Departures from the model that a user may want to know of, each once.
    pub notes: Vec<String>,
    /// The notes again, to find repeated ones.
    seen: HashSet<String>,
}

impl Report {
    /// Adds a note unless it is there.
    pub(crate) fn note(&mut self, text: String) {
        if self.seen.insert(text.clone()) {
            self.notes.push(text);
        }
    }
}
