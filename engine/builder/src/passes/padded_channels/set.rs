//! Values that are padded together.

use super::anchors::Pads;
use kiln_ir::{Graph, NodeId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Values of equally many channels that are padded together.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// Number of channels now, and after.
    pub(super) channels: usize,
    pub(super) padded: usize,
    /// The values, with the axis of their channels.
    pub(super) values: BTreeMap<ValueId, usize>,
    /// Layers that keep channels apart, with what their constants get in added channels.
    pub(super) through: BTreeMap<NodeId, Pads>,
    /// Layers with weights that make such a value, or read one.
    pub(super) makers: BTreeSet<NodeId>,
    pub(super) readers: BTreeSet<NodeId>,
    /// Layers that change, in execution order.
    pub nodes: Vec<NodeId>,
}

impl Set {
    pub(super) fn empty(channels: usize, padded: usize) -> Set {
        Set {
            channels,
            padded,
            values: BTreeMap::new(),
            through: BTreeMap::new(),
            makers: BTreeSet::new(),
            readers: BTreeSet::new(),
            nodes: Vec::new(),
        }
    }
}

/// The number of channels of a value along an axis, if it is known.
pub(super) fn channels(g: &Graph, v: ValueId, axis: usize) -> Option<usize> {
    usize::try_from(g.ty(v).dims.get(axis)?.as_const()?).ok().filter(|&n| n > 0)
}
