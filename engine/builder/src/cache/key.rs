//! Keys of the timing cache: what was timed, as text, hashed.

use super::TIMING_VERSION;
use kiln_backend::Target;
use kiln_ir::{Graph, ValueId};
use std::fmt::Write;

/// A region as one line a node: operators with all attributes, types of inputs and outputs, and which value is which
/// (so that broadcasting and repeated inputs show).
pub fn describe(g: &Graph) -> String {
    let mut s = String::new();
    let value = |v: ValueId| format!("{}:{}", g.value(v).name, g.ty(v));
    for (_, n) in g.nodes() {
        let attrs: Vec<String> = n.op.attrs().iter().map(|(k, a)| format!("{k}={a}")).collect();
        let ins: Vec<String> =
            n.inputs.iter().map(|v| v.map_or("-".into(), |v| constant_or(g, v, value(v)))).collect();
        let outs: Vec<String> = n.outputs.iter().map(|&v| value(v)).collect();
        let _ =
            writeln!(s, "{}{{{}}}({}) -> {}", n.op.name(), attrs.join(","), ins.join(", "), outs.join(", "));
    }
    s
}

/// Constants inside a region are part of what is timed.
fn constant_or(g: &Graph, v: ValueId, text: String) -> String {
    match g.weight(v) {
        Some(w) => format!("{text}={}", blake3::hash(w.tensor.bytes()).to_hex()),
        None => text,
    }
}

/// The key of a region on a target, `flags` being the settings that change what a backend may choose from.
pub fn key(region: &str, target: &Target, flags: &str) -> String {
    let mut h = blake3::Hasher::new();
    for part in [region, &target.fingerprint(), flags, &TIMING_VERSION.to_string()] {
        h.update(&(part.len() as u64).to_le_bytes());
        h.update(part.as_bytes());
    }
    h.finalize().to_hex()[..32].to_owned()
}
