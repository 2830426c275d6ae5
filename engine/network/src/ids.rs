//! Handles of the parts of a network: layers, tensors and constructs of control flow. They stay valid while the network
//! changes.

/// A layer of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(pub(crate) u32);

/// A tensor of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(crate) u32);

/// A loop of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoopId(pub(crate) u32);

/// A conditional of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IfId(pub(crate) u32);

/// A loop or a conditional, by its number in the network.
pub(crate) type ConstructId = u32;
