//! Bindings of a kernel.

use crate::Body;
use crate::site::Site;

/// Contents of one binding of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// An input of the anchor, by position.
    Input(usize),
    /// A further input of the region, by position among the extras.
    Extra(usize),
    /// A stored output.
    Output(usize),
    /// Scratch memory.
    Scratch,
    /// Sizes for the host.
    Sizes,
    /// The record of an index out of range; see [`checks`](crate::checks).
    Faults,
}

/// The bindings of a kernel in order.
pub fn slots(site: &Site<'_>, body: &Body) -> Vec<Slot> {
    let inputs = body.inputs.clone().unwrap_or_else(|| site.device_inputs());
    let mut out = Vec::new();
    if site.anchor.is_some() {
        out.extend(inputs.into_iter().map(Slot::Input));
    }
    out.extend((0..site.extras.len()).map(Slot::Extra));
    out.extend((0..site.stored().len()).map(Slot::Output));
    out.extend(body.scratch.then_some(Slot::Scratch));
    out.extend(body.sizes.then_some(Slot::Sizes));
    out.extend((!body.checks.is_empty()).then_some(Slot::Faults));
    out
}
