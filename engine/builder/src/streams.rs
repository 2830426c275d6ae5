//! Streams of steps: branches that may run at the same time.

use crate::{BuildConfig, BuildError};
use kiln_backend::order::{MAX_STREAMS, Order, Sources};
use kiln_backend::{Step, Target};
use kiln_ir::{Graph, NodeId};

/// The trait of a target whose backend runs branches of a program at the same time.
const TRAIT: &str = "parallel_streams";

/// Refuses more streams than a program can have.
pub(crate) fn check(config: &BuildConfig) -> Result<(), BuildError> {
    match config.max_aux_streams < MAX_STREAMS {
        true => Ok(()),
        false => Err(BuildError::AuxStreams { wanted: config.max_aux_streams, most: MAX_STREAMS - 1 }),
    }
}

/// The stream of each step; none where all are in the main one. Notes where the device has one stream only.
pub(crate) fn assign(
    graph: &Graph,
    steps: &[Step],
    config: &BuildConfig,
    target: &Target,
    notes: &mut Vec<String>,
) -> Vec<u32> {
    if config.max_aux_streams == 0 {
        return Vec::new();
    }
    if target.traits.get(TRAIT).is_none_or(|&n| n == 0) {
        notes.push(format!(
            "{} auxiliary streams are permitted, and the backend \"{}\" runs layers one behind the other",
            config.max_aux_streams, target.backend
        ));
        return Vec::new();
    }
    let nodes: Vec<&[NodeId]> = steps.iter().map(|s| s.nodes.as_slice()).collect();
    let sources = Sources::of(&nodes);
    let mut order = Order::new(config.max_aux_streams + 1);
    for s in 0..steps.len() {
        let (needs, alone) = sources.needs(graph, &nodes, s);
        order.push(&needs, alone, order.choose(&needs, alone));
    }
    let streams = order.into_streams();
    let used = streams.iter().max().copied().unwrap_or(0);
    let beside = streams.iter().filter(|&&s| s > 0).count();
    notes.push(match used {
        0 => "auxiliary streams are permitted, and no layers can run side by side".to_owned(),
        _ => format!("{beside} of {} layers are in {used} auxiliary streams", steps.len()),
    });
    streams
}
