//! What users may say about an import, and what an import says about itself.

use std::collections::{BTreeMap, HashSet};

use kiln_network::Network;

/// How a model is imported.
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
    /// What was done.
    pub report: Report,
}

/// What an import did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// How many nodes of each operator were converted, those in inlined branches included.
    pub nodes: BTreeMap<String, usize>,
    /// How many named weights the network has.
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
