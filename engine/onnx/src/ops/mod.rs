//! Conversion of each ONNX operator to layers: one file a family, each with its list.

mod attention;
mod cast;
mod contrib;
mod control;
mod conv;
mod gather;
mod generate;
mod loss;
mod matmul;
mod norm;
/// Operators computed element by element.
mod pointwise {
    pub(crate) mod activation;
    pub(crate) mod arithmetic;
    mod logic;
}
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod sample;
mod scatter;
mod select;
mod sequence;
mod shape;
mod signal;
mod slice;
mod softmax;
mod sort;
mod text;
mod transpose;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::convert::{Cx, Outs};

/// Writes the layers of one node, for every version of its operator, and returns the node's outputs.
pub(crate) type Handler = fn(&mut Cx<'_>) -> Outs;

/// Record of an operator in the importer.
pub(crate) struct Operator {
    /// Name of the operator; `domain.Operator` outside the standard set.
    pub name: &'static str,
    /// The versions that the handler implements, by the operator set in which each came into force. None where no set
    /// has the operator, which is then taken with every set.
    pub versions: &'static [i64],
    pub handler: Handler,
}

impl Operator {
    const fn new(name: &'static str, versions: &'static [i64], handler: Handler) -> Self {
        Self { name, versions, handler }
    }
}

/// The operators of all families: each file adds its own. (Distributed slices of one program need different names.)
#[linkme::distributed_slice]
pub(crate) static ONNX_FAMILIES: [&'static [Operator]];

/// All operators that are converted.
pub(crate) fn all() -> impl Iterator<Item = &'static Operator> {
    ONNX_FAMILIES.iter().copied().flatten()
}

/// The importer's row of an operator; the standard set has the domain "".
pub(crate) fn find(domain: &str, op: &str) -> Option<&'static Operator> {
    static MAP: OnceLock<HashMap<&'static str, &'static Operator>> = OnceLock::new();
    let map = MAP.get_or_init(|| all().map(|operator| (operator.name, operator)).collect());
    if domain.is_empty() {
        return map.get(op).copied();
    }
    map.get(format!("{domain}.{op}").as_str()).copied()
}

/// Whether an operator of the standard set makes or reads sequences or optional values.
pub(crate) fn lists(op: &str) -> bool {
    sequence::OPS.iter().any(|operator| operator.name == op)
}

/// The operators that are converted, sorted.
pub fn supported() -> Vec<&'static str> {
    let mut names: Vec<_> = all().map(|operator| operator.name).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_operator_has_two_handlers() {
        let names = super::supported();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }
}
