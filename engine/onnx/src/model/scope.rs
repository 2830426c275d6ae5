//! Scopes of names in a piece of a model: in the main graph as they are, in a function by the call's
//! arguments.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::names::Names;
use super::{Attribute, Opsets};
use crate::proto::GraphProto;

/// A piece of a model that is being converted.
#[derive(Debug)]
pub(super) struct Text<'a> {
    /// The operator sets it is written against.
    pub opsets: &'a Opsets,
    /// The call of the function that it is the body of.
    pub frame: Option<Frame>,
}

/// One call of a function.
#[derive(Debug)]
pub(super) struct Frame {
    /// The function, for messages.
    pub function: String,
    /// Prefix of the names of its nodes and values.
    pub prefix: String,
    /// New names by old, for the body and each graph inside it that is open, innermost last.
    pub scopes: Vec<HashMap<String, String>>,
    /// The arguments, defaults included.
    pub attributes: BTreeMap<String, Attribute>,
    /// The attributes that the function declares.
    pub declared: BTreeSet<String>,
}

impl Text<'_> {
    /// The name in the checked graph; nothing for a name that a function neither has as an input nor defines.
    pub fn resolve(&self, name: &str) -> Option<String> {
        let Some(frame) = &self.frame else { return Some(name.to_owned()) };
        if name.is_empty() {
            return Some(String::new());
        }
        frame.scopes.iter().rev().find_map(|scope| scope.get(name)).cloned()
    }

    /// The name of a definition, which [`Text::open`] has made known.
    pub fn defined(&self, name: &str) -> String {
        self.resolve(name).unwrap_or_else(|| name.to_owned())
    }

    /// Enters a graph: inside a function, all that it defines gets new names.
    pub fn open(&mut self, graph: &GraphProto, names: &mut Names) {
        let Some(frame) = &mut self.frame else { return };
        let mut scope = HashMap::new();
        let inputs = graph.input.iter().map(|info| &info.name);
        let tensors = graph.initializer.iter().map(|tensor| &tensor.name);
        let sparse = graph.sparse_initializer.iter().filter_map(|tensor| Some(&tensor.values.as_ref()?.name));
        let outputs = graph.node.iter().flat_map(|node| &node.output);
        for name in inputs.chain(tensors).chain(sparse).chain(outputs) {
            if !name.is_empty() && !scope.contains_key(name) {
                scope.insert(name.clone(), names.fresh(format!("{}{name}", frame.prefix)));
            }
        }
        frame.scopes.push(scope);
    }

    /// Leaves the graph that was entered last.
    pub fn close(&mut self) {
        if let Some(frame) = &mut self.frame {
            frame.scopes.pop();
        }
    }

    /// Model or function that has to import the operator sets, for messages.
    pub fn owner(&self) -> String {
        self.frame
            .as_ref()
            .map_or_else(|| "model".to_owned(), |frame| format!("function '{}'", frame.function))
    }
}
