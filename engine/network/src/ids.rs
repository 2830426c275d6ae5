//! Handles of the parts of a network: layers, tensors, constructs of control flow, and weights inside of layers. They stay
//! valid while the network changes.

use std::fmt;

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

/// Role of weights in the layer that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightsRole {
    /// The kernel of a convolution or the matrix of a fully connected layer.
    Kernel,
    /// The bias.
    Bias,
    /// The shift of a scale layer.
    Shift,
    /// The scale of a scale layer.
    Scale,
    /// The power of a scale layer.
    Power,
    /// The elements of a constant layer.
    Constant,
}

impl fmt::Display for WeightsRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WeightsRole::Kernel => "kernel",
            WeightsRole::Bias => "bias",
            WeightsRole::Shift => "shift",
            WeightsRole::Scale => "scale",
            WeightsRole::Power => "power",
            WeightsRole::Constant => "constant",
        })
    }
}
