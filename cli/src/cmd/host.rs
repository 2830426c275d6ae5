//! Layers at which a run waits for the host: why, and what to do.

use crate::print::Printer;
use kiln::HostLayer;
use serde_json::{Value, json};

/// Layers at which the host waits, for programs; null where the backend does not report them.
pub fn host_json(layers: Option<&[HostLayer]>) -> Value {
    let one = |l: &HostLayer| json!({"name": l.name, "why": l.why, "advice": l.advice});
    layers.map_or(Value::Null, |all| all.iter().map(one).collect())
}

/// Prints layers at which the host waits; nothing where there are none.
pub fn print_host(layers: &[HostLayer], out: &Printer) {
    let row = |l: &HostLayer| vec![l.name.clone(), l.why.clone(), l.advice.clone()];
    out.table(&["waits for the host at", "because", "what to do"], layers.iter().map(row).collect());
}
