//! The model's own functions.

use std::collections::HashMap;

use super::opset::canonical_domain;
use crate::error::OnnxError;
use crate::proto::{FunctionProto, NodeProto};

/// The functions of a model by domain, name and overload.
#[derive(Debug)]
pub(super) struct Functions<'a>(HashMap<(&'a str, &'a str, &'a str), &'a FunctionProto>);

/// Collects the functions of a model.
pub(super) fn functions(list: &[FunctionProto]) -> Result<Functions<'_>, OnnxError> {
    let mut functions = HashMap::new();
    for function in list {
        let key = (canonical_domain(&function.domain), function.name.as_str(), function.overload.as_str());
        if functions.insert(key, function).is_some() {
            return Err(OnnxError::DuplicateFunction { function: full_name(function) });
        }
    }
    Ok(Functions(functions))
}

impl<'a> Functions<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The function that a node calls; nothing for a call of an operator.
    pub fn find(&self, node: &NodeProto) -> Option<&'a FunctionProto> {
        self.0.get(&(canonical_domain(&node.domain), node.op_type.as_str(), node.overload.as_str())).copied()
    }
}

pub(super) fn full_name(function: &FunctionProto) -> String {
    [&function.domain, &function.name, &function.overload]
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(".")
}
