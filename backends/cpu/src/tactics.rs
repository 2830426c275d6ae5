//! The tactics: their names, and a rough model of their times, so that an engine can choose without timing.

use kiln_backend::assisted::ORACLE;
use kiln_backend::{BackendError, Tactic, flow};
use kiln_ir::{Graph, Node};
use kiln_ops::conv::CONV;
use kiln_ops::matmul::MATMUL;

/// Runs every layer by its kernel.
pub(crate) const FAST: &str = "fast";

/// Changes whenever results or times may change: the version and a hash of the backend's sources.
const SOURCE: &str = concat!("cpu ", env!("CARGO_PKG_VERSION"), " ", env!("KILN_CPU_SOURCES"));

/// A tactic with its expected time, where all sizes are known.
pub(crate) fn tactic(name: &str, graph: &Graph) -> Tactic {
    let per_product = if name == FAST { 0.05 } else { 4.0 };
    let work: Option<f64> = graph.nodes().map(|(_, n)| products(graph, n)).sum();
    Tactic {
        source_hash: SOURCE.into(),
        estimate_ns: work.map(|w| 1000.0 + w * per_product),
        ..Tactic::plain(name)
    }
}

/// Number of elements or products that a node computes.
fn products(g: &Graph, n: &Node) -> Option<f64> {
    let volume = |v| g.ty(v).static_volume().map(|n| n as f64);
    let out: Option<f64> = n.outputs.iter().map(|&v| volume(v)).sum();
    let input = |i: usize| n.inputs.get(i).copied().flatten();
    let depth = match n.op.id() {
        CONV => {
            let w = input(1)?;
            let outs = g.ty(w).dims.first()?.as_const()?;
            volume(w)? / outs.max(1) as f64
        }
        MATMUL => {
            let a = g.ty(input(0)?);
            let trans = n.op.attrs().bool("trans_a").unwrap_or(false) && a.rank() > 1;
            a.dims.iter().rev().nth(usize::from(trans))?.as_const()? as f64
        }
        _ => 4.0,
    };
    let read: Option<f64> = n.inputs.iter().flatten().map(|&v| volume(v)).sum();
    Some(out? * depth + read?)
}

/// Refuses a tactic that this build does not have.
pub(crate) fn check_tactic(name: &str) -> Result<(), BackendError> {
    match name {
        ORACLE | FAST | flow::INTERPRETED => Ok(()),
        other => Err(BackendError::Incompatible(format!(
            "the cpu backend has no tactic \"{other}\"; build the plan again"
        ))),
    }
}
