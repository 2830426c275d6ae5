//! A note where a target computes types in wider ones.

use crate::passes::Notes;
use kiln_backend::Target;
use kiln_ir::{DType, Graph, ValueId};
use kiln_ops::conv::CONV;
use kiln_ops::matmul::MATMUL;
use kiln_ops::quantize::DEQUANTIZE;

/// Feature of targets that multiply floats of 8 bits.
const FEATURE: &str = "f8";

/// Notes that products of 8-bit floats are made in f32, on targets that do not multiply them.
pub fn note_emulated(g: &Graph, target: &Target, notes: &Notes) {
    let narrow = |v: ValueId| {
        let of = |v: ValueId| g.ty(v).dtype == DType::F8E4M3;
        let widened = g.producer(v).filter(|(_, n)| n.op.is(DEQUANTIZE)).and_then(|(_, n)| n.inputs[0]);
        of(v) || widened.is_some_and(of)
    };
    let products = g.nodes().filter(|(_, n)| n.op.is(MATMUL) || n.op.is(CONV));
    let count = products.filter(|(_, n)| n.inputs.iter().flatten().any(|&v| narrow(v))).count();
    if count > 0 && !target.has(FEATURE) {
        notes.add(format!(
            "{count} products of f8e4m3 are computed in f32: backend {} does not multiply floats of 8 bits on {}",
            target.backend, target.device
        ));
    }
}
