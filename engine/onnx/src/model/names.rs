//! Names that are not in use yet.

use std::collections::{HashMap, HashSet};

use crate::proto::GraphProto;

/// The names in use, and how often each base was asked for.
#[derive(Debug, Default)]
pub(super) struct Names {
    taken: HashSet<String>,
    next: HashMap<String, usize>,
}

impl Names {
    /// Takes every name that a graph and the graphs in it mention.
    pub fn take_all(&mut self, graph: &GraphProto) {
        let infos = graph.input.iter().chain(&graph.output).map(|info| &info.name);
        let tensors = graph.initializer.iter().map(|tensor| &tensor.name);
        self.taken.extend(infos.chain(tensors).cloned());
        for node in &graph.node {
            let names = node.input.iter().chain(&node.output).chain([&node.name]);
            self.taken.extend(names.cloned());
            for attribute in &node.attribute {
                attribute
                    .g
                    .iter()
                    .map(|graph| &**graph)
                    .chain(&attribute.graphs)
                    .for_each(|g| self.take_all(g));
            }
        }
    }

    /// A name not given before: `base`, or `base` with a number.
    pub fn fresh(&mut self, base: String) -> String {
        if self.taken.insert(base.clone()) {
            return base;
        }
        let next = self.next.entry(base.clone()).or_insert(1);
        loop {
            *next += 1;
            let name = format!("{base}_{next}");
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}
