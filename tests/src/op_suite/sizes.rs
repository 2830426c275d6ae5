//! Operators on inputs whose first size only the device knows: it keeps all rows of each by a condition.

use super::problems;
use crate::suite::{Setting, run_graph};
use kiln_ir::problem::Problem;
use kiln_ir::{Attrs, DType, Fact, Graph, IrError, Op, Tensor};
use std::collections::BTreeSet;

/// Result of [`device_sizes`].
#[derive(Debug, Default)]
pub struct Sizes {
    /// Problems with the shapes and, between integers, the values of the oracle.
    pub passed: usize,
    /// Operators that need the size before, or that the backend refuses.
    pub refused: BTreeSet<&'static str>,
    /// Failures.
    pub failed: Vec<String>,
}

/// Runs one of `every` problems of each operator, from the `first` on.
pub fn device_sizes(setting: &Setting, first: usize, every: usize) -> Sizes {
    let mut found = Sizes::default();
    let mut last = ("", 0);
    for p in problems() {
        let name = p.op.name();
        last = if last.0 == name { (name, last.1 + 1) } else { (name, 0) };
        let traits = p.op.def().traits;
        let few = p.inputs.iter().flatten().all(|t| t.len() <= 1 << 12);
        if last.1 % every.max(1) != first || traits.random || traits.side_effect || !few {
            continue;
        }
        let Ok(Some((graph, inputs))) = network(&p) else {
            found.refused.insert(name);
            continue;
        };
        let Ok(wanted) = p.op.eval(&p.inputs) else { continue };
        let exact = p.inputs.iter().flatten().all(|t| !t.dtype().is_float());
        let same = |a: &Tensor, b: &Tensor| a.ty() == b.ty() && (!exact || a.dtype().is_float() || a == b);
        match run_graph(setting, graph, &inputs) {
            Err(e) if e.contains("not supported") => drop(found.refused.insert(name)),
            Err(e) => found.failed.push(format!("{name} {}: {e}", p.label)),
            Ok(outs) => match outs.iter().zip(&wanted).find(|(a, b)| !same(a, b)) {
                Some((a, b)) => found.failed.push(format!("{name} {}: {} for {}", p.label, a.ty(), b.ty())),
                None => found.passed += 1,
            },
        }
    }
    found
}

/// The problem behind conditions that keep all rows; `None` if no input has rows.
fn network(p: &Problem) -> Result<Option<(Graph, Vec<Tensor>)>, IrError> {
    let mut g = Graph::new("sizes");
    let (mut given, mut ins, mut rows) = (Vec::new(), Vec::new(), 0);
    for (i, t) in p.inputs.iter().enumerate() {
        let Some(t) = t else {
            ins.push(None);
            continue;
        };
        let host = p.op.port(i).is_some_and(|port| port.host);
        if host || t.shape().first().is_none_or(|&n| n == 0) {
            ins.push(Some(g.add_constant(&format!("c{i}"), t.clone())));
            continue;
        }
        let keep = Tensor::from_bytes(DType::Bool, &[t.shape()[0]], vec![1; t.shape()[0]]);
        let Some(keep) = keep else { return Ok(None) };
        let x = g.add_input(&format!("x{i}"), Fact::of(t.ty()));
        let k = g.add_input(&format!("k{i}"), Fact::of(keep.ty()));
        let kept = Op::new("compress", Attrs::new().with("axis", 0i64))?;
        ins.push(Some(g.add(&format!("r{i}"), kept, &[x, k])?));
        given.extend([t.clone(), keep]);
        rows += 1;
    }
    g.outputs = g.add_node("y", p.op.clone(), &ins)?.clone();
    Ok((rows > 0).then_some((g, given)))
}
