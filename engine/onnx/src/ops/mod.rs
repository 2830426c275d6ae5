//! How each ONNX operator becomes layers: one file a family, each with its list.

mod activation;
mod arith;
mod attention;
mod constant;
mod contrib;
mod control;
mod conv;
mod flex_attention;
mod generate;
mod image;
mod index;
mod integer;
mod linear;
mod logic;
mod looping;
mod loss;
mod movement;
mod norm;
mod order;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod resize;
mod scan;
mod scatter;
mod sequence;
mod signal;
mod slicing;
mod softmax;
mod state;
mod text;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::convert::{Cx, Outs};

/// Writes the layers of one node, for every version of its operator, and gives the node's outputs.
pub(crate) type Handler = fn(&mut Cx<'_>) -> Outs;

/// Every family's operators. Those outside the standard set are listed as `domain.Operator`.
const FAMILIES: &[&[(&str, Handler)]] = &[
    activation::OPS,
    arith::OPS,
    attention::OPS,
    constant::OPS,
    contrib::ACTIVATION,
    contrib::ATTENTION,
    contrib::CACHED,
    contrib::NORM,
    contrib::POOLING,
    contrib::PRODUCT,
    contrib::QUANTIZED,
    contrib::WEIGHTS,
    control::OPS,
    conv::OPS,
    flex_attention::OPS,
    generate::OPS,
    image::OPS,
    index::OPS,
    integer::OPS,
    linear::OPS,
    logic::OPS,
    loss::OPS,
    movement::OPS,
    norm::OPS,
    order::OPS,
    pool::OPS,
    quantize::OPS,
    recurrent::OPS,
    reduce::OPS,
    resize::OPS,
    scatter::OPS,
    sequence::OPS,
    signal::OPS,
    slicing::OPS,
    softmax::OPS,
    state::OPS,
    text::OPS,
];

/// The handler of an operator; the standard set has the domain "".
pub(crate) fn find(domain: &str, op: &str) -> Option<Handler> {
    static MAP: OnceLock<HashMap<&'static str, Handler>> = OnceLock::new();
    let map = MAP.get_or_init(|| FAMILIES.iter().flat_map(|family| family.iter().copied()).collect());
    if domain.is_empty() {
        return map.get(op).copied();
    }
    map.get(format!("{domain}.{op}").as_str()).copied()
}

/// Whether an operator of the standard set makes or reads sequences or optional values.
pub(crate) fn lists(op: &str) -> bool {
    sequence::OPS.iter().any(|(name, _)| *name == op)
}

/// The operators that are converted, sorted.
pub fn supported() -> Vec<&'static str> {
    let mut names: Vec<_> = FAMILIES.iter().flat_map(|family| family.iter().map(|(name, _)| *name)).collect();
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
