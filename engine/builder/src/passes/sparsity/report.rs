//! Notes on sparsity: which layers could use packed weights, which do, and both times.

use super::weights;
use crate::passes::Notes;
use crate::passes::patterns::SPARSE;
use crate::{BuildConfig, Considered, Sparsity};
use kiln_backend::{SPARSE_WEIGHTS, Target};
use kiln_ir::{Graph, Node};
use kiln_ops::matmul::sparse::MATMUL_SPARSE;

/// Names that a note lists.
const LISTED: usize = 20;

/// Adds the notes on a network whose kernels are chosen.
pub fn report(g: &Graph, considered: &[Considered], config: &BuildConfig, target: &Target, notes: &Notes) {
    if config.sparsity == Sparsity::Disable {
        return;
    }
    if !target.has(SPARSE_WEIGHTS) {
        let pruned = if config.sparsity == Sparsity::Force {
            "; pruned weights are multiplied as dense ones"
        } else {
            ""
        };
        notes.add(format!(
            "(Sparsity) not used: backend {} has no kernels for 2:4 sparse weights{pruned}",
            target.backend
        ));
        return;
    }
    if !(config.search && config.fuse && config.fold) {
        notes.add("(Sparsity) not used: the build does not try other forms of layers".into());
        return;
    }
    let taken: Vec<&Node> = g.nodes().map(|(_, n)| n).filter(|n| n.op.is(MATMUL_SPARSE)).collect();
    let left = g.nodes().filter_map(|(_, n)| Some((n, weights(g, n)?)));
    let (mut eligible, mut refused) = (taken.clone(), Vec::new());
    for (n, found) in left {
        match found {
            Ok(_) => eligible.push(n),
            Err(why) => refused.push((n, why)),
        }
    }
    match eligible.is_empty() {
        false => notes.tell(format!("(Sparsity) Layers eligible for sparse math: {}", names(&eligible))),
        true => {
            let why = refused.first().map(|(n, why)| format!("; layer \"{}\" for one: {why}", n.name));
            notes.tell(format!("(Sparsity) No layer is eligible for sparse math{}", why.unwrap_or_default()));
        }
    }
    for c in considered.iter().filter(|c| c.rewrite == SPARSE) {
        let times = match (c.without_ns, c.with_ns) {
            (Some(dense), Some(sparse)) => {
                format!("{:.2} us dense, {:.2} us sparse: ", dense / 1e3, sparse / 1e3)
            }
            _ => String::new(),
        };
        let alike = if c.sites > 1 { format!(" and {} like it", c.sites - 1) } else { String::new() };
        notes.tell(format!("(Sparsity) layer \"{}\"{alike}: {times}{}", c.layer, c.why));
    }
    if !eligible.is_empty() {
        let list = if taken.is_empty() { "none".to_owned() } else { names(&taken) };
        notes.tell(format!("(Sparsity) Plan picked sparse implementation for layers: {list}"));
    }
}

fn names(of: &[&Node]) -> String {
    let mut list: Vec<&str> = of.iter().take(LISTED).map(|n| n.name.as_str()).collect();
    let more = format!("and {} more", of.len().saturating_sub(LISTED));
    if of.len() > LISTED {
        list.push(&more);
    }
    list.join(", ")
}
